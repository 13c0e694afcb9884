"""What a viewer's importer makes of a trace, as columns.

Times are int64 nanoseconds. A row's ``track`` is the path of track names from the process down;
two tracks can have equal paths (lanes of one name), so ``track_id`` tells them apart.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.validation.container import Member
from traceconv.validation.rules import Tally

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Argument(NamedTuple):
    """One leaf of an argument tree.

    Attributes:
        key:   full key of the importer, with array positions ("debug.dict.arr[0]").
        kind:  bool, int, uint, real, string or pointer.
        value: bool, int, float or str.
    """

    key: str
    kind: str
    value: bool | int | float | str


Label = tuple[str | None, str | None]
"""Name and category; None where the importer has no string."""

Arguments = Callable[[int, bool], list[Argument]]
"""Row number to the arguments of that row; the flag asks for the importer's own spelling of keys,
which has ``_`` for dots and brackets in the names of Perfetto annotations."""


@dataclass(frozen=True)
class TrackRow:
    """A row of the viewer.

    Attributes:
        path: names from the process down; a nameless process or thread is ``pid 7`` or ``tid 7``.
        type: the importer's track type ("thread_execution", "global_merged_track_event" ...).
        name: its own name, "" for threads (which have their thread's name).
        pid, tid: of the process or thread it belongs to; None if there is none.
        unit: of a counter, "" for all others.
        machine: number or name of the machine, "" for the only one.
    """

    path: tuple[str, ...]
    type: str
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    unit: str = ""
    machine: str = ""


@dataclass(frozen=True)
class Rows:
    """Slices, instants, or both: one entry per row in every column.

    Attributes:
        ts:       start, ns.
        dur:      ns; -1 for a slice that never ends, 0 for instants.
        depth:    how many slices enclose it.
        track_id: index into :attr:`Decoded.tracks`.
        index:    number of the row among :attr:`Decoded.rows` (flows refer to it).
        label:    index into ``labels``.
        labels:   (name, category) pairs; None where there is none.
        paths:    of all tracks.
    """

    ts: I64
    dur: I64
    depth: I32
    track_id: I32
    index: I64
    label: I32
    labels: Sequence[Label]
    paths: Sequence[tuple[str, ...]]
    read_arguments: Arguments

    def __len__(self) -> int:
        return len(self.ts)

    @cached_property
    def name(self) -> list[str]:
        """Name of every row, "" where there is none."""
        names = [name or "" for name, _ in self.labels]
        return [names[n] for n in self.label.tolist()]

    @cached_property
    def category(self) -> list[str]:
        """Category of every row, "" where there is none."""
        categories = [category or "" for _, category in self.labels]
        return [categories[n] for n in self.label.tolist()]

    @cached_property
    def track(self) -> list[tuple[str, ...]]:
        """Path of the track of every row."""
        return [self.paths[t] for t in self.track_id.tolist()]

    def args(self, i: int) -> dict[str, Any]:
        """Arguments of row ``i``, flattened: nested keys with dots, arrays with ``[i]``.

        The importer's prefixes ``debug.`` (Perfetto) and ``args.`` (Chrome JSON) are left off, and
        names are spelt as in the file, so that both formats give the same keys.
        """
        found = self.read_arguments(int(self.index[i]), False)
        return {a.key.removeprefix(_prefix(a.key)): a.value for a in found}

    def arguments(self, i: int) -> list[Argument]:
        """Arguments of row ``i`` with the importer's own keys and types."""
        return self.read_arguments(int(self.index[i]), True)

    def select(self, mask: Mask) -> Rows:
        """The rows where ``mask`` is true."""
        names = ("ts", "dur", "depth", "track_id", "index", "label")
        return replace(self, **{name: getattr(self, name)[mask] for name in names})


def _prefix(key: str) -> str:
    return next((p for p in ("debug.", "args.") if key.startswith(p)), "")


def column(values: array[Any], dtype: type[Any]) -> NDArray[Any]:
    """A growing column as it is now, without a copy; it must not grow while this is in use."""
    return np.frombuffer(values, dtype) if values else np.empty(0, dtype)


@dataclass(frozen=True)
class Counters:
    """Counter samples, by time.

    Attributes:
        ts:       ns.
        value:    as the importer stores it, a double.
        track_id: index into :attr:`Decoded.tracks`.
        paths:    of all tracks.
    """

    ts: I64
    value: F64
    track_id: I32
    paths: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.ts)

    @cached_property
    def track(self) -> list[tuple[str, ...]]:
        """Path of the counter of every sample."""
        return [self.paths[t] for t in self.track_id.tolist()]


@dataclass(frozen=True)
class Flows:
    """Arrows. ``source`` and ``target`` are row numbers in :attr:`Decoded.rows`."""

    source: I64
    target: I64

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Decoded:
    """A trace as the importer shows it.

    Attributes:
        format:   "perfetto", "chrome_json", or "archive" (several files).
        rows:     slices and instants together, by time: the importer's slice table.
        instant:  which of them are instants.
        tracks:   every track that has events.
        stats:    the importer's statistics by name (only those of broken rules).
        metadata: trace attributes, or the ``metadata`` object of Chrome JSON.
        other_sources: whether there are packets of other data sources, which are not decoded:
            ftrace, samples of CPUs, memory ...
    """

    format: str
    rows: Rows
    instant: Mask
    counters: Counters
    flows: Flows
    tracks: Sequence[TrackRow]
    stats: Counter[str] = field(default_factory=Counter)
    metadata: dict[str, Any] = field(default_factory=dict)
    other_sources: bool = False

    @cached_property
    def slices(self) -> Rows:
        """Rows with a begin and an end."""
        return self.rows.select(~self.instant)

    @cached_property
    def instants(self) -> Rows:
        """Rows that are points in time."""
        return self.rows.select(self.instant)

    def counts(self) -> dict[str, int]:
        """How many slices, instants, counter samples, flows and tracks there are."""
        instants = int(self.instant.sum())
        return {
            "slices": len(self.rows) - instants,
            "instants": instants,
            "counters": len(self.counters),
            "flows": len(self.flows),
            "tracks": len(self.tracks),
        }


def merged(parts: Sequence[Decoded], members: Sequence[Member], tally: Tally) -> Decoded:
    """Several traces on one timeline, each with its own tracks and shifted as its member says."""
    if len(parts) == 1 and not members[0].shift_ns:
        return replace(parts[0], stats=tally.stats)
    both = list(zip(parts, members, strict=True))
    tracks = [replace(t, machine=m.machine or t.machine) for p, m in both for t in p.tracks]
    paths = [track.path for track in tracks]
    for part, member in both:
        early = int(np.count_nonzero(part.rows.ts < -member.shift_ns))
        where = f"{member.name}, shifted by {member.shift_ns} ns"
        tally.add("P07-negative", where, "trace_sorter_negative_timestamp_dropped", count=early)
    firsts = np.cumsum([0, *(len(part.tracks) for part in parts)])
    ts = np.concatenate([p.counters.ts + m.shift_ns for p, m in both])
    order = np.argsort(ts, kind="stable")
    value = np.concatenate([p.counters.value for p in parts])[order]
    of = _numbered([p.counters.track_id for p in parts], firsts)[order]
    rows, instant, numbers = _merged_rows(both, firsts, paths)
    formats = {part.format for part in parts}
    arrows = list(zip(numbers, (part.flows for part in parts), strict=True))
    return Decoded(
        formats.pop() if len(formats) == 1 else "archive",
        rows,
        instant,
        Counters(ts[order], value, of, paths),
        Flows(
            np.concatenate([n[flows.source] for n, flows in arrows]),
            np.concatenate([n[flows.target] for n, flows in arrows]),
        ),
        tracks,
        tally.stats,
        {key: value for part in parts for key, value in part.metadata.items()},
        any(part.other_sources for part in parts),
    )


def _merged_rows(
    both: Sequence[tuple[Decoded, Member]], firsts: I64, paths: Sequence[tuple[str, ...]]
) -> tuple[Rows, Mask, list[I64]]:
    """All rows by time, which are instants, and each part's row numbers among them."""
    rows = [part.rows for part, _ in both]
    starts = np.cumsum([0, *(len(r) for r in rows)])
    ts = np.concatenate([p.rows.ts + m.shift_ns for p, m in both])
    order = np.argsort(ts, kind="stable")
    number = np.empty(len(order), np.int64)  # the inverse of ``order``
    number[order] = np.arange(len(order))

    def arguments(row: int, renamed: bool) -> list[Argument]:
        old = int(order[row])
        part = int(np.searchsorted(starts, old, side="right")) - 1
        return rows[part].read_arguments(old - int(starts[part]), renamed)

    labels = np.cumsum([0, *(len(r.labels) for r in rows)])
    whole = Rows(
        ts=ts[order],
        dur=np.concatenate([r.dur for r in rows])[order],
        depth=np.concatenate([r.depth for r in rows])[order],
        track_id=_numbered([r.track_id for r in rows], firsts)[order],
        index=np.arange(len(ts), dtype=np.int64),
        label=_numbered([r.label for r in rows], labels)[order],
        labels=[label for r in rows for label in r.labels],
        paths=paths,
        read_arguments=arguments,
    )
    instant = np.concatenate([part.instant for part, _ in both])[order]
    return whole, instant, [number[a:b] for a, b in pairwise(starts.tolist())]


def _numbered(columns: Sequence[I32], firsts: I64) -> I32:
    """Columns of part numbers joined, each counted from its part's first."""
    return np.concatenate([c + np.int32(n) for c, n in zip(columns, firsts[:-1], strict=True)])
