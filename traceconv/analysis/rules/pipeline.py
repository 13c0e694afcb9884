"""Rules of the operators of a data pipeline, and of the processors they run on.

Data flows from the leaves to the root. The queue an operator takes from is its left one (the output
queue of what comes before), the one it fills its right one. A full left queue and an empty right
one mean that the operator between them is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from traceconv.analysis.losses import INPUT
from traceconv.analysis.rules.definition import (
    ALL,
    OWN,
    Case,
    FindingSeverity,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    of_table,
    plain,
    rows_of,
)
from traceconv.analysis.tables import data as _data_tables
from traceconv.analysis.tables.fields import floats, named, numbers
from traceconv.core.model import Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT

THEME = "data preparation"
MINDSPORE = "MindSpore's profiler"

_IGNORED = lazy_regex(r"(?:Barrier|Concat|EpochCtrl|Rename|Repeat|Shuffle|Skip|Take|Zip)(?:Op)?")
"""Operators that do no work of their own."""

_KINDS = (
    (lazy_regex(r".*Map(?:Op)?"), "map"),
    (lazy_regex(r".*Batch(?:Op)?"), "batch"),
    (lazy_regex(r"Generator.*"), "generator"),
)
_ADVICE = {
    "map": "Raise num_parallel_workers of this map, move heavy transformations offline, or use "
    "operations in C++ instead of Python functions.",
    "batch": "Raise num_parallel_workers of this batch, and keep per_batch_map cheap.",
    "generator": "Raise num_parallel_workers of the generator, run it in processes "
    "(python_multiprocessing), and keep its code free of work that can be done once.",
    "load": "Raise num_parallel_workers of the reader, store data in fewer and larger files, or on "
    "faster storage.",
}

_TABLE = of_table(_data_tables.TABLES, "pipeline")
_CPU = of_table(_data_tables.TABLES, "cpu")

Operator = Mapping[str, Any]


def _advice(operator: Operator, leaf: bool) -> str:
    kind = next((kind for pattern, kind in _KINDS if pattern.fullmatch(operator["name"])), "")
    return _ADVICE.get(kind or ("load" if leaf else ""), "")


def _operators(trace: Trace) -> Known | None:
    """The operators with the use of the queues on both sides, in percent; None if unknown."""
    rows = rows_of(_TABLE(trace) or {})
    if not any(row["Queue Mean"] == row["Queue Mean"] for row in rows):
        return None
    children: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        children.setdefault(row["Parent"], []).append(row)
    return {
        "operators": [
            {
                "id": row["Id"],
                "name": row["Operator"],
                "workers": row["Workers"],
                "leaf": row["Id"] not in children,
                "left": _mean(_left(row, children)),
                "right": _use(row),
            }
            for row in rows
            if not _IGNORED.fullmatch(row["Operator"])
        ]
    }


def _use(row: Mapping[str, Any]) -> float | None:
    known = (
        row["Queue Mean"] == row["Queue Mean"] and row["Queue Usage(%)"] == row["Queue Usage(%)"]
    )
    return float(row["Queue Usage(%)"]) if known else None


def _left(row: Mapping[str, Any], children: Mapping[int, list[dict[str, Any]]]) -> list[float]:
    """Use of the queues an operator takes from; operators without a queue pass theirs on."""
    found, todo, seen = [], [row["Id"]], set[int]()
    while todo:
        above = todo.pop()
        if above in seen:
            continue  # parents may be broken
        seen.add(above)
        for child in children.get(above, ()):
            use = _use(child)
            if use is None:
                todo.append(child["Id"])
            else:
                found.append(use)
    return found


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _case(rank: int, operator: Operator, value: float) -> Case:
    figures = {
        f"{side}_queue_percent": operator[side]
        for side in ("left", "right")
        if operator[side] is not None
    }
    if operator["workers"] != ABSENT:
        figures["workers"] = operator["workers"]
    where = f"{operator['name']} (operator {operator['id']})"
    advice = _advice(operator, operator["leaf"])
    return Case(rank, value, figures, where, advice=advice, saves_ns=ALL, part_of=(INPUT,))


def _inner(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for one in known["operators"]:
        left, right = one["left"], one["right"]
        if None not in (left, right) and left > limits[""] and right < limits["right"]:
            yield _case(rank, one, left)


def _source(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for one in known["operators"]:
        if one["leaf"] and one["right"] is not None and one["right"] < limits[""]:
            yield _case(rank, one, one["right"])


def _last(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for one in known["operators"]:
        if one["right"] is None and one["left"] is not None and one["left"] > limits[""]:
            yield _case(rank, one, one["left"])


# -- processors ---------------------------------------------------------------------------


def _workers(trace: Trace) -> Known | None:
    side_table = trace.side_tables.get("minddata_pipeline_summary")
    if side_table is None or not len(side_table):
        return None
    rows = plain(
        {
            "id": numbers(side_table, "op_ids"),
            "name": named(side_table, "op_names"),
            "workers": numbers(side_table, "num_workers"),
            "cpu": floats(side_table, "avg_cpu_pct"),
        }
    )
    used = [row for row in rows_of(rows) if row["cpu"] >= 0 and not _IGNORED.fullmatch(row["name"])]
    return {"operators": used} if used else None


def _worker_case(rank: int, one: Operator) -> Case:
    where = f"{one['name']} (operator {one['id']})"
    return Case(rank, one["cpu"], {"workers": one["workers"]}, where)


def _few_workers(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    yield from (_worker_case(rank, o) for o in known["operators"] if o["cpu"] > limits[""])


def _many_workers(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    for one in known["operators"]:
        if one["cpu"] < limits[""] and one["workers"] > 1:
            yield _worker_case(rank, one)


def _machine(trace: Trace) -> Known | None:
    """Mean use of the machine's processors; user and system separately where samples have both."""
    rows = {row["Scope"]: row for row in rows_of(_CPU(trace) or {})}
    row = rows.get("device") or rows.get("system")
    if row is None or ("device" not in rows and _length(trace) < _COUNTED_NS):
        return None
    parts = {
        f"{part}_percent": row[f"{part.title()}(%)"]
        for part in ("user", "sys", "io", "idle")
        if row[f"{part.title()}(%)"] == row[f"{part.title()}(%)"]
    }
    if "idle_percent" not in parts and "user_percent" not in parts:
        return None
    # processors that wait for files or the network have room for work
    free = parts.get("idle_percent", 0.0) + parts.get("io_percent", 0.0)
    busy = max(100 - free, 0.0) if "idle_percent" in parts else parts["user_percent"]
    return {"busy": busy, "samples": row["Samples"], **parts}


_COUNTED_NS = 10**9
"""Kernels count the use of processors in ticks of 10 ms: Paddle's mean of less than this is of few
of them."""


def _length(trace: Trace) -> int:
    """From the first event to the end of the last, ns."""
    events = trace.events
    return int(events.end_ns.max() - events.start_ns.min()) if len(events) else 0


def _apart(trace: Trace) -> Known | None:
    known = _machine(trace)
    used = known and known.get("user_percent", 0.0) + known.get("sys_percent", 0.0)
    return known if known and "sys_percent" in known and used else None


def _cpu_case(rank: int, known: Known, value: float) -> Case:
    return Case(rank, value, {k: v for k, v in known.items() if k != "busy"})


def _cpu_busy(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    if known["busy"] > limits[""]:
        yield _cpu_case(rank, known, known["busy"])


def _cpu_system(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    user, system = known.get("user_percent", 0.0), known["sys_percent"]
    value = 100 * system / (user + system)
    if value > limits[""]:
        yield _cpu_case(rank, known, value)


_QUEUES = "sizes of the queues of a data pipeline (pipeline_profiling)"
_SUMMARY = "use of the CPU by operators of a data pipeline (minddata_pipeline_summary)"
_MACHINE = (
    "use of the machine's CPU (minddata_cpu_utilization, or Paddle's profiler, of a second or more)"
)

RULES: tuple[Rule, ...] = (
    Rule(
        "pipeline-operator",
        "An operator of the data pipeline is slow: full queue before it, empty one behind",
        THEME,
        "use of the operator's left queue, while that of its right one is low",
        (Limit(80.0, "%", MINDSPORE), Limit(60.0, "%", MINDSPORE, "right", below=True)),
        _QUEUES,
        "Give this operator more workers, or less work.",
        _operators,
        each_rank(_inner),
    ),
    Rule(
        "pipeline-source",
        "Reading is slow: the queue behind a first operator of the data pipeline is low",
        THEME,
        "use of the right queue of an operator that has no left one",
        (Limit(50.0, "%", MINDSPORE, below=True),),
        _QUEUES,
        "Give this operator more workers, or faster storage.",
        _operators,
        each_rank(_source),
    ),
    Rule(
        "pipeline-last",
        "The last operator of the data pipeline is slow: the queue before it is full",
        THEME,
        "use of the left queue of the operator that has no right one",
        (Limit(80.0, "%", MINDSPORE),),
        _QUEUES,
        "Give this operator more workers, or less work; if the device queue is never empty, the "
        "pipeline is fast enough.",
        _operators,
        each_rank(_last),
    ),
    Rule(
        "workers-few",
        "The workers of an operator of the data pipeline are busy",
        THEME,
        "mean use of the CPU by the operator's workers",
        (Limit(75.0, "%", MINDSPORE),),
        _SUMMARY,
        "Raise num_parallel_workers of this operator.",
        _workers,
        each_rank(_few_workers),
    ),
    Rule(
        "workers-many",
        "An operator of the data pipeline has more workers than it uses",
        THEME,
        "mean use of the CPU by the operator's workers, of which there are several",
        (Limit(20.0, "%", MINDSPORE, below=True),),
        _SUMMARY,
        "Lower num_parallel_workers of this operator, and give the processors to others.",
        _workers,
        each_rank(_many_workers),
        FindingSeverity.NOTE,
    ),
    Rule(
        "cpu-busy",
        "The processors of the machine are busy",
        THEME,
        "mean use of the machine's processors (what is neither idle nor waits for I/O)",
        (Limit(80.0, "%", MINDSPORE),),
        _MACHINE,
        "The host has no room for more workers: move preprocessing offline or to the device, and "
        "look for other jobs on the machine.",
        _machine,
        each_rank(_cpu_busy),
    ),
    Rule(
        "cpu-system",
        "The processors spend their time in the kernel, not in the program",
        THEME,
        "share of system time in the time the processors are used",
        (Limit(50.0, "%", OWN),),
        f"{_MACHINE}, user and system apart",
        "Look for reading of many small files, for swapping, and for far more threads than "
        "processors.",
        _apart,
        each_rank(_cpu_system),
    ),
)
