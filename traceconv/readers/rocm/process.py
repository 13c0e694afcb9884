"""One process of a ROCm profile on its way into a trace, whatever file its rows are from.

A kernel that communicates is on the lanes of its library, a copy that a kernel carries out is a
copy, and every call is an arrow to what it launched. Ranges of rocTX that name a step carry its
number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Kind, Layer, OpClass
from traceconv.core.ordering import factored
from traceconv.readers.shared.arguments import AT_ONCE, Value, objects, quoted, tracks
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import kernel_class, step_number
from traceconv.readers.shared.pairing import latest

ROCTX = "rocTX"
"""Heads the lanes of the user's own ranges."""

NO_NUMBER = -1

_CALLS = {
    "hip": "HIP",
    "hsa": "HSA",
    "rccl": "RCCL",
    "rocdecode": "rocDecode",
    "rocjpeg": "rocJPEG",
    "kfd": "KFD",
}
"""Headings of calls by how their category begins."""


@dataclass(frozen=True)
class Category:
    """Where records of a category are put.

    Attributes:
        layer, title: of their lanes.
        marker: whether they are ranges and marks of rocTX.
    """

    layer: Layer
    title: str
    marker: bool = False


def category(name: str) -> Category:
    """The category called ``name``: ``HIP_RUNTIME_API_EXT``, ``hip_api``, ``rocm_hip_api``."""
    low = name.lower().removeprefix("rocm_")
    if low.startswith("marker"):
        return Category(Layer.HOST, ROCTX, True)
    for begin, title in _CALLS.items():
        if low.startswith(begin):
            return Category(Layer.RUNTIME, title)
    return Category(Layer.HOST, name if name not in ("", "host") else "")


@dataclass
class Spans:
    """Rows with a time: int64 ns, negative where there is none.

    Attributes:
        where: place for messages.
    """

    start: I64
    end: I64
    where: str

    def usable(self, build: TraceBuilder, kind: str = "slice") -> NDArray[np.bool_]:
        """Which rows have a usable time; all are counted, and the others are booked."""
        bad = (self.start <= 0) | (self.end < 0)
        negative = ~bad & (self.end < self.start)
        build.seen(kind, len(self.start))
        build.skip("bad-time", self.where, int(bad.sum()), kind)
        build.skip("negative-duration", self.where, int(negative.sum()), kind)
        return ~bad & ~negative


@dataclass
class Process:
    """One process being read.

    Attributes:
        device: name of the lanes' group by the number of a device in the file ("GPU 0").
        thread: name of a lane by the number of a thread in the file.
    """

    build: TraceBuilder
    device: Callable[[int], str]
    thread: Callable[[int], str]
    _calls: list[tuple[I64, I64]] = field(default_factory=list)
    _work: list[tuple[I64, I64]] = field(default_factory=list)

    def calls(
        self,
        spans: Spans,
        names: I32,
        sort: I64,
        categories: Sequence[Category],
        thread: I64,
        correlation: I64,
        args: Callable[[NDArray[np.intp]], I32],
    ) -> I64:
        """Add calls, and ranges of the host.

        Args:
            names:  string ids.
            sort:   which of ``categories`` each is of.
            correlation: number of what a call made the device do, 0 or less for nothing.
            args:   makes the argument ids of some of the rows.

        Returns:
            The row in the trace of each, -1 of those left out.
        """
        build = self.build
        marker = np.array([c.marker for c in categories] or [False])[sort]
        marks = marker & (spans.start == spans.end)
        rows = np.full(len(names), -1, np.int64)
        for kind, word, chosen in (
            (Kind.SLICE, "slice", np.flatnonzero(~marks)),
            (Kind.INSTANT, "instant", np.flatnonzero(marks)),
        ):
            part = Spans(spans.start[chosen], spans.end[chosen], spans.where)
            at = chosen[part.usable(build, word)]
            first = build.extend(
                track=self._host_tracks(at, sort, categories, thread),
                kind=kind,
                start_ns=spans.start[at],
                dur_ns=spans.end[at] - spans.start[at],
                name=names[at],
                op=OpClass.HOST,
                step=self._steps(names[at]),
                args=_in_parts(args, at),
            )
            rows[at] = np.arange(first, first + len(at))
        launching = np.flatnonzero((rows >= 0) & (correlation > 0) & ~marker)
        self._calls.append((correlation[launching], rows[launching]))
        if marker.any():
            build.hints.range_lanes = [ROCTX]
        return rows

    def _host_tracks(
        self,
        at: NDArray[np.intp],
        sort: I64,
        categories: Sequence[Category],
        thread: I64,
    ) -> I32:
        def track(which: int, number: int) -> int:
            of = categories[which]
            return self.build.track(of.layer, self.thread(number), "", of.title)

        return tracks((sort[at], thread[at]), track)

    def _steps(self, names: I32) -> I32:
        ids, back = factored(names)
        strings = self.build.strings
        numbers = np.array([step_number(strings[i]) for i in ids.tolist()], np.int32)
        return numbers[back] if len(numbers) else np.empty(0, np.int32)

    def work(
        self,
        spans: Spans,
        names: I32,
        device: I64,
        lane: I64,
        correlation: I64,
        args: Callable[[NDArray[np.intp]], I32],
        *,
        op: OpClass | None = None,
        lanes: str = "Stream",
    ) -> I64:
        """Add what a device did.

        Args:
            device: number of the device in the file, -1 if it is not known.
            lane:   number of the stream, or of the queue, -1 if it is not known.
            op:     class of all of them; None: kernels, which are told by their names.
            lanes:  what lanes are.

        Returns:
            The row in the trace of each, -1 of those left out.
        """
        build = self.build
        at = np.flatnonzero(spans.usable(build))
        ids, back = factored(names[at])
        strings, words = build.strings, build.comm_words
        classes = [kernel_class(strings[i], words) if op is None else op for i in ids.tolist()]
        ops = np.array(classes, np.int8)[back] if classes else np.empty(0, np.int8)
        library = np.where(ops == OpClass.COMM, names[at], -1).astype(np.int64)

        def track(number: int, of: int, name: int) -> int:
            group = self.device(number) if number >= 0 else ""
            label = f"{lanes} {of}" if of >= 0 else f"No {lanes.lower()}"
            if name >= 0:
                return build.track(Layer.COMM, label, group, lane_title(strings[name]))
            return build.track(Layer.DEVICE, label, group, "GPU Hardware")

        first = build.extend(
            track=tracks((device[at], lane[at], library), track),
            start_ns=spans.start[at],
            dur_ns=spans.end[at] - spans.start[at],
            name=names[at],
            op=ops,
            args=_in_parts(args, at),
        )
        rows = np.full(len(names), -1, np.int64)
        rows[at] = np.arange(first, first + len(at))
        launched = np.flatnonzero((rows >= 0) & (correlation > 0))
        self._work.append((correlation[launched], rows[launched]))
        return rows

    def draw(self) -> None:
        """Add the arrow of every launch; what no recorded call launched is booked."""
        build = self.build
        number, task = _joined(self._work)
        if not len(number):
            return
        called, call = _joined(self._calls)
        # a call that is nested in another has a number of its own, so there is one for each
        over = latest(called, np.zeros(len(called), np.int64), number, np.zeros_like(number))
        found = over >= 0
        build.seen("flow", len(number))
        build.skip("flow-without-end", "no launching call", int((~found).sum()), "flow")
        build.flows(src=call[over[found]], dst=task[found], name=build.string("launch"))

    def pairs(self, call: I64, task: I64) -> None:
        """Add arrows between rows of the trace; where an end is -1 it is booked."""
        build = self.build
        found = (call >= 0) & (task >= 0)
        build.seen("flow", len(call))
        build.skip("flow-without-end", "", int((~found).sum()), "flow")
        build.flows(src=call[found], dst=task[found], name=build.string("launch"))

    def samples(self, track: I32, at: I64, value: NDArray[np.float64], where: str) -> None:
        """Add counter samples; those without a time or a number are booked."""
        build = self.build
        bad, odd = at <= 0, ~np.isfinite(value)
        build.seen("counter", len(at))
        build.skip("bad-time", where, int(bad.sum()), "counter")
        build.skip("counter-not-numeric", where, int((odd & ~bad).sum()), "counter")
        good = ~bad & ~odd
        build.counters(track=track[good], start_ns=at[good], value=value[good])

    def allocations(
        self, spans: Spans, kind: Sequence[str], level: Sequence[str], device: I64,
        address: Sequence[object], size: I64,
    ) -> None:  # fmt: skip
        """Add what is allocated on every device, from the beginning of the recording on.

        A release says neither device nor size: it is that of the allocation at its address, and
        counts when it has ended.

        Args:
            kind:  ALLOC or FREE, as a word that holds one of them.
            level: REAL, VIRTUAL or SCRATCH; "" for REAL.
        """
        build = self.build
        build.seen("counter", len(size))
        bad = (spans.start <= 0) | (spans.end < spans.start)
        build.skip("bad-time", spans.where, int(bad.sum()), "counter")
        order = np.argsort(spans.end, kind="stable")
        held: dict[tuple[object, str], tuple[int, int]] = {}
        sums: dict[tuple[int, str], int] = {}
        samples: dict[tuple[int, str], list[tuple[int, int]]] = {}
        alone = 0
        for i in order[~bad[order]].tolist():
            word, of = kind[i].upper(), level[i]
            if "FREE" in word or "RECLAIM" in word:
                number, change = held.pop((address[i], of), (NO_NUMBER, 0))
                change = -change
                if not change:
                    alone += 1
                    continue
            else:
                number, change = int(device[i]), max(int(size[i]), 0)
                held[address[i], of] = number, change
            key = number, of
            sums[key] = sums.get(key, 0) + change
            samples.setdefault(key, []).append((int(spans.end[i]), sums[key]))
        build.skip("end-without-begin", f"{spans.where}: releases", alone, "counter")
        for (number, of), found in samples.items():
            name = "Allocated" + (f" ({of.lower()})" if of not in ("", "REAL") else "")
            group = self.device(number) if number >= 0 else ""
            track = build.track(
                Layer.COUNTER, name, group, "Memory since the recording began", unit="B"
            )
            times, values = zip(*found, strict=True)
            build.counters(
                track=track, start_ns=np.array(times, np.int64), value=np.array(values, np.float64)
            )


def copy_device(source: I64, target: I64, gpus: I64) -> I64:
    """The GPU that a copy occupies: of two that from which it is; -1 if there is none."""
    found = np.where(np.isin(target, gpus), target, NO_NUMBER)
    return np.where(np.isin(source, gpus), source, found)


def lane_of(stream: I64, queue: I64) -> tuple[I64, str]:
    """Numbers of lanes and what they are: streams, where they are known, else queues."""
    if len(stream) and (stream < 0).all():
        return queue, "Queue"
    return stream, "Stream"


def _in_parts(args: Callable[[NDArray[np.intp]], I32], at: NDArray[np.intp]) -> I32:
    """The arguments of rows; those of a part of them are in memory at a time."""
    parts = [args(at[first : first + AT_ONCE]) for first in range(0, len(at), AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def registered(
    build: TraceBuilder,
    columns: Mapping[str, tuple[I64, Value]],
    more: list[bytes] | None = None,
) -> I32:
    """Argument ids, a row each; members that have no value are left out, and so are objects that
    have no member."""
    texts = [b""] * len(next(iter(columns.values()))[0])
    for key, (column, value) in columns.items():
        head = b"," + quoted(key) + b":"
        codes, back = factored(column)
        stated = [value(code) for code in codes.tolist()]
        parts = [head + one if one else b"" for one in stated]
        texts = [text + parts[i] for text, i in zip(texts, back.tolist(), strict=True)]
    if more is not None:
        texts = [text + one for text, one in zip(texts, more, strict=True)]
    return objects(build, [b"{" + text[1:] + b"}" if text else b"" for text in texts])


def triples(key: str, columns: Sequence[I64]) -> list[bytes]:
    """``,"grid":[x,y,z]`` of every row; nothing where that is not stated."""
    head = b"," + quoted(key) + b":[%d,%d,%d]"
    stated = zip(*(column.tolist() for column in columns), strict=True)
    return [head % xyz if min(xyz) >= 0 else b"" for xyz in stated]


def counted(sums: Mapping[str, float]) -> bytes:
    """Counters as members of an object, each beginning with a comma."""
    whole = ((name, int(v) if v.is_integer() else v) for name, v in sums.items() if isfinite(v))
    return b"".join(b",%b:%b" % (quoted(name), repr(v).encode()) for name, v in whole)


def _joined(parts: Sequence[tuple[I64, I64]]) -> tuple[I64, I64]:
    none = np.empty(0, np.int64)
    numbers, rows = zip(*parts, strict=True) if parts else ((none,), (none,))
    return np.concatenate(numbers), np.concatenate(rows)
