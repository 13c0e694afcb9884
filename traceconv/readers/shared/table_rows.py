"""Rows with columns from SQLite, CSV and JSON, for :mod:`.layouts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT
from traceconv.readers.shared.layouts import Column, RowLayout, TableRows

if TYPE_CHECKING:
    from traceconv.readers.shared.sqlite.database import Database


def database_rows(
    database: Database,
    layout: RowLayout,
    strings: Callable[[I64], Mapping[int, str]] | None = None,
) -> TableRows:
    """The rows of an SQLite table. A field whose columns are missing is absent in every row.

    Args:
        strings: returns the strings of some ids, for the fields in ``layout.strings``.
    """
    table, sources = layout.table, layout.sources
    present = {*database.tables.get(table, ()), "rowid"}
    numeric = {
        key: columns_of
        for key, columns_of in sources.items()
        if key not in layout.texts
        and (
            key in layout.floats or present & {name for ns in columns_of for name in ns.split("|")}
        )
    }
    requested = {
        name: np.nan if key in layout.floats else -1
        for key, columns_of in numeric.items()
        for name in columns_of
    }
    stored_columns = database.columns(table, {**requested, "rowid": -1})
    columns = {
        key: _vector([stored_columns[name.split("|")[0]] for name in columns_of])
        for key, columns_of in numeric.items()
    }
    rows = TableRows(
        columns, f"table {table}", len(stored_columns["rowid"]), names=dict(layout.names)
    )
    for key in layout.texts:
        stored = database.texts(table, "rowid", sources[key][0])
        rows.coded(key, [stored.get(row, "") for row in stored_columns["rowid"].tolist()])
    read = layout.reads
    unread = [name for name in database.tables.get(table, ()) if name not in read]
    rows.unread = database.filled(table, unread) if len(rows) else []
    for key in layout.strings if strings else ():
        rows.names[key] = strings(np.unique(rows[key][rows[key] >= 0]))  # type: ignore[misc]
    return rows


_TRAILING = lazy_regex(r"(\d{1,9})\s*\Z")


def csv_rows(columns: Mapping[str, Column], layout: RowLayout, where: str) -> TableRows:
    """The rows of a CSV table (see :mod:`.csv_tables`). "Agent 4" as a number is 4."""
    rows = TableRows({}, where, len(next(iter(columns.values()), ())))
    for key, headings in layout.sources.items():
        given = [
            next((columns[name] for name in heading.split("|") if name in columns), None)
            for heading in headings
        ]
        if key in layout.texts:
            if given[0] is not None:
                rows.coded(key, [str(text) for text in given[0].tolist()])
        elif key in layout.floats or any(column is not None for column in given):
            rows.columns[key] = _vector(
                [_numbers(column, len(rows), key in layout.floats) for column in given]
            )
    unread = columns.keys() - layout.reads
    rows.unread = [
        heading for heading in columns if heading in unread and _has_values(columns[heading])
    ]
    return rows


def _has_values(column: Column) -> bool:
    """Whether a column of a CSV table has any value."""
    if column.dtype.kind == "O":
        return any(column.tolist())
    return bool((column != 0).any() and (column != ABSENT).any() and (column == column).any())


def _numbers(column: Column | None, count: int, fractions: bool) -> Column:
    if column is None:
        return np.full(count, np.nan) if fractions else np.full(count, -1, np.int64)
    if column.dtype.kind == "O":
        if fractions:
            return np.full(count, np.nan)
        matches = {text: _TRAILING.search(str(text)) for text in set(column.tolist())}
        number = {text: int(match[1]) if match else -1 for text, match in matches.items()}
        return np.fromiter(map(number.__getitem__, column.tolist()), np.int64, count)
    if fractions:
        return column.astype(np.float64)
    if column.dtype.kind == "f":
        usable = np.isfinite(column) & (np.abs(column) < 2**53)
        column = np.where(usable, column, -1).astype(np.int64)
    return np.maximum(column, -1)


def json_rows(records: Iterable[Any], layout: RowLayout, where: str) -> tuple[TableRows, int]:
    """The rows of a list of JSON objects, and how many records are not such objects.

    Args:
        records: ``msgspec.Raw``, or bytes.
    """
    decode = _decoder(layout)
    decoded, bad, first_record = [], 0, b"{}"
    for raw in records:
        try:
            decoded.append(decode(raw))
        except NOT_JSON:
            bad += 1
        else:
            first_record = raw if len(decoded) == 1 else first_record
    rows = TableRows({}, where, len(decoded))
    rows.unread = _unread(first_record, layout.reads)
    for key, paths in layout.sources.items():
        values_of_paths = [[*map(attrgetter(path), decoded)] for path in paths]
        if key in layout.texts:
            rows.coded(key, ["" if text is None else str(text) for text in values_of_paths[0]])
        else:
            kind = np.float64 if key in layout.floats else np.int64
            rows.columns[key] = _vector([_array(values, kind) for values in values_of_paths])
    return rows, bad


_DEEPEST = 8  # levels of members that are named if they are not read


def _unread(record: Any, read: frozenset[str]) -> list[str]:
    """The paths of members of a JSON object that have a value and are not read."""
    try:
        members = msgspec.json.decode(record)
    except NOT_JSON:
        return []  # a member that is not read is damaged
    within = tuple(f"{path}." for path in read)
    return [p for p in _paths(members) if p not in read and not p.startswith(within)]


def _paths(members: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in members.items():
        if isinstance(value, dict) and above.count(".") < _DEEPEST:
            yield from _paths(value, f"{above}{key}.")
        elif value:
            yield f"{above}{key}"


def _array(values: Sequence[Any], kind: type[np.generic]) -> Column:
    try:
        return np.array(values, kind)
    except OverflowError:
        return np.array([v if abs(v) < 1 << 63 else -1 for v in values], kind)


_OF_KIND: Mapping[str, tuple[Any, Any]] = {
    "text": (Any, None), "float": (float, float("nan")), "int": (int, -1)
}  # fmt: skip


def _struct(tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    members = []
    for name, kind in tree.items():
        if isinstance(kind, str):
            members.append((name, *_OF_KIND[kind]))
        else:
            inner = _struct(kind)
            members.append((name, inner, inner()))
    return msgspec.defstruct("Record", members, frozen=True, gc=False)


def _decoder(layout: RowLayout) -> Callable[[Any], Any]:
    """A decoder of objects that keeps only the members that are read."""
    tree: dict[str, Any] = {}
    for key, paths in layout.sources.items():
        kind = "text" if key in layout.texts else "float" if key in layout.floats else "int"
        for path in paths:
            *above, member = path.split(".")
            level = tree
            for name in above:
                level = level.setdefault(name, {})
            level[member] = kind
    return msgspec.json.Decoder(_struct(tree)).decode


def _vector(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
