"""Event logs for tests: a text written to a file, found and read back."""

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.io.sources import sources
from traceconv.readers.event_log import reader as event_log


class Log:
    """One log file, found and read."""

    def __init__(self, path, reader=event_log.READER):
        self.captures, self.issues = found_by(reader, path)
        self.traces = [_read(capture) for capture in self.captures]

    @property
    def trace(self):
        assert len(self.traces) == 1
        return self.traces[0]

    @property
    def ranks(self):
        return [c.rank for c in self.captures]


def found_by(reader, path):
    """What a reader finds below a path, and the issues it reports."""
    source = sources([str(path)])[0]
    issues = Issues()
    return reader.find(source, source.names(), issues), issues


def _read(capture):
    build = TraceBuilder(capture)
    event_log.READER.read(capture, build)
    return build.finish()


def written(folder, text, mapping=None, name="log.txt"):
    """A text as a log of its own, read through the reader or through a mapping."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Log(path, event_log.with_mapping(mapping) if mapping else event_log.READER)


def rows(trace):
    """Name, start and length of every row, by start."""
    events = trace.events
    names = [trace.strings[i] for i in events.name]
    return sorted(
        zip(names, events.start_ns.tolist(), events.dur_ns.tolist(), strict=True),
        key=lambda row: row[1:],
    )


def lanes(trace):
    """Layer, heading, group and name of every lane that has something on it."""
    return [(t.layer, t.heading, t.group, t.name) for t in trace.tracks]


def booked(issues):
    """Code, count and places of every issue."""
    return [(i.code, i.count, i.places) for i in issues]
