"""One process of an Nsight Systems report while it is read, and what all its tables share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Layer
from traceconv.readers.nsight.processes import Process, pid_of, tid_of
from traceconv.readers.shared.arguments import Values, register
from traceconv.readers.shared.sqlite.database import Column, Database

NAMELESS = "(no name)"
NONE: I64 = np.empty(0, np.int64)
TIMES = {"start": -1, "end": -1}


@dataclass
class Calls:
    """The calls into the CUDA runtime and driver, in the order of their table.

    Attributes:
        correlation: number of what a call made the device do, -1 for nothing.
        row:         of the event.
        start_ns:    as in the report.
        thread:      serialized id.
    """

    correlation: I64 = field(default_factory=lambda: NONE)
    row: I64 = field(default_factory=lambda: NONE)
    start_ns: I64 = field(default_factory=lambda: NONE)
    thread: I64 = field(default_factory=lambda: NONE)

    def at(self, correlation: I64) -> NDArray[np.intp]:
        """The call of each correlation number, the first if several; -1 for none."""
        order, ids = self._sorted
        if not len(order):
            return np.full(len(correlation), -1)
        near = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
        return np.where((correlation >= 0) & (ids[near] == correlation), order[near], -1)

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], I64]:
        order = np.argsort(self.correlation, kind="stable")
        return order, self.correlation[order]


@dataclass
class Report:
    """One process of a report being read.

    Attributes:
        calls:   into the runtime.
        targets: device rows: (correlation ids, event rows) of each table.
    """

    database: Database
    build: TraceBuilder
    process: Process
    comm_words: Sequence[str] = ()
    calls: Calls = field(default_factory=Calls)
    targets: list[tuple[I64, I64]] = field(default_factory=list)

    def rows(self, table: str, wanted: Mapping[str, int], owner: str) -> dict[str, Column]:
        """Columns of a table, only the rows of this process (``owner`` is its id column)."""
        columns = self.database.columns(table, {**wanted, owner: 0})
        pids = pid_of(columns[owner])
        mine = np.isin(pids, (self.process.pid, *self.process.others))
        return {name: column[mine] for name, column in columns.items()}

    def args(self, table: str, told: Mapping[str, tuple[str, Values]]) -> I32:
        """Arguments of rows: key -> (the column it comes from, values). What the table has no
        column for is left out, not made up.
        """
        there = self.database.tables.get(table, ())
        known = {key: values for key, (column, values) in told.items() if column in there}
        if not known:
            return np.full(max(len(values) for _, values in told.values()), -1, np.int32)
        return register(self.build, known)

    def strings(self, ids: I64) -> dict[int, str]:
        """The strings of a report by their numbers."""
        return self.database.texts("StringIds", "id", "value", np.unique(ids[ids >= 0]))

    def texts(self, ids: I64) -> I32:
        """String ids of the trace for string ids of the report."""
        strings = self.strings(ids)
        return self.labels(ids, lambda i: strings.get(i, NAMELESS))

    def labels(self, codes: Column, label: Callable[[int], str]) -> I32:
        """String ids of the trace for what each code is called."""
        distinct, back = np.unique(codes, return_inverse=True)
        table = [self.build.string(label(c)) for c in distinct.tolist()]
        return np.array(table, np.int32)[back] if table else np.empty(0, np.int32)

    def timed(
        self, rows: dict[str, Column], table: str, kind: str = "slice"
    ) -> tuple[dict[str, Column], I64]:
        """Rows with a usable time, and their durations; the others are booked."""
        self.build.seen(kind, len(rows["start"]))
        bad = rows["start"] < 0
        negative = ~bad & (rows["end"] >= 0) & (rows["end"] < rows["start"])
        self.build.skip("bad-time", f"table {table}", int(bad.sum()), kind)
        self.build.skip("negative-duration", f"table {table}", int(negative.sum()), kind)
        if bad.any() or negative.any():
            rows = {name: column[~bad & ~negative] for name, column in rows.items()}
        return rows, np.maximum(rows["end"] - rows["start"], 0)

    def threads(self, ids: Column, layer: Layer, title: str) -> I32:
        """The lanes of serialized thread ids."""
        distinct, back = np.unique(ids, return_inverse=True)
        tracks = [self.thread(t, layer, title) for t in distinct.tolist()]
        return np.array(tracks, np.int32)[back] if tracks else np.empty(0, np.int32)

    def thread(self, global_tid: int, layer: Layer, title: str) -> int:
        """The lane of a thread."""
        pid = int(pid_of(global_tid))
        group = "" if pid == self.process.pid else f"Process {pid}"
        return self.build.track(layer, f"Thread {tid_of(global_tid)}", group, title)
