"""Columns as data frames of other libraries, and as HTML: what people look at in notebooks.

Imported by the methods that ask for it. pandas, pyarrow and polars are optional.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I32, Args, CounterTable, Names, Table
from traceconv.core.errors import MissingExtraError
from traceconv.core.markup import table_html
from traceconv.core.model import Kind, OpClass
from traceconv.core.side_tables import ABSENT, Columns

HTML_ROWS = 20
"""Most rows of a table in a notebook."""


@dataclass(frozen=True)
class Words:
    """A column of text in which few texts occur often.

    Attributes:
        codes:  int32 per row, index into ``values``; -1 = absent.
        values: the texts, each once.
        repeated: whether it is worth keeping them apart (categories, dictionaries).
    """

    codes: I32
    values: Sequence[str]
    repeated: bool = True

    @classmethod
    def of(cls, ids: NDArray[Any], text: Callable[[int], str], repeated: bool = True) -> Words:
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
        return cls(code[ids], list(number), repeated)

    def texts(self) -> NDArray[Any]:
        """One text per row, None where it is absent."""
        every = np.empty(len(self.values) + 1, object)
        every[:] = [*self.values, None]
        return every[self.codes]


Frame = Mapping[str, NDArray[Any] | Words]
"""Columns by name. int64 with ``ABSENT``, and float64 with NaN, have absent cells."""


def to_pandas(columns: Frame, complete: Collection[str] = ()) -> Any:
    """A ``pandas.DataFrame``; texts that repeat are categories, int64 is ``Int64`` with ``<NA>``.

    Args:
        complete: names of columns that never have absent cells; they stay int64.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    pandas = _extra("pandas")

    def column(name: str, values: NDArray[Any] | Words) -> Any:
        if isinstance(values, Words):
            if not values.repeated:
                return values.texts()
            return pandas.Categorical.from_codes(values.codes, values.values)
        if values.dtype != np.int64 or name in complete:
            return values
        absent = values == ABSENT
        return pandas.arrays.IntegerArray(np.where(absent, 0, values), absent)

    return pandas.DataFrame({name: column(name, values) for name, values in columns.items()})


def to_arrow(columns: Frame) -> Any:
    """A ``pyarrow.Table``; texts that repeat are dictionaries.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = _extra("pyarrow", "arrow")

    def column(values: NDArray[Any] | Words) -> Any:
        if isinstance(values, Words):
            if not values.repeated:
                return arrow.array(values.texts().tolist(), arrow.string())
            codes = arrow.array(values.codes, mask=values.codes < 0)
            return arrow.DictionaryArray.from_arrays(
                codes, arrow.array(values.values, arrow.string())
            )
        if values.dtype == object:
            return arrow.array(values.tolist(), arrow.string())
        absent = values == ABSENT if values.dtype == np.int64 else np.isnan(values)
        return arrow.array(values, mask=absent)

    return arrow.table({name: column(values) for name, values in columns.items()})


def to_polars(columns: Frame) -> Any:
    """A ``polars.DataFrame``; texts that repeat are categoricals.

    Raises:
        MissingExtraError: polars is not installed.
    """
    polars = _extra("polars")

    def column(name: str, values: NDArray[Any] | Words) -> Any:
        if isinstance(values, Words):
            if not values.repeated:
                return polars.Series(name, values.texts().tolist(), dtype=polars.String)
            texts = polars.Series(name, [*values.values, None], dtype=polars.String)
            last = len(values.values)  # the row of None
            return texts.cast(polars.Categorical).gather(
                np.where(values.codes < 0, last, values.codes)
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


def _extra(module: str, extra: str = "") -> Any:
    try:
        return import_module(module)
    except ImportError as e:
        raise MissingExtraError(
            f"{module} is not installed; pip install 'traceconv[{extra or module}]'"
        ) from e


# -- tables of a trace ------------------------------------------------------------------------


ARGS = ("json", "dict", "none")
"""What becomes of arguments: JSON text, a dict per row (pandas only), or no column."""


def resolved(table: Table, args: str = "json") -> dict[str, NDArray[Any] | Words]:
    """The columns of a table of a trace with everything that is a number for a word as that word.

    ``track`` becomes ``layer``, ``group`` and ``track`` (of counters also ``unit``), ``name`` the
    text, ``kind`` "slice" or "instant", ``op`` the class of operation ("compute", "comm", ...),
    -1 of ``graph`` and ``step`` is absent, ``args`` is one of :data:`ARGS`.

    Raises:
        ValueError: the table belongs to no trace, or ``args`` is something else.
    """
    if args not in ARGS:
        raise ValueError(f"args is {args!r}; it can be {', '.join(ARGS)}")
    if table.names is None:
        raise ValueError(
            "this table is of no trace, so names and tracks are unknown: use columns()"
        )
    found: dict[str, NDArray[Any] | Words] = {}
    for name, values in table.columns().items():
        found |= _resolved(name, values, table.names, args)
    if isinstance(table, CounterTable):
        tracks = table.names.tracks
        found["unit"] = Words.of(table.track, lambda i: tracks[i].unit or "")
    return found


def _resolved(
    column: str, values: NDArray[Any], names: Names, args: str
) -> dict[str, NDArray[Any] | Words]:
    if column == "track":
        return _tracks(values, names)
    if column == "name":
        return {"name": Words.of(values, names.strings.__getitem__)}
    if column == "kind":
        return {"kind": Words.of(values, lambda i: Kind(i).name.lower())}
    if column == "op":
        return {"op": Words.of(values, lambda i: OpClass(i).name.lower())}
    if column in ("graph", "step"):
        return {column: np.where(values < 0, ABSENT, values.astype(np.int64))}
    if column == "args":
        return _arguments(values, names.args, args)
    return {column: values}


def _tracks(values: I32, names: Names) -> dict[str, NDArray[Any] | Words]:
    tracks = names.tracks
    return {
        "layer": Words.of(values, lambda i: str(tracks[i].layer)),
        "group": Words.of(values, lambda i: str(tracks[i].group)),
        "track": Words.of(values, lambda i: str(tracks[i].name)),
    }


def _arguments(ids: I32, values: Args, form: str) -> dict[str, NDArray[Any] | Words]:
    if form == "none":
        return {}
    texts = Words.of(ids, lambda i: values.raw(i).decode("utf-8", "replace"), repeated=False)
    if form == "json":
        return {"args": texts}
    column = np.empty(len(ids), object)
    column[:] = [_parsed(text) for text in texts.texts().tolist()]
    return {"args": column}


def _parsed(text: str | None) -> dict[str, Any]:
    """An object of its own per row; arguments that are no JSON object are kept as they are."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"args": found}


# -- HTML ---------------------------------------------------------------------------------------


def html(title: str, columns: Columns, rows: int = HTML_ROWS) -> str:
    """The first rows as an HTML table, safe whatever the texts are; what is absent is a dash."""
    length = next((len(column) for column in columns.values()), 0)
    shown = [[_cell(v) for v in column[:rows].tolist()] for column in columns.values()]
    more = f", the first {rows}" if length > rows else ""
    return table_html(f"{title}: {length} rows{more}", list(columns), zip(*shown, strict=True))


def html_of(table: Table) -> str:
    """The first rows of a table of a trace, with words where its names are known."""
    first = table.take(slice(0, HTML_ROWS))
    columns = resolved(first) if first.names else first.columns()
    shown = {n: c.texts() if isinstance(c, Words) else c for n, c in columns.items()}
    return html(f"{type(table).__name__}, {len(table)} rows in all", shown)


def _cell(value: Any) -> str:
    return "–" if value == ABSENT or value != value or value is None else str(value)
