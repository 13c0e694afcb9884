"""What every nanosecond of the steps of a rank went to: items that add up to the step, exactly.

Of the device windows of the steps that a capture covers, as :mod:`traceconv.analysis.utilisation`
takes them, and of the classes of the overlap analysis (:mod:`traceconv.passes.overlap`):

* ``compute``: the computing class, by kernel, operator, shapes and module;
* ``communication``: what of the collectives nothing hides, by kind, group and size;
* ``copy``: copies and fills while nothing else runs;
* ``wait``: a gap in which the device does nothing, by the work that ends it, and by its cause:
  ``input`` where the rank waits for input (:mod:`traceconv.passes.input_wait`), ``host`` where the
  call that launches this work begins after the gap does, else ``unknown``;
* ``unrecorded``: what of the window the profiler did not record.

Where several rows of one class run at once, the time belongs to the one that began first; of those
that began together, to the one on the lane that is first on screen, then to the one that is first
in the table. What begins first holds its time until it ends, so no row is split in two.

On NPUs copies are part of the idle time that tables and reports give, as the vendor counts; here
they are items of their own there, too, unless the rank waits for input meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.analysis.tables.definition import texts
from traceconv.analysis.tables.fields import fields, is_ascend, operator_columns
from traceconv.analysis.tables.groups import Groups, numbered
from traceconv.analysis.tables.host import Nest, launches, modules
from traceconv.analysis.tables.operator import SHAPES, launching
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import I64
from traceconv.core.intervals import (
    EMPTY,
    intersection,
    length_within,
    merged,
    subtraction,
    union,
)
from traceconv.core.model import Covered, Kind, Layer, OpClass, StepSource, Trace
from traceconv.core.side_tables import Columns
from traceconv.passes.input_wait import input_spans
from traceconv.passes.overlap import DeviceTime, device_times
from traceconv.passes.scopes import ROOTS


class Sort(StrEnum):
    """What an item is."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    COPY = "copy"
    WAIT = "wait"
    UNRECORDED = "unrecorded"


class Cause(StrEnum):
    """Why a device waits."""

    HOST = "host"
    INPUT = "input"
    UNKNOWN = "unknown"


END = "end of the step"
"""Name of what ends a gap that reaches to the end of its step."""

KEY = ("sort", "name", "type", "shape", "module")
"""The columns that tell items apart, all text:

* ``name``: of the kernel, the kind of collective, the copy, the work that ends a gap;
* ``type``: of the operator, the group of ranks, the cause of a gap;
* ``shape``: of the operator's inputs; bytes or elements of a collective;
* ``module``: path of the modules, scopes or ranges around the operator, outermost first.

Empty where nothing is known. Digits that differ from run to run are left out.
"""

RECORDED = (Layer.HOST, Layer.RUNTIME, Layer.DEVICE, Layer.COMM)
"""Layers whose recording decides on what can be compared."""


class StepItems(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The items of the covered steps of one rank. Times are int64 ns.

    Attributes:
        devices: of the rank, whose times are added up.
        marked: whether the source marks steps; else the capture is one.
        vendor: "ascend" for NPUs, "" for GPUs.
        layers: those of :data:`RECORDED` that the capture holds.
        steps:  a row each: ``step`` (its number), ``window``, ``ns`` (length of its device window
            times devices), ``pause_ns`` (idle time before it, in none of the items; -1 = unknown).
        items:  a row each: :data:`KEY`, and ``first`` and ``last``: at which place in a step it
            occurs for the first time, as the smallest and largest of all steps; -1 of waiting.
        parts:  of every item (``item``, a row of ``items``) in every step (``at``, a row of
            ``steps``) in which it occurs: ``ns`` that belong to it, ``count`` of rows that begin,
            and ``busy_ns``, how long these take, hidden or not.
    """

    devices: int = 0
    marked: bool = True
    vendor: str = ""
    layers: tuple[str, ...] = ()
    steps: Columns = {}
    items: Columns = {}
    parts: Columns = {}

    def __len__(self) -> int:
        return len(self.steps["step"]) if self.steps else 0

    def check(self) -> None:
        """Raise ValueError unless columns fit together and the items add up to the steps."""
        if not self.steps:
            return
        tables = ((self.steps, _STEPS), (self.items, (*KEY, "first", "last")), (self.parts, _PARTS))
        for columns, names in tables:
            if set(columns) != set(names) or len({len(c) for c in columns.values()}) > 1:
                raise ValueError("items of steps: columns are missing, or differ in length")
        for name, rows in (("item", len(self.items["sort"])), ("at", len(self))):
            column = self.parts[name]
            if len(column) and not 0 <= column.min() <= column.max() < rows:
                raise ValueError("items of steps: a part of no item, or of no step")
        if set(self.items["sort"].tolist()) - set(Sort):
            raise ValueError("items of steps: of an unknown sort")
        sums = np.zeros(len(self), np.int64)
        np.add.at(sums, self.parts["at"], self.parts["ns"])
        if (self.parts["ns"] < 0).any() or (sums != self.steps["ns"]).any():
            raise ValueError("items of steps: they do not add up to the steps")


_STEPS = ("step", "window", "ns", "pause_ns")
_PARTS = ("item", "at", "ns", "count", "busy_ns")


def step_items(trace: Trace, collectives: CollectiveRecords) -> StepItems:
    """Those of a rank.

    Args:
        trace: after the passes of the detail view.
        collectives: its communication operations.
    """
    steps = measured(trace.steps)
    steps = steps.take(steps.covered == Covered.TIMELINE)
    devices = device_times(trace) if len(steps) else []
    if not devices:
        return StepItems()
    spans, builder = steps.device_spans, _Builder(len(steps))
    sources = _Sources.of(trace, collectives)
    waiting = _waiting(trace, spans[steps.input_wait_ns >= 0])
    for device in devices:
        _attribute(builder, sources, device, spans, waiting)
    whole = steps.device_dur_ns * len(devices)
    items, parts = builder.finish(whole)
    recorded = trace.coverage.layers
    return StepItems(
        devices=len(devices),
        marked=bool((steps.source != StepSource.WHOLE_RANGE).all()),
        vendor=trace.hints.vendor,
        layers=tuple(str(layer) for layer in RECORDED if recorded.get(layer)),
        steps={
            "step": steps.step.astype(np.int64),
            "window": steps.window.astype(np.int64),
            "ns": whole,
            "pause_ns": steps.pause_ns,
        },
        items=items,
        parts=parts,
    )


def _waiting(trace: Trace, spans: I64) -> I64:
    """When the rank waits for input, as far as a source says so, within these steps."""
    waiting = input_spans(trace) if len(spans) else EMPTY
    if len(trace.windows):
        waiting = intersection(waiting, trace.windows)
    return intersection(waiting, union(*spans.T)) if len(waiting) else waiting


# -- time ---------------------------------------------------------------------------------


def _attribute(
    builder: _Builder, sources: _Sources, device: DeviceTime, spans: I64, waiting: I64
) -> None:
    """Put the time and the rows of one device into items."""
    copying = device.copying
    if sources.ascend:
        copying = subtraction(copying, waiting)
    classes = (
        (device.kernels, device.computing, sources.compute),
        (device.calls, device.exposed, sources.communication),
        (device.copies, copying, sources.copy),
    )
    every, ids = [], []
    for rows, time, label in classes:
        columns = label(rows)
        item = builder.numbers(columns)
        start, length = (getattr(sources.trace.events, key)[rows] for key in _EXTENT)
        builder.occur(item, start, length, _holding(spans, start))
        owner, begin = _owners(sources.trace, rows)
        which, at, cells = _cells(begin, spans)
        builder.add(item[owner][which], at, length_within(time, cells))
        every.append(rows[owner])
        ids.append(columns["name"][owner])
    busy = merged(merged(device.computing, device.exposed), copying)
    gaps = _Gaps.of(subtraction(device.known, busy), spans)
    work = _Work.of(sources, np.concatenate(every), np.concatenate(ids))
    for name, cause, at, ns in gaps.waits(work, spans, waiting):
        builder.add(builder.numbers(_waits(name, cause)), at, ns)


_EXTENT = ("start_ns", "dur_ns")


def _holding(spans: I64, time: I64) -> I64:
    """The step in whose window each instant is; -1 = none. Starts ascend."""
    at = np.searchsorted(spans[:, 0], time, "right") - 1
    return np.where((at >= 0) & (time < spans[np.maximum(at, 0), 1]), at, -1)


def _owners(trace: Trace, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], I64]:
    """The rows that own time, as indices into ``rows``, and since when: until the next one does.

    Sorted by start, what a row owns begins where all before it have ended, if not with itself.
    """
    start, length = trace.events.start_ns[rows], trace.events.dur_ns[rows]
    order = np.lexsort((rows, trace.events.track[rows], start))
    order = order[length[order] > 0]
    end = (start + length)[order]
    reached = np.maximum.accumulate(end)
    before = np.concatenate((start[order][:1], reached[:-1]))
    owns = end > before
    return order[owns], np.maximum(start[order], before)[owns]


def _cells(begin: I64, spans: I64) -> tuple[NDArray[np.intp], NDArray[np.intp], I64]:
    """Time cut at every ``begin`` (ascending) and at the borders of steps.

    Returns:
        Of each cell, the last ``begin`` (the first one for what is before it), the step it is in,
        and its start and end.
    """
    low = np.maximum(np.searchsorted(begin, spans[:, 0], "right") - 1, 0)
    size = np.maximum(np.searchsorted(begin, spans[:, 1]) - low, 1) * bool(len(begin))
    at = np.repeat(np.arange(len(spans)), size)
    which = low[at] + np.arange(len(at)) - np.repeat(np.cumsum(size) - size, size)
    first = which == low[at]
    last = which == (low + size - 1)[at]
    if not len(begin):
        return which, at, EMPTY
    cells = np.empty((len(at), 2), np.int64)
    cells[:, 0] = np.where(first, spans[at, 0], begin[which])
    cells[:, 1] = np.where(last, spans[at, 1], begin[np.minimum(which + 1, len(begin) - 1)])
    return which, at, cells


@dataclass(frozen=True)
class _Work:
    """What a device did, by start: names, and when each was launched (-1 if nothing says)."""

    start_ns: I64
    name: NDArray[Any]
    launched_ns: I64

    @classmethod
    def of(cls, sources: _Sources, rows: NDArray[np.intp], names: NDArray[Any]) -> _Work:
        """Args:
        rows: in order of precedence, where several begin at once.
        """
        start = sources.trace.events.start_ns[rows]
        order = np.argsort(start, kind="stable")
        return cls(start[order], names[order], sources.launched_ns[rows[order]])


@dataclass(frozen=True)
class _Gaps:
    """Where a device does nothing, cut at the borders of steps.

    Attributes:
        begin_ns: where the whole gap begins.
        at:       the step.
        pieces:   (n, 2): start and end of what is in it.
    """

    begin_ns: I64
    at: NDArray[np.intp]
    pieces: I64

    @classmethod
    def of(cls, idle: I64, spans: I64) -> _Gaps:
        low = np.searchsorted(idle[:, 1], spans[:, 0], "right")
        size = np.maximum(np.searchsorted(idle[:, 0], spans[:, 1]) - low, 0)
        at = np.repeat(np.arange(len(spans)), size)
        which = low[at] + np.arange(len(at)) - np.repeat(np.cumsum(size) - size, size)
        start = np.maximum(idle[which, 0], spans[at, 0])
        end = np.minimum(idle[which, 1], spans[at, 1])
        return cls(idle[which, 0], at, np.stack((start, end), axis=1))

    def waits(
        self, work: _Work, spans: I64, waiting: I64
    ) -> Sequence[tuple[NDArray[Any], NDArray[Any], NDArray[np.intp], I64]]:
        """Names, causes, steps and lengths: what waits for input, then the rest."""
        end = self.pieces[:, 1]
        # borders that were taken from the profiler's own lanes may be 1 ns before a row
        after = np.searchsorted(work.start_ns, end - 1)
        some = after < len(work.start_ns)
        next_ = np.minimum(after, max(len(work.start_ns) - 1, 0))
        if not len(work.start_ns):
            return ()
        inside = some & (work.start_ns[next_] < spans[self.at, 1])
        name = np.where(inside, work.name[next_], END)
        launched = np.where(some, work.launched_ns[next_], -1)
        host = (launched >= 0) & (launched >= self.begin_ns)
        cause = np.where(host, str(Cause.HOST), str(Cause.UNKNOWN)).astype(object)
        for_input = length_within(waiting, self.pieces)
        rest = end - self.pieces[:, 0] - for_input
        inputs = np.full(len(name), str(Cause.INPUT), object)
        return (name, inputs, self.at, for_input), (name, cause, self.at, rest)


def _waits(name: NDArray[Any], cause: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return _labels(Sort.WAIT, name, type=cause)


# -- names --------------------------------------------------------------------------------

_RUN_DEPENDENT = (
    (re.compile(r"0x[0-9a-fA-F]{4,}"), "0x#"),
    (re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "#"),
    (re.compile(r"-op\d+\b"), ""),  # MindSpore numbers the operators of a graph
    (re.compile(r", (?:seq|op_id|sizes|input_op_ids) ?= ?.*\Z", re.DOTALL), ""),  # emit_nvtx
    (
        re.compile(
            r"(?i)\b((?:train|eval|global)?_?(?:step|iter(?:ation)?|batch|epoch|sample|request"
            r"|microbatch|seq|token|pid|tid))([\s_#:=.\[(-]*)\d+\b"
        ),
        r"\1\2#",
    ),
    (re.compile(r"\d{7,}"), "#"),
)
"""Digits that differ from run to run: addresses, ids, numbers of steps and of requests."""

_LONGEST_NAME = 500


@lru_cache(1 << 16)
def lasting(name: str) -> str:
    """A name without what differs from run to run; of a very long one, the beginning."""
    for pattern, instead in _RUN_DEPENDENT:
        name = pattern.sub(instead, name)
    return name[:_LONGEST_NAME]


_Label = dict[str, NDArray[Any]]


def _labels(sort: Sort, name: NDArray[Any], **columns: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The columns of :data:`KEY` of some rows."""
    empty = np.full(len(name), "", object)
    kinds = np.full(len(name), str(sort), object)
    return {"sort": kinds, "name": name, **{k: columns.get(k, empty) for k in KEY[2:]}}


@dataclass(frozen=True)
class _Sources:
    """What is known of the rows of a rank.

    Attributes:
        ascend: whether those of devices are tasks that carry out operators.
        launched_ns: per event row, when the call that launched it began; -1 if nothing says.
        collectives: of the rank.
        record: per event row, its place among the collectives; -1 of others.
    """

    trace: Trace
    ascend: bool
    launched_ns: I64
    collectives: CollectiveRecords
    record: I64

    @classmethod
    def of(cls, trace: Trace, collectives: CollectiveRecords) -> _Sources:
        events, flows = trace.events, trace.flows
        launched = np.full(len(events), -1, np.int64)
        # of several arrows the latest call: an operator may have queued it long before
        arrows = flows.take(trace.rows_of(Layer.HOST, Layer.RUNTIME)[flows.src])
        np.maximum.at(launched, arrows.dst, events.start_ns[arrows.src])
        record = np.full(len(events), -1, np.int64)
        calls = np.flatnonzero((events.op == OpClass.COMM) & (events.kind == Kind.SLICE))
        # both are all operations of the rank, so in the order of time they are the same
        own = calls[np.lexsort((events.end_ns[calls], events.start_ns[calls]))]
        record[own] = np.lexsort((collectives.end_ns, collectives.start_ns))
        return cls(trace, is_ascend(trace), launched, collectives, record)

    def names(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Lasting names of event rows; "" of row -1."""
        ids = np.where(rows >= 0, self.trace.events.name[rows], -1)
        unique, back = np.unique(ids, return_inverse=True)
        return texts([lasting(self.trace.strings[i]) if i >= 0 else "" for i in unique.tolist()])[
            back.reshape(-1)
        ]

    def compute(self, rows: NDArray[np.intp]) -> _Label:
        """Compute tasks: operator and shapes by what the device says, or by who launched them."""
        trace, names = self.trace, self.names(rows)
        module = _module_paths(trace)[rows]
        if self.ascend:
            columns = operator_columns(trace, rows)
            kind, shape = columns["OP Type"], columns["Input Shapes"]
            shape = texts([one.strip('"') for one in shape.tolist()])
            names, module = _scoped(trace, rows, names, module)
        else:
            call = launching(trace, rows)
            kind = self.names(call)
            if trace.hints.range_lanes:  # ranges of users are no operators, but say where
                kind = texts([k if "::" in k else "" for k in kind.tolist()])
            dims, other = fields(trace, np.maximum(call, 0), *SHAPES)
            shape = np.where(call >= 0, np.where(dims == "", other, dims), "")
        return _labels(Sort.COMPUTE, names, type=kind, shape=shape, module=module)

    def communication(self, rows: NDArray[np.intp]) -> _Label:
        """Collectives, by kind, group and size."""
        known, at = self.collectives, self.record[rows]
        groups = texts(_group_names([one.key for one in known.groups]))
        sizes = texts([str(n) if n >= 0 else "" for n in known.size[at].tolist()])
        kinds = texts(list(known.kinds))[known.kind[at]]
        return _labels(Sort.COMMUNICATION, kinds, type=groups[known.group[at]], shape=sizes)

    def copy(self, rows: NDArray[np.intp]) -> _Label:
        """Copies and fills by name."""
        return _labels(Sort.COPY, self.names(rows))


_HASH = re.compile(r"hccl \d+ ?")


def _group_names(keys: Sequence[str]) -> list[str]:
    """Names of groups of ranks that are the same in every run: hashes of HCCL become numbers, in
    the order in which the groups are first used."""
    found = []
    for i, key in enumerate(keys):
        plain = _HASH.sub(f"HCCL group {i} ", key).removeprefix("group ")
        found.append(lasting(plain.strip()))
    return found


_PATHS = ("fullname", "op_full_name", "full_name")


def _scoped(
    trace: Trace, rows: NDArray[np.intp], names: NDArray[Any], module: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Names without the scopes in them, and modules with these where no module is known.

    MindSpore names operators by their path: ``Default/network/dense/MatMul-op12``.
    """
    path = names
    for other in fields(trace, rows, *_PATHS):
        path = np.where(other == "", path, other)
    split = {p: p.rpartition("/") if ROOTS.match(p) else ("", "", "") for p in set(path.tolist())}
    scopes = texts([lasting(split[p][0]) for p in path.tolist()])
    own = [lasting(n.rpartition("/")[2]) if ROOTS.match(n) else n for n in names.tolist()]
    return texts(own), np.where(module == "", scopes, module)


def _module_paths(trace: Trace) -> NDArray[Any]:
    """Per event row of a device the path of the modules, or ranges of the user, around the call
    that launched it: outermost first, "" if none."""
    found = np.full(len(trace.events), "", object)
    nest, calls = Nest.of(trace, _ranges(trace)), launches(trace)
    if not len(nest.rows):
        return found
    at = nest.at(calls.thread, calls.time_ns)
    held = at >= 0
    paths = _paths(trace, nest)
    found[calls.device[held]] = paths[at[held]]
    return found


def _ranges(trace: Trace) -> NDArray[np.intp]:
    """Calls of modules, and ranges of the user that are no operators."""
    events, hints = trace.events, trace.hints
    lanes = np.array([track.heading in hints.range_lanes for track in trace.tracks], bool)
    named = np.zeros(len(trace.strings), bool)
    named[[i for i, name in enumerate(trace.strings) if name in set(hints.range_names)]] = True
    operators = np.array(["::" in name for name in trace.strings], bool)
    rows = lanes[events.track] | named[events.name]
    rows &= trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE) & (events.step < 0)
    rows &= ~operators[events.name]
    return np.union1d(modules(trace), np.flatnonzero(rows))


def _paths(trace: Trace, nest: Nest) -> NDArray[Any]:
    """The path of every slice of a nest: names from the outermost to its own, level by level."""
    name = trace.events.name[nest.rows]
    short = {i: lasting(trace.strings[i]).removeprefix("nn.Module: ") for i in set(name.tolist())}
    own = texts([short[i] for i in name.tolist()])
    paths, todo = own.copy(), nest.parent >= 0
    ready = ~todo
    while todo.any():
        now = todo & ready[np.maximum(nest.parent, 0)]
        if not now.any():
            break
        paths[now] = paths[nest.parent[now]] + "/" + own[now]
        ready, todo = ready | now, todo & ~now
    return np.array([path[-_LONGEST_NAME:] for path in paths.tolist()], object)


# -- put together -------------------------------------------------------------------------


class _Builder:
    """Items and parts as they are found; everything is summed up at the end."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._number: dict[tuple[str, ...], int] = {}
        self._parts: list[dict[str, I64]] = []
        self._first: list[tuple[I64, I64, I64]] = []

    def numbers(self, label: _Label) -> I64:
        """A number per row, equal where the columns of :data:`KEY` are."""
        columns = [label[key] for key in KEY]
        groups = Groups.of(*(numbered(column) for column in columns))
        keys = zip(*(column[groups.first].tolist() for column in columns), strict=True)
        own = [self._number.setdefault(key, len(self._number)) for key in keys]
        return groups.spread(np.array(own, np.int64))

    def add(self, item: I64, at: NDArray[np.intp], ns: I64) -> None:
        """Time that belongs to items."""
        some = ns > 0
        zero = np.zeros(int(some.sum()), np.int64)
        self._parts.append({"item": item[some], "at": at[some], "ns": ns[some],
                            "count": zero, "busy_ns": zero})  # fmt: skip

    def occur(self, item: I64, start: I64, length: I64, at: I64) -> None:
        """Rows of items that begin in steps (``at``; -1 = in none)."""
        some = at >= 0
        n = int(some.sum())
        self._parts.append({"item": item[some], "at": at[some], "ns": np.zeros(n, np.int64),
                            "count": np.ones(n, np.int64), "busy_ns": length[some]})  # fmt: skip
        self._first.append((item[some], at[some], start[some]))

    def finish(self, whole: I64) -> tuple[Columns, Columns]:
        """Items and parts; what is missing of the length of a step was not recorded."""
        parts = _stacked(self._parts)
        known = np.zeros(self._steps, np.int64)
        np.add.at(known, parts["at"], parts["ns"])
        rest = whole - known
        if rest.any():
            empty = np.full(self._steps, "", object)
            none = self.numbers(_labels(Sort.UNRECORDED, empty))
            self.add(none, np.arange(self._steps), rest)
            parts = _stacked(self._parts)
        groups = Groups.of(parts["item"], parts["at"])
        summed = {name: groups.total(parts[name]) for name in ("ns", "count", "busy_ns")}
        places = {name: parts[name][groups.first].astype(np.int64) for name in ("item", "at")}
        used, places["item"] = np.unique(places["item"], return_inverse=True)
        places["item"] = places["item"].reshape(-1).astype(np.int64)
        return self._items(used), {**places, **summed}

    def _items(self, used: I64) -> Columns:
        keys = list(self._number)
        columns = {key: texts([keys[n][i] for n in used.tolist()]) for i, key in enumerate(KEY)}
        first, last = self._places()
        return {**columns, "first": first[used], "last": last[used]}

    def _places(self) -> tuple[I64, I64]:
        """The smallest and largest number of the first row of every item among all of a step."""
        low = np.full(len(self._number), -1, np.int64)
        high = low.copy()
        item, at, start = (np.concatenate(c) for c in zip(*self._first, strict=True))
        order = np.lexsort((start, at))
        item, at = item[order], at[order]
        place = np.arange(len(at)) - np.searchsorted(at, at)
        # place ascends within a step, so the first row of a group has the smallest
        groups = Groups.of(item, at)
        first, of = place[groups.first], item[groups.first]
        every = Groups.of(of)
        low[of[every.first]], high[of[every.first]] = every.low(first), every.high(first)
        return low, high


def _stacked(parts: Sequence[Mapping[str, I64]]) -> dict[str, I64]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
