"""Layouts of jobs, made without the code under test: who is in which group, and where.

A layout is an order of axes, the fastest first, as launchers write it ("tp-cp-ep-dp-pp"). Ranks are
counted through the axes like digits. Everything is plain Python: nested loops over coordinates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

MEGATRON = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP", "cp": "CONTEXT_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP", "dp": "DATA_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
}  # fmt: skip
MESH = {axis: f"mesh_{axis}" for axis in MEGATRON}
MINDSPEED = {axis: axis for axis in MEGATRON}


@dataclass(frozen=True)
class Layout:
    """A job.

    Attributes:
        order: axes, the fastest first.
        sizes: ranks per group, by axis.
        names: what groups are called, by axis.
        first: global rank of the first one: a mesh of a part of the job.
    """

    order: tuple[str, ...]
    sizes: dict[str, int]
    names: dict[str, str]
    first: int = 0

    @property
    def size(self) -> int:
        return prod(self.sizes.values())

    @property
    def text(self) -> str:
        """For test ids."""
        sizes = "-".join(f"{axis}{self.sizes[axis]}" for axis in self.order)
        return f"{sizes}{'+' + str(self.first) if self.first else ''}"

    def coordinates(self) -> dict[int, dict[str, int]]:
        """By global rank."""
        slowest_first = [range(self.sizes[axis]) for axis in reversed(self.order)]
        return {
            self.first + number: dict(zip(reversed(self.order), digits, strict=True))
            for number, digits in enumerate(product(*slowest_first))
        }

    def group(self, axis: str, rank: int) -> list[int]:
        """Who is with a rank in a group: all that differ in nothing but this axis."""
        every = self.coordinates()
        mine = {name: at for name, at in every[rank].items() if name != axis}
        return [
            other
            for other, where in every.items()
            if {name: at for name, at in where.items() if name != axis} == mine
        ]

    def process_groups(self, rank: int, world: int) -> list[dict]:
        """As PyTorch lists them, with groups that say nothing between."""
        every = self.coordinates()
        wanted = [("default_pg", list(range(world)))]
        wanted += [(self.names[axis], self.group(axis, rank)) for axis in self.order]
        beside = [r for r in every if every[r].get("pp") == every[rank].get("pp")]
        wanted += [("undefined", beside), ("EXPERT_DATA_PARALLEL_GROUP", beside)]
        return [
            {
                "pg_name": str(number), "pg_desc": name, "backend_config": "cuda:nccl",
                "pg_size": len(ranks), "ranks": [] if len(ranks) == world else ranks,
            }
            for number, (name, ranks) in enumerate(wanted)
        ]  # fmt: skip


def layouts() -> list[Layout]:
    """64 and 256 ranks in several orders, with names of several frameworks."""
    found = []
    for number, (order, sizes) in enumerate(
        product(
            ("tp cp ep dp pp", "tp dp pp", "tp pp dp", "dp tp pp", "pp dp tp", "ep tp dp pp"),
            ((8, 2, 1, 2, 2), (4, 1, 2, 2, 4), (2, 2, 2, 2, 4), (8, 2, 2, 2, 4), (4, 4, 2, 2, 4),
             (16, 2, 1, 2, 4), (1, 4, 4, 4, 1)),
        )
    ):  # fmt: skip
        axes = tuple(order.split())
        by_axis = dict(zip(("tp", "cp", "ep", "dp", "pp"), sizes, strict=True))
        kept = {axis: by_axis[axis] for axis in axes}
        kept[axes[-1]] *= (256 if prod(sizes) > 64 else 64) // prod(kept.values())
        names = (MEGATRON, MESH, MINDSPEED)[number % 3]
        found.append(Layout(axes, kept, names, first=8 if number % 5 == 4 else 0))
    return found


def write(folder: Path, layout: Layout, ranks: list[int], events: list[dict]) -> None:
    """A PyTorch trace for each of some ranks."""
    world = layout.size + layout.first
    for rank in ranks:
        info = {
            "backend": "nccl", "rank": rank, "world_size": world,
            "pg_config": layout.process_groups(rank, world),
        }  # fmt: skip
        document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}
        (folder / f"{rank}.json").write_text(json.dumps(document))
