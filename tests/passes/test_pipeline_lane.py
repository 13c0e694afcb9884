"""The lane of a stage: passes as ranges of the host say them, bubbles as messages do."""

from itertools import pairwise

import numpy as np
import pytest
from job_simulator import Job, trace, write_kineto
from job_simulator import run as simulated

import traceconv
from traceconv.analysis.inferred_shape import job_shape
from traceconv.analysis.pipeline_phases import BACKWARD, BUBBLE, FORWARD, UNTOLD
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.core.builder import TraceBuilder
from traceconv.core.job_shape import NO_SHAPE
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.passes import compose
from traceconv.report import html, report_page, sections
from traceconv.run.stages import passed

PIPE = Job(pp=2, dp=2, steps=12, micro_batches=3, coalesced=False, pace=0.2, layers=3)
RANK_FROM = r"pp(?P<pp>\d+)_rank(?P<rank>\d+)"


def phases_of(ranges, kernels, messages=()):
    """What is found of a rank: (start, length) of ranges and messages by name, kernels with the
    time of the call that launched them."""
    build = TraceBuilder(Capture("made", None, ("x",), 0, label="made"))
    host, calls = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
    )
    lane, comm = (
        build.track(Layer.DEVICE, "Stream 7"),
        build.track(Layer.COMM, "Group 3", communicator="Group 3"),
    )
    build.slice(build.track(Layer.STEP, "iterations"), 0, 1000, "Iteration 1",
                op=OpClass.ITERATION, step=1)  # fmt: skip
    for name, start, dur in ranges:
        build.slice(host, start, dur, name, op=OpClass.HOST)
    for launched, start, dur in kernels:
        first = build.rows
        build.slice(calls, launched, 1, "cudaLaunchKernel", op=OpClass.HOST)
        build.slice(lane, start, dur, "gemm", op=OpClass.COMPUTE)
        build.flow(first, first + 1, "launch")
    for name, start, dur in messages:
        build.slice(comm, start, dur, name, op=OpClass.COMM)
    made = passed(build.finish(), compose(mode="detail"))
    return summarize(made, SummaryRequest(lateness=True, phases=True)).phases.tolist()


def test_passes_are_those_that_ranges_say():
    """From the first task launched within to the last before another pass; other work is none."""
    ranges = [("forward", 0, 100), ("backward", 100, 100), ("forward", 120, 10)]
    kernels = [(10, 50, 100), (50, 200, 50), (110, 300, 50), (125, 360, 10), (250, 400, 50)]
    assert phases_of(ranges, kernels) == [[FORWARD, 50, 250], [BACKWARD, 300, 370]]


def test_bubbles_are_messages_that_nothing_hides():
    """They end a pass; what computing hides of them is none, nor is another collective."""
    ranges, kernels = [("forward", 0, 100)], [(10, 50, 100), (20, 300, 50), (30, 500, 50)]
    messages = [("ncclDevKernel_Recv", 140, 100), ("ncclDevKernel_AllReduce", 400, 50),
                ("ncclDevKernel_Send", 440, 50)]  # fmt: skip
    assert phases_of(ranges, kernels, messages) == [
        [FORWARD, 50, 150], [BUBBLE, 150, 240], [FORWARD, 300, 350], [BUBBLE, 450, 490],
        [FORWARD, 500, 550],
    ]  # fmt: skip


def test_nothing_is_guessed():
    """Without ranges and messages there is nothing to draw; without ranges no pass is known."""
    kernels = [(10, 50, 100), (20, 160, 10), (30, 300, 50)]
    assert phases_of([], kernels) == []
    assert phases_of([], kernels, [("ncclDevKernel_Recv", 180, 100)]) == [
        [UNTOLD, 50, 170], [BUBBLE, 180, 280], [UNTOLD, 300, 350],
    ]  # fmt: skip
    # what is launched outside of the ranges there are is of none of them
    kernels[0] = (10, 50, 60)
    assert phases_of([("forward", 25, 10)], kernels, [("ncclDevKernel_Recv", 180, 100)]) == [
        [BUBBLE, 180, 280], [FORWARD, 300, 350],
    ]  # fmt: skip


def messages_of(chunks, stage):
    """Messages of a stage that runs micro-batches one after the other: (to or from, neighbour).

    Args:
        chunks: the stages that activations visit, in order.
    """
    found = []
    there = [*chunks, *reversed(chunks)]  # gradients go back
    for before, after in pairwise(there):
        if before != after:
            found += [("to", after - before)] if before == stage else []
            found += [("from", before - after)] if after == stage else []
    return found


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_why_messages_do_not_tell(stage):
    """A V-shaped schedule sends for a micro-batch what an ordinary one does for two."""
    down = list(range(4))
    v_shaped = messages_of([*down, *reversed(down)], stage)
    assert v_shaped == 2 * messages_of(down, stage)
    assert len(v_shaped) == (8 if stage else 4)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A pipeline of two stages whose files are named by their coordinates, and its run."""
    folder = tmp_path_factory.mktemp("job")
    happened = simulated(PIPE)
    for path in write_kineto(happened, folder):
        rank = int(path.name.split(".")[0].removeprefix("rank"))
        path.rename(folder / f"pp{rank // PIPE.stage_size}_rank{rank}.pt.trace.json")
    return folder, happened


def lanes(folder, tmp_path, **how):
    """Slices of the lanes of stages in a merged trace: rank: {lane: lengths}."""
    out = str(tmp_path / "t.pftrace")
    traceconv.merge(folder, out=out, annotate=True, mode="detail", align="wall", force=True, **how)
    found = {}
    for one in traceconv.open(out).traces(None):
        for i, track in enumerate(one.tracks):
            if track.name.startswith("Pipeline"):
                rows = one.events.take(one.events.track == i)
                names = np.array([one.strings[name] for name in rows.name.tolist()])
                found.setdefault(one.rank, {})[track.name] = {
                    str(name): int(rows.dur_ns[names == name].sum()) for name in np.unique(names)
                }
    return found


def test_the_stage_is_where_it_is_known(job, tmp_path):
    """One lane per rank, of its stage; its bubbles are what the simulation spent in messages."""
    folder, happened = job
    found = lanes(folder, tmp_path, rank_from=RANK_FROM)
    assert {rank: list(one) for rank, one in found.items()} == {
        rank: [f"Pipeline stage {rank // PIPE.stage_size}"] for rank in range(PIPE.ranks)
    }
    for rank, one in found.items():
        (names,) = one.values()
        assert set(names) == {"bubble", "pass unknown"}
        assert names["bubble"] == pytest.approx(in_messages(happened, rank), abs=100)


def in_messages(happened, rank):
    """How long the simulated rank sent and received."""
    stage, column = divmod(rank, PIPE.stage_size)
    own = happened.stages[stage]
    rows = [i for i, op in enumerate(own.ops) if op.what == "pp"]
    true = np.unique([(own.starts[i][column], own.ends[i][column]) for i in rows], axis=0)
    reached = np.maximum.accumulate(true[:, 1])
    start = np.maximum(true[1:, 0], reached[:-1])
    return true[0, 1] - true[0, 0] + np.maximum(true[1:, 1] - start, 0).sum()


BARE = {"findings": [], "places": [], "minor": [], "not_checked": []}
"""An overview without sections."""


def test_the_report_shows_stages(job):
    """Bubbles per step, the mean over the ranks of a stage; passes are unknown, and not nothing."""
    _, happened = job
    wanted = SummaryRequest(lateness=True, phases=True)
    every = [
        summarize(passed(trace(happened, rank), compose(mode="detail")), wanted)
        for rank in range(PIPE.ranks)
    ]
    section = sections.stages(every, job_shape(every))
    assert [(row["stage"], row["ranks"]) for row in section["rows"]] == [(0, "0-1"), (1, "2-3")]
    for row in section["rows"]:
        ranks = range(2 * row["stage"], 2 * row["stage"] + 2)
        bubble = np.mean([in_messages(happened, rank) for rank in ranks]) / PIPE.steps
        assert row["bubble_ns"] == pytest.approx(bubble, abs=100)
        assert (row["forward_ns"], row["backward_ns"]) == (None, None)
        assert row["step_ns"] == sum(
            row[key] for key in ("bubble_ns", "pass_unknown_ns", "rest_ns")
        )
    (drawn,) = (
        str(html.blocks(one.blocks))
        for one in report_page.analysis({**BARE, "stages": section})
        if one.key == "stages"
    )
    assert "pass unknown" in drawn and "backward" not in drawn
    assert "missing" in sections.stages(every, NO_SHAPE)


def test_the_stage_may_follow_from_messages(job, tmp_path):
    """Who sends to whom says it as well as names of files do; the same is drawn."""
    folder, _ = job
    assert lanes(folder, tmp_path, rank_from=r"rank(\d+)") == lanes(
        folder, tmp_path, rank_from=RANK_FROM
    )


def test_the_stage_is_not_drawn_where_it_is_unknown(tmp_path):
    """Ranks that only reduce gradients together have none."""
    folder = tmp_path / "job"
    folder.mkdir()
    write_kineto(simulated(Job(dp=4, steps=3)), folder)
    assert lanes(folder, tmp_path) == {}
