"""Tables of steps: how long they take, and what of them is compute, communication and idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    Column,
    Ranked,
    Table,
    below,
    joined,
    stacked,
    texts,
)
from traceconv.analysis.tables.fields import is_ascend, numbers
from traceconv.analysis.tables.groups import Groups, mean, pooled
from traceconv.analysis.tables.groups import share as ratio
from traceconv.analysis.tables.stated_steps import (
    STATED,
    VENDOR_NAMES,
    device_time,
    only_stated,
    stated_overlap,
    stated_steps,
    with_steps_beside,
)
from traceconv.analysis.utilisation import share, utilisation, whole_rank
from traceconv.core.clock import us_text
from traceconv.core.intervals import length_within
from traceconv.core.model import (
    I64,
    STEP_TABLE,
    UNKNOWN,
    Covered,
    Kind,
    Layer,
    OpClass,
    StepSource,
    StepTable,
    Trace,
)
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.passes.attribution import occurrence
from traceconv.passes.places import Device, devices, of_device

STYLES = ("torch", "mindspore")
"""Two ways to count ``step_trace_time.csv`` are in circulation. Both count a slice where it begins,
whole:

* "torch" (Ascend PyTorch): in a step is what begins from its first device row to the end of its
  device window, ``start <= t < end``;
* "mindspore" (MindSpore 2.4+): what begins in the step's own time, ``start <= t <= end``; Free
  alone is clipped to it, and the stage is that of the communication rows.
"""

_COUNTED = (OpClass.COMPUTING, OpClass.COMMUNICATION, OpClass.NOT_OVERLAPPED, OpClass.FREE)
_TORCH_RECEIVES = NameTest(lambda name: name.startswith("hcom_receive"))
_TRANSFER = lazy_regex(r"hcom_\w+SendRecv__\d+|hcom_send__\d+|hcom_receive__\d+|Receive-op|Send-op")
_MINDSPORE_TRANSFERS = NameTest(lambda name: _TRANSFER.match(name))


def step_trace_time(
    trace: Trace, style: str = "torch", device: Device | None = None
) -> dict[str, I64]:
    """The columns of ``step_trace_time.csv``, recomputed; one row per step of ``trace.steps``.

    Args:
        trace: with its steps, their attribution and its overlap lanes; communication rows kept.
        style: one of :data:`STYLES`.
        device: the device whose rows count, of several, with rows of no known device; None for all.

    Returns:
        ``graph`` (-1 if the step belongs to none), ``step`` (ABSENT where the source marks no
        steps and the row covers everything), and in ns: ``computing_ns``, ``communication_ns``,
        ``not_overlapped_ns``, ``free_ns``, ``overlapped_ns`` (communication hidden behind
        computing), ``stage_ns`` (from the first to the last activity, without the bubble),
        ``bubble_ns`` (waiting for another pipeline stage), ``exclude_receive_ns`` (communication
        not overlapped, without the bubble), ``preparing_ns`` (from the start of the step to its
        first computing or communication; ABSENT where nothing was recorded before that).
    """
    steps, torch = trace.steps, style == "torch"
    spans = (
        _launch_windows(trace) if torch else np.stack((steps.start_ns, steps.end_ns + 1), axis=1)
    )
    once = torch and trace.hints.vendor == "ascend"  # elsewhere windows do not overlap
    counted = np.ones(len(trace.events), bool)
    if device is not None:
        counted = of_device(trace, device)[trace.events.track]
    classes = {
        op: _Begun.of(trace, counted & (trace.events.op == op), spans, once) for op in _COUNTED
    }
    sums = {op: begun.sums() for op, begun in classes.items()}
    rows = counted & trace.rows_of(Layer.COMM)
    if torch:
        rows &= trace.events.op == OpClass.COMM
    transferring = rows_named(trace, _TORCH_RECEIVES if torch else _MINDSPORE_TRANSFERS)
    transfers = _Begun.of(trace, rows & transferring, spans, once)
    exposed, communication = sums[OpClass.NOT_OVERLAPPED], sums[OpClass.COMMUNICATION]
    bubble = transfers.sums()
    if torch:
        parts = (*classes.values(), transfers)
        first = np.minimum.reduce([begun.first() for begun in parts])
        end = np.maximum.reduce([begun.last() for begun in parts])
        exclude = np.maximum(exposed - bubble, 0)
    else:
        comm = _Begun.of(trace, rows, spans, once=False)
        first, end = comm.first(), comm.end_of_latest()
        sums[OpClass.FREE] = _free_within(trace, steps, counted)
        exclude = exposed - bubble
    return {
        "graph": steps.graph.astype(np.int64),
        "step": np.where(steps.marked, steps.step.astype(np.int64), ABSENT),
        "computing_ns": sums[OpClass.COMPUTING],
        "not_overlapped_ns": exposed,
        "overlapped_ns": communication - exposed,
        "communication_ns": communication,
        "free_ns": sums[OpClass.FREE],
        "stage_ns": np.where(end > _NEVER, end - first - bubble, 0),
        "bubble_ns": bubble,
        "exclude_receive_ns": exclude,
        "preparing_ns": _preparing(trace, classes),
    }


_NEVER, _EVER = -(2**62), 2**62
"""Ends and starts of missing rows: earlier and later than any timestamp."""


class _Begun(msgspec.Struct, frozen=True):
    """Some event rows, and in which steps each of them begins.

    Attributes:
        step, start_ns, end_ns: of every pair of a row and a step; rows by start within a step.
        steps: how many steps there are.
    """

    step: NDArray[np.intp]
    start_ns: I64
    end_ns: I64
    steps: int

    @classmethod
    def of(cls, trace: Trace, mask: NDArray[np.bool_], spans: I64, once: bool) -> _Begun:
        """The rows of ``mask`` that begin within ``spans`` (shape (steps, 2)).

        Args:
            once: whether a row counts in the first of several spans only.
        """
        rows = np.flatnonzero(mask)
        rows = rows[np.argsort(trace.events.start_ns[rows], kind="stable")]
        start, end = trace.events.start_ns[rows], trace.events.ends(rows)
        low = np.searchsorted(start, spans[:, 0])
        high = np.maximum(np.searchsorted(start, spans[:, 1]), low)
        is_counted = np.zeros(len(rows), bool)
        rows_by_step = []
        for first, last in zip(low.tolist(), high.tolist(), strict=True):
            begun = np.arange(first, last)
            if once:
                begun = begun[~is_counted[first:last]]
                is_counted[first:last] = True
            rows_by_step.append(begun)
        step = np.repeat(
            np.arange(len(rows_by_step)), [len(step_rows) for step_rows in rows_by_step]
        )
        order = np.concatenate(rows_by_step) if rows_by_step else np.zeros(0, np.intp)
        return cls(step, start[order], end[order], len(rows_by_step))

    def sums(self) -> I64:
        """Durations per step."""
        summed = np.zeros(self.steps, np.int64)
        np.add.at(summed, self.step, self.end_ns - self.start_ns)
        return summed

    def first(self) -> I64:
        """The earliest start per step."""
        earliest = np.full(self.steps, _EVER, np.int64)
        np.minimum.at(earliest, self.step, self.start_ns)
        return earliest

    def last(self) -> I64:
        """The latest end per step."""
        latest = np.full(self.steps, _NEVER, np.int64)
        np.maximum.at(latest, self.step, self.end_ns)
        return latest

    def end_of_latest(self) -> I64:
        """The end of the row that begins last in each step; of several, that of the first."""
        latest = np.full(self.steps, _NEVER, np.int64)
        np.maximum.at(latest, self.step, self.start_ns)
        rows = np.flatnonzero(self.start_ns == latest[self.step])[::-1]  # the first is written last
        ends = np.full(self.steps, _NEVER, np.int64)
        ends[self.step[rows]] = self.end_ns[rows]
        return ends


def _launch_windows(trace: Trace) -> I64:
    """Where the PyTorch profiler counts each step: from the first task of the first operator that
    launches any within the step's range, to the last one of the last such operator, or the end of
    the range if that is later (Ascend/pytorch ``FwkCANNRelationParser.get_step_range``).

    Windows may overlap: tasks launched early may run behind those of the next step. Steps with
    tasks whose launches are unknown have their device windows.
    """
    steps, events = trace.steps, trace.events
    spans = np.stack((steps.work_start_ns, steps.device_spans[:, 1]), axis=1)
    if trace.hints.vendor != "ascend":
        return spans
    flows = trace.flows
    device = trace.rows_of(Layer.DEVICE, Layer.COMM)[flows.dst]
    of_layer = [trace.rows_of(layer)[flows.src] & device for layer in (Layer.HOST, Layer.RUNTIME)]
    launches = of_layer[0] if of_layer[0].any() else of_layer[1]
    source, task = flows.src[launches], flows.dst[launches]
    order = np.argsort(events.start_ns[source], kind="stable")
    source, task = source[order], task[order]
    time = events.start_ns[source]
    work = np.isin(events.op, (OpClass.COMPUTE, OpClass.COMM)) & (events.kind == Kind.SLICE)
    work[task] = False
    unknown = np.isin(steps.step, events.step[work])
    for i in np.flatnonzero((steps.source == StepSource.HOST_MARKS) & ~unknown).tolist():
        low = np.searchsorted(time, steps.start_ns[i])
        high = np.searchsorted(time, steps.end_ns[i], "right")
        if low < high:
            first = task[low:high][source[low:high] == source[low]]
            last = task[low:high][source[low:high] == source[high - 1]]
            end = max(int(events.ends(last).max()), int(steps.end_ns[i]))
            spans[i] = int(events.start_ns[first].min()), end
    return spans


def _free_within(trace: Trace, steps: StepTable, counted: NDArray[np.bool_]) -> I64:
    """Idle time clipped to each step, summed over devices; slices of a lane are disjoint."""
    free = trace.events.take(counted & (trace.events.op == OpClass.FREE))
    within = np.zeros(len(steps), np.int64)
    for track in np.unique(free.track).tolist():
        lane = free.take(free.track == track)
        idle = np.stack((lane.start_ns, lane.end_ns), axis=1)
        within += length_within(idle, np.stack((steps.start_ns, steps.end_ns), axis=1))
    return within


def _preparing(trace: Trace, classes: Mapping[OpClass, _Begun]) -> I64:
    """From the start of each step to its first work; ABSENT where the host was not recorded."""
    steps = trace.steps
    work = (classes[op].first() for op in (OpClass.COMPUTING, OpClass.COMMUNICATION))
    begun = np.minimum.reduce(list(work))
    is_known = steps.marked & (begun < _EVER)
    is_known &= bool(trace.rows_of(Layer.HOST, Layer.RUNTIME).any())
    return np.where(is_known, begun - steps.start_ns, ABSENT)


_PHASES = {"fp_bp": OpClass.FP_BP, "tail": OpClass.TAIL}


def _columns(steps: StepTable, *names: str) -> dict[str, NDArray[Any]]:
    """Graph, step, window and the columns ``names`` as int64; ABSENT where a length is unknown."""
    key = ("graph", "step", "window")
    columns = {name: getattr(steps, name).astype(np.int64) for name in (*key, *names)}
    for name in set(names) & set(StepTable.LENGTHS):
        columns[name][columns[name] == UNKNOWN] = ABSENT
    return columns


def _step_facts(trace: Trace) -> Columns:
    steps = trace.steps
    if not len(steps) or trace.hints.partial_device:
        return _table_lengths(_table_steps(trace))
    facts = _columns(steps, "start_ns", "dur_ns", "device_start_ns", "device_dur_ns")
    for name in ("device_start_ns", "device_dur_ns"):
        facts[name][steps.covered != Covered.TIMELINE] = ABSENT
    phases = {name: _phase(trace, op) for name, op in _PHASES.items()}
    rows = {**facts, **phases, "interval": _data_bound(trace)}
    return with_steps_beside(trace, rows, _table_lengths(stated_steps(trace)))


def _table_lengths(stated: Columns) -> Columns:
    """Device time of the steps in a table; their starts are not in it."""
    if not stated:
        return NOTHING
    nothing = np.full(len(stated["step"]), ABSENT, np.int64)
    keys = {key: stated[key] for key in (RANK, "graph", "step", "window") if key in stated}
    return {
        **keys, "start_ns": nothing, "dur_ns": nothing, "device_start_ns": nothing,
        "device_dur_ns": device_time(stated)[0], **dict.fromkeys((*_PHASES, "interval"), nothing),
    }  # fmt: skip


def _phase(trace: Trace, op: OpClass) -> I64:
    """Length of one part of each step; ABSENT if the source does not record it."""
    rows, step_rows = _parts_of_steps(trace, op)
    sums = np.zeros(len(trace.steps), np.int64)
    np.add.at(sums, step_rows, trace.events.dur_ns[rows])
    return np.where(np.bincount(step_rows, minlength=len(sums)) > 0, sums, ABSENT)


def _parts_of_steps(trace: Trace, op: OpClass) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows of one part of a step, and the step of each row.

    Numbers may start over; a pause comes before its step, so its end says which one it is.
    """
    events, steps = trace.events, trace.steps
    rows = np.flatnonzero(events.op == op)
    time = events.end_ns if op == OpClass.INTERVAL else events.start_ns
    step_rows = np.full(len(rows), -1, np.intp)
    for graph in np.unique(steps.graph).tolist():
        graph_steps = np.flatnonzero(steps.graph == graph)
        graph_rows = np.flatnonzero(events.graph[rows] == graph)
        step_of = occurrence(
            steps.take(graph_steps), events.step[rows[graph_rows]], time[rows[graph_rows]]
        )
        step_rows[graph_rows] = np.where(step_of < 0, -1, graph_steps[step_of])
    return rows[step_rows >= 0], step_rows[step_rows >= 0]


def _data_bound(trace: Trace) -> I64:
    """From the last end of an iteration, of whatever graph, to the forward pass of each step, as
    the profiler counts it; else the gap that the source records, ABSENT without one.
    """
    steps, forward = trace.steps, np.full(len(trace.steps), ABSENT, np.int64)
    rows, step_rows = _parts_of_steps(trace, OpClass.FP_BP)
    forward[step_rows[::-1]] = trace.events.start_ns[rows[::-1]]  # of several the first
    ends = np.sort(steps.end_ns)
    before = np.searchsorted(ends, forward, "right") - 1
    pause = _phase(trace, OpClass.INTERVAL)
    return np.where(before >= 0, forward - ends[np.maximum(before, 0)], pause)


def _with_headings(rows: Columns, names: dict[str, str]) -> dict[str, NDArray[Any]]:
    graph = np.where(rows["graph"] < 0, ABSENT, rows["graph"])
    return {RANK: rows[RANK], "Graph": graph, **{n: rows[key] for n, key in names.items()}}


def _steps(ranked: Ranked) -> Columns:
    names = {
        "Step": "step", "Start Time(ns)": "start_ns", "Duration(ns)": "dur_ns",
        "Device Time(ns)": "device_dur_ns", "FP_BP Time(ns)": "fp_bp",
        "Iteration Refresh(ns)": "tail", "Data Aug Bound(ns)": "interval", "Window": "window",
        "Device Start Time(ns)": "device_start_ns",
    }  # fmt: skip
    return _with_headings(stacked(ranked), names)


def _summary_facts(trace: Trace) -> Columns:
    if not len(trace.steps) or trace.hints.partial_device:
        return _table_summary(_table_lengths(_table_steps(trace)))
    steps = _columns(trace.steps, "dur_ns")
    groups = Groups.of(steps["graph"])
    return {"graph": steps["graph"][groups.first], **groups.measured(steps["dur_ns"])}


def _table_summary(steps: Columns) -> Columns:
    """Spread of the device times, as a table of steps has no others."""
    steps = {name: column[steps["device_dur_ns"] != ABSENT] for name, column in steps.items()}
    if not len(steps.get("step", ())):
        return NOTHING
    keys = [steps[name] for name in (RANK, "graph") if name in steps]
    groups = Groups.of(*(np.unique(key, return_inverse=True)[1] for key in keys))
    named = {name: steps[name][groups.first] for name in (RANK, "graph") if name in steps}
    return {**named, **groups.measured(steps["device_dur_ns"])}


def _summary(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    if len(ranked) > 1:
        groups = Groups.of(rows["graph"])
        rows = below(rows, {"graph": rows["graph"][groups.first], **pooled(rows, groups)})
    usual = mean(rows["total"], rows["count"])
    spread = np.sqrt(rows["m2"] / np.maximum(rows["count"], 1))
    several = rows["count"] > 1  # one step has no spread
    return {
        **_with_headings(rows, {}),
        "Count": rows["count"],
        "Mean(ns)": usual,
        "Standard Deviation(ns)": np.where(several, np.floor(spread + 0.5), ABSENT).astype(
            np.int64
        ),
        "Min(ns)": rows["low"],
        "Max(ns)": rows["high"],
        "Spread(%)": np.where(several, ratio(spread, usual), np.nan),
    }


# -- overlap ------------------------------------------------------------------------------

_LEGENDS = StepTable.FIGURES


def _overlap_facts(trace: Trace) -> Columns:
    """Per step, and for the whole rank (step ABSENT) where the sums are known."""
    if only_stated(trace) and (from_table := stated_overlap(trace)):
        return from_table
    steps = trace.steps
    rows = _columns(steps, *StepTable.LENGTHS)
    sources = [_SOURCES[Covered(number)] for number in steps.covered.tolist()]
    if (overlap := whole_rank(trace)) is not None:
        sums = overlap.sums_ns._replace(free=overlap.idle_ns)
        waits = steps.input_wait_ns  # of a whole rank, if it is known for all steps of one graph
        one_graph = len(np.unique(steps.graph)) == 1
        wait = int(waits.sum()) if one_graph and (waits >= 0).all() else ABSENT
        rank_row = [-1, ABSENT, ABSENT, *sums, wait, ABSENT]
        rows = {k: np.append(c, w) for (k, c), w in zip(rows.items(), rank_row, strict=True)}
        sources.append(_SOURCES[Covered.TIMELINE])
    is_known = (rows["known_ns"] != ABSENT).any()
    if not is_known:
        return NOTHING
    return with_steps_beside(trace, {**rows, "source": texts(sources)}, stated_overlap(trace))


_SOURCES = {Covered.NOT: "", Covered.TIMELINE: "timeline", Covered.VENDOR_TABLE: STEP_TABLE}
"""Where the figures of a step are from."""


def _overlap(ranked: Ranked) -> Columns:
    rows = dict(stacked(ranked))
    unknown = (rows["computing_ns"] == 0) & (rows["unclassified_ns"] > 0)
    for name in ("computing_ns", "communication_ns", "not_overlapped_ns"):
        rows[name] = np.where(unknown, ABSENT, rows[name])
    if len(ranked) > 1:
        known_rows = {name: column[rows["known_ns"] != ABSENT] for name, column in rows.items()}
        groups = Groups.of(known_rows["graph"], _dense(known_rows["step"]), known_rows["window"])
        job = {name: _mean_present(groups, known_rows[name]) for name in StepTable.LENGTHS}
        job |= {key: known_rows[key][groups.first] for key in ("graph", "step", "window")}
        rows = below(rows, {**job, "source": texts([""] * len(groups))})
    total, comm, alone, free, copies, copies_alone, unclassified, known_ns = (
        rows[key] for key in _LEGENDS
    )
    has_unclassified = (unclassified > 0).any()
    return {
        **_with_headings(rows, {"Step": "step"}),
        "Total Compute(ns)": total,
        "Pure Compute(ns)": _less(total, _less(comm, alone)),
        "Communication Overlapped(ns)": _less(comm, alone),
        "Communication Not Overlapped(ns)": alone,
        "Idle(ns)": free,
        "Known(ns)": known_ns,
        "Memory Copy(ns)": copies,
        "Memory Copy Not Overlapped(ns)": copies_alone,
        "Compute(%)": share(total, known_ns),
        "Exposed Communication(%)": share(alone, known_ns),
        "Idle(%)": share(free, known_ns),
        "Utilization(%)": utilisation(free, known_ns),
        "Window": rows["window"],
        "Source": rows["source"],
        "Input Wait(ns)": rows["input_wait_ns"],
        "Input Wait(%)": share(rows["input_wait_ns"], known_ns),
        **({"Unclassified(ns)": unclassified} if has_unclassified else {}),
        **({"Unclassified(%)": share(unclassified, known_ns)} if has_unclassified else {}),
    }


def _less(whole: I64, part: I64) -> I64:
    """``whole - part``; ABSENT where either is."""
    return np.where((whole == ABSENT) | (part == ABSENT), ABSENT, whole - part)


def _mean_present(groups: Groups, value: I64) -> I64:
    """Mean of each group, of the values that are not ABSENT."""
    present = value != ABSENT
    count = groups.total(present.astype(np.int64))
    return np.where(count > 0, mean(groups.total(np.where(present, value, 0)), count), ABSENT)


def _dense(column: NDArray[Any]) -> NDArray[Any]:
    """Numbers in the order of the steps; rows without a step are last."""
    none_last = np.where(column == ABSENT, np.iinfo(np.int64).max, column)
    return np.unique(none_last, return_inverse=True)[1]


# -- the vendor's own columns -------------------------------------------------------------

_VENDOR = {f"{heading}(ns)": name for heading, name in VENDOR_NAMES.items()}


def _vendor_facts(trace: Trace) -> Columns:
    if from_table := _table_steps(trace):
        copies = ("copying_ns", "copy_not_overlapped_ns")  # of cluster_time_summary
        return {name: column for name, column in from_table.items() if name not in copies}
    if not is_ascend(trace):
        return NOTHING
    steps = trace.steps
    alone = not (steps.known_ns != UNKNOWN).any()
    if alone:  # unless whole communication is all that was recorded of the steps' work
        computes = np.isin(trace.events.op, (OpClass.COMPUTE, OpClass.UNCLASSIFIED)).any()
        communicates = (trace.events.op == OpClass.COMM).any()
        if computes or not communicates or trace.hints.partial_device:
            return NOTHING
    lanes = np.unique(trace.events.track[trace.rows_of(Layer.OVERLAP)]).tolist()
    found_devices = devices([trace.tracks[track] for track in lanes])
    if len(found_devices) > 1:
        parts = [
            _of_device(trace, alone, found_device.number, found_device)
            for found_device in found_devices
        ]
    else:
        number = found_devices[0].number if found_devices else trace.capture.device
        parts = [_of_device(trace, alone, number, None)]
    return with_steps_beside(trace, joined(parts), stated_steps(trace))


def _of_device(trace: Trace, alone: bool, number: int, only: Device | None) -> Columns:
    """The rows of the device with a number: without ``only``, of the whole rank."""
    steps = trace.steps
    computed = step_trace_time(trace, "mindspore" if _is_mindspore(trace) else "torch", only)
    columns = {name: column.copy() for name, column in computed.items()}
    for name in _VENDOR.values():
        columns[name][steps.covered != Covered.TIMELINE] = ABSENT
    if alone:
        columns["communication_ns"] = computed["communication_ns"]
    from_table = np.flatnonzero(steps.covered == Covered.VENDOR_TABLE)
    if len(from_table):
        table = trace.side_tables[STEP_TABLE]
        step = numbers(table, "Step")
        order = np.argsort(step, kind="stable")
        table_rows = order[np.searchsorted(step, steps.step[from_table], sorter=order)]
        for heading, name in _VENDOR.items():
            columns[name][from_table] = numbers(table, heading)[table_rows]
    _compare(trace, columns, number)
    return {
        **columns,
        "window": steps.window.astype(np.int64),
        "device": np.full(len(steps), ABSENT if number < 0 else number, np.int64),
        "source": texts([_SOURCES[Covered(number)] for number in steps.covered.tolist()]),
    }


_TOLERANCE_NS, _TOLERANCE = 1_000, 0.001
"""Differences to the profiler's table that are rounding: it calculates with doubles of us."""


def _compare(trace: Trace, columns: Columns, device: int) -> None:
    """Report steps whose computed figures differ from the profiler's own table."""
    table = trace.side_tables.get(STEP_TABLE)
    if table is None or trace.hints.tables_only:
        return
    stated = stated_steps(trace)
    if not stated:
        return
    is_device = stated["device"] == device
    is_device = is_device if is_device.any() else stated["device"] == ABSENT
    for row in np.flatnonzero(trace.steps.covered == Covered.TIMELINE).tolist():
        step = columns["step"][row]
        table_rows = np.flatnonzero(is_device & (stated["step"] == step))
        for heading, name in VENDOR_NAMES.items() if len(table_rows) == 1 else ():
            computed, written = int(columns[name][row]), int(stated[name][table_rows[0]])
            room = max(_TOLERANCE_NS, int(_TOLERANCE * abs(written)))
            if ABSENT not in (computed, written) and abs(computed - written) > room:
                step_text = f"step {step}: " if step != ABSENT else ""
                figures = f"{heading} {us_text(computed)} µs, {us_text(written)} µs in {table.name}"
                trace.issues.add("figures-differ", table.file, step_text + figures)


def _table_steps(trace: Trace) -> Columns:
    """The profiler's table, if nothing else is known of the work of the steps."""
    return stated_steps(trace) if only_stated(trace) else NOTHING


def _is_mindspore(trace: Trace) -> bool:
    """By the names of the folder and the files that the profiler wrote; folders above may be called
    anything."""
    capture = trace.capture
    paths = [PurePosixPath(path) for path in (capture.label, *capture.files, *capture.known)]
    return "mindspore" in capture.reader or any(
        part.endswith("_ascend_ms") or (path.suffix and part == path.name and "mindspore" in part)
        for path in paths
        for part in path.parts
    )


def _vendor(ranked: Ranked) -> Columns:
    """Rows of the ranks, then the largest of all ranks, as cluster tables give a stage."""
    rows = stacked(ranked)
    if len(ranked) > 1:
        groups = Groups.of(rows["graph"], _dense(rows["step"]), rows["window"])
        keys = ("graph", "step", "window", *_VENDOR.values())
        job = {key: groups.high(rows[key]) for key in keys}
        job[RANK] = job["device"] = np.full(len(groups), ABSENT, np.int64)
        job["source"] = texts([""] * len(groups))
        rows = below(rows, job)
    other_names = {"Window": "window", "Device": "device", "Source": "source"}
    return _with_headings(rows, {"Step": "step", **_VENDOR, **other_names})


_RANK_OR_MEAN, _RANK_OR_MOST = (Column(RANK, "1", "int", of_all=word) for word in ("mean", "max"))

TABLES: Sequence[Table] = (
    Table(
        "step_summary",
        "Step times: mean and spread",
        "Mean = sum of Duration / Count. Standard Deviation = root of the mean squared distance "
        "from the mean. Spread = Standard Deviation / Mean. Job-wide rows take all steps of all "
        "ranks together. Of tables without a timeline it is the steps' device time.",
        "steps, or any events",
        Column.parse(
            "Rank, Graph, Count, Mean(ns), Standard Deviation(ns), Min(ns), Max(ns), Spread(%)"
        ),
        _summary_facts,
        _summary,
        reads=STATED,
    ),
    Table(
        "step",
        "Steps",
        "Duration = end - start of the step as marked. Device Start Time and Device Time = the "
        "device window of the step, in which its figures are measured: it begins with the step, "
        "or where the window of the step before it ends if that is later, and ends with the step "
        "or its last device or communication row, whichever is later; that of an iteration of a "
        "graph is the iteration; if no steps are marked, it is from the first to the last device "
        "row; steps whose device work was not recorded have none. Of tables without a timeline "
        "Device Time is Computing + Communication(Not Overlapped) + Free, and Preparing where the "
        "table lacks the step before. FP_BP and Iteration "
        "Refresh (tail) as the source has them. Data Aug Bound = start of the forward pass - the "
        "last end of an iteration, of whatever graph, before it; without a forward pass or an "
        "earlier iteration, the gap that the source records. Window = number of the "
        "recording window, in which numbers of steps may start over.",
        "steps, or any events",
        Column.parse(
            "Rank, Graph, Step, Start Time(ns), Duration(ns), Device Time(ns), FP_BP Time(ns), "
            "Iteration Refresh(ns), Data Aug Bound(ns), Device Start Time(ns), Window"
        ),
        _step_facts,
        _steps,
        capped=True,
        reads=STATED,
    ),
    Table(
        "overlap",
        "Overlap per rank and step",
        "K = union of compute tasks, M = union of communication operations (where none were "
        "recorded, of the collectives in a step trace), C = union of memory copies and "
        "fills, all on the device. Total Compute = |K|. Pure Compute = |K| - |K and M|. "
        "Communication Overlapped = |K and M|. Communication Not Overlapped = |M| - |K and M|. "
        "Memory Copy = |C|. Memory Copy Not Overlapped = |C| - |C and (K or M)|. Known = the part "
        "of the step's device window (Device Start Time and Device Time of the table of steps) in "
        "which the profiler was collecting, summed over devices. Idle = |Known| - |K or M or C|; "
        "on NPUs |Known| - |K or M|, for there copies are idle time: the vendor's Free, and what "
        "is before the first task and after the last one. Unclassified, where it occurs, = tasks "
        "of types that no table of their producer has, while the device does nothing else; it is "
        "not part of Idle. Where nothing else computes, compute and what it hides are unknown. "
        "Utilization = 100 - Idle / Known. Input Wait = the part of Idle while "
        "the host, or the device itself, waits for input: ranges of data loaders, GetNext, fetches "
        "in tables of the device queue; it is unknown if no source records it. Percentages are of "
        "Known. All are the overlap lanes of the trace, clipped to the window; Source says if they "
        "are from the "
        "vendor's own table instead: there Input Wait is its Preparing, but no more than Idle; it "
        "is idle time beside Free where the table lacks the step before. Steps "
        "whose device work was not recorded have no figures. A row without a step is the whole "
        "rank; a row without a rank is the mean over the ranks that have figures.",
        "all compute slices of a device, with times; communication and copies alone do not tell "
        "what computes",
        (_RANK_OR_MEAN, *Column.parse(
            "Graph, Step, Total Compute(ns), Pure Compute(ns), "
            "Communication Overlapped(ns), Communication Not Overlapped(ns), Idle(ns), "
            "Known(ns), Memory Copy(ns), Memory Copy Not Overlapped(ns), Compute(%), "
            "Exposed Communication(%), Idle(%), Utilization(%), Window, Source:text, "
            "Input Wait(ns), Input Wait(%), Unclassified(ns), Unclassified(%)"
        )),
        _overlap_facts,
        _overlap,
        reads=STATED,
    ),
    Table(
        "step_trace_time",
        "Step time as the Ascend tools count it (step_trace_time.csv)",
        "A slice of the overlap lanes counts, whole, in the step in which it begins, which is from "
        "the first device row of the step to the end of its device window (MindSpore: the step's "
        "own time, and Free is clipped). Where no launch is linked to its task, torch_npu writes "
        "one row for all steps, and those of databases have no Free before their first or after "
        "their last operator; here every step has a row by the same rule. Overlapped = "
        "Communication - "
        "Communication(Not Overlapped). Bubble = operations that receive from another pipeline "
        "stage. Stage = first start to last end - Bubble. Exclude Receive = Communication(Not "
        "Overlapped) - Bubble. Preparing = first work - start of the step. A rank with several "
        "devices has a row for each; communication rows of no known device count for each. A row "
        "without a rank is the largest of all ranks, column by column. Source = what the row is "
        "from: the timeline, or the profiler's own table where a step has no device work there.",
        "device or communication slices of Ascend, or step_trace_time",
        (_RANK_OR_MOST, *Column.parse(
            "Graph, Step, Computing(ns), Communication(Not Overlapped)(ns), "
            "Overlapped(ns), Communication(ns), Free(ns), Stage(ns), Bubble(ns), "
            "Communication(Not Overlapped and Exclude Receive)(ns), Preparing(ns), Window, "
            "Device, Source:text"
        )),
        _vendor_facts,
        _vendor,
        reads=STATED,
    ),
)  # fmt: skip
