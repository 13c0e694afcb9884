"""What every nanosecond of the steps of a rank went to: items that add up to the step, exactly.

Of the device windows of the steps that a capture covers, as :mod:`traceconv.analysis.utilisation`
takes them, and of the classes of the overlap analysis (:mod:`traceconv.passes.overlap`):

* ``compute``: the computing class, by kernel, operator, shapes and module;
* ``communication``: what of the collectives nothing hides, by kind, group and size;
* ``copy``: copies and fills while nothing else runs;
* ``unclassified``: tasks of unknown types while nothing else runs;
* ``wait``: a gap in which the device does nothing, by the work that ends it, and by its cause:
  ``input`` where the rank waits for input (:mod:`traceconv.passes.input_wait`), ``host`` where the
  call that launches this work begins after the gap does, or where launches are known and no further
  one follows, else ``unknown``;
* ``unrecorded``: the part of the window that the profiler did not record.

If several rows of one class run at once, the time belongs to the one that began first. Rows that
began together are ordered by lane, as on screen, then by place in the table. The first row holds
its time until it ends, so no row is split in two.

On NPUs copies are part of the idle time in tables and reports, as the vendor counts. Here they are
separate items, unless the rank waits for input meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.analysis.diff.labels import END, Cause, Label, Sources, labels
from traceconv.analysis.rank_facts import INPUT, KEY, Sort, StepItems
from traceconv.analysis.tables.definition import texts
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import I64, once_each
from traceconv.core.intervals import (
    holding,
    intersection,
    length_within,
    merged,
    none,
    subtraction,
    union,
)
from traceconv.core.model import Covered, Layer, StepTable, Trace
from traceconv.core.side_tables import Columns
from traceconv.passes.input_wait import input_spans
from traceconv.passes.overlap import DeviceTime, device_times

RECORDED = (Layer.HOST, Layer.RUNTIME, Layer.DEVICE, Layer.COMM)
"""Layers whose recording decides on what can be compared."""


def step_items(trace: Trace, collectives: CollectiveRecords) -> StepItems:
    """The items of a rank.

    Args:
        trace: after the passes of the detail view.
        collectives: its communication operations.
    """
    steps, devices, builder = _built(trace, collectives)
    if not devices:
        return StepItems()
    length_ns = steps.device_dur_ns * devices
    items, parts = builder.copy().finish(length_ns)
    recorded = trace.coverage.layers
    layers = [str(layer) for layer in RECORDED if recorded.get(layer)]
    layers += [INPUT] * bool((steps.input_wait_ns >= 0).any())
    return StepItems(
        devices=devices,
        marked=bool(steps.marked.all()),
        vendor=trace.hints.vendor,
        layers=tuple(layers),
        steps={
            "step": steps.step.astype(np.int64),
            "window": steps.window.astype(np.int64),
            "start_ns": steps.start_ns,
            "end_ns": np.maximum(steps.end_ns, steps.device_spans[:, 1]),
            "ns": length_ns,
            "pause_ns": steps.pause_ns,
        },
        items=items,
        parts=parts,
    )


class Placed(msgspec.Struct, frozen=True):
    """Where items are in a rank.

    Attributes:
        keys: of the items, as :data:`KEY`.
        item: index into ``keys`` of every piece of time.
        row:  the event row that owns it; -1 of gaps.
        spans: (n, 2): start and end; disjoint on each device. What of a gap waits for input is
            apart from the rest of it.
    """

    keys: Sequence[tuple[str, ...]]
    item: I64
    row: I64
    spans: I64


def placed(trace: Trace, collectives: CollectiveRecords) -> Placed:
    """The intervals of a rank and the items they belong to; arguments as of
    :func:`step_items`."""
    _, devices, builder = _built(trace, collectives)
    if not devices:
        return Placed((), none()[:, 0], none()[:, 0], none())
    pieces = []
    for item, row, time, cells in builder.placed:
        inside = _Gaps.of(time, cells)
        pieces.append((item[inside.at], row[inside.at], inside.pieces))
    items, rows, spans = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return Placed(list(builder.number), items, rows, spans)


@once_each
def _built(trace: Trace, collectives: CollectiveRecords) -> tuple[StepTable, int, _Builder]:
    """The steps that are covered, how many devices there are, and their time put into items."""
    steps = measured(trace.steps)
    steps = steps.take(steps.covered == Covered.TIMELINE)
    builder = _Builder(len(steps))
    devices = device_times(trace) if len(steps) else []
    if devices:
        spans, sources = steps.device_spans, Sources.of(trace, collectives)
        with_input = spans[steps.input_wait_ns >= 0]
        waiting = input_spans(trace) if len(with_input) else none()
        if len(trace.windows):
            waiting = intersection(waiting, trace.windows)
        waiting = intersection(waiting, union(*with_input.T)) if len(waiting) else waiting
        for device in devices:
            _attribute(builder, sources, device, spans, waiting)
    return steps, len(devices), builder


# -- time ---------------------------------------------------------------------------------


def _attribute(
    builder: _Builder, sources: Sources, device: DeviceTime, spans: I64, waiting: I64
) -> None:
    """Put the time and the rows of one device into items."""
    copying = device.copying
    if sources.ascend:
        copying = subtraction(copying, waiting)
    classes = (
        (device.kernels, device.computing, sources.compute),
        (device.calls, device.exposed, sources.communication),
        (device.copies, copying, sources.copy),
        (device.unclassified_tasks, device.unclassified, sources.unclassified),
    )
    owner_rows, ids = [], []
    for rows, time, label in classes:
        columns = label(rows)
        item = builder.numbers(columns)
        start, length = (getattr(sources.trace.events, key)[rows] for key in _EXTENT)
        builder.occur(item, start, length, holding(spans, start))
        owner, begin = _owners(sources.trace, rows)
        owner_of, step_of, cells = _cells(begin, spans)
        owned = item[owner][owner_of]
        builder.add(owned, step_of, length_within(time, cells))
        builder.put(owned, time, cells, rows[owner][owner_of])
        owner_rows.append(rows[owner])
        ids.append(columns["name"][owner])
    busy = merged(merged(device.computing, device.exposed), copying)
    busy = merged(busy, device.unclassified)
    idle = subtraction(device.known, busy)
    gaps = _Gaps.of(idle, spans)
    work = _Work.of(sources, np.concatenate(owner_rows), Texts.concat(ids))
    times = intersection(idle, waiting), subtraction(idle, waiting)
    for (name, cause, gap_step, ns), time in zip(
        gaps.waits(work, spans, waiting), times, strict=False
    ):
        item, positive = builder.numbers(labels(Sort.WAIT, name, type=cause)), ns > 0
        builder.add(item, gap_step, ns, once=True)
        builder.put(item[positive], time, gaps.pieces[positive])


_EXTENT = ("start_ns", "dur_ns")


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
    """Time cut at every ``begin`` (ascending) and at the boundaries of steps.

    Returns:
        Of each cell, the last ``begin`` (the first one for what is before it), the step it is in,
        and its start and end.
    """
    low = np.maximum(np.searchsorted(begin, spans[:, 0], "right") - 1, 0)
    size = np.maximum(np.searchsorted(begin, spans[:, 1]) - low, 1) * bool(len(begin))
    step_of = np.repeat(np.arange(len(spans)), size)
    begin_of = low[step_of] + np.arange(len(step_of)) - np.repeat(np.cumsum(size) - size, size)
    is_first = begin_of == low[step_of]
    is_last = begin_of == (low + size - 1)[step_of]
    if not len(begin):
        return begin_of, step_of, none()
    cells = np.empty((len(step_of), 2), np.int64)
    cells[:, 0] = np.where(is_first, spans[step_of, 0], begin[begin_of])
    cells[:, 1] = np.where(
        is_last, spans[step_of, 1], begin[np.minimum(begin_of + 1, len(begin) - 1)]
    )
    return begin_of, step_of, cells


class _Work(msgspec.Struct, frozen=True):
    """Device work by start: names, and launch times (-1 if unknown).

    ``traced``: whether launches were recorded at all.
    """

    start_ns: I64
    name: Texts
    launched_ns: I64
    traced: bool

    @classmethod
    def of(cls, sources: Sources, rows: NDArray[np.intp], names: Texts) -> _Work:
        """Args:
        rows: in order of precedence, where several begin at once.
        """
        start = sources.trace.events.start_ns[rows]
        order = np.argsort(start, kind="stable")
        launched = sources.launched_ns
        return cls(start[order], names[order], launched[rows[order]], bool((launched >= 0).any()))


class _Gaps(msgspec.Struct, frozen=True):
    """Idle intervals of a device, cut at step boundaries.

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
        step_of = np.repeat(np.arange(len(spans)), size)
        interval_of = (
            low[step_of] + np.arange(len(step_of)) - np.repeat(np.cumsum(size) - size, size)
        )
        start = np.maximum(idle[interval_of, 0], spans[step_of, 0])
        end = np.minimum(idle[interval_of, 1], spans[step_of, 1])
        return cls(idle[interval_of, 0], step_of, np.stack((start, end), axis=1))

    def waits(
        self, work: _Work, spans: I64, waiting: I64
    ) -> Sequence[tuple[Texts, Texts, NDArray[np.intp], I64]]:
        """Names, causes, steps and lengths: what waits for input, then the rest."""
        end = self.pieces[:, 1]
        # boundaries that were taken from the profiler's own lanes may be 1 ns before a row
        after = np.searchsorted(work.start_ns, end - 1)
        has_next = after < len(work.start_ns)
        next_ = np.minimum(after, max(len(work.start_ns) - 1, 0))
        if not len(work.start_ns):
            return ()
        inside = has_next & (work.start_ns[next_] < spans[self.at, 1])
        name = work.name[next_].kept(inside, END)
        never = np.iinfo(np.int64).max if work.traced else -1
        launched = np.where(has_next, work.launched_ns[next_], never)
        host = (launched >= 0) & (launched >= self.begin_ns)
        cause = Texts((str(Cause.UNKNOWN), str(Cause.HOST)), host.astype(np.int32))
        for_input = length_within(waiting, self.pieces)
        remaining = end - self.pieces[:, 0] - for_input
        inputs = Texts.same(str(Cause.INPUT), len(name))
        return (name, inputs, self.at, for_input), (name, cause, self.at, remaining)


# -- put together -------------------------------------------------------------------------


class _Builder:
    """Items and parts as they are found; everything is summed up at the end."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.number: dict[tuple[str, ...], int] = {}
        self.placed: list[tuple[I64, I64, I64, I64]] = []
        self._parts: list[dict[str, I64]] = []
        self._first: list[tuple[I64, I64, I64]] = []

    def numbers(self, label: Label) -> I64:
        """A number per row, equal where the columns of :data:`KEY` are."""
        columns = [label[key] for key in KEY]
        groups = Groups.of(*(column.numbers() for column in columns))
        key_columns = (column[groups.first].mapped(_valid).tolist() for column in columns)
        keys = zip(*key_columns, strict=True)
        numbers_of_keys = [self.number.setdefault(key, len(self.number)) for key in keys]
        return groups.spread(np.array(numbers_of_keys, np.int64))

    def add(self, item: I64, at: NDArray[np.intp], ns: I64, once: bool = False) -> None:
        """Time that belongs to items; ``once``: each of the lengths is an occurrence."""
        positive = ns > 0
        count = np.full(int(positive.sum()), int(once))
        self._parts.append({"item": item[positive], "at": at[positive], "ns": ns[positive],
                            "count": count, "busy_ns": ns[positive] * once})  # fmt: skip

    def put(self, item: I64, time: I64, cells: I64, rows: NDArray[np.intp] | None = None) -> None:
        """Where that is: what of ``time`` is in each cell, and the event rows that own it."""
        owners = np.full(len(item), -1) if rows is None else rows
        self.placed.append((item, owners, time, cells))

    def occur(self, item: I64, start: I64, length: I64, at: I64) -> None:
        """Rows of items that begin in steps (``at``; -1 = in none)."""
        in_step = at >= 0
        n = int(in_step.sum())
        self._parts.append({"item": item[in_step], "at": at[in_step], "ns": np.zeros(n, np.int64),
                            "count": np.ones(n, np.int64), "busy_ns": length[in_step]})  # fmt: skip
        self._first.append((item[in_step], at[in_step], start[in_step]))

    def copy(self) -> _Builder:
        """A copy to which more items and parts can be added."""
        duplicate = copy(self)
        duplicate.number, duplicate._parts = dict(self.number), list(self._parts)
        return duplicate

    def finish(self, length_ns: I64) -> tuple[Columns, Columns]:
        """Items and parts; the rest of a step was not recorded."""
        parts = _stacked(self._parts)
        known_ns = np.zeros(self._steps, np.int64)
        np.add.at(known_ns, parts["at"], parts["ns"])
        unrecorded_ns = length_ns - known_ns
        if unrecorded_ns.any():
            none = self.numbers(labels(Sort.UNRECORDED, Texts.same("", self._steps)))
            self.add(none, np.arange(self._steps), unrecorded_ns, once=True)
            parts = _stacked(self._parts)
        groups = Groups.of(parts["item"], parts["at"])
        summed = {name: groups.total(parts[name]) for name in ("ns", "count", "busy_ns")}
        places = {name: parts[name][groups.first].astype(np.int64) for name in ("item", "at")}
        used, places["item"] = np.unique(places["item"], return_inverse=True)
        places["item"] = places["item"].reshape(-1).astype(np.int64)
        keys = list(self.number)
        columns = {key: texts([keys[n][i] for n in used.tolist()]) for i, key in enumerate(KEY)}
        first_rows, last_rows = self._first_places()
        return {**columns, "first": first_rows[used], "last": last_rows[used]}, {**places, **summed}

    def _first_places(self) -> tuple[I64, I64]:
        """The smallest and largest number of the first row of every item among all of a step."""
        low = np.full(len(self.number), -1, np.int64)
        high = low.copy()
        item, step_of, start = (np.concatenate(c) for c in zip(*self._first, strict=True))
        order = np.lexsort((start, step_of))
        item, step_of = item[order], step_of[order]
        position = np.arange(len(step_of)) - np.searchsorted(step_of, step_of)
        # place ascends within a step, so the first row of a group has the smallest
        groups = Groups.of(item, step_of)
        first_places, items_of = position[groups.first], item[groups.first]
        by_item = Groups.of(items_of)
        low[items_of[by_item.first]], high[items_of[by_item.first]] = (
            by_item.low(first_places),
            by_item.high(first_places),
        )
        return low, high


def _valid(text: str) -> str:
    """Text that can be written: halves of surrogate pairs become escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _stacked(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
