"""Clocks and stragglers of real pairs of ranks. What makes an offset believable stands with it."""

from collections import Counter, defaultdict

import pytest
from paths import DATA

import traceconv

LEVEL1 = "ascend/msinsight/test/data/pytorch/{}/level1"
MINDSPORE = "ascend/mindinsight/profiler"
NSIGHT = "gpu/nsys/mfu_2gpu_after.sqlite"
HTA = ("gpu/kineto/hta_sampled_rank-0.json.gz", "gpu/kineto/hta_sampled_rank-1.json.gz")


def aligned(*names, method="collective"):
    """How much later than rank 0's the stamps of rank 1 have to be, the error, and the matches."""
    plan = traceconv.align(*(str(DATA / name) for name in names), method=method).plan
    return plan.offset_ns(1) - plan.offset_ns(0), plan.error_ns(1), plan.offsets[1].matches


def test_two_processes_of_one_nsight_report():
    """One report has one clock, so the truth is 0: it lies within the error. In exchanges one side
    may go on while the other waits, so their ends say no more than how long they usually last."""
    offset, error, matches = aligned(NSIGHT)
    assert (offset, matches) == (6060, 31)
    assert abs(offset) <= error == pytest.approx(299_000, rel=0.01)


def test_two_mindspore_ranks_of_one_host():
    """Their anchors are pairs of one host's clocks and agree within 2 us: the offset between them
    lies within the error of what four collectives say, which last 9 ms and in which hardly ever
    another rank comes last."""
    offset, error, matches = aligned(MINDSPORE)
    assert (offset, matches) == (-35218, 4)
    assert abs(offset) <= error == pytest.approx(9_214_000, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "offset", "error"), [("text", 9426, 2_281_000), ("db", -13531, 2_180_000)]
)
def test_two_pytorch_ranks_of_one_host(kind, offset, error):
    """Both hold Unix stamps of one host; the ends of four collectives agree within 15 us, while
    their starts are 5.6 and 3.5 ms apart. They are of one step, so only the stamps tell that it is
    the same; and each is another, so how late ends may be is known by the shortest alone."""
    found = aligned(LEVEL1.format(kind))
    assert (found[0], found[2]) == (offset, 4)
    assert found[1] == pytest.approx(error, rel=0.01)


def test_two_ranks_of_a_sampled_job():
    """Of ten exchanges each, sampled apart, three end within 55 us of each other on both ranks and
    no other seven do: too little to tell one gap of 150 ms from another."""
    assert aligned(*HTA) == (0, None, 0)


@pytest.mark.parametrize("names", [(MINDSPORE,), (NSIGHT,), (LEVEL1.format("db"),), HTA])
def test_auto_leaves_pairs_with_clocks_of_their_own_alone(names):
    """Few matches, or one clock: stamps stay as the profilers recorded them."""
    assert aligned(*names, method="auto")[0] == 0


def verdict(*names):
    """The verdict on a pair."""
    return traceconv.stragglers(*(str(DATA / name) for name in names)).verdict


@pytest.mark.parametrize("kind", ["text", "db"])
def test_one_late_collective_is_an_observation(kind):
    """Rank 0 waited 79 ms in the first of one step, rank 1 73 ms (89 and 85): rank 1 came last. To
    the other three both came within 7 us of each other. One step proves no pattern."""
    found = verdict(LEVEL1.format(kind))
    assert found.culprits == ()
    start = "no verdict: only one step was captured, too few to show a pattern; rank "
    assert found.line().startswith(start)


def test_a_late_first_step_is_no_straggler():
    """Rank 0 comes 10 ms late to the first of four iterations and on time to the others, which are
    in three recording windows."""
    found = verdict(MINDSPORE)
    assert found.line().startswith("no verdict: rank 0 takes 2.88 ms longer than rank 1 per ")
    assert list(found.steps) == [(1, 1), (1, 2), (2, 3), (3, 4)]
    assert [one.rank for one in found.steps.values() if one] == [0]


@pytest.mark.parametrize("names", [HTA, (NSIGHT,)])
def test_messages_name_nobody(names):
    """Two of 128 ranks, exchanging with others that were not sampled, and two without steps that
    exchange with each other: whoever sends does not do what the receiver does."""
    found = verdict(*names)
    assert (found.culprits, found.kind) == ((), "no verdict")


def test_traces_of_the_library_are_aligned():
    """Clocks of eight hosts are up to 1 s apart: collectives end together all the same."""
    ends = defaultdict(list)
    for trace in traceconv.open(DATA / "field/general/eight_hosts_clocks_apart").traces("detail"):
        events = trace.events.take(trace.rows_of("comm"))
        seen = Counter()
        for track, end in sorted(zip(events.track.tolist(), events.end_ns.tolist(), strict=True)):
            group = trace.tracks[track].name
            seen[group] += 1
            ends[group, seen[group]].append(end)
    spread_ns = [max(of_one) - min(of_one) for of_one in ends.values()]
    assert (len(spread_ns), max(map(len, ends.values()))) == (216, 4)
    assert max(spread_ns) < 10_000


def test_the_number_of_an_operation_identifies_it():
    """Rank 1 lost seven kernels; the process group counts its operations (`Seq`)."""
    found = traceconv.align(str(DATA / "field/gpu/kineto_lost_kernels_with_seq"))
    offsets = {rank: round(one.offset_ns / 1e6) for rank, one in found.plan.offsets.items()}
    assert offsets == {0: 0, 1: -5, 2: 0, 3: 7}
