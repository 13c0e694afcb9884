"""Project host ranges onto the device: module scopes with device time.

A range (NVTX, ``record_function``, ``nn.Module`` or Layer calls) shows when the host prepared work,
not when the device ran it. The pass follows the launch flows: work that is launched within a range,
on its thread, is the device work of the range. The *projected* range lasts from the start of the
first such task to the end of the last. Nested ranges give nested projections.

Which host slices are ranges: all on lanes of :attr:`TrackKind.RANGES`; those whose names are in
``range_names`` or ``phase_names`` of the trace's hints; and calls of modules by name
("nn.Module: Linear_0").
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.intervals import union
from traceconv.core.model import I64, EventTable, Kind, Layer, OpClass, Trace, Track, TrackKind
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.passes.places import Device, threads

TITLE = "{} (device projection)"
"""Heading of the lanes; a lane is named as the thread of its ranges is."""


def is_projection(track: Track) -> bool:
    """Whether a lane holds ranges projected onto the device, not ranges themselves."""
    return track.kind is TrackKind.PROJECTION


MAX_DEPTH = 500
"""Ranges nested deeper are not projected (viewers stop drawing there)."""

_MODULE = lazy_regex(r"nn\.Module: .+", re.DOTALL)

Lane = tuple[int, Device]
"""A thread, by its number, and a device."""


class Launched(msgspec.Struct, frozen=True):
    """Device rows of one device launched from one thread, in the order of their launches.

    Attributes:
        start_ns, end_ns: of the launching call.
        row: of what it launched.
    """

    start_ns: I64
    end_ns: I64
    row: I64


def projection(trace: Trace) -> Trace:
    """Add a lane of projected ranges per thread and device, in ``Layer.SCOPE``.

    Arguments of a projection: ``tasks`` (device rows launched), ``busy (ns)`` (length of the union
    of their times) and ``host (ns)`` (length of the range). Ranges that launch nothing have none.
    A trace that has such lanes (a file written by traceconv) is returned as it is.
    """
    if any(map(is_projection, trace.tracks)):
        return trace
    ranges, thread = ranges_of(trace, trace.hints.ranges_projected), threads(trace)
    launches = _launches(trace, thread) if len(ranges) else {}
    grouped = {Device.of(t) for t in trace.tracks if t.layer is Layer.DEVICE and t.group}
    tracks: list[Track] = []
    projected: list[EventTable] = []
    values: list[bytes] = []
    for (of_thread, device), launched in launches.items():
        for host, numbers in _by_heading(trace, thread == of_thread).items():
            rows = ranges[np.isin(trace.events.track[ranges], numbers)]
            table, arguments = _projected(trace, rows, launched)
            if len(table):
                number = np.full(len(table), len(tracks), np.int32)
                ids = np.arange(len(values), len(values) + len(arguments), dtype=np.int32)
                tracks.append(_track(host, device, device in grouped))
                projected.append(table.with_columns(track=number, args=ids))
                values += arguments
    if not tracks:
        return trace
    args, first_id = trace.args.extended(values)
    table = EventTable.concat(projected)
    table = table.with_columns(args=table.args + np.int32(first_id))
    return trace.add_events("projection", tracks, table, args)


def ranges_of(trace: Trace, but_named: bool = False) -> NDArray[np.intp]:
    """Rows of the host slices that are ranges.

    Args:
        but_named: without those that ``range_names`` of the hints names.
    """
    hints, events = trace.hints, trace.events
    names = {*(() if but_named else hints.range_names), *hints.phase_names}
    ranges = NameTest(lambda name: name in names or _MODULE.fullmatch(name))
    lanes = [t.layer is Layer.HOST and t.kind is TrackKind.RANGES for t in trace.tracks]
    on_lane = np.array(lanes, bool)[events.track]
    rows = on_lane | (rows_named(trace, ranges) & trace.rows_of(Layer.HOST))
    return np.flatnonzero(rows & (events.kind == Kind.SLICE))


def _launches(trace: Trace, thread: I64) -> dict[Lane, Launched]:
    """The work that each thread launched onto each device.

    Of several flows to one device row, one from a framework operator counts before one from a
    call: operators hand their calls to other threads.
    """
    events = trace.events
    work = trace.rows_of(Layer.DEVICE, Layer.COMM) & (events.op != OpClass.WAIT)
    host, calls = trace.rows_of(Layer.HOST), trace.rows_of(Layer.RUNTIME)
    flows = trace.flows.take(work[trace.flows.dst] & (host | calls)[trace.flows.src])
    # by device row, flows from operators first: the first of each row is the one that counts
    order = np.lexsort((calls[flows.src], flows.dst))
    src, dst = flows.src[order].astype(np.int64), flows.dst[order].astype(np.int64)
    is_first = np.append(True, dst[1:] != dst[:-1])[: len(dst)]
    src, dst = src[is_first], dst[is_first]
    pairs = events.track[src].astype(np.int64) * len(trace.tracks) + events.track[dst]
    lanes: dict[Lane, list[I64]] = {}
    for pair in np.unique(pairs).tolist():
        source, target = divmod(pair, len(trace.tracks))
        launched = np.flatnonzero(pairs == pair)
        lane = int(thread[source]), Device.of(trace.tracks[target])
        lanes.setdefault(lane, []).append(launched)
    by_lane = {}
    for lane, rows_by_track in lanes.items():
        launched = np.concatenate(rows_by_track)
        launched = launched[np.argsort(events.start_ns[src[launched]], kind="stable")]
        by_lane[lane] = Launched(
            events.start_ns[src[launched]], events.ends(src[launched]), dst[launched]
        )
    return by_lane


def _by_heading(trace: Trace, selected: NDArray[np.bool_]) -> dict[Track, list[int]]:
    """The host lanes among some tracks, by the first one that has their heading."""
    lanes: dict[str, tuple[Track, list[int]]] = {}
    for number in np.flatnonzero(selected).tolist():
        track = trace.tracks[number]
        if track.layer is Layer.HOST:
            lanes.setdefault(track.heading, (track, []))[1].append(number)
    return dict(lanes.values())


def _track(host: Track, device: Device, grouped: bool) -> Track:
    """The lane of the ranges of a host lane on one device, under its heading if it has one."""
    return Track(
        Layer.SCOPE,
        host.name.removesuffix(f" ({host.thread_name})"),
        " ".join(filter(None, (host.group, device.heading if grouped else ""))),
        TITLE.format(host.heading),
        kind=TrackKind.PROJECTION,
        device=device.number,
        device_kind=device.kind,
        process=host.process,
        thread=host.thread,
    )


def _projected(
    trace: Trace, rows: NDArray[np.intp], launched: Launched
) -> tuple[EventTable, list[bytes]]:
    """Projections of some ranges, outer before inner ones, and their arguments."""
    ranges = trace.events.take(rows)
    order = np.lexsort((-ranges.dur_ns, ranges.start_ns))
    done = work_within(trace, ranges, order, launched)
    launching = order[done.tasks[order] > 0]
    table = ranges.take(launching).with_columns(
        op=np.full(len(launching), OpClass.OTHER, np.int8),
        start_ns=done.start_ns[launching],
        dur_ns=done.end_ns[launching] - done.start_ns[launching],
        step=trace.events.step[done.first[launching]],
    )
    columns = (done.tasks[launching], done.busy_ns[launching], ranges.dur_ns[launching])
    values = zip(*(column.tolist() for column in columns), strict=True)
    return table, [b'{"tasks":%d,"busy (ns)":%d,"host (ns)":%d}' % row for row in values]


class Work(msgspec.Struct, frozen=True):
    """The device work of ranges, a value per range; 0 where nothing was launched.

    Attributes:
        tasks: device rows launched within.
        first: row of the first of them to be launched.
        busy_ns: length of the union of their times.
        start_ns, end_ns: from the first start to the last end.
    """

    tasks: I64
    first: I64
    busy_ns: I64
    start_ns: I64
    end_ns: I64


def work_of_threads(trace: Trace, rows: NDArray[np.intp]) -> Work | None:
    """The work of ranges of all threads, on all devices together; None where no launch of the
    rank leads to a device."""
    thread = threads(trace)
    together: dict[int, list[Launched]] = {}
    for (of_thread, _), launched in _launches(trace, thread).items():
        together.setdefault(of_thread, []).append(launched)
    if not together:
        return None
    ranges, thread_of = trace.events.take(rows), thread[trace.events.track[rows]]
    work = Work(*(np.zeros(len(rows), np.int64) for _ in Work.__struct_fields__))
    for of_thread, launches in together.items():
        of_ranges = np.flatnonzero(thread_of == of_thread)
        facts = ((launch.start_ns, launch.end_ns, launch.row) for launch in launches)
        columns = [np.concatenate(column) for column in zip(*facts, strict=True)]
        by_time = np.argsort(columns[0], kind="stable")
        order = of_ranges[np.lexsort((-ranges.dur_ns[of_ranges], ranges.start_ns[of_ranges]))]
        done = work_within(
            trace, ranges, order, Launched(*(column_values[by_time] for column_values in columns))
        )
        for name in Work.__struct_fields__:
            getattr(work, name)[of_ranges] = getattr(done, name)[of_ranges]
    return work


def work_within(
    trace: Trace, ranges: EventTable, order: NDArray[np.intp], launched: Launched
) -> Work:
    """The work that ranges of one thread launched.

    Args:
        order: the ranges by start, outer before inner ones.
    """
    done = Work(*(np.zeros(len(ranges), np.int64) for _ in Work.__struct_fields__))
    for level in _levels(ranges, order):
        range_of, task = _contained(ranges, level, launched)
        if not len(range_of):
            continue
        # pairs of one range are consecutive: reduce them to one figure
        first_pairs = np.flatnonzero(np.diff(range_of, prepend=-1))
        range_ids = range_of[first_pairs]
        begun, ended = trace.events.start_ns[task], trace.events.ends(task)
        done.tasks[range_ids] = np.diff(first_pairs, append=len(range_of))
        done.first[range_ids] = task[first_pairs]
        done.start_ns[range_ids] = np.minimum.reduceat(begun, first_pairs)
        done.end_ns[range_ids] = np.maximum.reduceat(ended, first_pairs)
        group = np.repeat(np.arange(len(range_ids)), done.tasks[range_ids])
        done.busy_ns[range_ids] = _union_lengths(begun, ended, group, len(range_ids))
    return done


def _levels(ranges: EventTable, order: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """The ranges peeled off from the outside: those of a level are disjoint and ascend."""
    start, end = ranges.start_ns, ranges.end_ns
    for _ in range(MAX_DEPTH):
        if not len(order):
            return
        reach = np.maximum.accumulate(end[order])
        top = np.append(True, start[order][1:] >= reach[:-1])
        yield order[top]
        order = order[~top]


def _contained(
    ranges: EventTable, level: NDArray[np.intp], launched: Launched
) -> tuple[NDArray[np.intp], I64]:
    """Pairs of a range and a device row whose launch is within it, in the order of ``level``."""
    low = np.searchsorted(launched.start_ns, ranges.start_ns[level], "left")
    high = np.searchsorted(launched.start_ns, ranges.end_ns[level], "right")
    # low[i] .. high[i] of every range, written out one after the other
    size = np.maximum(high - low, 0)
    range_of = np.repeat(level, size)
    positions = np.repeat(low - np.cumsum(size) + size, size) + np.arange(int(size.sum()))
    inside = launched.end_ns[positions] <= ranges.end_ns[range_of]
    return range_of[inside], launched.row[positions[inside]]


def _union_lengths(start: I64, end: I64, group: NDArray[np.intp], groups: int) -> I64:
    """Length of the union of the intervals of each group; groups ascend.

    The groups are placed one after the other in time, as many at once as fit into int64.
    """
    low = int(start.min())
    length = int(end.max()) - low + 1
    per_round = max(2**62 // length, 1)
    lengths = np.zeros(groups, np.int64)
    for begin in range(0, groups, per_round):
        a, b = np.searchsorted(group, [begin, begin + per_round]).tolist()
        shift = (group[a:b] - begin) * length - low
        merged = union(start[a:b] + shift, end[a:b] + shift)
        np.add.at(lengths, begin + merged[:, 0] // length, merged[:, 1] - merged[:, 0])
    return lengths
