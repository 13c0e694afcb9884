"""The host's side of raw data: the timeline of CANN, and what was launched from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I8, I32, I64, Mask, OpClass
from traceconv.core.ordering import combined_key, factored_rows
from traceconv.core.source import Source
from traceconv.readers.ascend.db.export import graphs
from traceconv.readers.ascend.raw.clock import Clock
from traceconv.readers.ascend.raw.host_records import (
    HCCL,
    MODEL,
    NODE,
    RUNTIME,
    STEP_INFO,
    Around,
    Calls,
    Dictionary,
    HostFiles,
    read_calls,
)
from traceconv.readers.shared.arguments import (
    Columns,
    label,
    lookup,
    number,
    picked,
    text,
)
from traceconv.readers.shared.ascend_lanes import COPY_DIRECTIONS
from traceconv.readers.shared.ascend_tasks import OPERATORS, named_class
from traceconv.readers.shared.pairing import occurrences

UNITS = {
    0: "AI_CORE", 1: "AI_CPU", 2: "AI_VECTOR_CORE", 3: "WRITE_BACK", 4: "MIX_AIC", 5: "MIX_AIV",
    6: "FFTS_PLUS", 7: "DSA_SQE", 8: "DVPP", 9: "COMMUNICATION", 10: "FUSION", 11: "INVALID",
    256: "HCCL_AI_CPU",
}  # fmt: skip
"""What carries out an operator, as ``node_basic_info`` has it."""

_NO_TYPE = {255: "RESERVED", 4294967295: "INVALID_TYPE"}

DATA_TYPES = {
    0: "INT8", 1: "INT16", 2: "INT32", 3: "FP16", 4: "FP32", 5: "INT64", 6: "UINT64", 7: "UINT8",
    8: "UINT16", 9: "UINT32", 10: "FP64", 11: "BFP16", 12: "INT128", **_NO_TYPE,
}  # fmt: skip
"""Of the elements a communication moves."""

LINKS = {
    0: "ON_CHIP", 1: "HCCS", 2: "PCIE", 3: "ROCE", 4: "SIO", 5: "HCCS_SW", 6: "STANDARD_ROCE",
    **_NO_TYPE,
}  # fmt: skip
TRANSPORTS = {0: "SDMA", 1: "RDMA", 2: "LOCAL", **_NO_TYPE}
RDMA = {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD", **_NO_TYPE}

_NO_CONTEXT = 4294967295
_FUSED = 6
"""Unit in ``node_basic_info`` of the task that holds fused ones; it is no operator."""
_OF_DPU = 1
"""In the upper bits of a device number."""
_COMPUTE = ("KERNEL_AICORE", "KERNEL_AIVEC", "KERNEL_AICPU", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV")
"""Kernels that compute even where no operator launched them."""


class Launches:
    """The records of one folder, as columns by name.

    Attributes:
        calls: of CANN.
        names: the texts of hashes.
        operators, collectives, parts, copies: records of their kind, in the order of time.
        tasks: ``device, stream, task, batch, kind, kernel, start_ns`` of every task and subtask
            with ``context`` (-1: a task), and indices, -1 for none: ``node, hccl, model, runtime,
            other`` into the calls around its launch; ``operator, collective, part_info, copy`` into
            the records about it. Flags: ``computes`` (an operator), ``alone`` (a kernel no
            operator launched), ``part`` (of a communication).
    """

    def __init__(self, files: HostFiles, names: Dictionary, calls: Calls, clock: Clock) -> None:
        self._files, self.names, self.calls, self._clock = files, names, calls, clock
        self._node = Around(calls, (calls.level == NODE) & ~self._steps(calls))
        self._hccl = Around(calls, calls.level == HCCL)
        self._model = Around(calls, calls.level == MODEL)
        self._runtime = Around(calls, calls.level == RUNTIME)
        layers = (NODE, HCCL, MODEL, RUNTIME)
        self._other = Around(calls, ~np.isin(calls.level, layers))
        self._any = Around(calls, np.ones(len(calls), bool))
        self.operators = self._timed("compact.node_basic_info", self._node)
        self.collectives = self._timed("compact.hccl_op_info", self._node)
        self.parts = self._timed("additional.hccl_info", self._hccl)
        self.copies = self._timed("compact.memcpy_info", self._any)
        self._contexts = self._timed("additional.context_id_info", self._node)
        files.build.skip(
            "metadata-unused", "graph_id_map", len(files.columns("additional.graph_id_map")["time"])
        )
        rows = self._tracks()
        self._about(rows)
        self.tasks = _stacked([rows, self._of_parts(rows), self._of_operators(rows)])

    def _steps(self, calls: Calls) -> Mask:
        table, codes = factored_rows(calls.level, calls.type)
        marks = [self.names.type_name(*row) == STEP_INFO for row in table]
        return np.array(marks, bool)[codes]

    def _timed(self, kind: str, around: Around) -> dict[str, I64]:
        """Records of a kind in the order of time, with the call around each."""
        rows = self._files.columns(kind)
        time_ns = self._clock.host_ns(rows["time"])
        self._files.build.skip("bad-time", kind, int((time_ns < 0).sum()))
        order = np.argsort(time_ns, kind="stable")
        order = order[time_ns[order] >= 0]
        found = {name: column[order] for name, column in rows.items()}
        found["start_ns"] = time_ns[order]
        found["call"] = around.at(found["thread"], found["start_ns"])
        return found

    # -- tasks ----------------------------------------------------------------------------

    def _tracks(self) -> dict[str, I64]:
        """Tasks with the calls around each."""
        rows = self._timed("compact.task_track", self._any)
        strange = rows["device"] >> 12 == _OF_DPU
        self._files.build.skip("kind-not-read", "tasks of a DPU", int(strange.sum()))
        rows = {name: column[~strange] for name, column in rows.items()}
        rows["device"] = rows["device"] & 0xFFF
        at = (rows["thread"], rows["start_ns"])
        for layer in ("node", "hccl", "model", "runtime", "other"):
            rows[layer] = getattr(self, f"_{layer}").at(*at)
        return rows

    def _about(self, rows: dict[str, I64]) -> None:
        """What each task does, as indices into the other records; -1 for none."""
        table, kinds = factored_rows(rows["kind"])
        names = [self.kind_name(*row) for row in table]
        fused = np.array([name == "FFTS_PLUS" for name in names], bool)[kinds]
        kernel = np.array([_is_kernel(name) for name in names], bool)[kinds]
        alone = np.array([name in _COMPUTE for name in names], bool)[kinds]
        copies = np.array([name.startswith("MEMCPY") for name in names], bool)[kinds]
        outside = rows["hccl"] < 0
        rows["computes"] = (
            (rows["node"] >= 0) & (kernel | (fused & outside)) & ~self._lccl(rows["node"])
        ).astype(np.int64)
        rows["alone"] = ((rows["node"] < 0) & alone).astype(np.int64)
        rows["part"] = ((rows["node"] >= 0) & ~outside).astype(np.int64)
        real = np.flatnonzero(self.operators["unit"] != _FUSED)
        record = lookup(self.operators["call"][real], rows["node"])
        record = np.where(rows["node"] >= 0, record, -1)
        rows["operator"] = picked(real, record)
        collective = lookup(self.collectives["call"], rows["node"])
        rows["collective"] = np.where(rows["node"] >= 0, collective, -1)
        rows["part_info"] = self._part_info(rows)
        rows["copy"] = _by_turn(self.copies, rows["call"], rows["start_ns"], copies)
        rows["context"] = np.full(len(kinds), -1, np.int64)

    def kind_name(self, number: int) -> str:
        """The host's name for what a task is; its number if the dictionary lacks it."""
        return self.names.type_name(RUNTIME, number) or str(number % (1 << 64))

    def _lccl(self, node: I64) -> Mask:
        """Whether the call belongs to a library whose kernels are no operators."""
        item = picked(self.calls.item, node)
        table, codes = factored_rows(np.where(node >= 0, item, 0))
        found = [self.names.hashes.get(i, "").startswith("Lccl") for (i,) in table]
        return np.array(found, bool)[codes]

    def _part_info(self, rows: Mapping[str, I64]) -> I64:
        """For parts of a communication the record about it: of several in a call the k-th."""
        plain = np.flatnonzero(self.parts["context"] == _NO_CONTEXT)
        parts = {name: column[plain] for name, column in self.parts.items()}
        inside = rows["hccl"] >= 0
        return picked(plain, _by_turn(parts, rows["hccl"], rows["start_ns"], inside))

    # -- subtasks -------------------------------------------------------------------------

    def _of_parts(self, rows: Mapping[str, I64]) -> dict[str, I64]:
        """Subtasks of a communication, those a record tells about."""
        at = np.flatnonzero((self.parts["context"] != _NO_CONTEXT) & (self.parts["call"] >= 0))
        task = _last(rows["hccl"], self.parts["call"][at])
        at, task = at[task >= 0], task[task >= 0]
        found = {name: column[task] for name, column in rows.items()}
        return {**found, "part_info": at, "context": self.parts["context"][at]}

    def _of_operators(self, rows: Mapping[str, I64]) -> dict[str, I64]:
        """Subtasks of operators that were fused into one task."""
        outside = np.where((rows["computes"] > 0) & (rows["hccl"] < 0), rows["node"], -1)
        contexts = self._contexts["contexts"]
        count = np.minimum(self._contexts["count"], contexts.shape[1])
        # of the fixed number of places in a record, those that are filled
        record, place = np.nonzero(np.arange(contexts.shape[1]) < count[:, None])
        task = _last(outside, self._contexts["call"][record])
        task = np.where(self._contexts["call"][record] >= 0, task, -1)
        record, place, task = record[task >= 0], place[task >= 0], task[task >= 0]
        found = {name: column[task] for name, column in rows.items()}
        call, op = self._contexts["call"][record], self._contexts["op"][record]
        basic = self.operators
        # keys of both sides from one numbering, then taken apart again
        n = len(basic["op"])
        keys = combined_key(
            np.concatenate((basic["call"], call)), np.concatenate((basic["op"], op))
        )
        return {**found, "operator": lookup(keys[:n], keys[n:]), "context": contexts[record, place]}


def _is_kernel(name: str) -> bool:
    return name.startswith("KERNEL") or name == "STARS_COMMON"


def _by_turn(records: Mapping[str, I64], call: I64, time_ns: I64, which: Mask) -> I64:
    """For the chosen rows a record of the same call: for the k-th row the k-th record, -1."""
    theirs = np.flatnonzero(records["call"] >= 0)
    mine = np.flatnonzero(which & (call >= 0))
    # number records and rows of each call in the order of time, each side for itself
    key = np.concatenate((records["call"][theirs], call[mine]))
    side = np.concatenate((np.zeros(len(theirs), np.int64), np.ones(len(mine), np.int64)))
    time = np.concatenate((records["start_ns"][theirs], time_ns[mine]))
    order, turn = occurrences(key * 2 + side, time)
    nth = np.empty(len(key), np.int64)
    nth[order] = turn
    keys = combined_key(key, nth)  # call and number: equal for the two that belong together
    at = lookup(keys[: len(theirs)], keys[len(theirs) :])
    found = np.full(len(call), -1, np.int64)
    found[mine] = picked(theirs, at)
    return found


def _last(keys: I64, wanted: I64) -> I64:
    """The last position of each of ``wanted`` in ``keys``; -1 = nowhere."""
    at = lookup(keys[::-1], wanted)  # the first in reverse order
    return np.where(at >= 0, len(keys) - 1 - at, -1)


def _stacked(parts: Sequence[Mapping[str, I64]]) -> dict[str, I64]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


_COLLECTIVE = (9, 256)
"""Units in ``node_basic_info`` of operators that communicate."""


@dataclass(frozen=True)
class HostSide:
    """Launches in columns: the tasks in the order of time, then the subtasks of fused ones.

    Attributes:
        device:    local card.
        stream:    as the host numbers it.
        task, batch: lower and upper 16 bits of the task's number, which from chip 15 on is
            ``batch << 16 | task``; before, ``batch`` counts how often numbers had started anew.
        context:   of a subtask; -1 for a task.
        start_ns:  when it was launched.
        name:      string id of the operator, or of the communication it is a part of; -1 = none.
        part:      string id of what a part of a communication does ("Notify_Wait"); -1.
        kind:      string id of the host's name for what the task is ("KERNEL_AICORE").
        unit:      string id of what carries it out ("AI_CORE"); -1 = unknown.
        op:        its class.
        graph:     -1 = none.
        row:       event row of the launching call, as ``TraceBuilder.extend`` numbers them; -1.
            Parts of one communication have the same.
        group:     string id of its communication group, as the profiler names it (that may spell
            an address: see ``communicators``); -1.
        plane:     of its group; -1.
        arguments: members for the task's arguments, keyed as in the profiler's own JSON.
    """

    device: I64
    stream: I64
    task: I64
    batch: I64
    context: I64
    start_ns: I64
    name: I32
    part: I32
    kind: I32
    unit: I32
    op: I8
    graph: I32
    row: I64
    group: I32
    plane: I32
    arguments: Columns

    def __len__(self) -> int:
        return len(self.start_ns)


def read_host(build: TraceBuilder, source: Source, names: Sequence[str], clock: Clock) -> HostSide:
    """Put the timeline of CANN into ``build``.

    Args:
        names: the files of one ``host/data`` folder.

    Returns:
        What was launched, to be joined with what the device did.
    """
    files = HostFiles.among(source, names, build)
    dictionary = Dictionary.of(files)
    calls = read_calls(files, dictionary, clock)
    side = _Columns(Launches(files, dictionary, calls, clock), build).side()
    files.book_others()
    return side


class _Columns:
    """Spells out what was joined."""

    def __init__(self, launches: Launches, build: TraceBuilder) -> None:
        self._all, self._build = launches, build

    def side(self) -> HostSide:
        """Everything, with names."""
        rows = self._all.tasks
        unit = picked(self._all.operators["unit"], rows["operator"])
        unit = np.where(rows["computes"] > 0, unit, -1)
        name, part = self._named(rows)
        collective = (rows["part"] > 0) | np.isin(unit, _COLLECTIVE)
        group = picked(self._all.parts["group"], rows["part_info"])
        group = np.where(
            group == -1, picked(self._all.collectives["group"], rows["collective"]), group
        )
        group = np.where(collective, group, -1)
        plane = picked(self._all.parts["plane"], rows["part_info"])
        return HostSide(
            device=rows["device"],
            stream=rows["stream"],
            task=rows["task"],
            batch=rows["batch"],
            context=rows["context"],
            start_ns=rows["start_ns"],
            name=name,
            part=part,
            kind=self._interned(rows["kind"], self._all.kind_name),
            unit=self._interned(unit, lambda code: UNITS.get(code, str(code)) if code >= 0 else ""),
            op=self._classes(rows, unit),
            graph=graphs(picked(self._all.calls.item, rows["model"])),
            row=self._launching(rows),
            group=self._spelled(np.where(group == -1, 0, group), "group"),
            plane=np.where(plane < 1 << 31, plane, -1).astype(np.int32),
            arguments=self._arguments(rows, unit),
        )

    def _launching(self, rows: Mapping[str, I64]) -> I64:
        """The call an arrow starts at: that of the operator, else the program's own."""
        call = rows["node"]
        for layer in ("other", "hccl", "runtime"):
            call = np.where(call >= 0, call, rows[layer])
        return picked(self._all.calls.row, call)

    def _named(self, rows: Mapping[str, I64]) -> tuple[I32, I32]:
        """Names of operators, and of parts of communications."""
        item = self._all.calls.item
        own = picked(self._all.operators["op"], rows["operator"])
        whole = np.where(rows["operator"] >= 0, own, _picked_hash(item, rows["node"]))
        inside = rows["part"] > 0
        part = np.where(
            rows["part_info"] >= 0,
            picked(self._all.parts["item"], rows["part_info"]),
            _picked_hash(item, rows["hccl"]),
        )
        name = np.where((rows["computes"] > 0) | (rows["part"] > 0), whole, 0)
        name = np.where(rows["alone"] > 0, rows["kernel"], name)
        return self._spelled(name, "name"), self._spelled(np.where(inside, part, 0), "part")

    def _spelled(self, hashes: I64, what: str) -> I32:
        """String ids of hashes; -1 for 0."""
        named = self._all.names.names(hashes, f"task_track: {what}")
        return self._interned(hashes, lambda code: named.get(code, ""))

    def _interned(self, codes: I64, spelled: Callable[[int], str]) -> I32:
        """String ids of the texts of codes; -1 for ""."""
        table, back = factored_rows(codes)
        texts = [spelled(*row) for row in table]
        ids = [self._build.string(text) if text else -1 for text in texts]
        return np.array(ids, np.int32)[back]

    def _classes(self, rows: Mapping[str, I64], unit: I64) -> I8:
        facts = (rows["kind"], unit, rows["computes"], rows["part"], rows["alone"])
        table, codes = factored_rows(*facts)
        return np.array([self._class(*row) for row in table], np.int8)[codes]

    def _class(self, kind: int, unit: int, computes: int, part: int, alone: int) -> OpClass:
        if part or unit in _COLLECTIVE:
            return OpClass.COMM_TASK
        if computes:
            return OPERATORS.get(UNITS.get(unit, ""), OpClass.UNCLASSIFIED)
        if alone:
            return OpClass.COMPUTE
        op = named_class(self._all.kind_name(kind))
        return OpClass.UNCLASSIFIED if op is None else op

    def _arguments(self, rows: Mapping[str, I64], unit: I64) -> Columns:
        """Members that the profiler's own JSON has, too."""
        of_part = {key: picked(self._all.parts[key], rows["part_info"]) for key in self._all.parts}
        of_op = {
            key: picked(self._all.operators[key], rows["operator"]) for key in self._all.operators
        }
        of_all = {
            key: picked(self._all.collectives[key], rows["collective"])
            for key in self._all.collectives
        }
        copy = {key: picked(self._all.copies[key], rows["copy"]) for key in self._all.copies}
        hashed = text(self._all.names.hashes)
        known = unit >= 0
        return {
            "Op Type": (np.where(known, of_op["op_type"], 0), hashed),
            "Block Num": (np.where(known, of_op["blocks"] & 0xFFFF, -1), number),
            "src rank": (of_part["local_rank"], number),
            "dst rank": (of_part["remote_rank"], number),
            "transport type": (of_part["transport"], label(TRANSPORTS)),
            "size(Byte)": (of_part["bytes"], number),
            "data type": (of_part["data_type"], label(DATA_TYPES)),
            "link type": (of_part["link"], label(LINKS)),
            "rdma type": (of_part["rdma"], label(RDMA)),
            "notify_id": (of_part["notify"], number),
            "alg_type": (np.where(rows["part"] > 0, of_all["algorithm"], 0), hashed),
            "count": (np.where(rows["part"] > 0, of_all["count"], -1), number),
            "size(B)": (copy["bytes"], number),
            "operation": (copy["direction"], label(COPY_DIRECTIONS)),
        }


def _picked_hash(hashes: I64, at: I64) -> I64:
    """``hashes[at]``, 0 where ``at`` is -1."""
    return np.where(at >= 0, picked(hashes, at), 0)
