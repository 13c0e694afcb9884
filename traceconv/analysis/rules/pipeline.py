"""Rules of the operators of a data pipeline, and of the processors they run on.

Data flows from the leaves to the root. An operator takes from its left queue (the output queue of
the operator before it) and fills its right one. A full left queue and an empty right one mean that
the operator between them is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from traceconv.analysis.rank_facts import INPUT
from traceconv.analysis.rules.definition import (
    ALL,
    OWN,
    Case,
    FindingSeverity,
    Judge,
    Known,
    Limit,
    Limits,
    Rule,
    each_rank,
    facts_of,
    of_table,
    plain,
    rows_of,
)
from traceconv.analysis.rules.queues import MINDSPORE, THEME
from traceconv.analysis.tables import data as _data_tables
from traceconv.analysis.tables.fields import floats, named, numbers
from traceconv.core.model import Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT

_IGNORED = lazy_regex(r"(?:Barrier|Concat|EpochCtrl|Rename|Repeat|Shuffle|Skip|Take|Zip)(?:Op)?")
"""Operators that do no work themselves."""

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


def _operators(trace: Trace) -> Known | None:
    """The operators with the use of the queues on both sides, in percent; None if unknown."""
    rows = rows_of(_TABLE(trace) or {})
    use = {
        row["Id"]: None if np.isnan([row["Queue Mean"], row["Queue Usage(%)"]]).any()
        else float(row["Queue Usage(%)"])
        for row in rows
    }  # fmt: skip
    if all(np.isnan(row["Queue Mean"]) for row in rows):
        return None
    children: dict[int, list[int]] = {}
    for row in rows:
        children.setdefault(row["Parent"], []).append(row["Id"])
    operators = []
    for row in rows:
        if _IGNORED.fullmatch(row["Operator"]):
            continue
        left_use = _use_before(row["Id"], children, use)
        operators.append(
            {
                "id": row["Id"],
                "name": row["Operator"],
                "workers": row["Workers"],
                "leaf": row["Id"] not in children,
                "left": sum(left_use) / len(left_use) if left_use else None,
                "right": use[row["Id"]],
            }
        )
    return {"operators": operators}


def _use_before(
    operator: int, children: Mapping[int, Sequence[int]], use: Mapping[int, float | None]
) -> list[float]:
    """Use of the queues that an operator takes from; operators without a queue pass theirs on."""
    uses, todo, visited = [], [operator], set[int]()
    while todo:
        above = todo.pop()
        if above in visited:
            continue  # parents may be broken
        visited.add(above)
        for child in children.get(above, ()):
            percent = use[child]
            if percent is None:
                todo.append(child)
            else:
                uses.append(percent)
    return uses


def _slow(value_of: Callable[[Operator, Limits], float | None]) -> Judge:
    """A judge of operators.

    Args:
        value_of: the use of a queue of one that is reported, else None.
    """

    def test(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
        for operator in facts["operators"]:
            if (value := value_of(operator, limits)) is None:
                continue
            figures = {
                f"{side}_queue_percent": operator[side]
                for side in ("left", "right")
                if operator[side] is not None
            }
            if operator["workers"] != ABSENT:
                figures["workers"] = operator["workers"]
            kinds = (kind for pattern, kind in _KINDS if pattern.fullmatch(operator["name"]))
            advice = _ADVICE.get(next(kinds, "load" if operator["leaf"] else ""), "")
            where = f"{operator['name']} (operator {operator['id']})"
            yield Case(rank, value, figures, where, advice=advice, gone={INPUT: ALL})

    return each_rank(test)


def _inner(operator: Operator, limits: Limits) -> float | None:
    left, right = operator["left"], operator["right"]
    full = left is not None and right is not None and left > limits[""]
    return left if full and right < limits["right"] else None


def _source(operator: Operator, limits: Limits) -> float | None:
    low = operator["leaf"] and operator["right"] is not None and operator["right"] < limits[""]
    return operator["right"] if low else None


def _last(operator: Operator, limits: Limits) -> float | None:
    full = (
        operator["right"] is None and operator["left"] is not None and operator["left"] > limits[""]
    )
    return operator["left"] if full else None


# -- processors ---------------------------------------------------------------------------


def _workers(trace: Trace) -> Known | None:
    side_table = trace.side_tables.get("minddata_pipeline_summary")
    if not side_table:
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


def _used(reported: Callable[[Operator, float], bool]) -> Judge:
    """A judge of operators by the use of the CPU by their workers."""

    def test(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
        for operator in facts["operators"]:
            if reported(operator, limits[""]):
                where = f"{operator['name']} (operator {operator['id']})"
                yield Case(rank, operator["cpu"], {"workers": operator["workers"]}, where)

    return each_rank(test)


_COUNTED_NS = 10**9
"""Kernels count the use of processors in ticks of 10 ms: in a shorter time Paddle's mean is of a
few ticks."""


def _machine(trace: Trace) -> Known | None:
    """Mean use of the machine's processors; user and system separately where samples have both."""
    rows = {row["Scope"]: row for row in rows_of(_CPU(trace) or {})}
    row, events = rows.get("device") or rows.get("system"), trace.events
    length = int(events.end_ns.max() - events.start_ns.min()) if len(events) else 0
    if row is None or ("device" not in rows and length < _COUNTED_NS):
        return None
    shares = {
        f"{state}_percent": row[f"{state.title()}(%)"]
        for state in ("user", "sys", "io", "idle")
        if row[f"{state.title()}(%)"] == row[f"{state.title()}(%)"]
    }
    if "idle_percent" not in shares and "user_percent" not in shares:
        return None
    # processors that wait for files or the network have room for work
    free = shares.get("idle_percent", 0.0) + shares.get("io_percent", 0.0)
    busy = max(100 - free, 0.0) if "idle_percent" in shares else shares["user_percent"]
    return facts_of(busy, {}, (), {"samples": row["Samples"], **shares})


def _system(trace: Trace) -> Known | None:
    machine = _machine(trace)
    shares = machine["figures"] if machine else {}
    system = shares.get("sys_percent", 0.0)
    used = shares.get("user_percent", 0.0) + system
    return (
        {**machine, "value": 100 * system / used}
        if machine and used and "sys_percent" in shares
        else None
    )


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
        _slow(_inner),
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
        _slow(_source),
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
        _slow(_last),
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
        _used(lambda one, limit: one["cpu"] > limit),
    ),
    Rule(
        "workers-many",
        "An operator of the data pipeline has more workers than it uses",
        THEME,
        "mean use of the CPU by the operator's workers, if it has several",
        (Limit(20.0, "%", MINDSPORE, below=True),),
        _SUMMARY,
        "Lower num_parallel_workers of this operator, and give the processors to others.",
        _workers,
        _used(lambda one, limit: one["cpu"] < limit and one["workers"] > 1),
        FindingSeverity.NOTE,
    ),
    Rule(
        "cpu-busy",
        "The processors of the machine are busy",
        THEME,
        "mean use of the machine's processors (neither idle nor waiting for I/O)",
        (Limit(80.0, "%", MINDSPORE),),
        _MACHINE,
        "The host has no room for more workers: move preprocessing offline or to the device, and "
        "look for other jobs on the machine.",
        _machine,
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
        _system,
    ),
)
