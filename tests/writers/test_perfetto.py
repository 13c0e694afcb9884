"""The Perfetto writer: what goes in comes back out, as a viewer's importer sees it."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from perfetto_decoded import BASE, BEGIN, COUNTER, END, INSTANT, builder, processes, stream, written

from traceconv.core.errors import ClockError
from traceconv.core.model import Kind, Layer, OpClass
from traceconv.find.registry import writer_for
from traceconv.writers import Document
from traceconv.writers.perfetto import PerfettoWriter, wire
from traceconv.writers.perfetto import arguments as _perfetto_args
from traceconv.writers.perfetto import encoder as _perfetto_encoder


@pytest.fixture(autouse=True, params=["1", "0"], ids=["native", "python"])
def tier(request, monkeypatch):
    """Everything holds with the C part and without it."""
    monkeypatch.setenv("TRACECONV_NATIVE", request.param)


def with_args(*values):
    """One slice per value, with that as its arguments (bytes as they are)."""
    build = builder()
    track = stream(build)
    for i, value in enumerate(values):
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        build.slice(track, BASE + i * 10, 5, "k")
        args = build.args(raw)
        build._events[-1].args[:] = args
    return build.finish()


def test_slices_come_back_exactly():
    """Name, start and duration of every slice survive, whatever their nesting."""
    build = builder()
    track = stream(build)
    expected = [
        ("outer", 0, 100),
        ("inner", 10, 50),
        ("leaf", 10, 1),
        ("next", 60, 40),
        ("z", 100, 0),
    ]
    for name, start, dur in expected:
        build.slice(track, BASE + start, dur, name)
    out, _ = written(build.finish())
    assert expected == [(m.name, m.start, m.dur) for m in out.marks]
    assert [m.depth for m in out.marks] == [0, 1, 2, 1, 0]


def test_ties_are_written_in_the_one_order_that_nests():
    """At one time: ends of what began before, then begins, the longest first, points at once."""
    build = builder()
    track = stream(build)
    for start, dur, name in (
        (0, 10, "before"),
        (10, 0, "point"),
        (10, 5, "short"),
        (10, 9, "long"),
    ):
        build.slice(track, BASE + start, dur, name)
    build.instant(track, BASE + 10, "mark")
    out, _ = written(build.finish())
    events = [(p.timestamp, p.track_event.type) for p in out.packets if p.HasField("track_event")]
    at_ten = [kind for time, kind in events if time == 10]
    assert at_ten == [END, BEGIN, BEGIN, BEGIN, END, INSTANT]
    assert [m.name for m in out.marks] == ["before", "long", "short", "point", "mark"]
    assert [m.depth for m in out.marks] == [0, 0, 1, 2, 2]


def test_points_of_one_time_do_not_nest():
    """Several slices without duration at one time end one after the other."""
    build = builder()
    for i in range(3):
        build.slice(stream(build), BASE, 0, f"z{i}")
    out, _ = written(build.finish())
    assert [(m.name, m.dur, m.depth) for m in out.marks] == [
        ("z0", 0, 0),
        ("z1", 0, 0),
        ("z2", 0, 0),
    ]


@pytest.mark.parametrize("block", [1, 2, 7])
def test_blocks_leave_no_seam(block, monkeypatch):
    """Slices that stay open over the border of a block end where they should."""
    build = builder()
    for lane in range(3):
        track = stream(build, f"Stream {lane}")
        for i in range(9):
            build.slice(track, BASE + i, 2 * (20 - i), f"{lane}.{i}")
        build.slice(track, BASE + 40, 0, f"{lane}.z")
        build.slice(track, BASE + 40, 3, f"{lane}.last")
    trace = build.finish()
    whole, _ = written(trace)
    monkeypatch.setattr(_perfetto_encoder, "BLOCK", block)
    cut, _ = written(trace)
    assert whole.marks == cut.marks


def test_time_counts_from_the_base():
    """Stamps are relative, and the base stands in the attributes, exactly."""
    build = builder()
    build.slice(stream(build), BASE + 7, 1, "k")
    out, _ = written(build.finish(), facts={"base_ns": str(BASE)})
    assert (out.marks[0].start, out.attributes["traceconv.base_ns"]) == (7, BASE)


def test_facts_become_attributes():
    """Scalars stay as they are, everything else is JSON text."""
    facts = {"version": "1.2", "ranks": [0, 1], "huge": 2**63, "ok": True, "count": -5}
    out, _ = written(facts=facts)
    found = {k.removeprefix("traceconv."): v for k, v in out.attributes.items()}
    expected = {"version": "1.2", "ranks": "[0, 1]", "huge": str(2**63), "ok": "true", "count": -5}
    assert {**expected, "base_ns": BASE} == found


def test_a_stamp_before_the_base_is_refused():
    """Negative times, which viewers drop, are never written."""
    build = builder()
    build.slice(stream(build), BASE - 1, 5, "k")
    with pytest.raises(ClockError, match="rank 0: times from"):
        written(build.finish())


def test_class_becomes_category():
    """What an event does is its category; where nothing is known there is none."""
    build = builder()
    build.slice(stream(build), BASE, 1, "a", op=OpClass.COMM_TASK)
    build.slice(stream(build), BASE + 1, 1, "b")
    out, _ = written(build.finish())
    assert [m.category for m in out.marks] == ["comm_task", ""]


def test_counters_come_back_exactly():
    """Whole numbers and fractions, large, small and negative, keep their value."""
    values = [0.0, 1.0, 2.5, -3.0, 1e300, 2.0**53 - 1, 2.0**53, 2.0**60, 5e-324, -0.0]
    build = builder()
    track = build.track(Layer.COUNTER, "HBM", unit="")
    for i, value in enumerate(values):
        build.counter(track, BASE + i, value)
    out, _ = written(build.finish())
    assert [(i, v, math.copysign(1, v)) for i, v in enumerate(values)] == [
        (time, value, math.copysign(1, value)) for _, time, value in out.samples
    ]


def test_samples_that_are_no_number_are_booked():
    """NaN and infinity cannot be drawn; they are left out and counted."""
    build = builder()
    track = build.track(Layer.COUNTER, "HBM", unit="")
    for i, value in enumerate([1.0, math.nan, math.inf]):
        build.counter(track, BASE + i, value)
    out, writer = written(build.finish())
    assert (len(out.samples), writer.issues.count("counter-not-numeric")) == (1, 2)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("", (0, 0, "")),
        ("B", (3, 0, "")),
        ("KB", (3, 1024, "")),
        ("MiB", (3, 1024**2, "")),
        ("ns", (1, 0, "")),
        ("%", (0, 0, "%")),
        ("MB/s", (0, 0, "MB/s")),
    ],
)
def test_units_the_viewer_scales(unit, expected):
    """Sizes are given in bytes with a factor, other units by name."""
    build = builder()
    build.counter(build.track(Layer.COUNTER, "c", unit=unit), BASE, 1)
    out, _ = written(build.finish())
    counter = out.tracks[out.samples[0][0]].counter
    assert expected == (counter.unit, counter.unit_multiplier, counter.unit_name)


def flow_trace(rank=0, late=10):
    build = builder(rank)
    host = build.slice(build.track(Layer.HOST, "Thread 1", thread=1), BASE, 5, "launch")
    first = build.slice(stream(build), BASE + late, 5, "kernel")
    second = build.slice(stream(build), BASE + 30, 5, "other")
    build.flow(host, first, "HostToDevice")
    build.flow(host, second, "HostToDevice")
    return build.finish()


def test_arrows_have_an_id_each():
    """One event that launches two is the source of two arrows, not of a chain."""
    out, _ = written(flow_trace())
    launch, kernel, other = (out.named(n) for n in ("launch", "kernel", "other"))
    assert (launch.opens, launch.closes) == (kernel.closes + other.closes, [])
    assert (len(set(launch.opens)), kernel.opens + other.opens) == (2, [])


def test_arrows_of_ranks_never_meet():
    """Ids of arrows hold the rank."""
    out, _ = written(flow_trace(0), flow_trace(3))
    ids = [i for m in out.marks for i in m.opens]
    assert sorted(i >> 40 for i in ids) == [0, 0, 3, 3]
    assert len(ids) == len(set(ids))


def test_arrow_to_an_earlier_event_is_kept():
    """The importer forgets an end that comes before its opening; so the earlier event opens."""
    trace = flow_trace(late=10)
    moved = trace.flows.with_columns(src=trace.flows.dst, dst=trace.flows.src)
    out, _ = written(replace(trace, flows=moved))
    assert (len(out.named("launch").opens), len(out.named("kernel").closes)) == (2, 1)


def test_arrow_between_events_of_one_time_opens_first_in_the_file():
    """At equal times the order in the file decides."""
    out, _ = written(flow_trace(late=0))
    order = [m.name for m in out.marks if m.start == 0]
    assert (order, len(out.named("launch").opens)) == (["launch", "kernel"], 2)


def test_arguments_keep_their_types():
    """Every kind of JSON value has its counterpart."""
    value = {
        "int": -7,
        "large": 2**63 - 1,
        "least": -(2**63),
        "real": 0.1,
        "exact": 828.33653125,
        "slow": 2.2250738585072014e-308,
        "text": 'a "quoted"\n\\ path \u00e9 \U0001f600',
        "yes": True,
        "no": False,
        "list": [1, [2.5, "x"], {"k": None}],
        "dict": {"a": {"b": [True]}},
        "empty": "",
    }
    out, _ = written(with_args(value))
    value["list"][2]["k"] = "null"
    assert value == out.marks[0].args


def test_values_without_counterpart_become_text():
    """Numbers no field holds keep their digits, and are booked; nothing is left out."""
    raw = b'{"i": 9223372036854775808, "r": 1e308, "n": NaN, "m": -Infinity, '
    raw += b'"z": null, "e": {}, "l": []}'
    out, writer = written(with_args(raw))
    expected = {"i": "9223372036854775808", "r": "1e308", "n": "NaN", "m": "-Infinity"}
    assert expected | {"z": "null", "e": "{}", "l": "[]"} == out.marks[0].args
    assert writer.issues.count("value-clipped") == 2


def test_arguments_that_are_no_json_stay_as_text():
    """Broken, cut off or too deep: the bytes are kept under ``args`` and counted."""
    deep = b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}"
    broken = [b'{"a": 1', b"{'a': 1}", b'{"a": 01}', b'{"a": "\\x"}', deep]
    out, writer = written(with_args(*broken))
    assert [{"args": raw.decode()} for raw in broken] == [m.args for m in out.marks]
    assert len(broken) == writer.issues.count("args-not-json")


def test_json_that_is_no_object_is_typed():
    """A list or a number in the place of an object is the argument ``args``."""
    out, writer = written(with_args(b"[1, 2]", b" 7", b'"x"'))
    assert [m.args for m in out.marks] == [{"args": [1, 2]}, {"args": 7}, {"args": "x"}]
    assert writer.issues.count("args-not-json") == 0


def test_text_that_is_no_utf8_is_replaced_and_booked():
    """Stray bytes and half surrogates become U+FFFD, the rest of the row stays typed."""
    out, writer = written(
        with_args(b'{"a": "x\xff", "n": 1}', b'{"a": "\\ud800"}', b'{"a": "\\u00e9"}')
    )
    expected = [{"a": "x\ufffd", "n": 1}, {"a": "\ufffd"}, {"a": "\u00e9"}]
    assert expected == [m.args for m in out.marks]
    assert writer.issues.count("bad-encoding") == 2


def test_only_wanted_arguments_travel():
    """A list of keys keeps these, at the top level only; the rows concerned are counted."""
    value = {"a": 1, "b": {"c": 2, "a": 3}, "c": 4}
    out, writer = written(with_args(value, {"a": 5}, value), args=frozenset({"a", "b"}))
    kept = {"a": 1, "b": {"c": 2, "a": 3}}
    assert [kept, {"a": 5}, kept] == [m.args for m in out.marks]
    assert writer.issues.count("args-dropped") == 2


def test_no_argument_travels_where_none_is_wanted():
    """The empty list of keys leaves all out."""
    out, writer = written(with_args({"a": 1}), args=frozenset())
    assert (out.marks[0].args, writer.issues.count("args-dropped")) == ({}, 1)


def test_full_tables_write_strings_in_place(monkeypatch):
    """What finds no room in a table, or is too long for it, is written where it stands."""
    monkeypatch.setattr(_perfetto_args, "MAX_STRINGS", 2)
    monkeypatch.setattr(_perfetto_args, "MAX_NAMES", 1)
    values = [{f"k{i}": f"v{i % 4}", "long": "x" * 300} for i in range(8)]
    out, _ = written(with_args(*values))
    assert values == [m.args for m in out.marks]


def test_step_rows_say_which_step_and_graph_they_are():
    """Columns of step rows become arguments where the source has none of that name."""
    build = builder()
    track = build.track(Layer.STEP, "Step")
    build.slice(track, BASE, 9, "a", step=3, graph=1)
    build.slice(track, BASE + 10, 9, "b", step=4, args={"step": "four", "x": 1})
    build.slice(stream(build), BASE, 9, "c", step=3, args={"x": 2})
    out, _ = written(build.finish())
    assert out.named("a").args == {"step": 3, "graph": 1}
    assert out.named("b").args == {"step": "four", "x": 1}
    assert out.named("c").args == {"x": 2}


@pytest.mark.parametrize(
    ("wanted", "expected"), [({"step"}, {"step": 3}), ({"x"}, {}), (set(), {})]
)
def test_step_and_graph_travel_only_where_wanted(wanted, expected):
    """They follow the list of keys like all arguments, and are no loss when left out."""
    build = builder()
    build.slice(build.track(Layer.STEP, "Step"), BASE, 9, "a", step=3, graph=1)
    out, writer = written(build.finish(), args=frozenset(wanted))
    assert (out.marks[0].args, len(writer.issues)) == (expected, 0)


def test_ranks_encoded_apart_make_the_same_file():
    """A rank's bytes depend on the rank alone."""
    traces = [flow_trace(0), flow_trace(1)]
    document = Document(BASE, (0, 1))
    together = PerfettoWriter()
    whole = [together.begin(document)]
    apart = [PerfettoWriter().begin(document)]
    for trace in traces:
        whole.extend(together.trace(trace))
        alone = PerfettoWriter()
        alone.begin(document)
        apart.extend(alone.trace(trace))
    assert b"".join(whole) == b"".join(apart)


def test_names_keep_their_strings_over_many_packets(monkeypatch):
    """A table larger than one packet is continued in the next."""
    monkeypatch.setattr(_perfetto_encoder, "NAMES_PER_PACKET", 3)
    build = builder()
    for i in range(20):
        build.slice(stream(build), BASE + i, 1, f"name {i}")
    out, _ = written(build.finish())
    assert [f"name {i}" for i in range(20)] == [m.name for m in out.marks]


def test_frequent_names_have_small_numbers():
    """Numbers below 128 take one byte; they go to the names used most."""
    build = builder()
    for i in range(300):
        build.slice(stream(build), BASE + i, 1, "often" if i % 2 else f"once {i}")
    out, _ = written(build.finish())
    iids = {p.track_event.name_iid for p in out.packets if p.timestamp % 2}
    assert {1} == iids - {0}


def test_empty_trace_is_a_valid_file():
    """A rank without events leaves its process and nothing else."""
    out, _ = written(builder(5).finish())
    assert (list(processes(out)), out.marks) == (["Rank 5"], [])


@pytest.mark.parametrize("name", ["a.pftrace", "a.perfetto-trace.gz"])
def test_writer_is_found_by_suffix(name):
    """Both endings, plain and compressed, mean Perfetto."""
    assert PerfettoWriter is writer_for(name)


def test_sample_packets_stand_on_counter_tracks_only():
    """Counters and slices never share a track."""
    build = builder()
    build.counter(build.track(Layer.COUNTER, "HBM", unit="%"), BASE, 1)
    build.slice(stream(build), BASE, 1, "k")
    out, _ = written(build.finish())
    events = [p.track_event for p in out.packets if p.HasField("track_event")]
    on_counters = {out.tracks[e.track_uuid].HasField("counter"): e.type for e in events}
    assert on_counters[True] == COUNTER and on_counters[False] in (BEGIN, END)


def test_kinds_of_the_model_are_those_the_encoder_knows():
    """The encoder tells slices from everything else by 0."""
    assert (int(Kind.SLICE), bool(np.all(np.array([*Kind])[1:] > 0))) == (0, True)


@pytest.mark.parametrize("tier", ["1", "0"])
def test_names_are_entries_of_one_table(tier, monkeypatch):
    """Numbers and lengths of one byte and of more; halves of surrogate pairs are replaced."""
    monkeypatch.setenv("TRACECONV_NATIVE", tier)
    values = ["n" * (i * 37 % 400) for i in range(70)]
    values += ["\u00e9\ud800x\udfff", "\U0001f600", "\ud7ff\ue000\udbff"]
    shown = [value.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd") for value in values]
    shown[-1] = "\ud7ff\ue000\ufffd"
    for first in (1, 100, 16_350, 2**21 - 30):
        expected = [wire.interned(2, first + i, one.encode()) for i, one in enumerate(shown)]
        assert wire.names(values, first) == b"".join(expected)
