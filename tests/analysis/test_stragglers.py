"""The slow rank is named where there is one, and nobody where there is none.

Whether that is so in hundreds of jobs of many kinds is measured by ``python -m tests.scenarios``; a
few of these are in test_scenarios.py. Here is what verdicts consist of.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from job_simulator import Clock, Delay
from job_simulator import Job as TrainingJob
from job_simulator import capture as seen
from job_simulator import run as simulate
from job_simulator.observed import summaries as known_of
from kineto_files import NCCL, row, write
from synthetic_job import Job, capture, link_side_table, run, trace, traces

import traceconv
from traceconv.alignment import collective_matching
from traceconv.alignment import plan as align
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.offsets import stamped
from traceconv.analysis.rank_facts import SORTS
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers import judging as stragglers
from traceconv.analysis.stragglers import links
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.cli import cli
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import OptionError
from traceconv.passes import compose
from traceconv.report import run_summary
from traceconv.run.stages import passed

MS = 1_000_000


def summaries(happened):
    """What all ranks know, by way of their traces."""
    every = (passed(one, compose(mode="detail")) for one in traces(happened))
    return [summarize(one, SummaryRequest(lateness=True)) for one in every]


def judged(happened, known=None, mode="collective", **more):
    """The verdict on a run."""
    known = summaries(happened) if known is None else known
    captures = [capture(rank) for rank in range(happened.job.ranks)]
    clocks = align.plan(captures, mode, [one.collectives for one in known])
    return stragglers.judge(known, clocks, **more)


def ranks_of(verdict):
    """Those that are named."""
    return [one.rank for one in verdict.culprits]


def of_job(job, **more):
    """The verdict on a job of the independent simulator."""
    known = known_of(simulate(job))
    groups = tuple(matched([one.collectives for one in known]))
    captures = [capture(rank) for rank in job.captured]
    clocks = align.plan(captures, "none", [one.collectives for one in known], groups=groups)
    return stragglers.judge(known, clocks, groups, **more)


# -- verdicts -------------------------------------------------------------------------------


def test_who_is_held_up_by_others_is_not_named():
    """The tensor group of a slow rank comes late to every data group; one of them is to blame."""
    verdict = judged(run(Job(2, 2, 2, steps=30, jitter=2000, slow=(5, 100_000))))
    assert ranks_of(verdict) == [5]
    assert verdict.culprits[0].why == "computing"


def test_the_figures_are_those_of_the_delay():
    """100 us more, for which the others wait, by time inside and by arrival, within 5 us; all of
    it is computing."""
    (culprit,) = judged(run(Job(1, 4, 1, steps=30, jitter=2000, slow=(2, 100_000)))).culprits
    assert abs(culprit.excess_ns - 100_000) < 5000
    assert abs(culprit.gain_ns - 100_000) < 5000
    assert abs(culprit.parts_ns[0] - 100_000) < 5000
    assert max(abs(part) for part in culprit.parts_ns[1:]) < 5000
    assert (culprit.of_steps, culprit.peers, len(culprit.late_steps)) == (30, 3, 30)


def test_no_clocks_are_needed():
    """They are a second apart and left so, and nobody knows by how much they are off."""
    job = Job(1, 4, 1, steps=30, jitter=2000, slow=(2, 100_000), offset=(0, 10**9, -(10**9), 7))
    assert ranks_of(judged(run(job), mode="none")) == [2]


def test_collectives_that_are_matched_already_are_not_matched_again(monkeypatch):
    """Neither for the clocks nor for the verdict, and both are the same."""
    happened = run(Job(1, 4, 1, steps=20, jitter=2000, slow=(1, 50_000)))
    known, captures = summaries(happened), [capture(rank) for rank in range(4)]
    evidence = [one.collectives for one in known]
    groups = tuple(matched(evidence))
    plan = align.plan(captures, "collective", evidence)
    verdict = stragglers.judge(known, plan)
    for module in (stragglers, collective_matching):
        monkeypatch.setattr(module, "matched", None)
    again = align.plan(captures, "collective", evidence, groups=groups)
    assert again == plan
    assert stragglers.judge(known, again, groups).as_dict() == verdict.as_dict()


def test_what_does_not_matter_names_nobody():
    """A rank that costs 0.5 percent of a step, beyond doubt, is no straggler, unless that is asked
    for; the bound that is stated instead holds."""
    job = TrainingJob(dp=4, jitter=2e3, steps=20, delays=(Delay((1,), 32e3),))
    verdict = of_job(job)
    assert verdict.kind == "none"
    assert 25_000 < verdict.bound_ns < 0.01 * 6.5 * MS
    assert "no rank stands out: no rank takes longer than its peers by more than" in verdict.line()
    assert ranks_of(of_job(job, material=0.002)) == [1]


def test_a_rank_that_is_late_in_some_steps_is_intermittent():
    """Three pauses of a collector in 30 steps; the text says in which, for how long and why."""
    job = TrainingJob(tp=2, dp=4, steps=30, delays=(Delay((3,), 8e6, every=10, cause="gc"),))
    job = replace(job, delays=(replace(job.delays[0], phase=4),))
    (culprit,) = of_job(job).culprits
    assert (culprit.rank, culprit.pattern, culprit.late_steps) == (3, "intermittent", (4, 14, 24))
    assert culprit.why == "garbage collection"
    assert culprit.gain_ns == pytest.approx(0.8 * MS, rel=0.1)
    assert " takes 8.1" in culprit.text()
    assert " steps (4, 14, 24), mostly garbage collection; it costs 80" in culprit.text()


def test_what_happens_once_proves_nothing():
    """It is said of the step in which it was."""
    verdict = of_job(TrainingJob(dp=4, delays=(Delay((1,), 9e6, only=(7,)),)))
    assert verdict.kind == "no verdict"
    late = {number: one.rank for (_, number), one in verdict.steps.items() if one}
    assert late == {7: 1}


def test_those_that_are_late_together_are_named_together():
    """Each says who else is; none alone would shorten a step, all of them do."""
    slow = (Delay((2, 5), 1e6),)
    verdict = of_job(TrainingJob(dp=8, delays=slow))
    assert sorted(ranks_of(verdict)) == [2, 5]
    assert [one.together for one in verdict.culprits] in ([(5,), (2,)], [(2,), (5,)])
    assert verdict.gain_ns == pytest.approx(MS, rel=0.15)
    (late,) = verdict.late
    assert late.others == (0, 1, 3, 4, 6, 7)  # the slow ranks do not wait for each other


def test_other_stages_wait_for_one_with_more_work():
    """The last of two stages has three layers, the first two: with two, each step would be shorter
    by the work of one layer, for which the first stage waits."""
    job = TrainingJob(dp=2, pp=2, steps=8, micro_batches=4, layers=(2, 3))
    verdict = of_job(job)
    assert verdict.kind == "uneven stages"
    (late,) = verdict.late
    assert (late.stage, late.rank, late.others) == (1, -1, (0, 1))
    assert late.per_step_ns == pytest.approx(verdict.stage.excess_ns, rel=0.15)
    assert late.per_step_ns > verdict.stage.gain_ns  # equal stages would share that work


def test_one_step_is_an_observation():
    """Who came last, and by how much; no verdict, however much that is."""
    verdict = of_job(TrainingJob(tp=2, dp=2, steps=1, delays=(Delay((1,), 9e6),)))
    assert verdict.kind == "no verdict"
    assert verdict.reason.startswith("only one step was captured, too few to show a pattern")


def test_ranks_that_only_exchange_messages_have_nothing_to_compare():
    """Nor steps that are marked: no table has a value."""
    job = TrainingJob(dp=2, pp=2, steps=1, numbering="none", micro_batches=4, layers=1)
    assert of_job(job).kind == "no verdict"
    assert of_job(TrainingJob(pp=2, steps=2, numbering="none")).kind == "no verdict"


def test_slow_ranks_of_two_stages_hold_each_other_up():
    """Both pipelines are late, so nobody waits where these meet; each is named all the same."""
    delays = (Delay((1,), 4e6), Delay((6,), 4e6))
    job = TrainingJob(tp=2, dp=2, pp=2, micro_batches=4, jitter=150e3, delays=delays)
    verdict = of_job(job)
    assert sorted(ranks_of(verdict)) == [1, 6]
    assert verdict.gain_ns == pytest.approx(4e6, rel=0.15)


def test_a_merge_judges_what_the_command_does():
    """So few operations that only stamps of one host tell which are the same."""
    job = TrainingJob(
        dp=2, layers=1, jitter=5e3, input_ns=0, numbering="none", stamps="unix",
        windows={1: (6, 12)}, delays=(Delay((1,), 8e5),),
    )  # fmt: skip
    known, captures = known_of(simulate(job)), [seen(job, rank) for rank in job.captured]
    records = [one.collectives for one in known]
    plan = align.plan(captures, "auto", records)
    groups = tuple(matched(records, stamped(captures)))
    said = stragglers.judge(known, plan, groups)
    merged = run_summary.judge(known, plan, captures).verdict
    assert (merged.line(), merged.compared) == (said.line(), 6)
    assert run_summary.judge(known, plan).verdict.compared == 0


def test_one_rank_alone_is_compared_with_nobody():
    """Inconclusive, and it says why."""
    happened = run(Job(1, 2, 1, steps=5))
    verdict = judged(happened, summaries(happened)[:1])
    assert (verdict.kind, verdict.compared) == ("no verdict", 0)
    assert verdict.lines()[0] == "no verdict: one rank was captured, so it has no peers"


def test_steps_without_a_late_rank_share_a_line():
    """Numbers that are there twice are told apart by their windows."""
    job = TrainingJob(dp=4, steps=12, numbering="repeated", delays=(Delay((2,), 3e6, every=6),))
    lines = of_job(job).step_lines()
    assert [line.partition(" takes")[0] for line in lines] == [
        "step 0 of window 1: rank 2",
        "steps 1-5 of window 1: no rank stands out",
        "step 0 of window 2: rank 2",
        "steps 1-5 of window 2: no rank stands out",
    ]


def test_a_verdict_as_json_values():
    """The document has a version, the verdict in a word and the culprit with its figures."""
    document = judged(run(Job(1, 2, 1, steps=20, jitter=1000, slow=(1, 90_000)))).as_dict()
    assert (document["schema_version"], document["verdict"]) == (3, "straggler")
    assert (document["culprit"]["rank"], document["culprit"]["pattern"]) == (1, "constant")
    assert list(document["culprit"]["parts_ns"]) == list(SORTS)
    assert document["text"] == f"straggler: {document['culprit']['text']}"
    json.dumps(document)


# -- links ----------------------------------------------------------------------------------


def table(*rows):
    """Links of a rank as their table has them: (source, destination, transport, bytes, ns)."""
    source, target, transport, size, time = zip(*rows, strict=True)
    return {
        "Group": np.array(["g"] * len(rows), object),
        "Source": np.array(source), "Destination": np.array(target),
        "Transport": np.array(transport, object),
        "Bytes": np.array(size), "total": np.array(time),
    }  # fmt: skip


def summary(columns):
    """The summary of a rank with these links."""
    return RankSummary(rank=0, links=columns)


def link_summary(job, rank):
    """What the table of links makes of a rank's communication matrix."""
    build = TraceBuilder(capture(rank))
    columns = link_side_table(job, rank)
    build.side_table("communication_matrix", "communication_matrix.json", lambda: columns)
    return RankSummary(rank=rank, links=links.of_rank(build.finish()))


def test_a_slow_link_is_found():
    """One of eight carries data at a third of the usual speed."""
    rows = [(a, (a + 1) % 8, "HCCS", 10**8, 5_000_000 + 1000 * a) for a in range(8)]
    rows[3] = (3, 4, "HCCS", 10**8, 15_000_000)
    (link,) = links.slow([summary(table(*rows))])
    assert (link.source, link.destination, round(link.usual / link.bandwidth, 1)) == (3, 4, 3.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_planted_link_is_named_and_no_other(seed):
    """Three transports of different speed, 5 percent of noise; one link is twice as slow."""
    job = Job(2, 4, 2, seed=seed, slow_link=(5, 7, 2.0))
    found = links.slow([link_summary(job, rank) for rank in range(16)])
    assert [(one.source, one.destination) for one in found] == [(5, 7)]


@pytest.mark.parametrize("seed", range(20))
def test_no_link_is_named_where_none_is_slow(seed):
    """The same job without it."""
    job = Job(2, 4, 2, seed=seed)
    assert links.slow([link_summary(job, rank) for rank in range(16)]) == []


def test_too_few_links_name_none():
    """Of two links of a transport one is slow, or the other fast: no verdict, and said so."""
    job = Job(2, 1, 1, slow_link=(0, 1, 3.0))
    known = [link_summary(job, rank) for rank in range(2)]
    assert (links.slow(known), links.too_few(known)) == ([], {"HCCS": 2})


def test_links_of_another_transport_are_not_compared():
    """RDMA is slower than what lies on a board, and no outlier for it."""
    rows = [(a, a + 1, "HCCS", 10**8, 5_000_000) for a in range(6)]
    rows += [(a, a + 8, "RDMA", 10**8, 50_000_000) for a in range(6)]
    assert links.slow([summary(table(*rows))]) == []


def test_small_transfers_are_not_called_slow():
    """What takes long for the latency's sake says nothing of bandwidth."""
    rows = [(a, a + 1, "HCCS", 10**8, 5_000_000) for a in range(6)]
    assert links.slow([summary(table(*rows, (7, 8, "HCCS", 1000, 5000)))]) == []


def test_a_rank_that_knows_no_links():
    """There is no table, and no finding."""
    happened = run(Job(1, 2, 1, steps=2))
    assert links.slow([summary(links.of_rank(trace(happened, 0)))]) == []


def test_a_slow_group_is_found_without_links():
    """Its transfers take three times as long, when all members are there."""
    transfer = dict.fromkeys(("tp", "dp"), 3e5)
    job = TrainingJob(tp=2, dp=4, slow_group=("tp", 2, 3.0), transfer_ns=transfer)
    verdict = of_job(job)
    assert (verdict.kind, ranks_of(verdict)) == ("slow group", [])
    (group,) = verdict.slow_groups
    assert (group.ranks, group.others) == ((4, 5), 3)
    assert group.time_ns / group.usual_ns == pytest.approx(3, rel=0.05)
    assert group.gain_ns == pytest.approx(4 * 6e5, rel=0.05)
    assert verdict.line().startswith("slow group: allreduce of size 4194304 of group 2 [4, 5] ")


def test_a_group_with_members_that_were_not_captured_is_not_called_slow():
    """They may be what it waits for."""
    transfer = dict.fromkeys(("tp", "dp"), 3e5)
    job = TrainingJob(tp=4, dp=2, slow_group=("tp", 1, 3.0), transfer_ns=transfer)
    assert of_job(job).kind == "slow group"
    assert of_job(replace(job, uncaptured=(5,))).slow_groups == ()


def test_what_matters_is_an_option(tmp_path):
    """90 us of a step of a millisecond: with 50 percent, that is nothing."""
    source = logs(tmp_path)
    assert ranks_of(traceconv.stragglers(source, material="5%").verdict) == [1]
    assert ranks_of(traceconv.stragglers(source, material=50).verdict) == []
    for value in ("x", -1, 101, "nan", True):
        with pytest.raises(OptionError, match="not a percentage"):
            traceconv.stragglers(source, material=value)


# -- command line ---------------------------------------------------------------------------


def logs(folder):
    """Two raw event logs whose clocks are 30 ms apart; rank 1 is slow."""
    job = Job(1, 2, 1, steps=20, jitter=1000, slow=(1, 90_000), offset=(0, 30_000_000))
    happened = run(job)
    for rank in range(2):
        lines = [json.dumps({"rawlog": 1, "unit": "ns", "clock": "unix", "rank": rank})]
        for at, (_, kind, _) in enumerate(happened.names):
            start, end = (int(job.local(rank, t[at, rank])) for t in (happened.start, happened.end))
            spent = int(happened.spent[at, rank])
            for name, ts, dur, more in (
                ("MatMul", start - spent, spent, {"stream": 1, "kind": "compute"}),
                (kind, start, end - start, {"kind": "comm", "plane": "world"}),
            ):
                lines.append(json.dumps({"name": name, "ts": ts, "dur": dur, **more}))
        (folder / f"rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)


def call(*arguments):
    """A command's exit code and output."""
    result = CliRunner().invoke(cli, arguments)
    return result, result.output


def test_align_prints_a_table_and_writes_what_merge_reads(tmp_path):
    """The offset is found, written, and used by a merge."""
    offsets = tmp_path / "offsets.json"
    (tmp_path / "in").mkdir()
    source = logs(tmp_path / "in")
    result, said = call("align", source, "--align", "collective", "-o", str(offsets), "-q")
    assert (result.exit_code, said.split()[0]) == (0, "clock:")
    told = json.loads(offsets.read_text())
    assert abs(int(told["ranks"]["1"]["offset_ns"]) - 30_000_000) < 2000
    out, report = tmp_path / "t.pftrace", tmp_path / "r.json"
    call("merge", source, "--align", str(offsets), "-o", str(out), "--report", str(report), "-q")
    clock = json.loads(report.read_text())["clock"]
    assert clock["ranks"]["1"]["offset_ns"] == told["ranks"]["1"]["offset_ns"]


def test_stragglers_names_the_rank(tmp_path):
    """As text and as one JSON document; the clocks are those of the collectives."""
    source = logs(tmp_path)
    result, said = call("stragglers", source, "--json", "-q")
    document = json.loads(said)
    assert (result.exit_code, document["culprit"]["rank"]) == (0, 1)
    assert (document["clock"], document["slow_links"]) == ("collective", [])
    assert "straggler: rank 1 takes 9" in call("stragglers", source, "-q")[1]


@pytest.mark.parametrize("command", ["merge", "align", "stragglers"])
def test_an_alignment_that_is_too_uncertain_is_refused(tmp_path, command):
    """All commands that align know the option; the error is the library's, with exit code 5."""
    source = logs(tmp_path)
    more = ["-o", str(tmp_path / "t.pftrace")] if command == "merge" else []
    result, _ = call(command, source, "--align-max-error", "1ns", "-q", *more)
    assert result.exception.exit_code == 5
    assert not (tmp_path / "t.pftrace").exists()


def line_of(verdict, step):
    """What is said of a step in which a rank is late."""
    return next(line for line in verdict.step_lines() if line.startswith(f"step {step}: "))


def test_a_step_of_no_pattern_may_be_chance():
    """What is there once is an observation; a step of an intermittent straggler is more."""
    once = TrainingJob(dp=4, steps=12, delays=(Delay((2,), 3e6, only=(7,)),))
    assert line_of(of_job(once), 7).endswith(", maybe by chance")
    often = replace(once, steps=24, delays=(Delay((2,), 3e6, every=4),))
    found = of_job(often)
    assert found.culprits[0].pattern == "intermittent"
    assert [one.pattern for one in found.steps.values() if one] == ["intermittent"] * 6
    assert "chance" not in line_of(found, 8)


# -- captures that are not whole, and clocks that are wrong ---------------------------------------


PLANTED = TrainingJob(dp=4, jitter=3e3, steps=20, delays=(Delay((1,), 600e3),))


def cost_of(verdict, rank):
    """What is said of one rank."""
    return next(one.gain_ns for one in verdict.culprits if one.rank == rank)


@pytest.mark.parametrize("clocks", [
    (Clock(jumps=((60 * MS, 3 * MS),)), Clock(-2 * MS), Clock(drift_ppm=80.0), Clock()),
    (Clock(), Clock(7 * MS), Clock(), Clock(jumps=((40 * MS, 5 * MS), (90 * MS, -4 * MS)))),
])  # fmt: skip
def test_clocks_that_contradict_the_collectives_change_no_verdict(clocks):
    """Set in the middle, set back, drifting: what a rank does by itself needs no other clock."""
    true = of_job(PLANTED)
    verdict = of_job(replace(PLANTED, clocks=clocks))
    assert ranks_of(verdict) == ranks_of(true) == [1]
    assert 0.5 * cost_of(true, 1) < cost_of(verdict, 1) < 1.3 * cost_of(true, 1)


def test_a_slow_rank_is_named_among_those_that_were_captured():
    """One rank has no capture: said, and the others are compared."""
    verdict = of_job(replace(PLANTED, uncaptured=(3,)))
    assert ranks_of(verdict) == [1]
    assert any(one.startswith("rank 3 not captured") for one in verdict.limits)


def test_who_waits_for_a_rank_without_capture_is_not_named():
    """The slow one is the one that was not captured."""
    verdict = of_job(replace(PLANTED, uncaptured=(1,)))
    assert verdict.culprits == ()
    assert any(one.startswith("rank 1 not captured") for one in verdict.limits)


@pytest.mark.sample(3)
@pytest.mark.parametrize("lost", [{1: 0.1}, {0: 0.2}, dict.fromkeys(range(4), 0.1)])
def test_operations_that_were_lost_hide_no_slow_rank(lost):
    """Of the slow rank, of a peer, or of all, which hides a part of the cost."""
    true = cost_of(of_job(PLANTED), 1)
    verdict = of_job(replace(PLANTED, lost=lost))
    assert ranks_of(verdict) == [1]
    assert (0.5 if len(lost) > 1 else 0.75) * true < cost_of(verdict, 1) < 1.1 * true


@pytest.mark.parametrize("seed", range(3))
def test_operations_that_were_lost_make_no_rank_slow(seed):
    """The time of what is missing is nobody's own."""
    job = TrainingJob(dp=4, jitter=3e3, steps=20, seed=seed, lost={2: 0.15})
    assert of_job(job).culprits == ()


def test_means_are_of_the_steps_that_a_rank_recorded(tmp_path):
    """Rank 1 lacks a window: what it did there is unknown, not 0."""
    for rank, windows in ((0, (0, 1)), (1, (0,))):
        for window in windows:
            events = []
            for step in (2 * window, 2 * window + 1):
                begin, computing = 1e6 * window + 10_000 * step, 4000 + 1000 * rank
                args = {"Process Group Name": "0", "Group size": 2, "Collective name": "allreduce"}
                args |= {"Process Group Ranks": "[0, 1]", "dtype": "Float", "In msg nelems": 9}
                events += [
                    row("user_annotation", f"ProfilerStep#{step}", 9, 9, begin, 10_000),
                    row("kernel", "gemm", 0, 7, begin, computing),
                    row("kernel", NCCL, 0, 8, begin + computing, 9000 - computing)
                    | {"args": {**args, "Seq": step}},
                ]
            record = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}}
            record["baseTimeNanoseconds"] = 10**18
            write(tmp_path / f"rank{rank}.{10**18 + window}.pt.trace.json", events, record)
    lines = traceconv.stragglers(tmp_path).verdict.rank_lines()
    heading, *rows = (re.split(r"  +", line) for line in lines)
    computing = heading.index("own computing")
    assert {row[0]: row[computing] for row in rows} == {"rank 0": "4.00 ms", "rank 1": "5.00 ms"}


def test_idle_time_without_host_calls_is_not_called_host_time(tmp_path):
    """One rank begins its kernel 300 µs late in every step, and nothing says why."""
    for rank in range(4):
        rows = [{"rawlog": 1, "unit": "us", "clock": "unix", "rank": rank}]
        for step in range(20):
            at = 10**9 + 1000 * step
            begin = at + 350 * (rank == 2) + (step + rank) % 3
            rows += [
                {"name": f"step {step}", "ts": at, "dur": 1000, "kind": "step"},
                {"name": "gemm", "ts": begin, "dur": 400, "kind": "compute", "stream": 7},
                {"name": "all_reduce", "ts": begin + 400, "dur": at + 800 - begin - 400,
                 "kind": "comm", "plane": "dp"},
            ]  # fmt: skip
        (tmp_path / f"rank{rank}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    verdict = traceconv.stragglers(tmp_path, jobs=1).verdict
    [culprit] = verdict.culprits
    assert (culprit.rank, culprit.why) == (2, "idle time")
    assert culprit.advice.startswith("Record host calls")
    assert "own idle" in verdict.rank_lines()[0]
