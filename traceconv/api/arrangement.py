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
_STEP_KEYS = ("rank", "graph", "step", "window")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


Matching = Callable[[str, str, Sequence[str]], Sequence[bool]]
"""In which texts of a column a regular expression finds a match: (column, expression, texts)."""


def matching(_column: str, expression: str, texts: Sequence[str]) -> list[bool]:
    """:data:`Matching` for people, who wait for what they wrote."""
    search = re.compile(expression).search
    return [search(text) is not None for text in texts]


@dataclass(frozen=True)
class Arrangement:
    """The selected columns and rows of tables, and their order.

    Attributes:
        columns: names of columns that are kept, in this order; () for all.
        sort:    (column, "asc", "desc" or ""), the weightiest first; () as the table is.
        filters: (column, comparison, value) that all hold.
        top:     most rows of a sorted table; of another one of each rank.
        matching: for the comparisons ``~`` and ``!~``.
    """

    columns: tuple[str, ...] = ()
    sort: tuple[tuple[str, str], ...] = ()
    filters: tuple[tuple[str, str, str], ...] = ()
    top: int | None = None
    matching: Matching = matching

    @classmethod
    def of(
        cls,
        columns: tuple[str, ...],
        sort: tuple[str, ...],
        filters: tuple[str, ...],
        top: int | None,
        names: Sequence[str],
        axes: Sequence[str] = (),
        matching: Matching = matching,
    ) -> Arrangement:
        """The arrangement of the tables ``names``, grouped by ``axes`` if any.

        Raises:
            OptionError: it cannot be understood, or names a column that none of them has.
        """
        orders = [match for word in sort if (match := _SORT.fullmatch(word))]
        arrangement = cls(
            columns,
            tuple((match[1], match[2] or "") for match in orders),
            tuple(map(_comparison, filters)),
            top,
            matching,
        )
        known_columns = [column for name in names for column in {**TABLES, **FILES}[name].columns]
        if axes:
            known_columns = [column for column in known_columns if column.name != RANK] + [
                *coordinate_columns(axes)
            ]
        if known_columns and all({**TABLES, **FILES}[name].columns for name in names):
            arrangement._refuse_unknown(known_columns)
        for name, sign, value in arrangement.filters:
            for column in {column for column in known_columns if _is_called(column, name)}:
                _test(column, sign, value, matching)
        return arrangement

    @property
    def changes_rows(self) -> bool:
        """Whether it says which rows there are, or in which order."""
        return bool(self.sort or self.filters)

    def _refuse_unknown(self, columns: Sequence[Column]) -> None:
        named = [("columns", name) for name in self.columns]
        named += [("sort", name) for name, _ in self.sort]
        named += [("filters", name) for name, _, _ in self.filters]
        for option, name in named:
            if not any(_is_called(column, name) for column in columns):
                names = dict.fromkeys(column.name for column in columns)
                raise OptionError(unknown("column", name, names), option)


def arranged(
    results: Sequence[Result], how: Arrangement
) -> tuple[tuple[Result, ...], tuple[tuple[str, str], ...]]:
    """The tables that are shown, and (name, reason) of each that is left out.

    Tables without any of the columns that are kept, or without one that a filter compares, are
    left out, as are those of which no row is left. Columns that say which step a row is of count
    only where no others are kept.
    """
    figures = [name for name in how.columns if name.casefold() not in _STEP_KEYS] or how.columns
    shown_results: list[Result] = []
    out: list[tuple[str, str]] = []
    for result in results:
        if not result.rows:
            shown_results.append(result)
            continue
        missing = [n for n, _, _ in how.filters if _column_called(result, n) is None]
        if missing:
            out.append((result.table.name, f"it has no column {missing[0]!r}"))
        elif figures and not any(_column_called(result, name) for name in figures):
            out.append((result.table.name, "it has none of the columns"))
        elif not (shown := _arranged(result, how)).rows:
            out.append((result.table.name, "no row passes the filter"))
        else:
            shown_results.append(shown)
    return tuple(shown_results), tuple(out)


def _arranged(result: Result, how: Arrangement) -> Result:
    """Its rows; ``top`` was taken account of already where nothing orders or filters them."""
    data = result.data.columns
    rows = np.arange(len(result.data))
    for name, sign, value in how.filters:
        column = _column_called(result, name)
        if column is not None:
            rows = rows[_test(column, sign, value, how.matching)(data[column.key][rows])]
    for name, direction in reversed(how.sort):
        column = _column_called(result, name)
        if column is not None:
            rows = rows[_order(column, data[column.key][rows], direction)]
    values_by_key: Columns = {key: values[rows] for key, values in data.items()}
    row_count = len(rows) if how.changes_rows else result.rows
    if how.changes_rows and how.top is not None and result.table.capped:
        values_by_key = (
            {key: values[: how.top] for key, values in values_by_key.items()}
            if how.sort
            else first_rows(values_by_key, how.top)
        )
    table = result.table
    columns = table.columns
    if how.columns:
        chosen = [_column_called(result, name) for name in how.columns]
        columns = tuple(dict.fromkeys(column for column in chosen if column is not None))
    shown = {column.key: values_by_key[column.key] for column in columns}
    units = {column.key: column.unit for column in columns}
    return Result(replace(table, columns=columns), DataTable(table.name, shown, units), row_count)


def _column_called(result: Result, name: str) -> Column | None:
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


def _test(
    column: Column, sign: str, text: str, matching: Matching
) -> Callable[[NDArray[Any]], Mask]:
    """What holds of the values of a column; never of unknown ones.

    Raises:
        OptionError: the value is no value of this column, or cannot be compared so.
    """
    if "~" in sign:
        parsers.pattern(text, "filters")  # refuses early
        must_match = sign == "~"
        return lambda values: (
            _mask(matching(column.name, text, [*map(str, values.tolist())])) == must_match
        )
    if column.kind == "text":
        if sign not in ("=", "!="):
            raise OptionError(f"{column.name} is text: compare it by =, !=, ~ or !~", "filters")
        return lambda values: np.array(
            [_COMPARE[sign](value, text) for value in values.tolist()], bool
        )
    if column.name == RANK and text == "all":
        return lambda values: _mask(_COMPARE[sign](values == ABSENT, True))
    number = _number(column, text)
    return lambda values: _is_known(values) & _mask(_COMPARE[sign](values, number))


def _mask(values: Any) -> Mask:
    return np.asarray(values, bool)


def _is_known(values: NDArray[Any]) -> Mask:
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
        unknown_ = ~_is_known(values)
    key = np.where(unknown_, 0, values)
    return np.lexsort((-key if falls else key, unknown_))
