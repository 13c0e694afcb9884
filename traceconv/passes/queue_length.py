"""How many tasks wait on each stream of a device: launched, and not yet started."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceconv.core.model import I64, CounterTable, Kind, Layer, Trace, Track, arranged

_NAME = "Queue length"


def queues(trace: Trace) -> Iterator[tuple[Track, I64, I64, int]]:
    """Each stream with recorded launches: a track of it, the instants at which its queue changes,
    how many tasks wait from each on, and how many were launched.

    A task waits from the start of the runtime call that launches it (as Holistic Trace Analysis
    counts it), or from its own start if clocks put that before, to its own start.
    """
    events, flows = trace.events, trace.flows
    work = trace.rows_of(Layer.DEVICE, Layer.COMM) & (events.kind == Kind.SLICE)
    flows = flows.take(trace.rows_of(Layer.RUNTIME)[flows.src] & work[flows.dst])
    task, first = np.unique(flows.dst, return_index=True)
    start = events.start_ns[task]
    launched = np.minimum(events.start_ns[flows.src[first]], start)
    streams: dict[object, int] = {}  # the first track of each
    keys = [
        (track.device_kind, track.device, track.stream) if track.stream >= 0 else track
        for track in trace.tracks
    ]
    for number, key in enumerate(keys):
        streams.setdefault(key, number)
    of_track = np.array([streams[key] for key in keys], np.int64)
    stream = of_track[events.track[task]]
    for number in np.unique(stream).tolist():
        own = stream == number
        time = np.concatenate((launched[own], start[own]))  # of equal times, launches come first
        order = np.argsort(time, kind="stable")
        time, n = time[order], int(own.sum())
        length = np.cumsum(np.where(order < n, 1, -1))
        last = np.append(time[1:] > time[:-1], True)
        yield trace.tracks[number], time[last], length[last], n


def queue_length(trace: Trace) -> Trace:
    """The trace with a counter of the tasks that wait on each stream; booked under "queues".

    A trace that has such counters (a file written by traceconv) is returned as it is.
    """
    if any(track.is_counter and track.name.startswith(_NAME) for track in trace.tracks):
        return trace
    tracks, tables = list(trace.tracks), [trace.counters]
    for stream, time, length, _ in queues(trace):
        track = np.full(len(time), len(tracks), np.int32)
        tables.append(CounterTable(track=track, start_ns=time, value=length.astype(np.float64)))
        tracks.append(
            Track(
                Layer.COUNTER, f"{_NAME}, {stream.name}", stream.group, "Counters", unit="",
                device=stream.device, device_kind=stream.device_kind, stream=stream.stream,
            )
        )  # fmt: skip
    if len(tables) == 1:
        return trace
    counters = CounterTable.concat(tables)
    return arranged(trace.evolve("queues", tracks=tuple(tracks), counters=counters))
