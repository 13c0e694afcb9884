"""The Chrome JSON writer: what viewers see, what our reader can restore, what rows cost."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from decoded import decode
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv import native
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import us_text
from traceconv.core.model import Capture, Kind, Layer, OpClass, Trace, Track
from traceconv.io.sources import FileSource
from traceconv.validation import validate
from traceconv.writers import Document, template
from traceconv.writers.arguments import Rewritten, strict, strict_one
from traceconv.writers.chrome import ChromeJsonWriter
from traceconv.writers.template import BLOCK_ROWS, micros, numbers, same

RARE = (
    *(
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1" * 19,
        b"9" * 25,
        b"1e400",
        b"2.5E+308",
        b"1e40",
        b"1e-400",
    ),
    *(rb'"\ud800"', rb'"\uDc00"', rb'"\u00e9"', b"Inf", b"Na", b"e123", b"1e+1", b"1E+12"),
)
BASE = 1_736_408_883_704_643_212


def builder(rank: int = 0, **capture: Any) -> TraceBuilder:
    source = FileSource(Path("nowhere"), "nowhere")
    return TraceBuilder(Capture("test", source, (), rank, **capture))


def written(*traces: Trace, writer: ChromeJsonWriter | None = None, **document: Any) -> bytes:
    writer = writer or ChromeJsonWriter()
    ranks = document.pop("ranks", tuple(t.rank for t in traces))
    head = Document(document.pop("base_ns", BASE), ranks, **document)
    blocks = [writer.begin(head)]
    for trace in traces:
        blocks.extend(writer.trace(trace))
    return b"".join([*blocks, writer.end()])


def events(*traces: Trace, **options: Any) -> list[dict[str, Any]]:
    return json.loads(written(*traces, **options))["traceEvents"]


def phase(found: list[dict[str, Any]], ph: str) -> list[dict[str, Any]]:
    return [e for e in found if e["ph"] == ph]


def one_slice(rank: int = 0, name: str = "MatMul", **given: Any) -> Trace:
    build = builder(rank)
    build.slice(build.track(Layer.DEVICE, "Stream 3"), BASE + 1500, 828, name, **given)
    return build.finish()


def raw_args(raw: bytes) -> Trace:
    build = builder()
    track = build.track(Layer.DEVICE, "Stream 3")
    build.seen("slice")
    build.extend(
        track=track,
        start_ns=np.array([BASE]),
        name=build.string("x"),
        args=build.args_bytes(raw, np.array([len(raw)], np.int32)),
    )
    return build.finish()


def test_the_file_is_one_object_with_its_metadata_first() -> None:
    """A file cut short still tells its base of time."""
    text = written(one_slice(), facts={"mode": "detail"})
    assert text.startswith(b'{"')
    assert text.index(b'"base_ns":"1736408883704643212"') < text.index(b'"traceEvents"')
    parsed = json.loads(text)
    assert parsed["displayTimeUnit"] == "ns"
    assert parsed["metadata"]["traceconv"] == {"base_ns": str(BASE), "mode": "detail"}


def test_a_document_without_traces_is_valid() -> None:
    """No ranks, no events, still an object."""
    assert json.loads(written())["traceEvents"] == []


def test_a_trace_without_rows_writes_nothing() -> None:
    """An empty rank between others leaves no stray comma."""
    empty = builder(1).finish()
    assert len(phase(events(one_slice(0), empty, one_slice(2)), "X")) == 2


def test_a_slice_carries_exact_microseconds() -> None:
    """Times are text made from integers, relative to the base."""
    assert b'"ts":1.500,"dur":0.828,' in written(one_slice())


@settings(deadline=None)
@given(st.lists(st.integers(-(10**6), 2**62), min_size=1, max_size=50))
def test_times_are_written_digit_by_digit(times: list[int]) -> None:
    """With and without the C part, as the plain conversion says."""
    ns = np.array(times, np.int64)
    pieces = (micros(ns, b","), same(b" "), numbers(ns), same(b"."))
    expected = b"".join(b",%b %d." % (us_text(t).encode(), t) for t in times)
    for native_tier in ("1", "0"):
        with mock.patch.dict(os.environ, TRACECONV_NATIVE=native_tier):
            assert template.written(pieces, len(times)) == expected


@pytest.mark.skipif(native.records() is None, reason="needs the compiled parts")
@settings(deadline=None)
@given(st.binary(max_size=40), st.sampled_from(RARE))
def test_json_to_be_looked_at_is_never_missed(around: bytes, rare: bytes) -> None:
    """What the C part passes on unseen, the Python code would not have rewritten either."""
    for raw in (around, around + rare + around, rare):
        column = np.array([0], np.int64), np.array([len(raw)], np.int32)
        made = native.records()(((3, b"", (raw,), *column),), 1)
        assert made == raw if made is not None else raw
        if strict([raw], Rewritten()) != [raw]:
            assert made is None


@pytest.mark.skipif(native.records() is None, reason="needs the compiled parts")
@settings(deadline=None, max_examples=effort(300, 5000))
@given(st.text("0123456789eE+-NaInf\\ud, ", max_size=100), st.integers(0, 40))
def test_json_is_passed_on_unseen_where_nothing_rare_is_in_it(text: str, digits: int) -> None:
    """Wherever it stands within the sixteen bytes that are looked at together, or across them."""
    rare = re.compile(rb"\\u[dD]|NaN|Infi|\d{19}|\d[eE]\+?\d{3}")
    raw = text[:20].encode() + b"7" * digits + text[20:].encode()
    column = np.array([0], np.int64), np.array([len(raw)], np.int32)
    made = native.records()(((3, b"", (raw,), *column),), 1)
    assert made == (None if rare.search(raw) else raw)


@pytest.mark.skipif(native.records() is None, reason="needs the compiled parts")
@pytest.mark.parametrize(
    "piece",
    [
        (0,), (1, b"", b"ab"), (4, b""), (5, b"", b"12345678"), "x", (2, b"", b"1234567"), (2, b""),
        (3, b"", b"x", b"", b""),
        (1, b"", b"ab", np.array([3]), np.array([0], np.int32)),
        (1, b"", b"ab", np.array([2, 1]), np.array([0], np.int32)),
        (1, b"", b"ab", np.array([2]), np.array([1], np.int32)),
        (3, b"", (b"abc",), np.array([2]), np.array([2], np.int32)),
        (3, b"", (b"abc",), np.array([1 << 48]), np.array([1], np.int32)),
        (3, b"", (b"abc",), np.array([0]), np.array([-1], np.int32)),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused(piece: Any) -> None:
    """No byte outside of what is given is read."""
    with pytest.raises((ValueError, TypeError)):
        native.records()((piece,), 1)


def test_tiers_write_the_same_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, instants, counters, arrows, arguments that are rewritten in one block."""
    build = builder()
    track, level = build.track(Layer.HOST, "thread"), build.track(Layer.COUNTER, "level", unit="B")
    rng, rows = np.random.default_rng(1), 3 * BLOCK_ROWS // 2
    names = np.array([build.string(f"n{i}") for i in range(50)], np.int32)
    odd = [b'{"a": NaN}', b'{"k": "\\u00e9"}', b'{"n": 12}', b'{"s": "\\ud800"}']
    raws = [*(odd[i % 4] for i in range(100)), *[odd[2]] * (rows - 200)]
    first = build.args_bytes(b"".join(raws), np.array([len(raw) for raw in raws], np.int32))
    ids = np.arange(first, first + len(raws))
    build.seen("slice", rows)
    build.seen("counter", 9)
    build.seen("flow", 9)
    build.extend(
        track=track, start_ns=BASE + 9 * np.arange(rows), dur_ns=rng.integers(0, 8, rows),
        name=names[np.arange(rows) % 50], step=rng.integers(-1, 3, rows).astype(np.int32),
        args=np.append(ids, np.full(100, -1)).astype(np.int32),
    )  # fmt: skip
    build.instant(track, BASE, "now")
    build.counters(track=level, start_ns=BASE + np.arange(9), value=rng.random(9))
    build.flows(src=np.arange(9), dst=np.arange(9) + 20, name=build.string("arrow"))
    trace = build.finish()
    usual = written(trace)
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    assert written(trace) == usual


def test_processes_are_ranks_and_layers() -> None:
    """Titles of the source go before our own; order is explicit."""
    build = builder(3)
    for layer, title in ((Layer.STEP, ""), (Layer.DEVICE, "Ascend Hardware")):
        build.slice(build.track(layer, "lane", title=title), BASE, 1, "x")
    found = phase(events(build.finish()), "M")
    names = {e["pid"]: e["args"] for e in found if e["name"] == "process_name"}
    order = {e["pid"]: e["args"]["sort_index"] for e in found if e["name"] == "process_sort_index"}
    assert names == {
        3001: {"name": "Rank 3 Step Trace", "rank": 3},
        3002: {"name": "Rank 3 Ascend Hardware", "rank": 3},
    }
    assert order[3001] < order[3002]


def test_host_and_device_are_labels() -> None:
    """What is known of the machine stands beside the process."""
    build = builder(host="node7", device=5)
    build.slice(build.track(Layer.DEVICE, "Stream 1"), BASE, 1, "x")
    labels = [e["args"] for e in events(build.finish()) if e["name"] == "process_labels"]
    assert labels == [{"labels": "node7, device 5"}]


def test_threads_tell_the_exact_track() -> None:
    """Names on screen are made of group, name and lane; the parts stand beside them."""
    tracks = [
        Track(Layer.COMM, "Plane 1", "Group 0", "HCCL", sort=7),
        Track(Layer.DEVICE, "Stream 3", lane=1),
        Track(Layer.DEVICE, "Stream 3"),
        Track(Layer.COUNTER, "Read", "HBM 0", unit="MB/s"),
        Track(Layer.COUNTER, "Usage", unit=""),
    ]
    build = builder()
    for track in tracks:
        number = build.add_track(track)
        if track.is_counter:
            build.counter(number, BASE, 1.0)
        else:
            build.slice(number, BASE, 1, "x")
    told = {e["tid"]: e["args"] for e in events(build.finish()) if e["name"] == "thread_name"}
    restored = {
        Track(
            Layer(a["layer"]),
            a["track"],
            a["group"],
            a["title"],
            a["sort"],
            a.get("unit"),
            a["lane"],
        )
        for a in told.values()
    }
    assert restored == set(tracks)
    shown = [a["name"] for a in told.values()]
    assert shown == ["Stream 3", "Stream 3 (2)", "Group 0 Plane 1", "Usage", "HBM 0 Read"]


def test_thread_order_follows_the_screen_order() -> None:
    """Stream 3 stands before Stream 12."""
    build = builder()
    for i in (12, 3):
        build.slice(build.track(Layer.DEVICE, f"Stream {i}"), BASE, 1, "x")
    found = events(build.finish())
    name = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in found if e["name"] == "thread_sort_index"}
    assert [name[tid] for tid in sorted(order, key=order.__getitem__)] == ["Stream 3", "Stream 12"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("ranks", [(0, 1), (7, 999_999), (0, 20_240_101), (2**31, 2**31 + 1)])
def test_numbers_are_unique_positive_and_small(ranks: tuple[int, int]) -> None:
    """No pid or tid is used twice, not even by ranks with thousands of lanes or huge numbers."""
    traces = []
    for rank in ranks:
        build = builder(rank)
        for i in range(2100):
            build.slice(build.track(Layer.HOST, f"Thread {i}"), BASE, 1, "x")
        traces.append(build.finish())
    found = phase(events(*traces), "M")
    pids = {e["pid"] for e in found}
    tids = {e["tid"] for e in found if "tid" in e}
    assert (len(pids), len(tids), len(pids | tids)) == (2, 4200, 4202)
    assert 0 < min(pids | tids) <= max(pids | tids) < 2**31


def test_tracks_without_rows_are_not_described() -> None:
    """A viewer would show nothing for them."""
    build = builder()
    build.track(Layer.COMM, "Plane 0")
    build.slice(build.track(Layer.DEVICE, "Stream 3"), BASE, 1, "x")
    described = [e["args"]["name"] for e in events(build.finish()) if e["name"] == "thread_name"]
    assert described == ["Stream 3"]


def test_an_instant_belongs_to_its_thread() -> None:
    """It has a scope and no duration."""
    build = builder()
    build.instant(build.track(Layer.HOST, "Thread 1", thread=1), BASE + 42, "mark")
    (instant,) = phase(events(build.finish()), "i")
    assert (instant["s"], instant["ts"], "dur" in instant) == ("t", 0.042, False)


def test_class_graph_and_step_stand_beside_the_name() -> None:
    """They are written where they are known, and cost nothing where not."""
    (plain,) = phase(events(one_slice()), "X")
    assert {"cat", "graph", "step", "args"} & plain.keys() == set()
    (full,) = phase(events(one_slice(op=OpClass.COMM_TASK, graph=0, step=12)), "X")
    assert (full["cat"], full["graph"], full["step"]) == ("comm_task", 0, 12)


def test_arguments_travel_byte_for_byte() -> None:
    """Digits, spacing and order of keys stay as they were read."""
    raw = b'{"b": 1.2300 , "a":[1,\n2], "c":"\\u00e9\\n"}'
    assert b'"args":' + raw + b"}" in written(raw_args(raw))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"a":"\\ud83d\\ude00"}', '{"a":"😀"}'),
        (b'{"a":"\\uD83D\\uDE00\\u00e9"}', '{"a":"😀\\u00e9"}'),
        (b'{"a":"x\\ud83dy"}', '{"a":"x\ufffdy"}'),
        (b'{"a":"\\\\ud83d"}', '{"a":"\\\\ud83d"}'),
        (b'{"a":NaN,"b":[-Infinity,Infinity]}', '{"a":"NaN","b":["-Infinity","Infinity"]}'),
        (b'{"a":"NaN \\"Infinity"}', '{"a":"NaN \\"Infinity"}'),
        (b'{"a":9223372036854775807}', '{"a":9223372036854775807}'),
        (b'{"a":-9223372036854775808}', '{"a":-9223372036854775808}'),
        (b'{"a":9223372036854775808}', '{"a":"9223372036854775808"}'),
        (b'{"a":18446744073709551615,"b":2}', '{"a":"18446744073709551615","b":2}'),
        (b'{"a":1.18446744073709551615e3}', '{"a":1.18446744073709551615e3}'),
        (b'{"18446744073709551615":1}', '{"18446744073709551615":1}'),
    ],
)
def test_arguments_viewers_choke_on_are_rewritten(raw: bytes, expected: str) -> None:
    """Surrogate escapes, NaN and numbers beyond int64; nothing else changes."""
    assert f'"args":{expected}}}'.encode() in written(raw_args(raw))


def test_rewritten_arguments_are_booked() -> None:
    """The writer says how many numbers became text and how much text was broken."""
    writer = ChromeJsonWriter()
    written(raw_args(b'{"a":NaN,"b":18446744073709551615,"c":"\\ud83d"}'), writer=writer)
    assert {i.code: (i.count, i.rank) for i in writer.issues} == {
        "value-clipped": (2, 0),
        "bad-encoding": (1, 0),
    }


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def strict_value(value: Any) -> Any:
    """What a value shall look like in the output."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [strict_value(v) for v in value]
    if isinstance(value, dict):
        return {strict_value(k): strict_value(v) for k, v in value.items()}
    return value


@settings(deadline=None)
@given(JSON_VALUES)
def test_any_json_becomes_strict_json_of_the_same_meaning(value: Any) -> None:
    """Checked against parsing and converting."""
    raw = json.dumps({"v": value}).encode()

    def refused(constant: str) -> None:
        raise AssertionError(constant)

    cleaned = strict([raw], Rewritten())[0]
    assert cleaned == strict_one(raw, Rewritten())
    assert json.loads(cleaned, parse_constant=refused) == {"v": strict_value(value)}


def test_only_wanted_arguments_travel() -> None:
    """Others stay behind, and that is booked; values keep their digits."""
    writer = ChromeJsonWriter()
    trace = raw_args(b'{"Task Type":"AI_CORE","Task Id":7,"x": 1.50}')
    text = written(trace, writer=writer, args=frozenset({"x", "Task Type"}))
    assert b'"args":{"Task Type":"AI_CORE","x":1.50}}' in text
    assert [(i.code, i.count) for i in writer.issues] == [("args-dropped", 1)]


def test_no_arguments_leave_no_trace() -> None:
    """With nothing wanted, or nothing found, there is no args key."""
    trace = raw_args(b'{"a":1}')
    for wanted in (frozenset(), frozenset({"b"})):
        assert "args" not in phase(events(trace, args=wanted), "X")[0]


def test_names_are_escaped_and_sound() -> None:
    """Quotes, control characters and half surrogates do not break the file."""
    name = 'a"b\\c\n\x01é😀\ud800'
    assert phase(events(one_slice(name=name)), "X")[0]["name"] == name[:-1] + "\ufffd"


def test_counters_are_unique_per_process() -> None:
    """Two counters that look alike on screen stay two; the unit is the key of the value."""
    build = builder()
    for track in (
        Track(Layer.COUNTER, "Read", "HBM 0", unit="MB/s"),
        Track(Layer.COUNTER, "HBM 0 Read", unit=""),
    ):
        build.counter(build.add_track(track), BASE + 1, 2.5)
    found = phase(events(build.finish()), "C")
    assert len({e["name"] for e in found}) == 2
    assert {json.dumps(e["args"]) for e in found} == {'{"MB/s": 2.5}', '{"value": 2.5}'}


def test_counter_values_come_back_exactly() -> None:
    """Doubles are written with the digits they need; NaN is text, and booked."""
    values = [0.1, 1e300, -5.0, 2.0**53, math.nan]
    build = builder()
    track = build.track(Layer.COUNTER, "c", unit="x")
    for i, value in enumerate(values):
        build.counter(track, BASE + i, value)
    writer = ChromeJsonWriter()
    found = phase(events(build.finish(), writer=writer), "C")
    assert [e["args"]["x"] for e in found] == [*values[:-1], "nan"]
    assert writer.issues.count("value-clipped") == 1


def two_lanes(rank: int = 0) -> Trace:
    build = builder(rank)
    host, device = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 3"),
    )
    launch = build.slice(host, BASE + 1000, 500, "launch")
    kernel = build.slice(device, BASE + 3000, 500, "kernel")
    build.flow(launch, kernel, "HostToDevice")
    build.flow(launch, kernel, "again")
    return build.finish()


def test_an_arrow_is_a_pair_of_records() -> None:
    """Both ends lie on their slices and share id, name and category."""
    found = events(two_lanes())
    start, end = phase(found, "s")[0], phase(found, "f")[0]
    host, device = phase(found, "X")
    for key in ("id", "name", "cat"):
        assert start[key] == end[key]
    assert (start["name"], start["cat"], end["bp"]) == ("HostToDevice", "HostToDevice", "e")
    assert [start[k] for k in ("pid", "tid", "ts")] == [host[k] for k in ("pid", "tid", "ts")]
    assert [end[k] for k in ("pid", "tid", "ts")] == [device[k] for k in ("pid", "tid", "ts")]


def test_arrow_ids_are_unique_in_the_file() -> None:
    """Across ranks too; and exact as doubles."""
    ids = [e["id"] for e in phase(events(two_lanes(0), two_lanes(999_999)), "s")]
    assert (len(set(ids)), all(isinstance(i, int) and 0 < i < 2**53 for i in ids)) == (4, True)


def test_an_arrow_from_a_parent_misses_its_child() -> None:
    """Viewers take the innermost slice at the arrow's time: it is put where only the parent is."""
    build = builder()
    track = build.track(Layer.HOST, "Thread 1", thread=1)
    parent = build.slice(track, BASE, 100, "parent")
    build.slice(track, BASE, 10, "child")
    build.slice(track, BASE, 5, "grandchild")
    child = build.slice(track, BASE + 11, 20, "second child")
    last = build.slice(track, BASE + 60, 40, "last")
    build.flow(parent, last, "a")
    build.flow(child, last, "b")
    starts = {e["name"]: round(e["ts"] * 1000) for e in phase(events(build.finish()), "s")}
    assert starts == {"a": 32, "b": 11}


def test_an_arrow_from_a_parent_without_gaps_stays_at_its_start() -> None:
    """There is no better place; it must still lie on the slice."""
    build = builder()
    track = build.track(Layer.HOST, "Thread 1", thread=1)
    parent = build.slice(track, BASE, 10, "parent")
    build.slice(track, BASE, 10, "child")
    build.flow(parent, build.slice(track, BASE + 20, 1, "end"), "a")
    assert phase(events(build.finish()), "s")[0]["ts"] == 0


def test_an_arrow_never_leaves_after_it_arrives() -> None:
    """Nobody would draw it; then the start has to do."""
    build = builder()
    host, device = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 3"),
    )
    parent = build.slice(host, BASE, 100, "parent")
    build.slice(host, BASE, 50, "child")
    build.flow(parent, build.slice(device, BASE + 20, 1, "kernel"), "a")
    assert phase(events(build.finish()), "s")[0]["ts"] == 0


def test_an_importer_finds_what_was_written(tmp_path: Path) -> None:
    """Slices, arrows, instants and counters, as a model of Perfetto's importer reads them."""
    build = builder(2, host="node7", device=1)
    host, device = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 3"),
    )
    for i in range(5):
        launch = build.slice(host, BASE + 1000 * i, 900, "op", args={"shape": [1, 2]})
        inner = build.slice(host, BASE + 1000 * i + 10, 100, "launch")
        kernel = build.slice(device, BASE + 1000 * i + 500, 333, "kernel", op=OpClass.COMPUTE)
        build.flow(inner, kernel, "HostToDevice")
        build.flow(launch, kernel, "async")
        build.instant(device, BASE + 1000 * i + 900, "mark")
        build.counter(build.track(Layer.COUNTER, "Read", group="HBM", unit="MB/s"), BASE + i, i)
    trace = build.finish()
    path = tmp_path / "out.json"
    path.write_bytes(written(trace, facts={"counts": trace.counts()}))
    assert list(validate(path).findings) == []
    seen = decode(path)
    names = seen.rows.name
    arrows = zip(seen.flows.source.tolist(), seen.flows.target.tolist(), strict=True)
    assert {(names[a], names[b]) for a, b in arrows} == {("launch", "kernel"), ("op", "kernel")}
    spans = zip(names, seen.rows.ts.tolist(), seen.rows.dur.tolist(), strict=True)
    e = trace.events
    expected = zip(
        (trace.strings[i] for i in e.name.tolist()),
        (e.start_ns - BASE).tolist(),
        e.dur_ns.tolist(),
        strict=True,
    )
    assert sorted(spans) == sorted(expected)


def test_blocks_are_bounded_and_complete() -> None:
    """Many rows come in several blocks, each row once."""
    n = 2 * BLOCK_ROWS + 5
    build = builder()
    build.seen("slice", n)
    build.extend(
        track=build.track(Layer.DEVICE, "Stream 3"),
        start_ns=BASE + np.arange(n),
        name=build.string("x"),
    )
    trace = build.finish()
    writer = ChromeJsonWriter()
    writer.begin(Document(BASE, (0,)))
    assert len(list(writer.trace(trace))) == 1 + 3
    assert [round(e["ts"] * 1000) for e in phase(events(trace), "X")] == list(range(n))


def test_rows_before_the_base_are_negative() -> None:
    """A base someone chose later than the first event does not break the file."""
    (found,) = phase(events(one_slice(), base_ns=BASE + 2000), "X")
    assert found["ts"] == -0.5


ROW = st.tuples(
    st.sampled_from([Kind.SLICE, Kind.INSTANT]),
    st.integers(0, 3),
    st.integers(0, 10**7),
    st.integers(0, 10**5),
    st.sampled_from(["MatMul", "é\n", ""]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([-1, 0, 12345]),
    st.sampled_from([None, {"a": 1}, {"n": math.nan, "b": 2**64}, {"😀": "x" * 50}]),
)


def random_trace(rows: list[Any], arrows: list[Any], samples: list[Any]) -> Trace:
    build = builder(1)
    numbers = []
    for kind, lane, start, dur, name, op, step, args in rows:
        track = build.track(Layer.DEVICE, f"Stream {lane}")
        put = build.slice if kind is Kind.SLICE else build.instant
        span = (BASE + start, dur) if kind is Kind.SLICE else (BASE + start,)
        numbers.append(put(track, *span, name, op=op, step=step, args=args))
    for src, dst in arrows if rows else []:
        build.flow(numbers[src % len(rows)], numbers[dst % len(rows)], "HostToDevice")
    for start, value in samples:
        build.counter(build.track(Layer.COUNTER, "c", unit="KB"), BASE + start, value)
    return build.finish()


TRACES = st.builds(
    random_trace,
    st.lists(ROW, max_size=12),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=4),
    st.lists(st.tuples(st.integers(0, 10**6), st.floats()), max_size=4),
)


@settings(deadline=None)
@given(TRACES, st.sampled_from([None, frozenset(), frozenset({"a", "n"})]))
def test_costs_are_never_exceeded(trace: Trace, wanted: frozenset[str] | None) -> None:
    """The size limit relies on it; without arrows and filters they are exact."""
    document = Document(BASE, (1,), args=wanted)
    costs = ChromeJsonWriter().costs(trace, document)
    bound = costs.fixed + sum(int(c.sum()) for c in (costs.events, costs.counters, costs.flows))
    size = len(written(trace, args=wanted))
    lengths = (len(costs.events), len(costs.counters), len(costs.flows))
    assert lengths == (len(trace.events), len(trace.counters), len(trace.flows))
    assert size <= bound
    used = {*trace.events.track.tolist(), *trace.counters.track.tolist()}
    if used and not len(trace.flows) and not wanted:
        assert size == bound - 1  # the comma before the first record


@settings(deadline=None)
@given(TRACES)
def test_every_row_is_written_once(trace: Trace) -> None:
    """Whatever the rows, the file is strict JSON and holds all of them."""
    found = events(trace)
    counts = {p: len(phase(found, p)) for p in "XiCsf"}
    rows = trace.counts()
    assert counts == {
        "X": rows["slice"],
        "i": rows["instant"],
        "C": rows["counter"],
        "s": rows["flow"],
        "f": rows["flow"],
    }


def test_times_that_viewers_round_are_booked():
    """Beyond 50 days a double has no room for three decimals; whole microseconds still fit."""
    build, year = builder(), 365 * 86_400 * 10**9
    track = build.track(Layer.HOST, "Thread 1", thread=1)
    for start in (BASE, BASE + year + 1, BASE + year + 1 - (BASE + year + 1 - BASE) % 1000):
        build.slice(track, start, 5, "s")
    writer = ChromeJsonWriter()
    written(build.finish(), writer=writer)
    assert writer.issues.count("viewer-rounds") == 1
