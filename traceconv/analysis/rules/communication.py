"""Rules of communication: waiting for other ranks, small or unaligned packages, repeated transfers,
slow links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

import msgspec
import numpy as np

from traceconv.analysis.rank_facts import EXPOSED
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.rules.definition import (
    ALL,
    OWN,
    SLICES_KEPT,
    Case,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    facts_of,
    longest,
    of_table,
    plain,
    rows_of,
    slices,
    told_slice,
)
from traceconv.analysis.stragglers import links
from traceconv.analysis.tables import communication as _comm_tables
from traceconv.analysis.tables.definition import RANK
from traceconv.analysis.tables.fields import fields, floats, named, numbers
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.stated_steps import stated_overlap
from traceconv.analysis.utilisation import measured
from traceconv.core.model import I64, Kind, OpClass, Trace
from traceconv.core.side_tables import ABSENT

THEME = "communication"
CANN = "CANN's cluster analysis"
MSPROF_ANALYZE = "msprof-analyze"

_OPERATIONS = of_table(_comm_tables.TABLES, "comm_op")
_MB = 10**6


# -- waiting ------------------------------------------------------------------------------


_LATE = (
    "Most of the waiting comes before the first transfer: other ranks come late. `traceconv "
    "stragglers` compares ranks whose device work was recorded."
)
_LINKS = (
    "Most of the waiting comes between transfers: look at the links, and at packages that are too "
    "small."
)


def _waits(trace: Trace) -> Known | None:
    """Waiting and transfers of operations, and the longest waits."""
    rows = [
        (r["Operation"], r["Start Time(ns)"], r["Elapse Time(ns)"], r["Wait Time(ns)"],
         r["Synchronization Time(ns)"], r["Transit Time(ns)"])
        for r in rows_of(_OPERATIONS(trace) or {})
    ]  # fmt: skip
    waiting = [row for row in rows if ABSENT not in row[2:]]
    elapsed, wait, early, transit = (sum(row[i] for row in waiting) for i in (2, 3, 4, 5))
    if not wait + transit:
        return None
    steps = len(measured(trace.steps))
    if not steps and (overlap := stated_overlap(trace)) and RANK not in overlap:
        steps = len(overlap["step"])
    longest_waits = sorted(waiting, key=lambda row: -row[3])[:SLICES_KEPT]
    figures = {"steps": steps} if steps else {}
    figures |= {"operations": len(waiting), "elapsed_ns": elapsed, "wait_ns": wait,
                "before_first_transfer_ns": early, "transit_ns": transit}  # fmt: skip
    return facts_of(
        100 * wait / (wait + transit), {EXPOSED: wait / max(steps, 1)},
        [told_slice(trace, *row[:3], "communication") for row in longest_waits if row[1] != ABSENT],
        figures, {"elapsed": 100 * wait / elapsed if elapsed else 0.0},
        advice=_LATE if early > wait / 2 else _LINKS,
    )  # fmt: skip


# -- packages -----------------------------------------------------------------------------


def _packages(trace: Trace) -> Known | None:
    """Packages by transport and size: count, bytes of each, time of all."""
    events = trace.events
    rows = np.flatnonzero((events.op == OpClass.COMM_TASK) & (events.kind == Kind.SLICE))
    size, link = fields(trace, rows, "size(Byte)", "link type")
    n_bytes = size.whole()
    moved = (n_bytes > 0) & (events.dur_ns[rows] > 0) & ~link.among("", "ON_CHIP")
    if not moved.any():
        return _table_packages(trace)
    link, n_bytes, time = link[moved], n_bytes[moved], events.dur_ns[rows[moved]]
    groups = Groups.of(link.numbers(), n_bytes)
    return plain(
        {
            "transport": link[groups.first].column(),
            "n_bytes": n_bytes[groups.first],
            "count": groups.size,
            "time_ns": groups.total(time),
        }
    )


def _table_packages(trace: Trace) -> Known | None:
    side_table = trace.side_tables.get("communication_bandwidth")
    if not side_table:
        return None
    total = [
        _comm_tables.TOTAL.match(operator) is None
        for operator in named(side_table, "Operator").tolist()
    ]
    size = np.nan_to_num(floats(side_table, "Package Size(MB)"))
    time = numbers(side_table, "Total Duration(ns)")
    count = numbers(side_table, "Count")
    usable = np.array(total, bool) & (size > 0) & (time > 0) & (count > 0)
    usable &= ~np.isin(
        named(side_table, "Transport Type"), ["LOCAL", "SDMA"]
    )  # SDMA is HCCS and PCIE
    if not usable.any():
        return None
    return plain(
        {
            "transport": named(side_table, "Transport Type")[usable],
            "n_bytes": np.rint(size[usable] * _MB).astype(np.int64),
            "count": count[usable],
            "time_ns": time[usable],
        }
    )


class _Size(msgspec.Struct):
    """Packages of one size over one transport."""

    n_bytes: int
    count: int = 0
    time_ns: int = 0

    @property
    def speed(self) -> float:
        """Bytes per ns (10^9 bytes per second)."""
        return self.n_bytes * self.count / self.time_ns


def _small(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """A size is too small as long as neither it nor a smaller one reaches the bandwidth."""
    for transport, sizes in _by_transport(facts).items():
        largest = limits["rdma" if "RDMA" in transport.upper() else "sdma"] * _MB
        enough = limits["bandwidth"] / 100 * max(size.speed for size in sizes)
        small = list(takewhile(lambda s: s.n_bytes < largest and s.speed < enough, sizes))  # noqa: B023
        time = sum(size.time_ns for size in sizes)
        value = 100 * sum(size.time_ns for size in small) / time
        if small and value > limits[""]:
            figures = _package_figures(sizes, small)
            yield Case(rank, value, figures, transport, gone={EXPOSED: ALL})


def _by_transport(facts: Known) -> dict[str, list[_Size]]:
    """The sizes over each transport, ascending."""
    by_transport: dict[str, dict[int, _Size]] = {}
    for row in rows_of(facts):
        sizes = by_transport.setdefault(row["transport"], {})
        size = sizes.setdefault(row["n_bytes"], _Size(row["n_bytes"]))
        size.count += row["count"]
        size.time_ns += row["time_ns"]
    return {
        transport: [sizes[n] for n in sorted(sizes)]
        for transport, sizes in sorted(by_transport.items())
    }


def _package_figures(sizes: list[_Size], small: list[_Size]) -> dict[str, Any]:
    count, n_bytes = sum(s.count for s in small), sum(s.n_bytes * s.count for s in small)
    return {
        "packages": sum(size.count for size in sizes),
        "small_packages": count,
        "largest_small_bytes": small[-1].n_bytes,
        "small_gbs": n_bytes / sum(s.time_ns for s in small),
        "best_gbs": max(size.speed for size in sizes),
    }


# -- packages that are not aligned --------------------------------------------------------


def _misaligned(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """Large packages whose size is not a multiple of 512 bytes, if multiples are faster. Each is
    compared with the fastest multiple of at most its size, as larger packages should be faster."""
    for transport, sizes in _by_transport(facts).items():
        if "RDMA" in transport.upper() or "ROCE" in transport.upper():
            continue
        even = [size for size in sizes if size.n_bytes % _ALIGNED == 0]
        lost, slow, best = 0.0, [], 0.0
        for size in sizes:
            if size.n_bytes < limits["least"] * 1e3 or size.n_bytes % _ALIGNED == 0:
                continue
            reached = max((s.speed for s in even if s.n_bytes <= size.n_bytes), default=0.0)
            if size.speed < limits["bandwidth"] / 100 * reached:
                slow.append(size)
                best = max(best, reached)
                lost += size.time_ns - size.n_bytes * size.count / reached
        value = 100 * sum(s.time_ns for s in slow) / sum(size.time_ns for size in sizes)
        if slow and value > limits[""]:
            n_bytes = sum(s.n_bytes * s.count for s in slow)
            figures = {
                "packages": sum(size.count for size in sizes),
                "not_aligned_packages": sum(s.count for s in slow),
                "smallest_bytes": slow[0].n_bytes,
                "not_aligned_gbs": n_bytes / sum(s.time_ns for s in slow),
                "aligned_gbs": best,
            }
            yield Case(rank, value, figures, transport, gone={EXPOSED: lost})


_ALIGNED = 512


# -- transfers that are repeated ----------------------------------------------------------


def _repeats(trace: Trace) -> Known | None:
    """Operations that the profiler records as retried, and RDMA transfers by duration: a lost
    package is sent again after seconds."""
    events = trace.events
    rows = np.flatnonzero((events.op == OpClass.COMM) & (events.kind == Kind.SLICE))
    (again,) = fields(trace, rows, "retry")
    tasks = np.flatnonzero((events.op == OpClass.COMM_TASK) & (events.kind == Kind.SLICE))
    transport, link = fields(trace, tasks, "transport type", "link type")
    rdma = transport.fitting(lambda text: "RDMA" in text.upper()) | link.fitting(
        lambda text: "RDMA" in text.upper() or "ROCE" in text.upper()
    )
    table_rdma, operations = _table_rdma(trace), int(again.known.sum())
    if not operations and not rdma.any() and not len(table_rdma):
        return None
    tasks, repeated = tasks[rdma], rows[again.among("yes")]
    longest_rdma = max(int(events.dur_ns[tasks].max(initial=0)), int(table_rdma.max(initial=0)))
    return {
        "steps": max(len(measured(trace.steps)), 1),
        "operations": operations,
        "again": len(repeated),
        "again_ns": int(events.dur_ns[repeated].sum()),
        "transfers": len(tasks) or len(table_rdma),
        "rdma_longest_ns": longest_rdma,
        "longest_again": longest(trace, repeated),
        "longest_rdma": longest(trace, tasks),
    }


def _table_rdma(trace: Trace) -> I64:
    """How long a package over RDMA takes, of each size and operation of the profiler's table."""
    table = trace.side_tables.get("communication_bandwidth")
    if not table:
        return np.zeros(0, np.int64)
    count, time = numbers(table, "Count"), numbers(table, "Total Duration(ns)")
    over = np.array(
        [transport.upper() == "RDMA" for transport in named(table, "Transport Type").tolist()], bool
    )
    over &= (count > 0) & (time > 0)
    per_package: I64 = time[over] // count[over]
    return per_package


_AGAIN = "collectives that the profiler says were carried out again"


def _retransmitting(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    figures = {key: facts[key] for key in ("operations", "again", "transfers", "rdma_longest_ns")}
    value = facts["rdma_longest_ns"] / 1e9
    if facts["again"] > limits["again"]:
        yield Case(
            rank, facts["again"], figures, "", (), slices(facts["longest_again"]), limit="again",
            gone={EXPOSED: facts["again_ns"] / facts["steps"]},
        )  # fmt: skip
    elif facts["transfers"] and value > limits[""]:
        shown = slices(facts["longest_rdma"])
        yield Case(rank, value, figures, "", (), shown, gone={EXPOSED: ALL})


# -- links --------------------------------------------------------------------------------


def _slow_links(facts_by_rank: Mapping[int, Known], limits: Limits) -> Iterator[Case]:
    summaries = [
        RankSummary(rank=rank, links={h: np.array(column, object) for h, column in facts.items()})
        for rank, facts in facts_by_rank.items()
    ]
    for link in links.slow(summaries, limits[""] / 100):
        figures = {
            "bandwidth_gbs": link.bandwidth,
            "usual_gbs": link.usual,
            "n_bytes": link.n_bytes,
            "time_ns": link.time_ns,
        }
        where = f"{link.source} to {link.destination} of {link.group or 'all'}, {link.transport}"
        value = 100 * link.bandwidth / link.usual
        yield Case(link.rank, value, figures, where, gone={EXPOSED: ALL})


RULES: tuple[Rule, ...] = (
    Rule(
        "communication-wait",
        "Communication waits rather than transfers",
        THEME,
        "waiting as a share of waiting and transfers, in communication operations that wait for "
        "much of their time",
        (Limit(20.0, "%", CANN), Limit(10.0, "%", OWN, "elapsed")),
        "Ascend planes, or communication.json",
        "Waiting before the first transfer: other ranks come late (`traceconv stragglers`). "
        "Between transfers: look at the links, and at packages that are too small.",
        _waits,
    ),
    Rule(
        "small-packets",
        "Small packets keep a link below its bandwidth",
        THEME,
        "share of transfer time spent on packages too small to reach the bandwidth of larger ones",
        (
            Limit(20.0, "%", f"{CANN}: large packages are to be 80 %"),
            Limit(32.0, "MB", CANN, "sdma", below=True),
            Limit(0.5, "MB", CANN, "rdma", below=True),
            Limit(80.0, "%", f"{CANN}: of the link, here of the best seen", "bandwidth", True),
        ),
        "Ascend planes with sizes, or communication.json",
        "Fuse small communication operations into larger ones (bigger buckets, larger batches per "
        "exchange).",
        _packages,
        each_rank(_small),
    ),
    Rule(
        "unaligned-packets",
        "Packets that are not a multiple of 512 bytes are slower than others",
        THEME,
        "share of transfer time (not over RDMA) of large packages that are not a multiple of 512 "
        "bytes, and slower than aligned ones of at most their size",
        (
            Limit(20.0, "%", OWN),
            Limit(64.0, "KB", OWN, "least", below=True),
            Limit(80.0, "%", f"{OWN}; 512 bytes are {MSPROF_ANALYZE}'s", "bandwidth", True),
        ),
        "Ascend planes with sizes, or communication.json",
        "Pad what is exchanged to multiples of 512 bytes (buckets of the optimizer's state, "
        "gathered parameters).",
        _packages,
        each_rank(_misaligned),
    ),
    Rule(
        "retransmission",
        "Communication is repeated or sent again",
        THEME,
        "longest transfer of one package over RDMA",
        (
            Limit(4.0, "s", f"{MSPROF_ANALYZE}: a retransmission takes at least that"),
            Limit(0.0, "operations", "HCCL's retry marker", "again", measure=_AGAIN),
        ),
        "collectives with HCCL's retry marker, or transfers over RDMA",
        "Packages are lost: check the network between these machines (switches, cables, optical "
        "modules, flow control), and HCCL_RDMA_TIMEOUT and HCCL_RDMA_RETRY_CNT.",
        _repeats,
        each_rank(_retransmitting),
    ),
    Rule(
        "slow-link",
        "A link is slower than others of its kind",
        THEME,
        "bandwidth of the link, of the median of its transport",
        (Limit(70.0, "%", OWN, below=True),),
        "Ascend planes, or communication_matrix.json, with four links of one transport",
        "Check this connection: cabling, switch configuration, and other traffic on it.",
        lambda trace: plain(links.of_rank(trace)) or None,
        _slow_links,
    ),
)
