"""What a viewer shows of a sound trace: an oracle that shares no code with the package.

Perfetto files are parsed by the ``perfetto`` package, Chrome JSON by ``json``; slices are stacked
as Perfetto's importer does. It reads sound traces only: what the importer would drop or misread
fails here.
"""

import gzip
import json
import tarfile
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
NO_MERGE = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE
BY_KEY = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY


@dataclass
class Row:
    """A slice, or an instant (``dur`` 0)."""

    ts: int
    dur: int
    depth: int
    track_id: int
    name: str
    category: str
    instant: bool
    args: dict


@dataclass
class Rows:
    """Some rows of a trace, as columns; ``index`` is the place of each among all rows."""

    of: list
    paths: list
    index: np.ndarray = None

    def __post_init__(self):
        if self.index is None:
            self.index = np.arange(len(self.of))
        for name in ("ts", "dur", "depth", "track_id"):
            setattr(self, name, np.array([getattr(row, name) for row in self.of], np.int64))
        self.name = [row.name for row in self.of]
        self.category = [row.category for row in self.of]
        self.track = [self.paths[row.track_id] for row in self.of]

    def __len__(self):
        return len(self.of)

    def args(self, i):
        """Arguments of a row, flat: nested keys with dots, places in arrays with ``[i]``."""
        return dict(flat(self.of[i].args))


@dataclass
class Counters:
    """Samples by time."""

    ts: np.ndarray
    value: np.ndarray
    track_id: np.ndarray
    paths: list

    def __len__(self):
        return len(self.ts)

    @property
    def track(self):
        return [self.paths[n] for n in self.track_id.tolist()]


@dataclass
class Decoded:
    """A trace; arrows are (source row, target row)."""

    rows_: list = field(default_factory=list)
    samples: list = field(default_factory=list)  # ts, value, track
    arrows: list = field(default_factory=list)
    tracks: list = field(default_factory=list)  # path, unit
    metadata: dict = field(default_factory=dict)

    def track(self, path, unit=""):
        self.tracks.append(SimpleNamespace(path=tuple(path), unit=unit))
        return len(self.tracks) - 1

    @property
    def paths(self):
        return [track.path for track in self.tracks]

    @cached_property
    def rows(self):
        return Rows(self.rows_, self.paths)

    def _some(self, instant):
        at = [i for i, row in enumerate(self.rows_) if row.instant == instant]
        return Rows([self.rows_[i] for i in at], self.paths, np.array(at, np.int64))

    @cached_property
    def slices(self):
        return self._some(False)

    @cached_property
    def instants(self):
        return self._some(True)

    @cached_property
    def counters(self):
        samples = sorted(self.samples, key=lambda one: one[0])
        ts, value, track = zip(*samples, strict=True) if samples else ((), (), ())
        return Counters(np.array(ts, np.int64), np.array(value, np.float64),
                        np.array(track, np.int64), self.paths)  # fmt: skip

    @cached_property
    def flows(self):
        ends = np.array(self.arrows, np.int64).reshape(-1, 2)
        return Arrows(ends[:, 0], ends[:, 1])

    def counts(self):
        return {
            "slices": len(self.slices),
            "instants": len(self.instants),
            "counters": len(self.samples),
            "flows": len(self.arrows),
            "tracks": len(self.tracks),
        }


@dataclass
class Arrows:
    """Row numbers of both ends."""

    source: np.ndarray
    target: np.ndarray

    def __len__(self):
        return len(self.source)


def flat(value, key=""):
    """The leaves of nested arguments: (key, value)."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from flat(inner, f"{key}[{i}]")
    elif value is not None:
        yield key, value


def decode(path):
    """A trace file, compressed or not, or an archive of several."""
    path = Path(path)
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
        return _archive(files)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return _archive({name: archive.read(name) for name in archive.namelist()})
    return decoded(path.read_bytes())


def decoded(data):
    """The same of the bytes of a file."""
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    elif data.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return _Perfetto(data).out if data.startswith(b"\n") else _Chrome(json.loads(data)).out


def _archive(files):
    """All traces of an archive on one timeline."""
    out, shift = Decoded(), {}
    for name, data in files.items():
        if data.startswith(b'{"perfetto_manifest"'):
            of = {one["path"]: one for one in json.loads(data)["perfetto_manifest"]["files"]}
            shift = {n: one.get("clocks", {}).get("offset_ns", 0) for n, one in of.items()}
            del files[name]
            break
    parts = []
    for name in sorted(files, key=lambda n: (not files[n].startswith(b"\n"), n)):
        part = decoded(files[name])
        for row in part.rows_:
            row.ts += shift.get(name, 0)
            row.track_id += len(out.tracks)
        offset, first = shift.get(name, 0), len(out.tracks)
        offset, first = shift.get(name, 0), len(out.tracks)
        out.samples += [(ts + offset, value, track + first) for ts, value, track in part.samples]
        out.tracks += part.tracks
        out.metadata.update(part.metadata)
        parts.append(part)
    every = [row for part in parts for row in part.rows_]
    out.rows_ = sorted(every, key=lambda row: row.ts)
    place = {id(row): i for i, row in enumerate(out.rows_)}
    for part in parts:
        out.arrows += [(place[id(part.rows_[a])], place[id(part.rows_[b])]) for a, b in part.arrows]
    return out


class Lanes:
    """Rows of tracks that are shown as one: what is open on a row keeps others away from it."""

    def __init__(self, new):
        self.new, self.lanes, self.of = new, [], {}  # [number, cookie, open slices]

    def at(self, cookie, change):
        """The row of a cookie, in which as many slices more are open from now on."""
        lane = self.of.get(cookie)
        if lane is None:
            lane = next((one for one in self.lanes if not one[2]), None)
            if lane is None:
                lane = [self.new(), cookie, 0]
                self.lanes.append(lane)
            else:
                self.of.pop(lane[1])
            lane[1] = cookie
            self.of[cookie] = lane
        lane[2] += change
        return lane[0]


class _Perfetto:
    def __init__(self, data):
        self.out, self.states, self.described, self.order = Decoded(), {}, {}, {}
        self.lanes, self.sets, self.stacks, self.flows = {}, {}, {}, {}
        packets = self._packets(data)
        for packet in packets:
            if packet.HasField("track_descriptor"):
                assert packet.track_descriptor.uuid not in self.described
                self.described[packet.track_descriptor.uuid] = packet.track_descriptor
            for one in packet.trace_attributes.attribute:
                self.out.metadata[one.key] = getattr(one, one.WhichOneof("value"))
        events = []
        for packet in packets:
            self._learn(packet)
            if packet.HasField("track_event"):
                assert packet.HasField("timestamp") and packet.trusted_packet_sequence_id
                state = self.states[packet.trusted_packet_sequence_id]
                events.append((self._time(packet, state), packet.track_event, state))
        for time, event, state in sorted(events, key=lambda one: one[0]):
            self._event(time, event, state)
        assert not any(self.stacks.values()), "a slice never ends"

    def _packets(self, data):
        import zlib

        found = []
        for packet in Trace.FromString(data).packet:
            if packet.compressed_packets:
                inner = zlib.decompress(packet.compressed_packets, 47)
                found += Trace.FromString(inner).packet
            else:
                found.append(packet)
        return found

    def _learn(self, packet):
        number = packet.trusted_packet_sequence_id
        if packet.sequence_flags & 1:
            self.states[number] = SimpleNamespace(tables=({}, {}, {}, {}), track=None, clock=0)
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            self.states[number].clock = defaults.timestamp_clock_id
            if defaults.track_event_defaults.HasField("track_uuid"):
                self.states[number].track = defaults.track_event_defaults.track_uuid
        for one in packet.clock_snapshot.clocks:
            if one.is_incremental:
                base = next(c for c in packet.clock_snapshot.clocks if c.clock_id == 6)
                self.states[number].now = base.timestamp
        if packet.HasField("interned_data"):
            data = packet.interned_data
            lists = (data.event_categories, data.event_names, data.debug_annotation_names,
                     data.debug_annotation_string_values)  # fmt: skip
            for known, new in zip(self.states[number].tables, lists, strict=True):
                for entry in new:
                    assert entry.iid and entry.iid not in known
                    text = entry.str.decode() if new is lists[3] else entry.name
                    known[entry.iid] = text

    def _time(self, packet, state):
        if state.clock != 64:
            return packet.timestamp
        state.now += packet.timestamp
        return state.now

    # -- tracks --------------------------------------------------------------------------------

    def _title(self, track):
        if track.HasField("thread"):
            return track.thread.thread_name or f"tid {track.thread.tid}"
        return track.process.process_name or f"pid {track.process.pid}"

    def _process(self, pid):
        named = (t.process for t in self.described.values() if t.HasField("process"))
        return next(
            (p.process_name for p in named if p.pid == pid and p.process_name), f"pid {pid}"
        )

    def _path(self, uuid):
        track = self.described[uuid]
        if track.HasField("thread"):
            return self._process(track.thread.pid), self._title(track)
        if track.HasField("process"):
            return (self._title(track),)
        around = self._path(track.parent_uuid) if track.parent_uuid else ()
        return (*around, track.name)

    def _lane(self, uuid, change):
        if uuid not in self.lanes:
            track = self.described[uuid]
            apart = track.HasField("thread") or track.HasField("process")
            apart |= track.sibling_merge_behavior == NO_MERGE
            key = track.name
            if track.sibling_merge_behavior == BY_KEY:
                key = ("key", track.sibling_merge_key, track.sibling_merge_key_int)
            group = ("own", uuid) if apart else (track.parent_uuid, key)
            if group not in self.sets:
                path = self._path(uuid)
                self.sets[group] = Lanes(lambda: self.out.track(path))
            self.lanes[uuid] = self.sets[group]
        return self.lanes[uuid].at(uuid, change)

    def _counter(self, uuid):
        if uuid not in self.lanes:
            of = self.described[uuid].counter
            unit = {1: "ns", 2: "count", 3: "bytes"}.get(of.unit, of.unit_name)
            self.lanes[uuid] = (self.out.track(self._path(uuid), unit), of.unit_multiplier or 1)
        return self.lanes[uuid]

    # -- events --------------------------------------------------------------------------------

    def _event(self, time, event, state):
        uuid = event.track_uuid if event.HasField("track_uuid") else state.track
        if event.type == COUNTER:
            track, factor = self._counter(uuid)
            value = getattr(event, event.WhichOneof("counter_value_field"))
            self.out.samples.append((time, float(value) * factor, track))
            return
        stack = self.stacks.setdefault(uuid, [])
        if event.type == END:
            self._lane(uuid, -1)
            row = stack.pop()
            self.out.rows_[row].dur = time - self.out.rows_[row].ts
            return
        instant = event.type == INSTANT
        lane = self._lane(uuid, 1)
        if instant:
            self._lane(uuid, -1)
        row = len(self.out.rows_)
        name = state.tables[1][event.name_iid] if event.name_iid else event.name
        categories = [state.tables[0][iid] for iid in event.category_iids]
        args = self._pairs(event.debug_annotations, state)
        made = Row(time, 0, len(stack), lane, name,
                   ",".join([*categories, *event.categories]), instant, args)  # fmt: skip
        self.out.rows_.append(made)
        if not instant:
            stack.append(row)
        for flow in event.flow_ids:
            if flow in self.flows:
                self.out.arrows.append((self.flows[flow], row))
            self.flows[flow] = row
        for flow in event.terminating_flow_ids:
            self.out.arrows.append((self.flows.pop(flow), row))

    def _pairs(self, annotations, state):
        return {a.name or state.tables[2][a.name_iid]: self._value(a, state) for a in annotations}

    def _value(self, annotation, state):
        if annotation.dict_entries:
            return self._pairs(annotation.dict_entries, state)
        if annotation.array_values:
            return [self._value(one, state) for one in annotation.array_values]
        kind = annotation.WhichOneof("value")
        if kind is None:
            return None
        value = getattr(annotation, kind)
        if kind == "string_value_iid":
            return state.tables[3][value]
        if kind == "legacy_json_value":
            return json.loads(value)
        return f"{value:#x}" if kind == "pointer_value" else value


class _Chrome:
    def __init__(self, document):
        events = document if isinstance(document, list) else document["traceEvents"]
        self.out, self.names, self.places = Decoded(), {}, {}
        self.stacks, self.flows, self.bound = {}, {}, {}
        if isinstance(document, dict):
            self.out.metadata = document.get("metadata", {})
        for event in events:
            if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
                tid = event.get("tid") if event["name"] == "thread_name" else None
                self.names[event["pid"], tid] = event["args"]["name"]
        shown = [(_ns(one["ts"]), _rank(one), i, one) for i, one in enumerate(events)
                 if one["ph"] != "M"]  # fmt: skip
        for time, _, _, event in sorted(shown, key=lambda one: one[:3]):
            self._event(time, event)

    def _place(self, path):
        if path not in self.places:
            self.places[path] = self.out.track(path)
        return self.places[path]

    def _thread(self, event):
        pid, tid = event["pid"], event.get("tid") or event["pid"]
        name = self.names.get((pid, tid)) or f"tid {tid}"
        return self._place((self._process(pid), name)), (pid, tid)

    def _process(self, pid):
        return self.names.get((pid, None)) or f"pid {pid}"

    def _event(self, time, event):
        phase = event["ph"]
        if phase == "C":
            for key, value in event["args"].items():
                path = (self._process(event["pid"]), f"{event['name']} {key}")
                self.out.samples.append((time, float(value), self._place(path)))
            return
        track, key = self._thread(event)
        stack = self.stacks.setdefault(key, [])
        if phase in "stf":
            self._flow(event, stack)
            return
        point = phase in "iI" or event.get("dur") == 0
        while stack and self._over(stack[-1], time, point):
            stack.pop()
        if phase == "E":
            row = self.out.rows_[stack.pop()]
            row.dur = time - row.ts
            row.args.update(event.get("args", {}))
        else:
            self._row(time, event, track, stack)

    def _over(self, row, time, point):
        """Whether a slice is over at a time; points of one time are inside each other."""
        of = self.out.rows_[row]
        end = of.ts + of.dur
        return of.dur >= 0 and (end < time or (end == time and not (point and of.dur == 0)))

    def _row(self, time, event, track, stack):
        phase, scope = event["ph"], event.get("s")
        assert phase in "XBiI", phase
        if phase in "iI" and scope in ("g", "p"):
            track = self._place((self._process(event["pid"]),) if scope == "p" else ("",))
            stack = []
        dur = {"X": _ns(event.get("dur", 0)), "B": -1}.get(phase, 0)
        row = Row(time, dur, len(stack), track, event.get("name") or "[No name]",
                  event.get("cat", ""), phase in "iI", event.get("args", {}))  # fmt: skip
        stack.append(len(self.out.rows_))
        self.out.rows_.append(row)

    def _flow(self, event, stack):
        key = (event["id"], event.get("cat"), event.get("name"))
        assert stack, f"an arrow ends in no slice: {event}"
        row = stack[-1]
        if event["ph"] == "s":
            assert key not in self.flows
        else:
            assert event["ph"] == "t" or event.get("bp") == "e"
            self.out.arrows.append((self.flows[key], row))
        self.flows[key] = row


def _rank(event):
    """Of events of one time: ends first, then complete ones, the longest first."""
    if event["ph"] == "E":
        return float("-inf")
    return -_ns(event.get("dur", 0)) if event["ph"] == "X" else 0


def _ns(us):
    us = float(us) if isinstance(us, str) else us
    whole = int(us)
    return whole * 1000 if whole == us else round(us * 1000)
