"""Chrome JSON traces: which events Perfetto's importer drops, moves or misreads.

The reader of trace events yields the records one by one; its repairs are findings here. Then the
events of each thread are stacked by time: at one time ends come first, then complete events, the
longest first, then all others in the order of the file.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, NoReturn

import msgspec

from traceconv.core.errors import UnknownFormatError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.io.window import Window
from traceconv.readers.shared.trace_events.keys import Form, Keys, find_events
from traceconv.readers.shared.trace_events.salvage import Salvage, State, mended
from traceconv.readers.shared.trace_events.tables import Tally as Account
from traceconv.validation.rules import Found, Refused, Tally

MAX_DEPTH = 512

_CHUNK = 256 << 10
_UINT32 = (1 << 32) - 1
_INT64 = 1 << 63
_EXACT_ID = 1 << 53
_EXACT_NS = 1 << 52
"""Above this, a double of microseconds does not hold three decimals."""

_KNOWN = frozenset("BEXbneiIRstfCMT")
_SURROGATE = lazy_regex(rb"\\u[dD][89a-fA-F]")
_UNPAIRED = lazy_regex("[\ud800-\udfff\U00010000-\U0010ffff]")
"""Replacement for a surrogate escape, alone or in a pair."""
_HEX = lazy_regex(r"\s*[+-]?(?:0[xX])?[0-9a-fA-F]{1,40}")
_DECIMAL = lazy_regex(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_FRACTION = lazy_regex(r"\.0*[1-9]")
_BAD = object()
"""A word in place of a number: NaN, Infinity."""

_STRICT = partial(
    json.loads,
    parse_constant=lambda _: _BAD,
    parse_int=lambda text: int(text) if len(text) < 40 else 1 << 65,
    parse_float=lambda text: _Real(text),
)
_LOOSE = partial(_STRICT, strict=False)


class _Real(float):
    """A number with a fraction, which remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> _Real:
        number = super().__new__(cls, text)
        number.text = text
        return number


class _Event(NamedTuple):
    """An event that is on a track.

    ``flow`` is the key of the flow that it starts, continues or ends, and ``act`` says which: "s",
    "t", "f", or "next" for an end that waits for the next slice.
    """

    ts: int
    rank: int
    number: int
    phase: str
    dur: int
    track: Hashable
    name: str
    category: str
    flow: Hashable = None
    act: str = ""


def judge(source: Source, name: str, label: str, tally: Tally) -> Found:
    """Check a trace.

    Args:
        label: of the file, for messages.

    Raises:
        Refused: viewers refuse the file.
    """
    records = _Records(label, tally)
    metadata = _read(source, name, records, label, tally)
    own_metadata = metadata.get("traceconv") if isinstance(metadata, dict) else None
    counts = own_metadata.get("counts") if isinstance(own_metadata, dict) else None
    stacks = _Stacks(tally)
    for event in sorted(records.events):
        stacks.take(event)
    stacks.finish()
    tracks = {event.track for event in records.events if event.phase not in "stf"}
    return Found(
        "chrome_json",
        {
            "slices": stacks.slices,
            "instants": stacks.instants,
            "counters": records.samples,
            "flows": stacks.arrows,
            "tracks": len(tracks) + len(records.counters),
        },
        stacks.busy_ns,
        records.first_ns,
        counts if isinstance(counts, dict) else {},
    )


def _read(source: Source, name: str, records: _Records, label: str, tally: Tally) -> Any:
    """Take all records; the ``metadata`` of the file."""
    account, keys = Account(), Keys()

    def refuse(where: str) -> NoReturn:
        raise Refused(label, "J16-syntax", where)

    with source.open(name) as stream:
        window = Window(stream, _CHUNK)
        form, _ = find_events(window, keys)
        if source.head(name, 3) == b"\xef\xbb\xbf":
            refuse("a byte order mark")
        if form is Form.LINES:
            refuse("one event per line")
        salvage = Salvage(records.take, account)
        state = State.GOING
        if form in (Form.OTHER, Form.EMPTY):
            if not keys.closed:
                refuse("the file does not end")
            if form is Form.OTHER:
                raise UnknownFormatError(f"{label}: JSON without a list of events, so no trace")
            return None
        while state is State.GOING:
            state = salvage.read(window, _CHUNK)
            for place in account.places("malformed-record"):
                refuse(place)
            if salvage.doubled:
                refuse(f"{salvage.doubled}: two commas in a row")
        if window.broken:
            raise Refused(label, "F-compression", window.broken)
        if state is State.MORE:
            cut = salvage.finish()
            for place in account.places("malformed-record"):
                refuse(place)
            if form is Form.OBJECT:
                refuse("the list of events does not end")
            if cut:
                tally.add("F-cut", f"after event {records.number}")
        elif form is Form.OBJECT:
            window.pos += 1
            keys.resume()
            keys.seek(window)
            if not keys.closed:
                refuse("the file does not end")
        if (n := account.count("unknown-phase")) > 0:
            tally.add("J16-event", "no phase", n)
        window.close()
    return keys.found.get("metadata")


class _Records:
    """Judges records one by one.

    Attributes:
        number:   of records.
        events:   those that are on a track.
        samples:  how many values counters have.
        counters: (process, name) of counters.
        first_ns: the earliest time.
    """

    def __init__(self, label: str, tally: Tally) -> None:
        self.number = self.samples = 0
        self.events: list[_Event] = []
        self.counters: set[tuple[Hashable, str]] = set()
        self.first_ns = _INT64
        self._label, self._tally = label, tally

    def take(self, records: list[tuple[bytes, str]]) -> None:
        """Judge records, each with its place."""
        for record, place in records:
            self.number += 1
            event = self._parsed(record, place)
            if isinstance(phase := event.get("ph"), str) and phase:
                self._event(event, phase[0], place)
            elif event:
                self._bad(place, "no phase")

    def _parsed(self, record: bytes, place: str) -> dict[str, Any]:
        text = record.decode("utf-8", "replace")
        if "\ufffd" in text and text.encode() != record:
            self._tally.add("P22-value", place)
        event: dict[str, Any]
        try:
            event = _STRICT(text)
        except ValueError:
            event = self._repaired(text, place)
        if _SURROGATE.search(record):
            outer = [event[key] for key in event if key != "args"]
            if any(isinstance(leaf, str) and _UNPAIRED.search(leaf) for leaf in (*event, *outer)):
                raise Refused(self._label, "J16-syntax", f"{place}: a surrogate escape")
            self._tally.add("J16-args", place)
        return event

    def _repaired(self, text: str, place: str) -> dict[str, Any]:
        try:
            members = _LOOSE(text)
            self._tally.add("J16-control", place)
        except ValueError:
            done = mended(text.encode(), text_args=True)
            if done is None:
                raise Refused(self._label, "J16-syntax", place) from None
            event = msgspec.structs.asdict(done[0])
            event |= event.pop("more")
            members = {key: _LOOSE(bytes(raw)) for key, raw in event.items() if bytes(raw)}
            self._tally.add("J16-args", place)
        return dict(members)

    def _event(self, event: dict[str, Any], phase: str, place: str) -> None:
        outer = {key: value for key, value in event.items() if key != "args"}
        if any(leaf is _BAD for leaf in _leaves(outer)):
            self._bad(place, "NaN or Infinity outside the arguments")
            return
        ts, dur = _ns(event.get("ts")), _ns(event.get("dur"))
        if any(key in event and _ns(event[key]) is None for key in ("dur", "tts", "tdur")):
            self._bad(place, "a duration is not a number; viewers stop here")
            return
        pid, tid = (self._id(event.get(key), place) for key in ("pid", "tid"))
        tid = pid if tid == 0 else tid
        if phase not in _KNOWN:
            self._bad(place, f"phase {phase}")
        elif phase == "M":
            self._metadata(event, place)
        elif ts is None:
            self._bad(place, "no time")
        elif ts < 0:
            self._tally.add("P07-negative", place)
        elif phase == "C":
            self._counter(event, pid, place)
            self.first_ns = min(self.first_ns, ts)
        elif dur is None and phase in "XT":
            self._bad(place, "no duration")
        elif phase == "X" and (dur or 0) < 0:
            self._bad(place, "a negative duration")
        elif phase != "T":
            self._on_track(event, phase, ts, dur or 0, pid, tid, place)
        raw = event.get("ts")
        written = raw.text if isinstance(raw, _Real) else raw if isinstance(raw, str) else ""
        if ts is not None and abs(ts) > _EXACT_NS and _FRACTION.search(written):
            self._tally.add("J16-ts-grid", place)

    def _on_track(
        self,
        event: dict[str, Any],
        phase: str,
        ts: int,
        dur: int,
        pid: Hashable,
        tid: Hashable,
        place: str,
    ) -> None:
        name, category = (_text(event.get(key)) for key in ("name", "cat"))
        scope = event.get("s") if phase in "iIR" and event.get("s") in ("g", "p") else ""
        track: Hashable = (pid, tid)
        flow: Hashable = None
        act = ""
        if phase in "stf":
            number = self._flow_id(event.get("id"), place)
            if number is None:
                self._tally.add("J16-flow", f"{place}: no id")
                return
            flow = (number, category, name)
            act = "next" if phase == "f" and event.get("bp") != "e" else phase
        elif phase in "bne":
            cookie = self._cookie(event, category, pid, place)
            if cookie is None or "pid" not in event:
                self._bad(place, "no id or pid")
                return
            track = ("async", cookie)
        elif "bind_id" in event and phase in "BX":
            number = self._flow_id(event["bind_id"], place)
            inward, outward = event.get("flow_in") is True, event.get("flow_out") is True
            if number is not None and not (inward or outward):
                self._tally.add("J16-flow", f"{place}: no direction")
            elif number is not None:
                flow, act = ("bind", number), "f" if not outward else "t" if inward else "s"
        elif phase in "iIR":
            if not ("pid" in event if scope == "p" else scope or "tid" in event):
                self._bad(place, "no pid or tid")
                return
            track = (scope, pid if scope == "p" else "") if scope else track
        if pid == 0 and phase not in "bne" and not scope:
            self._tally.add("P11-zero", place)
        for leaf in _leaves(event.get("args")):
            if isinstance(leaf, int) and not -_INT64 <= leaf < _INT64:
                self._tally.add("J16-number", place)
            elif leaf is _BAD or (isinstance(leaf, float) and not math.isfinite(leaf)):
                self._tally.add("J16-args", place)
        rank = -_INT64 if phase == "E" else -dur if phase == "X" else 0
        self.events.append(
            _Event(ts, rank, self.number, phase, dur, track, name, category, flow, act)
        )
        self.first_ns = min(self.first_ns, ts)

    # -- fields --------------------------------------------------------------------------------

    def _id(self, raw: Any, place: str) -> Hashable:
        """A pid or tid as the importer numbers it."""
        if isinstance(raw, str):
            return raw
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            return 0
        if 0 <= raw <= _UINT32:
            return int(raw)
        self._tally.add("J16-id", place)
        return 0

    def _flow_id(self, raw: Any, place: str) -> int | None:
        """The id of a flow: an integer, or hexadecimal text."""
        self._judge_id(raw, place)
        if type(raw) is int and -_INT64 <= raw < _INT64:
            return raw
        return int(raw, 16) if isinstance(raw, str) and _HEX.fullmatch(raw) else None

    def _judge_id(self, raw: Any, place: str) -> None:
        if isinstance(raw, int | float) and not -_EXACT_ID <= raw <= _EXACT_ID:
            self._tally.add("J16-id", place)

    def _cookie(
        self, event: dict[str, Any], category: str, pid: Hashable, place: str
    ) -> Hashable | None:
        """What asynchronous events of one operation share."""
        nested = event.get("id2")
        scopes = nested if isinstance(nested, dict) else {}
        for kind, raw in (
            ("", event.get("id")),
            *((k, scopes.get(k)) for k in ("global", "local")),
        ):
            self._judge_id(raw, place)
            if isinstance(raw, str) or (type(raw) is int and -_INT64 <= raw < _INT64):
                return (kind, category, raw, pid if kind == "local" else None)
        return None

    def _metadata(self, event: dict[str, Any], place: str) -> None:
        owner, _, field = str(event.get("name")).partition("_")
        args = event.get("args")
        if owner not in ("process", "thread") or not isinstance(args, dict) or field not in args:
            return
        kinds: Any = {"name": str, "sort_index": (int, float)}.get(field)
        if kinds and (not isinstance(args[field], kinds) or args[field] == ""):
            self._bad(place, f"no {field}")

    def _counter(self, event: dict[str, Any], pid: Hashable, place: str) -> None:
        args = event.get("args")
        if not isinstance(args, dict):
            self._bad(place, "no counter values")
            return
        name = f"{_text(event.get('name'))} {_text(event.get('id'))}"
        for key, value in args.items():
            number = type(value) is int and -_INT64 <= value < _INT64
            number |= isinstance(value, float) and math.isfinite(value)
            number |= isinstance(value, str) and _DECIMAL.fullmatch(value) is not None
            if number:
                self.samples += 1
                self.counters.add((pid, f"{name} {key}"))
            else:
                self._bad(place, "a counter value is not a number")

    def _bad(self, place: str, why: str) -> None:
        self._tally.add("J16-event", f"{place}: {why}")


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else ""


def _ns(raw: Any) -> int | None:
    """Microseconds as ns, rounded as a viewer does; None for anything but a number, or a text that
    is one."""
    if isinstance(raw, str) and _DECIMAL.fullmatch(raw) and len(raw) < 400:
        raw = int(raw) if raw.removeprefix("-").isdigit() else float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or abs(raw) >= _INT64 / 1000:
        return None
    if raw == int(raw):
        return int(raw) * 1000
    near = math.floor(abs(raw) * 1000 + 0.5)
    return near if raw > 0 else -near


def _leaves(value: Any) -> Iterator[Any]:
    """Yield everything in a value that is neither an object nor an array."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)
        else:
            yield current


class _Slice:
    """A slice that may still be open, with ``end`` None."""

    __slots__ = ("category", "end", "flow", "name", "start")

    def __init__(self, start: int, end: int | None, name: str, category: str) -> None:
        self.start, self.end, self.name, self.category = start, end, name, category


class _Stacks:
    """Stacks the events of each track, as the importer does, and draws flows between slices."""

    def __init__(self, tally: Tally) -> None:
        self.slices = self.instants = self.arrows = self.busy_ns = 0
        self._tally = tally
        self._open: dict[Hashable, list[_Slice]] = {}
        self._flows: dict[Hashable, bool] = {}  # open ones: whether a flow leads from them
        self._waiting: dict[Hashable, list[Hashable]] = {}

    def take(self, event: _Event) -> None:
        """Add an event; events are in order."""
        stack = self._open.setdefault(event.track, [])
        phase, where = event.phase, f"{event.name} at {event.ts}"
        if event.act == "next":
            self._waiting.setdefault(event.track, []).append(event.flow)
        elif phase in "stf":
            self._flow(event, stack, where)
        elif phase in "Ee":
            self._over(stack, event.ts, None, where)
            self._end(stack, event, where)
        else:
            dur = None if phase in "Bb" else event.dur if phase == "X" else 0
            self._begin(stack, event, dur, where)
            if event.act:
                self._flow(event, stack, where)

    def _begin(self, stack: list[_Slice], event: _Event, dur: int | None, where: str) -> None:
        fits = self._over(stack, event.ts, dur, where)
        if not fits:
            self._tally.add("J16-overlap", where)
        elif len(stack) >= MAX_DEPTH:
            self._tally.add("P16-depth", where)
            return
        else:
            end = None if dur is None else event.ts + dur
            stack.append(_Slice(event.ts, end, event.name, event.category))
        if event.phase in "iIRn":
            self.instants += 1
        else:
            self.slices += 1
            self.busy_ns += dur or 0
        for flow in self._waiting.pop(event.track, []):
            self._flow(event._replace(flow=flow, act="f"), stack, where)

    def _end(self, stack: list[_Slice], event: _Event, where: str) -> None:
        """Close the innermost open slice whose name and category agree."""
        name, category = event.name, event.category
        for depth in range(len(stack) - 1, -1, -1):
            open_slice = stack[depth]
            if (
                open_slice.end is None
                and category in ("", open_slice.category)
                and (name in ("", open_slice.name) or not open_slice.name)
            ):
                open_slice.end = event.ts
                self.busy_ns += event.ts - open_slice.start
                if depth == len(stack) - 1:
                    stack.pop()
                elif any(inner.end is None for inner in stack[depth + 1 :]):
                    self._tally.add("P17-crossing", where)
                return
        self._tally.add("P16-end", where)

    def _over(self, stack: list[_Slice], ts: int, dur: int | None, where: str) -> bool:
        """Take slices off that are over; False if a new one of that length would cross another."""
        inner = False
        for depth in range(len(stack) - 1, -1, -1):
            open_slice = stack[depth]
            if open_slice.end is None:
                inner = True
            elif inner:
                if ts > open_slice.end:
                    inside = [slice_ for slice_ in stack[depth + 1 :] if slice_.end is None]
                    self.busy_ns += sum(open_slice.end - slice_.start for slice_ in inside)
                    del stack[depth:]
                    self._tally.add("P17-misplaced", where)
                    inner = False
            elif open_slice.end < ts or (
                open_slice.end == ts and not (open_slice.start == ts and dur == 0)
            ):
                stack.pop()
            elif dur is not None and ts < open_slice.end < ts + dur:
                return False
        return True

    def _flow(self, event: _Event, stack: list[_Slice], where: str) -> None:
        """Start, continue or end a flow at the innermost slice."""
        key = event.flow
        if not stack:
            self._tally.add("J16-flow", f"{where}: inside no slice")
        elif event.act == "s":
            if key in self._flows:
                self._tally.add("J16-flow", f"{where}: a second start")
            else:
                self._flows[key] = False
        elif key not in self._flows:
            self._tally.add("P20-unbound", where)
        else:
            self._flows[key] = True
            self.arrows += 1

    def finish(self) -> None:
        """Count what never ended."""
        for open_slice in chain.from_iterable(self._open.values()):
            if open_slice.end is None:
                self._tally.add("P16-open", f"{open_slice.name} at {open_slice.start}")
        lonely = Counter(self._flows.values())[False] + sum(map(len, self._waiting.values()))
        self._tally.add("P20-unbound", "a flow with one end", lonely)
