"""The device's and the runtime's tables of an Nsight Systems report, one process at a time.

Synchronisation records are shown beside the runtime's calls, a lane per stream, as those of PyTorch
are: they say how long the host, or another stream, waited for a stream, and last as long as the
call does. On the stream itself they would cross the kernels they wait for.

Kernels that communicate get what NCCL was asked for, by the call of NCCL that launched them. Such a
call is a range on the host of a few hundred ns; the kernel is launched within it, or, if calls are
grouped, somewhere between the outermost ``ncclGroupStart`` and its ``ncclGroupEnd``. What all calls
of a group move together is the size of its kernel if it launched one; of several kernels nothing
says which moved what, and none gets a size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I8, I32, I64, Layer, OpClass, Strings
from traceconv.core.ordering import distinct, factored, factored_rows
from traceconv.readers.nsight.nvtx import Ranges, hexadecimal
from traceconv.readers.nsight.payloads import BYTES, COMMUNICATOR, RANKS
from traceconv.readers.nsight.report import TIMES, Calls, Report
from traceconv.readers.shared.arguments import Values, named, register
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.sqlite.database import Column

CALL_CLASSES = (0, 1, 13, 26)
"""Event classes of the runtime table that are calls; others repeat them (67: backtraces)."""

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

PLACE = {"deviceId": -1, "contextId": -1, "streamId": NO_STREAM, "correlationId": -1}


def device_tables(report: Report) -> None:
    """Copies, memory sets, graph launches and synchronisations; for kernels see :func:`kernels`."""
    _copies(report)
    _sets(report)
    _graphs(report)
    _syncs(report)


def _copies(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    columns = {**TIMES, **PLACE, "bytes": 0, "copyKind": 0}
    rows, dur = report.timed(report.rows(table, columns, "globalPid"), table)
    names = report.labels(rows["copyKind"], lambda k: f"Memcpy {COPY_KINDS.get(k, k)}")
    arguments = {
        **common(rows),
        "bytes": ("bytes", rows["bytes"]),
        "kind": ("copyKind", named(rows["copyKind"], COPY_KINDS)),
    }
    args = report.args(table, arguments)
    placed(report, rows, dur, names, OpClass.COPY, args)


def _sets(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_MEMSET"
    columns = {**TIMES, **PLACE, "bytes": 0, "value": 0}
    rows, dur = report.timed(report.rows(table, columns, "globalPid"), table)
    arguments = {
        **common(rows),
        "bytes": ("bytes", rows["bytes"]),
        "value": ("value", rows["value"]),
    }
    args = report.args(table, arguments)
    placed(report, rows, dur, report.build.string("Memset"), OpClass.COPY, args)


def _graphs(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
    columns = {**TIMES, **PLACE, "graphId": -1}
    rows, dur = report.timed(report.rows(table, columns, "globalPid"), table)
    names = report.labels(rows["graphId"], lambda g: f"CUDA Graph {g}")
    args = report.args(table, {**common(rows), "graph": ("graphId", rows["graphId"])})
    placed(report, rows, dur, names, OpClass.COMPUTE, args)


def _syncs(report: Report) -> None:
    table = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    columns = {**TIMES, **PLACE, "syncType": 0}
    rows, dur = report.timed(report.rows(table, columns, "globalPid"), table)
    names = report.labels(rows["syncType"], lambda k: SYNC_KINDS.get(k, f"Synchronize {k}"))
    args = report.args(table, common(rows))
    placed(report, rows, dur, names, OpClass.WAIT, args)


def common(rows: Mapping[str, Column]) -> dict[str, tuple[str, Values]]:
    """Arguments of every device row."""
    return {
        "device": ("deviceId", rows["deviceId"]),
        "context": ("contextId", rows["contextId"]),
        "stream": ("streamId", rows["streamId"]),
        "correlation": ("correlationId", rows["correlationId"]),
    }


def placed(
    report: Report,
    rows: Mapping[str, Column],
    dur: I64,
    names: I32 | int,
    op: I8 | OpClass,
    args: I32,
    communicator: NDArray[np.uint64] | None = None,
) -> None:
    """Put device rows on their streams; kernels that communicate on the lanes of their library, by
    communicator where it is known (not 0), else by stream; waits beside the runtime."""
    n = len(rows["start"])
    ops = np.full(n, op, np.int8) if isinstance(op, OpClass) else op
    ids = np.zeros(n, np.uint64) if communicator is None else communicator
    titles, heading = _headings(report, ops, names)
    # a communicator is one lane, whatever streams it runs on
    stream = np.where(ids != 0, 0, rows["streamId"])
    lanes, which = factored_rows(rows["deviceId"], stream, heading, ids.view(np.int64))
    tracks = [_track(report, titles, *lane) for lane in lanes]
    track = np.array(tracks, np.int32)[which] if tracks else np.empty(0, np.int32)
    first = report.build.extend(
        track=track, start_ns=rows["start"], dur_ns=dur, name=names, op=ops, args=args
    )
    report.targets.append((rows["correlationId"], np.arange(first, first + n)))


_LANES = ("GPU Hardware", "GPU Synchronization")


def _headings(report: Report, ops: I8, names: I32 | int) -> tuple[list[str], I64]:
    """What heads lanes, ``_LANES`` first, and which of these heads the lane of each row."""
    titles = dict(zip(_LANES, (0, 1), strict=True))
    found = (ops == OpClass.WAIT).astype(np.int64)
    comm = np.flatnonzero(ops == OpClass.COMM)
    distinct, back = factored(np.broadcast_to(names, ops.shape)[comm])
    libraries = [lane_title(report.build.strings[i]) for i in distinct.tolist()]
    codes = [titles.setdefault(library, len(titles)) for library in libraries]
    found[comm] = np.array(codes, np.int64)[back]
    return [*titles], found


def _track(
    report: Report, titles: list[str], device: int, stream: int, heading: int, communicator: int
) -> int:
    group = "" if report.process.device >= 0 or device < 0 else f"GPU {device}"
    name = "No stream" if stream == NO_STREAM else f"Stream {stream}"
    if heading < len(_LANES):
        layer = Layer.RUNTIME if heading else Layer.DEVICE
        return report.build.track(layer, name, group, titles[heading])
    if communicator:
        name = f"Communicator 0x{communicator % (1 << 64):x}"
    return report.build.track(Layer.COMM, name, group, titles[heading])


def runtime(report: Report) -> None:
    """CUDA runtime and driver calls; copies of calls that carry backtraces are left out."""
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    columns = {**TIMES, "eventClass": 0, "correlationId": -1, "nameId": -1, "returnValue": 0}
    rows = report.rows(table, columns, "globalTid")
    call = np.isin(rows["eventClass"], CALL_CLASSES)
    report.build.seen("slice", int((~call).sum()))
    report.build.skip("repeated-content", f"table {table}", int((~call).sum()), "slice")
    rows, dur = report.timed({k: c[call] for k, c in rows.items()}, table)
    args = register(
        report.build, {"correlation": rows["correlationId"], "result": rows["returnValue"]}
    )
    first = report.build.extend(
        track=report.threads(rows["globalTid"], Layer.RUNTIME, "CUDA"),
        start_ns=rows["start"],
        dur_ns=dur,
        name=report.texts(rows["nameId"]),
        op=OpClass.HOST,
        args=args,
    )
    row = np.arange(first, first + len(dur))
    report.calls = Calls(rows["correlationId"], row, rows["start"], rows["globalTid"])


def arrows(report: Report) -> None:
    """Launch arrows: from the call to every device row of its correlation id.

    Device rows without a call (it is outside the window) are booked.
    """
    name = report.build.string("launch")
    for ids, targets in report.targets:
        call = report.calls.at(ids)
        asked, found = int((ids >= 0).sum()), call >= 0
        report.build.seen("flow", asked)
        lost = asked - int(found.sum())
        report.build.skip("flow-without-end", "no launching call", lost, "flow")
        report.build.flows(src=report.calls.row[call[found]], dst=targets[found], name=name)


TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"


@dataclass(frozen=True)
class Collective:
    """What NCCL says of kernels.

    Attributes:
        bytes:  int64 per kernel, -1 = not known.
        communicator: uint64 per kernel; ``known`` says which are.
        known:  bool per kernel.
        ranks:  ranks of communicators.
    """

    bytes: I64
    communicator: NDArray[np.uint64]
    known: NDArray[np.bool_]
    ranks: Mapping[int, int]


def kernels(report: Report, nccl: Issued | None, ranks: Mapping[int, int]) -> None:
    """Add the kernels.

    Args:
        nccl:  the calls of NCCL, if their sizes are known.
        ranks: ranks of communicators.
    """
    columns = {
        **TIMES, **PLACE, "demangledName": -1, "shortName": -1, "registersPerThread": 0,
        "gridX": 0, "gridY": 0, "gridZ": 0, "blockX": 0, "blockY": 0, "blockZ": 0,
        "staticSharedMemory": 0, "dynamicSharedMemory": 0,
    }  # fmt: skip
    rows, dur = report.timed(report.rows(TABLE, columns, "globalPid"), TABLE)
    ids = np.where(rows["demangledName"] >= 0, rows["demangledName"], rows["shortName"])
    names = report.texts(ids)
    distinct, back = factored(names)
    words, strings = report.comm_words, report.build.strings
    classes = [kernel_class(strings[i], words) for i in distinct.tolist()]
    op = np.array(classes, np.int8)[back] if classes else np.empty(0, np.int8)
    collective = _collective(report, rows, op, nccl, ranks)
    lane = collective.communicator * collective.known if collective else None
    placed(report, rows, dur, names, op, _kernel_args(report, rows, collective), lane)


def _collective(
    report: Report,
    rows: Mapping[str, Column],
    op: I8,
    nccl: Issued | None,
    ranks: Mapping[int, int],
) -> Collective | None:
    """What is known of the kernels that communicate, through the calls that launched them."""
    if nccl is None:
        return None
    calls = report.calls.at(np.where(op == OpClass.COMM, rows["correlationId"], -1))
    made = nccl.of_calls(report.calls, calls)
    alone = np.bincount(made[made >= 0], minlength=len(nccl.bytes)) == 1
    known = (made >= 0) & ~nccl.mixed[made]
    size = np.where((made >= 0) & alone[made], nccl.bytes[made], -1)
    return Collective(size, nccl.communicator[made], known, ranks)


def _kernel_args(report: Report, rows: Mapping[str, Column], collective: Collective | None) -> I32:
    """Arguments of kernels, a batch for each set of facts that is known of some."""
    n = len(rows["start"])
    facts = np.zeros(n, np.int8)
    if collective is not None and n:
        sized = (
            np.isin(collective.communicator, np.array([*collective.ranks], np.uint64))
            & collective.known
        )
        facts = (
            (collective.bytes >= 0)
            + 2 * collective.known.astype(np.int8)
            + 4 * sized.astype(np.int8)
        )
    args = np.full(n, -1, np.int32)
    for which in distinct(facts).tolist():
        at = np.flatnonzero(facts == which)
        part = {name: column[at] for name, column in rows.items()}
        arguments = {**common(part), **_kernel_facts(part)}
        if collective is not None:
            ids = collective.communicator[at]
            more: dict[str, Values] = {
                COMMUNICATOR: hexadecimal(ids),
                BYTES: collective.bytes[at],
                RANKS: np.array([collective.ranks.get(i, -1) for i in ids.tolist()], np.int64),
            }
            present = {COMMUNICATOR: which & 2, BYTES: which & 1, RANKS: which & 4}
            arguments.update({key: ("start", more[key]) for key, yes in present.items() if yes})
        args[at] = report.args(TABLE, arguments)
    return args


def _kernel_facts(rows: Mapping[str, Column]) -> dict[str, tuple[str, Values]]:
    """Arguments of kernels only."""
    shared = rows["staticSharedMemory"] + rows["dynamicSharedMemory"]
    return {
        "grid": ("gridX", _triples(rows, "grid")),
        "block": ("blockX", _triples(rows, "block")),
        "registers per thread": ("registersPerThread", rows["registersPerThread"]),
        "shared memory": ("staticSharedMemory", shared),
    }


def _triples(rows: Mapping[str, Column], what: str) -> list[bytes]:
    columns = (rows[what + axis].tolist() for axis in "XYZ")
    return [b"[%d,%d,%d]" % xyz for xyz in zip(*columns, strict=True)]


GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"


@dataclass(frozen=True)
class Issued:
    """Calls of NCCL that are carried out together, in the order of (thread, start).

    Attributes:
        thread:  serialized id.
        start_ns, end_ns: as in the report.
        bytes:   of all messages.
        communicator: their one communicator; ``mixed`` where there are several.
        mixed:   bool.
    """

    thread: I64
    start_ns: I64
    end_ns: I64
    bytes: I64
    communicator: NDArray[np.uint64]
    mixed: NDArray[np.bool_]

    def of_calls(self, calls: Calls, chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """What each of the chosen calls into the runtime was made for; -1 = none of these.

        Args:
            chosen: positions among the calls; -1 for none.
        """
        found = np.full(len(chosen), -1)
        there = np.flatnonzero(chosen >= 0)
        threads, start = calls.thread[chosen[there]], calls.start_ns[chosen[there]]
        for thread in distinct(self.thread).tolist():
            low, high = np.searchsorted(self.thread, [thread, thread + 1]).tolist()
            own = np.flatnonzero(threads == thread)
            at = low + np.searchsorted(self.start_ns[low:high], start[own], "right") - 1
            inside = (at >= low) & (start[own] <= self.end_ns[np.maximum(at, low)])
            found[there[own[inside]]] = at[inside]
        return found


def issued(ranges: Ranges, strings: Strings) -> Issued | None:
    """The calls of NCCL whose sizes are known; None if there are none."""
    size, communicator = _messages(ranges)
    rows = ranges.rows
    groups = _groups(ranges, strings)
    single = np.flatnonzero(size >= 0)
    if not len(single):
        return None
    thread = np.concatenate((groups[:, 0], rows["globalTid"][single]))
    start = np.concatenate((groups[:, 1], rows["start"][single]))
    end = np.concatenate((groups[:, 2], rows["end"][single]))
    call = np.concatenate((np.full(len(groups), -1), single))
    order = np.lexsort((call, start, thread))  # a group before its first call
    thread, start, end, call = thread[order], start[order], end[order], call[order]
    unit = _units(thread, start, end)
    first = np.flatnonzero(np.diff(unit, prepend=-1))
    bytes_ = np.add.reduceat(np.where(call >= 0, size[call], 0), first)
    low = np.minimum.reduceat(np.where(call >= 0, communicator[call], _LAST), first)
    high = np.maximum.reduceat(np.where(call >= 0, communicator[call], np.uint64(0)), first)
    some = np.maximum.reduceat(call, first) >= 0
    first, low, high = first[some], low[some], high[some]
    return Issued(thread[first], start[first], end[first], bytes_[some], low, low != high)


_LAST = np.uint64(2**64 - 1)


def _messages(ranges: Ranges) -> tuple[I64, NDArray[np.uint64]]:
    """Bytes (-1 = not known) and communicator of every range."""
    size = np.full(len(ranges.name), -1, np.int64)
    communicator = np.zeros(len(ranges.name), np.uint64)
    for group in ranges.payloads:
        if BYTES in group.values and COMMUNICATOR in group.values:
            size[group.at] = np.minimum(group.values[BYTES], np.uint64(1 << 50)).astype(np.int64)
            communicator[group.at] = group.values[COMMUNICATOR].astype(np.uint64)
    return size, communicator


def _groups(ranges: Ranges, strings: Strings) -> I64:
    """Thread, start and end of every outermost group, (n, 3). What the window cut off is none."""
    marks = {strings.intern(GROUP_START): 1, strings.intern(GROUP_END): -1}
    at = np.flatnonzero(np.isin(ranges.name, list(marks)))
    rows = ranges.rows
    at = at[np.lexsort((rows["start"][at], rows["globalTid"][at]))]
    found, depth, begun, last = [], 0, -1, None
    for thread, start, end, name in zip(
        *(rows[key][at].tolist() for key in ("globalTid", "start", "end")),
        ranges.name[at].tolist(),
        strict=True,
    ):
        if thread != last:
            depth, last = 0, thread
        step = marks[name]
        if step > 0 and depth == 0:
            begun = start
        if step < 0 and depth == 1:
            found.append((thread, begun, end))
        depth = max(depth + step, 0)
    return np.array(found, np.int64).reshape(-1, 3)


def _units(thread: I64, start: I64, end: I64) -> I64:
    """Numbers of runs of ranges that the first of each run holds; sorted by (thread, start)."""
    number, unit, holder, until = [], -1, None, -1
    for t, s, e in zip(thread.tolist(), start.tolist(), end.tolist(), strict=True):
        if t != holder or s > until:
            unit, holder, until = unit + 1, t, e
        number.append(unit)
    return np.array(number, np.int64)


def sizes_of(ranges: Ranges) -> Mapping[int, int]:
    """Ranks of every communicator whose making was seen."""
    found: dict[int, int] = {}
    for group in ranges.payloads:
        if RANKS in group.values and COMMUNICATOR in group.values:
            columns: list[NDArray[Any]] = [group.values[COMMUNICATOR], group.values[RANKS]]
            found.update(zip(*(c.tolist() for c in columns), strict=True))
    return found
