"""Counter samples into the builder, each series on a track of its own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.model import I64, Track
from traceconv.readers._trace_events.contract import Placed, Skipped
from traceconv.readers._trace_events.lanes import SKIPPED, Lanes, Texts
from traceconv.readers._trace_events.place import Placer
from traceconv.readers._trace_events.samples import titles
from traceconv.readers._trace_events.tables import Samples, Tables

Kinds = list[tuple[int, int, int]]
"""Different (shape, name, series) of samples."""


class Counters:
    """Puts samples on tracks.

    Series of one name belong together if they are of one process (the thread does not matter).
    """

    def __init__(self, tables: Tables, lanes: Lanes, texts: Texts, build: TraceBuilder) -> None:
        self._tables, self._lanes, self._texts, self._build = tables, lanes, texts, build
        self._series = list(tables.series)
        self._taken: dict[Track, tuple[str, int, int]] = {}

    def put(self, samples: Samples, placer: Placer) -> None:
        """Add all samples."""
        kept = placer.shift(samples.start, np.zeros(len(samples), np.int64))
        if not kept.all():
            self._tables.tally.add("bad-time", count=int((~kept).sum()), kind="counter")
            samples = samples.take(kept)
        if not len(samples):
            return
        kinds, which = self._kinds(samples)
        tracks = self._tracks(kinds)
        counts = np.bincount(which, minlength=len(kinds)).tolist()
        for (shape, _, _), track, count in zip(kinds, tracks.tolist(), counts, strict=True):
            if track < 0:
                self._leave(shape, track, count)
        track = tracks[which]
        kept = track >= 0
        self._tables.tally.add("missing-name", count=int((samples.name[kept] < 0).sum()))
        self._build.counters(
            track=track[kept], start_ns=samples.start[kept], value=samples.value[kept]
        )

    def _leave(self, shape: int, track: int, count: int) -> None:
        """Book samples of a lane that is left out."""
        place = self._lanes.place(shape)
        if isinstance(place, Skipped):
            where = self._tables.shapes.place(shape)
            self._tables.tally.add(place.code, where, count, "counter")
        else:
            self._tables.tally.saw("counter", -count)

    def _kinds(self, samples: Samples) -> tuple[Kinds, I64]:
        """The different kinds of samples, and which one each row is of."""
        lanes = samples.shape.astype(np.int64) * (len(self._tables.names) + 1) + samples.name
        _, lane = np.unique(lanes, return_inverse=True)
        keys = lane * len(self._series) + samples.series
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        columns = (c[first].tolist() for c in (samples.shape, samples.name, samples.series))
        return list(zip(*columns, strict=True)), which

    def _tracks(self, kinds: Kinds) -> I64:
        """Number of the track per kind, -1 or -2 where it has none."""
        groups: defaultdict[tuple[str, int], dict[int, None]] = defaultdict(dict)
        for shape, name, series in kinds:
            groups[self._tables.shapes.pid[shape], name][series] = None
        made = {}
        for (pid, name), members in groups.items():
            named = titles(self._texts.text(name), [self._series[m] for m in members])
            made.update({(pid, name, m): title for m, title in zip(members, named, strict=True)})
        return np.array([self._track(*kind, made) for kind in kinds], np.int64)

    def _track(
        self, shape: int, name: int, series: int, made: dict[tuple[str, int, int], tuple[str, str]]
    ) -> int:
        place = self._lanes.place(shape)
        if not isinstance(place, Placed):
            return SKIPPED if place is not None else SKIPPED + 1
        if place.track.unit is not None:
            return self._build.add_track(place.track)
        key = self._tables.shapes.pid[shape], name, series
        title, unit = made[key]
        track = replace(place.track, name=title, unit=unit)
        number = 1
        while self._taken.setdefault(track, key)[1:] != key[1:]:
            number += 1  # "a" with key "b" beside "a b"
            track = replace(track, name=f"{title} ({number})")
        return self._build.add_track(track)
