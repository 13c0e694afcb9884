"""Processes and ranks by evidence, and refusals whose advice works."""

import json
import re

import pytest

import traceconv
from traceconv.core.errors import RankError

BASE = 1_740_816_000_000_000_000


def kineto(path, at_us=0, *, pid=None, device=0, **header):
    """A PyTorch trace with two kernels, and a host row if its process is known."""
    kernels = [
        {"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": device, "tid": 7, "ts": at_us + 50 * i,
         "dur": 20, "args": {"device": device, "stream": 7}}
        for i in range(2)
    ]  # fmt: skip
    host = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": pid, "tid": 1, "ts": at_us, "dur": 5}
    path.parent.mkdir(parents=True, exist_ok=True)
    events = [*kernels, host] if pid else kernels
    record = {"schemaVersion": 1, "baseTimeNanoseconds": BASE, **header, "traceEvents": events}
    path.write_text(json.dumps(record))


def ranks(folder, **options):
    opened = traceconv.open(folder, **options)
    found = {one.rank: one.title.removeprefix(f"{folder}/") for one in opened.found}
    return found, [one.file for one in opened.issues if one.code == "rank-derived"]


def test_hosts_in_the_names_of_tensorboard_tell_equal_processes_apart(tmp_path):
    """The name has the process id of the events behind the host."""
    for host in (12, 7):
        for device in (0, 1):
            name = f"ip-10-0-1-{host}_{4021 + device}.173260000100{device}0000{host:02}"
            kineto(tmp_path / f"{name}.pt.trace.json", pid=4021 + device, device=device)
    found, derived = ranks(tmp_path)
    assert [title.split(".")[0] for _, title in sorted(found.items())] == [
        "ip-10-0-1-7_4021", "ip-10-0-1-7_4022", "ip-10-0-1-12_4021", "ip-10-0-1-12_4022",
    ]  # fmt: skip
    assert derived == ["ranks 0-3, by host and device"]


def test_captures_of_one_process_that_follow_each_other_are_windows(tmp_path):
    """Nothing names a rank: equal process ids are one process, which is rank 0."""
    for number, at_us in enumerate((9_000_000, 0)):
        kineto(tmp_path / f"profile{number}.json", at_us, pid=50)
    [capture] = traceconv.open(tmp_path).found
    assert (capture.rank, capture.rank_from, len(capture.parts)) == (0, "assumed", 2)


def test_equal_process_ids_at_one_time_are_two_processes(tmp_path):
    """Containers number processes alike; the numbers in their names are the ranks."""
    for number in (0, 1):
        kineto(tmp_path / str(1 - number) / "trace.json", number, pid=50)
    assert ranks(tmp_path) == (
        {0: "0/trace.json", 1: "1/trace.json"}, ["ranks 0-1, by numbers in paths"]
    )  # fmt: skip


def ascend(folder, at_us):
    """What torch_npu writes in a container, whose processes are numbered alike."""
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    name = {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}}
    task = {"ph": "X", "name": "MatMul", "pid": 9, "tid": 1, "dur": 300.5,
            "args": {"Task Type": "AI_CORE"}}  # fmt: skip
    rows = [{**task, "ts": f"{BASE // 1000 + at_us + 1000 * n}.000"} for n in range(5)]
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text(json.dumps([name, *rows]))
    (folder / "profiler_info_0.json").write_text('{"rank_id": 0}')


@pytest.mark.parametrize(("apart_us", "processes"), [(40, 2), (9_000_000, 1)])
def test_folders_of_equal_process_ids_are_windows_unless_they_overlap(
    tmp_path, apart_us, processes
):
    """Pods number processes, devices and ranks alike. No reader joins them by their names."""
    for number, pod in enumerate(("blue", "red")):
        name = f"localhost_100_2024112606491{number}002_ascend_pt"
        ascend(tmp_path / pod / name, apart_us * number)
    opened = traceconv.open(tmp_path)
    if processes == 1:
        (trace,) = opened.traces()
        assert len(trace.windows) == 2
    else:
        with pytest.raises(RankError, match="they ran at the same time"):
            list(opened.traces())
        assert sorted(ranks(tmp_path, rank_from="order")[0]) == [0, 1]


def test_paths_that_differ_in_their_time_are_windows_of_one_process(tmp_path):
    """Sessions of a profiler, each in a folder that its time names."""
    for number, at_us in enumerate((9_000_000, 0)):
        kineto(tmp_path / f"profile/2024_11_26_06_49_{20 - number}/host.json", at_us)
    [capture] = traceconv.open(tmp_path).found
    assert (capture.rank, capture.rank_from, len(capture.parts)) == (0, "assumed", 2)


@pytest.mark.parametrize(
    ("names", "derived"),
    [
        (["2/a.json", "0/a.json", "1/a.json"], "ranks 0-2, by numbers in paths"),
        (["2/a.json", "0/a.json"], "ranks 0,2, by numbers in paths"),  # one is lost
        (["profile_1.json", "profile_0.json"], "ranks 0-1, by numbers in paths"),
        (["step_1.json", "step_0.json"], "ranks 0-1, by device"),
        (["node12.json", "node7.json"], "ranks 0-1, by device"),
        (["t_06_49_1.json", "t_06_49_0.json"], "ranks 0-1, by device"),
    ],
)
def test_numbers_in_paths_are_ranks_if_they_count_from_0(tmp_path, names, derived):
    """Of folders (``%rank%``) and files; steps and large numbers are not."""
    for device, name in enumerate(names):
        kineto(tmp_path / name, pid=900 - device, device=device)
    found, why = ranks(tmp_path)
    assert why == [derived]
    if "paths" in derived:
        assert all(str(rank) in title for rank, title in found.items())


def test_a_stated_rank_is_never_contradicted(tmp_path):
    """Devices are no evidence if a file states another rank."""
    kineto(tmp_path / "a.json", pid=1000, device=0, distributedInfo={"rank": 1})
    kineto(tmp_path / "b.json", pid=1001, device=1)
    with pytest.raises(RankError, match="the rank of 1 of 2 captures is unknown"):
        traceconv.open(tmp_path)


def test_equal_ranks_of_two_servers_are_two_jobs(tmp_path):
    """Their groups have the same names, and nothing is compared between them."""
    job = {"world_size": 2, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg"}]}
    rows = [("gemm", 7, 0), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 350)]
    for device in range(4):
        rank, late_us = device % 2, 30 * (device > 1)
        events = [
            {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream,
             "dur": 40 + late_us * (name == "gemm"), "ts": 1000 * n + 7 * n * n + at_us + late_us,
             "args": {"device": device, "stream": stream}}
            for n in range(8)
            for name, stream, at_us in rows
        ]  # fmt: skip
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 99,
             "tid": 7, "ts": 1000 * n + 7 * n * n, "dur": 900}
            for n in range(8)
        ]  # fmt: skip
        record = {"schemaVersion": 1, "baseTimeNanoseconds": BASE, "traceEvents": events}
        path = tmp_path / ("decode" if late_us else "prefill") / f"rank{rank}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**record, "distributedInfo": {**job, "rank": rank}}))
    found = traceconv.open(tmp_path).found
    assert [one.placement.job for one in found] == [((0, 0), (1, 1))] * 2 + [((0, 2), (1, 3))] * 2
    assert traceconv.stragglers(tmp_path).verdict.culprits == ()
    found_in_text, _, fine = traceconv.diagnose(tmp_path).text(every=True).partition("checked,")
    assert "-spread" not in found_in_text and "compute-spread, idle-spread" in fine
    for out in (tmp_path / "out.pftrace", tmp_path / "out.json"):
        traceconv.merge(tmp_path, out=out)
        again = traceconv.open(out).found
        assert [one.placement.job for one in again] == [one.placement.job for one in found]


def test_a_later_window_is_of_the_process_in_its_folder(tmp_path):
    """Replicas in containers are alike in all traits; only one of them was recorded twice."""
    for replica, at_us in ((0, 0), (1, 4), (2, 8), (1, 9_000_000)):
        header = {"distributedInfo": {"rank": 0}}
        name = "late.json" if at_us > 1000 else "first.json"
        kineto(tmp_path / f"replica-{replica}" / name, at_us, pid=1, **header)
    found = traceconv.open(tmp_path).found
    assert [len(one.parts) for one in found] == [0, 2, 0]
    assert ["replica-1" in one.title for one in found[1].parts] == [True] * 2


def test_servers_over_hosts_have_ranks_without_gaps(tmp_path):
    """Each host has one process, and the ranks that these state differ between hosts."""
    for number in range(4):
        header = {"distributedInfo": {"rank": number % 2}}
        name = f"h{number}_77.173260000000000000{number}.pt.trace.json"
        kineto(tmp_path / name, number, pid=77, **header)
    found = traceconv.open(tmp_path).found
    assert [one.rank for one in found] == [0, 1, 2, 3]
    assert [one.placement.job for one in found] == [((0, 0), (1, 1))] * 2 + [((0, 2), (1, 3))] * 2


def test_what_sglang_merged_is_not_read_beside_its_parts(tmp_path):
    """The merged file has the same rows again; alone, it is read."""
    for name, rank in (("17.5-TP-0", 0), ("17.5-TP-1", 1)):
        kineto(tmp_path / f"{name}-EXTEND.trace.json", device=rank, pid=83)
    merged = json.loads((tmp_path / "17.5-TP-0-EXTEND.trace.json").read_text())
    parts = [
        dict(row, pid=f"[TP0{n}] {row['pid']}") for n in (0, 1) for row in merged["traceEvents"]
    ]
    path = tmp_path / "merged-17.5-EXTEND.trace.json"
    path.write_text(json.dumps({**merged, "traceEvents": parts}))
    found, _ = ranks(tmp_path)
    assert list(found) == [0, 1]
    assert not any("merged" in title for title in found.values())
    assert sorted(ranks(path)[0]) == [0, 1]


def test_workers_of_viztracer_are_on_unix_time(tmp_path):
    """Their base follows the events, and the process id is real: they ran together."""
    for pid in (5001, 5002):
        row = {"ph": "X", "cat": "FEE", "name": "f", "pid": pid, "tid": pid, "ts": 7.5, "dur": 90}
        about = {"version": "1.0.4", "baseTimeNanoseconds": BASE}
        record = {"traceEvents": [row], "viztracer_metadata": about}
        (tmp_path / f"result_{pid}.json").write_text(json.dumps(record))
    assert ranks(tmp_path)[1] == ["ranks 0-1, by pid"]
    starts = [one.events.start_ns.tolist() for one in traceconv.open(tmp_path).traces()]
    assert starts == [[BASE + 7500]] * 2


def _two_without_anything(folder):
    for name in ("blue", "red"):
        kineto(folder / f"{name}.json")


def _two_at_one_time(folder):
    for number, name in enumerate(("blue", "red")):
        kineto(folder / f"{name}.json", 3 * number, distributedInfo={"rank": 0})


def _numbers(folder):
    for number in (3, 4):
        kineto(folder / f"epoch_{number}.json")


def _without_clock(folder):
    for name in ("blue", "red"):
        rows = [{"ph": "X", "name": name, "pid": 7, "tid": 1, "ts": 5, "dur": 3}]
        (folder / f"{name}-rank0.json").write_text(json.dumps({"traceEvents": rows}))


@pytest.mark.parametrize(
    "made", [_two_without_anything, _two_at_one_time, _numbers, _without_clock]
)
def test_advice_of_a_refusal_works(tmp_path, made):
    """Every option in quotes that is no placeholder gives each capture a rank."""
    made(tmp_path)
    with pytest.raises(RankError) as refused:
        list(traceconv.open(tmp_path).traces())
    advice = dict(re.findall(r'`(\w+)="(\w+)"`', str(refused.value)))
    assert advice
    for option, value in advice.items():
        assert len(list(traceconv.open(tmp_path, **{option: value}).traces())) == 2
