"""What goes wrong while a merge runs: no file that is not whole, nothing left behind."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from effort import effort
from small_jobs import awaited, capture_of, ended, job, living, started

import traceconv
from traceconv.core.errors import EngineError, OutputError, SourceError
from traceconv.io.streams import FileStream as Stream
from traceconv.run.engines import local
from traceconv.run.executor import run_folder
from traceconv.validation import validate


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks, long enough to be disturbed."""
    return job(tmp_path_factory.mktemp("job"), 3, 12_000)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's temporary files go: afterwards, there are none."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TRACECONV_TMPDIR", str(folder))
    return folder


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "temporary")


# -- workers that die --------------------------------------------------------------------------


def killing(monkeypatch: pytest.MonkeyPatch, index: int, times: int) -> list[int]:
    """Kill the worker that is given the job ``index``, so many times; the kills."""
    begin, kills = local._Worker.begin, []

    def begin_and_die(self: local._Worker, work: object, given: int, job: object) -> None:
        begin(self, work, given, job)
        if given == index and len(kills) < times:
            kills.append(given)
            self._process.kill()

    monkeypatch.setattr(local._Worker, "begin", begin_and_die)
    return kills


def test_a_worker_that_is_killed_is_replaced(captures, tmp_path, temporary, monkeypatch):
    """The bytes are those of a run in peace."""
    one, other = tmp_path / "one.pftrace", tmp_path / "other.pftrace"
    traceconv.merge(str(captures), out=str(one), jobs=1)
    kills = killing(monkeypatch, 1, 1)
    traceconv.merge(str(captures), out=str(other), jobs=2)
    assert (kills, one.read_bytes()) == ([1], other.read_bytes())
    assert left(temporary) == []


def test_a_rank_whose_workers_die_fails_the_run(captures, tmp_path, temporary, monkeypatch):
    """After the second attempt; nothing is written."""
    kills = killing(monkeypatch, 1, 9)
    with pytest.raises(EngineError, match="killed by signal 9, twice"):
        traceconv.merge(str(captures), out=str(tmp_path / "t.pftrace"), jobs=2)
    assert (kills, left(tmp_path), left(temporary)) == ([1, 1], [], [])


def test_a_rank_whose_workers_die_may_be_left_out(captures, tmp_path, monkeypatch):
    """It is reported like one that cannot be read."""
    killing(monkeypatch, 1, 2)
    out = str(tmp_path / "t.pftrace")
    report = traceconv.merge(str(captures), out=out, jobs=2, allow_missing_ranks=True)
    assert (report.ranks, report.issues.count("rank-failed")) == ((0, 2), 1)


# -- drivers that die --------------------------------------------------------------------------


def test_a_killed_run_leaves_no_file_that_is_not_whole(captures, tmp_path, temporary):
    """At any moment; its workers go with it, and the next run removes what it left."""
    out, words = tmp_path / "t.pftrace", ("merge", captures, "-m", "detail", "-q", "-j", "2")
    moments = random.Random(7)
    for _ in range(effort(2, 4)):
        process = started(*words, "-o", out, "-f", temporary=temporary)
        try:
            process.wait(moments.uniform(0.3, 1.6))
        except subprocess.TimeoutExpired:
            process.kill()
        ended(process)
        assert awaited(lambda: not living(temporary))
        if out.exists():
            assert validate(str(out)).ok
            out.unlink()
    code, said = ended(started(*words, "-o", out, temporary=temporary))
    assert (code, said, left(temporary)) == (0, "", [])
    assert validate(str(out)).ok


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["Ctrl-C", "cancelled", "terminal closed"],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_run_leaves_nothing(captures, tmp_path, temporary, number, code, jobs):
    """It ends at once, with its workers."""

    def listening() -> None:
        """Shells make what they start in the background deaf to Ctrl-C, tests among it."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    out = tmp_path / "t.json"
    for _ in range(10):  # on a quiet machine it may be done before it hears of it
        words = ("merge", captures, "-m", "detail", "-j", jobs, "-o", out, "-f")
        process = started(*words, temporary=temporary, preexec_fn=listening)
        assert awaited(lambda: any(temporary.glob("*/rank-*")) or process.poll() is not None)  # noqa: B023
        process.send_signal(number)
        ending = ended(process)[0]
        if ending:
            break
        out.unlink()
    assert ending == code
    assert (left(tmp_path), left(temporary), living(temporary)) == ([], [], set())


# -- disks -------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("most", [100_000, 1_200_000], ids=["while reading", "while writing"])
def test_a_full_disk_is_told_and_leaves_nothing(captures, tmp_path, temporary, jobs, most):
    """Whether temporary files or the output fill it."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    words = ("merge", captures, "-m", "detail", "-q", "-j", jobs, "-o", tmp_path / "t.pftrace")
    process = started(*words, temporary=temporary, preexec_fn=small_files)
    code, said = ended(process)
    assert (code, "File too large" in said, "internal" in said) == (3, True, False)
    assert (left(tmp_path), left(temporary)) == ([], [])


def test_a_disk_that_fills_while_parts_are_joined(captures, tmp_path, temporary, monkeypatch):
    """The system copies, and says when it cannot."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(OutputError, match="No space left"):
        traceconv.merge(str(captures), out=str(tmp_path / "t.pftrace"), jobs=2)
    assert (left(tmp_path), left(temporary)) == ([], [])


@pytest.mark.thorough
def test_parts_are_joined_where_the_system_cannot_copy(captures, tmp_path, monkeypatch):
    """Between file systems, say."""
    one, other = tmp_path / "one.pftrace", tmp_path / "other.pftrace"
    traceconv.merge(str(captures), out=str(one), jobs=2)

    def unable(*_: object) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "copy_file_range", unable)
    traceconv.merge(str(captures), out=str(other), jobs=2)
    assert one.read_bytes() == other.read_bytes()


def test_output_into_a_full_device(captures):
    """Streams are written as they are."""
    with pytest.raises(OutputError, match="No space left"):
        traceconv.merge(str(captures), out="/dev/full", writer="perfetto", jobs=2)


def test_output_where_nothing_can_be_made(captures, temporary):
    """Not even by root."""
    with pytest.raises(OutputError, match="/proc"):
        traceconv.merge(str(captures), out="/proc/t.pftrace", jobs=1, force=True)
    assert left(temporary) == []


def test_temporary_files_where_nothing_can_be_made(captures, tmp_path, monkeypatch):
    """The message says how to name another place."""
    monkeypatch.setenv("TRACECONV_TMPDIR", "/proc")
    with pytest.raises(OutputError, match="TRACECONV_TMPDIR"):
        traceconv.merge(str(captures), out=str(tmp_path / "t.pftrace"))


# -- sources -----------------------------------------------------------------------------------


def failing_halfway(monkeypatch: pytest.MonkeyPatch, captures: Path, rank: int) -> Path:
    """A job in which reading one rank fails when half of it has been read."""
    path = capture_of(captures, rank)
    monkeypatch.setattr("traceconv.io.stored.mapped", lambda raw, path: None)
    read, seen, half = Stream.read, [0], path.stat().st_size // 2

    def limited(self: Stream, n: int) -> bytes:
        if self.label == str(path):
            seen[0] += n
            if seen[0] > half:
                raise SourceError(f"{self.label}: cannot read: Input/output error")
        return read(self, n)

    monkeypatch.setattr(Stream, "read", limited)
    return path


def test_a_source_that_fails_halfway_fails_the_run(captures, tmp_path, temporary, monkeypatch):
    """Half a rank is no rank."""
    failing_halfway(monkeypatch, captures, 1)
    with pytest.raises(SourceError, match="Input/output error"):
        traceconv.merge(str(captures), out=str(tmp_path / "t.pftrace"), jobs=1)
    assert (left(tmp_path), left(temporary)) == ([], [])


def test_a_source_that_fails_halfway_may_be_left_out(captures, tmp_path, monkeypatch):
    """The others are merged."""
    failing_halfway(monkeypatch, captures, 1)
    out = str(tmp_path / "t.pftrace")
    report = traceconv.merge(str(captures), out=out, jobs=1, allow_missing_ranks=True)
    assert (report.ranks, report.issues.count("rank-failed")) == ((0, 2), 1)


def test_an_input_that_changes_while_it_is_merged(captures, tmp_path, monkeypatch):
    """Its arguments are no longer where they were."""
    copy = tmp_path / "copy"
    shutil.copytree(captures, copy)
    path = capture_of(copy, 2)
    from traceconv.alignment import plan as align

    plan = align.plan

    def late(*given: object, **more: object) -> object:
        if len(given) > 2:  # when all have been read
            os.utime(path, ns=(1, 1))
        return plan(*given, **more)

    monkeypatch.setattr(align, "plan", late)
    with pytest.raises(SourceError, match="was changed while it was being merged"):
        traceconv.merge(str(copy), out=str(tmp_path / "t.pftrace"), mode="detail", jobs=1)


# -- what killed runs leave --------------------------------------------------------------------


def test_a_folder_of_a_run_that_lives_stays(temporary):
    """Only what nobody holds is swept away."""
    with run_folder() as first, run_folder() as second:
        assert first.is_dir() and second.is_dir()
        assert oct(first.stat().st_mode & 0o777) == "0o700"
    assert left(temporary) == []


def test_a_folder_of_a_killed_run_goes_with_the_next(temporary):
    """Its lock is free."""
    (temporary / "traceconv-tmp-deadbeef" / "inner").mkdir(parents=True)
    with run_folder():
        assert "traceconv-tmp-deadbeef" not in left(temporary)
    assert left(temporary) == []
