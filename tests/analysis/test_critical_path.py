"""The critical path: it tiles the step, it is the planted one, and what is not known is said.

``python -m tests.scenarios --paths 100`` measures it on as many jobs as one has time for.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_simulator import Clock, Delay, Job, run, write_kineto
from job_simulator.harness import EQUAL, WRONG, path_outcome
from job_simulator.observed import path, stretches
from job_simulator.planted import agreement, planted_path, step_span
from paths import ROOT

import traceconv
from traceconv.alignment.collective_matching import Matched, matched
from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.alignment.offsets import Offset
from traceconv.alignment.plan import Plan
from traceconv.analysis.critical_path.bounds import bounded
from traceconv.analysis.critical_path.path_tables import TABLES, results
from traceconv.analysis.critical_path.walk import PARTS, UNCHECKED, UNKNOWN_ERROR, of_job
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.cli import run as command
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.core.side_tables import ABSENT
from traceconv.core.source import RecordedSource
from traceconv.passes import compose
from traceconv.run.stages import passed

SLOW = Job(
    tp=2, dp=2, steps=6, stamps="monotonic", delays=(Delay((1,), 2e6),), jitter=5e3, layers=2,
)  # fmt: skip


def tiles(found, tables=None):
    """Whether the stretches of every step follow each other from its start to its end, with parts
    that add up; and whether the tables say the same."""
    for step, (start, end, last) in found.path.steps.items():
        own = sorted((s for s in found.path.segments if s.step == step), key=lambda s: s.start_ns)
        assert [one.start_ns for one in own[1:]] == [one.end_ns for one in own[:-1]]
        assert (own[0].start_ns, own[-1].end_ns, own[-1].rank) == (start, end, last)
        for one in own:
            assert sum(one.parts) == one.end_ns - one.start_ns > 0
            assert min(one.parts) >= 0
    parts = [column.key for column in TABLES["steps"].columns[3 : 3 + len(PARTS)]]
    for name in ("steps", "ranks", "segments"):
        table = (found if tables is None else tables)[name]
        if len(table):
            sums = np.sum([table[key] for key in parts], axis=0)
            assert sums.tolist() == table["Length(ns)"].tolist()
            total = sum(end - start for start, end, _ in found.path.steps.values())
            assert table["Length(ns)"].sum() == total


@pytest.mark.sample(4)
def test_stretches_tile_the_steps_of_every_case(good):
    """Of every golden case that is read, whatever it holds; or it says why there is no path."""
    try:
        found = traceconv.critical_path("input", **good.reading, jobs=1, clock_error_ns=1000)
    except traceconv.EmptyResultError:
        pytest.skip("nothing is in it")
    assert bool(found.why) == (not found.path.segments)
    tiles(found)
    json.dumps(found.as_dict())


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 6, 7, 8])
def test_the_path_is_the_planted_one(seed):
    """Of small jobs of any layout whose clocks are one."""
    same, wrong, certain = path_outcome(seed)
    assert same >= EQUAL
    assert wrong <= WRONG
    assert certain > 0.5


@pytest.mark.parametrize("seed", [2])
def test_where_it_is_not_the_planted_one_it_is_not_certain(seed):
    """A host that is late while communication ends beside it cannot be told from one that waits."""
    same, wrong, certain = path_outcome(seed)
    assert same < EQUAL
    assert wrong <= WRONG
    assert certain < 0.95


def test_clocks_that_are_fitted_decide_as_far_as_their_errors_say():
    """Nothing that is said to be certain is elsewhere; of most jobs there is a path."""
    every = [path_outcome(seed, apart=True) for seed in range(203, 209)]
    known = [one for one in every if not isinstance(one, str)]
    assert len(known) >= 3
    assert max(one[1] for one in known) <= WRONG


def test_a_slow_rank_has_the_path():
    """All of the others' time is hidden behind it."""
    happened = run(SLOW)
    found, error = path(happened)
    assert error == 0
    for step, _ in found.steps:
        start, end = step_span(happened, step)
        own = [(one.rank, one.end - one.start) for one in planted_path(happened, step)]
        assert sum(ns for rank, ns in own if rank == 1) > 2e6
        assert sum(ns for _, ns in own) == pytest.approx(end - start)
        assert agreement(happened, step, stretches(found, step), 2000).same > EQUAL
    ranks = results(found, ["ranks"])[0].data
    on = dict(zip(ranks["Rank"].tolist(), ranks["Length(ns)"].tolist(), strict=True))
    assert on[1] > len(found.steps) * 2e6


def test_unknown_clocks_are_no_path():
    """No rank is blamed by clocks of which nothing says how they compare."""
    lost = replace(SLOW, stamps="", steps=2, clocks=tuple(Clock(7 * r) for r in range(4)))
    found, _ = path(run(lost))
    assert "its clock is not aligned" in found.why
    assert not found.segments


def test_a_member_without_capture_is_not_decided():
    """It may be the one that came last."""
    found, _ = path(run(replace(SLOW, uncaptured=(1,))))
    assert {one.why for one in found.segments} >= {"not all members have a capture"}
    assert found.missing == -1  # how many ranks there are is not in these captures
    doubted = [one for one in found.segments if one.why]
    assert doubted
    assert not any(one.certain or one.last >= 0 for one in doubted)


def test_steps_that_nothing_marks_begin_where_communication_repeats():
    """The whole of a capture is not taken for a step."""
    found, _ = path(run(replace(SLOW, numbering="none")))
    assert len(found.steps) == SLOW.steps
    short, _ = path(run(replace(SLOW, numbering="none", steps=2)))
    assert "its steps are not marked" in short.why


def test_steps_that_are_not_on_all_ranks_are_left_out():
    """They are said to be."""
    found, _ = path(run(replace(SLOW, windows={2: (2, 6)})))
    assert set(found.left_out.values()) == {"recorded on 3 of 4 ranks"}
    assert [step for step, _ in found.left_out] == [0, 1]
    assert [step for step, _ in found.steps] == [2, 3, 4, 5]


def test_ranks_without_a_capture_are_counted(tmp_path):
    """Where the captures say how many there should be."""
    paths = write_kineto(run(replace(SLOW, steps=2)), tmp_path)
    found = traceconv.critical_path(*paths[:2], clock_error_ns=1000)
    assert found.path.missing == 2
    assert found.lines()[0].endswith("2 ranks have no capture")
    assert found.as_dict()["ranks_without_capture"] == 2


SPANS = st.lists(
    st.tuples(st.sampled_from(("gemm", "comm", "copy")), st.integers(0, 120), st.integers(0, 30)),
    max_size=12,
)
KINDS = {"gemm": ("gemm", OpClass.COMPUTE), "copy": ("Memcpy", OpClass.COPY)}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(SPANS, min_size=2, max_size=3),
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 30)), min_size=3, max_size=3),
    st.sampled_from(("AllReduce", "Recv", "Broadcast")),
)
def test_whatever_was_recorded_the_stretches_tile_the_step(ranks, clocks, kind):
    """Also with operations of no length, or that contradict each other on clocks that are off."""
    every = []
    for rank, spans in enumerate(ranks):
        build = TraceBuilder(Capture("made", None, ("x",), rank, label="made"))
        kernels, comm = (
            build.track(Layer.DEVICE, "Stream 1"),
            build.track(Layer.COMM, "Group 7", communicator="Group 7"),
        )
        for number in (0, 1):
            build.slice(build.track(Layer.STEP, "iterations"), 80 * number, 80, "Iteration",
                        op=OpClass.ITERATION, step=number)  # fmt: skip
        for what, start, dur in spans:
            name, op = KINDS.get(what, (f"ncclDevKernel_{kind}", OpClass.COMM))
            args = {"Process Group Name": "7", "Group size": len(ranks)} if what == "comm" else {}
            build.slice(comm if what == "comm" else kernels, start, dur, name, op=op, args=args)
        trace = passed(build.finish(), compose(mode="detail"))
        every.append(summarize(trace, SummaryRequest(lateness=True)))
    plan = Plan("file", {r: Offset(clocks[r][0], error_ns=clocks[r][1]) for r in range(len(ranks))})
    groups = tuple(matched([one.collectives for one in every]))
    captures = [
        Capture("made", RecordedSource("made", {}), (str(r),), r, label="made")
        for r in range(len(ranks))
    ]
    found = of_job(every, plan, groups, captures, world_size=len(ranks))
    tables = {one.table.name: one.data for one in results(found, TABLES)}
    tiles(SimpleNamespace(path=found), tables)


def fits_its_schema(document):
    """The document is what schemas/json/critical_path.schema.json describes, rows as columns."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "schemas" / "json" / "critical_path.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    names = schema["properties"]["tables"]["items"]["properties"]["columns"]["items"]["properties"]
    every = {column.name for table in TABLES.values() for column in table.columns}
    assert every == set(names["name"]["enum"])
    for table in document["tables"]:
        assert {len(row) for row in table["rows"]} <= {len(table["columns"])}
        assert bool(table["rows"]) is not ("needs" in table)


def test_a_path_that_is_unknown_fits_its_schema(tmp_path, capsys):
    """A log without steps: no rows, and why."""
    head = {"rawlog": 1, "unit": "us", "clock": "unix", "rank": 0}
    work = {"name": "gemm", "ts": 1736408883701000, "dur": 500, "kind": "compute", "stream": 1}
    (tmp_path / "log.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(work)}\n")
    assert command(["critical-path", str(tmp_path / "log.jsonl"), "-q", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not document["known"]
    fits_its_schema(document)


NOTHING = CollectiveRecords.none(0)


def apart(rng, ranks, count, length_ns):
    """Collectives of some ranks by their own clocks, which are off and drift: as matched, and what
    each clock is off by at most, against that of the first rank, at any time of the run."""
    off = np.append(0, rng.integers(-300_000, 300_000, ranks - 1))
    drift = np.append(0, rng.uniform(-5e-5, 5e-5, ranks - 1))
    come = np.sort(rng.integers(0, length_ns, count))[:, None] + rng.integers(
        0, 10**6, (count, ranks)
    )
    gone = (
        come.max(axis=1)[:, None] + rng.exponential(50_000, (count, ranks)).astype(np.int64) + 5000
    )
    start, end = (times + off + (drift * times).astype(np.int64) for times in (come, gone))
    most = np.abs(off) + np.abs(drift) * end.max()
    one = Matched(
        "g", True, ("allreduce",) * count, np.full(count, 8), tuple(range(ranks)), 0, start, end,
        np.tile(np.arange(count, dtype=np.int32)[:, None], ranks), ("",) * ranks,
        (False,) * ranks,
    )  # fmt: skip
    return one, most


@pytest.mark.parametrize("seed", range(40))
def test_collectives_bound_what_clocks_are_off_by(seed):
    """No operation ends before all have begun, so that no bound is less than the truth; and it is
    no more than the waits of these few operations are."""
    rng = np.random.default_rng(seed)
    ranks, count = int(rng.integers(2, 6)), int(rng.integers(3, 30))
    one, most = apart(rng, ranks, count, int(rng.integers(1, 20)) * 10**8)
    plan = Plan("meta", {rank: Offset() for rank in range(ranks)})
    spans = {r: (int(one.start_ns[:, r].min()), int(one.end_ns[:, r].max())) for r in range(ranks)}
    found = bounded(dict.fromkeys(range(ranks), NOTHING), (one,), plan, spans)
    assert found[0] == 0
    for rank, error in found.items():
        assert most[rank] <= error or not rank
        assert error < 6_000_000


def test_steps_where_nobody_checked_the_clocks_are_doubted(tmp_path, capsys):
    """A clock that was set before or after what it was checked by does not show, unless operations
    end at once on all ranks there, too. Otherwise who came last is not decided there."""
    apart = replace(
        SLOW, steps=8, host_size=1, clocks=tuple(Clock(7e6 * rank) for rank in range(4))
    )
    paths = write_kineto(run(apart), tmp_path / "job")
    offsets = traceconv.align(*paths).as_dict()["ranks"]
    file = tmp_path / "offsets.json"

    def followed(wrong_ns, *inside):
        """Rank 3, off by so much, checked between these parts of what it was."""
        first, last = map(int, offsets["3"]["checked_ns"])
        told = {rank: {key: value for key, value in one.items() if key != "checked_ns"}
                for rank, one in offsets.items()}  # fmt: skip
        told["3"]["checked_ns"] = [str(first + round((last - first) * part)) for part in inside]
        told["3"]["offset_ns"] = str(int(told["3"]["offset_ns"]) + wrong_ns)
        file.write_text(json.dumps({"ranks": told}))
        return traceconv.critical_path(*paths, align=str(file))

    assert not followed(0, 0.3, 0.7).path.unchecked
    every, some = followed(10**6, 0, 1), followed(10**6, 0.3, 0.7)
    assert {step for step, _ in every.path.unchecked} <= {7}
    outside = {step for step, _ in some.path.unchecked}
    assert {0, 1, 6, 7} <= outside < set(range(8))
    assert set(some.path.unchecked.values()) == {(3,)}
    doubted = {one["Step"]: one["Certain(%)"] for one in rows_of(some)}
    assert max(doubted[step] for step in (0, 1, 6, 7)) == 0
    tiles(some)
    assert {one.step[0] for one in some.path.segments if one.why == UNCHECKED} >= {6, 7}
    assert any("a clock change of rank 3" in line for line in some.lines())
    assert command(["critical-path", *map(str, paths), "--align", str(file), "-q", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    fits_its_schema(document)
    assert {one["step"] for one in document["unchecked"]} == outside


def test_paths_on_clocks_of_unknown_error_are_not_certain():
    """The replay needs no clock to tell who came last, but it proves nothing. An error that is
    stated decides again."""
    every = []
    for rank, late in enumerate((0, 500)):
        build = TraceBuilder(Capture("made", None, ("x",), rank, label="made", world_size=2))
        kernels = build.track(Layer.DEVICE, "Stream 1")
        group = build.track(Layer.COMM, "Group 7", communicator="Group 7")
        marks = build.track(Layer.STEP, "iterations")
        for step in range(5):
            at = 10_000_000 * (step + 1)
            end = at + 2_000_000 + 1000 * late
            args = {"Process Group Name": "7", "Group size": 2, "Seq": step}
            build.slice(kernels, at, end - at - 900_000 * (1 - rank), "gemm", op=OpClass.COMPUTE)
            build.slice(group, end - 900_000 * (1 - rank), 1_000_000 - 500_000 * rank, "all_to_all",
                        op=OpClass.COMM, args=args)  # fmt: skip
            build.slice(marks, at, 9_000_000, f"Iteration {step}", op=OpClass.ITERATION, step=step)
        trace = passed(build.finish(), compose(mode="detail"))
        every.append(summarize(trace, SummaryRequest(lateness=True)))
    groups = tuple(matched([one.collectives for one in every]))
    captures = [
        Capture("made", RecordedSource("made", {}), (str(r),), r, label="made") for r in range(2)
    ]
    plan = Plan("file", {rank: Offset(method="file") for rank in range(2)})
    found = of_job(every, plan, groups, captures)
    assert not any(one.certain for one in found.segments)
    assert UNKNOWN_ERROR in {one.why for one in found.segments}
    assert all(one.certain for one in of_job(every, plan, groups, captures, 50_000).segments)


def rows_of(found):
    """The rows of the table of steps."""
    table = found["steps"]
    return [dict(zip(table.columns, row, strict=True)) for row in zip(
        *(column.tolist() for column in table.columns.values()), strict=True)]  # fmt: skip


def test_clocks_that_collectives_refute_have_no_bound():
    """What the stamps say cannot be: nobody knows what they are off by. Nor are two operations
    enough, nor those that may be others."""
    one, _ = apart(np.random.default_rng(1), 3, 20, 10**8)
    plan = Plan("meta", {0: Offset(), 1: Offset(10**9), 2: Offset()})
    spans = dict.fromkeys(range(3), (0, 10**8))
    assert set(bounded(dict.fromkeys(range(3), NOTHING), (one,), plan, spans)) == {0, 2}
    few = msgspec.structs.replace(one, row=np.where(np.arange(20)[:, None] < 2, one.row, -1))
    plain = Plan("meta", {rank: Offset() for rank in range(3)})
    assert set(bounded(dict.fromkeys(range(3), NOTHING), (few,), plain, spans)) == {0}
    doubted = msgspec.structs.replace(one, doubts=("", "maybe others", ""))
    assert set(bounded(dict.fromkeys(range(3), NOTHING), (doubted,), plain, spans)) == {0, 2}


def test_the_number_of_ranks_may_be_said(tmp_path, capsys):
    """A number that captures rule out is refused."""
    write_kineto(run(replace(SLOW, steps=4)), tmp_path / "job")
    assert command(["critical-path", str(tmp_path / "job"), "--world-size", "3", "-q"]) == 2
    assert "the captures state 4 ranks of the job, not 3" in capsys.readouterr().err
    assert command(["critical-path", str(tmp_path / "job"), "--world-size", "4", "-q"]) == 0


def test_files_and_the_command_say_the_same(tmp_path, capsys):
    """Text, JSON and CSV of the command are the columns of the function."""
    write_kineto(run(replace(SLOW, steps=10)), tmp_path / "job")
    found = traceconv.critical_path(tmp_path / "job", clock_error_ns="1us", steps="3-4")
    assert found["steps"]["Step"].tolist() == [3, 4]
    tiles(found)
    base = ["critical-path", str(tmp_path / "job"), "--clock-error", "1us", "--steps", "3-4", "-q"]
    assert command([*base, "--json", "--by", "all"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["known"]
    fits_its_schema(document)
    tables = {one["name"]: one for one in document["tables"]}
    lasts = [None if v == ABSENT else v for v in found["segments"]["Came Last"].tolist()]
    at = [c["name"] for c in tables["segments"]["columns"]].index("Came Last")
    assert [row[at] for row in tables["segments"]["rows"]] == lasts
    assert command([*base, "-o", str(tmp_path / "path.csv"), "--by", "ranks,segments"]) == 0
    assert len((tmp_path / "path_segments.csv").read_text().splitlines()) == 1 + len(lasts)
    assert command([*base, "--format", "csv"]) == 2
    assert command([*base, "--by", "nothing"]) == 2
