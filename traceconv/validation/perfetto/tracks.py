"""Track descriptors, and the tracks the importer makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from traceconv.validation.perfetto.decoded import TrackRow
from traceconv.validation.perfetto.wire import (
    Value,
    message,
    number,
    signed,
    signed32,
    text,
    whole_fields,
)
from traceconv.validation.slices import Lane, LaneSet
from traceconv.validation.tally import Tally

MAX_ANCESTORS = 100
ROOT = 0

BY_NAME, NONE, BY_KEY = 0, 1, 2
_MERGE = {0: BY_NAME, 1: BY_NAME, 2: NONE, 3: BY_KEY}
_UNITS = {1: "ns", 2: "count", 3: "bytes"}

Uuid = tuple[int, int]
"""Machine id and track uuid."""

ThreadKey = tuple[int, int, int]
"""Machine id, pid and tid: events without a track stand on the thread of their sequence."""

TrackKey = Uuid | ThreadKey


@dataclass(frozen=True)
class CounterSpec:
    """What makes a track a counter. ``kind`` 1 and 2 are the built-in thread counters."""

    categories: tuple[str, ...] = ()
    kind: int = 0
    unit: str = ""
    multiplier: int = 0
    incremental: bool = False
    share_key: str = ""


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
        counter = self.counter and replace(self.counter, unit="")
        return (self.parent, self.pid, self.tid, counter, self.state, self.merge, self.merge_key)


@dataclass
class Descriptors:
    """All descriptors of a file, by machine and uuid.

    Attributes:
        packets: how many descriptor packets name each track.
    """

    tally: Tally
    packets: Counter[Uuid] = field(default_factory=Counter)
    _known: dict[Uuid, Descriptor] = field(default_factory=dict)
    _health: dict[Uuid, str] = field(default_factory=dict)

    def read(self, data: bytes, machine: int, where: str) -> tuple[int, int] | None:
        """Take in a TrackDescriptor message; pid and tid if it describes a thread."""
        found = whole_fields(data)
        last = {n: v for n, _, v in found}
        if 1 not in last:
            self.tally.add("P10-uuid", where)
            return None
        uuid = (machine, number(last[1]))
        if number(last.get(11, 0)) > 3:
            self.tally.add("P10-ordering", where)
            return None
        descriptor = self._descriptor(last, where)
        if descriptor is None:
            return None
        self.packets[uuid] += 1
        if uuid[1] == ROOT and descriptor.parent:
            self.tally.add("P10-root", where)
        else:
            self._reserve(uuid, descriptor, where)
        if descriptor.pid is None or descriptor.tid is None:
            return None
        return descriptor.pid, descriptor.tid

    def _descriptor(self, last: dict[int, Value], where: str) -> Descriptor | None:
        name = next((last[n] for n in (2, 10, 13) if n in last), None)
        key = text(last[16]) if 16 in last else f"#{signed(last.get(17, 0))}"
        plain = Descriptor(
            parent=number(last.get(5, 0)),
            name=None if name is None else text(name),
            merge=_MERGE.get(number(last.get(15, 0)), BY_NAME),
            merge_key=key if number(last.get(15, 0)) == 3 else "",
        )
        if 4 in last:
            return self._thread(plain, message(last[4]), where)
        if 3 in last:
            return self._process(plain, message(last[3]), where)
        if 8 in last:
            spec = _counter(message(last[8]))
            builtin = {1: "thread_time", 2: "thread_instruction_count"}.get(spec.kind)
            return replace(plain, counter=spec, name=plain.name or builtin)
        return replace(plain, state=18 in last)

    def _thread(self, plain: Descriptor, data: bytes, where: str) -> Descriptor | None:
        last = {n: v for n, _, v in whole_fields(data)}
        if 1 not in last or 2 not in last:
            self.tally.add("P11-thread", where)
            return None
        pid, tid = signed32(last[1]), signed(last[2])
        if not pid or not tid:
            self.tally.add("P11-zero", where)
        return replace(plain, pid=pid, tid=tid, label=text(last.get(5, b"")))

    def _process(self, plain: Descriptor, data: bytes, where: str) -> Descriptor | None:
        last = {n: v for n, _, v in whole_fields(data)}
        if 1 not in last:
            self.tally.add("P11-process", where)
            return None
        pid = signed32(last[1])
        if not pid:
            self.tally.add("P11-zero", where)
        return replace(plain, pid=pid, label=text(last.get(6, b"")))

    def _reserve(self, uuid: Uuid, descriptor: Descriptor, where: str) -> None:
        had = self._known.setdefault(uuid, descriptor)
        if had is descriptor:
            return
        if had.identity != descriptor.identity:
            self.tally.add("P12-conflict", f"uuid {uuid[1]}, {where}")
            return
        for a, b in ((had.name, descriptor.name), (had.label, descriptor.label)):
            if a and b and a != b:
                self.tally.add("P12-name", f"uuid {uuid[1]}, {where}")
        newer = descriptor.name if had.merge == NONE or not had.name else None
        self._known[uuid] = replace(
            had, name=newer or had.name, label=descriptor.label or had.label
        )

    def counter(self, uuid: Uuid) -> CounterSpec | None:
        """The counter described so far under ``uuid``, if it is one."""
        known = self._known.get(uuid)
        return known.counter if known else None

    def get(self, uuid: Uuid) -> Descriptor | None:
        """What ``uuid`` describes; None if nothing does."""
        return self._known.get(uuid)

    def items(self) -> Iterable[tuple[Uuid, Descriptor]]:
        """Every described track."""
        return self._known.items()

    def ancestors(self, uuid: Uuid) -> Iterator[tuple[Uuid, Descriptor]]:
        """The described tracks from ``uuid`` up to below the root."""
        machine, current = uuid
        while current != ROOT and (known := self._known.get((machine, current))):
            yield (machine, current), known
            current = known.parent

    def health(self, uuid: Uuid) -> str:
        """The rule that makes a track unusable, "" if it is fine.

        A track without any descriptor of its own is fine.
        """
        if uuid not in self._health:
            self._health[uuid] = self._examined(uuid)
        return self._health[uuid]

    def _examined(self, uuid: Uuid) -> str:
        machine, current = uuid
        if (machine, current) not in self._known:
            return ""
        seen: set[int] = set()
        for _ in range(MAX_ANCESTORS):
            if current == ROOT:
                return ""
            if current in seen:
                return "P14-loop"
            known = self._known.get((machine, current))
            if known is None:
                return "P14-parent"
            seen.add(current)
            current = known.parent
        return "P14-depth"


def _counter(data: bytes) -> CounterSpec:
    found = whole_fields(data)
    last = {n: v for n, _, v in found}
    kind, unit = number(last.get(1, 0)), number(last.get(3, 0))
    builtin = {1: "ns", 2: "count"}.get(kind)
    return CounterSpec(
        categories=tuple(text(v) for n, _, v in found if n == 2),
        kind=kind,
        unit=builtin or _UNITS.get(unit) or text(last.get(6, b"")),
        multiplier=signed(last.get(4, 0)),
        incremental=bool(number(last.get(5, 0))),
        share_key=text(last.get(7, b"")),
    )


@dataclass
class Place:
    """Where the events of one track go: a fixed lane, or the lanes it shares with siblings."""

    lane: Lane | None
    lanes: LaneSet = field(default_factory=lambda: LaneSet(int))
    cookie: Hashable = None

    def begin(self) -> Lane:
        """The shared lane a slice opens on."""
        return self.lanes.begin(self.cookie)

    def end(self) -> Lane:
        """The shared lane a slice ends on."""
        return self.lanes.end(self.cookie)

    def point(self) -> Lane:
        """The shared lane an instant stands on."""
        return self.lanes.point(self.cookie)


class Tracks:
    """The tracks that events stand on, made when first used.

    Attributes:
        rows: one entry per track that the importer has.
    """

    def __init__(self, descriptors: Descriptors, used: Iterable[TrackKey], machines: bool) -> None:
        self.rows: list[TrackRow] = []
        self._descriptors, self._machines = descriptors, machines
        self._places: dict[TrackKey, Place] = {}
        self._sets: dict[Hashable, LaneSet] = {}
        self._counters: dict[Uuid, int] = {}
        self._processes: dict[tuple[int, int], str] = {}
        self._threads: dict[ThreadKey, str] = {}
        for (machine, _), d in descriptors.items():
            if d.pid is not None and d.tid is None and d.label:
                self._processes[machine, d.pid] = d.label
            elif d.pid is not None and d.tid is not None and d.label:
                self._threads[machine, d.pid, d.tid] = d.label
        self._siblings = self._shared(used)

    def _shared(self, used: Iterable[TrackKey]) -> Counter[Hashable] | None:
        """How many used tracks merge into each group; None where names are yet unknown."""
        groups: Counter[Hashable] = Counter()
        for key in used:
            if len(key) == 2 and (d := self._descriptors.get(key)) and _merges(d):
                groups[_group(key, d, d.name)] += 1
                if d.name is None and d.merge == BY_NAME:
                    return None
            elif len(key) == 2 and d is None:
                return None
        return groups

    def merged(self) -> Iterator[tuple[str, int]]:
        """Name and number of the siblings shown as one because they are called the same."""
        for group, count in (self._siblings or Counter()).items():
            if count > 1 and isinstance(group, tuple) and group[2] == BY_NAME:
                yield str(group[-1]), count

    def place(self, key: TrackKey, event_name: str | None) -> Place:
        """Where slices and instants of ``key`` go; a nameless track is named by its first event."""
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._new_place(key, event_name)
        return place

    def counter(self, uuid: Uuid) -> int:
        """The number of a counter's track."""
        if uuid not in self._counters:
            d = self._descriptors.get(uuid)
            assert d is not None and d.counter is not None
            scope, pid, tid = self._scope(uuid)
            row = self._row(uuid, f"{scope}_counter_track_event", d.name, pid, tid)
            self._counters[uuid] = self._add(replace(row, unit=d.counter.unit))
        return self._counters[uuid]

    def add_free(self, row: TrackRow) -> int:
        """A track that no descriptor stands for."""
        return self._add(row)

    def _new_place(self, key: TrackKey, event_name: str | None) -> Place:
        if len(key) == 3:
            path = (self._process(*key[:2]), self._thread(key))
            row = TrackRow(path, "thread_execution", "", key[1], key[2], machine=self._machine(key))
            return Place(Lane(self._add(row)))
        d = self._descriptors.get(key) or Descriptor(name=_default_name(key))
        if d.tid is not None and d.pid is not None:
            row = self._row(key, "thread_execution", None, d.pid, d.tid)
            return Place(Lane(self._add(row)))
        scope, pid, tid = self._scope(key)
        name = event_name if d.name is None else d.name
        if d.pid is not None or not _merges(d):
            state = "_state" if d.state else ""
            row = self._row(key, f"{scope}{state}_track_event", name, pid, tid)
            return Place(Lane(self._add(row)))
        row = self._row(key, f"{scope}_merged_track_event", name, pid, tid)
        group = _group(key, d, name)
        if self._siblings is not None and self._siblings[group] < 2:
            return Place(Lane(self._add(row)))
        lanes = self._sets.setdefault(group, LaneSet(lambda: self._add(row)))
        return Place(None, lanes, key)

    def _scope(self, uuid: Uuid) -> tuple[str, int | None, int | None]:
        """Whether a track belongs to a thread, a process or nothing, with its pid and tid."""
        for _, d in self._descriptors.ancestors(uuid):
            if d.tid is not None:
                return "thread", d.pid, d.tid
            if d.pid is not None:
                return "process", d.pid, None
        return "global", None, None

    def _row(
        self, uuid: Uuid, type: str, name: str | None, pid: int | None, tid: int | None
    ) -> TrackRow:
        """The row of a described track; its path leads from the process or the root to it."""
        path: list[str] = []
        for key, d in self._descriptors.ancestors(uuid):
            if d.pid is not None:
                path.append(self._title(key[0], d))
                if d.tid is not None:
                    path.append(self._process(key[0], d.pid))
                break
            path.append((name if key == uuid else d.name) or "")
        path = path[::-1] or [name or ""]
        return TrackRow(tuple(path), type, name or "", pid, tid, machine=self._machine(uuid))

    def _title(self, machine: int, d: Descriptor) -> str:
        assert d.pid is not None
        if d.tid is None:
            return d.label or self._process(machine, d.pid)
        return d.label or self._thread((machine, d.pid, d.tid))

    def _process(self, machine: int, pid: int) -> str:
        return self._processes.get((machine, pid)) or f"pid {pid}"

    def _thread(self, key: ThreadKey) -> str:
        return self._threads.get(key) or f"tid {key[2]}"

    def _machine(self, key: TrackKey) -> str:
        return str(key[0]) if self._machines else ""

    def _add(self, row: TrackRow) -> int:
        self.rows.append(row)
        return len(self.rows) - 1


def _default_name(key: Uuid) -> str | None:
    return "Default Track" if key[1] == ROOT else None


def _merges(d: Descriptor) -> bool:
    return d.pid is None and d.merge != NONE and not d.state and d.counter is None


def _group(key: Uuid, d: Descriptor, name: str | None) -> tuple[object, ...]:
    value = name if d.merge == BY_NAME else d.merge_key
    return (key[0], d.parent, d.merge, value)
