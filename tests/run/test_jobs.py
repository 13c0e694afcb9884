"""Ranks read and encoded by several processes, or in several runs: the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
from golden_cases import CASES, Case, case_folder
from paths import ROOT
from small_jobs import capture_of, job
from trace_bytes import content

import traceconv
from traceconv import cli
from traceconv.core.errors import (
    InputError,
    MalformedInputError,
    OptionError,
    OutputError,
    ResourceError,
    SourceError,
    TraceconvError,
)
from traceconv.options.groups import RunOptions
from traceconv.run.executor import LOWEST, SMALL_RUN_BYTES, started, worker_count
from traceconv.store import rank_file

RANKS = 3


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job(tmp_path_factory.mktemp("job"), RANKS)


@pytest.fixture
def broken(captures: Path, tmp_path: Path) -> Path:
    """The same, but rank 1 cannot be read."""
    folder = tmp_path / "broken"
    shutil.copytree(captures, folder)
    capture_of(folder, 1).write_bytes(b"garbage")
    return folder


def merged(captures: Path, out: Path, **options) -> bytes:
    traceconv.merge(str(captures), out=str(out), force=True, **{"mode": "detail", **options})
    return content(out)


def sharded(captures: Path | str, folder: Path, of: int, **options) -> list[str]:
    paths = [str(folder / f"part{i}.shard") for i in range(of)]
    for i, path in enumerate(paths):
        options = {"mode": "detail", **options}
        traceconv.merge(str(captures), out=path, force=True, shard=(i, of), **options)
    return paths


# -- bytes -------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("ending", ["pftrace", "pftrace.gz", "json", "json.gz", "txt"])
def test_bytes_do_not_depend_on_the_number_of_workers(captures, tmp_path, ending):
    """Every format, plain and compressed."""
    one = merged(captures, tmp_path / f"one.{ending}", jobs=1)
    assert one == merged(captures, tmp_path / f"two.{ending}", jobs=2)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "options",
    [
        {"jobs": 4, "mode": "summary"},
        {"jobs": 2, "limit": traceconv.SizeLimit(60_000, None, "reduce")},
        {"jobs": 2, "time": (1_000_000, 3_000_000)},
        {"jobs": 2, "ranks": [1]},
        {"jobs": 2, "args": ["Task Id"], "align": "none"},
    ],
    ids=["summary", "reduced", "window", "one rank", "args"],
)
def test_bytes_do_not_depend_on_workers_whatever_is_asked(captures, tmp_path, options):
    """What is planned over all ranks is planned alike."""
    one = merged(captures, tmp_path / "one.pftrace", **{**options, "jobs": 1})
    assert one == merged(captures, tmp_path / "many.pftrace", **options)


def test_parts_do_not_depend_on_the_number_of_workers(captures, tmp_path):
    """A split output has the same parts."""
    found = []
    for jobs in (1, 2):
        folder = tmp_path / str(jobs)
        folder.mkdir()
        limit = traceconv.SizeLimit(60_000, None, "split")
        traceconv.merge(
            str(captures), out=str(folder / "t.json"), mode="detail", limit=limit, jobs=jobs
        )
        found.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert found[0] == found[1]
    assert len(found[0]) > 1


def test_reports_do_not_depend_on_the_number_of_workers(captures, tmp_path):
    """Notes, ledger and issues come back from workers as they are."""
    reports = []
    for jobs in (1, 2):
        out = str(tmp_path / "t.pftrace")
        report = traceconv.merge(str(captures), out=out, mode="detail", jobs=jobs, force=True)
        reports.append(json.dumps(report.as_dict()))
    assert reports[0] == reports[1]


def one_case_per_reader() -> list[Case]:
    """The last that can be read."""
    cases = {case.reader: case for case in CASES if not case.error}
    return list(cases.values())


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", one_case_per_reader(), ids=lambda case: case.reader)
def test_shards_of_a_golden_case_join_to_what_one_run_writes(case, tmp_path, monkeypatch):
    """Two shards, joined: by whichever reader it was read."""
    monkeypatch.chdir(case_folder(case.folder))
    options = {"scope": True, **case.options}
    paths = sharded("input", tmp_path, 2, **options)
    traceconv.join(*paths, out=str(tmp_path / "joined.pftrace"))
    one, _ = case.merged("pftrace", "detail")
    assert one.read_bytes() == (tmp_path / "joined.pftrace").read_bytes()


@pytest.mark.sample(3)
def test_every_capture_travels(case):
    """What a reader remembers of a capture can be sent to a worker, and is small."""
    try:
        captures = traceconv.open("input", **case.reading).found
    except TraceconvError:
        return  # cases of what cannot be found
    for capture in captures:
        sent = ForkingPickler.dumps(capture)
        back = ForkingPickler.loads(sent)
        assert len(sent) < 100_000
        assert rank_file.recorded(back) == rank_file.recorded(capture)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["zip", "tar", "gztar"])
def test_ranks_of_an_archive_may_be_read_by_workers(captures, tmp_path, kind):
    """Each opens it anew."""
    archive = shutil.make_archive(str(tmp_path / "job"), kind, captures)
    one = merged(archive, tmp_path / "one.pftrace", jobs=1)
    assert one == merged(archive, tmp_path / "two.pftrace", jobs=2)


def test_a_module_in_the_current_folder_is_not_run_by_workers(captures, tmp_path):
    """What lies beside the captures is input, not program."""
    (tmp_path / "json.py").write_text("open('run', 'w')")
    code = "import sys; from traceconv.cli import main; main()"
    words = ["merge", str(captures), "-j", "2", "-q", "-o", "t.pftrace"]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-P", "-c", code, *words], check=True, cwd=tmp_path, env=path)
    assert not (tmp_path / "run").exists()


def test_shares_on_the_command_line(captures, tmp_path, monkeypatch, capsys):
    """Two runs and one that joins them."""
    monkeypatch.chdir(tmp_path)
    assert [cli.run(["merge", str(captures), "--shard", f"{i}/2", "-q"]) for i in (0, 1)] == [0, 0]
    assert cli.run(["join", "trace_summary_0of2.shard", "trace_summary_1of2.shard"]) == 0
    assert cli.run(["merge", str(captures), "-o", "one.pftrace", "-q"]) == 0
    assert Path("one.pftrace").read_bytes() == Path("trace_summary_ranks0-2.pftrace").read_bytes()
    assert cli.run(["merge", str(captures), "--shard", "2/2"]) == 2
    assert "is not a share like 0/8" in capsys.readouterr().err


def test_a_window_is_in_the_account(captures, tmp_path):
    """What it takes away is booked like everything else."""
    out = str(tmp_path / "t.pftrace")
    report = traceconv.merge(str(captures), out=out, mode="detail", time=(0, 1_000_000), jobs=1)
    for rank in range(RANKS):
        assert report.ledger[rank]["select-time"]["slice"] < 0


def test_more_shards_than_ranks(captures, tmp_path):
    """Some are empty, and all are needed."""
    paths = sharded(captures, tmp_path, RANKS + 2)
    one = merged(captures, tmp_path / "one.json")
    traceconv.join(*reversed(paths), out=str(tmp_path / "joined.json"))
    assert one == (tmp_path / "joined.json").read_bytes()


def test_a_shard_needs_no_input_any_more(captures, tmp_path):
    """It may be joined where the captures are not."""
    copy = tmp_path / "copy"
    shutil.copytree(captures, copy)
    paths = sharded(copy, tmp_path, 1)
    one = merged(copy, tmp_path / "one.pftrace")
    shutil.rmtree(copy)
    traceconv.join(*paths, out=str(tmp_path / "joined.pftrace"), jobs=2)
    assert one == (tmp_path / "joined.pftrace").read_bytes()


# -- ranks that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_rank_that_cannot_be_read_fails_the_run(broken, tmp_path, jobs):
    """The same error, here and in a worker; nothing is written."""
    with pytest.raises(MalformedInputError, match=r"trace_view\.json"):
        merged(broken, tmp_path / "t.pftrace", jobs=jobs)
    assert not list(tmp_path.glob("t.*"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_rank_that_cannot_be_read_may_be_left_out(broken, tmp_path, jobs):
    """It is reported, and not among the ranks."""
    out = str(tmp_path / "t.pftrace")
    report = traceconv.merge(str(broken), out=out, jobs=jobs, allow_missing_ranks=True)
    assert report.ranks == (0, 2)
    (issue,) = [i for i in report.issues if i.code == "rank-failed"]
    assert (issue.rank, issue.severity) == (1, "loss")
    assert "trace_view.json" in issue.places[0]


def test_when_every_rank_fails_the_run_fails(broken, tmp_path):
    """Leaving out is no way to an empty trace."""
    with pytest.raises(MalformedInputError):
        merged(broken, tmp_path / "t.pftrace", ranks=[1], allow_missing_ranks=True)


def test_a_failed_rank_fails_its_shard(broken, tmp_path):
    """The scheduler sees it."""
    with pytest.raises(MalformedInputError):
        sharded(broken, tmp_path, RANKS)
    assert not (tmp_path / "part1.shard").exists()
    assert not list(tmp_path.glob("*.part"))


def test_a_failed_rank_is_told_by_its_shard(broken, tmp_path):
    """Joining decides anew whether to go on."""
    paths = sharded(broken, tmp_path, RANKS, allow_missing_ranks=True)
    with pytest.raises(InputError, match="rank 1 could not be read"):
        traceconv.join(*paths, out=str(tmp_path / "joined.pftrace"))
    out = str(tmp_path / "joined.pftrace")
    report = traceconv.join(*paths, out=out, allow_missing_ranks=True)
    assert report.ranks == (0, 2)
    assert report.issues.count("rank-failed") == 1


# -- shards that do not fit --------------------------------------------------------------------


def test_a_missing_shard_is_named(captures, tmp_path):
    """And may be missing, if the user says so."""
    paths = sharded(captures, tmp_path, 3)
    out = str(tmp_path / "joined.pftrace")
    with pytest.raises(InputError, match="shard 1/3 is missing"):
        traceconv.join(paths[0], paths[2], out=out)
    report = traceconv.join(paths[0], paths[2], out=out, allow_missing_ranks=True)
    assert (report.ranks, report.issues.count("rank-missing")) == ((0, 2), 1)


def test_a_shard_counts_once(captures, tmp_path):
    """Naming it twice is a slip."""
    paths = sharded(captures, tmp_path, 2)
    with pytest.raises(InputError, match="both shard 0"):
        traceconv.join(paths[0], paths[0], paths[1], out=str(tmp_path / "joined.pftrace"))


def test_shards_of_different_merges_are_refused(captures, tmp_path):
    """The message says what differs."""
    paths = sharded(captures, tmp_path, 2)
    other = str(tmp_path / "other.shard")
    traceconv.merge(str(captures), out=other, mode="summary", shard=(1, 2))
    with pytest.raises(InputError, match="differ in mode"):
        traceconv.join(paths[0], other, out=str(tmp_path / "joined.pftrace"))


@pytest.mark.parametrize("share", [(2, 2), (-1, 2), (0, 0)])
def test_there_is_no_such_share(captures, tmp_path, share):
    """Shares count from 0."""
    with pytest.raises(OptionError, match="no shard"):
        traceconv.merge(str(captures), out=str(tmp_path / "a.shard"), shard=share)


def test_a_shard_is_called_one(captures, tmp_path):
    """So that nobody takes it for a trace."""
    with pytest.raises(OutputError, match=r"ends in \.shard"):
        traceconv.merge(str(captures), out=str(tmp_path / "a.pftrace"), shard=(0, 1))


def test_a_shard_is_not_overwritten_unasked(captures, tmp_path):
    """A folder that is not a shard is never overwritten."""
    (tmp_path / "a.shard").mkdir()
    with pytest.raises(OutputError, match="`force=True`"):
        traceconv.merge(str(captures), out=str(tmp_path / "a.shard"), shard=(0, 1))
    with pytest.raises(OutputError, match="not a shard"):
        traceconv.merge(str(captures), out=str(tmp_path / "a.shard"), shard=(0, 1), force=True)


def test_a_folder_that_is_not_a_shard_is_refused(tmp_path):
    """A folder without a description."""
    with pytest.raises(SourceError, match="not a shard"):
        traceconv.join(str(tmp_path), out=str(tmp_path / "joined.pftrace"))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"spilled": ["../elsewhere"]},
        {"index": 7},
        {"ranks": ["x"]},
        {"failed": [1]},
        {"options": {}},
        {"options": None},
        {"issues": [["no such code", "", 0, 1, []]]},
    ],
    ids=str,
)
def test_a_description_that_makes_no_sense_is_refused(captures, tmp_path, change):
    """Shards are input like any other."""
    (path,) = sharded(captures, tmp_path, 1)
    about = Path(path) / "shard.json"
    about.write_text(json.dumps({**json.loads(about.read_bytes()), **change}))
    with pytest.raises(TraceconvError):
        traceconv.join(path, out=str(tmp_path / "joined.pftrace"))


def test_damaged_columns_are_refused(captures, tmp_path):
    """Whatever byte of a spilled rank is not what it was: an error of ours, or a trace."""
    (path,) = sharded(captures, tmp_path, 1)
    spilled = Path(path) / "rank-0.spilled"
    whole = spilled.read_bytes()
    outcomes = Counter()
    for at in range(len(whole) - 1, 0, -len(whole) // 60):
        spilled.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            traceconv.join(path, out=str(tmp_path / "joined.pftrace"), force=True)
            outcomes["trace"] += 1
        except TraceconvError:
            outcomes["error"] += 1
    assert outcomes["error"] >= 3


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.9999])
def test_a_cut_shard_is_refused(captures, tmp_path, share):
    """Copied in part."""
    (path,) = sharded(captures, tmp_path, 1)
    spilled = Path(path) / "rank-0.spilled"
    whole = spilled.read_bytes()
    spilled.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(TraceconvError):
        traceconv.join(path, out=str(tmp_path / "joined.pftrace"))


# -- how many workers, how far they are --------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_adds_up(captures, tmp_path, jobs):
    """Every byte of the input is told once, and every byte of the output."""
    done: Counter[str] = Counter()
    totals = {}

    def progress(n, total, label):
        assert n >= 0
        done[label] += n
        totals[label] = total
        assert not total or done[label] <= total

    out = tmp_path / "t.pftrace"
    traceconv.merge(str(captures), out=str(out), mode="detail", jobs=jobs, progress=progress)
    stored = sum(capture_of(captures, rank).stat().st_size for rank in range(RANKS))
    assert (done["reading 3 ranks"], totals["reading 3 ranks"]) == (stored, stored)
    assert done["writing t.pftrace"] == out.stat().st_size


def test_workers_are_no_more_than_ranks():
    """Idle ones cost memory."""
    assert worker_count(8, [1, 1]) == 2


def test_small_input_needs_no_workers():
    """It is read sooner than they start."""
    assert worker_count(None, [100, 100]) == 1


def test_workers_may_be_set_by_the_environment(monkeypatch):
    """For schedulers; the option goes before."""
    monkeypatch.setenv("TRACECONV_JOBS", "3")
    assert (worker_count(None, [1] * 9), worker_count(2, [1] * 9)) == (3, 2)


@pytest.mark.parametrize(("jobs", "environment"), [(0, ""), (None, "many"), (None, "0")])
def test_a_number_of_workers_that_is_none(monkeypatch, jobs, environment):
    """Said, not guessed."""
    monkeypatch.setenv("TRACECONV_JOBS", environment)
    with pytest.raises(OptionError):
        worker_count(jobs, [1])


def test_workers_fit_into_memory(monkeypatch):
    """Ranks that fill it are read one at a time."""
    monkeypatch.delenv("TRACECONV_JOBS", raising=False)
    assert worker_count(None, [1 << 50] * 8) == 1
    assert 1 <= worker_count(None, [SMALL_RUN_BYTES] * 8) <= 8


def test_a_memory_limit_is_that_of_all_processes():
    """Workers and the process that starts them share it; each needs the least that there is."""
    limit = 5 * LOWEST
    assert worker_count(None, [SMALL_RUN_BYTES] * 8, limit) <= 4
    with (
        pytest.raises(ResourceError, match=f"too small for 8 workers .* {9 * LOWEST >> 20}M"),
        started(RunOptions(jobs=8, mem_limit=limit), [1] * 8),
    ):
        pass
