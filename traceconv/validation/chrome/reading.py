"""First pass over a Chrome JSON file: its text in pieces, its events to columns in file order."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from traceconv.validation.lenient import (
    SURROGATE_ESCAPE,
    Incomplete,
    LenientError,
    Span,
    items,
    json_leaves,
    key,
    number,
    skip_space,
    value,
)

from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Progress
from traceconv.validation.container import BOM, Buffer, followed, unheard
from traceconv.validation.rules import Refused, Tally

_T = TypeVar("_T")
_PIECE = 1 << 20
_UINT32 = (1 << 32) - 1
_INT64 = 1 << 63
_EXACT_ID = 1 << 53
_EXACT_US = (1 << 52) / 1000
"""Above this, a double of microseconds does not hold three decimals."""

NO_DURATION = _INT64 - 1

_GAP = lazy_regex(r"[ \t\n\r]*(?:,[ \t\n\r]*)?")
_KEY_GAP = lazy_regex(r"[\s,]*")
_BAD_BYTES = lazy_regex("[\udc80-\udcff]")
_CONTROL = lazy_regex("[\x00-\x1f\x7f]")
_FRACTION = lazy_regex(r"\.0*[1-9]")
_TS = lazy_regex(r'"ts"\s*:\s*(-?[0-9.]+)')
_HEX = lazy_regex(r"\s*[+-]?(?:0[xX])?[0-9a-fA-F]+")
_DECIMAL = lazy_regex(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_KNOWN = frozenset("BEXbneiIRstfCMT")

Id = int | str
"""A pid or tid: its number, or the text in place of one."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_STRICT = cast(Any, json.JSONDecoder(parse_constant=_no_constant)).scan_once
_LOOSE = cast(Any, json.JSONDecoder(parse_constant=_no_constant, strict=False)).scan_once
_UNREADABLE = (ValueError, StopIteration, RecursionError)


class Shape(NamedTuple):
    """Everything of an event but its time. ``scope``: of an instant, or ``bp`` of a flow end."""

    phase: str
    pid: Id
    tid: Id
    name: str | None
    category: str | None
    scope: str = ""
    has_pid: bool = True
    has_tid: bool = True


class Bind(NamedTuple):
    """A ``bind_id`` (flow, version 2)."""

    flow: int
    inward: bool
    outward: bool


class Reader:
    """The events of a file, and its metadata.

    The text is held in pieces of Latin-1, where a character is a byte; what is not ASCII is decoded
    event by event.

    Attributes:
        metadata: the top-level ``metadata`` object.
    """

    def __init__(self, data: Buffer, label: str, tally: Tally) -> None:
        self._data, self._label, self._tally = data, label, tally
        self.metadata: dict[str, Any] = {}
        self._window, self._at = "", 0
        self._begin = self._read = self._events = 0
        self._ascii, self._escapes = True, False
        self._object = self._stopped = False
        if bytes(data[:3]) == BOM:
            self._refuse("a byte order mark")

    def __iter__(self) -> Iterator[tuple[dict[str, Any], str, int, int]]:
        """Every event, its text, and place and size of that; nested values of damaged events are
        a ``Span`` of the text.

        Raises:
            Refused: the importer would refuse the file.
        """
        if self._ahead(_mark) == "[":
            yield from self._array()
            return
        self._object = True
        while (name := self._ahead(_key_or_end)) is not None:
            if name == "traceEvents":
                if self._ahead(_mark) != "[":
                    self._refuse("traceEvents is no array")
                yield from self._array()
                continue
            content = self._ahead(value)
            if _CONTROL.search(f"{name}{content if isinstance(content, str) else ''}"):
                self._refuse("a control character")
            if name == "metadata" and isinstance(content, Span):
                self.metadata = self._metadata(self._decoded(*content))

    def _metadata(self, text: str) -> dict[str, Any]:
        try:
            found = _LOOSE(text, 0)[0]
        except _UNREADABLE:
            return {}
        return found if isinstance(found, dict) else {}

    def where(self) -> str:
        """The current event for people."""
        return f"event {self._events}"

    def stop(self, why: str) -> None:
        """Read no further, as the importer does; inside an outer object it refuses the file."""
        if self._object:
            self._refuse(why)
        self._stopped = True

    def at(self, place: int, size: int) -> str:
        """The text of an event again."""
        return bytes(self._data[place : place + size]).decode("utf-8", "surrogateescape")

    def _array(self) -> Iterator[tuple[dict[str, Any], str, int, int]]:
        """Events up to the closing bracket, which must be there inside an outer object."""
        while not self._stopped:
            gap = _GAP.match(self._window, self._at)
            assert gap is not None
            self._at = at = gap.end()
            if self._window[at : at + 1] == "]":
                self._at += 1
                return
            event, end = self._next(at)
            if end < 0 and self._more():
                continue
            if end < 0:
                if self._object:
                    self._refuse("the text is cut off")
                if at < len(self._window):
                    self._tally.add("F-cut", f"after {self.where()}")
                return
            self._at = end
            self._events += 1
            text = self._window[at:end]
            if event is None or not (self._ascii or text.isascii()):
                text = self._decoded(at, end)
                event = self._parsed(text)
            if not isinstance(event, dict):
                self._refuse("an event is no object")
            yield event, text, self._begin + at, end - at

    def _next(self, at: int) -> tuple[Any, int]:
        """An event, None where it is not plain, and the position behind it; -1 if it is cut off."""
        try:
            if not self._escapes:
                return cast(tuple[Any, int], _STRICT(self._window, at))
        except _UNREADABLE:
            pass
        try:
            return None, value(self._window, at)[1]
        except IndexError:
            return None, -1
        except LenientError as e:
            self._refuse(str(e))

    def _parsed(self, text: str) -> Any:
        """An object as Python reads it, else as the importer does."""
        for scan in () if SURROGATE_ESCAPE.search(text) else (_STRICT, _LOOSE):
            try:
                found = scan(text, 0)[0]
            except _UNREADABLE:
                continue
            if scan is _LOOSE:
                self._tally.add("J16-control", self.where())
            return found
        try:
            return dict(items(text, 0)) if text[0] == "{" else None
        except (LenientError, IndexError) as e:
            self._refuse(str(e))

    def _decoded(self, start: int, end: int) -> str:
        """Part of the window as text."""
        text = self._window[start:end].encode("latin-1").decode("utf-8", "surrogateescape")
        if _BAD_BYTES.search(text):
            self._tally.add("P22-value", self.where())
        return text

    def _ahead(self, parse: Callable[[str, int], tuple[_T, int]]) -> _T:
        """What ``parse`` finds next; more text is read while it is cut off."""
        while True:
            try:
                found, self._at = parse(self._window, self._at)
                return found
            except IndexError:
                if not self._more():
                    self._refuse("the text is cut off")
            except LenientError as e:
                self._refuse(str(e))

    def _more(self) -> bool:
        """Drop the text that is done and append the next piece; False at the end."""
        size = max(_PIECE, len(self._window) - self._at)
        piece = bytes(self._data[self._read : self._read + size])
        self._read += len(piece)
        self._begin += self._at
        self._window, self._at = self._window[self._at :] + piece.decode("latin-1"), 0
        self._ascii = self._window.isascii()
        self._escapes = "\\u" in self._window and bool(SURROGATE_ESCAPE.search(self._window))
        return bool(piece)

    def _refuse(self, why: str) -> NoReturn:
        raise Refused(self._label, "J16-syntax", f"{self.where()}: {why}")


def _mark(text: str, at: int) -> tuple[str, int]:
    """The next character that is no blank."""
    at = skip_space(text, at)
    return text[at], at + 1


def _key_or_end(text: str, at: int) -> tuple[str | None, int]:
    """The next key of the outer object, None at its end, and the position behind."""
    gap = _KEY_GAP.match(text, at)
    at = gap.end() if gap else at
    return (None, at + 1) if text[at] == "}" else key(text, at)


class Events:
    """The events of a file, in file order.

    Attributes:
        ts, dur, shape, place, size: one entry per event, ns; ``place`` is that of its text.
        extra: number of the flow, async id or bind of the event, -1 if none.
        flows: (id, category, name) to number; async_ids: (kind, category, id) to number.
        counter_ts, counter_value, counter_track: samples, ns; of :attr:`counter_tracks`.
        names: (ts, pid, tid or None for the process, name).

    Raises:
        Refused: the importer would refuse the file.
    """

    def __init__(self, data: Buffer, label: str, tally: Tally, advance: Progress = unheard) -> None:
        self.ts, self.dur, self.place = array("q"), array("q"), array("q")
        self.shape, self.size, self.extra = array("i"), array("q"), array("q")
        self.shapes: dict[Shape, int] = {}
        self.flows: dict[Hashable, int] = {}
        self.async_ids: dict[tuple[Hashable, ...], int] = {}
        self.binds: list[Bind] = []
        self.counter_ts, self.counter_track = array("q"), array("i")
        self.counter_value = array("d")
        self.counter_tracks: dict[tuple[Id, str], int] = {}
        self.names: list[tuple[int, Id, Id | None, str]] = []
        self.reader = Reader(data, label, tally)
        self._tally = tally
        for event, text, place, size in followed(self.reader, 2, advance):
            phase = event.get("ph")
            if isinstance(phase, str) and phase:
                if self._event(event, phase[0], text):
                    self.place.append(place)
                    self.size.append(size)
            elif event:
                self._bad("no phase", "json_tokenizer_failure")

    def _event(self, event: dict[str, Any], phase: str, text: str) -> bool:
        """Take in one event; whether it is one that has a row of columns."""
        ts, dur = self._time(event, text), self._length(event)
        if dur is None:
            return False
        (pid, has_pid), (tid, has_tid) = self._id(event.get("pid")), self._id(event.get("tid"))
        tid = pid if tid == 0 else tid
        if phase not in _KNOWN:
            self._bad(f"phase {phase}")
        elif phase == "M":
            self._metadata(event, ts or 0, pid, tid, text)
        elif ts is None:
            self._bad("no time", "json_tokenizer_failure")
        elif ts < 0:
            where, stat = self.reader.where(), "trace_sorter_negative_timestamp_dropped"
            self._tally.add("P07-negative", where, stat)
        elif phase == "C":
            self._counter(event, ts, pid, text)
        elif dur == NO_DURATION and phase in "XT":
            self._bad("no duration", "json_parser_failure")
        elif phase != "T":
            name, category = _text(event.get("name")), _text(event.get("cat"))
            scope = str(event.get("s")) if phase in "iIR" else ""
            scope = scope if scope in ("g", "p") else ""
            if phase == "f" and event.get("bp") == "e":
                scope = "e"
            if pid == 0 and phase not in "bne" and scope not in ("g", "p"):
                self._tally.add("P11-zero", self.reader.where())
            shape = Shape(phase, pid, tid, name, category, scope, has_pid, has_tid)
            extra = self._extra(event, shape, text)
            if extra is not None:
                self.ts.append(ts)
                self.dur.append(dur)
                self.shape.append(self.shapes.setdefault(shape, len(self.shapes)))
                self.extra.append(extra)
                self._judge_arguments(event.get("args"), text)
                return True
        return False

    def _extra(self, event: dict[str, Any], shape: Shape, text: str) -> int | None:
        """The flow, async id or bind of an event; None if it is dropped for want of one."""
        if shape.phase in "stf":
            flow = self._flow_id(event.get("id"))
            if flow is None:
                self._tally.add("J16-flow", f"{self.reader.where()}: no id", "flow_invalid_id")
                return None
            of = (flow, shape.category, shape.name)
            return self.flows.setdefault(of, len(self.flows))
        if shape.phase in "bne":
            cookie = self._cookie(event, shape, text)
            if cookie is None or not shape.has_pid:
                self._bad("no id or pid", "json_parser_failure")
                return None
            return self.async_ids.setdefault(cookie, len(self.async_ids))
        if "bind_id" in event and shape.phase in "BX":
            bind = self._flow_id(event["bind_id"])
            if bind is not None:
                inward, outward = event.get("flow_in") is True, event.get("flow_out") is True
                self.binds.append(Bind(bind, inward, outward))
                return len(self.binds) - 1
        return -1

    def _cookie(
        self, event: dict[str, Any], shape: Shape, text: str
    ) -> tuple[Hashable, ...] | None:
        """What async events of one row share."""
        nested = event.get("id2")
        if isinstance(nested, Span):
            self._bad("id2 cannot be parsed", "json_tokenizer_failure")
        nested = nested if isinstance(nested, dict) else {}
        for kind, raw in (("id", event.get("id")), *((k, nested.get(k)) for k in _ID2)):
            self._judge_id(raw)
            if isinstance(raw, str) or (type(raw) is int and -_INT64 <= raw < _INT64):
                return (kind, shape.category, raw, shape.pid if kind == "local" else None)
        return None

    # -- fields --------------------------------------------------------------------------------

    def _time(self, event: dict[str, Any], text: str) -> int | None:
        """The event's time, ns; None if it has none."""
        raw = event.get("ts")
        ts = _nanoseconds(raw)
        if ts is not None and type(raw) is not int and abs(ts) > _EXACT_US * 1000:
            if not isinstance(raw, str):  # as it is written
                found = _TS.search(text)
                raw = found[1] if found else ""
            if _FRACTION.search(raw):
                self._tally.add("J16-ts-grid", self.reader.where())
        return ts

    def _length(self, event: dict[str, Any]) -> int | None:
        """The duration, ns (:data:`NO_DURATION` if there is none); None if reading stops here."""
        dur = NO_DURATION
        for name in ("dur", "tts", "tdur"):
            if name in event:
                length = _nanoseconds(event[name])
                if length is None:
                    why = f"{name} is no number; everything after it is lost"
                    self._bad(why, "json_tokenizer_failure")
                    self.reader.stop(why)
                    return None
                dur = length if name == "dur" else dur
        return dur

    def _id(self, raw: Any) -> tuple[Id, bool]:
        """A pid or tid as the importer numbers it, and whether there is one."""
        if isinstance(raw, str):
            return raw, True
        if isinstance(raw, bool) or not isinstance(raw, (int, float)):
            return 0, False
        if 0 <= raw <= _UINT32:
            return int(raw), True
        self._tally.add("J16-id", self.reader.where())
        return 0, True

    def _judge_id(self, raw: Any) -> None:
        if isinstance(raw, (int, float)) and not -_EXACT_ID <= raw <= _EXACT_ID:
            self._tally.add("J16-id", self.reader.where())

    def _flow_id(self, raw: Any) -> int | None:
        """A flow id as the importer reads it: integers, or hexadecimal text."""
        self._judge_id(raw)
        if type(raw) is int and -_INT64 <= raw < _INT64:
            return raw & (2 * _INT64 - 1)
        if isinstance(raw, str) and _HEX.fullmatch(raw) and len(raw) < 40:
            return min(int(raw, 16), 2 * _INT64 - 1) & (2 * _INT64 - 1)
        return None

    def _metadata(self, event: dict[str, Any], ts: int, pid: Id, tid: Id, text: str) -> None:
        of, _, what = str(event.get("name")).partition("_")
        if of not in ("process", "thread") or what not in ("name", "sort_index"):
            return
        for name, content in self._object(event.get("args"), text):
            if name != what:
                continue
            if what == "name" and isinstance(content, str) and content:
                self.names.append((ts, pid, None if of == "process" else tid, content))
            elif what == "name" or type(content) not in (int, float):
                self._bad(f"no {what}", "json_parser_failure")

    def _counter(self, event: dict[str, Any], ts: int, pid: Id, text: str) -> None:
        args = event.get("args")
        if not isinstance(args, (dict, Span)):
            self._bad("no counter values", "json_parser_failure")
            return
        prefix = _text(event.get("name")) or ""
        if _text(event.get("id")):
            prefix += f" id: {event['id']}"
        for name, content in self._object(args, text):
            sample = _counter_value(content)
            if sample is None:
                self._bad("a counter value is no number", "json_parser_failure")
                continue
            track = (pid, f"{prefix} {name}")
            self.counter_ts.append(ts)
            self.counter_value.append(sample)
            of = self.counter_tracks.setdefault(track, len(self.counter_tracks))
            self.counter_track.append(of)

    def _object(self, content: Any, text: str) -> Iterator[tuple[str | None, Any]]:
        """Key and value of an object; of a damaged one those before the damage."""
        if isinstance(content, dict):
            yield from content.items()
        elif isinstance(content, Span):
            try:
                yield from items(text[content.start : content.end], 0)
            except (LenientError, Incomplete, IndexError):
                self._tally.add("J16-args", self.reader.where())

    def _judge_arguments(self, args: Any, text: str) -> None:
        if isinstance(args, Span):
            whole = json_leaves(text[args.start : args.end], "args")[1]
        else:
            whole = _fits(args) if isinstance(args, dict) else True
        if not whole:
            self._tally.add("J16-args", self.reader.where())

    def _bad(self, why: str, *stats: str) -> None:
        where = f"{self.reader.where()}: {why}"
        if stats:
            self._tally.add("J16-event", where, *stats)
        else:
            self._tally.add("J16-event", where)


_ID2 = ("global", "local")


def _text(raw: Any) -> str | None:
    return raw if isinstance(raw, str) and raw else None


def _nanoseconds(raw: Any) -> int | None:
    """Microseconds of the file (a number, or a text that is one) in ns; None if neither."""
    if type(raw) is int:
        ns = raw * 1000
        return ns if -_INT64 <= ns < _INT64 else None
    if isinstance(raw, float):
        if not math.isfinite(raw) or abs(raw) >= _INT64 / 1000:
            return None
        whole = int(raw)
        return whole * 1000 if whole == raw else _rounded(raw * 1000.0)
    try:
        return _nanoseconds(number(raw)) if isinstance(raw, str) else None
    except LenientError:
        return None


def _rounded(x: float) -> int:
    """The nearest integer, halves away from zero."""
    whole = math.floor(abs(x))
    near = whole + (abs(x) - whole >= 0.5)
    return near if x >= 0 else -near


def _counter_value(raw: Any) -> float | None:
    if type(raw) is int:
        return float(raw) if -_INT64 <= raw < _INT64 else None
    if isinstance(raw, float):
        return raw if math.isfinite(raw) else None
    return float(raw) if isinstance(raw, str) and _DECIMAL.fullmatch(raw) else None


def _fits(args: dict[str, Any]) -> bool:
    """Whether every number in the arguments keeps its value in 64 bits."""
    pending: list[Any] = [args]
    while pending:
        content = pending.pop()
        for x in content.values() if isinstance(content, dict) else content:
            kind = x.__class__
            if kind is dict or kind is list:
                pending.append(x)
            elif (kind is int and not -_INT64 <= x < _INT64) or (
                kind is float and not math.isfinite(x)
            ):
                return False
    return True
