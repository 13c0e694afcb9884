"""The unit of an AI core that bounds each operator, by the counters of the cores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceconv.analysis.tables.definition import (
    NOTHING,
    TIMED,
    Column,
    Ranked,
    Table,
    grouped,
    timed,
)
from traceconv.analysis.tables.fields import fields, mentioned, operator_columns, rounded
from traceconv.analysis.tables.groups import share
from traceconv.analysis.tables.host import kernels
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import F64
from traceconv.core.model import OpClass, Trace
from traceconv.core.side_tables import Columns

_CUBE_CORE, _VECTOR_CORE, _BLOCKS = "aicore_time(us)", "aiv_time(us)", "Block Num"
"""Arguments of tasks: how long their cores work, and the number of blocks."""
_PREFIXES = ("", "aic_", "aiv_")
"""Beginnings of the counters of cores with cube and vector units, of cube and of vector cores."""
_UNITS = {"mac": "Cube", "vec": "Vector", "scalar": "Scalar", "mte1": "MTE1", "mte2": "MTE2",
          "mte3": "MTE3", "fixpipe": "FixPipe"}  # fmt: skip
"""Units, and what they are called: MTE move data into and out of the memory of a core."""
BOUND_PERCENT = 80.0
"""A unit that works so long bounds the operator, as msprof-analyze counts (operator_bound)."""


def _numbers(column: Texts) -> F64:
    """Numbers as written; NaN for other texts."""
    values = [float(text) if text.replace(".", "", 1).isdigit() else np.nan
              for text in column.values]  # fmt: skip
    found: F64 = np.array(values, np.float64)[column.code]
    return found


def _facts(trace: Trace) -> Columns:
    rows = kernels(trace, OpClass.COMPUTE)
    if not len(rows) or not mentioned(trace, _CUBE_CORE, _VECTOR_CORE):
        return NOTHING
    counters = [f"{prefix}{unit}_time(us)" for unit in _UNITS for prefix in _PREFIXES]
    names = (_CUBE_CORE, _VECTOR_CORE, _BLOCKS, *counters)
    columns = np.array([_numbers(column) for column in fields(trace, rows, *names)])
    known = np.isfinite(columns[:2]).any(axis=0)
    if not known.any():
        return NOTHING
    rows = rows[known]
    cube, vector, blocks, *times = np.nan_to_num(columns[:, known])
    spent = rounded(np.array(times) * 1000).reshape(len(_UNITS), len(_PREFIXES), -1).sum(axis=1)
    sums = {"core": rounded((cube + vector) * 1000), "blocks": rounded(blocks)}
    sums |= zip(_UNITS.values(), spent, strict=True)
    described = operator_columns(trace, rows)
    keys = {name: described[name] for name in ("OP Type", "Core Type")}
    return grouped(trace.events.dur_ns[rows], keys, **sums)


def _build(ranked: Ranked) -> Columns:
    rows = timed(ranked)
    shares = {f"{name}(%)": share(rows[name], rows["core"]) for name in _UNITS.values()}
    every = np.nan_to_num(np.array([*shares.values()]))
    names = np.array([*_UNITS.values()], object)
    bound = np.where(every.max(axis=0) >= BOUND_PERCENT, names[every.argmax(axis=0)], "none")
    return {
        **rows,
        **shares,
        "Bound": bound.astype(object),
        "Block Dim": rows["blocks"] / np.maximum(rows["Count"], 1),
    }


TABLES: Sequence[Table] = (
    Table(
        "operator_bound",
        "What bounds operators on AI cores",
        "Compute tasks with counters of their cores, by operator type and core type: Count; Total, "
        "Min, Avg, Max of durations; Ratio = Total / sum of Totals. Cube, Vector, Scalar, MTE1 to "
        "MTE3 (moving data) and FixPipe = time that the unit works / time that the core works, "
        "sums over the tasks, of cube and vector cores together. Bound = the unit with the largest "
        f"share, if that is {BOUND_PERCENT:.0f} % or more, else none: then units wait for each "
        "other. Block Dim = mean number of blocks; a core runs one of them.",
        "counters of AI cores: level 1 of the Ascend PyTorch profiler with aic_metrics "
        "(kernel_details, databases)",
        Column.parse(
            f"Rank, OP Type:text, Core Type:text, Bound:text, {TIMED}, Block Dim:float, Cube(%), "
            "Vector(%), Scalar(%), MTE1(%), MTE2(%), MTE3(%), FixPipe(%)"
        ),
        _facts,
        _build,
        capped=True,
        reads=("kernel_details",),
    ),
)  # fmt: skip
