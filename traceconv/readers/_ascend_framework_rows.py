"""Rows of a framework's own timeline: what its files share on the way into the trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I32, I64, Kind, Layer, OpClass
from traceconv.readers import _ascend_ops as ops
from traceconv.readers._ascend_db_codes import Columns, apart, combined, factored, tracks
from traceconv.readers._ascend_tlv import Texts

MB = 1 << 20

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Names:
    """Names of rows: a code per row, and what each code stands for."""

    codes: I64
    values: list[str]

    @classmethod
    def joined(cls, columns: tuple[I64, ...], spelled: Mapping[tuple[int, ...], str]) -> Names:
        """Those a few columns spell together."""
        codes, table = combined(*columns)
        return cls(codes, [spelled[row] for row in table])

    def take(self, rows: Bools | I64) -> Names:
        """The names of some rows."""
        return Names(self.codes[rows], self.values)

    def ids(self, build: TraceBuilder) -> I32:
        """String ids; those nobody uses are not stored."""
        used, back = factored(self.codes)
        found = [build.string(self.values[code]) for code in used.tolist()]
        return np.array(found, np.int32)[back]

    def steps(self) -> I32:
        """The step each row marks; -1 for none."""
        used, back = factored(self.codes)
        marks = [ops.host_named(self.values[code]) for code in used.tolist()]
        return np.array([mark.step if mark else -1 for mark in marks], np.int32)[back]


def of_texts(texts: Texts) -> Names:
    """A text field as names; "" where a record lacks it."""
    lacking = len(texts.values)
    return Names(np.where(texts.codes >= 0, texts.codes, lacking), [*texts.values, ""])


@dataclass(frozen=True)
class Lanes:
    """Threads of a framework as tracks.

    Attributes:
        title: of their layer: "Python", "MindSpore".
    """

    build: TraceBuilder
    title: str
    main: int

    @classmethod
    def of(cls, build: TraceBuilder, title: str, pids: I64) -> Lanes:
        """Those of a file; what most rows are of is the main process."""
        values, codes = factored(pids)
        main = int(values[np.argmax(np.bincount(codes))]) if len(values) else 0
        return cls(build, title, main)

    def tracks(self, pids: I64, threads: I64) -> I32:
        """The lane of every row."""

        def track(pid: int, thread: int) -> int:
            above = "" if pid in (self.main, 0) else f"Process {pid % (1 << 64)}"
            return self.build.track(Layer.HOST, f"Thread {thread % (1 << 64)}", above, self.title)

        return tracks((pids, threads), track)


def timed(build: TraceBuilder, start: I64, end: I64, kind: str = "slice") -> Bools:
    """Which rows have usable times; the others are booked as lost."""
    bad = (start < 0) | (end < 0)
    negative = ~bad & (end < start)
    build.seen(kind, len(start))
    build.skip("bad-time", "", int(bad.sum()), kind)
    build.skip("negative-duration", "", int(negative.sum()), kind)
    return ~bad & ~negative


def put_slices(
    build: TraceBuilder, track: I32, start: I64, end: I64, names: Names, args: ArrayLike = -1,
    step: ArrayLike = -1,
) -> I64:  # fmt: skip
    """Add slices of the host; the row of each."""
    first = build.extend(
        track=track, start_ns=start, dur_ns=end - start, name=names.ids(build), op=OpClass.HOST,
        step=step, args=args, kind=Kind.SLICE,
    )  # fmt: skip
    return np.arange(first, first + len(start))


def arguments(build: TraceBuilder, numbers: Mapping[str, I64], columns: Columns) -> I32:
    """Argument ids, one per row."""
    if not len(next(iter(numbers.values()))):
        return np.empty(0, np.int32)
    return apart(build, numbers, columns)


def put_memory(
    build: TraceBuilder, component: str, device: I64, time_ns: I64, sums: Mapping[str, I64]
) -> None:
    """Add what an allocator holds, in MB, as samples per device.

    Args:
        sums: bytes by what they count ("Total Allocated").
    """
    several = len(factored(device)[0]) > 1
    good = time_ns >= 0
    for name, value in sums.items():
        build.seen("counter", len(value))
        build.skip("bad-time", "", int((~good).sum()), "counter")

        def track(number: int, name: str = name) -> int:
            group = f"NPU {number} Memory" if several and number >= 0 else "Memory"
            return build.track(Layer.COUNTER, f"{component}/{name}", group, "Counters", unit="MB")

        if good.any():
            lanes = tracks((device[good],), track)
            build.counters(track=lanes, start_ns=time_ns[good], value=value[good] / MB)
