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
    UNCLASSIFIED,
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
        gap_ns:  the gaps between steps, per step, if they are material; they are in no step.
        computing_ns: the part of the step in which devices compute.
        unclassified_ns: the part in which it is unknown whether they do, if it is material.
        per_step: whether steps are marked; else it is all that was recorded.
        steps:   how many each rank has.
        losses:  the material ones, largest first.
    """

    step_ns: float = 0.0
    gap_ns: float = 0.0
    computing_ns: float = 0.0
    unclassified_ns: float = 0.0
    per_step: bool = True
    steps: tuple[int, ...] = ()
    losses: tuple[Loss, ...] = ()

    @classmethod
    def of(cls, by_rank: Mapping[int, Losses], late: Sequence[Late]) -> Lost:
        """The losses of all ranks.

        Args:
            late: ranks and stages that others certainly wait for.
        """
        measured = [losses for losses in by_rank.values() if losses.steps]
        if not measured:
            return cls()
        step_ns = sum(losses.step_ns for losses in measured) / len(measured)
        classes = lost(by_rank, late)
        gap_ns = sum(loss.ns for loss in classes if loss.name == PAUSE)
        gap_ns = gap_ns if gap_ns >= _LEAST * step_ns else 0.0
        unclassified_ns = sum(losses.per(UNCLASSIFIED) for losses in measured) / len(measured)
        return cls(
            step_ns,
            gap_ns,
            sum(losses.per(COMPUTING) for losses in measured) / len(measured),
            unclassified_ns if unclassified_ns >= _LEAST * (step_ns + gap_ns) else 0.0,
            all(losses.per_step for losses in measured),
            tuple(losses.steps for losses in measured),
            tuple(loss for loss in classes if loss.ns >= _LEAST * (step_ns + gap_ns)),
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
            step, gaps, whole = map(time, (self.step_ns, self.gap_ns, self.whole_ns))
            known = "known " * any(loss.name == PAUSE and loss.bound for loss in self.losses)
            return f"step {step} + {known}gaps {gaps} = {whole}"
        return f"{time(self.step_ns)} {'per step' if self.per_step else 'recorded'}"


def headline(
    by_rank: Mapping[int, Losses],
    late: Sequence[Late] = (),
    job_size: int = -1,
    group_size: int = -1,
    shape: JobShape = NO_SHAPE,
) -> str:
    """The time that a step loses, in one line.

    Args:
        by_rank: the figures of each rank.
        late:  ranks and stages that others certainly wait for.
        job_size, group_size: ranks of the job, and of its largest group; -1 if unknown.
        shape: the shape of the job, which names its ranks.
    """
    subject = captured(list(by_rank), job_size, group_size)
    summary = Lost.of(by_rank, late)
    if not summary.steps:
        waits = [
            f"{shape.called(rank.rank)} costs {time(rank.per_step_ns)} per step"
            for rank in late
            if rank.rank >= 0
        ]
        unknown = "computing was not fully recorded in any step, so losses are unknown"
        return f"{subject}: {'; '.join([*waits, unknown])}"
    subject = subject if len(by_rank) == 1 else f"Mean of {subject[:1].lower()}{subject[1:]}"
    step = summary.length() + ("" if summary.gap_ns else _from(by_rank))
    if summary.unclassified_ns:
        unclassified = (
            f"{time(summary.unclassified_ns)} ({summary.percent(summary.unclassified_ns)})"
        )
        step += f", unclassified device work {unclassified}"
    if not summary.losses:
        idle = sum(loss.ns for loss in lost(by_rank) if loss.name in (INPUT, IDLE))
        busy = 100 * (1 - idle / summary.step_ns)
        return f"{subject}: {step}. Device busy {busy:.1f} %; no loss above 1 %"
    words = (
        f"{words_of(loss, shape)} {time(loss.ns)} ({summary.percent(loss.ns)})"
        for loss in summary.losses
    )
    return f"{subject}: {step}. Lost: {', '.join(words)}"


def captured(numbers: Sequence[int], job_size: int, group_size: int) -> str:
    """Which ranks were captured, and how many there are: ``Ranks 0-1 (2 of 8 ranks of the job)``.

    Args:
        numbers: their numbers.
        job_size, group_size: as in :func:`headline`.
    """
    text = ranks(numbers)
    text = text[:1].upper() + text[1:]
    if job_size > len(numbers):
        return f"{text} ({len(numbers)} of {job_size} ranks of the job)"
    if group_size > len(numbers):
        return f"{text} ({len(numbers)} of {group_size} ranks of the group)"
    return text


def losses_as_dicts(by_rank: Mapping[int, Losses], late: Sequence[Late]) -> list[dict[str, Any]]:
    """The classes of lost time, most first, as JSON values; ms per step, the mean over ranks."""
    return [
        {
            "class": loss.name,
            "rank": loss.rank if loss.rank >= 0 else None,
            "stage": loss.stage if loss.stage >= 0 else None,
            "ms_per_step": loss.ns / 1e6,
            "bound": loss.bound or None,
        }
        for loss in lost(by_rank, late)
    ]


def _from(by_rank: Mapping[int, Losses]) -> str:
    """The profiler's table that states the time, if it was not measured: " (step_trace_time)"."""
    ranks_by_source: dict[str, list[int]] = {}
    for rank, losses in by_rank.items():
        if losses.source:
            ranks_by_source.setdefault(losses.source, []).append(rank)
    is_shared = len(ranks_by_source) == 1 and all(
        losses.source for losses in by_rank.values() if losses.steps
    )
    texts = [
        source if is_shared else f"{source} of {ranks(numbers)}"
        for source, numbers in ranks_by_source.items()
    ]
    return f" ({', '.join(texts)})" if texts else ""


def words_of(loss: Loss, shape: JobShape) -> str:
    """The name of a class of lost time. Without the part that waiting for a rank or stage takes,
    it is "other" time, so each name has one figure."""
    if loss.name == LATE:
        stage = f"stage {loss.stage}" if loss.stage >= 0 else "uneven work"
        return f"waiting for {shape.called(loss.rank) if loss.rank >= 0 else stage}"
    name = f"other {WORDS[loss.name]}" if loss.rest else WORDS[loss.name]
    return f"{name} at {loss.bound}" if loss.bound else name
