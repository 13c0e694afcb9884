"""Captures at the ends of what there is: each at half and at full size, so that a slope shows.

A part of :mod:`bench.scale`. A slope of 1 is time in proportion to size; fixed costs make it less.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from math import log2
from pathlib import Path
from typing import Any

from bench import measure
from bench.rows import PYTHON

Event = dict[str, Any]
Make = Callable[[Path, int], Path]


def _slice(i: int, **more: Any) -> Event:
    return {"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": i * 10, "dur": 5, **more}


def _arrows(n: int) -> Iterator[Event]:
    """All from one slice."""
    arrow = {"name": "a", "cat": "c"}
    yield _slice(0, dur=10 * n + 100)
    for i in range(n):
        yield {"ph": "s", "id": i, "pid": 1, "tid": 1, "ts": 5, **arrow}
    for i in range(n):
        yield _slice(i + 2, name="k", pid=2)
        yield {"ph": "f", "bp": "e", "id": i, "pid": 2, "tid": 1, "ts": 22 + i * 10, **arrow}


def _counters(n: int) -> Iterator[Event]:
    return ({"ph": "C", "name": f"c{i}", "pid": 1, "ts": i, "args": {"v": i}} for i in range(n))


def _nested(n: int) -> Iterator[Event]:
    return (_slice(0, ts=i, dur=2 * (n - i)) for i in range(n))


def _file(events: Callable[[int], Iterator[Event]]) -> Make:
    def make(folder: Path, n: int) -> Path:
        path = folder / "limits.json"
        with path.open("w") as file:
            file.write("[")
            for number, event in enumerate(events(n)):
                file.write(",\n" * bool(number) + json.dumps(event))
            file.write("]")
        return path

    return make


def _captures(folder: Path, n: int) -> Path:
    """So many ranks, with an event each."""
    place = folder / "captures"
    shutil.rmtree(place, ignore_errors=True)
    for rank in range(n):
        capture = place / f"worker{rank}_20240612082838997_ascend_pt"
        (capture / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        (capture / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
        events = [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Ascend Hardware"}},
            _slice(rank % 100, ts="1700000000000000.000", args={"Task Type": "AI_CORE"}),
        ]
        (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text(json.dumps(events))
    return place


KINDS: dict[str, tuple[int, Make]] = {
    "captures": (20_000, _captures),
    "lanes": (100_000, _file(lambda n: (_slice(i, tid=i) for i in range(n)))),
    "processes": (20_000, _file(lambda n: (_slice(i, pid=i) for i in range(n)))),
    "distinct names": (1_000_000, _file(lambda n: (_slice(i, name=f"n{i}") for i in range(n)))),
    "characters of a name": (
        1_000_000,
        _file(lambda n: (_slice(i, name="x" * n) for i in range(3))),
    ),
    "arrows on one slice": (1_000_000, _file(_arrows)),
    "counters": (10_000, _file(_counters)),
    "slices that cross": (40_000, _file(lambda n: (_slice(0, ts=i, dur=n) for i in range(n)))),
    "slices in each other": (16_000, _file(_nested)),
}
"""What there is much of, how much, and how an input with so much is made."""


def table(folder: Path, scale: float) -> None:
    """Print a row per kind: time and memory of a merge, and the slopes from half the size on."""
    print(f"\n{'what':<22}{'count':>10}{'CPU s':>8}{'MB':>7}{'slope of time':>15}{'of memory':>11}")
    for kind, (size, make) in KINDS.items():
        n = max(2, round(size * scale))
        half, whole = (_merged(folder, make(folder, count)) for count in (n // 2, n))
        slopes = log2(whole.cpu / half.cpu), log2(whole.rss / half.rss)
        row = f"{kind:<22}{n:>10}{whole.cpu:>8.2f}{whole.rss / 1e6:>7.0f}"
        print(f"{row}{slopes[0]:>15.2f}{slopes[1]:>11.2f}", flush=True)


def _merged(folder: Path, source: Path) -> measure.Taken:
    out = str(folder / "limits.pftrace")
    how = ["-q", "-f", "-m", "detail", "-j", "1", "-o", out]
    return measure.run([PYTHON, "-m", "traceconv", "merge", str(source), *how])
