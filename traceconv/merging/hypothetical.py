"""The trace of ``traceconv what-if``: the replayed operations of every rank, as recorded and with
the changes, on one clock from the same start.

Drawn are the operations of the replay: kernels between two synchronisation points as one slice
with the name of the first; communication, with the wait for its last member as a slice within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from traceconv.analysis.rank_summary import NO_COLLECTIVES
from traceconv.analysis.replay.engine import replayed
from traceconv.analysis.replay.job import Replay
from traceconv.analysis.replay.what_if import Changed
from traceconv.core.builder import TraceBuilder
from traceconv.core.columns import F64, I64
from traceconv.core.errors import Issues
from traceconv.core.model import Capture, Layer, OpClass, Trace
from traceconv.merging.merge_ranks import Ranks, Target, finish
from traceconv.merging.run_report import Report
from traceconv.options.groups import MergeOptions, RunOptions
from traceconv.passes.lanes import lanes
from traceconv.run.executor import started
from traceconv.run.spill import rank_path, spill


def write(
    replay: Replay, changes: Sequence[str], captures: Sequence[Capture], target: Target,
    run: RunOptions,
) -> Report:  # fmt: skip
    """Write the job as recorded and with some changes.

    Raises:
        TraceconvError: a change is not understood; the file exists or cannot be written.
    """
    job = Changed(replay)
    for change in changes:
        job.apply(change)
    sides = (
        ("recorded", replay.lengths, replay.delays),
        (f"with {', '.join(changes)}", job.lengths, job.delays.sum(axis=1)),
    )
    of_rank = {capture.rank: capture for capture in captures if capture.rank is not None}
    issues = Issues()
    with started(run, [0] * len(of_rank), shared=True) as executor:
        spilled = []
        for side, (word, lengths, delays) in enumerate(sides):
            times = _times(replay, lengths, delays)
            for column, rank in enumerate(replay.graph.ranks):
                name = f"Rank {rank} {word}"
                capture = replace(of_rank[rank], rank=2 * column + side, name=name, pid=-1)
                trace = lanes(_trace(replay, column, capture, times, lengths))
                path = rank_path(executor.folder, trace.rank)
                spilled.append(spill(trace, NO_COLLECTIVES, path))
        spilled.sort(key=lambda rank: rank.rank)
        ranks = Ranks(tuple(rank.account.capture for rank in spilled), tuple(spilled), issues)
        options = MergeOptions(mode="detail", align="none")
        return finish(ranks, options, target, executor, run.progress)


def _times(replay: Replay, lengths: F64, delays: F64) -> tuple[I64, I64, I64]:
    """Start and end of each operation, and where steps begin and the last one ends, ns."""
    graph = replay.graph
    ends = replayed(graph, lengths[:, None], delays[:, None])[0]
    padded = np.append(ends, 0.0)
    start = np.maximum(padded[graph.before].max(axis=1) + delays, padded[graph.source])
    steps = replay.steps(lengths, delays)
    borders = np.concatenate(([0.0], np.cumsum(steps + graph.pauses_ns)))
    origin = borders[graph.since[graph.step]]
    start, ends = start + origin, ends + origin
    first_ns = int(graph.start_ns.min())
    rounded = [
        np.rint(column_ns).astype(np.int64) + first_ns for column_ns in (start, ends, borders)
    ]
    return rounded[0], rounded[1], rounded[2]


def _trace(
    replay: Replay, column: int, capture: Capture, times: tuple[I64, I64, I64], lengths: F64
) -> Trace:
    """The operations of a rank."""
    graph = replay.graph
    rank_of_job = next(
        rank_summary for rank_summary in replay.every if rank_summary.rank == graph.ranks[column]
    )
    start, end, borders = times
    build = TraceBuilder(capture)
    rows = np.flatnonzero(graph.rank == column)
    rows = rows[np.argsort(start[rows], kind="stable")]
    comm = graph.kind[rows] >= 0
    leads = rank_of_job.replay.lead[graph.row[rows]]
    names = [
        f"{graph.kinds[kind][0]} of {graph.kinds[kind][1]}" if kind >= 0
        else rank_of_job.replay.names[lead] if lead >= 0 else "work"
        for kind, lead in zip(graph.kind[rows].tolist(), leads.tolist(), strict=True)
    ]  # fmt: skip
    tracks = {
        False: (build.track(Layer.DEVICE, "Work"), OpClass.COMPUTE),
        True: (build.track(Layer.COMM, "Communication"), OpClass.COMM),
    }
    moves = np.maximum(end - np.rint(lengths).astype(np.int64), start)  # when the transfer begins
    for talks, (track, op) in tracks.items():
        of_class = rows[comm == talks]
        own_names = [
            name for name, talking in zip(names, comm.tolist(), strict=True) if talking == talks
        ]
        waits = of_class[moves[of_class] > start[of_class]] if talks else of_class[:0]
        spans = [(of_class, start[of_class], end[of_class], own_names)]
        spans.append((waits, start[waits], moves[waits], ["wait"] * len(waits)))
        for chosen, low, high, texts in spans:
            build.seen("slice", len(chosen))
            build.extend(
                track=track, start_ns=low, dur_ns=np.maximum(high - low, 0),
                name=np.array([build.string(text) for text in texts], np.int32), op=op,
            )  # fmt: skip
    lane = build.track(Layer.STEP, "iterations")
    numbers = graph.steps[:, 1]
    build.seen("slice", len(numbers))
    build.extend(
        track=lane, start_ns=borders[:-1], dur_ns=np.diff(borders),
        name=np.array([build.string(f"Step {n}") for n in numbers.tolist()], np.int32),
        op=OpClass.ITERATION, step=numbers.astype(np.int32),
    )  # fmt: skip
    return build.finish()
