"""Paddle's JSON: read as trace events, its own ways undone, and turned into records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import MalformedInputError
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import F64, I32, I64
from traceconv.core.ordering import mapped
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.paddle.layout import (
    MEMORY_TYPES,
    PHASES,
    TYPES,
    Lane,
    Records,
    What,
    memory,
    noted,
    phase_names,
    put,
)
from traceconv.readers.paddle.repair import US, Starts, recovered, repaired, trimmed
from traceconv.readers.shared.arguments import objects
from traceconv.readers.shared.gpu_kernels import DefaultPlacement, step_number
from traceconv.readers.shared.numbers import times
from traceconv.readers.shared.trace_events import timeline as _traceevents
from traceconv.readers.shared.trace_events.assemble import assemble
from traceconv.readers.shared.trace_events.contract import Probes
from traceconv.readers.shared.trace_events.tables import INSTANT, Flows, Rows
from traceconv.readers.shared.trace_events.timeline import USED_KEYS, Reading

_SUFFIX = lazy_regex(r"\[(\d{1,15})\.(\d{3}) (ms|us)\]")
_UNITS_NS = {"us": 1, "ms": 1000}  # of the last digit
_FLOAT_BITS = 22  # precision of a 32-bit float, less one bit


class EventNames:
    """Names without the duration that Paddle appends to each."""

    def __init__(self, reading: Reading, build: TraceBuilder) -> None:
        self._shapes, self._build = reading.tables.shapes, build
        self._texts = [*reading.tables.names.texts(), ""]  # the last one: no name
        self._short = list(self._texts)
        self._in_name = np.full(len(self._texts), -1, np.int64)  # duration in the name, ns
        self._unit = np.ones(len(self._texts), np.int64)
        for code, text in enumerate(self._texts):
            begin = text.rfind("[") if text.endswith("s]") else -1
            match = _SUFFIX.fullmatch(text, begin) if begin >= 0 else None
            if match is not None:
                unit = _UNITS_NS[match[3]]
                self._short[code] = text[:begin]
                self._in_name[code], self._unit[code] = int(match[1] + match[2]) * unit, unit

    def of(self, rows: Rows, instant: NDArray[np.bool_]) -> I32:
        """String ids of the names of rows; memory events are called by their type."""
        self._build.skip("missing-name", count=int((rows.name < 0).sum()))
        in_name, unit = self._in_name[rows.name], self._unit[rows.name]
        has_duration = ~instant & (in_name >= 0)
        has_duration &= np.abs(in_name - rows.dur) <= unit + (np.abs(rows.dur) >> _FLOAT_BITS)
        texts = [*self._short, *self._texts]
        shown = np.where(has_duration, rows.name, rows.name + len(self._short))
        name_ids = mapped(shown, lambda code: self._build.string(texts[code]), np.int32)
        for code in np.unique(rows.shape[instant]).tolist():
            if self._shapes.category[code] in MEMORY_TYPES:
                name_ids[rows.shape == code] = self._build.string(self._shapes.category[code])
        return name_ids

    def phases(self, rows: Rows, name: I32) -> None:
        """Note the names of ranges of a forward or backward pass."""
        for code in np.unique(rows.shape).tolist():
            if self._shapes.category[code] in PHASES:
                name_ids = np.unique(name[rows.shape == code]).tolist()
                phase_names(self._build, self._shapes.category[code], name_ids)

    def steps(self, rows: Rows) -> I32:
        """Step numbers of ProfileStep rows; -1 for others."""
        marks = [code for code, c in enumerate(self._shapes.category) if c == "ProfileStep"]
        step = np.full(len(rows), -1, np.int32)
        for row in np.flatnonzero(np.isin(rows.shape, marks)).tolist():
            step[row] = step_number(self._short[rows.name[row]])
        return step


BATCH_ROWS = 16384
"""Rows whose arguments are decoded at a time."""

FIELDS, MEMORY, RAW = range(3)
"""Kinds of arguments: fields to look into, figures of memory, anything."""

_SKIPPED = ("start_time", "end_time")
"""Arguments that repeat the times of the event."""


class _Memory(Struct, gc=False):
    place: str = ""
    current_allocated: int | float | None = None
    current_reserved: int | float | None = None


_decode_memory = msgspec.json.Decoder(list[_Memory]).decode
_decode_fields = msgspec.json.Decoder(list[dict[str, Any]]).decode


@dataclass
class ArgumentFacts:
    """The content of the arguments of rows.

    Attributes:
        since: time since the first event of the file, ns; where ``timed``.
        correlation: id that calls share with the work they launch; where ``launches``.
        args:  ids of the builder for the rest, -1 if there is none.
        memory: (rows, places, bytes allocated, bytes reserved) of each batch of memory events.
    """

    since: I64
    timed: NDArray[np.bool_]
    correlation: I64
    launches: NDArray[np.bool_]
    args: I32
    memory: list[tuple[I64, list[str], F64, F64]] = field(default_factory=list)


def look_into(
    rows: Rows, expect: Sequence[int], types: Sequence[str], build: TraceBuilder
) -> ArgumentFacts:
    """Decode the arguments of all rows.

    Args:
        expect: FIELDS, MEMORY or RAW by shape.
        types:  by shape, the argument "type" to add; "" for none.
    """
    n = len(rows)
    plain = np.array([build.args({"type": t}) if t else -1 for t in types] or [-1], np.int32)
    facts = ArgumentFacts(
        np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, np.int64), np.zeros(n, bool),
        plain[rows.shape],
    )  # fmt: skip
    kinds = np.array(expect, np.int8)
    for begin in range(0, n, BATCH_ROWS):
        batch = np.arange(begin, min(begin + BATCH_ROWS, n))
        batch = batch[rows.length[batch] > 0]
        of_batch = kinds[rows.shape[batch]]
        if (chosen := batch[of_batch == FIELDS]).size:
            _take_fields(rows, chosen, types, build, facts)
        undecoded = batch[of_batch != FIELDS]
        first_id = build.args_at(rows.args[undecoded], rows.length[undecoded])
        facts.args[undecoded] = np.arange(first_id, first_id + len(undecoded))
        if (chosen := batch[of_batch == MEMORY]).size:
            try:
                events = _decode_memory(_array(_raws(rows, chosen, build)))
            except NOT_JSON:
                continue  # they stay instants with these arguments
            figures = ((m.current_allocated, m.current_reserved) for m in events)
            totals = np.array([[np.nan if v is None else v for v in pair] for pair in figures])
            facts.memory.append((chosen, [m.place for m in events], *totals.astype(float).T))
    return facts


def _take_fields(
    rows: Rows, batch: I64, types: Sequence[str], build: TraceBuilder, facts: ArgumentFacts
) -> None:
    raws = _raws(rows, batch, build)
    try:
        arguments = _decode_fields(_array(raws))
    except NOT_JSON:
        arguments = [_lenient(raw) for raw in raws]
    since = times([str(a.get("start_time", "")).removesuffix(" us") for a in arguments], "us")
    facts.timed[batch] = since.present & ~since.bad
    facts.since[batch] = since.ns
    ids = [args.get("correlation id") for args in arguments]
    has_id = np.array([type(i) is int and -(2**63) <= i < 2**63 for i in ids])
    facts.launches[batch] = has_id
    facts.correlation[batch[has_id]] = list(compress(ids, has_id.tolist()))  # type: ignore[assignment]
    texts = []
    for shape, args in zip(rows.shape[batch].tolist(), arguments, strict=True):
        members = {k: v for k, v in args.items() if k not in _SKIPPED and v not in ({}, "")}
        type_member = {"type": types[shape]} if types[shape] else {}
        texts.append(msgspec.json.encode(type_member | members) if members else b"")
    ids_of_rest = objects(build, texts)
    facts.args[batch] = np.where(ids_of_rest >= 0, ids_of_rest, facts.args[batch])


def _raws(rows: Rows, batch: I64, build: TraceBuilder) -> list[bytes]:
    pairs = zip(rows.args[batch].tolist(), rows.length[batch].tolist(), strict=True)
    return [build.stored(address, length) for address, length in pairs]


def _array(raws: list[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"


def _lenient(raw: bytes) -> dict[str, Any]:
    try:
        args = msgspec.json.decode(raw)
    except NOT_JSON:
        args = raw.decode("utf-8", "replace")
    return args if isinstance(args, dict) else {"args": args}


_DAMAGE = (
    "malformed-record",
    "repaired-record",
    "args-not-json",
    "skipped-bytes",
    "unknown-phase",
    "truncated",
)
_PROBES = Probes(graph=(), type="")
_SIDE = lazy_regex(r"(.*)\((Python|C\+\+)\)", re.DOTALL)
_SIDES = {"Python": What.PYTHON, "C++": What.NATIVE}
_MAKER = lazy_regex(r".* \(([^()]+)\)", re.DOTALL)
_DEVICE = {"Kernel": What.KERNEL, "Memcpy": What.COPY, "Memset": What.COPY}
_RUNTIME = "Runtime"


def read_json(source: Source, name: str, build: TraceBuilder, pid: int) -> None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers.paddle.layout.put`.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    reading = _read(source, name, build)
    tables = reading.tables
    rows = Rows.joined([Rows.of([]), *tables.rows.drain()])
    flows = Flows.joined([Flows.of([]), *tables.flows.drain()])
    _add_records(reading, rows, flows, build, pid)
    assemble(tables, reading.naming, DefaultPlacement(build.comm_words), build, 0)


def _read(source: Source, name: str, build: TraceBuilder) -> Reading:
    """The file as it is; its repaired copy if that has something to repair."""
    reading: Reading | None = Reading(build, _PROBES)
    refused: MalformedInputError | None = None
    try:
        reading.read(source, name, _traceevents.CHUNK_BYTES)  # type: ignore[union-attr]
    except MalformedInputError as e:
        reading, refused = None, e
    if reading is not None and not any(map(reading.tables.tally.count, _DAMAGE)):
        return reading
    with repaired(source, name) as (copy, copied, account):
        if account.records:
            reading = Reading(build, _PROBES)
            reading.read(copy, copied, _traceevents.CHUNK_BYTES)
            reading.tables.tally.add("repaired-record", account.place, account.records)
    if reading is None:
        assert refused is not None
        raise refused
    return reading


def _add_records(reading: Reading, rows: Rows, flows: Flows, build: TraceBuilder, pid: int) -> None:
    """Turn rows and the ends of flows into records and add these."""
    shapes = reading.tables.shapes
    instant = shapes.kind[rows.shape] == INSTANT
    numbers: dict[Lane, int] = {}
    of_shape = [numbers.setdefault(_lane(reading, code), len(numbers))
                for code in range(len(shapes.phase))]  # fmt: skip
    lanes, lane = list(numbers), np.array(of_shape, np.int32)
    expect, types = _expected(reading, lanes, lane)
    facts = look_into(rows, expect, types, build)
    starts = recovered(rows.start, facts.since, facts.timed & ~instant)
    names = EventNames(reading, build)
    name, step = names.of(rows, instant), names.steps(rows)
    names.phases(rows, name)
    of_rows = lane[rows.shape]
    # kernels and copies of a stream share a row, and so do all lanes of one thread and side
    on_screen = [(What.KERNEL if a.of_device else a.what, a.process, a.thread)
                 for a in lanes]  # fmt: skip
    row = np.array([on_screen.index(key) for key in on_screen], np.int32)[of_rows]
    dur = _trimmed(rows, starts, row, ~instant, build)
    arrows = _arrows(facts, lanes, of_rows)
    records = Records(lanes, of_rows, starts.ns, dur, name, facts.args, step, instant, arrows)
    coarse = starts.kept & ~instant & (rows.start % US == 0)
    build.skip("time-rounded", "whole microseconds", int(coarse.sum()))
    _book_arrows(reading, flows, len(arrows[0]), build)
    for batch, places, allocated, reserved in facts.memory:
        memory(build, rows.start[batch], places, allocated, reserved)
    _note(reading.keys, starts, build)
    put(records, build, pid)


# -- lanes ---------------------------------------------------------------------------------


def _lane(reading: Reading, code: int) -> Lane:
    """The lane of a shape. Only host rows name their side in the thread, so that any other
    category without a side is a device row of unknown type."""
    shapes = reading.tables.shapes
    category, pid, tid = shapes.category[code], shapes.pid[code], shapes.tid[code]
    side = _SIDE.fullmatch(tid)
    is_known = category in (*TYPES, *MEMORY_TYPES) or category.endswith(_RUNTIME)
    if category in _DEVICE or (not is_known and not side and tid.isdecimal()):
        match = _MAKER.fullmatch(reading.naming.lane(shapes, code).process)
        what = _DEVICE.get(category, What.UNKNOWN)
        return Lane(what, pid, tid, match[1] if match else "GPU")
    thread = side[1] if side else tid
    if category.endswith(_RUNTIME):
        maker = category.removesuffix(_RUNTIME).upper()
        return Lane(What.RUNTIME, pid, thread, "GPU" if maker == "CUDA" else maker)
    return Lane(_SIDES[side[2]] if side else What.HOST, pid, thread)


def _expected(reading: Reading, lanes: list[Lane], lane: I32) -> tuple[list[int], list[str]]:
    """By shape: the kind of its arguments, and the type to add to them."""
    expect, types, shapes = [], [], reading.tables.shapes
    for code, category in enumerate(shapes.category):
        slices = shapes.phase[code] == "X"
        expect.append(FIELDS if slices else MEMORY if category in MEMORY_TYPES else RAW)
        named = (What.PYTHON, What.NATIVE, What.HOST, What.UNKNOWN)
        types.append(category if slices and lanes[lane[code]].what in named else "")
    return expect, types


# -- flows and accounts -------------------------------------------------------------------


def _arrows(facts: ArgumentFacts, lanes: list[Lane], lane: I32) -> tuple[I64, I64]:
    """Calls and device rows of one correlation id."""
    calls = (
        np.array([shape_lane.what is What.RUNTIME for shape_lane in lanes], bool)[lane]
        & facts.launches
    )
    work = np.array([shape_lane.of_device for shape_lane in lanes], bool)[lane] & facts.launches
    source, target = np.flatnonzero(calls), np.flatnonzero(work)
    source = source[np.argsort(facts.correlation[source], kind="stable")]
    ids = facts.correlation[source]
    position = np.searchsorted(ids, facts.correlation[target])
    matched = position < len(ids)
    matched[matched] = ids[position[matched]] == facts.correlation[target[matched]]
    return source[position[matched]], target[matched]


def _book_arrows(reading: Reading, flows: Flows, drawn: int, build: TraceBuilder) -> None:
    """Count the ends of flows in the file; ``drawn`` flows were made of them."""
    phase = np.array(reading.tables.shapes.phase, "U1")[flows.shape]
    head = phase != "s"
    heads = int(head.sum())
    lost = max(heads - drawn, 0)
    lonely = min(lost, int((~np.isin(flows.key[head], flows.key[~head])).sum()))
    build.seen("flow", lost)
    build.skip("flow-without-end", "no launching call", lonely, "flow")
    build.skip("flow-unbound", "no launching call", lost - lonely, "flow")
    build.skip("decoration-skipped", "calls that launch nothing", len(flows) - heads - drawn)


def _trimmed(
    rows: Rows, starts: Starts, row: I32, slices: NDArray[np.bool_], build: TraceBuilder
) -> I64:
    dur = rows.dur.copy()
    slices = slices & (starts.ns <= INT64_MAX - dur)
    dur[slices], cut = trimmed(
        row[slices], starts.ns[slices], rows.dur[slices], starts.slack[slices]
    )
    build.skip("slice-trimmed", count=cut)
    return dur


_USED_KEYS = USED_KEYS | {
    "schemaVersion", "span_index", "span_indx", "deviceProperties", "ExtraInfo"
}  # fmt: skip


def _note(keys: Mapping[str, Any], starts: Starts, build: TraceBuilder) -> None:
    build.skip_keys(keys.keys() - _USED_KEYS)
    noted(
        build,
        version=keys.get("schemaVersion"),
        span_index=keys.get("span_index", keys.get("span_indx")),
        devices=keys.get("deviceProperties", []),
        extra_info=keys.get("ExtraInfo", {}),
        starts_recovered=int((~starts.kept).sum()),
        starts_uncertain_ns=starts.spread,
    )
