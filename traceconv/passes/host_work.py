"""The work of a rank that computes on its CPU, as the work of a device.

A job on CPUs launches no kernels: its operators are its work, and Gloo is its communication. Where
a reader found such communication and no device did anything, the innermost operators of the host
are the work of the device layer, so that overlap, replay and tables apply. Time between them is
idle, whatever else the host does then.
"""

from __future__ import annotations

import numpy as np

from traceconv.core.model import Kind, Layer, OpClass, Trace, Track
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.passes.places import threads

WORK = Track(Layer.DEVICE, "Operators", title="CPU")
"""The track of the operators; those of a second thread are moved to a sub-lane."""

_NO_WORK = lazy_regex(
    r"_?c10d(?:_functional)?(?:_autograd)?::.*|ProfilerStep.*"  # issues communication, or waits
    r"|.*\.py\(\d+\): .*|<.*|nn\.Module: .*"  # functions of Python
)


def communicates_on_cpus(trace: Trace) -> bool:
    """Whether CPUs carry out communication of the rank."""
    return any(t.layer is Layer.COMM and t.device_kind == "CPU" for t in trace.tracks)


def host_work(trace: Trace) -> Trace:
    """Add the innermost operators of each host thread as device work, if the rank communicates on
    its CPU and used no device. They are counted under "host work".

    Operators that issue communication or wait for it, ranges of the user, and functions of Python
    are no work.
    """
    if not communicates_on_cpus(trace) or trace.rows_of(Layer.DEVICE).any():
        return trace
    events, ranges = trace.events, frozenset(trace.hints.range_names)
    operators = NameTest(lambda name: name not in ranges and not _NO_WORK.fullmatch(name))
    slices = trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE) & (events.dur_ns > 0)
    rows = np.flatnonzero(slices & (events.op == OpClass.HOST))
    thread, start, end = (
        threads(trace)[events.track[rows]],
        events.start_ns[rows],
        events.ends(rows),
    )
    order = np.lexsort((-end, start, thread))
    rows, thread, start, end = rows[order], thread[order], start[order], end[order]
    # the slice behind an innermost one begins when that has ended, or on another thread
    inner = np.append(
        (start[1:] >= end[:-1]) | (thread[1:] != thread[:-1]), np.ones(min(len(rows), 1), bool)
    )
    work = events.take(rows[inner & rows_named(trace, operators)[rows]])
    if not len(work):
        return trace
    n = len(work)
    return trace.add_events(
        "host work",
        [WORK],
        work.with_columns(
            track=np.zeros(n, np.int32),
            op=np.full(n, OpClass.COMPUTE, np.int8),
            step=np.full(n, -1, np.int32),
        ),
    )
