"""What the profiler of each rank recorded: rows in the rank's own time, as a trace or as a file.

Nothing here knows what is made of it. A trace is what a reader makes of such a capture: compute
kernels on a stream, collectives on lanes of groups with the profiler's arguments, step marks,
pauses of the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource

from .jobs import BASE_NS, Job
from .simulate import Op, Run, true_ns
from .simulate import run as simulate

_BOOT_NS = 10**15  # what a monotonic clock shows when the job begins, more or less
_KERNEL = {
    "all_reduce": "AllReduce_Sum_bf16_RING_LL", "all_gather": "AllGather_RING_LL",
    "reduce_scatter": "ReduceScatter_Sum_bf16_RING_LL", "all_to_all": "SendRecv",
    "send": "SendRecv", "recv": "SendRecv", "sendrecv": "SendRecv",
    "broadcast": "Broadcast_RING_LL",
}  # fmt: skip
_HCCL = {
    "all_reduce": "allReduce", "all_gather": "allGather", "reduce_scatter": "reduceScatter",
    "all_to_all": "alltoallv", "send": "send", "recv": "receive", "sendrecv": "batchSendRecv",
    "broadcast": "broadcast",
}  # fmt: skip
_QUIET = ("compute", "input", "gc", "copy")
_COPY = "Memcpy HtoD (Pinned -> Device)"
_HOST = {"input": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "gc": "gc.collect"}


@dataclass(frozen=True)
class Recorded:
    """The rows of one capture, on the rank's own clock.

    Attributes:
        rank: whose.
        sorts: of rows, with step -1.
        sort: of each row, index into ``sorts``.
        start_ns, end_ns: int64.
        marks: (number, start_ns, end_ns) of the steps that have one.
        true_ns: (first, middle, last) true time of the capture.
    """

    rank: int
    sorts: list[Op]
    sort: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    marks: tuple[tuple[int, int, int], ...]
    true_ns: np.ndarray


def recorded(run: Run, rank: int) -> Recorded:
    """What the capture of a rank holds."""
    job = run.job
    stage, column = divmod(rank, job.stage_size)
    start, end, borders = (t[:, column] for t in run.stages[stage].table)
    sorts, sort = run.stages[stage].sorts
    if job.dialect == "xla":  # says of each row which it is
        sorts, sort = [sorts[i] for i in sort.tolist()], np.arange(len(sort))
    quiet = np.array([op.what in _QUIET for op in sorts])
    first, last = job.windows.get(rank, (0, job.steps))
    begin = borders[first] + job.mid.get(rank, 0.0) * (borders[first + 1] - borders[first])
    rng = np.random.default_rng((job.seed, 11, rank))
    lost = ~quiet[sort] & (rng.random(len(start)) < job.lost.get(rank, 0.0))
    seen = end > begin + 500 if job.clipped else start >= begin
    if job.silent:
        seen &= ~np.array([op.what == "compute" for op in sorts])[sort]
    rows = np.flatnonzero(seen & (start < borders[last]) & ~lost)
    start, end, sort = np.maximum(start[rows], begin), end[rows], sort[rows]
    end = np.maximum(end + _bias(job, rank, sorts)[sort], start + 500)
    start, end, sort = _split(job.split.get(rank, 0.0), rng, start, end, sort, ~quiet)
    clock = job.clock(rank)
    true = true_ns(start), true_ns(end)
    marked = range(first + (rank in job.mid), last)
    marks = tuple(
        (
            number,
            *(int(t) for t in clock.local(true_ns(borders[[step, step + 1]] - (0, job.gap_ns)))),
        )
        for step, number in zip(marked, _numbers(job, marked), strict=True)
    )
    span = int(true[0].min()), int(true[1].max())
    shown = [clock.local(t) // job.resolution_ns * job.resolution_ns for t in true]
    return Recorded(
        rank, sorts, sort, *shown,
        () if job.numbering == "none" else marks, np.array([span[0], sum(span) // 2, span[1]]),
    )  # fmt: skip


def _numbers(job: Job, steps: range) -> list[int]:
    if job.numbering == "relative":
        return [s - steps[0] for s in steps]
    if job.numbering == "repeated":
        return [s % (job.steps // 2) for s in steps]
    return list(steps)


def _bias(job: Job, rank: int, sorts: list[Op]) -> np.ndarray:
    """What the ends of collectives are stamped late, ns, by sort."""
    every = job.end_bias
    if isinstance(every, dict):
        return np.array([every[op.what][rank] if op.what in every else 0.0 for op in sorts])
    usual = every[rank] if every else 0.0
    return np.array([0.0 if op.what in _QUIET else usual for op in sorts])


def _split(share: float, rng, start, end, sort, of_sort):
    """A share of the rows of some sorts as two rows, the second of which begins halfway."""
    if not share:
        return start, end, sort
    chosen = (rng.random(len(sort)) < share) & of_sort[sort]
    half = (start + end) / 2
    start = np.concatenate([start, half[chosen]])
    end = np.concatenate([np.where(chosen, half, end), end[chosen]])
    order = np.argsort(start, kind="stable")
    return start[order], end[order], np.concatenate([sort, sort[chosen]])[order]


# -- as a capture and a trace -------------------------------------------------------------------


def capture(job: Job, rank: int) -> Capture:
    """The capture of a rank: which host it is from, and what is known of its clock."""
    source = FileSource(Path("x"), f"x{rank}")
    clock = {
        "": None,
        "unix": Anchor(Domain.UNIX, evidence="Unix time stamps"),
        "monotonic": Anchor(Domain.MONOTONIC, _BOOT_NS, BASE_NS, "start_info"),
    }[job.stamps]
    host = f"node{rank // job.host_size}" if job.stamps else ""
    return Capture("simulated", source, ("x",), rank, host=host, clock=clock, label=f"p{rank}")


def trace(run: Run, rank: int):
    """The trace of one rank, as a reader makes it."""
    job, rows = run.job, recorded(run, rank)
    build = TraceBuilder(capture(job, rank))
    shift = _BOOT_NS - BASE_NS if job.stamps == "monotonic" else 0
    start, end = rows.start_ns + shift, rows.end_ns + shift
    facts = [_described(build, job, rank, op, place) for place, op in enumerate(rows.sorts)]
    facts = np.array(facts, np.int64)[rows.sort]
    build.seen("slice", len(start))
    build.extend(
        track=facts[:, 0].astype(np.int32),
        start_ns=start,
        dur_ns=end - start,
        name=facts[:, 1].astype(np.int32),
        op=facts[:, 2].astype(np.int8),
        args=facts[:, 3].astype(np.int32),
    )
    lane = build.track(Layer.STEP, "iterations")
    marks = np.array(rows.marks, np.int64).reshape(-1, 3)
    build.seen("slice", len(marks))
    build.extend(
        track=lane,
        start_ns=marks[:, 1] + shift,
        dur_ns=marks[:, 2] - marks[:, 1],
        name=np.array([build.string(f"Iteration {n}") for n in marks[:, 0].tolist()], np.int32),
        op=OpClass.ITERATION,
        step=marks[:, 0].astype(np.int32),
    )
    return build.finish()


def traces(run: Run) -> Iterator:
    """The traces of all ranks with a capture."""
    job = run.job
    other = simulate(replace(job, seed=job.seed + 10**6)) if job.foreign else run
    return (trace(other if rank in job.foreign else run, rank) for rank in job.captured)


def _described(build: TraceBuilder, job: Job, rank: int, op: Op, place: int) -> tuple[int, ...]:
    if op.what in _HOST:
        track = build.track(Layer.HOST, "Thread 1", thread=1)
        return track, build.string(_HOST[op.what]), int(OpClass.HOST), -1
    if op.what == "compute":
        track = build.track(Layer.DEVICE, "Stream 7")
        return track, build.string(_gemm(op)), int(OpClass.COMPUTE), -1
    if op.what == "copy":
        track = build.track(Layer.DEVICE, "Stream 8")
        return track, build.string(_COPY), int(OpClass.COPY), -1
    name, arguments = named(job, rank, op)
    lane = communicator = f"Group {group_name(job, op.what, rank)}"
    if job.unnamed:
        lane, communicator = f"Stream {20 + list(job.groups()).index(op.what)}", ""
    elif job.dialect == "hccl":
        lane += " Communication"
    track = build.track(Layer.COMM, lane, communicator=communicator)
    if "In msg nelems" in arguments:
        arguments = {**arguments, "bytes": op.n_bytes}  # as the reader of PyTorch adds it
    if job.dialect == "xla":
        stage = f"jit_stage_{rank // job.stage_size}"
        arguments |= {"hlo_module": stage, "hlo_op": f"{op.kind}.{op.what}", "run_id": place}
    return track, build.string(name), int(OpClass.COMM), build.args(arguments)


def _gemm(op: Op) -> str:
    return f"{op.kind}_gemm" if op.kind else "gemm"


def group_name(job: Job, parallelism: str, rank: int) -> str:
    """Unique in the job, the same on all members."""
    before = list(job.groups()).index(parallelism)
    return str(100 * before + job.group_of(parallelism, rank))


def named(job: Job, rank: int, op: Op) -> tuple[str, dict]:
    """What the profiler calls an operation, and the arguments it states."""
    if job.dialect == "hccl":
        code = 0 if job.unnamed else 17 + int(group_name(job, op.what, rank)) * 13
        name = f"hcom_{_HCCL[op.kind]}__{code}_0_1"
        return (_HCCL[op.kind] if job.unnamed else name), {"count": op.n_bytes // 2}
    name = f"ncclDevKernel_{_KERNEL[op.kind]}(ncclDevKernelArgsStorage<4096ul>)"
    if job.unnamed:
        return name, {}
    members = next(m for m in job.groups()[op.what].tolist() if rank in m)
    kind = {"sendrecv": job.message_kind, "all_to_all": "all_to_allv"}.get(op.kind, op.kind)
    arguments = {
        **({"Collective name": kind} if kind else {}),
        "In msg nelems": op.n_bytes // 2, "Out msg nelems": op.n_bytes // 2, "dtype": "BFloat16",
        "Group size": len(members), "Process Group Name": group_name(job, op.what, rank),
        "Process Group Ranks": str(members),
    }  # fmt: skip
    if op.peer >= 0:  # as PyTorch states it: the place in the group, which is the stage
        arguments["Src Rank" if op.kind == "recv" else "Dst Rank"] = op.peer
    return name, arguments


# -- as a file ----------------------------------------------------------------------------------


def write_kineto(run: Run, folder: Path) -> list[Path]:
    """One PyTorch trace per rank with a capture. Unix stamps, whatever ``stamps`` says."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in run.job.captured:
        rows = recorded(run, rank)
        events = [_event(run.job, rank, rows, i) for i in range(len(rows.sort))]
        events += [
            _slice("user_annotation", f"ProfilerStep#{number}", 900, 900, start, end, {})
            for number, start, end in rows.marks
        ]
        world = {"backend": "nccl", "rank": rank, "world_size": run.job.ranks}
        document = {
            "schemaVersion": 1, "distributedInfo": world, "baseTimeNanoseconds": BASE_NS,
            "deviceProperties": [{"id": 0, "name": "simulated"}], "traceEvents": events,
        }  # fmt: skip
        path = folder / f"rank{rank}.pt.trace.json"
        path.write_text(json.dumps(document))
        paths.append(path)
    return paths


def _event(job: Job, rank: int, rows: Recorded, at: int) -> dict:
    op, start, end = rows.sorts[rows.sort[at]], int(rows.start_ns[at]), int(rows.end_ns[at])
    if op.what in _HOST:
        return _slice("user_annotation", _HOST[op.what], 900, 900, start, end, {})
    if op.what == "compute":
        return _slice("kernel", _gemm(op), 0, 7, start, end, {"device": 0, "stream": 7})
    if op.what == "copy":
        return _slice("gpu_memcpy", _COPY, 0, 8, start, end, {"device": 0, "stream": 8})
    name, arguments = named(job, rank, op)
    stream = 20 + list(job.groups()).index(op.what)
    return _slice("kernel", name, 0, stream, start, end, {**arguments, "stream": stream})


def _slice(cat: str, name: str, pid: int, tid: int, start: int, end: int, args: dict) -> dict:
    ts, dur = ((n // 1000) + (n % 1000) / 1000 for n in (start - BASE_NS, end - start))
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip
