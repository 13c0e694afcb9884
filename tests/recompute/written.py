"""The trace that was written, as rows: Chrome JSON by ``json``, Perfetto by its own classes."""

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal

from google.protobuf.unknown_fields import UnknownFieldSet

from tests import descriptors

HEADINGS = {
    "step": "Step Trace", "overlap": "Overlap Analysis", "host": "Host", "runtime": "Runtime",
    "scope": "Scope Layer", "device": "Hardware", "comm": "Communication", "counter": "Counters",
    "other": "Other",
}  # fmt: skip
"""What layers are called whose source has no name of its own for them."""

BACKWARDS = " (backwards)"
"""Ends the name of an arrow whose ends were exchanged, for viewers that draw forward only."""


@dataclass(slots=True, eq=False)
class Lane:
    """One lane: of a rank, a layer, its heading and group.

    Attributes:
        place: its place on screen.
        kind: what it is, where it is more than its layer says.
        device_kind, device: of its device the kind and the name ("GPU 2"); "" if unknown.
        thread: its process and thread; None if unknown.
        stream: of the device; -1 if unknown.
    """

    rank: int
    layer: str
    heading: str
    group: str
    name: str
    unit: str | None
    place: int
    kind: str
    device_kind: str
    device: str
    thread: tuple | None
    stream: int


@dataclass(slots=True, eq=False)
class Row:
    """A slice, or an instant (``slice`` is false). Times are ns as the capture stamped them."""

    lane: Lane
    name: str
    cls: str
    start: int
    end: int
    slice: bool
    graph: int
    step: int
    args: dict

    @property
    def dur(self):
        return self.end - self.start

    def identity(self):
        """What both formats say of it."""
        lane = self.lane
        return (lane.rank, lane.heading, lane.group, lane.name, self.name, self.cls, self.start,
                self.end)  # fmt: skip


@dataclass
class Rank:
    """What was written of one rank, in the order of the file."""

    number: int
    device: int = -1
    place: str = ""
    lanes: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    arrows: list = field(default_factory=list)
    windows: list = field(default_factory=list)
    stage: int = -1
    job: int = -1

    def on(self, *layers):
        """Slices on lanes of these layers."""
        return [row for row in self.rows if row.slice and row.lane.layer in layers]


def chrome(content):
    """The ranks of a trace-event JSON of ours; times are exact."""
    document = json.loads(content, parse_float=Decimal)
    about = document["metadata"]["traceconv"]
    base = int(about["base_ns"])
    events = document["traceEvents"]
    ranks = _described(events)
    lanes = {key: lane for rank in ranks.values() for key, lane in rank.lanes}
    for rank in ranks.values():
        rank.lanes = [lane for _, lane in rank.lanes]
        windows = about["windows"].get(str(rank.number), [])
        rank.windows = [(base + start, base + end) for start, end in windows]
        rank.stage = _stage(about.get("coordinates"), rank.number)
        jobs = (about.get("coordinates") or {}).get("jobs", ())
        numbers = [[number for _, number in job] for job in jobs]
        rank.job = next((min(job) for job in numbers if rank.number in job), -1)
    begun = {}
    for event in events:
        kind = event["ph"]
        if kind == "M":
            continue
        lane = lanes[event["pid"], event["tid"]]
        rank, at = ranks[lane.rank], base + _ns(event["ts"])
        if kind in "Xi":
            rank.rows.append(_row(lane, event, at))
        elif kind == "C":
            (value,) = event["args"].values()
            rank.samples.append((lane, at, float(value)))
        elif kind == "s":
            begun[event["id"]] = (lane, at, event["name"])
        else:
            rank.arrows.append((*begun.pop(event["id"]), lane, at))
    assert not begun, "arrows without an end"
    for rank in ranks.values():
        _bind(rank)
    return ranks


def _stage(coordinates, rank):
    """The pipeline stage that the metadata says a rank is in, -1 if it does not."""
    if coordinates is None:
        return -1
    axes = [name for name, _ in coordinates["axes"]]
    return coordinates["ranks"][str(rank)][axes.index("pp")] if "pp" in axes else -1


def _ns(us):
    """Microseconds with at most three decimals as whole ns."""
    ns = us * 1000
    whole = int(ns)
    assert whole == ns, us
    return whole


def _described(events):
    """The ranks with their lanes, (key, lane), in screen order."""
    ranks, headings = {}, {}
    for event in events:
        if event["ph"] != "M":
            continue
        said, pid = event["args"], event["pid"]
        if event["name"] == "process_name":
            rank = ranks.setdefault(said["rank"], Rank(said["rank"]))
            _, place, heading = re.split(r"^Rank \d+ (?:· ((?:\w+\d+ )+))?", said["name"])
            rank.place, headings[pid] = (place or "").strip(), (said["rank"], heading)
        elif event["name"] == "process_labels":
            device = [w for w in said["labels"].split(", ") if w.startswith("device ")]
            ranks[headings[pid][0]].device = int(device[-1].split()[1]) if device else -1
        elif event["name"] == "thread_name":
            number, heading = headings[pid]
            rank = ranks[number]
            device, kind = said.get("device", -1), said.get("device_kind", "")
            lane = Lane(
                number, said["layer"], heading, said["group"], said["track"], said.get("unit"),
                len(rank.lanes), said.get("kind", ""), kind,
                f"{kind or 'Device'} {device}" if device >= 0 else "",
                (said.get("process"), said["thread"]) if "thread" in said else None,
                said.get("stream", -1),
            )  # fmt: skip
            rank.lanes.append(((pid, event["tid"]), lane))
    return ranks


def _row(lane, event, at):
    return Row(
        lane, event["name"], event.get("cat", ""), at, at + _ns(event.get("dur", 0)),
        event["ph"] == "X", event.get("graph", -1), event.get("step", -1), event.get("args", {}),
    )  # fmt: skip


def _bind(rank):
    """Replace the ends of arrows by the innermost rows at their instants, as viewers do."""
    by_lane = defaultdict(list)
    for row in rank.rows:
        by_lane[id(row.lane)].append(row)
    known = {key: _Nested(rows) for key, rows in by_lane.items()}
    bound = []
    for lane, at, name, lane_2, at_2 in rank.arrows:
        ends = known[id(lane)].at(at), known[id(lane_2)].at(at_2)
        if name.endswith(BACKWARDS):
            ends = ends[::-1]
        bound.append((*ends, name.removesuffix(BACKWARDS)))
    rank.arrows = bound


class _Nested:
    """The rows of one lane, to be asked for the innermost one at an instant."""

    def __init__(self, rows):
        self._rows = rows
        self._starts = [row.start for row in rows]
        self._outer, stack = [], []
        for i, row in enumerate(rows):
            while stack and rows[stack[-1]].end < row.end:
                stack.pop()
            self._outer.append(stack[-1] if stack else -1)
            stack.append(i)

    def at(self, instant):
        i = bisect_right(self._starts, instant) - 1
        while i >= 0 and self._rows[i].end < instant:
            i = self._outer[i]
        assert i >= 0, "an arrow ends nowhere"
        return self._rows[i]


# -- the other format ---------------------------------------------------------------------


def perfetto(content):
    """Of a Perfetto trace of ours: how often each slice is in it, each sample, each arrow.

    Returns:
        Counters of :meth:`Row.identity`; of (lane, instant, value); of pairs of identities
        (sorted: the format has no direction).
    """
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    packets = Trace.FromString(content).packet
    reader = _Perfetto(packets)
    ordered = sorted((p for p in packets if p.HasField("track_event")), key=lambda p: p.timestamp)
    for packet in ordered:
        event, at = packet.track_event, packet.timestamp + reader.base
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            reader.begin(packet, event, at)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            reader.end(event, at)
        elif event.type == TrackEvent.TYPE_INSTANT:
            reader.begin(packet, event, at)
            reader.end(event, at)
        else:
            value = getattr(event, event.WhichOneof("counter_value_field"))
            reader.samples[(*reader.path(event.track_uuid), at, float(value))] += 1
    assert not any(reader.open.values()), "slices without an end"
    return Counter(map(tuple, reader.slices)), reader.samples, reader.arrows()


class _Perfetto:
    """What is known while a Perfetto trace is read."""

    def __init__(self, packets):
        self.base, self.open, self.slices, self.samples = 0, defaultdict(list), [], Counter()
        self._tracks, self._names = {}, defaultdict(dict)
        self._leave, self._arrive = defaultdict(list), defaultdict(list)
        self._ranks, self._lanes = {}, {}
        for packet in packets:
            if packet.HasField("track_descriptor"):
                self._tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            for attribute in packet.trace_attributes.attribute:
                if attribute.key == "traceconv.base_ns":
                    self.base = getattr(attribute, attribute.WhichOneof("value"))
            sequence = self._names[packet.trusted_packet_sequence_id]
            for kind in ("event_names", "event_categories"):
                for entry in getattr(packet.interned_data, kind):
                    sequence[kind, entry.iid] = entry.name
            for own in UnknownFieldSet(packet):
                if own.field_number == 1990:
                    said = descriptors.message("traceconv_rank", "traceconv.Rank").FromString(
                        own.data
                    )
                    tracks = json.loads(said.about or "{}").get("tracks", {})
                    rank = packet.trusted_packet_sequence_id - 1
                    self._ranks |= {int(uuid): rank for uuid in tracks}
                    self._lanes |= {int(uuid): track for uuid, track in tracks.items()}

    def path(self, uuid):
        """Rank, heading, group and lane of a track."""
        of = self._lanes[uuid]
        heading = of.get("title") or HEADINGS[of["layer"]]
        return self._ranks[uuid], heading, of.get("group", ""), of["name"]

    def begin(self, packet, event, at):
        names = self._names[packet.trusted_packet_sequence_id]
        cls = "".join(names["event_categories", iid] for iid in event.category_iids)
        name = names["event_names", event.name_iid]
        row = [*self.path(event.track_uuid), name, cls, at, at]
        self.open[event.track_uuid].append(row)
        self.slices.append(row)
        for flow in event.flow_ids:
            self._leave[flow].append(row)
        for flow in event.terminating_flow_ids:
            self._arrive[flow].append(row)

    def end(self, event, at):
        self.open[event.track_uuid].pop()[-1] = at

    def arrows(self):
        """Pairs of what each flow joins."""
        pairs = Counter()
        for flow, leaving in self._leave.items():
            (source,), (target,) = leaving, self._arrive[flow]
            pairs[tuple(sorted((tuple(source), tuple(target))))] += 1
        return pairs


def same(ranks, other):
    """What differs between both formats, as texts; and how many things were compared."""
    rows = Counter(row.identity() for rank in ranks.values() for row in rank.rows)
    samples = Counter(
        (rank.number, lane.heading, lane.group, lane.name, at, value)
        for rank in ranks.values() for lane, at, value in rank.samples
    )  # fmt: skip
    arrows = Counter(
        tuple(sorted((source.identity(), target.identity())))
        for rank in ranks.values() for source, target, _ in rank.arrows
    )  # fmt: skip
    other = (*other[:2], _unnamed(other[2]))
    mine, found = (rows, samples, _unnamed(arrows)), []
    for what, left, right in zip(("slices", "samples", "arrows"), mine, other, strict=True):
        apart = sum(((left - right) + (right - left)).values())
        if apart:
            example = next(iter((left - right) + (right - left)))
            found.append(f"{apart} {what} differ between JSON and Perfetto, such as {example}")
    return found, sum(sum(counts.values()) for counts in mine)


def _unnamed(arrows):
    """Arrows without the names of slices of no length: JSON cannot tell which of several at one
    instant is meant."""
    found = Counter()
    for pair, count in arrows.items():
        ends = tuple((*end[:4], "", "", *end[6:]) if end[-1] == end[-2] else end for end in pair)
        found[tuple(sorted(ends))] += count
    return found
