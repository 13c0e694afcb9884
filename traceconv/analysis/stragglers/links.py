"""Slow links: connections between ranks that carry data much slower than others of their kind.

From what the planes of a timeline, or ``communication_matrix.json``, say of copies between ranks:
bytes and time by source, destination and transport (the table "link" of ``traceconv stats``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.tables.communication import TABLES
from traceconv.core.model import Trace
from traceconv.core.robust import SIGMA
from traceconv.core.side_tables import Columns

_TABLE = next(table for table in TABLES if table.name == "link")
_FEWEST = 4  # links of one transport; fewer have no usual bandwidth
_SMALL = 0.1  # of the usual bytes: links that carried less are slow for other reasons
_SLOW = 0.7  # of the usual bandwidth
_DEVIATIONS = 4.0


@dataclass(frozen=True)
class SlowLink:
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
    usual = float(np.median(speed))
    spread = SIGMA * float(np.median(np.abs(speed - usual)))
    slow = (speed < below * usual) & (speed < usual - _DEVIATIONS * spread)
    slow &= size >= _SMALL * float(np.median(size))
    if len(speed) < _FEWEST:
        return []
    keys = list(links)
    return [
        SlowLink(*keys[i], int(size[i]), int(time[i]), float(speed[i]), usual)
        for i in np.flatnonzero(slow).tolist()
    ]
