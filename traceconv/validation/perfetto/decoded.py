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
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Argument:
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
    _arguments: Arguments

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
        return {_bare(a.key): a.value for a in self.read_arguments(i, False)}

    def arguments(self, i: int) -> list[Argument]:
        """Arguments of row ``i`` with the importer's own keys and types."""
        return self.read_arguments(i, True)

    def read_arguments(self, i: int, renamed: bool) -> list[Argument]:
        """Arguments of row ``i``; ``renamed`` as in :data:`Arguments`."""
        return self._arguments(int(self.index[i]), renamed)

    def select(self, mask: Mask) -> Rows:
        """The rows where ``mask`` is true."""
        return self._taken(np.flatnonzero(mask))

    def reordered(self, order: I64, arguments: Arguments) -> Rows:
        """The rows in another order, numbered anew."""
        index = np.arange(len(order), dtype=np.int64)
        return replace(self._taken(order), index=index, _arguments=arguments)

    def _taken(self, at: I64) -> Rows:
        return replace(
            self,
            ts=self.ts[at],
            dur=self.dur[at],
            depth=self.depth[at],
            track_id=self.track_id[at],
            index=self.index[at],
            label=self.label[at],
        )


def column(values: array[Any], dtype: type[Any]) -> NDArray[Any]:
    """A growing column as it stands, without a copy; it must not grow while this is in use."""
    return np.frombuffer(values, dtype) if values else np.empty(0, dtype)


def _bare(key: str) -> str:
    for prefix in ("debug.", "args."):
        if key.startswith(prefix):
            return key[len(prefix) :]
    return key


@dataclass(frozen=True)
class Counters:
    """Counter samples, by time.

    Attributes:
        ts:       ns.
        value:    as the importer keeps it, a double.
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
    """A trace as the importer sees it.

    Attributes:
        format:   "perfetto", "chrome_json", or "archive" (several files).
        rows:     slices and instants together, by time: the importer's slice table.
        instant:  which of them are instants.
        tracks:   every track that holds something.
        stats:    the importer's statistics by name (only those of broken rules).
        metadata: trace attributes, or the ``metadata`` object of Chrome JSON.
    """

    format: str
    rows: Rows
    instant: Mask
    counters: Counters
    flows: Flows
    tracks: Sequence[TrackRow]
    stats: Counter[str] = field(default_factory=Counter)
    metadata: dict[str, Any] = field(default_factory=dict)

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
