"""The event tables of an Nsight Systems report as columns, one process at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I64, Kind, Layer, OpClass
from traceconv.readers._argtable import Values, named, register
from traceconv.readers._gpu import kernel_class, step_number
from traceconv.readers._nsight_processes import NVTX_THREAD_NAME, Process, pid_of
from traceconv.readers._sqlite import Column, Database

CALL_CLASSES = (0, 1, 13, 26)
"""Event classes of the runtime table that are calls; others repeat them (67: backtraces)."""

OSRT_CALL = 27

COPY_KINDS = {
    0: "unknown", 1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array",
    4: "Array-to-Host", 5: "Array-to-Array", 6: "Array-to-Device", 7: "Device-to-Array",
    8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer", 11: "Unified Host-to-Device",
    12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip
SYNC_KINDS = {
    1: "Event Synchronize",
    2: "Stream Wait Event",
    3: "Stream Synchronize",
    4: "Context Synchronize",
}
NO_STREAM = 0xFFFFFFFF

NVTX_MARK, NVTX_PUSH_POP, NVTX_START_END = 34, 59, 60
NVTX_RANGES = (NVTX_PUSH_POP, NVTX_START_END, 70)
NVTX_MARKS = (NVTX_MARK, 71)

_NAMELESS = "(no name)"


@dataclass
class Report:
    """One process of a report being read.

    Attributes:
        offset_ns: what is added to every stamp (0: stamps are kept as they are).
        launches:  runtime calls: correlation id -> event row.
        targets:   device rows: (correlation ids, event rows) of each table.
    """

    database: Database
    build: TraceBuilder
    process: Process
    comm_words: Sequence[str] = ()
    strings: Mapping[int, str] = field(default_factory=dict)
    launches: tuple[I64, I64] = field(default_factory=lambda: (_NONE, _NONE))
    targets: list[tuple[I64, I64]] = field(default_factory=list)

    def rows(self, table: str, wanted: Mapping[str, int], owner: str) -> dict[str, Column]:
        """Columns of a table, only the rows of this process (``owner`` is its id column)."""
        columns = self.database.columns(table, {**wanted, owner: 0})
        pids = pid_of(columns[owner])
        mine = np.isin(pids, (self.process.pid, *self.process.others))
        return {name: column[mine] for name, column in columns.items()}

    def args(self, table: str, told: Mapping[str, tuple[str, Values]]) -> NDArray[np.int32]:
        """Arguments of rows: key -> (the column it comes from, values). What the table has no
        column for is left out, not made up.
        """
        there = self.database.tables.get(table, ())
        known = {key: values for key, (column, values) in told.items() if column in there}
        if not known:
            return np.full(max(len(values) for _, values in told.values()), -1, np.int32)
        return register(self.build, known)

    def texts(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """String ids of the trace for string ids of the report."""
        distinct, back = np.unique(ids, return_inverse=True)
        table = [self.build.string(self.strings.get(i, _NAMELESS)) for i in distinct.tolist()]
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


_NONE: I64 = np.empty(0, np.int64)

_TIMES = {"start": -1, "end": -1}
_PLACE = {"deviceId": -1, "contextId": -1, "streamId": NO_STREAM, "correlationId": -1}


def device_tables(report: Report) -> None:
    """Kernels, copies, memory sets, graph launches and synchronisations."""
    _kernels(report)
    _copies(report)
    _sets(report)
    _graphs(report)
    _syncs(report)


def _kernels(report: Report) -> None:
    wanted = {
        **_TIMES, **_PLACE, "demangledName": -1, "shortName": -1, "registersPerThread": 0,
        "gridX": 0, "gridY": 0, "gridZ": 0, "blockX": 0, "blockY": 0, "blockZ": 0,
        "staticSharedMemory": 0, "dynamicSharedMemory": 0,
    }  # fmt: skip
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    rows, dur = report.timed(report.rows(table, wanted, "globalPid"), table)
    ids = np.where(rows["demangledName"] >= 0, rows["demangledName"], rows["shortName"])
    distinct, back = np.unique(ids, return_inverse=True)
    classes = [
        kernel_class(report.strings.get(i, ""), report.comm_words) for i in distinct.tolist()
    ]
    op = np.array(classes, np.int8)[back] if classes else np.empty(0, np.int8)
    shared = rows["staticSharedMemory"] + rows["dynamicSharedMemory"]
    told = {
        **_common(rows),
        "grid": ("gridX", _triples(rows, "grid")),
        "block": ("blockX", _triples(rows, "block")),
        "registers per thread": ("registersPerThread", rows["registersPerThread"]),
        "shared memory": ("staticSharedMemory", shared),
    }
    args = report.args(table, told)
    _placed(report, rows, dur, report.texts(ids), op, args)


def _triples(rows: Mapping[str, Column], what: str) -> list[bytes]:
    columns = (rows[what + axis].tolist() for axis in "XYZ")
    return [b"[%d,%d,%d]" % xyz for xyz in zip(*columns, strict=True)]


def _copies(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    wanted = {**_TIMES, **_PLACE, "bytes": 0, "copyKind": 0}
    rows, dur = report.timed(report.rows(table, wanted, "globalPid"), table)
    names = _labelled(report, rows["copyKind"], lambda k: f"Memcpy {COPY_KINDS.get(k, k)}")
    told = {
        **_common(rows),
        "bytes": ("bytes", rows["bytes"]),
        "kind": ("copyKind", named(rows["copyKind"], COPY_KINDS)),
    }
    args = report.args(table, told)
    _placed(report, rows, dur, names, OpClass.COPY, args)


def _sets(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_MEMSET"
    wanted = {**_TIMES, **_PLACE, "bytes": 0, "value": 0}
    rows, dur = report.timed(report.rows(table, wanted, "globalPid"), table)
    told = {**_common(rows), "bytes": ("bytes", rows["bytes"]), "value": ("value", rows["value"])}
    args = report.args(table, told)
    _placed(report, rows, dur, report.build.string("Memset"), OpClass.COPY, args)


def _graphs(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    wanted = {**_TIMES, **_PLACE, "graphId": -1}
    rows, dur = report.timed(report.rows(table, wanted, "globalPid"), table)
    names = _labelled(report, rows["graphId"], lambda g: f"CUDA Graph {g}")
    args = report.args(table, {**_common(rows), "graph": ("graphId", rows["graphId"])})
    _placed(report, rows, dur, names, OpClass.COMPUTE, args)


def _syncs(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    wanted = {**_TIMES, **_PLACE, "syncType": 0}
    rows, dur = report.timed(report.rows(table, wanted, "globalPid"), table)
    names = _labelled(report, rows["syncType"], lambda k: SYNC_KINDS.get(k, f"Synchronize {k}"))
    args = report.args(table, _common(rows))
    _placed(report, rows, dur, names, OpClass.WAIT, args)


def _common(rows: Mapping[str, Column]) -> dict[str, tuple[str, Values]]:
    """Arguments of every device row."""
    return {
        "device": ("deviceId", rows["deviceId"]),
        "context": ("contextId", rows["contextId"]),
        "stream": ("streamId", rows["streamId"]),
        "correlation": ("correlationId", rows["correlationId"]),
    }


def _labelled(report: Report, codes: Column, label: Callable[[int], str]) -> NDArray[np.int32]:
    distinct, back = np.unique(codes, return_inverse=True)
    table = [report.build.string(label(int(c))) for c in distinct]
    return np.array(table, np.int32)[back] if table else np.empty(0, np.int32)


def _placed(
    report: Report,
    rows: Mapping[str, Column],
    dur: I64,
    names: NDArray[np.int32] | int,
    op: NDArray[np.int8] | OpClass,
    args: NDArray[np.int32],
) -> None:
    """Put device rows on their streams; communication kernels on the lanes of NCCL."""
    n = len(rows["start"])
    ops = np.full(n, op, np.int8) if isinstance(op, OpClass) else op
    single = report.process.device >= 0
    key = np.stack((rows["deviceId"], rows["streamId"], ops == OpClass.COMM), axis=1)
    distinct, back = np.unique(key, axis=0, return_inverse=True)
    tracks = [
        _track(report.build, int(d), int(s), bool(c), single) for d, s, c in distinct.tolist()
    ]
    track = np.array(tracks, np.int32)[back.ravel()] if tracks else np.empty(0, np.int32)
    first = report.build.extend(
        track=track, start_ns=rows["start"], dur_ns=dur, name=names, op=ops, args=args
    )
    report.targets.append((rows["correlationId"], np.arange(first, first + n)))


def _track(build: TraceBuilder, device: int, stream: int, comm: bool, single: bool) -> int:
    group = "" if single or device < 0 else f"GPU {device}"
    name = "No stream" if stream == NO_STREAM else f"Stream {stream}"
    if comm:
        return build.track(Layer.COMM, name, group, "NCCL")
    return build.track(Layer.DEVICE, name, group, "GPU Hardware")


def runtime(report: Report) -> None:
    """CUDA runtime and driver calls; copies of calls that carry backtraces are left out."""
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    wanted = {**_TIMES, "eventClass": 0, "correlationId": -1, "nameId": -1, "returnValue": 0}
    rows = report.rows(table, wanted, "globalTid")
    call = np.isin(rows["eventClass"], CALL_CLASSES)
    report.build.seen("slice", int((~call).sum()))
    report.build.skip("repeated-content", f"table {table}", int((~call).sum()), "slice")
    rows, dur = report.timed({k: c[call] for k, c in rows.items()}, table)
    args = register(
        report.build, {"correlation": rows["correlationId"], "result": rows["returnValue"]}
    )
    first = report.build.extend(
        track=_threads(report, rows["globalTid"], Layer.RUNTIME, "CUDA"),
        start_ns=rows["start"],
        dur_ns=dur,
        name=report.texts(rows["nameId"]),
        op=OpClass.HOST,
        args=args,
    )
    report.launches = (rows["correlationId"], np.arange(first, first + len(dur)))


def os_runtime(report: Report) -> None:
    """Calls into the operating system."""
    wanted = {**_TIMES, "eventClass": OSRT_CALL, "nameId": -1}
    rows = report.rows("OSRT_API", wanted, "globalTid")
    call = rows["eventClass"] == OSRT_CALL
    report.build.skip("metadata-unused", "table OSRT_API", int((~call).sum()))
    rows, dur = report.timed({k: c[call] for k, c in rows.items()}, "OSRT_API")
    report.build.extend(
        track=_threads(report, rows["globalTid"], Layer.RUNTIME, "OS Runtime"),
        start_ns=rows["start"],
        dur_ns=dur,
        name=report.texts(rows["nameId"]),
        op=OpClass.HOST,
    )


def nvtx(report: Report) -> None:
    """Ranges and marks of NVTX, on their threads; ranges that name a step carry its number.

    A range that was still open when collection stopped is closed at the last stamp of the table.
    """
    wanted = {**_TIMES, "eventType": 0, "textId": -1, "domainId": 0}
    rows = report.rows("NVTX_EVENTS", {**wanted, "rowid": -1}, "globalTid")
    inline = report.database.texts("NVTX_EVENTS", "rowid", "text")
    span = np.isin(rows["eventType"], NVTX_RANGES)
    mark = np.isin(rows["eventType"], NVTX_MARKS)
    other = ~span & ~mark & (rows["eventType"] != NVTX_THREAD_NAME)
    report.build.skip("metadata-unused", "table NVTX_EVENTS", int(other.sum()))
    last = int(max(rows["end"].max(initial=0), rows["start"].max(initial=0)))
    open_ = span & (rows["end"] < 0)
    report.build.skip("unfinished-slice", "table NVTX_EVENTS", int(open_.sum()))
    rows["end"][open_] = last
    domains = _domains(report, rows, inline)
    for which, kind in ((span, Kind.SLICE), (mark, Kind.INSTANT)):
        part = {name: column[which] for name, column in rows.items()}
        word = "slice" if kind is Kind.SLICE else "instant"
        part, dur = report.timed(part, "NVTX_EVENTS", word)
        texts = [
            inline.get(r) or report.strings.get(t, _NAMELESS)
            for r, t in zip(part["rowid"].tolist(), part["textId"].tolist(), strict=True)
        ]
        report.build.extend(
            track=_nvtx_tracks(report, part, domains),
            kind=kind,
            start_ns=part["start"],
            dur_ns=dur if kind is Kind.SLICE else 0,
            name=np.array([report.build.string(t) for t in texts], np.int32),
            op=OpClass.HOST,
            step=np.array([step_number(t) for t in texts], np.int32),
        )


NVTX_DOMAIN = 75


def _domains(
    report: Report, rows: Mapping[str, Column], inline: Mapping[int, str]
) -> dict[int, str]:
    """Names of the domains; the default one has none."""
    found = {}
    for i in np.flatnonzero(rows["eventType"] == NVTX_DOMAIN).tolist():
        text = inline.get(int(rows["rowid"][i])) or report.strings.get(int(rows["textId"][i]), "")
        found[int(rows["domainId"][i])] = text
    return found


def _nvtx_tracks(
    report: Report, rows: Mapping[str, Column], domains: Mapping[int, str]
) -> NDArray[np.int32]:
    """A lane per thread and domain."""
    key = np.stack((rows["globalTid"], rows["domainId"]), axis=1)
    distinct, back = np.unique(key, axis=0, return_inverse=True)
    tracks = [
        _thread_track(report, tid, Layer.HOST, f"NVTX {domains.get(d, '')}".strip())
        for tid, d in distinct.tolist()
    ]
    return np.array(tracks, np.int32)[back.ravel()] if tracks else np.empty(0, np.int32)


def _threads(report: Report, ids: Column, layer: Layer, title: str) -> NDArray[np.int32]:
    distinct, back = np.unique(ids, return_inverse=True)
    tracks = [_thread_track(report, t, layer, title) for t in distinct.tolist()]
    return np.array(tracks, np.int32)[back] if tracks else np.empty(0, np.int32)


def _thread_track(report: Report, global_tid: int, layer: Layer, title: str) -> int:
    pid, tid = (global_tid >> 24) & 0xFFFFFF, global_tid & 0xFFFFFF
    group = "" if pid == report.process.pid else f"Process {pid}"
    return report.build.track(layer, f"Thread {tid}", group, title)


def arrows(report: Report) -> None:
    """Launch arrows: from the call to every device row of its correlation id.

    Device rows without a call (it lies outside the window) are booked.
    """
    calls, rows = report.launches
    order = np.argsort(calls, kind="stable")
    calls, rows = calls[order], rows[order]
    name = report.build.string("launch")
    for ids, targets in report.targets:
        asked = ids >= 0
        at = np.minimum(np.searchsorted(calls, ids), max(len(calls) - 1, 0))
        found = asked & (calls[at] == ids if len(calls) else np.zeros(len(ids), bool))
        report.build.seen("flow", int(asked.sum()))
        report.build.skip("flow-unbound", "no launching call", int((asked & ~found).sum()), "flow")
        report.build.flows(src=rows[at[found]], dst=targets[found], name=name)
