"""The critical path of a simulated job, from the simulation's own account of what waited for what.

Every op knows whose end let it begin and for which rank it waited; nothing is inferred from times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .jobs import Clock, Delay, Job
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


LAYOUTS = (
    (2, 2, 1), (1, 4, 1), (2, 2, 2), (1, 2, 2), (1, 1, 2), (4, 2, 1), (1, 2, 4), (2, 1, 4),
    (1, 8, 1),
)  # fmt: skip


def any_layout(seed: int, apart: bool = False) -> Job:
    """A job of up to eight ranks, most with somebody who is slow; ``apart``: each rank has a clock
    of its own, which nobody knows."""
    rng = np.random.default_rng((seed, 99))
    tp, dp, pp = LAYOUTS[rng.integers(len(LAYOUTS))]
    ranks, overlap = tp * dp * pp, bool(rng.random() < 0.4)
    slow = Delay(
        (int(rng.integers(ranks)),),
        float(rng.uniform(2e5, 2e6)),
        cause=str(rng.choice(["compute", "host", "input"])),
        anywhere=bool(rng.random() < 0.5),
    )
    return Job(
        tp=tp, dp=dp, pp=pp, steps=10, seed=seed, pace=0.05, overlap=overlap,
        delays=(slow,) if rng.random() < 0.7 else (),
        micro_batches=int(rng.integers(1, 5)) if pp > 1 else 1,
        layers=int(rng.integers(1, 4)),
        jitter=float(rng.choice([5e3, 30e3, 100e3])),
        buckets=int(rng.integers(1, 4)) if overlap else 1,
        transfer_ns={"dp": float(rng.choice([1e5, 1e6, 4e6]))},
        world=bool(rng.random() < 0.5),
        tied=pp > 1 and bool(rng.random() < 0.3),
        messages=str(rng.choice(["eager", "rendezvous"])),
        coalesced=pp == 2 and bool(rng.random() < 0.3),
        stamps="" if apart else "monotonic",
        clocks=tuple(
            Clock(int(rng.integers(-(10**9), 10**9)), float(rng.uniform(-20, 20)))
            for _ in range(ranks if apart else 0)
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """How a path that is said compares with the planted one, as shares of the step.

    Attributes:
        same:    on the same rank, or in communication on both.
        wrong:   elsewhere, and said to be certain, beyond what clocks are off.
        certain: said to be certain.
    """

    same: float
    wrong: float
    certain: float


def agreement(
    run: Run, step: int, said: list[tuple[int, int, int, bool, bool]], error_ns: float
) -> Agreement:
    """Of one step.

    Args:
        said: stretches from the end of the step to its start: rank, start and end in ns before the
            end of the step, whether that is communication, whether it is certain.
        error_ns: by how much clocks may be off; a difference that is no longer is none.
    """
    planted, (_, end) = planted_path(run, step), step_span(run, step)
    true = [(one.rank, end - one.start, end - one.end, one.communication) for one in planted]
    length = said[-1][1]
    same = wrong = certain = 0.0
    i = j = 0
    at = 0.0
    while i < len(said) and j < len(true):
        rank, began, _, talks, sure = said[i]
        until = min(began, true[j][1])
        ns = until - at
        alike = talks == true[j][3] and (talks or rank == true[j][0])
        same += ns * alike
        certain += ns * sure
        wrong += ns * (sure and not alike and ns > error_ns)
        at = until
        i, j = i + (began <= at), j + (true[j][1] <= at)
    return Agreement(same / length, wrong / length, certain / length)
