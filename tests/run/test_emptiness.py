"""A result without a single event is an error that says why, and no file."""

import json

import pytest

import traceconv
from traceconv.cli import run
from traceconv.core.errors import EmptyResultError


def _written(folder, *events):
    path = folder / "a.json"
    path.write_text(json.dumps({"traceEvents": list(events)}))
    return str(path)


SLICE = {"ph": "X", "name": "a", "cat": "kernel", "pid": 1, "tid": 7, "ts": 5, "dur": 2}
COUNTER = {"ph": "C", "name": "mem", "pid": 1, "ts": 5, "args": {"used": 3}}
ARROW = {"ph": "s", "name": "a", "cat": "f", "id": 1, "pid": 1, "tid": 7, "ts": 5}
LOST = {"ph": "X", "name": "a", "pid": 1, "tid": 7, "ts": "no time", "dur": 1}
NAME = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}


@pytest.mark.parametrize(
    ("events", "options", "reason"),
    [
        ([SLICE], {"time": "1s:"}, r"`time`: nothing is between 1 s and the end"),
        (
            [SLICE],
            {"layers": "comm"},
            r"`layers`: no rank has anything on comm; there are: .*device",
        ),
        ([SLICE], {"exclude": "."}, "`exclude`: '.' finds every name"),
        ([SLICE], {"mode": "summary", "layers": "device"}, 'names neither; pass `mode="detail"`'),
        ([NAME], {}, r"a\.json: holds no events"),
        ([ARROW], {}, r"holds no events that can be read: flow-without-end x1"),
        ([LOST], {}, r"can be read: bad-time x1 \(A record without a usable timestamp"),
        (
            [COUNTER],
            {"mode": "summary"},
            'the input has neither, only counters; pass `mode="detail"`',
        ),
        ([NAME], {"mode": "source"}, r"a\.json: holds no events"),
        ([NAME], {"mode": "source", "ending": "json"}, r"a\.json: holds no events"),
    ],
    ids=[
        "window",
        "layer",
        "names",
        "view",
        "nothing",
        "arrow",
        "lost",
        "counters",
        "source",
        "copy",
    ],
)
def test_the_reason_is_said_and_nothing_is_written(tmp_path, events, options, reason):
    """Whatever left nothing over; under `strict`, too."""
    path, options = _written(tmp_path, *events), dict(options)
    out = tmp_path / f"out.{options.pop('ending', 'pftrace')}"
    for strict in (False, True):
        with pytest.raises(EmptyResultError, match=reason):
            traceconv.merge(path, **{"out": out, "mode": "detail", "strict": strict, **options})
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_tables_without_timeline_lead_to_stats(root, tmp_path, capsys):
    """By the tables that are there; the exit code is that of input without a match."""
    log = root / "golden" / "paddle_text" / "report" / "input" / "train.log"
    assert run(["convert", str(log), "-o", str(tmp_path / "x.json"), "--strict"]) == 3
    assert "tables without a timeline (paddle_summary, paddle_timer" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert run(["stats", str(log), "-q", "--by", "all"]) == 0


def test_a_rank_without_events_beside_others_is_kept(tmp_path):
    """Only the whole result has to hold one."""
    (tmp_path / "in").mkdir()
    for rank, event in enumerate([SLICE, NAME]):
        (tmp_path / "in" / f"rank{rank}.json").write_text(json.dumps([event]))
    report = traceconv.merge(tmp_path / "in", out=tmp_path / "x.txt", rank_from="name")
    assert report.ranks == (0, 1)


@pytest.mark.parametrize("mode", ["detail", "source"])
def test_counters_alone_are_a_result(tmp_path, mode):
    """Where counters are drawn, a capture of nothing else is not empty; under `strict`, too."""
    out = tmp_path / "x.txt"
    traceconv.merge(_written(tmp_path, COUNTER), out=out, mode=mode, strict=True)
    assert "used" in out.read_text()


def test_tables_that_can_be_drawn_say_how(tmp_path):
    """Memory of a table is counters in detail; elsewhere there is nothing of it."""
    table = "Component,Timestamp(us),Total Allocated(MB)\nPTA,1695115378000000.1,1\n"
    (tmp_path / "memory_record.csv").write_text(table)
    out = tmp_path / "x.txt"
    for mode in ("summary", "source"):
        with pytest.raises(EmptyResultError, match="memory_record can be drawn as counters"):
            traceconv.merge(tmp_path, out=out, mode=mode)
    traceconv.merge(tmp_path, out=out, mode="detail", strict=True)
    assert "PTA/Total Allocated" in out.read_text()


@pytest.mark.parametrize("command", ["stats", "diagnose", "stragglers", "align"])
def test_nothing_is_no_success_of_an_analysis(tmp_path, capsys, command):
    """A capture that holds neither events nor tables: no command says that it is fine."""
    assert run([command, _written(tmp_path, NAME)]) == 3
    assert "a.json: holds no events" in capsys.readouterr().err


def test_tables_without_a_row_are_no_success(tmp_path, capsys):
    """No file, and what the tables need; one row of one table is enough."""
    path, out = _written(tmp_path, COUNTER), tmp_path / "out.csv"
    assert run(["stats", path, "-o", str(out)]) == 3
    assert "table step has no data: needs steps, or any events" in capsys.readouterr().err
    assert run(["stats", path, "--by", "files"]) == 3
    assert "no tables beside these timelines" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert run(["stats", _written(tmp_path, SLICE), "-q"]) == 0
