"""Chrome JSON: how the tracks of a rank become numbered processes and threads, and their names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from traceconv.core.model import Layer, Trace, Track
from traceconv.writers import Document
from traceconv.writers.arguments import quoted

MAX_RANK = 10**5
"""Ranks beyond are numbered by their position: a pid must stay below 2**31."""


class Numbers:
    """Process and thread numbers of one rank, and the names on screen.

    Attributes:
        place: the rank, or its position if ranks are huge.
        names: by track: of the thread, or of the counter; a counter's is unique in its process.
        lanes: by track: ``"pid":..,"tid":..,"ts":`` of its events.
    """

    def __init__(self, trace: Trace, document: Document) -> None:
        ranks, rank = document.ranks, trace.rank
        self._rank, self._tracks = rank, trace.tracks
        top = max((*ranks, rank))
        self.place = rank if top < MAX_RANK else bisect_left(ranks, rank)
        self._places = top + 1 if top < MAX_RANK else len(ranks)
        self._processes: dict[tuple[Layer, str], int] = {}
        for track in self._tracks:
            key = (track.layer, track.heading)
            self._processes.setdefault(key, self._number(len(self._processes)))
        first = len(self._processes)
        self._pids = [self._processes[t.layer, t.heading] for t in self._tracks]
        self._tids = [self._number(first + i) for i in range(len(self._tracks))]
        self.names = _unique_names(self._tracks, self._pids)
        self.lanes = [
            b'"pid":%d,"tid":%d,"ts":' % (pid, tid)
            for pid, tid in zip(self._pids, self._tids, strict=True)
        ]
        self._labels = _labels(trace)

    def _number(self, k: int) -> int:
        """The k-th number of the rank: blocks of 1000 per rank, more blocks after the last."""
        block, within = divmod(k, 999)
        return (block * self._places + self.place) * 1000 + 1 + within

    def descriptions(self, tracks: Sequence[int]) -> bytes:
        """The metadata records of ``tracks`` and their processes."""
        wanted = {self._pids[i] for i in tracks}
        records = []
        for (_, heading), pid in self._processes.items():
            if pid in wanted:
                name = f"Rank {self._rank} {heading}"
                records.append(_record("process_name", pid, name=name, rank=self._rank))
                records.append(_record("process_sort_index", pid, sort_index=pid))
                if self._labels:
                    records.append(_record("process_labels", pid, labels=self._labels))
        for i in tracks:
            pid, tid = self._pids[i], self._tids[i]
            told = {"name": self.names[i], **_identity(self._tracks[i])}
            records.append(_record("thread_name", pid, tid, **told))
            records.append(_record("thread_sort_index", pid, tid, sort_index=tid))
        return b"".join(records)


def _record(what: str, pid: int, tid: int | None = None, /, **args: Any) -> bytes:
    lane = b'"pid":%d' % pid if tid is None else b'"pid":%d,"tid":%d' % (pid, tid)
    pairs = b",".join(
        quoted(key) + b":" + (quoted(v) if isinstance(v, str) else b"%d" % v)
        for key, v in args.items()
    )
    return b',\n{"ph":"M","name":"%b",%b,"args":{%b}}' % (what.encode(), lane, pairs)


def _identity(track: Track) -> dict[str, str | int]:
    """The fields of a track, for our own reader."""
    told: dict[str, str | int] = {
        "layer": str(track.layer),
        "title": track.title,
        "group": track.group,
        "track": track.name,
        "sort": track.sort,
        "lane": track.lane,
    }
    return told if track.unit is None else {**told, "unit": track.unit}


def _unique_names(tracks: Sequence[Track], pids: Sequence[int]) -> list[str]:
    """What stands on screen. Viewers join counters of one name, so theirs are made to differ."""
    taken: set[tuple[int, str]] = set()
    names = []
    for track, pid in zip(tracks, pids, strict=True):
        named = not track.group or track.name.startswith(track.group)
        plain = (track.name if named else f"{track.group} {track.name}") or "(no name)"
        name = f"{plain} ({track.lane + 1})" if track.lane else plain
        number = track.lane + 1
        while track.is_counter and (pid, name) in taken:
            number += 1
            name = f"{plain} ({number})"
        taken.add((pid, name))
        names.append(name)
    return names


def _labels(trace: Trace) -> str:
    device = f"device {trace.capture.device}" if trace.capture.device >= 0 else ""
    return ", ".join(word for word in (trace.capture.host, device) if word)
