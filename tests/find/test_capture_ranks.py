"""Ranks: found, named by the user, or refused."""

import json

import pytest
from paths import ROOT

import traceconv
from traceconv.core.errors import Issues, OptionError, RankError
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges
from traceconv.find.capture_ranks import resolve
from traceconv.find.rank_selection import chosen
from traceconv.io.sources import FileSource
from traceconv.readers.shared.rank_names import rank_in_name


def _capture(tmp_path, label, rank=None, content="{}"):
    path = tmp_path / label
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return Capture("test", FileSource(tmp_path / label, label), (label,), rank=rank, label=label)


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("prof/rank3/trace.json", 3),
        ("prof/rank_12_ascend_pt/trace_view.json", 12),
        ("run7/trace_5.json", 5),
        ("x.r2.json.gz", 2),
        ("trace_view.json", None),
    ],
)
def test_a_name_spells_its_rank(path, rank):
    """The usual spellings are understood."""
    assert rank_in_name(path) == rank


def test_a_lone_capture_without_rank_is_rank_0_and_says_so(tmp_path):
    """An assumption is an issue."""
    issues = Issues()
    [capture] = resolve([_capture(tmp_path, "a")], "meta", issues)
    assert (capture.rank, issues.count("rank-assumed")) == (0, 1)


def test_an_empty_file_needs_no_rank(tmp_path):
    """An issue names it; alone it is rank 0."""
    issues = Issues()
    captures = [_capture(tmp_path, "a", 3), _capture(tmp_path, "b", content="")]
    assert [c.rank for c in resolve(captures, "meta", issues)] == [3]
    assert issues.count("empty-file") == 1
    assert [c.rank for c in resolve(captures[1:], "meta", issues)] == [0]


def test_several_without_rank_are_refused_with_the_way_out(tmp_path):
    """The message offers what the names say."""
    with pytest.raises(RankError, match=r"Names contain \[0, 1\]: pass `rank_from=\"name\"`"):
        resolve([_capture(tmp_path, f"t_{i}.json") for i in range(2)], "meta", Issues())


def test_the_user_may_name_ranks_by_pattern(tmp_path):
    """The first group is the rank."""
    captures = [_capture(tmp_path, f"host{i}.json") for i in (4, 2)]
    assert [c.rank for c in resolve(captures, r"host(\d+)", Issues())] == [2, 4]


@pytest.mark.parametrize(
    "rule", ["(", r"host\d", "(host)", "(?P<tp>host)", "(?P<0>.)", "a{9999999999}"]
)
def test_a_bad_pattern_is_named(tmp_path, rule):
    """Neither a traceback nor a silent rank."""
    captures = [_capture(tmp_path, "host4.json"), _capture(tmp_path, "host5.json")]
    with pytest.raises(OptionError, match="rank_from"):
        resolve(captures, rule, Issues())


def _ranks(tmp_path, names, rule="meta", known=()):
    captures = [_capture(tmp_path, name) for name in names]
    captures += [_capture(tmp_path, name, rank) for name, rank in known]
    return {c.label: c.rank for c in resolve(captures, rule, Issues())}


@pytest.mark.parametrize(
    "names",
    [
        ["x_rank0of3.json", "x_rank1of3.json", "x_rank2of3.json"],
        ["run-rank-0.1700000000000.pt.trace.json", "run-rank-1.1700000000009.pt.trace.json"],
        ["1700.1-TP-0.trace.json.gz", "1700.1-TP-1.trace.json.gz", "1700.1-TP-2.trace.json.gz"],
        # replicas of attention and experts are spread over tp
        [f"9-TP-{i}-DP-{i // 2}-EP-{i}.trace.json.gz" for i in range(4)],
        # whole replicas, each with stages, each with tp: the last changes fastest
        [f"9-TP-{t}-DP-{d}-PP-{p}.json" for d in (0, 1) for p in (0, 1) for t in (0, 1)],
        [f"dp{d}_pp0_tp{r}_dcp0_ep{r}_rank{r}.json" for d in (0, 1) for r in (0, 1)],
        [f"dp{d}_pp0_tp{d}_dcp0_ep0_rank{d}.json" for d in (0, 1)],
    ],
)
def test_names_that_leave_no_doubt_are_used(tmp_path, names):
    """Every list is in the order of ranks, from 0."""
    assert _ranks(tmp_path, names[::-1]) == {name: i for i, name in enumerate(names)}


def test_the_size_of_the_job_in_a_name_is_known(tmp_path):
    """So that missing ranks can be named."""
    [one] = resolve([_capture(tmp_path, "x_rank1of8.json")], "meta", Issues())
    assert (one.rank, one.rank_from, one.world_size) == (1, "name", 8)


@pytest.mark.parametrize(
    "names",
    [
        ["a_rank0of2.json", "a_rank1of4.json"],  # two jobs
        ["a_rank0of2.json", "a_rank2of2.json"],  # no such rank
        ["a_rank0.json", "b.json"],
        ["a_rank0_rank1.json", "a_rank2_rank3.json"],
        ["9-TP-0-DP-0.json", "9-TP-0-DP-1.json", "9-TP-1-DP-1.json"],  # the grid has a hole
        ["9-TP-0-PP-0.json", "9-TP-1.json"],
        ["drank0.json", "drank1.json"],
        ["job0.json", "job1.json"],
        ["ep0.json", "ep1.json"],  # epochs
        ["run_tp4.json", "run_tp8.json"],  # sizes of grids
        ["lora_rank8.json", "lora_rank16.json"],
    ],
)
def test_names_that_leave_a_doubt_are_not(tmp_path, names):
    """The user is asked."""
    with pytest.raises(RankError, match="is unknown"):
        _ranks(tmp_path, names)


def test_names_do_not_count_against_what_files_say(tmp_path):
    """Where one file names another rank than its name, names mean something else."""
    with pytest.raises(RankError, match="is unknown"):
        _ranks(tmp_path, ["x_rank0.json"], known=[("x_rank1.json", 5)])
    assert _ranks(tmp_path, ["x_rank0.json"], known=[("x_rank1.json", 1)]) == {
        "x_rank0.json": 0,
        "x_rank1.json": 1,
    }


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"t(?P<tp>\d)p(?P<pp>\d)d(?P<dp>\d)", ["t0p0d0", "t1p0d0", "t0p1d0", "t1p1d0", "t0p0d1"]),
        (r"t(?P<tp>\d)(?:p(?P<pp>\d))?", ["t0", "t1", "t0p1", "t1p1"]),
        # names of one's own count as they are written, the first slowest
        (r"p(?P<stage>\d)d(?P<replica>\d)t(?P<tp>\d)", ["p0d0t0", "p0d1t0", "p1d0t0", "p1d1t0"]),
        (r"d(?P<dp>\d)r(?P<rank>\d)", ["d0r0", "d0r1", "d1r0", "d1r1"]),
    ],
)
def test_named_groups_are_coordinates(tmp_path, pattern, names):
    """The rank is computed from them; every list is in its order."""
    assert _ranks(tmp_path, names[::-1], pattern) == {name: i for i, name in enumerate(names)}


def test_asking_for_a_missing_rank_lists_those_there(tmp_path):
    """Unless missing ranks are allowed, which is then an issue."""
    captures, issues = [_capture(tmp_path, f"c{i}", i) for i in (0, 1, 2, 5)], Issues()
    with pytest.raises(RankError, match=r"rank 7 does not exist; ranks found: 0-2,5"):
        chosen(captures, [0, 7], False, issues)
    assert [c.rank for c in chosen(captures, [0, 7], True, issues)] == [0]
    assert issues.count("rank-missing") == 1


def test_ranks_are_spelled_as_users_write_them():
    """Runs are shortened."""
    assert format_ranges([3, 0, 1, 2, 7]) == "0-3,7"


@pytest.mark.parametrize(("hours", "mixed"), [(0, 0), (0.5, 0), (48, 1)])
def test_ranks_recorded_days_apart_are_of_two_runs(tmp_path, hours, mixed):
    """Whatever they state; clocks that differ by minutes are of one run."""
    for rank in (0, 1):
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 5}
        events = [{**kernel, "ts": 10 * n, "args": {"stream": 7, "device": 0}} for n in range(9)]
        base = 10**18 + int(rank * hours * 3600 * 10**9)
        record = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}}
        record |= {"baseTimeNanoseconds": base, "traceEvents": events}
        (tmp_path / f"rank{rank}.pt.trace.json").write_text(json.dumps(record))
    report = traceconv.merge(tmp_path, out=tmp_path / "t.pftrace")
    found = [one for one in report.issues if one.code == "jobs-mixed"]
    assert [one.places for one in found] == [
        ("ranks 0 from 2001-09-09 01:46; ranks 1 from 2001-09-11 01:46",)
    ] * mixed
    judged = traceconv.stragglers(tmp_path)
    assert judged.issues.count("jobs-mixed") == mixed
    assert judged.verdict.reason.startswith("the captures are of several jobs") == bool(mixed)


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("share", [0.05, 0.15, 0.3, 0.9])
def test_a_replica_that_was_cut_off_stays_a_rank_of_its_own(tmp_path, cut, share):
    """Names say which replica each file is of, before any event of it is known."""
    files = sorted((ROOT / "golden" / "kineto" / "replicas" / "input").iterdir())
    for number, file in enumerate(files):
        content = file.read_bytes()
        size = int(len(content) * share) if number == cut else len(content)
        (tmp_path / file.name).write_bytes(content[:size])
    found = traceconv.open(tmp_path).found
    assert [(one.rank, one.files, one.parts) for one in found] == [
        (rank, (file.name,), ()) for rank, file in enumerate(files)
    ]


def test_inspection_finds_what_a_run_refuses(tmp_path):
    """Two processes of one rank: nothing but their times tells them apart."""
    for name in ("a", "b"):
        kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "dur": 50}
        events = [{**kernel, "ts": 100 * n + (name == "b"), "args": {}} for n in range(9)]
        record = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 2}}
        record |= {"baseTimeNanoseconds": 10**18, "traceEvents": events}
        (tmp_path / f"{name}.pt.trace.json").write_text(json.dumps(record))
    with pytest.raises(RankError, match="they ran at the same time") as refused:
        traceconv.merge(tmp_path, out=tmp_path / "t.pftrace")
    assert traceconv.inspect(tmp_path).problem == str(refused.value)
