"""Outputs of a run: none replaces an input or another one, and sets of files are whole."""

import os
import shutil
from pathlib import Path

import pytest
from paths import ROOT

import traceconv
from traceconv.cli import run

DEMO = ROOT / "golden" / "trace_view" / "demo" / "input"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder: captures in ``run``, one of them alone, and links to that."""
    shutil.copytree(DEMO, tmp_path / "run")
    capture = next((tmp_path / "run").rglob("trace_view.json"))
    shutil.copy(capture, tmp_path / "one.json")
    (tmp_path / "soft.json").symlink_to("one.json")
    os.link(tmp_path / "one.json", tmp_path / "hard.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(folder):
    """Every file and its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        ["merge", "run", "-o", "z.json", "--report", "z.json"],
        ["merge", "run", "-o", "z.json", "--report", "./Z.json"],
        ["merge", "run", "-o", "z.json", "--report", "run/../z.json"],
        ["merge", "one.json", "-o", "one.json"],
        ["merge", "one.json", "-o", "z.json", "--report", "one.json"],
        ["merge", "one.json", "-o", "soft.json"],
        ["merge", "one.json", "-o", "z.pftrace", "--report", "soft.json"],
        ["convert", "one.json", "-o", "hard.json"],
        ["convert", "soft.json", "-o", "one.json"],
        ["convert", "one.json", "-o", "z.json", "--salvage", "--report", "z.json.losses.json"],
        ["merge", "run", "-o", "run/rank0/ASCEND_PROFILER_OUTPUT/trace_view.json"],
        ["stats", "one.json", "-o", "one.json"],
        ["stats", "one.json", "--by", "step", "-o", "hard.json"],
        ["diagnose", "one.json", "-o", "soft.json"],
        ["align", "one.json", "-o", "one.json"],
        ["critical-path", "one.json", "-o", "one.json"],
        ["diff", "one.json", "run", "-o", "one.json"],
        ["diff", "one.json", "run", "-o", "d.json", "--report", "d.json"],
    ],
)
def test_an_output_replaces_neither_an_input_nor_another_output(here, capsys, words):
    """Not by another path, a link, or other letters, and not with -f."""
    if "rank0" in " ".join(words):
        words = [*words[:-1], str(next((here / "run").rglob("trace_view.json")))]
    before = tree(here)
    assert run([*words, "-f"]) == 2
    told = capsys.readouterr().err
    assert "is an input of this run" in told or "as well; choose another name" in told
    assert tree(here) == before


def test_the_output_of_an_earlier_run_is_replaced(here, capsys):
    """In the folder of the captures, too: it is no input."""
    os.chdir(here / "run")
    for words in (
        ["merge", "-o", "t.json", "--report", "r.html"],
        ["stats", "-o", "t.csv"],
        ["diagnose", "-o", "d.md"],
    ):
        assert [run([*words, "-q", "-f"]) for _ in range(2)] == [0, 0], words


def test_a_part_of_a_split_output_does_not_replace_an_input(here, capsys):
    """Their names are known late."""
    shutil.copy(here / "one.json", here / "t-001.json")
    words = ["merge", "t-001.json", "-m", "detail", "--max-events", "40", "--over-limit", "split"]
    before = (here / "t-001.json").read_bytes()
    assert run([*words, "-o", "t.json", "-f"]) == 2
    assert (here / "t-001.json").read_bytes() == before


def test_the_library_refuses_as_well(here):
    """``write`` of traces that are read from the same file, and ``merge``."""
    opened = traceconv.open("one.json")
    with pytest.raises(traceconv.TraceconvError, match=r"one\.json: is an input of this run"):
        traceconv.write(opened.traces(), "one.json", force=True)
    with pytest.raises(traceconv.TraceconvError, match=r"hard\.json: is an input of this run"):
        traceconv.merge("one.json", out="hard.json", force=True)
    traceconv.merge("one.json", out="new.json")  # a run of its own
    traceconv.convert("new.json", out="one.json", force=True)


def test_tables_are_written_all_or_none(here, monkeypatch, capsys):
    """A disk that is full at the second file leaves no file."""
    Path("t_step.csv").write_text("old")
    assert run(["stats", "run", "-o", "t.csv", "-q"]) == 2
    assert sorted(p.name for p in here.glob("t*.csv")) == ["t_step.csv"]
    synced = []

    def full(file):
        synced.append(file)
        if len(synced) > 1:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert run(["stats", "run", "-o", "u.csv", "-q"]) == 3
    assert "cannot be written: No space left" in capsys.readouterr().err
    assert (len(synced), list(here.glob("u*"))) == (2, [])


def test_an_empty_summary_says_which_view_is_not(tmp_path, capsys):
    """Of a capture without device work; of others nothing is said."""
    log = tmp_path / "host.json"
    log.write_text('[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]')
    for mode, said in (("summary", True), ("detail", False)):
        out = str(tmp_path / f"{mode}.pftrace")
        assert run(["merge", str(log), "-m", mode, "-o", out]) == 0
        assert ("-m detail has all" in capsys.readouterr().err) == said


def test_a_merged_trace_says_what_it_holds(tmp_path, monkeypatch, capsys):
    """Its view and its steps, and the size of the file once, in both formats."""
    monkeypatch.chdir(tmp_path)
    for name in ("t.pftrace", "t.json"):
        assert run(["merge", str(ROOT / "examples/job"), "-q", "-o", name]) == 0
        assert run(["inspect", name]) == 0
        _, ranks, content, *_ = capsys.readouterr().out.splitlines()
        size = (tmp_path / name).stat().st_size / 1024
        assert ranks.split()[0] == "0-7" and ranks.split()[-2:] == [f"{size:.1f}K", name]
        assert content == "merged trace: summary view; steps per rank: 8"
