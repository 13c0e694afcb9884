"""Small traces, and Perfetto files read back as the importer does, by the ``perfetto`` package."""

from dataclasses import dataclass, field

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer
from traceconv.writers import Document
from traceconv.writers.perfetto import PerfettoWriter

BASE = 1_718_180_918_997_123_456

BEGIN, END, INSTANT, COUNTER = (
    TrackEvent.TYPE_SLICE_BEGIN,
    TrackEvent.TYPE_SLICE_END,
    TrackEvent.TYPE_INSTANT,
    TrackEvent.TYPE_COUNTER,
)


@dataclass
class Mark:
    """A slice (``dur`` None for instants), in the order of begins."""

    track: int
    name: str
    start: int
    dur: int | None
    depth: int
    category: str = ""
    args: dict = field(default_factory=dict)
    opens: list = field(default_factory=list)
    closes: list = field(default_factory=list)


@dataclass
class Decoded:
    """What a file says.

    Attributes:
        tracks:     descriptors by uuid.
        marks:      slices and instants.
        samples:    (uuid, time, value) of counters.
        attributes: of the trace.
        packets:    all, as parsed.
    """

    tracks: dict = field(default_factory=dict)
    marks: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    attributes: dict = field(default_factory=dict)
    packets: list = field(default_factory=list)

    def path(self, uuid):
        """Names from the process down to the track."""
        track = self.tracks[uuid]
        name = track.process.process_name or track.thread.thread_name or track.name
        return [*self.path(track.parent_uuid), name] if track.parent_uuid else [name]

    def named(self, name):
        """The one mark of that name."""
        (mark,) = (m for m in self.marks if m.name == name)
        return mark


def decoded(data):
    """The content of a file; fails on anything the importer would drop or misread."""
    out = Decoded()
    states = {}
    out.packets = list(Trace.FromString(data).packet)
    for packet in sorted(out.packets, key=lambda p: p.timestamp):  # stable, as the importer's
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in out.tracks
            out.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        for attribute in packet.trace_attributes.attribute:
            value = attribute.WhichOneof("value")
            out.attributes[attribute.key] = getattr(attribute, value)
    for packet in out.packets:
        state = states.get(packet.trusted_packet_sequence_id)
        if packet.sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            assert state is None
            state = states[packet.trusted_packet_sequence_id] = ({}, {}, {}, {})
        if packet.HasField("interned_data"):
            _learn(packet.interned_data, state)
        if packet.HasField("track_event"):
            assert state is not None and packet.HasField("timestamp")
            assert packet.track_event.track_uuid in out.tracks
    _replay(out, states)
    return out


def _learn(interned, state):
    lists = (
        interned.event_categories,
        interned.event_names,
        interned.debug_annotation_names,
        interned.debug_annotation_string_values,
    )
    for known, new in zip(state, lists, strict=True):
        for entry in new:
            assert entry.iid and entry.iid not in known
            value = entry.str.decode() if new is lists[3] else entry.name
            known[entry.iid] = value


def _replay(out, states):
    """Stable sort by time, then a stack per track: what decides how slices nest."""
    stacks = {}
    events = [p for p in out.packets if p.HasField("track_event")]
    for packet in sorted(events, key=lambda p: p.timestamp):
        event, state = packet.track_event, states[packet.trusted_packet_sequence_id]
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == END:
            mark = stack.pop()
            mark.dur = packet.timestamp - mark.start
        elif event.type == COUNTER:
            value = getattr(event, event.WhichOneof("counter_value_field"))
            out.samples.append((event.track_uuid, packet.timestamp, value))
        else:
            assert packet.sequence_flags == TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            mark = _mark(packet, event, state, len(stack))
            out.marks.append(mark)
            if event.type == BEGIN:
                stack.append(mark)
    assert not any(stacks.values())


def _mark(packet, event, state, depth):
    return Mark(
        event.track_uuid,
        state[1][event.name_iid],
        packet.timestamp,
        None,
        depth,
        ",".join(state[0][iid] for iid in event.category_iids),
        _pairs(event.debug_annotations, state),
        list(event.flow_ids),
        list(event.terminating_flow_ids),
    )


def _pairs(annotations, state):
    return {_name(a, state): _value(a, state) for a in annotations}


def _name(annotation, state):
    return annotation.name or state[2][annotation.name_iid]


def _value(annotation, state):
    if annotation.dict_entries:
        return _pairs(annotation.dict_entries, state)
    if annotation.array_values:
        return [_value(a, state) for a in annotation.array_values]
    kind = annotation.WhichOneof("value")
    value = getattr(annotation, kind)
    return state[3][value] if kind == "string_value_iid" else value


def builder(rank=0, **capture):
    return TraceBuilder(Capture("test", None, (), rank=rank, **capture))


def stream(build, name="Stream 0", **track):
    return build.track(Layer.DEVICE, name, **track)


def written(*traces, **document):
    """The file, decoded, and the writer."""
    ranks = tuple(t.rank for t in traces)
    writer = PerfettoWriter()
    pids = {trace.rank: trace.capture.pid for trace in traces}
    known = {"base_ns": BASE, "ranks": ranks, "pids": pids, **document}
    parts = [writer.begin(Document(**known))]
    for trace in traces:
        parts.extend(writer.trace(trace))
    return decoded(b"".join([*parts, writer.end()])), writer


def processes(out):
    """ProcessDescriptors by name."""
    found = (t.process for t in out.tracks.values() if t.HasField("process"))
    return {process.process_name: process for process in found}


def shown_on(path):
    """What a decoded path of track names says below the rank: the layer first.

    Groups that are not drawn are in the names of their rows; the layer of a thread's own row is not
    told.
    """
    if len(path) > 2 and path[1] == "Timeline":
        return [name for part in path[2:] for name in part.split(" \u00b7 ")]
    parts = [name for part in path[1:] for name in part.split(" \u00b7 ")]
    return parts if " \u00b7 " in path[1] or len(path) == 2 else parts[::-1]
