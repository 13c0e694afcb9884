"""Read the CSV tables of one process: rocprof (v1, v2), rocprofv3, ``rocpd convert``.

Columns are known by their headings: older tables lack some, and write devices as numbers where
newer ones write "Agent 4". A device is numbered among all of the machine, processors included,
unless there is a table of devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64
from traceconv.core.patterns import natural
from traceconv.core.side_tables import Columns
from traceconv.core.source import Source
from traceconv.readers.rocm.headings import OLD_TABLES, cells_in, headings_in, old_table
from traceconv.readers.rocm.process import (
    ALLOCATIONS,
    CALLS,
    COPIES,
    KERNELS,
    Process,
    category,
    found_in,
    summed,
)
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.layouts import RowLayout, TableRows, book_unread
from traceconv.readers.shared.lines import Lines, unheard
from traceconv.readers.shared.table_rows import csv_rows

_TIMES = {"start": "Start_Timestamp", "end": "End_Timestamp"}
_NAMED = frozenset({"name"})

_KERNEL_ARGS = (
    "correlation", "dispatch", "queue", "LDS", "scratch", "VGPRs", "accumulation VGPRs", "SGPRs",
    "stream", "grid", "block",
)  # fmt: skip
_V1_ARGS = ("dispatch", "queue", "LDS", "scratch", "VGPRs", "accumulation VGPRs", "SGPRs")

LAYOUTS = {
    "kernel_trace": msgspec.structs.replace(
        KERNELS,
        **_TIMES,
        columns={
            "name": "Kernel_Name", "device": "Agent_Id", "queue": "Queue_Id", "stream": "Stream_Id",
            "correlation": "Correlation_Id", "dispatch": "Dispatch_Id", "LDS": "LDS_Block_Size",
            "scratch": "Scratch_Size", "VGPRs": "VGPR_Count",
            "accumulation VGPRs": "Accum_VGPR_Count", "SGPRs": "SGPR_Count",
            "grid": ("Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
            "block": ("Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z"),
        },
        texts=_NAMED,
        args=_KERNEL_ARGS,
    ),
    "memory_copy_trace": msgspec.structs.replace(
        COPIES,
        **_TIMES,
        columns={
            "name": "Direction", "correlation": "Correlation_Id", "from agent": "Source_Agent_Id",
            "to agent": "Destination_Agent_Id", "stream": "Stream_Id",
        },
        texts=_NAMED,
        args=("correlation", "from agent", "to agent", "stream"),
    ),
    "memory_allocation_trace": msgspec.structs.replace(
        ALLOCATIONS,
        **_TIMES,
        columns={
            "device": "Agent_Id", "size": "Allocation_Size", "operation": "Operation",
            "address": "Address",
        },
        texts=frozenset({"operation", "address"}),
    ),
    "api_trace": msgspec.structs.replace(
        CALLS,
        **_TIMES,
        columns={
            "name": "Function", "category": "Domain", "thread": "Thread_Id",
            "correlation": "Correlation_Id",
        },
        texts=frozenset({"name", "category"}),
    ),
    "rocprof v1": msgspec.structs.replace(
        KERNELS,
        start="BeginNs",
        end="EndNs",
        columns={
            "name": "KernelName", "device": "gpu-id", "queue": "queue-id", "dispatch": "Index",
            "LDS": "lds", "scratch": "scr", "VGPRs": "arch_vgpr|vgpr",
            "accumulation VGPRs": "accum_vgpr", "SGPRs": "sgpr", "grid size": "grd",
            "block size": "wgr",
        },
        texts=_NAMED,
        args=(*_V1_ARGS, "grid size", "block size"),
    ),
    "rocprof v2": msgspec.structs.replace(
        KERNELS,
        **_TIMES,
        columns={
            "name": "Kernel_Name", "device": "GPU_ID", "queue": "Queue_ID",
            "dispatch": "Dispatch_ID", "LDS": "LDS_Per_Workgroup|LDS",
            "scratch": "Scratch_Per_Workitem|SCR", "VGPRs": "Arch_VGPR",
            "accumulation VGPRs": "Accum_VGPR|ACCUM_VGPR", "SGPRs": "SGPR",
            "grid size": "Grid_Size|GRD", "block size": "Workgroup_Size|WGR",
            "correlation": "Correlation_ID",
        },
        texts=_NAMED,
        args=("correlation", *_V1_ARGS, "grid size", "block size"),
    ),
}  # fmt: skip
"""Layouts by the ending of the file name; those of rocprof are recognised by their headings.

rocprof: README.md, bin/tblextr.py (v1) and plugin/file/file.cpp (v2) of ROCm's rocprofiler.
"""

_NO_COUNTERS = {
    "queue-index", "Queue_Index", "pid", "PID", "tid", "TID", "wave_size", "Wave_Size", "fbar",
    "sig", "SIG", "obj", "OBJ", "DispatchNs", "CompleteNs", "DurationNs",
}  # fmt: skip
"""Columns of rocprof tables that are neither read nor counters."""

_PROCESS = ("Guid", "pid", "PID")
"""Columns that identify the process of a row."""

_MOST_PROCESSES = 4096


def processes(source: Source, names: Sequence[str]) -> list[tuple[str, int]]:
    """The processes of some tables: their value in the column of processes, and their process
    numbers (-1 if none is known). Tables that have such a column are looked through, of the others
    the first row.
    """
    pid_by_value: dict[str, int] = {}
    pids: set[int] = set()
    for name in names:
        for row in _first_rows(source, name):
            column = next((heading for heading in _PROCESS if heading in row), "")
            text = row.get("Process_Id" if column in ("", "Guid") else column, "")
            pid = natural(text)
            if column:
                pid_by_value[row[column]] = max(pid_by_value.get(row[column], -1), pid)
            elif pid >= 0:
                pids.add(pid)
    if pid_by_value:
        return sorted(pid_by_value.items(), key=lambda item: (item[1], item[0]))
    return [("", pids.pop() if len(pids) == 1 else -1)]


def _first_rows(source: Source, name: str) -> Iterator[dict[str, str]]:
    """The first row of every process in a table; its cells by heading."""
    headings = headings_in(source.head(name, 4096))
    position = next((headings.index(heading) for heading in _PROCESS if heading in headings), -1)
    keys: set[str] = set()
    with source.open(name) as stream:
        for number, line in Lines(stream, unheard).numbered():
            if position == 0:  # soon told, and never quoted commas before it
                key = line.partition(",")[0].strip('" ')
            else:
                key = "".join(cells_in(line)[position : position + 1]) if position > 0 else "-"
            if number > 1 and key and key not in keys and len(keys) < _MOST_PROCESSES:
                keys.add(key)
                yield dict(zip(headings, cells_in(line), strict=False))
            if number > 1 and position < 0:
                return


class Tables:
    """The tables of one process, put into ``build``."""

    def __init__(self, source: Source, guid: str, agents: str, build: TraceBuilder) -> None:
        self._source, self._guid, self._build = source, guid, build
        self._devices = self._listed(agents) if agents else {}
        self._process = Process(build)
        self._counters: dict[int, bytes] = {}

    def read(self, names: Sequence[str]) -> None:
        """Read all tables. Counters are arguments of kernels, so they are read first."""
        kinds = {name: _kind(self._source, name) for name in names}
        for name, kind in kinds.items():
            if kind == "counter_collection":
                self._build.file = self._source.title(name)
                self._counters = self._counters_by_dispatch(name)
        for name, kind in kinds.items():
            self._build.file = self._source.title(name)
            if kind in LAYOUTS:
                columns = self._columns(name)
                layout = _with_counters(kind, columns)
                self._add(kind, layout, csv_rows(columns, layout, _base(name)))
            elif kind != "counter_collection":
                rows = next(iter(self._columns(name).values()), ())
                self._build.skip("kind-not-read", _base(name), len(rows))
        self._process.launched.draw(self._build)

    def _columns(self, name: str) -> Columns:
        """The columns of a table, only the rows of the process."""
        columns = csv_columns(self._source, name, self._build.issues, ended=True)
        layout = LAYOUTS.get(_kind(self._source, name))
        if layout is not None and not {layout.start, layout.end} <= columns.keys():
            title = self._source.title(name)
            self._build.issues.add("malformed-record", title, "line 1: headings are missing")
        owners = [columns[heading].tolist() for heading in _PROCESS if heading in columns]
        if not owners or not self._guid:
            return columns
        is_own = np.array([str(owner) == self._guid for owner in owners[0]], bool)
        return {heading: column[is_own] for heading, column in columns.items()}

    def _listed(self, name: str) -> dict[int, int]:
        """GPU numbers by node id, where nodes include CPUs."""
        listed = RowLayout(
            start="Node_Id", columns={"kind": "Agent_Type"}, texts=frozenset({"kind"})
        )
        rows = csv_rows(csv_columns(self._source, name, self._build.issues), listed, name)
        nodes = zip(rows["start"].tolist(), rows.texts("kind"), strict=True)
        gpus = sorted(n for n, kind in nodes if n >= 0 and kind.upper() == "GPU")
        return {node: i for i, node in enumerate(gpus)}

    def _counters_by_dispatch(self, name: str) -> dict[int, bytes]:
        """Counters by the number of the dispatch."""
        layout = RowLayout(
            start="Dispatch_Id",
            columns={"name": "Counter_Name", "value": "Counter_Value"},
            texts=_NAMED,
            floats=frozenset({"value"}),
        )
        rows = csv_rows(self._columns(name), layout, _base(name))
        book_unread(self._build, rows)
        return summed(rows["start"], rows.texts("name"), rows["value"].tolist())

    def _add(self, kind: str, layout: RowLayout, rows: TableRows) -> None:
        process = self._process
        process.place(rows, self._devices)
        if kind == "api_trace":
            domains = rows.names.get("category", {})
            by_code = {code: category(text) for code, text in domains.items()}
            process.calls(layout, rows, {**by_code, -1: category("")})
        elif kind == "memory_allocation_trace":
            process.allocations(rows)
        elif kind == "memory_copy_trace":
            device = directed(rows.texts("name"), rows["from agent"], rows["to agent"])
            rows.columns["device"] = device
            process.work(layout, rows)
        else:
            process.work(layout, rows, found_in(self._counters, rows["dispatch"]))


def _with_counters(kind: str, columns: Columns) -> RowLayout:
    """The layout of a table, including the counter columns of rocprof tables."""
    layout = LAYOUTS[kind]
    if kind not in OLD_TABLES:
        return layout
    used = {
        heading
        for alternatives in layout.sources.values()
        for name in alternatives
        for heading in name.split("|")
    }
    counters = [heading for heading in columns if heading not in used | _NO_COUNTERS]
    return msgspec.structs.replace(
        layout,
        columns={**layout.columns, **dict(zip(counters, counters, strict=True))},
        floats=frozenset(counters),
        args=(*layout.args, *counters),
    )


def directed(words: Sequence[str], source: I64, target: I64) -> I64:
    """The GPU that each copy occupies, from its direction; -1 if unknown."""
    to_host = np.array(["TO_HOST" in word.upper() for word in words], bool)
    from_host = np.array(["HOST_TO" in word.upper() for word in words], bool)
    by_direction = np.where(from_host, target, source)
    return np.where(to_host & from_host, -1, by_direction)


def _base(name: str) -> str:
    return PurePosixPath(name).name


def _kind(source: Source, name: str) -> str:
    """Which table a file is."""
    if old := old_table(source.head(name, 4096)):
        return old
    base = _base(name).removesuffix(".gz").removesuffix(".csv")
    tables = (*LAYOUTS, "counter_collection", "agent_info")
    return next((word for word in tables if base.endswith(word)), base)
