"""The coordinates of the ranks of a job, from their summaries."""

from __future__ import annotations

from collections.abc import Iterable

from traceconv.analysis.rank_summary import RankSummary
from traceconv.core.job_shape import JobShape, recorded_shape


def job_shape(summaries: Iterable[RankSummary]) -> JobShape:
    """Where the ranks stand in the job: what their captures state."""
    every = list(summaries)
    return recorded_shape(
        {one.rank: one.placement for one in every}, {one.rank: one.host for one in every}
    )
