"""Trace-event files merged by their bytes: every event as it is written, but for its ids.

For files of many ranks that shall lie in one, with nothing chosen, derived or moved in time. An
event keeps every byte (digits, unknown members, order of keys) except

* ``pid``: processes are numbered anew, 4096 numbers a rank, and called ``Rank N <name>``;
* ``id`` of flows and asynchronous events, and ``bind_id``: the bits from 2**40 up are set apart by
  rank, so that equal ids of two ranks do not meet; ids beyond 2**53 become text of base 16.

What names processes is gathered and written behind a rank's events. The work is done in C where
there is a compiler (``native/patch.c``) and here otherwise; the bytes are equal.

An event that is not JSON, a doubled key, a time or a thread that readers would not take as it is
written, a file cut off, an id that cannot be told apart: :class:`Unusual`. Such files are for the
readers, which know how to mend them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from traceconv import native
from traceconv.core.json_text import NOT_JSON
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.io.window import MAX_RECORD_BYTES, Window
from traceconv.readers.shared.trace_events.event_records import GOOD, exact_ns

STRIDE = 4096
"""Processes a rank may have."""

APART = 40
"""The bit from which ids tell ranks apart."""

CHUNK_BYTES = 256 << 10

_MORE, _END, _ODD = range(3)
_TOKEN = lazy_regex(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CLOSE = lazy_regex(rb"[ \t\r\n]*\]")
_LINKED = frozenset("stfbneSTpFNOD")
_PROCESS = ("process_name", "process_labels", "process_sort_index")
_EXACT = 1 << 53
_THREADS = 1 << 32


class Unusual(Exception):
    """A file that cannot be merged by its bytes; the message says where and why."""


class Processes(dict[bytes, bytes]):
    """The numbers of one rank's processes by the text of their ids, in order of appearance."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.spelled: dict[str, int] = {}
        self._first = index * STRIDE + 1

    def __missing__(self, token: bytes) -> bytes:
        value = _value(token, "a process")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        number = self.spelled.setdefault(str(value), len(self.spelled))
        if number >= STRIDE:
            raise Unusual(f"more than {STRIDE} processes")
        new = self[token] = b"%d" % (self._first + number)
        return new


class Copier:
    """Copies the events of one rank.

    Attributes:
        phases:  events copied, by their ``ph``.
        members: what the file holds beside its events: JSON text by key.
        any_thread: whether threads that viewers do not tell apart are copied, too.
    """

    any_thread = False

    def __init__(self, index: int, name: str) -> None:
        """The ``index``-th rank of a file, which is called ``name``."""
        self.phases: Counter[str] = Counter()
        self.members: dict[str, bytes] = {}
        self._name, self._index, self._mask = name, index, index << APART
        self._processes = Processes(index)
        self._metadata: dict[str, dict[bytes, Any]] = {key: {} for key in _PROCESS}
        self._copy = native.copier() or self._events

    def blocks(self, source: Source, name: str) -> Iterator[bytes]:
        """The events, joined by commas, in blocks of about :data:`CHUNK_BYTES`.

        Raises:
            Unusual: see the module.
            SourceError: the file cannot be read.
        """
        with source.open(name) as stream:
            window = Window(stream, CHUNK_BYTES)
            window.more()
            window.pos = self._head(window.data[: window.end])
            begun, status = False, _MORE
            while status != _END:
                status, position, copied, phases = self._copy(
                    window.data, window.pos, window.end, self._processes, self._mask,
                    not self.phases,
                )  # fmt: skip
                for code, n in enumerate(memoryview(phases).cast("q")):
                    if n:
                        self.phases[chr(code)] += n
                event = b""
                if status == _ODD:
                    try:
                        position, event = self._next_event(window.data, position)
                    except _Cut:
                        status = _MORE
                for block in filter(None, (copied, event)):
                    if begun:
                        yield b",\n"
                    yield block
                    begun = True
                window.pos = position
                if status == _MORE and (
                    window.end - position > MAX_RECORD_BYTES or not window.more()
                ):
                    raise Unusual(f"{source.title(name)}: cut off, or not a list of events")
            tail = _unread(window)
        self._tail(tail)
        processes = b",\n".join(self._naming())
        if processes:
            yield b",\n" + processes if begun else processes

    def _head(self, data: bytes) -> int:
        """Where the events begin; members before them are kept."""
        start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
        depth, key, since = 0, b"", 0
        self._object = bytes(data[start:]).lstrip()[:1] == b"{"
        for token in _TOKEN.finditer(data, start):
            text = token[0]
            if depth == 0 and text == b"[" and not self._object:
                _value(data[start : token.end()] + b"]", "before the events")
                return token.end()
            if depth == 1 and text == b"[" and key == b'"traceEvents"':
                _value(data[start : token.end()] + b"]}", "before the events")
                return token.end()
            if text in b"{[" and len(text) == 1:
                depth += 1
            elif text in b"}]" and len(text) == 1:
                depth -= 1
            if depth == 1 and text == b":":
                since = token.end()
            elif depth == 1 and text == b"," and key:
                value = data[since : token.start()]
                _value(value, "before the events")
                self._add(str(_value(key, "before the events")), value.strip())
                key = b""
            elif depth == 1 and not key and text.startswith(b'"'):
                key = text
        raise Unusual("no list of trace events near its beginning")

    def _tail(self, tail: bytes) -> None:
        """Members behind the events."""
        text = tail.strip()
        if not self._object:
            if text:
                raise Unusual("something follows the list of events")
            return
        if text.startswith(b","):
            text = b"{" + text[1:]
        elif text == b"}":
            return
        _value(text, "behind the events")  # parts left as they are written are not looked into
        members, _ = _members(text, 0)
        for key, a, b in members:
            self._add(key, text[a:b])

    def _add(self, name: str, value: bytes) -> None:
        if name in self.members or name == "traceEvents":
            raise Unusual(f"the key {name[:40]!r} occurs twice next to the events")
        self.members[name] = value

    # -- the slow tier: one event at a time --------------------------------------------------

    def _events(
        self, data: bytes, at: int, end: int, _pids: Processes, _mask: int, _first: bool
    ) -> tuple[int, int, bytes, bytes]:
        """As ``copy`` of the C part, which leaves what is unusual to :meth:`_next_event`."""
        copied: list[bytes] = []
        status = _MORE
        while at < end:
            close = _CLOSE.match(data, at)
            if close:
                status, at = _END, close.end()
                break
            try:
                at, event = self._next_event(data, at)
            except _Cut:
                break
            if event:
                copied.append(event)
        return status, at, b",\n".join(copied), b""

    def _next_event(self, data: bytes, offset: int) -> tuple[int, bytes]:
        """The event at or behind ``offset``: where it ends, and its copy (b"" if written later)."""
        start = data.find(b"{", offset)
        before = data[offset : start if start >= 0 else None].strip()
        if before != (b"," if self.phases else b""):
            if start < 0 and before in (b"", b","):
                raise _Cut
            raise Unusual(f"between two events: {before[:40]!r}")
        if start < 0:
            raise _Cut
        tokens, end = _members(data, start)
        event = data[start:end]
        _value(event, "an event")
        members = {key: event[a - start : b - start] for key, a, b in tokens}
        if len(members) < len(tokens) or "id2" in members:
            raise Unusual("an event with a doubled key, or with id2")
        phase = _value(members.get("ph", b'""'), "a phase")
        if not isinstance(phase, str) or len(phase) != 1:
            raise Unusual("an event without a phase")
        self.phases[phase] += 1
        if phase != "M":
            _refuse_unusual(members, phase, self.any_thread)
        number = self._processes[members.get("pid", b'""')]
        if phase == "M" and self._is_metadata(members, number):
            return end, b""
        return end, self._patched(event, start, tokens, phase, number)

    def _patched(
        self, event: bytes, start: int, tokens: list[Any], phase: str, number: bytes
    ) -> bytes:
        out, done = [], 0
        if not any(key == "pid" for key, _, _ in tokens):
            out.append(b'{"pid": %s%s' % (number, b", " if tokens else b""))
            done = 1
        for key, a, b in tokens:
            if key == "pid":
                new = number
            elif key == "bind_id" or (key == "id" and phase in _LINKED):
                apart = _id_value(event[a - start : b - start]) ^ self._mask
                new = b"%d" % apart if apart < _EXACT else b'"%x"' % apart
            else:
                continue
            out += [event[done : a - start], new]
            done = b - start
        return b"".join([*out, event[done:]])

    def _is_metadata(self, members: dict[str, bytes], number: bytes) -> bool:
        """Whether an event says something about a process; it is remembered."""
        name = _value(members.get("name", b"null"), "a name")
        if name not in _PROCESS:
            return False
        args = _value(members.get("args", b"null"), "arguments")
        values = list(args.values()) if isinstance(args, dict) else []
        if values:
            self._metadata[name][number] = values[0]
        return True

    def _naming(self) -> Iterator[bytes]:
        """What names and orders the processes of this rank."""
        names, labels, orders = (self._metadata[key] for key in _PROCESS)
        by_number = {number: token for token, number in self._processes.items()}
        places = {n: order if isinstance(order, int) else 0 for n, order in orders.items()}
        numbers = sorted(by_number, key=lambda n: (places.get(n, 0), int(n)))
        for position, number in enumerate(numbers):
            called = names.get(number, f"pid {_text(by_number[number])}".rstrip())
            yield _metadata_event("process_name", number, "name", f"{self._name} {called}")
            if number in labels:
                yield _metadata_event("process_labels", number, "labels", labels[number])
            yield _metadata_event(
                "process_sort_index", number, "sort_index", self._index * STRIDE + position
            )


class _Same(Processes):
    """Processes that keep their numbers."""

    def __init__(self) -> None:
        super().__init__(0)

    def __missing__(self, token: bytes) -> bytes:
        self[token] = token
        return token


class Keeper(Copier):
    """Copies the events of a file as they are, with all numbers and names."""

    any_thread = True

    def __init__(self) -> None:
        super().__init__(0, "")
        self._processes = _Same()

    def _patched(
        self, event: bytes, start: int, tokens: list[Any], phase: str, number: bytes
    ) -> bytes:
        return event

    def _is_metadata(self, members: dict[str, bytes], number: bytes) -> bool:
        return False

    def _naming(self) -> Iterator[bytes]:
        return iter(())


def _unread(window: Window) -> bytes:
    """The rest of the file that has not been consumed.

    Raises:
        Unusual: it is longer than any valid end of a file.
    """
    while window.more():
        if window.end - window.pos > MAX_RECORD_BYTES:
            raise Unusual("much follows the list of events")
    tail = bytes(window.data[window.pos : window.end])
    window.close()
    return tail


class _Cut(Exception):
    """The bytes at hand end within an event."""


def _members(data: bytes, start: int) -> tuple[list[tuple[str, int, int]], int]:
    """Key and span of the value of every member of the object at ``start``, and where it ends.

    Raises:
        _Cut: it does not end.
    """
    members: list[tuple[str, int, int]] = []
    depth, key, since = 0, None, 0
    for token in _TOKEN.finditer(data, start):
        text = token[0]
        if depth == 1 and key is None and text.startswith(b'"'):
            key = text
        elif depth == 1 and text == b":" and not since:
            since = token.end()
        elif depth == 1 and text in (b",", b"}") and key is not None and since:
            value = data[since : token.start()]
            a = since + len(value) - len(value.lstrip())
            members.append((_text(key), a, a + len(value.strip())))
            key, since = None, 0
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return members, token.end()
    raise _Cut


def _text(token: bytes) -> str:
    return str(_value(token, "a key"))


def _refuse_unusual(members: dict[str, bytes], phase: str, any_thread: bool) -> None:
    """Raise Unusual unless viewers place an event where its times and its thread say."""
    for key in ("ts", "dur") if "dur" in members or phase == "X" else ("ts",):
        ns, state, _ = exact_ns(members.get(key, b""))
        if state != GOOD or (key == "dur" and ns < 0):
            raise Unusual(f"an event whose {key} is not a time: {members.get(key, b'')[:40]!r}")
    tid = _value(members.get("tid", b'""'), "a thread")
    if any_thread:
        return
    if not isinstance(tid, str) and (not isinstance(tid, int) or not 0 <= tid < _THREADS):
        raise Unusual(f"a thread that viewers do not know: {members['tid'][:40]!r}")


def _value(text: bytes, label: str, kind: Any = Any) -> Any:
    """The JSON value that a part of the file holds.

    Raises:
        Unusual: it is none, or not of this ``kind``.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except NOT_JSON as e:
        raise Unusual(f"{label}: not JSON: {e}") from e


def _metadata_event(name: str, number: bytes, key: str, value: Any) -> bytes:
    head = b'{"ph": "M", "name": "%s", "pid": %s, "tid": 0, "args": {"%s": ' % (
        name.encode(),
        number,
        key.encode(),
    )
    return head + json.dumps(value, ensure_ascii=False).encode() + b"}}"


def _id_value(token: bytes) -> int:
    """The number of an id; see ``id_value`` of the C part."""
    value = _value(token, "an id")
    raw = value.encode() if isinstance(value, str) else token
    if re.fullmatch(rb"\d{1,19}", raw):
        return int(raw)
    if not isinstance(value, str):
        raise Unusual(f"an id that is not a whole number: {token[:40]!r}")
    if re.fullmatch(rb"0[xX][0-9a-fA-F]{1,16}", raw):
        return int(raw, 16)
    hashed = 0xCBF29CE484222325
    for byte in raw:
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return hashed
