"""The host's side of raw data: the timeline of CANN, and what was launched from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Mask, OpClass
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
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.ascend_lanes import COPY_DIRECTIONS
from traceconv.readers.shared.ascend_tasks import OPERATORS, named_class
from traceconv.readers.shared.layouts import TableRows
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
    8: "UINT16", 9: "UINT32", 10: "FP64", 11: "BFP16", 12: "INT128", 14: "HIF8", 15: "FP8E4M3",
    16: "FP8E5M2", 17: "FP8E8M0", **_NO_TYPE,
}  # fmt: skip
"""Types of the elements that a communication moves; these enumerations are those of
``db_constant.h`` of Ascend/msprof, 2026-07."""

LINKS = {
    0: "ON_CHIP", 1: "HCCS", 2: "PCIE", 3: "ROCE", 4: "SIO", 5: "HCCS_SW", 6: "STANDARD_ROCE",
    7: "UB", 8: "UBoE",
    **_NO_TYPE,
}  # fmt: skip
TRANSPORTS = {0: "SDMA", 1: "RDMA", 2: "LOCAL", 3: "UB", 4: "ROCE", **_NO_TYPE}
RDMA = {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD", **_NO_TYPE}

_NO_CONTEXT = 4294967295
_FUSED = 6
"""Unit in ``node_basic_info`` of the task that holds fused ones."""
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
        table, codes = factored_rows(calls.level, calls.type)
        marks = np.array([names.type_name(*row) == STEP_INFO for row in table], bool)[codes]
        self._node = Around(calls, (calls.level == NODE) & ~marks)
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
        parts = [rows, self._of_parts(rows), self._of_operators(rows)]
        self.tasks = {name: np.concatenate([part[name] for part in parts]) for name in rows}

    def _timed(self, kind: str, around: Around) -> dict[str, I64]:
        """Records of a kind in the order of time, with the call around each."""
        rows = self._files.columns(kind)
        time_ns = self._clock.host_ns(rows["time"])
        self._files.build.skip("bad-time", kind, int((time_ns < 0).sum()))
        order = np.argsort(time_ns, kind="stable")
        order = order[time_ns[order] >= 0]
        timed = {name: column[order] for name, column in rows.items()}
        timed["start_ns"] = time_ns[order]
        timed["call"] = around.at(timed["thread"], timed["start_ns"])
        return timed

    # -- tasks ----------------------------------------------------------------------------

    def _tracks(self) -> dict[str, I64]:
        """Tasks with the calls around each."""
        rows = self._timed("compact.task_track", self._any)
        strange = rows["device"] >> 12 == _OF_DPU
        self._files.build.skip("kind-not-read", "tasks of a DPU", int(strange.sum()))
        rows = {name: column[~strange] for name, column in rows.items()}
        rows["device"] = rows["device"] & 0xFFF
        instants = (rows["thread"], rows["start_ns"])
        for layer in ("node", "hccl", "model", "runtime", "other"):
            rows[layer] = getattr(self, f"_{layer}").at(*instants)
        return rows

    def _about(self, rows: dict[str, I64]) -> None:
        """What each task does, as indices into the other records; -1 for none."""
        table, kinds = factored_rows(rows["kind"])
        names = [self.kind_name(*row) for row in table]
        fused = np.array([name == "FFTS_PLUS" for name in names], bool)[kinds]
        kernels = [name.startswith("KERNEL") or name == "STARS_COMMON" for name in names]
        kernel = np.array(kernels, bool)[kinds]
        alone = np.array([name in _COMPUTE for name in names], bool)[kinds]
        copies = np.array([name.startswith("MEMCPY") for name in names], bool)[kinds]
        outside = rows["hccl"] < 0
        item = picked(self.calls.item, rows["node"])
        items, codes = factored_rows(np.where(rows["node"] >= 0, item, 0))
        # kernels of LCCL do not count as operators
        is_operator = [not self.names.hashes.get(i, "").startswith("Lccl") for (i,) in items]
        computes = (
            (rows["node"] >= 0) & (kernel | (fused & outside)) & np.array(is_operator, bool)[codes]
        )
        rows["computes"] = computes.astype(np.int64)
        rows["alone"] = ((rows["node"] < 0) & alone).astype(np.int64)
        rows["part"] = ((rows["node"] >= 0) & ~outside).astype(np.int64)
        real = np.flatnonzero(self.operators["unit"] != _FUSED)
        record = lookup(self.operators["call"][real], rows["node"])
        record = np.where(rows["node"] >= 0, record, -1)
        rows["operator"] = picked(real, record)
        collective = lookup(self.collectives["call"], rows["node"])
        rows["collective"] = np.where(rows["node"] >= 0, collective, -1)
        # the k-th part of a call has the call's k-th record of parts
        plain = np.flatnonzero(self.parts["context"] == _NO_CONTEXT)
        parts = {name: column[plain] for name, column in self.parts.items()}
        inside = rows["hccl"] >= 0
        rows["part_info"] = picked(plain, _by_turn(parts, rows["hccl"], rows["start_ns"], inside))
        rows["copy"] = _by_turn(self.copies, rows["call"], rows["start_ns"], copies)
        rows["context"] = np.full(len(kinds), -1, np.int64)

    def kind_name(self, number: int) -> str:
        """The host's name for what a task is; its number if the dictionary lacks it."""
        return self.names.type_name(RUNTIME, number) or str(number % (1 << 64))

    # -- subtasks -------------------------------------------------------------------------

    def _of_parts(self, rows: Mapping[str, I64]) -> dict[str, I64]:
        """Subtasks of a communication, those a record tells about."""
        subtasks = np.flatnonzero(
            (self.parts["context"] != _NO_CONTEXT) & (self.parts["call"] >= 0)
        )
        task = _last(rows["hccl"], self.parts["call"][subtasks])
        subtasks, task = subtasks[task >= 0], task[task >= 0]
        task_columns = {name: column[task] for name, column in rows.items()}
        return {**task_columns, "part_info": subtasks, "context": self.parts["context"][subtasks]}

    def _of_operators(self, rows: Mapping[str, I64]) -> dict[str, I64]:
        """Subtasks of operators that were fused into one task."""
        outside = np.where((rows["computes"] > 0) & (rows["hccl"] < 0), rows["node"], -1)
        contexts = self._contexts["contexts"]
        count = np.minimum(self._contexts["count"], contexts.shape[1])
        # of the fixed number of places in a record, those that are filled
        record, slot = np.nonzero(np.arange(contexts.shape[1]) < count[:, None])
        task = _last(outside, self._contexts["call"][record])
        task = np.where(self._contexts["call"][record] >= 0, task, -1)
        record, slot, task = record[task >= 0], slot[task >= 0], task[task >= 0]
        task_columns = {name: column[task] for name, column in rows.items()}
        call, op = self._contexts["call"][record], self._contexts["op"][record]
        basic = self.operators
        # keys of both sides from one numbering, then taken apart again
        n = len(basic["op"])
        keys = combined_key(
            np.concatenate((basic["call"], call)), np.concatenate((basic["op"], op))
        )
        return {
            **task_columns,
            "operator": lookup(keys[:n], keys[n:]),
            "context": contexts[record, slot],
        }


def _by_turn(records: Mapping[str, I64], call: I64, time_ns: I64, chosen: Mask) -> I64:
    """For the chosen rows a record of the same call: for the k-th row the k-th record, -1."""
    record_rows = np.flatnonzero(records["call"] >= 0)
    task_rows = np.flatnonzero(chosen & (call >= 0))
    # number records and rows of each call in the order of time, each side for itself
    key = np.concatenate((records["call"][record_rows], call[task_rows]))
    side = np.concatenate((np.zeros(len(record_rows), np.int64), np.ones(len(task_rows), np.int64)))
    time = np.concatenate((records["start_ns"][record_rows], time_ns[task_rows]))
    order, turn = occurrences(key * 2 + side, time)
    nth = np.empty(len(key), np.int64)
    nth[order] = turn
    keys = combined_key(key, nth)  # call and number: equal for the two that belong together
    partners = lookup(keys[: len(record_rows)], keys[len(record_rows) :])
    record_of_row = np.full(len(call), -1, np.int64)
    record_of_row[task_rows] = picked(record_rows, partners)
    return record_of_row


def _last(keys: I64, queries: I64) -> I64:
    """The last position of each of ``queries`` in ``keys``; -1 = nowhere."""
    positions = lookup(keys[::-1], queries)  # the first in reverse order
    return np.where(positions >= 0, len(keys) - 1 - positions, -1)


_COLLECTIVE = (9, 256)
"""Units in ``node_basic_info`` of operators that communicate."""

ARGUMENTS = (
    "Op Type", "Block Num", "src rank", "dst rank", "transport type", "size(Byte)", "data type",
    "link type", "rdma type", "notify_id", "alg_type", "count", "size(B)", "operation",
)  # fmt: skip
"""Arguments of tasks that the profiler's own JSON has, too."""


def read_host(build: TraceBuilder, source: Source, names: Sequence[str], clock: Clock) -> TableRows:
    """Put the timeline of CANN into ``build``.

    Args:
        names: the files of one ``host/data`` folder.

    Returns:
        Launches, to be joined with tasks of the device: tasks in the order of time, then the
        subtasks of fused ones. -1 is unknown, or none. Fields:

        ``device, stream``: as the host numbers them. ``task, batch``: lower and upper 16 bits of
        the task's number from chip 15 on; before, ``batch`` counts how often numbers started anew.
        ``context``: of a subtask. ``start``: ns of the launch. ``name``: the operator, or the
        communication of a part. ``part``: the work of such a part ("Notify_Wait").
        ``kind``: the host's name for the task ("KERNEL_AICORE"). ``unit``: what carries it out
        ("AI_CORE"). ``class``, ``graph``. ``row``: event row of the launching call; parts of one
        communication have the same. ``group``: its name, which can be an address (see
        ``communicators``). ``plane``: of the group. And :data:`ARGUMENTS`.
    """
    files = HostFiles.among(source, names, build)
    dictionary = Dictionary.of(files)
    calls = read_calls(files, dictionary, clock)
    side = _described(Launches(files, dictionary, calls, clock))
    files.report_others()
    return side


def _described(launches: Launches) -> TableRows:
    """The launches with names."""
    tasks, dictionary = launches.tasks, launches.names
    id_fields = ("device", "stream", "task", "batch", "context")
    columns = {"start": tasks["start_ns"], **{field: tasks[field] for field in id_fields}}
    rows = TableRows(columns, "launches", len(tasks["start_ns"]))

    def field_of(records: Mapping[str, I64], field: str, index: str) -> I64:
        return picked(records[field], tasks[index])

    def spelled(field: str, codes: I64, text: Callable[[int], str]) -> None:
        values, back = np.unique(codes, return_inverse=True)
        texts = [text(value) for value in values.tolist()]
        numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        rows.names[field] = {i: text for text, i in numbers.items()}
        numbers_of_codes = [numbers[text] if text else -1 for text in texts]
        rows.columns[field] = np.array(numbers_of_codes, np.int64)[back]

    def hashed(field: str, hashes: I64) -> None:
        name_by_hash = dictionary.names(hashes, f"task_track: {field}")
        spelled(field, hashes, lambda code: name_by_hash.get(code, ""))

    def text_of(code: int) -> str:
        text = dictionary.hashes.get(code, "")
        return "" if text == "N/A" else text

    item = launches.calls.item
    computes, is_part, alone = (tasks[flag] > 0 for flag in ("computes", "part", "alone"))
    unit = np.where(computes, field_of(launches.operators, "unit", "operator"), -1)
    of_node, of_hccl = picked(item, tasks["node"]), picked(item, tasks["hccl"])
    item_hash = np.where(tasks["node"] >= 0, of_node, 0)
    item_hash = np.where(
        tasks["operator"] >= 0, field_of(launches.operators, "op", "operator"), item_hash
    )
    name = np.where(computes | is_part, item_hash, 0)
    hashed("name", np.where(alone, tasks["kernel"], name))
    inner = np.where(tasks["hccl"] >= 0, of_hccl, 0)
    inner = np.where(tasks["part_info"] >= 0, field_of(launches.parts, "item", "part_info"), inner)
    hashed("part", np.where(is_part, inner, 0))
    spelled("kind", tasks["kind"], launches.kind_name)
    spelled("unit", unit, lambda code: UNITS.get(code, str(code)) if code >= 0 else "")
    rows.columns["class"] = _classes(launches, unit)
    rows.columns["graph"] = graphs(field_of(vars(launches.calls), "item", "model")).astype(np.int64)

    call = tasks["node"]  # a flow starts at the call of the operator, else at the program's own
    for layer in ("other", "hccl", "runtime"):
        call = np.where(call >= 0, call, tasks[layer])
    rows.columns["row"] = picked(launches.calls.row, call)

    group = field_of(launches.parts, "group", "part_info")
    group = np.where(group == -1, field_of(launches.collectives, "group", "collective"), group)
    collective = is_part | np.isin(unit, _COLLECTIVE)
    hashed("group", np.where(collective & (group != -1), group, 0))
    plane = field_of(launches.parts, "plane", "part_info")
    rows.columns["plane"] = np.where(plane < 1 << 31, plane, -1)

    spelled(
        "Op Type",
        np.where(unit >= 0, field_of(launches.operators, "op_type", "operator"), 0),
        text_of,
    )
    blocks = field_of(launches.operators, "blocks", "operator") & 0xFFFF
    rows.columns["Block Num"] = np.where(unit >= 0, blocks, -1)
    for argument, field, names in (
        ("src rank", "local_rank", None), ("dst rank", "remote_rank", None),
        ("transport type", "transport", TRANSPORTS), ("size(Byte)", "bytes", None),
        ("data type", "data_type", DATA_TYPES), ("link type", "link", LINKS),
        ("rdma type", "rdma", RDMA), ("notify_id", "notify", None),
    ):  # fmt: skip
        rows.columns[argument] = field_of(launches.parts, field, "part_info")
        if names:
            rows.names[argument] = names
    algorithm = field_of(launches.collectives, "algorithm", "collective")
    spelled("alg_type", np.where(is_part, algorithm, 0), text_of)
    rows.columns["count"] = np.where(
        is_part, field_of(launches.collectives, "count", "collective"), -1
    )
    rows.columns["size(B)"] = field_of(launches.copies, "bytes", "copy")
    rows.columns["operation"] = field_of(launches.copies, "direction", "copy")
    rows.names["operation"] = COPY_DIRECTIONS
    return rows


def _classes(launches: Launches, unit: I64) -> I64:
    rows = launches.tasks
    table, codes = factored_rows(rows["kind"], unit, rows["computes"], rows["part"], rows["alone"])
    classes = []
    for kind, of_unit, computes, part, alone in table:
        if part or of_unit in _COLLECTIVE:
            classes.append(OpClass.COMM_TASK)
        elif computes:
            classes.append(OPERATORS.get(UNITS.get(of_unit, ""), OpClass.UNCLASSIFIED))
        elif alone:
            classes.append(OpClass.COMPUTE)
        else:
            op = named_class(launches.kind_name(kind))
            classes.append(OpClass.UNCLASSIFIED if op is None else op)
    return np.array(classes, np.int64)[codes]
