"""One database of an Ascend capture being read: its strings, devices and processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, NO_GRAPH
from traceconv.core.ordering import mapped
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.layouts import RowLayout, TableRows, book_unread
from traceconv.readers.shared.sqlite.database import Database
from traceconv.readers.shared.table_rows import database_rows

KB, MB = 1 / 1024, 1 / 1024**2
"""Databases count bytes; tables and counters count units of 1024."""

_INT32_MAX = 2**31 - 1
_DEVICE_TABLES = (
    "TASK", "COMMUNICATION_OP", "OVERLAP_ANALYSIS", "AICORE_FREQ", "HBM", "DDR", "NPU_MEM", "HCCS",
    "ACC_PMU", "NIC", "ROCE", "PCIE",
)  # fmt: skip
_NO_TEXTS = (None, "", "N/A")
_HOST_TABLES = ("PYTORCH_API", "CANN_API", "MSTX_EVENTS")

Placed = tuple[str, Mapping[str, Any]]
"""The text of a label, and the track fields that follow from it."""


@dataclass
class Export:
    """An open database, shared by the modules that read its tables.

    Attributes:
        framework: title of the framework's operators: "Python" or "MindSpore".
    """

    database: Database
    build: TraceBuilder
    framework: str = "Python"

    @cached_property
    def strings(self) -> dict[int, str]:
        """The table of strings."""
        return self.database.texts("STRING_IDS", "id", "value")

    def enum(self, table: str, otherwise: Mapping[int, str] | None = None) -> Mapping[int, str]:
        """The names of an enumeration.

        Args:
            otherwise: names of values that the table lacks. By default the table of strings, if
                the database has no enumerations of communication, as in 2023.
        """
        texts = self.database.texts(table, "id", "name")
        if otherwise is not None:
            return {**otherwise, **texts}
        has_enums = any(name.startswith("ENUM_HCCL_") for name in self.database.tables)
        return texts if has_enums else self.strings

    # -- rows -----------------------------------------------------------------------------

    def rows(self, layout: RowLayout) -> TableRows:
        """The rows of a table. A row without an end gets the duration 0, which is reported.

        In arguments, strings that are missing, empty or "N/A" are absent.
        """
        rows = database_rows(self.database, layout, lambda ids: self.strings if len(ids) else {})
        book_unread(self.build, rows)
        for key in layout.strings - {layout.name.field}:
            none = mapped(rows[key], lambda code: self.strings.get(code) in _NO_TEXTS, np.bool_)
            rows.columns[key] = np.where(none, -1, rows[key])
        if layout.end:
            start, end = rows["start"], rows["end"]
            ended = (start < 0) | (end >= 0)
            self.build.skip("missing-duration", rows.where, int((~ended).sum()))
            rows.columns["end"] = np.where(ended, end, start)
        return rows

    @staticmethod
    def join(rows: TableRows, key: I64, other: TableRows, row_of: I64 | None = None) -> I64:
        """Add the columns of another table's rows, found by ``task``; the row of each, -1: none."""
        row_of = lookup(other["task"], key) if row_of is None else row_of
        for name, column in other.columns.items():
            rows.columns.setdefault(name, picked(column, row_of))
            rows.names.setdefault(name, other.names.get(name, {}))
        return row_of

    # -- whose rows -----------------------------------------------------------------------

    @cached_property
    def several(self) -> bool:
        """Whether there are rows of more than one device."""
        devices: set[int] = set()
        for table in _DEVICE_TABLES:
            devices |= {d for d in self.database.distinct(table, "deviceId") if d >= 0}
        return len(devices) > 1

    def of_device(self, device: int, inner: str = "", **more: Any) -> Placed:
        """The heading of a device with an inner heading, and the fields of its tracks."""
        heading = f"NPU {device}" if self.several and device >= 0 else ""
        return f"{heading} {inner}".strip(), {"device": max(device, -1), **more}

    @cached_property
    def pid(self) -> int:
        """The process that most rows of the host are of."""
        pids = [p for p in self.database.distinct("TASK", "globalPid") if p > 0]
        if pids:
            return pids[0]
        for table in _HOST_TABLES:
            for thread in self.database.distinct(table, "globalTid"):
                return thread >> 32
        return -1

    def threads(self, layout: RowLayout) -> TableRows:
        """The rows of a table of the host, with thread and process; ids are pid << 32 | tid."""
        rows = self.rows(layout)
        rows.columns["Thread Id"] = rows["global"] & 0xFFFFFFFF

        def thread(pid: int, tid: int) -> Placed:
            is_own = pid in (self.pid, 0)
            return f"Thread {tid}", {"process": -1 if is_own else pid, "thread": tid}

        def process(pid: int) -> Placed:
            return "" if pid in (self.pid, 0) else f"Process {pid}", {}

        rows.columns["pid"] = rows["global"] >> 32
        rows.label("thread", ("pid", "Thread Id"), thread)
        rows.label("process", ("pid",), process)
        return rows


def graphs(model_ids: I64) -> I32:
    """The ``graph`` column; -1 for rows that belong to none."""
    real = (model_ids >= 0) & (model_ids < min(NO_GRAPH, _INT32_MAX))
    return np.where(real, model_ids, -1).astype(np.int32)
