"""Small folders with Ascend captures, written for one test."""

import json

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.io.sources import sources
from traceconv.readers.ascend import msprof, trace_view
from traceconv.readers.ascend.mindspore import reader as mindspore

READERS = {m.READER.name: m.READER for m in (trace_view, msprof, mindspore)}
UNIX_US, MONOTONIC_US = 1_740_816_000_000_000, 56_635_864_652
OUTPUT = "ASCEND_PROFILER_OUTPUT"
PROF = "PROF_000001_20250301080000123_ABCDEFGH"
PROF_LATER = "PROF_000001_20250301090000123_ABCDEFGH"


def events(ts=UNIX_US, *more):
    """A timeline with one kernel, as small as one can be."""
    return [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "Ascend Hardware"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 2, "args": {"name": "Stream 2"}},
        {"ph": "X", "name": "MatMul", "pid": 7, "tid": 2, "ts": f"{ts}.250", "dur": 4.5,
         "args": {"Task Type": "AI_CORE"}},
        *more,
    ]  # fmt: skip


def steps(*numbers, ts=UNIX_US):
    """A step trace of graph 2 with these iterations."""
    return [
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "Step Trace"}},
        {"ph": "M", "name": "thread_name", "pid": 9, "tid": 9, "args": {"name": "Model ID:2"}},
        *(
            {"ph": "X", "name": f"Iteration {n}", "pid": 9, "tid": 9, "ts": ts + 10 * n, "dur": 9}
            for n in numbers
        ),
    ]


class Folder:
    """Files to look for captures in."""

    def __init__(self, root):
        self.root = root
        self.issues = Issues()

    def add(self, name, content=None):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return self

    def capture(self, folder, ts=UNIX_US, **info):
        """A ``*_ascend_*`` folder with a timeline; ``info`` are further files by stem."""
        self.add(f"{folder}/{OUTPUT}/trace_view.json", events(ts))
        for stem, content in info.items():
            self.add(f"{folder}/{stem}.json", content)
        return self

    def find(self, reader="trace_view", below=""):
        (source,) = sources([str(self.root / below)])
        self.source = source
        return READERS[reader].find(source, source.names(), self.issues)

    def codes(self):
        return [issue.code for issue in self.issues]


def read(capture):
    build = TraceBuilder(capture)
    READERS[capture.reader].read(capture, build)
    return build.finish()


def op_counts(trace):
    return {op: int((trace.events.op == op).sum()) for op in set(trace.events.op.tolist())}
