"""Columns of SQLite tables as terms of a SELECT."""

from __future__ import annotations

from typing import Any

ROWID = "rowid"
"""Every table has this number of its rows; asked for like a column."""


def plain_term(names: str, default: Any, present: tuple[str, ...]) -> str:
    """A column of a SELECT as it is stored, or what stands for it."""
    name, plain = found_in(names, present), _literal(default)
    return plain if name is None else f"IFNULL({quoted(name)}, {plain})"


def found_in(names: str, present: tuple[str, ...]) -> str | None:
    """The column that is meant, by its name in this database."""
    found = next((n for n in names.split("|") if n in present), None)
    return ROWID if found is None and names == ROWID else found


def _literal(default: Any) -> str:
    return "NULL" if default != default else repr(default)  # NULL is read as NaN


def checked_term(names: str, default: Any, present: tuple[str, ...]) -> str:
    """The same, a number of the wanted type whatever is stored."""
    name, plain = found_in(names, present), _literal(default)
    if name is None:
        return plain
    column = quoted(name)
    kind = "INTEGER" if type(default) is int else "REAL"
    number = f"CAST({column} AS {kind})"
    # text that is a number has the same digits again; anything else is not one
    return (
        f"CASE typeof({column}) WHEN 'integer' THEN {number} WHEN 'real' THEN {number} "
        f"WHEN 'text' THEN CASE WHEN TRIM({column}) NOT GLOB '*[0-9]*' "
        f"OR TRIM({column}) GLOB '*[^0-9.eE+-]*' THEN {plain} "
        f"WHEN {column} GLOB '*[eE]*' THEN CAST(CAST({column} AS REAL) AS {kind}) "
        f"ELSE {number} END ELSE {plain} END"
    )


def quoted(name: str) -> str:
    """A name as SQL spells it."""
    if name == ROWID:
        return name
    return '"' + name.replace('"', '""') + '"'
