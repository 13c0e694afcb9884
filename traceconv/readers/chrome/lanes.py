"""Places of lanes in trace-event files that no other reader knows: of our own, and of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.kinds import WHOLE_RANGE
from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.ascend_lanes import Classifier
from traceconv.readers.shared.gpu_kernels import DefaultPlacement
from traceconv.readers.shared.trace_events.timeline import Lane, Names, Placed, Skipped

_ASCEND = lazy_regex(r"(?:Ascend Hardware|Overlap Analysis|CANN|HCCL)(?: Rank ?\d+)?")
_OPS = {op.name.lower(): op for op in OpClass}


class Ours:
    """Lanes of an output of traceconv: each states its track and rank."""

    def __init__(self, rank: int | None, build: TraceBuilder) -> None:
        self._rank, self._build = rank, build
        self._other = DefaultPlacement()

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        rank = lane.extra.get("rank")
        if self._rank is not None and rank != self._rank:
            return None
        track = _track(lane.extra)
        op = _OPS.get(lane.category, OpClass.OTHER)
        if track is None:
            return self._other(lane)
        if track.layer is Layer.DEVICE and track.device_kind == "NPU":
            self._build.hints.vendor = "ascend"
        steps = track.layer is Layer.STEP and op is OpClass.ITERATION
        return Placed(track, op, by_name=self._step if steps else None)

    def _step(self, name: str) -> None:
        """Note the step that represents a capture without steps."""
        if name == WHOLE_RANGE:
            self._build.hints.made_steps = "whole"


class Copied:
    """Lanes of a file whose events were copied: one rank's, as the file they came from has them."""

    def __init__(self, rank: int | None, build: TraceBuilder) -> None:
        self._prefix = re.compile(rf"Rank {rank} (?:\u00b7 (?:[a-z_]+\d+ )+)?")
        self._place = by_title(build)
        self._names: Names | None = None

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        prefix = self._prefix.match(lane.process)
        if prefix is None:
            return None
        if self._names is None:
            prefixes = {p: self._prefix.match(n) for p, n in lane.names.processes.items()}
            plain = {pid: match.string[match.end() :] for pid, match in prefixes.items() if match}
            self._names = replace(lane.names, processes=plain)
        process = lane.process[prefix.end() :]
        return self._place(replace(lane, process=process, names=self._names))


def _track(extra: Mapping[str, str | int]) -> Track | None:
    """The track a lane's metadata spells, or None if it does not."""
    if "track" not in extra:
        return None
    try:
        return msgspec.convert({**extra, "name": extra["track"]}, Track)
    except msgspec.ValidationError:
        return None


def book_members(build: TraceBuilder, shift_ns: int, members: Mapping[str, Any]) -> int:
    """Report the other members of the file: samples of profilers in browsers and phones,
    and that the ring buffer of viztracer overflowed. ``shift_ns`` is added to every time."""
    samples, viztracer = members.get("samples"), members.get("viztracer_metadata")
    if isinstance(samples, list):
        build.skip("kind-not-read", "CPU samples", len(samples))
    if isinstance(viztracer, dict) and viztracer.get("overflow") is True:
        build.skip("source-dropped", "viztracer_metadata: overflow, number unknown")
    return shift_ns


def by_title(build: TraceBuilder) -> Callable[[Lane], Placed | Skipped | None]:
    """Ascend's processes as its readers place them, everything else by what it is called."""
    default, ascend = DefaultPlacement(build.comm_words), Classifier()

    def place(lane: Lane) -> Placed | Skipped | None:
        is_ascend = any(_ASCEND.fullmatch(name) for name in lane.names.processes.values())
        if is_ascend:
            build.hints.vendor = "ascend"
        return ascend(lane) if is_ascend else default(lane)

    return place
