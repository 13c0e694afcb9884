"""Which files of a generation A folder are read for events, and how their clocks hang together.

Three clocks are about. The counter of the device, in ticks of 10 ns or as ms or us of it: the
step table, the operators and the AI CPU's. The display file shows the same rows, counted from the
first of them; ``min_cycle_counter`` says what that one's stamp was, else the first operator of
both files does. The host's Unix time: ``host_info``, and the display files of GPU. Nothing ties
the last to the others, so that of host and device only the device is shown if both are there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from traceconv.clock import Anchor, Domain, to_ns
from traceconv.errors import ClockError, Issues
from traceconv.readers._ascend_identity import is_unix
from traceconv.readers._ascend_parts import UNIX_NS
from traceconv.readers._mindspore_files import Kind, Part, Place, present
from traceconv.source import Source

TICK_NS = 10
"""Of the device's counter."""

COUNTER = Anchor(Domain.RELATIVE, evidence="counter of the device, 10 ns a tick")
FROM_FIRST = Anchor(Domain.RELATIVE, evidence="stamps count from the first event")
UNIX = Anchor(Domain.UNIX, evidence="Unix time stamps")
STEADY = Anchor(Domain.MONOTONIC, evidence="ms of the host's steady clock")

_PREFERENCE = ("ascend_", None, "gpu_")
_DISPLAY = re.compile(r"(ascend_|gpu_)?timeline_display")
_HOST_STAMP = re.compile(rb";[^;\n]*;(\d+),")
_DECODER = json.JSONDecoder(parse_float=str)

Choice = tuple[list[Part], Anchor | None, int]
"""Parts in reading order, their clock, and what is added to the stamps of the display file."""


def choose(source: Source, place: Place, issues: Issues) -> Choice:
    """What to read of one rank's files.

    Issues: superseded-export, repeated-content, truncated, unused-file.
    """
    parts, clock, offset_ns = _device(source, place, issues)
    records = present(source, place.of(Kind.HOST_INFO))
    cut = [name for name in records if b"\n" not in source.head(name)]
    _book(source, issues, "truncated", [Part(Kind.HOST_INFO, n) for n in cut], "line 1")
    host = [Part(Kind.HOST_INFO, name) for name in records if name not in cut][:1]
    if not host:  # both were made of the records
        host = [Part(Kind.HOST_TIMELINE, name) for name in place.of(Kind.HOST_TIMELINE)]
        host += [Part(Kind.HOST_MEMORY, name) for name in place.of(Kind.HOST_MEMORY)]
    if clock is not None and clock.domain is not Domain.UNIX:
        _book(source, issues, "unused-file", host, "its clock is not that of the device")
        return parts, clock, offset_ns
    parts += host
    if not parts:
        parts = [Part(Kind.QUEUE, name) for name in present(source, place.of(Kind.QUEUE))]
        return parts, STEADY if parts else None, 0
    return parts, clock or UNIX, offset_ns


def _device(source: Source, place: Place, issues: Issues) -> Choice:
    """The display file, and what its tables have and it has not; else the tables."""
    displays = place.of(Kind.DISPLAY)
    displays.sort(key=lambda n: (n not in present(source, [n]), _PREFERENCE.index(_maker(n))))
    _book(source, issues, "superseded-export", [Part(Kind.DISPLAY, n) for n in displays[1:]])
    tables = [
        Part(kind, name)
        for kind in (Kind.OPERATORS, Kind.AI_CPU, Kind.STEPS)
        for name in present(source, place.of(kind))[:1]
    ]
    calls = [Part(Kind.HOST_OPERATORS, n) for n in present(source, place.of(Kind.HOST_OPERATORS))]
    if not displays:
        if tables:
            return tables + calls, COUNTER, 0
        unix = bool(calls) and _host_stamp(source, calls[0].name) > UNIX_NS
        clock = UNIX if unix else Anchor(Domain.MONOTONIC, evidence="ns of the host's clock")
        return calls, clock if calls else None, 0
    display = Part(Kind.DISPLAY, displays[0])
    _book(source, issues, "repeated-content", calls)
    if is_unix(source.head(display.name), otherwise=False):
        _book(source, issues, "unused-file", tables, "its clock is not that of the display file")
        return [display], UNIX, 0
    offset = _offset(source, display.name, place.names) if tables else None
    if offset is None:
        _book(source, issues, "unused-file", tables, "nothing ties its clock to the display file")
        return [display], FROM_FIRST, 0
    return [display, *tables], COUNTER, offset


def _book(source: Source, issues: Issues, code: str, parts: Iterable[Part], why: str = "") -> None:
    for part in parts:
        issues.add(code, source.title(part.name), why)


def _maker(name: str) -> str | None:
    match = _DISPLAY.match(PurePosixPath(name).name)
    return match[1] if match else None


def _host_stamp(source: Source, name: str) -> int:
    match = _HOST_STAMP.search(source.head(name))
    return int(match[1][:19]) if match else 0


def _offset(source: Source, display: str, names: Sequence[str]) -> int | None:
    """Nanoseconds of the counter at the display file's zero; None if nothing says."""
    found: list[int | None] = [None]
    for name in names:
        base = PurePosixPath(name).name
        if base.startswith("output_timeline_data_"):
            found.insert(0, _first_operator(source.head(name), source.head(display)))
        elif base.startswith("min_cycle_counter_"):
            found.append(_ticks(source.head(name, 64)))
    return next((offset for offset in found if offset is not None), None)


def _ticks(text: bytes) -> int | None:
    try:
        return to_ns(text) * TICK_NS // 1000
    except ClockError:
        return None


def _first_operator(table: bytes, display: bytes) -> int | None:
    """The difference between the stamps of one operator in both files."""
    lines = table.decode("utf-8", "replace").splitlines()[1:2]
    cells = lines[0].rsplit(",", 3) if lines else []
    if len(cells) != 4:
        return None
    for event in _slices(display.decode("utf-8", "replace")):
        args = event.get("args")
        if isinstance(args, dict) and args.get("fullname") == cells[0].strip():
            try:
                return to_ns(cells[2], "ms") - to_ns(str(event.get("ts")))
            except ClockError:
                return None
    return None


def _slices(text: str) -> Iterable[dict[str, Any]]:
    """The complete events at the start of an array."""
    at = text.find("[") + 1
    while at:
        at = text.find("{", at)
        if at < 0:
            return
        try:
            event, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield event
