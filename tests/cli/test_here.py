"""Commands without a path work on the current folder, and do not read what they wrote there."""

import json
import shutil

import pytest

import traceconv
from traceconv.cli import outcome, run

COMMANDS = ["merge", "inspect", "stats", "diagnose", "stragglers", "align", "critical-path"]


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    """The current folder, with the captures of 8 ranks."""
    for rank in range(8):
        event = {"ph": "X", "name": f"step {rank}", "pid": 1, "tid": 1, "ts": 10 + rank, "dur": 5}
        record = {"traceEvents": [event], "distributedInfo": {"rank": rank, "world_size": 8}}
        (tmp_path / f"host_{rank}.1.pt.trace.json").write_text(
            json.dumps({"schemaVersion": 1, **record})
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sample(root, tmp_path, monkeypatch):
    """The current folder, with a capture of two ranks."""
    folder = tmp_path / "run"
    shutil.copytree(root / "golden" / "trace_view" / "demo" / "input", folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_path_the_current_folder_is_meant(sample, capsys, command):
    """The literal command of a shell in the folder of the captures."""
    assert run([command, "-q"]) == 0


def test_the_command_of_the_mission_twice(ranks, capsys):
    """8 ranks; the second run does not overwrite the first unasked, and reads the same 8 ranks."""
    words = ["merge", "--ranks", "0-7", "--mode", "summary"]
    out = ranks / "trace_summary_ranks0-7.pftrace"
    assert run(words) == 0
    first = out.read_bytes()
    assert "ranks 0-7 (kineto), summary" in capsys.readouterr().err
    assert run(words) == 2
    assert (
        "trace_summary_ranks0-7.pftrace: exists; pass -f to overwrite it" in capsys.readouterr().err
    )
    assert out.read_bytes() == first
    assert run([*words, "-f"]) == 0
    assert (
        "own-output x1: ./trace_summary_ranks0-7.pftrace: The file was written"
        in capsys.readouterr().err
    )
    assert out.read_bytes() == first


OUTPUTS = ["a.json", "a.json.gz", "trace_view.json", "msprof_1.json", "x.pt.trace.json",
           "a.pftrace", "a.perfetto-trace.gz", "a.txt", "a.tar"]  # fmt: skip


def test_outputs_beside_captures_are_left_out(sample, capsys):
    """By content, whatever their names; each is named in a line."""
    before = [c.label for c in traceconv.open(".").found]
    for name in OUTPUTS:
        made = {"trace_view.json": "a.json", "msprof_1.json": "a.json", "x.pt.trace.json": "a.json"}
        if name in made:
            shutil.copy(made[name], name)
        else:
            run(["merge", "-q", "-o", name])
    run(["merge", "-q", "-m", "source", "-o", "copy.json", "--report", "r.json"])
    run(["merge", "-q", "--shard", "0/2"])
    run(["merge", "-q", "-o", "b.json", "--report", "r.html"])
    (sample / "r.md").write_text(outcome.markdown(json.loads((sample / "r.json").read_bytes())))
    run(["diagnose", "-q", "-o", "found.json"])
    run(["align", "-q", "-o", "offsets.json"])
    run(["stats", "-q", "-o", "tables.json"])
    others = ["copy.json", "b.json", "r.json", "r.html", "r.md", "found.json",
              "offsets.json", "tables.json", "trace_summary_0of2.shard"]  # fmt: skip
    capsys.readouterr()
    found = traceconv.open(".")
    assert [c.label for c in found.found] == before
    left_out = [i.file for i in found.issues if i.code == "own-output"]
    assert sorted(left_out) == sorted(f"./{name}" for name in (*OUTPUTS, *others))
    assert found.unknown == ()
    assert run(["inspect"]) == 0
    out, err = capsys.readouterr()
    ranks = [line for line in out.splitlines() if line[:1].isdigit()]
    assert (len(ranks), "own-output x18: ./" in err) == (2, True)


def test_an_output_further_down_is_left_out(sample):
    """Where a run was merged into a folder of its own."""
    (sample / "merged").mkdir()
    run(["merge", "-q", "-o", "merged/all.json"])
    found = traceconv.open(".")
    assert [c.reader for c in found.found] == ["trace_view"] * 2
    assert [i.file for i in found.issues if i.code == "own-output"] == ["./merged/all.json"]


def test_outputs_that_are_named_or_alone_are_read(sample, tmp_path):
    """A file that is named, and a folder that holds nothing else."""
    (tmp_path / "out").mkdir()
    run(["merge", "-q", "-m", "detail", "-o", "../out/all.json"])
    for path in ("../out/all.json", "../out"):
        found = traceconv.open(path)
        assert [(c.reader, c.rank) for c in found.found] == [("chrome_json", 0), ("chrome_json", 1)]
        assert found.issues.count("own-output") == 0
