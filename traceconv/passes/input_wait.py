"""Input wait: the time in which a device is idle because its input is not ready.

Three sources are combined:

* host ranges around the fetch of a batch: ``enumerate(DataLoader)#...__next__`` of PyTorch,
  ``_DataLoaderIter...`` of Paddle, ``train_dataloader_next`` of Lightning, and user ranges with
  such names (NVTX, ``record_function``). Only threads that launch device work or have steps count:
  a thread that fetches ahead delays nothing;
* device operators that wait for the data queue (``GetNext``, ``InitData``);
* fetches of the device in MindSpore's queue tables (``minddata_aicpu``,
  ``minddata_getnext_profiling``).

For a step whose figures come from the vendor's own table, its ``Preparing`` is used: the time from
the start of the step to its first work, see :func:`with_preparing`. It is an upper bound of the
wait.

Input wait is part of idle time: it counts only while the device does nothing. Without any source
for a step it is unknown. Idle time between steps is in no step's window and is counted
separately.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import once_each
from traceconv.core.errors import TraceconvError
from traceconv.core.intervals import (
    intersection,
    length_within,
    merged,
    none,
    subtraction,
    union,
)
from traceconv.core.model import (
    I64,
    STEP_TABLE,
    UNKNOWN,
    Covered,
    Kind,
    Layer,
    Mask,
    OpClass,
    StepTable,
    Trace,
)
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT
from traceconv.passes.places import Device, threads

_RANGES = lazy_regex(
    r"enumerate\(DataLoader\)#.*"
    r"|torch/utils/data/dataloader\.py\(\d+\): __next__"
    r"|(?:.*[.:/])?_\w*DataLoaderIter\w*(?:\.__next__)?"
    r"|.*_dataloader_next"
)
"""Names that frameworks use."""

_WORDS = lazy_regex(
    r"(?:(?:train|val|eval|test) )?(?:data ?loader|(?:data|input|batch) (?:load(?:er|ing)?|wait"
    r"(?:ing)?|fetch(?:ing)?|time|next|iter(?:ator)?)|dataload(?:ing)?)(?: (?:next|wait|time))?"
    r"|(?:load|get|fetch|next|wait|read)(?:ing)?(?: for| next| a| the)*"
    r" (?:data|batch|inputs?|samples?)"
)
"""Names that users choose, as words: ``## data_load ##`` is "data load"."""

_HINTS = ("load", "data", "batch", "input", "sample")  # one of these is in every such name
_LONGEST = 200
"""Longest name that is matched: a trace may have a million names."""

_FETCHES = lazy_regex(r"(?:.*/)?(?:Iterator)?(?:GetNext|InitData)(?![a-z])[^/]*")
_QUEUES = ("minddata_aicpu", "minddata_getnext_profiling")
_NO_WORD = lazy_regex(r"[\W_]+")
_DERIVED = (Layer.OVERLAP, Layer.SCOPE)


def input_wait(trace: Trace) -> Trace:
    """Fill ``input_wait_ns`` and ``pause_ns`` of the steps; after the overlap analysis."""
    steps = trace.steps
    fetched, busy = fetches(trace), _busy(trace)
    rows = _ranges(trace) | fetched
    is_known = _known(trace, rows, fetched) & (steps.covered == Covered.TIMELINE)
    in_table = steps.covered == Covered.VENDOR_TABLE
    preparing = _preparing(trace)
    follows = in_table & np.isin(steps.step - 1, steps.step[in_table])
    if trace.hints.tables_only:
        follows &= _adjoin(steps, preparing)
    free, waits = with_preparing(steps.free_ns, preparing, follows)
    recorded = steps.known_ns + free - steps.free_ns
    if is_known.any():
        spans, waiting = steps.device_spans, _spans(trace, rows)
        if len(trace.windows):
            waiting = intersection(waiting, trace.windows)
        idle = [length_within(subtraction(waiting, device_busy), spans) for device_busy in busy]
        within = np.minimum(np.sum(idle, axis=0, dtype=np.int64), steps.free_ns)
        waits = np.where(is_known, within, waits)
    pauses = _pauses(steps, busy)
    steps = steps.with_columns(
        input_wait_ns=waits, pause_ns=pauses, free_ns=free, known_ns=recorded
    )
    return replace(trace, steps=steps)


def _adjoin(steps: StepTable, preparing: I64) -> Mask:
    """Which steps begin where the figures of the step before end: others are of another collection
    window, and Free of the step before does not reach up to them.
    """
    starts = dict(zip(steps.step.tolist(), steps.start_ns.tolist(), strict=True))
    lengths = dict(zip(steps.step.tolist(), steps.known_ns.tolist(), strict=True))
    before = [starts.get(n - 1, 0) + lengths.get(n - 1, 0) for n in steps.step.tolist()]
    gap = steps.start_ns - np.array(before, np.int64)
    near: Mask = gap <= np.maximum(preparing, 0) + _ROUNDING
    return near


_ROUNDING = 1000
"""The vendor's tables are rounded to a microsecond at worst."""


def with_preparing(free_ns: I64, preparing_ns: I64, follows: Mask) -> tuple[I64, I64]:
    """Idle time and input wait of the steps in the vendor's table.

    The device is idle before the first work of a step. If the previous step is in the table, too,
    that gap is already part of Free: it is counted in the step in which it begins (MindSpore
    divides it between both). The wait is at most the idle time, because a device that runs behind
    its host still works on the previous step.

    Args:
        free_ns, preparing_ns: columns of the table, int64; negative where unknown.
        follows: whether the previous step is in the table, too.

    Returns:
        Idle time, and the part of it that waits for input; unknown where Preparing is unknown.
    """
    is_known = preparing_ns >= 0
    free = free_ns + np.where(is_known & ~follows, preparing_ns, 0)
    return free, np.where(is_known, np.minimum(preparing_ns, free), preparing_ns)


@once_each
def input_spans(trace: Trace) -> I64:
    """Intervals in which a rank waits for input, whatever its device does meanwhile."""
    return _spans(trace, input_rows(trace))


def _spans(trace: Trace, rows: Mask) -> I64:
    spans = union(trace.events.start_ns[rows], trace.events.ends(rows))
    return merged(spans, _queue_spans(trace))


@once_each
def input_rows(trace: Trace) -> Mask:
    """Event rows that wait for input: host ranges and device fetches."""
    return _ranges(trace) | fetches(trace)


def is_input(name: str) -> bool:
    """Whether a host range with this name fetches input."""
    if len(name) > _LONGEST:
        return False
    words = _NO_WORD.sub(" ", name).strip().lower()
    return bool(_RANGES.fullmatch(name) or _WORDS.fullmatch(words))


_OF_INPUT = NameTest(lambda name: any(hint in name.lower() for hint in _HINTS) and is_input(name))
_OF_FETCHING = NameTest(
    lambda name: ("GetNext" in name or "InitData" in name) and _FETCHES.fullmatch(name)
)


def _ranges(trace: Trace) -> Mask:
    """Ranges of the threads that launch device work."""
    rows = _slices_named(trace, _OF_INPUT)
    rows &= ~trace.rows_of(*_DERIVED, Layer.DEVICE, Layer.COMM, Layer.STEP)
    return rows & leading(trace)[trace.events.track] if rows.any() else rows


def fetches(trace: Trace) -> Mask:
    """Event rows that wait for the data queue, on the device or on a host that runs graphs."""
    return _slices_named(trace, _OF_FETCHING) & ~trace.rows_of(*_DERIVED)


def _slices_named(trace: Trace, names: NameTest) -> Mask:
    named: Mask = rows_named(trace, names)
    return named & (trace.events.kind == Kind.SLICE) if named.any() else named


@once_each
def leading(trace: Trace) -> NDArray[np.bool_]:
    """Per track, whether it is of a thread with flows to the device or with step markers; true for
    all tracks if the trace has no flows."""
    events, flows = trace.events, trace.flows
    launching = trace.rows_of(Layer.DEVICE, Layer.COMM)[flows.dst]
    launching &= trace.rows_of(Layer.HOST, Layer.RUNTIME)[flows.src]
    if not launching.any():
        return np.ones(len(trace.tracks), bool)
    marks = trace.rows_of(Layer.HOST) & (events.step >= 0)
    tracks = np.unique(np.append(events.track[flows.src[launching]], events.track[marks]))
    thread = threads(trace)
    return np.isin(thread, thread[tracks])


def _queue_spans(trace: Trace) -> I64:
    """Fetches of the device in the queue tables."""
    for name in _QUEUES:
        if name not in trace.side_tables:
            continue
        try:
            columns = trace.side_tables[name].columns
        except TraceconvError:
            return none()  # reported where the table is shown
        start, end = (columns.get(f"{edge}(ns)", none()[:, 0]) for edge in ("start", "end"))
        if len(start) == len(end) and start.dtype == end.dtype == np.int64:
            complete = (start != ABSENT) & (end != ABSENT)
            return union(start[complete], end[complete])
    return none()


def _known(trace: Trace, rows: Mask, fetched: Mask) -> Mask:
    """The steps whose wait for input is known from ``rows``; ``fetched`` of them are fetches.

    Ranges cover all steps within the recorded time of the host, fetches all steps from the first
    to the last fetch.
    """
    spans = trace.steps.device_spans
    known = np.zeros(len(spans), bool)
    fetch_spans = _spans(trace, fetched)
    if len(fetch_spans):
        known |= (spans[:, 1] > fetch_spans[0, 0]) & (spans[:, 0] < fetch_spans[-1, 1])
    if (rows & ~fetched).any():
        for begin, end in trace.coverage.layers.get(Layer.HOST, ()):
            known |= (spans[:, 1] > begin) & (spans[:, 0] < end)
    return known


def _busy(trace: Trace) -> list[I64]:
    """The busy time of each device, from the overlap analysis."""
    events = trace.events
    classes = [OpClass.COMPUTING, OpClass.COMMUNICATION, OpClass.UNCLASSIFIED_ALONE]
    if trace.hints.vendor != "ascend":
        classes.append(OpClass.COPYING)
    lanes = trace.rows_of(Layer.OVERLAP)
    rows = lanes & np.isin(events.op, classes)
    devices = [Device.of(track) for track in trace.tracks]
    by_device = []
    for device in sorted({devices[i] for i in np.unique(events.track[lanes]).tolist()}):
        on_device = np.array([other == device for other in devices], bool)
        device_rows = rows & on_device[events.track]
        by_device.append(union(events.start_ns[device_rows], events.ends(device_rows)))
    return by_device


def _pauses(steps: StepTable, busy_times: list[I64]) -> I64:
    """The idle time before each step, since the one before it in its graph; else unknown.
    ``busy_times`` is when each device is busy."""
    pauses = np.full(len(steps), UNKNOWN, np.int64)
    order = np.argsort(steps.graph, kind="stable")  # steps are by start
    before, after = order[:-1], order[1:]
    covered, spans = steps.covered == Covered.TIMELINE, steps.device_spans
    adjacent = (steps.graph[before] == steps.graph[after]) & covered[before] & covered[after]
    adjacent &= steps.window[before] == steps.window[after]
    before, after = before[adjacent], after[adjacent]
    if len(after) and busy_times:
        end = spans[before, 1]
        gaps = np.stack((end, np.maximum(spans[after, 0], end)), axis=1)
        length = gaps[:, 1] - gaps[:, 0]
        pauses[after] = sum(length - length_within(busy, gaps) for busy in busy_times)
    return pauses


def _preparing(trace: Trace) -> I64:
    """``Preparing`` of steps with figures from the vendor's own table, otherwise unknown."""
    steps: StepTable = trace.steps
    waits = np.full(len(steps), UNKNOWN, np.int64)
    from_table = np.flatnonzero(steps.covered == Covered.VENDOR_TABLE)
    if len(from_table):
        columns = trace.side_tables[STEP_TABLE].columns
        number, length = columns["Step"], columns.get("Preparing(ns)")
        if length is not None and length.dtype == np.int64:
            order = np.argsort(number, kind="stable")
            lengths = length[order[np.searchsorted(number, steps.step[from_table], sorter=order)]]
            waits[from_table] = np.where(lengths == ABSENT, UNKNOWN, lengths)
    return waits
