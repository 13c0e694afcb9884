"""What is not loaded until it is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

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


MAIN = "from traceconv.cli import main\nsys.argv = ['traceconv', *sys.argv[1:]]\nmain()"
"""A command as the installed script calls it."""


def loaded_by(*words):
    """The modules that a command has loaded when it is done."""
    lines = MAIN.replace("\n", "\n    ")
    script = f"import sys\ntry:\n    {lines}\nfinally:\n    print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    "case",
    ["trace_view/demo", "kineto/two_ranks", "msprof/step_export_slices", "chrome_json/far_stamps"],
)
def test_what_only_finds_does_without_arrays(case):
    """Names and heads of files tell what is in a folder; half of that would be loading numpy."""
    names = loaded_by("inspect", str(ROOT / "golden" / case / "input"))
    assert "traceconv.api.inspect" in names
    assert "numpy._core" not in names


def test_a_package_that_is_put_off_is_whole_when_it_is_used(tmp_path):
    """Whether its name, something in it or a module of it comes first."""
    for first in ("import numpy as np; np.zeros(1)", "from numpy import int64", "import numpy.fft"):
        script = (
            f"import sys\nfrom traceconv.cli import _load_later\n_load_later('numpy')\n"
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
    from traceconv.cli import _load_later

    _load_later("no_such_package")
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
