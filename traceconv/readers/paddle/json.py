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
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.paddle.layout import (
    MEMORY_TYPES,
    PHASES,
    Lane,
    Records,
    What,
    memory,
    noted,
    phase_names,
    put,
)
from traceconv.readers.paddle.repair import US, Starts, recovered, repaired, trimmed
from traceconv.readers.shared.gpu_kernels import DefaultPlacement, step_number
from traceconv.readers.shared.numbers import times
from traceconv.readers.shared.trace_events import timeline as _traceevents
from traceconv.readers.shared.trace_events.assemble import assemble
from traceconv.readers.shared.trace_events.contract import Probes
from traceconv.readers.shared.trace_events.tables import INSTANT, Flows, Rows
from traceconv.readers.shared.trace_events.timeline import Reading

_SUFFIX = lazy_regex(r"\[(\d{1,15})\.(\d{3}) (ms|us)\]")
_UNITS_NS = {"us": 1, "ms": 1000}  # of the last digit
_FLOAT_BITS = 22  # what a 32-bit float keeps of a duration, with one bit to spare


class Names:
    """Names without the durations that the writer appends to every one."""

    def __init__(self, reading: Reading, build: TraceBuilder) -> None:
        self._shapes, self._build = reading.tables.shapes, build
        self._texts = [*reading.tables.names.texts(), ""]  # the last one: no name
        self._short = list(self._texts)
        self._in_name = np.full(len(self._texts), -1, np.int64)  # duration in the name, ns
        self._unit = np.ones(len(self._texts), np.int64)
        for code, text in enumerate(self._texts):
            at = text.rfind("[") if text.endswith("s]") else -1
            match = _SUFFIX.fullmatch(text, at) if at >= 0 else None
            if match is not None:
                unit = _UNITS_NS[match[3]]
                self._short[code] = text[:at]
                self._in_name[code], self._unit[code] = int(match[1] + match[2]) * unit, unit

    def of(self, rows: Rows, instant: NDArray[np.bool_]) -> I32:
        """String ids of the names of rows; memory events are called by their type."""
        self._build.skip("missing-name", count=int((rows.name < 0).sum()))
        in_name, unit = self._in_name[rows.name], self._unit[rows.name]
        own = ~instant & (in_name >= 0)
        own &= np.abs(in_name - rows.dur) <= unit + (np.abs(rows.dur) >> _FLOAT_BITS)
        found = np.empty(len(rows), np.int32)
        for which, texts in ((own, self._short), (~own, self._texts)):
            codes, back = np.unique(rows.name[which], return_inverse=True)
            ids = [self._build.string(texts[code]) for code in codes.tolist()]
            found[which] = np.array(ids, np.int32)[back]
        for code in np.unique(rows.shape[instant]).tolist():
            if self._shapes.category[code] in MEMORY_TYPES:
                found[rows.shape == code] = self._build.string(self._shapes.category[code])
        return found

    def phases(self, rows: Rows, name: I32) -> None:
        """Note what ranges of a forward or backward pass are called."""
        for code in np.unique(rows.shape).tolist():
            if self._shapes.category[code] in PHASES:
                found = np.unique(name[rows.shape == code]).tolist()
                phase_names(self._build, self._shapes.category[code], found)

    def steps(self, rows: Rows) -> I32:
        """Step numbers of the rows that mark steps."""
        marks = [code for code, c in enumerate(self._shapes.category) if c == "ProfileStep"]
        step = np.full(len(rows), -1, np.int32)
        for row in np.flatnonzero(np.isin(rows.shape, marks)).tolist():
            step[row] = step_number(self._short[rows.name[row]])
        return step


BATCH_ROWS = 16384
SPAN_BYTES = 64 << 20
"""Arguments of a batch within so many bytes are fetched at once."""

TIMED, RICH, MEMORY, RAW = range(4)
"""What is expected of a category: nothing but times; more; figures of memory; anything."""

CORRELATION = "correlation id"
_SKIPPED = ("start_time", "end_time")  # they are the times of the event itself
_NOTHING: tuple[Any, ...] = ({}, "")


class _Times(Struct, gc=False, forbid_unknown_fields=True):
    start_time: str
    end_time: str


class _Memory(Struct, gc=False):
    place: str = ""
    current_allocated: int | float | None = None
    current_reserved: int | float | None = None


_decode_times = msgspec.json.Decoder(list[_Times]).decode
_decode_memory = msgspec.json.Decoder(list[_Memory]).decode
_decode_any = msgspec.json.Decoder(list[dict[str, Any]]).decode
_encode = msgspec.json.encode


@dataclass
class ArgumentFacts:
    """What the arguments of rows say.

    Attributes:
        since: time since the first event of the file, ns; where ``timed``.
        correlation: id that calls share with what they launch; where ``launches``.
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
    """Look into the arguments of all rows.

    Args:
        expect: TIMED, RICH, MEMORY or RAW by shape.
        types:  by shape, what is put among the arguments as "type"; "" for nothing.
    """
    n = len(rows)
    facts = ArgumentFacts(
        np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, np.int64), np.zeros(n, bool),
        np.full(n, -1, np.int32),
    )  # fmt: skip
    _ArgumentReader(rows, types, build, facts).run(np.array(expect, np.int8))
    return facts


class _ArgumentReader:
    def __init__(
        self, rows: Rows, types: Sequence[str], build: TraceBuilder, facts: ArgumentFacts
    ) -> None:
        self._rows, self._types, self._build, self._facts = rows, types, build, facts
        self._plain = np.full(len(types), -1, np.int32)  # args that hold nothing but the type

    def run(self, expect: NDArray[np.int8]) -> None:
        rows, takes = self._rows, (self._timed, self._rich, self._memory, self._raw)
        self._facts.args[:] = self._types_of(rows.shape)
        for at in range(0, len(rows), BATCH_ROWS):
            batch = np.arange(at, min(at + BATCH_ROWS, len(rows)))
            batch = batch[rows.length[batch] > 0]
            raws = np.array([*self._raws(batch), None], object)[:-1]  # objects, whatever they hold
            of_batch = expect[rows.shape[batch]]
            for what, take in enumerate(takes):
                chosen = of_batch == what
                if chosen.any():
                    take(batch[chosen], raws[chosen].tolist())

    def _types_of(self, shape: I32) -> I32:
        """Ids of arguments that hold nothing but the type."""
        for code in np.unique(shape).tolist():
            if self._types[code]:
                self._plain[code] = self._build.args({"type": self._types[code]})
        found: I32 = self._plain[shape]
        return found

    def _raws(self, batch: I64) -> list[bytes]:
        """The arguments of rows, fetched at once where they are close together."""
        address, length = self._rows.args[batch], self._rows.length[batch]
        if not len(batch):
            return []
        first, last = int(address.min()), int((address + length).max())
        if last - first > SPAN_BYTES:
            pairs = zip(address.tolist(), length.tolist(), strict=True)
            return [self._build.stored(a, n) for a, n in pairs]
        text = self._build.stored(first, last - first)
        start = address - first
        ends = zip(start.tolist(), (start + length).tolist(), strict=True)
        return [text[a:b] for a, b in ends]

    def _timed(self, batch: I64, raws: list[bytes]) -> None:
        try:
            found = _decode_times(_list(raws))
        except NOT_JSON:
            self._rich(batch, raws)
            return
        self._take_since(batch, [one.start_time for one in found])

    def _rich(self, batch: I64, raws: list[bytes]) -> None:
        try:
            found = _decode_any(_list(raws))
        except NOT_JSON:
            found = [_any(raw) for raw in raws]
        self._take_since(batch, [str(args.get("start_time", "")) for args in found])
        ids = [args.get(CORRELATION) for args in found]
        there = np.array([type(i) is int and -(2**63) <= i < 2**63 for i in ids])
        self._facts.launches[batch] = there
        chosen: Any = list(compress(ids, there.tolist()))
        self._facts.correlation[batch[there]] = chosen
        self._keep(batch, [_rest(args) for args in found])

    def _keep(self, batch: I64, rest: list[dict[str, Any]]) -> None:
        """Register what is left of arguments."""
        full = np.array([bool(args) for args in rest])
        if not full.any():
            return
        shapes = self._rows.shape[batch].tolist()
        texts = [
            _encode({"type": self._types[s], **args} if self._types[s] else args)
            for s, args in zip(shapes, rest, strict=True)
            if args
        ]
        length = np.array([len(text) for text in texts], np.int32)
        first = self._build.args_bytes(b"".join(texts), length)
        self._facts.args[batch[full]] = np.arange(first, first + len(texts))

    def _memory(self, batch: I64, raws: list[bytes]) -> None:
        self._raw(batch, raws)
        try:
            found = _decode_memory(_list(raws))
        except NOT_JSON:
            return  # it stays an instant with these arguments
        figures = ((m.current_allocated, m.current_reserved) for m in found)
        values = np.array([[np.nan if v is None else v for v in pair] for pair in figures], float)
        places = [m.place for m in found]
        self._facts.memory.append((batch, places, values[:, 0], values[:, 1]))

    def _raw(self, batch: I64, raws: list[bytes]) -> None:
        first = self._build.args_at(self._rows.args[batch], self._rows.length[batch])
        self._facts.args[batch] = np.arange(first, first + len(raws))

    def _take_since(self, batch: I64, texts: list[str]) -> None:
        since = times([text.removesuffix(" us") for text in texts], "us")
        self._facts.timed[batch] = since.present & ~since.bad
        self._facts.since[batch] = since.ns


def _list(raws: list[bytes]) -> bytes:
    return b"".join((b"[", b",".join(raws), b"]"))


def _any(raw: bytes) -> dict[str, Any]:
    try:
        args = msgspec.json.decode(raw)
    except NOT_JSON:
        args = raw.decode("utf-8", "replace")
    return args if isinstance(args, dict) else {"args": args}


def _rest(args: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping: no times, nothing empty."""
    return {k: v for k, v in args.items() if k not in _SKIPPED and v not in _NOTHING}


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


def read_json(source: Source, name: str, build: TraceBuilder, pid: int) -> tuple[int, int] | None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers.paddle.layout.put`.

    Returns:
        Earliest start and latest end, ns; None if there are no events.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    reading = _read(source, name, build)
    tables = reading.tables
    rows = Rows.joined([Rows.of([]), *tables.rows.drain()])
    flows = Flows.joined([Flows.of([]), *tables.flows.drain()])
    span = _put(reading, rows, flows, build, pid)
    assemble(tables, reading.naming, DefaultPlacement(build.comm_words), build, 0)
    return span


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


def _put(
    reading: Reading, rows: Rows, flows: Flows, build: TraceBuilder, pid: int
) -> tuple[int, int] | None:
    """Turn rows and the ends of arrows into records and add these."""
    shapes = reading.tables.shapes
    instant = shapes.kind[rows.shape] == INSTANT
    lanes, lane = _lanes(reading)
    expect, types = _expected(reading, lanes, lane)
    facts = look_into(rows, expect, types, build)
    starts = recovered(rows.start, facts.since, facts.timed & ~instant)
    names = Names(reading, build)
    name, step = names.of(rows, instant), names.steps(rows)
    names.phases(rows, name)
    of_rows = lane[rows.shape]
    dur = _trimmed(rows, starts, _rows_on_screen(lanes)[of_rows], ~instant, build)
    arrows = _arrows(facts, lanes, of_rows)
    records = Records(lanes, of_rows, starts.ns, dur, name, facts.args, step, instant, arrows)
    _book_times(starts, rows, ~instant, build)
    _book_arrows(reading, flows, len(arrows[0]), build)
    _memory(facts, rows, build)
    _note(reading.keys, starts, build)
    return put(records, build, pid)


# -- lanes ---------------------------------------------------------------------------------


def _lanes(reading: Reading) -> tuple[list[Lane], I32]:
    """The different lanes, and which one each shape is of."""
    numbers: dict[Lane, int] = {}
    shapes = reading.tables.shapes
    of_shape = [
        numbers.setdefault(_lane(reading, code), len(numbers)) for code in range(len(shapes.phase))
    ]
    return list(numbers), np.array(of_shape, np.int32)


def _lane(reading: Reading, code: int) -> Lane:
    shapes = reading.tables.shapes
    category, pid, tid = shapes.category[code], shapes.pid[code], shapes.tid[code]
    if category in _DEVICE:
        named = _MAKER.fullmatch(reading.naming.lane(shapes, code).process)
        return Lane(_DEVICE[category], pid, tid, named[1] if named else "GPU")
    side = _SIDE.fullmatch(tid)
    thread = side[1] if side else tid
    if category.endswith(_RUNTIME):
        maker = category.removesuffix(_RUNTIME).upper()
        return Lane(What.RUNTIME, pid, thread, "GPU" if maker == "CUDA" else maker)
    return Lane(_SIDES[side[2]] if side else What.HOST, pid, thread)


def _expected(reading: Reading, lanes: list[Lane], lane: I32) -> tuple[list[int], list[str]]:
    """By shape: what its arguments hold, and the type that is put among them."""
    expect, types, shapes = [], [], reading.tables.shapes
    for code, category in enumerate(shapes.category):
        what = lanes[lane[code]].what
        slices = shapes.phase[code] == "X"
        if what is What.RUNTIME or lanes[lane[code]].of_device or category == "Operator":
            expect.append(RICH if slices else RAW)
        elif slices:
            expect.append(TIMED)
        else:
            expect.append(MEMORY if category in MEMORY_TYPES else RAW)
        host = slices and what in (What.PYTHON, What.NATIVE, What.HOST)
        types.append(category if host else "")
    return expect, types


# -- arrows, memory, accounts --------------------------------------------------------------


def _arrows(facts: ArgumentFacts, lanes: list[Lane], lane: I32) -> tuple[I64, I64]:
    """Calls and device rows of one correlation id. Ids, unlike stamps, cannot be mistaken."""
    calls = np.array([one.what is What.RUNTIME for one in lanes], bool)[lane] & facts.launches
    work = np.array([one.of_device for one in lanes], bool)[lane] & facts.launches
    source, target = np.flatnonzero(calls), np.flatnonzero(work)
    source = source[np.argsort(facts.correlation[source], kind="stable")]
    ids = facts.correlation[source]
    at = np.searchsorted(ids, facts.correlation[target])
    found = at < len(ids)
    found[found] = ids[at[found]] == facts.correlation[target[found]]
    return source[at[found]], target[found]


def _book_arrows(reading: Reading, flows: Flows, drawn: int, build: TraceBuilder) -> None:
    """Account for the ends of arrows in the file, of which ``drawn`` arrows were made."""
    phase = np.array(reading.tables.shapes.phase, "U1")[flows.shape]
    head = phase != "s"
    heads = int(head.sum())
    lost = max(heads - drawn, 0)
    lonely = min(lost, int((~np.isin(flows.key[head], flows.key[~head])).sum()))
    build.seen("flow", lost)
    build.skip("flow-without-end", "no launching call", lonely, "flow")
    build.skip("flow-unbound", "no launching call", lost - lonely, "flow")
    build.skip("decoration-skipped", "calls that launch nothing", len(flows) - heads - drawn)


def _memory(facts: ArgumentFacts, rows: Rows, build: TraceBuilder) -> None:
    for batch, places, allocated, reserved in facts.memory:
        memory(build, rows.start[batch], places, allocated, reserved)


def _book_times(starts: Starts, rows: Rows, slices: NDArray[np.bool_], build: TraceBuilder) -> None:
    """Book slices that may be out of place among others; instants are in none."""
    coarse = int((starts.kept & slices & (rows.start % US == 0)).sum())
    build.skip("time-rounded", "whole microseconds", coarse)


def _rows_on_screen(lanes: list[Lane]) -> I32:
    """A number per lane, one for all that share a row: kernels and copies of a stream do."""
    numbers: dict[tuple[Any, ...], int] = {}
    keys = [(What.KERNEL if one.of_device else one.what, one.process, one.thread) for one in lanes]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int32)


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


def _note(keys: Mapping[str, Any], starts: Starts, build: TraceBuilder) -> None:
    noted(
        build,
        version=keys.get("schemaVersion"),
        span_index=keys.get("span_index", keys.get("span_indx")),
        devices=keys.get("deviceProperties", []),
        extra_info=keys.get("ExtraInfo", {}),
        starts_recovered=int((~starts.kept).sum()),
        starts_uncertain_ns=starts.spread,
    )
