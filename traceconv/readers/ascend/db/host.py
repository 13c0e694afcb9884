"""The host's side of a database: calls, operators, markers, and the flows that start at them.

A call of CANN and the tasks it launched have the same connection id. A row of the framework names
a set of such ids; what enters its queue and what leaves it name the same set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.model import I64, Mask
from traceconv.core.ordering import factored_rows, mapped
from traceconv.readers.ascend.db import event_tables as tables
from traceconv.readers.ascend.db.device import Connected, Tasks, connected
from traceconv.readers.ascend.db.export import Export, Placed
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.ascend_lanes import marked_steps
from traceconv.readers.shared.layouts import TableRows, add_rows

LAYERS = {
    "acl": "AscendCL", "model": "Model", "node": "Node", "hccl": "Hccl",
    "communication": "Communication", "runtime": "Runtime",
}  # fmt: skip
"""Prefixes of calls in the JSON export, by kind in ENUM_API_TYPE."""


def calls(export: Export) -> Connected:
    """Add the calls of CANN ("Node@launch")."""
    rows = export.threads(tables.CALLS)
    rows.names["level"] = export.database.texts("ENUM_API_TYPE", "id", "name")
    rows.names["string"] = export.strings

    def name(layer: str, call_name: str) -> Placed:
        return f"{LAYERS.get(layer, layer)}@{call_name}" if layer and call_name else call_name, {}

    rows.label("name", ("level", "string"), name)
    event = add_rows(export.build, tables.CALLS, rows)
    return Connected(rows["connection_id"][event >= 0], event[event >= 0])


def markers(export: Export) -> Connected:
    """Add the markers and ranges that the program made itself."""
    rows = export.threads(tables.MARKERS)
    rows.columns["category"] = np.where(rows["category"] < _NO_CATEGORY, rows["category"], -1)
    rows.names["event_type"] = export.enum("ENUM_MSTX_EVENT_TYPE", tables.EVENT_KINDS)
    event = add_rows(export.build, tables.MARKERS, rows)
    return Connected(rows["connection"][event >= 0], event[event >= 0])


_NO_CATEGORY = 4294967295

QUEUE = 50002
"""Kind of the rows that put work into the queue or take it out."""


@dataclass(frozen=True)
class Operators:
    """Rows of the framework as flows refer to them.

    Attributes:
        rows:    those with usable times; ``connection`` is an id of the table CONNECTION_IDS.
        event:   the event of each.
        queue:   those that put work into the queue, or take it out.
        dequeue: of these, those that take it out.
    """

    rows: TableRows
    event: I64
    queue: Mask
    dequeue: Mask


def operators(export: Export) -> Operators:
    """Add the rows of the framework; its step markers carry their number."""
    rows = export.threads(tables.FRAMEWORK)
    name, texts = rows["name"], export.strings
    step = marked_steps(rows)
    dequeue = mapped(name, lambda code: texts.get(code, "").startswith("Dequeue"), np.bool_)
    enqueue = mapped(name, lambda code: texts.get(code, "").startswith("Enqueue"), np.bool_)
    queue = (rows["type"] == QUEUE) | ((rows["type"] < 0) & (enqueue | dequeue))
    _unswap(export, rows)
    _add_stacks(export, rows)
    layout = structs.replace(tables.FRAMEWORK, title=export.framework)
    event = add_rows(export.build, layout, rows, step=step)
    good = event >= 0
    rows.keep("connection", "Sequence number", "Fwd thread id", "global", "start")
    return Operators(rows.take(good), event[good], queue[good], (queue & dequeue)[good])


def _unswap(export: Export, rows: TableRows) -> None:
    """Exchange shapes and types where a version has them the wrong way round: no shape has a
    letter."""

    def spells(code: int) -> bool:
        return any(char.isalpha() for char in export.strings.get(code, ""))

    shapes, types = rows["Input Dims"], rows["Input type"]
    table, codes = factored_rows(shapes, types)
    swapped = np.array(
        [spells(shape_code) and not spells(type_code) for shape_code, type_code in table], bool
    )[codes]
    rows.columns["Input Dims"] = np.where(swapped, types, shapes)
    rows.columns["Input type"] = np.where(swapped, shapes, types)


def _add_stacks(export: Export, rows: TableRows) -> None:
    """Add call stacks by their ids, innermost frame first."""
    requested = {"id": -1, "stack": -1, "stackDepth": 0}
    frames = export.database.columns("PYTORCH_CALLCHAINS", requested)
    order = np.lexsort((frames["stackDepth"], frames["id"]))
    stacks: dict[int, list[str]] = {}
    for chain, frame in zip(
        frames["id"][order].tolist(), frames["stack"][order].tolist(), strict=True
    ):
        stacks.setdefault(chain, []).append(export.strings.get(frame, ""))
    has_stack = np.isin(rows["Call stack"], list(stacks))
    rows.columns["Call stack"] = np.where(has_stack, rows["Call stack"], -1)
    rows.names["Call stack"] = {chain: ";\r\n".join(texts) for chain, texts in stacks.items()}


# -- flows ----------------------------------------------------------------------------------------


def flows(
    export: Export,
    tasks: Tasks,
    operations: Connected,
    calls: Connected,
    operators: Operators,
    markers: Connected,
) -> None:
    """Add all flows. They end at an operation, not at its tasks, and at subtasks, not at the task
    that only holds them."""
    of_task = tasks.rows["connection_id"]
    of_operation = np.isin(of_task, operations.connection) & ~tasks.launched
    is_target = connected(of_task) & ~of_operation & ~tasks.parent & ~tasks.mark
    called = connected(operations.connection)
    connection = np.concatenate((of_task[is_target], operations.connection[called]))
    event = np.concatenate((tasks.event[is_target], operations.event[called]))
    launched = np.concatenate((tasks.launched[is_target], called[called]))
    caller = lookup(calls.connection, connection)
    if len(calls.event):
        lost = int((launched & (caller < 0)).sum())
        export.build.lose("flow-without-end", "no launching call", lost, "flow")
    export.build.arrows("HostToDevice", picked(calls.event, caller), event)
    _add_framework(export, operators, connection, event)
    marked = of_task[tasks.mark]
    caller = lookup(markers.connection, marked)
    export.build.arrows("MsTx", picked(markers.event, caller), tasks.event[tasks.mark])


def _add_framework(export: Export, operators: Operators, connection: I64, event: I64) -> None:
    """Add flows from operators to their work, through the queue, and from forward to backward."""
    rows, ids = operators.rows, operators.rows["connection"]
    pairs = export.database.columns("CONNECTION_IDS", {"id": -1, "connectionId": -1})
    working = np.flatnonzero((ids >= 0) & ~operators.queue)
    owner = lookup(ids[working], pairs["id"])
    connections, owner = pairs["connectionId"][owner >= 0], working[owner[owner >= 0]]
    # a set of connections has one row per connection: from the set to its operator, and on
    positions = lookup(connections, connection)
    operator = picked(operators.event, picked(owner, positions))
    export.build.arrows("async_npu", operator, event)

    def first_connection(ids: I64) -> I64:
        return picked(pairs["connectionId"], lookup(pairs["id"], ids))

    enqueue = np.flatnonzero(operators.queue & ~operators.dequeue & (ids >= 0))
    dequeue = np.flatnonzero(operators.dequeue & (ids >= 0))
    entered, dequeued = first_connection(ids[enqueue]), first_connection(ids[dequeue])
    into = picked(enqueue, np.where(dequeued >= 0, lookup(entered, dequeued), -1))
    source = picked(operators.event, into)
    export.build.arrows("async_task_queue", source, operators.event[dequeue])

    forward = rows["Fwd thread id"]
    sequence = np.where(forward >= 0, rows["Sequence number"], -1)
    source, target = backward_pairs(sequence, forward > 0, rows["global"], rows["start"])
    export.build.arrows("fwdbwd", operators.event[source], operators.event[target])


def backward_pairs(
    sequence: I64, backward: NDArray[np.bool_], thread: I64, start_ns: I64
) -> tuple[I64, I64]:
    """Pairs of the innermost forward operator of a sequence number and the first backward one, if
    that runs on another thread: the flows of the JSON export.

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
    positions = lookup(sequence[forward], sequence[after])
    forward, after = forward[positions[positions >= 0]], after[positions >= 0]
    other_thread = thread[forward] != thread[after]
    return forward[other_thread], after[other_thread]
