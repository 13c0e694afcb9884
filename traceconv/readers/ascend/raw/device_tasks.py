"""Device tasks with what the host recorded of them: names, launches, communication.

A task number wraps, and in graph mode a task runs many times after one launch. So a task belongs
to the latest launch of its stream and number before it began - within the same wrap, where the
scheduler's log tells wraps apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I8, I32, I64, Layer, OpClass
from traceconv.core.ordering import combined_key
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.readers.ascend.db.device import communicators
from traceconv.readers.ascend.raw.clock import Clock, timed
from traceconv.readers.ascend.raw.host_launches import HostSide
from traceconv.readers.ascend.raw.scheduler_logs import NO_CONTEXT, Flips, Tasks, kind_name
from traceconv.readers.shared.arguments import Value, apart, label, number, shared, text, tracks
from traceconv.readers.shared.ascend_lanes import Communicator
from traceconv.readers.shared.ascend_tasks import OPERATORS, UNNAMED
from traceconv.readers.shared.pairing import latest, occurrences

# -- text beside the binary records of old captures: operators, and the AI CPU's log -------------

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
    """What is in the framework's text about tasks, by task number.

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

    A task's logical stream is there too; the device logs another number, so only tasks count.
    """
    found = _TASK.findall(tasks)
    kinds = dict(_OPERATOR.findall(graph))
    names = {int(task): name for name, _, task, _ in found}
    return Operators(names, kinds, {int(task): int(blocks) for _, blocks, task, _ in found})


def points(text: str) -> dict[int, str]:
    """The operators beside the step marks, by the tag of the mark."""
    return {int(tag): name.rstrip() for tag, name in _POINT.findall(text)}


# -- the AI CPU ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AiCpu:
    """Tasks of the AI CPU in the order of the log.

    Attributes:
        node: operators; "" where no sentence names them.
        began, ended: microseconds of a clock of the AI CPU's own; -1 for unknown.
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
    together; either may be missing.
    """
    rows: list[tuple[str, ...]] = []
    nobody = ("", "-1", "-1")
    node: tuple[str, ...] = nobody
    for match in _SENTENCE.finditer(text):  # text, and little of it
        cells = match.groups()
        if match["node"] is not None:
            node = cells[:3]
        else:
            rows.append((*node, *cells[3:]))
            node = nobody
    nodes = tuple(row[0].strip() for row in rows)
    numbers = np.array([[int(v) for v in row[1:]] for row in rows], np.int64).reshape(-1, 7)
    began, ended, thread, first, last, dispatch, total = numbers.T
    return AiCpu(nodes, began, ended, first, last, dispatch, total, thread)


@dataclass(frozen=True)
class DataQueue:
    """What went through the queues of data to a device, in the order of the log.

    Attributes:
        us:     microseconds of the device's counter.
        queue:  names.
        action, source: as the log says ("Enqueue data to dp").
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
        whole, rest = np.divmod(self.us * 1000, tick_ns.numerator)
        found: I64 = whole * tick_ns.denominator + rest * tick_ns.denominator // tick_ns.numerator
        return found

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
    matches = [_QUEUED.search(one) for one in text.split(SENTENCE_END) if one.strip()]
    rows = [match.groups() for match in matches if match]
    us, action, queue, source, index, size = zip(*rows, strict=True) if rows else [()] * 6
    return DataQueue(
        *(np.array(us, np.int64), queue, action, source),
        np.array(index, np.int64),
        np.array(size, np.int64),
        len(matches) - len(rows),
    )


def put_ai_cpu(build: TraceBuilder, found: AiCpu, clock: Clock) -> None:
    """The runs of the AI CPU on a lane of their own; the streams' own tasks are what computes."""
    start, end = clock.device_ns(found.first), clock.device_ns(found.last)
    kept = np.flatnonzero(timed(build, start, end))
    members = {
        "Thread Id": (found.thread[kept], label({})),
        "Dispatch Time(us)": (found.dispatch[kept], label({})),
        "Total Time(us)": (found.total[kept], label({})),
    }
    if len(kept):
        build.extend(
            track=build.track(
                Layer.DEVICE,
                "AI CPU",
                "",
                "Ascend Hardware",
                sort=1,
                device_kind="NPU",
            ),
            start_ns=start[kept],
            dur_ns=(end - start)[kept],
            name=np.array([build.string(found.node[i] or "AI CPU task") for i in kept], np.int32),
            op=OpClass.OTHER,
            args=shared(build, members),
        )


_SKEW_NS = 20_000
"""How far the clocks of host and device may disagree; no number is used again within that time."""


@dataclass(frozen=True)
class Timed:
    """Tasks on the clock of the trace.

    Attributes:
        launch: row of the host's side that launched each, -1 for unknown.
        name:   string ids of operators, -1 for none.
    """

    tasks: Tasks
    start_ns: I64
    dur_ns: I64
    launch: I64
    name: I32
    op: I8


def of_device(host: HostSide, device: int) -> HostSide | None:
    """What was launched on one device; None if nothing is known to have been."""
    mine = host.device == device
    if not mine.any():
        return None
    columns = {
        name: column[mine] for name, column in vars(host).items() if isinstance(column, np.ndarray)
    }
    arguments = {key: (column[mine], value) for key, (column, value) in host.arguments.items()}
    return HostSide(**columns, arguments=arguments)


def wraps(tasks: Tasks, flips: Flips) -> I64:
    """How often the task numbers of its stream had started anew when each task began; -1 for
    streams that log no wraps.
    """
    # one numbering of streams for both, so that their keys can be compared
    key = combined_key(np.concatenate((flips.stream, tasks.stream)))
    known, asked = key[: len(flips.stream)], key[len(flips.stream) :]
    at = latest(known, flips.time, asked, tasks.start)
    if not len(known):
        return at
    found = flips.number[at]
    before = (at >= 0) & (flips.time[at] > tasks.start)  # ahead of the first wrap
    return np.where(at >= 0, np.where(before, found - 1, found), -1)


def launches(tasks: Tasks, start_ns: I64, batch: I64, host: HostSide, chip_6: bool) -> I64:
    """The row of ``host`` that launched each task; -1 where none is known.

    Args:
        batch:  of each task, see :func:`wraps`.
        chip_6: tasks have one long number and no stream.
    """
    until = start_ns + _SKEW_NS
    number = host.batch << 16 | host.task if chip_6 else host.task
    stream = np.zeros_like(host.stream) if chip_6 else host.stream
    asked = np.where(tasks.stream < 0, 0, tasks.stream)
    whole = np.full(len(tasks), NO_CONTEXT, np.int64)
    found = np.full(len(tasks), -1, np.int64)
    # from the least to the most certain: what agrees in more columns replaces what was found
    for context in (whole, tasks.context):  # for a subtask there may be a record of its task only
        pairs = [(stream, asked), (number, tasks.task), (host.context, context)]
        for keys in (pairs, [*pairs, (host.batch, batch)]):
            key = combined_key(*(np.concatenate(pair) for pair in keys))
            at = latest(key[: len(host)], host.start_ns, key[len(host) :], until)
            found = np.where(at >= 0, at, found)
    return found


# -- what tasks are -----------------------------------------------------------------------


def described(
    build: TraceBuilder, tasks: Tasks, start_ns: I64, dur_ns: I64, launch: I64,
    host: HostSide | None, operators: Operators,
) -> Timed:  # fmt: skip
    """Names and classes of tasks: by their launch, else by the framework's text, else by kind.

    Where operators are known at all, a task without one does not compute.
    """
    name = _in_text(build, tasks, operators)
    informed = bool(operators.name) or (host is not None and bool((host.name >= 0).any()))
    op = np.where(name >= 0, int(OpClass.COMPUTE), _by_kind(tasks.kind, informed))
    if host is not None:
        known = launch >= 0
        name = np.where(known & (host.name[launch] >= 0), host.name[launch], name)
        op = np.where(known, host.op[launch], op)
    return Timed(tasks, start_ns, dur_ns, launch, name.astype(np.int32), op.astype(np.int8))


def _in_text(build: TraceBuilder, tasks: Tasks, operators: Operators) -> I64:
    """String ids of the operators the text of an old capture names by the task's number."""
    values, codes = np.unique(tasks.task, return_inverse=True)
    ids = [build.string(operators.name[v]) if v in operators.name else -1 for v in values.tolist()]
    return np.array(ids, np.int64)[codes]


def _by_kind(kinds: I64, informed: bool) -> I64:
    values, codes = np.unique(kinds, return_inverse=True)
    classes = []
    for value in values.tolist():
        table = UNNAMED if informed else OPERATORS
        classes.append(table.get(kind_name(value), OpClass.UNCLASSIFIED))
    return np.array(classes, np.int64)[codes]


# -- into the trace -----------------------------------------------------------------------


def put_tasks(
    build: TraceBuilder, timed: Timed, host: HostSide | None, operators: Operators
) -> None:
    """Add tasks on their streams, parts of collectives on planes, whole collectives, arrows."""
    if not len(timed.tasks):
        return
    tasks = timed.tasks
    stream = _streams(timed, host)
    graph = _of_launch(timed, host, "graph")
    kind = _kinds(build, timed, host)
    part = timed.op == OpClass.COMM_TASK
    of_part = _of_launch(timed, host, "part")
    inner = np.where(of_part >= 0, of_part, kind)
    args = _arguments(build, timed, stream, kind, host, operators)
    first = build.extend(
        track=tracks((stream,), lambda n: _stream(build, n)),
        start_ns=timed.start_ns,
        dur_ns=timed.dur_ns,
        name=np.where(part, inner, np.where(timed.name >= 0, timed.name, kind)).astype(np.int32),
        op=timed.op,
        graph=graph.astype(np.int32),
        args=args,
    )
    build.seen("slice", len(tasks))
    row = np.arange(first, first + len(tasks), dtype=np.int64)
    if host is None:
        return
    launched = np.isin(timed.op, (OpClass.COMPUTE, OpClass.COPY)) & ~part
    _arrows(build, _of_launch(timed, host, "row"), row, launched)
    if part.any():
        _put_parts(build, timed, host, part, inner, args)


def _of_launch(timed: Timed, host: HostSide | None, column: str) -> I64:
    """A column of the host's side in the launch of each task; -1 where there is none."""
    if host is None or not len(host.stream):
        return np.full(len(timed.tasks), -1, np.int64)
    values: I64 = getattr(host, column)
    return np.where(timed.launch >= 0, values[timed.launch], -1).astype(np.int64)


def _streams(timed: Timed, host: HostSide | None) -> I64:
    own = timed.tasks.stream
    return np.where(own >= 0, own, _of_launch(timed, host, "stream"))


def _stream(build: TraceBuilder, stream: int) -> int:
    name = f"Stream {stream}" if stream >= 0 else "Tasks of unknown streams"
    return build.track(
        Layer.DEVICE,
        name,
        "",
        "Ascend Hardware",
        device_kind="NPU",
        stream=max(stream, -1),
    )


def _kinds(build: TraceBuilder, timed: Timed, host: HostSide | None) -> I64:
    """String ids of kinds: the host's word, else the device's."""
    values, codes = np.unique(timed.tasks.kind, return_inverse=True)
    own = np.array([build.string(kind_name(v)) for v in values.tolist()], np.int64)[codes]
    of_host = _of_launch(timed, host, "kind")
    return np.where(of_host >= 0, of_host, own)


def _arguments(
    build: TraceBuilder, timed: Timed, stream: I64, kind: I64, host: HostSide | None,
    operators: Operators,
) -> I32:  # fmt: skip
    """The arguments of the profiler's own export that are known."""
    tasks = timed.tasks
    unit = _of_launch(timed, host, "unit")
    unit = np.where(unit >= 0, unit, kind)
    columns: dict[str, tuple[I64, Value]] = {
        "Task Type": (unit, label({i: build.strings[i] for i in np.unique(unit).tolist()})),
        "Physic Stream Id": (stream, number),
        "Subtask Id": (tasks.context, number),
    }
    if host is None:
        columns |= _in_text_of(tasks, operators)
    else:
        columns |= _of_host(timed, host)
    return apart(build, {"Task Id": tasks.task}, columns)


def _in_text_of(tasks: Tasks, operators: Operators) -> dict[str, tuple[I64, Value]]:
    """The members in the text of an old capture, by the task's number."""
    values, codes = np.unique(tasks.task, return_inverse=True)
    numbers = values.tolist()
    blocks = np.array([operators.blocks.get(v, -1) for v in numbers], np.int64)
    kinds = dict(enumerate(operators.kind.get(operators.name.get(v, ""), "") for v in numbers))
    return {"Op Type": (codes, text(kinds)), "Block Num": (blocks[codes], number)}


def _of_host(timed: Timed, host: HostSide) -> dict[str, tuple[I64, Value]]:
    """The members the host's side has, for the task of each launch."""
    return {
        key: (np.where(timed.launch >= 0, column[timed.launch], -1), _known(value))
        for key, (column, value) in host.arguments.items()
    }


def _known(value: Value) -> Value:
    """``value``, and no member for -1."""
    return lambda code: value(code) if code != -1 else b""


def _arrows(build: TraceBuilder, source: I64, row: I64, wanted: NDArray[np.bool_]) -> None:
    drawn = wanted & (source >= 0)
    build.seen("flow", int(drawn.sum()))
    if drawn.any():
        build.flows(src=source[drawn], dst=row[drawn], name=build.string("HostToDevice"))


# -- communication ------------------------------------------------------------------------


def _put_parts(
    build: TraceBuilder, timed: Timed, host: HostSide, part: NDArray[np.bool_], inner: I64,
    args: I32,
) -> None:  # fmt: skip
    """Parts of collectives on the planes of their groups, and whole ones over them."""
    at = np.flatnonzero(part)
    owner, plane = (_of_launch(timed, host, column)[at] for column in ("group", "plane"))
    named = {g: build.strings[g] for g in np.unique(owner).tolist() if g >= 0}
    # groups without a readable name are numbered in the order of their first part
    groups = communicators(owner[np.argsort(timed.start_ns[at], kind="stable")], named)

    def lane(name: str, of: Communicator, sort: int) -> int:
        return build.track(
            Layer.COMM,
            name.strip(),
            of.title,
            "Communication",
            sort=sort,
            device_kind="NPU",
            communicator=of.name,
            communicator_index=of.index,
        )

    def plane_lane(of: int, number: int) -> int:
        return lane(f"Plane {number}", groups.get(of, Communicator()), 1)

    def whole_lane(of: int) -> int:
        one = groups.get(of, Communicator())
        return lane(f"{one.title} Communication", one, 0)

    planes = np.flatnonzero(plane >= 0)
    on = at[planes]
    build.extend(
        track=tracks((owner[planes], plane[planes]), plane_lane),
        start_ns=timed.start_ns[on],
        dur_ns=timed.dur_ns[on],
        name=inner[on].astype(np.int32),
        op=OpClass.COMM_TASK,
        graph=_of_launch(timed, host, "graph")[on].astype(np.int32),
        args=args[on],
    )
    build.seen("slice", len(on))
    known = (owner >= 0) | (_of_launch(timed, host, "part")[at] >= 0)
    whole = np.flatnonzero(known & (timed.name[at] >= 0))
    _put_whole(build, timed, host, at[whole], owner[whole], whole_lane)


def _put_whole(
    build: TraceBuilder, timed: Timed, host: HostSide, at: I64, owner: I64,
    lane: Callable[[int], int],
) -> None:  # fmt: skip
    """Whole collectives, made of their parts in rows ``at``, each with its launch arrow."""
    first, start, end = whole_operations(timed, host, at, owner)
    added = build.extend(
        track=tracks((owner[first],), lane),
        start_ns=start,
        dur_ns=end - start,
        name=timed.name[at[first]],
        op=OpClass.COMM,
        graph=_of_launch(timed, host, "graph")[at[first]].astype(np.int32),
    )
    build.seen("slice", len(first))
    source = _of_launch(timed, host, "row")[at[first]]
    row = np.arange(added, added + len(first), dtype=np.int64)
    _arrows(build, source, row, np.ones(len(first), bool))


def whole_operations(timed: Timed, host: HostSide, at: I64, owner: I64) -> tuple[I64, I64, I64]:
    """Collectives from their parts.

    One is made of the parts that one call on the host launched. In graph mode a call's tasks run
    again and again: the k-th runs of all of them belong together.

    Args:
        at:    rows of the parts.
        owner: the group of each.

    Returns:
        The first part of each (position in ``at``), its start and its end, ns.
    """
    launch = timed.launch[at]
    start, end = timed.start_ns[at], timed.start_ns[at] + timed.dur_ns[at]
    order, nth = occurrences(launch, start)
    run = np.empty(len(at), np.int64)
    run[order] = nth  # which run of its launch a part belongs to
    call = np.where(host.row[launch] >= 0, host.row[launch], -1)
    key = combined_key(owner, timed.name[at].astype(np.int64), call, run)
    values, codes = np.unique(key, return_inverse=True)
    low = np.full(len(values), np.iinfo(np.int64).max)
    high = np.zeros(len(values), np.int64)
    np.minimum.at(low, codes, start)
    np.maximum.at(high, codes, end)
    # the earliest part gives the collective: its name, group and graph
    by_start = np.lexsort((start, codes))
    first = by_start[np.searchsorted(codes[by_start], np.arange(len(values)))]
    return first.astype(np.int64), low, high
