"""Raw Ascend records measured inside one process: decoded and paired, next to their bytes alone.

    python -m bench.raw 1000000 5

Prints one JSON object: ``{kind: {records, bytes, seconds and records per second of each way}}``,
medians of processor time. The ways: ``numpy.fromfile`` of the same bytes, which decodes nothing; a
loop over ``struct.iter_unpack`` that pairs with a dictionary; and traceconv, from the file to
steps or
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture
from traceconv.io.sources import sources
from traceconv.readers.ascend.raw import steps
from traceconv.readers.ascend.raw.scheduler_logs import HWTS, MAGIC, hwts_tasks, marked
from traceconv.readers.ascend.raw.slice_files import gathered, records

STREAMS, REDUCES = 48, 11


def main() -> int:
    """The command line: number of records, rounds."""
    n, rounds = (int(a) for a in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="traceconv-bench-") as folder:
        old, hwts = Path(folder) / "training_trace", Path(folder) / "hwts"
        training(n).tofile(old)
        scheduled(n).tofile(hwts)
        found = {
            "training_trace": measured(old, n, rounds, by_loop_steps, our_steps),
            "hwts": measured(hwts, n, rounds, by_loop_tasks, our_tasks),
        }
    print(json.dumps(found, indent=1))
    return 0


def training(n: int) -> np.ndarray[Any, np.dtype[np.void]]:
    """Marks of steps: forward, collectives, backward, end."""
    one = [10010, 1, *range(3, 3 + 2 * REDUCES), 2, 255]
    rows = np.zeros(n, steps.OLD)
    rows["tag"] = np.resize(one, n)
    rows["stream"] = rows["tag"] // 2 + 500
    rows["time"] = np.arange(n) * 800 + 40_000_000_000
    return rows


def scheduled(n: int) -> np.ndarray[Any, np.dtype[np.void]]:
    """Beginnings and ends of tasks on many streams, in turns."""
    rows = np.zeros(n, HWTS)
    at = np.arange(n)
    kind = at // STREAMS % 2
    rows["head"] = (at % 16) << 4 | kind
    rows["magic"], rows["stream"] = MAGIC, 500 + at % STREAMS
    rows["task"] = at // (2 * STREAMS) % 65536
    rows["time"] = at * 120 + 40_000_000_000
    return rows


Way = Callable[[Path], int]


def measured(path: Path, n: int, rounds: int, loop: Way, ours: Way) -> dict[str, Any]:
    """Seconds of each way, interleaved; the loop and ours must find as many."""
    ways: dict[str, Way] = {"fromfile": alone, "loop": loop, "traceconv": ours}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    counts = {name: way(path) for name, way in ways.items()}  # brings code and memory in
    assert counts["loop"] == counts["traceconv"], counts
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time()
            way(path)
            taken[name].append(time.process_time() - start)
    seconds = {name: median(values) for name, values in taken.items()}
    speed = {name: round(n / max(value, 1e-9)) for name, value in seconds.items()}
    size = path.stat().st_size
    return {"records": n, "bytes": size, "seconds": seconds, "records_per_s": speed}


def alone(path: Path) -> int:
    """The bytes, as numbers."""
    return len(np.fromfile(path, np.uint8))


def by_loop_steps(path: Path) -> int:
    """Steps and collectives, a record at a time."""
    open_: dict[int, int] = {}
    found = inside = 0
    for tag, _, _, at in struct.iter_unpack("<QHHQ", path.read_bytes()):
        if tag == 255:
            found, inside, open_ = found + 1 + inside, 0, {}
        elif 3 <= tag < 10_000:
            which, end = divmod(tag - 3, 2)
            if not end:
                open_[which] = at
            elif which in open_:
                inside += open_.pop(which) <= at
    return found


def by_loop_tasks(path: Path) -> int:
    """Pairs, a record at a time."""
    open_: dict[tuple[int, int], int] = {}
    found = 0
    for head, _, magic, _, task, at, stream in struct.iter_unpack("<BBHHHQI44x", path.read_bytes()):
        if magic != MAGIC:
            continue
        if head & 7 == 0:
            open_[stream, task] = at
        elif (stream, task) in open_:
            found += open_.pop((stream, task)) <= at
    return found


def our_steps(path: Path) -> int:
    """Steps and collectives in columns."""
    source, build = _opened(path)
    blob = gathered(source, [path.name], build)
    marks = steps.old_marks(records(blob, steps.OLD, steps.plausible_old, build))
    found = steps.old_iterations(marks)
    reduces = steps.old_reduces(marks, found)
    return len(found.number) + len(reduces.step)


def our_tasks(path: Path) -> int:
    """Pairs in columns."""
    source, build = _opened(path)
    rows = records(gathered(source, [path.name], build), HWTS, marked, build)
    return int((hwts_tasks(rows, build).end >= 0).sum())


def _opened(path: Path) -> tuple[Any, TraceBuilder]:
    (source,) = sources([str(path)])
    return source, TraceBuilder(Capture("ascend_raw", source, (path.name,), rank=0))


if __name__ == "__main__":
    sys.exit(main())
