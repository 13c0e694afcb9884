"""Commands and Python code of the documents run on the bundled samples, as they are written."""

import re
import shlex
import subprocess
import sys

import click
import pytest
from paths import ROOT

import traceconv
from tests.support.commands import COMMANDS
from traceconv.cli import run

PAGES = (ROOT / "README.md", ROOT / "SKILL.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
DEMO, JOB = ROOT / "golden/trace_view/demo/input", ROOT / "examples/job"
_OF_JOB = (
    "--ranks 0-7",
    "--ranks 0:3",
    "tp=0",
    "dp=0",
    "group-by",
    "critical-path",
    "what-if",
    "--steps 10-13",
)
_ELSEWHERE = re.compile(
    r"://|SLURM|new-reader|tests/golden| open |--open|\.tar|own\.pftrace"
    r"| query | watch | explore |part\?|node\(|node\$N|node\*"
)
"""Commands that need a network, a scheduler, a browser or files that a page describes only."""


def blocks(*languages):
    """(page, text) of all blocks in these languages."""
    return [
        (path.relative_to(ROOT).as_posix(), text)
        for path in PAGES
        for language, text in BLOCK.findall(path.read_text())
        if language in languages and "/zh/" not in str(path)
    ]


COMMAND_LINES = [
    (page, line.removeprefix("$ "))
    for page, text in blocks("", "sh", "console")
    for line in text.splitlines()
    if re.match(r"(\$ )?traceconv [a-z]", line)
]
CODE = [(page, code) for page, code in blocks("python") if page != "docs/api.md"]
"""Code to run: the blocks of the reference are signatures."""
RUN = [
    (page, line)
    for page, line in COMMAND_LINES
    if page in ("README.md", "docs/tutorial.md") or page.startswith("docs/guide/")
    if not _ELSEWHERE.search(line)
]


def words(line):
    """The arguments of a command line, without its comment."""
    return shlex.split(line.partition(" # ")[0].partition("  #")[0])[1:]


@pytest.mark.parametrize(("page", "line"), COMMAND_LINES)
def test_a_command_is_understood(page, line):
    """Every option exists and takes the value that is shown."""
    name, *rest = words(line)
    command = COMMANDS[name]
    context = click.Context(command, info_name=name, resilient_parsing=True)
    command.make_parser(context).parse_args(args=list(rest))


@pytest.mark.parametrize(("page", "line"), RUN)
def test_a_command_runs(page, line, tmp_path, monkeypatch, capsys):
    """On a bundled sample: it ends well, or in the exit code of a gate."""
    monkeypatch.chdir(tmp_path)
    sample = JOB if any(part in line for part in _OF_JOB) else DEMO
    for name in ("prof", "monday", "tuesday"):
        (tmp_path / name).symlink_to(sample)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (view,) = [p for p in DEMO.rglob("trace_view.json") if "4021" in str(p)]
    (tmp_path / "trace_view.json").symlink_to(view)
    given = words(line)
    for file in ("monday.json", "baseline.json", "report.json"):
        if file in line and not (tmp_path / file).exists() and f"--report {file}" not in line:
            traceconv_merge(tmp_path, sample, file)
    if re.search(r"(?<!-o )run\.tcz", line):
        traceconv.pack(sample, out=tmp_path / "run.tcz")
    if "out.pftrace" in line:
        traceconv.merge(sample, out=str(tmp_path / "out.pftrace"))
    assert run(given) in (0, 10, 11), capsys.readouterr().err


def traceconv_merge(folder, sample, report):
    """A report that a command takes as its input."""
    out = str(folder / "made.pftrace")
    assert run(["merge", str(sample), "-q", "-f", "-o", out, "--report", str(folder / report)]) == 0


@pytest.mark.parametrize(("page", "code"), CODE, ids=[page for page, _ in CODE])
def test_python_code_runs_twice(page, code, tmp_path, monkeypatch):
    """Nothing is in the way of a second run."""
    for package in re.findall(r"to_(pandas)|\.(plot)\(", code):
        pytest.importorskip({"plot": "matplotlib"}.get("".join(package), "".join(package)))
    if ".plot(" in code:
        import matplotlib

        matplotlib.use("agg")
    if "import traceconv" not in code or re.search(r"^(import torch|from transformers)", code):
        compile(code, page, "exec")  # code of a framework, which records
        return
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prof").symlink_to(DEMO)
    for _ in range(2):
        exec(compile(code, page, "exec"), {})
    written = [path for path in tmp_path.glob("*.*") if path.suffix in (".pftrace", ".json")]
    assert all(traceconv.validate(path).ok for path in written)


def test_the_action_merges_compares_and_reports(tmp_path):
    """Its steps, as a runner runs them: a proven regression fails, and the summary says why."""
    action = (ROOT / "action.yml").read_text()
    steps = dict(
        re.findall(r"(?ms)- name: (\w+)\n.*?      run: \|\n((?:        [^\n]*\n|\n)+)", action)
    )
    scripts = {name: re.sub(r"(?m)^ {8}", "", text) for name, text in steps.items()}
    summary = tmp_path / "summary.md"
    traceconv.merge(DEMO, out=str(tmp_path / "a.pftrace"), analyse=True)
    traceconv_merge(tmp_path, DEMO, "baseline.json")
    env = {
        "PATH": f"{ROOT}/.venv/bin:{sys.prefix}/bin:/usr/bin:/bin", "CAPTURES": str(DEMO),
        "GITHUB_STEP_SUMMARY": str(summary), "BASELINE": str(tmp_path / "baseline.json"),
        "GATES": "step>2%\nexposed_comm>5%\n", "UNKNOWN": "pass",
    }  # fmt: skip
    for name in ("Merge", "Compare"):
        done = subprocess.run(
            ["bash", "-e", "-c", scripts[name]],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    text = summary.read_text()
    assert "## Findings" in text and "# no change: " in text
    made = sorted(path.name for path in (tmp_path / "traceconv-report").iterdir())
    assert made == ["diff.html", "diff.md", "report.html", "report.json", "trace.pftrace"]
    summary.unlink()
    traceconv_merge(tmp_path, JOB, "other.json")
    env["BASELINE"] = str(tmp_path / "other.json")
    done = subprocess.run(
        ["bash", "-e", "-c", scripts["Compare"]],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 11
    assert "::error title=traceconv::error: the runs cannot be compared: other" in done.stdout
    assert summary.read_text().startswith("# No comparison\n\nerror: the runs cannot be compared")
