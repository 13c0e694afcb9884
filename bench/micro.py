"""Parts of traceconv measured inside one process: interval algebra against plain ways of doing it.

Prints one JSON object: ``{row: [seconds of the peer, seconds of traceconv]}``, medians.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core import intervals

I64 = NDArray[np.int64]


def main() -> int:
    """The command line: number of intervals, rounds."""
    n, rounds = (int(a) for a in sys.argv[1:3])
    rng = np.random.default_rng(7)
    start = rng.integers(0, n * 60, n) + 1_718_180_918_000_000_000
    end = start + rng.integers(1, 80, n)
    a, b = intervals.union(start[::2], end[::2]), intervals.union(start[1::2], end[1::2])
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "union vs Python loop": (
            lambda: loop(start.tolist(), end.tolist()),
            lambda: intervals.union(start, end),
        ),
        "union vs stable argsort": (
            lambda: by_argsort(start, end),
            lambda: intervals.union(start, end),
        ),
        "subtraction vs Python loop": (
            lambda: subtract(a.tolist(), b.tolist()),
            lambda: intervals.subtraction(a, b),
        ),
    }
    found = {name: measured(peer, ours, rounds) for name, (peer, ours) in pairs.items()}
    print(json.dumps(found))
    return 0


def measured(peer: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Median processor seconds of both, interleaved; both must give the same."""
    theirs, own = [], []
    ours()  # the first call brings code and memory in
    for _ in range(rounds):
        t0 = time.process_time()
        expected = peer()
        t1 = time.process_time()
        found = ours()
        t2 = time.process_time()
        assert np.array_equal(np.asarray(expected), found)
        theirs.append(t1 - t0)
        own.append(t2 - t1)
    return median(theirs), median(own)


def loop(start: list[int], end: list[int]) -> list[list[int]]:
    """The union, one interval at a time."""
    found: list[list[int]] = []
    for low, high in sorted(zip(start, end, strict=True)):
        if found and low <= found[-1][1]:
            found[-1][1] = max(found[-1][1], high)
        else:
            found.append([low, high])
    return found


def by_argsort(start: I64, end: I64) -> I64:
    """The union by a stable sort of the starts and a running maximum of the ends."""
    order = np.argsort(start, kind="stable")
    first, reach = start[order], np.maximum.accumulate(end[order])
    gap = np.flatnonzero(first[1:] > reach[:-1])
    lows, highs = first[np.r_[0, gap + 1]], reach[np.r_[gap, len(reach) - 1]]
    return np.stack((lows, highs), axis=1)


def subtract(a: list[list[int]], b: list[list[int]]) -> list[list[int]]:
    """What is in ``a`` and not in ``b``, one interval at a time."""
    found, at = [], 0
    for low, high in a:
        while at < len(b) and b[at][1] <= low:
            at += 1
        here = at
        while here < len(b) and b[here][0] < high:
            if b[here][0] > low:
                found.append([low, b[here][0]])
            low = max(low, b[here][1])
            here += 1
        if low < high:
            found.append([low, high])
    return found


if __name__ == "__main__":
    raise SystemExit(main())
