"""The framework's side of the host: operators, the work queue between its threads, call stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.model import I32, I64, Layer, OpClass
from traceconv.readers import _ascend_ops as ops
from traceconv.readers._argtable import quoted
from traceconv.readers._ascend_db_codes import Value, combined, factored, number, shared, text
from traceconv.readers._ascend_db_export import TIMES, Export
from traceconv.readers._ascend_db_host import threads
from traceconv.readers._sqlite import Column

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
