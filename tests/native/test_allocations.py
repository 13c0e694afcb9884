"""Every allocation of the C parts fails once: a clean MemoryError, and the next run is as if it had
not. Needs parts that ``make sanitize`` has built; there, leftovers and wild pointers show."""

import ctypes
import errno
from pathlib import Path

import numpy as np
import pytest
from effort import effort
from golden_cases import case_folder
from paths import ROOT

import traceconv
from traceconv import native
from traceconv.scratch.memory import ReadMapping

PARTS = {path.name.partition(".")[0]: path for path in Path(native.__file__).parent.glob("_*.so")}

CASES = {
    "_scan": ("chrome_json/phases", "txt"),
    "_patch": ("trace_view/level0", "json"),
    "_encode": ("chrome_json/number_forms", "pftrace"),
    "_lanes": ("chrome_json/phases", "pftrace"),
    "_records": ("chrome_json/phases", "json"),
    "_wire": ("perfetto", "txt"),
}
"""What makes each part work: a golden case and the output."""


def counter(part, name):
    """A number in a part that says when it fails; None in one that never does."""
    if part not in PARTS:
        return None
    try:
        return ctypes.c_long.in_dll(ctypes.CDLL(str(PARTS[part])), name)
    except ValueError:
        return None


@pytest.mark.skipif(counter("_scan", "traceconv_left") is None, reason="needs make sanitize")
@pytest.mark.parametrize("part", sorted(CASES))
def test_any_allocation_may_fail(part, tmp_path):
    """One after the other, until a run needs no more of them."""
    case, ending = CASES[part]
    folder = ROOT / "golden" / case
    folder = folder if (folder / "case.toml").exists() else next(folder.glob("*/case.toml")).parent
    given, mode = str(case_folder(folder) / "input"), "source" if part == "_patch" else "detail"
    left, failed = counter(part, "traceconv_left"), counter(part, "traceconv_failed")
    reader = {"reader": "chrome_json"} if case.startswith("chrome") else {}

    def run(out):
        traceconv.merge(given, out=str(out), mode=mode, force=True, jobs=1, **reader)
        return out.read_bytes()

    usual = run(tmp_path / f"usual.{ending}")
    refused = 0
    for number in range(effort(3000, 100_000)):
        before, out = failed.value, tmp_path / f"out.{ending}"
        left.value = number
        try:
            found = run(out)
        except MemoryError:
            refused += 1
            assert not out.exists()
        else:
            assert found == usual
            out.unlink()
        finally:
            left.value = -1
        if failed.value == before:
            break
    else:
        pytest.fail("it needs ever more allocations")
    assert refused or number == 0
    assert number, f"{case} does not use {part}"
    assert run(tmp_path / f"again.{ending}") == usual


@pytest.mark.skipif(counter("_memory", "traceconv_left") is None, reason="needs make sanitize")
def test_no_room_under_a_limit(tmp_path):
    """Small arrays, large ones on disk, those that grow, a mapping that is watched, the thread."""
    left, failed = counter("_memory", "traceconv_left"), counter("_memory", "traceconv_failed")
    part, file = native.allocator(), tmp_path / "mapped"
    file.write_bytes(bytes(100_000))

    def run():
        part.start(str(tmp_path), 64 << 20)
        try:
            arrays = [np.ones(n) for n in (10, 1000, 1 << 14, 1 << 20)]
            arrays += [np.zeros(n) for n in (10, 1 << 14, 17 << 20)]
            for array in arrays[:3]:
                array.resize(4 * len(array), refcheck=False)
            with file.open("rb") as opened, ReadMapping(opened.fileno()) as mapped:
                return sum(float(array.sum()) for array in arrays) + len(mapped)
        finally:
            left.value = -1
            part.stop()

    usual, refused = run(), 0
    for number in range(1000):
        before = failed.value
        left.value = number
        try:
            assert run() == usual
        except MemoryError:
            refused += 1
        except OSError as e:
            refused += e.errno in (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC)
        finally:
            left.value = -1
        if failed.value == before:
            break
    else:
        pytest.fail("it needs ever more allocations")
    assert number > 10
    assert refused == number
    assert run() == usual
    assert list(tmp_path.iterdir()) == [file]
