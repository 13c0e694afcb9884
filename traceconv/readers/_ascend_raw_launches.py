"""Tasks the host launched, joined with the records the layers above made about them.

A record of ``task_track`` is made by the thread that launches, within the calls that led to it.
Operators, communication and copies are told in records of their own, made within the same calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.model import I64
from traceconv.readers._ascend_db_codes import combined, lookup, picked
from traceconv.readers._ascend_raw_api import (
    HCCL,
    MODEL,
    NODE,
    RUNTIME,
    STEP_INFO,
    Around,
    Calls,
    turns,
)
from traceconv.readers._ascend_raw_clock import Clock
from traceconv.readers._ascend_raw_pairs import combined_key
from traceconv.readers._ascend_raw_records import Dictionary, HostFiles

_NO_CONTEXT = 4294967295
_FUSED = 6
"""What ``node_basic_info`` says of the task that holds fused ones; it is no operator."""
_OF_DPU = 1
"""In the upper bits of a device number."""
_COMPUTE = ("KERNEL_AICORE", "KERNEL_AIVEC", "KERNEL_AICPU", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV")
"""Kernels that compute even where no operator launched them."""

Bools = NDArray[np.bool_]


class Launches:
    """The records of one folder, as columns by name.

    Attributes:
        calls: of CANN.
        names: what hashes stand for.
        operators, collectives, parts, copies: records of their kind, in the order of time.
        tasks: ``device, stream, task, batch, kind, kernel, start_ns`` of every task and subtask
            with ``context`` (-1: a task), and indices, -1 for none: ``node, hccl, model, runtime,
            other`` into the calls around its launch; ``operator, collective, told, copy`` into
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

    def _steps(self, calls: Calls) -> Bools:
        codes, table = combined(calls.level, calls.type)
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
        kinds, table = combined(rows["kind"])
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
        told = lookup(self.operators["call"][real], rows["node"])
        told = np.where(rows["node"] >= 0, told, -1)
        rows["operator"] = picked(real, told)
        collective = lookup(self.collectives["call"], rows["node"])
        rows["collective"] = np.where(rows["node"] >= 0, collective, -1)
        rows["told"] = self._told_part(rows)
        rows["copy"] = _by_turn(self.copies, rows["call"], rows["start_ns"], copies)
        rows["context"] = np.full(len(kinds), -1, np.int64)

    def kind_name(self, number: int) -> str:
        """The host's name for what a task is; its number if the dictionary lacks it."""
        return self.names.type_name(RUNTIME, number) or str(number % (1 << 64))

    def _lccl(self, node: I64) -> Bools:
        """Whether the call belongs to a library whose kernels are no operators."""
        item = picked(self.calls.item, node)
        codes, table = combined(np.where(node >= 0, item, 0))
        found = [self.names.hashes.get(i, "").startswith("Lccl") for (i,) in table]
        return np.array(found, bool)[codes]

    def _told_part(self, rows: Mapping[str, I64]) -> I64:
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
        return {**found, "told": at, "context": self.parts["context"][at]}

    def _of_operators(self, rows: Mapping[str, I64]) -> dict[str, I64]:
        """Subtasks of operators that were fused into one task."""
        outside = np.where((rows["computes"] > 0) & (rows["hccl"] < 0), rows["node"], -1)
        said = self._contexts["contexts"]
        count = np.minimum(self._contexts["count"], said.shape[1])
        record, place = np.nonzero(np.arange(said.shape[1]) < count[:, None])
        task = _last(outside, self._contexts["call"][record])
        task = np.where(self._contexts["call"][record] >= 0, task, -1)
        record, place, task = record[task >= 0], place[task >= 0], task[task >= 0]
        found = {name: column[task] for name, column in rows.items()}
        call, op = self._contexts["call"][record], self._contexts["op"][record]
        basic = self.operators
        n = len(basic["op"])
        keys = combined_key(
            np.concatenate((basic["call"], call)), np.concatenate((basic["op"], op))
        )
        return {**found, "operator": lookup(keys[:n], keys[n:]), "context": said[record, place]}


def _is_kernel(name: str) -> bool:
    return name.startswith("KERNEL") or name == "STARS_COMMON"


def _by_turn(records: Mapping[str, I64], call: I64, time_ns: I64, which: Bools) -> I64:
    """For the chosen rows a record of the same call: for the k-th row the k-th record, -1."""
    theirs = np.flatnonzero(records["call"] >= 0)
    mine = np.flatnonzero(which & (call >= 0))
    key = np.concatenate((records["call"][theirs], call[mine]))
    side = np.concatenate((np.zeros(len(theirs), np.int64), np.ones(len(mine), np.int64)))
    time = np.concatenate((records["start_ns"][theirs], time_ns[mine]))
    order, turn = turns(key * 2 + side, time)
    nth = np.empty(len(key), np.int64)
    nth[order] = turn
    keys = combined_key(key, nth)
    at = lookup(keys[: len(theirs)], keys[len(theirs) :])
    found = np.full(len(call), -1, np.int64)
    found[mine] = picked(theirs, at)
    return found


def _last(keys: I64, wanted: I64) -> I64:
    """Where each of ``wanted`` last stands in ``keys``; -1 = nowhere."""
    at = lookup(keys[::-1], wanted)
    return np.where(at >= 0, len(keys) - 1 - at, -1)


def _stacked(parts: Sequence[Mapping[str, I64]]) -> dict[str, I64]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
