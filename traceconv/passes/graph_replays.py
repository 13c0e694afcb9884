"""Which operator the kernels of a graph's replay are of.

One call runs all nodes of a graph (CUDA and HIP graphs), so that no operator is around the launch
of a kernel. Replays of a graph run the same kernels: a graph is told from others by the names of
its nodes, and a node by its place among those of its name. What is known of a node then comes from
a side table ``graph_nodes`` (:mod:`traceconv.readers.torch.kineto.graph_captures`), in one of the
ways of :data:`KNOWN`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I64
from traceconv.core.errors import TraceconvError
from traceconv.core.intervals import holding
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Kind, Layer, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns

NODES = "graph_nodes"

BY_ID, BY_CAPTURE, BY_PART, BY_ORDER = KNOWN = (
    "graph node id",
    "capture trace",
    "part of the capture trace",
    "order in the capture trace",
)
"""How the operator of a kernel is known, surest first: by its recorded id; because the kernels of
the replay are those of a capture; because those of its name are, though others differ; because the
replay, on one stream, has as many kernels and copies as a capture that names none."""

KNOWN_BY = "operator known by"
"""The argument that says how."""

ARGUMENTS = {
    "operator": "operator",
    "operator_call": "operator call",
    "module": "module",
    "shapes": "Input Dims",
    "types": "Input type",
    "inputs": "Concrete Inputs",
}
"""Columns of the side table, and the arguments that kernels get from them."""

_LAUNCH = lazy_regex(r"(?:cuda|hip|cu)GraphLaunch\w*")
_LAUNCHES = NameTest(_LAUNCH.fullmatch)
_HALF = 0.5


class Replays(msgspec.Struct, frozen=True):
    """The device rows that launches of graphs ran.

    Attributes:
        rows:   event rows, by replay and then by start.
        replay: the replay of each row, from 0, in the order of the launches.
        node:   of each row: where rows of its name were in the first replay of the graph.
        graph:  of each replay: the number of its graph, from 0, in the order they were launched.
        launch: of each replay: the event row of the call.
        batch:  of each replay: the batch size that its graph was captured for: the least, of those
            in the side table, that the batch of its pass can be padded to; else ABSENT.
    """

    rows: NDArray[np.intp]
    replay: I64
    node: I64
    graph: I64
    launch: NDArray[np.intp]
    batch: I64

    @property
    def graphs(self) -> I64:
        """The graph of each row."""
        return self.graph[self.replay]


def replays(trace: Trace) -> Replays | None:
    """The replays of graphs, or None."""
    calls = rows_named(trace, _LAUNCHES)
    if not calls.any():
        return None
    events, flows = trace.events, trace.flows
    work = trace.rows_of(Layer.DEVICE, Layer.COMM) & (events.kind == Kind.SLICE)
    arrows = flows.take(calls[flows.src] & work[flows.dst])
    if not len(arrows):
        return None
    launch, replay = np.unique(arrows.src.astype(np.intp), return_inverse=True)
    in_time = np.argsort(events.start_ns[launch], kind="stable")
    launch, replay = launch[in_time], np.argsort(in_time)[replay]
    order = np.lexsort((arrows.dst, events.start_ns[arrows.dst], replay))
    rows, replay = arrows.dst[order].astype(np.intp), replay[order]
    by_name = np.lexsort((np.arange(len(rows)), events.name[rows], replay))
    bounds = np.searchsorted(replay, np.arange(len(launch) + 1))
    position = np.arange(len(rows)) - bounds[replay]
    batch = _batches(trace, launch)
    graphs: dict[tuple[bytes, int], tuple[int, I64]] = {}
    graph, node = np.empty(len(launch), np.int64), np.empty(len(rows), np.int64)
    for number, (begin, after) in enumerate(zip(bounds[:-1].tolist(), bounds[1:], strict=True)):
        rows_by_name = by_name[begin:after]
        key = events.name[rows[rows_by_name]].tobytes(), int(batch[number])
        graph[number], nodes = graphs.setdefault(key, (len(graphs), position[rows_by_name]))
        node[rows_by_name] = nodes
    return Replays(rows, replay, node, graph, launch, batch)


def _batches(trace: Trace, launch: NDArray[np.intp]) -> I64:
    """See :attr:`Replays.batch`."""
    events, sizes = trace.events, trace.hints.batch_sizes
    captured = np.empty(0, np.int64)
    with suppress(KeyError, TraceconvError):  # without the table, or if it cannot be read
        captured = np.unique(trace.side_tables[NODES].columns["batch"])
    captured = captured[captured != ABSENT]
    size_by_name = {i: sizes[name] for i, name in enumerate(trace.strings) if name in sizes}
    rows = np.flatnonzero(trace.rows_of(Layer.HOST) & np.isin(events.name, list(size_by_name)))
    if not len(rows) or not len(captured):
        return np.full(len(launch), ABSENT)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    spans = np.stack((events.start_ns[rows], events.ends(rows)), axis=1)
    sizes_by_row = np.array(
        [size_by_name[name] for name in events.name[rows].tolist()] + [ABSENT], np.int64
    )
    size = sizes_by_row[holding(spans, events.start_ns[launch])]
    captured_index = np.where(size == ABSENT, len(captured), np.searchsorted(captured, size))
    return np.append(captured, ABSENT)[captured_index]


def graph_replays(trace: Trace) -> Trace:
    """The trace with the operator, the module and the shapes of replayed kernels as arguments.

    A side table that cannot be read only loses these.
    """
    side_table = trace.side_tables.get(NODES)
    replayed = replays(trace) if side_table is not None or _is_annotated(trace) else None
    if not replayed:
        return trace
    if side_table is None:
        node_rows, members = _annotated(trace, replayed)
        return trace.with_arguments(replayed.rows[node_rows], members) if members else trace
    issues = trace.issues.copy()
    try:
        columns = side_table.columns
    except TraceconvError as e:
        issues.add("malformed-record", side_table.file, str(e)[:200])
        return replace(trace, issues=issues)
    side_table.account(issues)
    node_rows, shared, how = _matched(trace, replayed, columns)
    rows = np.flatnonzero(node_rows >= 0)
    keys = np.stack((node_rows, shared, how, replayed.graphs, replayed.node), axis=1)[rows]
    texts = _Members(columns)
    members = [texts[key] for key in map(tuple, keys.tolist())]
    return replace(trace.with_arguments(replayed.rows[rows], members), issues=issues)


class _Members(dict[tuple[int, ...], bytes]):
    """``,"key":value`` of a node in a graph, made once for all its replays.

    Keys are rows of the side table, which of :data:`ARGUMENTS` are certain (as bits), an index of
    :data:`KNOWN`, the graph and the node.
    """

    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self._columns = columns

    def __missing__(self, key: tuple[int, ...]) -> bytes:
        row, shared, how, graph, node = key
        text = b',"graph":%d,"node":%d' % (graph, node)
        for bit, (column, argument) in enumerate(ARGUMENTS.items()):
            value = self._columns[column][row]
            if value not in ("", ABSENT) and shared >> bit & 1:
                plain = value if isinstance(value, str) else int(value)
                raw = plain if column in _AS_JSON else json.dumps(plain, ensure_ascii=False)
                text += f",{json.dumps(argument)}:{raw}".encode("utf-8", "replace")
        text += b',"operator known by":' + json.dumps(KNOWN[how]).encode()
        self[key] = text
        return text


_AS_JSON = ("shapes", "types", "inputs")
_ALL = (1 << len(ARGUMENTS)) - 1
_OPERATOR = 1


def _matched(trace: Trace, replayed: Replays, columns: Columns) -> tuple[I64, I64, I64]:
    """Per replayed row: its row in the side table, or -1; which of :data:`ARGUMENTS` are certain,
    as bits; and how it is known, as an index of :data:`KNOWN`."""
    captures, rows = _Captures(columns), replayed.rows
    node_rows, how = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
    shared = np.full(len(rows), _ALL)
    if captures.ids:
        node_rows[:] = [captures.ids.get(arguments.id, -1) for arguments in _arguments(trace, rows)]
    by_id = node_rows >= 0
    bounds = np.searchsorted(replayed.replay, np.arange(len(replayed.graph) + 1))
    matches: dict[int, tuple[I64, I64, int]] = {}
    for number, graph in enumerate(replayed.graph.tolist()):
        of_replay = slice(bounds[number], bounds[number + 1])
        if graph not in matches:
            matches[graph] = captures.match(trace, rows[of_replay], int(replayed.batch[number]))
        nodes, certain, way = matches[graph]
        # nodes of a graph are numbered as its first replay ran them
        node_of = replayed.node[of_replay]
        node_rows[of_replay] = np.where(by_id[of_replay], node_rows[of_replay], nodes[node_of])
        shared[of_replay] = np.where(by_id[of_replay], _ALL, certain[node_of])
        how[of_replay] = np.where(by_id[of_replay], KNOWN.index(BY_ID), way)
    return node_rows, shared, how


class _Stated(msgspec.Struct, rename={"id": "graph node id", "known_by": "operator known by"}):
    id: int = ABSENT
    known_by: Any = None
    name: Any = None
    module_fqn: Any = None
    layer: Any = None


_stated = msgspec.json.Decoder(_Stated).decode


def _arguments(trace: Trace, rows: NDArray[np.intp]) -> list[_Stated]:
    """The node that the arguments of each row state."""
    decoded = []
    for number in trace.events.args[rows].tolist():
        try:
            decoded.append(_stated(trace.args.raw(number) or b"{}"))
        except NOT_JSON:
            decoded.append(_Stated())
    return decoded


_SAMPLE = 100


def _is_annotated(trace: Trace) -> bool:
    """Whether some of the replayed kernels name their node; looks at a few."""
    calls = rows_named(trace, _LAUNCHES)
    rows = trace.flows.dst[calls[trace.flows.src]] if calls.any() else trace.flows.dst[:0]
    sample = rows[:: len(rows) // _SAMPLE + 1].astype(np.intp)
    arguments = _arguments(trace, sample)
    return any(
        argument.id > 0 and (argument.name or argument.module_fqn) and not argument.known_by
        for argument in arguments
    )


def _annotated(trace: Trace, replayed: Replays) -> tuple[NDArray[np.intp], list[bytes]]:
    """Positions of the rows that name their node as ``torch/cuda/_annotate_cuda_graph_trace.py``
    of PyTorch 2.12 writes it, and further arguments for them."""
    positions, members = [], []
    arguments = _arguments(trace, replayed.rows)
    for i, (argument, graph, node) in enumerate(
        zip(arguments, replayed.graphs.tolist(), replayed.node.tolist(), strict=True)
    ):
        module = argument.layer if argument.module_fqn is None else argument.module_fqn
        names = {"operator": argument.name, "module": module}
        names = {key: str(value) for key, value in names.items() if value not in (None, "")}
        if argument.id > 0 and names:
            positions.append(i)
            text = {"graph": graph, "node": node, **names, "operator known by": BY_ID}
            members.append(b"," + json.dumps(text, separators=(",", ":")).encode()[1:-1])
    return np.array(positions, np.intp), members


class _Captures:
    """Captured graphs, to be found by the kernels of a replay.

    Attributes:
        ids: row of the side table by the id of a node.
    """

    def __init__(self, columns: Columns) -> None:
        self.ids = {
            identifier: row
            for row, identifier in enumerate(columns["id"].tolist())
            if identifier != ABSENT
        }
        capture = columns["capture"]
        self._rows = [np.flatnonzero(capture == n) for n in np.unique(capture[capture != ABSENT])]
        copied = np.array(["Launch" not in call for call in columns["call"].tolist()], bool)
        # a copy has no name when it is captured; its kind is known when it runs
        names = np.where(copied, "", columns["kernel"])
        self._names = [names[rows].tolist() for rows in self._rows]
        self._copied = [copied[rows] for rows in self._rows]
        self._batch = [int(columns["batch"][rows[0]]) for rows in self._rows]
        self._columns = columns

    def match(self, trace: Trace, rows: NDArray[np.intp], size: int) -> tuple[I64, I64, int]:
        """For each row of a replay the row of the side table, and for all how it is known, as in
        :func:`_matched`.

        Args:
            size: the batch size it was captured for, ABSENT if unknown.
        """
        events = trace.events
        copied = events.op[rows] == OpClass.COPY
        names = [trace.strings[name] for name in events.name[rows].tolist()]
        names = ["" if copy else name for copy, name in zip(copied.tolist(), names, strict=True)]
        tally_of_replay, tallies = (
            Counter(names),
            [Counter(kernel_names) for kernel_names in self._names],
        )
        way = BY_CAPTURE
        candidates = [
            n for n, tally in enumerate(tallies) if tally == tally_of_replay and any(self._names[n])
        ]
        if not candidates and len(np.unique(events.track[rows])) == 1:
            way, unnamed = (
                BY_ORDER,
                [n for n, kernel_names in enumerate(self._names) if not any(kernel_names)],
            )
            candidates = [n for n in unnamed if np.array_equal(self._copied[n], copied)]
            names = [""] * len(names) if candidates else names
        if not candidates:
            way = BY_PART
            alike = [
                sum(n for name, n in tally_of_replay.items() if name and t[name] == n)
                for t in tallies
            ]
            highest = max(alike, default=0)
            candidates = [
                n for n, number in enumerate(alike) if number == highest > _HALF * len(rows)
            ]
        if not candidates:
            return np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64), 0
        candidates = [n for n in candidates if self._batch[n] == size] or candidates
        return *self._common(candidates, names), KNOWN.index(way)

    def _common(self, captures: Sequence[int], names: Sequence[str]) -> tuple[I64, I64]:
        """Rows of the first of some captures for nodes with these names, and what all captures say
        of each; -1 where they do not agree on its operator."""
        reference, *further = (
            _rows_by_name(names, self._names[n], self._rows[n]) for n in captures
        )
        shared = np.full(len(names), _ALL)
        for mapped in further:
            for bit, column in enumerate(ARGUMENTS):
                values = self._columns[column]
                shared[(mapped < 0) | (values[reference] != values[mapped])] &= ~(1 << bit)
        return np.where(shared & _OPERATOR, reference, -1), shared


def _rows_by_name(names: Sequence[str], captured: Sequence[str], rows: NDArray[np.intp]) -> I64:
    """For each name its row: the n-th of a name is the n-th captured, if there are as many."""
    places: dict[str, list[int]] = {}
    for name, row in zip(captured, rows.tolist(), strict=True):
        places.setdefault(name, []).append(row)
    tally, used = Counter(names), Counter[str]()
    row_of = np.full(len(names), -1, np.int64)
    for i, name in enumerate(names):
        if len(places.get(name, ())) == tally[name]:
            row_of[i] = places[name][used[name]]
            used[name] += 1
    return row_of
