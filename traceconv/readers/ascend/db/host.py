"""The framework's side of the host: operators, the work queue between its threads, call stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64, Layer, OpClass
from traceconv.readers.ascend.db.export import TIMES, Export
from traceconv.readers.shared import ascend_lanes as ops
from traceconv.readers.shared.arguments import (
    Value,
    apart,
    combined,
    factored,
    label,
    number,
    quoted,
    shared,
    text,
    tracks,
)
from traceconv.readers.shared.sqlite.database import Column

# The host's side but for the framework: calls of CANN and of the system, marks, garbage.

LAYERS = {
    "acl": "AscendCL", "model": "Model", "node": "Node", "hccl": "Hccl",
    "communication": "Communication", "runtime": "Runtime",
}  # fmt: skip
"""What the JSON export puts before the name of a call, by kind in ENUM_API_TYPE."""

EVENT_KINDS = {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"}


@dataclass(frozen=True)
class Calls:
    """Rows of the host as arrows refer to them: connections, and the event of each."""

    connection: I64
    row: I64


def calls(export: Export) -> Calls:
    """Calls of CANN, on their threads."""
    wanted = {**TIMES, "type": -1, "globalTid": 0, "connectionId": -1, "name": -1}
    rows, dur = export.timed(export.database.columns("CANN_API", wanted), "CANN_API")
    kinds = export.database.texts("ENUM_API_TYPE", "id", "name")
    names, codes = _call_names(export, rows, kinds)
    args = apart(
        export.build,
        {"connection_id": rows["connectionId"]},
        {
            "Thread Id": (rows["globalTid"] & 0xFFFFFFFF, number),
            "level": (rows["type"], label(kinds)),
        },
    )
    first = export.build.extend(
        track=threads(export, rows["globalTid"], Layer.RUNTIME, "CANN"),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=names[codes],
        op=OpClass.HOST,
        args=args,
    )
    return Calls(rows["connectionId"], np.arange(first, first + len(dur)))


def _call_names(
    export: Export, rows: Mapping[str, Column], kinds: Mapping[int, str]
) -> tuple[I32, I64]:
    """Names ("Node@launch") and, for every row, which of them is its."""
    codes, table = combined(rows["type"], rows["name"])
    unknown = np.array([name not in export.strings for _, name in table], bool)
    export.build.skip("missing-name", "table CANN_API", int(unknown[codes].sum()))
    names = []
    for kind, name in table:
        said = kinds.get(kind, "")
        above = LAYERS.get(said, said)
        names.append(
            f"{above}@{export.strings.get(name, '')}" if above else export.strings.get(name, "")
        )
    return np.array([export.build.string(n) for n in names], np.int32), codes


def threads(export: Export, ids: I64, layer: Layer, title: str) -> I32:
    """The lane of the thread of every row, given global thread ids."""

    def track(thread: int) -> int:
        name = f"Thread {thread & 0xFFFFFFFF}"
        return export.build.track(layer, name, export.process(thread), title)

    return tracks((ids,), track)


def marks(export: Export) -> Calls:
    """Marks and ranges the program made itself."""
    table = "MSTX_EVENTS"
    wanted = {
        **TIMES, "eventType": -1, "message": -1, "globalTid": 0, "domainId": -1,
        "connectionId": -1, "category": -1,
    }  # fmt: skip
    rows, dur = export.timed(export.database.columns(table, wanted), table)
    kinds = export.enum("ENUM_MSTX_EVENT_TYPE", EVENT_KINDS)
    args = shared(
        export.build,
        {
            "event_type": (rows["eventType"], label(kinds)),
            "domain": (rows["domainId"], text(export.strings)),
        },
    )
    first = export.build.extend(
        track=threads(export, rows["globalTid"], Layer.HOST, "PID Name"),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=export.names(rows["message"], table),
        op=OpClass.HOST,
        args=args,
    )
    return Calls(rows["connectionId"], np.arange(first, first + len(dur)))


def others(export: Export) -> None:
    """Calls into the operating system, and collections of Python's garbage."""
    for table, layer, title in (
        ("OSRT_API", Layer.RUNTIME, "OS Runtime API"),
        ("GC_RECORD", Layer.HOST, "Python GC"),
    ):
        wanted = {**TIMES, "globalTid": 0, "name": -1}
        rows, dur = export.timed(export.database.columns(table, wanted), table)
        if not len(dur):
            continue
        named = export.database.has(table, "name")
        export.build.extend(
            track=threads(export, rows["globalTid"], layer, title),
            start_ns=rows["startNs"],
            dur_ns=dur,
            name=export.names(rows["name"], table) if named else export.build.string("GC"),
            op=OpClass.HOST,
        )


QUEUE = 50002
"""Kind of the rows that put work into the queue or take it out."""


@dataclass(frozen=True)
class Operators:
    """Rows of the framework as arrows refer to them.

    Attributes:
        columns: those of PYTORCH_API, usable rows only; ``connectionId`` is an id of the table
            CONNECTION_IDS, -1 if there is none.
        row:     the event of each.
        queue:   those that put work into the queue, or take it out.
        dequeue: of these, those that take it out.
    """

    columns: dict[str, Column]
    row: I64
    queue: NDArray[np.bool_]
    dequeue: NDArray[np.bool_]


_OPERATOR = {
    **TIMES, "globalTid": 0, "connectionId": -1, "name": -1, "sequenceNumber": -1,
    "fwdThreadId": -1, "inputDtypes": -1, "inputShapes": -1, "callchainId": -1, "type": -1,
}  # fmt: skip


def operators(export: Export) -> Operators:
    """Rows of the framework, on their threads; its step marks carry their number."""
    table = "PYTORCH_API"
    rows, dur = export.timed(export.database.columns(table, _OPERATOR), table)
    values, codes = factored(rows["name"])
    said = [export.strings.get(v, "") for v in values.tolist()]
    marks = [ops.host_named(name) for name in said]
    steps = np.array([mark.step if mark else -1 for mark in marks], np.int32)
    dequeue = np.array([name.startswith("Dequeue") for name in said], bool)[codes]
    enqueue = np.array([name.startswith("Enqueue") for name in said], bool)[codes]
    queue = (rows["type"] == QUEUE) | ((rows["type"] < 0) & (enqueue | dequeue))
    first = export.build.extend(
        track=threads(export, rows["globalTid"], Layer.HOST, export.framework),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=export.names(rows["name"], table),
        op=OpClass.HOST,
        step=steps[codes],
        args=_arguments(export, rows),
    )
    return Operators(rows, np.arange(first, first + len(dur)), queue, queue & dequeue)


def _arguments(export: Export, rows: Mapping[str, Column]) -> I32:
    """Members under the keys of the JSON export. Some versions have shapes and types the wrong
    way round; what spells no letter is a shape.
    """
    shapes, types = rows["inputShapes"], rows["inputDtypes"]
    codes, table = combined(shapes, types)
    swapped = np.array([_is_swapped(export.strings, *row) for row in table], bool)[codes]
    said = text(export.strings)
    return shared(
        export.build,
        {
            "Sequence number": (rows["sequenceNumber"], number),
            "Fwd thread id": (rows["fwdThreadId"], number),
            "Input Dims": (np.where(swapped, types, shapes), said),
            "Input type": (np.where(swapped, shapes, types), said),
            "Call stack": (rows["callchainId"], _stacks(export)),
        },
    )


def _is_swapped(strings: Mapping[int, str], shapes: int, types: int) -> bool:
    def spells(code: int) -> bool:
        return any(char.isalpha() for char in strings.get(code, ""))

    return spells(shapes) and not spells(types)


def _stacks(export: Export) -> Value:
    """The call stack of an id, innermost frame first."""
    wanted = {"id": -1, "stack": -1, "stackDepth": 0}
    rows = export.database.columns("PYTORCH_CALLCHAINS", wanted)
    order = np.lexsort((rows["stackDepth"], rows["id"]))
    ids, frames = rows["id"][order], rows["stack"][order]

    def value(chain: int) -> bytes:
        first, stop = np.searchsorted(ids, [chain, chain + 1])
        said = [export.strings.get(i, "") for i in frames[first:stop].tolist()]
        return quoted(";\r\n".join(said)) if chain >= 0 and said else b""

    return value
