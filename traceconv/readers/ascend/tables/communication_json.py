"""``communication.json`` and ``communication_matrix.json`` as columns of side tables.

One layout for all that is called so: with steps (``step5``: p2p or collective: operator) as the
framework profilers write it, without them as CANN does, and by groups of ranks as the cluster tools
do (``(0, 1)``: step: operator: rank). Numbers are taken from the text, as those of CSV tables are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.side_tables import ABSENT
from traceconv.io.sources import Source
from traceconv.readers.shared.csv_tables import Column, Doubt, table, typed

MAX_BYTES = 512 << 20
"""Larger files are refused."""

_TIMES, _BANDWIDTH = "Communication Time Info", "Communication Bandwidth Info"
_SIZES = "Size Distribution"
_TOTAL = "Total Op Info"
_NAMES = ("Kind", "Operator", "Group")
_KINDS = ("p2p", "collective")
_STEP = re.compile(r"step(\d*)")
_LINK = re.compile(r"(\d+)-(\d+)")
_P2P = re.compile(r"send|receive|recv", re.IGNORECASE)
_DEEPEST = 6

Columns = dict[str, Column]
Row = dict[str, str]


def operation_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per communication operator of ``communication.json``.

    Columns: ``Step`` (int64), ``Kind`` ("p2p", "collective"), ``Operator``, ``Group``, then what
    the file has: ``Start Timestamp(us)`` ... ``Synchronization Time Ratio``. Those of cluster tools
    have ``Rank Set`` and ``Rank``, too. Its own totals are left out: sums would count them twice.

    Raises:
        SourceError: the file cannot be read, or is larger than ``MAX_BYTES``.
        MalformedInputError: it is no such JSON.
    """

    def rows(place: Row, info: Mapping[str, Any]) -> Iterator[Row]:
        times = info[_TIMES]
        if isinstance(times, Mapping):
            yield place | {key: _text(value) for key, value in times.items()}

    return _columns(source, name, issues, _TIMES, rows)


def bandwidth_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per operator, transport and size of packages of ``communication.json``.

    Transports that carried nothing are left out, as they are in databases.

    Columns: as :func:`operation_columns`, then ``Transport Type``, ``Transit Size(MB)``,
    ``Transit Time(ms)``, ``Bandwidth(GB/s)``, ``Large Packet Ratio``, ``Package Size(MB)``,
    ``Count``, ``Total Duration(ms)``. Errors as there.
    """

    def rows(place: Row, info: Mapping[str, Any]) -> Iterator[Row]:
        transports = info.get(_BANDWIDTH)
        for transport, figures in _pairs(transports):
            if not isinstance(figures, Mapping):
                continue
            row = place | {"Transport Type": transport}
            row |= {key: _text(value) for key, value in figures.items() if key != _SIZES}
            sizes = [(size, pair) for size, pair in _pairs(figures.get(_SIZES)) if _is_pair(pair)]
            if not sizes and _is_zero(row.get("Transit Size(MB)")):
                continue
            for size, (count, total) in sizes or [("0", ["0", "0"])]:
                yield row | {
                    "Package Size(MB)": size,
                    "Count": _text(count),
                    "Total Duration(ms)": _text(total),
                }

    return _columns(source, name, issues, _TIMES, rows)


def matrix_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per operator and link of ``communication_matrix.json``.

    Columns: ``Step`` (int64), ``Kind``, ``Operator``, ``Group``, ``Source`` and ``Target`` (ranks),
    ``Transport Type``, ``Transit Size(MB)``, ``Transit Time(ms)``, ``Bandwidth(GB/s)`` and
    ``Op Name``. Errors as :func:`operation_columns`.
    """

    def rows(place: Row, info: Mapping[str, Any]) -> Iterator[Row]:
        figures = {key: _text(value) for key, value in info.items()}
        if "op_name" in figures:
            figures["Op Name"] = figures.pop("op_name")
        yield place | figures

    return _columns(source, name, issues, "Transport Type", rows)


def group_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per group of ranks of ``communication_group.json``.

    Columns: ``Kind`` and ``Rank Set`` ("(0, 1)"). Errors as :func:`operation_columns`.
    """
    found = [
        {"Kind": kind, "Rank Set": f"({', '.join(map(_text, ranks))})"}
        for kind, groups in _pairs(_loaded(source, name))
        if kind in _KINDS and isinstance(groups, list)
        for ranks in groups
        if isinstance(ranks, list)
    ]
    return table(found, _untyped, text=("Kind", "Rank Set"))


def _untyped(code: str, where: str, count: int) -> None:
    raise AssertionError("names are left as they are")


def _columns(
    source: Source,
    name: str,
    issues: Issues,
    sign: str,
    rows: Callable[[Row, Mapping[str, Any]], Iterator[Row]],
) -> Columns:
    title = source.title(name)
    found: list[Row] = []
    for path, info in _walk(_loaded(source, name), (), sign):
        if _TOTAL not in path:
            found += rows(_place(path), info)

    def doubt(code: str, where: str, count: int) -> None:
        issues.add(code, title, where, count)

    columns = table(found, doubt, text=_NAMES)
    if found:
        columns["Step"] = whole(columns["Step"], doubt)
    return columns


def whole(column: Column, doubt: Doubt) -> Column:
    """A column of steps as int64, ABSENT where there is none ("step50" and "50" are 50)."""
    if column.dtype == np.int64:
        return column
    texts = [str(cell) for cell in column.tolist()]
    found = [match[1] if (match := _STEP.fullmatch(text)) else text for text in texts]
    numbers = typed("", found, doubt)
    return numbers if any(found) else np.full(len(found), ABSENT, np.int64)


def _loaded(source: Source, name: str) -> Any:
    raw = source.read(name, MAX_BYTES)
    try:
        # numbers stay text: times are taken from their digits
        return json.loads(raw, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as e:
        raise MalformedInputError(source.title(name), "", f"not JSON: {str(e)[:120]}") from e


def _walk(
    value: Any, path: tuple[str, ...], sign: str
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The objects that have the key ``sign``, with the keys that lead there."""
    if not isinstance(value, Mapping) or len(path) > _DEEPEST:
        return
    if sign in value:
        yield path, value
        return
    for key, inner in value.items():
        yield from _walk(inner, (*path, key), sign)


def _place(path: tuple[str, ...]) -> Row:
    """What the keys above an object say."""
    row = dict.fromkeys(("Step", *_NAMES), "")
    for key in path:
        if key in _KINDS and not row["Kind"]:
            row["Kind"] = key
        elif match := _STEP.fullmatch(key):
            row["Step"] = match[1]
        elif match := _LINK.fullmatch(key):
            row |= {"Source": match[1], "Target": match[2]}
        elif key.startswith("("):
            row |= {"Rank Set": key, "Kind": row["Kind"] or "collective"}
        elif key.isdecimal() and row["Operator"]:
            row["Rank"] = key
        else:
            operator, _, row["Group"] = key.partition("@")
            row["Operator"] = operator
    row["Kind"] = row["Kind"] or _KINDS[0 if _P2P.search(row["Operator"]) else 1]
    return row


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _is_zero(text: str | None) -> bool:
    return not (text or "").strip("0.")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
