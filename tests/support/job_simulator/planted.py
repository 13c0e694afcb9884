"""The critical path of a simulated job, from the simulation's own account of what waited for what.

Every op knows whose end let it begin and for which rank it waited; nothing is inferred from times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .simulate import Run

_ALONE = ("compute", "input", "gc", "pause")


@dataclass(frozen=True)
class Stretch:
    """A piece of the path: on which rank, float ns since the job began, and whether it is
    communication (then the rank is the one that waited)."""

    rank: int
    start: float
    end: float
    communication: bool


def step_span(run: Run, step: int) -> tuple[float, float]:
    """From the first rank's start of a step, but not before the end of the last one's step before,
    to the last one's end."""
    borders = np.concatenate([s.table[2] for s in run.stages], axis=1)
    start = borders[step].max() if step else borders[step].min()
    return float(start), float(borders[step + 1].max())


def planted_path(run: Run, step: int) -> list[Stretch]:
    """The path of a step, from its end to its start."""
    size = run.job.stage_size
    start, end = step_span(run, step)
    ends = np.concatenate([s.table[2][step + 1] for s in run.stages])
    rank = int(ends.argmax())
    op = int(run.stages[rank // size].borne[step + 1][rank % size])
    time, found = end, []
    while time > start:
        stage, column = divmod(rank, size)
        s = run.stages[stage]
        if op < 0:
            found.append(Stretch(rank, start, time, False))
            break
        ended = float(s.ends[op][column])
        found.append(Stretch(rank, max(ended, start), time, False))
        if ended <= start:
            break
        other, began = int(s.last[op][column]), float(s.came[op][column])
        alone = s.ops[op].what in _ALONE
        found.append(Stretch(rank, max(began, start), ended, not alone))
        if other != rank:
            stage, column = divmod(other, size)
            op = int(np.flatnonzero(run.stages[stage].table[0][:, column] == began)[0])
        rank, time = other, began
        op = int(run.stages[rank // size].after[op][rank % size])
    return [one for one in found if one.end > one.start]

