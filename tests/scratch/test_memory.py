"""Memory limits: where large arrays lie, and that nothing else changes."""

import mmap
import os
import platform
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from traceconv.core.errors import ResourceError
from traceconv.scratch.memory import LOWEST, limited, scarce

pytest.importorskip("traceconv.native._memory", reason="needs the compiled parts")

pytestmark = pytest.mark.usefixtures("on_disk")

ON_DISK = "traceconv_on_disk"


GLIBC = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="needs the allocator of glibc",
)


def handler_of(array):
    return np._core.multiarray.get_handler_name(array)


def test_large_arrays_lie_on_disk_while_a_limit_is_set():
    """Only those: small ones, and those made before or after, are in memory as ever."""
    before = np.zeros(1 << 20)
    with limited(LOWEST):
        large, small = np.zeros(1 << 20), np.zeros(8)
    after = np.zeros(1 << 20)
    assert handler_of(large) == ON_DISK
    assert [handler_of(a) == ON_DISK for a in (before, after)] == [False] * 2
    assert [large.sum(), small.sum()] == [0.0, 0.0]


def in_a_small_process(script):
    """What ``script`` prints, in a process that holds nothing else."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_more_than_the_limit_can_be_held():
    """Arrays of half as much again keep their values, and the process stays below the limit."""
    told = in_a_small_process(
        """
        import numpy as np
        from traceconv.native import _memory
        from traceconv.scratch.memory import LOWEST, limited

        with limited(LOWEST):
            arrays = [np.full(4 << 20, i, np.int64) for i in range(3 * LOWEST // (64 << 20))]
            right = all((a == i).all() for i, a in enumerate(arrays))
            print(right, _memory.resident() < LOWEST)
        """
    )
    assert told == ["True", "True"]


@GLIBC
def test_holes_are_given_back():
    """Freed memory between what lives on, 32 MB of it here, does not stay in the process."""
    told = in_a_small_process(
        """
        import numpy as np
        from traceconv.native import _memory
        from traceconv.scratch.memory import give_back

        arrays = [np.ones(65536, np.uint8) for i in range(1024)]
        del arrays[::2]
        before = _memory.resident()
        _memory.trim(1 << 40)
        kept = _memory.resident()
        give_back()
        print(before - kept < 4 << 20, kept - _memory.resident() > 24 << 20)
        """
    )
    assert told == ["True", "True"]


def test_arrays_outlive_the_limit_and_give_their_room_back():
    """What was made under a limit is used after it; freed, its files are gone."""
    told = in_a_small_process(
        """
        from pathlib import Path
        import numpy as np
        from traceconv.scratch.memory import LOWEST, limited

        def unnamed():
            return Path("/proc/self/maps").read_text().count("(deleted)")

        before = unnamed()
        with limited(LOWEST):
            kept, dropped = np.arange(1 << 20), np.arange(1 << 20)
        print(unnamed() > before)
        del dropped
        kept += 1
        print(kept[-1] == 1 << 20)
        del kept
        print(unnamed() == before)
        """
    )
    assert told == ["True"] * 3


def test_small_blocks_are_used_again_and_look_new():
    """Their pages stay while there is a limit, up to a bound; zeros are zeros all the same."""
    with limited(LOWEST):
        first = np.full(1 << 13, 7, np.int64)
        address = first.ctypes.data
        del first
        again = np.zeros(1 << 13, np.int64)
        assert (again.ctypes.data, again.any()) == (address, False)
        many = [np.full(5000 + 600 * (i % 7), i, np.int64) for i in range(400)]
        assert all((one == i).all() for i, one in enumerate(many))
        del many[::2]  # more than are kept
        cleared = [np.zeros(5000 + 600 * (i % 7), np.int64) for i in range(400)]
        assert not any(one.any() for one in cleared)
        assert all((one == 2 * i + 1).all() for i, one in enumerate(many))
    del again, cleared, many  # after the end of the limit
    assert not np.zeros(1 << 13, np.int64).any()


@pytest.mark.parametrize("size", [1 << 10, 1 << 22])
def test_arrays_grow_across_the_border(size):
    """Resizing copies what was there, between memory and disk and within either."""
    with limited(LOWEST):
        array = np.arange(size, dtype=np.int64)
        array.resize(size * 4, refcheck=False)
        array.resize(size // 2, refcheck=False)
    assert np.array_equal(np.arange(size // 2), array)


def test_a_limit_that_cannot_be_kept_is_refused():
    """Too small, or set twice: an error, and no limit afterwards."""
    with pytest.raises(ResourceError, match="too small: give 192M or more"), limited(1 << 20):
        pass
    with (
        limited(LOWEST),
        pytest.raises(ResourceError, match="already set"),
        limited(LOWEST),
    ):
        pass
    assert not scarce()


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a folder in memory")
def test_temporary_files_in_memory_are_refused(monkeypatch):
    """A limit is not kept by writing to a folder that is itself memory."""
    monkeypatch.setenv("TRACECONV_TMPDIR", "/dev/shm")
    with pytest.raises(ResourceError, match="TRACECONV_TMPDIR"), limited(LOWEST):
        pass


def test_mapped_files_leave_memory_with_the_arrays():
    """A file larger than the limit is gone through; closed or dropped, nothing is left of it."""
    told = in_a_small_process(
        """
        import tempfile
        import numpy as np
        from traceconv.native import _memory
        from traceconv.scratch.memory import LOWEST, ReadMapping, limited

        with tempfile.TemporaryFile() as file, limited(LOWEST):
            file.truncate(2 * LOWEST)
            mapped, other = (ReadMapping(file.fileno()) for _ in range(2))
            highest = 0
            for at in range(0, 2 * LOWEST, 1 << 20):
                assert not np.frombuffer(mapped, np.int64, 1 << 17, at).any()
                highest = max(highest, _memory.resident())
            print(highest < LOWEST)
            mapped.close()
            del other
            kept = np.full(LOWEST // 4, 7)  # pages have to leave again
            print(kept.min())
        """
    )
    assert told == ["True", "7"]


def test_only_what_is_mapped_for_reading_is_watched(tmp_path):
    """Other pages would lose what was written there."""
    from traceconv.native import _memory

    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as mapped,
        pytest.raises(ValueError, match="for reading"),
    ):
        _memory.watch(mapped)


@pytest.mark.thorough
def test_what_was_mapped_before_the_limit_leaves_memory_too(tmp_path):
    """An archive is mapped when it is opened, and read under the limit."""
    path = tmp_path / "content"
    path.write_bytes(b"x")
    os.truncate(path, 512 << 20)
    told = in_a_small_process(
        f"""
        import numpy as np
        from traceconv.scratch.memory import LOWEST, ReadMapping, limited
        from traceconv.native import _memory

        with open({str(path)!r}, "rb") as file:
            mapped = ReadMapping(file.fileno())
        most = 0
        with limited(LOWEST):
            content = np.frombuffer(mapped, np.uint8)
            for at in range(0, len(content), 8 << 20):
                content[at : at + (8 << 20)].sum()
                most = max(most, _memory.resident())
            del content
        mapped.close()
        print(most < 1.5 * LOWEST)
        """
    )
    assert told == ["True"]


@GLIBC
def test_arrays_that_grow_lie_on_disk():
    """As those that are made of what an iterator gives: they begin as small ones."""
    told = in_a_small_process(
        """
        import numpy as np
        from traceconv.scratch.memory import LOWEST, limited

        def anonymous():
            lines = open("/proc/self/status").read().splitlines()
            return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) << 10

        before = anonymous()
        with limited(LOWEST):
            made = np.fromiter(iter(range(1 << 23)), np.int64)
            print(anonymous() - before < 16 << 20, (made == np.arange(1 << 23)).all())
        """
    )
    assert told == ["True", "True"]
