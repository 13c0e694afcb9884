"""The headline of a run: the time of its steps, and what they lose, the largest loss first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from traceconv.analysis.losses import Late, Loss, lost
from traceconv.analysis.rank_facts import (
    COMPUTING,
    COPIES,
    EXPOSED,
    IDLE,
    INPUT,
    LATE,
    PAUSE,
    Losses,
)
from traceconv.core.job_shape import NO_SHAPE, JobShape
from traceconv.report.figures import digits, ranks, time

WORDS = {
    EXPOSED: "exposed communication",
    INPUT: "waiting for input",
    IDLE: "idle",
    COPIES: "exposed memory copies",
    PAUSE: "gaps between steps",
}
"""The words for each class of lost time except waiting for a rank or stage, which they name."""

_LEAST = 0.01
"""Share of a step; smaller losses are not named."""


class Lost(msgspec.Struct, frozen=True):
    """Losses of the steps of a job: the one source of these figures for headlines and tiles.

    Attributes:
        step_ns: the mean step of the ranks of which it is known, 0 if of none.
        gap_ns:  the gap between steps, if it is material; it is in no step.
        computing_ns: the part of the step in which devices compute.
        per_step: whether steps are marked; else it is all that was recorded.
        steps:   how many, over all ranks.
        losses:  the material ones, largest first.
    """

    step_ns: float = 0.0
    gap_ns: float = 0.0
    computing_ns: float = 0.0
    per_step: bool = True
    steps: int = 0
    losses: tuple[Loss, ...] = ()

    @classmethod
    def of(cls, every: Mapping[int, Losses], late: Sequence[Late]) -> Lost:
        """The losses of all ranks.

        Args:
            late: ranks and stages that others certainly wait for.
        """
        known = [one for one in every.values() if one.steps]
        if not known:
            return cls()
        step_ns = sum(one.step_ns for one in known) / len(known)
        found = lost(every, late)
        gap_ns = sum(one.ns for one in found if one.name == PAUSE)
        gap_ns = gap_ns if gap_ns >= _LEAST * step_ns else 0.0
        return cls(
            step_ns,
            gap_ns,
            sum(one.per(COMPUTING) for one in known) / len(known),
            all(one.per_step for one in known),
            sum(one.steps for one in known),
            tuple(one for one in found if one.ns >= _LEAST * (step_ns + gap_ns)),
        )

    @property
    def whole_ns(self) -> float:
        """What shares are of: the step and the gap after it."""
        return self.step_ns + self.gap_ns

    def percent(self, ns: float) -> str:
        """``ns`` as a share."""
        return f"{digits(round(100 * ns / self.whole_ns))} %"

    def length(self) -> str:
        """How long a step takes."""
        if self.gap_ns:
            parts = f"step {time(self.step_ns)} + gap {time(self.gap_ns)}"
            return f"{time(self.whole_ns)} per iteration ({parts})"
        return f"{time(self.step_ns)} {'per step' if self.per_step else 'recorded'}"


def headline(
    every: Mapping[int, Losses],
    late: Sequence[Late] = (),
    job_size: int = -1,
    group_size: int = -1,
    shape: JobShape = NO_SHAPE,
) -> str:
    """The time that a step loses, in one line.

    Args:
        every: the figures of each rank.
        late:  ranks and stages that others certainly wait for.
        job_size, group_size: ranks of the job, and of its largest group; -1 if unknown.
        shape: the shape of the job, which names its ranks.
    """
    who = captured(list(every), job_size, group_size)
    found = Lost.of(every, late)
    if not found.steps:
        waits = [
            f"{shape.called(one.rank)} costs {time(one.per_step_ns)} per step"
            for one in late
            if one.rank >= 0
        ]
        rest = "computing was not recorded in any step, so losses are unknown"
        return f"{who}: {'; '.join([*waits, rest])}"
    step = found.length() + ("" if found.gap_ns else _from(every))
    if not found.losses:
        idle = sum(one.ns for one in lost(every) if one.name in (INPUT, IDLE))
        busy = 100 * (1 - idle / found.step_ns)
        return f"{who}: {step}. Device busy {busy:.1f} %; no loss above 1 %"
    words = (
        f"{words_of(one, shape)} {time(one.ns)} ({found.percent(one.ns)})" for one in found.losses
    )
    return f"{who}: {step}. Lost: {', '.join(words)}"


def captured(every: Sequence[int], job_size: int, group_size: int) -> str:
    """Which ranks were captured, and how many there are: ``Ranks 0-1 (2 of 8 ranks of the job)``.

    Args:
        every: their numbers.
        job_size, group_size: as in :func:`headline`.
    """
    who = ranks(every)
    who = who[:1].upper() + who[1:]
    if job_size > len(every):
        return f"{who} ({len(every)} of {job_size} ranks of the job)"
    if group_size > len(every):
        return f"{who} ({len(every)} of {group_size} ranks of the group)"
    return who


def losses_as_dicts(every: Mapping[int, Losses], late: Sequence[Late]) -> list[dict[str, Any]]:
    """The classes of lost time, most first, as JSON values; ms per step, the mean over ranks."""
    return [
        {
            "class": one.name,
            "rank": one.rank if one.rank >= 0 else None,
            "stage": one.stage if one.stage >= 0 else None,
            "ms_per_step": one.ns / 1e6,
            "bound": one.bound or None,
        }
        for one in lost(every, late)
    ]


def _from(every: Mapping[int, Losses]) -> str:
    """The profiler's table that states the time, if it was not measured: " (step_trace_time)"."""
    stated: dict[str, list[int]] = {}
    for rank, one in every.items():
        if one.source:
            stated.setdefault(one.source, []).append(rank)
    whole = len(stated) == 1 and all(one.source for one in every.values() if one.steps)
    parts = [
        source if whole else f"{source} of {ranks(numbers)}" for source, numbers in stated.items()
    ]
    return f" ({', '.join(parts)})" if parts else ""


def words_of(one: Loss, shape: JobShape) -> str:
    """The name of a class of lost time. Without the part that waiting for a rank or stage takes,
    it is "other" time, so each name has one figure."""
    if one.name == LATE:
        stage = f"stage {one.stage}" if one.stage >= 0 else "uneven work"
        return f"waiting for {shape.called(one.rank) if one.rank >= 0 else stage}"
    name = f"other {WORDS[one.name]}" if one.rest else WORDS[one.name]
    return f"{name} at {one.bound}" if one.bound else name
