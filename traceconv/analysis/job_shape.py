"""The coordinates of the ranks of a job, from their summaries."""

from __future__ import annotations

from collections.abc import Iterable

from traceconv.analysis.rank_summary import RankSummary
from traceconv.core.job_shape import STAGE, JobShape, recorded_shape


def job_shape(summaries: Iterable[RankSummary]) -> JobShape:
    """Where the ranks stand in the job: what their captures state, and what can be inferred."""
    return stated_shape(summaries)


def stated_shape(summaries: Iterable[RankSummary]) -> JobShape:
    """Where the ranks stand in the job: what their captures state."""
    every = list(summaries)
    return recorded_shape(
        {one.rank: one.placement for one in every}, {one.rank: one.host for one in every}
    )


def recorded_stages(summaries: Iterable[RankSummary]) -> list[list[int]]:
    """The ranks of each pipeline stage, where captures state those of all; else empty."""
    shape = stated_shape(summaries)
    by_stage = shape.ranks_by(STAGE)
    return [] if -1 in by_stage else list(by_stage.values())
