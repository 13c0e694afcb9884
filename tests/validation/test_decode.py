"""Traces rebuilt as the importer builds them: names, times, paths, arguments, arrows."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from pathlib import Path

from trace_bytes import (
    GOOD,
    GOOD_JSON,
    HEAD,
    INCREMENTAL,
    LANE,
    RANK,
    SLICE,
    Fixed,
    annotated,
    archive,
    attribute,
    begin,
    clock,
    delta,
    end,
    event,
    flow,
    interned,
    manifest,
    msg,
    packet,
    snapshot,
    thread,
    track,
    written,
    x,
)

from traceconv.validation import decode, validate


def test_a_track_is_the_path_from_its_process_down(tmp_path: Path) -> None:
    """Plain tracks below a process are named with all that is above them."""
    deep = RANK + track(3, (2, "Hardware"), (5, 2)) + track(4, (2, "Stream 3"), (5, 3))
    trace = decode(written(tmp_path, deep + begin(5, "k", 4) + end(9, 4)))
    assert trace.slices.track == [("Rank 0", "Timeline", "Hardware", "Stream 3")]


def test_threads_are_named_or_numbered(tmp_path: Path) -> None:
    """A thread without a name has its number as title."""
    threads = RANK + thread(5, 100, 7, "python") + thread(6, 100, 8)
    events = begin(1, "a", 5) + end(2, 5) + begin(3, "b", 6) + end(4, 6)
    trace = decode(written(tmp_path, threads + events))
    assert trace.slices.track == [("Rank 0", "python"), ("Rank 0", "tid 8")]


def test_slices_and_instants_are_apart(tmp_path: Path) -> None:
    """Instants are rows of their own, numbered among all rows."""
    trace = decode(written(tmp_path, HEAD + event(1, 3, 1, (23, "i")) + SLICE))
    assert (
        trace.slices.name,
        trace.slices.ts.tolist(),
        trace.slices.dur.tolist(),
    ) == (["A"], [1000], [10])
    assert (trace.instants.name, trace.instants.index.tolist()) == (["i"], [0])


def test_arguments_of_both_formats_have_equal_keys(tmp_path: Path) -> None:
    """Nested arguments are flattened the same way; dots and brackets in names stay."""
    nested = msg((10, "d"), (11, msg((10, "k"), (4, 1))))
    array = msg((10, "l"), (12, msg((4, 7))), (12, msg((6, "s"))))
    dotted = msg((10, "a.b[0]"), (2, 1))
    perfetto = HEAD + begin(0, "A", 1, (4, nested), (4, array), (4, dotted)) + end(9)
    chrome = [x(args={"d": {"k": 1}, "l": [7, "s"], "a.b[0]": True})]
    want = {"d.k": 1, "l[0]": 7, "l[1]": "s", "a.b[0]": True}
    assert want == decode(written(tmp_path, perfetto)).slices.args(0)
    assert want == decode(written(tmp_path, chrome)).slices.args(0)


def test_the_importer_renames_dots_and_brackets(tmp_path: Path) -> None:
    """The importer's own keys of Perfetto arguments have underscores for them."""
    trace = decode(written(tmp_path, annotated((10, "a.b[0]"), (4, 1))))
    assert [a.key for a in trace.slices.arguments(0)] == ["debug.a_b_0_"]


def test_interned_names_start_over_when_state_is_cleared(tmp_path: Path) -> None:
    """The same id is another name after the sequence was cleared."""
    first = packet((10, 1), (13, 1), interned(2, 1, "first")) + LANE
    again = packet((10, 1), (13, 1), interned(2, 1, "second"))
    one = event(1, 1, 1, (10, 1)) + end(2)
    two = event(3, 1, 1, (10, 1)) + end(4)
    trace = decode(written(tmp_path, first + one + again + two))
    assert trace.slices.name == ["first", "second"]


def test_equal_packets_on_new_state_are_read_anew(tmp_path: Path) -> None:
    """Packets that are equal to the byte follow the state of their time."""
    named = [packet((10, 1), (13, 1), interned(2, 1, n)) for n in ("a", "b")]
    same = event(5, 3, 1, (10, 1))
    trace = decode(written(tmp_path, LANE + named[0] + same + same + named[1] + same))
    assert trace.instants.name == ["a", "a", "b"]


def test_an_incremental_clock_with_a_unit(tmp_path: Path) -> None:
    """Differences count from the snapshot, in its unit."""
    start = LANE + INCREMENTAL + snapshot(clock(6, 1000), clock(64, 0, (3, 1), (4, 1000)))
    trace = decode(written(tmp_path, start + delta(5, 1, (23, "a")) + delta(10, 2)))
    assert (trace.slices.ts.tolist(), trace.slices.dur.tolist()) == ([6000], [10000])


def test_clocks_are_chained_by_snapshots(tmp_path: Path) -> None:
    """A clock in no snapshot with the trace's own is converted by way of a third one."""
    snapshots = snapshot(clock(6, 1000), clock(3, 500)) + snapshot(clock(3, 600), clock(1, 9000))
    instant = packet((8, 9001), (10, 1), (58, 1), (11, msg((9, 3), (11, 1))))
    trace = decode(written(tmp_path, HEAD + snapshots + instant))
    assert trace.instants.ts.tolist() == [1101]


def test_default_tracks_and_sequences(tmp_path: Path) -> None:
    """An event without a track is on the default of its sequence, or on its thread."""
    default = packet((10, 1), (13, 1), (59, msg((11, msg((11, 1))))))
    own = packet((10, 2), (13, 1)) + packet(
        (10, 2), (60, msg((1, 9), (4, msg((1, 5), (2, 6), (5, "t")))))
    )
    bare = [packet((8, n), (10, n), (11, msg((9, 3), (23, "x")))) for n in (1, 2)]
    trace = decode(written(tmp_path, LANE + default + own + bare[0] + bare[1]))
    assert trace.instants.track == [("lane",), ("pid 5", "t")]


def test_flows_connect_rows(tmp_path: Path) -> None:
    """An arrow names the rows at both ends, the earlier one first."""
    flows = (47, Fixed(7))
    events = begin(50, "late", 1, flows) + end(60) + begin(10, "early", 1, flows) + end(20)
    trace = decode(written(tmp_path, HEAD + events))
    names = trace.rows.name
    assert [
        (names[a], names[b]) for a, b in zip(trace.flows.source, trace.flows.target, strict=True)
    ] == [("early", "late")]


def test_counters_with_paths(tmp_path: Path) -> None:
    """Samples are in time order, with the path of their counter."""
    counter = track(3, (2, "HBM"), (5, 1), (8, msg((6, "KB"))))
    samples = event(20, 4, 3, (30, 5)) + event(10, 4, 3, (44, 0.5))
    trace = decode(written(tmp_path, RANK + counter + samples))
    assert (trace.counters.ts.tolist(), trace.counters.value.tolist()) == ([10, 20], [0.5, 5.0])
    assert trace.counters.track == [("Rank 0", "HBM")] * 2
    assert trace.tracks[int(trace.counters.track_id[0])].unit == "KB"


def test_metadata_of_both_formats(tmp_path: Path) -> None:
    """Trace attributes and the metadata object are given as they are."""
    perfetto = GOOD + attribute("tool", "me")
    chrome = {"metadata": {"tool": "me", "n": 1}, "traceEvents": [x()]}
    assert decode(written(tmp_path, perfetto)).metadata == {"tool": "me"}
    assert decode(written(tmp_path, json.dumps(chrome).encode())).metadata == {"tool": "me", "n": 1}


def test_chrome_names_processes_and_threads(tmp_path: Path) -> None:
    """The last name in time counts; without one the number does."""
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "old"}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Rank 0"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "Stream"}},
    ]
    trace = decode(written(tmp_path, [*names, x(), x(tid=2)]))
    assert {("Rank 0", "Stream"), ("Rank 0", "tid 2")} == set(trace.slices.track)


def test_chrome_instants_by_scope(tmp_path: Path) -> None:
    """Instants are on their thread, their process, or on none."""
    marks = [
        {"ph": "i", "name": s, "s": s, "pid": 1, "tid": 2, "ts": n} for n, s in enumerate("tpg")
    ]
    trace = decode(written(tmp_path, marks))
    assert trace.instants.track == [("pid 1", "tid 2"), ("pid 1",), ("",)]


def test_chrome_async_slices_by_scope_of_their_id(tmp_path: Path) -> None:
    """A local id is a row of its process, a global one of none."""
    pairs = [
        {"ph": ph, "name": n, "cat": "c", "pid": 1, "ts": ts, **ids}
        for n, ids in (("l", {"id2": {"local": 5}}), ("g", {"id": "0x5"}))
        for ph, ts in (("b", 1), ("e", 4))
    ]
    trace = decode(written(tmp_path, pairs))
    assert dict(zip(trace.slices.name, trace.slices.track, strict=True)) == {
        "l": ("pid 1", "l"),
        "g": ("g",),
    }


def test_chrome_times_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    """Three decimals of microseconds below the double's limit survive."""
    text = b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":4398046511.103,"dur":0.001}]'
    slices = decode(written(tmp_path, text)).slices
    assert (slices.ts[0], slices.dur[0]) == (4398046511103, 1)


def test_an_archive_is_one_timeline(tmp_path: Path) -> None:
    """Members are sorted into each other; shifts, arguments and arrows stay right."""
    linked = [x(args={"n": 1}), flow("s", 2), x("B", ts=20), flow("f", 21, bp="e")]
    files = {
        "a.json": json.dumps(linked).encode(),
        "b.json": json.dumps([x("C", args={"n": 2})]).encode(),
        "m.json": manifest(
            {"path": "a.json"},
            {
                "path": "b.json",
                "machine": {"name": "rank1"},
                "clocks": {"sync_to": {"file": "a.json"}, "offset_ns": 500},
            },
        ),
    }
    trace = decode(written(tmp_path, archive(files), "t.zip"))
    rows = trace.rows
    assert list(zip(rows.name, rows.ts.tolist(), strict=True)) == [
        ("A", 1000),
        ("C", 1500),
        ("B", 20000),
    ]
    assert [rows.args(i) for i in range(3)] == [{"n": 1}, {"n": 2}, {}]
    assert (trace.flows.source.tolist(), trace.flows.target.tolist()) == ([0], [2])
    assert trace.tracks[int(rows.track_id[1])].machine == "rank1"


def test_a_tar_of_both_formats(tmp_path: Path) -> None:
    """A tar archive is recognised by its content; findings name the member."""
    path = tmp_path / "parts"
    with tarfile.open(path, "w") as tar:
        for name, data in (("a.pftrace", HEAD + end(1000)), ("b.json", GOOD_JSON)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    verdict = validate(path)
    assert (verdict.format, verdict.counts["slices"], verdict.counts["flows"]) == ("archive", 1, 1)
    assert [f.places for f in verdict.findings] == [("a.pftrace: track 0 at 1000",)]


def test_compressed_packets_keep_their_arguments(tmp_path: Path) -> None:
    """Arguments inside compressed packets are found again."""
    inner = annotated((10, "n"), (4, 5))
    twice = packet((50, zlib.compress(inner))) + packet((50, gzip.compress(GOOD)))
    trace = decode(written(tmp_path, twice))
    assert sorted((trace.slices.args(i) for i in range(2)), key=len) == [{}, {"n": 5}]
