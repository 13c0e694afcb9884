"""What a pipeline would gain: what the simulator says, which runs the job again without delays."""

from dataclasses import replace

import numpy as np
import pytest
from job_simulator import Clock, Delay, Job, gain_ns, run
from job_simulator.observed import summaries, verdict

from traceconv.alignment.collective_matching import matched
from traceconv.analysis.stragglers.replay import Replay
from traceconv.analysis.stragglers.waits import Waits

QUIET = Job(tp=2, dp=2, pp=2, micro_batches=4, steps=6, jitter=1e4, pace=0.0)


class OneClock:
    """All ranks are on one."""

    method = "host"

    def corrected(self, rank, ns):
        return ns

    def error_ns(self, rank):
        return 0


def replay(job):
    """Of what was recorded of a job."""
    known = {one.rank: one for one in summaries(run(job))}
    groups = tuple(matched([one.collectives for one in known.values()]))
    return Replay.of(known, Waits(known, groups), OneClock())


@pytest.mark.parametrize("messages", ["rendezvous", "eager"])
@pytest.mark.parametrize("coalesced", [True, False])
@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("rank", [1, 6])
def test_what_is_said_to_be_gained_would_be(messages, coalesced, spread, rank):
    """A delay in one place of a step or everywhere in it, in either stage."""
    delay = Delay((rank,), 4e6, spread=spread)
    happened = run(replace(QUIET, messages=messages, coalesced=coalesced, delays=(delay,)))
    found = verdict(happened)
    assert found.constant == {rank}
    assert found.gain_ns == pytest.approx(gain_ns(happened), rel=0.12)


@pytest.mark.parametrize("rank", [1, 10])
@pytest.mark.parametrize("messages", ["rendezvous", "eager"])
def test_four_stages_in_one_group(messages, rank):
    """Who sends to whom is stated by each message."""
    delay = Delay((rank,), 4e6, spread=True)
    job = replace(
        QUIET, pp=4, layers=1, messages=messages, coalesced=False, delays=(delay,), steps=10
    )
    happened = run(job)
    found = verdict(happened)
    assert found.constant == {rank}
    assert found.gain_ns == pytest.approx(gain_ns(happened), rel=0.15)


@pytest.mark.parametrize("layers, gained", [((2, 2), True), ((2, 3), False)])
def test_a_stage_that_waits_for_another_anyway_gains_nothing(layers, gained):
    """The same rank is late by the same: of two stages that are alike, and where the other has half
    as much to do again."""
    delay = Delay((1,), 1.5e6, spread=True)
    happened = run(replace(QUIET, layers=layers, micro_batches=8, delays=(delay,)))
    true, found = gain_ns(happened), verdict(happened)
    material = 0.01 * happened.step_ns
    assert (true > material) == gained
    assert bool(found.constant) == gained
    if gained:
        assert found.gain_ns == pytest.approx(true, rel=0.12)


def test_two_that_are_late_together_gain_together():
    """Neither alone would make the job faster: both are named, each with what it adds."""
    delays = tuple(Delay((rank,), 3e6, spread=True) for rank in (1, 6))
    job = replace(QUIET, micro_batches=8, delays=delays)
    happened = run(job)
    alone = [gain_ns(happened) - gain_ns(run(replace(job, delays=(one,)))) for one in delays]
    found = verdict(happened)
    assert found.constant == {1, 6}
    assert gain_ns(happened) - max(alone) > 0
    assert max(alone) * 0.8 < found.gain_ns < gain_ns(happened) * 1.1


def test_of_two_ranks_one_is_compared_with_the_other():
    """A stage of two: its median is no peer."""
    job = replace(QUIET, tp=1, steps=10, delays=(Delay((2,), 4e6),))
    happened = run(job)
    found = verdict(happened)
    assert found.constant == {2}
    assert found.gain_ns == pytest.approx(gain_ns(happened), rel=0.12)


def test_of_very_many_it_is_not_worked_out(monkeypatch):
    """What others wait for them is said then."""
    delays = tuple(Delay((rank,), 3e6, spread=True) for rank in (1, 6))
    happened = run(replace(QUIET, micro_batches=8, delays=delays))
    known = verdict(happened).gain_ns
    monkeypatch.setattr("traceconv.analysis.stragglers.replay._MOST", 1000)
    found = verdict(happened)
    assert found.constant == {1, 6}
    assert found.gain_ns > known


def test_clocks_do_not_matter():
    """What is known of a rank is compared on its own clock."""
    delay = Delay((6,), 4e6, spread=True)
    clocks = tuple(Clock(offset_ns=rank * 7_000_000) for rank in range(8))
    said = [
        verdict(run(replace(QUIET, delays=(delay,), clocks=clocks)), align).gain_ns
        for clocks, align in (((), "collective"), (clocks, "collective"))
    ]
    assert said[0] == pytest.approx(said[1], rel=1e-3)


def test_it_is_unknown_without_messages_and_where_they_are_not_matched():
    """Nothing couples stages that are not there, or whose other ends were not captured."""
    assert replay(replace(QUIET, pp=1)) is None
    assert replay(replace(QUIET, uncaptured=(4, 5, 6, 7))) is None
    assert replay(QUIET) is not None


def test_what_nobody_does_less_changes_nothing():
    """With any schedule, and operations on a stream of their own."""
    for more in ({}, {"overlap": True, "buckets": 2}, {"chunks": 2, "messages": "eager"}):
        one = replay(replace(QUIET, **more))
        earlier = one._earlier(np.zeros(len(one.row)), np.ones((len(one.ranks), 2), bool))
        assert earlier.shape == (8, 2)
        assert not earlier.any()


def test_what_all_do_less_all_gain():
    """Every rank does one microsecond less before each operation: no step ends later for that, nor
    can one gain more than all of its operations, one after the other, would."""
    one = replay(QUIET)
    less = np.full(len(one.row), 1000.0)
    earlier = one._earlier(less, np.ones((len(one.ranks), 1), bool))
    assert earlier.min() > 0.5 * less[: one.first[1]].sum()
    assert earlier.max() < less[one.first[0] : one.first[1]].sum() * 2
