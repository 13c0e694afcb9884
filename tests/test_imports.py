"""What is not loaded until it is needed."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT

from bench.generate import generate

HEAVY = ["numpy", "msgspec", "orjson", "isal", "google.protobuf", "perfetto", "tqdm"]


def loaded(code, *arguments):
    """Which of the heavy packages a fresh interpreter has loaded after ``code``."""
    script = (
        f"import json, sys\n{code}\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_help_loads_nothing_heavy():
    """Help and version answer at once."""
    calls = [["--help"], ["--version"], ["merge", "--help"], ["formats", "--help"]]
    assert loaded(f"from traceconv.cli import run\nassert not any(map(run, {calls}))") == []


def test_import_loads_nothing_heavy():
    """``import traceconv`` costs nothing; click is the command line's own."""
    assert loaded("import traceconv\nassert 'click' not in sys.modules") == []


def test_json_output_needs_no_protobuf(root, tmp_path):
    """A run that writes Chrome JSON never loads protobuf."""
    merge = (
        "import traceconv\n"
        "traceconv.merge(sys.argv[1], out=sys.argv[2])\n"
        "assert 'google.protobuf' not in sys.modules"
    )
    sample = root / "golden" / "trace_view" / "demo" / "input"
    assert "google.protobuf" not in loaded(merge, str(sample), str(tmp_path / "out.json"))


UNASKED = (
    *(
        "analysis",
        "report",
        "api.inspect",
        "pipeline.job_summary",
        "pipeline.summaries",
        "pipeline.shards",
    ),
    *("pipeline.copying", "pipeline.patch"),
)


RUN = "from traceconv.cli import run\nassert run(sys.argv[1:]) == 0"
MAIN = "from traceconv.cli import main\nsys.argv = ['traceconv', *sys.argv[1:]]\nmain()"
"""A command as a function, and as the installed script calls it, which exits."""


def loaded_by(*words, call=RUN):
    """The modules that a command has loaded when it is done."""
    lines = call.replace("\n", "\n    ")
    script = f"import sys\ntry:\n    {lines}\nfinally:\n    print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.fixture(scope="module")
def of_merge(tmp_path_factory):
    """Tells which modules a merge of a ``trace_view`` capture to a file with some ending loads."""
    sample = ROOT / "golden" / "trace_view" / "demo" / "input"

    @cache
    def modules(ending, *options):
        out = tmp_path_factory.mktemp("out") / f"out.{ending}"
        return loaded_by("merge", str(sample), "-o", str(out), "-q", *options)

    return modules


def test_a_conversion_loads_no_analysis(tmp_path):
    """What other verbs share with it brings none along."""
    sample = ROOT / "golden" / "trace_view" / "demo" / "input"
    loaded = loaded_by("convert", str(sample), "-o", str(tmp_path / "out.pftrace"), "-q")
    assert [m for m in loaded if m.startswith(("traceconv.analysis", "traceconv.report"))] == []


def test_a_merge_loads_no_other_reader(of_merge):
    """Readers are imported to be asked; what they read with is not."""
    asked = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys; from traceconv.pipeline import registry; registry.readers()\n"
            "print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    of_readers = "traceconv.readers."
    more = set(of_merge("pftrace")) - set(asked)
    used = {m.removeprefix(of_readers) for m in more if m.startswith(of_readers)}
    assert {
        m
        for m in used
        if not m.startswith(("ascend.common", "shared.ascend", "shared.trace_events"))
    } <= {
        *("shared.arguments", "shared.numbers", "shared.pairing", "shared.windows"),
    }
    assert "shared.trace_events.timeline" in used


def test_a_merge_loads_no_analysis(of_merge):
    """Judging, annotating and sharding are loaded by those who ask for them."""
    names = of_merge("json")
    assert [m for m in names if m.startswith(tuple(f"traceconv.{u}" for u in UNASKED))] == []


@pytest.mark.parametrize(
    ("ending", "others"),
    [
        ("json", ("perfetto.", "text_lines")),
        ("pftrace", ("chrome.", "text_lines")),
        ("txt", ("perfetto.", "chrome.")),
    ],
)
def test_a_merge_loads_one_encoder(of_merge, ending, others):
    """Of writers that are not used only the names are known."""
    helpers = [m.removeprefix("traceconv.writers.") for m in of_merge(ending)]
    assert [m for m in helpers if m.startswith(others)] == []


UNUSED = {
    "numpy.ma": "numpy.unique, median and quantile ask it for a type: a twenty-fifth of the work",
    "statistics": "for one quantile, where a clock seems to have been set",
    "tarfile": "for the errors of archives",
    "zipfile": "for the same",
}
"""What a merge of files does without, and what it would be imported for."""


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """The modules that a merge of two ranks loads, whose clocks are aligned by collectives."""
    folder = tmp_path_factory.mktemp("two")
    for rank in range(2):
        generate(folder / "ranks", rank, 2000)
    names = loaded_by("merge", str(folder / "ranks"), "-o", str(folder / "two.pftrace"), "-q")
    assert "traceconv.alignment.hypotheses" in names
    return names


@pytest.mark.parametrize("module", UNUSED)
def test_a_small_merge_does_without(of_merge, of_two, module):
    """Of one rank, and of two."""
    assert module not in of_merge("json")
    assert module not in of_two


def test_a_copy_loads_no_reading(of_merge):
    """Bytes that are copied meet no column, no pass and no clock of collectives."""
    names = of_merge("json", "-m", "source")
    assert "traceconv.pipeline.patch" in names
    assert [
        m
        for m in names
        if m.endswith((".overlap", ".steps", ".trace_events.timeline", ".collective_matching"))
    ] == []


def test_one_rank_needs_no_line_to_workers(of_merge):
    """What a single process does without: sockets, children, mails, hashes and SQLite."""
    heavy = {"multiprocessing", "subprocess", "email", "hashlib", "sqlite3", "importlib.metadata"}
    assert heavy & set(of_merge("pftrace")) == set()


def test_a_report_unpacks_nothing(of_merge, tmp_path):
    """What it is made of are files beside its modules; its figures need no masked arrays."""
    names = of_merge("pftrace", "--report", str(tmp_path / "report.html"))
    assert "traceconv.report.html" in names
    heavy = {"zipfile", "importlib.resources", "jinja2", "numpy.ma", "hashlib", "html"}
    assert heavy & set(names) == set()


GIVEN_OR_MADE = {
    "core.codes.Code": "what `traceconv --help` loads knows no msgspec",
    "cli.outcome.Task": "the same",
    "api.open.Captures": "public",
    "core.errors.Issue": "public",
    "core.errors.Issues": "public",
    "core.model.Capture": "public, and readers of others copy it",
    "core.model.Trace": "the same",
    "pipeline.options.MergeOptions": "public",
    "pipeline.options.RunOptions": "how progress is told makes no two of them unequal",
    "pipeline.options.Selection": "public",
    "pipeline.report.Report": "public",
    "writers.Beside": "writers of others are given it or make it",
    "writers.Costs": "the same",
    "writers.Document": "the same",
    "writers.Part": "the same",
    "writers.Plan": "the same",
    "writers.size_limit.SizeLimit": "public",
}
"""The dataclasses of a merge, and why they are none of msgspec's structs, which take a thirtieth of
the time to define."""


def test_inner_records_of_a_merge_are_structs(tmp_path):
    """The standard library compiles up to six functions for each dataclass."""
    script = (
        "import sys\n"
        "from dataclasses import is_dataclass\n"
        "from traceconv.cli import run\n"
        "assert run(sys.argv[1:]) == 0\n"
        "print(*{f'{v.__module__}.{v.__qualname__}' for name, module in sys.modules.items()\n"
        "  if name.startswith('traceconv.') for v in vars(module).values()\n"
        "  if isinstance(v, type) and is_dataclass(v)})"
    )
    sample = ROOT / "golden" / "trace_view" / "demo" / "input"
    words = ["merge", str(sample), "-q", "-o", str(tmp_path / "out.pftrace")]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    found = {name.removeprefix("traceconv.") for name in done.stdout.split()}
    assert {name for name in found if not name.startswith("readers.")} <= set(GIVEN_OR_MADE)


@pytest.mark.parametrize(
    "case",
    ["trace_view/demo", "kineto/two_ranks", "msprof/step_export_slices", "chrome_json/far_stamps"],
)
def test_what_only_finds_does_without_arrays(case):
    """Names and heads of files tell what is in a folder; half of that would be loading numpy."""
    names = loaded_by("inspect", str(ROOT / "golden" / case / "input"), call=MAIN)
    assert "traceconv.api.inspect" in names
    assert "numpy._core" not in names
    assert "traceconv.pipeline.spill" not in names


@pytest.mark.parametrize("command", ["merge", "convert", "stats", "stragglers", "diagnose"])
def test_commands_that_compute_load_arrays_near_their_start(command, tmp_path):
    """Deep inside the library CPython would take memory for frames, and give it back, thousands of
    times while it loads numpy; see ``Computing``."""
    sample = ROOT / "golden" / "trace_view" / "demo" / "input"
    words = [command, str(sample), "-q"]
    words += ["-o", str(tmp_path / "out.pftrace")] if command in ("merge", "convert") else []
    script = (
        "import sys\n"
        "class Depth:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'numpy.version':\n"
        "            frame, found = sys._getframe(), 0\n"
        "            while frame:\n"
        "                frame, found = frame.f_back, found + 1\n"
        "            print('depth', found, file=sys.stderr)\n"
        "sys.meta_path.insert(0, Depth())\n"
        "from traceconv.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("depth")]
    assert int(told.split()[1]) < 40, done.stderr


def test_a_package_that_is_put_off_is_whole_when_it_is_used(tmp_path):
    """Whether its name, something in it or a module of it comes first."""
    for first in ("import numpy as np; np.zeros(1)", "from numpy import int64", "import numpy.fft"):
        script = (
            f"import sys\nfrom traceconv.cli import _put_off\n_put_off('numpy')\n"
            f"before = 'numpy._core' in sys.modules\n{first}\nimport numpy\n"
            "print(before, numpy.zeros(2).sum(), numpy.fft.fft, type(numpy).__name__)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("False 0.0 <function fft"), first
        assert done.stdout.split()[-1] == "module", first


def test_what_cannot_be_loaded_is_not_put_off():
    """Importing it says so, as ever."""
    from traceconv.cli import _put_off

    _put_off("no_such_package")
    assert "no_such_package" not in sys.modules


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted by Linux")
def test_the_command_line_starts_no_threads_for_matrices():
    """Those of numpy cost work on every start, the more processors there are, and do nothing."""
    sample = ROOT / "golden" / "trace_view" / "demo" / "input"
    count = (
        "import os, sys\n"
        "from traceconv.cli import main\n"
        f"sys.argv = ['traceconv', 'convert', {str(sample)!r}, '-o', '-', '--to', 'text']\n"
        "try:\n    main()\n"
        "finally:\n"
        "    print(len(os.listdir('/proc/self/task')), 'numpy._core' in sys.modules)"
    )
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", count], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.splitlines()[-1] == "1 True"


def test_public_names_are_all_there():
    """Every name the package announces can be had from it."""
    import traceconv

    assert [name for name in traceconv.__all__ if not hasattr(traceconv, name)] == []
