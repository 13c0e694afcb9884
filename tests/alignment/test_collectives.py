"""Clocks from the ends of collectives: offsets and drifts that are known are found again."""

import json
import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from effort import effort
from job_simulator.noise import SHAPES, draw
from synthetic_job import UNIX, Job, apart, capture, evidences, kept, knowledge, run, trace

from traceconv.alignment import fits
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.collective_records import (
    CollectiveRecords,
    Group,
    collective_records,
    kind_of,
)
from traceconv.alignment.plan import aligned, plan
from traceconv.core.clock import INT64_MAX, Anchor, Correction, Domain, time_text
from traceconv.core.errors import ClockError
from traceconv.core.robust import line, median_ns

SECOND = 10**9


def clocks(ranks, seed=0, drift_ppm=0):
    """Random offsets of up to a second, and drifts; rank 0 is right."""
    rng = np.random.default_rng(seed)
    offset = (0, *rng.integers(-SECOND, SECOND, ranks - 1).tolist())
    most = drift_ppm * 10**6
    return {"offset": offset, "drift_ppt": (0, *rng.integers(-most, most + 1, ranks - 1).tolist())}


def found(happened, known=None, mode="collective", clock=None, **more):
    """The plan for a run."""
    captures = [capture(rank, clock) for rank in range(happened.job.ranks)]
    return plan(captures, mode, knowledge(happened) if known is None else known, **more)


# -- truth ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 1, 1), (2, 2, 2), (1, 4, 1), (2, 3, 2)])
def test_offsets_and_drifts_without_jitter_are_recovered_within_2_us(shape):
    """In tensor, data and pipeline groups and through chains of them, at every time of the run."""
    ranks = int(np.prod(shape))
    happened = run(Job(*shape, steps=30, **clocks(ranks, drift_ppm=50)))
    assert int(np.abs(apart(happened, found(happened))).max()) <= 2000


def test_the_true_offset_lies_within_the_stated_error():
    """Jobs with jitter, dropped and lost operations: in at least 98 % of all cases that are not
    refused, and few are."""
    inside, ranks = [], 0
    for seed in range(effort(70, 200)):
        rng = np.random.default_rng(seed)
        job = Job(
            1, 2, 2, steps=16, pace=0.1, seed=seed, jitter=float(rng.choice([500, 3000, 10000])),
            dropped={1: int(rng.integers(0, 7))}, lost={3: 0.05}, **clocks(4, seed, drift_ppm=20),
        )  # fmt: skip
        happened = run(job)
        offsets = found(happened)
        off = np.abs(apart(happened, offsets)).max(axis=0)
        fitted = [r for r, one in offsets.offsets.items() if one.matches]
        inside += [off[rank] <= offsets.error_ns(rank) for rank in fitted]
        ranks += 3
    assert float(np.mean(inside)) >= 0.98
    assert len(inside) > 0.7 * ranks


def test_errors_are_not_larger_than_the_jitter_explains():
    """An interval that holds the truth because it is endless would be no use."""
    happened = run(Job(1, 4, 1, steps=300, jitter=3000, **clocks(4)))
    assert max(found(happened).error_ns(rank) for rank in range(4)) < 6000


def test_renumbered_and_dropped_operations_are_matched_by_pace():
    """A rank that missed seven steps: printed indexes and positions mislead, ends do not."""
    happened = run(Job(1, 2, 1, steps=30, layers=0, dropped={1: 7}, **clocks(2)))
    known = evidences(happened)
    assert [len(known[0]), len(known[1])] == [30, 23]
    assert int(np.abs(apart(happened, found(happened, known))).max()) <= 2000


def test_windows_of_equal_length_that_began_a_step_apart():
    """The sequences are equal to the last letter; only the pace of the steps tells."""
    happened = run(Job(1, 2, 1, steps=40, layers=0, **clocks(2)))
    first, second = knowledge(happened)
    known = [_cut(first, slice(0, -1)), _cut(second, slice(1, None))]
    offsets = found(happened, known)
    assert int(np.abs(apart(happened, offsets)).max()) <= 2000
    assert offsets.offsets[1].matches == 38


def _cut(known, rows):
    columns = ("group", "kind", "size", "step", "start_ns", "end_ns")
    return CollectiveRecords(
        known.rank, known.groups, known.kinds, *(getattr(known, c)[rows] for c in columns)
    )


def test_a_pace_that_tells_nothing_is_no_evidence():
    """Steps of equal length to the microsecond, one rank missed some: which, only numbers of steps
    can say, and only those of the job."""
    happened = run(Job(1, 2, 1, steps=30, layers=0, jitter=3000, dropped={1: 7}, pace=0.0))
    known = knowledge(happened)
    assert found(happened, known).offsets[1].matches == 23
    assert int(np.abs(apart(happened, found(happened, known))).max()) <= 6000
    known[1] = msgspec.structs.replace(known[1], step=known[1].step - 7)
    refused = found(happened, known)
    assert refused.offsets[1].matches == 0
    [place] = [p for i in refused.issues if i.rank == 1 for p in i.places]
    assert "so regular that they fit as well" in place


def test_operations_that_are_missing_anywhere():
    """Which of equal operations in a row is missing is told by time."""
    happened = run(Job(1, 2, 1, steps=60, layers=0, jitter=1000, lost={1: 0.2}, **clocks(2)))
    offsets = found(happened)
    assert int(np.abs(apart(happened, offsets)).max()) <= 2000


def _set(known, from_row, by):
    """The same, of a clock that is set before a row."""
    moved = np.where(np.arange(len(known)) >= from_row, by, 0)
    return msgspec.structs.replace(
        known, start_ns=known.start_ns + moved, end_ns=known.end_ns + moved
    )


def test_what_is_said_of_ends_that_come_apart():
    """They are what was seen. That a clock was set is one cause of two, and on one host it is not
    the likely one: stamps stay."""
    happened = run(Job(1, 2, 1, steps=40, layers=0, jitter=1000))
    first, second = knowledge(happened)
    known = [first, _set(second, 30, 4_000_000)]
    plans = plan([capture(rank, Anchor(Domain.UNIX), "n0") for rank in (0, 1)], "auto", known)
    assert [(o.method, o.offset_ns) for o in plans.offsets.values()] == [("meta", 0)] * 2
    [apart] = re.findall(
        r"on, ends are (\S+) µs further apart than before: a clock was set, or", plans.remark
    )
    assert float(apart) == pytest.approx(4000, abs=5)
    assert plans.remark.startswith("all ranks ran on one host, so on one clock; ")


def test_a_clock_set_by_what_another_group_says():
    """Ranks 0 and 1 meet in a group whose operations are over before a clock is set, and in one
    that goes on: the fit of the first is no surer than that step."""
    happened = run(Job(1, 2, 1, steps=60, layers=0, jitter=1000))
    first, second = knowledge(happened)
    rows = np.arange(len(first)) % 2
    groups = (Group("x", 2), Group("y", 2))
    keep = (rows == 0) | (np.arange(len(first)) < 30)
    both = []
    for one in (first, _set(second, 40, 700_000)):
        order = np.argsort(rows[keep], kind="stable")
        split = _cut(one, np.flatnonzero(keep)[order])
        both.append(
            msgspec.structs.replace(split, groups=groups, group=rows[keep][order].astype(np.int32))
        )
    plans = found(happened, both)
    assert plans.offsets[1].matches == 15
    assert plans.error_ns(1) > 600_000


@pytest.mark.parametrize("steps_", [2, 4])
def test_a_clock_that_is_set_and_set_back_makes_the_error_as_large(steps_):
    """Neighbours are off together; a single end that comes late is no such thing."""
    happened = run(Job(1, 2, 1, steps=40, layers=0, jitter=1000))
    first, second = knowledge(happened)
    sure = found(happened, [first, second]).offsets[1].error_ns
    assert sure < 5000
    for by in (70_000, -300_000):
        moved = _set(_set(second, 20, by), 20 + steps_, -by)
        one = found(happened, [first, moved]).offsets[1]
        assert abs(by) <= one.error_ns < abs(by) + 10_000
        assert "; for a while, ends are " in one.evidence
        alone = found(happened, [first, _set(_set(second, 20, by), 21, -by)]).offsets[1]
        assert alone.error_ns < 2 * sure


@pytest.mark.sample(2)
@pytest.mark.parametrize("noise", SHAPES)
def test_neighbours_are_off_together_by_chance_as_rarely_as_is_said(noise):
    """Whatever the noise: wild ends are next to each other at times."""
    rng = np.random.default_rng(6)
    seen = [
        fits._shifted(
            line(np.arange(count) * 1e6, draw(noise, rng, count) * 1e4, drifting=False), 0
        )
        for count in (8, 30, 100, 300)
        for _ in range(150)
    ]
    assert np.count_nonzero(seen) <= 3


# -- what is refused ------------------------------------------------------------------------


# -- where the source says which operation each is -----------------------------------------------


def identified(happened):
    """What ranks know, with the place of every operation in the program as its identity."""
    return [
        msgspec.structs.replace(one, identity=np.sort(kept(happened, rank)))
        for rank, one in enumerate(knowledge(happened))
    ]


def test_what_the_source_calls_the_same_needs_no_pace():
    """Steps are alike to the nanosecond, one rank missed seven, numbers of steps say nothing, and
    ends scatter by as much as operations are apart."""
    happened = run(Job(1, 2, 1, steps=30, layers=0, dropped={1: 7}, pace=0.0, **clocks(2)))
    known = identified(happened)
    known[1] = msgspec.structs.replace(known[1], step=known[1].step - 7)
    assert found(
        happened, [msgspec.structs.replace(one, identity=one.identity[:0]) for one in known]
    ).issues
    offsets = found(happened, known)
    assert offsets.offsets[1].matches == 23
    assert int(np.abs(apart(happened, offsets)).max()) <= 2000
    noise = np.random.default_rng(1).integers(0, 10**6, len(known[1]))
    known[1] = msgspec.structs.replace(known[1], end_ns=known[1].end_ns + noise)
    offsets = found(happened, known)
    assert int(np.abs(apart(happened, offsets)).max()) <= offsets.error_ns(1) < 2 * 10**6


def test_operations_of_other_runs_and_those_in_loops_are_not_the_same():
    """A loop repeats an operation in one run: captures that begin in it hold it as often, and
    others of it, so those tell nothing; and nothing in common is refused."""
    happened = run(Job(1, 2, 1, steps=30, layers=0, dropped={1: 3}, lost={0: 0.1}, **clocks(2)))
    known = identified(happened)
    looped = [
        msgspec.structs.replace(one, identity=np.where(one.step < 20, 7, one.identity))
        for one in known
    ]
    offsets = found(happened, looped)
    shared = np.intersect1d(known[0].identity, known[1].identity)
    assert offsets.offsets[1].matches == np.count_nonzero(shared >= 20)
    assert int(np.abs(apart(happened, offsets)).max()) <= 2000
    known[1] = msgspec.structs.replace(known[1], identity=known[1].identity + 10**6)
    [issue] = [i for i in found(happened, known).issues if i.rank == 1]
    assert "0 operations are of the same run of a program in both" in issue.places[0]


@pytest.mark.parametrize("by", [4 * 10**6, -120_000])
def test_a_last_end_that_comes_late_makes_the_error_as_large(by):
    """It came late, or a clock was set before it: the error holds either way, and says so."""
    happened = run(Job(1, 2, 1, steps=12, layers=0, jitter=2000, **clocks(2)))
    known = identified(happened)
    known[1] = msgspec.structs.replace(
        known[1], end_ns=known[1].end_ns + by * (known[1].identity == 11)
    )
    one = found(happened, known).offsets[1]
    assert abs(by) <= one.error_ns < abs(by) + 100_000
    assert "ends are" in one.evidence and "late, or a clock was set" in one.evidence


# -- what is said ---------------------------------------------------------------------------------


def test_where_a_clock_that_was_set_would_not_show_is_said():
    """Rank 1 goes on for half of the job after rank 0: between the first match and the last it is
    checked, and the evidence says how long the rest is."""
    happened = run(Job(1, 2, 1, steps=40, **clocks(2)))
    known = knowledge(happened)
    half = known[0].step < 20
    columns = ("group", "kind", "size", "step", "start_ns", "end_ns")
    short = {name: getattr(known[0], name)[half] for name in columns}
    known[0] = CollectiveRecords(0, known[0].groups, known[0].kinds, **short)
    said = found(happened, known)
    one = said.offsets[1]
    ends = known[1].end_ns[known[1].step < 20]
    assert one.checked_ns == (ends.min(), ends.max())
    assert one.as_dict()["checked_ns"] == [str(ends.min()), str(ends.max())]
    rest = time_text(known[1].end_ns.max() - ends.max())
    assert f"the last {rest} would go unnoticed" in one.evidence
    [issue] = [i for i in said.issues if i.rank == 1]
    assert (issue.code, issue.places[0].endswith(f"the last {rest}")) == ("clock-unchecked", True)
    assert "between matched collectives" in said.as_dict()["text"]


def test_ranks_without_a_common_group_are_called_unaligned():
    """No offset is guessed; the issue is booked on the rank."""
    happened = run(Job(2, 2, 1, steps=20, **clocks(4)))
    known = knowledge(happened)
    alone = known[3]
    known[3] = CollectiveRecords(3, (Group("another"), Group("one more")), alone.kinds, *(
        getattr(alone, c) for c in ("group", "kind", "size", "step", "start_ns", "end_ns")
    ))  # fmt: skip
    offsets = found(happened, known)
    assert [(i.rank, i.places) for i in offsets.issues if i.code == "unaligned"] == [
        (3, ("no collective matches the other ranks'",))
    ]
    assert offsets.offset_ns(3) == 0


def test_two_unrelated_runs_are_not_pulled_together():
    """The same program, another pace: the ends scatter, so auto keeps the clocks of the files."""
    one, other = (run(Job(1, 2, 1, steps=40, compute=8_000_000, seed=s)) for s in (1, 2))
    known = [knowledge(one)[0], knowledge(other)[1]]
    offsets = found(one, known, "auto", UNIX)
    assert [offsets.offset_ns(0), offsets.offset_ns(1)] == [0, 0]
    assert offsets.method == "meta"
    assert "collectives not used: rank 1" in offsets.remark


def test_runs_hours_apart_are_taken_for_two():
    """No clock errs by an hour unnoticed. They are not comparable either way."""
    happened = run(Job(1, 2, 1, steps=20, offset=(0, 7200 * SECOND)))
    offsets = found(happened, mode="auto", clock=UNIX)
    assert offsets.method == "meta"
    assert offsets.remark == (
        "collectives not used: rank 1: it would move by more than an hour: another run?"
    )
    assert [(i.code, i.rank) for i in offsets.issues] == [("unaligned", 0), ("unaligned", 1)]
    assert "never at one time" in next(iter(offsets.issues)).places[0]


def test_auto_uses_collectives_where_they_suffice():
    """Clocks of hosts that are 40 ms apart; the leading rank's stays as it is."""
    happened = run(Job(1, 2, 1, steps=20, offset=(0, 40_000_000)))
    offsets = found(happened, mode="auto", clock=UNIX)
    assert (offsets.method, offsets.offset_ns(0)) == ("collective", 0)
    assert abs(offsets.offset_ns(1) - 40_000_000) <= 2000


def test_auto_wants_eight_matches_to_prefer_them_to_stamps_that_agree():
    """The plan says how many there were. Stamps that contradict them are not kept for that."""
    job = Job(1, 2, 1, steps=7, layers=0, pace=0.2)
    offsets = found(run(job), mode="auto", clock=UNIX)
    assert offsets.method == "meta"
    assert offsets.remark == "collectives not used: rank 1: only 7 operations match; 8 needed"
    offsets = found(run(replace(job, offset=(0, 40_000_000))), mode="auto", clock=UNIX)
    assert (offsets.method, offsets.remark) == ("collective", "")
    assert {i.code for i in offsets.issues} <= {"clock-unchecked"}


@pytest.mark.parametrize(
    ("offset", "doubted"),
    [
        ((0, 0, 800_000_000, 800_000_000), [0, 1, 2, 3]),
        ((0, 0, 0, 800_000_000), [3]),
        ((0, 0, 0, 700_000), [3]),
        ((0, 0, 0, 50_000), []),
    ],
)
def test_stamps_that_collectives_refute_are_called_unaligned(offset, doubted):
    """Operations of one step do not tell which step it is, but that ranks were in them at one time
    is certain. Who is alone against others is wrong; of two against two, nobody knows."""
    happened = run(Job(1, 4, 1, steps=4, layers=2, pace=0.0, jitter=3000, offset=offset))
    offsets = found(happened, mode="auto", clock=UNIX)
    assert [(i.code, i.rank) for i in offsets.issues] == [("unaligned", r) for r in doubted]
    assert offsets.method == "meta"
    places = [place for issue in offsets.issues for place in issue.places]
    assert all("by their stamps" in place and "with rank" in place for place in places)


def test_auto_leaves_a_single_rank_alone():
    """There is nothing to be aligned with."""
    happened = run(Job(1, 2, 1, steps=20))
    offsets = plan([capture(0, UNIX)], "auto", knowledge(happened)[:1])
    assert (offsets.method, offsets.offset_ns(0), offsets.remark) == ("meta", 0, "")


def test_auto_leaves_one_clock_alone():
    """Ranks stamped by the monotonic clock of one host cannot differ."""
    happened = run(Job(1, 2, 1, steps=20))
    clock = Anchor(Domain.MONOTONIC, 0, 5, "start_info")
    captures = [capture(rank, clock, "node") for rank in range(2)]
    offsets = plan(captures, "auto", knowledge(happened))
    assert (offsets.method, [offsets.offset_ns(r) for r in (0, 1)]) == ("meta", [5, 5])


def test_an_error_that_is_too_large_is_refused():
    """The message names the rank and both figures; exit code 5."""
    happened = run(Job(1, 2, 1, steps=20, jitter=5000, pace=0.2))
    with pytest.raises(
        ClockError, match=r"error of rank 1 is .* µs \(collective\), the limit is 0.1"
    ):
        found(happened, max_error_ns=100)
    assert ClockError.exit_code == 5


def test_an_error_that_nobody_knows_is_refused():
    """Unix stamps say nothing of how far they are off."""
    happened = run(Job(1, 2, 1, steps=2))
    with pytest.raises(ClockError, match=r"error of rank 0 is unknown \(meta\)"):
        found(happened, mode="auto", clock=UNIX, max_error_ns=10**9)


def test_stamps_that_few_collectives_agree_with_have_an_error():
    """Three are too few to prefer them to the stamps, and enough to say how far those are off."""
    plan = found(run(Job(1, 2, 1, steps=3)), mode="auto", clock=UNIX)
    assert {one.method for one in plan.offsets.values()} == {"meta"}
    assert plan.error_ns(0) == 0
    assert 0 < plan.error_ns(1) < 1_000_000


def test_groups_that_several_communicators_share_a_name_of_are_left_out():
    """More ranks than the group has members: the name is not unique."""
    known = [
        CollectiveRecords(rank, (Group("hccl 7", 2),), ("allreduce",), *(
            np.zeros(20, t) for t in ("i4", "i4", "i8", "i4")
        ), np.arange(20) * 1000, np.arange(20) * 1000 + 500)
        for rank in range(3)
    ]  # fmt: skip
    assert list(matched(known)) == []


# -- what a trace tells ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hcom_allReduce__586_0_1", "allreduce"),
        ("Default/AllReduce-op534_0", "allreduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reducescatter"),
        ("_allgather_base", "allgather"),
        ("nccl:all_to_all", "alltoall"),
        ("hcom_batchSendRecv__1_2_3", "p2p"),
        ("hcom_receive__1_2_3", "p2p"),
        ("ncclKernel_Reduce_RING", "reduce"),
    ],
)
def test_kinds_by_name(name, kind):
    """Whatever the library calls it."""
    assert kind_of(name) == kind


def test_evidence_is_that_of_the_trace():
    """Groups by their name, sizes from the arguments, times as stamped."""
    happened = run(Job(2, 2, 1, steps=3, layers=1))
    told, known = collective_records(trace(happened, 1)), knowledge(happened)[1]
    order = [[group.key for group in known.groups].index(name) for name in ("dp1", "tp0")]
    assert sorted(group.key.split()[3] for group in told.groups) == ["dp1", "tp0"]
    both = [
        sorted(zip(e.size.tolist(), e.start_ns.tolist(), e.end_ns.tolist(), strict=True))
        for e in (told, known)
    ]
    assert (both[0], len(order)) == (both[1], 2)


def test_lanes_stand_for_groups_by_their_order():
    """Where streams are all that is known, their numbers differ between ranks."""
    from traceconv.core.builder import TraceBuilder
    from traceconv.core.model import Layer, OpClass

    keys = []
    for streams in ((7, 9), (15, 16)):
        build = TraceBuilder(capture(0))
        for number in streams:
            build.slice(
                build.track(Layer.COMM, f"Stream {number}"), number, 5, "ncclKernel_AllReduce",
                op=OpClass.COMM,
            )  # fmt: skip
        keys.append([group.key for group in collective_records(build.finish()).groups])
    assert keys == [["lane 0", "lane 1"]] * 2


# -- arithmetic -----------------------------------------------------------------------------


def test_a_correction_is_exact_and_keeps_order():
    """Against Python's integers, over the whole of int64."""
    one = Correction(-1234567, -199_999_999, 1_700_000_000_000_000_000)
    times = np.sort(np.random.default_rng(0).integers(-(2**62), 2**62, 500))
    times = np.concatenate((times, one.at_ns + np.arange(-50, 50)))
    exact = [t + one.offset_ns + ((t - one.at_ns) * one.drift_ppt * 2 + 10**12) // (2 * 10**12)
             for t in times.tolist()]  # fmt: skip
    assert one.of(times).tolist() == exact
    assert (np.diff(one.of(one.at_ns + np.arange(1000))) >= 0).all()


def test_corrections_follow_each_other():
    """As one, to the nanosecond, over a minute."""
    one, two = Correction(5, -30 * 10**6, 100), Correction(-17, 20 * 10**6, 1000)
    times = np.arange(0, 60 * SECOND, SECOND)
    assert int(np.abs(one.then(two).of(times) - two.of(one.of(times))).max()) <= 40


def test_a_drifting_rank_is_moved_as_a_whole():
    """Slices still end where the next begins, windows and samples move along."""
    happened = run(Job(1, 2, 1, steps=30, **clocks(2, drift_ppm=50)))
    offsets = found(happened)
    before = trace(happened, 1)
    after = aligned(before, offsets)
    assert after.events.start_ns.tolist() == offsets.corrected(1, before.events.start_ns).tolist()
    assert after.events.end_ns.tolist() == offsets.corrected(1, before.events.end_ns).tolist()


def test_a_plan_written_to_a_file_is_read_again(tmp_path):
    """Offsets, drifts and errors."""
    happened = run(Job(1, 2, 1, steps=40, **clocks(2, drift_ppm=50)))
    first = found(happened)
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps(first.as_dict()))
    again = plan([capture(0), capture(1)], str(path))
    assert first.offsets[1].drift_ppt != 0
    assert [again.offsets[r].correction for r in (0, 1)] == [
        first.offsets[r].correction for r in (0, 1)
    ]
    assert again.error_ns(1) == first.error_ns(1)


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        ({}, "offset of rank 0 is not a whole number"),
        ({"offset_ns": 1, "drift_ppt": 10**12}, "drift of rank 0 is larger than any clock's"),
        ({"offset_ns": 1, "drift_ppt": 0.5}, "drift_ppt of rank 0 is not a whole number"),
    ],
)
def test_files_that_hold_no_corrections(tmp_path, rank, message):
    """Every way one can be wrong is the library's own error."""
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps({"ranks": {"0": rank}}))
    with pytest.raises(ClockError, match=message):
        plan([capture(0)], str(path))


def test_a_correction_out_of_int64_is_refused():
    """Also where only the time since it holds is."""
    happened = run(Job(1, 2, 1, steps=1))
    one = Correction(0, 10**6, -INT64_MAX)
    from traceconv.alignment.plan import shift

    with pytest.raises(ClockError, match="out of int64"):
        shift(trace(happened, 0), one)


def test_the_exact_median_of_large_stamps():
    """A double would lose the last digits."""
    big = 1_700_000_000_000_000_000
    assert median_ns(np.array([big + 5, big + 1, big + 3, big + 2])) == big + 3
