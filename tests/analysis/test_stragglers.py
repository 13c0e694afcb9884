"""The slow rank is named where there is one, and nobody where there is none."""

import json

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from synthetic_job import Job, capture, knowledge, link_side_table, run, trace, traces

from traceconv.alignment import collective_matching
from traceconv.alignment import plan as align
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.collective_records import collective_records
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers import links
from traceconv.analysis.stragglers import verdict as stragglers
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.cli import cli
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Layer, OpClass
from traceconv.core.robust import student
from traceconv.passes.attribution import attribution
from traceconv.passes.steps import steps


def summaries(happened):
    """What all ranks know, by way of their traces."""
    every = (attribution(steps(one)) for one in traces(happened))
    return [summarize(one, SummaryRequest(lateness=True)) for one in every]


def computed(happened):
    """The same without the detour of traces: operations follow each other, so what a rank did
    since its group last met are differences of running sums."""
    found = []
    for one in knowledge(happened):
        rows = happened_rows(happened, one)
        spent = np.cumsum(happened.spent[:, one.rank])[rows]
        inside = happened.end[:, one.rank] - happened.start[:, one.rank]
        others = np.cumsum(inside)[rows] - inside[rows]
        parts = np.full((len(rows), 4), -1, np.int64)
        for index in range(len(one.groups)):
            at = np.arange(len(rows))[one.of_group(index)]
            parts[at[1:], 0] = np.diff(spent[at])
            parts[at[1:], 1:3] = 0
            parts[at[1:], 3] = np.diff(others[at]) - inside[rows][at[:-1]]
        found.append(RankSummary(rank=one.rank, collectives=one, before_ns=parts))
    return found


def happened_rows(happened, one):
    """Which operations of a run the rows of a rank's evidence are."""
    start = happened.job.local(one.rank, happened.start[:, one.rank])
    return np.searchsorted(start, one.start_ns)


def judged(happened, known=None, mode="collective"):
    """The verdict on a run."""
    known = summaries(happened) if known is None else known
    captures = [capture(rank) for rank in range(happened.job.ranks)]
    return stragglers.judge(known, align.plan(captures, mode, [one.collectives for one in known]))


RUNS = 7
"""Of each kind; hundreds say the same."""

SHAPES = [(1, 4, 1), (2, 2, 2), (4, 2, 1), (2, 4, 2)]
"""Tensor x data x pipeline parallel."""


def planted(runs, shape, times, noise="normal"):
    """Runs whose slow rank takes so many times the jitter longer: (planted, named) pairs."""
    ranks, found = int(np.prod(shape)), []
    for seed in range(runs):
        rng = np.random.default_rng(10**6 + seed)
        jitter, rank = float(rng.choice([500, 3000, 10000])), int(rng.integers(ranks))
        job = Job(
            *shape, steps=40, seed=seed, jitter=jitter, noise=noise,
            offset=tuple(rng.integers(-(10**9), 10**9, ranks).tolist()),
            slow=(rank, round(times * jitter)),
        )  # fmt: skip
        happened = run(job)
        verdict = judged(happened, computed(happened))
        named = [one.rank for one in (verdict.culprit, *verdict.others) if one]
        found.append((rank, named))
    return found


# -- verdicts -------------------------------------------------------------------------------


def test_what_is_told_without_traces_is_what_traces_say():
    """So that hundreds of runs can be judged: what is known of three kinds of groups is equal."""
    happened = run(Job(2, 2, 2, steps=3, jitter=2000))
    for one, other in zip(computed(happened), summaries(happened), strict=True):
        parts = [
            sorted(f.before_ns[f.collectives.of_group(i)].tolist() for i in range(3))
            for f in (one, other)
        ]
        assert parts[0] == parts[1]


@pytest.mark.parametrize("noise", ["normal", "exponential", "student"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_planted_rank_is_named_in_every_run(shape, noise):
    """It takes three times the jitter longer, once a step; clocks are a second apart."""
    found = planted(RUNS, shape, 3, noise)
    assert [named for _, named in found] == [[rank] for rank, _ in found]


@pytest.mark.parametrize("noise", ["normal", "exponential", "student"])
@pytest.mark.parametrize("shape", SHAPES)
def test_nobody_is_named_where_nobody_is_slow(shape, noise):
    """Equal ranks: one run in a thousand would be chance."""
    assert [named for _, named in planted(RUNS, shape, 0, noise) if named] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_delay_as_small_as_the_jitter_is_laid_on_nobody_else(shape):
    """The rank is named, or nobody is."""
    assert [
        (rank, named) for rank, named in planted(RUNS, shape, 1) if named not in ([], [rank])
    ] == []


def test_a_few_steps_do_not_suffice_for_a_delay_within_the_jitter():
    """Five steps, once the jitter: inconclusive, and said to be so."""
    verdict = judged(run(Job(1, 4, 1, steps=5, jitter=3000, slow=(2, 3000))))
    assert (verdict.culprit, verdict.as_dict()["verdict"]) == (None, "inconclusive")


def test_work_that_is_made_up_for_is_no_straggling():
    """Rank 1 computes 100 us more before one collective and waits as much less before it."""
    happened = run(Job(1, 2, 1, steps=30, jitter=1000))
    known = computed(happened)
    parts = known[1].before_ns.copy()
    parts[1:, 0] += 100_000
    assert (
        judged(happened, [known[0], msgspec.structs.replace(known[1], before_ns=parts)]).culprit
        is None
    )


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
    assert (again, stragglers.judge(known, again, groups)) == (plan, verdict)


def test_who_is_held_up_by_others_is_not_named():
    """The tensor group of a slow rank comes late to every data group; one of them is to blame."""
    verdict = judged(run(Job(2, 2, 2, steps=30, jitter=2000, slow=(5, 100_000))))
    assert [verdict.culprit.rank, *(one.rank for one in verdict.others)] == [5]
    assert verdict.culprit.why == "compute"


def test_the_figures_are_those_of_the_delay():
    """100 us, by both votes, within 5 us; the excess is computing and nothing else."""
    culprit = judged(run(Job(1, 4, 1, steps=30, jitter=2000, slow=(2, 100_000)))).culprit
    assert abs(culprit.late_ns - 100_000) < 5000
    assert abs(culprit.arrival_ns - 100_000) < 5000
    assert abs(culprit.parts_ns[0] - 100_000) < 5000
    assert max(abs(part) for part in culprit.parts_ns[1:]) < 5000


def test_the_vote_by_time_inside_needs_no_clocks():
    """Clocks a second apart and left so: the rank is still named, as arrival is known to be off."""
    job = Job(1, 4, 1, steps=30, jitter=2000, slow=(2, 100_000), offset=(0, 10**9, -(10**9), 7))
    assert judged(run(job), mode="none").culprit.rank == 2


def test_every_step_has_a_verdict():
    """The delay is in each of them, and far above the jitter."""
    verdict = judged(run(Job(1, 4, 1, steps=10, jitter=1000, slow=(1, 200_000))))
    assert {step: one and one.rank for step, one in verdict.steps.items()} == dict.fromkeys(
        range(10), 1
    )


def test_one_rank_alone_is_compared_with_nobody():
    """Inconclusive, and it says why."""
    happened = run(Job(1, 2, 1, steps=5))
    verdict = judged(happened, summaries(happened)[:1])
    assert (verdict.culprit, verdict.compared) == (None, 0)
    assert verdict.lines()[1] == "inconclusive: no collective was seen on two ranks"


def test_an_inconclusive_verdict_gives_its_figures():
    """Who came nearest to being named, by how much, and how uncertain that is."""
    line = judged(run(Job(1, 4, 1, steps=20, jitter=2000))).lines()[1]
    assert line.startswith("inconclusive: rank ")
    assert "µs late to reducescatter of " in line


def test_a_verdict_as_json_values():
    """The document has a version, the verdict in a word and the culprit with its figures."""
    document = judged(run(Job(1, 2, 1, steps=20, jitter=1000, slow=(1, 90_000)))).as_dict()
    assert (document["schema_version"], document["verdict"]) == (1, "straggler")
    assert document["culprit"]["rank"] == 1
    assert list(document["culprit"]["excess_ns"]) == list(stragglers.PARTS)
    json.dumps(document)


@pytest.mark.parametrize(
    ("dof", "known"), [(1, 318.31), (2, 22.327), (4, 7.173), (10, 4.144), (40, 3.307)]
)
def test_students_t_of_one_in_a_thousand(dof, known):
    """Tabulated values, within three percent."""
    assert abs(student(3.0902, dof) / known - 1) < 0.03


ONE = "Group a Communication"


# -- one rank ----------------------------------------------------------------------------------


def test_the_time_between_collectives_is_split():
    """100 ns: 40 computing, 20 another group, 10 waiting for data, 30 nothing."""
    build = TraceBuilder(capture(0))
    stream, host = build.track(Layer.DEVICE, "Stream 1"), build.track(Layer.HOST, "Thread 1")
    one, other = (build.track(Layer.COMM, f"Group {x} Communication") for x in ("a", "b"))
    build.slice(one, 0, 50, "allreduce", op=OpClass.COMM)
    build.slice(one, 150, 50, "allreduce", op=OpClass.COMM)
    build.slice(stream, 50, 40, "MatMul", op=OpClass.COMPUTE)
    build.slice(other, 80, 30, "allgather", op=OpClass.COMM)
    build.slice(host, 105, 15, "enumerate(DataLoader)#next", op=OpClass.HOST)
    trace = build.finish()
    known = collective_records(trace)
    rows = known.of_group([g.key for g in known.groups].index(ONE))
    assert stragglers.time_before(trace, known)[rows].tolist() == [
        [-1, -1, -1, -1],
        [40, 30, 10, 20],
    ]


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
    """Of two links of a transport one is slow, or the other fast: inconclusive, and said so."""
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
                ("MatMul", start - spent, spent, {"stream": 1}),
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
    assert (result.exit_code, said.split()[:2]) == (0, ["rank", "method"])
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
    assert "straggler: rank 1 comes " in call("stragglers", source, "-q")[1]


@pytest.mark.parametrize("command", ["merge", "align", "stragglers"])
def test_an_alignment_that_is_too_uncertain_is_refused(tmp_path, command):
    """All commands that align know the option; the error is the library's, with exit code 5."""
    source = logs(tmp_path)
    more = ["-o", str(tmp_path / "t.pftrace")] if command == "merge" else []
    result, _ = call(command, source, "--align-max-error", "1ns", "-q", *more)
    assert result.exception.exit_code == 5
    assert not (tmp_path / "t.pftrace").exists()
