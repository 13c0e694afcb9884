"""``traceconv.write``: traces from Python into files, and back."""

import json

import numpy as np
import pytest

import traceconv
from traceconv.core.errors import OptionError, OutputError, RankError, StrictError
from traceconv.core.model import Layer
from traceconv.writers.size_limit import SizeLimit

ENDINGS = (".pftrace", ".pftrace.gz", ".json", ".json.gz", ".txt")


@pytest.fixture
def sample(root):
    """A capture of two ranks."""
    return str(root / "golden" / "trace_view" / "demo" / "input")


def _made(rank=0, names=("load", "compute")):
    build = traceconv.TraceBuilder.of_rank(rank)
    thread = build.track("host", "Thread 1", thread=1)
    for i, name in enumerate(names):
        build.slice(thread, 1_000 * i, 500, name, args={"index": i, "size": 9})
    return build.finish()


@pytest.mark.sample(2)
@pytest.mark.parametrize("ending", ENDINGS)
def test_it_writes_what_a_merge_writes(sample, tmp_path, ending):
    """The same events, whatever the format: the loop is the same."""
    kept = [t.keep("long", t.events.dur_ns >= 20_000) for t in traceconv.open(sample).traces()]
    report = traceconv.write(kept, tmp_path / f"kept{ending}")
    (written,) = report.written
    assert written.counts["slice"] == sum(t.counts()["slice"] for t in kept)
    assert report.ranks == (0, 1)
    whole = traceconv.write(traceconv.open(sample).traces(), tmp_path / f"whole{ending}")
    merged = traceconv.merge(
        sample, out=str(tmp_path / f"merged{ending}"), mode=None, align="none", copy=False
    )
    assert whole.written[0].counts == merged.written[0].counts
    if "json" in ending or "pftrace" in ending:
        assert traceconv.validate(tmp_path / f"kept{ending}").ok


def test_what_is_written_is_read_again(sample, tmp_path):
    """Names, times and arguments of what was kept, exactly."""
    (trace,) = traceconv.open(sample).ranks([0]).traces()
    kept = trace.keep("device", trace.rows_of("device"))
    traceconv.write(kept, tmp_path / "kept.json")
    (back,) = traceconv.open(str(tmp_path / "kept.json")).traces()
    assert len(kept.events) > 0
    assert _rows(back) == _rows(kept)


def _rows(trace):
    """Times from the first event, names and arguments as they are."""
    events, first = trace.events, int(trace.events.start_ns.min())
    return sorted(
        (start - first, dur, trace.strings[name], sorted(trace.args[args].items()))
        for start, dur, name, args in zip(
            *(getattr(events, key).tolist() for key in ("start_ns", "dur_ns", "name", "args")),
            strict=True,
        )
    )


@pytest.mark.parametrize("ending", [".json", ".pftrace"])
def test_unclassified_tasks_count_once_however_often_they_are_read(tmp_path, ending):
    """A merged trace states the issues of its run; reading it finds the same tasks again."""
    (tmp_path / "own.csv").write_text(
        "name,ts,dur,stream,kind\nstep 1,0,90,,step\nodd,1,30,7,\nodd,40,30,7,\n"
    )
    once, twice = (str(tmp_path / f"{name}{ending}") for name in ("once", "twice"))
    for path, out in ((str(tmp_path / "own.csv"), once), (once, twice)):
        report = traceconv.merge(path, out=out, mode="detail")
        assert sum(one.count for one in report.issues if one.code == "unclassified-tasks") == 2


def test_a_trace_made_from_nothing(tmp_path):
    """One trace need not be in a list; slices that cross get lanes, rows in any order are put in
    order.
    """
    build = traceconv.TraceBuilder.of_rank(3, "by hand")
    thread = build.track(Layer.HOST, "Thread 1", thread=1)
    build.slice(thread, 50, 100, "later")
    build.slice(thread, 0, 100, "first")
    report = traceconv.write(build.finish(), tmp_path / "made.json")
    events = json.loads((tmp_path / "made.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["first", "later"]
    assert len({e["tid"] for e in events if e["ph"] == "X"}) == 2
    assert (report.ranks, report.captures[0]["label"]) == ((3,), "by hand")


def test_arguments_can_be_left_out(tmp_path):
    """By key, or all."""
    for keys, kept in ((None, {"index", "size"}), (["size"], {"size"}), ((), set())):
        traceconv.write(_made(), tmp_path / "a.json", args=keys, force=True)
        found = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
        assert {k for e in found if e["ph"] == "X" for k in e.get("args", {})} == kept


def test_a_limit_is_kept(sample, tmp_path):
    """As in a merge: what is left out is in the report."""
    report = traceconv.write(
        traceconv.open(sample).traces(), tmp_path / "a.json", limit=SizeLimit(max_events=400)
    )
    assert report.dropped
    assert sum(report.written[0].counts.values()) <= 400


def test_nothing_is_overwritten_unasked(tmp_path):
    """And nothing is read before that is known."""
    out = tmp_path / "a.json"
    out.write_text("mine")

    def never():
        raise AssertionError("read")
        yield

    with pytest.raises(OutputError, match="exists"):
        traceconv.write(never(), out)
    with pytest.raises(OptionError, match=r"no output format ends in '\.exe'"):
        traceconv.write(never(), tmp_path / "a.exe")
    traceconv.write(_made(), out, force=True)
    assert out.read_text() != "mine"


def test_ranks_are_written_in_order_and_once(tmp_path):
    """Whatever order they come in; two of one rank are refused and leave no file."""
    report = traceconv.write(iter([_made(2), _made(0)]), tmp_path / "a.json")
    assert report.ranks == (0, 2)
    for traces, why in (
        ([_made(1), _made(1)], "two traces are of rank 1"),
        ([], "no traces to write"),
    ):
        with pytest.raises(RankError, match=why):
            traceconv.write(traces, tmp_path / "b.json")
    assert not (tmp_path / "b.json").exists()


def test_strict_refuses_losses(tmp_path):
    """What reading lost is known to the trace, and so to its report."""
    trace = _made()
    trace.issues.add("malformed-record", "x", "line 1")
    assert traceconv.write(trace, tmp_path / "a.json").issues.count("malformed-record") == 1
    with pytest.raises(StrictError):
        traceconv.write(trace, tmp_path / "b.json", strict=True)
    assert not (tmp_path / "b.json").exists()


def test_rows_that_were_moved_are_put_in_order(tmp_path):
    """Times changed with numpy need not be sorted again by hand."""
    trace = _made(names=("a", "b", "c"))
    start = trace.events.start_ns[::-1].copy()
    traceconv.write(
        trace.evolve("moved", events=trace.events.with_columns(start_ns=start)),
        tmp_path / "a.json",
    )
    found = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert [e["name"] for e in found if e["ph"] == "X"] == ["c", "b", "a"]


def test_masks_are_numpy(sample):
    """What is kept is what the mask says, and arrows whose ends are both kept."""
    (trace,) = traceconv.open(sample).ranks([0]).traces()
    mask = np.zeros(len(trace.events), bool)
    assert len(trace.keep("none", mask).flows) == 0
    with pytest.raises(ValueError, match="devise"):
        trace.rows_of("devise")
