"""Steps as the profiler's own tables state them: ``step_trace_time`` and the table of a cluster.

They are used where no timeline was recorded (tables alone), and where it holds no device work. A
table of a cluster has rows of many ranks: its facts have a column of ranks, see
:func:`traceconv.analysis.tables.catalog.tables`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import NOTHING, RANK, texts
from traceconv.analysis.tables.fields import named, numbers
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64, StepTable
from traceconv.core.model import STEP_TABLE, UNKNOWN, Trace
from traceconv.core.side_tables import ABSENT, Columns, SideTable
from traceconv.passes.input_wait import with_preparing

VENDOR_NAMES: Mapping[str, str] = {
    "Computing": "computing_ns",
    "Communication(Not Overlapped)": "not_overlapped_ns",
    "Overlapped": "overlapped_ns",
    "Communication": "communication_ns",
    "Free": "free_ns",
    "Stage": "stage_ns",
    "Bubble": "bubble_ns",
    "Communication(Not Overlapped and Exclude Receive)": "exclude_receive_ns",
    "Preparing": "preparing_ns",
}
"""The profiler's columns and what they are called here."""

_SUMMARY_NAMES = {
    "Computation": "computing_ns",
    "Communication Not Overlap Computation": "not_overlapped_ns",
    "Communication Overlap Computation": "overlapped_ns",
    "Communication": "communication_ns",
    "Free": "free_ns",
    "Memory": "copying_ns",
    "Memory Not Overlap Computation Communication": "copy_not_overlapped_ns",
}
"""The same of ``cluster_time_summary``, where Free excludes copies (Ascend/msprof-analyze,
``recipes/cluster_time_summary``, 2026-08)."""

_NAMES = {
    STEP_TABLE: VENDOR_NAMES,
    "cluster_step_trace_time": VENDOR_NAMES,
    "cluster_time_summary": _SUMMARY_NAMES,
}
STATED = tuple(_NAMES)
"""The profilers' tables of steps: of one rank, and of all."""


def only_stated(trace: Trace) -> bool:
    """Whether the profiler's table is all that is known of the work of steps."""
    return trace.hints.tables_only or not (trace.steps.known_ns != UNKNOWN).any()


def stated_steps(trace: Trace) -> Columns:
    """The figures of each step in the profiler's table; :data:`NOTHING` without such a table.

    Returns:
        ``graph`` (-1), ``step`` (ABSENT where the table names none), ``window`` (ABSENT),
        ``device`` (ABSENT where the table names none),
        the columns of :data:`VENDOR_NAMES` in ns (ABSENT where the table lacks them), ``source``
        (the table), and ``Rank`` if the table names ranks. Where some steps were selected, those.
    """
    # a cluster table next to captures whose ranks have timelines
    for name in STATED[: 1 if len(trace.events) else None]:
        table = trace.side_tables.get(name)
        if table and f"{next(iter(_NAMES[name]))}(ns)" in table:
            rows = _rows(trace, table)
            return _facts(name, table, rows) if len(rows) else NOTHING
    return NOTHING


def _rows(trace: Trace, table: SideTable) -> NDArray[np.intp]:
    """The rows of single ranks, for the selected steps."""
    selected = np.ones(len(table), bool)
    if "Type" in table:
        selected &= named(table, "Type") == "rank"
    if len(trace.steps) < trace.present.iterations:
        selected &= np.isin(numbers(table, "Step"), trace.steps.step)
    return np.flatnonzero(selected)


def _facts(name: str, table: SideTable, rows: NDArray[np.intp]) -> Columns:
    lengths = {key: numbers(table, f"{h}(ns)")[rows] for h, key in _NAMES[name].items()}
    nothing = np.full(len(rows), ABSENT, np.int64)
    facts = {
        "graph": np.full(len(rows), -1, np.int64),
        "step": numbers(table, "Step")[rows],
        "window": nothing,
        "device": numbers(table, "Device_id")[rows],
        **dict.fromkeys(VENDOR_NAMES.values(), nothing),
        **lengths,
        "source": texts([name] * len(rows)),
    }
    if name == STATED[1] and "Type" in table:
        facts[RANK] = Texts.of(named(table, "Index")[rows].tolist()).whole()
    if name == STATED[2]:
        facts[RANK] = numbers(table, "Rank")[rows]
        copies = lengths["copy_not_overlapped_ns"]
        facts["free_ns"] = lengths["free_ns"] + np.where(copies != ABSENT, copies, 0)
    return facts


def with_steps_beside(trace: Trace, rows: Columns, stated: Columns) -> Columns:
    """Facts of the steps of a trace, and behind them those that only the profiler's table has.

    A rank may have several captures, one of them with tables only. Those tables count for the steps
    that no other capture has.

    Args:
        rows:   of the steps of the trace.
        stated: of the table; with all columns of ``rows``.
    """
    if not stated or not trace.capture.parts or len(trace.steps) < trace.present.iterations:
        return rows
    beside = (stated["step"] != ABSENT) & ~np.isin(stated["step"], trace.steps.step)
    return {name: np.concatenate((column, stated[name][beside])) for name, column in rows.items()}


def device_time(stated: Columns) -> tuple[I64, I64, I64]:
    """Of each step its length on the device: computing, exposed communication and idle time; its
    idle time; and the part of it that waits for input."""
    parts = [stated[key] for key in ("computing_ns", "not_overlapped_ns", "free_ns")]
    is_known = np.logical_and.reduce([part != ABSENT for part in parts])
    free, waits = with_preparing(stated["free_ns"], stated["preparing_ns"], _follows(stated))
    length = np.where(is_known, np.sum([*parts[:2], free], axis=0, where=is_known), ABSENT)
    return length, free, waits


def stated_overlap(trace: Trace) -> Columns:
    """The figures of the profiler's table of steps that are enough to know how long a step took.

    Returns:
        ``graph``, ``step``, ``window`` and ``source`` as :func:`stated_steps` has
        them, ``Rank`` too if the table names ranks, and the lengths of
        :class:`~traceconv.core.columns.StepTable`, ns, ABSENT where unknown; {} if there are none.

    Raises:
        TraceconvError: the table cannot be read.
    """
    stated = stated_steps(trace)
    if not stated:
        return NOTHING
    nothing = np.full(len(stated["step"]), ABSENT, np.int64)
    figures = {key: stated.get(key, nothing) for key in StepTable.FIGURES[:-1]}
    keys = {k: stated[k] for k in (RANK, "graph", "step", "window", "source") if k in stated}
    length, free, waits = device_time(stated)
    measured = {"known_ns": length, "free_ns": free, "input_wait_ns": waits, "pause_ns": nothing}
    complete = length != ABSENT
    if not complete.any():
        return NOTHING
    return {key: column[complete] for key, column in (keys | figures | measured).items()}


def _follows(stated: Columns) -> NDArray[np.bool_]:
    """Whether the step before is in the table, too: of the same rank and device."""
    step, *other_keys = (stated[key].tolist() for key in ("step", "device", RANK) if key in stated)
    rows = set(zip(step, *other_keys, strict=True))
    before = zip((number - 1 for number in step), *other_keys, strict=True)
    return np.array([row in rows for row in before], bool)
