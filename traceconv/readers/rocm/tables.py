"""CSV tables of rocprofv3 and of ``rocpd convert``: those of one process together.

Columns are known by their names: older tables lack some, and write devices as numbers where newer
ones write "Agent 4". A device is numbered among all of the machine, processors included, unless a
table of devices is beside them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import Columns
from traceconv.io.sources import Source
from traceconv.readers.rocm.process import (
    Process,
    Spans,
    category,
    counted,
    lane_of,
    registered,
    triples,
)
from traceconv.readers.shared.arguments import number
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.numbers import INT32_MAX

_MOST_PROCESSES = 4096
_DIGITS = lazy_regex(r"(\d{1,9})\s*\Z")


def processes(source: Source, names: Sequence[str]) -> list[tuple[str, int]]:
    """The processes of some tables: their ids, where rows name them, and their numbers (-1 if none
    is known). Tables that name ids are looked through, of the others the first rows.
    """
    guids: dict[str, int] = {}
    pids: set[int] = set()
    for name in names:
        for row in _first_rows(source, name):
            text = row.get("Process_Id", "")
            pid = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
            if "Guid" in row:
                guids[row["Guid"]] = max(guids.get(row["Guid"], -1), pid)
            elif pid >= 0:
                pids.add(pid)
    if guids:
        return sorted(guids.items(), key=lambda item: (item[1], item[0]))
    return [("", pids.pop() if len(pids) == 1 else -1)]


def _first_rows(source: Source, name: str) -> Iterator[dict[str, str]]:
    """The first row of every process in a table; its cells by heading."""
    head = source.head(name, 4096).removeprefix(b"\xef\xbb\xbf")
    headings = [cell.strip() for cell in _cells(head.partition(b"\n")[0])]
    if headings[:1] != ["Guid"]:
        lines = head.split(b"\n")[1:2]
        yield from (dict(zip(headings, _cells(line), strict=False)) for line in lines if line)
        return
    seen: set[bytes] = set()
    rest = b""
    with source.open(name) as stream:
        while block := stream.read(1 << 20):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                guid = line.partition(b",")[0].strip(b'" \r')
                if guid and guid not in seen and guid != b"Guid" and len(seen) < _MOST_PROCESSES:
                    seen.add(guid)
                    yield dict(zip(headings, _cells(line), strict=False))


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8", "replace").strip("\r")]), [])
    except csv.Error:
        return []


class Tables:
    """The tables of one process, put into ``build``."""

    def __init__(self, source: Source, guid: str, agents: str, build: TraceBuilder) -> None:
        self._source, self._guid, self._build = source, guid, build
        self._devices = self._listed(agents) if agents else {}
        self._process = Process(build, self._device, _thread)
        self._counters: dict[int, bytes] = {}

    def read(self, names: Sequence[str]) -> None:
        """Read all of them; what counters say belongs to kernels and comes first."""
        kinds = {name: _kind(name) for name in names}
        for name, kind in kinds.items():
            if kind == "counter_collection":
                self._take_counters(name)
        for name, kind in kinds.items():
            self._build.file = self._source.title(name)
            if kind == "kernel_trace":
                self._kernels(self._rows(name), name)
            elif kind == "memory_copy_trace":
                self._copies(self._rows(name), name)
            elif kind == "memory_allocation_trace":
                self._allocations(self._rows(name), name)
            elif kind.endswith("_api_trace"):
                self._calls(self._rows(name), name)
            elif kind != "counter_collection":
                rows = self._rows(name)
                self._build.skip("kind-not-read", PurePosixPath(name).name, _length(rows))
        self._process.draw()

    # -- tables ------------------------------------------------------------------------------

    def _rows(self, name: str) -> Columns:
        """The rows of the process in a table."""
        columns = csv_columns(self._source, name, self._build.issues, ended=True)
        if not {"Start_Timestamp", "End_Timestamp"} <= columns.keys():
            place = self._source.title(name)
            self._build.issues.add("malformed-record", place, "line 1: headings are missing")
        if "Guid" not in columns or not self._guid:
            return columns
        mine = np.array([str(g) == self._guid for g in columns["Guid"].tolist()], bool)
        return {heading: column[mine] for heading, column in columns.items()}

    def _listed(self, name: str) -> dict[int, int]:
        """Numbers of GPUs among GPUs by their numbers among all devices."""
        columns = csv_columns(self._source, name, self._build.issues)
        n = _length(columns)
        kinds = [str(k).upper() for k in columns.get("Agent_Type", np.full(n, "")).tolist()]
        nodes = _whole(columns, "Node_Id", n).tolist()
        gpus = sorted(n for n, kind in zip(nodes, kinds, strict=True) if kind == "GPU" and n >= 0)
        return {node: i for i, node in enumerate(gpus)}

    def _device(self, agent: int) -> str:
        return f"GPU {self._devices.get(agent, agent)}"

    def _spans(self, rows: Columns, name: str) -> Spans:
        n = _length(rows)
        start, end = (_whole(rows, f"{which}_Timestamp", n) for which in ("Start", "End"))
        return Spans(start, end, PurePosixPath(name).name)

    def _names(self, rows: Columns, heading: str, n: int, otherwise: str = "(no name)") -> I32:
        stated = rows[heading].tolist() if heading in rows else [""] * n
        known = {text: self._build.string(str(text) or otherwise) for text in dict.fromkeys(stated)}
        return np.array([known[text] for text in stated], np.int32)

    # -- rows --------------------------------------------------------------------------------

    def _calls(self, rows: Columns, name: str) -> None:
        spans = self._spans(rows, name)
        n = len(spans.start)
        domains = [str(d) for d in rows["Domain"].tolist()] if "Domain" in rows else [""] * n
        number_of = {domain: i for i, domain in enumerate(dict.fromkeys(domains))}
        correlation = _whole(rows, "Correlation_Id", n)
        self._process.calls(
            spans,
            self._names(rows, "Function", n),
            np.array([number_of[d] for d in domains], np.int64),
            [category(domain) for domain in number_of],
            _whole(rows, "Thread_Id", n),
            correlation,
            lambda at: registered(self._build, {"correlation": (correlation[at], number)}),
        )

    def _take_counters(self, name: str) -> None:
        """Counters by the number of the dispatch, each beginning with a comma."""
        rows = self._rows(name)
        n = _length(rows)
        values = rows.get("Counter_Value", np.full(n, np.nan))
        dispatch = _whole(rows, "Dispatch_Id", n).tolist()
        names = [str(c) for c in rows.get("Counter_Name", np.full(n, "")).tolist()]
        sums: dict[int, dict[str, float]] = {}
        numbers = values if values.dtype.kind in "if" else np.full(n, np.nan)
        for of, counter, value in zip(dispatch, names, numbers.tolist(), strict=True):
            if value == value:
                known = sums.setdefault(of, {})
                known[counter] = known.get(counter, 0.0) + value
        self._counters = {of: counted(known) for of, known in sums.items()}

    def _kernels(self, rows: Columns, name: str) -> None:
        spans = self._spans(rows, name)
        n = len(spans.start)
        columns = {key: _whole(rows, heading, n) for key, heading in _KERNEL.items()}
        stream = _whole(rows, "Stream_Id", n)
        sizes = [
            (key, [_whole(rows, f"{of}_{axis}", n) for axis in "XYZ"])
            for key, of in (("grid", "Grid_Size"), ("block", "Workgroup_Size"))
        ]

        def args(at: NDArray[np.intp]) -> I32:
            dispatches = columns["dispatch"][at].tolist()
            shapes = [triples(key, [column[at] for column in axes]) for key, axes in sizes]
            more = [
                b"".join(shape) + self._counters.get(dispatch, b"")
                for *shape, dispatch in zip(*shapes, dispatches, strict=True)
            ]
            stated = {key: (column[at], number) for key, column in columns.items()}
            return registered(self._build, {**stated, "stream": (stream[at], number)}, more)

        lane, lanes = lane_of(stream, columns["queue"])
        self._process.work(
            spans,
            self._names(rows, "Kernel_Name", n),
            _agents(rows, "Agent_Id", n),
            lane,
            columns["correlation"],
            args,
            lanes=lanes,
        )

    def _copies(self, rows: Columns, name: str) -> None:
        spans = self._spans(rows, name)
        n = len(spans.start)
        source, target = (_agents(rows, f"{of}_Agent_Id", n) for of in ("Source", "Destination"))
        words = [str(w) for w in rows.get("Direction", np.full(n, "")).tolist()]
        correlation, stream = (_whole(rows, h, n) for h in ("Correlation_Id", "Stream_Id"))
        lane, lanes = lane_of(stream, np.full(n, -1))
        self._process.work(
            spans,
            self._names(rows, "Direction", n, "Memory copy"),
            directed(words, source, target),
            lane,
            correlation,
            lambda at: registered(
                self._build,
                {
                    "correlation": (correlation[at], number),
                    "from agent": (source[at], number),
                    "to agent": (target[at], number),
                    "stream": (stream[at], number),
                },
            ),
            op=OpClass.COPY,
            lanes=lanes,
        )

    def _allocations(self, rows: Columns, name: str) -> None:
        spans = self._spans(rows, name)
        n = len(spans.start)
        addresses = rows.get("Address", np.full(n, "")).tolist()
        self._process.allocations(
            spans,
            [str(o) for o in rows.get("Operation", np.full(n, "")).tolist()],
            [""] * n,
            _agents(rows, "Agent_Id", n),
            addresses,
            _whole(rows, "Allocation_Size", n),
        )


def directed(words: Sequence[str], source: I64, target: I64) -> I64:
    """The GPU that each copy occupies, by what its direction is called; -1 if that says nothing."""
    to_host = np.array(["TO_HOST" in word.upper() for word in words], bool)
    from_host = np.array(["HOST_TO" in word.upper() for word in words], bool)
    found = np.where(from_host, target, source)
    return np.where(to_host & from_host, -1, found)


_KERNEL = {
    "correlation": "Correlation_Id",
    "dispatch": "Dispatch_Id",
    "queue": "Queue_Id",
    "LDS": "LDS_Block_Size",
    "scratch": "Scratch_Size",
    "VGPRs": "VGPR_Count",
    "accumulation VGPRs": "Accum_VGPR_Count",
    "SGPRs": "SGPR_Count",
}
"""Arguments of kernels and their columns."""


def _kind(name: str) -> str:
    base = PurePosixPath(name).name.removesuffix(".gz").removesuffix(".csv")
    known = ("counter_collection", "agent_info")
    for word in (*known, "kernel_trace", "memory_copy_trace", "memory_allocation_trace"):
        if base.endswith(word):
            return word
    return base


def _thread(number_: int) -> str:
    return f"Thread {number_}" if number_ >= 0 else "No thread"


def _length(rows: Columns) -> int:
    return len(next(iter(rows.values()), ()))


def _whole(rows: Columns, heading: str, n: int) -> I64:
    """A column of whole numbers, -1 where there is none."""
    column = rows.get(heading)
    if column is None or column.dtype.kind not in "if":
        return np.full(n, -1, np.int64)
    if column.dtype.kind == "f":
        usable = np.isfinite(column) & (np.abs(column) < 2**53)
        return np.where(usable, column, -1).astype(np.int64)
    return np.where(column < 0, -1, column)


def _agents(rows: Columns, heading: str, n: int) -> I64:
    """Numbers of devices, which newer tables write as "Agent 4"."""
    column = rows.get(heading)
    if column is None or column.dtype.kind in "if":
        return _whole(rows, heading, n)
    known: dict[Any, int] = {}
    for text in set(column.tolist()):
        match = _DIGITS.search(str(text))
        known[text] = int(match[1]) if match and int(match[1]) <= INT32_MAX else -1
    return np.array([known[text] for text in column.tolist()], np.int64)


def read_tables(
    source: Source, names: Sequence[str], guid: str, agents: str, build: TraceBuilder
) -> None:
    """Put the tables of one process into ``build``.

    Args:
        guid:   the process whose rows are read; "" for all.
        agents: the table of devices, "" if there is none.
    """
    Tables(source, guid, agents, build).read(names)
