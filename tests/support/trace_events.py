"""Reading trace-event text in tests, and traces as plain rows to compare."""

import gzip
import json
from dataclasses import replace
from io import BytesIO

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Kind, Layer, OpClass, Track
from traceconv.io.stored import StoredSource
from traceconv.readers.shared.trace_events.timeline import Lane, Placed, read_events


class Memory(StoredSource):
    """One file that is nowhere on disk, so it is read as a stream."""

    def __init__(self, data, name="trace.json"):
        super().__init__(name)
        self.data, self.name = data, name

    def names(self):
        return (self.name,)

    def size(self, name):
        return len(self.data)

    def _open(self, name):
        return BytesIO(self.data)


def plain(lane: Lane) -> Placed:
    """A track per lane, category and phase, in the words of the file."""
    layer = Layer.COUNTER if lane.phase == "C" else Layer.OTHER
    title = "|".join((lane.category, lane.phase, lane.process))
    return Placed(Track(layer, lane.thread or lane.tid, lane.pid, title))


def read(data, classify=plain, source=None, **options):
    """The trace in some bytes, or in events given as dicts."""
    if not isinstance(data, bytes):
        data = json.dumps(data).encode()
    source = source or Memory(data)
    build = TraceBuilder(Capture("test", source, source.names()))
    read_events(source, source.names()[0], build, classify, **options)
    return build.finish()


def packed(data):
    return gzip.compress(data)


def x(name="a", ts=1, dur=1, pid=1, tid=1, **more):
    """A complete event."""
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **more}


def e(ph, name="a", ts=1, pid=1, tid=1, **more):
    """Any event."""
    return {"ph": ph, "name": name, "pid": pid, "tid": tid, "ts": ts, **more}


def meta(what, pid=1, tid=1, **args):
    """A metadata record."""
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def rows(trace, *fields):
    """Events as tuples: (name, start, duration), or the named fields."""
    events = trace.events
    made = {
        "name": [trace.strings[i] for i in events.name.tolist()],
        "start": events.start_ns.tolist(),
        "dur": events.dur_ns.tolist(),
        "kind": [Kind(k).name.lower() for k in events.kind.tolist()],
        "op": [OpClass(o).name.lower() for o in events.op.tolist()],
        "graph": events.graph.tolist(),
        "step": events.step.tolist(),
        "args": [trace.args.raw(i) for i in events.args.tolist()],
        "track": [trace.tracks[i] for i in events.track.tolist()],
    }
    chosen = fields or ("name", "start", "dur")
    return list(zip(*(made[f] for f in chosen), strict=True))


def samples(trace):
    """Counter samples as (name, unit, start, value)."""
    columns = zip(trace.counters.track, trace.counters.start_ns, trace.counters.value, strict=True)
    return [(trace.tracks[t].name, trace.tracks[t].unit, int(s), float(v)) for t, s, v in columns]


def arrows(trace):
    """Arrows as (name, source slice, target slice)."""
    names = [trace.strings[i] for i in trace.events.name.tolist()]
    flows = trace.flows
    columns = zip(flows.name.tolist(), flows.src.tolist(), flows.dst.tolist(), strict=True)
    return sorted((trace.strings[n], names[s], names[d]) for n, s, d in columns)


def issues(trace):
    """Issues as {code: count}."""
    return {issue.code: issue.count for issue in trace.issues}


def everything(trace):
    """All that a trace holds, in texts and numbers."""
    full = rows(trace, "track", "kind", "name", "start", "dur", "op", "graph", "step", "args")
    booked = [replace(issue) for issue in trace.issues]
    return full, samples(trace), arrows(trace), booked, trace.ledger
