"""The host's side of raw data: the timeline of CANN, and what was launched from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.model import I8, I32, I64, OpClass
from traceconv.readers import _ascend_ops as ops
from traceconv.readers._ascend_db_codes import Columns, combined, label, number, picked, text
from traceconv.readers._ascend_db_export import graphs
from traceconv.readers._ascend_raw_api import read_calls
from traceconv.readers._ascend_raw_clock import Clock
from traceconv.readers._ascend_raw_host_codes import (
    COPY_DIRECTIONS,
    DATA_TYPES,
    LINKS,
    RDMA,
    TRANSPORTS,
    UNITS,
)
from traceconv.readers._ascend_raw_launches import Launches
from traceconv.readers._ascend_raw_records import Dictionary, HostFiles
from traceconv.source import Source

_COLLECTIVE = (9, 11)
"""What ``node_basic_info`` says of operators that communicate."""


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
        unit:      string id of what carries it out ("AI_CORE"); -1 = not said.
        op:        its class.
        graph:     -1 = none.
        row:       event row of the launching call, as ``TraceBuilder.extend`` numbers them; -1.
            Parts of one communication have the same.
        group:     string id of its communication group, as the profiler names it (that may spell
            an address: see ``group_titles``); -1.
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
        group = picked(self._all.parts["group"], rows["told"])
        group = np.where(
            group == -1, picked(self._all.collectives["group"], rows["collective"]), group
        )
        group = np.where(collective, group, -1)
        plane = picked(self._all.parts["plane"], rows["told"])
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
            rows["told"] >= 0,
            picked(self._all.parts["item"], rows["told"]),
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
        """String ids of what codes stand for; -1 for ""."""
        back, table = combined(codes)
        said = [spelled(*row) for row in table]
        ids = [self._build.string(text) if text else -1 for text in said]
        return np.array(ids, np.int32)[back]

    def _classes(self, rows: Mapping[str, I64], unit: I64) -> I8:
        codes, table = combined(rows["kind"], unit, rows["computes"], rows["part"], rows["alone"])
        return np.array([self._class(*row) for row in table], np.int8)[codes]

    def _class(self, kind: int, unit: int, computes: int, part: int, alone: int) -> OpClass:
        if part or unit in _COLLECTIVE:
            return OpClass.COMM_TASK
        if computes:
            return ops.BY_TASK_TYPE.get(UNITS.get(unit, ""), OpClass.COMPUTE)
        named = ops.task_named(self._all.kind_name(kind))
        return OpClass.COMPUTE if alone else named.op if named else OpClass.OTHER

    def _arguments(self, rows: Mapping[str, I64], unit: I64) -> Columns:
        """Members that the profiler's own JSON has, too."""
        of_part = {key: picked(self._all.parts[key], rows["told"]) for key in self._all.parts}
        of_op = {
            key: picked(self._all.operators[key], rows["operator"]) for key in self._all.operators
        }
        of_all = {
            key: picked(self._all.collectives[key], rows["collective"])
            for key in self._all.collectives
        }
        copy = {key: picked(self._all.copies[key], rows["copy"]) for key in self._all.copies}
        hashed = text(self._all.names.hashes)
        said = unit >= 0
        return {
            "Op Type": (np.where(said, of_op["op_type"], 0), hashed),
            "Block Num": (np.where(said, of_op["blocks"] & 0xFFFF, -1), number),
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
