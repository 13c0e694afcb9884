"""The cache of analyses: answers equal those of the files, and damage is never an error."""

import os
import subprocess
import sys
from functools import partial

import pytest
from effort import effort
from job_simulator import Delay, Job, write_kineto
from job_simulator import run as run_job
from kineto_files import CALL, KERNEL, row, write

import traceconv
from traceconv.cli import run
from traceconv.store import cache


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder for what is kept, of inputs of any size and age."""
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "SMALL_BYTES", 0)
    monkeypatch.setattr(cache, "SETTLED_NS", 0)
    return tmp_path / "kept"


@pytest.fixture
def job(tmp_path):
    """A folder with the captures of two ranks."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        step = row("user_annotation", "ProfilerStep#551", 900, 900, rank, 100)
        write(
            folder / f"rank{rank}.json", [step, CALL, KERNEL], {"distributedInfo": {"rank": rank}}
        )
    return folder


def tables(source, **options):
    """The tables of a source, and how many bytes of it were read."""
    read = []
    found = traceconv.stats(
        source, progress=lambda n, total, label: read.append(n), jobs=1, **options
    )
    columns = [
        {key: column.tolist() for key, column in one.data.columns.items()} for one in found.results
    ]
    return (repr(columns), list(found.issues), found.ranks), sum(read)


def kept_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_second_analysis_reads_nothing(kept, job):
    """Other columns, filters and formats are of the same summaries; so are some of the ranks."""
    first, read = tables(job)
    second, again = tables(job)
    assert (second, read > 0, again) == (first, True, 0)
    assert tables(job, sort="Step", top=1)[1] == 0
    assert tables(job, ranks=1)[1] == 0
    assert len(kept_files(kept)) == 1


def test_other_commands_read_nothing(kept, job):
    """The first one makes what others need, and each gets what the files give it."""
    traceconv.diagnose(job, jobs=1)
    for by in ("step", "op", "kernel", "comm", "idle", "launch"):
        expected, _ = tables(job, by=by, cache=False)
        assert tables(job, by=by) == (expected, 0)
    for make in (traceconv.stragglers, traceconv.critical_path, traceconv.align):
        read = []
        found = make(job, jobs=1, progress=lambda n, *_, read=read: read.append(n)).as_dict()
        assert (found, sum(read)) == (make(job, jobs=1, cache=False).as_dict(), 0)


def test_what_is_computed_over_the_ranks_is_kept(kept, tmp_path):
    """The next commands get the verdict, the graph and the clocks of the first one."""
    job = tmp_path / "job"
    write_kineto(run_job(Job(dp=4, steps=5, world=True, delays=(Delay((2,), 5e6),))), job)
    commands = (
        traceconv.stragglers, traceconv.what_if, traceconv.critical_path, traceconv.align,
        partial(traceconv.critical_path, by="segments"),
    )  # fmt: skip
    expected = [make(job, jobs=1, cache=False).as_dict() for make in commands]
    assert [culprit.rank for culprit in traceconv.diagnose(job, jobs=1).verdict.culprits] == [2]
    before = kept_files(kept)
    assert [make(job, jobs=1).as_dict() for make in commands[:2]] == expected[:2]
    assert kept_files(kept) == before
    assert [make(job, jobs=1).as_dict() for make in commands] == expected
    assert [make(job, jobs=1).as_dict() for make in commands] == expected


def test_other_questions_read_the_files(kept, job):
    """Another view or selection is another piece of work, and modules have a view of their own."""
    tables(job)
    for options in (
        {"by": "module"}, {"steps": 551}, {"comm_patterns": "matmul"}, {"time": "0ns:1s"},
    ):  # fmt: skip
        first, read = tables(job, **options)
        assert read > 0
        assert tables(job, **options) == (first, 0)


def test_a_new_rank_is_read_alone(kept, job):
    """The others are known."""
    size = (job / "rank0.json").stat().st_size
    hidden = job.parent / "rank1.json"
    (job / "rank1.json").rename(hidden)
    tables(job)
    hidden.rename(job / "rank1.json")
    both, read = tables(job)
    assert (both[2], read) == ((0, 1), size)


@pytest.mark.parametrize("how", ["content", "time", "inode"])
def test_a_changed_file_is_read_again(kept, job, how):
    """Whatever is another one of it."""
    tables(job)
    file = job / "rank0.json"
    about, content = file.stat(), file.read_bytes()
    if how == "content":
        file.write_bytes(content.replace(b"551", b"553"))
        os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    elif how == "time":
        os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    else:
        file.rename(job.parent / "old")
        file.write_bytes(content)
        os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    found, read = tables(job)
    assert read == len(content)
    assert found == tables(job, cache=False)[0]


def test_a_file_that_was_just_written_is_not_trusted(kept, job, monkeypatch):
    """It may change once more without a new time."""
    monkeypatch.setattr(cache, "SETTLED_NS", 60_000_000_000)
    tables(job)
    assert not kept_files(kept)


def test_nothing_is_kept_of_small_inputs(kept, job, monkeypatch):
    """They are read sooner than looked up."""
    monkeypatch.setattr(cache, "SMALL_BYTES", 1 << 20)
    tables(job)
    assert not kept_files(kept)


def test_nothing_is_kept_if_the_user_says_so(kept, job, monkeypatch):
    """By an option of one run, or for all."""
    tables(job, cache=False)
    monkeypatch.setenv("TRACECONV_CACHE", "off")
    tables(job)
    assert not kept_files(kept)


def test_damage_of_what_is_kept_costs_only_time(kept, job):
    """The file is removed, and the ranks are read."""
    first, read = tables(job)
    (file,) = kept_files(kept)
    content = file.read_bytes()
    for at in range(0, len(content), effort(131, 41)):
        changed = bytearray(content)
        changed[at] ^= 16
        for old in kept_files(kept):
            old.unlink()
        file.write_bytes(changed)
        assert tables(job)[0] == first, at
    for old in kept_files(kept):
        old.unlink()
    file.write_bytes(content[:-30])
    assert tables(job) == (first, read)
    assert not file.exists() or file.read_bytes() != content[:-30]


def test_a_folder_that_cannot_be_written_costs_nothing(kept, job, tmp_path, monkeypatch):
    """Analyses work without."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "file" / "below"))
    first, read = tables(job)
    assert tables(job) == (first, read)


def test_what_was_used_longest_ago_is_removed_first(kept, job):
    """Until the limit is kept."""
    tables(job)
    (old,) = kept_files(kept)
    os.utime(old, (1, 1))
    tables(job, by="module")
    (new,) = {*kept_files(kept)} - {old}
    cache.set_limit(new.stat().st_size)
    assert [path for path in kept_files(kept) if path.suffix == ".kept"] == [new]
    assert cache.contents().limit == new.stat().st_size


def test_the_command_shows_and_removes_what_is_kept(kept, job, capsys):
    """It clears and limits the cache, too."""
    tables(job)
    assert run(["cache"]) == 0
    assert f"{kept}: 1 file, " in capsys.readouterr().out
    assert run(["cache", "--limit", "2G", "--clear"]) == 0
    assert "0 files, 0B of at most 2.0G" in capsys.readouterr().out
    assert not any(path.suffix == ".kept" for path in kept_files(kept))


@pytest.mark.sample(3)
def test_analyses_of_every_case_are_kept(sampled, kept):
    """Summaries of every reader come back, with what was lost of their ranks."""
    for make in (traceconv.align, traceconv.diagnose):
        first = make("input", **sampled.reading).as_dict()
        read = []
        again = make("input", progress=lambda n, *_, read=read: read.append(n), **sampled.reading)
        assert again.as_dict() == first
        assert not sum(read)


def told(make, source="input", **options):
    """What an analysis of the case gives, or its error."""
    try:
        found = make(source, jobs=1, **options)
    except traceconv.TraceconvError as e:
        return repr(e)
    if make is not traceconv.stats:
        return found.as_dict()
    columns = {
        one.table.name: {k: v.tolist() for k, v in one.data.columns.items()}
        for one in found.results
    }
    return repr((columns, [one.as_dict() for one in found.issues], found.steps))


QUESTIONS = (
    (traceconv.stats, {}),
    (traceconv.align, {}),
    (traceconv.diagnose, {}),
    (traceconv.stats, {"by": ("op", "memory", "data", "comm", "link")}),
    (traceconv.stragglers, {}),
    (traceconv.stats, {"by": ("memory", "kernel", "files")}),
    (traceconv.critical_path, {}),
    (traceconv.stats, {"by": "all"}),
    (traceconv.align, {}),
    (traceconv.stats, {"by": "step"}),
)


@pytest.mark.sample(3)
def test_no_answer_depends_on_what_was_asked_before(sampled, kept):
    """Summaries are shared by requests, and issues stay with those who notice them."""
    for make, options in QUESTIONS:
        expected = told(make, cache=False, **options, **sampled.reading)
        assert told(make, **options, **sampled.reading) == expected, (make, options)


@pytest.mark.sample(3)
def test_a_store_answers_what_its_events_do(sampled, kept, tmp_path):
    """With a summary of each rank, for all analyses."""
    store = tmp_path / "run.tcz"
    traceconv.pack("input", out=store, summaries=True, **sampled.reading, jobs=1)
    for make, options in QUESTIONS:
        assert told(make, store, **options) == told(make, store, cache=False, **options), options


def test_a_store_answers_without_its_events(kept, job, tmp_path):
    """Nothing of its ranks is read."""
    traceconv.pack(job, out=tmp_path / "run.tcz", summaries=True)
    for make in (traceconv.diagnose, traceconv.align, traceconv.stragglers, traceconv.stats):
        read = []
        make(tmp_path / "run.tcz", jobs=1, progress=lambda n, *_, read=read: read.append(n))
        assert not sum(read)


def test_a_damaged_summary_is_an_error(kept, job, tmp_path):
    """Its events are still there, for those who do without it."""
    store = tmp_path / "run.tcz"
    traceconv.pack(job, out=store, summaries=True)
    source = traceconv.open(store).found[0].source
    offset, size, _ = source.summary
    content = bytearray(store.read_bytes())
    content[offset + size // 2] ^= 1
    store.write_bytes(content)
    with pytest.raises(traceconv.MalformedInputError, match="summary is damaged"):
        traceconv.stats(store)
    assert traceconv.stats(store, cache=False).ranks == (0, 1)


RUN = (
    "import traceconv; from traceconv.store import cache; cache.SMALL_BYTES = cache.SETTLED_NS = 0"
)


def test_two_analyses_at_once_keep_whole_files(kept, job):
    """Each publishes its own."""
    code = f"{RUN}; traceconv.stats({str(job)!r})"
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert all(path.suffix == ".kept" for path in kept_files(kept))
    assert tables(job)[1] == 0


KILLED = """
import os, signal, pathlib
def kill(*_): os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("at", ["replace", "open"])
def test_a_killed_analysis_keeps_nothing_wrong(kept, job, at):
    """While it writes, or before the file has its name."""
    stop = {
        "replace": "pathlib.Path.replace = kill",
        "open": "cache.container.tail = kill",
    }[at]
    code = f"{RUN}{KILLED}{stop}\ntraceconv.stats({str(job)!r})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert [path for path in kept_files(kept) if path.suffix == ".kept"] == []
    assert tables(job)[1] > 0
    assert tables(job)[1] == 0
    for path in kept_files(kept):
        if path.suffix != ".kept":
            os.utime(path, (1, 1))
    cache.shrink()
    assert all(path.suffix == ".kept" for path in kept_files(kept))
