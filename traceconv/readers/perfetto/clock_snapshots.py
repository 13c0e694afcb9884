"""Clocks of a Perfetto trace and their snapshots: how a time gets onto the clock of the trace.

Snapshots of the same set of clocks form a group; within a group a time is converted by the last
snapshot at or before it. Groups that share a clock can be chained.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from traceconv.core.columns import I64

BOOTTIME = 6
MAX_HOPS = 4

ClockKey = int | tuple[int, int]
"""A builtin or global clock id, or (sequence id, clock id) of a sequence's own clock."""

Group = dict[ClockKey, list[int]]
"""Stamps in ns per clock; equal positions belong to one snapshot."""

Step = tuple[ClockKey, ClockKey, Group]
"""A conversion from one clock to another, by a group that has both."""


def is_sequence_clock(clock: int) -> bool:
    """Whether the id is private to its sequence."""
    return 64 <= clock < 128


class Reading(NamedTuple):
    """One clock in a snapshot. ``unit`` is ns per tick; ``incremental``: stamps are differences."""

    clock: ClockKey
    ticks: int
    unit: int = 1
    incremental: bool = False


class BadSnapshot(ValueError):
    """A snapshot that contradicts itself or an earlier one."""


@dataclass
class Clocks:
    """All snapshots of a trace.

    Attributes:
        trace:   the clock of the trace.
        default: clock of packets that name none; None before any snapshot (then nothing is
            converted).
        used:    whether a time was converted; the trace's clock is fixed from then on.
    """

    trace: int = BOOTTIME
    default: int | None = None
    used: bool = False
    _units: dict[ClockKey, tuple[int, bool]] = field(default_factory=dict)
    _last: dict[ClockKey, int] = field(default_factory=dict)  # ns, moved on by incremental clocks
    _groups: dict[tuple[ClockKey, ...], Group] = field(default_factory=dict)
    _unordered: set[ClockKey] = field(default_factory=set)

    def choose(self, clock: int) -> None:
        """Make ``clock`` the default, and the trace's own unless times were converted already."""
        self.default = clock
        if not self.used:
            self.trace = clock

    def add(self, readings: list[Reading]) -> None:
        """Take in a snapshot.

        Raises:
            BadSnapshot: it is not used.
        """
        clocks = tuple(r.clock for r in readings)
        if len(set(clocks)) != len(clocks):
            raise BadSnapshot("a clock is in it twice")
        group = self._groups.get(clocks) or {clock: [] for clock in clocks}
        for reading in readings:
            self._check(reading, group[reading.clock])
        self._groups[clocks] = group
        for clock, ticks, unit, incremental in readings:
            self._units[clock] = (unit, incremental)
            self._last[clock] = ticks * unit
            group[clock].append(ticks * unit)

    def convert(self, clock: ClockKey, ticks: I64) -> I64 | None:
        """Stamps of one clock, in the order in which they were made, as ns of the trace's clock;
        None if nothing relates the two.

        Stamps beyond int64 wrap around, as those of the importer do.
        """
        if clock == self.trace:
            return ticks
        path = self.path(clock, self.trace)
        if not path:
            return None
        unit, incremental = self._units[clock]
        ns = ticks * np.int64(_wrapped(unit))
        if incremental and len(ns):
            ns = np.cumsum(ns) + np.int64(_wrapped(self._last[clock]))
            self._last[clock] = int(ns[-1])
        moved = np.zeros(len(ns), np.int64)
        for source, target, group in path:
            stamps = np.array([_wrapped(n) for n in group[source]], np.int64)
            onto = np.array([_wrapped(n) for n in group[target]], np.int64)
            latest = np.maximum(np.searchsorted(stamps, ns + moved, "right") - 1, 0)
            moved += (onto - stamps)[latest]
        return ns + moved

    @property
    def differences(self) -> bool:
        """Whether stamps of any clock are differences."""
        return any(incremental for _, incremental in self._units.values())

    def incremental(self, clock: ClockKey) -> bool:
        """Whether stamps of the clock are differences."""
        return self._units.get(clock, (1, False))[1]

    def path(self, source: ClockKey, target: ClockKey) -> list[Step]:
        """The shortest chain between two clocks; empty if they are not connected."""
        pending: deque[tuple[ClockKey, list[Step]]] = deque([(source, [])])
        visited = {source}
        while pending:
            clock, path = pending.popleft()
            if len(path) >= MAX_HOPS or clock in self._unordered:
                continue
            for group in (g for g in self._groups.values() if clock in g):
                if target in group and target != clock:
                    return [*path, (clock, target, group)]
                for neighbour in group.keys() - visited:
                    visited.add(neighbour)
                    pending.append((neighbour, [*path, (clock, neighbour, group)]))
        return []

    def _check(self, reading: Reading, earlier: list[int]) -> None:
        clock, ticks, unit, incremental = reading
        if incremental and isinstance(clock, int) and clock not in self._units:
            raise BadSnapshot("only a sequence's own clock can be incremental")
        if self._units.get(clock, (unit, incremental)) != (unit, incremental):
            raise BadSnapshot("a clock has another unit than before")
        if clock == self.trace and unit != 1:
            raise BadSnapshot("the trace's clock does not count nanoseconds")
        if earlier and ticks * unit < earlier[-1]:
            if clock == self.trace:
                raise BadSnapshot("the trace's clock goes backwards")
            self._unordered.add(clock)


def _wrapped(value: int) -> int:
    """``value`` as an int64 that wraps around."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
