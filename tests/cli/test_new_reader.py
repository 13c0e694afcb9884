"""``traceconv new-reader``, and the package in ``examples/plugin``: plugins that work, and fail."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from paths import ROOT

import traceconv.plugin
from traceconv.cli import run

EXAMPLE = ROOT / "examples" / "plugin"


def installed(package, place):
    """What an installer leaves of ``package``: its modules, and its entry points."""
    about = tomllib.loads((package / "pyproject.toml").read_text())
    project = about["project"]
    info = place / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    lines = [
        line
        for group, entries in groups
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for module in about["tool"]["setuptools"]["py-modules"]:
        (place / f"{module}.py").write_text((package / f"{module}.py").read_text())
    return place


def called(place, *words, cwd):
    """A program in an environment with what is ``installed`` in ``place``."""
    path = os.pathsep.join([str(place), str(ROOT)])
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.fixture
def skeleton(tmp_path):
    """A package as ``new-reader`` writes it."""
    assert run(["new-reader", "mylog", "-o", str(tmp_path / "made"), "-q"]) == 0
    return tmp_path / "made"


def test_the_skeleton_passes_its_own_tests(skeleton, tmp_path):
    """Before a line of it was changed; its golden case has a good and a torn record."""
    place = installed(skeleton, tmp_path / "site")
    done = called(place, "-m", "pytest", "-p", "no:cacheprovider", skeleton, cwd=skeleton)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout
    expect = (skeleton / "tests/golden/first/expect.txt").read_text()
    assert '"step 1"' in expect
    assert "mylog-torn-line x1 ['line 3']" in expect


@pytest.mark.thorough
def test_the_tests_of_the_skeleton_can_fail(skeleton, tmp_path):
    """A reader that reads something else is noticed."""
    module = skeleton / "traceconv_mylog.py"
    module.write_text(module.read_text().replace("int(length)", "int(length) + 1"))
    place = installed(skeleton, tmp_path / "site")
    done = called(place, "-m", "pytest", "-p", "no:cacheprovider", skeleton, cwd=skeleton)
    assert done.returncode == 1


def test_a_folder_that_is_there_is_kept(skeleton, capsys):
    """Nothing that somebody has begun to change is written over."""
    (skeleton / "mine.txt").write_text("kept")
    assert run(["new-reader", "mylog", "-o", str(skeleton)]) == 2
    assert "exists" in capsys.readouterr().err
    assert (skeleton / "mine.txt").exists()


@pytest.mark.parametrize("name", ["my-log", "Log", "class", "../x", "kineto", ""])
def test_names_that_cannot_be_are_refused(name, tmp_path, monkeypatch, capsys):
    """Those of no module, and those of readers that are there; nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert run(["new-reader", "--", name]) == 2
    assert "NAME" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def example(tmp_path):
    """``examples/plugin`` as it is installed."""
    return installed(EXAMPLE, tmp_path / "site")


def test_the_example_passes_its_own_tests(example, tmp_path):
    """A reader and a writer in one package."""
    tests = EXAMPLE / "tests"
    done = called(example, "-m", "pytest", "-p", "no:cacheprovider", tests, cwd=tmp_path)
    assert (done.returncode, " passed" in done.stdout) == (0, True), done.stdout


SAMPLE = EXAMPLE / "tests" / "golden" / "first" / "input"
FAULT = "the plugin 'tictoc' of traceconv-tictoc 0.1.0 failed: ZeroDivisionError: division by zero"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("member", "jobs"),
    [
        *((member, 1) for member in ("find", "read", "begin", "trace", "end", "costs")),
        *((member, 2) for member in ("read", "trace")),  # what workers do
    ],
)
def test_an_exception_names_its_plugin(example, tmp_path, member, jobs):
    """Whatever a plugin raises, wherever: the message says whose it is, and nothing is written."""
    module = example / "traceconv_tictoc.py"
    lines = module.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"    def {member}("))
    body = next(i for i in range(at, len(lines)) if lines[i].endswith('"""'))
    lines.insert(body + 1, "        1 / 0")
    module.write_text("\n".join(lines))
    rank1 = tmp_path / "in" / "rank1.tictoc"
    rank1.parent.mkdir()
    for rank in (0, 1):
        text = next(SAMPLE.iterdir()).read_bytes()
        (rank1.parent / f"rank{rank}.tictoc").write_bytes(text)
    out = tmp_path / "out.slices.csv"
    limit = ["--max-size", "1M"] if member == "costs" else []
    words = ["-m", "traceconv", "merge", rank1.parent, "-o", out, "-j", jobs, "-m", "detail"]
    done = called(example, *words, *limit, cwd=tmp_path)
    assert FAULT in done.stderr
    assert f"(traceconv_tictoc.py, line {body + 2})" in done.stderr
    assert done.returncode == 2
    assert not out.exists()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("function", "name", "words"),
    [
        ("all_times", "tictoc", ["stats", "--by", "tictoc"]),
        ("dominating", "tictoc-long-event", ["diagnose"]),
    ],
)
def test_an_exception_of_a_table_or_rule_names_its_plugin(example, tmp_path, function, name, words):
    """The message says whose it is, without a traceback."""
    module = example / "traceconv_tictoc.py"
    head, _, rest = module.read_text().partition(f"def {function}(")
    line, _, rest = rest.partition('"""\n')
    module.write_text(f'{head}def {function}({line}"""\n    1 / 0\n{rest}')
    done = called(example, "-m", "traceconv", *words, SAMPLE, cwd=tmp_path)
    assert FAULT.replace("tictoc'", f"{name}'", 1) in done.stderr
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('Column.parse("Rank, Name:text, Time(ns)")', '("Rank", "Name")', "use Column.parse"),
        ("Rank, Name:text", "Name:text", "its columns lack 'Rank'"),
        ('"Time(ns)": ', '"Time": ', "a column 'Time', which the table does not declare (did you "),
        ("return stacked(ranked)", 'return {"rank": np.zeros(1, int)}', "(did you mean 'Rank'?)"),
        ("return stacked(ranked)", 'return {"Name": np.zeros(1, object)}', "no column 'Rank'"),
        ('": events.dur_ns}', '": events.dur_ns / 1e3}', "an array of int as 'Time(ns)'"),
        ("return {", "return None and {", "facts() must return a dict"),
    ],
)
def test_a_table_that_does_not_fit_its_columns_is_named(example, tmp_path, old, new, message):
    """The author of a plugin reads which column is wrong; no figure is lost."""
    module = example / "traceconv_tictoc.py"
    head, mark, body = module.read_text().partition("def times(")
    assert old in body
    module.write_text(head + mark + body.replace(old, new, 1))
    done = called(example, "-m", "traceconv", "stats", "--by", "tictoc", SAMPLE, cwd=tmp_path)
    assert message in done.stderr
    assert (done.returncode, "internal error" in done.stderr) == (2, False)


def test_the_table_of_the_docs_works(example, tmp_path):
    """The page shows a table; its rows are those of the log."""
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / "docs/extending.md").read_text())
    module = example / "traceconv_tictoc.py"
    module.write_text(f"{module.read_text()}\n{code}")
    words = ["stats", "--by", "calls", SAMPLE, "--json"]
    done = called(example, "-m", "traceconv", *words, cwd=tmp_path)
    (table,) = json.loads(done.stdout)["tables"]
    assert [time for _, time in table["rows"]] == [500, 2000, 2100]


def test_names_of_plugins_are_completed():
    """An editor and a shell offer what a plugin imports."""
    assert set(traceconv.plugin.__all__) <= set(dir(traceconv.plugin))


def test_an_account_that_does_not_close_names_its_plugin(example, tmp_path):
    """A reader that loses records without a word is at fault, and is told so."""
    module = example / "traceconv_tictoc.py"
    module.write_text(module.read_text().replace("            build.slice(", "            max("))
    done = called(example, "-m", "traceconv", "inspect", SAMPLE, "--counts", cwd=tmp_path)
    assert "the plugin 'tictoc' of traceconv-tictoc 0.1.0 failed" in done.stderr + done.stdout
