"""What is true of a simulated job: what any verdict and any alignment is measured by.

What a delay costs is measured by two figures, per step and on average: its *excess*, how much more
its rank has to do than without it, and the *gain*: how much shorter the job is without it, with the
same random numbers. (The gain is less where others are late by chance, or the rank is not on the
critical path.) *Slow* is a rank, or a group's link, both of whose figures are clearly more than
:data:`MATERIAL` of a step. Where both are clearly less, nobody is slow. In between either verdict
is right, as long as nobody else is named. A slow rank is *intermittent* if its delay affects less
than :data:`ALWAYS` of the steps, *once* if it affects one of several. Of ranks that are not alike
(``imbalance``) those are slow that need more than the median of their stage by that much, if that
shows in the gain.

The *offset* of a rank at an instant is what must be added to what its clock shows then. Only
differences between ranks can be known from collectives, so alignments are measured by how much two
corrected clocks disagree at the same true instant: the beginning, the middle and the end of the
capture of the rank in question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .captures import recorded
from .jobs import Delay, Job
from .simulate import Run, gain_ns
from .simulate import run as simulate

MATERIAL = 0.01
_CLEAR = 1.3  # times more, or less, than that
ALWAYS = 0.6


@dataclass(frozen=True)
class Truth:
    """Who is slow in a job.

    Attributes:
        kind:  "nobody", "constant", "intermittent", "once", "group", or "hidden": a rank is slow
            that no capture can show to be (it has none, or nobody is like it).
        clear: whether that is more than a matter of the limit.
        ranks: who; of "group": the members.
        gain_ns: what the job would gain per step.
        step_ns: the usual time of a step.
    """

    kind: str
    ranks: frozenset[int] = frozenset()
    gain_ns: float = 0.0
    step_ns: float = 0.0
    clear: bool = True


def truth(run: Run) -> Truth:
    """Who is slow, see above."""
    job = run.job
    if not job.delays and not job.slow_group:
        return _unlike(run) if job.imbalance else Truth("nobody", step_ns=run.step_ns)
    gain, step = gain_ns(run), run.step_ns
    excess = gain if job.slow_group else max(excess_ns(job, d) for d in job.delays)
    if max(gain, excess) < MATERIAL * step / _CLEAR:
        return Truth("nobody", gain_ns=gain, step_ns=step)
    clear = min(gain, excess) > MATERIAL * step * _CLEAR
    if job.slow_group:
        parallelism, index, _ = job.slow_group
        members = frozenset(job.groups()[parallelism][index].tolist())
        return Truth("group", members, gain, step, clear)
    heavy = [d for d in job.delays if excess_ns(job, d) >= MATERIAL * step / _CLEAR]
    ranks = frozenset(r for delay in heavy for r in delay.ranks)
    affected = max(int(d.steps(job.steps, job.seed).sum()) for d in heavy)
    kind = "constant" if affected >= ALWAYS * job.steps else "intermittent"
    kind = "once" if affected == 1 < job.steps else kind
    hidden = not ranks <= set(job.captured) or job.stage_size == 1
    return Truth("hidden" if hidden else kind, ranks, gain, step, clear)


def _unlike(happened: Run) -> Truth:
    """Who is slow by what ranks are."""
    job, step = happened.job, happened.step_ns
    limit = MATERIAL * step / _CLEAR
    of_step = job.compute_ns * (3 * job.layers_of(0) * job.micro_batches + 0.25)
    stages = happened.usual.reshape(job.pp, -1)
    excess = (stages - np.median(stages, axis=1, keepdims=True)).reshape(-1) * of_step
    slow = tuple(np.flatnonzero(excess > limit).tolist())
    alike = simulate(replace(job, levelled=slow)).duration_ns if slow else happened.duration_ns
    gain = (happened.duration_ns - alike) / job.steps
    if gain < limit:
        return Truth("nobody", gain_ns=gain, step_ns=step)
    clear = min(gain, float(excess.max())) > MATERIAL * step * _CLEAR
    return Truth("constant", frozenset(slow), gain, step, clear)


def excess_ns(job: Job, delay: Delay) -> float:
    """What a delay adds to what its ranks do, per step."""
    return delay.ns * float(delay.steps(job.steps, job.seed).mean())


def instants(run: Run, rank: int) -> np.ndarray:
    """True times of the beginning, the middle and the end of a rank's capture: int64 (3,)."""
    return recorded(run, rank).true_ns
