"""The changes to a job that gain most: what to do first, and what that is worth.

Candidates are the ranks, groups and stages that a verdict names, and the classes of time of all
ranks. Each is a change as ``traceconv what-if`` takes it, and its gain is that of the change alone.
They are chosen one after the other: the first is the one that gains most, the next the one that
gains most on top of it, as long as that is a share of a step that matters. Of changes that gain
about as much, the more particular one is chosen: one of a rank, a group or a stage before one of
all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from traceconv.analysis.replay.job import CELLS, Replay
from traceconv.analysis.replay.operations import COMPUTE
from traceconv.analysis.replay.what_if import Changed
from traceconv.analysis.statistics import interval
from traceconv.core.columns import F64
from traceconv.core.errors import OptionError

KEPT = 3
"""Most remedies."""

MATERIAL = 0.01
"""Share of a step that a remedy gains at least."""

_ALIKE = 0.95  # of the largest gain: changes that gain about as much


class Change(msgspec.Struct, frozen=True):
    """A change that may help.

    Attributes:
        cause:  what it mends, in a few words.
        change: as of :mod:`traceconv.analysis.replay.what_if`.
        advice: what to do, in one sentence.
        weight: of its gain beside those of others: a change that nobody reaches in full, as one
            that hides all communication, counts less.
    """

    cause: str
    change: str
    advice: str
    weight: float = 1.0


class Remedy(msgspec.Struct, frozen=True):
    """A change that helps.

    Attributes:
        change:  which.
        gain_ns: how much shorter the mean step is with this change alone.
        interval_ns: 95 % interval of that.
        share:   ``gain_ns`` as a share of the mean step.
    """

    change: Change
    gain_ns: int
    interval_ns: tuple[int, int]
    share: float

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "cause": self.change.cause,
            "change": self.change.change,
            "advice": self.change.advice,
            "gain_ns": self.gain_ns,
            "gain_interval_ns": list(self.interval_ns),
            "gain_share": self.share,
        }


OF_UNEVEN_WORK = Change(
    "uneven work", "rank:balanced",
    "Give ranks and micro-batches equal work in every step: sort or pack sequences by length, "
    "balance experts.", 0.6,
)  # fmt: skip

_OVERLAP = Change(
    "exposed communication", "comm:* overlap",
    "Overlap communication with computing: buckets, prefetching, other parallelism.", 0.5,
)  # fmt: skip
_TOO_LITTLE = (
    "Steps compute less than that: find out why communication lasts so long "
    "(tables comm and link of stats)."
)
EVERYWHERE = (
    Change("input", "input:0", "Give the input pipeline more workers, or prefetch further."),
    Change("garbage collection", "gc:0",
           "Disable automatic garbage collection, and collect on all ranks in the same step."),
    Change("gaps between steps", "pause:0",
           "Look for other work between steps: checkpoints, evaluation, logging, data loading."),
    Change("copies", "copy:0", "Overlap copies with computing, and use pinned memory.", 0.8),
    Change("host", "host:0",
           "Let the host run ahead: fewer synchronisations, larger or compiled graphs.", 0.6),
    _OVERLAP,
    OF_UNEVEN_WORK,
)  # fmt: skip
"""Changes of all ranks, the most particular first."""


def remedies(replay: Replay, candidates: Sequence[Change] = ()) -> tuple[Remedy, ...]:
    """The best changes, the first to be made first.

    Args:
        candidates: changes of single ranks, groups or stages, beside those of all ranks.
    """
    if not replay.usable:
        return ()
    least = MATERIAL * float(replay.base.mean())
    remaining = [*candidates, *EVERYWHERE]
    chosen: list[Remedy] = []
    before = replay.base.mean()
    while remaining and len(chosen) < KEPT:
        changes_made = [remedy.change.change for remedy in chosen]
        steps = _steps(replay, [[*changes_made, candidate.change] for candidate in remaining])
        gains = (before - steps.mean(axis=1)).tolist()
        weighted = [
            gain * candidate.weight for gain, candidate in zip(gains, remaining, strict=True)
        ]
        if max(gains) < least:
            break
        best = next(i for i, gain in enumerate(weighted) if gain >= _ALIKE * max(weighted))
        before -= gains[best]
        change = remaining.pop(best)
        # what gains nothing alone gains nothing on top, but for rare cases
        others = zip(remaining, gains[:best] + gains[best + 1 :], strict=True)
        remaining = [candidate for candidate, gain in others if gain >= least / 2]
        saved = replay.base - _steps(replay, [[change.change]])[0]
        low, high = interval(saved)
        gain = float(saved.mean())
        share = gain / replay.step_ns
        if change is _OVERLAP and gain > _computing(replay):
            change = replace(change, advice=_TOO_LITTLE)
        chosen.append(Remedy(change, round(gain), (round(low), round(high)), share))
    return tuple(chosen)


def _computing(replay: Replay) -> float:
    """The mean time that a rank computes in a step."""
    graph = replay.graph
    ns = graph.part_ns[graph.sorts[graph.name] == COMPUTE].sum()
    return float(ns) / (len(graph.ranks) * len(graph.steps))


def _steps(replay: Replay, sets: Sequence[Sequence[str]]) -> F64:
    """(sets, steps): steps with each set of changes; those recorded where a change concerns nothing
    in the job."""
    at_once = max(CELLS // max(len(replay.graph), 1), 1)
    times = np.tile(replay.base, (len(sets), 1))
    for begin in range(0, len(sets), at_once):
        jobs = {}
        for row, changes in enumerate(sets[begin : begin + at_once], begin):
            jobs[row] = job = Changed(replay)
            try:
                for change in changes:
                    job.apply(change)
            except OptionError:
                del jobs[row]
        if jobs:
            lengths = np.stack([job.lengths for job in jobs.values()], axis=1)
            delays = np.stack([job.delays.sum(axis=1) for job in jobs.values()], axis=1)
            times[list(jobs)] = replay.steps(lengths, delays)
    return times
