"""PyTorch profiler (Kineto): Chrome traces of ``torch.profiler``, of GPUs and of hosts alone.

Written by: PyTorch 1.8 (2021) to 2.x, on demand (dynolog) or by ``torch.profiler``; CUDA, ROCm,
XPU, MTIA, or no device. Seen: 2021-05 to 2026-03, also filtered and cut down by other tools.
Files: ``<worker>.<time>.pt.trace.json[.gz]``; any other name is recognised by what is in it.
Files of one worker that differ in their time are collection windows of one rank.
Units and clock: us, whole or with three digits. Stamps count from ``baseTimeNanoseconds`` (2.3 and
later), which is added when read, or from 1970. Either way events come out in Unix time. The base
may stand behind the events: then the end of the file is looked at, which for compressed files
means unpacking them once more, and only then.
Rank from: ``distributedInfo`` (``rank``). Names of files count only with ``--rank-from name``.
Quirks: device rows are told by category, not by process number (a GPU's may be any); device
projections of host ranges (``gpu_user_annotation``) are no work and get lanes of their own, as do
synchronisation records; kernels of a collective stand on the lanes of NCCL, by process group;
ranges of the user that the profiler did not project are named in ``hints.range_names``;
``[memory]`` marks make counters, too; the profiler's own overhead has process -1 (two_ranks).
Launch arrows are drawn by correlation number, since marks of launches lack ends (replay_two_gpus)
or begin at once (first_kineto). A file cut off may have lost its base (cut_off).
Ignored: keys around the events that tell of the user and the job, and log lines; of the host its
name is taken.
Source: pytorch/kineto, which writes it; test data of facebookresearch/HolisticTraceAnalysis,
AMD-AGI/TraceLens and pytorch/kineto.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.io.sources import Source
from traceconv.readers.shared.windows import read_windows

_WINDOW = re.compile(r"(.+)\.(\d{13,19})\.pt\.trace\.json(?:\.gz)?")


class KinetoReader:
    """Reads Chrome traces of the PyTorch profiler."""

    name = "kineto"
    title = "PyTorch profiler (Kineto)"
    files = "*.pt.trace.json[.gz], or by content"
    order = 200

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per rank, its collection windows in the order of time."""
        groups: dict[tuple[Any, ...], list[tuple[int, Capture]]] = {}
        for name in sorted(names):
            capture = self._capture(source, name)
            if capture is not None:
                path = PurePosixPath(name)
                match = _WINDOW.fullmatch(path.name)
                key = (path.parent, match[1], capture.rank) if match else (name,)
                groups.setdefault(key, []).append((int(match[2]) if match else 0, capture))
        return [capture for group in groups.values() for capture in _windows(group)]

    def _capture(self, source: Source, name: str) -> Capture | None:
        from traceconv.readers.torch.kineto.header import header

        found = header(source, name)
        if found is None:
            return None
        return Capture(
            reader=self.name,
            source=source,
            files=(name,),
            rank=found.rank,
            rank_from="distributedInfo" if found.rank is not None else "",
            host=found.host,
            clock=found.clock(),
            world_size=found.world_size,
            label=source.title(name),
            detail=bool(found.is_unix),
        )

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.torch.kineto.content import File

        build.hints.free_rule = "device"

        def read(name: str) -> tuple[int, int] | None:
            return File(build, is_unix=capture.detail).read(capture.source, name)

        read_windows(capture, build, ((name, name) for name in capture.files), read)
        _check_clock(capture, build)


def _windows(group: list[tuple[int, Capture]]) -> list[Capture]:
    """Captures of one worker joined in the order of time, unless two claim the same time or count
    it in different ways."""
    captures = [capture for _, capture in sorted(group, key=lambda pair: pair[0])]
    clocks = [capture.clock for capture in captures if capture.clock]
    if len({time for time, _ in group}) < len(group) or len(set(clocks)) > 1:
        return captures
    return [
        replace(
            captures[0],
            files=tuple(c.files[0] for c in captures),
            clock=clocks[0] if clocks else None,
            detail=any(c.detail for c in captures),
        )
    ]


def _check_clock(capture: Capture, build: TraceBuilder) -> None:
    """Book a doubt if the stamps are not of the clock that finding took them for."""
    from traceconv.readers.torch.kineto.header import UNIX_US

    span = build.span()
    if span is None or capture.clock is None:
        return
    if (capture.clock.domain is Domain.UNIX) != (span[1] > UNIX_US * 1000):
        build.file = capture.label
        build.skip("clock-assumed", f"last stamp {span[1]} ns, taken as {capture.clock.domain}")


READER = KinetoReader()
