"""Tables of communication: operations with their parts, and the traffic between ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    ordered,
    stacked,
    texts,
    timed,
    with_job,
)
from traceconv.analysis.tables.fields import fields, floats, named, names_of, numbers, rounded
from traceconv.analysis.tables.groups import numbered, share
from traceconv.analysis.tables.host import collective, kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import F64, I64, once_each
from traceconv.core.model import Kind, OpClass, Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns, SideTable

TOTAL = lazy_regex(r"Total Op Info|.*-total\b.*")
"""Rows of the profiler's tables that sum up others."""

_WAITS = lazy_regex(r"Notify[_ ]Wait")
_TRANSITS = lazy_regex(r"Memcpy|Reduce_Inline|Reduce_TBE|RDMA_?Send|SDMA")
_NOBODY = 0xFFFFFFFF
_LINKS = {"ON_CHIP": "LOCAL"}
_PARTS = ("Transit Time(ns)", "Wait Time(ns)", "Synchronization Time(ns)", "Idle Time(ns)")


class _Work(msgspec.Struct, frozen=True):
    """The communication of a rank, by start within each group of ranks.

    Attributes:
        calls: event rows of whole operations.
        tasks: event rows of their parts, on planes.
        call:  index into ``calls`` of the operation each task belongs to; -1 = none.
    """

    calls: NDArray[np.intp]
    tasks: NDArray[np.intp]
    call: I64


@once_each
def _work(trace: Trace) -> _Work:
    """Operations and their tasks: a task is of the operation of its group that it begins in."""
    events = trace.events
    places: dict[tuple[int, str, int], int] = {}
    keys = ((t.device, t.communicator, t.communicator_index) for t in trace.tracks)
    group = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
    calls = kernels(trace, OpClass.COMM)
    calls = calls[np.lexsort((events.start_ns[calls], group[events.track[calls]]))]
    tasks = np.flatnonzero((events.op == OpClass.COMM_TASK) & (events.kind == Kind.SLICE))
    call = np.full(len(tasks), -1, np.int64)
    of_call, of_task = group[events.track[calls]], group[events.track[tasks]]
    for number in np.unique(of_call).tolist():
        group_calls, group_tasks = (
            np.flatnonzero(of_call == number),
            np.flatnonzero(of_task == number),
        )
        start, end = events.start_ns[calls[group_calls]], events.ends(calls[group_calls])
        latest = np.searchsorted(start, events.start_ns[tasks[group_tasks]], "right") - 1
        inside = (latest >= 0) & (events.start_ns[tasks[group_tasks]] < end[np.maximum(latest, 0)])
        call[group_tasks[inside]] = group_calls[latest[inside]]
    return _Work(calls, tasks, call)


@once_each
def _operation_facts(trace: Trace) -> Columns:
    work = _work(trace)
    from_table = {} if len(work.tasks) else _table_operations(trace)
    if from_table or not len(work.calls):
        return from_table
    events, rows = trace.events, work.calls
    step = events.step[rows].astype(np.int64)
    return {
        "Step": np.where(step < 0, ABSENT, step),
        "Group": texts([_group(trace, track) for track in events.track[rows].tolist()]),
        "Operation": texts([trace.strings[i] for i in events.name[rows].tolist()]),
        "Start Time(ns)": events.start_ns[rows],
        "Elapse Time(ns)": events.dur_ns[rows],
        **_parts(trace, work),
    }


def _table_operations(trace: Trace) -> Columns:
    """The profiler's own figures, where the timeline holds no tasks of planes; of the selected
    steps.
    """
    side_table = _profiler_table(trace, "communication")
    if not side_table:
        return NOTHING
    ranks = {RANK: numbers(side_table, RANK)} if RANK in side_table else {}
    step, operator = numbers(side_table, "Step"), named(side_table, "Operator")
    is_kept = np.array([TOTAL.match(name) is None for name in operator.tolist()], bool)
    if len(trace.steps) < trace.present.iterations:
        is_kept &= np.isin(step, trace.steps.step)
    columns = {
        **ranks,
        "Step": step,
        "Group": named(side_table, "Group"),
        "Operation": operator,
        "Start Time(ns)": numbers(side_table, "Start Timestamp(ns)"),
        "Elapse Time(ns)": numbers(side_table, "Elapse Time(ns)"),
        **{part: numbers(side_table, part) for part in _PARTS},
    }
    is_kept &= columns["Elapse Time(ns)"] != ABSENT
    return {name: column[is_kept] for name, column in columns.items()} if is_kept.any() else NOTHING


def _profiler_table(trace: Trace, name: str) -> SideTable | None:
    """A table of the profiler, or of a cluster tool where there are only tables: of all ranks."""
    table = trace.side_tables.get(name)
    if table is None and not len(trace.events):
        table = trace.side_tables.get(f"cluster_{name}")
    return table


def _group(trace: Trace, track: int) -> str:
    track_facts = trace.tracks[track]
    return track_facts.group or track_facts.name


def _parts(trace: Trace, work: _Work) -> dict[str, I64]:
    """Transit, wait, synchronisation and idle time of each operation; ABSENT without tasks.

    They are those of one plane: the first, in screen order, on which the operation waits.
    """
    parts = {name: np.full(len(work.calls), ABSENT, np.int64) for name in _PARTS}
    held = work.call >= 0
    rows, call = work.tasks[held], work.call[held]
    if not len(rows):
        return parts
    events = trace.events
    waits, transits = _has_name(trace, rows, _WAITS), _has_name(trace, rows, _TRANSITS)
    plane = np.full(len(work.calls), np.iinfo(np.int64).max)
    np.minimum.at(plane, call[waits], events.track[rows[waits]])
    on_plane = events.track[rows] == plane[call]
    begun = np.full(len(work.calls), np.iinfo(np.int64).max)
    np.minimum.at(begun, call[on_plane & transits], events.start_ns[rows[on_plane & transits]])
    early = waits & (events.start_ns[rows] < begun[call])
    sums = np.zeros((3, len(work.calls)), np.int64)
    for of_kind, kind in zip(sums, (transits, waits, early), strict=True):
        np.add.at(of_kind, call[on_plane & kind], events.dur_ns[rows[on_plane & kind]])
    is_known = np.zeros(len(work.calls), bool)
    is_known[call[on_plane]] = True
    idle = events.dur_ns[work.calls] - sums[0] - sums[1]
    return {
        name: np.where(is_known, value, ABSENT)
        for name, value in zip(_PARTS, (*sums, idle), strict=True)
    }


def _has_name(trace: Trace, rows: NDArray[np.intp], pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    names = trace.events.name[rows]
    fits = np.zeros(len(trace.strings), bool)
    for name in np.unique(names).tolist():
        fits[name] = pattern.fullmatch(trace.strings[name]) is not None
    return fits[names]


def _operations(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    rows = ordered(rows, rows["Start Time(ns)"])
    transit, wait, early = (rows[part] for part in _PARTS[:3])
    return {
        **rows,
        "Wait Time Ratio(%)": _known_share(wait, transit),
        "Synchronization Time Ratio(%)": _known_share(early, transit),
    }


def _known_share(part: I64, rest: I64) -> F64:
    """``part`` of both in percent; NaN where one is not known, or both are 0."""
    is_known = (part != ABSENT) & (rest != ABSENT)
    part, rest = np.where(is_known, part, 0), np.where(is_known, rest, 0)
    return np.where(is_known, share(part, part + rest), np.nan)


# -- by kind of operation -----------------------------------------------------------------


def _kind_facts(trace: Trace) -> Columns:
    facts = _operation_facts(trace)
    if not facts:
        return NOTHING
    kinds = texts([collective(name) for name in facts["Operation"].tolist()])
    ranks = {RANK: facts[RANK]} if RANK in facts else {}
    keys = {**ranks, "Group": facts["Group"], "Operation": kinds}
    parts = {name: np.where(facts[name] == ABSENT, 0, facts[name]) for name in _PARTS}
    known = (facts[_PARTS[0]] != ABSENT).astype(np.int64)
    return grouped(facts["Elapse Time(ns)"], keys, **parts, Known=known)


def _kinds(ranked: Ranked) -> Columns:
    """Parts that an operation of a row does not have are absent, not 0."""
    rows = timed(ranked)
    is_known = rows["Known"] == rows["Count"]
    return {**rows, **{name: np.where(is_known, rows[name], ABSENT) for name in _PARTS}}


# -- traffic ------------------------------------------------------------------------------


@once_each
def _link_facts(trace: Trace) -> Columns:
    work = _work(trace)
    moving = _has_name(trace, work.tasks, _TRANSITS) & (work.call >= 0)
    rows, calls = work.tasks[moving], work.calls[work.call[moving]]
    source, target, size, link = fields(
        trace, rows, "src rank", "dst rank", "size(Byte)", "link type"
    )
    src, dst, n_bytes = (text.whole(ABSENT) for text in (source, target, size))
    between = (src != ABSENT) & (dst != ABSENT)  # others say nothing of who moves what
    if not between.any():
        return _table_links(trace)
    rows, calls, src, dst, n_bytes = (
        column[between] for column in (rows, calls, src, dst, n_bytes)
    )
    dst = np.where(dst == _NOBODY, src, dst)
    kind = names_of(trace, calls).mapped(collective)
    tracks, code = np.unique(trace.events.track[calls], return_inverse=True)
    groups_of = Texts([_group(trace, track) for track in tracks.tolist()], code)
    link = link[between].mapped(lambda kind_of_link: _LINKS.get(kind_of_link, kind_of_link))
    keys = {"Group": groups_of, "Operation": kind, "Source": src, "Destination": dst,
            "Transport": link}  # fmt: skip
    unsized = (n_bytes == ABSENT).astype(np.int64)
    lengths = trace.events.dur_ns[rows]
    return grouped(lengths, keys, Bytes=np.maximum(n_bytes, 0), Unsized=unsized)


def _table_links(trace: Trace) -> Columns:
    """The profiler's own matrix, where the timeline holds no tasks of planes.

    Of how many operations its sums ("allreduce-total") are it does not say: their count is 0.
    """
    side_table = _profiler_table(trace, "communication_matrix")
    if not side_table:
        return NOTHING
    kind = named(side_table, "Operator")
    sums = np.array([name.endswith("-total") for name in kind.tolist()], bool)
    total = sums if sums.any() else np.ones(len(kind), bool)
    total = total & (numbers(side_table, "Transit Time(ns)") != ABSENT)
    if not total.any():
        return NOTHING
    source = numbers(side_table, "Source")[total]
    # the matrix of a cluster does not say which rank recorded a row
    ranks = {} if "communication_matrix" in trace.side_tables else {RANK: source}
    time = numbers(side_table, "Transit Time(ns)")[total]
    size = floats(side_table, "Transit Size(MB)")[total]
    return {
        **ranks,
        "Group": named(side_table, "Group")[total],
        "Operation": kind[total],
        "Source": source,
        "Destination": numbers(side_table, "Target")[total],
        "Transport": named(side_table, "Transport Type")[total],
        "count": 1 - sums[total].astype(np.int64), "total": time, "low": time, "high": time,
        "m2": np.zeros(len(time)),
        "Bytes": rounded(np.nan_to_num(size) * 1e6),
        "Unsized": np.isnan(size).astype(np.int64),
    }  # fmt: skip


def _links(ranked: Ranked) -> Columns:
    rows = with_job(ranked)
    names = [numbered(rows[key]) for key in ("Group", "Operation")]
    rows = ordered(rows, *names, rows["Source"], rows["Destination"])
    time: Any = rows["total"]
    sized = rows["Unsized"] == 0
    has_speed = sized & (time > 0)
    speed = np.divide(rows["Bytes"], time, out=np.full(len(time), np.nan), where=has_speed)
    return {
        **rows, "Count": np.where(rows["count"] > 0, rows["count"], ABSENT),
        "Transit Time(ns)": time, "Bandwidth(GB/s)": speed,
        "Bytes": np.where(sized, rows["Bytes"], ABSENT),
    }  # fmt: skip


TABLES: Sequence[Table] = (
    Table(
        "comm",
        "Communication by kind of operation",
        "Whole operations of one group of ranks and kind: Count, sum, min, mean and max of their "
        "elapsed times; Ratio = Total / sum of all Totals of the rank. Transit, Wait, "
        "Synchronization and Idle are totals of the table comm_op.",
        "communication operations",
        Column.parse(
            f"Rank, Group:text, Operation:text, {TIMED}, Transit Time(ns), Wait Time(ns), "
            "Synchronization Time(ns), Idle Time(ns)"
        ),
        _kind_facts,
        _kinds,
        capped=True,
        reads=("communication", "cluster_communication"),
    ),
    Table(
        "comm_op",
        "Communication, operation by operation (communication.json)",
        "Elapse = duration of the operation. The others are of its tasks on one plane, the first "
        "on which it waits: Transit = sum of copies and reductions; Wait = sum of Notify_Wait; "
        "Synchronization = what of Wait begins before the first transit; Idle = Elapse - Transit "
        "- Wait. Wait Time Ratio = Wait / (Wait + Transit); Synchronization Time Ratio likewise. "
        "Without tasks of planes in the timeline, all are those of communication.json.",
        "communication operations; Ascend planes for the parts",
        Column.parse(
            "Rank, Step, Group:text, Operation:text, Start Time(ns), Elapse Time(ns), "
            "Transit Time(ns), Wait Time(ns), Synchronization Time(ns), Idle Time(ns), "
            "Wait Time Ratio(%), Synchronization Time Ratio(%)"
        ),
        _operation_facts,
        _operations,
        capped=True,
        reads=("communication", "cluster_communication"),
    ),
    Table(
        "link",
        "Traffic between ranks (communication_matrix.json)",
        "Copies and reductions on planes, by group, kind of operation, source, destination (ranks "
        "within the group) and transport: Bytes and Transit Time are sums; Bandwidth = Bytes / "
        "Transit Time (10^9 bytes per second). What stays on the chip is LOCAL, to itself. Of the "
        "profiler's own sums (allreduce-total) Count is unknown. Rows of a cluster's matrix are of "
        "their source.",
        "Ascend planes, or communication_matrix.json",
        Column.parse(
            "Rank, Group:text, Operation:text, Source, Destination, Transport:text, Count, "
            "Bytes:B, Transit Time(ns), Bandwidth(GB/s)"
        ),
        _link_facts,
        _links,
        capped=True,
        reads=("communication_matrix", "cluster_communication_matrix"),
    ),
)  # fmt: skip
