"""Tables of call paths: host time in each, and device time of the work launched there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    Column,
    Ranked,
    Table,
    below,
    ordered,
    stacked,
    texts,
)
from traceconv.analysis.tables.fields import fields, names_of
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import Nest, launches
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64, once_each
from traceconv.core.model import Kind, Layer, OpClass, Trace
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns

PATHS_KEPT = 1000
"""Paths of a rank that are listed, those with most time; the others are one row."""
SEPARATOR = ";"
"""Between the frames of a path, as in collapsed stacks; in a name it becomes ":"."""
OTHERS = "(other paths)"
_FRAME = lazy_regex(r".+\(\d+\): .*")
"""A call of Python as PyTorch names it: "model.py(12): forward"."""
_ADDRESS = lazy_regex(r" at 0x[0-9a-f]+")
_SUMS = ("Calls", "Self Time(ns)", "Device Time(ns)", "Launches")


@once_each
def _measured(trace: Trace) -> tuple[Texts, Texts, Columns]:
    """Call paths with their sums: the path, its innermost line of Python, and :data:`_SUMS`."""
    nest, path, names, lines = _paths(trace)
    self_ns, calls = nest.self_ns(), launches(trace)
    works = trace.events.op[calls.device] != OpClass.WAIT
    callers = nest.at(calls.thread, calls.time_ns)[works]  # -1, of no call, is the last of ``path``
    n, device = len(names.code), trace.events.dur_ns[calls.device[works]]
    sums = {
        "Calls": _sums(path[:-1], np.ones(len(self_ns), np.int64), n),
        "Self Time(ns)": _sums(path[:-1], self_ns, n),
        "Device Time(ns)": _sums(path[callers], device, n),
        "Launches": _sums(path[callers], np.ones(len(callers), np.int64), n),
    }
    if not len(calls.device):
        sums |= dict.fromkeys(_SUMS[2:], np.full(n, ABSENT, np.int64))
    return names, lines, sums


def _sums(numbers: I64, value: I64, n: int) -> I64:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, numbers, value)
    return sums


def paths_at(trace: Trace, thread: I64, time: I64) -> Texts:
    """The call path at each instant of a thread; "" outside of recorded slices."""
    nest, path, names, _ = _paths(trace)
    return names[path[nest.at(thread, time)]]


@once_each
def _paths(trace: Trace) -> tuple[Nest, I64, Texts, Texts]:
    """Slices of the host; the number of each one's path, 0 for none at the end; path and line by
    number."""
    host = trace.rows_of(Layer.HOST) & (trace.events.kind == Kind.SLICE) & (trace.events.step < 0)
    nest = Nest.of(trace, np.flatnonzero(host))
    slice_names = names_of(trace, nest.rows)
    slice_names = slice_names.mapped(_plain)
    stacks = Texts.same("", len(nest.rows))
    if not slice_names.fitting(_FRAME.fullmatch).any():  # else Python's calls are slices themselves
        (stacks,) = fields(trace, nest.rows, "Call stack")
    has_stack = stacks.known
    path = np.zeros(len(nest.rows) + 1, np.int64)
    held, names, lines = [""], [""], [""]  # by number of the path: stack, names within it, line
    for level in nest.levels():
        outer = path[nest.parent[level]]
        stack = np.where(has_stack[level], stacks.code[level], -1)
        groups = Groups.of(outer, stack, slice_names.code[level])
        path[level] = len(names) + groups.spread(np.arange(len(groups)))
        first = groups.first
        for slice_row, above in zip(level[first].tolist(), outer[first].tolist(), strict=True):
            name = slice_names.at(slice_row)
            inner = stacks.at(slice_row).split(SEPARATOR) if has_stack[slice_row] else []
            frames = [frame.strip() for frame in reversed(inner) if frame.strip()]
            held.append(SEPARATOR.join(frames) or held[above])
            names.append(f"{names[above]}{SEPARATOR}{name}" if names[above] else name)
            line = frames[-1] if frames else name if _FRAME.fullmatch(name) else lines[above]
            lines.append(line)
    paths = [SEPARATOR.join(filter(None, pair)) for pair in zip(held, names, strict=True)]
    numbers = np.arange(len(paths))
    return nest, path, Texts(paths, numbers), Texts(lines, numbers)


def _plain(name: str) -> str:
    """A name in one line, without separators, and without addresses, which no two runs share."""
    return " ".join(_ADDRESS.sub("", name.replace(SEPARATOR, ":")).split())


def _summed(trace: Trace, key: str, column: Texts, sums: Columns) -> Columns:
    groups = Groups.of(column.numbers())
    summed = {name: groups.known_total(value) for name, value in sums.items()}
    used = summed["Calls"] + np.maximum(summed["Launches"], 0) > 0
    return {key: column[groups.first].column()[used], **{k: v[used] for k, v in summed.items()}}


def _line_facts(trace: Trace) -> Columns:
    _, lines, sums = _measured(trace)
    return _summed(trace, "Line", lines, sums) if lines.known.any() else NOTHING


def _path_facts(trace: Trace) -> Columns:
    names, _, sums = _measured(trace)
    rows = _summed(trace, "Path", names, sums)
    weight = rows["Self Time(ns)"] + np.maximum(rows["Device Time(ns)"], 0)
    order = np.argsort(-weight, kind="stable")
    if not rows["Calls"].any():
        return NOTHING
    heaviest, rest = order[:PATHS_KEPT], order[PATHS_KEPT:]
    columns = {name: column[heaviest] for name, column in rows.items()}
    if len(rest):
        rest_row = {k: np.array([ABSENT if (v[rest] == ABSENT).any() else v[rest].sum()])
                    for k, v in rows.items() if k != "Path"}  # fmt: skip
        columns = below(columns, {**rest_row, "Path": texts([OTHERS])})
    return columns


def _built(key: str, ranked: Ranked) -> Columns:
    """Sums per rank and job-wide, those with most device time first, then most host time."""
    rows = stacked(ranked)
    if len(ranked) > 1:
        groups = Groups.of(numbered(rows[key]))
        job = {name: groups.known_total(rows[name]) for name in _SUMS}
        rows = below(rows, {**job, key: rows[key][groups.first]})
    host, device = (np.maximum(rows[name], 0) for name in ("Self Time(ns)", "Device Time(ns)"))
    groups = Groups.of(rows[RANK])
    rows["Self Ratio(%)"] = share(host, groups.spread(groups.total(host)))
    shares = share(device, groups.spread(groups.total(device)))
    rows["Device Ratio(%)"] = np.where(rows["Device Time(ns)"] == ABSENT, np.nan, shares)
    return ordered(rows, -rows["Device Time(ns)"], -host)


_COLUMNS = "Calls, Self Time(ns), Self Ratio(%), Launches, Device Time(ns), Device Ratio(%)"
_FORMULA = (
    "Calls = slices of the host; Self Time = their durations without slices within them. "
    "Device Time = durations of the device rows (no waits) launched there, on the innermost slice "
    "that is open on the thread at the start of the launching call; Launches = their number; empty "
    "where launches are not recorded. Ratios are of the sums of the rank. "
)

TABLES: Sequence[Table] = (
    Table(
        "stack",
        "Host and device time by line of Python",
        f"{_FORMULA}Line = the innermost call of Python around, or the first frame of the stack "
        "recorded with an operator; empty where neither is.",
        "stacks of Python: with_stack (PyTorch, Ascend), or Python's calls as slices",
        Column.parse(f"Rank, Line:text, {_COLUMNS}"),
        _line_facts,
        partial(_built, "Line"),
        capped=True,
    ),
    Table(
        "stack_path",
        "Host and device time by call path",
        f"{_FORMULA}Path = the slices around it on its thread without steps, outermost first, and "
        "preceded by the recorded stack of an operator where Python calls are not slices; "
        f"separated by {SEPARATOR!r}. Up to {PATHS_KEPT} paths of a rank, those with most Self and "
        f"Device Time; the rest is {OTHERS}. Launches outside of recorded slices have no path.",
        "slices of the host: operators, Python's calls, ranges",
        Column.parse(f"Rank, Path:text, {_COLUMNS}"),
        _path_facts,
        partial(_built, "Path"),
        capped=True,
    ),
)
