"""Tables of ranges of the host (NVTX, rocTX, MSTX, ``record_function``, modules), and of the device
work that was launched within them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.analysis.tables.definition import (
    NOTHING,
    TIMED,
    Column,
    Ranked,
    Table,
    ordered,
    stacked,
    texts,
)
from traceconv.analysis.tables.fields import names_of
from traceconv.analysis.tables.groups import Groups
from traceconv.analysis.tables.host import Nest
from traceconv.core.columns import once_each
from traceconv.core.model import Trace
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.passes.projection import ranges_of, work_of_threads

_MODULE = "nn.Module: "
_SUMS = ("Self Time(ns)", "Projected Time(ns)", "Busy Time(ns)", "Tasks")


@once_each
def _instances(trace: Trace) -> Columns:
    """Every range, and its figures; on the device ``ABSENT`` where launches are unknown."""
    rows = ranges_of(trace)
    nest = Nest.of(trace, rows)  # without those of no length
    nested = np.searchsorted(rows, nest.rows)
    self_ns, depth = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    self_ns[nested], depth[nested] = nest.self_ns(), nest.depth()
    absent = np.full(len(rows), ABSENT, np.int64)
    work = work_of_threads(trace, rows) if len(rows) else None
    names = names_of(trace, rows)
    modules = names.fitting(lambda name: name.startswith(_MODULE))
    return {
        "Row": rows,
        "Range": names.mapped(lambda name: name.removeprefix(_MODULE)).column(),
        "Kind": np.where(modules, "module", "range").astype(object),
        "Depth": depth,
        "Self Time(ns)": self_ns,
        "Projected Start Time(ns)": absent if work is None else np.where(
            work.tasks > 0, work.start_ns, ABSENT),
        "Projected Time(ns)": absent if work is None else work.end_ns - work.start_ns,
        "Busy Time(ns)": absent if work is None else work.busy_ns,
        "Tasks": absent if work is None else work.tasks,
    }  # fmt: skip


def _facts(trace: Trace) -> Columns:
    instances = _instances(trace)
    rows = instances["Row"]
    if not len(rows):
        return NOTHING
    names = trace.events.name[rows]
    groups = Groups.of(names)
    return {
        "Range": instances["Range"][groups.first],
        "Kind": instances["Kind"][groups.first],
        **groups.measured(trace.events.dur_ns[rows]),
        **{name: groups.known_total(instances[name]) for name in _SUMS},
    }


def _instance_facts(trace: Trace) -> Columns:
    instances = dict(_instances(trace))
    rows = instances.pop("Row")
    if not len(rows):
        return NOTHING
    step = trace.events.step[rows].astype(np.int64)
    lanes = [trace.tracks[i].name for i in trace.events.track[rows].tolist()]
    return {
        **instances,
        "Step": np.where(step >= 0, step, ABSENT),
        "Thread": texts(lanes),
        "Start Time(ns)": trace.events.start_ns[rows],
        "Host Time(ns)": trace.events.dur_ns[rows],
    }


def _listed(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    return ordered(rows, rows["Start Time(ns)"])


_FORMULA = (
    "Self = duration without the ranges within it on its thread. Tasks = device rows (kernels, "
    "copies, collectives; no waits) launched within it, from its thread. Projected Time = from the "
    "start of the first of them to the end of the last, on all devices; Busy = the part of it in "
    "which one of them runs. Unknown where no launch was recorded."
)
_NEEDS = "ranges on the host: NVTX, rocTX, MSTX, record_function, nn.Module, Paddle's RecordEvent"

TABLES: Sequence[Table] = (
    Table(
        "range",
        "Ranges of the host, and the device work launched within (nvtx_gpu_proj_sum)",
        "Ranges of one name. Kind = module for calls of nn.Module, range for all others. Count; "
        "Total, Min, Avg, Max of durations on the host; Ratio = Total / sum of all Totals, ranges "
        f"within others included. {_FORMULA} Sums over the Count.",
        _NEEDS,
        Column.parse(
            f"Rank, Range:text, Kind:text, {TIMED}, Self Time(ns), Projected Time(ns), "
            "Busy Time(ns), Tasks"
        ),
        _facts,
        capped=True,
    ),
    Table(
        "range_instance",
        "Every range of the host (nvtx_gpu_proj_trace)",
        f"One row per range, by start. Depth = ranges around it on its thread. {_FORMULA}",
        _NEEDS,
        Column.parse(
            "Rank, Step, Range:text, Kind:text, Thread:text, Depth, Start Time(ns), "
            "Host Time(ns), Self Time(ns), Projected Start Time(ns), Projected Time(ns), "
            "Busy Time(ns), Tasks"
        ),
        _instance_facts,
        _listed,
        capped=True,
    ),
)  # fmt: skip
