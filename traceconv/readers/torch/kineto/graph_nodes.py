"""The nodes of captured graphs: which operator and module launched each, with the shapes.

ROCm names the kernel in the arguments of a launch; CUDA does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import MalformedInputError
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Capture, Kind, Layer, Trace
from traceconv.core.patterns import lazy_regex, natural
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.readers.shared.graph_nodes import Node, columns_of
from traceconv.readers.torch.kineto.graph_captures import (
    ANNOTATIONS,
    LIST,
    NO_WINDOW,
    json_of,
    listed_sizes,
)

_BEGIN = lazy_regex(r"(?:cuda|hip|cu)StreamBeginCapture\w*")
_END = lazy_regex(r"(?:cuda|hip|cu)StreamEndCapture\w*")
_LAUNCH = lazy_regex(
    r"(?:cuda|cu|hip)(?:Ext|Module)*Launch(?:Cooperative)?Kernel\w*|"
    r"(?:cuda|cu|hip)(?:Memcpy|Memset)\w*"
)
"""Calls that add a node to the graph of a stream that is captured."""
_MODULE = "nn.Module: "
_PYTHON = lazy_regex(r"[^(]*\.py\(\d+\): |<")
_NO_OPERATOR = lazy_regex(r"nn\.Module: |.*\(\d+\): |<|ProfilerStep#|capture_\d+_|## ", re.DOTALL)
_SIZE = lazy_regex(r"capture_(\d{1,18})_\w+")
_BATCH = lazy_regex(
    r"execute_(?:diffusion_)?(\d{1,18})_"  # tokens, in names with the patches of TraceLens
    r"|execute_context_0\(0\)_generation_\d+\((\d{1,18})\)|execute_new_0_cached_(\d{1,18})(?!\d)"
    r"|(?:step\[DECODE|decode\[).*?\bbs=(?:\d+/)?(\d{1,18})(?!\d)"
    r"|(?:step\[EXTEND|prefill\[).*?\btok(?:s|ens)?=(\d{1,18})(?!\d)"
)
"""The number that graphs are captured for: requests of a pass that generates, else tokens."""


def batch_sizes(names: Iterable[str]) -> dict[str, int]:
    """The batch sizes of passes by the name of their range, as vLLM, SGLang and ATOM write them;
    padded ones where they say so ("decode[bs=117/128")."""
    matches = {name: _BATCH.match(name) for name in names}
    return {name: int(match[match.lastindex or 1]) for name, match in matches.items() if match}


def nodes(capture: Capture, files: Mapping[str, str], batches: Collection[int]) -> Columns:
    """The table of nodes.

    Args:
        files: from :func:`~.graph_captures.of_rank`, and why each is not read for events; the
            rank's own files may be among them.
        batches: batch sizes of its passes; captures listed for other sizes are not read.
    """
    sizes: dict[str, int] = {}
    for name, why in files.items():
        listed = listed_sizes(capture.source, name) if why == LIST else {}
        sizes |= {file: size for file, size in listed.items() if size is not None}
    captured_sizes = sorted(set(sizes.values()))
    # a batch is padded to the next size that was captured
    padded = {next((size for size in captured_sizes if size >= batch), ABSENT) for batch in batches}
    rows: list[Node] = []
    for name, why in files.items():
        size = sizes.get(name, ABSENT)
        if why == ANNOTATIONS:
            rows += _annotated(json_of(capture.source, name))
        elif why == NO_WINDOW and (size == ABSENT or not batches or size in padded):
            rows += _read(capture, name, size, 1 + max((n.capture for n in rows), default=-1))
    return columns_of(rows)


def _annotated(listed: Any) -> Iterator[Node]:
    """Nodes by id: the name and the module of each, of nested scopes the innermost."""
    for key, scopes in listed.items() if isinstance(listed, dict) else ():
        members: dict[str, Any] = {}
        for scope in scopes if isinstance(scopes, list) else [scopes]:
            members |= scope if isinstance(scope, dict) else {"name": scope}
        if (number := natural(key, INT64_MAX)) >= 0:
            module = str(members.get("module_fqn", members.get("layer", "")))
            yield Node(
                id=number,
                operator=str(members.get("name", members.get("str", ""))),
                module=module,
            )


def _read(capture: Capture, name: str, size: int, first_graph: int) -> list[Node]:
    """The nodes of the graphs whose capture one file traces.

    Args:
        size: the batch size that a list gives for it.
        first_graph: number of the first graph.
    """
    from traceconv.readers.torch.kineto.trace_file import File

    build = TraceBuilder(replace(capture, files=(name,)))
    try:
        File(build, is_unix=True).read(capture.source, name)
    except MalformedInputError:
        return []
    return list(captured(build.finish(), size, first_graph))


class _Inputs(msgspec.Struct, rename={
    "kernel": "kernel", "shapes": "Input Dims", "types": "Input type", "inputs": "Concrete Inputs",
}):  # fmt: skip
    kernel: Any = ""
    shapes: msgspec.Raw = msgspec.Raw(b"")
    types: msgspec.Raw = msgspec.Raw(b"")
    inputs: msgspec.Raw = msgspec.Raw(b"")


_inputs = msgspec.json.Decoder(_Inputs).decode


def _inputs_of(trace: Trace, row: int) -> _Inputs:
    try:
        return _inputs(trace.args.raw(int(trace.events.args[row])) or b"{}")
    except NOT_JSON:
        return _Inputs()


def captured(trace: Trace, size: int = ABSENT, first_graph: int = 0) -> Iterator[Node]:
    """The nodes of the graphs captured in a trace, in the order they were added.

    Between the calls that begin and end a capture; where these are not recorded, all launches that
    ran nothing.
    """
    events, strings = trace.events, trace.strings
    ran = np.zeros(len(events), bool)
    ran[trace.flows.src] = True
    kinds = np.zeros(len(strings), np.int8)
    for kind, pattern in ((_ADDS, _LAUNCH), (_BEGINS, _BEGIN), (_ENDS, _END)):
        kinds[[i for i, text in enumerate(strings) if pattern.fullmatch(text)]] = kind
    calls = np.flatnonzero(trace.rows_of(Layer.RUNTIME) & (events.kind == Kind.SLICE))
    calls = calls[kinds[events.name[calls]] > 0]
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    around = _enclosing(trace, calls)
    bounded = bool((kinds[events.name[calls]] == _BEGINS).any())
    graph, inside = first_graph - bounded, not bounded
    operators: dict[int, int] = {}
    for row in calls.tolist():
        kind = kinds[events.name[row]]
        if kind != _ADDS:
            inside = kind == _BEGINS
            graph += inside
            operators = {}
        elif inside and not ran[row]:
            node = _node(trace, row, around[row], graph, size)
            number = operators.setdefault(node.operator_call, len(operators))
            yield node._replace(operator_call=number) if node.operator else node


_ADDS, _BEGINS, _ENDS = 1, 2, 3


def _node(trace: Trace, call: int, around: Sequence[int], graph: int, size: int) -> Node:
    """The node that a call added; ``around`` are the rows of the host around it."""
    names = [trace.strings[trace.events.name[row]] for row in around]
    modules = [name.removeprefix(_MODULE) for name in names if name.startswith(_MODULE)]
    sizes = [int(match[1]) for name in names if (match := _SIZE.fullmatch(name))]
    kernel = _inputs_of(trace, call).kernel
    node = Node(
        capture=graph,
        batch=sizes[-1] if size == ABSENT and sizes else size,
        call=trace.strings[trace.events.name[call]],
        kernel=kernel if isinstance(kernel, str) else "",
        module=".".join(modules),
    )
    for name, row in zip(reversed(names), reversed(around), strict=True):
        if not _NO_OPERATOR.match(name):
            inputs = _inputs_of(trace, row)
            texts = [bytes(text).decode() for text in (inputs.shapes, inputs.types, inputs.inputs)]
            node = node._replace(operator=name, operator_call=row)
            return node._replace(shapes=texts[0], types=texts[1], inputs=texts[2])
    return node


def _enclosing(trace: Trace, calls: NDArray[np.intp]) -> dict[int, list[int]]:
    """For each call the slices of its thread around it, outermost first, without Python's own."""
    events = trace.events
    python = np.array([bool(_PYTHON.match(text)) for text in trace.strings], bool)
    host = np.flatnonzero(trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE))
    rows = np.concatenate((host[~python[events.name[host]]], calls))
    threads = np.array([track.thread for track in trace.tracks], np.int64)[events.track[rows]]
    start, end = events.start_ns[rows], events.ends(rows)
    enclosing: dict[int, list[int]] = {}
    stack: list[tuple[int, int, int]] = []
    requested = set(calls.tolist())
    order = np.lexsort((-end, start, threads))
    for row, thread, begin, until in zip(
        *(column[order].tolist() for column in (rows, threads, start, end)), strict=True
    ):
        while stack and (stack[-1][1] != thread or stack[-1][2] <= begin):
            stack.pop()
        if row in requested:
            enclosing[row] = [outer for outer, _, _ in stack]
        else:
            stack.append((row, thread, until))
    return enclosing
