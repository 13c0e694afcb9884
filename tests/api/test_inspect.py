"""What ``inspect`` says of many captures: few lines, and which ranks are not there."""

import json
from pathlib import Path

import pytest

import traceconv
from traceconv.api.inspect import LINES, Inspection
from traceconv.cli import run
from traceconv.core.model import Capture
from traceconv.io.sources import FileSource
from traceconv.io.streams import Counted


def captures(*ranks, world_size=-1):
    """A capture per rank, without files."""
    source = FileSource(Path("x"), "x")
    return [
        Capture("r", source, (), rank, world_size=world_size, label=f"job/r{rank}")
        for rank in ranks
    ]


@pytest.mark.parametrize(
    ("ranks", "world_size", "missing"),
    [
        ((0, 1, 2), -1, ""),
        ((0, 1, 2), 3, ""),
        ((0, 1, 3, 7), -1, "2,4-6"),
        ((1, 2), -1, "0"),
        ((0, 1), 4096, "2-4095"),
        ((5,), -1, ""),
        ((5,), 8, "0-4,6-7"),
        ((0, 9), 4, "1-8"),
        ((None,), 8, ""),
        ((0, 2**62), -1, f"1-{2**62 - 1}"),
    ],
)
def test_missing_ranks_are_told(ranks, world_size, missing):
    """Gaps, and what is left of the job where its size is known; no list is ever spelled out."""
    assert Inspection(captures(*ranks, world_size=world_size)).missing == missing


def test_the_line_says_how_many_are_here():
    """And of how many."""
    lines = Inspection(captures(0, 2, world_size=4)).lines()
    assert lines[-1] == "2 of 4 ranks are here; missing: 1,3"


def test_many_captures_share_a_line():
    """Those of one format and clock; -v gives each its own."""
    many = Inspection(captures(*range(LINES + 1)))
    assert (len(many.lines()), len(many.lines(every=True))) == (2, LINES + 2)
    assert many.lines()[1].split("  ")[0] == f"0-{LINES}"
    assert f"{LINES + 1} below job: r0 ..." in many.lines()[1]


def test_few_captures_have_lines_of_their_own():
    """As long as they fit on a screen."""
    assert len(Inspection(captures(*range(LINES))).lines()) == LINES + 1


def tree(folder, ranks):
    """Capture folders as the Ascend PyTorch profiler leaves them, with large traces."""
    events = [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": "1700000000000000.0", "dur": 1}]
    for rank in ranks:
        place = folder / f"w{rank}_20240612082838997_ascend_pt"
        (place / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        (place / f"profiler_info_{rank}.json").write_text(
            json.dumps({"rank_id": rank, "rank_size": 6})
        )
        (place / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_bytes(
            json.dumps(events * 20_000).encode()
        )


def test_finding_ranks_reads_small_files_and_heads(tmp_path, monkeypatch):
    """However large the traces are."""
    tree(tmp_path, range(3))
    sizes, read = [], Counted.read

    def counted(self, n=-1):
        data = read(self, n)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(Counted, "read", counted)
    traceconv.inspect(str(tmp_path))
    assert 0 < sum(sizes) < 3 * 70_000


def test_json_names_the_missing(tmp_path, capsys):
    """For programs, too."""
    tree(tmp_path, (0, 1, 4))
    assert run(["inspect", "--json", str(tmp_path)]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["world_size"], seen["missing_ranks"]) == (6, "2-3,5")
