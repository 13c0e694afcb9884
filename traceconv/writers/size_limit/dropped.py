"""The dropped table: what the size limit took, by rank, lane and reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64, Trace
from traceconv.writers.size_limit.coalesce import Clusters, Mask, Runs

COALESCED = "coalesced"
COVERED = "inside a longer slice"
INSTANT = "instant"
LANE = "lane left out"
THINNED = "counter thinned"
ARROW = "arrow of a dropped slice"


SHOWN_CHARS = 80
"""Characters of a name that the table tells."""


def longest_row(labels: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A row no other is longer than, for tracks with these headings and names."""
    heading, track = max(labels, key=lambda label: len(json.dumps(label)), default=("", ""))
    most = 2**63 - 1
    return _row(most, "overlap", heading, track, most, most, ARROW)


def shortened(table: Sequence[Mapping[str, Any]], rows: int) -> list[Mapping[str, Any]]:
    """``table`` with at most ``rows`` + 1 rows: the largest losses, and the sum of the others."""
    if len(table) <= rows:
        return list(table)
    order = sorted(range(len(table)), key=lambda i: (-table[i]["busy_ns"], -table[i]["rows"], i))
    shown, rest = sorted(order[:rows]), order[rows:]
    lost, busy = (sum(table[i][key] for i in rest) for key in ("rows", "busy_ns"))
    return [*(table[i] for i in shown), _row(-1, "", "", f"{len(rest)} others", lost, busy, "")]


def _row(
    rank: int, layer: str, heading: str, track: str, rows: int, busy_ns: int, reason: str
) -> dict[str, Any]:
    return {
        "rank": rank,
        "layer": layer,
        "heading": heading[:SHOWN_CHARS],
        "track": track[:SHOWN_CHARS],
        "rows": rows,
        "busy_ns": busy_ns,
        "reason": reason,
    }


class Dropped:
    """The dropped table of one rank, as it grows."""

    def __init__(self, trace: Trace) -> None:
        self.table: list[dict[str, Any]] = []
        self._trace = trace

    def events(
        self, clusters: Clusters, kept: Mask, runs: Runs, lanes: frozenset[int] | None
    ) -> None:
        """Book event rows by what became of them."""
        track = self._trace.events.track
        gone = ~kept
        if lanes is not None:
            out = gone & ~clusters.always & ~np.isin(track, list(lanes))
            self._lanes(clusters, out)
            gone &= ~out
        self.rows(INSTANT, track[gone & ~clusters.is_slice])
        gone &= clusters.is_slice
        in_run = clusters.inside(runs)
        busy = self._by_track(clusters.track[runs.first], runs.busy_ns)
        self.rows(COALESCED, track[gone & in_run], busy)
        self.rows(COVERED, track[gone & ~in_run])

    def _lanes(self, clusters: Clusters, out: Mask) -> None:
        whole = out[clusters.first]
        busy = self._by_track(clusters.track[whole], clusters.busy_ns()[whole])
        self.rows(LANE, self._trace.events.track[out], busy)

    def _by_track(self, track: NDArray[np.int32], ns: I64) -> I64:
        summed = np.zeros(len(self._trace.tracks), np.int64)
        np.add.at(summed, track, ns)
        return summed

    def arrows(self, count: int) -> None:
        """Book arrows, which lie on no track."""
        if count:
            self.table.append(_row(self._trace.rank, "", "", "", count, 0, ARROW))

    def rows(self, reason: str, tracks: Any, busy: Any = None) -> None:
        """Book rows, given the track of each; ``busy`` is ns by track."""
        counts = np.bincount(tracks, minlength=1)
        for number in np.flatnonzero(counts).tolist():
            track = self._trace.tracks[number]
            name = " ".join(word for word in (track.group, track.name) if word)
            shown = f"{name} ({track.lane + 1})" if track.lane else name
            ns = 0 if busy is None else int(busy[number])
            count = int(counts[number])
            self.table.append(
                _row(self._trace.rank, str(track.layer), track.heading, shown, count, ns, reason)
            )
