"""Write the bundled sample: two ranks of an invented training job, as MindSpore 2.4+ leaves them.

    python examples/make_sample.py golden/trace_view/demo/input

Graph 1 trains, with two all-reduces per step; graph 2 evaluates meanwhile.
Rank 1 is slow in the backward pass - worst in step 2, when its clock drops - so rank 0 waits for
it inside the all-reduce. The same call writes the same bytes on every machine.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

EPOCH_NS = 1_740_816_000_000_000_000  # 2025-03-01 08:00 UTC
STEP_NS = 6_500_000
STEPS = (1, 2, 3)
NO_MODEL = 4294967295
NET = "Default/network-TrainOneStepCell/network-WithLossCell/_backbone-SmallNet"
GRADIENT = "Gradients/" + NET

FORWARD = (
    (f"{NET}/embedding-Embedding/Gather-op11", "AI_VECTOR_CORE", 61_000),
    (f"{NET}/block1-Block/dense-Dense/MatMul-op12", "AI_CORE", 338_000),
    (f"{NET}/block1-Block/act-GELU/GeLU-op13", "AI_VECTOR_CORE", 47_000),
    (f"{NET}/block2-Block/dense-Dense/MatMul-op14", "AI_CORE", 352_000),
    (f"{NET}/block2-Block/act-GELU/GeLU-op15", "AI_VECTOR_CORE", 46_000),
    (f"{NET}/head-Dense/MatMul-op16", "AI_CORE", 214_000),
)
BACKWARD = (
    (f"{GRADIENT}/head-Dense/gradMatMul/MatMul-op21", "AI_CORE", 391_000),
    (f"{GRADIENT}/block2-Block/act-GELU/gradGeLU/GeLUGrad-op22", "AI_VECTOR_CORE", 58_000),
    (f"{GRADIENT}/block2-Block/dense-Dense/gradMatMul/MatMul-op23", "AI_CORE", 655_000),
    (f"{GRADIENT}/block1-Block/act-GELU/gradGeLU/GeLUGrad-op24", "AI_VECTOR_CORE", 57_000),
    (f"{GRADIENT}/block1-Block/dense-Dense/gradMatMul/MatMul-op25", "AI_CORE", 672_000),
    (f"{GRADIENT}/embedding-Embedding/gradGather/UnsortedSegmentSum-op26", "MIX_AIV", 93_000),
)
UPDATE = tuple(
    (f"Default/optimizer-AdamWeightDecay/Adam-op{n}", "AI_VECTOR_CORE", 74_000)
    for n in (31, 32, 33)
)
EVALUATE = (
    ("Default/network-EvalNet/head-Dense/MatMul-op41", "AI_CORE", 262_000),
    ("Default/network-EvalNet/softmax-Softmax/Softmax-op42", "AI_VECTOR_CORE", 39_000),
    ("Default/network-EvalNet/metric-Accuracy/ReduceMean-op43", "AI_VECTOR_CORE", 21_000),
)
REDUCE_AFTER = (2, 5)  # backward kernels whose gradients the two all-reduces send
REDUCE_NS = (820_000, 430_000)
STREAM_OF = {1: 2, 2: 4}
LAUNCH_THREAD = {1: 77, 2: 78}  # added to the process id


@dataclass(frozen=True)
class Kernel:
    """A device task with an operator: its graph, place and duration."""

    name: str
    task_type: str
    graph: int
    start_ns: int
    dur_ns: int

    @property
    def end_ns(self) -> int:
        """When it ends."""
        return self.start_ns + self.dur_ns


@dataclass
class Step:
    """One step of one rank. ``reduces`` are (start, end) of its all-reduces."""

    number: int
    start_ns: int
    kernels: list[Kernel] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    reduces: list[tuple[int, int]] = field(default_factory=list)

    def of(self, graph: int) -> list[Kernel]:
        """The kernels of one graph."""
        return [k for k in self.kernels if k.graph == graph]


def slowness(rank: int, step: int) -> tuple[int, int]:
    """By how much a rank's backward pass is slower, as a fraction."""
    return (1, 1) if rank == 0 else (13, 10) if step == 2 else (112, 100)


def run_step(rank: int, number: int, dice: random.Random) -> Step:
    """Lay out a step's kernels up to the point where the all-reduces decide."""
    step = Step(number, EPOCH_NS + 2_000_000 + (number - 1) * STEP_NS)
    at = step.start_ns + 310_000 + int(dice.random() * 20_000)
    up, down = slowness(rank, number)
    for i, (name, kind, usual) in enumerate(FORWARD + BACKWARD):
        dur = usual + int(dice.random() * usual / 50)
        if i >= len(FORWARD):
            dur = dur * up // down
        step.kernels.append(Kernel(name, kind, 1, at, dur))
        at += dur + 400 + int(dice.random() * 900)
        if i - len(FORWARD) in REDUCE_AFTER:
            step.ready.append(at + 9_000)
    return step


def finish_step(step: Step, others_ready: list[int], dice: random.Random) -> None:
    """Add what comes after the all-reduces, which end together on all ranks."""
    for ready, other, dur in zip(step.ready, others_ready, REDUCE_NS, strict=True):
        free = step.reduces[-1][1] + 4_000 if step.reduces else 0
        step.reduces.append((max(ready, free), max(ready, other, free) + dur))
    at = step.reduces[0][1] + 35_000
    for name, kind, usual in EVALUATE:
        dur = usual + int(dice.random() * usual / 40)
        step.kernels.append(Kernel(name, kind, 2, at, dur))
        at += dur + 700
    at = step.reduces[-1][1] + 12_000
    for name, kind, usual in UPDATE:
        step.kernels.append(Kernel(name, kind, 1, at, usual))
        at += usual + 600


def us(ns: int) -> str:
    """Microseconds as newer CANN writes them: text with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def length(ns: int) -> float:
    """Microseconds of a duration, as a JSON number."""
    return ns / 1000


class Writer:
    """Collects one rank's trace events in the order msprof and MindSpore write them."""

    def __init__(self, rank: int, pid: int) -> None:
        self.rank, self.pid = rank, pid
        self.events: list[dict[str, Any]] = []
        self.connection = 900
        self.task = 11_000

    def process(self, sort: int, name: str, label: str, threads: dict[int, str]) -> int:
        """Declare a process of the device side; its encoded pid."""
        pid = self.pid << 10 | sort << 5 | (self.rank if label == "NPU" else 31)
        self.declare(pid, sort, name, label, threads)
        return pid

    def declare(self, pid: int, sort: int, name: str, label: str, threads: dict[int, str]) -> None:
        """Write the metadata records of a process."""
        self.meta("process_name", pid, 0, name=name)
        self.meta("process_labels", pid, 0, labels=label)
        self.meta("process_sort_index", pid, 0, sort_index=sort)
        for tid, thread in threads.items():
            self.meta("thread_name", pid, tid, name=thread)
            self.meta("thread_sort_index", pid, tid, sort_index=tid)

    def meta(self, record: str, pid: int, tid: int, /, **args: Any) -> None:
        """Write one metadata record."""
        self.events.append({"name": record, "pid": pid, "tid": tid, "args": args, "ph": "M"})

    def slice(
        self, pid: int, tid: int, name: str, start_ns: int, dur: float | str, **rest: Any
    ) -> None:
        """Write a complete event."""
        head = {"name": name, "pid": pid, "tid": tid, "ts": us(start_ns), "dur": dur}
        self.events.append({**head, **rest, "ph": "X"})

    def arrow(
        self, category: str, name: str, number: str, start: tuple[int, int, int],
        end: tuple[int, int, int],
    ) -> None:  # fmt: skip
        """Write both ends, each (pid, tid, ns), of a launch arrow."""
        for phase, (pid, tid, at) in (("s", start), ("f", end)):
            event = {"name": name, "ph": phase, "cat": category, "id": number, "pid": pid}
            binding = {"bp": "e"} if phase == "f" else {}
            self.events.append({**event, "tid": tid, "ts": us(at), **binding})

    def sample(self, pid: int, name: str, at_ns: int, series: str, value: float) -> None:
        """Write a counter sample."""
        event = {"name": name, "ts": us(at_ns), "pid": pid, "tid": 0}
        self.events.append({**event, "args": {series: value}, "ph": "C"})


def write_rank(rank: int, pid: int, steps: list[Step], dice: random.Random) -> list[dict[str, Any]]:
    """All trace events of one rank."""
    out = Writer(rank, pid)
    host = {pid: f"Thread {pid}", **{pid + n: f"Thread {pid + n}" for n in LAUNCH_THREAD.values()}}
    out.declare(1, 1, "MindSpore", "CPU", host)
    out.declare(3, 12, "Scope Layer", "NPU", {depth: f"Thread {depth}" for depth in range(3)})
    streams = {n: f"Stream {n}" for n in (2, 3, 4, 5)}
    lanes = {70000 + graph: f"Step Trace(Model ID:{graph})" for graph in STREAM_OF}
    hardware = out.process(13, "Ascend Hardware", "NPU", {**streams, **lanes})
    planes = {0: "Group 0 Communication", 1: "Plane 0", 2: "Plane 1"}
    hccl = out.process(15, "HCCL", "NPU", planes)
    cann = out.process(7, "CANN", "CPU", {t: n for t, n in host.items() if t != pid})
    for step in steps:
        out.slice(
            1,
            pid,
            f"ProfilerStep#{step.number}",
            step.start_ns,
            us(STEP_NS - 350_000),
            cat="cpu_op",
        )
        write_copy(out, hardware, step)
        for kernel in step.kernels:
            write_kernel(out, hardware, cann, kernel, dice)
        for index, (start, end) in enumerate(step.reduces):
            write_reduce(out, hardware, hccl, cann, step, index, start, end)
        write_scopes(out, step)
    for graph in STREAM_OF:
        write_step_trace(out, hardware, graph, steps)
    write_overlap(out, steps)
    write_counters(out, steps, dice)
    return out.events


def write_copy(out: Writer, hardware: int, step: Step) -> None:
    """The step's input, copied to the device."""
    args = {"Model Id": NO_MODEL, "Task Type": "PCIE_DMA_SQE", "Physic Stream Id": 3,
            "Task Id": step.number, "Batch Id": 0, "Subtask Id": NO_MODEL, "connection_id": 0,
            "size(B)": 2 << 20, "bandwidth(GB/s)": 21.6, "operation": "host to device"}  # fmt: skip
    out.slice(hardware, 3, "MEMCPY_ASYNC", step.start_ns + 150_000, 97.0900625, args=args)


def write_kernel(
    out: Writer, hardware: int, cann: int, kernel: Kernel, dice: random.Random
) -> None:
    """A kernel, its launch on the host twice over (framework and CANN), and the arrows."""
    out.connection += 1
    out.task += 1
    stream = STREAM_OF[kernel.graph]
    thread = out.pid + LAUNCH_THREAD[kernel.graph]
    launch = kernel.start_ns - 21_000 - int(dice.random() * 400)
    out.slice(
        1, thread, f"RuntimeFramework::KernelLaunch::{kernel.name}", launch, "17.310", cat="cpu_op"
    )
    mode = {"Thread Id": thread, "Mode": "launch", "level": "node", "id": "0"}
    item = {"item_id": kernel.name.rsplit("/", 1)[1], "connection_id": out.connection}
    out.slice(cann, thread, "Node@launch", launch + 3_100, 9.58, args={**mode, **item})
    args = {"Model Id": kernel.graph, "Task Type": kernel.task_type, "Physic Stream Id": stream,
            "Task Id": out.task, "Batch Id": 0, "Subtask Id": NO_MODEL,
            "connection_id": out.connection}  # fmt: skip
    out.slice(hardware, stream, kernel.name, kernel.start_ns, length(kernel.dur_ns), args=args)
    end = hardware, stream, kernel.start_ns
    number = str(out.connection)
    out.arrow("HostToDevice", "HostToDevice" + number, number, (cann, thread, launch + 3_100), end)
    out.arrow("async_npu", "mindspore_to_npu", us(kernel.start_ns), (1, thread, launch), end)


def write_reduce(
    out: Writer, hardware: int, hccl: int, cann: int, step: Step, index: int, start: int, end: int
) -> None:
    """An all-reduce: the operator, its tasks on two planes and on the stream, its launch."""
    out.connection += 1
    name = f"hcom_allReduce__381_{(step.number - 1) * 2 + index}_1"
    thread, launch = out.pid + LAUNCH_THREAD[1], start - 16_000
    mode = {"Thread Id": thread, "Mode": "hcom_allReduce_", "level": "hccl", "id": "0"}
    out.slice(cann, thread, "Hccl@hcom_allReduce_", launch, 8.12,
              args={**mode, "item_id": name, "connection_id": out.connection})  # fmt: skip
    out.slice(hccl, 0, name, start, length(end - start), args={
        "connection_id": out.connection, "model id": 1, "data_type": "FP16",
        "alg_type": "MESH-RING", "count": 4_194_304})  # fmt: skip
    number = str((out.connection << 32) - 1)
    out.arrow(
        "HostToDevice", "HostToDevice" + number, number, (cann, thread, launch), (hccl, 0, start)
    )
    send = REDUCE_NS[index] * 2 // 3
    tasks = (
        ("Notify_Wait", start, end - send - 31_000),
        ("Memcpy", end - send - 30_000, end - 30_000),
        ("Reduce_Inline", end - 29_000, end - 2_000),
        ("Notify_Record", end - 1_900, end),
    )
    for plane in (0, 1):
        for task, first, last in tasks:
            write_task(out, hccl, plane, task, first, last)
    wait = {"Model Id": 1, "Task Type": "Notify Wait", "Physic Stream Id": 5, "Task Id": index,
            "Batch Id": 0, "Subtask Id": 0, "connection_id": out.connection}  # fmt: skip
    out.slice(hardware, 5, "Notify Wait", start, length(tasks[0][2] - start), args=wait)


def write_task(out: Writer, hccl: int, plane: int, task: str, first: int, last: int) -> None:
    """One task of a plane. Link durations carry digits below the nanosecond, as real ones do."""
    moves = task in ("Memcpy", "Reduce_Inline")
    args = {
        "notify_id": str(18446744073709551615 if moves else 40 + plane),
        "duration estimated(us)": length(last - first) * 0.98 if moves else 0.02,
        "stream id": 5 + plane, "task id": plane, "context id": NO_MODEL, "task type": task,
        "src rank": out.rank, "dst rank": 1 - out.rank if moves else NO_MODEL,
        "transport type": "SDMA" if moves else "LOCAL", "size(Byte)": 4_194_304 if moves else 0,
        "data type": "FP16" if moves else "INVALID_TYPE",
        "link type": "HCCS" if moves else "INVALID_TYPE",
        "bandwidth(GB/s)": 18.4 if moves else 0.0, "model id": 1,
    }  # fmt: skip
    dur = f"{us(last - first)}03125" if task == "Memcpy" else us(last - first)
    out.slice(hccl, 1 + plane, task, first + plane * 40, float(dur), args=args)


def write_scopes(out: Writer, step: Step) -> None:
    """The module scopes of the training graph, three deep: runs of kernels below one path."""
    open_scopes: dict[int, tuple[str, int, int]] = {}
    for kernel in step.of(1):
        path = kernel.name.split("/")[:-1][:3]
        for depth, scope in enumerate(path):
            known = open_scopes.get(depth)
            if known and known[0] == scope:
                open_scopes[depth] = scope, known[1], kernel.end_ns
                continue
            for deeper in [d for d in sorted(open_scopes) if d >= depth]:
                close_scope(out, deeper, *open_scopes.pop(deeper))
            open_scopes[depth] = scope, kernel.start_ns, kernel.end_ns
    for depth, last in sorted(open_scopes.items()):
        close_scope(out, depth, *last)


def close_scope(out: Writer, depth: int, name: str, start: int, end: int) -> None:
    """One slice of the Scope Layer."""
    out.slice(3, depth, name, start, length(end - start))


def write_step_trace(out: Writer, hardware: int, graph: int, steps: list[Step]) -> None:
    """The step trace of one graph; only the training graph knows forward and backward."""
    tid = 70000 + graph
    for step in steps:
        n, kernels = step.number, step.of(graph)
        start, end = kernels[0].start_ns - 6_130, kernels[-1].end_ns + 2_870
        args = {"Iteration ID": n, "FP Start": "N/A", "BP End": "N/A", "Iteration End": us(end),
                "Iteration Time(us)": length(end - start)}  # fmt: skip
        if graph == 1:
            fp, bp = kernels[0].start_ns, kernels[len(FORWARD + BACKWARD) - 1].end_ns
            args |= {"FP Start": us(fp), "BP End": us(bp)}
            out.slice(hardware, tid, f"FP_BP Time {n}", fp, length(bp - fp), cat="FP_BP Time",
                      args={**args, "FP_BP Time(us)": length(bp - fp)})  # fmt: skip
            out.slice(hardware, tid, f"Iteration Refresh {n}", bp, length(end - bp),
                      cat="Iteration Refresh", args={"Iteration ID": n})  # fmt: skip
            for k, (first, last) in enumerate(step.reduces):
                name = f"Reduce_{n}_{2 * (n - 1) + k}"  # counted over the whole run
                out.slice(hardware, tid, name, first, length(last - first),
                          cat="Reduce", args={"Iteration ID": n})  # fmt: skip
        out.slice(hardware, tid, f"Iteration {n}", start, length(end - start),
                  cat="Iteration Time", args=args)  # fmt: skip


def write_overlap(out: Writer, steps: list[Step]) -> None:
    """The vendor's own overlap lanes."""
    names = "Computing", "Communication", "Communication(Not Overlapped)", "Free"
    pid = out.process(23, "Overlap Analysis", "NPU", dict(enumerate(names)))
    busy = covered((k.start_ns, k.end_ns) for s in steps for k in s.kernels)
    sent = covered(r for s in steps for r in s.reduces)
    either = covered([*busy, *sent])
    free = [(a[1], b[0]) for a, b in pairwise(either)]
    for tid, spans in enumerate((busy, sent, without(sent, busy), free)):
        for start, end in spans:
            out.slice(pid, tid, names[tid], start, length(end - start))


def covered(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of half-open spans."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def without(spans: list[tuple[int, int]], holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The part of ``spans`` outside of ``holes``."""
    left = []
    for start, end in spans:
        for first, last in holes:
            if last <= start or first >= end:
                continue
            if first > start:
                left.append((start, first))
            start = max(start, last)
        if start < end:
            left.append((start, end))
    return left


def write_counters(out: Writer, steps: list[Step], dice: random.Random) -> None:
    """Clock, memory and memory traffic."""
    freq = out.process(14, "AI Core Freq", "NPU", {})
    hbm = out.process(17, "HBM", "NPU", {})
    memory = out.process(19, "NPU MEM", "NPU", {})
    for step in steps:
        slow = out.rank == 1 and step.number == 2
        out.sample(freq, "AI Core Freq", step.start_ns, "MHz", 1800)
        out.sample(freq, "AI Core Freq", step.start_ns + 1_000_000, "MHz", 1380 if slow else 1800)
        for tick in range(6):
            at = step.start_ns + tick * 1_000_000
            traffic = 0.0 if tick > 3 else 410_000 + int(dice.random() * 90_000)
            out.sample(hbm, "HBM 0/Read", at, "Read(MB/s)", traffic)
            out.sample(hbm, "HBM 0/Write", at, "Write(MB/s)", traffic / 2)
            out.sample(memory, "APP/HBM", at, "KB", 21_602_304 + 65_536.0 * min(tick, 6 - tick))


def write_sample(folder: Path) -> None:
    """Write both ranks below ``folder``."""
    dice = [random.Random(20_250_301 + rank) for rank in (0, 1)]
    steps: list[list[Step]] = [[], []]
    for number in STEPS:
        pair = [run_step(rank, number, dice[rank]) for rank in (0, 1)]
        for rank in (0, 1):
            finish_step(pair[rank], pair[1 - rank].ready, dice[rank])
            steps[rank].append(pair[rank])
    for rank, pid in enumerate((4021, 4022)):
        home = folder / f"localhost_{pid}_20250301080000123_ascend_ms"
        (home / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True, exist_ok=True)
        events = write_rank(rank, pid, steps[rank], dice[rank])
        dump(home / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", events)
        info = {"profiler_parameters": {"profiler_level": "Level1", "activities": ["CPU", "NPU"]},
                "ms_profiler_info": {"context_mode": "graph", "rank_id": rank, "device_id": rank},
                "ms_version": "2.4.1", "cann_version": "8.0.RC3", "jit_level": "O1"}  # fmt: skip
        dump(home / f"profiler_info_{rank}.json", info)
        group = {"group_name": "default_group", "group_rank": rank, "global_ranks": [0, 1]}
        dump(home / "profiler_metadata.json", {"parallel_group_info": {"hccl_world_group": group}})


def dump(path: Path, content: Any) -> None:
    """Write one JSON file the way the profilers do: on one line."""
    path.write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    write_sample(Path(sys.argv[1] if len(sys.argv) > 1 else "golden/trace_view/demo/input"))
