"""Tables with selected columns and rows, in a chosen order."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.analysis.tables.catalog import FILES, TABLES, coordinate_columns, first_rows
from traceconv.analysis.tables.definition import RANK, Column, Result
from traceconv.core.choices import unknown
from traceconv.core.errors import OptionError
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns, DataTable
from traceconv.options import values as parsers

Mask = NDArray[np.bool_]

_FILTER = lazy_regex(r"\s*([^<>=!~]+?)\s*(!=|<=|>=|!~|=|<|>|~)\s*(.*?)\s*")
_SORT = lazy_regex(r"\s*(.+?)\s*(?::(asc|desc))?\s*")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Arrangement:
    """The selected columns and rows of tables, and their order.

    Attributes:
        columns: names of columns that are kept, in this order; () for all.
        sort:    (column, "asc", "desc" or ""), the weightiest first; () as the table is.
        filters: (column, comparison, value) that all hold.
        top:     most rows of a sorted table; of another one of each rank.
    """

    columns: tuple[str, ...] = ()
    sort: tuple[tuple[str, str], ...] = ()
    filters: tuple[tuple[str, str, str], ...] = ()
    top: int | None = None

    @classmethod
    def of(
        cls,
        columns: tuple[str, ...],
        sort: tuple[str, ...],
        filters: tuple[str, ...],
        top: int | None,
        names: Sequence[str],
        axes: Sequence[str] = (),
    ) -> Arrangement:
        """The arrangement of the tables ``names``, grouped by ``axes`` if any.

        Raises:
            OptionError: it cannot be understood, or names a column that none of them has.
        """
        orders = [match for word in sort if (match := _SORT.fullmatch(word))]
        found = cls(
            columns,
            tuple((match[1], match[2] or "") for match in orders),
            tuple(map(_comparison, filters)),
            top,
        )
        known = [column for name in names for column in {**TABLES, **FILES}[name].columns]
        if axes:
            known = [one for one in known if one.name != RANK] + [*coordinate_columns(axes)]
        if known and all({**TABLES, **FILES}[name].columns for name in names):
            found._refuse_unknown(known)
        for name, sign, value in found.filters:
            for column in {column for column in known if _is_called(column, name)}:
                _test(column, sign, value)
        return found

    @property
    def changes_rows(self) -> bool:
        """Whether it says which rows there are, or in which order."""
        return bool(self.sort or self.filters)

    def _refuse_unknown(self, known: Sequence[Column]) -> None:
        asked = [("columns", name) for name in self.columns]
        asked += [("sort", name) for name, _ in self.sort]
        asked += [("filters", name) for name, _, _ in self.filters]
        for option, name in asked:
            if not any(_is_called(column, name) for column in known):
                every = dict.fromkeys(column.name for column in known)
                raise OptionError(unknown("column", name, every), option)


def arranged(
    results: Sequence[Result], how: Arrangement
) -> tuple[tuple[Result, ...], tuple[tuple[str, str], ...]]:
    """The tables that are shown, and (name, reason) of each that is left out.

    Tables without any of the columns that are kept, or without one that a filter compares, are
    left out, as are those of which no row is left.
    """
    kept: list[Result] = []
    out: list[tuple[str, str]] = []
    for result in results:
        if not result.rows:
            kept.append(result)
            continue
        missing = [n for n, _, _ in how.filters if _found(result, n) is None]
        if missing:
            out.append((result.table.name, f"it has no column {missing[0]!r}"))
        elif how.columns and not any(_found(result, name) for name in how.columns):
            out.append((result.table.name, "it has none of the columns"))
        elif not (shown := _arranged(result, how)).rows:
            out.append((result.table.name, "no row passes the filter"))
        else:
            kept.append(shown)
    return tuple(kept), tuple(out)


def _arranged(result: Result, how: Arrangement) -> Result:
    """Its rows; ``top`` was taken account of already where nothing orders or filters them."""
    data = result.data.columns
    rows = np.arange(len(result.data))
    for name, sign, value in how.filters:
        column = _found(result, name)
        if column is not None:
            rows = rows[_test(column, sign, value)(data[column.key][rows])]
    for name, direction in reversed(how.sort):
        column = _found(result, name)
        if column is not None:
            rows = rows[_order(column, data[column.key][rows], direction)]
    taken: Columns = {key: values[rows] for key, values in data.items()}
    every = len(rows) if how.changes_rows else result.rows
    if how.changes_rows and how.top is not None and result.table.capped:
        taken = (
            {key: values[: how.top] for key, values in taken.items()}
            if how.sort
            else first_rows(taken, how.top)
        )
    table = result.table
    columns = table.columns
    if how.columns:
        chosen = [_found(result, name) for name in how.columns]
        columns = tuple(dict.fromkeys(one for one in chosen if one is not None))
    kept = {column.key: taken[column.key] for column in columns}
    units = {column.key: column.unit for column in columns}
    return Result(replace(table, columns=columns), DataTable(table.name, kept, units), every)


def _found(result: Result, name: str) -> Column | None:
    return next((column for column in result.table.columns if _is_called(column, name)), None)


def _is_called(column: Column, name: str) -> bool:
    """By its name, with or without a unit behind it, in any case."""
    bare = re.sub(r"\([^()]{1,6}\)$", "", name)
    return column.name.lower() in (name.lower(), bare.lower())


# -- rows ---------------------------------------------------------------------------------


def _comparison(text: str) -> tuple[str, str, str]:
    match = _FILTER.fullmatch(text)
    if not match:
        raise OptionError(
            f"{text!r} compares nothing; write COLUMN=VALUE, with one of = != < <= > >= ~ !~",
            "filters",
        )
    return match[1], match[2], match[3]


def _test(column: Column, sign: str, text: str) -> Callable[[NDArray[Any]], Mask]:
    """What holds of the values of a column; never of unknown ones.

    Raises:
        OptionError: the value is no value of this column, or cannot be compared so.
    """
    if "~" in sign:
        try:
            pattern = re.compile(text)
        except re.error as e:
            raise OptionError(f"{text!r} is not a regular expression: {e}", "filters") from e
        wanted = sign == "~"
        return lambda values: np.array(
            [bool(pattern.search(str(one))) is wanted for one in values.tolist()], bool
        )
    if column.kind == "text":
        if sign not in ("=", "!="):
            raise OptionError(f"{column.name} is text: compare it by =, !=, ~ or !~", "filters")
        return lambda values: np.array([_COMPARE[sign](one, text) for one in values.tolist()], bool)
    if column.name == RANK and text == "all":
        return lambda values: _mask(_COMPARE[sign](values == ABSENT, True))
    number = _number(column, text)
    return lambda values: _known(values) & _mask(_COMPARE[sign](values, number))


def _mask(values: Any) -> Mask:
    return np.asarray(values, bool)


def _known(values: NDArray[Any]) -> Mask:
    return ~np.isnan(values) if values.dtype.kind == "f" else _mask(values != ABSENT)


def _number(column: Column, text: str) -> float:
    """A value of a column: times and sizes with their units, or 0."""
    if column.unit in ("ns", "B") and text.strip("0."):
        parse = parsers.length if column.unit == "ns" else parsers.size
        return parse(text, "filters") or 0
    try:
        return float(text.removesuffix("%"))
    except ValueError as e:
        raise OptionError(f"{column.name}: {text!r} is not a number", "filters") from e


def _order(column: Column, values: NDArray[Any], direction: str) -> NDArray[np.intp]:
    """Rows by their values, equal ones as they were, unknown ones last; numbers fall, texts rise,
    unless ``direction`` says otherwise."""
    falls = direction == "desc" or (not direction and column.kind != "text")
    if column.kind == "text":
        _, values = np.unique(values.astype(str), return_inverse=True)
        unknown_ = np.zeros(len(values), bool)
    else:
        unknown_ = ~_known(values)
    key = np.where(unknown_, 0, values)
    return np.lexsort((-key if falls else key, unknown_))
