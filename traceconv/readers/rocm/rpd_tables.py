"""The tables of an RPD database, those of one process of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Layer, OpClass
from traceconv.core.ordering import distinct, factored
from traceconv.readers.rocm.process import ROCTX, Process, Spans, registered
from traceconv.readers.shared.arguments import lookup, number, picked, tracks
from traceconv.readers.shared.gpu_kernels import step_number
from traceconv.readers.shared.sqlite.database import Column, Database

_MARKER = "UserMarker"
_OVERHEAD = ("hcc_activity_callback",)
_WRITER = "Table::writeRows"
_SHAPE = ("gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ")


class Reading:
    """Reads one process into ``build``.

    Args:
        pid:   of the process; -1 if the database names none.
        first: whether what is of no process is its.
    """

    def __init__(self, build: TraceBuilder, database: Database, pid: int, first: bool) -> None:
        self._build, self._database, self._pid, self._first = build, database, pid, first
        self._process = Process(build, lambda gpu: f"GPU {gpu}", lambda tid: f"Thread {tid}")

    def read(self) -> None:
        """Put everything into the trace."""
        calls, rows = self._calls()
        self._operations(calls, rows)
        if self._first:
            self._monitors()

    def _texts(self, ids: I64) -> dict[int, str]:
        wanted = distinct(ids[ids >= 0])
        found = self._database.texts("rocpd_string", "id", "string", wanted)
        more = self._database.texts("rocpd_ustring", "id", "string", wanted)
        return {**more, **found}

    def _named(self, ids: I64, texts: dict[int, str], otherwise: str) -> I32:
        codes, back = factored(ids)
        table = [self._build.string(texts.get(i) or otherwise) for i in codes.tolist()]
        return np.array(table, np.int32)[back] if table else np.empty(0, np.int32)

    # -- calls -------------------------------------------------------------------------------

    def _calls(self) -> tuple[dict[str, Column], I64]:
        """Add the calls; their columns, and their rows in the trace."""
        requested = {
            "id": -1, "pid": -1, "tid": -1, "start": -1, "end": -1, "apiName_id": -1, "args_id": -1,
        }  # fmt: skip
        every = self._database.columns("rocpd_api", requested)
        mine = every["pid"] == self._pid
        if self._first:
            mine |= every["pid"] < 0
        calls = {name: column[mine] for name, column in every.items()}
        build = self._build
        texts = self._texts(calls["apiName_id"])
        names = self._named(calls["apiName_id"], texts, "(no name)")
        ids = {text: i for i, text in texts.items()}
        marked = calls["apiName_id"] == ids.get(_MARKER, -2)
        said = self._texts(calls["args_id"][marked])
        names[marked] = self._named(calls["args_id"][marked], said, _MARKER)
        own = np.isin(
            calls["apiName_id"],
            [i for i, text in texts.items() if text in _OVERHEAD or text.endswith(_WRITER)],
        )
        spans = Spans(calls["start"], calls["end"], "table rocpd_api")
        at = np.flatnonzero(spans.usable(build))
        shape = self._launches(calls["id"])

        def track(tid: int, marker: int, profiler: int) -> int:
            if profiler:
                return build.track(Layer.OTHER, f"Thread {tid}", "", "Profiler")
            if marker:
                return build.track(Layer.HOST, f"Thread {tid}", "", ROCTX)
            return build.track(Layer.RUNTIME, f"Thread {tid}", "", "HIP")

        codes, back = factored(names)
        steps = np.array([step_number(build.strings[i]) for i in codes.tolist()], np.int32)
        sort = (calls["tid"][at], marked[at].astype(np.int64), own[at].astype(np.int64))
        first = build.extend(
            track=tracks(sort, track),
            start_ns=calls["start"][at],
            dur_ns=calls["end"][at] - calls["start"][at],
            name=names[at],
            op=np.where(own[at], OpClass.OTHER, OpClass.HOST).astype(np.int8),
            step=np.where(marked, steps[back] if len(codes) else -1, -1).astype(np.int32)[at],
            args=registered(
                build,
                {"id": (calls["id"][at], number)},
                [shape.get(i, b"") for i in calls["id"][at].tolist()],
            ),
        )
        if marked.any():
            build.hints.range_lanes = [ROCTX]
        rows = np.full(len(names), -1, np.int64)
        rows[at] = np.arange(first, first + len(at))
        return calls, rows

    def _launches(self, ids: I64) -> dict[int, bytes]:
        """What is known of launches by the number of the call, each with a comma before it."""
        found: dict[int, bytes] = {}
        rows = self._database.columns(
            "rocpd_kernelapi", {"api_ptr_id": -1, **dict.fromkeys(_SHAPE, -1)}
        )
        columns = (rows[name].tolist() for name in ("api_ptr_id", *_SHAPE))
        for call, *sizes in zip(*columns, strict=True):
            found[call] = b',"grid":[%d,%d,%d],"block":[%d,%d,%d]' % tuple(sizes)
        copies = self._database.columns("rocpd_copyapi", {"api_ptr_id": -1, "size": -1})
        for call, size in zip(copies["api_ptr_id"].tolist(), copies["size"].tolist(), strict=True):
            if size >= 0:
                found[call] = b',"bytes":%d' % size
        wanted = set(ids.tolist())
        return {call: text for call, text in found.items() if call in wanted}

    # -- operations --------------------------------------------------------------------------

    def _operations(self, calls: dict[str, Column], rows: I64) -> None:
        requested = {
            "id": -1, "gpuId": -1, "queueId": -1, "start": -1, "end": -1, "description_id": -1,
            "opType_id": -1,
        }  # fmt: skip
        every = self._database.columns("rocpd_op", requested)
        arrows = self._database.columns("rocpd_api_ops", {"api_id": -1, "op_id": -1})
        call = picked(arrows["api_id"], lookup(arrows["op_id"], every["id"]))
        mine = np.isin(call, calls["id"])
        if self._first:
            listed = self._database.columns("rocpd_api", {"id": -1})["id"]
            mine |= ~np.isin(call, listed)
        ops = {name: column[mine] for name, column in every.items()}
        call = call[mine]
        kinds = self._texts(ops["opType_id"])
        texts = self._texts(ops["description_id"])
        named = np.where(
            np.isin(ops["description_id"], [i for i, text in texts.items() if text]),
            ops["description_id"],
            ops["opType_id"],
        )
        names = self._named(named, {**kinds, **texts}, "(no name)")
        shape = self._launches(call)
        sort = np.array([_sort(kinds.get(i, "")) for i in ops["opType_id"].tolist()], np.int64)
        placed = np.full(len(call), -1, np.int64)
        for op in (None, OpClass.COPY, OpClass.WAIT):
            at = np.flatnonzero(sort == (-1 if op is None else int(op)))
            placed[at] = self._placed(at, ops, names, call, shape, op)
        here = np.isin(arrows["op_id"], ops["id"])
        source = picked(rows, lookup(calls["id"], arrows["api_id"][here]))
        target = picked(placed, lookup(ops["id"], arrows["op_id"][here]))
        self._process.pairs(source, target)

    def _placed(
        self,
        at: NDArray[np.intp],
        ops: dict[str, Column],
        names: I32,
        call: I64,
        shape: dict[int, bytes],
        op: OpClass | None,
    ) -> I64:
        def args(chosen: NDArray[np.intp]) -> I32:
            rows = at[chosen]
            more = [shape.get(i, b"") for i in call[rows].tolist()]
            queue = {"queue": (ops["queueId"][rows], number), "call": (call[rows], number)}
            return registered(self._build, queue, more)

        return self._process.work(
            Spans(ops["start"][at], ops["end"][at], "table rocpd_op"),
            names[at],
            ops["gpuId"][at],
            ops["queueId"][at],
            np.full(len(at), -1),
            args,
            op=op,
            lanes="Queue",
        )

    # -- monitors ----------------------------------------------------------------------------

    def _monitors(self) -> None:
        """Samples of clocks, power and the like."""
        database, build = self._database, self._build
        rows = database.columns("rocpd_monitor", {"id": -1, "start": -1, "deviceId": -1})
        if not len(rows["id"]):
            return
        named = {
            c: database.texts("rocpd_monitor", "id", c)
            for c in ("deviceType", "monitorType", "value")
        }
        ids = rows["id"].tolist()
        kinds = [named["deviceType"].get(i, "") for i in ids]
        what = [named["monitorType"].get(i, "monitor") for i in ids]
        found = [
            build.track(
                Layer.COUNTER, name, f"{kind.upper()} {device}".strip(), "Monitors", unit=""
            )
            for name, kind, device in zip(what, kinds, rows["deviceId"].tolist(), strict=True)
        ]
        values = np.array([_value(named["value"].get(i, "")) for i in ids], np.float64)
        self._process.samples(
            np.array(found, np.int32), rows["start"], values, "table rocpd_monitor"
        )


def _sort(kind: str) -> int:
    """What operations of a kind are; -1 for kernels, which are told by their names."""
    if kind.startswith(("Copy", "Fill")):
        return int(OpClass.COPY)
    return int(OpClass.WAIT) if kind.startswith(("Barrier", "Marker")) else -1


def _value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
