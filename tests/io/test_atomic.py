"""Files and folders that appear complete or not at all."""

import fcntl
import gc
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from traceconv.core.errors import OutputError
from traceconv.io import atomic
from traceconv.io.atomic import opened, replacing, replacing_folder, write_files
from traceconv.io.sources import sources
from traceconv.scratch import temporary


def test_a_file_appears_when_it_is_complete(tmp_path):
    """Until then, what was there before stays."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"new"}


def test_nothing_is_left_of_what_failed(tmp_path):
    """Whatever was raised; errors of the system name the file and what to do."""
    with pytest.raises(KeyError), replacing(tmp_path / "a") as file:
        file.write(b"x")
        raise KeyError
    why = r"a: cannot be written: No space left.*; do this"
    with pytest.raises(OutputError, match=why), replacing(tmp_path / "a", "do this"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path):
    """What it points to is replaced."""
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_files({tmp_path / "link": b"new"})
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "real").read_bytes()) == (True, b"new")


def test_devices_are_written_as_they_are():
    """They are never replaced by a file."""
    write_files({Path(os.devnull): b"x"})
    assert not Path(os.devnull).is_file()


def test_a_folder_replaces_the_one_before(tmp_path):
    """With all its files; a failure leaves the old one."""
    target = tmp_path / "s"
    for name in ("one", "two"):
        with replacing_folder(target) as folder:
            (folder / name).write_text(name)
    with pytest.raises(KeyError), replacing_folder(target):
        raise KeyError
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    assert [p.name for p in target.iterdir()] == ["two"]


@pytest.fixture
def acts(monkeypatch):
    """What is done to files that others may see, in order: (act, names)."""
    done = []

    def noted(of, name):
        usual = getattr(of, name)

        def act(*args, **named):
            paths = [
                Path(f"/proc/self/fd/{a}").readlink() if isinstance(a, int) else a for a in args
            ]
            done.append((name, *(Path(p).name for p in paths)))
            return usual(*args, **named)

        monkeypatch.setattr(of, name, act)

    noted(os, "fsync")
    noted(Path, "replace")
    noted(Path, "rename")
    return done


def written(path):
    with opened(str(path)) as file:
        file.write(b"x")
        file.finish()
        file.settle(force=True)


def folder(path):
    with replacing_folder(path) as made:
        (made / "one").write_bytes(b"x")


@pytest.mark.parametrize("write", [written, lambda path: write_files({path: b"x"})])
def test_an_output_is_on_the_disk_before_it_is_told(tmp_path, acts, write):
    """Content, then the name, then the folder that lists it."""
    write(tmp_path / "a")
    incomplete = acts[0][1]
    assert acts == [("fsync", incomplete), ("replace", incomplete, "a"), ("fsync", tmp_path.name)]


def test_a_folder_is_on_the_disk_before_it_is_told(tmp_path, acts):
    """Every file in it, its own list, the name, the folder above."""
    folder(tmp_path / "s")
    incomplete = acts[1][1]
    assert acts == [
        *(("fsync", "one"), ("fsync", incomplete)),
        *(("rename", incomplete, "s"), ("fsync", tmp_path.name)),
    ]


@pytest.mark.parametrize("write", [written, lambda path: write_files({path: b"x"}), folder])
def test_what_a_killed_run_left_is_removed(tmp_path, write):
    """By who writes the same output; not what another run is writing, nor other files."""
    (tmp_path / "a.0123abcd.part").write_bytes(b"left")
    (tmp_path / "a.89abcdef.part").mkdir()
    (tmp_path / "a.89abcdef.part" / "one").write_bytes(b"left")
    for kept in ("b.0123abcd.part", "a.part", "a.0123abcd.part.json", "a.0123.part"):
        (tmp_path / kept).write_bytes(b"other")
    with (tmp_path / "a.11111111.part").open("xb") as growing:
        fcntl.flock(growing, fcntl.LOCK_EX)
        write(tmp_path / "a")
    left = {p.name for p in tmp_path.iterdir()} - {"a"}
    kept = {"b.0123abcd.part", "a.part", "a.0123abcd.part.json", "a.0123.part", "a.11111111.part"}
    assert left == kept


def test_what_is_growing_is_no_input(tmp_path):
    """A folder of captures is read without what a run is writing there, or has left there."""
    (tmp_path / "x.json.0123abcd.part").write_bytes(b"[]")
    (tmp_path / "s.shard.0123abcd.part").mkdir()
    (tmp_path / "s.shard.0123abcd.part" / "shard.json").write_bytes(b"{}")
    (tmp_path / "y.json").write_bytes(b"[]")
    assert sources([str(tmp_path)])[0].names() == ("y.json",)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_parts_take_few_open_files(tmp_path):
    """Complete files are kept open up to a number; all get their names."""
    before = open_files()
    with ExitStack() as stack:
        files = [stack.enter_context(opened(str(tmp_path / f"{i}"))) for i in range(1)]
        for i in range(1, 40):
            files[-1].write(b"x")
            files[-1].finish()
            files.append(stack.enter_context(opened(str(tmp_path / f"{i}"))))
        assert open_files() - before <= atomic.MOST_LOCKED + 2
        files[-1].finish()
        for file in files:
            file.settle(force=False)
    assert sorted(int(p.name) for p in tmp_path.iterdir()) == list(range(40))
    assert atomic.LocalFile.locked == 0


def test_temporary_files_of_killed_runs_are_removed(tmp_path, monkeypatch):
    """Not those in use, nor other files."""
    monkeypatch.setenv("TRACECONV_TMPDIR", str(tmp_path))
    (tmp_path / "traceconv-tmp-deadbeef" / "inner").mkdir(parents=True)
    (tmp_path / "traceconv-tmp-01234567").touch()
    others = ["traceconv-results", "traceconv-run-01234567", "traceconv-tmp-mine"]
    for name in others:  # somebody's own, or of an older version that may be running
        (tmp_path / name).mkdir()
    with temporary.named_temporary_file() as file, temporary.TemporaryFolder() as place:
        temporary.sweep(tmp_path)
        used = {Path(file.name).name, Path(place).name}
        assert {p.name for p in tmp_path.iterdir()} == {*used, *others}
    assert sorted(p.name for p in tmp_path.iterdir()) == others


@pytest.mark.parametrize("make", [temporary.named_temporary_file, temporary.TemporaryFolder])
def test_what_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch, make):
    """Another run may begin in between; nothing is missed, and nothing complains, later."""
    monkeypatch.setenv("TRACECONV_TMPDIR", str(tmp_path))
    hold, held = temporary.hold, []

    def late(file):
        if not held:
            temporary.sweep(tmp_path)
        held.append([*tmp_path.iterdir()])
        hold(file)

    monkeypatch.setattr(temporary, "hold", late)
    with make():
        assert [len(there) for there in held] == [0, 1]
        assert [*tmp_path.iterdir()] == held[1]
    with pytest.raises(FileNotFoundError):
        temporary.Lock(tmp_path / "gone")
    gc.collect()  # what it was made with at first warns, if it does at all
    assert list(tmp_path.iterdir()) == []


def test_what_is_closed_is_not_swept_before_it_is_removed(tmp_path, monkeypatch):
    """A file is closed first and removed then; found by two fuzzers beside each other."""
    monkeypatch.setenv("TRACECONV_TMPDIR", str(tmp_path))
    file = temporary.named_temporary_file()

    class SweptOnClose:
        def close(self):
            inner.close()
            temporary.sweep(tmp_path)
            left.append(Path(file.name).exists())

    inner, left = file._closer.file, []
    file._closer.file = SweptOnClose()
    file.close()
    assert (left, list(tmp_path.iterdir())) == ([True], [])
