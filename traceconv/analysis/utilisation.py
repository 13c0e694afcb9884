"""How busy devices were: what utilisation, idle time and exposed communication are.

Everything that states one of these figures (tables, rules, reports) takes it from here, so that
one name has one value. All are of the device windows of steps, as far as these were recorded
(``known_ns`` of :class:`~traceconv.core.columns.StepTable`): of one graph where there are several,
because graphs may contain each other, and only of steps that the capture covers.

* busy = computing + communication that is not overlapped + on GPUs copies that are not overlapped
* idle = known - busy, so a device that waits for data at the start of a step is idle
* utilisation = busy / known, which is between 0 and 100 %

Other tools take other windows. HTA's temporal breakdown counts copies as work, too, but begins with
the first kernel, ends with the last, and drops the last step: a device that waits for data before
its first kernel is not idle there. Paddle's Device Summary takes kernels alone, of the steps as the
host marked them, which can exceed 100 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceconv.core.columns import F64, OverlapSums, StepTable, once_each
from traceconv.core.model import Trace


@once_each
def measured(steps: StepTable) -> StepTable:
    """The steps that figures of a rank are of."""
    return steps.take(steps.known_ns > 0).of_main_graph("known_ns")


def whole_rank(trace: Trace) -> OverlapSums | None:
    """The overlap sums over everything that a rank recorded; None if only some of its steps are
    selected, to which the sums do not apply."""
    return trace.overlap if len(trace.steps) == trace.present.iterations else None


def share(part_ns: Any, known_ns: Any) -> F64:
    """Part of the known time, percent; NaN where nothing is known.

    Args:
        part_ns, known_ns: int64, of one shape; values below 0 are unknown.
    """
    part, known = np.asarray(part_ns, np.float64), np.asarray(known_ns, np.float64)
    there = (known > 0) & (part >= 0)
    percent: F64 = np.divide(100 * part, known, out=np.full(part.shape, np.nan), where=there)
    return percent


def utilisation(free_ns: Any, known_ns: Any) -> F64:
    """The part of the known time in which the device is busy, percent; NaN if unknown."""
    return 100 - share(free_ns, known_ns)
