"""What steps lose: generated loops whose losses are known, and what is written of them."""

import json
import re
from pathlib import Path

import pytest
from kineto_files import NCCL, row, write
from rule_cases import CAPACITY, FIRES, passed

import traceconv
from traceconv.analysis.losses import Late, lost
from traceconv.analysis.rank_facts import COPIES, EXPOSED, IDLE, INPUT, LATE, PAUSE, Losses
from traceconv.analysis.rules.findings import judge
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.report.headline import headline

MS = 1_000_000
STEP, STEPS = 100, 6  # ms
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
HOST, STREAM, COPY_STREAM, COMM_STREAM = (900, 900), (0, 7), (0, 8), (0, 20)


def loop(path, rank=0, world=1, **parts):
    """A capture of six steps of 100 ms, each with these parts of it, ms: (from, to).

    Args:
        parts: ``fetch`` on the main thread, ``prefetch`` on another one; ``kernel``, ``copy`` and
            ``comm`` on the device.
    """
    device = {
        "kernel": ("kernel", "gemm", STREAM), "comm": ("kernel", NCCL, COMM_STREAM),
        "copy": ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", COPY_STREAM),
    }  # fmt: skip
    host = {"fetch": HOST, "prefetch": (900, 901)}
    events = []
    for number in range(STEPS):
        at = 1_000_000 + number * STEP * 1000
        mark = f"ProfilerStep#{number + 1}"
        events.append(row("user_annotation", mark, *HOST, at, STEP * 1000))
        for key, (start, end) in parts.items():
            start, length = at + round(start * 1000), round((end - start) * 1000)
            if key in host:
                events.append(row("user_annotation", FETCH, *host[key], start, length))
                continue
            cat, name, (pid, stream) = device[key]
            number_of = len(events) + 1
            call = row("cuda_runtime", "cudaLaunchKernel", *HOST, start, 1, correlation=number_of)
            work = row(cat, name, pid, stream, start, length, device=0, stream=stream,
                       correlation=number_of)  # fmt: skip
            events += [call, work]
    info = {"distributedInfo": {"rank": rank, "world_size": world}}
    return str(write(path / f"rank{rank}.pt.trace.json", events, {"schemaVersion": 1, **info}))


def merged(tmp_path, *paths):
    """The overview of a merge, and what it wrote."""
    out = tmp_path / "out.txt"
    report = traceconv.merge(*paths, out=str(out), mode="detail", analyse=True, force=True)
    return report, out.read_text()


def classes(report):
    return {one["class"]: pytest.approx(one["ms_per_step"]) for one in report.overview["losses"]}


LOOPS = {
    "starved": ({"fetch": (0, 40), "kernel": (40, 98)}, {INPUT: 40, IDLE: 2},
                "Rank 0: 100 ms per step. Lost: waiting for input 40 ms (40 %), "
                "idle 2 ms (2 %)"),
    "communicating": ({"kernel": (0, 50), "comm": (40, 95)}, {EXPOSED: 45, IDLE: 5},
                      "Rank 0: 100 ms per step. Lost: exposed communication 45 ms "
                      "(45 %), idle 5 ms (5 %)"),
    "copying": ({"copy": (0, 60), "kernel": (50, 95)}, {COPIES: 50, IDLE: 5},
                "Rank 0: 100 ms per step. Lost: exposed memory copies 50 ms (50 %), "
                "idle 5 ms (5 %)"),
    "healthy": ({"fetch": (0, 40), "kernel": (0, 99.5)}, {IDLE: 0.5},
                "Rank 0: 100 ms per step. Device busy 99.5 %; no loss above 1 %"),
    "fetching ahead": ({"prefetch": (0, 90), "kernel": (40, 100)}, {IDLE: 40},
                       "Rank 0: 100 ms per step. Lost: idle 40 ms (40 %)"),
    "half hidden": ({"fetch": (10, 60), "copy": (20, 30), "kernel": (50, 100)},
                    {IDLE: 10, INPUT: 30, COPIES: 10},
                    "Rank 0: 100 ms per step. Lost: waiting for input 30 ms (30 %), "
                    "idle 10 ms (10 %), exposed memory copies 10 ms (10 %)"),
}  # fmt: skip
"""Parts of a step, what it loses, and the headline."""


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_loses_what_was_planted(tmp_path, name):
    """In the document, and in the same words with an analysis and without."""
    parts, expected, line = LOOPS[name]
    path = loop(tmp_path, **parts)
    report, _ = merged(tmp_path, path)
    assert classes(report) == expected
    assert (report.overview["headline"], report.lines()[1]) == (line, line)
    plain = traceconv.merge(path, out=str(tmp_path / "plain.txt"))
    assert plain.lines()[1] == line
    assert traceconv.diagnose(path).text().startswith(f"{line}\n")


def written(text, pattern):
    """Milliseconds in which slices with a name are written, from the first one of the steps on."""
    rows = [(int(a), int(b)) for a, b in re.findall(rf'\n    (\d+) \+(\d+) "{pattern}"', text)]
    return {ms for a, n in rows for ms in range(a // MS, (a + n) // MS)}


@pytest.mark.parametrize("name", ["starved", "half hidden", "healthy"])
def test_waiting_is_what_the_written_trace_shows(tmp_path, name):
    """Milliseconds of a fetch that are in no slice of the device, counted one by one."""
    path = loop(tmp_path, **LOOPS[name][0])
    report, text = merged(tmp_path, path)
    fetch = written(text, re.escape(FETCH))
    device = written(text, "gemm") | written(text, "Memcpy HtoD.*")
    table = traceconv.stats(path, by="overlap")["overlap"]
    known = [
        ns for ns, step in zip(table["Input Wait(ns)"], table["Step"], strict=True) if step > 0
    ]
    assert sum(known) == len(fetch - device) * MS
    steps = next(iter(report.as_dict()["notes"].values()))["steps"]
    assert [one["input_wait_ns"] for one in steps] == known


def test_starved_steps_are_not_called_device_bound(tmp_path):
    """Neither that the host keeps up, nor nothing: what they wait for, and how long."""
    found = traceconv.diagnose(loop(tmp_path, fetch=(0, 7), kernel=(7, 100))).findings
    assert [(one.rule.id, one.amount()) for one in found.findings] == [("input-wait", "7 %")]
    assert found.findings[0].ms_per_step == pytest.approx(7)
    assert found.good == ()
    assert "device-busy" in {rule.id for rule in found.quiet}


def test_waiting_for_other_ranks_is_not_called_good(tmp_path):
    """A device that is busy with collectives alone is not what "only faster kernels" is about."""
    found = traceconv.diagnose(loop(tmp_path, kernel=(0, 50), comm=(50, 100))).findings
    assert [one.rule.id for one in found.findings] == ["exposed-communication"]
    assert found.good == ()


def test_a_long_wait_is_named_with_its_steps(tmp_path):
    """Above the limit of msprof-analyze."""
    [found] = traceconv.diagnose(loop(tmp_path, fetch=(0, 18), kernel=(18, 100))).findings.findings
    assert (found.rule.id, found.amount(), found.case.steps) == (
        "input-wait",
        "18 ms",
        [1, 2, 3, 4, 5, 6],
    )
    assert found.text().endswith("; above 10 ms)")


def test_good_utilisation_is_no_finding(tmp_path):
    """It is said, and fails no gate."""
    found = traceconv.diagnose(loop(tmp_path, kernel=(0, 99.5)))
    assert found.findings.findings == ()
    assert not found.findings.at_least("note")
    assert [one.rule.id for one in found.findings.good] == ["device-busy"]
    assert "\ngood: device-busy: rank 0: The device is busy" in found.text()
    assert [one["rule"] for one in found.as_dict()["good"]] == ["device-busy"]


def test_findings_are_sorted_by_what_they_could_save(tmp_path):
    """Communication of 45 ms before 22 ms of idle time, though that rule comes first."""
    path = loop(tmp_path, kernel=(0, 43), comm=(33, 78))
    found = traceconv.diagnose(path).findings.findings
    assert [(one.rule.id, one.ms_per_step) for one in found] == [
        ("exposed-communication", pytest.approx(35, rel=0.06)),
        ("device-idle", pytest.approx(22, rel=0.2)),  # the idle time after the last step is unknown
    ]  # fmt: skip


def test_waiting_for_a_rank_is_taken_out_of_communication(tmp_path):
    """Rank 1 computes 10 ms longer and costs 10 ms per step; rank 0 waits that long, rank 1 never,
    so ranks wait for 5 ms on average."""
    paths = [
        loop(tmp_path, 0, 8, kernel=(0, 50), comm=(50, 80)),
        loop(tmp_path, 1, 8, kernel=(0, 60), comm=(60, 80)),
    ]
    report, _ = merged(tmp_path, *paths)
    assert classes(report) == {IDLE: 20, EXPOSED: 20, LATE: 5}  # with 55 computing: 100
    lost = (
        "Mean of ranks 0-1 (2 of 8 ranks of the job): 100 ms per step. Lost: other exposed "
        "communication 20 ms (20 %), idle 20 ms (20 %), waiting for rank 1 5 ms (5 %)"
    )
    assert report.overview["headline"].endswith(lost)
    assert report.overview["headline"].startswith("Rank 1 costs 10 ms per step (10 %)")
    late = next(one for one in report.overview["findings"] if one["rule"] == "straggler")
    assert late["ms_per_step"] == pytest.approx(10)


def test_waiting_is_taken_from_communication_then_from_idle_time():
    """Each rank waits at most as long as it lost, and every instant counts once: rank 0 waits in
    communication, rank 1 also and rank 2 mostly when idle; rank 3 is late."""
    parts = ((20, 60, 20), (20, 30, 50), (20, 5, 75), (90, 5, 5))
    every = {
        rank: Losses(
            1, known_ns=100 * MS, computing_ns=ns * MS, exposed_ns=exposed * MS, free_ns=free * MS
        )
        for rank, (ns, exposed, free) in enumerate(parts)
    }
    found = lost(every, [Late(3, (0, 1, 2), 60 * MS)])
    assert {one.name: one.ns / MS for one in found} == {LATE: 45, EXPOSED: 1.25, IDLE: 16.25}
    assert headline(every, [Late(3, (0, 1, 2), 60 * MS)]) == (
        "Mean of ranks 0-3: 100 ms per step. Lost: waiting for rank 3 45 ms (45 %), "
        "other idle 16.2 ms (16 %), other exposed communication 1.25 ms (1 %)"
    )
    for wait in (0, 10, 95, 1000):
        late = [Late(3, (0, 1, 2), wait * MS), Late(-1, (0, 1), 40 * MS, stage=1)]
        assert sum(one.ns for one in lost(every, late)) == 62.5 * MS  # the step less computing


def test_waiting_for_a_stage_is_named():
    """Ranks 0 and 1 wait for the other stage."""
    one = Losses(1, known_ns=100 * MS, computing_ns=50 * MS, exposed_ns=50 * MS)
    assert headline(dict.fromkeys(range(4), one), [Late(-1, (0, 1), 30 * MS, stage=1)]) == (
        "Mean of ranks 0-3: 100 ms per step. Lost: other exposed communication 35 ms (35 %), "
        "waiting for stage 1 15 ms (15 %)"
    )


def test_a_pause_is_no_part_of_a_step():
    """Shares are of the step and its part of the gaps where steps do not follow at once."""
    one = Losses(2, known_ns=200_000, free_ns=24_000, pauses=1, pause_ns=300_000)
    assert headline({0: one}) == (
        "Rank 0: step 100 µs + gaps 150 µs = 250 µs. Lost: "
        "gaps between steps 150 µs (60 %), idle 12 µs (5 %)"
    )


def test_a_step_of_several_devices_takes_no_longer(tmp_path):
    """A capture of a process with two devices that do the same: a step is not twice as long."""
    lines = []
    for devices in (1, 2):
        path = Path(loop(tmp_path / str(devices), kernel=(10, 60), comm=(60, 80)))
        content = json.loads(path.read_text())
        work = [one for one in content["traceEvents"] if one.get("cat") == "kernel"]
        for one in work if devices == 2 else ():
            other = {**one, "pid": 1, "args": {**one["args"], "device": 1, "correlation": 0}}
            content["traceEvents"].append(other)
        path.write_text(json.dumps(content))
        lines.append(merged(tmp_path, path)[0].overview["headline"])
    assert lines[0] == lines[1]
    assert "100 ms per step" in lines[0]


def test_pauses_are_beside_the_steps():
    """Per step, as all figures: three steps have two gaps between them."""
    every = {0: Losses(3, known_ns=300, free_ns=30, pauses=2, pause_ns=90)}
    assert {one.name: one.ns for one in lost(every)} == {PAUSE: 30, IDLE: 10}


def test_lengths_per_step_are_means_over_devices():
    """Of a rank with two devices, each idle for 10 of 100 ns."""
    one = Losses(3, known_ns=600, free_ns=60, pauses=2, pause_ns=120, devices=2)
    assert one.step_ns == 100
    assert {loss.name: loss.ns for loss in lost({0: one})} == {PAUSE: 20, IDLE: 10}


def test_few_known_pauses_are_the_least():
    """Of ten steps, one pause: the others are unknown, not 0."""
    every = {0: Losses(10, known_ns=300, free_ns=30, pauses=1, pause_ns=80)}
    assert [(one.name, one.ns, one.bound) for one in lost(every)] == [
        (PAUSE, 8, "least"), (IDLE, 3, "")
    ]  # fmt: skip
    assert headline(every) == (
        "Rank 0: step 0.03 µs + known gaps 0.008 µs = 0.038 µs. Lost: gaps between steps at least "
        "0.008 µs (21 %), idle 0.003 µs (8 %)"
    )


def test_a_saving_is_never_more_than_what_is_lost():
    """On every rank of every case of the rules: by the classes of lost time, recomputed."""
    for rule, builders in FIRES.items():
        parts = [summarize(passed(one), SummaryRequest(rules=[rule])) for one in builders]
        told = judge(parts, CAPACITY if rule == "memory-capacity" else {}, [rule])
        for found in (*told.findings, *told.minor):
            steps = passed(builders[found.rank]).steps
            steps = steps.take(steps.known_ns > 0)
            if found.ms_per_step is None or not len(steps):
                continue
            pauses = steps.pause_ns[steps.pause_ns > 0]
            assert found.ms_per_step * 1e6 <= max(
                float((steps.known_ns).mean()), *(pauses.tolist() or [0])
            )


def test_what_is_not_known_is_not_summed_up():
    """Ranks without device work do not lower the means; without any, nothing is said."""
    every = {0: Losses(1, known_ns=100, free_ns=30), 1: Losses()}
    assert [(one.name, one.ns) for one in lost(every)] == [(IDLE, 30)]
    assert lost({1: Losses()}) == []
    line = headline({0: Losses(), 1: Losses()}, [Late(1, (0,), 3 * MS)], group_size=4)
    assert line == (
        "Ranks 0-1 (2 of 4 ranks of the group): rank 1 costs 3 ms per step; computing was "
        "not fully recorded in any step, so losses are unknown"
    )


def stated(folder, *preparing):
    """Tables alone: steps of 100 ms, 40 of them idle before Preparing."""
    head = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Preparing"
    rows = [f"{n},60000,0,0,0,40000,{one}" for n, one in enumerate(preparing)]
    table = folder / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    table.parent.mkdir(parents=True)
    table.write_text("\n".join([head, *rows]) + "\n")
    (folder / "a_ascend_pt" / "profiler_info_0.json").write_text('{"rank_id": 0}')
    return str(folder)


def test_waiting_for_input_known_of_some_steps_is_the_least_there_was(tmp_path):
    """Two of four steps say how long they prepared: the text calls the mean of all a bound, and the
    share is that of the two."""
    found = traceconv.diagnose(stated(tmp_path, 30_000, "", 10_000, ""))
    # Preparing of a step that follows another one is part of its Free: 130 and 100 ms
    assert "waiting for input at least 10 ms" in found.headline, found.headline
    assert "idle at most" in found.headline
    told = found.as_dict()["findings"]
    (idle,) = [one["figures"] for one in told if one["rule"] == "device-idle"]
    assert idle["input_wait_percent"] == pytest.approx(100 * 40 / 230)


def test_bounds_of_input_are_of_jobs_with_ranks_of_which_nothing_is_known():
    """One rank says so of all its steps, the other of none: nobody knows the mean."""
    known = Losses(2, known_ns=200, computing_ns=100, free_ns=100, input_ns=80, input_steps=2)
    nothing = Losses(2, known_ns=200, computing_ns=100, free_ns=100)
    bounds = {one.name: one.bound for one in lost({0: known, 1: nothing})}
    assert bounds == {
        INPUT: "least", IDLE: "most"
    }  # fmt: skip
    assert {one.bound for one in lost({0: known, 1: known})} == {""}


def test_a_step_that_was_not_recorded_loses_nothing_that_is_known(tmp_path):
    """Selected alone: what the whole rank lost says nothing of it."""
    path = loop(tmp_path, kernel=(0, 40))
    content = json.loads(Path(path).read_text())
    late = 1_000_000 + STEPS * STEP * 1000
    content["traceEvents"].append(row("user_annotation", "ProfilerStep#9", *HOST, late, 1000))
    Path(path).write_text(json.dumps(content))
    for steps, words in (("1", "100 ms per step"), ("9", "was not fully recorded in any step")):
        found = traceconv.diagnose(path, steps=steps)
        assert words in found.headline, found.headline
        rules = {one["rule"] for one in found.as_dict()["findings"]}
        assert ("device-idle" in rules) == (steps == "1")


def test_waiting_of_operations_is_shared_out_to_the_steps_that_are_stated(tmp_path):
    """Tables alone: two steps, 80 ms of waiting; and no count where no table knows the steps."""
    path = stated(tmp_path, 0, 0)
    times = {
        "Start Timestamp(us)": 5.0, "Elapse Time(ms)": 90, "Transit Time(ms)": 10,
        "Wait Time(ms)": 80, "Synchronization Time(ms)": 80, "Idle Time(ms)": 0,
        "Wait Time Ratio": 0.8, "Synchronization Time Ratio": 0.8,
    }  # fmt: skip
    operation = {"hcom_allReduce__1_0_1@17": {"Communication Time Info": times}}
    table = Path(path) / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    table.with_name("communication.json").write_text(
        json.dumps({"step0": {"collective": operation}})
    )
    for known in (True, False):
        told = traceconv.diagnose(path).as_dict()  # steps that lose nothing have nothing to save
        (waits,) = [
            one
            for one in told["minor" if known else "findings"]
            if one["rule"] == "communication-wait"
        ]
        assert waits["figures"].get("steps") == (2 if known else None)
        assert waits["figures"]["wait_ns"] == 80 * MS
        table.unlink(missing_ok=True)
