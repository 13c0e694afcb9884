"""What an analysis printed is printed again, as long as nothing differs that it depends on."""

import os

import pytest
from kineto_files import CALL, KERNEL, row, write

import traceconv
from traceconv.cli import run
from traceconv.store import cache


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A folder with the captures of two ranks, and a cache for inputs of any size and age."""
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "SMALL_BYTES", 0)
    monkeypatch.setattr(cache, "SETTLED_NS", 0)
    for rank in range(2):
        step = row("user_annotation", "ProfilerStep#551", 900, 900, rank, 100)
        events = [step, CALL, KERNEL]
        path = tmp_path / "job" / f"rank{rank}.json"
        path.parent.mkdir(exist_ok=True)
        write(path, events, {"distributedInfo": {"rank": rank}})
    return tmp_path / "job"


@pytest.fixture
def ask(capfd, monkeypatch):
    """Run a command: its exit code, its output, and whether the library was asked."""
    asked = []
    for name in ("stats", "diagnose", "stragglers", "align", "what_if", "critical_path"):
        function = getattr(traceconv, name)

        def counted(*paths, function=function, **given):
            asked.append(function.__name__)
            return function(*paths, **given)

        monkeypatch.setattr(traceconv, name, counted, raising=False)

    def call(*words):
        asked.clear()
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return (code, out, err), bool(asked)

    return call


@pytest.mark.parametrize(
    "words",
    [
        ["stats"],
        ["stats", "--by", "kernel", "--json"],
        ["diagnose"],
        ["diagnose", "--fail-on", "note"],
        ["stragglers", "--json"],
        ["align"],
        ["critical-path"],
    ],
)
def test_the_second_call_prints_what_the_first_did(job, ask, words):
    """Output, messages and exit code; with --no-cache, the files are read."""
    first, read = ask(*words, job)
    assert read
    assert ask(*words, job) == (first, False)
    assert ask(*words, "--no-cache", job) == (first, True)


def test_an_answer_from_the_cache_is_said_with_v_only(job, ask):
    """Everything else is the same."""
    first, _ = ask("stats", job, "-v")
    again, _ = ask("stats", job, "-v")
    assert again[:2] == first[:2]
    assert (
        again[2] == first[2] + "this answer is from the cache; --no-cache reads the files again\n"
    )


def test_a_damaged_answer_costs_only_time(job, ask):
    """The file is removed, and the captures are read."""
    first, _ = ask("align", job)
    folder = job.parent / "kept"
    for at in range(0, 400, 37):
        for file in folder.rglob("*.kept"):
            content = bytearray(file.read_bytes())
            content[at % len(content)] ^= 16
            file.write_bytes(content)
        assert ask("align", job)[0] == first
    for file in folder.rglob("*.kept"):
        file.write_bytes(file.read_bytes()[:-9])
    assert ask("align", job) == (first, True)


def test_another_call_is_another_question(job, ask, monkeypatch):
    """Other options, folders or widths."""
    ask("stats", job)
    assert ask("stats", job, "--by", "op")[1]
    assert ask("stats", job, "-v")[1]
    monkeypatch.chdir(job)
    assert ask("stats", ".")[1]
    monkeypatch.setenv("COLUMNS", "60")
    assert ask("stats", job)[1]


def test_a_file_that_changes_or_is_added_is_read(job, ask):
    """Whatever is in the folder may be a part of the answer."""
    ask("stats", job)
    (job / "notes.txt").write_text("nothing")
    assert ask("stats", job)[1]
    assert not ask("stats", job)[1]
    about = (job / "rank0.json").stat()
    os.utime(job / "rank0.json", ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert ask("stats", job)[1]


def test_what_writes_or_names_a_file_is_not_kept(job, ask, tmp_path):
    """Files are written by each call, and files that options name may change."""
    out = tmp_path / "tables.csv"
    (tmp_path / "offsets.json").write_text('{"0": 5, "1": 0}')
    for words in (
        ["stats", job, "--by", "op", "-f", "-o", out],
        ["stats", job / "rank0.json"],
        ["stragglers", job, "--align", tmp_path / "offsets.json"],
    ):
        assert ask(*words)[1]
        assert ask(*words)[1]


def test_an_error_is_not_kept(job, ask):
    """Nor is half an answer."""
    first, _ = ask("stats", job, "--steps", 7)
    assert first[0] == 3
    assert ask("stats", job, "--steps", 7) == (first, True)
