"""Launch arrows: who asked for what, by the ids of connections.

A call of CANN and the tasks it launched have the same id. A row of the framework names a set of
such ids; what enters its queue and what leaves it name the same set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64
from traceconv.readers.ascend.db.communication import Operations
from traceconv.readers.ascend.db.export import Export
from traceconv.readers.ascend.db.host import Calls, Operators
from traceconv.readers.ascend.db.tasks import Tasks, connected
from traceconv.readers.shared.arguments import lookup


def arrows(
    export: Export,
    tasks: Tasks,
    operations: Operations,
    calls: Calls,
    operators: Operators,
    marks: Calls,
) -> None:
    """Draw all arrows."""
    connection, row, meant = _targets(tasks, operations)
    caller = lookup(calls.connection, connection)
    if len(calls.row):
        export.build.seen("flow", int((meant & (caller < 0)).sum()))
        export.build.skip(
            "flow-unbound", "no launching call", int((meant & (caller < 0)).sum()), "flow"
        )
    _draw(export, "HostToDevice", calls.row, caller, row)
    _framework(export, operators, connection, row)
    told = tasks.columns["connectionId"][tasks.mark]
    _draw(export, "MsTx", marks.row, lookup(marks.connection, told), tasks.row[tasks.mark])


def _targets(tasks: Tasks, operations: Operations) -> tuple[I64, I64, NDArray[np.bool_]]:
    """Connections and events arrows may lead to, and whether one must.

    An operation stands for its tasks, subtasks for a task that only holds them.
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


def _framework(export: Export, operators: Operators, connection: I64, row: I64) -> None:
    ids = operators.columns["connectionId"]
    pairs = export.database.columns("CONNECTION_IDS", {"id": -1, "connectionId": -1})
    working = np.flatnonzero((ids >= 0) & ~operators.queue)
    owner = lookup(ids[working], pairs["id"])
    theirs, owner = pairs["connectionId"][owner >= 0], working[owner[owner >= 0]]
    at = lookup(theirs, connection)
    operator = owner[np.maximum(at, 0)] if len(owner) else at
    _draw(export, "async_npu", operators.row, np.where(at >= 0, operator, -1), row)
    _queue(export, operators, pairs)
    _backward(export, operators)


def _queue(export: Export, operators: Operators, pairs: dict[str, I64]) -> None:
    """From what put work into the queue to what took it out."""
    ids = operators.columns["connectionId"]
    enqueue = np.flatnonzero(operators.queue & ~operators.dequeue & (ids >= 0))
    dequeue = np.flatnonzero(operators.dequeue & (ids >= 0))
    entered, left = _first(pairs, ids[enqueue]), _first(pairs, ids[dequeue])
    at = lookup(entered, left)
    source = np.where(
        (at >= 0) & (left >= 0), enqueue[np.maximum(at, 0)] if len(enqueue) else -1, -1
    )
    _draw(export, "async_task_queue", operators.row, source, operators.row[dequeue])


def _first(pairs: dict[str, I64], ids: I64) -> I64:
    """The first connection of each set; -1 for unknown sets."""
    at = lookup(pairs["id"], ids)
    return np.where(at >= 0, pairs["connectionId"][at], -1) if len(pairs["id"]) else at


def _backward(export: Export, operators: Operators) -> None:
    """From the innermost forward operator of a sequence number to the first backward one, if
    that runs on another thread: so the JSON export has it.
    """
    columns = operators.columns
    sequence, start = columns["sequenceNumber"], columns["startNs"]
    numbered = np.flatnonzero((sequence >= 0) & (columns["fwdThreadId"] >= 0))
    order = numbered[np.lexsort((start[numbered], sequence[numbered]))]
    backward = columns["fwdThreadId"][order] > 0
    forward, after = order[~backward][::-1], order[backward]
    after = after[np.unique(sequence[after], return_index=True)[1]]
    at = lookup(sequence[forward], sequence[after])
    source = np.where(at >= 0, forward[np.maximum(at, 0)] if len(forward) else -1, -1)
    threads = columns["globalTid"]
    apart = threads[np.maximum(source, 0)] != threads[after] if len(threads) else source >= 0
    _draw(export, "fwdbwd", operators.row, np.where(apart, source, -1), operators.row[after])
