"""Track descriptors, and the tracks the importer makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from traceconv.protobuf import message as wire
from traceconv.protobuf.message import Value
from traceconv.validation.decoded import TrackRow
from traceconv.validation.rules import Tally
from traceconv.validation.slices import LaneSet

MAX_ANCESTORS = 100
ROOT = 0

BY_NAME, APART, BY_KEY = 1, 2, 3
"""How siblings merge."""

Uuid = tuple[int, int]
"""Machine id and track uuid."""

ThreadKey = tuple[int, int, int]
"""Machine id, pid and tid: events without a track are on the thread of their sequence."""

TrackKey = Uuid | ThreadKey


class CounterSpec(NamedTuple):
    """What makes a track a counter. ``identity``: the settings a second descriptor must repeat."""

    unit: str
    multiplier: int
    incremental: bool
    name: str | None
    identity: tuple[object, ...]


@dataclass(frozen=True)
class Descriptor:
    """One TrackDescriptor; ``name`` is None where it has none."""

    parent: int = ROOT
    name: str | None = None
    pid: int | None = None
    tid: int | None = None
    label: str = ""
    counter: CounterSpec | None = None
    state: bool = False
    merge: int = BY_NAME
    merge_key: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """What a second descriptor of the same uuid must repeat."""
        counter = self.counter and self.counter.identity
        return (self.parent, self.pid, self.tid, counter, self.state, self.merge, self.merge_key)

    @property
    def merges(self) -> bool:
        """Whether the track is shown as one with siblings that are alike."""
        return (self.pid, self.counter, self.state) == (None, None, False) and self.merge != APART


@dataclass
class Descriptors:
    """All descriptors of a file, by machine and uuid.

    Attributes:
        known:   those that count.
        packets: how many descriptor packets name each track.
    """

    tally: Tally
    known: dict[Uuid, Descriptor] = field(default_factory=dict)
    packets: Counter[Uuid] = field(default_factory=Counter)
    _health: dict[TrackKey, tuple[str, ...]] = field(default_factory=dict)

    def read(self, data: Value, machine: int, where: str) -> tuple[int, int] | None:
        """Take in a TrackDescriptor message; pid and tid if it describes a thread."""
        last = wire.last_values(data)
        uuid = (machine, wire.number(last.get(1, 0)))
        descriptor = self._descriptor(last)
        if isinstance(descriptor, str):
            self._bad(descriptor, where)
            return None
        if 0 in (descriptor.pid, descriptor.tid):
            self.tally.add("P11-zero", where)
        self.packets[uuid] += 1
        if uuid[1] == ROOT and descriptor.parent:
            self._bad("default_track_with_parent", where)
        else:
            self._reserve(uuid, descriptor, f"uuid {uuid[1]}, {where}")
        if descriptor.pid is None or descriptor.tid is None:
            return None
        return descriptor.pid, descriptor.tid

    def counter(self, uuid: Uuid) -> CounterSpec | None:
        """The counter described so far under ``uuid``, if it is one."""
        known = self.known.get(uuid)
        return known.counter if known else None

    def ancestors(self, uuid: Uuid) -> Iterator[tuple[Uuid, Descriptor]]:
        """The described tracks from ``uuid`` up to below the root."""
        machine, current = uuid
        while current != ROOT and (known := self.known.get((machine, current))):
            yield (machine, current), known
            current = known.parent

    def health(self, key: TrackKey) -> tuple[str, ...]:
        """The rule that makes a track unusable, and its statistics; empty if it is fine.

        A track without any descriptor of its own is fine.
        """
        if key not in self._health:
            self._health[key] = self._examined(key)
        return self._health[key]

    def judge(self) -> None:
        """Count processes and threads that are described twice."""
        seen: dict[object, int] = {}
        for (machine, uuid), d in self.known.items():
            first = seen.setdefault((machine, d.pid, d.tid), uuid)
            if first != uuid and d.pid is not None:
                self.tally.add("P13-twice", f"uuids {first} and {uuid}")

    def _bad(self, why: str, where: str) -> None:
        self.tally.add(
            "P10-descriptor", f"{where}: {why.replace('_', ' ')}", f"track_descriptor_{why}"
        )

    def _descriptor(self, last: dict[int, Value]) -> Descriptor | str:
        """The descriptor, or the end of the statistic that counts why there is none."""
        if 1 not in last:
            return "missing_uuid"
        if wire.number(last.get(11, 0)) > 3:
            return "invalid_child_ordering"
        name = next((wire.text(last[n]) for n in (2, 10, 13) if n in last), None)
        key = wire.text(last[16]) if 16 in last else f"#{wire.signed(last.get(17, 0))}"
        merge = wire.number(last.get(15, 0))
        plain = Descriptor(
            parent=wire.number(last.get(5, 0)),
            name=name,
            merge=merge if merge in (APART, BY_KEY) else BY_NAME,
            merge_key=key if merge == BY_KEY else "",
        )
        if 4 in last:
            of = wire.last_values(last[4])
            if 1 not in of or 2 not in of:
                return "thread_missing_pid_tid"
            label = wire.text(of.get(5, b""))
            return replace(plain, pid=wire.signed32(of[1]), tid=wire.signed(of[2]), label=label)
        if 3 in last:
            of = wire.last_values(last[3])
            if 1 not in of:
                return "process_missing_pid"
            return replace(plain, pid=wire.signed32(of[1]), label=wire.text(of.get(6, b"")))
        if 8 in last:
            spec = _counter(last[8])
            return replace(plain, counter=spec, name=name or spec.name)
        return replace(plain, state=18 in last)

    def _reserve(self, uuid: Uuid, descriptor: Descriptor, where: str) -> None:
        had = self.known.setdefault(uuid, descriptor)
        if had is descriptor:
            return
        if had.identity != descriptor.identity:
            self.tally.add("P12-conflict", where)
            return
        for a, b in ((had.name, descriptor.name), (had.label, descriptor.label)):
            if a and b and a != b:
                self.tally.add("P12-name", where)
        newer = descriptor.name if had.merge == APART or not had.name else None
        self.known[uuid] = replace(had, name=newer or had.name, label=descriptor.label or had.label)

    def _examined(self, key: TrackKey) -> tuple[str, ...]:
        machine, current = key[:2]
        if len(key) == 3 or (machine, current) not in self.known:
            return ()
        lost, seen = "track_event_parser_errors", set[int]()
        for _ in range(MAX_ANCESTORS):
            if current == ROOT:
                return ()
            known = self.known.get((machine, current))
            if known is None:
                return ("P14-parent", "track_hierarchy_missing_uuid", lost)
            if current in seen:
                return ("P14-loop", "track_event_track_hierarchy_loop", lost)
            seen.add(current)
            current = known.parent
        return ("P14-loop", "track_event_track_hierarchy_too_deep", lost)


def _counter(data: Value) -> CounterSpec:
    found, last = wire.whole_fields(data), wire.last_values(data)
    kind, unit = wire.number(last.get(1, 0)), wire.number(last.get(3, 0))
    categories = tuple(wire.text(v) for n, _, v in found if n == 2)
    multiplier, incremental = wire.signed(last.get(4, 0)), bool(wire.number(last.get(5, 0)))
    return CounterSpec(
        unit={1: "ns", 2: "count"}.get(kind)
        or {1: "ns", 2: "count", 3: "bytes"}.get(unit)
        or wire.text(last.get(6, b"")),
        multiplier=multiplier,
        incremental=incremental,
        name={1: "thread_time", 2: "thread_instruction_count"}.get(kind),
        identity=(kind, categories, multiplier, incremental, wire.text(last.get(7, b""))),
    )


class Tracks:
    """The tracks that have events, made when first used.

    Attributes:
        rows: one entry per track that the importer has.
    """

    def __init__(self, descriptors: Descriptors, machines: bool) -> None:
        self.rows: list[TrackRow] = []
        self._descriptors, self._machines = descriptors, machines
        self._places: dict[TrackKey, LaneSet] = {}
        self._sets: dict[Hashable, LaneSet] = {}
        self._counters: dict[Uuid, int] = {}
        self._labels: dict[tuple[int, int | None, int | None], str] = {
            (machine, d.pid, d.tid): d.label
            for (machine, _), d in descriptors.known.items()
            if d.pid is not None and d.label
        }

    def place(self, key: TrackKey, event_name: str | None) -> LaneSet:
        """Lanes of slices and instants of ``key``; its first event names a nameless track."""
        if key not in self._places:
            self._places[key] = self._new_place(key, event_name)
        return self._places[key]

    def counter(self, uuid: Uuid) -> int:
        """The number of a counter's track."""
        if uuid not in self._counters:
            d = self._descriptors.known[uuid]
            assert d.counter is not None
            row = self._row(uuid, "_counter_track_event", d.name)
            self._counters[uuid] = self.add(replace(row, unit=d.counter.unit))
        return self._counters[uuid]

    def add(self, row: TrackRow) -> int:
        """A new track; its number."""
        self.rows.append(row)
        return len(self.rows) - 1

    def _new_place(self, key: TrackKey, event_name: str | None) -> LaneSet:
        if len(key) == 3:
            path = (self._title(key[0], key[1], None), self._title(*key))
            row = TrackRow(path, "thread_execution", "", key[1], key[2], machine=self._machine(key))
            return LaneSet(lambda: self.add(row))
        ours = Descriptor(name="Default Track" if key[1] == ROOT else None)
        d = self._descriptors.known.get(key, ours)
        if d.pid is not None and d.tid is not None:
            row = self._row(key, "", None)
            return LaneSet(lambda: self.add(row))
        name = event_name if d.name is None else d.name
        if not d.merges:
            row = self._row(key, f"{'_state' if d.state else ''}_track_event", name)
            return LaneSet(lambda: self.add(row))
        row = self._row(key, "_merged_track_event", name)
        group = (key[0], d.parent, d.merge, name if d.merge == BY_NAME else d.merge_key)
        return self._sets.setdefault(group, LaneSet(lambda: self.add(row)))

    def _row(self, uuid: Uuid, type: str, name: str | None) -> TrackRow:
        """The row of a described track; its path leads from the process or the root to it."""
        path: list[str] = []
        scope, pid, tid = "global", None, None
        for key, d in self._descriptors.ancestors(uuid):
            if d.pid is not None:
                pid, tid = d.pid, d.tid
                path.append(d.label or self._title(key[0], pid, tid))
                if tid is not None:
                    path.append(self._title(key[0], pid, None))
                scope = "process" if tid is None else "thread"
                break
            path.append((name if key == uuid else d.name) or "")
        type = f"{scope}{type or '_execution'}"
        titles = tuple(reversed(path or [name or ""]))
        return TrackRow(titles, type, name or "", pid, tid, machine=self._machine(uuid))

    def _title(self, machine: int, pid: int, tid: int | None) -> str:
        numbered = f"pid {pid}" if tid is None else f"tid {tid}"
        return self._labels.get((machine, pid, tid)) or numbered

    def _machine(self, key: TrackKey) -> str:
        return str(key[0]) if self._machines else ""
