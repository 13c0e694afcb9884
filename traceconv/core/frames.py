"""Columns as data frames of other libraries, and as HTML: what people look at in notebooks.

pandas, pyarrow and polars are optional, and imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from traceconv.core.errors import MissingExtraError, extra_line
from traceconv.core.markup import table_html

if TYPE_CHECKING:
    from numpy.typing import NDArray

ABSENT = -(2**63)
"""An empty or ``N/A`` cell of an integer or time column: such columns may contain -1 and less."""

Columns: TypeAlias = "Mapping[str, NDArray[Any]]"

TEXT_ROWS, _TEXT_WIDTH, _WIDEST = 10, 100, 48
HTML_ROWS = 20
"""Most rows of a table in a notebook."""


@dataclass(frozen=True)
class Words:
    """A column of text in which few texts occur often.

    Attributes:
        codes:  int32 per row, index into ``values``; -1 = absent.
        values: the texts, each once.
    """

    codes: NDArray[np.int32]
    values: Sequence[str]

    @classmethod
    def of(cls, ids: NDArray[Any], text: Callable[[int], str]) -> Words:
        """The texts of the ids that occur.

        Args:
            ids:  int, -1 = absent.
            text: of an id; ids may share one.
        """
        used = np.flatnonzero(np.bincount(ids[ids >= 0]))
        texts = [text(i) for i in used.tolist()]
        number = {value: i for i, value in enumerate(dict.fromkeys(texts))}
        code = np.full(int(used.max(initial=-1)) + 2, -1, np.int32)  # id -1 finds the last: absent
        code[used] = [number[value] for value in texts]
        return cls(code[ids], list(number))

    @classmethod
    def per_row(cls, texts: Sequence[str | None]) -> Words:
        """One text per row; None where it is absent."""
        ids = np.array([-1 if value is None else i for i, value in enumerate(texts)], np.int64)
        return cls.of(ids, lambda i: texts[i] or "")

    def __len__(self) -> int:
        return len(self.codes)

    def texts(self) -> NDArray[Any]:
        """One text per row, None where it is absent."""
        texts = np.empty(len(self.values) + 1, object)
        texts[:] = [*self.values, None]
        return texts[self.codes]


Frame: TypeAlias = "Mapping[str, NDArray[Any] | Words]"
"""Columns by name. int64 with ``ABSENT``, and float64 with NaN, have absent cells."""


def or_absent(values: NDArray[Any]) -> NDArray[np.int64]:
    """Integers that are never negative, int64; ``ABSENT`` in place of -1."""
    return np.where(values < 0, ABSENT, values.astype(np.int64))


def cells(column: NDArray[Any]) -> list[Any]:
    """The cells of a column as Python values; None where absent."""
    values: list[Any] = column.tolist()
    absent = {"i": column == ABSENT, "f": column != column}.get(column.dtype.kind)
    if absent is None:
        return values
    return [None if gone else value for value, gone in zip(values, absent.tolist(), strict=True)]


def below(parts: Sequence[Frame]) -> Frame:
    """Frames with the same columns as one; texts of several are one set of texts."""
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(columns: Sequence[NDArray[Any] | Words]) -> NDArray[Any] | Words:
    words = [column for column in columns if isinstance(column, Words)]
    if not words:
        return np.concatenate([column for column in columns if not isinstance(column, Words)])
    number: dict[str, int] = {}
    codes = []
    for column in words:
        numbers = [number.setdefault(text, len(number)) for text in column.values]
        codes.append(np.array([*numbers, -1], np.int32)[column.codes])  # code -1 finds the last
    return Words(np.concatenate(codes), list(number))


def to_pandas(columns: Frame, complete: Collection[str] = ()) -> Any:
    """A ``pandas.DataFrame``; texts that repeat are categories, int64 is ``Int64`` with ``<NA>``.

    Args:
        complete: names of columns that never have absent cells; they stay int64.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    pandas = extra("pandas")

    def column(name: str, values: NDArray[Any] | Words) -> Any:
        if isinstance(values, Words):
            return pandas.Categorical.from_codes(values.codes, values.values)
        if values.dtype != np.int64 or name in complete:
            return values
        absent = values == ABSENT
        return pandas.arrays.IntegerArray(np.where(absent, 0, values), absent)

    return pandas.DataFrame({name: column(name, values) for name, values in columns.items()})


def to_arrow(columns: Frame, needed: Collection[str] | None = None) -> Any:
    """A ``pyarrow.Table``; texts that repeat are dictionaries.

    Args:
        needed: names of columns; the others are empty. None for all.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = extra("pyarrow", "arrow")

    def texts(values: Sequence[str | None]) -> Any:
        try:
            return arrow.array(values, arrow.string())
        except UnicodeEncodeError:  # half surrogates, which UTF-8 does not have
            sound = (value and value.encode("utf-8", "replace").decode() for value in values)
            return arrow.array(sound, arrow.string())

    @cache
    def empty(kind: Any) -> Any:
        return arrow.nulls(len(next(iter(columns.values()))), kind)

    def column(name: str, values: NDArray[Any] | Words) -> Any:
        if needed is not None and name not in needed:
            if isinstance(values, Words):
                return empty(arrow.dictionary(arrow.int32(), arrow.string()))
            is_text = values.dtype == object
            return empty(arrow.string() if is_text else arrow.from_numpy_dtype(values.dtype))
        if isinstance(values, Words):
            codes = arrow.array(values.codes, mask=values.codes < 0)
            return arrow.DictionaryArray.from_arrays(codes, texts(values.values))
        if values.dtype == object:
            return texts(values.tolist())
        absent = values == ABSENT if values.dtype == np.int64 else np.isnan(values)
        return arrow.array(values, mask=absent)

    return arrow.table({name: column(name, values) for name, values in columns.items()})


def arrow_below(parts: Sequence[Any]) -> Any:
    """Tables of :func:`to_arrow` with the same columns as one ``pyarrow.Table``."""
    return extra("pyarrow", "arrow").concat_tables(parts).unify_dictionaries()


def to_polars(columns: Frame) -> Any:
    """A ``polars.DataFrame``; texts that repeat are categoricals.

    Raises:
        MissingExtraError: polars is not installed.
    """
    polars = extra("polars")

    def column(name: str, values: NDArray[Any] | Words) -> Any:
        if isinstance(values, Words):
            texts = polars.Series(name, [*values.values, None], dtype=polars.String)
            none_row = len(values.values)  # the row of None
            return texts.cast(polars.Categorical).gather(
                np.where(values.codes < 0, none_row, values.codes)
            )
        if values.dtype == object:
            return polars.Series(name, values.tolist(), dtype=polars.String)
        return polars.Series(name, values, nan_to_null=values.dtype == np.float64)

    frame = polars.DataFrame([column(name, values) for name, values in columns.items()])
    gaps = [
        polars.when(polars.col(name) == ABSENT).then(None).otherwise(polars.col(name)).alias(name)
        for name, values in columns.items()
        if not isinstance(values, Words) and values.dtype == np.int64 and (values == ABSENT).any()
    ]
    return frame.with_columns(gaps) if gaps else frame


def extra(module: str, name: str = "") -> Any:
    """A package that an extra installs.

    Args:
        name: of the extra, if that is not the package.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as e:
        raise MissingExtraError(f"{module} is not installed; {extra_line(name or module)}") from e


def html(title: str, columns: Columns, rows: int = HTML_ROWS) -> str:
    """The first rows as an HTML table. Texts are escaped; a missing value is a dash."""
    length = next((len(column) for column in columns.values()), 0)
    note = f", the first {rows}" if length > rows else ""
    shown = zip(*_cells(columns, rows), strict=True)
    return table_html(f"{title}: {length} rows{note}", list(columns), shown)


def text(columns: Columns, rows: int = TEXT_ROWS) -> str:
    """The first rows as aligned text; long cells are cut, and columns beyond the width left out."""
    length = next((len(column) for column in columns.values()), 0)
    lines = [""] * (min(length, rows) + 1)
    hidden = len(columns)
    for name, cells in zip(columns, _cells(columns, rows), strict=True):
        shown = [
            cell if len(cell) <= _WIDEST else f"{cell[: _WIDEST - 1]}…" for cell in (name, *cells)
        ]
        width = max(map(len, shown))
        if lines[0] and len(lines[0]) + width + 2 > _TEXT_WIDTH:
            break
        number = columns[name].dtype != object
        lines = [
            f"{line}{'  ' * bool(line)}{cell.rjust(width) if number else cell.ljust(width)}"
            for line, cell in zip(lines, shown, strict=True)
        ]
        hidden -= 1
    notes = [f"{length - rows:,} more rows"] * (length > rows)
    notes += [f"{hidden} more columns"] * bool(hidden)
    return "\n".join([*(line.rstrip() for line in lines), *([", ".join(notes)] * bool(notes))])


def _cells(columns: Columns, rows: int) -> list[list[str]]:
    """The first cells of every column; a missing value is a dash."""
    return [
        ["–" if v is None or v == ABSENT or v != v else str(v) for v in column[:rows].tolist()]
        for column in columns.values()
    ]
