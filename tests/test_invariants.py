"""What holds for any trace, whatever is asked of it and wherever it is written."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import BASE, NAMES, content, damaged, traces
from paths import ROOT
from trace_events import read

from fuzz.pipeline import examined
from fuzz.seeds import golden as seeds
from traceconv import validation as checks
from traceconv.alignment.plan import shift
from traceconv.core.errors import TraceconvError
from traceconv.core.intervals import total, union
from traceconv.core.model import Layer, OpClass, Trace
from traceconv.find import discovery, registry
from traceconv.io.sources import sources
from traceconv.passes import compose
from traceconv.passes.overlap import overlap
from traceconv.passes.select import by_graph, by_layer, by_name, by_step, time_window
from traceconv.readers.shared.trace_events import timeline as _traceevents
from traceconv.run.spill import InMemoryRank
from traceconv.run.stages import events as read_events
from traceconv.run.stages import passed
from traceconv.writers import Document, Part, output

SUFFIXES = (".pftrace", ".json", ".txt", ".json.gz")
MODES = ("summary", "detail", None)
DAY_NS = 86_400_000_000_000


def written(trace: Trace, path: Path) -> output.Written:
    """``trace`` in a file of its own."""
    span = trace.span()
    part = Part(
        Document(span[0] if span else 0, (trace.rank,)),
        (InMemoryRank(trace),),
    )
    (done,) = output.write((part,), registry.writer_for(str(path)), str(path), force=True)
    return done


def reread(path: Path) -> Trace:
    """The trace in a Chrome JSON file of ours."""
    (capture,) = discovery.discover(sources([str(path)])).captures
    return read_events(capture, lambda n: None)


# -- accounts --------------------------------------------------------------------------------------


@settings(max_examples=effort(20, 40), deadline=None)
@given(traces(), st.sampled_from(MODES))
def test_every_stage_books_what_it_does(trace: Trace, mode: str | None) -> None:
    """Rows read, less those lost, plus what passes add and take away, are the rows there are."""
    made = passed(trace, compose(mode, scope=True))
    booked: Counter[str] = Counter()
    for (_, kind), rows in made.ledger.items():
        booked[kind] += rows
    assert {kind: booked[kind] for kind in made.counts()} == made.counts()


@settings(max_examples=effort(20, 40), deadline=None)
@given(traces(), st.sampled_from(MODES), st.sampled_from(SUFFIXES))
def test_every_row_is_written(trace: Trace, mode: str | None, suffix: str) -> None:
    """Writers write what they are given, and what they write is sound."""
    view = passed(trace, compose(mode))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"out{suffix}"
        done = written(view, path)
        assert done.counts == view.counts()
        if suffix != ".txt":
            assert list(checks.validate(str(path)).findings) == []


@settings(max_examples=30, deadline=None)
@given(traces())
def test_chrome_json_reads_back_equal(trace: Trace) -> None:
    """Every row of any trace, to the nanosecond and the lane; arrows that come back, or are booked
    (the format has none that touch instants).
    """
    view = passed(trace, compose(None))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.json"
        written(view, path)
        back = reread(path)
    base = view.span()[0] - back.span()[0]  # type: ignore[index]
    assert content(shift(back, base))[: len(view.events)] == content(view)[: len(view.events)]
    booked = [back.issues.count(code) for code in ("flow-unbound", "flow-without-end")]
    assert len(back.flows) + sum(booked) == len(view.flows)


# -- time ------------------------------------------------------------------------------------------


@settings(max_examples=effort(20, 40), deadline=None)
@given(traces(), st.integers(-400 * DAY_NS, 400 * DAY_NS))
def test_shifting_there_and_back_is_identity(trace: Trace, offset: int) -> None:
    """To the last digit, with windows and steps."""
    made = passed(trace, compose("detail"))
    back = shift(shift(made, offset), -offset)
    assert content(back) == content(made)
    assert all(map(np.array_equal, back.steps.columns().values(), made.steps.columns().values()))


@settings(max_examples=effort(30, 60), deadline=None)
@given(traces())
def test_classes_of_overlap_sum_to_the_window(trace: Trace) -> None:
    """Computing, communication not overlapped and free time are all of it, and do not meet."""
    made = overlap(trace)
    parts = (OpClass.COMPUTING, OpClass.NOT_OVERLAPPED, OpClass.FREE)
    rows = made.events.take(np.isin(made.events.op, parts))
    covered = union(rows.start_ns, rows.end_ns)
    window = int(covered[-1, 1] - covered[0, 0]) if len(covered) else 0
    assert (int(rows.dur_ns.sum()), total(covered)) == (window, window)


# -- choices ---------------------------------------------------------------------------------------

WINDOW = (BASE + 300, BASE + 1200)
FILTERS: dict[str, Any] = {
    "layers": by_layer(["device", "comm"]),
    "names": by_name("^a"),
    "time": partial(time_window, start_ns=WINDOW[0], end_ns=WINDOW[1]),
    "graphs": partial(by_graph, selected=None),
}


@settings(max_examples=effort(20, 40), deadline=None)
@given(traces(), st.permutations(sorted(FILTERS)))
def test_filters_commute(trace: Trace, order: list[str]) -> None:
    """Rows are chosen by what they are: the order of the choices does not matter."""
    usual = passed(trace, [FILTERS[name] for name in sorted(FILTERS)])
    assert content(passed(trace, [FILTERS[name] for name in order])) == content(usual)


@settings(max_examples=effort(20, 40), deadline=None)
@given(traces())
def test_layers_make_up_the_whole(trace: Trace) -> None:
    """Every row is in the part of its layer, and in no other."""
    parts = [passed(trace, [by_layer([str(layer)])]) for layer in Layer]
    rows = [row for part in parts for row in content(part) if len(row) > 2]
    assert sorted(map(str, rows)) == sorted(str(r) for r in content(trace) if len(r) > 2)


@settings(max_examples=effort(20, 40), deadline=None)
@given(traces(), st.integers(0, 2_400))
def test_instants_before_and_after_make_up_the_whole(trace: Trace, at: int) -> None:
    """A border in time divides samples and instants; only slices across it are on both sides."""
    before = time_window(trace, None, BASE + at)
    after = time_window(trace, BASE + at, None)
    both = Counter(map(str, content(before))) + Counter(map(str, content(after)))
    whole = Counter(map(str, (row for row in content(trace))))
    rows = trace.events
    across = (rows.start_ns < BASE + at) & (rows.end_ns > BASE + at)
    twice = Counter(map(str, content(trace.keep("across", across, trace.counters.start_ns < 0))))
    arrows = {key for key in whole if key.startswith("(17")}
    assert {k: n for k, n in (both - whole).items() if k not in arrows} == {
        k: n for k, n in twice.items() if k not in arrows
    }
    assert not {k for k in whole - both if k not in arrows}


@settings(max_examples=effort(20, 40), deadline=None)
@given(traces(), st.sets(st.integers(0, 3)))
def test_steps_chosen_twice_are_steps_chosen_once(trace: Trace, wanted: set[int]) -> None:
    """A choice made again changes nothing."""
    once = by_step(trace, wanted)
    assert content(by_step(once, wanted)) == content(once)


# -- reading ---------------------------------------------------------------------------------------

EVENTS = [
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main \u2603"}},
    *(
        {"ph": "X", "name": NAMES[i % 6], "pid": 1, "tid": i % 3, "ts": i * 7.125, "dur": i % 5}
        for i in range(40)
    ),
    *({"ph": "C", "name": "c", "pid": 1, "ts": i, "args": {"v": i / 8}} for i in range(9)),
    *({"ph": "BE"[i % 2], "name": "pair", "pid": 2, "tid": 2, "ts": i} for i in range(8)),
]


@settings(max_examples=effort(20, 40), deadline=None)
@given(size=st.integers(1, 5_000), broken=damaged(json.dumps(EVENTS).encode()))
def test_chunks_of_any_size_read_the_same(size: int, broken: bytes) -> None:
    """Of sound and of damaged text alike: what is found does not depend on where chunks end."""
    usual = _said(broken)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_traceevents, "CHUNK_BYTES", size)
        assert _said(broken) == usual


def _said(data: bytes) -> object:
    try:
        trace = read(data)
    except TraceconvError as e:
        return str(e)
    return content(trace), list(trace.issues)


READERS = sorted({p.parents[1].name for p in ROOT.glob("golden/*/*/case.toml")})


@pytest.fixture(scope="module", params=READERS)
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The golden cases of one reader, in a place where they may be damaged."""
    place = tmp_path_factory.mktemp(request.param)
    return list(seeds(place / "golden", request.param)), place


@pytest.mark.sample(2)
@settings(max_examples=effort(5, 12), deadline=None)
@given(data=st.data())
def test_damage_ends_in_a_trace_or_an_error_of_ours(inputs: Any, data: st.DataObject) -> None:
    """Any reader, any file, any damage: rows fit together, and what is written is valid."""
    cases, place = inputs
    seed = data.draw(st.sampled_from(cases), "case")
    file = data.draw(st.sampled_from(seed.files), "file")
    original = file.read_bytes()
    made = data.draw(damaged(original), "bytes")
    try:
        file.write_bytes(made)
        examined(seed.path, place, mode=data.draw(st.sampled_from(MODES)), suffix=".json")
    finally:
        file.write_bytes(original)
