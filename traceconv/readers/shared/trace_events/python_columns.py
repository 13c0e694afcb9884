"""The Python tier, second half: decoded records into columns.

:class:`Arguments` finds or stores the bytes of arguments and looks up the probed values in them,
:class:`Values` makes counter series of them, and :class:`Intake` fills the tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import compress, repeat
from operator import attrgetter, eq
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.columns import F64
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I32, I64, Mask
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.numbers import count_of
from traceconv.readers.shared.trace_events.contract import Probes
from traceconv.readers.shared.trace_events.placing import Naming
from traceconv.readers.shared.trace_events.python_decode import (
    ABSENT,
    BEYOND,
    GOOD,
    NOTHING,
    Event,
    Times,
    nanoseconds,
    text_of,
)
from traceconv.readers.shared.trace_events.tables import (
    ASYNC,
    END,
    FLOW,
    INSTANT,
    METADATA,
    SAMPLE,
    SLICE,
    Asyncs,
    Codes,
    Flows,
    Rows,
    Samples,
    Tables,
)

_BLANK, _SPACE, _QUOTE, _OPEN, _CLOSE = 33, 32, 34, 123, 125
_KEY = lazy_regex(rb'"args"\s*:\s*(?=\{)')


class Located(msgspec.Struct, frozen=True):
    """Arguments of many rows: address, length (0 where there are none), and the bytes, ``b""``
    for none.
    """

    address: I64
    length: I32
    raws: list[bytes]

    def take(self, rows: NDArray[np.bool_]) -> Located:
        """The marked rows."""
        raws = list(compress(self.raws, rows.tolist()))
        return Located(self.address[rows], self.length[rows], raws)


class Arguments:
    """Finds or stores argument bytes, and probes them.

    Args:
        types: codes of the values of the type probe, shared by all batches of a file.
    """

    def __init__(self, build: TraceBuilder, probes: Probes, types: Codes[str]) -> None:
        self._build = build
        keys = [*probes.graph, probes.type]
        self._fast = _decoder(keys, int | float | str | None)
        self._slow = _decoder(keys, msgspec.Raw)
        self._numbers, self._answers = _Numbers(), _Answers(types)
        self._finder = _Finder()

    def locate(self, values: Sequence[Any], text: bytes, address: int) -> Located:
        """Find or store arguments.

        Args:
            values: JSON per row, ``b""`` where there is none.
            text, address: see ``Intake.take``.
        """
        raws = [b"" if value is NOTHING else bytes(value) for value in values]
        blob = np.frombuffer(b"".join(raws), np.uint8)
        length = np.fromiter(map(len, raws), np.int32, len(raws))
        start = np.cumsum(length, dtype=np.int64) - length
        there = length > 0
        if (blob[start[there]] != _OPEN).any():
            return self.locate([_object(raw) for raw in raws], b"", -1)
        second = blob[start[there] + 1]
        odd = np.flatnonzero(there)[(second < _BLANK) | (second == _CLOSE)]
        full = there.copy()
        full[odd] = [bool(raws[i][1:-1].strip()) for i in odd.tolist()]
        if address >= 0:
            inner = list(compress(raws, there.tolist()))
            start[there] = self._finder.places(inner, text)
            start += address
        elif len(blob):
            start += self._build.spill(blob.tobytes())
        return Located(start, np.where(full, length, np.int32(0)), raws)

    def probe(self, raws: Sequence[bytes]) -> tuple[I32 | None, I32 | None]:
        """Graph per row, and code of the type; None where no row has any."""
        text = b"[" + b",".join(filter(None, raws)) + b"]"
        known = self._answers
        try:
            found = list(map(known.__getitem__, map(astuple, self._fast(text))))
        except NOT_JSON:
            found = [known[_scalars(probed)] for probed in self._slow(text)]
        packed = np.array(found, np.int64)
        graph, type_ = packed >> 32, (packed & 0xFFFFFFFF) - 1
        return _spread(graph, raws), _spread(type_, raws)

    def numbers(self, values: Sequence[int | float | str | None]) -> list[int]:
        """Graphs or steps of argument values, -1 where there is none."""
        return list(map(self._numbers.__getitem__, values))


def _object(raw: bytes) -> bytes:
    """Arguments as an object: anything else becomes its only member."""
    if raw in (b"", b"null"):
        return b""
    return raw if raw.startswith(b"{") else b'{"args": ' + raw + b"}"


class _Finder:
    """Finds arguments in the text they were decoded from."""

    def __init__(self) -> None:
        self._scratch = np.empty((2, 0), bool)  # kept: fresh pages would cost more than the search

    def places(self, raws: list[bytes], text: bytes) -> list[int]:
        """Where each of ``raws`` is, in their order (or equal bytes before it).

        Usually the objects behind ``"args":`` are just those; a string or an inner object may
        look like more.
        """
        places = self._behind_keys(text)
        if len(places) == len(raws) and all(map(text.startswith, raws, places)):
            return places
        at, places = 0, []
        for raw in raws:
            match = _KEY.search(text, at)
            at = match.end() if match and text.startswith(raw, match.end()) else text.find(raw, at)
            places.append(at)
            at += len(raw)
        return places

    def _behind_keys(self, text: bytes) -> list[int]:
        """Where ``{`` follows ``"args":`` and at most one blank."""
        n = max(len(text) - 9, 0)
        if self._scratch.shape[1] < n:
            self._scratch = np.empty((2, n), bool)
        chars = np.frombuffer(text, np.uint8)
        found = np.equal(chars[:n], _QUOTE, out=self._scratch[0, :n])
        found &= np.equal(chars[1 : n + 1], ord("a"), out=self._scratch[1, :n])
        at = np.flatnonzero(found)
        for i, char in enumerate(b'rgs":', 2):
            at = at[chars[at + i] == char]
        at += 7
        at += chars[at] == _SPACE
        places: list[int] = at[chars[at] == _OPEN].tolist()
        return places


class _Numbers(dict[Any, int]):
    def __missing__(self, value: Any) -> int:
        number = self[value] = count_of(value)
        return number


class _Answers(dict[tuple[Any, ...], int]):
    """What probes find in arguments: graph in the upper half of an integer, in the lower one the
    code of the type plus 1. There are few combinations, each found many times.
    """

    def __init__(self, types: Codes[str]) -> None:
        super().__init__()
        self._types = types

    def __missing__(self, values: tuple[Any, ...]) -> int:
        *graphs, type_ = values
        graph = count_of(next((g for g in graphs if g is not None), None))
        code = self._types[type_] if isinstance(type_, str) else -1
        packed = self[values] = (graph << 32) | (code + 1)
        return packed


_ODD = object()


def _scalars(probed: Any) -> tuple[Any, ...]:
    """Probed values of any type; those that mean nothing are one."""
    return tuple(v if v is None else _scalar(bytes(v)) for v in astuple(probed))


def _scalar(raw: bytes) -> Any:
    try:
        value = msgspec.json.decode(raw)
    except NOT_JSON:  # a number beyond any double
        return _ODD
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    return value if value is None or plain else _ODD


def _spread(found: I64, raws: Sequence[bytes]) -> I32 | None:
    """``found`` for the rows that have arguments, -1 for the others; None if it says nothing."""
    if not (found >= 0).any():
        return None
    if len(found) == len(raws):
        return found.astype(np.int32)
    column = np.full(len(raws), -1, np.int32)
    column[[bool(raw) for raw in raws]] = found
    return column


def _decoder(keys: Sequence[str], type_: Any) -> Any:
    """Decodes a list of objects, of which only ``keys`` are looked at."""
    fields = [
        (f"key{i}", type_, msgspec.field(name=key, default=None)) for i, key in enumerate(keys)
    ]
    return msgspec.json.Decoder(list[msgspec.defstruct("Probed", fields, gc=False)]).decode  # type: ignore[misc]


_NUMBER = lazy_regex(r"\s*+[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,4})?\s*+", re.ASCII)
_IDENTIFIER = lazy_regex(r"(?:.*[_\s])?id", re.IGNORECASE | re.DOTALL)

_decode_all = msgspec.json.Decoder(list[dict[str, Any]]).decode

Series = tuple[str, str]
"""The key of a series, and what else distinguishes it ("acc_id 3"), "" if nothing."""


class Values(msgspec.Struct, frozen=True):
    """What counter events say, in their order: one row per value, NaN where it is no number.

    Attributes:
        event:  position of the event.
        series: position in ``names``, which are in the order in which they appear.
    """

    event: I64
    series: I64
    value: F64
    names: Sequence[Series]

    @classmethod
    def of(cls, raws: Sequence[bytes], ids: Sequence[str]) -> Values:
        """Of the arguments of events, as JSON objects, ``b""`` where there are none.

        Counters come in few forms and many events, so events with the same keys are taken together.

        Args:
            ids: of the events, "" where they have none.
        """
        try:
            parsed: Sequence[Any] = _decode_all(b"[" + b",".join(r or b"{}" for r in raws) + b"]")
        except NOT_JSON:
            parsed = [_parsed(raw) for raw in raws]
        alike: dict[tuple[str, ...], list[int]] = {}
        for row, args in enumerate(parsed):
            alike.setdefault(tuple(args), []).append(row)
        numbers: Codes[Series] = Codes()
        events, places, codes, values = [], [], [], []
        for keys, rows in alike.items():
            own, some = _distinguishing(keys), [parsed[row] for row in rows]
            apart = _apart(own, some, [ids[row] for row in rows])
            for place, key in enumerate([key for key in keys if key not in own] or [""]):
                column = [args.get(key) for args in some] if keys else [None] * len(rows)
                events.append(rows)
                places.append(np.full(len(rows), place))
                codes.append([numbers[key, a] for a in apart])
                values.append(_numbers(column))
        if not events:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, np.empty(0), ())
        event = np.concatenate(events)
        order = np.lexsort((np.concatenate(places), event))
        series = np.concatenate(codes)[order]
        _, first, which = np.unique(series, return_index=True, return_inverse=True)
        seen, names = np.argsort(first), list(numbers)
        return cls(
            event[order],
            np.argsort(seen)[which],
            np.concatenate(values)[order],
            [names[series[one]] for one in first[seen].tolist()],
        )


def _distinguishing(keys: tuple[str, ...]) -> list[str]:
    """Keys that number counters of one name; none if there are no others."""
    own = [key for key in keys if _IDENTIFIER.fullmatch(key)] if len(keys) > 1 else []
    return own if len(own) < len(keys) else []


def _apart(own: Sequence[str], some: Sequence[dict[str, Any]], ids: Sequence[str]) -> list[str]:
    """What distinguishes the series of events besides their keys."""
    apart = [" ".join(f"{key} {args[key]}" for key in own) for args in some]
    return [f"{a} id {i}".strip() if i else a for a, i in zip(apart, ids, strict=True)]


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        args = msgspec.json.decode(raw) if raw else {}
    except NOT_JSON:
        return {}
    return args if isinstance(args, dict) else {}


def _numbers(column: Sequence[Any]) -> F64:
    """Values of one key as numbers, NaN for what is none."""
    if set(map(type, column)) <= {int, float}:
        with suppress(OverflowError):
            found = np.array(column, np.float64) + 0.0
            return np.where(np.isfinite(found), found, np.nan)
    return np.array([_value(value) for value in column], np.float64)


def _value(value: Any) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value) and len(value) < 400:
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value) + 0.0
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


_PHASE = attrgetter("ph")
_SHAPE = attrgetter("ph", "cat", "pid", "tid")
_KINDS = {SLICE: "slice", INSTANT: "instant", SAMPLE: "counter"}
_BOUND = ("", "s", "f", "t")  # by flow_out + 2 * flow_in

Ends = Iterable[tuple[str, str, str]]
FlowKeys = Callable[[Ends], I64]
"""Keys of arrow ends, given their (category, name, id): equal for equal ones."""


def hashed(ends: Ends) -> I64:
    """Keys of arrow ends in pure Python: 64 bit hashes under the random key of the process."""
    return np.fromiter(map(hash, ends), np.int64)


class _Part(msgspec.Struct):
    """Records with a good stamp: their shapes, stamps and arguments."""

    events: list[Event]
    shape: I32
    start: I64
    args: Located

    def __getitem__(self, field: str) -> list[Any]:
        return list(map(attrgetter(field), self.events))

    def has(self, field: str) -> bool:
        """Whether any record has this (unparsed) member."""
        return self[field].count(NOTHING) < len(self.events)

    def take(self, rows: Mask) -> _Part:
        chosen = list(compress(self.events, rows.tolist()))
        return _Part(chosen, self.shape[rows], self.start[rows], self.args.take(rows))


class Intake:
    """Takes decoded records and adds them to ``tables``."""

    def __init__(
        self, tables: Tables, naming: Naming, arguments: Arguments, flow_keys: FlowKeys = hashed
    ) -> None:
        self._tables, self._naming, self._arguments = tables, naming, arguments
        self._flow_keys = flow_keys
        self._tally = tables.tally

    def take(self, events: Sequence[Event], text: bytes = b"", address: int = -1) -> None:
        """Add records; each must have a phase.

        Args:
            text, address: what they were decoded from, and where that is in an attached
                buffer; -1 if it will not stay.

        Raises:
            ValueError: one has no phase; nothing was added.
        """
        shapes, n = self._tables.shapes, len(events)
        if None in map(_PHASE, events):  # before a lane of any of them is known
            raise ValueError("a record without a phase")
        shape = np.fromiter(map(shapes.__getitem__, map(_SHAPE, events)), np.int32, n)
        kind = shapes.kind[shape]
        self._tables.events += n
        args = self._arguments.locate([event.args for event in events], text, address)
        untimed = kind >= METADATA
        if untimed.any():
            for i in np.flatnonzero(untimed).tolist():
                self._describe(events[i], int(shape[i]), args.raws[i])
            events, shape, args = (
                list(compress(events, (~untimed).tolist())),
                shape[~untimed],
                args.take(~untimed),
            )
            kind = kind[~untimed]
        stamps = nanoseconds([event.ts for event in events])
        whole = _Part(list(events), shape, stamps.ns, args)
        good = stamps.state == GOOD
        if not good.all():
            self._lose("bad-time", shape[~good])
            whole, kind = whole.take(good), kind[good]
        self._tables.rounded_stamps += int((stamps.rounded & good).sum())
        for requested, take in (
            (kind <= END, self._rows),
            (kind == FLOW, self._flows),
            (kind == SAMPLE, self._samples),
            (kind == ASYNC, self._asyncs),
        ):
            if requested.any():
                take(whole if requested.all() else whole.take(requested))

    def _describe(self, event: Event, shape: int, args: bytes) -> None:
        """A record that says something of others, or nothing known."""
        shapes = self._tables.shapes
        if shapes.kind[shape] == METADATA:
            self._naming.add(event.name, shapes.pid[shape], shapes.tid[shape], args)
        else:
            self._tally.add("unknown-phase", f"phase {shapes.phase[shape][:20]!r}")

    def _lose(self, code: str, shape: I32) -> None:
        """Book rows that cannot be kept, lane by lane."""
        shapes = self._tables.shapes
        for value, count in zip(*np.unique(shape, return_counts=True), strict=True):
            kind = _KINDS.get(int(shapes.kind[value]))
            if shapes.phase[value] in ("t", "f"):
                kind = "flow"
            if kind:
                self._tally.saw(kind, count)
            self._tally.add(code, shapes.place(int(value)), count, kind)

    # -- slices, instants, begins and ends ---------------------------------------------------

    def _rows(self, part: _Part) -> None:
        slices = self._tables.shapes.kind[part.shape] == SLICE
        dur = np.zeros(len(slices), np.int64)
        if slices.any():
            kept = np.ones(len(slices), bool)
            dur[slices], kept[slices] = self._durations(part if slices.all() else part.take(slices))
            if not kept.all():
                part, dur = part.take(kept), dur[kept]
        if len(dur):
            self._bound(part)
            self._tables.add_rows(self._columns(part, dur))

    def _durations(self, part: _Part) -> tuple[I64, Mask]:
        """Durations of slices, and which of them can be kept."""
        times = self._times_of(part)
        beyond, negative = times.state == BEYOND, times.ns < 0
        unstated = (times.state != GOOD) & ~beyond
        for value in part.shape[unstated].tolist():
            self._tally.add("missing-duration", self._tables.shapes.place(value))
        self._lose("bad-time", part.shape[beyond])
        self._lose("negative-duration", part.shape[negative])
        kept = ~(beyond | negative)
        self._tables.rounded_durations += int((times.rounded & kept).sum())
        return times.ns, kept

    @staticmethod
    def _times_of(part: _Part) -> Times:
        """Durations; where there is none, what ``tdur`` says instead."""
        times = nanoseconds(part["dur"])
        absent = times.state == ABSENT
        if not absent.any():
            return times
        tokens = zip(part["dur"], part["tdur"], absent.tolist(), strict=True)
        return nanoseconds([bytes(second if use else first) for first, second, use in tokens])

    def _columns(self, part: _Part, dur: I64) -> Rows:
        graph, type_ = self._arguments.probe(part.args.raws)
        own = self._numbers(part["graph"])
        if own is not None:
            graph = own if graph is None else np.where(own >= 0, own, graph)
        name, step = self._names(part["name"]), self._numbers(part["step"])
        rows = part.shape, name, part.start, dur, part.args.address, part.args.length
        return Rows(*rows, graph, step, type_)

    def _numbers(self, values: list[Any]) -> I32 | None:
        if values.count(None) == len(values):
            return None
        numbers = np.array(self._arguments.numbers(values), np.int32)
        return numbers if (numbers >= 0).any() else None

    def _names(self, names: Iterable[str | None]) -> I32:
        return np.fromiter(map(self._tables.names.__getitem__, names), np.int32)

    # -- arrows ------------------------------------------------------------------------------

    def _bound(self, part: _Part) -> None:
        """Ends of arrows that slices carry themselves (bind_id with flow_in and flow_out)."""
        if not part.has("bind_id"):
            return
        shapes, name = self._tables.shapes, self._tables.names["flow"]
        ends: list[tuple[int, int, int]] = []
        ids = []
        columns = zip(part["bind_id"], part["flow_in"], part["flow_out"], strict=True)
        for i, (bind_id, flow_in, flow_out) in enumerate(columns):
            phase = _BOUND[(bytes(flow_out) == b"true") + 2 * (bytes(flow_in) == b"true")]
            if phase and bytes(bind_id):
                of = int(part.shape[i])
                shape = shapes.code(phase, "", shapes.pid[of], shapes.tid[of])
                ends.append((shape, name, int(part.start[i])))
                ids.append(("", "", f"bind {text_of(bytes(bind_id))}"))
        if ends:
            shape_, name_, start = np.array(ends, np.int64).T
            codes = shape_.astype(np.int32), name_.astype(np.int32)
            around = np.ones(len(ends), bool)
            self._tables.flows.append(Flows(*codes, start, self._flow_keys(ids), around))

    def _flows(self, part: _Part) -> None:
        names, categories = part["name"], part["cat"]
        if all(categories):
            code = np.full(len(names), -1, np.int32)
        else:
            code = self._names(
                [n if not c else None for n, c in zip(names, categories, strict=True)]
            )
            categories = [c or "" for c in categories]
        if not all(names):
            names = [name or "" for name in names]
        key = self._flow_keys(zip(categories, names, _ids(part), strict=True))
        encloses = np.frombuffer(bytes(map(eq, part["bp"], repeat("e"))), bool)
        self._tables.flows.append(Flows(part.shape, code, part.start, key, encloses))

    # -- the rest ----------------------------------------------------------------------------

    def _samples(self, part: _Part) -> None:
        values = Values.of(part.args.raws, _ids(part))
        self._tally.saw("counter", len(values.value))
        known = np.isfinite(values.value)
        for event in values.event[~known].tolist():
            place = self._tables.shapes.place(int(part.shape[event]))
            self._tally.add("counter-not-numeric", place, 1, "counter")
        series, rows = values.series[known], values.event[known]
        codes, used = np.full(len(values.names), -1, np.int32), np.zeros(len(values.names), bool)
        used[series] = True
        for one in np.flatnonzero(used).tolist():
            codes[one] = self._tables.series[values.names[one]]
        if len(rows):
            names = self._names(part["name"])[rows]
            self._tables.samples.append(
                Samples(
                    part.shape[rows], names, codes[series], part.start[rows], values.value[known]
                )
            )

    def _asyncs(self, part: _Part) -> None:
        shapes, codes = self._tables.shapes, self._tables.async_ids
        keys = (
            codes[shapes.pid[s], shapes.category[s], number]
            for s, number in zip(part.shape.tolist(), _ids(part), strict=True)
        )
        key = np.fromiter(keys, np.int32, len(part.shape))
        name, args = self._names(part["name"]), part.args
        rows = Asyncs(part.shape, name, part.start, args.address, args.length, key)
        self._tables.asyncs.append(rows)


def _ids(part: _Part) -> list[str]:
    """Ids as text: "7" and 7 are one; of ``id2``, its text."""
    ids = part["id"]
    if part.has("id2"):
        ids = [bytes(b) or a for a, b in zip(ids, part["id2"], strict=True)]
    text = b"\n".join(ids)
    if not any(odd in text for odd in (b"\\", b"{", b"[", b"null")):
        texts = text.replace(b'"', b"").decode().split("\n")
        if len(texts) == len(ids):
            return texts
    return [text_of(bytes(raw)) for raw in ids]
