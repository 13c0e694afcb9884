"""One file of a PyTorch trace: its lanes, and what is done to rows before they are added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.clock import INT64_MAX
from traceconv.model import OpClass
from traceconv.readers._gpu import note_memory
from traceconv.readers._kineto_args import count_of
from traceconv.readers._kineto_collectives import Collectives
from traceconv.readers._kineto_header import BASE, process_groups
from traceconv.readers._kineto_lanes import Classifier, Sort
from traceconv.readers._kineto_launches import Launches
from traceconv.readers._kineto_memory import memory_counters
from traceconv.readers._traceevents import Incoming, Probes, read_events
from traceconv.source import Source

_PROBES = Probes(graph=("correlation",), type="")
_TASKS = (Sort.KERNEL, Sort.COPY, Sort.SYNC)


class File:
    """Reads one file into ``build``.

    Args:
        is_unix: its stamps count from 1970, whatever base it names.
    """

    def __init__(self, build: TraceBuilder, is_unix: bool) -> None:
        self._build, self._is_unix = build, is_unix
        self._launches = Launches(build)
        self._classify = Classifier(build, lambda: not self._launches.numbered)
        self._collectives = Collectives(build, self._classify.tracks)

    def read(self, source: Source, name: str) -> tuple[int, int] | None:
        """Read it; earliest start and latest end of its slices, ns.

        Raises:
            MalformedInputError: nothing in it can be read as trace events.
        """
        build = self._build
        span = read_events(source, name, build, self._classify, _PROBES, self._begin, self._revise)
        self._launches.draw()
        self._identify()
        self._note_ranges()
        return span

    def _begin(self, keys: Mapping[str, Any]) -> int:
        """Take in the keys around the events; what is to be added to stamps, ns."""
        self._collectives.groups = process_groups(keys.get("distributedInfo"))
        note_memory(self._build.notes, keys.get("deviceProperties"))
        base_ns = count_of(keys.get(BASE))
        return base_ns if 0 <= base_ns <= INT64_MAX and not self._is_unix else 0

    def _revise(self, rows: Incoming) -> None:
        """Look into the rows that need it. The graph probe holds correlation numbers."""
        numbered = self._classify.sorts
        sorts = np.zeros(max(numbered) + 1, np.int8)
        sorts[list(numbered)] = list(numbered.values())
        sort_of_row = sorts[rows.track]
        kernels = sort_of_row == Sort.KERNEL
        tasks = np.isin(sort_of_row, _TASKS) & ~rows.instant
        self._launches.note(rows, (sort_of_row == Sort.CALL) & ~rows.instant, tasks)
        rows.graph[:] = -1
        communicating = np.flatnonzero(kernels & (rows.op == OpClass.COMM) & ~rows.instant)
        if len(communicating):
            self._collectives.place(rows, communicating)
        marks = np.flatnonzero((sort_of_row == Sort.MEMORY) & rows.instant)
        if len(marks):
            memory_counters(self._build, rows, marks)

    def _note_ranges(self) -> None:
        """Name the ranges whose device time is worth showing, unless the profiler shows it."""
        if self._classify.annotations and Sort.PROJECTION not in self._classify.sorts.values():
            names = self._build.notes.setdefault("range_names", [])
            names += sorted(self._classify.annotations.keys() - names)

    def _identify(self) -> None:
        """Say of the capture which process and device it is, where that is certain by now."""
        processes, capture = self._classify.processes, self._build.capture
        if processes is None:
            return
        pid = count_of(processes.main)
        device = count_of(processes.devices[0]) if len(processes.devices) == 1 else -1
        self._build.capture = replace(
            capture,
            pid=pid if capture.pid < 0 else capture.pid,
            device=device if capture.device < 0 else capture.device,
        )
