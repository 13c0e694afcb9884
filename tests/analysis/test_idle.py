"""Causes of idle time: calls of the launching thread, and copies."""

import pytest
from rule_cases import US, builder, passed

from traceconv.analysis.tables import idle
from traceconv.core.model import Layer, OpClass

IDLE, BY_STEP, GAPS = (
    next(table for table in idle.TABLES if table.name == name)
    for name in ("idle", "idle_step", "idle_gap")
)


def gap(meanwhile=None, launch_at=70, vendor=""):
    """Two steps of two kernels with 60 us between: the second is launched ``launch_at`` us after
    the step begins, 40 us into it the device is idle; and what happens meanwhile."""
    build = builder(vendor=vendor)
    host, calls, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1", device=0),
    )
    for step in (0, 1):
        begin = 200 * step
        build.slice(host, begin * US, 140 * US, f"ProfilerStep#{step}", op=OpClass.HOST, step=step)
        for launched_at, at in ((5, 10), (launch_at, 100)):
            call = build.slice(calls, (begin + launched_at) * US, 2 * US, "cudaLaunchKernel")
            kernel = build.slice(
                stream, (begin + at) * US, 30 * US, f"kernel {at}", op=OpClass.COMPUTE
            )
            build.flow(call, kernel, "launch")
        if meanwhile:
            track, start, length, name = meanwhile
            track = {"host": host, "calls": calls, "stream": stream}[track]
            op = OpClass.COPY if name.startswith("Memcpy") else OpClass.OTHER
            build.slice(track, (begin + start) * US, length * US, name, op=op)
    return passed(build)


@pytest.mark.parametrize(
    ("cause", "trace"),
    [
        ("late launch", gap()),
        ("dependency", gap(launch_at=20)),
        ("synchronisation", gap(("calls", 20, 25, "cudaStreamSynchronize"))),
        ("late launch", gap(("calls", 45, 20, "cudaStreamSynchronize"))),
        ("dependency", gap(("calls", 25, 25, "cudaStreamSynchronize"), launch_at=20)),
        ("garbage collection", gap(("host", 45, 40, "GC"))),
        ("late launch", gap(("host", 45, 20, "GC"))),
        ("copy", gap(("stream", 45, 40, "Memcpy HtoD"), launch_at=20, vendor="ascend")),
        ("input", gap(("host", 41, 40, "enumerate(DataLoader)#_Iter.__next__"))),
    ],
)
def test_the_cause_of_the_longest_interval(cause, trace):
    """60 us in each step, between the kernels."""
    gaps = GAPS.build([(0, GAPS.facts(trace))])
    longest = gaps["Length(ns)"] == 60 * US
    assert gaps["Cause"][longest].tolist() == [cause, cause]
    assert gaps["Before"][longest].tolist() == ["kernel 100", "kernel 100"]


def test_causes_of_steps_are_those_of_all():
    """Sums over the steps are the sums of the rank."""
    trace = gap(("calls", 20, 25, "cudaStreamSynchronize"))
    whole, by_step = (table.build([(0, table.facts(trace))]) for table in (IDLE, BY_STEP))
    for cause, total in zip(whole["Cause"], whole["Total Time(ns)"], strict=True):
        assert by_step["Total Time(ns)"][by_step["Cause"] == cause].sum() == total
    assert sorted(set(by_step["Step"].tolist())) == [0, 1]
