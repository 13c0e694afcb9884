"""Module scopes of a rank, derived from the full names of its operators.

MindSpore calls an operator by its place in the network: ``Default/net/conv1-Conv2d/Cast-op12``.
Where the source draws no scopes itself, lanes are made of these paths, one per depth: a scope
lasts from its first operator to the last one that follows without another scope between.

An operator that begins before the one taken last has ended runs in parallel and is skipped. A
scope is closed, with all below it, by the next operator that has another one at its depth; a
shorter path leaves deeper scopes open. The vendor's viewer does the same, except that the scopes
below stay open there and may continue under another parent. No scope outlasts its collection
window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64, EventTable, Kind, Layer, OpClass, Trace, Track
from traceconv.core.patterns import lazy_regex

ROOTS = lazy_regex(r"(?:Default|Gradients|recompute_Default)/")
"""How the full name of an operator begins."""

MAX_DEPTH = 64
"""Deeper scopes get no lane."""

FULL_NAME = lazy_regex(rb'"(?:full_?name|op_full_name)"\s*:\s*"([^"\\]*)"')
"""Where the arguments of an operator have its full name."""

Path = tuple[str, ...]
Span = tuple[int, str, int, int]
"""Depth, name, start and end of one scope."""


def scopes(trace: Trace) -> Trace:
    """Add lanes "layer0", "layer1" ... unless the source has scope tracks.

    Operators are slices on device lanes and on the host's lanes of operators whose name, or whose
    argument ``fullname`` or ``op_full_name``, is a path. Rows are booked under "scopes".
    """
    if trace.rows_of(Layer.SCOPE).any():
        return trace
    rows, path_of, paths = _operators(trace)
    start, end = trace.events.start_ns[rows], trace.events.ends(rows)
    sequential = _sequential(start.tolist(), end.tolist())
    if not len(sequential):
        return trace
    start, end, path_of = start[sequential], end[sequential], path_of[sequential]
    window = np.searchsorted(trace.windows[:, 0], start, "right")
    borders = np.flatnonzero(np.diff(window)) + 1
    listed = [
        span
        for rows in np.split(np.arange(len(start)), borders)
        for span in _of_window(paths, path_of[rows], start[rows], end[rows])
    ]
    depths = 1 + max(level for level, *_ in listed)
    tracks = [Track(Layer.SCOPE, f"layer{level}", sort=level) for level in range(depths)]
    depth, names, begins, ends = zip(*listed, strict=True)
    begin, number = np.array(begins, np.int64), list(map(trace.strings.intern, names))
    length = np.array(ends, np.int64) - begin
    rows_added = EventTable.filled(begin, length, track=depth, name=number)
    return trace.add_events("scopes", tracks, rows_added)


def _of_window(
    paths: Sequence[Path], path_of: NDArray[np.intp], start: I64, end: I64
) -> Iterator[Span]:
    """The scopes of one collection window; operators of one path in a row count as one."""
    run_begins = np.flatnonzero(np.diff(path_of, prepend=-1))
    run_ends = np.append(run_begins[1:], len(path_of)) - 1
    runs = [paths[i] for i in path_of[run_begins].tolist()]
    return spans(runs, start[run_begins].tolist(), end[run_ends].tolist())


def spans(paths: Sequence[Path], start: Sequence[int], end: Sequence[int]) -> Iterator[Span]:
    """The scopes around operators that follow each other, in the order in which they end.

    Args:
        paths: the scopes around each operator, outermost first.
    """
    open_: list[tuple[str, int, int]] = []
    for path, begin, stop in zip(paths, start, end, strict=True):
        for depth, name in enumerate(path):
            if depth < len(open_) and open_[depth][0] != name:
                yield from ((d, *open_[d]) for d in range(depth, len(open_)))
                del open_[depth:]
            if depth < len(open_):
                open_[depth] = (name, open_[depth][1], stop)
            else:
                open_.append((name, begin, stop))
    yield from ((depth, *scope) for depth, scope in enumerate(open_))


def _sequential(start: Sequence[int], end: Sequence[int]) -> list[int]:
    """Which operators begin when the one taken before them has ended; starts ascend."""
    sequential = []
    free_at = start[0] if start else 0
    for i, (begin, stop) in enumerate(zip(start, end, strict=True)):
        if begin >= free_at:
            sequential.append(i)
            free_at = stop
    return sequential


def _operators(trace: Trace) -> tuple[NDArray[np.intp], NDArray[np.intp], list[Path]]:
    """The rows of operators with a path, by start; the numbers of their paths; the paths."""
    events, numbers = trace.events, _Numbers()
    device = trace.rows_of(Layer.DEVICE) & (events.op == OpClass.COMPUTE)
    rows = np.flatnonzero((device | trace.rows_of(Layer.HOST)) & (events.kind == Kind.SLICE))
    path_by_name = np.full(len(trace.strings), -1, np.intp)
    for name in np.unique(events.name[rows]).tolist():
        path_by_name[name] = numbers.of(_path(trace.strings[name]))
    path_of = path_by_name[events.name[rows]]
    for i in np.flatnonzero((path_of < 0) & device[rows] & (events.args[rows] >= 0)).tolist():
        match = FULL_NAME.search(trace.args.raw(int(events.args[rows[i]])))
        if match:
            path_of[i] = numbers.of(_path(match[1].decode("utf-8", "replace")))
    rows, path_of = rows[path_of >= 0], path_of[path_of >= 0]
    order = np.argsort(events.start_ns[rows], kind="stable")
    return rows[order], path_of[order], list(numbers.known)


class _Numbers:
    """Paths, numbered in the order of appearance; an empty one is -1."""

    def __init__(self) -> None:
        self.known: dict[Path, int] = {}

    def of(self, path: Path) -> int:
        return self.known.setdefault(path, len(self.known)) if path else -1


def _path(name: str) -> Path:
    """The scopes around an operator; empty if this is not its full name."""
    return tuple(name.split("/")[:-1][:MAX_DEPTH]) if ROOTS.match(name) else ()
