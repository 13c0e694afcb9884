"""Paddle's JSON: read as trace events, its own ways undone, and turned into records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.clock import INT64_MAX
from traceconv.errors import MalformedInputError
from traceconv.model import I32, I64
from traceconv.readers import _traceevents
from traceconv.readers._lanes import DefaultPlacement
from traceconv.readers._paddle_args import MEMORY, RAW, RICH, TIMED, Said, look
from traceconv.readers._paddle_layout import (
    MEMORY_TYPES,
    Lane,
    Records,
    What,
    memory,
    noted,
    put,
)
from traceconv.readers._paddle_names import Names
from traceconv.readers._paddle_repair import repaired
from traceconv.readers._paddle_times import US, Starts, recovered, trimmed
from traceconv.readers._trace_events.assemble import assemble
from traceconv.readers._trace_events.contract import Probes
from traceconv.readers._trace_events.reading import Reading
from traceconv.readers._trace_events.tables import INSTANT, Flows, Rows
from traceconv.source import Source

_DAMAGE = ("malformed-record", "args-not-json", "skipped-bytes", "unknown-phase", "truncated")
_PROBES = Probes(graph=(), type="")
_SIDE = re.compile(r"(.*)\((Python|C\+\+)\)", re.DOTALL)
_SIDES = {"Python": What.PYTHON, "C++": What.NATIVE}
_MAKER = re.compile(r".* \(([^()]+)\)", re.DOTALL)
_DEVICE = {"Kernel": What.KERNEL, "Memcpy": What.COPY, "Memset": What.COPY}
_RUNTIME = "Runtime"


def read_json(source: Source, name: str, build: TraceBuilder, pid: int) -> tuple[int, int] | None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers._paddle_layout.put`.

    Returns:
        Earliest start and latest end, ns; None if there are no events.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    reading = _read(source, name, build)
    tables = reading.tables
    rows = Rows.joined([Rows.empty(), *tables.rows.drain()])
    flows = Flows.joined([Flows.empty(), *tables.flows.drain()])
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
    said = look(rows, expect, types, build)
    starts = recovered(rows.start, said.since, said.timed & ~instant)
    names = Names(reading, build)
    name, step = names.of(rows, instant), names.steps(rows)
    names.phases(rows, name)
    of_rows = lane[rows.shape]
    dur = _trimmed(rows, starts, _rows_on_screen(lanes)[of_rows], ~instant, build)
    arrows = _arrows(said, lanes, of_rows)
    records = Records(lanes, of_rows, starts.ns, dur, name, said.args, step, instant, arrows)
    _book_times(starts, rows, build)
    _book_arrows(reading, flows, len(arrows[0]), build)
    _memory(said, rows, build)
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


def _arrows(said: Said, lanes: list[Lane], lane: I32) -> tuple[I64, I64]:
    """Calls and device rows of one correlation id. Ids, unlike stamps, cannot be mistaken."""
    calls = np.array([one.what is What.RUNTIME for one in lanes], bool)[lane] & said.launches
    work = np.array([one.of_device for one in lanes], bool)[lane] & said.launches
    source, target = np.flatnonzero(calls), np.flatnonzero(work)
    source = source[np.argsort(said.correlation[source], kind="stable")]
    ids = said.correlation[source]
    at = np.searchsorted(ids, said.correlation[target])
    found = at < len(ids)
    found[found] = ids[at[found]] == said.correlation[target[found]]
    return source[at[found]], target[found]


def _book_arrows(reading: Reading, flows: Flows, drawn: int, build: TraceBuilder) -> None:
    """Account for the ends of arrows in the file, of which ``drawn`` arrows were made."""
    phase = np.array(reading.tables.shapes.phase, "U1")[flows.shape]
    heads = int((phase != "s").sum())
    build.seen("flow", max(heads - drawn, 0))
    build.skip("flow-unbound", "no launching call", max(heads - drawn, 0), "flow")
    build.skip("decoration-skipped", "calls that launch nothing", len(flows) - heads - drawn)


def _memory(said: Said, rows: Rows, build: TraceBuilder) -> None:
    for batch, places, allocated, reserved in said.memory:
        memory(build, rows.start[batch], places, allocated, reserved)


def _book_times(starts: Starts, rows: Rows, build: TraceBuilder) -> None:
    coarse = int((starts.kept & (rows.start % US == 0)).sum())
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
