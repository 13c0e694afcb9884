"""What items of a step are called: by the work on the device, and by the host that launched it."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import CollectiveRecords, kind_of
from traceconv.analysis.rank_facts import KEY, Sort
from traceconv.analysis.tables.definition import texts
from traceconv.analysis.tables.fields import fields, is_ascend, names_of, operator_columns
from traceconv.analysis.tables.host import Nest, launches, modules
from traceconv.analysis.tables.operator import SHAPES, launching
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64
from traceconv.core.model import Kind, Layer, OpClass, Trace, TrackKind
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.ordering import combined_key
from traceconv.core.patterns import lazy_regex
from traceconv.passes.scopes import ROOTS


class Cause(StrEnum):
    """Why a device waits."""

    HOST = "host"
    INPUT = "input"
    UNKNOWN = "unknown"


END = "end of the step"
"""Name of the end of a gap that reaches to the end of its step."""


_RUN_DEPENDENT = (
    (lazy_regex(r"0x[0-9a-fA-F]{4,}"), "0x#"),
    (lazy_regex(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "#"),
    (lazy_regex(r"-op\d+\b"), ""),  # MindSpore numbers the operators of a graph
    (lazy_regex(r", (?:seq|op_id|sizes|input_op_ids) ?= ?.*\Z", re.DOTALL), ""),  # emit_nvtx
    (
        lazy_regex(
            r"(?i)\b((?:train|eval|global)?_?(?:step|iter(?:ation)?|batch|epoch|sample|request"
            r"|microbatch|seq|token|pid|tid))([\s_#:=.\[(-]*)\d+\b"
        ),
        r"\1\2#",
    ),
    (lazy_regex(r"\d{7,}"), "#"),
)
"""Digits that differ from run to run: addresses, ids, numbers of steps and of requests."""

_LONGEST_NAME = 500


@lru_cache(1 << 16)
def lasting(name: str) -> str:
    """A name without what differs from run to run; of a very long one, the beginning."""
    for pattern, instead in _RUN_DEPENDENT:
        name = pattern.sub(instead, name)
    return name[:_LONGEST_NAME]


Label = dict[str, Texts]


def labels(sort: Sort, name: Texts, **columns: Texts) -> Label:
    """The columns of :data:`KEY` of some rows."""
    empty, kinds = (Texts.same(text, len(name)) for text in ("", str(sort)))
    return {"sort": kinds, "name": name, **{k: columns.get(k, empty) for k in KEY[2:]}}


class Sources(msgspec.Struct, frozen=True):
    """Properties of the rows of a rank.

    Attributes:
        ascend: whether those of devices are tasks that carry out operators.
        launched_ns: per event row, when the call that launched it began; -1 if nothing says.
        collectives: of the rank.
        record: per event row, its place among the collectives; -1 of others.
    """

    trace: Trace
    ascend: bool
    launched_ns: I64
    collectives: CollectiveRecords
    record: I64

    @classmethod
    def of(cls, trace: Trace, collectives: CollectiveRecords) -> Sources:
        events, flows = trace.events, trace.flows
        launched = np.full(len(events), -1, np.int64)
        # of several flows the latest call: an operator may have queued it long before
        arrows = flows.take(trace.rows_of(Layer.HOST, Layer.RUNTIME)[flows.src])
        np.maximum.at(launched, arrows.dst, events.start_ns[arrows.src])
        record = np.full(len(events), -1, np.int64)
        calls = np.flatnonzero((events.op == OpClass.COMM) & (events.kind == Kind.SLICE))
        times = np.stack((events.start_ns[calls], events.ends(calls)))
        rows, records = _alike(times, np.stack((collectives.start_ns, collectives.end_ns)))
        record[calls[rows]] = records
        return cls(trace, is_ascend(trace), launched, collectives, record)

    def names(self, rows: NDArray[Any]) -> Texts:
        """Lasting names of event rows; "" of row -1."""
        return names_of(self.trace, rows).mapped(lasting)

    def compute(self, rows: NDArray[np.intp]) -> Label:
        """Compute tasks: operator and shapes by what the device says, or by who launched them."""
        trace, names = self.trace, self.names(rows)
        module = _module_paths(trace)[rows]
        if self.ascend:
            columns = operator_columns(trace, rows)
            kind, shape = columns["OP Type"], columns["Input Shapes"]
            shape = shape.mapped(lambda text: text.strip('"'))
            names, module = _scoped(trace, rows, names, module)
        else:
            call = launching(trace)[rows]
            kind = self.names(call)
            if any(track.kind is TrackKind.RANGES for track in trace.tracks):
                # user ranges are not operators, but give the place
                kind = kind.mapped(lambda name: name if "::" in name else "")
            dims, alternative = fields(trace, np.maximum(call, 0), *SHAPES)
            shape = dims.filled(alternative).kept(call >= 0)
        return labels(Sort.COMPUTE, names, type=kind, shape=shape, module=module)

    def communication(self, rows: NDArray[np.intp]) -> Label:
        """Collectives, by kind, group and size."""
        records, record_row = self.collectives, self.record[rows]
        has_record = record_row >= 0
        kind, group, size = (  # rows at -1 take the last value, and are replaced below
            np.append(column, 0)[record_row]
            for column in (records.kind, records.group, records.size)
        )
        names = self.names(rows).mapped(kind_of)
        groups = [
            lasting(
                f"HCCL group {i} {comm_group.name}".strip()
                if comm_group.hashed
                else comm_group.name
            )
            for i, comm_group in enumerate(records.groups)
        ] or [""]
        different, size_of = np.unique(size, return_inverse=True)
        sizes = Texts([str(n) if n >= 0 else "" for n in different.tolist()], size_of)
        return labels(
            Sort.COMMUNICATION,
            Texts(list(records.kinds) or [""], kind).where(has_record, names),
            type=Texts(groups, group).kept(has_record),
            shape=sizes.kept(has_record),
        )

    def copy(self, rows: NDArray[np.intp]) -> Label:
        """Copies and fills by name."""
        return labels(Sort.COPY, self.names(rows))

    def unclassified(self, rows: NDArray[np.intp]) -> Label:
        """Tasks of unknown types by name."""
        return labels(Sort.UNCLASSIFIED, self.names(rows))


def _alike(left: I64, right: I64) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of equal operations by start and end (shape (2, n)). Operations that begin and end
    together are paired in order."""
    key = combined_key(*np.concatenate((left, right), axis=1))
    places = []
    for keys in (key[: left.shape[1]], key[left.shape[1] :]):
        order = np.argsort(keys, kind="stable")
        nth = np.arange(len(order)) - np.searchsorted(keys[order], keys[order])
        places.append(dict(zip(zip(keys[order].tolist(), nth.tolist(), strict=True), order.tolist(),
                               strict=True)))  # fmt: skip
    shared = [key_and_count for key_and_count in places[1] if key_and_count in places[0]]
    paired = [
        np.array([side[key_and_count] for key_and_count in shared], np.intp) for side in places
    ]
    return paired[0], paired[1]


_OF_DISPATCHER = NameTest(lambda name: "::" in name)
_PATHS = ("fullname", "op_full_name", "full_name")


def _scoped(
    trace: Trace, rows: NDArray[np.intp], names: Texts, module: Texts
) -> tuple[Texts, Texts]:
    """Names without the scopes in them, and modules with these where no module is known.

    MindSpore names operators by their path: ``Default/network/dense/MatMul-op12``.
    """
    path = names
    for column in fields(trace, rows, *_PATHS):
        path = column.filled(path)
    scopes = path.mapped(lambda name: lasting(name.rpartition("/")[0]) if ROOTS.match(name) else "")
    short_names = names.mapped(
        lambda name: lasting(name.rpartition("/")[2]) if ROOTS.match(name) else name
    )
    return short_names, module.filled(scopes)


def _module_paths(trace: Trace) -> Texts:
    """Per event row of a device the path of the modules, or ranges of the user, around the call
    that launched it: outermost first, "" if none."""
    nest, calls = Nest.of(trace, _ranges(trace)), launches(trace)
    if not len(nest.rows):
        return Texts.same("", len(trace.events))
    innermost = nest.at(calls.thread, calls.time_ns)
    held = innermost >= 0
    paths = Texts.of(["", *_paths(trace, nest)])
    code = np.zeros(len(trace.events), np.int32)
    code[calls.device[held]] = paths.code[1 + innermost[held]]
    return Texts(paths.values, code)


def _ranges(trace: Trace) -> NDArray[np.intp]:
    """Calls of modules, and user ranges that are not operators."""
    events, hints = trace.events, trace.hints
    lanes = np.array([track.kind is TrackKind.RANGES for track in trace.tracks], bool)
    rows = lanes[events.track]
    if hints.range_names:
        rows |= rows_named(trace, NameTest(frozenset(hints.range_names).__contains__))
    if rows.any():
        rows &= trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE) & (events.step < 0)
        rows &= ~rows_named(trace, _OF_DISPATCHER)
    return np.unique(np.concatenate((modules(trace), np.flatnonzero(rows))))


def _paths(trace: Trace, nest: Nest) -> list[str]:
    """The path of every slice of a nest: names from the outermost to its own, level by level."""
    name = trace.events.name[nest.rows]
    short = {i: lasting(trace.strings[i]).removeprefix("nn.Module: ") for i in set(name.tolist())}
    own_names = texts([short[i] for i in name.tolist()])
    paths, todo = own_names.copy(), nest.parent >= 0
    ready = ~todo
    while todo.any():
        now = todo & ready[np.maximum(nest.parent, 0)]
        if not now.any():
            break
        paths[now] = paths[nest.parent[now]] + "/" + own_names[now]
        ready, todo = ready | now, todo & ~now
    return [path[-_LONGEST_NAME:] for path in paths.tolist()]
