"""One database of an Ascend capture being read: its strings, devices and processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, NO_GRAPH, Layer
from traceconv.readers.shared.sqlite.database import Column, Database

TIMES = {"startNs": -1, "endNs": -1}

KB, MB = 1 / 1024, 1 / 1024**2
"""Databases count bytes, tables and counters the thousands of 1024."""

_INT32_MAX = 2**31 - 1
_DEVICE_TABLES = (
    "TASK", "COMMUNICATION_OP", "OVERLAP_ANALYSIS", "AICORE_FREQ", "HBM", "DDR", "NPU_MEM", "HCCS",
    "ACC_PMU", "NIC", "ROCE", "PCIE",
)  # fmt: skip
_HOST_TABLES = ("PYTORCH_API", "CANN_API", "MSTX_EVENTS")


@dataclass
class Export:
    """What the modules that read tables share. See :class:`Database` for how they ask.

    Attributes:
        framework: how host operators are called: "Python" or "MindSpore".
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
            otherwise: those of values the table lacks; None: where the database has none of the
                tables of communication, as in 2023, the strings.
        """
        found = self.database.texts(table, "id", "name")
        if otherwise is not None:
            return {**otherwise, **found}
        known = any(name.startswith("ENUM_HCCL_") for name in self.database.tables)
        return found if known else self.strings

    # -- whose rows -----------------------------------------------------------------------

    @cached_property
    def several(self) -> bool:
        """Whether there are rows of more than one device."""
        found: set[int] = set()
        for table in _DEVICE_TABLES:
            found |= {d for d in self.database.distinct(table, "deviceId") if d >= 0}
        return len(found) > 1

    def device(self, device: int) -> str:
        """What sets the lanes of a device apart, "" if there is only one."""
        return f"NPU {device}" if self.several and device >= 0 else ""

    def device_track(
        self, layer: Layer, name: str, device: int, title: str, *, inner: str = "", **more: Any
    ) -> int:
        """A lane of a device.

        Args:
            inner: heading of what nests within the device, "" if nothing.
            more:  further fields of the track.
        """
        group = f"{self.device(device)} {inner}".strip()
        number = max(device, -1)
        return self.build.track(layer, name, group, title, device=number, device_kind="NPU", **more)

    @cached_property
    def pid(self) -> int:
        """The process most of the host's rows are of."""
        pids = [p for p in self.database.distinct("TASK", "globalPid") if p > 0]
        if pids:
            return pids[0]
        for table in _HOST_TABLES:
            for thread in self.database.distinct(table, "globalTid"):
                return thread >> 32
        return -1

    def thread_track(self, layer: Layer, thread: int, title: str) -> int:
        """The lane of a thread, given its global id."""
        pid, tid = thread >> 32, thread & 0xFFFFFFFF
        own = pid in (self.pid, 0)
        return self.build.track(
            layer,
            f"Thread {tid}",
            "" if own else f"Process {pid}",
            title,
            process=-1 if own else pid,
            thread=tid,
        )

    # -- columns --------------------------------------------------------------------------

    def names(self, ids: I64, table: str, changed: Mapping[int, str] | None = None) -> I32:
        """The trace's string ids of the database's; unknown ones are booked and stay empty.

        Args:
            changed: what some are called here.
        """
        strings = {**self.strings, **changed} if changed else self.strings
        values, codes = np.unique(ids, return_inverse=True)
        unknown = np.array([v not in strings for v in values.tolist()], bool)
        self.build.skip("missing-name", f"table {table}", int(unknown[codes].sum()))
        found = [self.build.string(strings.get(v, "")) for v in values.tolist()]
        return np.array(found, np.int32)[codes]

    def timed(
        self, rows: Mapping[str, Column], table: str, kind: str = "slice"
    ) -> tuple[dict[str, Column], I64]:
        """Rows with a usable time, and their durations; the others are booked."""
        place, start, end = f"table {table}", rows["startNs"], rows["endNs"]
        bad, open_ = start < 0, end < 0
        negative = ~bad & ~open_ & (end < start)
        self.build.seen(kind, len(start))
        self.build.skip("bad-time", place, int(bad.sum()), kind)
        self.build.skip("negative-duration", place, int(negative.sum()), kind)
        self.build.skip("missing-duration", place, int((open_ & ~bad).sum()))
        kept = ~bad & ~negative
        good = {name: column[kept] for name, column in rows.items()}
        return good, np.maximum(good["endNs"] - good["startNs"], 0)


def graphs(model_ids: I64) -> I32:
    """The ``graph`` column; -1 for rows that belong to none."""
    real = (model_ids >= 0) & (model_ids < min(NO_GRAPH, _INT32_MAX))
    return np.where(real, model_ids, -1).astype(np.int32)
