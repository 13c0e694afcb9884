"""What is true of a simulated job: what any verdict and any alignment is measured by.

*Slow* is a rank (or a group's link) whose delay costs the job at least :data:`MATERIAL` of a step,
on average over the steps captured, compared with the same job - the same random numbers - without
any delay. What costs less is immaterial: then nobody is slow. A slow rank is *intermittent* if its
delay affects less than :data:`ALWAYS` of the steps, "once" if it affects one.

The *offset* of a rank at an instant is what must be added to what its clock shows then. Only
differences between ranks can be known from collectives, so alignments are measured by how much two
corrected clocks disagree at the same true instant: the beginning, the middle and the end of the
capture of the rank in question.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .captures import recorded
from .simulate import Run, gain_ns

MATERIAL = 0.01
ALWAYS = 0.6


@dataclass(frozen=True)
class Truth:
    """Who is slow in a job.

    Attributes:
        kind:  "nobody", "constant", "intermittent", "once", "group", or "hidden": a rank is slow
            that no capture can show to be (it has none, or nobody is like it).
        ranks: who; of "group": the members.
        gain_ns: what the job would gain per step.
        step_ns: the usual time of a step.
    """

    kind: str
    ranks: frozenset[int] = frozenset()
    gain_ns: float = 0.0
    step_ns: float = 0.0


def truth(run: Run) -> Truth:
    """Who is slow, see above."""
    job = run.job
    if not job.delays and not job.slow_group:
        return Truth("nobody", step_ns=run.step_ns)
    gain = gain_ns(run)
    if gain < MATERIAL * run.step_ns:
        return Truth("nobody", gain_ns=gain, step_ns=run.step_ns)
    if job.slow_group:
        parallelism, index, _ = job.slow_group
        members = frozenset(job.groups()[parallelism][index].tolist())
        return Truth("group", members, gain, run.step_ns)
    ranks = frozenset(r for delay in job.delays for r in delay.ranks)
    affected = max(int(d.steps(job.steps, job.seed).sum()) for d in job.delays)
    kind = "constant" if affected >= ALWAYS * job.steps else "intermittent"
    kind = "once" if affected == 1 < job.steps else kind
    hidden = not ranks <= set(job.captured) or job.stage_size == 1
    return Truth("hidden" if hidden else kind, ranks, gain, run.step_ns)


def instants(run: Run, rank: int) -> np.ndarray:
    """True times of the beginning, the middle and the end of a rank's capture: int64 (3,)."""
    return recorded(run, rank).true_ns
