"""Write captures shaped like those of GPUs: of the PyTorch profiler and of Nsight Systems.

    python -m bench.generate_gpu kineto OUT.pt.trace.json.gz --events 250000
    python -m bench.generate_gpu nsight OUT.sqlite --events 250000

As in :mod:`bench.generate` nothing in them was ever measured. A group is one operator: in the
PyTorch trace two nested operators, a call, a kernel and both ends of its launch arrow; in the
report two nested NVTX ranges, a call and a kernel. Every 40th kernel is a collective, every 8th
group copies instead, 400 groups are a step. Key order, line breaks and columns are those of
PyTorch 2.4 and of schema 3.25.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

SEED = 20240612
PID, TID, STREAM, COMM_STREAM = 4321, 4321, 7, 23
BASE_NS = 1_727_743_122_000_000_000
STEP_GROUPS = 400
KINETO_EVENTS, NSIGHT_EVENTS = 6, 4
"""Events of a group."""

OPS = [f"aten::{name}" for name in ("mm", "add_", "layer_norm", "gelu", "softmax", "mul", "copy_")]
KERNELS = [
    f"void cutlass::Kernel2<cutlass_80_{kind}_{size}_align8>(Params)"
    for kind in ("tensorop_bf16_s16816gemm", "simt_sgemm", "tensorop_s1688gemm")
    for size in ("128x128_32x3_nn", "256x64_32x4_nt", "64x64_32x6_tn")
] + ["void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"]
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COPY = "Memcpy HtoD (Pinned -> Device)"


class Group(NamedTuple):
    """One operator and its device work; times in ns from the start."""

    number: int
    start: int
    length: int
    device: int
    busy: int
    kind: str  # kernel, collective, copy


def job(folder: Path, ranks: int, steps: int, layers: int = 9) -> None:
    """One PyTorch trace per rank of a job: tensor parallel groups of 8, data parallel ones of the
    others. A step has ``layers`` collectives of the first and one of the second, which end alike
    for all members but for 2 us of noise; clocks are up to a second off.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(SEED)
    tensor = np.arange(ranks).reshape(-1, 8)
    data = tensor.T
    count = steps * (layers + 1)
    start, end = (np.zeros((count, ranks)) for _ in range(2))
    now = np.zeros(ranks)
    for i in range(count):
        members = data if i % (layers + 1) == layers else tensor
        start[i] = now + 1e6 * (1 + 0.1 * np.sin(1.7 * i)) + random.normal(0, 3e4, ranks)
        last = np.empty(ranks)
        last[members] = start[i][members].max(axis=1, keepdims=True)
        now = end[i] = last + 1e5 + random.normal(0, 2e3, ranks)
    for rank, offset in enumerate(random.integers(-(10**9), 10**9, ranks).tolist()):
        events = []
        before = 0.0
        for i, (began, ended) in enumerate(zip(start[:, rank], end[:, rank], strict=True)):
            step, place = divmod(i, layers + 1)
            members = data[rank % 8] if place == layers else tensor[rank // 8]
            if not place:
                row = start[i + layers, rank], end[i + layers, rank]
                whole = row[1] - before
                events.append(_of_job("user_annotation", f"ProfilerStep#{step}", before, whole, 0))
            events.append(_of_job("kernel", KERNELS[0], before, began - before, STREAM))
            about = {
                "Collective name": "allreduce", "In msg nelems": 1 << 22, "dtype": "BFloat16",
                "Group size": len(members), "Process Group Ranks": str(members.tolist()),
                "Process Group Name": f"{'dp' if place == layers else 'tp'}{members[0]}",
            }  # fmt: skip
            events.append(_of_job("kernel", COLLECTIVE, began, ended - began, COMM_STREAM, about))
            before = float(ended)
        document = {
            "schemaVersion": 1, "baseTimeNanoseconds": BASE_NS + offset, "traceEvents": events,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "deviceProperties": [{"id": 0, "name": "generated"}],
        }  # fmt: skip
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(document))


def _of_job(
    cat: str, name: str, start: float, ns: float, tid: int, about: dict[str, object] | None = None
) -> dict[str, object]:
    """A slice of the trace of a job; ns."""
    first, last = round(start), round(start + ns)
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": first / 1000,
        "dur": (last - first) / 1000, "args": {"device": 0, "stream": tid, **(about or {})},
    }  # fmt: skip


def groups(count: int, seed: int = SEED) -> Iterator[Group]:
    """Operators one after the other, their work in order on the device."""
    random = np.random.default_rng(seed)
    gaps = random.integers(4_000, 30_000, count)
    lengths = random.integers(3_000, 20_000, count)
    works = random.integers(1_500, 40_000, count)
    start, device = 1_000_000, 0
    for i, (gap, length, work) in enumerate(
        zip(gaps.tolist(), lengths.tolist(), works.tolist(), strict=True)
    ):
        start += gap + length
        device = max(device, start + length // 2 + 5_000)
        kind = "collective" if i % 40 == 39 else "copy" if i % 8 == 7 else "kernel"
        yield Group(i, start, length, device, work, kind)
        device += work + 700


# -- PyTorch --------------------------------------------------------------------------------


def kineto(path: Path, events: int, seed: int = SEED) -> int:
    """Write a trace of the PyTorch profiler, compressed; the number of its events."""
    head = (
        '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "GPU"}\n  ],\n'
        '  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n'
        '  "displayTimeUnit": "ms",\n'
        f'  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [\n'
    )
    count = 0
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        file.write(head.encode())
        for number, text in _kineto_groups(max(1, events // KINETO_EVENTS), seed):
            file.write(((",\n" if count else "") + text).encode())
            count += number
        file.write(b'\n  ],\n  "traceName": "generated"\n}\n')
    return count


def _kineto_groups(count: int, seed: int) -> Iterator[tuple[int, str]]:
    """So many events, and their text; steps come last, as they end last."""
    marks: list[tuple[int, int]] = []
    for group in groups(count, seed):
        if group.number % STEP_GROUPS == 0:
            marks.append((group.start - 1000, 0))
        marks[-1] = (marks[-1][0], group.start + group.length + 500)
        yield KINETO_EVENTS, ",\n".join(_kineto_events(group))
    for i, (start, end) in enumerate(marks):
        name = f"ProfilerStep#{i + 3}"
        text = _slice("user_annotation", name, PID, TID, start, end - start, '"External id": 1')
        yield 1, text


def _kineto_events(group: Group) -> Iterator[str]:
    n, start, length = group.number, group.start, group.length
    op, ids = OPS[n % len(OPS)], f'"External id": {n + 2},"Record function id": 0'
    dims = f'"Sequence number": {n}, "Fwd thread id": 0, "Input Dims": [[4096, {n % 7}], []]'
    yield _slice("cpu_op", op, PID, TID, start, length, f'{ids}, "Ev Idx": {2 * n}, {dims}')
    inner = f'{ids}, "Ev Idx": {2 * n + 1}'
    yield _slice("cpu_op", op + "_", PID, TID, start + 400, length - 800, inner)
    call, links = start + length // 2, f'"External id": {n + 2}, "correlation": {n + 100}'
    name = "cudaMemcpyAsync" if group.kind == "copy" else "cudaLaunchKernel"
    yield _slice("cuda_runtime", name, PID, TID, call, 900, f'{links}, "cbid": 211')
    yield _device(group, links)
    yield _arrow("s", n + 100, PID, TID, call, "")
    stream = COMM_STREAM if group.kind == "collective" else STREAM
    yield _arrow("f", n + 100, 0, stream, group.device, ', "bp": "e"')


def _device(group: Group, links: str) -> str:
    stream = COMM_STREAM if group.kind == "collective" else STREAM
    place = f'{links}, "device": 0, "context": 1, "stream": {stream}'
    shape = f'"grid": [{group.number % 999}, 1, 1], "block": [256, 1, 1]'
    limits = '"registers per thread": 40, "shared memory": 49152, "blocks per SM": 1.5'
    facts = {
        "kernel": ("kernel", KERNELS[group.number % len(KERNELS)], f"{place}, {limits}, {shape}"),
        "copy": ("gpu_memcpy", COPY, f'{place}, "bytes": 4096, "memory bandwidth (GB/s)": 1.25'),
        "collective": (
            "kernel",
            COLLECTIVE,
            f'{place}, {limits}, {shape}, "Collective name": "allreduce", "dtype": "BFloat16", '
            '"In msg nelems": 4194304, "Out msg nelems": 4194304, "Group size": 8, '
            '"Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"',
        ),
    }
    category, name, args = facts[group.kind]
    return _slice(category, name, 0, stream, group.device, group.busy, args)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _slice(category: str, name: str, pid: int, tid: int, start: int, length: int, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {_us(start)}, "dur": {_us(length)},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _arrow(phase: str, number: int, pid: int, tid: int, at: int, more: str) -> str:
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {_us(at)},\n'
        f'    "cat": "ac2g", "name": "ac2g"{more}\n  }}'
    )


# -- Nsight Systems -------------------------------------------------------------------------

_SHAPE = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId",
        "globalPid", "demangledName", "shortName", "mangledName", "launchType", "cacheConfig",
        "registersPerThread", *_SHAPE, "staticSharedMemory", "dynamicSharedMemory",
        "localMemoryPerThread", "localMemoryTotal", "gridId", "sharedMemoryExecuted",
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId",
        "globalPid", "bytes", "copyKind", "srcKind", "dstKind",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue",
        "callchainId",
    ),
    "NVTX_EVENTS": (
        "start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid",
        "endGlobalTid", "textId", "domainId",
    ),
}  # fmt: skip


def nsight(path: Path, events: int, seed: int = SEED) -> int:
    """Write a report as SQLite; the number of its events."""
    path.unlink(missing_ok=True)
    names = [*KERNELS, COLLECTIVE, "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020"]
    rows: dict[str, list[tuple[int | str | None, ...]]] = {table: [] for table in TABLES}
    for group in groups(max(1, events // NSIGHT_EVENTS), seed):
        _nsight_rows(group, rows)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names, 1))
    db.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
    db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", [BASE_NS])
    for table, columns in TABLES.items():
        kinds = (f"{c} {'TEXT' if c == 'text' else 'INTEGER'}" for c in columns)
        db.execute(f"CREATE TABLE {table} ({', '.join(kinds)})")
        db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})", rows[table])
    db.commit()
    db.close()
    return sum(map(len, rows.values()))


def _nsight_rows(group: Group, rows: dict[str, list[tuple[int | str | None, ...]]]) -> None:
    n, start, length = group.number, group.start, group.length
    pid = 1 << 48 | PID << 24
    op, call = OPS[n % len(OPS)], start + length // 2
    for name, low, high in ((op, 0, length), (op + "_", 400, length - 400)):
        text = f"{name}, op_id = {2 * n + (low > 0)}"
        ends = (start + low, start + high)
        rows["NVTX_EVENTS"].append(
            (*ends, 59, None, None, None, text, pid | TID, None, None, 0)
        )  # fmt: skip
    copies, fine = group.kind == "copy", len(KERNELS)
    api = fine + 3 if copies else fine + 2
    calls = rows["CUPTI_ACTIVITY_KIND_RUNTIME"]
    calls.append((call, call + 900, 0, pid | TID, n + 100, api, 0, None))
    stream = COMM_STREAM if group.kind == "collective" else STREAM
    place = (group.device, group.device + group.busy, 0, 1, None, stream, n + 100, pid)
    if copies:
        rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append((*place, 4096, 1, 1, 2))
        return
    name = fine + 1 if group.kind == "collective" else n % fine + 1
    shape = (n % 999, 1, 1, 256, 1, 1)
    kernels = rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    kernels.append((*place, name, name, name, 1, 0, 40, *shape, 49152, 0, 0, 0, n, 49152))


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.generate_gpu", description="Write captures.")
    parser.add_argument("kind", choices=("kineto", "nsight"))
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--events", type=int, default=250_000, help="about so many")
    given = parser.parse_args(argv)
    write = kineto if given.kind == "kineto" else nsight
    events = write(given.out, given.events)
    print(f"{given.out}: {events} events, {given.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
