"""What is not loaded until it is needed."""

import json
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["merge", "--help"], ["formats", "--help"]]
)
def test_help_loads_nothing_heavy(arguments):
    """Help and version answer at once."""
    assert loaded(f"from traceconv.cli import run\nassert run({arguments}) == 0") == []


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


def test_public_names_are_all_there():
    """Every name the package announces can be had from it."""
    import traceconv

    assert [name for name in traceconv.__all__ if not hasattr(traceconv, name)] == []
