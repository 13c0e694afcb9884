"""Memory limits: where large arrays lie, and that nothing else changes."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from traceconv.errors import ResourceError
from traceconv.memory import LOWEST, limited, scarce

native = pytest.importorskip("traceconv._memory", reason="needs the compiled parts")

ON_DISK = "traceconv_on_disk"


def handler_of(array):
    return np._core.multiarray.get_handler_name(array)


def unnamed_files():
    """How many mapped files have no name any more."""
    return Path("/proc/self/maps").read_text().count("(deleted)")


def test_large_arrays_lie_on_disk_while_a_limit_is_set():
    """Only those: small ones, and those made before or after, are in memory as ever."""
    before = np.zeros(1 << 20)
    with limited(LOWEST):
        large, small = np.zeros(1 << 20), np.zeros(8)
    after = np.zeros(1 << 20)
    assert handler_of(large) == ON_DISK
    assert [handler_of(a) == ON_DISK for a in (before, after)] == [False] * 2
    assert [large.sum(), small.sum()] == [0.0, 0.0]


def test_more_than_the_limit_can_be_held():
    """Arrays of four times the limit keep their values, and the process stays below it."""
    with limited(LOWEST):
        arrays = [np.full(4 << 20, i, np.int64) for i in range(LOWEST // (8 << 20))]
        sums = [int(a.sum()) for a in arrays]
        peak = native.resident()
    assert [i * (4 << 20) for i in range(len(arrays))] == sums
    assert peak < LOWEST


def test_arrays_outlive_the_limit_and_give_their_room_back():
    """What was made under a limit is used after it; freed, its files are gone."""
    before = unnamed_files()
    with limited(LOWEST):
        kept = np.arange(1 << 20)
        dropped = np.arange(1 << 20)
    assert before < unnamed_files()
    del dropped
    kept += 1
    assert int(kept[-1]) == 1 << 20
    del kept
    gc.collect()
    assert before == unnamed_files()


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
