"""Clocks and snapshots: how the importer brings a packet's time onto the trace's clock.

Snapshots of the same set of clocks form a group; within a group a time is converted by the last
snapshot at or before it. Groups that share a clock can be chained.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

BOOTTIME = 6
MAX_HOPS = 4
_FOREVER = 1 << 70

ClockKey = int | tuple[int, int]
"""A builtin or global clock id, or (sequence id, clock id) of a sequence's own clock."""

Group = dict[ClockKey, list[int]]
"""Stamps in ns per clock; equal positions belong to one snapshot."""

Step = tuple[ClockKey, ClockKey, Group]
"""From one clock to another by a group that holds both."""


def is_sequence_clock(clock: int) -> bool:
    """Whether the id is private to its sequence."""
    return 64 <= clock < 128


@dataclass(frozen=True)
class Reading:
    """One clock in a snapshot. ``unit`` is ns per tick; ``incremental``: stamps are differences."""

    clock: ClockKey
    ticks: int
    unit: int = 1
    incremental: bool = False


@dataclass
class Domain:
    """A clock as the snapshots describe it; ``last`` is where an incremental one stands, ns."""

    unit: int
    incremental: bool
    last: int = 0

    def nanoseconds(self, ticks: int) -> int:
        """A stamp of this clock in ns; moves an incremental clock on."""
        if not self.incremental:
            return ticks * self.unit
        self.last += ticks * self.unit
        return self.last


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
    _domains: dict[ClockKey, Domain] = field(default_factory=dict)
    _groups: dict[tuple[ClockKey, ...], Group] = field(default_factory=dict)
    _of_clock: dict[ClockKey, list[Group]] = field(default_factory=dict)
    _unordered: set[ClockKey] = field(default_factory=set)
    _cache: dict[ClockKey, tuple[int, int, int] | None] = field(default_factory=dict)

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
            raise BadSnapshot("a clock stands twice in it")
        self._cache.clear()
        group = self._groups.get(clocks, {})
        for reading in readings:
            self._check(reading, group.get(reading.clock, []))
        if clocks not in self._groups:
            group = self._groups[clocks] = {c: [] for c in clocks}
            for clock in clocks:
                self._of_clock.setdefault(clock, []).append(group)
        for reading in readings:
            domain = self._domains.setdefault(
                reading.clock, Domain(reading.unit, reading.incremental)
            )
            domain.last = reading.ticks * reading.unit
            group[reading.clock].append(domain.last)

    def convert(self, clock: ClockKey, ticks: int) -> int | None:
        """``ticks`` of ``clock`` on the trace's clock, ns; None if nothing ties the two."""
        if clock == self.trace:
            return ticks
        domain = self._domains.get(clock)
        if domain is None or not self._reachable(clock):
            return None
        ns = domain.nanoseconds(ticks)
        span = self._cache.get(clock)
        if span is None or not span[0] <= ns < span[1]:
            span = self._cache[clock] = _along(self._path(clock, self.trace), ns)
        return ns + span[2]

    def incremental(self, clock: ClockKey) -> bool:
        """Whether stamps of the clock are differences."""
        domain = self._domains.get(clock)
        return domain is not None and domain.incremental

    def related(self, a: int, b: int) -> bool:
        """Whether snapshots tie the two clocks."""
        return a == b or bool(self._path(a, b))

    def known(self, clock: ClockKey) -> bool:
        """Whether the clock is in a snapshot (BOOTTIME always is)."""
        return clock == BOOTTIME or clock in self._domains

    def _check(self, reading: Reading, earlier: list[int]) -> None:
        clock, domain = reading.clock, self._domains.get(reading.clock)
        if domain is None:
            if reading.incremental and isinstance(clock, int):
                raise BadSnapshot("only a sequence's own clock can be incremental")
        elif (domain.unit, domain.incremental) != (reading.unit, reading.incremental):
            raise BadSnapshot("a clock has another unit than before")
        if clock == self.trace and reading.unit != 1:
            raise BadSnapshot("the trace's clock does not count nanoseconds")
        if earlier and reading.ticks * reading.unit < earlier[-1]:
            if clock == self.trace:
                raise BadSnapshot("the trace's clock goes backwards")
            self._unordered.add(clock)

    def _reachable(self, clock: ClockKey) -> bool:
        if clock not in self._cache:
            path = self._path(clock, self.trace)
            if not path:
                self._cache[clock] = None
                return False
            self._cache[clock] = (0, 0, 0)
        return self._cache[clock] is not None

    def _path(self, source: ClockKey, target: ClockKey) -> list[Step]:
        """The shortest chain between two clocks; empty if there is none."""
        pending: deque[tuple[ClockKey, list[Step]]] = deque([(source, [])])
        seen = {source}
        while pending:
            clock, path = pending.popleft()
            if len(path) >= MAX_HOPS or clock in self._unordered:
                continue
            for group in self._of_clock.get(clock, []):
                if target in group and target != clock:
                    return [*path, (clock, target, group)]
                for other in group.keys() - seen:
                    seen.add(other)
                    pending.append((other, [*path, (clock, other, group)]))
        return []


def _along(path: list[Step], ns: int) -> tuple[int, int, int]:
    """From, to (exclusive) and offset: what to add to times of the first clock around ``ns``."""
    low, high, total = -_FOREVER, _FOREVER, 0
    for source, target, group in path:
        stamps = group[source]
        at = max(bisect_right(stamps, ns + total) - 1, 0)
        if at:
            low = max(low, stamps[at] - total)
        if at + 1 < len(stamps):
            high = min(high, stamps[at + 1] - total)
        total += group[target][at] - stamps[at]
    return low, high, total
