"""The replay of a job against the same job simulated again without what was planted in it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from effort import effort
from job_simulator import Clock, Delay, Job, run, truth
from job_simulator.observed import judged, summaries
from job_simulator.simulate import batch_lengths
from paths import ROOT
from synthetic_job import capture

import traceconv
from traceconv import native
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.plan import plan
from traceconv.analysis.replay.job import replay_of
from traceconv.analysis.replay.remedies import Change, remedies
from traceconv.analysis.replay.what_if import what_if
from traceconv.analysis.statistics import by_chance, interval, over_others

LAYOUTS = {
    "dp4": Job(dp=4, jitter=60e3),
    "tp2-dp4": Job(tp=2, dp=4, jitter=60e3),
    "pp2": Job(tp=2, dp=2, pp=2, micro_batches=4, jitter=150e3),
    "overlap": Job(dp=4, layers=4, buckets=3, overlap=True, jitter=60e3),
    "experts": Job(dp=8, ep=4, jitter=100e3),
}


def replayed(job):
    """The replay of a simulated job, and what is true of it."""
    happened = run(job)
    known = summaries(happened)
    for one in known:
        one.replay.check(len(one.collectives))
    groups = tuple(matched([one.collectives for one in known]))
    captures = [capture(rank) for rank in job.captured]
    clocks = plan(captures, "none", [one.collectives for one in known], groups=groups)
    return replay_of(known, clocks, groups), truth(happened)


@pytest.mark.parametrize("name", LAYOUTS)
def test_recorded_lengths_give_the_recorded_steps(name):
    """The error that is stated with every figure."""
    replay, _ = replayed(LAYOUTS[name])
    assert replay.error < 0.02
    assert replay.usable
    assert replay.base.mean() == pytest.approx(replay.graph.recorded_ns.mean(), rel=0.02)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_gain_is_that_of_the_job_without_the_delay(name):
    """A rank that computes 1.5 ms longer, replayed like its peers."""
    job = replace(LAYOUTS[name], delays=(Delay((1,), 1.5e6),))
    replay, true = replayed(job)
    gain = (replay.base - replay.mended([replay.graph.ranks.index(1)])[0]).mean()
    assert gain == pytest.approx(true.gain_ns, rel=0.15)


def test_the_first_remedy_is_what_was_planted():
    """One rank that is slow, and all ranks that wait for input, the larger one first."""
    everybody = Delay(tuple(range(4)), 2e6, cause="input")
    job = replace(LAYOUTS["dp4"], delays=(everybody, Delay((1,), 1e6)))
    replay, _ = replayed(job)
    named = Change("one rank slow", "rank:1=peers", "Look at it.")
    first, second, *_ = remedies(replay, [named])
    assert (first.change.change, second.change) == ("input:0", named)
    assert first.gain_ns == pytest.approx(2e6, rel=0.1)
    assert second.gain_ns == pytest.approx(1e6, rel=0.15)
    low, high = second.interval_ns
    assert low <= 1e6 <= high


@pytest.mark.parametrize("messages", ["eager", "rendezvous"])
def test_exchanges_between_four_stages_are_known_without_clocks(messages):
    """A send to a neighbour and a receive from it, recorded as one without the other side."""
    clocks = tuple(Clock(offset_ns=10**9 * rank) for rank in range(8))
    even = Job(
        dp=2, pp=4, micro_batches=6, layers=2, steps=5, jitter=5e3, messages=messages,
        clocks=clocks,
    )  # fmt: skip
    uneven = replace(even, layers=(2, 3, 2, 2))
    as_much = replace(even, compute_ns=even.compute_ns * 9 / 8)
    replay, _ = replayed(uneven)
    gain = (run(uneven).duration_ns - run(as_much).duration_ns) / even.steps
    assert what_if(replay, ["stage:balanced"]).gain_ns == pytest.approx(gain, rel=0.05)
    assert replay.usable


def test_micro_batches_of_unequal_length_are_told_from_noise():
    """They are named, and their gain is that of equal ones; noise as large is not."""
    even = replace(LAYOUTS["pp2"], micro_batches=6, steps=12, jitter=5e3)
    uneven, noisy = replace(even, uneven_batches=0.15), replace(even, jitter=2e5)
    pace = (float(batch_lengths(uneven).mean()),) * even.pp
    as_much = replace(even, stage_pace=pace)
    verdict = judged(run(uneven))
    gain = (run(uneven).duration_ns - run(as_much).duration_ns) / even.steps
    assert what_if(verdict.replay, ["rank:balanced"]).gain_ns == pytest.approx(gain, rel=0.1)
    assert verdict.kind == "uneven work"
    assert verdict.uneven.of_batches == pytest.approx(0.15, rel=0.25)
    assert verdict.headline().startswith("Uneven work costs ")
    assert [(one.rank, one.stage) for one in verdict.late] == [(-1, -1)]
    assert judged(run(noisy)).uneven is None


def test_few_steps_of_uneven_micro_batches_have_nothing_in_common():
    """The third micro-batch of a step may be long in most of few steps, by chance: it is not
    usually longer, so equal work makes it as long as the others."""
    uneven = Job(
        dp=2, pp=4, micro_batches=8, steps=8, uneven_batches=0.15, messages="eager", seed=2
    )
    pace = (float(batch_lengths(uneven).mean()),) * uneven.pp
    as_much = replace(uneven, uneven_batches=0.0, stage_pace=pace)
    replay, _ = replayed(uneven)
    gain = (run(uneven).duration_ns - run(as_much).duration_ns) / uneven.steps
    assert what_if(replay, ["rank:balanced"]).gain_ns == pytest.approx(gain, rel=0.1)


def test_scenarios_are_independent():
    """Many at once are what each is alone."""
    replay, _ = replayed(LAYOUTS["pp2"])
    each = [replay.mended([i])[0] for i in range(len(replay.graph.ranks))]
    every = replay.mended(*([i] for i in range(len(replay.graph.ranks))))
    assert np.allclose(np.stack(each), every)
    assert np.allclose(replay.mended([])[0], replay.base)


@pytest.mark.skipif(native.replay() is None, reason="needs the compiled parts")
@pytest.mark.parametrize("name", ["pp2", "overlap"])
def test_the_compiled_part_replays_as_numpy_does(name, monkeypatch):
    """To the last bit, of one scenario and of several."""
    graphs, found = [], []
    for off in ("", "0"):
        monkeypatch.setenv("TRACECONV_NATIVE", off)
        job, _ = replayed(LAYOUTS[name])
        lengths = job.lengths[:, None] * np.linspace(0, 2, 5)
        graphs.append((job.graph.levels.tolist(), job.graph.before.tolist()))
        found.append((job.base.tolist(), job.steps(lengths, job.delays).tolist()))
    assert graphs[0] == graphs[1]
    assert found[0] == found[1]


@pytest.mark.skipif(native.replay() is None, reason="needs the compiled parts")
def test_the_compiled_part_refuses_what_does_not_fit():
    """It would read beyond its columns."""
    part, row = native.replay(), np.zeros((2, 1), np.int32)
    none, meets, ns = np.array([2, 2], np.int32), np.array([0, 1]), np.zeros((2, 1))
    assert part.ends(row + 2, none, meets, ns + 1, ns, 1) == np.array([1.0, 1, 0]).tobytes()
    assert part.levels(np.array([[2], [0]], np.int32), np.array([0, 1], np.int32)) == (
        np.array([0, 1], np.int32).tobytes()
    )
    for bad in (
        (row + 3, none, meets, ns, ns, 1),
        (row - 1, none, meets, ns, ns, 1),
        (row + 1, none, meets, ns, ns, 1),
        (row + 2, none[:1], meets, ns, ns, 1),
        (row + 2, none, meets[::-1].copy(), ns, ns, 1),
        (row + 2, none, meets + 1, ns, ns, 1),
        (row + 2, none, meets[:0], ns, ns, 1),
        (row + 2, none, meets, ns, np.zeros((2, 2)), 3),
        (row + 2, none, meets, ns, ns, 0),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            part.ends(*bad)
    for before, meet in ((row + 3, [0, 1]), (row, [1, 1]), (row, [0, 2])):
        with pytest.raises(ValueError, match="do not fit"):
            part.levels(before, np.array(meet, np.int32))


def test_what_is_ideal_has_no_slow_rank():
    """Only the slow rank explains the slowdown, and ideal steps are alike."""
    job = Job(dp=4, jitter=5e3, delays=(Delay((2,), 3e6),))
    replay, _ = replayed(job)
    shares = replay.attribution()["rank"]
    assert shares["2"] == max(shares.values()) > 1.2
    assert max(value for rank, value in shares.items() if rank != "2") < 1.02
    assert np.ptp(replay.ideal) < 0.02 * replay.ideal.mean()


def write(folder, lengths, kind):
    """Event logs of ranks that compute for these times before an all-reduce each."""
    start = 0
    lines = {
        rank: [json.dumps({"rawlog": 1, "unit": "ns", "clock": "unix", "rank": rank})]
        for rank in range(lengths.shape[1])
    }
    for step in lengths.tolist():
        ready = start + max(step)
        for rank, own in enumerate(step):
            rows = (
                {"name": "MatMul", "ts": start, "dur": own, "stream": 1} | kind,
                {"name": "allreduce", "ts": start + own, "dur": ready + 50_000 - start - own,
                 "kind": "comm", "plane": "world"},
            )  # fmt: skip
            lines[rank] += [json.dumps(row) for row in rows]
        start = ready + 50_000
    for rank, texts in lines.items():
        (folder / f"rank{rank}.jsonl").write_text("\n".join(texts) + "\n")


@pytest.mark.parametrize("kind", ({"kind": "compute"}, {}), ids=("compute", "unclassified"))
def test_the_gain_of_a_job_that_can_be_worked_out(tmp_path, kind):
    """Steps last as long as the slowest rank and 50 us: without rank 1, as long as the others.
    Tasks that are not classified are work, no idle time."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(900_000, 910_000, (20, 4))
    lengths[:, 1] += 300_000
    write(tmp_path, lengths, kind)
    verdict = traceconv.stragglers(str(tmp_path)).verdict
    (culprit,) = verdict.culprits
    others = np.delete(lengths, 1, axis=1)
    typical = np.maximum(others.max(axis=1), np.median(others, axis=1))
    assert culprit.rank == 1
    assert culprit.why == ("computing" if kind else "unclassified work")
    assert culprit.gain_ns == pytest.approx((lengths.max(axis=1) - typical).mean(), rel=0.01)
    low, high = culprit.interval_ns
    assert low <= culprit.gain_ns <= high
    assert verdict.replay.error < 0.001


# -- chance -------------------------------------------------------------------------------------


def test_over_others_leaves_a_column_out():
    """Each value minus the median of the rest; what is missing is in none of them."""
    values = np.array([[1.0, 2.0, 4.0, 8.0], [3.0, np.nan, 5.0, 4.0]])
    found = over_others(values)
    assert found[0].tolist() == [-3.0, -2.0, 2.0, 6.0]
    assert found[1, [0, 2, 3]].tolist() == [-1.5, 1.5, 0.0]
    assert np.isnan(found[1, 1])


@pytest.mark.parametrize("shape", ["normal", "spikes"])
def test_columns_that_are_alike_are_rarely_called_larger(shape):
    """At half a percent a column is named in at most two of all tables."""
    rng = np.random.default_rng(5)
    named = 0
    for _ in range(effort(30, 100)):
        values = rng.normal(size=(12, 4))
        if shape == "spikes":
            values += 50 * (rng.random((12, 4)) < 0.05)
        named += by_chance(over_others(values)).min() < 0.005
    assert named <= 2


def test_a_larger_column_is_found():
    """One that always is, one that is at times, and two in turn."""
    rng = np.random.default_rng(6)
    always, sometimes, turns = (rng.normal(size=(16, 8)) for _ in range(3))
    always[:, 3] += 3
    sometimes[::4, 2] += 60
    turns[::4, 1] += 60
    turns[2::4, 5] += 60
    assert by_chance(over_others(always))[3] < 0.005
    assert by_chance(over_others(sometimes))[2] < 0.005
    assert by_chance(over_others(turns))[[1, 5]].max() < 0.005


def test_the_interval_of_a_mean():
    """It holds the mean of what values are drawn from in most cases."""
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(100):
        low, high = interval(rng.normal(5, 1, 20))
        inside += low <= 5 <= high
    assert inside >= 88


def test_communication_on_cpus_may_be_recorded_longer_than_it_was_waited_for(tmp_path):
    """The thread that carries it out gets the processor after the one that waited for it."""
    case = ROOT / "golden/kineto/gloo_on_cpus/input"
    for path in case.glob("rank*"):
        document = json.loads(path.read_text())
        for event in document["traceEvents"]:
            if event.get("name", "").startswith("gloo:"):
                event["dur"] = 1.1 * float(event["dur"])
        (tmp_path / path.name).write_text(json.dumps(document))
    gains = [
        traceconv.what_if(folder, change=["rank:1=peers"], cache=False).as_dict()["gain_ns"]
        for folder in (case, tmp_path)
    ]
    assert gains[1] == pytest.approx(gains[0], rel=0.05)
