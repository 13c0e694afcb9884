"""Tracks as a file describes them: processes, threads, counters, and what is nested in them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from traceconv.protobuf.message import (
    Value,
    last_values,
    message,
    number,
    signed,
    signed32,
    whole_fields,
)
from traceconv.protobuf.perfetto_schema import (
    CounterDescriptor,
    ProcessDescriptor,
    ThreadDescriptor,
    TrackDescriptor,
)

ROOT = 0
MOST_ANCESTORS = 100
_MOST_ORDERINGS = 3

BY_NAME, APART, BY_KEY = 1, 2, 3
"""How siblings that are alike are shown: as one track (by name, or by a key), or apart."""

LOOP = "it is inside itself, or nested too deep"
"""Why no event can be on a track: see :meth:`Descriptors.problem`."""

Key = tuple[str | int, ...]
"""What slices are stacked by, or samples belong to: a described track, a thread, an asynchronous
operation ... The first element says which; the second is the machine."""


def track_key(machine: int, uuid: int) -> Key:
    """The track with this id."""
    return ("track", machine, uuid)


def thread_key(machine: int, pid: int, tid: int) -> Key:
    """A thread that is named by its numbers alone."""
    return ("thread", machine, pid, tid)


class Counter(NamedTuple):
    """What makes a track a counter. ``incremental``: its values are differences."""

    unit: str
    multiplier: int
    incremental: bool


@dataclass(frozen=True)
class Described:
    """One track.

    Attributes:
        parent: id of the track around it, :data:`ROOT` if there is none.
        name:   "" if it has none; ``named`` says whether it has.
        pid, tid: of a process or thread; None if it is none.
        label:  name of the process or thread.
        labels: further labels of a process.
        merge, merge_key: how it is shown with siblings.
        order:  its place among siblings, as its writer wants it.
    """

    parent: int = ROOT
    name: str | None = None
    pid: int | None = None
    tid: int | None = None
    label: str = ""
    labels: tuple[str, ...] = ()
    counter: Counter | None = None
    state: bool = False
    merge: int = BY_NAME
    merge_key: str = ""
    order: int = 0

    @property
    def identity(self) -> tuple[object, ...]:
        """Fields that a second description of the same id must repeat."""
        counter = self.counter and self.counter[1:]
        return (self.parent, self.pid, self.tid, counter, self.state, self.merge, self.merge_key)

    @property
    def merges(self) -> bool:
        """Whether it is shown as one with siblings that are alike."""
        return (self.pid, self.counter, self.state) == (None, None, False) and self.merge != APART


class Taken(NamedTuple):
    """The result of a descriptor: the thread it describes, why it is not used, and the rules of
    :mod:`traceconv.validation.rules` that it breaks."""

    thread: tuple[int, int] | None = None
    problem: str = ""
    rules: tuple[str, ...] = ()


UNREAD = {
    0: {6: "chrome_process", 7: "chrome_thread", 9: "disallow_merging_with_system_tracks",
        14: "description"},
    TrackDescriptor.PROCESS: {2: "cmdline", 3: "legacy_sort_index", 4: "chrome_process_type",
                              5: "process_priority", 7: "start_timestamp_ns"},
    TrackDescriptor.THREAD: {3: "legacy_sort_index", 4: "chrome_thread_type"},
    TrackDescriptor.COUNTER: {2: "categories", 7: "y_axis_share_key"},
}  # fmt: skip
"""Names of fields of descriptors that are not read, by the field they are in; 0 = the track."""


@dataclass
class Descriptors:
    """All descriptors of a file.

    Attributes:
        known:     by machine and id.
        processes: names of processes, by machine and number; the first counts.
        threads:   the same of threads.
        unread:    how many descriptors have a field that is not read, by its name.
    """

    known: dict[tuple[int, int], Described] = field(default_factory=dict)
    processes: dict[tuple[int, int], str] = field(default_factory=dict)
    threads: dict[tuple[int, int, int], str] = field(default_factory=dict)
    unread: Tally[str] = field(default_factory=Tally)

    def take(self, data: Value, machine: int) -> Taken:
        """Take in a TrackDescriptor message."""
        by_number = last_values(data)
        described = _described(by_number)
        for part, names in UNREAD.items():
            present = last_values(by_number.get(part, b"")) if part else by_number
            self.unread.update(names[n] for n in names.keys() & present.keys())
        if isinstance(described, str):
            return Taken(None, described, ("P10-descriptor",))
        rules = ["P11-zero"] if 0 in (described.pid, described.tid) else []
        if number(by_number.get(TrackDescriptor.CHILD_ORDERING, 0)) > _MOST_ORDERINGS:
            rules.append("P10-descriptor")
        uuid = number(by_number[TrackDescriptor.UUID])
        if described.pid is not None:
            if described.label and described.tid is None:
                self.processes.setdefault((machine, described.pid), described.label)
            elif described.label and described.tid is not None:
                self.threads.setdefault((machine, described.pid, described.tid), described.label)
        thread = (
            None
            if described.pid is None or described.tid is None
            else (described.pid, described.tid)
        )
        if uuid == ROOT and described.parent:
            return Taken(thread, "the root has no parent", (*rules, "P10-descriptor"))
        had = self.known.setdefault((machine, uuid), described)
        if had is described:
            return Taken(thread, "", tuple(rules))
        if had.identity != described.identity:
            why = f"track {uuid} was described differently"
            return Taken(thread, why, (*rules, "P12-conflict"))
        for a, b in ((had.name, described.name), (had.label, described.label)):
            if a and b and a != b:
                rules.append("P12-name")
        newer = described.name if had.merge == APART or not had.name else None
        self.known[machine, uuid] = replace(
            had,
            name=newer or had.name,
            label=described.label or had.label,
            labels=described.labels or had.labels,
        )
        return Taken(thread, "", tuple(rules))

    def process(self, data: Value, machine: int) -> None:
        """Take in a ProcessDescriptor outside of a TrackDescriptor."""
        by_number = last_values(data)
        if ProcessDescriptor.PID in by_number:
            pid, label = (
                signed32(by_number[ProcessDescriptor.PID]),
                _text(by_number, ProcessDescriptor.PROCESS_NAME),
            )
            if label:
                self.processes.setdefault((machine, pid), label)

    def thread(self, by_number: dict[int, Value], machine: int) -> tuple[int, int] | None:
        """Take in a ThreadDescriptor outside of a TrackDescriptor; returns pid and tid."""
        if ThreadDescriptor.PID not in by_number or ThreadDescriptor.TID not in by_number:
            return None
        pid, tid = (
            signed32(by_number[ThreadDescriptor.PID]),
            signed(by_number[ThreadDescriptor.TID]),
        )
        label = _text(by_number, ThreadDescriptor.THREAD_NAME)
        if label:
            self.threads.setdefault((machine, pid, tid), label)
        return pid, tid

    def of(self, key: Key) -> Described | None:
        """The description of a track or thread, or None."""
        if key[0] == "track":
            return self.known.get((int(key[1]), int(key[2])))
        if key[0] == "counter":
            name = str(key[2])
            unit = "ns" if name == "thread_time" else "count"
            pid, tid = int(key[3]), int(key[4])
            return Described(pid=pid, tid=tid, name=name, counter=Counter(unit, 0, False))
        if key[0] == "thread":
            machine, pid, tid = (int(n) for n in key[1:4])
            return Described(pid=pid, tid=tid, label=self.threads.get((machine, pid, tid), ""))
        return None

    def ancestors(self, machine: int, uuid: int) -> Iterator[Described]:
        """The described tracks from an id up to below the root."""
        for _ in range(MOST_ANCESTORS):
            descriptor = self.known.get((machine, uuid)) if uuid != ROOT else None
            if not descriptor:
                return
            yield descriptor
            uuid = descriptor.parent

    def problem(self, key: Key) -> str:
        """Why no event can be on a track, or "". A track without a descriptor is fine."""
        if key[0] != "track" or (key[1], key[2]) not in self.known:
            return ""
        machine, uuid = int(key[1]), int(key[2])
        for _ in range(MOST_ANCESTORS):
            if uuid == ROOT:
                return ""
            descriptor = self.known.get((machine, uuid))
            if not descriptor:
                return f"track {uuid}, which is around it, is not described"
            uuid = descriptor.parent
        return LOOP


def _text(by_number: dict[int, Value], field_number: int) -> str:
    return message(by_number.get(field_number, b"")).decode("utf-8", "replace")


def _described(by_number: dict[int, Value]) -> Described | str:
    """The description, or the problem."""
    if TrackDescriptor.UUID not in by_number:
        return "a track without an id"
    names = (TrackDescriptor.NAME, TrackDescriptor.STATIC_NAME, TrackDescriptor.ATRACE_NAME)
    name = next((_text(by_number, n) for n in names if n in by_number), None)
    merge = number(by_number.get(TrackDescriptor.SIBLING_MERGE_BEHAVIOR, 0))
    key = f"#{signed(by_number.get(TrackDescriptor.SIBLING_MERGE_KEY_INT, 0))}"
    if TrackDescriptor.SIBLING_MERGE_KEY in by_number:
        key = _text(by_number, TrackDescriptor.SIBLING_MERGE_KEY)
    plain = Described(
        parent=number(by_number.get(TrackDescriptor.PARENT_UUID, 0)),
        name=name,
        merge=merge if merge in (APART, BY_KEY) else BY_NAME,
        merge_key=key if merge == BY_KEY else "",
        order=signed32(by_number.get(TrackDescriptor.SIBLING_ORDER_RANK, 0)),
    )
    if TrackDescriptor.THREAD in by_number:
        inner = last_values(by_number[TrackDescriptor.THREAD])
        if ThreadDescriptor.PID not in inner or ThreadDescriptor.TID not in inner:
            return "a thread without its numbers"
        pid, tid = signed32(inner[ThreadDescriptor.PID]), signed(inner[ThreadDescriptor.TID])
        return replace(plain, pid=pid, tid=tid, label=_text(inner, ThreadDescriptor.THREAD_NAME))
    if TrackDescriptor.PROCESS in by_number:
        process_fields = whole_fields(by_number[TrackDescriptor.PROCESS])
        inner = {n: v for n, _, v in process_fields}
        if ProcessDescriptor.PID not in inner:
            return "a process without its number"
        labels = tuple(
            message(v).decode("utf-8", "replace")
            for n, _, v in process_fields
            if n == ProcessDescriptor.PROCESS_LABELS
        )
        label = _text(inner, ProcessDescriptor.PROCESS_NAME)
        return replace(
            plain, pid=signed32(inner[ProcessDescriptor.PID]), label=label, labels=labels
        )
    if TrackDescriptor.COUNTER in by_number:
        counter, own_name = _counter(by_number[TrackDescriptor.COUNTER])
        return replace(plain, counter=counter, name=own_name if name is None else name)
    return replace(plain, state=TrackDescriptor.STATE in by_number)


_BUILTIN = {1: ("ns", "thread_time"), 2: ("count", "thread_instruction_count")}
_UNITS = {1: "ns", 2: "count", 3: "B"}


def _counter(data: Value) -> tuple[Counter, str | None]:
    """A counter, and the name it has by itself."""
    by_number = last_values(data)
    builtin = _BUILTIN.get(number(by_number.get(CounterDescriptor.TYPE, 0)))
    unit = _UNITS.get(number(by_number.get(CounterDescriptor.UNIT, 0)))
    counter = Counter(
        builtin[0] if builtin else unit or _text(by_number, CounterDescriptor.UNIT_NAME),
        signed(by_number.get(CounterDescriptor.UNIT_MULTIPLIER, 0)),
        bool(number(by_number.get(CounterDescriptor.IS_INCREMENTAL, 0))),
    )
    return counter, builtin[1] if builtin else None
