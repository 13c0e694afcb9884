"""The table of collectives by size: bytes, and the bandwidth that is reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import kind_of
from traceconv.analysis.device_peaks import peaks_of
from traceconv.analysis.tables.definition import NOTHING, TIMED, Column, Ranked, Table, texts, timed
from traceconv.analysis.tables.fields import fields, names_of
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.groups import share as ratio
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import F64, I64
from traceconv.core.model import OpClass, Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns

_SIZES = {
    1: "Byte Char Bool QInt8 QUInt8 Float8_e5m2 Float8_e4m3fn Float8_e5m2fnuz Float8_e4m3fnuz "
    "Float8_e8m0fnu",
    2: "Short Half BFloat16 UInt16",
    4: "Int Float QInt32 UInt32 ComplexHalf",
    8: "Long Double ComplexFloat UInt64",
    16: "ComplexDouble",
}
_OF_HCCL = {
    1: "INT8 UINT8 HIF8 FP8E4M3 FP8E5M2 FP8E8M0",
    2: "INT16 UINT16 FP16 BFP16",
    4: "INT32 UINT32 FP32",
    8: "INT64 UINT64 FP64",
    16: "INT128",
}
_ELEMENT = {name: size for sizes in (_SIZES, _OF_HCCL) for size, names in sizes.items()
            for name in names.split()}  # fmt: skip
"""Bytes of an element, by the names of PyTorch's ``c10/core/ScalarType.h``, and those of
``HcclDataType`` in ``hccl_types.h``."""
_WHOLE = ("allreduce", "broadcast", "reduce", "p2p")
"""Operations whose count, as HCCL states it, is that of the larger buffer; of others it is that of
one rank's part, and how many ranks there are is not recorded beside it."""

_FIELDS = ("In msg nelems", "Out msg nelems", "dtype", "Group size", "Collective name",
           "Process Group Ranks")  # fmt: skip
_HCCL_FIELDS = ("count", "data_type")
_RANKS = lazy_regex(r"\[\d{1,9}(?:, ?\d{1,9})*\]")
"""A group's ranks as PyTorch lists them; of large groups it leaves some out ("...")."""
_ROUNDS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}
"""Times (n - 1) / n: what each of n ranks moves of a message (nccl-tests, PERFORMANCE.md)."""


def _count(text: str) -> int:
    """A number of elements, as PyTorch writes it: "12", "12.0"; -1 otherwise."""
    digits = text.removesuffix(".0")
    return int(digits) if digits.isdigit() and len(digits) < 18 else -1


def group_names(trace: Trace, rows: NDArray[np.intp]) -> Texts:
    """The group of each collective, as its track is headed."""
    tracks, code = np.unique(trace.events.track[rows], return_inverse=True)
    tracks_of_rows = [trace.tracks[track] for track in tracks.tolist()]
    return Texts([track.group or track.name for track in tracks_of_rows], code)


def _facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMM)
    if not len(rows):
        return NOTHING
    inputs, outputs, kind, size, names, members, count, of_hccl = fields(
        trace, rows, *_FIELDS, *_HCCL_FIELDS
    )
    operation = names.filled(names_of(trace, rows)).mapped(kind_of)
    inputs = inputs.filled(count.kept(operation.among(*_WHOLE) & of_hccl.known))
    kind = kind.filled(of_hccl)
    elements = np.maximum(*(
        np.array([_count(text) for text in elements_of.values], np.int64)[elements_of.code]
        for elements_of in (inputs, outputs)
    ))  # fmt: skip
    width = np.array([_ELEMENT.get(text, 0) for text in kind.values], np.int64)[kind.code]
    is_known = (elements >= 0) & (width > 0)
    if not is_known.any():
        return NOTHING
    rows, n_bytes = rows[is_known], (elements * width)[is_known]
    operation = operation[is_known]
    group = group_names(trace, rows)
    ranks = size[is_known].whole(ABSENT)
    link = _links(trace, members[is_known])
    groups = Groups.of(group.numbers(), operation.numbers(), ranks, n_bytes, link)
    first = groups.first
    return {
        "Group": texts(group[first].tolist()),
        "Operation": texts(operation[first].tolist()),
        "Group Size": ranks[first],
        "Message(B)": n_bytes[first],
        "link": link[first],
        **groups.measured(trace.events.dur_ns[rows]),
    }


def _factor(operation: str, ranks: int) -> float:
    """Bytes that a rank moves for a byte of the message; NaN if the number of ranks is unknown."""
    if operation not in _ROUNDS:
        return 1.0
    return _ROUNDS[operation] * (ranks - 1) / ranks if ranks >= 1 else float("nan")


def bus_bytes(row: Mapping[str, Any]) -> float:
    """Bytes that a rank moves in an operation of a row of facts."""
    return float(row["Message(B)"]) * _factor(row["Operation"], row["Group Size"])


def _links(trace: Trace, members: Texts) -> I64:
    """The bandwidth of the links of a device, 10^6 bytes per second; ABSENT unless the ranks of the
    group are on devices of one node. Launchers number the ranks of a node one after the other."""
    names = [*trace.hints.device_names.values()]
    peaks = peaks_of(names[0]) if len({*names}) == 1 else None
    if not peaks or not peaks.link:
        return np.full(len(members.code), ABSENT)
    carried = []
    for text in members.values:
        ranks = json.loads(text) if _RANKS.fullmatch(text) else []
        inside = len({rank // len(names) for rank in ranks}) == 1 and len(ranks) > 1
        carried.append(round(1000 * peaks.link) if inside else ABSENT)
    peak: I64 = np.array(carried, np.int64)[members.code]
    return peak


def _build(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    size = rows["Message(B)"]
    factors = [_factor(*row) for row in zip(rows["Operation"].tolist(), rows["Group Size"].tolist(),
                                            strict=True)]  # fmt: skip
    moved = np.array(factors, np.float64)

    def speed(ns: I64) -> F64:
        speeds: F64 = np.full(len(size), np.nan)
        np.divide(size, ns, out=speeds, where=(ns > 0) & (size > 0))
        return speeds

    usual, best = speed(rows["Avg Time(ns)"]), speed(rows["Min Time(ns)"])
    return {
        **rows,
        "Algorithm Bandwidth(GB/s)": usual,
        "Bus Bandwidth(GB/s)": usual * moved,
        "Best Bus Bandwidth(GB/s)": best * moved,
        "Link Peak(%)": ratio(
            best * moved, np.where(rows["link"] == ABSENT, np.nan, rows["link"] / 1000)
        ),
    }


TABLES: Sequence[Table] = (
    Table(
        "collective",
        "Collectives by size, and the bandwidth they reach",
        "Whole operations of one group, kind, number of ranks and message size. Message = elements "
        "x bytes of an element, of the larger of both buffers. Algorithm Bandwidth = Message / Avg "
        "Time (10^9 bytes per second). Bus Bandwidth = that x 2 (n - 1) / n for all-reduce, x "
        "(n - 1) / n for all-gather, reduce-scatter and all-to-all of n ranks, x 1 for others, as "
        "nccl-tests counts. Times include waiting for other ranks; Best Bus Bandwidth is of the "
        "Min Time, of all ranks together that of the rank that came last. Link Peak = Best Bus "
        "Bandwidth / what the links of a device carry in one direction, from data sheets, where "
        "all ranks of the group are in one node.",
        "collectives with sizes: NCCL metadata of PyTorch (In msg nelems, dtype); of HCCL, count "
        "and data_type of all-reduce, reduce, broadcast, send and receive",
        Column.parse(
            f"Rank, Group:text, Operation:text, Group Size, Message(B), {TIMED}, "
            "Algorithm Bandwidth(GB/s), Bus Bandwidth(GB/s), Best Bus Bandwidth(GB/s), "
            "Link Peak(%)"
        ),
        _facts,
        _build,
        capped=True,
    ),
)  # fmt: skip
