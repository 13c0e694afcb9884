"""Tables of data preparation: queues, the pipeline's operators, reading time, use of the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traceconv.analysis.tables.definition import (
    NOTHING,
    Column,
    Ranked,
    Table,
    stacked,
    texts,
)
from traceconv.analysis.tables.fields import floats, named, numbers
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.core.columns import F64
from traceconv.core.model import Trace
from traceconv.core.side_tables import ABSENT, Columns, SideTable

# -- the queue to the device --------------------------------------------------------------

_QUEUES = ("device_queue_profiling", "dataset_iterator_profiling")


def _queue_facts(trace: Trace) -> Columns:
    """Per queue file: times of fetching, pushing and batches, and how full the queue was."""
    parts = [
        _queue(name, side_table) for name in _QUEUES if (side_table := trace.side_tables.get(name))
    ]
    if not parts:
        return NOTHING
    return {key: np.array([part[key] for part in parts], _type(parts[0][key])) for key in parts[0]}


def _type(value: Any) -> Any:
    return (
        object if isinstance(value, str) else np.float64 if isinstance(value, float) else np.int64
    )


def _queue(name: str, side_table: SideTable) -> dict[str, Any]:
    kind, second = numbers(side_table, "type"), numbers(side_table, "subtype")
    value = floats(side_table, "value")
    sizes = (kind == 1) & ~np.isnan(value)
    size, room = value[sizes], second[sizes]
    return {
        "Queue": name.removesuffix("_profiling"),
        "Records": int(sizes.sum()),
        "Empty": int((size == 0).sum()),
        "Full": int(((size == room) & (room > 0)).sum()),
        "Capacity": int(room.max()) if len(room) else ABSENT,
        "Mean Size": float(size.mean()) if len(size) else float("nan"),
        **{
            heading: _mean_ns(value[(kind == 0) & (second == number) & ~np.isnan(value)])
            for number, heading in enumerate(("Get Time(ns)", "Push Time(ns)", "Batch Time(ns)"))
        },
    }


def _mean_ns(value_ms: F64) -> int:
    return int(np.floor(value_ms.mean() * 1e6 + 0.5)) if len(value_ms) else ABSENT


def _queues(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    return {
        **rows,
        "Empty(%)": np.ceil(share(rows["Empty"], rows["Records"])),
        "Full(%)": share(rows["Full"], rows["Records"]),
    }


# -- the pipeline -------------------------------------------------------------------------


def _pipeline_facts(trace: Trace) -> Columns:
    side_table = trace.side_tables.get("minddata_pipeline")
    if not side_table:
        return NOTHING
    return {
        "Id": numbers(side_table, "op_id"),
        "Operator": named(side_table, "op_type"),
        "Parent": numbers(side_table, "parent_id"),
        "Workers": numbers(side_table, "num_workers"),
        "Queue Mean": floats(side_table, "output_queue_average_size"),
        "Queue Length": numbers(side_table, "output_queue_length"),
        "Queue Usage(%)": 100 * floats(side_table, "output_queue_usage_rate"),
    }


# -- reading time -------------------------------------------------------------------------


def _reader_facts(trace: Trace) -> Columns:
    """The last block of figures of a log; of a log without one, the means of its lines."""
    side_table = trace.side_tables.get("paddle_timer")
    if not side_table:
        return _lines_facts(trace)
    block = numbers(side_table, "Block")
    is_last = block == block.max()
    return {
        "Measure": named(side_table, "Measure")[is_last],
        "Unit": named(side_table, "Unit")[is_last],
        **{
            heading: floats(side_table, heading)[is_last]
            for heading in ("Avg", "Max", "Min", "Reader Ratio(%)")
        },
    }


_COSTS = {"reader_cost": "Reader Cost(ns)", "batch_cost": "Batch Cost(ns)"}


def _lines_facts(trace: Trace) -> Columns:
    side_table = trace.side_tables.get("paddle_timer_log")
    if not side_table:
        return NOTHING
    costs = {name: numbers(side_table, heading) for name, heading in _COSTS.items()}
    seconds = [column[column != ABSENT] / 1e9 for column in costs.values()]
    values = [*seconds, floats(side_table, "Speed")]
    reader, batch = (float(v.sum()) for v in seconds)
    ratio = 100 * reader / batch if batch and len(seconds[0]) else float("nan")
    present = [i for i, value in enumerate(values) if len(value)]
    return {
        "Measure": texts([(*_COSTS, "ips")[i] for i in present]),
        "Unit": texts([("s", "s", str(named(side_table, "Unit")[0]))[i] for i in present]),
        "Avg": np.array([values[i].mean() for i in present]),
        "Max": np.array([values[i].max() for i in present]),
        "Min": np.array([values[i].min() for i in present]),
        "Reader Ratio(%)": np.array([ratio if i < len(_COSTS) else np.nan for i in present]),
    }


# -- the CPU ------------------------------------------------------------------------------

_CPU = ("user_utilization", "sys_utilization", "io_utilization", "idle_utilization")


def _cpu_facts(trace: Trace) -> Columns:
    """Means of the samples of CPU use by whom it is counted for."""
    side_table = trace.side_tables.get("minddata_cpu_utilization")
    of_paddle = _paddle_cpu(trace)
    if not side_table:
        return of_paddle
    scopes = named(side_table, "scope")
    op = numbers(side_table, "op_id")
    groups = Groups.of(numbered(scopes), np.unique(op, return_inverse=True)[1])
    names = [
        f"{scopes[i]} {op[i]}" if op[i] != ABSENT else str(scopes[i]) for i in groups.first.tolist()
    ]
    return {
        "Scope": texts(names),
        "Samples": groups.size,
        **{
            f"{key.partition('_')[0].title()}(%)": _mean(groups, floats(side_table, key))
            for key in _CPU
        },
    }


def _mean(groups: Groups, value: F64) -> F64:
    n_known = groups.total((~np.isnan(value)).astype(np.int64))
    sums = groups.total(np.nan_to_num(value))
    usual: F64 = np.divide(sums, n_known, out=np.full(len(groups), np.nan), where=n_known > 0)
    return usual


def _paddle_cpu(trace: Trace) -> Columns:
    """What Paddle notes of each window: one figure for the process and one for the host."""
    percents = dict(sorted(trace.hints.cpu_percent.items()))
    if not percents:
        return NOTHING
    nothing = np.full(len(percents), np.nan)
    return {
        "Scope": texts(list(percents)),
        "Samples": np.array([len(v) for v in percents.values()], np.int64),
        "User(%)": np.array([sum(v) / len(v) for v in percents.values()]),
        "Sys(%)": nothing, "Io(%)": nothing, "Idle(%)": nothing,
    }  # fmt: skip


_NEEDS = "MindSpore's data profiling"

TABLES: Sequence[Table] = (
    Table(
        "data",
        "Queues between data preparation and device",
        "Records = samples of the queue; Empty and Full = those of size 0 and of the capacity; "
        "Empty(%) = Empty / Records, rounded up as MindSpore shows it; Mean Size over samples. "
        "Get, Push and Batch Time = mean time per step of the pipeline, of pushing, and of both.",
        f"{_NEEDS} (device_queue_profiling or dataset_iterator_profiling)",
        Column.parse(
            "Rank, Queue:text, Records, Capacity, Empty, Full, Empty(%), Full(%), "
            "Mean Size:float, Get Time(ns), Push Time(ns), Batch Time(ns)"
        ),
        _queue_facts,
        _queues,
        reads=_QUEUES,
    ),
    Table(
        "pipeline",
        "Operators of the data pipeline",
        "Queue Mean = mean size of the output queue; Queue Usage = Queue Mean / Queue Length.",
        f"{_NEEDS} (minddata_pipeline)",
        Column.parse(
            "Rank, Id, Operator:text, Parent, Workers, Queue Mean:float, Queue Length, "
            "Queue Usage(%)"
        ),
        _pipeline_facts,
        reads=("minddata_pipeline",),
    ),
    Table(
        "reader",
        "Reading time of a batch (Paddle's timer)",
        "Mean, max and min over batches as the log's last summary states them, in seconds and in "
        "the log's unit of speed; without one, over its lines. Reader Ratio = mean reader_cost / "
        "mean batch_cost; above 5 % training waits for data.",
        "a log with timer_only=True of Paddle's profiler",
        Column.parse("Rank, Measure:text, Unit:text, Avg:, Max:, Min:, Reader Ratio(%)"),
        _reader_facts,
        reads=("paddle_timer", "paddle_timer_log"),
    ),
    Table(
        "cpu",
        "Use of the CPU",
        "Means over samples, by whom the time is counted for: the host, the process, one operator "
        "of the data pipeline. Paddle gives one figure each, under User.",
        f"{_NEEDS} (minddata_cpu_utilization), or a capture of Paddle's profiler",
        Column.parse("Rank, Scope:text, Samples, User(%), Sys(%), Io(%), Idle(%)"),
        _cpu_facts,
        reads=("minddata_cpu_utilization",),
    ),
)  # fmt: skip
