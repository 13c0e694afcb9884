"""Packet sequences: interned data in generations, defaults, and what depends on them."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceconv.validation.perfetto.wire import (
    BrokenMessage,
    Value,
    fields,
    message,
    number,
    packed,
    text,
    whole_fields,
)
from traceconv.validation.tally import Tally

CATEGORIES, EVENT_NAMES = 1, 2
CONTEXTS, GPU_SPECIFICATIONS = 23, 24

_TEXTS = frozenset({1, 2, 3, 5, 16, 17, 18, 22, 24, 26, 27, 29, 43})
"""Tables whose entries are ``iid=1, text=2``."""


@dataclass
class Generation:
    """Interned data from one clearing of a sequence's state to the next."""

    _tables: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _texts: dict[tuple[int, int], str] = field(default_factory=dict)

    def defines(self, table: int, iid: int) -> bool:
        """Whether the id has been seen."""
        return iid in self._tables.get(table, ())

    def entry(self, table: int, iid: int) -> bytes | None:
        """The raw entry, None if there is none."""
        return self._tables.get(table, {}).get(iid)

    def text(self, table: int, iid: int) -> str | None:
        """The text of an entry, None if there is none."""
        known = self._texts.get((table, iid))
        if known is None:
            entry = self.entry(table, iid)
            if entry is None:
                return None
            last = {n: v for n, _, v in whole_fields(entry)}
            known = self._texts[table, iid] = text(last.get(2, b""))
        return known

    def intern(self, data: bytes, tally: Tally, where: str) -> None:
        """Take in an InternedData message."""
        for table, _, value in _lenient(data, tally, where):
            entry = message(value)
            last = {n: v for n, _, v in _lenient(entry, tally, where)}
            iid = number(last.get(1, 0))
            if not iid:
                tally.add("P04-zero", where)
                continue
            had = self._tables.setdefault(table, {}).setdefault(iid, entry)
            if had != entry:
                tally.add("P05-redefined", f"table {table} id {iid}, {where}")
            if table in _TEXTS and not is_utf8(message(last.get(2, b""))):
                tally.add("P22-utf8", where)


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _lenient(data: bytes, tally: Tally, where: str) -> list[tuple[int, int, Value]]:
    try:
        return fields(data)
    except BrokenMessage as e:
        tally.add("P01-message", where)
        return e.fields


@dataclass(frozen=True)
class Defaults:
    """TracePacketDefaults: what packets of a sequence need not say. None where unset."""

    clock: int = 0
    track: int | None = None
    extra_tracks: tuple[int, ...] = ()
    extra_double_tracks: tuple[int, ...] = ()

    @staticmethod
    def read(data: bytes, tally: Tally, where: str) -> Defaults:
        """From the message."""
        last = {n: v for n, _, v in _lenient(data, tally, where)}
        event = _lenient(message(last.get(11, b"")), tally, where)
        of_event = {n: v for n, _, v in event}
        return Defaults(
            clock=number(last.get(58, 0)),
            track=number(of_event[11]) if 11 in of_event else None,
            extra_tracks=tuple(u for n, w, v in event if n == 31 for u in packed(w, v)),
            extra_double_tracks=tuple(u for n, w, v in event if n == 45 for u in packed(w, v)),
        )


@dataclass
class Sequence:
    """The state of one writer.

    Attributes:
        number, machine: its ids.
        valid:      whether its state was cleared since the start or the last loss.
        version:    changes whenever an earlier reading of equal bytes no longer holds.
        generation: index of its interned data among all generations.
        thread:     (pid, tid) of the last thread described on it.
        totals:     absolute values of incremental counters, by track uuid.
    """

    number: int
    machine: int
    valid: bool = False
    version: int = 0
    generation: int = -1
    defaults: Defaults = field(default_factory=Defaults)
    thread: tuple[int, int] | None = None
    totals: dict[int, float] = field(default_factory=dict)

    def clear(self, generation: int) -> None:
        """Start over with empty state."""
        self.valid, self.generation = True, generation
        self.defaults, self.totals = Defaults(), {}
        self.version += 1

    def lose(self) -> None:
        """Packets were lost: nothing can be relied on until the next clearing."""
        self.valid = False
        self.version += 1
