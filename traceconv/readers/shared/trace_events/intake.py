"""The Python tier: decoded events into the tables, one by one.

This module defines the meaning of an event. The C scanner reads the common forms faster and leaves
the others to this module; differential tests compare the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from traceconv.core.builder import TraceBuilder
from traceconv.core.json_text import NOT_JSON
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.numbers import count_of
from traceconv.readers.shared.trace_events.contract import Probes
from traceconv.readers.shared.trace_events.event_records import (
    ABSENT,
    BEYOND,
    GOOD,
    NOTHING,
    Event,
    exact_ns,
    is_null,
    scalar_of,
    text_of,
)
from traceconv.readers.shared.trace_events.placing import Naming
from traceconv.readers.shared.trace_events.tables import (
    ASYNC,
    BEGIN,
    END,
    FLOW,
    INSTANT,
    METADATA,
    SAMPLE,
    SLICE,
    STATE,
    Asyncs,
    Flows,
    Rows,
    Samples,
    Tables,
)

_NUMBER = lazy_regex(r"\s*+[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,4})?\s*+", re.ASCII)
_IDENTIFIER = lazy_regex(r"(?:.*[_\s])?id", re.IGNORECASE | re.DOTALL)
_KINDS = {SLICE: "slice", INSTANT: "instant", SAMPLE: "counter"}

Series = tuple[str, str]
"""The key of a series, and what else distinguishes it ("acc_id 3"), "" if nothing."""

FlowKey = Callable[[str, str, str], int]
"""Key of the end of a flow, given category, name and id: 64 bits, equal for equal ones."""


def hashed(*end: str) -> int:
    """Key of the end of a flow in pure Python: a hash under the random key of the process."""
    return hash(end)


def series_values(raw: bytes, event_id: str) -> list[tuple[Series, float | None]]:
    """The series of a counter event and their values, None for values that are not numbers.

    Members that are ids ("acc_id") distinguish counters of one name, unless all members are ids.
    """
    try:
        args = msgspec.json.decode(raw) if raw else {}
    except NOT_JSON:
        args = {}
    if not isinstance(args, dict):
        args = {}
    id_keys = [key for key in args if _IDENTIFIER.fullmatch(key)] if len(args) > 1 else []
    if len(id_keys) == len(args):
        id_keys = []
    apart = [f"{key} {args[key]}" for key in id_keys]
    if event_id:
        apart.append(f"id {event_id}")
    keys = [key for key in args if key not in id_keys] or [""]
    return [((key, " ".join(apart)), _finite(args.get(key))) for key in keys]


def _finite(value: Any) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value) and len(value) < 400:
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value) + 0.0
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


class Intake:
    """Adds events to ``tables``.

    Args:
        probes: the keys of arguments that become columns.
        flow_key: the scanner's, where both tiers read one file.
        keep: see :func:`~traceconv.readers.shared.trace_events.timeline.read_events`.
    """

    def __init__(
        self,
        tables: Tables,
        naming: Naming,
        build: TraceBuilder,
        probes: Probes,
        flow_key: FlowKey = hashed,
        keep: bool = False,
    ) -> None:
        self._keep = keep
        self._tables, self._naming, self._build = tables, naming, build
        self._tally, self._flow_key = tables.tally, flow_key
        keys = [*probes.graph, probes.type]
        fields = [
            (f"key{i}", Raw, msgspec.field(name=key, default=NOTHING)) for i, key in enumerate(keys)
        ]
        self._probe = msgspec.json.Decoder(msgspec.defstruct("Probed", fields)).decode
        self._clear()

    def _clear(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._flows: list[tuple[Any, ...]] = []
        self._samples: list[tuple[Any, ...]] = []
        self._asyncs: list[tuple[int, ...]] = []
        self._blob = bytearray()

    def take(self, events: Sequence[Event]) -> None:
        """Add events; each has a phase."""
        for event in events:
            self._event(event)
        address = self._build.spill(bytes(self._blob)) if self._blob else 0
        tables = self._tables
        if self._rows:
            rows = Rows.of(self._rows)
            rows.args += address
            tables.add_rows(rows)
        if self._flows:
            tables.flows.append(Flows.of(self._flows))
        if self._samples:
            tables.samples.append(Samples.of(self._samples))
        if self._asyncs:
            asyncs = Asyncs.of(self._asyncs)
            asyncs.args += address
            tables.asyncs.append(asyncs)
        self._clear()

    def _event(self, event: Event) -> None:
        tables, shapes = self._tables, self._tables.shapes
        tables.events += 1
        lane = (scalar_of(raw) or text_of(raw) for raw in (event.pid, event.tid))
        phase = text_of(event.ph)
        if phase == "T" and bytes(event.dur) not in (b"", b"null"):
            phase = STATE
        shape = shapes[phase, text_of(event.cat), *lane]
        kind, args = shapes.kinds[shape], b"" if is_null(event.args) else bytes(event.args)
        if args and not args.startswith(b"{"):
            args = b'{"args": ' + args + b"}"
        if kind == METADATA:
            self._naming.add(_name(event), shapes.pid[shape], shapes.tid[shape], args)
            return
        if kind > METADATA:
            self._tally.add("unknown-phase", f"phase {shapes.phase[shape][:20]!r}")
            return
        args = self._with_more(event, kind, phase, args)
        start, state, rounded = exact_ns(event.ts)
        if state != GOOD:
            self._lose("bad-time", shape)
            return
        tables.rounded_stamps += rounded
        if kind <= END:
            self._row(event, shape, kind, start, args)
        elif kind == FLOW:
            category = text_of(event.cat)
            key = self._flow_key(category, text_of(event.name), _id(event))
            code = -1 if category else tables.names[_name(event)]
            self._flows.append((shape, code, start, key, text_of(event.bp) == "e"))
        elif kind == SAMPLE:
            self._sample(event, shape, start, args)
        elif kind == ASYNC:
            key = tables.async_ids[shapes.pid[shape], shapes.category[shape], _id(event)]
            code = tables.names[_name(event)]
            self._asyncs.append((shape, code, start, *self._stored(args), key))

    def _with_more(self, event: Event, kind: int, phase: str, args: bytes) -> bytes:
        """Arguments with the members of an event that have no column; the others are counted."""
        members_left = {key: bytes(raw) for key, raw in event.more.items()}
        if not self._keep or members_left.get("s") == b'"t"':
            members_left.pop("s", None)
        if kind == SLICE and is_null(event.dur):
            members_left.pop("tdur", None)  # it is the duration
        if bytes(event.bind_id):  # they are read, as a flow that the event carries itself
            members_left = {
                key: raw for key, raw in members_left.items() if key not in ("flow_in", "flow_out")
            }
        is_kept = self._keep and kind in (SLICE, INSTANT, BEGIN, ASYNC) and phase not in ("e", "F")
        if not is_kept:
            for key in members_left:
                self._tally.add("event-field-unread", key)
            return args
        category = bytes(event.cat)
        own_members = {"cat": category} if category.startswith(b'"') and category != b'""' else {}
        if kind != ASYNC and bytes(event.id):
            own_members["id"] = bytes(event.id)
        members = b",".join(
            quoted(key) + b":" + raw for key, raw in {**own_members, **members_left}.items()
        )
        if not members:
            return args
        lead = args[:-1] + b"," if args[1:-1].strip() else b"{"
        return lead + b'"trace_event":{' + members + b"}}"

    def _lose(self, code: str, shape: int) -> None:
        """Book an event that cannot be kept."""
        shapes = self._tables.shapes
        kind = "flow" if shapes.phase[shape] in ("t", "f") else _KINDS.get(shapes.kinds[shape])
        if kind:
            self._tally.saw(kind)
        self._tally.add(code, shapes.place(shape), 1, kind)

    def _stored(self, args: bytes) -> tuple[int, int]:
        """Where arguments will be, behind the address of this batch, and their length."""
        if not args[1:-1].strip():
            return 0, 0
        offset = len(self._blob)
        self._blob += args
        return offset, len(args)

    def _row(self, event: Event, shape: int, kind: int, start: int, args: bytes) -> None:
        tables, dur = self._tables, 0
        if kind == SLICE:
            dur, state, rounded = exact_ns(event.dur)
            if state == ABSENT:
                dur, state, rounded = exact_ns(event.more.get("tdur", NOTHING))
            if state == BEYOND or dur < 0:
                self._lose("bad-time" if state == BEYOND else "negative-duration", shape)
                return
            if state != GOOD:
                self._tally.add("missing-duration", tables.shapes.place(shape))
            tables.rounded_durations += rounded
        graph, type_ = self._probed(args)
        if (own_graph := count_of(scalar_of(event.graph))) >= 0:
            graph = own_graph
        name, step = tables.names[_name(event)], count_of(scalar_of(event.step))
        self._rows.append((shape, name, start, dur, *self._stored(args), graph, step, type_))
        self._bound(event, shape, start)

    def _probed(self, args: bytes) -> tuple[int, int]:
        """Graph, and code of the type; -1 where the arguments say nothing."""
        if not args:
            return -1, -1
        *graphs, type_ = msgspec.structs.astuple(self._probe(args))
        graph_text = next((raw for raw in map(bytes, graphs) if not is_null(raw)), b"")
        name = scalar_of(type_)
        return count_of(scalar_of(graph_text)), self._tables.types[name] if isinstance(
            name, str
        ) else -1

    def _bound(self, event: Event, shape: int, start: int) -> None:
        """The end of a flow that a slice carries itself (bind_id with flow_in and flow_out)."""
        flow_in, flow_out = (
            bytes(event.more.get(key, NOTHING)) == b"true" for key in ("flow_in", "flow_out")
        )
        if not bytes(event.bind_id) or not (flow_in or flow_out):
            return
        shapes = self._tables.shapes
        phase = "t" if flow_in and flow_out else "f" if flow_in else "s"
        flow_shape = shapes.code(phase, "", shapes.pid[shape], shapes.tid[shape])
        key = self._flow_key("", "", f"bind {text_of(event.bind_id)}")
        self._flows.append((flow_shape, self._tables.names["flow"], start, key, True))

    def _sample(self, event: Event, shape: int, start: int, args: bytes) -> None:
        tables = self._tables
        for series, value in series_values(args, _id(event)):
            self._tally.saw("counter")
            if value is None:
                where = tables.shapes.place(shape)
                self._tally.add("counter-not-numeric", where, 1, "counter")
                continue
            name = tables.names[_name(event)]
            self._samples.append((shape, name, tables.series[series], start, value))


def _name(event: Event) -> str | None:
    """The name of an event, None if it has none."""
    return None if is_null(event.name) else text_of(event.name)


def _id(event: Event) -> str:
    """The id of an event as text: "7" and 7 are one; of ``id2``, its text."""
    return text_of(bytes(event.id2) or bytes(event.id))
