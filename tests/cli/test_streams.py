"""Standard streams that are closed or full, and names that try to act on them."""

import json
import subprocess
import sys

import pytest
from paths import ROOT

from traceconv.cli import run

DEMO = str(ROOT / "golden" / "trace_view" / "demo" / "input")
COMMANDS = {
    "help": ["--help"],
    "short help": ["merge", "-h"],
    "version": ["--version"],
    "inspect": ["inspect", DEMO],
    "stats": ["stats", DEMO],
    "stats as JSON": ["stats", DEMO, "--json"],
    "diagnose": ["diagnose", DEMO],
    "stragglers": ["stragglers", DEMO],
    "explain": ["explain"],
    "formats": ["formats", "--json"],
    "convert": ["merge", DEMO, "-o", "-"],
}
MAIN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from traceconv.cli import main; main()"


def shell(words, redirection, cwd, before=""):
    """A command under a shell that redirects."""
    command = f'{before} "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-c", MAIN, *words],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_device_is_an_error_of_one_line(tmp_path, name):
    """Not a fault of traceconv."""
    done = shell(COMMANDS[name], ">/dev/full", tmp_path)
    assert done.returncode in (2, 3)
    assert "No space left" in done.stderr
    assert "fault of traceconv" not in done.stderr and "Exception" not in done.stderr


def test_closed_streams(tmp_path):
    """A result that goes nowhere is an error, messages that go nowhere are not; no file gets the
    number of a standard stream."""
    done = shell(["inspect", DEMO], ">&-", tmp_path)
    assert (done.returncode, done.stderr) == (3, "error: standard output is closed\n")
    assert shell(["inspect", "-"], "<&-", tmp_path).stderr == (
        "error: -: standard input is closed\n"
    )
    words = ["merge", DEMO, "-o", "t.json"]
    assert shell(words, "<&- >&- 2>&-", tmp_path).returncode == 0
    assert shell([*words, "-f"], "2>/dev/full", tmp_path).returncode == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_temporary_folder_that_is_missing_or_full(tmp_path):
    """Where standard input is copied to, and where a limit on memory needs it."""
    place = "TRACECONV_TMPDIR=/nowhere"
    done = shell(["merge", DEMO, "--mem-limit", "200M", "-o", "t.json"], "", tmp_path, place)
    assert (done.returncode, done.stderr) == (
        3,
        "error: /nowhere: no temporary file can be made there: No such file or directory; "
        "TRACECONV_TMPDIR names another folder\n",
    )
    (tmp_path / "big.json").write_text("[" + " " * 100_000)
    done = shell(["inspect", "-"], "<big.json", tmp_path, "ulimit -f 8;")
    assert done.returncode == 3
    assert "stdin cannot be copied there: File too large; TRACECONV_TMPDIR" in done.stderr


BAD = "gemm \u202e\u061c\x1b[2J\r\nrank 9: forged "


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """Two ranks whose names, of files and of events, try to act."""
    for rank in (0, 1):
        events = [
            {"ph": "X", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": 100 * n, "dur": 90}
            for n in range(8)
        ]
        events += [
            {"ph": "X", "name": f"{BAD}{n % 2}", "cat": "kernel", "pid": 0, "tid": 7,
             "ts": 100 * n + 5, "dur": 50 + 9 * rank, "args": {"stream": 7, "device": 0}}
            for n in range(8)
        ]  # fmt: skip
        events.append({"ph": "X", "name": "bad", "pid": 1, "tid": 1, "ts": 1, "dur": -5})
        record = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}}
        record |= {"baseTimeNanoseconds": 0, "traceEvents": events}
        (tmp_path / f"rank{rank}\x1b[2J\n9: forged.pt.trace.json").write_text(json.dumps(record))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "."],
        ["inspect", ".", "-v", "--counts"],
        ["merge", "rank0\x1b[2J\n9: forged.pt.trace.json", "-o", "t.txt", "-v"],
        ["inspect", "nowhere\n9: forged"],
        ["stats", "."],
        ["stats", ".", "--by", "kernel,op", "-v"],
        ["stats", ".", "--by", "kernel,op", "--format", "md"],
        ["diagnose", "."],
        ["diagnose", ".", "-v"],
        ["diagnose", ".", "--format", "md"],
        ["stragglers", ".", "-v"],
        ["critical-path", ".", "-v"],
        ["diff", ".", "--ranks", "0:1", "-v"],
        ["diff", ".", "--ranks", "0:1", "--format", "md"],
        ["merge", ".", "-o", "t.txt", "-v", "--report", "r.md"],
    ],
)
def test_names_neither_act_nor_begin_a_line(hostile, tmp_path, capsys, words):
    """On terminals and in pipes, and in the report as Markdown."""
    run(words)
    told = "".join(capsys.readouterr())
    if "r.md" in words:
        told += (tmp_path / "r.md").read_text()
    assert told
    assert [c for c in "\x1b\r\u202e\u061c" if c in told] == []
    assert [line for line in told.split("\n") if line.startswith(("9: forged", "rank 9"))] == []
