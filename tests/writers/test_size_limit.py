"""The size limit: kept under every policy, and every row accounted for."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import effort
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from traceconv.alignment.collective_records import collective_records
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, SizeLimitError
from traceconv.core.intervals import total, union
from traceconv.core.model import Capture, Kind, Layer, OpClass, Trace, Track
from traceconv.io.sources import FileSource
from traceconv.run.spill import spill
from traceconv.writers import Costs, Document, Plan
from traceconv.writers.chrome import ChromeJsonWriter
from traceconv.writers.size_limit import SizeLimit, plan
from traceconv.writers.size_limit.coalesce import ALWAYS
from traceconv.writers.size_limit.measure import Size, shares
from traceconv.writers.size_limit.reduce import downsampled, longest_row, shortened
from traceconv.writers.text import TextWriter

BASE = 10**9


class Plain:
    """A writer whose rows cost what they hold and whose strings are told apart, once each."""

    name = "plain"
    title = "for these tests"
    suffixes = (".plain",)
    between = b""
    member_capacity = None

    def __init__(self) -> None:
        self.issues = Issues()

    def begin(self, document: Document) -> bytes:
        return json.dumps(dict(document.facts)).encode()

    def trace(self, trace: Trace) -> Iterator[bytes]:
        yield b"t" * self.costs(trace, Document(0, ())).fixed
        for row in trace.events.args.tolist():
            yield b"e" * 20 + trace.args.raw(row)
        yield b"c" * 10 * len(trace.counters) + b"f" * 8 * len(trace.flows)

    def end(self) -> bytes:
        return b"end"

    def costs(self, trace: Trace, document: Document) -> Costs:
        names = (trace.strings[i] for i in set(trace.events.name.tolist()))
        args = [len(trace.args.raw(i)) for i in trace.events.args.tolist()]
        return Costs(
            5 * len(trace.tracks) + sum(map(len, names)),
            np.array(args, np.int64) + 20,
            np.full(len(trace.counters), 10),
            np.full(len(trace.flows), 8),
        )


class SpilledRank:
    """A rank in memory that counts how often it is asked for."""

    def __init__(self, trace: Trace) -> None:
        self.rank, self.trace, self.loads = trace.rank, trace, 0

    def load(self) -> Trace:
        self.loads += 1
        return self.trace

    def release_pages(self) -> None:
        """It stays in memory."""


def builder(rank: int = 0) -> TraceBuilder:
    return TraceBuilder(Capture("test", FileSource(Path("x"), "x"), (), rank))


def sizes(planned: Plan, factory: Callable[[], Any]) -> list[tuple[int, int]]:
    """Bytes and rows of every part, as they are really written."""
    found = []
    for part in planned.parts:
        writer = factory()
        size, rows = len(writer.begin(part.document)), 0
        for spilled in part.traces:
            trace = spilled.load()
            size += sum(map(len, writer.trace(trace)))
            rows += sum(trace.counts().values())
        found.append((size + len(writer.end()), rows))
    return found


def document(*traces: Trace, **facts: Any) -> Document:
    return Document(BASE, tuple(t.rank for t in traces), facts)


# -- traces of all kinds -----------------------------------------------------------------------

TRACKS = [
    Track(Layer.STEP, "Iteration"),
    Track(Layer.OVERLAP, "Free"),
    Track(Layer.DEVICE, "Stream 1"),
    Track(Layer.DEVICE, "Stream 2"),
    Track(Layer.COMM, "Plane 0", "Group 0"),
]

ROW = st.tuples(
    st.integers(0, len(TRACKS) - 1),
    st.sampled_from([Kind.SLICE] * 5 + [Kind.INSTANT]),
    st.integers(0, 300),
    st.integers(0, 40),
    st.sampled_from(["MatMul", "Mul", "allReduce"]),
    st.sampled_from([None, {"k": 1}, {"text": "x" * 60}]),
)


def random_trace(
    rank: int, rows: list[Any], arrows: list[Any], samples: list[Any], times: int
) -> Trace:
    """``rows`` and all, a few times over, 400 ns apart."""
    build = builder(rank)
    for track in TRACKS:
        build.add_track(track)
    for shift in range(BASE, BASE + 400 * times, 400):
        numbers = []
        for lane, kind, start, dur, name, args in rows:
            span = (shift + start, dur) if kind is Kind.SLICE else (shift + start,)
            put = build.slice if kind is Kind.SLICE else build.instant
            numbers.append(put(build.add_track(TRACKS[lane]), *span, name, args=args))
        for src, dst in arrows if rows else []:
            build.flow(numbers[src % len(rows)], numbers[dst % len(rows)], "next")
        for start, value in samples:
            build.counter(build.track(Layer.COUNTER, "c", unit="KB"), shift + start, value)
    return build.finish()


def traces_of(rank: int) -> st.SearchStrategy[Trace]:
    return st.builds(
        random_trace,
        st.just(rank),
        st.lists(ROW, min_size=4, max_size=12),
        st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3),
        st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2)), max_size=4),
        st.integers(4, 16),
    )


JOBS = st.tuples(traces_of(0), traces_of(3))
FRACTIONS = st.integers(30, 110)
FACTORIES = [Plain, ChromeJsonWriter, TextWriter]
if importlib.util.find_spec("traceconv.writers.perfetto"):
    from traceconv.writers.perfetto import WRITER as PerfettoWriter

    FACTORIES.append(PerfettoWriter)


def planned(
    job: tuple[Trace, ...], factory: Callable[[], Any], percent: int, policy: str
) -> tuple[Plan, SizeLimit]:
    """The plan for a limit of so many percent of the whole; gives up on those too small."""
    spilled = [SpilledRank(t) for t in job]
    counts = sum((Counter(t.counts()) for t in job), Counter())
    head = document(*job, issues={}, dropped=[], counts=counts)
    (whole, rows), *_ = sizes(plan(spilled, head, factory, None), factory)
    limit = SizeLimit(1500 + whole * percent // 100, max(1, rows * percent // 90), policy)
    try:
        return plan(spilled, head, factory, limit), limit
    except SizeLimitError:
        assume(False)
        raise


def content(trace: Trace) -> Counter[Any]:
    """Rows as values: what must not change on the way."""
    e, c = trace.events, trace.counters
    rows = zip(
        (trace.tracks[i] for i in e.track.tolist()),
        e.kind.tolist(),
        e.start_ns.tolist(),
        e.dur_ns.tolist(),
        (trace.strings[i] for i in e.name.tolist()),
        (trace.args.raw(i) for i in e.args.tolist()),
        strict=True,
    )
    samples = zip(
        (trace.tracks[i] for i in c.track.tolist()),
        c.start_ns.tolist(),
        c.value.tolist(),
        strict=True,
    )
    return Counter([*rows, *samples])


@pytest.mark.sample(3)
@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("policy", ["reduce", "split"])
@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_the_limit_is_never_exceeded(
    factory: Callable[[], Any], policy: str, job: tuple[Trace, ...], percent: int
) -> None:
    """In bytes as written, and in rows."""
    found, limit = planned(job, factory, percent, policy)
    assert limit.max_bytes is not None
    assert limit.max_events is not None
    written = sizes(found, factory)
    assert max(size for size, _ in written) <= limit.max_bytes
    assert max(rows for _, rows in written) <= limit.max_events
    assert sum(size for size, _ in written) <= found.predicted


@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_split_loses_only_torn_arrows(job: tuple[Trace, ...], percent: int) -> None:
    """Every row is in exactly one part; arrows between parts are counted."""
    found, _ = planned(job, Plain, percent, "split")
    for place, whole in enumerate(job):
        parts = [part.traces[place].load() for part in found.parts]
        assert sum((content(p) for p in parts), Counter()) == content(whole)
    arrows = sum(len(p.load().flows) for part in found.parts for p in part.traces)
    assert arrows + found.issues.count("flow-split") == sum(len(t.flows) for t in job)


@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_parts_are_stretches_of_time(job: tuple[Trace, ...], percent: int) -> None:
    """They follow each other, and their heads say from when to when."""
    found, _ = planned(job, Plain, percent, "split")
    assume(len(found.parts) > 1)
    told = [part.document.facts["part"] for part in found.parts]
    assert [t["number"] for t in told] == list(range(1, len(told) + 1))
    assert [t["end_ns"] for t in told[:-1]] == [t["start_ns"] for t in told[1:]]
    assert (told[0]["start_ns"], told[-1]["end_ns"]) == (None, None)
    for part, t in zip(found.parts, told, strict=True):
        for spilled in part.traces:
            start = spilled.load().events.start_ns - BASE
            assert t["start_ns"] is None or (start >= t["start_ns"]).all()
            assert t["end_ns"] is None or (start < t["end_ns"]).all()


def busy(trace: Trace) -> dict[Track, int]:
    """Per lane, how long any slice was open; runs count what they say."""
    found = {}
    e = trace.events
    runs = np.array([trace.strings[i].endswith("small slices)") for i in e.name.tolist()], bool)
    for number, track in enumerate(trace.tracks):
        rows = (e.track == number) & ~runs if len(e) else np.empty(0, bool)
        covered = total(union(e.start_ns[rows], e.end_ns[rows]))
        told = [trace.args[i]["busy_ns"] for i in e.args[(e.track == number) & runs].tolist()]
        found[track] = covered + sum(told)
    return found


@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_reduce_keeps_busy_time(job: tuple[Trace, ...], percent: int) -> None:
    """Lane by lane, to the nanosecond, unless the dropped table says the lane went."""
    found, _ = planned(job, Plain, percent, "reduce")
    for whole, spilled in zip(job, found.parts[0].traces, strict=True):
        left = busy(spilled.load())
        gone: Counter[str] = Counter()
        for row in found.dropped:
            if row["rank"] == whole.rank and row["reason"] == "lane left out":
                gone[row["track"]] += row["busy_ns"]
        for track, ns in busy(whole).items():
            name = f"{track.group} {track.name}".strip()
            assert left.get(track, 0) + gone[name] == ns


@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_reduce_leaves_steps_and_overlap_alone(job: tuple[Trace, ...], percent: int) -> None:
    """They are what a summary is for."""
    found, _ = planned(job, Plain, percent, "reduce")
    for whole, spilled in zip(job, found.parts[0].traces, strict=True):
        had, has = (
            content(t.keep("", t.rows_of(*ALWAYS), np.zeros(len(t.counters), bool)))
            for t in (whole, spilled.load())
        )
        assert has == had


@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_reduce_books_every_row(job: tuple[Trace, ...], percent: int) -> None:
    """What is left, less the stand-ins, and what the table lists are what there was."""
    found, _ = planned(job, Plain, percent, "reduce")
    for whole, spilled in zip(job, found.parts[0].traces, strict=True):
        left = spilled.load()
        stand_ins = sum(
            left.strings[i].endswith("small slices)") for i in left.events.name.tolist()
        )
        listed = sum(r["rows"] for r in found.dropped if r["rank"] == whole.rank)
        had, has = (sum(t.counts().values()) for t in (whole, left))
        assert has - stand_ins + listed == had
        booked = sum(left.ledger.values()) - sum(whole.ledger.values())
        assert booked == has - had
    counted = found.issues.count("size-limit") + found.issues.count("size-coalesced")
    assert counted == sum(r["rows"] for r in found.dropped)


@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_stand_ins_cross_nothing(job: tuple[Trace, ...], percent: int) -> None:
    """On a lane that was free of crossings, runs and kept slices follow each other."""
    found, _ = planned(job, Plain, percent, "reduce")
    for spilled in found.parts[0].traces:
        left = spilled.load()
        e = left.events
        for i, name in enumerate(e.name.tolist()):
            if left.strings[name].endswith("small slices)"):
                a, b = int(e.start_ns[i]), int(e.end_ns[i])
                other = (e.track == e.track[i]) & (e.dur_ns > 0)
                other[i] = False
                assert not (other & (e.start_ns < b) & (e.end_ns > a)).any()


# -- policies by example -----------------------------------------------------------------------


def stream(n: int, rank: int = 0, dur: Callable[[int], int] = lambda i: 5, **given: Any) -> Trace:
    """So many slices on one stream, 100 ns apart."""
    build = builder(rank)
    track = build.track(given.pop("layer", Layer.DEVICE), "Stream 1")
    for i in range(n):
        build.slice(track, BASE + 100 * i, dur(i), "MatMul", **given)
    return build.finish()


def test_without_a_limit_nothing_is_loaded() -> None:
    """The plan is the input."""
    spilled = [SpilledRank(stream(3))]
    for limit in (None, SizeLimit()):
        found = plan(spilled, document(spilled[0].trace), Plain, limit)
        assert (found.parts[0].traces, found.max_bytes) == (tuple(spilled), None)
    assert spilled[0].loads == 0


def test_what_fits_is_left_alone() -> None:
    """Nothing is dropped, and the prediction is kept for the loop to check."""
    trace = stream(10)
    head = document(trace)
    for policy in ("fail", "split", "reduce"):
        found = plan([SpilledRank(trace)], head, Plain, SizeLimit(10_000, 10, policy))
        assert (len(found.parts), found.parts[0].document, found.dropped) == (1, head, ())
        assert (found.max_bytes, found.predicted) == (10_000, sizes(found, Plain)[0][0])


def test_fail_names_sizes_and_ways_out() -> None:
    """The user learns what to do."""
    trace = stream(100)
    with pytest.raises(SizeLimitError, match=r"up to .* 100 events.*50 events.*over_limit="):
        plan([SpilledRank(trace)], document(trace), Plain, SizeLimit(None, 50, "fail"))


def test_unknown_policies_are_refused() -> None:
    """The message lists those there are."""
    with pytest.raises(SizeLimitError, match="reduce, split, fail"):
        SizeLimit(1, policy="shrink")


@pytest.mark.parametrize(
    ("viewer", "given", "expected"),
    [
        ("perfetto", (None, None), (1 << 30, 10_000_000)),
        ("chrome", (1000, None), (1000, 2_000_000)),
        ("none", (None, 7), (None, 7)),
    ],
)
def test_what_is_asked_for_goes_before_what_suits_a_viewer(
    viewer: str, given: tuple[int | None, int | None], expected: tuple[int | None, int | None]
) -> None:
    """A preset fills in what was not said."""
    assert SizeLimit.of_viewer(viewer, *given, "fail") == SizeLimit(*expected, "fail")


def test_no_viewer_is_no_limit() -> None:
    """Nothing is measured then; and viewers nobody knows are refused."""
    assert SizeLimit.of_viewer("none") is None
    with pytest.raises(SizeLimitError, match="perfetto, chrome, none"):
        SizeLimit.of_viewer("other")


@pytest.mark.parametrize("percent", [30, 50, 70, 90])
def test_strings_told_apart_do_not_empty_the_file(percent: int) -> None:
    """Where names take much room, the limit is still used by more than a half."""
    build = builder()
    for i in range(2000):
        track = build.track(Layer.DEVICE, f"Stream {i % 20}")
        build.slice(track, BASE + 100 * i, i % 97 + 1, f"a name of some length {i % 300}" * 3)
    named = build.finish()
    whole = sizes(plan([SpilledRank(named)], document(named), Plain, None), Plain)[0][0]
    limit = SizeLimit(whole * percent // 100)
    found = sizes(plan([SpilledRank(named)], document(named), Plain, limit), Plain)[0][0]
    assert whole * percent // 200 <= found <= whole * percent // 100


def test_split_into_equal_files() -> None:
    """Ten slices in files of three."""
    trace = stream(10)
    found = plan([SpilledRank(trace)], document(trace), Plain, SizeLimit(None, 3, "split"))
    assert [rows for _, rows in sizes(found, Plain)] == [3, 3, 3, 1]


def test_split_cannot_cut_an_instant() -> None:
    """Rows that start together stay together."""
    build = builder()
    for i in range(5):
        build.slice(build.track(Layer.DEVICE, f"Stream {i}"), BASE, 1, "x")
    trace = build.finish()
    with pytest.raises(SizeLimitError, match="one nanosecond"):
        plan([SpilledRank(trace)], document(trace), Plain, SizeLimit(None, 4, "split"))


def test_split_finds_bursts_in_long_traces() -> None:
    """Two bursts of 1 ns steps, an hour apart, are cut as finely as needed."""
    build = builder()
    track = build.track(Layer.DEVICE, "Stream 1")
    for burst in (0, 3600 * 10**9):
        for i in range(200):
            build.slice(track, BASE + burst + i, 1, "x")
    trace = build.finish()
    found = plan([SpilledRank(trace)], document(trace), Plain, SizeLimit(None, 50, "split"))
    assert [rows for _, rows in sizes(found, Plain)] == [50] * 8


def test_split_needs_room_for_heads() -> None:
    """Every file describes all tracks."""
    trace = stream(10)
    with pytest.raises(SizeLimitError, match="names of its tracks alone"):
        plan([SpilledRank(trace)], document(trace), Plain, SizeLimit(50, None, "split"))


@pytest.mark.thorough
def test_split_refuses_floods_of_files() -> None:
    """A slip of the pen does not fill the folder."""
    trace = stream(30_000)
    with pytest.raises(SizeLimitError, match="30000 files"):
        plan([SpilledRank(trace)], document(trace), Plain, SizeLimit(None, 1, "split"))


def reduced(trace: Trace, max_events: int, **facts: Any) -> tuple[Trace, Plan]:
    limit = SizeLimit(None, max_events, "reduce")
    found = plan([SpilledRank(trace)], document(trace, **facts), Plain, limit)
    return found.parts[0].traces[0].load(), found


def names(trace: Trace) -> list[str]:
    return [trace.strings[i] for i in trace.events.name.tolist()]


def test_a_run_of_small_slices_becomes_one() -> None:
    """With its count, its busy time and its longest slice."""
    left, found = reduced(stream(9, dur=lambda i: 90 if i in (0, 8) else 5 + i), 3)
    assert names(left) == ["MatMul", "(7 small slices)", "MatMul"]
    run = left.args[int(left.events.args[1])]
    assert run == {"count": 7, "busy_ns": sum(5 + i for i in range(1, 8)), "longest": "MatMul"}
    assert (left.events.start_ns[1], left.events.end_ns[1]) == (BASE + 100, BASE + 700 + 12)
    assert [(i.code, i.count, i.places) for i in found.issues] == [
        ("size-coalesced", 7, ("Hardware: 7",))
    ]


def test_the_dropped_table_travels_in_the_file() -> None:
    """With the issues counted there, and in full in the plan."""
    _, found = reduced(stream(9), 1, issues={"truncated": 1}, dropped=[])
    row = {
        "rank": 0,
        "layer": "device",
        "heading": "Hardware",
        "track": "Stream 1",
        "rows": 9,
        "busy_ns": 45,
        "reason": "coalesced",
    }
    facts = found.parts[0].document.facts
    assert (facts["dropped"], list(found.dropped)) == ([row], [row])
    assert facts["issues"] == {"truncated": 1, "size-coalesced": 9}


def test_runs_tell_their_story_even_where_arguments_do_not_travel() -> None:
    """``--args none`` is about the input's arguments."""
    trace = stream(9, args={"secret": 1})
    head = Document(BASE, (0,), {}, frozenset())
    found = plan([SpilledRank(trace)], head, ChromeJsonWriter, SizeLimit(None, 1, "reduce"))
    writer = ChromeJsonWriter()
    part = found.parts[0]
    text = writer.begin(part.document) + b"".join(writer.trace(part.traces[0].load()))
    assert (b'"busy_ns": 45' in text or b'"busy_ns":45' in text, b"secret" in text) == (True, False)


def test_equal_slices_stay_from_the_start_as_long_as_there_is_room() -> None:
    """Stamps on a coarse grid do not waste the room."""
    left, _ = reduced(stream(9), 5)
    assert names(left) == [*["MatMul"] * 4, "(5 small slices)"]


def test_communication_goes_last() -> None:
    """Of slices of one length, those of communication stay."""
    build = builder()
    for layer in (Layer.DEVICE, Layer.COMM):
        track = build.track(layer, "lane")
        for i in range(10):
            build.slice(track, BASE + 100 * i, 50, str(layer))
    left, _ = reduced(build.finish(), 11)
    assert Counter(names(left)) == {"comm": 10, "(10 small slices)": 1}


def test_the_class_of_a_slice_counts_too() -> None:
    """Communication on a hardware stream is communication."""
    build = builder()
    track = build.track(Layer.DEVICE, "Stream 1")
    for i in range(20):
        op = OpClass.COMM if i % 10 == 5 else OpClass.COMPUTE
        build.slice(track, BASE + 100 * i, 50, op.name, op=op)
    left, _ = reduced(build.finish(), 5)
    assert names(left) == [
        "(5 small slices)",
        "COMM",
        "(9 small slices)",
        "COMM",
        "(4 small slices)",
    ]


def test_outliers_stay() -> None:
    """A slice unusually long for its name stays before longer usual ones."""
    build = builder()
    track = build.track(Layer.DEVICE, "Stream 1")
    for i in range(10):
        build.slice(track, BASE + 1000 * i, 900, "long")
    for i in range(10, 20):
        build.slice(track, BASE + 1000 * i, 800 if i == 15 else 10, "short")
    left, _ = reduced(build.finish(), 3)
    assert names(left) == ["(15 small slices)", "short", "(4 small slices)"]


def test_nested_slices_go_with_their_parent() -> None:
    """And count with it."""
    build = builder()
    track = build.track(Layer.HOST, "Thread 1", thread=1)
    for i in range(5):
        build.slice(track, BASE + 100 * i, 50, "outer")
        build.slice(track, BASE + 100 * i + 10, 20, "inner")
    left, found = reduced(build.finish(), 1)
    assert names(left) == ["(10 small slices)"]
    assert left.args[int(left.events.args[0])]["busy_ns"] == 250
    assert [r["rows"] for r in found.dropped] == [10]


def test_children_of_kept_slices_go_without_replacement() -> None:
    """A long parent stays; the table says what was inside."""
    build = builder()
    track = build.track(Layer.HOST, "Thread 1", thread=1)
    build.slice(track, BASE, 10_000, "step")
    for i in range(50):
        build.slice(track, BASE + 100 * i, 10 if i else 5000, f"op {i}")
    left, found = reduced(build.finish(), 2)
    assert names(left) == ["step", "op 0"]
    assert [(r["rows"], r["busy_ns"], r["reason"]) for r in found.dropped] == [
        (49, 0, "inside a longer slice")
    ]


def test_arrows_go_with_their_ends() -> None:
    """And are counted."""
    build = builder()
    host, device = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for i in range(10):
        dur = 500 if i == 3 else 10
        launch = build.slice(host, BASE + 1000 * i, dur, "launch")
        build.flow(launch, build.slice(device, BASE + 1000 * i + 600, dur, "kernel"), "x")
    left, found = reduced(build.finish(), 8)
    assert len(left.flows) == 1
    assert [r["rows"] for r in found.dropped if "arrow" in r["reason"]] == [9]


def counted(samples: list[float], slices: int = 4) -> Trace:
    build = builder()
    track = build.track(Layer.COUNTER, "c", unit="KB")
    for i, value in enumerate(samples):
        build.counter(track, BASE + i, value)
    for i in range(slices):
        build.slice(build.track(Layer.DEVICE, "Stream 1"), BASE + 10 * i, 5, "x")
    return build.finish()


def test_repeated_samples_go_first() -> None:
    """Their picture does not change: the last of a counter stays for its length."""
    left, _ = reduced(counted([1, 1, 1, 2, 2, 2, 2]), 4 + 3)
    assert left.counters.value.tolist() == [1, 2, 2]
    assert names(left) == ["x"] * 4


def test_counters_are_thinned_before_slices_go() -> None:
    """Slices are what people look at."""
    left, _ = reduced(counted([float(i * 7 % 5000) for i in range(5000)]), 2500)
    assert names(left) == ["x"] * 4
    assert 1000 < len(left.counters) < 2500


def test_thinning_keeps_lows_and_highs() -> None:
    """Spikes are what people look for in counters."""
    value = np.sin(np.arange(10_000) / 50.0)
    value[[1234, 5678]] = 9.0, -9.0
    counters = counted(value.tolist()).counters
    kept = counters.take(downsampled(counters, 64))
    assert {9.0, -9.0} <= set(kept.value.tolist())
    assert 64 <= len(kept) <= 2 * 64 + 2


def test_lanes_go_when_not_even_runs_fit() -> None:
    """The busiest communication lane is the last to go."""
    build = builder()
    build.slice(build.track(Layer.STEP, "Iteration"), BASE, 10_000, "1")
    for i in range(10):
        for k in range(3):
            build.slice(build.track(Layer.DEVICE, f"Stream {i}"), BASE + 10 * k, 5, "x")
            build.slice(build.track(Layer.COMM, f"Plane {i}"), BASE + 10 * k, i, "x")
    left, found = reduced(build.finish(), 3)
    assert sorted(names(left)) == ["(3 small slices)", "(3 small slices)", "1"]
    lanes = {left.tracks[i].name for i in left.events.track.tolist()}
    assert lanes == {"Iteration", "Plane 9", "Plane 8"}
    assert sum(r["busy_ns"] for r in found.dropped if r["track"] == "Stream 4") == 15


def test_steps_that_do_not_fit_are_an_error() -> None:
    """They are not reduced silently."""
    with pytest.raises(SizeLimitError, match="step trace, overlap analysis"):
        reduced(stream(10, layer=Layer.STEP), 9)


def test_ranks_share_the_room_in_proportion() -> None:
    """A rank with three times the slices keeps three times the slices."""
    jobs = [
        stream(300, 0, dur=lambda i: i * 300 // 900 + 1),
        stream(900, 1, dur=lambda i: i * 100 // 900 + 1),
    ]
    limit = SizeLimit(None, 600, "reduce")
    found = plan([SpilledRank(t) for t in jobs], document(*jobs), Plain, limit)
    kept = [len(p.load().events) for p in found.parts[0].traces]
    assert 145 <= kept[0] <= 150
    assert 440 <= kept[1] <= 450


NEEDS = st.lists(st.integers(0, 10**9), min_size=1, max_size=64)


@settings(max_examples=effort(80, 300), deadline=None)
@given(NEEDS, st.integers(0, 10**9))
def test_shares_never_exceed_the_room(needs: list[int], room: int) -> None:
    """Whatever ranks need."""
    given_out = shares(Size(room, room), [Size(n, 1) for n in needs])
    assert sum(s.bytes for s in given_out) <= room


@settings(max_examples=effort(80, 300), deadline=None)
@given(NEEDS, st.integers(0, 10**9))
def test_no_rank_starves(needs: list[int], room: int) -> None:
    """Each gets what it needs, or nearly an eighth of an equal share."""
    given_out = shares(Size(room, room), [Size(n, 1) for n in needs])
    floor = room * 7 // (8 * 8 * len(needs)) - 1
    assert [n for n, s in zip(needs, given_out, strict=True) if s.bytes < min(n, floor)] == []


@settings(max_examples=effort(80, 300), deadline=None)
@given(NEEDS, st.integers(0, 10**9))
def test_who_needs_more_gets_no_less(needs: list[int], room: int) -> None:
    """Shares grow with needs, but for the eighth that the smallest are given."""
    given_out = shares(Size(room, room), [Size(n, 1) for n in sorted(needs)])
    floor = room // (8 * len(needs))
    rich = [s.bytes for s in given_out if s.bytes > floor]
    assert rich == sorted(rich)


def test_a_small_rank_keeps_slices_beside_a_large_one() -> None:
    """In proportion, it would keep a single one."""
    jobs = [stream(40, 0, dur=lambda i: i + 1), stream(4000, 1, dur=lambda i: i + 1)]
    limit = SizeLimit(None, 200, "reduce")
    found = plan([SpilledRank(t) for t in jobs], document(*jobs), Plain, limit)
    kept = [len(p.load().events) for p in found.parts[0].traces]
    assert (kept[0] >= 10, sum(kept) <= 200) == (True, True)


def test_the_table_in_the_file_is_bounded() -> None:
    """The largest losses are shown, the others summed."""
    table = [{**longest_row([("h", "t")]), "rows": 1, "busy_ns": i} for i in range(10)]
    shown = shortened(table, 3)
    assert [r["busy_ns"] for r in shown] == [7, 8, 9, sum(range(7))]
    assert (shown[-1]["rows"], shown[-1]["track"]) == (7, "7 others")


@pytest.mark.parametrize("policy", ["reduce", "split"])
@settings(max_examples=effort(8, 25), deadline=None)
@given(JOBS, FRACTIONS)
def test_heads_tell_the_rows_of_their_file(
    policy: str, job: tuple[Trace, ...], percent: int
) -> None:
    """Checkers compare them with what is there."""
    found, _ = planned(job, Plain, percent, policy)
    for part in found.parts:
        counts: Counter[str] = Counter()
        for spilled in part.traces:
            counts.update(spilled.load().counts())
        assert part.document.facts["counts"] == counts


@pytest.mark.parametrize("policy", ["reduce", "split"])
def test_parked_ranks_are_taken_from_disk(policy: str, tmp_path: Path) -> None:
    """Mapped columns can be read only, and that is enough."""
    trace = counted([float(i % 7) for i in range(500)], slices=500)
    spilled = spill(trace, collective_records(trace), tmp_path / "rank")
    found = plan([spilled], document(trace), ChromeJsonWriter, SizeLimit(None, 200, policy))
    for (_, rows), part in zip(sizes(found, ChromeJsonWriter), found.parts, strict=True):
        assert 0 < rows <= 200
        part.traces[0].release_pages()


def test_planning_is_repeatable() -> None:
    """Equal inputs give equal bytes."""
    trace = stream(500, dur=lambda i: i * 37 % 91)
    texts = []
    for _ in range(2):
        head = document(trace, issues={})
        found = plan([SpilledRank(trace)], head, ChromeJsonWriter, SizeLimit(20_000, None))
        writer = ChromeJsonWriter()
        text = writer.begin(found.parts[0].document)
        texts.append(text + b"".join(writer.trace(found.parts[0].traces[0].load())))
    assert texts[0] == texts[1]
