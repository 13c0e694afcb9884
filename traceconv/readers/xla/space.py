"""An XSpace as columns: its planes, their lines, the events of these, and what is known of each.

Nothing here knows what a plane is for. Numbers are those of the file: picoseconds, and ids that are
valid within one plane.

Of a file that is cut off or damaged everything is read that is whole, in every plane, line and
event. What is not is counted in :attr:`Plane.damage`.

Source: the fields of tensorflow.profiler.XSpace as files hold them.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I32, I64, Mask
from traceconv.readers.shared.arguments import AT_ONCE, quoted
from traceconv.readers.shared.protobuf_wire import FIXED64, LENGTH, VARINT, Cut, Damaged, fields
from traceconv.readers.xla.wire import Parts, fields_of, parts_of, signed

# fields of XSpace
PLANES, ERRORS, WARNINGS, HOSTS = 1, 2, 3, 4
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
"""Characters of a text that are kept."""

_SHORT = 64
"""Bytes of texts that are made JSON once."""


@dataclass(frozen=True)
class Line:
    """One line of a plane.

    Attributes:
        timestamp_ns: what offsets of its events count from.
        first, count: its events, rows of :class:`Plane`.
    """

    id: int
    name: str
    timestamp_ns: int
    first: int
    count: int


@dataclass(frozen=True)
class Stats:
    """Stats of events, or of their metadata: one row each, by owner.

    Attributes:
        owner: row of the event, or of the metadata.
        key:   number of its name in :attr:`Plane.keys`.
        kind:  the field its value is in.
        value: the number, the bits of a double, the length of bytes, or the stat that is meant.
        start: of bytes, where they are.
    """

    owner: I64
    key: I64
    kind: I64
    value: I64
    start: I64

    def of(self, key: int, *kinds: int) -> NDArray[np.intp]:
        """The rows of one name with a value of these kinds."""
        return np.flatnonzero((self.key == key) & np.isin(self.kind, kinds))


@dataclass
class Plane:
    """One plane, read when it is asked for its content.

    Attributes:
        name:   "/host:CPU", "/device:TPU:0".
        damage: what could not be read: issue code -> how often.
    """

    data: Any
    at: int
    end: int
    name: str
    damage: Counter[str] = field(default_factory=Counter)

    # -- framing ----------------------------------------------------------------------------

    @cached_property
    def _parts(self) -> Parts:
        found = parts_of(self.data, self.at, self.end, _LINES)
        self._broken(found.broken, self.end)
        return found

    def _broken(self, at: int, end: int) -> None:
        if at >= 0:
            self.damage["truncated" if end == len(self.data) else "malformed-record"] += 1

    @cached_property
    def raw(self) -> NDArray[np.uint8]:
        """The whole file."""
        return np.frombuffer(self.data, np.uint8)

    def _messages(self, number: int) -> tuple[I64, I64]:
        """Start and end of the messages in a field of the plane other than its lines."""
        rows = [(o[3], o[3] + o[2]) for o in self._parts.others if o[:2] == (number, LENGTH)]
        bounds = np.array(rows, np.int64).reshape(-1, 2)
        return bounds[:, 0], bounds[:, 1]

    def has_events(self) -> bool:
        """Whether any line holds an event."""
        return any(_holds_events(self.data, *one) for one in self._parts.bounds())

    # -- names ------------------------------------------------------------------------------

    @cached_property
    def _stat_names(self) -> dict[int, str]:
        """Names of stats by their ids."""
        key, start, end = self._map(_STAT_METADATA)
        inner = fields_of(self.raw, start, end)
        ids = np.where(inner.has(1, VARINT), inner.last(1, VARINT), key)
        named = dict.fromkeys(ids.tolist(), "")
        rows = inner.rows(2, LENGTH)
        ranges = zip(inner.start[rows].tolist(), inner.value[rows].tolist(), strict=True)
        for row, (at, size) in zip(inner.message[rows].tolist(), ranges, strict=True):
            named[int(ids[row])] = self.text(at, size)
        return named

    def _map(self, number: int) -> tuple[I64, I64, I64]:
        """Entries of a map from numbers to messages: key, start and end of the value."""
        start, end = self._messages(number)
        entries = fields_of(self.raw, start, end)
        self._count_broken(entries.broken)
        key = entries.last(_KEY, VARINT)
        rows = entries.rows(_VALUE, LENGTH)
        begin, stop = np.zeros(len(key), np.int64), np.zeros(len(key), np.int64)
        begin[entries.message[rows]] = entries.start[rows]
        stop[entries.message[rows]] = entries.start[rows] + entries.value[rows]
        return key, begin, stop

    def _count_broken(self, broken: Mask) -> None:
        if count := int(broken.sum()):
            self.damage["malformed-record"] += count

    def text(self, at: int, size: int) -> str:
        """Text of the file; what is no UTF-8 in it is counted."""
        raw = bytes(self.data[at : at + min(size, _MOST_TEXT)])
        text = raw.decode("utf-8", "replace")
        if "\ufffd" in text and "\ufffd".encode() not in raw:
            self.damage["bad-encoding"] += 1
        return text

    @cached_property
    def keys(self) -> tuple[list[str], dict[int, int]]:
        """The different names of stats, and their numbers in that list by id."""
        names: dict[str, int] = {}
        of_id = {i: names.setdefault(name, len(names)) for i, name in self._stat_names.items()}
        return list(names), of_id

    def _stats(self, owner: I64, start: I64, end: I64) -> Stats:
        """Stats from where they are in the file."""
        found = fields_of(self.raw, start, end)
        self._count_broken(found.broken)
        ids = found.last(1, VARINT)
        kind, value = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
        begin = np.zeros(len(start), np.int64)
        wire = {_DOUBLE: FIXED64, _TEXT: LENGTH, _BYTES: LENGTH}
        typed = [
            (found.number == number) & (found.kind == wire.get(number, VARINT))
            for number in range(_DOUBLE, _REFERENCE + 1)
        ]
        rows = np.flatnonzero(np.logical_or.reduce(typed))  # the last one written counts
        at = found.message[rows]
        kind[at], value[at], begin[at] = found.number[rows], found.value[rows], found.start[rows]
        distinct, back = np.unique(ids, return_inverse=True)
        of_id = self.keys[1]
        numbers = np.array([of_id.get(i, -1) for i in distinct.tolist()], np.int64)
        key = numbers[back] if len(ids) else ids
        kept = np.flatnonzero((kind > 0) & (key >= 0) & ~found.broken)
        return Stats(owner[kept], key[kept], kind[kept], value[kept], begin[kept])

    # -- metadata of events -----------------------------------------------------------------

    @cached_property
    def _metadata(self) -> tuple[I64, list[str], Stats, I64]:
        """Of every kind of event: its id, name and stats; and the order of ids."""
        key, start, end = self._map(_EVENT_METADATA)
        inner = fields_of(self.raw, start, end)
        self._count_broken(inner.broken)
        ids = np.where(inner.has(1, VARINT), inner.last(1, VARINT), key)
        names = [""] * len(ids)
        for number in (2, _DISPLAY):  # what is displayed goes before the name
            rows = inner.rows(number, LENGTH)
            ranges = zip(inner.start[rows].tolist(), inner.value[rows].tolist(), strict=True)
            for row, (at, size) in zip(inner.message[rows].tolist(), ranges, strict=True):
                names[row] = (self.text(at, size) if size else "") or names[row]
        rows = inner.rows(_METADATA_STATS, LENGTH)
        begin = inner.start[rows]
        stats = self._stats(inner.message[rows], begin, begin + inner.value[rows])
        return ids, names, stats, np.argsort(ids, kind="stable")

    @property
    def kinds(self) -> list[str]:
        """The names of all kinds of events."""
        return self._metadata[1]

    def metadata_bytes(self, key: str) -> Iterable[tuple[int, int, int]]:
        """Values of a stat of kinds of events that are bytes: number of the kind, start and end."""
        stats = self._metadata[2]
        rows = stats.of(self._key(key), _BYTES)
        for row in rows.tolist():
            at = int(stats.start[row])
            yield int(stats.owner[row]), at, at + int(stats.value[row])

    def _key(self, name: str) -> int:
        names = self.keys[0]
        return names.index(name) if name in names else -2

    # -- events -----------------------------------------------------------------------------

    @cached_property
    def lines(self) -> list[Line]:
        """The lines, those without events included."""
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[list[Line], dict[str, Any]]:
        lines: list[Line] = []
        starts: list[I64] = []
        ends: list[I64] = []
        first = 0
        for at, end in self._parts.bounds():
            inner = parts_of(self.data, at, end, _EVENTS)
            if (at, end) != self._parts.cut:  # which is counted already
                self._broken(inner.broken, end)
            lines.append(self._line(inner, first))
            starts.append(inner.start)
            ends.append(inner.end)
            first += len(inner.start)
        start, end_ = _joined(starts), _joined(ends)
        found = fields_of(self.raw, start, end_)
        rows = found.rows(_EVENT_STATS, LENGTH)
        begin = found.start[rows]
        columns: dict[str, Any] = {
            "metadata": found.last(_METADATA_ID, VARINT),
            "offset": found.last(_OFFSET, VARINT),
            "duration": found.last(_DURATION, VARINT),
            "aggregate": found.has(_OCCURRENCES, VARINT) & ~found.has(_OFFSET, VARINT),
            "broken": found.broken,
            "stats": self._stats(found.message[rows], begin, begin + found.value[rows]),
        }
        return lines, columns

    def _line(self, parts: Parts, first: int) -> Line:
        numbers = {o[0]: o[2] for o in parts.others if o[1] == VARINT}
        texts = {o[0]: self.text(o[3], o[2]) for o in parts.others if o[1] == LENGTH}
        name = texts.get(_DISPLAY_NAME) or texts.get(_LINE_NAME) or ""
        ident = numbers.get(_ID, 0)
        return Line(ident, name, numbers.get(_TIMESTAMP, 0), first, len(parts.start))

    def __len__(self) -> int:
        """Events of all lines."""
        return len(self._read[1]["metadata"])

    @property
    def offset_ps(self) -> I64:
        """Start of every event, from the timestamp of its line."""
        return np.asarray(self._read[1]["offset"])

    @property
    def duration_ps(self) -> I64:
        """Length of every event."""
        return np.asarray(self._read[1]["duration"])

    @property
    def broken(self) -> Mask:
        """Events of which not everything can be read."""
        return np.asarray(self._read[1]["broken"])

    @property
    def aggregate(self) -> Mask:
        """Events that stand for a number of them and have no time."""
        return np.asarray(self._read[1]["aggregate"])

    @property
    def stats(self) -> Stats:
        """Stats of events."""
        found: Stats = self._read[1]["stats"]
        return found

    @cached_property
    def line_of(self) -> I64:
        """Number of the line of every event."""
        return np.repeat(np.arange(len(self.lines)), [line.count for line in self.lines])

    @cached_property
    def kind_of(self) -> I64:
        """Which of :attr:`kinds` every event is; -1 if the plane does not say."""
        ids, _, _, order = self._metadata
        wanted = self._read[1]["metadata"]
        if not len(ids):
            return np.full(len(wanted), -1, np.int64)
        ordered = ids[order]
        at = np.minimum(np.searchsorted(ordered, wanted, "right") - 1, len(ids) - 1)
        return np.where(ordered[at] == wanted, order[at], -1)

    @property
    def metadata_id(self) -> I64:
        """The id of the kind of every event."""
        return np.asarray(self._read[1]["metadata"])

    # -- values -----------------------------------------------------------------------------

    def integers(self, key: str) -> tuple[I64, Mask]:
        """A stat that is a whole number, of every event or else of its kind; and who has it."""
        if key not in self._integers:
            self._integers[key] = self._integers_of(key)
        return self._integers[key]

    @cached_property
    def _integers(self) -> dict[str, tuple[I64, Mask]]:
        return {}

    def _integers_of(self, key: str) -> tuple[I64, Mask]:
        number, n = self._key(key), len(self)
        value, there = np.zeros(n, np.int64), np.zeros(n, bool)
        kinds = self._metadata[2]
        rows = kinds.of(number, _UNSIGNED, _SIGNED)
        if len(rows):
            of_kind = np.zeros(len(self.kinds), np.int64)
            known = np.zeros(len(self.kinds), bool)
            of_kind[kinds.owner[rows]], known[kinds.owner[rows]] = kinds.value[rows], True
            at = np.maximum(self.kind_of, 0)
            value, there = of_kind[at], known[at] & (self.kind_of >= 0)
        rows = self.stats.of(number, _UNSIGNED, _SIGNED)
        value[self.stats.owner[rows]], there[self.stats.owner[rows]] = self.stats.value[rows], True
        return value, there

    def numbers(self, key: str) -> tuple[NDArray[np.float64], Mask]:
        """A stat that is any number, of every event; NaN where there is none."""
        value = np.full(len(self), np.nan)
        whole = self.stats.of(self._key(key), _UNSIGNED, _SIGNED)
        value[self.stats.owner[whole]] = self.stats.value[whole].astype(np.float64)
        rows = self.stats.of(self._key(key), _DOUBLE)
        bits = np.ascontiguousarray(self.stats.value[rows])
        value[self.stats.owner[rows]] = bits.view(np.float64)
        return value, ~np.isnan(value)

    def texts(self, key: str) -> tuple[I32, list[str]]:
        """A stat that is text, of every event or else of its kind: which of a list, -1 = none."""
        if key not in self._texts:
            self._texts[key] = self._texts_of(key)
        return self._texts[key]

    @cached_property
    def _texts(self) -> dict[str, tuple[I32, list[str]]]:
        return {}

    def _texts_of(self, key: str) -> tuple[I32, list[str]]:
        number = self._key(key)
        table: dict[str, int] = {}
        of_kind = self._coded(self._metadata[2], number, len(self.kinds), table)
        codes = self._coded(self.stats, number, len(self), table)
        if len(of_kind):
            known = (codes < 0) & (self.kind_of >= 0)
            codes[known] = of_kind[self.kind_of[known]]
        return codes, list(table)

    def _coded(self, stats: Stats, key: int, n: int, table: dict[str, int]) -> I32:
        codes = np.full(n, -1, np.int32)
        rows = stats.of(key, _TEXT, _REFERENCE)
        for row, owner in zip(rows.tolist(), stats.owner[rows].tolist(), strict=True):
            codes[owner] = table.setdefault(self._value_text(stats, row), len(table))
        return codes

    def _value_text(self, stats: Stats, row: int) -> str:
        value = int(stats.value[row])
        if stats.kind[row] == _REFERENCE:
            return self._stat_names.get(value, "")
        return self.text(int(stats.start[row]), value)

    def own(self) -> dict[str, Any]:
        """The stats of the plane itself; bytes are left out."""
        start, end = self._messages(_OWN_STATS)
        stats = self._stats(np.arange(len(start)), start, end)
        values = {}
        for row in range(len(stats.owner)):
            if stats.kind[row] != _BYTES:
                text = self.json(stats, row)
                values[self.keys[0][int(stats.key[row])]] = json.loads(text)
        return values

    # -- arguments --------------------------------------------------------------------------

    def arguments(
        self, rows: I64, hidden: Collection[str], plain: Collection[str]
    ) -> Iterator[list[bytes]]:
        """The stats of some events, and of their kinds, as JSON objects; b"" where there are none.

        Args:
            rows:   of events, ascending.
            hidden: names of stats that are left out. Bytes are always left out.
            plain:  names of stats that are paths: only what follows the last slash is kept.

        Yields:
            Those of the next :data:`AT_ONCE` rows.
        """
        write = _Members(self, hidden, plain)
        kinds = self.kind_of[rows]
        shared = write.members(self._metadata[2], np.arange(len(self._metadata[2].owner)))
        for at in range(0, len(rows), AT_ONCE):
            part = rows[at : at + AT_ONCE]
            own = write.members(self.stats, self._stats_of(part))
            found = []
            for row, kind in zip(part.tolist(), kinds[at : at + AT_ONCE].tolist(), strict=True):
                members = own.get(row)
                if more := shared.get(kind):
                    members = {**more, **members} if members else more
                found.append(b"{" + b",".join(members.values()) + b"}" if members else b"")
            yield found

    def _stats_of(self, rows: I64) -> I64:
        """Where the stats of some events are; they are in the order of their owners."""
        owner = self.stats.owner
        first, last = np.searchsorted(owner, (rows[0], rows[-1] + 1)).tolist()
        found: I64 = first + np.flatnonzero(np.isin(owner[first:last], rows))
        return found

    def json(self, stats: Stats, row: int, path: bool = False) -> bytes:
        """The value of a stat as JSON."""
        kind, value = int(stats.kind[row]), int(stats.value[row])
        if kind == _DOUBLE:
            (number,) = struct.unpack("<d", struct.pack("<q", value))
            return repr(number).encode() if math.isfinite(number) else quoted(str(number))
        if kind in (_UNSIGNED, _SIGNED):
            return b"%d" % (value & ((1 << 64) - 1) if kind == _UNSIGNED else value)
        text = self._value_text(stats, row)
        return quoted(text.rpartition("/")[2] if path else text)


def _joined(parts: Sequence[I64]) -> I64:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _holds_events(data: Any, at: int, end: int) -> bool:
    try:
        return any(one.number == _EVENTS and one.kind == LENGTH for one in fields(data, at, end))
    except (Cut, Damaged):
        return False


@dataclass(frozen=True)
class Space:
    """A whole file.

    Attributes:
        planes: in the order they are written in.
        hosts, errors, warnings: texts of the profiler.
        broken: where it is cut off or damaged, -1 if it is whole.
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
                own = plane.own()
                begin, end = own.get("profile_start_time"), own.get("profile_stop_time")
                if isinstance(begin, int) and begin > 0:
                    return begin, end if isinstance(end, int) else begin
        return None


TASK = "Task Environment"


def space_of(data: Any) -> Space:
    """The planes of a file; events are read when they are asked for."""
    parts = parts_of(data, 0, len(data), PLANES)
    texts: Mapping[int, list[str]] = {ERRORS: [], WARNINGS: [], HOSTS: []}
    for number, kind, size, start in parts.others:
        if number in texts and kind == LENGTH:
            texts[number].append(bytes(data[start : start + size]).decode("utf-8", "replace"))
    return Space(
        tuple(Plane(data, at, end, plane_name(data, at, end)) for at, end in parts.bounds()),
        tuple(texts[HOSTS]),
        tuple(texts[ERRORS]),
        tuple(texts[WARNINGS]),
        parts.broken,
    )


class _Members:
    """Stats as members of JSON objects; texts that repeat are made once."""

    def __init__(self, plane: Plane, hidden: Collection[str], plain: Collection[str]) -> None:
        self._plane = plane
        names = plane.keys[0]
        self._shown = np.array([bool(n) and n not in hidden for n in names] or [False], bool)
        self._heads = [quoted(name) + b":" for name in names]
        self._paths = {i for i, name in enumerate(names) if name in plain}
        self._known: dict[tuple[int, int, int], bytes] = {}
        self._short: dict[tuple[int, bytes], bytes] = {}

    def members(self, stats: Stats, rows: I64) -> dict[int, dict[int, bytes]]:
        """``"key":value`` of some stats, by owner and key."""
        rows = rows[self._shown[stats.key[rows]] & (stats.kind[rows] != _BYTES)]
        found: dict[int, dict[int, bytes]] = {}
        columns = (stats.owner, stats.key, stats.kind, stats.value, stats.start)
        for row, (owner, key, kind, value, start) in zip(
            rows.tolist(), zip(*(c[rows].tolist() for c in columns), strict=True), strict=True
        ):
            if kind == _TEXT and value <= _SHORT:  # few different ones, as a rule
                text = self._text(stats, row, key, bytes(self._plane.data[start : start + value]))
            elif kind == _SIGNED:
                text = b"%b%d" % (self._heads[key], value)
            elif kind == _UNSIGNED:
                text = b"%b%d" % (self._heads[key], value & ((1 << 64) - 1))
            elif kind == _TEXT:
                text = self._heads[key] + self._plane.json(stats, row, key in self._paths)
            else:
                text = self._known.get((key, kind, value), b"")
                if not text:
                    text = self._heads[key] + self._plane.json(stats, row, key in self._paths)
                    self._known[key, kind, value] = text
            found.setdefault(owner, {})[key] = text
        return found

    def _text(self, stats: Stats, row: int, key: int, raw: bytes) -> bytes:
        text = self._short.get((key, raw))
        if text is None:
            text = self._heads[key] + self._plane.json(stats, row, key in self._paths)
            if raw.isascii():  # each that is no UTF-8 is counted
                self._short[key, raw] = text
        return text


def plane_name(data: Any, at: int, end: int) -> str:
    """The name of the plane ``data[at:end]``, "" if it has none."""
    try:
        for one in fields(data, at, end):
            if one.number == _NAME and one.kind == LENGTH:
                return bytes(data[one.start : min(one.end, end)]).decode("utf-8", "replace")
    except (Cut, Damaged):
        pass
    return ""


_PLANE = ("/", TASK)


def is_space(head: bytes) -> bool:
    """Whether a file that begins so is an XSpace: its first field is a plane, which has a name."""
    if not head.startswith(b"\n"):
        return False
    try:
        first = next(fields(head, 0, len(head)))
    except (Cut, Damaged, StopIteration):
        return False
    inside = min(first.end, len(head))
    try:
        for one in fields(head, first.start, inside):
            if one.number == _NAME and one.kind == LENGTH:
                return (
                    bytes(head[one.start : one.end]).decode("utf-8", "replace").startswith(_PLANE)
                )
            if one.number not in (_ID, _NAME):
                return False
    except (Cut, Damaged):
        pass
    return False


__all__ = ["TASK", "Line", "Plane", "Space", "Stats", "is_space", "signed", "space_of"]
