"""Which call launched what a processor carried out, when the host is steps ahead of it."""

import json
from random import Random

import numpy as np
import pytest
from xplane_files import Plane, space

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Covered, Layer
from traceconv.find.capture_ranks import resolve
from traceconv.io.sources import sources
from traceconv.passes.attribution import attribution
from traceconv.passes.steps import steps
from traceconv.readers.xla.launches import HostEvents, is_call, launches
from traceconv.readers.xla.viewer_json import READER as VIEWER_JSON
from traceconv.readers.xla.xplane import READER


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CommonPjRtLoadedExecutable::Execute (jit_step)", True),
        ("CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice", True),
        ("TfrtCpuExecutable::ExecuteHelper", True),
        ("[1] CommonPjRtLoadedExecutable::Execute (jit_step)", False),
        ("CommonPjRtLoadedExecutable::ExecutePrepare", False),
        ("ThunkExecutor::Execute (wait for completion)", False),
    ],
)
def test_calls_are_known_by_name(name, expected):
    """Calls for one of several devices, and parts of calls, are none."""
    assert is_call(name) is expected


class Host:
    """Threads that write what a profiler would see; every event is a row."""

    def __init__(self):
        self.rows, self.begins, self.givers, self.calls = [], [], [], []

    def event(self, line, start, dur=1, run=None, device=-1, program=-1):
        self.rows.append((start, dur, line, run, device, program))
        return len(self.rows) - 1

    def events(self):
        start, dur, line, run, device, program = zip(*self.rows, strict=True)
        whole = [np.array(column, np.int64) for column in (start, dur, line)]
        has_run = np.array([one is not None for one in run], bool)
        numbers = np.array([one or 0 for one in run], np.int64)
        about = [np.array(column, np.int64) for column in (program, device)]
        rows = [np.array(one, np.intp) for one in (self.calls, self.begins, self.givers)]
        return HostEvents(*whole, numbers, has_run, *about, *rows)


def job(random, devices, programs, numbered, since=0):
    """A host that launches programs, each as soon as it may, and a pool of threads that runs them.

    A program waits for the one before it on its device. If that has ended the caller gives it to
    the pool, with a link; else the thread that ends the one before goes on with it, in its region.

    Args:
        numbered: calls have the numbers of runs.
        since: what begins before is not recorded.

    Returns:
        The events, the operations of every device, and for each operation when it was called.
    """
    host, clock = Host(), 0
    ends = [0] * devices  # of the last program of each device
    threads = [0] * devices  # and its thread
    free = dict.fromkeys(range(1, 5), 0)
    operations = [[] for _ in range(devices)]
    called, runs = {}, [1000 * program - 20 for program in range(programs)]

    def event(line, start, *about, **more):
        return host.event(line, start, *about, **more) if start >= since else -1

    for _ in range(40):
        clock += random.choice((3, 5, 300))
        program = random.randrange(programs)
        run = runs[program]
        runs[program] += 1
        event(0, clock - 1, 6, program=program)
        if (call := event(0, clock, 4, run if numbered else None)) >= 0:
            host.calls.append(call)
        for device in range(devices):
            given = clock + 1 + device % 3
            if ends[device] < given:
                thread = min(free, key=lambda t: (free[t] > given, random.random()))
                begin = max(free[thread], given) + random.choice((0, 1, 7))
                giver, region = event(0, given, 0), event(thread, begin, 0)
                if min(giver, region) >= 0:
                    host.givers.append(giver)
                    host.begins.append(region)
            else:
                thread = threads[device]
                begin = max(free[thread], ends[device])
            for _ in range(random.randint(1, 3)):
                length = random.choice((1, 20, 90))
                row = event(thread, begin + 1, length, run, device, program)
                if row >= 0:
                    operations[device].append(row)
                    called[row] = clock
                begin += 1 + length
            ends[device], threads[device] = begin, thread
            free[thread] = begin + 1
        clock += 4
    return host.events(), operations, called


@pytest.mark.parametrize("since", [0, 800])
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize(("devices", "programs"), [(1, 1), (1, 2), (3, 2)])
def test_no_launch_is_wrong(devices, programs, numbered, since):
    """By whatever it is known, a program belongs to its own call; with one device, or calls with
    numbers, all are known, if all were recorded."""
    told = wrong = every = 0
    for seed in range(40):
        events, operations, called = job(Random(seed), devices, programs, numbered, since)
        for rows in operations:
            found = launches(events, np.array(rows, np.intp))
            begun = np.array([called[row] for row in rows])
            time = events.start[found]
            wrong += int(((found >= 0) & ((time < begun) | (time > begun + 4))).sum())
            told += int((found >= 0).sum())
            every += len(rows)
    assert not wrong
    assert told > 0.2 * every
    if not since and (numbered or devices == 1):
        assert told == every


def test_calls_of_another_number_of_programs_say_nothing():
    """A program that nobody called runs before the first call: orders do not agree."""
    host = Host()
    for run in range(3):
        host.event(1, 10 * run, 5, run, 0)
    host.calls.append(host.event(0, 12))
    assert launches(host.events(), np.arange(3)).tolist() == [-1, -1, -1]


# -- files ---------------------------------------------------------------------------------------

STEPS = ((0, 10), (10, 20), (20, 30))
RUNS = ((12, 40), (55, 40), (100, 40))
"""Programs that run when the host has marked all steps."""


def traced(tmp_path, calls):
    """The trace of a profile in which the host is steps ahead of its one device."""
    plane = Plane("/host:CPU")
    python, pool = plane.line(1, "python"), plane.line(2, "tf_XLAPjRtCpuClient/1")
    for n, (start, end) in enumerate(STEPS):
        plane.add(python, "train", start, end - start, step_num=n, _r=1)
        if calls:
            name = "CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice"
            plane.add(python, name, start + 1, 3)
    for n, (start, dur) in enumerate(RUNS):
        plane.add(pool, "dot.1", start, dur, hlo_op="dot.1", device_ordinal=0, run_id=n - 2)
    (tmp_path / "a.xplane.pb").write_bytes(space(plane))
    return read(READER, tmp_path)


def read(reader, path):
    [source] = sources([str(path)])
    issues = Issues()
    [capture] = resolve(reader.find(source, source.names(), issues), "meta", issues)
    build = TraceBuilder(capture)
    reader.read(capture, build)
    return attribution(steps(build.finish()))


def device_steps(trace):
    return trace.events.step[trace.rows_of(Layer.DEVICE)].tolist()


def test_work_belongs_to_the_step_that_launched_it(tmp_path):
    """However long after it."""
    trace = traced(tmp_path, calls=True)
    assert device_steps(trace) == [0, 1, 2]
    assert (trace.steps.covered == Covered.TIMELINE).all()
    assert not trace.issues.count("launch-unknown")


def test_programs_launched_before_the_recording_are_of_no_step(tmp_path):
    """Their numbers are smaller than those of all calls; times alone would put them into a step."""
    plane = Plane("/host:CPU")
    python, pool = plane.line(1, "python"), plane.line(2, "tf_XLAPjRtCpuClient/1")
    for n, (start, end) in enumerate(STEPS):
        plane.add(python, "train", start, end - start, step_num=n, _r=1)
        name = "CommonPjRtLoadedExecutable::Execute (jit_train)"
        plane.add(python, name, start + 1, 3, run_id=n - 2)
    about = {"hlo_op": "dot.1", "hlo_module": "jit_train", "device_ordinal": 0}
    for n, (start, dur) in enumerate(((1, 5), (7, 4), *RUNS)):
        plane.add(pool, "dot.1", start, dur, run_id=n - 4, **about)
    (tmp_path / "a.xplane.pb").write_bytes(space(plane))
    trace = read(READER, tmp_path)
    assert device_steps(trace) == [-1, -1, 0, 1, 2]
    assert not trace.issues.count("launch-unknown")
    assert (trace.steps.covered == Covered.TIMELINE).all()


def test_nothing_is_said_of_steps_whose_work_is_not_known(tmp_path):
    """Times alone would put the work of two steps into the last."""
    trace = traced(tmp_path, calls=False)
    assert trace.issues.count("launch-unknown") == len(RUNS)
    assert (trace.steps.covered == Covered.NOT).all()


@pytest.mark.parametrize("keys", [("ph", "pid", "name", "args"), ("args", "name", "ph", "pid")])
def test_the_json_of_the_viewer_has_arrows_from_calls(tmp_path, keys):
    """It tells no links; calls have the numbers of programs, or agree with them in order. Writers
    order keys differently."""
    process = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}}
    rows = [{key: process[key] for key in keys}]
    for tid, name in ((1, "python"), (2, "pool")):
        args = {"name": name}
        rows.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": args})

    def event(tid, name, start, dur, **args):
        rows.append(
            {"ph": "X", "pid": 1, "tid": tid, "name": name, "ts": start, "dur": dur, "args": args}
        )

    for n, (start, end) in enumerate(STEPS):
        event(1, "train", start, end - start, step_num=str(n))
        call = "CommonPjRtLoadedExecutable::Execute (jit_step)"
        event(1, call, start + 1, 3, run_id=str(n - 2))
    for n, (start, dur) in enumerate(RUNS):
        event(2, "dot.1", start, dur, hlo_op="dot.1", device_ordinal="0", run_id=str(n - 2))
    (tmp_path / "h.trace.json").write_text(json.dumps({"traceEvents": rows}))
    trace = read(VIEWER_JSON, tmp_path)
    assert len(trace.flows) == len(RUNS)
    assert device_steps(trace) == [0, 1, 2]
