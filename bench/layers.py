"""The layers of a generated capture: times and names through templates, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench import names, templates
from bench.schedule import I64, OPS, PLANES, Schedule
from traceconv.core.intervals import subtraction, union

BLOCK = 256
"""Groups turned into text at a time."""
GROUP_EVENTS = 252
"""Events of one group: 16 x (6 + 6 + 2), 5 + 12 for the collective, 10 counters, an arrow end."""

Columns = dict[str, Sequence[Any]]
Piece = tuple[int, str]
"""A number of events and their text."""


class Identity:
    """What stands in every event of one rank: numbers of processes and threads; its dice."""

    def __init__(self, rank: int, seed: int) -> None:
        self.rng = np.random.default_rng((seed, rank, 1))
        pid = 2_100_064 + rank * 8
        self.processes = {"python": ("Python", 1, pid)}
        for key, name, sort in (
            ("cann", "CANN", 7), ("hardware", "Ascend Hardware", 13), ("freq", "AI Core Freq", 14),
            ("hccl", "HCCL", 15), ("hbm", "HBM", 17), ("llc", "LLC", 18),
            ("memory", "NPU MEM", 19), ("qos", "QoS", 22), ("overlap", "Overlap Analysis", 23),
        ):  # fmt: skip
            self.processes[key] = (name, sort, (pid << 10) | (sort << 5))
        self.numbers = {key: number for key, (_, _, number) in self.processes.items()}
        self.numbers |= {"main": pid, "queue": pid + 2, "autograd": pid + 3, "comm": pid + 4}

    def rows(self, events: Sequence[str], columns: Columns) -> Piece:
        """Every row of ``columns`` through the templates ``events``."""
        template = ", ".join(events)
        for key, number in self.numbers.items():
            template = template.replace(f"<{key}>", str(number))
        keys, values = tuple(columns), zip(*columns.values(), strict=True)
        texts = [template % dict(zip(keys, row, strict=True)) for row in values]
        return len(texts) * len(events), ", ".join(texts)

    def pick(self, table: Sequence[str], n: int) -> list[str]:
        """``n`` entries of ``table``, the first ones more often."""
        index = (self.rng.random(n) ** 2 * len(table)).astype(int)
        return [table[i] for i in index.tolist()]

    def threads(self, times: Schedule, at: slice) -> list[int]:
        """The framework thread of each operator."""
        main, autograd = self.numbers["main"], self.numbers["autograd"]
        found: list[int] = np.where(times.autograd[at], autograd, main).tolist()
        return found


def trace_view(who: Identity, times: Schedule, overlap: bool) -> Iterator[Piece]:
    """The file piece by piece, in the order of a real export."""
    groups = len(times.comm)
    blocks = [range(at, min(at + BLOCK, groups)) for at in range(0, groups, BLOCK)]
    yield who.rows(templates.STEP, step(times))
    for block in blocks:
        yield who.rows(templates.FRAMEWORK, framework(who, times, block))
    if groups > 1:
        yield who.rows(templates.FWDBWD, fwdbwd(times))
    yield from metadata(who, overlap)
    for block in blocks:
        yield who.rows(templates.COUNTERS, counters(who, times, block))
        yield who.rows(templates.DEVICE, device(who, times, block))
        yield who.rows(templates.COLLECTIVE, collectives(times, block))
        yield who.rows(templates.PLANE, planes(times, block))
    if overlap:
        yield who.rows(templates.LANE, lanes(times))
    for block in blocks:
        yield who.rows(templates.TO_NPU, to_npu(who, times, block))


def stamps(ns: I64) -> list[str]:
    """Microseconds with three decimals."""
    whole, rest = np.divmod(ns, 1000)
    return list(map("%d.%03d".__mod__, zip(whole.tolist(), rest.tolist(), strict=True)))


def micros(ns: I64) -> list[float]:
    """Durations of host slices."""
    found: list[float] = (ns / 1000).tolist()
    return found


def device_micros(ticks: I64) -> list[float]:
    """Durations of device slices, from units of 10^-5 ns."""
    found: list[float] = (ticks / 100_000_000).tolist()
    return found


def _ops(block: range) -> slice:
    return slice(block.start * OPS, block.stop * OPS)


def metadata(who: Identity, overlap: bool) -> Iterator[Piece]:
    """Names of processes and threads."""
    shown = {k: v for k, v in who.processes.items() if overlap or k != "overlap"}
    title, sort, pid = zip(*shown.values(), strict=True)
    label = ["CPU" if key in ("python", "cann") else "NPU" for key in shown]
    yield who.rows(templates.PROCESS, {"name": title, "sort": sort, "pid": pid, "label": label})
    number = who.numbers
    host = [("python", t) for t in ("main", "queue", "autograd")]
    host += [("cann", "queue"), ("cann", "comm")]
    found = [(number[p], number[t], f"Thread {number[t]}") for p, t in host]
    found += [(number["hardware"], s, f"Stream {s}") for s in (2, 3, 4)]
    found += [(number["hccl"], 0, "Group 0 Communication")]
    found += [(number["hccl"], p + 1, f"Plane {p}") for p in range(PLANES)]
    if overlap:
        found += [(number["overlap"], tid, name) for tid, name in enumerate(_LANES)]
    pids, tids, thread = zip(*found, strict=True)
    yield who.rows(templates.THREAD, {"pid": pids, "tid": tids, "name": thread})


def step(times: Schedule) -> Columns:
    """The marks of training steps."""
    numbers = range(50, 50 + len(times.step))
    return {"step": numbers, "t0": stamps(times.step), "d0": micros(times.step_dur)}


def framework(who: Identity, times: Schedule, block: range) -> Columns:
    """Python: the module, the operator in it, its enqueueing; the dequeueing; the arrow."""
    at = _ops(block)
    n = at.stop - at.start
    ids = range(8000 + at.start, 8000 + at.stop)
    return {
        "id": ids, "parent": [i // OPS for i in ids], "tid": who.threads(times, at),
        "module": who.pick(names.MODULES, n), "op": who.pick(names.OPS, n),
        "acl": who.pick(names.APIS, n),
        "dims": who.pick(names.DIMS, n), "types": who.pick(names.DTYPES, n),
        "stack": who.pick(names.STACKS, n),
        "t0": stamps(times.module[at]), "d0": micros(times.module_dur[at]),
        "t1": stamps(times.op[at]), "d1": micros(times.op_dur[at]),
        "t2": stamps(times.enqueue[at]), "d2": micros(times.enqueue_dur[at]),
        "t3": stamps(times.dequeue[at]), "d3": micros(times.dequeue_dur[at]),
    }  # fmt: skip


def fwdbwd(times: Schedule) -> Columns:
    """Arrows from the first operator of a forward group to the last of the backward group."""
    backward = times.op[2 * OPS - 1 :: 2 * OPS]
    forward = times.op[:: 2 * OPS][: len(backward)]
    return {"id": range(len(backward)), "t0": stamps(forward), "t1": stamps(backward)}


def to_npu(who: Identity, times: Schedule, block: range) -> Columns:
    """Arrows from operators to kernels; the id is the kernel's start."""
    at = _ops(block)
    kernel = times.kernel[at]
    return {
        "id": kernel.tolist(), "tid": who.threads(times, at), "stream": times.stream[at].tolist(),
        "t0": stamps(times.op[at]), "t1": stamps(kernel),
    }  # fmt: skip


def device(who: Identity, times: Schedule, block: range) -> Columns:
    """CANN: three nested calls; hardware: the kernel; the arrow between them."""
    at = _ops(block)
    index = np.arange(at.start, at.stop)
    kernels = who.pick(names.KERNELS, len(index))
    return {
        "id": (index // OPS * 17 + index % OPS + 1000).tolist(),
        "acl": [name.partition("_")[0] for name in kernels], "kernel": kernels,
        "type": who.pick(names.TASK_TYPES, len(index)), "stream": times.stream[at].tolist(),
        "task": (index % 65536).tolist(), "batch": (index // 65536).tolist(),
        "t0": stamps(times.api[at]), "d0": micros(times.api_dur[at]),
        "t1": stamps(times.node[at]), "d1": micros(times.node_dur[at]),
        "t2": stamps(times.launch[at]), "d2": micros(times.launch_dur[at]),
        "t3": stamps(times.kernel[at]), "d3": device_micros(times.kernel_dur[at]),
    }  # fmt: skip


def collectives(times: Schedule, block: range) -> Columns:
    """One all-reduce per group: its call, a wait on a stream, the operator, the arrow."""
    at = slice(block.start, block.stop)
    start = times.comm[at]
    return {
        "id": [i * 17 + 1016 for i in block], "op": block, "task": [i % 65536 for i in block],
        "count": [4_097_000 + i % 7 * 1024 for i in block],
        "t0": stamps(times.comm_call[at]), "t1": stamps(start - 10_000),
        "t2": stamps(start), "d2": device_micros(times.comm_dur[at]),
    }  # fmt: skip


def planes(times: Schedule, block: range) -> Columns:
    """Three tasks on each plane of every all-reduce, one after the other."""
    at = slice(block.start, block.stop)
    start = np.repeat(times.comm[at], PLANES)
    third = np.repeat(times.comm_dur[at] // 100_000 // 3, PLANES)
    plane = np.tile(np.arange(1, PLANES + 1), len(block))
    return {
        "plane": plane.tolist(), "notify": (plane * 4294967296 + 66).tolist(),
        "task": [i % 65536 for i in block for _ in range(PLANES)],
        "t0": stamps(start + 220 * plane), "d0": micros(third - 2000),
        "t1": stamps(start + third), "d1": micros(third - 1000),
        "t2": stamps(start + 2 * third), "d2": micros(third - 3000),
    }  # fmt: skip


def counters(who: Identity, times: Schedule, block: range) -> Columns:
    """Ten series, sampled once per group."""
    rng, n = who.rng, len(block)
    return {
        "t0": stamps(times.comm_call[block.start : block.stop]),
        "level": rng.integers(800, 1900, n).tolist(), "kb": rng.integers(10**6, 10**7, n).tolist(),
        "rate": (rng.integers(0, 10**7, n) / 1000).tolist(),
        "part": (rng.integers(0, 1000, n) / 1000).tolist(),
    }  # fmt: skip


_LANES = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")


def lanes(times: Schedule) -> Columns:
    """The four overlap lanes, made from kernels and collectives."""
    computing = union(times.kernel, times.kernel + times.kernel_dur // 100_000)
    communication = union(times.comm, times.comm + times.comm_dur // 100_000)
    both = np.concatenate((computing, communication))
    whole = np.array([[both[:, 0].min(), both[:, 1].max()]])
    free = subtraction(whole, union(both[:, 0], both[:, 1]))
    sets = (computing, communication, subtraction(communication, computing), free)
    tid = [t for t, rows in enumerate(sets) for _ in range(len(rows))]
    spans = np.concatenate(sets)
    return {
        "tid": tid, "lane": [_LANES[t] for t in tid],
        "t0": stamps(spans[:, 0]), "d0": micros(spans[:, 1] - spans[:, 0]),
    }  # fmt: skip
