"""The headline of a run: the time of its steps, and what they lose, the largest loss first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traceconv.analysis.losses import (
    COPIES,
    EXPOSED,
    IDLE,
    INPUT,
    LATE,
    PAUSE,
    Late,
    Loss,
    Losses,
    lost,
)
from traceconv.core.job_shape import NO_SHAPE, JobShape
from traceconv.report.figures import digits, ranks, time

WORDS = {
    EXPOSED: "exposed communication",
    LATE: "waiting for rank",
    INPUT: "waiting for input",
    IDLE: "idle",
    COPIES: "exposed memory copies",
    PAUSE: "gaps between steps",
}
"""The words for each class of lost time."""

_LEAST = 0.01
"""Share of a step; smaller losses are not named."""


def headline(
    every: Mapping[int, Losses],
    late: Sequence[Late] | None = (),
    job_size: int = -1,
    group_size: int = -1,
    shape: JobShape = NO_SHAPE,
) -> str:
    """The time that a step loses, in one line.

    Args:
        every: the figures of each rank.
        late:  ranks that others certainly wait for; None if ranks were not compared, so that
            exposed communication includes waiting for them.
        job_size, group_size: ranks of the job, and of its largest group; -1 if unknown.
        shape: the shape of the job, which names its ranks.
    """
    who = captured(list(every), job_size, group_size)
    known = [one for one in every.values() if one.steps]
    if not known:
        waits = [
            f"{shape.called(one.rank)} costs {time(one.per_step_ns)} per step" for one in late or ()
        ]
        rest = "computing was not recorded in any step, so losses are unknown"
        return f"{who}: {'; '.join([*waits, rest])}"
    step_ns = sum(one.step_ns for one in known) / len(known)
    step = f"{time(step_ns)} per step" if _steps(known) else f"{time(step_ns)} recorded"
    step += _from(every)
    found = lost(every, late or ())
    pause_ns = sum(one.ns for one in found if one.name == PAUSE)
    whole_ns = step_ns
    if pause_ns >= _LEAST * step_ns:  # a gap is not part of a step: shares are of both
        whole_ns += pause_ns
        step = f"{time(whole_ns)} per iteration (step {time(step_ns)} + gap {time(pause_ns)})"
    shown = [one for one in found if one.ns >= _LEAST * whole_ns]
    alone = late is not None or len(every) == 1
    if not shown:
        busy = 100 * (1 - sum(one.ns for one in found if one.name in (INPUT, IDLE)) / step_ns)
        return f"{who}: {step}. Device busy {busy:.1f} %; no loss above 1 %"
    return f"{who}: {step}. Lost: {', '.join(_words(one, whole_ns, shape, alone) for one in shown)}"


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


def _steps(known: Sequence[Losses]) -> bool:
    return all(one.per_step for one in known)


def _words(one: Loss, whole_ns: float, shape: JobShape, alone: bool) -> str:
    name = WORDS[one.name]
    if one.name == EXPOSED and not alone:
        name = "exposed communication and waiting"
    if one.rank >= 0:
        name = f"{name.removesuffix('rank')}{shape.called(one.rank)}"
    name += f" at {one.bound}" if one.bound else ""
    return f"{name} {time(one.ns)} ({digits(round(100 * one.ns / whole_ns))} %)"
