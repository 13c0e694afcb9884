"""The host's side of a database: calls, operators, marks, and the arrows that start at them.

A call of CANN and the tasks it launched have the same connection id. A row of the framework names
a set of such ids; what enters its queue and what leaves it name the same set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, I64, Layer, OpClass
from traceconv.core.ordering import factored_rows
from traceconv.readers.ascend.db.device import Operations, Tasks, connected
from traceconv.readers.ascend.db.export import TIMES, Export
from traceconv.readers.shared.arguments import (
    Value,
    apart,
    label,
    lookup,
    number,
    quoted,
    shared,
    text,
    tracks,
)
from traceconv.readers.shared.ascend_lanes import host_named
from traceconv.readers.shared.sqlite.database import Column

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
    table, codes = factored_rows(rows["type"], rows["name"])
    unknown = np.array([name not in export.strings for _, name in table], bool)
    export.build.skip("missing-name", "table CANN_API", int(unknown[codes].sum()))
    names = []
    for kind, name in table:
        layer = kinds.get(kind, "")
        above = LAYERS.get(layer, layer)
        names.append(
            f"{above}@{export.strings.get(name, '')}" if above else export.strings.get(name, "")
        )
    return np.array([export.build.string(n) for n in names], np.int32), codes


def threads(export: Export, ids: I64, layer: Layer, title: str) -> I32:
    """The lane of the thread of every row, given global thread ids."""

    def track(thread: int) -> int:
        return export.thread_track(layer, thread, title)

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
    values, codes = np.unique(rows["name"], return_inverse=True)
    texts = [export.strings.get(v, "") for v in values.tolist()]
    marks = [host_named(name) for name in texts]
    steps = np.array([mark.step if mark else -1 for mark in marks], np.int32)
    dequeue = np.array([name.startswith("Dequeue") for name in texts], bool)[codes]
    enqueue = np.array([name.startswith("Enqueue") for name in texts], bool)[codes]
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
    table, codes = factored_rows(shapes, types)
    swapped = np.array([_is_swapped(export.strings, *row) for row in table], bool)[codes]
    string = text(export.strings)
    return shared(
        export.build,
        {
            "Sequence number": (rows["sequenceNumber"], number),
            "Fwd thread id": (rows["fwdThreadId"], number),
            "Input Dims": (np.where(swapped, types, shapes), string),
            "Input type": (np.where(swapped, shapes, types), string),
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
        texts = [export.strings.get(i, "") for i in frames[first:stop].tolist()]
        return quoted(";\r\n".join(texts)) if chain >= 0 and texts else b""

    return value


# -- launch arrows --------------------------------------------------------------------------------


def arrows(
    export: Export,
    tasks: Tasks,
    operations: Operations,
    calls: Calls,
    operators: Operators,
    marks: Calls,
) -> None:
    """Draw all arrows."""
    connection, row, meant = _arrow_targets(tasks, operations)
    caller = lookup(calls.connection, connection)
    if len(calls.row):
        export.build.seen("flow", int((meant & (caller < 0)).sum()))
        export.build.skip(
            "flow-without-end", "no launching call", int((meant & (caller < 0)).sum()), "flow"
        )
    _draw(export, "HostToDevice", calls.row, caller, row)
    _framework_arrows(export, operators, connection, row)
    marked = tasks.columns["connectionId"][tasks.mark]
    _draw(export, "MsTx", marks.row, lookup(marks.connection, marked), tasks.row[tasks.mark])


def _arrow_targets(tasks: Tasks, operations: Operations) -> tuple[I64, I64, NDArray[np.bool_]]:
    """Connections and events arrows may lead to, and whether one must.

    Arrows end at an operation, not at its tasks, and at subtasks, not at the task that only
    holds them.
    """
    connection = tasks.columns["connectionId"]
    whole = np.isin(connection, operations.connection) & ~tasks.launched
    kept = connected(connection) & ~whole & ~tasks.parent & ~tasks.mark
    called = connected(operations.connection)
    return (
        np.concatenate((connection[kept], operations.connection[called])),
        np.concatenate((tasks.row[kept], operations.row[called])),
        np.concatenate((tasks.launched[kept], called[called])),
    )


def _draw(export: Export, name: str, sources: I64, source: I64, target: I64) -> None:
    """Arrows to ``target`` from ``sources[source]``; none where ``source`` is -1."""
    found = source >= 0
    export.build.seen("flow", int(found.sum()))
    if found.any():
        export.build.flows(
            src=sources[source[found]], dst=target[found], name=export.build.string(name)
        )


def _framework_arrows(export: Export, operators: Operators, connection: I64, row: I64) -> None:
    ids = operators.columns["connectionId"]
    pairs = export.database.columns("CONNECTION_IDS", {"id": -1, "connectionId": -1})
    working = np.flatnonzero((ids >= 0) & ~operators.queue)
    owner = lookup(ids[working], pairs["id"])
    theirs, owner = pairs["connectionId"][owner >= 0], working[owner[owner >= 0]]
    # a set of connections has one row per connection: from the set to its operator, and on
    at = lookup(theirs, connection)
    operator = owner[np.maximum(at, 0)] if len(owner) else at
    _draw(export, "async_npu", operators.row, np.where(at >= 0, operator, -1), row)
    _queue_arrows(export, operators, pairs)
    _backward_arrows(export, operators)


def _queue_arrows(export: Export, operators: Operators, pairs: dict[str, I64]) -> None:
    """From what put work into the queue to what took it out."""
    ids = operators.columns["connectionId"]
    enqueue = np.flatnonzero(operators.queue & ~operators.dequeue & (ids >= 0))
    dequeue = np.flatnonzero(operators.dequeue & (ids >= 0))
    entered, left = _first_connection(pairs, ids[enqueue]), _first_connection(pairs, ids[dequeue])
    at = lookup(entered, left)
    source = np.where(
        (at >= 0) & (left >= 0), enqueue[np.maximum(at, 0)] if len(enqueue) else -1, -1
    )
    _draw(export, "async_task_queue", operators.row, source, operators.row[dequeue])


def _first_connection(pairs: dict[str, I64], ids: I64) -> I64:
    """The first connection of each set; -1 for unknown sets."""
    at = lookup(pairs["id"], ids)
    return np.where(at >= 0, pairs["connectionId"][at], -1) if len(pairs["id"]) else at


def _backward_arrows(export: Export, operators: Operators) -> None:
    columns = operators.columns
    forward = columns["fwdThreadId"]
    sequence = np.where(forward >= 0, columns["sequenceNumber"], -1)
    source, target = backward_pairs(sequence, forward > 0, columns["globalTid"], columns["startNs"])
    _draw(export, "fwdbwd", operators.row, source, operators.row[target])


def backward_pairs(
    sequence: I64, backward: NDArray[np.bool_], thread: I64, start_ns: I64
) -> tuple[I64, I64]:
    """From the innermost forward operator of a sequence number to the first backward one, if
    that runs on another thread: the arrows of the JSON export.

    Args:
        sequence: of each operator; -1 for none.
        backward: which are backward operators.

    Returns:
        Rows of the forward and of the backward operators.
    """
    order = np.lexsort((start_ns, sequence))
    order = order[sequence[order] >= 0]
    # of a sequence number, lookup finds the first in this order: the forward one started last
    forward, after = order[~backward[order]][::-1], order[backward[order]]
    after = after[np.unique(sequence[after], return_index=True)[1]]
    at = lookup(sequence[forward], sequence[after])
    forward, after = forward[at[at >= 0]], after[at >= 0]
    apart = thread[forward] != thread[after]
    return forward[apart], after[apart]
