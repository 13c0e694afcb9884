"""The table of collectives by size: bytes, and the bandwidth that is reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import matched
from traceconv.alignment.collective_records import (
    UNKNOWN,
    CollectiveRecords,
    Group,
    kind_of,
    recorded_rows,
)
from traceconv.analysis.device_peaks import peaks_of
from traceconv.analysis.tables.definition import (
    NOTHING,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    texts,
    timed,
)
from traceconv.analysis.tables.fields import fields, names_of
from traceconv.analysis.tables.groups import numbered
from traceconv.analysis.tables.groups import share as ratio
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import F64, I64
from traceconv.core.model import OpClass, Trace
from traceconv.core.patterns import lazy_regex, natural
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

_KEYS = ("Group", "Operation", "Group Size", "Message(B)")
_FIELDS = ("In msg nelems", "Out msg nelems", "dtype", "Group size", "Collective name",
           "Process Group Ranks")  # fmt: skip
_HCCL_FIELDS = ("count", "data_type")
_RANKS = lazy_regex(r"\[\d{1,9}(?:, ?\d{1,9})*\]")
"""A group's ranks as PyTorch lists them; of large groups it leaves some out ("...")."""
_ROUNDS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}
"""Times (n - 1) / n: what each of n ranks moves of a message (nccl-tests, PERFORMANCE.md)."""


def _count(text: str) -> int:
    """A number of elements, as PyTorch writes it: "12", "12.0"; -1 otherwise."""
    return natural(text.removesuffix(".0"))


def group_names(trace: Trace, rows: NDArray[np.intp]) -> Texts:
    """The group of each collective, as its track is headed."""
    tracks, code = np.unique(trace.events.track[rows], return_inverse=True)
    tracks_of_rows = [trace.tracks[track] for track in tracks.tolist()]
    return Texts([track.group or track.name for track in tracks_of_rows], code)


def _sizes(trace: Trace, rows: NDArray[np.intp]) -> tuple[Texts, I64, I64, I64]:
    """What each of these collectives does, the ranks of its group, the bytes of its message and the
    bandwidth of its links; ABSENT where unknown."""
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
    n_bytes = np.where((elements >= 0) & (width > 0), elements * width, ABSENT)
    return operation, size.whole(ABSENT), n_bytes, _links(trace, members)


def _facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMM)
    operation, ranks, n_bytes, link = _sizes(trace, rows)
    sized = n_bytes != ABSENT
    if not sized.any():
        return NOTHING
    columns: tuple[Any, ...] = (group_names(trace, rows), operation, ranks, n_bytes, link)
    keys = {name: column[sized] for name, column in zip((*_KEYS, "link"), columns, strict=True)}
    return grouped(trace.events.dur_ns[rows[sized]], keys)


def _factor(operation: str, ranks: int) -> float:
    """Bytes that a rank moves for a byte of the message; NaN if the number of ranks is unknown."""
    if operation not in _ROUNDS:
        return 1.0
    return _ROUNDS[operation] * (ranks - 1) / ranks if ranks >= 1 else float("nan")


def _factors(rows: Columns) -> F64:
    pairs = zip(rows["Operation"].tolist(), rows["Group Size"].tolist(), strict=True)
    return np.array([_factor(*pair) for pair in pairs], np.float64)


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
    moved = _factors(rows)

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


_TOGETHER = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Operations that end on no rank before all have begun. Of others, as of a broadcast, a rank may be
done before another comes."""


def _call_facts(trace: Trace) -> Columns:
    """Every collective, with what tells it from others of its group."""
    records, rows = recorded_rows(trace)
    together = np.isin(records.kind, [records.kinds.index(kind) for kind in _TOGETHER
                                      if kind in records.kinds])  # fmt: skip
    if not together.any():
        return NOTHING
    _, _, n_bytes, _ = _sizes(trace, rows)
    groups = [records.groups[group] for group in records.group.tolist()]
    return {
        "Group": group_names(trace, rows).column(),
        "Operation": texts([records.kinds[kind] for kind in records.kind.tolist()]),
        "Message(B)": n_bytes,
        "Group Size": np.array([group.size if group.size > 0 else ABSENT for group in groups]),
        "key": texts([group.key for group in groups]),
        "named": np.array([group.named for group in groups], bool),
        "size": records.size,
        "step": records.step.astype(np.int64),
        "start_ns": records.start_ns,
        "end_ns": records.end_ns,
        "identity": records.identity if len(records.identity) else np.full(len(rows), UNKNOWN),
    }


def _records(rank: int, facts: Columns) -> CollectiveRecords:
    """The collectives of :func:`_call_facts`, whose rows are in the order of groups."""
    first = np.sort(np.unique(numbered(facts["key"]), return_index=True)[1])
    group = np.searchsorted(first, np.arange(len(facts["key"])), "right") - 1
    groups = [
        Group(*(facts[name][row] for name in ("key", "Group Size", "named"))) for row in first
    ]
    kinds = Texts.of(facts["Operation"].tolist())
    return CollectiveRecords(
        rank, tuple(groups), tuple(kinds.values), group.astype(np.int32), kinds.code,
        facts["size"], facts["step"].astype(np.int32), facts["start_ns"], facts["end_ns"],
        facts["identity"] if (facts["identity"] >= 0).any() else facts["identity"][:0],
    )  # fmt: skip


def _waits(ranked: Ranked) -> Columns:
    """Sums over the calls of a rank whose counterparts on other ranks were read."""
    shortest = {rank: np.full(len(facts["key"]), ABSENT) for rank, facts in ranked}
    compared = {rank: np.zeros(len(facts["key"]), np.int64) for rank, facts in ranked}
    for group in matched([_records(rank, facts) for rank, facts in ranked]):
        present = group.row >= 0
        present[present.sum(axis=1) < 2] = False
        length = np.where(present, group.end_ns - group.start_ns, np.iinfo(np.int64).max)
        for column, rank in enumerate(group.ranks):
            calls = np.flatnonzero(present[:, column])
            rows = group.row[calls, column]
            shortest[rank][rows] = length[calls].min(axis=1)
            compared[rank][rows] = present[calls].sum(axis=1)
    if not any(ranks.any() for ranks in compared.values()):
        return NOTHING
    by_rank = []
    for rank, facts in ranked:
        rows = np.flatnonzero(np.isin(facts["Operation"], _TOGETHER))
        length, least = (facts["end_ns"] - facts["start_ns"])[rows], shortest[rank][rows]
        known = least != ABSENT
        keys = {name: facts[name][rows] for name in _KEYS}
        sums = {"Matched": known.astype(np.int64), "ranks": compared[rank][rows],
                "Transfer Time(ns)": np.where(known, least, 0),
                "Wait Time(ns)": np.where(known, length - least, 0)}  # fmt: skip
        by_rank.append((rank, grouped(length, keys, **sums)))
    rows_of_all = timed(by_rank)
    n_matched, transfer = rows_of_all["Matched"], rows_of_all["Transfer Time(ns)"]
    wait = rows_of_all["Wait Time(ns)"]
    moved = rows_of_all["Message(B)"] * n_matched
    speed = np.full(len(moved), np.nan)
    np.divide(moved, transfer, out=speed, where=(moved > 0) & (transfer > 0))
    return {
        **rows_of_all,
        "Transfer Time(ns)": np.where(n_matched > 0, transfer, ABSENT),
        "Wait Time(ns)": np.where(n_matched > 0, wait, ABSENT),
        "Wait(%)": ratio(wait, transfer + wait),
        "Ranks Compared": ratio(rows_of_all["ranks"] / 100, n_matched),
        "Transfer Bandwidth(GB/s)": speed,
        "Transfer Bus Bandwidth(GB/s)": speed * _factors(rows_of_all),
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
    Table(
        "collective_wait",
        "Collectives: waiting for other ranks, and moving data",
        "Collectives that end on no rank before all have begun (all-reduce, all-gather, "
        "reduce-scatter, all-to-all, barrier), by group, kind, number of ranks and message size. "
        "Count, Total, Min, Avg, Max: all calls; Ratio = Total / sum of all Totals of the rank. "
        "Matched = calls found on other ranks, too; Ranks Compared = on how many, mean: where it "
        "is below Group Size, ranks may wait longer. Of these calls, without comparing clocks: "
        "Transfer = sum of the shortest duration of each on any rank, that of the rank that came "
        "last; Wait = sum of duration - that; Wait(%) = Wait / (Wait + Transfer). Transfer "
        "Bandwidth = Message x Matched / Transfer (10^9 bytes per second); Transfer Bus Bandwidth "
        "= that x the factor of the table collective.",
        "collectives of one group on two ranks or more",
        Column.parse(
            f"Rank, Group:text, Operation:text, Group Size, Message(B), {TIMED}, Matched, "
            "Ranks Compared:float, Transfer Time(ns), Wait Time(ns), Wait(%), "
            "Transfer Bandwidth(GB/s), Transfer Bus Bandwidth(GB/s)"
        ),
        _call_facts,
        _waits,
        capped=True,
    ),
)  # fmt: skip
