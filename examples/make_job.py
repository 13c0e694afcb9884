"""Write the second sample: eight ranks of an invented PyTorch job, one of them slow.

    python examples/make_job.py examples/job

The job has four replicas of two tensor-parallel ranks (dp 4, tp 2) on two hosts whose clocks differ
by 1.7 ms. Rank 5 computes a quarter slower than its peers. Its partner, rank 4, waits for it in the
all-reduces of every layer; the other ranks wait in the all-reduce of the gradients. The same call
writes the same bytes on every machine.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EPOCH_NS = 1_740_816_000_000_000_000  # 2025-03-01 08:00 UTC
RANKS, TP, STEPS, LAYERS = 8, 2, 8, 3
SLOW, FACTOR = 5, 1.25
CLOCK_NS = (0, 1_700_000)  # of the two hosts
LAUNCH_NS, QUEUE_NS = 9_000, 22_000
KERNELS = (
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", 410_000),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", 60_000),
)


def groups(ranks: int) -> dict[str, tuple[str, list[list[int]]]]:
    """The process groups of so many ranks by their number: what each is for, and its members."""
    return {
        "0": ("default_pg", [list(range(ranks))]),
        "1": ("TENSOR_MODEL_PARALLEL_GROUP", [[r, r + 1] for r in range(0, ranks, TP)]),
        "2": ("DATA_PARALLEL_GROUP", [list(range(r, ranks, TP)) for r in range(TP)]),
    }


GROUPS = groups(RANKS)


@dataclass
class Rank:
    """One rank: when its host and its two streams are free, and what was recorded."""

    number: int
    dice: random.Random
    host_ns: int = 0
    compute_ns: int = 0
    comm_ns: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def device(self) -> int:
        """The GPU of its host."""
        return self.number % 4

    def kernel(self, name: str, ns: int) -> None:
        """Launch a kernel on the compute stream."""
        factor = FACTOR if self.number == SLOW else 1.0
        length = int(ns * factor * self.dice.uniform(0.99, 1.01))
        correlation = self.launch("cudaLaunchKernel")
        start = max(self.compute_ns, self.host_ns + QUEUE_NS)
        self.compute_ns = start + length
        self.task(name, 7, start, length, {"correlation": correlation})

    def launch(self, call: str) -> int:
        """A host operator with the call that launches; its correlation number."""
        correlation = 1000 * (self.number + 1) + len(self.events)
        self.slice("cpu_op", "aten::op", self.host_ns, LAUNCH_NS + 4_000)
        self.slice("cuda_runtime", call, self.host_ns + 2_000, LAUNCH_NS,
                   {"correlation": correlation})  # fmt: skip
        self.host_ns += LAUNCH_NS + 6_000
        return correlation

    def slice(
        self, cat: str, name: str, start_ns: int, ns: int, args: dict[str, Any] | None = None
    ) -> None:
        """A slice of the main thread."""
        self.add(cat, name, 4000 + self.number, 4000 + self.number, start_ns, ns, args or {})

    def task(self, name: str, stream: int, start_ns: int, ns: int, args: dict[str, Any]) -> None:
        """A kernel on a stream of the GPU."""
        args = {"device": self.device, "context": 1, "stream": stream, **args}
        self.add("kernel", name, self.device, stream, start_ns, ns, args)

    def add(
        self, cat: str, name: str, pid: int, tid: int, start_ns: int, ns: int, args: dict[str, Any]
    ) -> None:
        """An event of the trace, on the clock of its host."""
        at = start_ns + CLOCK_NS[self.number // 4]
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
                            "ts": at / 1000, "dur": ns / 1000, "args": args})  # fmt: skip


def all_reduce(ranks: list[Rank], group: str, elements: int, ns: int) -> None:
    """A collective: it begins on each rank when its stream gets there, and ends on all at once."""
    correlations = [rank.launch("cudaLaunchKernelExC") for rank in ranks]
    starts = [max(r.compute_ns, r.comm_ns, r.host_ns + QUEUE_NS) + 3_000 for r in ranks]
    end = max(starts) + int(ns * ranks[0].dice.uniform(0.98, 1.02))
    members = [rank.number for rank in ranks]
    for rank, start, correlation in zip(ranks, starts, correlations, strict=True):
        rank.comm_ns = end
        args = {
            "correlation": correlation, "Collective name": "allreduce", "In msg nelems": elements,
            "Out msg nelems": elements, "Group size": len(members), "dtype": "BFloat16",
            "Process Group Name": group, "Process Group Description": GROUPS[group][0],
            "Process Group Ranks": str(members),
        }  # fmt: skip
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        rank.task(name, 20, start, end - start, args)


def step(ranks: list[Rank], number: int) -> None:
    """Forward, backward, the all-reduce of the gradients, the optimizer."""
    begins = [rank.host_ns for rank in ranks]
    for backward in (False, True):
        for _ in range(LAYERS):
            for rank in ranks:
                for name, ns in KERNELS:
                    rank.kernel(name, ns * 2 if backward else ns)
            for first in range(0, RANKS, TP):
                pair = ranks[first : first + TP]
                all_reduce(pair, "1", 8_388_608, 45_000)
                for rank in pair:  # the next layer needs the result
                    rank.compute_ns = rank.comm_ns
    for members in GROUPS["2"][1]:
        all_reduce([ranks[r] for r in members], "2", 67_108_864, 380_000)
    for rank in ranks:
        rank.compute_ns = rank.comm_ns
        rank.kernel("void at::native::multi_tensor_apply_kernel<FusedAdam>", 190_000)
        end = rank.compute_ns + 15_000  # the loss is read
        rank.slice("cuda_runtime", "cudaStreamSynchronize", rank.host_ns, end - rank.host_ns)
        rank.host_ns = end + 5_000
    for rank, begin in zip(ranks, begins, strict=True):
        rank.slice("user_annotation", f"ProfilerStep#{number}", begin, rank.host_ns - begin)
        rank.host_ns += 40_000


def write(rank: Rank, folder: Path) -> None:
    """The file of a rank, as ``torch.profiler`` names and lays it out."""
    groups = [
        {"pg_name": name, "pg_desc": title, "backend_config": "cuda:nccl",
         "pg_size": len(members), "ranks": members}
        for name, (title, every) in GROUPS.items()
        for members in every
        if rank.number in members
    ]  # fmt: skip
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank.device, "name": "NVIDIA H100"}],
        "distributedInfo": {"backend": "nccl", "rank": rank.number, "world_size": RANKS,
                            "pg_count": len(groups), "pg_config": groups},
        "host_name": f"node{rank.number // 4}",
        "traceEvents": rank.events,
        "baseTimeNanoseconds": EPOCH_NS,
    }  # fmt: skip
    name = f"node{rank.number // 4}_{4000 + rank.number}.{rank.number}.pt.trace.json.gz"
    text = json.dumps(document, separators=(",", ":")).encode()
    with (
        (folder / name).open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
    ):
        packed.write(text)


def main(folder: str) -> None:
    """Write the eight files."""
    ranks = [Rank(number, random.Random(number)) for number in range(RANKS)]
    for number in range(10, 10 + STEPS):
        step(ranks, number)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        write(rank, place)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
