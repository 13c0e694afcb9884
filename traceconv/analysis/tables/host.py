"""The host side of a rank: how calls nest, and what they launched on the device."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.fields import fields, names_of
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I8, I64, once_each
from traceconv.core.model import Kind, Layer, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.ordering import in_lanes
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT
from traceconv.passes.input_wait import leading
from traceconv.passes.places import threads
from traceconv.passes.projection import is_projection

_NO_OPERATOR = lazy_regex(
    r"nn\.Module: |.*\(\d+\): |<built-in |<frozen |PyTorch Profiler|(?:En|De)queue(?:@|\Z)",
    re.DOTALL,
)
"""Names of rows of the host layer that are Python's own calls, or queues, and no operators."""
_OPERATORS = NameTest(lambda name: not _NO_OPERATOR.match(name))
_MODULES = NameTest(lambda name: name.startswith("nn.Module: "))

_PADDLE_TYPES = {"Operator": "operator", "Forward": "module"}


class Nest(msgspec.Struct, frozen=True):
    """Slices of threads, each within the next larger one.

    Of slices that cross, the later one is within the earlier one, and stays open after it.

    Attributes:
        rows:   event rows.
        thread: number of the thread of each.
        parent: index into ``rows`` of the slice around each; -1 = none.
    """

    rows: NDArray[np.intp]
    thread: I64
    parent: I64
    _edges: dict[int, tuple[I64, I64]]

    @classmethod
    def of(cls, trace: Trace, rows: NDArray[np.intp]) -> Nest:
        """The nest of some slices of the host; those without length hold nothing."""
        rows = rows[trace.events.dur_ns[rows] > 0]
        thread = threads(trace)[trace.events.track[rows]]
        parent = np.full(len(rows), -1, np.int64)
        edges = {}
        start, end = trace.events.start_ns[rows], trace.events.ends(rows)
        for number in np.unique(thread).tolist():
            inside = np.flatnonzero(thread == number)
            edges[number] = _stack(start, end, inside, parent)
        return cls(rows, thread, parent, edges)

    def depth(self) -> I64:
        """How many slices are around each."""
        depth = np.zeros(len(self.rows), np.int64)
        nested = np.flatnonzero(self.parent >= 0)
        around = self.parent[nested]
        while len(nested):
            depth[nested] += 1
            around = self.parent[around]
            nested, around = nested[around >= 0], around[around >= 0]
        return depth

    def levels(self) -> list[NDArray[np.intp]]:
        """The slices of equal depth, the outermost first."""
        depth = self.depth()
        order = in_lanes(depth)
        return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(order) else []

    def at(self, thread: I64, time: I64) -> I64:
        """Index into ``rows`` of the innermost slice at each instant of a thread; -1 = none."""
        innermost = np.full(len(time), -1, np.int64)
        for number, (edges, top) in self._edges.items():
            selected = np.flatnonzero(thread == number)
            before = np.searchsorted(edges, time[selected], "right") - 1
            innermost[selected] = np.where(before >= 0, top[np.maximum(before, 0)], -1)
        return innermost

    def self_ns(self) -> I64:
        """How long each slice is the innermost one that is open, ns."""
        self_times = np.zeros(len(self.rows) + 1, np.int64)  # the last is of no slice
        for edges, top in self._edges.values():
            np.add.at(self_times, top[:-1], np.diff(edges))
        return self_times[:-1]

    def summed_up(self, at: I64, value: I64) -> I64:
        """The sum of ``value`` over each slice and those within it; ``at`` from :meth:`at`."""
        sums = np.zeros(len(self.rows), np.int64)
        for _ in range(len(self.rows) + 1):
            held = at >= 0
            if not held.any():
                break
            at, value = at[held], value[held]
            np.add.at(sums, at, value)
            at = self.parent[at]
        return sums


def _stack(start: I64, end: I64, inside: NDArray[np.intp], parent: I64) -> tuple[I64, I64]:
    """The boundaries of the slices of a thread, and the innermost slice from each boundary on.

    Fills ``parent``. At a boundary where one ends and another starts, the ending comes first.
    """
    n = len(inside)
    before, after = inside[:-1], inside[1:]
    late = (start[after] < start[before]) | (
        (start[after] == start[before]) & (end[after] > end[before])
    )
    if late.any():  # several tracks
        inside = inside[np.lexsort((-end[inside], start[inside]))]
    time = np.concatenate((np.sort(end[inside], kind="stable"), start[inside]))
    order = np.argsort(time, kind="stable")  # of both halves in order: soon done
    opens = order >= n
    depth = np.cumsum(np.where(opens, 1, -1))
    # the last slice that began at the depth of each boundary, by depth and then by time
    by_depth = in_lanes(depth)
    begins = np.where(opens[by_depth], np.arange(2 * n), 0)
    opening = np.empty(2 * n, np.intp)
    opening[by_depth] = by_depth[np.maximum.accumulate(begins)]
    top = np.where(depth > 0, inside[order[opening] - n], -1)
    outer = np.concatenate(([-1], top[:-1]))
    outer = outer[opens]
    within = outer >= 0
    if (end[outer[within]] < end[inside[within]]).any():
        return _crossing(start, end, inside, parent)
    parent[inside] = outer
    return time[order], top


def _crossing(start: I64, end: I64, inside: NDArray[np.intp], parent: I64) -> tuple[I64, I64]:
    """What :func:`_stack` returns, of slices that cross."""
    n = len(inside)
    time = np.concatenate((end[inside], start[inside]))
    order = np.argsort(time, kind="stable")
    top, ended = np.full(2 * n, -1, np.intp), np.zeros(n, bool)
    stack: list[int] = []
    for i, boundary in enumerate(order.tolist()):
        if boundary < n:
            ended[boundary] = True
            while stack and ended[stack[-1]]:
                stack.pop()
        else:
            parent[inside[boundary - n]] = inside[stack[-1]] if stack else -1
            stack.append(boundary - n)
        top[i] = inside[stack[-1]] if stack else -1
    return time[order], top


@once_each
def operators(trace: Trace) -> NDArray[np.intp]:
    """Rows of framework operators: the host layer without step ranges and Python calls."""
    return _host_rows(trace, "operator", _OPERATORS)


@once_each
def operator_nest(trace: Trace) -> Nest:
    """:func:`operators`, each within the next larger one."""
    return Nest.of(trace, operators(trace))


def modules(trace: Trace) -> NDArray[np.intp]:
    """Rows of module calls: what names itself a module on the host, and scope lanes of NPUs.

    Projections of host ranges to the device are not calls; on GPUs neither is anything else of the
    scope layer.
    """
    rows = _host_rows(trace, "module", _MODULES)
    if trace.hints.free_rule == "device":
        return rows
    scopes = np.array([t.layer is Layer.SCOPE and not is_projection(t) for t in trace.tracks], bool)
    scopes = scopes[trace.events.track] & (trace.events.kind == Kind.SLICE)
    return np.concatenate((rows, np.flatnonzero(scopes)))


def innermost_names(trace: Trace, nest: Nest, thread: I64, time: I64) -> Texts:
    """The name of the innermost call at each instant of a thread; "" outside of all."""
    rows = np.append(nest.rows, -1)[nest.at(thread, time)]  # -1 takes the last
    return names_of(trace, rows).mapped(lambda name: name.removeprefix("nn.Module: "))


def _host_rows(trace: Trace, kind: str, called: NameTest) -> NDArray[np.intp]:
    events = trace.events
    host = trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE) & (events.step < 0)
    rows = np.flatnonzero(host)
    if trace.capture.reader == "paddle":
        return rows[paddle_types(trace, rows).among(kind)]
    return rows[rows_named(trace, called)[rows]]


def paddle_types(trace: Trace, rows: NDArray[np.intp]) -> Texts:
    """What each host row of a Paddle trace is: "operator", "module", or the type as written."""
    groups = Groups.of(trace.events.track[rows], trace.events.name[rows])
    (types,) = fields(trace, rows[groups.first], "type")
    types = types.mapped(lambda kind: _PADDLE_TYPES.get(kind, kind))
    return Texts(types.values, groups.spread(types.code))


class Launches(msgspec.Struct, frozen=True):
    """Device rows with the host call each was launched by.

    Attributes:
        device: event rows on the device or among the collectives.
        thread: of the call.
        time_ns: start of the call.
    """

    device: NDArray[np.int32]
    thread: I64
    time_ns: I64


@once_each
def launches(trace: Trace) -> Launches:
    """Every device row to which a flow leads; flows from operators go before runtime calls."""
    events, flows = trace.events, trace.flows
    work = trace.rows_of(Layer.DEVICE, Layer.COMM) & (events.kind == Kind.SLICE)
    source = np.full(len(events), -1, np.int64)
    for layer in (Layer.RUNTIME, Layer.HOST):
        arrows = flows.take(trace.rows_of(layer)[flows.src] & work[flows.dst])
        source[arrows.dst] = arrows.src
    device = np.flatnonzero(source >= 0).astype(np.int32)
    calls = source[device]
    return Launches(device, threads(trace)[events.track[calls]], events.start_ns[calls])


def launched_within(trace: Trace, nest: Nest) -> I64:
    """Device time launched within each slice of a nest, ns; ``ABSENT`` of all where no flow of the
    rank leads from the host to its device, so that it is unknown."""
    calls = launches(trace)
    if not len(calls.device):
        return np.full(len(nest.rows), ABSENT, np.int64)
    callers = nest.at(calls.thread, calls.time_ns)
    return nest.summed_up(callers, trace.events.dur_ns[calls.device])


_NUMBERED = lazy_regex(r"__\d+(?:_\d+)*\Z")


@lru_cache(1 << 12)
def collective(name: str) -> str:
    """The kind of a communication operation: its name without HCCL's running numbers."""
    return _NUMBERED.sub("", name)


def kernels(trace: Trace, *classes: OpClass) -> NDArray[np.intp]:
    """Device rows of these classes; COMM means whole collectives, on any layer."""
    rows, op = _work(trace)
    is_wanted = np.zeros(len(op), bool)
    for op_class in classes:
        is_wanted |= op == op_class
    return rows[is_wanted]


@once_each
def _work(trace: Trace) -> tuple[NDArray[np.intp], I8]:
    """Device rows, and collectives on any layer; and the class of each."""
    events = trace.events
    on_device = trace.rows_of(Layer.DEVICE) | (events.op == OpClass.COMM)
    rows = np.flatnonzero(on_device & (events.kind == Kind.SLICE))
    return rows, events.op[rows]


# -- calls that keep a device waiting -----------------------------------------------------


def called(names: str, flags: int = 0) -> NameTest:
    """A test of names by a pattern of the whole name."""
    pattern = lazy_regex(names, flags)
    return NameTest(lambda name: pattern.fullmatch(name))


_VERSION = r"(?:_v\d+|_ptsz|_ptds)*(?:\[.*)?"
_WAITS = (
    r"(?:cuda|hip|cu|rt)(?:Device|Stream|Event|Ctx)Synchronize(?:WithTimeout)?"
    r"|(?:AscendCL@)?aclrtSynchronize(?:Device|Stream|Event)(?:WithTimeout)?"
)
ONLY_WAITS = called(f"(?:{_WAITS}){_VERSION}")
SYNCHRONISATION = called(
    rf"(?:{_WAITS}|(?:cuda|hip)Memcpy(?:2D|3D|ToSymbol|FromSymbol)?){_VERSION}"
)
"""Calls of the runtime that wait for the device; and copies that do so, too."""
COLLECTION = called(r"(?:Python )?GC(?: .*)?|gc\.collect|<built-in function collect>", re.I)
"""Garbage collections of Python."""


def leading_rows(trace: Trace, names: NameTest, *layers: Layer) -> NDArray[np.intp]:
    """Slices with these names on the threads that launch work."""
    events, rows = trace.events, rows_named(trace, names)
    if rows.any():
        rows &= events.kind == Kind.SLICE
        rows &= trace.rows_of(*layers) & leading(trace)[events.track]
    return np.flatnonzero(rows)
