"""Slow ranks by the tables of cluster tools, for captures without the ranks' own timelines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceconv.analysis.replay.job import WAITS
from traceconv.analysis.rules.definition import OWN, Case, Known, Limit, Limits, Rule, each_rank
from traceconv.analysis.tables.definition import RANK
from traceconv.analysis.tables.stated_steps import stated_overlap
from traceconv.core.model import Trace

_FEWEST = 3
"""Ranks of a table; of two that differ, either can be the unusual one."""


def _own_times(trace: Trace) -> Known | None:
    """Mean times per step of every rank in the table: outside of communication, and in all."""
    overlap = stated_overlap(trace)
    if not overlap or RANK not in overlap:
        return None
    ranks, codes = np.unique(overlap[RANK], return_inverse=True)
    if len(ranks) < _FEWEST or ranks[0] < 0:
        return None
    steps = np.bincount(codes)
    own_ns = np.bincount(codes, overlap["known_ns"] - overlap["not_overlapped_ns"]) / steps
    return {
        "ranks": ranks.tolist(),
        "own_ns": own_ns.tolist(),
        "step_ns": float((np.bincount(codes, overlap["known_ns"]) / steps).max()),
    }


def _slow_rank(rank: int, facts: Known, limits: Limits) -> Iterator[Case]:
    """The rank with the longest own time: the others wait until the next slowest rank is ready."""
    order = np.argsort(facts["own_ns"])
    slowest, next_slowest = (facts["own_ns"][i] for i in (order[-1], order[-2]))
    value = 100 * (slowest - next_slowest) / facts["step_ns"] if facts["step_ns"] > 0 else 0.0
    if value > limits[""]:
        figures = {
            "own_ns": round(slowest),
            "next_slowest_ns": round(next_slowest),
            "median_ns": round(float(np.median(facts["own_ns"]))),
            "step_ns": round(facts["step_ns"]),
        }
        where = f"rank {facts['ranks'][order[-1]]}"
        saves = slowest - next_slowest
        yield Case(rank, value, figures, where, gone={WAITS: saves})


RULES: tuple[Rule, ...] = (
    Rule(
        "slow-rank",
        "One rank takes longer than all others, by the table of cluster tools",
        "ranks",
        "share of the time per step by which it computes longer than the next slowest rank",
        (Limit(1.0, "%", OWN),),
        "cluster_step_trace_time of at least three ranks, without their timelines",
        "Profile this rank: only its timeline shows whether input, computing or the host is slow.",
        _own_times,
        each_rank(_slow_rank),
    ),
)
