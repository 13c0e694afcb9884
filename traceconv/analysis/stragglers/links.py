"""Slow links: connections between ranks that carry data much slower than others of their kind.

Of single connections from what the planes of a timeline, or ``communication_matrix.json``, say of
copies between ranks: bytes and time by source, destination and transport (the table "link" of
``traceconv stats``). Of whole groups from the collectives themselves: who comes last waits for
nobody, so the shortest time that a member is inside is what the transfer takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.job import Replay
from traceconv.analysis.statistics import LEVEL, by_chance, over_others
from traceconv.analysis.tables.communication import TABLES
from traceconv.core.clock import time_text
from traceconv.core.columns import F64, I32
from traceconv.core.model import Trace
from traceconv.core.robust import SIGMA, median
from traceconv.core.side_tables import Columns

_TABLE = next(table for table in TABLES if table.name == "link")
_FEWEST = 4  # links of one transport; fewer have no usual bandwidth
_SMALL = 0.1  # of the usual bytes: links that carried less are slow for other reasons
_SLOW = 0.7  # of the usual bandwidth
_DEVIATIONS = 4.0
_TIMES = 1.2  # as long as usual is the least that a slow group takes


class SlowLink(msgspec.Struct, frozen=True):
    """A link, and what is usual for its transport.

    Attributes:
        rank:   whose profile recorded it.
        group:  in which ``source`` and ``destination`` number the ranks.
        bandwidth, usual: bytes per ns (10^9 bytes per second).
    """

    rank: int
    group: str
    source: int
    destination: int
    transport: str
    n_bytes: int
    time_ns: int
    bandwidth: float
    usual: float

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "rank": self.rank,
            "group": self.group,
            "source": self.source,
            "destination": self.destination,
            "transport": self.transport,
            "bytes": self.n_bytes,
            "time_ns": self.time_ns,
            "bandwidth_gbs": self.bandwidth,
            "usual_gbs": self.usual,
        }

    def text(self) -> str:
        """One line for people."""
        return (
            f"slow link: {self.source} to {self.destination} of {self.group or 'all'} over "
            f"{self.transport} (told by rank {self.rank}): {self.bandwidth:.3f} GB/s where "
            f"{self.usual:.3f} GB/s are usual; {self.n_bytes / 1e6:.1f} MB in "
            f"{self.time_ns / 1e3:.1f} µs"
        )


def of_rank(trace: Trace) -> Columns:
    """The links of one rank; empty if it knows none.

    Raises:
        TraceconvError: the matrix cannot be read.
    """
    return _TABLE.facts(trace)


def slow(summaries: Sequence[RankSummary], below: float = _SLOW) -> list[SlowLink]:
    """The links whose bandwidth is far below that of others with the same transport, slowest
    first: by 30 percent, and by four standard deviations (from the median deviation).

    Args:
        below: in place of 30 percent: the share of the usual bandwidth that is not reached.
    """
    slow_links = []
    for links in _by_transport(summaries).values():
        slow_links += _outliers(links, below)
    return sorted(slow_links, key=lambda link: link.bandwidth / link.usual)


def too_few(summaries: Sequence[RankSummary]) -> dict[str, int]:
    """Transports with too few links to find slow ones among them, and how many there are."""
    counts = {transport: len(links) for transport, links in _by_transport(summaries).items()}
    return {transport: n for transport, n in counts.items() if n < _FEWEST}


_Links = dict[tuple[int, str, int, int, str], list[int]]
"""Bytes and time, by rank, group, source, destination and transport."""


def _by_transport(summaries: Sequence[RankSummary]) -> dict[str, _Links]:
    by_transport: dict[str, _Links] = {}
    for summary in summaries:
        names = ("Group", "Source", "Destination", "Transport", "Bytes", "total")
        columns = [summary.links[name].tolist() for name in names] if summary.links else []
        for group, source, target, transport, size, time in zip(*columns, strict=True):
            if source != target and size > 0 and time > 0:
                alike = by_transport.setdefault(transport, {})
                sums = alike.setdefault((summary.rank, group, source, target, transport), [0, 0])
                sums[0] += size
                sums[1] += time
    return dict(sorted(by_transport.items()))


def _outliers(links: _Links, below: float) -> list[SlowLink]:
    size, time = np.array(list(links.values()), np.float64).T
    speed = size / time
    usual = float(median(speed))
    spread = SIGMA * float(median(np.abs(speed - usual)))
    slow = (speed < below * usual) & (speed < usual - _DEVIATIONS * spread)
    slow &= size >= _SMALL * float(median(size))
    if len(speed) < _FEWEST:
        return []
    keys = list(links)
    return [
        SlowLink(*keys[i], int(size[i]), int(time[i]), float(speed[i]), usual)
        for i in np.flatnonzero(slow).tolist()
    ]


# -- groups -------------------------------------------------------------------------------------


class SlowGroup(msgspec.Struct, frozen=True):
    """A group whose transfers take much longer than those of other groups of its size.

    Attributes:
        key:   of the group.
        ranks: its members.
        kind:  of the operation.
        n_bytes: bytes or elements of each, -1 if unknown.
        time_ns, usual_ns: what it takes when all members are there: here, and in other groups.
        others: how many other groups.
        gain_ns: what a step would be shorter by if it took as long as there, at most.
    """

    key: str
    ranks: tuple[int, ...]
    kind: str
    n_bytes: int
    time_ns: float
    usual_ns: float
    others: int
    gain_ns: float

    advice = "Check this connection: cabling, switch configuration, and other traffic on it."

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "group": self.key,
            "ranks": list(self.ranks),
            "operation": self.kind,
            "size": self.n_bytes if self.n_bytes >= 0 else None,
            "time_ns": round(self.time_ns),
            "usual_ns": round(self.usual_ns),
            "other_groups": self.others,
            "gain_ns": round(self.gain_ns),
            "text": self.text(),
        }

    def text(self) -> str:
        """One line for people."""
        size = f" of size {self.n_bytes}" if self.n_bytes >= 0 else ""
        where = "another group" if self.others == 1 else f"{self.others} other groups"
        return (
            f"slow group: {self.kind}{size} of {self.key} takes {time_text(self.time_ns)} when all "
            f"members are there, {time_text(self.usual_ns)} in {where}; that costs "
            f"{time_text(self.gain_ns)} per step"
        )


def slow_groups(replay: Replay, least_ns: float) -> list[SlowGroup]:
    """The groups whose transfers are slow, by what that costs.

    Compared are groups of one size that do the same in a step, and by the same test as ranks.

    Args:
        least_ns: what it costs per step at least.
    """
    graph = replay.graph
    key_of, names, members = groups_of(replay)
    costly = []
    for (kind, size), table, columns in _alike(replay, key_of, len(names)):
        chance = by_chance(over_others(np.log(np.maximum(table, 1))))
        usual = table - over_others(table)
        for column, group in enumerate(columns):
            is_known = ~np.isnan(usual[:, column])
            if not is_known.any():
                continue
            ratio = float(
                np.nanmedian(table[is_known, column] / np.maximum(usual[is_known, column], 1))
            )
            if ratio < _TIMES or chance[column] > LEVEL:
                continue
            rows = np.flatnonzero((key_of == group) & _of_kind(replay, kind, size))
            lengths = replay.lengths.copy()
            lengths[rows] /= ratio
            gain = float((replay.base - replay.steps(lengths)).mean())
            if gain >= least_ns:
                count = len(rows) / max(len(np.unique(graph.rank[rows])), 1)
                mean_ns = float(replay.lengths[rows].sum()) / max(len(rows), 1)
                bytes_ = {graph.kinds[k][2] for k in np.unique(graph.kind[rows]).tolist()}
                costly.append(
                    SlowGroup(names[group], members[group], kind,
                              bytes_.pop() if count and len(bytes_) == 1 else -1,
                              mean_ns, mean_ns / ratio, len(columns) - 1, gain)
                )  # fmt: skip
    best: dict[str, SlowGroup] = {}
    for group_of_kind in costly:
        costliest = best.get(group_of_kind.key)
        gain = group_of_kind.gain_ns + (costliest.gain_ns if costliest else 0.0)
        larger = max((group_of_kind, costliest or group_of_kind), key=lambda group: group.gain_ns)
        best[group_of_kind.key] = replace(larger, gain_ns=gain)
    return sorted(best.values(), key=lambda slow_group: (-slow_group.gain_ns, slow_group.key))


def groups_of(replay: Replay) -> tuple[I32, list[str], list[tuple[int, ...]]]:
    """Per operation of the graph, the number of its group (-1 of work), their keys, and which
    ranks are in each."""
    graph = replay.graph
    group_numbers = np.full(len(graph), -1, np.int32)
    number: dict[str, int] = {}
    ranks: dict[int, list[int]] = {}
    by_rank = {summary.rank: summary for summary in replay.every}
    order = np.flatnonzero(graph.call >= 0)
    order = order[np.argsort(graph.rank[order], kind="stable")]
    borders = np.searchsorted(graph.rank[order], np.arange(len(graph.ranks) + 1)).tolist()
    for column, rank in enumerate(graph.ranks):
        collectives = by_rank[rank].collectives
        rows = order[borders[column] : borders[column + 1]]
        codes = [number.setdefault(group.key, len(number)) for group in collectives.groups]
        for code in codes:
            ranks.setdefault(code, []).append(rank)
        if len(rows):
            group_numbers[rows] = np.array(codes, np.int32)[collectives.group[graph.call[rows]]]
    return group_numbers, list(number), [tuple(ranks[code]) for code in range(len(number))]


def _of_kind(replay: Replay, kind: str, size: int) -> NDArray[np.bool_]:
    graph = replay.graph
    kinds = [i for i, kind_facts in enumerate(graph.kinds) if kind_facts[:2] == (kind, size)]
    return np.isin(graph.kind, kinds)


def _alike(
    replay: Replay, key_of: I32, groups: int
) -> Iterator[tuple[tuple[str, int], F64, list[int]]]:
    """Per kind and size of a group: (steps, groups) mean transfer per step, and which groups: of
    those with as many operations and bytes in a step as most have; NaN elsewhere."""
    graph = replay.graph
    steps = len(graph.steps)
    volume = np.array([max(size, 0) for _, _, size in graph.kinds], np.float64)
    met = np.repeat(graph.sizes > 1, graph.sizes)
    for kind, size in dict.fromkeys(kind_facts[:2] for kind_facts in graph.kinds):
        rows = np.flatnonzero(_of_kind(replay, kind, size) & (key_of >= 0))
        # of operations that met only: a transfer of one member alone holds its waits
        rows = rows[met[rows]]
        if not len(rows):
            continue
        cells = graph.step[rows].astype(np.int64) * groups + key_of[rows]
        count = np.bincount(cells, minlength=steps * groups).reshape(steps, groups)
        total = np.bincount(cells, replay.lengths[rows], steps * groups).reshape(steps, groups)
        moved = np.bincount(cells, volume[graph.kind[rows]], steps * groups).reshape(steps, groups)
        columns = np.flatnonzero(count.any(axis=0)).tolist()
        if len(columns) < 2:
            continue
        count, total, moved = count[:, columns], total[:, columns], moved[:, columns]
        table = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        usual = (np.median(count, axis=1), np.median(moved, axis=1))
        table[(count != usual[0][:, None]) | (moved != usual[1][:, None])] = np.nan
        yield (kind, size), table, columns
