"""Device tasks with the names, launches and communication that the host recorded.

A task number wraps, and in graph mode a task runs many times after one launch. So a task belongs
to the latest launch of its stream and number before it began, within the same wrap if the
scheduler's log counts wraps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Layer, OpClass
from traceconv.core.ordering import combined_key, mapped
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.readers.ascend.db.device import communicators
from traceconv.readers.ascend.raw.clock import Clock
from traceconv.readers.ascend.raw.host_launches import ARGUMENTS
from traceconv.readers.ascend.raw.scheduler_logs import NO_CONTEXT, Flips, Tasks, kind_name
from traceconv.readers.shared.arguments import picked
from traceconv.readers.shared.ascend_lanes import Communicator
from traceconv.readers.shared.ascend_tasks import OPERATORS, UNNAMED
from traceconv.readers.shared.layouts import (
    CLASS_COLUMN,
    RowLayout,
    Shown,
    TableRows,
    add_rows,
)
from traceconv.readers.shared.pairing import latest, occurrences

# -- text of old captures: operators, and the logs of AI CPU and data queue ----------------------

_TASK = lazy_regex(r"^(\S.*?) (\d{1,9}) (\d{1,9}) (\d{1,9})\s*$", re.MULTILINE)
_POINT = lazy_regex(r"^(\d{1,9}) (\S.*)$", re.MULTILINE)
_OPERATOR = lazy_regex(r"^op_name:(\S+) op_type:(\S+)", re.MULTILINE)

_NODE = (
    r"\[\s*\d+\s*\]\s*Node:(?P<node>[^,\0]*), Run s?tart:\s*(?P<began>\d{1,18})"
    r"[^\0]*?,\s*Run end:\s*(?P<ended>\d{1,18})"
)
_DONE = (
    r"Thread\[\s*(?P<thread>\d{1,9})\s*\][^\0]*?task end,"
    r"[^\0]*?tickBeforeRun=(?P<first>\d{1,18}),\s*tickAfterRun=(?P<last>\d{1,18}),"
    r"\s*dispatchTime=(?P<dispatch>\d{1,12}) us,\s*totalTime=(?P<total>\d{1,12}) us"
)
_SENTENCE = lazy_regex(f"{_NODE}|{_DONE}")
SENTENCE_END = "\0"

_QUEUED = lazy_regex(
    r"\[\s*(?P<us>\d{1,13})\s*\]\s*(?P<action>\w+ data (?:to|from) (?P<queue>[^,\0]{1,200})),\s*"
    r"source:\s*+(?P<source>[^,\0]*),\s*index:\s*(?P<index>\d{1,18}),\s*size:\s*(?P<size>\d{1,15})"
)
_BLANK = lazy_regex(r"(?<!\s)\s++(?=\[\s*\d+\s*\]\s*Node:|Thread\[)|(?<=us)\.?\s*+\Z")
_SUFFIX = lazy_regex(r"-op\d+\Z")


@dataclass(frozen=True)
class Operators:
    """Operators in the framework's text, by task number.

    Attributes:
        name: operators.
        kind: their types.
        blocks: of their tasks.
    """

    name: Mapping[int, str]
    kind: Mapping[str, str]
    blocks: Mapping[int, int]


def operators(tasks: str, graph: str) -> Operators:
    """The operators of ``task_desc_info``, with their types from ``graph_desc_info``.

    A task's logical stream is stated, too, but the device logs another number.
    """
    descriptions = _TASK.findall(tasks)
    kinds = dict(_OPERATOR.findall(graph))
    names = {int(task): name for name, _, task, _ in descriptions}
    return Operators(names, kinds, {int(task): int(blocks) for _, blocks, task, _ in descriptions})


def points(text: str) -> dict[int, str]:
    """The operators next to the step markers, by the tag of the marker."""
    return {int(tag): name.rstrip() for tag, name in _POINT.findall(text)}


# -- the AI CPU ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AiCpu:
    """Tasks of the AI CPU in the order of the log.

    Attributes:
        node: operators; "" where no sentence names them.
        began, ended: microseconds of the AI CPU's clock; -1 for unknown.
        first, last: ticks of the device before and after the run.
        dispatch, total: microseconds.
    """

    node: tuple[str, ...]
    began: I64
    ended: I64
    first: I64
    last: I64
    dispatch: I64
    total: I64
    thread: I64

    def side_table(self) -> Columns:
        """The columns of the profiler's own table of it; times are nanoseconds."""
        return {
            "node_type_name": np.array(
                [_SUFFIX.sub("", n.rpartition("/")[2]) for n in self.node], object
            ),
            "total_time(ms)": self.total * 1000,
            "dispatch_time(ms)": self.dispatch * 1000,
            "run_start": np.where(self.began < 0, ABSENT, self.began),
            "run_end": np.where(self.ended < 0, ABSENT, self.ended),
        }


def ended(text: str) -> str:
    """An AI CPU log whose sentences are separated by blanks, each with ``SENTENCE_END``."""
    return _BLANK.sub(SENTENCE_END, text)


def ai_cpu(text: str) -> AiCpu:
    """The sentences of an AI CPU log: the operator's and the scheduler's alternate and belong
    together; either can be missing.
    """
    rows: list[tuple[str, ...]] = []
    unknown = ("", "-1", "-1")
    node: tuple[str, ...] = unknown
    for match in _SENTENCE.finditer(text):
        cells = match.groups()
        if match["node"] is not None:
            node = cells[:3]
        else:
            rows.append((*node, *cells[3:]))
            node = unknown
    nodes = tuple(row[0].strip() for row in rows)
    numbers = np.array([[int(v) for v in row[1:]] for row in rows], np.int64).reshape(-1, 7)
    began, ended, thread, first, last, dispatch, total = numbers.T
    return AiCpu(nodes, began, ended, first, last, dispatch, total, thread)


@dataclass(frozen=True)
class DataQueue:
    """Data that passed the queues of a device, in the order of the log.

    Attributes:
        us:     microseconds of the device's counter.
        queue:  names.
        action, source: as in the log ("Enqueue data to dp").
        index:  number of the data in its source.
        size:   data in the queue then.
        unread: sentences of another form.
    """

    us: I64
    queue: tuple[str, ...]
    action: tuple[str, ...]
    source: tuple[str, ...]
    index: I64
    size: I64
    unread: int

    def ticks(self, tick_ns: Fraction) -> I64:
        """The counter's ticks."""
        periods, remainder = np.divmod(self.us * 1000, tick_ns.numerator)
        counter_ticks: I64 = (
            periods * tick_ns.denominator + remainder * tick_ns.denominator // tick_ns.numerator
        )
        return counter_ticks

    def side_table(self, time_ns: I64) -> Columns:
        """The columns of the profiler's own table of it (``dp``).

        Args:
            time_ns: of each row, -1 for none.
        """
        return {
            "Timestamp(us)": np.where(time_ns < 0, ABSENT, time_ns),
            "Action": np.array(self.action, object),
            "Source": np.array(self.source, object),
            "Index": self.index,
            "Cached Buffer Size": self.size,
        }


def data_queue(text: str) -> DataQueue:
    """The sentences of a log of the data queue, each with ``SENTENCE_END``."""
    matches = [
        _QUEUED.search(sentence) for sentence in text.split(SENTENCE_END) if sentence.strip()
    ]
    rows = [match.groups() for match in matches if match]
    us, action, queue, source, index, size = zip(*rows, strict=True) if rows else [()] * 6
    return DataQueue(
        *(np.array(us, np.int64), queue, action, source),
        np.array(index, np.int64),
        np.array(size, np.int64),
        len(matches) - len(rows),
    )


_HARDWARE = RowLayout(
    end="end", name=Shown("shown"), layer=Layer.DEVICE, title="Ascend Hardware",
    track={"device_kind": "NPU"},
)  # fmt: skip
AI_CPU = structs.replace(
    _HARDWARE, lane=Shown(absent="AI CPU"), track={"device_kind": "NPU", "sort": 1},
    op=OpClass.OTHER, args=("Thread Id", "Dispatch Time(us)", "Total Time(us)"),
)  # fmt: skip
TASKS = structs.replace(
    _HARDWARE, op=CLASS_COLUMN,
    lane=Shown("Physic Stream Id", "Stream {}", absent="Tasks of unknown streams", of="stream"),
    args=("Task Id", "Task Type", "Physic Stream Id", "Subtask Id", *ARGUMENTS),
)  # fmt: skip
PARTS = structs.replace(
    TASKS, layer=Layer.COMM, title="Communication", lane=Shown("plane", "Plane {}"),
    group=Shown("communicator"), track={"device_kind": "NPU", "sort": 1}, op=OpClass.COMM_TASK,
)  # fmt: skip
COLLECTIVES = structs.replace(
    PARTS, name=Shown("operator"), lane=Shown("lane"), track={"device_kind": "NPU"},
    op=OpClass.COMM, args=(),
)  # fmt: skip


def put_ai_cpu(build: TraceBuilder, runs: AiCpu, clock: Clock) -> None:
    """Add the runs of the AI CPU on their own track; the tasks of streams are what computes."""
    columns = {
        "start": clock.device_ns(runs.first), "end": clock.device_ns(runs.last),
        "Thread Id": runs.thread, "Dispatch Time(us)": runs.dispatch,
        "Total Time(us)": runs.total,
    }  # fmt: skip
    rows = TableRows(columns, "", len(runs.node))
    rows.coded("shown", [node or "AI CPU task" for node in runs.node])
    add_rows(build, AI_CPU, rows)


_SKEW_NS = 20_000
"""How far the clocks of host and device may disagree; no number is used again within that time."""


def wraps(tasks: Tasks, flips: Flips) -> I64:
    """How often the task numbers of its stream had started anew when each task began; -1 for
    streams that log no wraps.
    """
    # one numbering of streams for both, so that their keys can be compared
    key = combined_key(np.concatenate((flips.stream, tasks.stream)))
    flip_keys, task_keys = key[: len(flips.stream)], key[len(flips.stream) :]
    last_flip = latest(flip_keys, flips.time, task_keys, tasks.start)
    if not len(flip_keys):
        return last_flip
    n_wraps = flips.number[last_flip]
    before = (last_flip >= 0) & (flips.time[last_flip] > tasks.start)  # ahead of the first wrap
    return np.where(last_flip >= 0, np.where(before, n_wraps - 1, n_wraps), -1)


def launches(tasks: Tasks, start_ns: I64, batch: I64, host: TableRows, chip_6: bool) -> I64:
    """The row of ``host`` that launched each task; -1 where none is known.

    Args:
        batch:  of each task, see :func:`wraps`.
        chip_6: tasks have one long number and no stream.
    """
    until = start_ns + _SKEW_NS
    number = host["batch"] << 16 | host["task"] if chip_6 else host["task"]
    stream = np.zeros_like(host["stream"]) if chip_6 else host["stream"]
    task_streams = np.where(tasks.stream < 0, 0, tasks.stream)
    no_context = np.full(len(tasks), NO_CONTEXT, np.int64)
    launch_rows = np.full(len(tasks), -1, np.int64)
    # from the least to the most certain: what agrees in more columns replaces what was found
    for context in (
        no_context,
        tasks.context,
    ):  # for a subtask there may be a record of its task only
        pairs = [(stream, task_streams), (number, tasks.task), (host["context"], context)]
        for keys in (pairs, [*pairs, (host["batch"], batch)]):
            key = combined_key(*(np.concatenate(pair) for pair in keys))
            row = latest(key[: len(host)], host["start"], key[len(host) :], until)
            launch_rows = np.where(row >= 0, row, launch_rows)
    return launch_rows


# -- what tasks are -----------------------------------------------------------------------


def described(
    tasks: Tasks, start_ns: I64, end_ns: I64, launch: I64, host: TableRows | None,
    operators: Operators,
) -> TableRows:  # fmt: skip
    """Tasks with names, classes and arguments: by their launch, else by the framework's text, else
    by kind.

    If any operators are known, a task without one does not compute.
    """
    columns = {
        "start": start_ns, "end": end_ns, "Task Id": tasks.task, "Subtask Id": tasks.context,
        "own kind": tasks.kind,
    }  # fmt: skip
    rows = TableRows(columns, "tasks", len(tasks))
    kinds = np.unique(tasks.kind).tolist()
    rows.names["own kind"] = {kind: kind_name(kind) for kind in kinds}
    in_text = np.where(np.isin(tasks.task, list(operators.name)), tasks.task, -1)
    rows.columns["in text"], rows.names["in text"] = in_text, dict(operators.name)
    for field in ("name", "kind", "unit", "part"):
        rows.names[field] = {}
    if host is None:
        kind = {task: operators.kind.get(name, "") for task, name in operators.name.items()}
        typed = [task for task, text in kind.items() if text not in ("", "N/A")]
        rows.columns["Op Type"] = np.where(np.isin(in_text, typed), in_text, -1)
        rows.names["Op Type"] = kind
        blocks = [operators.blocks.get(task, -1) for task in in_text.tolist()]
        rows.columns["Block Num"] = np.array(blocks, np.int64)
    else:
        for field, column in host.columns.items():
            rows.columns.setdefault(field, picked(column, launch))
        rows.names |= host.names
    task_stream = tasks.stream
    rows.columns["Physic Stream Id"] = np.where(task_stream >= 0, task_stream, rows["stream"])
    rows.columns["class"] = _classes(rows, launch, host, bool(operators.name))
    rows.columns["is part"] = (rows["class"] == OpClass.COMM_TASK).astype(np.int64)

    def first_text(*texts: str) -> tuple[str, Mapping[str, Any]]:
        return next((text for text in texts if text), ""), {}

    rows.label("operator", ("name", "in text"), first_text)
    rows.label("kind", ("kind", "own kind"), first_text)
    rows.label("Task Type", ("unit", "kind"), first_text)
    rows.label(
        "shown", ("is part", "part", "operator", "kind"),
        lambda is_part, part, operator, kind: first_text(part if is_part else operator, kind),
    )  # fmt: skip
    return rows


def _classes(rows: TableRows, launch: I64, host: TableRows | None, informed: bool) -> I64:
    informed = informed or (host is not None and bool((host["name"] >= 0).any()))
    table = UNNAMED if informed else OPERATORS
    names = rows.names["own kind"]
    op = mapped(
        rows["own kind"], lambda kind: table.get(names[kind], OpClass.UNCLASSIFIED), np.int64
    )
    op = np.where(rows["in text"] >= 0, int(OpClass.COMPUTE), op)
    return op if host is None else np.where(launch >= 0, rows["class"], op)


# -- into the trace -----------------------------------------------------------------------


def put_tasks(build: TraceBuilder, rows: TableRows, launch: I64) -> None:
    """Add tasks on their streams, parts of collectives on planes, whole collectives, and flows.

    Args:
        rows: from :func:`described`.
    """
    event = add_rows(build, TASKS, rows, graph=_graph(rows))
    if "row" not in rows.columns:
        return
    is_part = rows["is part"] > 0
    launched = np.isin(rows["class"], (OpClass.COMPUTE, OpClass.COPY))
    build.arrows("HostToDevice", np.where(launched, rows["row"], -1), event)
    if not is_part.any():
        return
    parts, launch = rows.take(is_part), launch[is_part]
    # groups without a readable name are numbered in the order of their first part
    ordered = parts["group"][np.argsort(parts["start"], kind="stable")]
    names = parts.names["group"]
    groups = {names[i]: communicator for i, communicator in communicators(ordered, names).items()}

    def heading(group: str) -> tuple[str, Mapping[str, Any]]:
        communicator_facts = groups.get(group, Communicator())
        return communicator_facts.title, {
            "communicator": communicator_facts.name,
            "communicator_index": communicator_facts.index,
        }

    def lane(group: str) -> tuple[str, Mapping[str, Any]]:
        return f"{groups.get(group, Communicator()).title} Communication".strip(), {}

    parts.label("communicator", ("group",), heading)
    parts.label("lane", ("group",), lane)
    planes = parts.take(parts["plane"] >= 0)
    add_rows(build, PARTS, planes, graph=_graph(planes))
    is_operation = ((parts["group"] >= 0) | (parts["part"] >= 0)) & (parts["operator"] >= 0)
    has_name = np.array([bool(name) for name in parts.texts("operator")], bool)
    operations = whole_operations(
        parts.take(is_operation & has_name), launch[is_operation & has_name]
    )
    event = add_rows(build, COLLECTIVES, operations, graph=_graph(operations))
    build.arrows("HostToDevice", operations["row"], event)


def _graph(rows: TableRows) -> I32:
    return rows["graph"].astype(np.int32)


def whole_operations(parts: TableRows, launch: I64) -> TableRows:
    """Collectives from their parts: the first part of each, from its start to the last end.

    A collective consists of the parts that one call on the host launched. In graph mode a call's
    tasks run again and again: the k-th runs of all of them belong together.

    Args:
        launch: the launch of each part.
    """
    start, end = parts["start"], parts["end"]
    order, nth = occurrences(launch, start)
    run = np.empty(len(parts), np.int64)
    run[order] = nth  # the run of its launch that a part belongs to
    key = combined_key(parts["group"], parts["operator"], parts["row"], run)
    keys, codes = np.unique(key, return_inverse=True)
    last_end = np.zeros(len(keys), np.int64)
    np.maximum.at(last_end, codes, end)
    # the earliest part gives the collective: its name, group and graph
    by_start = np.lexsort((start, codes))
    earliest = by_start[np.searchsorted(codes[by_start], np.arange(len(keys)))]
    operations = parts.take(earliest)
    operations.columns["end"] = last_end
    return operations
