"""Slow links: connections between ranks that carry data much slower than others of their kind.

Of single connections from what the planes of a timeline, or ``communication_matrix.json``, say of
copies between ranks: bytes and time by source, destination and transport (the table "link" of
``traceconv stats``). Of whole groups from the collectives themselves: who comes last waits for
nobody, so the shortest time that a member is inside is what the transfer takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import P2P
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.significance import share_of_draws
from traceconv.analysis.tables.communication import TABLES
from traceconv.core.clock import time_text
from traceconv.core.columns import F64
from traceconv.core.model import Trace
from traceconv.core.ordering import distinct
from traceconv.core.robust import SIGMA, median, quantile
from traceconv.core.side_tables import Columns

_TABLE = next(table for table in TABLES if table.name == "link")
_FEWEST = 4  # links of one transport; fewer have no usual bandwidth
_SMALL = 0.1  # of the usual bytes: links that carried less are slow for other reasons
_SLOW = 0.7  # of the usual bandwidth
_DEVIATIONS = 4.0
_TIMES = 1.5  # as long as usual is the least that a slow group takes
_TRANSFERS = 5  # of a group; from fewer nothing is concluded
_CHANCE = 0.002  # probability that groups that are alike have one that seems to be slow
_MESSAGES = 0.1  # of the messages of a group wait for nobody, whichever side comes last


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
    """What one rank knows of its links; empty if nothing.

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
    found = []
    for links in _by_transport(summaries).values():
        found += _outliers(links, below)
    return sorted(found, key=lambda link: link.bandwidth / link.usual)


def too_few(summaries: Sequence[RankSummary]) -> dict[str, int]:
    """Transports with too few links to find slow ones among them, and how many there are."""
    counts = {transport: len(links) for transport, links in _by_transport(summaries).items()}
    return {transport: n for transport, n in counts.items() if n < _FEWEST}


_Links = dict[tuple[int, str, int, int, str], list[int]]
"""Bytes and time, by rank, group, source, destination and transport."""


def _by_transport(summaries: Sequence[RankSummary]) -> dict[str, _Links]:
    found: dict[str, _Links] = {}
    for one in summaries:
        for group, source, target, transport, size, time in _rows(one.links):
            if source != target and size > 0 and time > 0:
                alike = found.setdefault(transport, {})
                both = alike.setdefault((one.rank, group, source, target, transport), [0, 0])
                both[0] += size
                both[1] += time
    return dict(sorted(found.items()))


def _rows(links: Columns) -> Any:
    if not links:
        return ()
    names = ("Group", "Source", "Destination", "Transport", "Bytes", "total")
    return zip(*(links[name].tolist() for name in names), strict=True)


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
            f"members are there, {time_text(self.usual_ns)} in {where}; that costs up to "
            f"{time_text(self.gain_ns)} per step"
        )


def slow_groups(
    every: Sequence[RankSummary], groups: Iterable[Matched], least_ns: float
) -> list[SlowGroup]:
    """The groups whose transfers are slow, by what that costs.

    Args:
        every:  the summaries of all ranks.
        groups: their collectives, matched.
        least_ns: what it costs per step at least.
    """
    alike: dict[tuple[Any, ...], list[tuple[str, tuple[int, ...], F64, float]]] = {}
    for key, ranks, kind, size, times, per_step in _transfers(every, groups):
        if len(times) >= _TRANSFERS:
            alike.setdefault((len(ranks), kind, size), []).append((key, ranks, times, per_step))
    found: dict[str, SlowGroup] = {}
    looked_at = sum(len(several) for several in alike.values())
    for (_, kind, size), several in alike.items():
        for one in _slow_of(kind, size, several, _CHANCE / looked_at):
            known = found.get(one.key)
            gain = one.gain_ns + (known.gain_ns if known else 0.0)
            most = max((one, known or one), key=lambda group: group.gain_ns)
            found[one.key] = replace(most, gain_ns=gain)
    slow = [one for one in found.values() if one.gain_ns >= least_ns]
    return sorted(slow, key=lambda one: (-one.gain_ns, one.key))


def _slow_of(
    kind: str,
    size: int,
    several: Sequence[tuple[str, tuple[int, ...], F64, float]],
    level: float,
) -> Iterator[SlowGroup]:
    """Those of one kind and size, unless they are not few, or by chance with a probability of more
    than ``level``."""
    share = _MESSAGES if kind == P2P else 0.5
    usual = np.array([quantile(times, share) for _, _, times, _ in several])
    slow = []
    for at, (key, ranks, times, per_step) in enumerate(several):
        others = [times for other, (_, _, times, _) in enumerate(several) if other != at]
        if not others:
            continue
        elsewhere = float(median(np.delete(usual, at)))
        apart = quantile(times, share / 2) > quantile(np.concatenate(others), 1.5 * share)
        if usual[at] > _TIMES * elsewhere and apart and _by_chance(kind, times, others) < level:
            gain = (float(usual[at]) - elsewhere) * per_step
            slow.append(SlowGroup(key, ranks, kind, size, float(usual[at]), elsewhere,
                                  len(others), gain))  # fmt: skip
    if len(slow) * 2 < len(several) or len(several) == 2:
        yield from slow


def _by_chance(kind: str, times: F64, others: Sequence[F64]) -> float:
    """How often as many transfers, drawn from those of all groups, would take as long; 0 of
    messages, which wait."""
    if kind == P2P:
        return 0.0
    every = np.log(np.maximum(np.concatenate((times, *others)), 1.0))
    return share_of_draws(every, len(times), float(every[: len(times)].sum()))


_Transfers = tuple[str, tuple[int, ...], str, int, F64, float]
"""Group, members, kind, size, ns of each transfer, and how many there are per step and rank."""


def _transfers(every: Sequence[RankSummary], groups: Iterable[Matched]) -> Iterator[_Transfers]:
    """Of groups all of whose members were captured."""
    by_rank = {one.rank: one for one in every}
    members: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    for one in every:
        for group in one.collectives.groups:
            members.setdefault(group.key, []).append(one.rank)
            size[group.key] = max(size.get(group.key, -1), group.size)
    if max(one.world_size for one in every) == len(every):  # all members there can be
        size = {key: len(members[key]) if n < 0 else n for key, n in size.items()}
    for matched in groups:
        if size[matched.key] == len(matched.ranks):
            yield from _collectives(matched, by_rank)
    for key, ranks in members.items():
        if size[key] == len(ranks) > 1:
            times, per_step = zip(*(_messages(by_rank[r], key) for r in ranks), strict=True)
            joined = np.concatenate(times)
            yield key, tuple(sorted(ranks)), P2P, -1, joined, float(np.mean(per_step))


def _collectives(group: Matched, by_rank: Mapping[int, RankSummary]) -> Iterator[_Transfers]:
    known = by_rank[group.ranks[group.base]].collectives
    rows = group.row[:, group.base]
    inside = (group.end_ns - group.start_ns).astype(np.float64)
    fastest = np.where(group.row >= 0, inside, np.nan).min(axis=1)  # NaN unless all were seen
    steps = max(len(distinct(known.step[rows])), 1)
    kinds, sizes = known.kind[rows], known.size[rows]
    for kind in distinct(kinds).tolist():
        if known.kinds[kind] == P2P:
            continue
        of_kind = kinds == kind
        for size in distinct(sizes[of_kind]).tolist():
            mine = of_kind & (sizes == size) & ~np.isnan(fastest)
            per_step = np.count_nonzero(mine) / steps
            yield group.key, group.ranks, known.kinds[kind], size, fastest[mine], per_step


def _messages(one: RankSummary, key: str) -> tuple[F64, float]:
    """How long each message of a rank in a group takes, and how many there are per step."""
    known = one.collectives
    index = [group.key for group in known.groups].index(key)
    rows = known.of_group(index)
    sent = known.messages[rows]
    times = (known.end_ns[rows] - known.start_ns[rows])[sent].astype(np.float64)
    return times, len(times) / max(len(distinct(known.step[rows])), 1)
