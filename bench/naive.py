"""The peers: what an engineer would write in an afternoon, and the parsers alone.

    python -m bench.naive perfetto IN OUT          json.load + TraceProtoBuilder
    python -m bench.naive columns IN               Perfetto's generated classes, packet by packet
    python -m bench.naive orjson IN                orjson.loads and nothing else, collector off
    python -m bench.naive json-merge OUT IN...     json.load each, patch pid, json.dump
    python -m bench.naive orjson-merge OUT IN...   the same with orjson, collector off

``perfetto`` writes what ``traceconv convert`` writes: slices with typed arguments on tracks below
one process, arrows between slices, counters with their units; nanoseconds are exact.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

Event = dict[str, Any]
Key = tuple[Any, ...]


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    what, *paths = argv if argv is not None else sys.argv[1:]
    match what:
        case "perfetto":
            convert(*paths)
        case "columns":
            started = time.process_time()
            found = columns(*paths)
            seconds = time.process_time() - started
            print(json.dumps({"columns": seconds, "slices": len(found.start)}))
        case "orjson":
            gc.disable()
            print(len(orjson.loads(Path(paths[0]).read_bytes())))
        case "json-merge":
            merge_json(*paths)
        case "orjson-merge":
            gc.disable()
            merge_orjson(*paths)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def merge_json(out: str, *paths: str) -> None:
    """All events in one list, the processes of every file in a range of their own."""
    merged: list[Event] = []
    for rank, path in enumerate(paths):
        with Path(path).open() as file:
            for event in listed(json.load(file)):
                event["pid"] += rank << 40
                merged.append(event)
    with Path(out).open("w") as file:
        json.dump(merged, file)


def merge_orjson(out: str, *paths: str) -> None:
    """The same, faster."""
    merged: list[Event] = []
    for rank, path in enumerate(paths):
        events = listed(orjson.loads(Path(path).read_bytes()))
        for event in events:
            event["pid"] += rank << 40
        merged += events
    Path(out).write_bytes(orjson.dumps(merged))


def listed(loaded: Any) -> list[Event]:
    """The events of either form of file."""
    events: list[Event] = loaded["traceEvents"] if isinstance(loaded, dict) else loaded
    return events


def convert(path: str, out: str) -> None:
    """Trace-event JSON to Perfetto; seconds of the two halves go to standard error."""
    start = time.process_time()
    with Path(path).open() as file:
        events = listed(json.load(file))
    parsed = time.process_time()
    Path(out).write_bytes(build(events))
    seconds = {"parse": parsed - start, "build": time.process_time() - parsed}
    print(json.dumps(seconds), file=sys.stderr)


def build(events: list[Event]) -> bytes:
    """The bytes of a Perfetto trace of ``events``."""
    from perfetto.trace_builder.proto_builder import (  # type: ignore[import-untyped]
        TraceProtoBuilder,
    )

    trace = TraceProtoBuilder()
    processes: dict[Any, str] = {}
    threads: dict[Key, str] = {}
    lanes: dict[Key, list[Event]] = defaultdict(list)
    samples: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    base = min(ns(e["ts"]) for e in events if "ts" in e)
    for event in events:
        match event["ph"]:
            case "X":
                lanes[event["pid"], event["tid"]].append(event)
            case "C":
                at = ns(event["ts"]) - base
                for key, value in event["args"].items():
                    samples[event["pid"], event["name"], key].append((at, value))
            case "M" if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            case "M" if event["name"] == "thread_name":
                threads[event["pid"], event["tid"]] = event["args"]["name"]
    arrows = flow_ids(events)
    tracks = Tracks(trace, processes)
    for (pid, tid), slices in lanes.items():
        track = tracks.add(pid, threads.get((pid, tid), f"Thread {tid}"))
        add_slices(trace, track, slices, base, arrows)
    for (pid, name, unit), values in samples.items():
        add_counter(trace, tracks.add(pid, name, unit), values)
    found: bytes = trace.serialize()
    return found


def ns(text: str) -> int:
    """Exact nanoseconds of a stamp in microseconds."""
    whole, _, rest = text.partition(".")
    return int(whole) * 1000 + int(rest[:3].ljust(3, "0"))


@dataclass
class Columns:
    """What a trace holds: a list per column, a row per slice; arrows and samples as pairs."""

    start: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    track: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    category: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    arrows: list[tuple[int, int]] = field(default_factory=list)
    samples: list[tuple[int, int, float]] = field(default_factory=list)
    tracks: dict[int, str] = field(default_factory=dict)


def columns(path: str) -> Columns:
    """The columns of a Perfetto trace: slices with arguments as JSON, arrows, samples, tracks.

    For traces whose packets are in order and on one clock.
    """
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # type: ignore[import-untyped]

    trace = perfetto_trace_pb2.Trace.FromString(Path(path).read_bytes())
    found = Columns()
    texts: dict[int, tuple[dict[int, str], ...]] = defaultdict(lambda: ({}, {}, {}, {}))
    opened: dict[int, list[int]] = defaultdict(list)
    arrows: dict[int, int] = {}
    for packet in trace.packet:
        if packet.sequence_flags & 1:
            texts.pop(packet.trusted_packet_sequence_id, None)
        names, categories, keys, strings = texts[packet.trusted_packet_sequence_id]
        if packet.HasField("interned_data"):
            of = packet.interned_data
            names.update((e.iid, e.name) for e in of.event_names)
            categories.update((e.iid, e.name) for e in of.event_categories)
            keys.update((e.iid, e.name) for e in of.debug_annotation_names)
            strings.update((e.iid, e.str.decode()) for e in of.debug_annotation_string_values)
        if packet.HasField("track_descriptor"):
            found.tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.type in (1, 3):
            row = len(found.start)
            if event.type == 1:
                opened[event.track_uuid].append(row)
            found.start.append(packet.timestamp)
            found.duration.append(0)
            found.track.append(event.track_uuid)
            found.name.append(names[event.name_iid] if event.name_iid else event.name)
            known = event.category_iids
            found.category.append(categories[known[0]] if known else "".join(event.categories[:1]))
            args = {
                keys[a.name_iid] if a.name_iid else a.name: argument(a, keys, strings)
                for a in event.debug_annotations
            }
            found.args.append(json.dumps(args) if args else "")
            ends = [(flow, False) for flow in event.flow_ids]
            ends += [(flow, True) for flow in event.terminating_flow_ids]
            for flow, last in ends:
                if flow in arrows:
                    found.arrows.append((arrows[flow], row))
                arrows[flow] = row
                if last:
                    del arrows[flow]
        elif event.type == 2:
            row = opened[event.track_uuid].pop()
            found.duration[row] = packet.timestamp - found.start[row]
        elif event.type == 4:
            whole = event.HasField("counter_value")
            value = event.counter_value if whole else event.double_counter_value
            found.samples.append((event.track_uuid, packet.timestamp, value))
    return found


def argument(annotation: Any, keys: dict[int, str], strings: dict[int, str]) -> Any:
    """The value of a debug annotation."""
    if annotation.dict_entries:
        return {
            keys[a.name_iid] if a.name_iid else a.name: argument(a, keys, strings)
            for a in annotation.dict_entries
        }
    if annotation.array_values:
        return [argument(a, keys, strings) for a in annotation.array_values]
    kind = annotation.WhichOneof("value")
    if kind == "string_value_iid":
        return strings[annotation.string_value_iid]
    return None if kind is None else getattr(annotation, kind)


class Tracks:
    """Describes tracks: Rank 0, one group below it, a process of the source, the lane."""

    def __init__(self, trace: Any, processes: dict[Any, str]) -> None:
        self.trace = trace
        self.processes = processes
        self.layers: dict[Any, int] = {}
        self.last = 2
        rank = trace.add_packet().track_descriptor
        rank.uuid = 1
        rank.process.pid = 1
        rank.process.process_name = "Rank 0"
        self._describe(2, 1, "Timeline")

    def add(self, pid: Any, name: str, unit: str | None = None) -> int:
        """A new lane, or a counter if it has a unit; its uuid."""
        if pid not in self.layers:
            self.layers[pid] = self._next()
            self._describe(self.layers[pid], 2, self.processes.get(pid, str(pid)))
        uuid = self._next()
        descriptor = self._describe(uuid, self.layers[pid], name)
        if unit is not None:
            descriptor.counter.unit_name = unit
        return uuid

    def _next(self) -> int:
        self.last += 1
        return self.last

    def _describe(self, uuid: int, parent: int, name: str) -> Any:
        descriptor = self.trace.add_packet().track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, parent, name
        return descriptor


def flow_ids(events: list[Event]) -> dict[Key, list[int]]:
    """The ids of the arrows at every slice, by (pid, tid, ts)."""
    begins = {(e["cat"], e["id"]): e for e in events if e["ph"] == "s"}
    found: dict[Key, list[int]] = defaultdict(list)
    number = 0
    for event in events:
        begin = begins.get((event["cat"], event["id"])) if event["ph"] == "f" else None
        if begin is not None:
            number += 1
            found[begin["pid"], begin["tid"], begin["ts"]].append(number)
            found[event["pid"], event["tid"], event["ts"]].append(number)
    return found


def add_slices(
    trace: Any, track: int, slices: list[Event], base: int, arrows: dict[Key, list[int]]
) -> None:
    """Begin and end packets of one lane, in the order in which they nest."""
    spans = [(ns(e["ts"]) - base, -int(e["dur"] * 1000 + 0.5), e) for e in slices]
    spans.sort(key=lambda span: span[:2])
    open_ends: list[int] = []
    for start, minus_dur, event in spans:
        while open_ends and open_ends[-1] <= start:
            add_event(trace, track, open_ends.pop(), 2)
        packet = add_event(trace, track, start, 1)
        packet.name = event["name"]
        packet.flow_ids.extend(arrows.get((event["pid"], event["tid"], event["ts"]), ()))
        for key, value in event.get("args", {}).items():
            add_argument(packet, key, value)
        open_ends.append(start - minus_dur)
    while open_ends:
        add_event(trace, track, open_ends.pop(), 2)


def add_event(trace: Any, track: int, at: int, kind: int) -> Any:
    """A packet with a track event: 1 begins a slice, 2 ends one, 4 is a sample."""
    packet = trace.add_packet()
    packet.timestamp = at
    packet.trusted_packet_sequence_id = 1
    packet.track_event.type = kind
    packet.track_event.track_uuid = track
    return packet.track_event


def add_argument(event: Any, key: str, value: Any) -> None:
    """A typed debug annotation."""
    annotation = event.debug_annotations.add()
    annotation.name = key
    if isinstance(value, str):
        annotation.string_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    else:
        annotation.int_value = value


def add_counter(trace: Any, track: int, values: list[tuple[int, float]]) -> None:
    """The samples of one series."""
    for at, value in sorted(values):
        add_event(trace, track, at, 4).double_counter_value = value


if __name__ == "__main__":
    raise SystemExit(main())
