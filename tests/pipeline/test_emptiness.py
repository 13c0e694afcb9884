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
NAME = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}


@pytest.mark.parametrize(
    ("events", "options", "reason"),
    [
        ([SLICE], {"time": "1s:"}, r"`time`: nothing is between 1000000\.000 µs and the end"),
        ([SLICE], {"layers": "comm"}, "`layers`: no rank has anything on comm; there are: "),
        ([SLICE], {"exclude": "."}, "`exclude`: '.' finds every name"),
        ([SLICE], {"mode": "summary", "layers": "device"}, 'names neither; pass `mode="detail"`'),
        ([NAME], {}, r"a\.json: holds no events"),
        ([NAME], {"mode": "source"}, r"a\.json: holds no events"),
        ([NAME], {"mode": "source", "ending": "json"}, r"a\.json: holds no events"),
    ],
    ids=["window", "layer", "names", "view", "nothing", "source", "copy"],
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
