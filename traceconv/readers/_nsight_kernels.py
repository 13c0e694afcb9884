"""Kernels of an Nsight Systems report; of those that communicate also what NCCL was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.model import I8, I32, I64, OpClass
from traceconv.readers._argtable import Values
from traceconv.readers._gpu import kernel_class
from traceconv.readers._nsight_events import PLACE, common, placed
from traceconv.readers._nsight_nccl import Issued
from traceconv.readers._nsight_nvtx import hexadecimal
from traceconv.readers._nsight_payloads import BYTES, COMMUNICATOR, RANKS
from traceconv.readers._nsight_report import TIMES, Report
from traceconv.readers._sqlite import Column

TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"


@dataclass(frozen=True)
class Collective:
    """What NCCL says of kernels.

    Attributes:
        bytes:  int64 per kernel, -1 = not known.
        communicator: uint64 per kernel; ``known`` says which are.
        known:  bool per kernel.
        ranks:  ranks of communicators.
    """

    bytes: I64
    communicator: NDArray[np.uint64]
    known: NDArray[np.bool_]
    ranks: Mapping[int, int]


def kernels(report: Report, nccl: Issued | None, ranks: Mapping[int, int]) -> None:
    """Add the kernels.

    Args:
        nccl:  the calls of NCCL, if their sizes are known.
        ranks: ranks of communicators.
    """
    wanted = {
        **TIMES, **PLACE, "demangledName": -1, "shortName": -1, "registersPerThread": 0,
        "gridX": 0, "gridY": 0, "gridZ": 0, "blockX": 0, "blockY": 0, "blockZ": 0,
        "staticSharedMemory": 0, "dynamicSharedMemory": 0,
    }  # fmt: skip
    rows, dur = report.timed(report.rows(TABLE, wanted, "globalPid"), TABLE)
    ids = np.where(rows["demangledName"] >= 0, rows["demangledName"], rows["shortName"])
    names = report.texts(ids)
    distinct, back = np.unique(names, return_inverse=True)
    words, strings = report.comm_words, report.build.strings
    classes = [kernel_class(strings[i], words) for i in distinct.tolist()]
    op = np.array(classes, np.int8)[back] if classes else np.empty(0, np.int8)
    said = _collective(report, rows, op, nccl, ranks)
    lane = said.communicator * said.known if said else None
    placed(report, rows, dur, names, op, _kernel_args(report, rows, said), lane)


def _collective(
    report: Report,
    rows: Mapping[str, Column],
    op: I8,
    nccl: Issued | None,
    ranks: Mapping[int, int],
) -> Collective | None:
    """What is known of the kernels that communicate, through the calls that launched them."""
    if nccl is None:
        return None
    calls = report.calls.at(np.where(op == OpClass.COMM, rows["correlationId"], -1))
    made = nccl.of_calls(report.calls, calls)
    alone = np.bincount(made[made >= 0], minlength=len(nccl.bytes)) == 1
    known = (made >= 0) & ~nccl.mixed[made]
    size = np.where((made >= 0) & alone[made], nccl.bytes[made], -1)
    return Collective(size, nccl.communicator[made], known, ranks)


def _kernel_args(report: Report, rows: Mapping[str, Column], said: Collective | None) -> I32:
    """Arguments of kernels, a batch for each set of facts that is known of some."""
    n = len(rows["start"])
    facts = np.zeros(n, np.int8)
    if said is not None and n:
        sized = np.isin(said.communicator, np.array([*said.ranks], np.uint64)) & said.known
        facts = (said.bytes >= 0) + 2 * said.known.astype(np.int8) + 4 * sized.astype(np.int8)
    args = np.full(n, -1, np.int32)
    for which in np.unique(facts).tolist():
        at = np.flatnonzero(facts == which)
        part = {name: column[at] for name, column in rows.items()}
        told = {**common(part), **_kernel_facts(part)}
        if said is not None:
            ids = said.communicator[at]
            more: dict[str, Values] = {
                COMMUNICATOR: hexadecimal(ids),
                BYTES: said.bytes[at],
                RANKS: np.array([said.ranks.get(i, -1) for i in ids.tolist()], np.int64),
            }
            wanted = {COMMUNICATOR: which & 2, BYTES: which & 1, RANKS: which & 4}
            told.update({key: ("start", more[key]) for key, yes in wanted.items() if yes})
        args[at] = report.args(TABLE, told)
    return args


def _kernel_facts(rows: Mapping[str, Column]) -> dict[str, tuple[str, Values]]:
    """Arguments of kernels only."""
    shared = rows["staticSharedMemory"] + rows["dynamicSharedMemory"]
    return {
        "grid": ("gridX", _triples(rows, "grid")),
        "block": ("blockX", _triples(rows, "block")),
        "registers per thread": ("registersPerThread", rows["registersPerThread"]),
        "shared memory": ("staticSharedMemory", shared),
    }


def _triples(rows: Mapping[str, Column], what: str) -> list[bytes]:
    columns = (rows[what + axis].tolist() for axis in "XYZ")
    return [b"[%d,%d,%d]" % xyz for xyz in zip(*columns, strict=True)]
