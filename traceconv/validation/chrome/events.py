"""First pass over a Chrome JSON file: events to columns, in file order."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from traceconv.validation.arguments import json_leaves
from traceconv.validation.chrome.text import Reader, Text
from traceconv.validation.container import Buffer
from traceconv.validation.lenient import Incomplete, LenientError, Span, number, object_fields
from traceconv.validation.tally import Tally

_UINT32 = (1 << 32) - 1
_INT64 = 1 << 63
_EXACT_US = (1 << 52) / 1000
"""Above this, a double of microseconds does not hold three decimals."""

_FRACTION = re.compile(r"\.0*[1-9]")
_TS = re.compile(r'"ts"\s*:\s*(-?[0-9.]+)')
_EVENT_BYTES = 4096
_LOW = (1 << 32) - 1

_HEX = re.compile(r"\s*[+-]?(?:0[xX])?[0-9a-fA-F]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_KNOWN = frozenset("BEXbneiIRstfCMT")

Id = int | str
"""A pid or tid: its number, or the text that stands for one."""


class JsonShape(NamedTuple):
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


@dataclass
class JsonEvents:
    """The events of a file, in file order.

    Attributes:
        ts, dur, shape, place: one entry per event, ns; ``place`` is where its text stands.
        extra: number of the flow, async id or bind of the event, -1 if none.
        flows: (id, category, name) to number; async_ids: (kind, category, id) to number.
        counters: (ts, pid, name, value).
        names: (ts, pid, tid or None for the process, name).
    """

    text: Text
    ts: array[int] = field(default_factory=lambda: array("q"))
    dur: array[int] = field(default_factory=lambda: array("q"))
    shape: array[int] = field(default_factory=lambda: array("i"))
    place: array[int] = field(default_factory=lambda: array("q"))
    extra: array[int] = field(default_factory=lambda: array("q"))
    shapes: dict[JsonShape, int] = field(default_factory=dict)
    flows: dict[Hashable, int] = field(default_factory=dict)
    async_ids: dict[tuple[Hashable, ...], int] = field(default_factory=dict)
    binds: list[Bind] = field(default_factory=list)
    counter_ts: array[int] = field(default_factory=lambda: array("q"))
    counter_value: array[float] = field(default_factory=lambda: array("d"))
    counter_track: array[int] = field(default_factory=lambda: array("i"))
    counter_tracks: dict[tuple[Id, str], int] = field(default_factory=dict)
    names: list[tuple[int, Id, Id | None, str]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)


def read_events(data: Buffer, label: str, tally: Tally) -> JsonEvents:
    """Read every event of ``data``.

    Raises:
        Refused: the importer would refuse the file.
    """
    reader = Reader(data, label, tally)
    return _Columns(reader, tally).read()


class _Columns:
    def __init__(self, reader: Reader, tally: Tally) -> None:
        self._reader, self._tally = reader, tally
        self._out = JsonEvents(reader.text)

    def read(self) -> JsonEvents:
        for event, place in self._reader:
            phase = event.get("ph")
            if not isinstance(phase, str) or not phase:
                if event:
                    self._bad("J16-phase")
                continue
            self._event(event, phase[0], place)
        self._out.metadata = self._reader.metadata
        return self._out

    def _event(self, event: dict[str, Any], phase: str, place: int) -> None:
        ts = self._time(event, place)
        dur = self._length(event)
        if dur is None:
            return
        pid, has_pid = self._id(event.get("pid"))
        tid, has_tid = self._id(event.get("tid"))
        if tid == 0 and pid != 0:
            tid = pid
            if phase in "BEX":
                self._bad("J16-tid")
        if phase not in _KNOWN:
            self._bad("J16-unknown-phase")
            return
        if phase == "M":
            self._metadata(event, ts or 0, pid, tid)
            return
        if ts is None:
            self._bad("J16-ts")
        elif ts < 0:
            self._bad("J16-negative-ts")
        elif phase == "C":
            self._counter(event, ts, pid)
        else:
            self._placed(event, phase, ts, dur, (pid, tid, has_pid, has_tid), place)

    def _placed(
        self,
        event: dict[str, Any],
        phase: str,
        ts: int,
        dur: int,
        ids: tuple[Id, Id, bool, bool],
        place: int,
    ) -> None:
        """An event that stands on a track."""
        if dur == _INT64 - 1 and phase in "XT":
            self._bad("J16-dur" if phase == "X" else "J16-state")
            return
        if phase == "T":
            return
        name, category = _text(event.get("name")), _text(event.get("cat"))
        pid, tid, has_pid, has_tid = ids
        scope = ""
        if phase in "iIR":
            scope = {"g": "g", "p": "p"}.get(str(event.get("s")), "")
        elif phase == "f":
            scope = "e" if event.get("bp") == "e" else ""
        if pid == 0 and phase not in "bne" and scope not in ("g", "p"):
            self._bad("J16-idle")
        shape = JsonShape(phase, pid, tid, name, category, scope, has_pid, has_tid)
        out = self._out
        extra = self._extra(event, phase, shape)
        if extra is None:
            return
        out.ts.append(ts)
        out.dur.append(dur)
        out.shape.append(out.shapes.setdefault(shape, len(out.shapes)))
        out.place.append(place)
        out.extra.append(extra)
        if "args" in event:
            self._judge_arguments(event["args"])

    def _extra(self, event: dict[str, Any], phase: str, shape: JsonShape) -> int | None:
        """The flow, async id or bind of an event; None if it is dropped for want of one."""
        if phase in "stf":
            flow = _flow_id(event.get("id"))
            if flow is None:
                self._bad("J16-flow-id")
                return None
            key = (flow, shape.category, shape.name)
            return self._out.flows.setdefault(key, len(self._out.flows))
        if phase in "bne":
            cookie = self._cookie(event, shape)
            if cookie is None or not shape.has_pid:
                self._bad("J16-async")
                return None
            return self._out.async_ids.setdefault(cookie, len(self._out.async_ids))
        if "bind_id" in event and phase in "BX":
            bind = _flow_id(event["bind_id"])
            if bind is not None:
                inward, outward = event.get("flow_in") is True, event.get("flow_out") is True
                self._out.binds.append(Bind(bind, inward, outward))
                return len(self._out.binds) - 1
        return -1

    def _cookie(self, event: dict[str, Any], shape: JsonShape) -> tuple[Hashable, ...] | None:
        """What async events of one row share."""
        if _is_id(event.get("id")):
            return ("id", shape.category, event["id"])
        nested = event.get("id2")
        if isinstance(nested, Span):
            self._bad("J16-id2")
        if isinstance(nested, dict):
            if _is_id(nested.get("global")):
                return ("global", shape.category, nested["global"])
            if _is_id(nested.get("local")):
                return ("local", shape.category, nested["local"], shape.pid)
        return None

    # -- fields --------------------------------------------------------------------------------

    def _time(self, event: dict[str, Any], place: int) -> int | None:
        """The event's time, ns; None if it has none."""
        raw = event.get("ts")
        ts = _nanoseconds(raw)
        if ts is not None and type(raw) is not int and abs(ts) > _EXACT_US * 1000:
            if not isinstance(raw, str):  # as it is written; the next event's is of no concern
                start = place & _LOW
                found = _TS.search(self._reader.text.window[start : start + _EVENT_BYTES])
                raw = found[1] if found else ""
            if _FRACTION.search(raw):
                self._bad("J16-ts-grid")
        return ts

    def _length(self, event: dict[str, Any]) -> int | None:
        """The duration, ns (a huge one if there is none); None if reading stops here."""
        dur = _INT64 - 1
        for key in ("dur", "tts", "tdur"):
            if key in event:
                length = _nanoseconds(event[key])
                if length is None:
                    self._bad("J16-dur-type")
                    self._reader.stop("J16-dur-type")
                    return None
                dur = length if key == "dur" else dur
        return dur

    def _id(self, raw: Any) -> tuple[Id, bool]:
        """A pid or tid as the importer numbers it, and whether there is one."""
        if type(raw) is int and 0 <= raw <= _UINT32:
            return raw, True
        if isinstance(raw, str):
            self._bad("J16-text-id")
            return raw, True
        if type(raw) is int or isinstance(raw, float):
            whole = int(raw) if math.isfinite(raw) else -1
            if 0 <= whole <= _UINT32:
                return whole, True
            self._bad("J16-range")
            return 0, True
        return 0, False

    def _metadata(self, event: dict[str, Any], ts: int, pid: Id, tid: Id) -> None:
        name, args = event.get("name"), self._object(event.get("args"))
        wanted = "name" if name in ("process_name", "thread_name") else "sort_index"
        if name not in ("process_name", "thread_name", "process_sort_index", "thread_sort_index"):
            return
        for key, content in args:
            if key != wanted:
                continue
            if wanted == "sort_index":
                if type(content) is not int and not isinstance(content, float):
                    self._bad("J16-metadata")
            elif not isinstance(content, str) or not content:
                self._bad("J16-metadata")
            else:
                of = None if name == "process_name" else tid
                self._out.names.append((ts, pid, of, content))

    def _counter(self, event: dict[str, Any], ts: int, pid: Id) -> None:
        out, args = self._out, event.get("args")
        if not isinstance(args, (dict, Span)):
            self._bad("J16-counter")
            return
        prefix = _text(event.get("name")) or ""
        if isinstance(event.get("id"), str) and event["id"]:
            prefix += f" id: {event['id']}"
        for key, content in self._object(args):
            value = _counter_value(content)
            if value is None:
                self._bad("J16-counter")
                continue
            track = (pid, f"{prefix} {key}")
            out.counter_ts.append(ts)
            out.counter_value.append(value)
            number_ = out.counter_tracks.setdefault(track, len(out.counter_tracks))
            out.counter_track.append(number_)

    def _object(self, content: Any) -> Iterator[tuple[str, Any]]:
        """Key and value of an object; of a damaged one those before the damage."""
        if isinstance(content, dict):
            yield from content.items()
        elif isinstance(content, Span):
            window = self._reader.text.window
            try:
                for key, inner, _ in object_fields(window[content.start : content.end], 0):
                    if key:
                        yield key, inner
            except (LenientError, Incomplete, IndexError):
                self._bad("J16-args")

    def _judge_arguments(self, args: Any) -> None:
        if isinstance(args, Span):
            text = self._reader.text.window[args.start : args.end]
            if not json_leaves(text, "args")[1]:
                self._bad("J16-args")
        elif isinstance(args, dict) and not _fits(args):
            self._bad("J16-args-number")

    def _bad(self, rule: str) -> None:
        self._tally.add(rule, self._reader.where())


def _text(raw: Any) -> str | None:
    return raw if isinstance(raw, str) and raw else None


def _is_id(raw: Any) -> bool:
    return isinstance(raw, str) or (type(raw) is int and -_INT64 <= raw < _INT64)


def _flow_id(raw: Any) -> int | None:
    """A flow id as the importer reads it: integers, or hexadecimal text."""
    if type(raw) is int and -_INT64 <= raw < _INT64:
        return raw & (2 * _INT64 - 1)
    if isinstance(raw, str) and _HEX.fullmatch(raw) and len(raw) < 40:
        return min(int(raw, 16), 2 * _INT64 - 1) & (2 * _INT64 - 1)
    return None


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
    if isinstance(raw, str):
        try:
            return _nanoseconds(number(raw))
        except LenientError:
            return None
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
    if isinstance(raw, str) and _DECIMAL.fullmatch(raw):
        return float(raw)
    return None


def _wide(x: Any) -> bool:
    """Whether a number does not keep its value in 64 bits."""
    if type(x) is int:
        return not -_INT64 <= x < _INT64
    return isinstance(x, float) and not math.isfinite(x)


def _fits(args: dict[str, Any]) -> bool:
    """Whether every number in the arguments keeps its value."""
    pending: list[Any] = [args]
    while pending:
        content = pending.pop()
        for x in content.values() if isinstance(content, dict) else content:
            kind = x.__class__
            if kind is dict or kind is list:
                pending.append(x)
            elif (kind is int or kind is float) and _wide(x):
                return False
    return True
