"""Sections of a report that come from the replay of the job: one step of all ranks, how much longer
each rank takes than its peers, and what would help most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from traceconv.analysis.replay.job import Replay
from traceconv.analysis.replay.operations import COMPUTE
from traceconv.analysis.stragglers.verdict import Verdict
from traceconv.core.intervals import length_before, union
from traceconv.report.figures import time

BINS = 240
"""Moments of a step, each shown by its main activity."""

RANKS_DRAWN = 16
"""Ranks whose step is kept: of more, those that are late most, and four that are late least."""

_LAST = 4

_CHANGES = {
    "stage:balanced": "if all stages had equal work",
    "rank:balanced": "if ranks and micro-batches had equal work in every step",
    "comm:* overlap": "if communication took no time",
    "input:0": "without waiting for input",
    "host:0": "without waiting for the host",
    "gc:0": "without garbage collection",
    "copy:0": "without copies that nothing hides",
    "pause:0": "without gaps between steps",
}
"""The changes in words."""


def timeline(verdict: Verdict, late: Mapping[str, int], zero_ns: int) -> dict[str, Any]:
    """What each rank does in the step whose length is usual, moment by moment: "c" computing, "o"
    computing and communicating, "t" communicating, "w" waiting for others in it, "." idle.

    Args:
        late:    by how much each rank takes longer than its peers.
        zero_ns: the zero of the trace.
    """
    replay: Replay | None = verdict.replay
    if not replay:
        return {"missing": f"no data: {verdict.reason or 'the job cannot be replayed'}"}
    graph = replay.graph
    if not len(graph):
        return {"missing": "no data: no operations were recorded"}
    usual = np.abs(graph.recorded_ns - np.median(graph.recorded_ns))
    step = int(np.argmin(usual))
    rows = np.flatnonzero(graph.step == step)
    first_ns, last_ns = int(graph.start_ns[rows].min()), int(graph.end_ns[rows].max())
    of_step = graph.recorded_ns[step] + graph.tails_ns[step]
    edges = np.linspace(first_ns, last_ns, BINS + 1).astype(np.int64)
    named = {*(culprit.rank for culprit in verdict.culprits),
             *(verdict.stage.ranks if verdict.stage else ())}  # fmt: skip
    order = sorted(
        np.unique(graph.rank[rows]).tolist(),
        key=lambda i: (
            graph.ranks[i] not in named,
            -late.get(str(graph.ranks[i]), 0),
            graph.ranks[i],
        ),
    )
    drawn = order if len(order) <= RANKS_DRAWN else [*order[: RANKS_DRAWN - _LAST], *order[-_LAST:]]
    window, number = graph.steps[step].tolist()
    return {
        "window": window,
        "step": number,
        "start_ns": first_ns - zero_ns,
        "dur_ns": last_ns - first_ns,
        "step_ns": round(float(of_step)),
        "unclassified": not any(COMPUTE in one.replay.recorded for one in replay.every),
        "others": len(order) - len(drawn),
        "rows": [
            {"rank": graph.ranks[i],
             "moments": _moments(replay, rows[graph.rank[rows] == i], edges)}
            for i in drawn
        ],
    }  # fmt: skip


def _moments(replay: Replay, rows: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]) -> str:
    """A character per bin: what takes most of it."""
    graph = replay.graph
    start, end, comm = graph.start_ns[rows], graph.end_ns[rows], graph.kind[rows] >= 0
    moved = np.clip(end - graph.length_ns[rows].astype(np.int64), start, end)
    width = np.maximum(np.diff(edges), 1)
    work, waits, moves = (
        np.diff(length_before(union(low, high), edges)) / width
        for low, high in ((start[~comm], end[~comm]), (start[comm], moved[comm]),
                          (moved[comm], end[comm]))
    )  # fmt: skip
    talks = waits + moves >= 0.5
    moments = np.where(waits > moves, "w", "t")
    moments[~talks & (work + waits + moves < 0.5)] = "."
    moments[(work >= 0.5) | ((work > waits + moves) & (moments != "."))] = "c"
    moments[(work >= 0.5) & talks] = "o"
    return "".join(moments.tolist())


def remedies(verdict: Verdict) -> list[dict[str, Any]]:
    """What shortens steps most, each replayed by itself, as changes of ``traceconv what-if``."""
    listed = []
    for remedy in verdict.remedies():
        change = remedy.change.change
        words = _CHANGES.get(change, f"without the loss by {remedy.change.cause}")
        if change.startswith("rank:") and change not in _CHANGES:
            ranks = change.removeprefix("rank:").removesuffix("=peers")
            several = "s" * (not ranks.isdigit())
            words = f"if rank{several} {ranks} took as long as the others"
        gain = f"{time(remedy.gain_ns)} less per step ({100 * remedy.share:.2g} %)"
        listed.append({**remedy.as_dict(), "text": f"{gain} {words}"})
    return listed


def verdict_card(
    verdict: Verdict, lost: str, findings: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """What comes first: what costs most, what steps lose, and what to do about it.

    Args:
        lost:  what steps lose, in one line.
        findings: the findings, largest loss first.
    """
    verdict_line = verdict.headline()
    advice = next(
        (finding["advice"] for finding in findings if finding["severity"] == "warning"), ""
    )
    if not verdict_line:
        return {"severity": "note", "text": lost, "lost": "", "advice": advice}
    advice = next(
        (cause.advice for cause in verdict.named if verdict_line.endswith(cause.advice)), ""
    )
    text = verdict_line.removesuffix(advice).strip()
    return {"severity": "warning", "text": text, "lost": lost, "advice": advice}
