"""An XSpace as columns: its planes, their lines, the events of these, and what is known of each.

Nothing here knows what a plane is for. Numbers are those of the file: picoseconds, and ids that are
valid within one plane.

A damaged or truncated file gives everything that is whole, in every plane, line and event; the rest
is counted in :attr:`Plane.damage`.

Source: the fields of tensorflow.profiler.XSpace (tsl/profiler/protobuf/xplane.proto).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.core.clock import INT64_MAX
from traceconv.core.columns import F64, I32, I64, Mask
from traceconv.core.ordering import mapped
from traceconv.protobuf.message import BrokenMessage, message, varint, whole_fields
from traceconv.protobuf.message_columns import DAMAGED, FIXED64, VARINT, Columns, columns
from traceconv.readers.shared.arguments import AT_ONCE, quoted
from traceconv.readers.shared.protobuf_wire import damage_in, nested

# fields of XSpace
_PLANES, _ERRORS, _WARNINGS, _HOSTS = 1, 2, 3, 4
# of XPlane
_ID, _NAME, _LINES, _EVENT_METADATA, _STAT_METADATA, _OWN_STATS = range(1, 7)
# of XLine
_LINE_NAME, _TIMESTAMP, _EVENTS, _DISPLAY_NAME = 2, 3, 4, 11
# of XEvent
_METADATA_ID, _OFFSET, _DURATION, _EVENT_STATS, _OCCURRENCES = range(1, 6)
# of XEventMetadata
_DISPLAY, _METADATA_STATS = 4, 5
# of XStat
_DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _BYTES, _REFERENCE = range(2, 8)

_KEY, _VALUE = 1, 2

_MOST_TEXT = 1 << 20
"""Longer texts are cut to this many bytes."""

_SHORT = 64
"""The JSON of texts of at most this many bytes is cached."""

PROGRAM = "Hlo Proto"
"""The stat that is a program."""

TASK = "Task Environment"
"""The plane that says when the recording began and ended."""


class Line(NamedTuple):
    """One line of a plane; offsets of its events count from ``timestamp_ns``."""

    id: int
    name: str
    timestamp_ns: int


class Stats(NamedTuple):
    """Stats of events, or of their metadata, in the order of their owners.

    Attributes:
        owner: row of the event, or of the metadata.
        key:   number of its name in :attr:`Plane.keys`.
        kind:  number of the field that holds its value.
        value: the number, the bits of a double, the length of bytes, or the id of another stat.
        start: of bytes, where they begin.
    """

    owner: I64
    key: I64
    kind: I64
    value: I64
    start: I64

    def of(self, key: int, *kinds: int) -> NDArray[np.intp]:
        """The rows of one name with a value of these kinds."""
        return np.flatnonzero((self.key == key) & np.isin(self.kind, kinds))


class _Kinds(NamedTuple):
    """The kinds of events of a plane: ids, names and stats, and the order of the ids."""

    id: I64
    name: list[str]
    stats: Stats
    order: NDArray[np.intp]


class _Events(NamedTuple):
    """The events of all lines, line by line; ``found`` holds the fields of each."""

    line: I64
    found: Columns
    stats: Stats


@dataclass
class Plane:
    """One plane; its content is read when first used.

    Attributes:
        name:   "/host:CPU", "/device:TPU:0".
        damage: what could not be read: issue code -> count.
    """

    data: Any
    at: int
    end: int
    name: str
    damage: Counter[str] = field(default_factory=Counter)
    _integers: dict[str, tuple[I64, Mask]] = field(default_factory=dict)
    _texts: dict[str, tuple[I32, list[str]]] = field(default_factory=dict)

    # -- framing ----------------------------------------------------------------------------

    def _count_damage(self, begin: int, end: int) -> None:
        if begin >= 0:
            self.damage["truncated" if end == len(self.data) else "malformed-record"] += 1

    def _count_damaged(self, messages: Columns) -> None:
        if count := int(((messages.rest & DAMAGED) > 0).sum()):
            self.damage["malformed-record"] += count

    def _messages(self, number: int) -> tuple[I64, I64]:
        """Start and size of the messages in a repeated field of the plane."""
        _, start, size = nested(self.data, _single(self.at), _single(self.end - self.at), number)
        return start, size

    @cached_property
    def _lines(self) -> tuple[I64, I64, bool]:
        """Start and size of the lines, and whether the last one is cut off."""
        start, size = self._messages(_LINES)
        broken, cut, _ = damage_in(self.data, self.at, self.end, _LINES)
        self._count_damage(broken, self.end)
        if cut is None:
            return start, size, False
        return np.append(start, cut), np.append(size, self.end - cut), True

    def has_events(self) -> bool:
        """Whether any line holds an event."""
        start, size, _ = self._lines
        return len(nested(self.data, start, size, _EVENTS)[0]) > 0

    # -- names ------------------------------------------------------------------------------

    def text(self, offset: int, size: int) -> str:
        """Text of the file; text that is not UTF-8 is counted."""
        raw = bytes(self.data[offset : offset + min(size, _MOST_TEXT)])
        text = raw.decode("utf-8", "replace")
        if "\ufffd" in text and "\ufffd".encode() not in raw:
            self.damage["bad-encoding"] += 1
        return text

    def texts_in(self, messages: Columns, number: int) -> list[str]:
        """A text field of some messages; "" where a message has none."""
        start, size = messages.spans(number)
        spans = zip(start.tolist(), size.tolist(), strict=True)
        return [self.text(offset, n) if n else "" for offset, n in spans]

    def _map(self, number: int, fields: tuple[int, ...]) -> tuple[I64, Columns, I64, I64]:
        """A map from ids to messages: ids, fields, and where the messages are."""
        entries = columns(self.data, *self._messages(number), (_KEY, _VALUE))
        self._count_damaged(entries)
        start, size = entries.spans(_VALUE)
        messages = columns(self.data, start, size, fields)
        self._count_damaged(messages)
        ids = np.where(messages.has(_ID), messages.integer(_ID), entries.integer(_KEY))
        return ids, messages, start, size

    @cached_property
    def _stat_names(self) -> dict[int, str]:
        """Names of stats by their ids."""
        ids, messages, _, _ = self._map(_STAT_METADATA, (_ID, _NAME))
        return dict(zip(ids.tolist(), self.texts_in(messages, _NAME), strict=True))

    @cached_property
    def keys(self) -> tuple[list[str], dict[int, int]]:
        """The different names of stats, and their numbers in that list by id."""
        names: dict[str, int] = {}
        of_id = {i: names.setdefault(name, len(names)) for i, name in self._stat_names.items()}
        return list(names), of_id

    def _key(self, name: str) -> int:
        names = self.keys[0]
        return names.index(name) if name in names else -2

    def _stats(self, owner: I64, start: I64, size: I64) -> Stats:
        """Stats from where they are in the file."""
        messages = columns(self.data, start, size, range(1, _REFERENCE + 1))
        self._count_damaged(messages)
        kind, value, begin = (np.zeros(len(start), np.int64) for _ in range(3))
        for number in range(_DOUBLE, _REFERENCE + 1):
            length = messages.lengths[number - 1]
            if number in (_TEXT, _BYTES):
                rows = np.flatnonzero(length >= 0)
                value[rows], begin[rows] = length[rows], messages.values[number - 1, rows]
            else:
                rows = np.flatnonzero(length == (FIXED64 if number == _DOUBLE else VARINT))
                value[rows] = messages.values[number - 1, rows].view(np.int64)
            kind[rows] = number
        of_id = self.keys[1]
        key = mapped(messages.integer(_ID), lambda number: of_id.get(number, -1), np.int64)
        sound = np.flatnonzero((kind > 0) & (key >= 0) & (messages.rest & DAMAGED == 0))
        return Stats(owner[sound], key[sound], kind[sound], value[sound], begin[sound])

    # -- kinds of events --------------------------------------------------------------------

    @cached_property
    def _kinds(self) -> _Kinds:
        ids, messages, start, size = self._map(_EVENT_METADATA, (_ID, _NAME, _DISPLAY))
        shown = zip(self.texts_in(messages, _DISPLAY), self.texts_in(messages, _NAME), strict=True)
        names = [display or name for display, name in shown]
        stats = self._stats(*nested(self.data, start, size, _METADATA_STATS))
        return _Kinds(ids, names, stats, np.argsort(ids, kind="stable"))

    @property
    def kinds(self) -> list[str]:
        """The names of all kinds of events."""
        return self._kinds.name

    def metadata_bytes(self, key: str) -> Iterable[tuple[int, int, int]]:
        """A stat of kinds of events that is bytes: number of the kind, start and size."""
        stats = self._kinds.stats
        rows = stats.of(self._key(key), _BYTES)
        of_rows = (stats.owner[rows], stats.start[rows], stats.value[rows])
        return zip(*(column.tolist() for column in of_rows), strict=True)

    # -- events -----------------------------------------------------------------------------

    @cached_property
    def lines(self) -> list[Line]:
        """The lines, those without events included."""
        start, size, cut = self._lines
        messages = columns(self.data, start, size, (_ID, _LINE_NAME, _TIMESTAMP, _DISPLAY_NAME))
        complete = len(start) - cut  # a cut line is counted with the plane
        for row in np.flatnonzero(messages.rest[:complete] & DAMAGED).tolist():
            self._count_damage(row, int(start[row] + size[row]))
        shown = zip(
            self.texts_in(messages, _DISPLAY_NAME), self.texts_in(messages, _LINE_NAME), strict=True
        )
        names = [display or name for display, name in shown]
        numbers = messages.integer(_ID).tolist(), messages.integer(_TIMESTAMP).tolist()
        return [Line(i, name, time_ns) for name, i, time_ns in zip(names, *numbers, strict=True)]

    @cached_property
    def _events(self) -> _Events:
        line, start, size = nested(self.data, *self._lines[:2], _EVENTS)
        numbers = (_METADATA_ID, _OFFSET, _DURATION, _OCCURRENCES)
        messages = columns(self.data, start, size, numbers)
        return _Events(line, messages, self._stats(*nested(self.data, start, size, _EVENT_STATS)))

    def __len__(self) -> int:
        """Events of all lines."""
        return len(self._events.line)

    @property
    def line_of(self) -> I64:
        """Number of the line of every event."""
        return self._events.line

    @cached_property
    def offset_ps(self) -> I64:
        """Start of every event, from the timestamp of its line."""
        return self._events.found.integer(_OFFSET)

    @cached_property
    def duration_ps(self) -> I64:
        """Length of every event."""
        return self._events.found.integer(_DURATION)

    @cached_property
    def broken(self) -> Mask:
        """Events that are damaged or cut off."""
        return (self._events.found.rest & DAMAGED) > 0

    @cached_property
    def aggregate(self) -> Mask:
        """Events that only count occurrences and have no time."""
        messages = self._events.found
        return messages.has(_OCCURRENCES) & ~messages.has(_OFFSET)

    @cached_property
    def metadata_id(self) -> I64:
        """The id of the kind of every event."""
        return self._events.found.integer(_METADATA_ID)

    @cached_property
    def kind_of(self) -> I64:
        """Which of :attr:`kinds` every event is; -1 if the plane does not say."""
        ids, order = self._kinds.id, self._kinds.order
        if not len(ids):
            return np.full(len(self), -1, np.int64)
        ordered = ids[order]
        position = np.searchsorted(ordered, self.metadata_id, "right") - 1
        return np.where(ordered[position] == self.metadata_id, order[position], -1)

    # -- values -----------------------------------------------------------------------------

    def integers(self, key: str) -> tuple[I64, Mask]:
        """A stat that is a whole number, of every event or else of its kind; and who has it."""
        if key not in self._integers:
            of_kind = np.zeros(len(self.kinds) + 1, np.int64)  # the last one: of no known kind
            kind_has = np.zeros(len(self.kinds) + 1, bool)
            rows = self._kinds.stats.of(self._key(key), _UNSIGNED, _SIGNED)
            owner = self._kinds.stats.owner[rows]
            of_kind[owner], kind_has[owner] = self._kinds.stats.value[rows], True
            value, present = of_kind[self.kind_of], kind_has[self.kind_of]
            stats = self._events.stats
            rows = stats.of(self._key(key), _UNSIGNED, _SIGNED)
            value[stats.owner[rows]], present[stats.owner[rows]] = stats.value[rows], True
            self._integers[key] = value, present
        return self._integers[key]

    def numbers(self, key: str = "") -> F64:
        """A stat that is any number, or without ``key`` the first one that is, of every event.

        NaN for events without such a stat.
        """
        value, stats = np.full(len(self), np.nan), self._events.stats
        is_ours = stats.key == self._key(key) if key else np.ones(len(stats.key), bool)
        rows = np.flatnonzero(is_ours & np.isin(stats.kind, (_DOUBLE, _UNSIGNED, _SIGNED)))
        numbers = np.where(
            stats.kind[rows] == _DOUBLE, stats.value[rows].view(np.float64), stats.value[rows]
        )
        owner, first = np.unique(stats.owner[rows], return_index=True)
        value[owner] = numbers[first]
        return value

    def unread(self, hidden: Collection[str]) -> dict[str, int]:
        """How many stats of events and of their kinds are not shown, by name.

        These are the stats in ``hidden``, and bytes other than programs.
        """
        names = self.keys[0]
        hidden_stats: Counter[str] = Counter()
        for stats in (self._kinds.stats, self._events.stats):
            off = np.array([name in hidden for name in names] or [False], bool)[stats.key]
            off |= (stats.kind == _BYTES) & (stats.key != self._key(PROGRAM))
            for key, count in zip(*np.unique(stats.key[off], return_counts=True), strict=True):
                hidden_stats[names[key]] += int(count)
        return dict(hidden_stats)

    def texts(self, key: str) -> tuple[I32, list[str]]:
        """A stat that is text, of every event or else of its kind: which of a list, -1 = none."""
        if key not in self._texts:
            table: dict[str, int] = {}
            of_kind = np.full(len(self.kinds) + 1, -1, np.int32)  # the last one: of no known kind
            codes = np.full(len(self), -1, np.int32)
            for stats, target in ((self._kinds.stats, of_kind), (self._events.stats, codes)):
                for row in stats.of(self._key(key), _TEXT, _REFERENCE).tolist():
                    text = str(self._value(stats, row))
                    target[stats.owner[row]] = table.setdefault(text, len(table))
            codes = np.where(codes < 0, of_kind[self.kind_of], codes)
            self._texts[key] = codes, list(table)
        return self._texts[key]

    def _value(self, stats: Stats, row: int) -> int | float | str:
        """The value of a stat that is not bytes; numbers that JSON has not are text."""
        kind, value = int(stats.kind[row]), int(stats.value[row])
        if kind == _DOUBLE:
            number = float(stats.value[row : row + 1].view(np.float64)[0])
            return number if math.isfinite(number) else str(number)
        if kind == _TEXT:
            return self.text(int(stats.start[row]), value)
        if kind == _REFERENCE:
            return self._stat_names.get(value, "")
        return value & ((1 << 64) - 1) if kind == _UNSIGNED else value

    def own(self) -> dict[str, int | float | str]:
        """The stats of the plane itself, without bytes."""
        start, size = self._messages(_OWN_STATS)
        stats = self._stats(np.arange(len(start)), start, size)
        rows = np.flatnonzero(stats.kind != _BYTES).tolist()
        return {self.keys[0][int(stats.key[row])]: self._value(stats, row) for row in rows}

    # -- arguments --------------------------------------------------------------------------

    def arguments(
        self, rows: I64, hidden: Collection[str], paths: Collection[str]
    ) -> Iterator[list[bytes]]:
        """The stats of some events, and of their kinds, as JSON objects; b"" without stats.

        Args:
            rows:   of events, ascending.
            hidden: names of stats to leave out. Bytes are always left out.
            paths:  names of stats that are paths: only what follows the last slash is kept.

        Yields:
            Those of the next :data:`AT_ONCE` rows.
        """
        write = _Members(self, hidden, paths)
        kinds, stats = self.kind_of[rows], self._events.stats
        shared = write.members(self._kinds.stats, np.arange(len(self._kinds.stats.owner)))
        for begin in range(0, len(rows), AT_ONCE):
            chunk = rows[begin : begin + AT_ONCE]
            first, last = np.searchsorted(stats.owner, (chunk[0], chunk[-1] + 1)).tolist()
            of_part = first + np.flatnonzero(np.isin(stats.owner[first:last], chunk))
            members_by_row = write.members(stats, of_part)
            objects = []
            for row, kind in zip(
                chunk.tolist(), kinds[begin : begin + AT_ONCE].tolist(), strict=True
            ):
                members = shared.get(kind, {}) | members_by_row.get(row, {})
                objects.append(b"{" + b",".join(members.values()) + b"}" if members else b"")
            yield objects


class _Members:
    """Stats as members of JSON objects; the JSON of values that repeat is cached."""

    def __init__(self, plane: Plane, hidden: Collection[str], paths: Collection[str]) -> None:
        self._plane = plane
        names = plane.keys[0]
        self._shown = np.array([bool(n) and n not in hidden for n in names] or [False], bool)
        self._heads = [quoted(name) + b":" for name in names]
        self._paths = {i for i, name in enumerate(names) if name in paths}
        self._known: dict[tuple[int, int, int | bytes], bytes] = {}

    def members(self, stats: Stats, rows: I64) -> dict[int, dict[int, bytes]]:
        """``"key":value`` of some stats, by owner and key."""
        rows = rows[self._shown[stats.key[rows]] & (stats.kind[rows] != _BYTES)]
        members_of: dict[int, dict[int, bytes]] = {}
        data, known = self._plane.data, self._known
        listed = zip(rows.tolist(), *(column[rows].tolist() for column in stats), strict=True)
        for row, owner, key, kind, value, start in listed:
            if kind == _SIGNED:
                text = b"%b%d" % (self._heads[key], value)
            else:
                content = (
                    bytes(data[start : start + min(value, _SHORT)]) if kind == _TEXT else value
                )
                text = (
                    known.get((key, kind, content), b"")
                    if kind != _TEXT or value <= _SHORT
                    else b""
                )
                if not text:
                    text = self._member(stats, row, key)
                    if kind != _TEXT or content.isascii():  # each text that is not UTF-8 is counted
                        known[key, kind, content] = text
            members_of.setdefault(owner, {})[key] = text
        return members_of

    def _member(self, stats: Stats, row: int, key: int) -> bytes:
        value = self._plane._value(stats, row)
        if not isinstance(value, str):
            return self._heads[key] + repr(value).encode()
        return self._heads[key] + quoted(value.rpartition("/")[2] if key in self._paths else value)


class Space(NamedTuple):
    """A whole file.

    Attributes:
        planes: in the order of the file.
        hosts, errors, warnings: texts of the profiler.
        broken: where the file is cut off or damaged, -1 if it is whole.
    """

    planes: tuple[Plane, ...]
    hosts: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    broken: int

    @property
    def recorded_ns(self) -> tuple[int, int] | None:
        """Begin and end of the recording, Unix ns; None if it is not known."""
        for plane in self.planes:
            if plane.name == TASK:
                stats = plane.own()
                begin, end = stats.get("profile_start_time"), stats.get("profile_stop_time")
                if isinstance(begin, int) and 0 < begin <= INT64_MAX:
                    return begin, end if isinstance(end, int) else begin
        return None


def space_of(data: Any) -> Space:
    """The planes of a file; events are read when first used."""
    file_span = _single(0), _single(len(data))
    broken, cut, _ = damage_in(data, 0, len(data), _PLANES)
    _, start, size = nested(data, *file_span, _PLANES)
    if cut is not None:
        start, size = np.append(start, cut), np.append(size, len(data) - cut)
    name_start, length = columns(data, start, size, (_NAME,)).spans(_NAME)
    bounds = zip(start.tolist(), (start + size).tolist(), strict=True)
    names = _decoded(data, name_start, length)
    planes = [
        Plane(data, *bounds_of_plane, name)
        for bounds_of_plane, name in zip(bounds, names, strict=True)
    ]
    hosts, errors, warnings = (
        tuple(_decoded(data, *nested(data, *file_span, number)[1:]))
        for number in (_HOSTS, _ERRORS, _WARNINGS)
    )
    return Space(tuple(planes), hosts, errors, warnings, broken)


def is_space(head: bytes) -> bool:
    """Whether a file that begins so is an XSpace: its first field is a plane, which has a name."""
    if not head.startswith(b"\n"):
        return False
    try:
        size, offset = varint(head, 1, len(head))
    except BrokenMessage:
        return False
    for number, _, value in whole_fields(head[offset : offset + size]):
        if number == _NAME:
            return message(value).startswith((b"/", TASK.encode()))
        if number != _ID:
            return False
    return False


def _decoded(data: Any, start: I64, size: I64) -> list[str]:
    spans = zip(start.tolist(), size.tolist(), strict=True)
    return [bytes(data[offset : offset + n]).decode("utf-8", "replace") for offset, n in spans]


def _single(number: int) -> I64:
    return np.array([number], np.int64)
