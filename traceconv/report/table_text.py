"""Tables as text, CSV, JSON and Markdown.

Times are int64 ns. CSV gives them in us with three decimals, as the profilers' own tables do, JSON
in ns: both exactly. Text and Markdown give all times of a table one unit, unless they are too far
apart, and every column as many decimals as its smallest value needs for three digits (sizes in
units of 1024), instants from the earliest of the
table, which a line above names, and text keeps to the width of a terminal. A heading always names
the unit of the values below it; see :class:`~traceconv.analysis.tables.definition.Column`. Unknown
values are a dash in text and Markdown, an empty cell in CSV, null in JSON: never 0.
"""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import RANK, Column, Result
from traceconv.core.clock import is_unix_ns, us_text, utc_text
from traceconv.core.json_text import encoded
from traceconv.core.side_tables import ABSENT
from traceconv.report import fitting
from traceconv.report.figures import UNKNOWN

SCHEMA_VERSION = 1

WIDEST = 60
"""Longer texts are shortened in text tables that have no width to keep to."""

_INDENT = "  "

_SMALLEST = 7
"""Lines of a table on a screen; tables that have fewer each are only listed."""

_INSTANTS = ("Start Time", "Timestamp")
"""Words in the headings of instants."""

_COUNTS = ("Count", "Calls", "Rows")
"""Columns of plain numbers that measure, and name no row."""

_OF_VENDOR = ("FP_BP Time", "Iteration Refresh", "Data Aug Bound")
"""Columns of Ascend's tables."""

_LONGEST = 10**17
"""ns, three years: longer ones are instants of Unix time, whatever their heading says."""

_FAR = 10**9
"""ns: instants that all lie beyond are counted from the earliest of them, where people read."""

_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))

_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def text(results: Sequence[Result], explain: bool = False, width: int | None = None) -> str:
    """Aligned columns below a title.

    Args:
        explain: the formula of every table above it.
        width:   most characters in a line; None for as many as the columns take.
    """
    return "\n".join(_text_table(result, explain, width) for result in results)


def screen(results: Sequence[Result], width: int, most: int) -> list[str]:
    """The lines of tables that fit a screen: fewer rows, and what they leave out in a line each.

    Columns without data, or with the same value in all rows, are named below a table, as are those
    that the width has no room for. Of many tables only names and numbers of rows are listed.

    Args:
        width: most characters in a line.
        most:  lines.
    """
    full = [result for result in results if result.rows]
    room_each = most // max(len(full), 1)
    if room_each < _SMALLEST:
        names = [fitting.Cells("Table", [result.table.name for result in full], True, True)]
        names.append(fitting.Cells("Rows", [str(result.rows) for result in full], False, False))
        names.append(fitting.Cells("", [result.table.title for result in full], True, False))
        overview = fitting.lines(names, width, WIDEST)
        hidden = len(overview) - most + 1
        return overview if hidden < 2 else [*overview[: most - 1], f"... {hidden} more tables"]
    lines: list[str] = []
    for position, result in enumerate(full):
        lines += _screen_table(result, width, (most - len(lines)) // (len(full) - position))
    return lines[:most]


def _screen_table(result: Result, width: int, most: int) -> list[str]:
    columns = _shown_columns(result)
    if RANK in result.data.columns and len(result.data) > most:  # rows of all ranks first
        order = np.argsort(result.data.columns[RANK] != ABSENT, kind="stable")
        columns = [(column, values[order]) for column, values in columns]
    keys = _keys([column for column, _ in columns])
    zero_ns = _zero_ns(result)
    room = width - len(_INDENT)
    unit = _common(columns)
    shown, constant, absent, zero = [], [], [], []
    for position, (column, values) in enumerate(columns):
        heading, *cells = _shown(column, values, _in_a_line, zero_ns, unit)
        if set(cells) == {UNKNOWN}:
            absent.append(column.name)
        elif column.unit == "ns" and position >= keys and not values.any():
            zero.append(column.name)
        else:
            shown.append(fitting.Cells(heading, cells, column.kind == "text", position < keys))
    if not _fit(shown, room):
        fixed = [
            cells_of_column
            for cells_of_column in shown[1:]
            if len(cells_of_column.cells) > 1 and len(set(cells_of_column.cells)) == 1
        ]
        constant = [
            f"{cells_of_column.heading} {cells_of_column.cells[0]}" for cells_of_column in fixed
        ]
        varying = [cells_of_column for cells_of_column in shown if cells_of_column not in fixed]
        if len(varying) > keys:  # else no figure is left
            shown = varying
        else:
            constant = []
    count = len(shown)
    while count > 1 and not _fit(shown[:count], room):
        count -= 1
    hidden = [cells_of_column.heading for cells_of_column in shown[count:]]
    table = fitting.lines(shown[:count], room, WIDEST)
    rows = len(result.data)
    high = most - 3 - (len(table) - rows)
    cut = table if rows <= high else table[: len(table) - rows + max(high, 1)]
    left_out = result.rows - rows + len(table) - len(cut)
    notes = [f"{left_out} more row{'s' * (left_out > 1)}"] * bool(left_out)
    notes += [f"0 in all rows: {', '.join(zero)}"] * bool(zero)
    notes += [f"same in all rows: {', '.join(constant)}"] * bool(constant)
    notes += [f"no data: {', '.join(absent)}"] * bool(absent)
    notes += [f"not shown: {', '.join(hidden)}"] * bool(hidden)
    note = textwrap.shorten("; ".join(notes), room, placeholder=" ...")
    lines = [result.table.title, *(_INDENT + line for line in cut), *[_INDENT + note] * bool(note)]
    return [line[:width] for line in lines] + [""]


def _fit(columns: Sequence[fitting.Cells], width: int) -> bool:
    """Whether a table of these is not wider than ``width``."""
    return "" not in fitting.lines(columns, width, WIDEST)


@dataclass(frozen=True)
class ExactColumn:
    """A column as files hold it.

    Attributes:
        heading: with the unit of the cells.
        cells:   texts with all digits; "" where there is none.
        numbers: whether cells are shown and summed as numbers, where they are some.
    """

    heading: str
    cells: Sequence[str]
    numbers: bool


def csv_text(result: Result) -> str:
    """One table: headings and rows; missing values are empty cells."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = exact_columns(result)
    if result.rows:
        writer.writerow(column.heading for column in columns)
    writer.writerows(zip(*(column.cells for column in columns), strict=True))
    return out.getvalue()


def exact_columns(result: Result) -> list[ExactColumn]:
    """The columns with all digits: times in us, "" for what is absent."""
    return [
        ExactColumn(
            column.heading("us" if column.unit == "ns" else column.unit),
            _cells(column, values, _exact(column), ""),
            column.kind != "text",
        )
        for column, values in _columns(result)
    ]


def document(results: Sequence[Result]) -> dict[str, Any]:
    """All tables as JSON values, with ``schema_version``; missing values are null."""
    return {"schema_version": SCHEMA_VERSION, "tables": [_described(r) for r in results]}


def json_text(results: Sequence[Result]) -> str:
    """:func:`document` as text."""
    return encoded(document(results), indented=True).decode() + "\n"


def markdown(results: Sequence[Result], explain: bool = False) -> str:
    """A section per table, with its formula if ``explain``."""
    return "\n".join(_markdown_table(result, explain) for result in results)


def _shown_columns(result: Result) -> list[tuple[Column, NDArray[Any]]]:
    """The columns that people read: those of one vendor only where there is data."""
    return [
        (column, values)
        for column, values in _columns(result)
        if column.name not in _OF_VENDOR or (values != ABSENT).any()
    ]


def _columns(result: Result) -> list[tuple[Column, NDArray[Any]]]:
    """Definitions and values; none if no rank has data."""
    if not result.data.columns:
        return []
    return [(column, result.data[column.key]) for column in result.table.columns]


# -- text ---------------------------------------------------------------------------------


def _headline(result: Result) -> str:
    shown, rows = len(result.data), result.rows
    note = f" (the first {shown} of {rows} rows; `top=None` for the rest)" if shown < rows else ""
    return f"{result.table.title}{note}"


def _missing(result: Result) -> str:
    return f"no data: needs {result.table.needs}"


def _text_table(result: Result, explain: bool, width: int | None) -> str:
    words = [_headline(result)]
    if explain:
        words += [_INDENT + result.table.formula]
    zero_ns = _zero_ns(result)
    words += [_INDENT + line for line in _counted_from(zero_ns)]
    if not result.rows:
        words += [_INDENT + _missing(result)]
    lines = [line for text in words for line in _wrapped(text, width)]
    if result.rows:
        room = None if width is None else width - len(_INDENT)
        lines += [_INDENT * bool(line) + line for line in _fitted(result, room, zero_ns)]
    return "\n".join([*lines, ""])


def _zero_ns(result: Result) -> int:
    """What instants are counted from for people: the earliest one if that is far from 0, else 0."""
    earliest_of_each = [
        int(present.min())
        for column, values in _columns(result)
        if _are_instants(column, values) and len(present := values[values != ABSENT])
    ]
    earliest = min(earliest_of_each, default=0)
    return earliest if earliest >= _FAR else 0


def _are_instants(column: Column, values: NDArray[Any]) -> bool:
    if column.unit != "ns":
        return False
    return any(word in column.name for word in _INSTANTS) or bool((values > _LONGEST).any())


def _counted_from(zero_ns: int) -> list[str]:
    if not zero_ns:
        return []
    utc = f", {utc_text(zero_ns)}" if is_unix_ns(zero_ns) else ""
    return [f"instants are counted from {us_text(zero_ns)} us{utc}"]


def _keys(columns: Sequence[Column]) -> int:
    """How many columns, from the first, name the rows: up to the last text before a figure, or
    the numbers of ranks, graphs and steps."""
    figures = (n for n, c in enumerate(columns) if c.unit not in ("", "1") or c.name in _COUNTS)
    leading = columns[: next(figures, len(columns))]
    texts = [position for position, column in enumerate(leading) if column.kind == "text"]
    return texts[-1] + 1 if texts else max(len(leading), 1)


def _wrapped(words: str, width: int | None) -> list[str]:
    indent = _INDENT if words.startswith(_INDENT) else ""
    return textwrap.wrap(
        words,
        width or 94,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fitted(result: Result, width: int | None, zero_ns: int) -> list[str]:
    columns = _shown_columns(result)
    keys, unit = _keys([column for column, _ in columns]), _common(columns)
    cells = []
    for position, (column, values) in enumerate(columns):
        heading, *rows = _shown(column, values, _in_a_line, zero_ns, unit)
        cells.append(fitting.Cells(heading, rows, column.kind == "text", position < keys))
    return fitting.lines(cells, width, WIDEST)


def _in_a_line(cell: str) -> str:
    return " ".join(cell.split())


def _common(columns: Sequence[tuple[Column, NDArray[Any]]]) -> tuple[str, int] | None:
    """The unit of all times of a table, so that they compare: that of its longest column, or a
    smaller one in which the shortest time is at least 0.001; None where the longest would have more
    than nine digits in that."""
    times = [v for c, v in columns if c.unit == "ns" and not _are_instants(c, v)]
    present = [np.abs(values[(values != ABSENT) & (values != 0)]) for values in times]
    present = [values for values in present if len(values)]
    if not present:
        return None
    widest = max(_suited(values)[1] for values in present)
    least, longest = min(int(v.min()) for v in present), max(int(v.max()) for v in present)
    return next(
        (
            (name, scale)
            for name, scale in _UNITS
            if scale <= min(widest, least * 1000) and longest // scale < 10**9
        ),
        None,
    )


def _shown(
    column: Column, values: NDArray[Any], short: Callable[[str], str], zero_ns: int,
    unit: tuple[str, int] | None,
) -> list[str]:  # fmt: skip
    """Heading and cells for people; instants are counted from ``zero_ns``; times in ``unit``, or
    the one that suits the column."""
    if column.kind == "text":
        return [column.name, *(short(cell) or UNKNOWN for cell in values.tolist())]
    if column.unit == "B" and (suited := _suited_size(values)):
        name, scale = suited
        heading = f"{column.name}({name})"
        return [heading, *_cells(column, values, lambda size: f"{size / scale:.3f}", UNKNOWN)]
    if column.unit != "ns":
        decimals = _decimals(values, 3) if column.kind == "float" else 0
        written = (lambda value: f"{value:.{decimals}f}") if column.kind == "float" else str
        return [column.heading(column.unit), *_cells(column, values, written, UNKNOWN)]
    if zero_ns and _are_instants(column, values):
        values = np.where(values == ABSENT, ABSENT, values - zero_ns)
    name, scale = (None if _are_instants(column, values) else unit) or _suited(values)
    decimals = _decimals(np.where(values == ABSENT, 0, values) / scale, len(str(scale)) - 1)
    return [
        column.heading(name),
        *_cells(column, values, lambda ns: _scaled(ns, scale, decimals), UNKNOWN),
    ]


def _suited(column: NDArray[Any]) -> tuple[str, int]:
    """Name and length in ns of the unit of a column: the largest unit in which the smallest value
    is at least 0.1 and the largest at least 1, unless that would have more than nine digits."""
    present = np.abs(column[(column != ABSENT) & (column != 0)])
    if not len(present):
        return _UNITS[1]
    smallest, largest = int(present.min()), int(present.max())
    fitting = [(n, s) for n, s in _UNITS if largest // s < 10**9] or [_UNITS[0]]
    return next(((n, s) for n, s in fitting if smallest * 10 >= s and largest >= s), fitting[-1])


def _decimals(column: NDArray[Any], most: int) -> int:
    """Decimals that show the smallest value of a column with three digits."""
    finite = np.abs(column[np.isfinite(column) & (column != 0)])
    if not len(finite):
        return 0
    return min(max(2 - math.floor(math.log10(float(finite.min()))), 0), most)


def _suited_size(column: NDArray[Any]) -> tuple[str, int] | None:
    """Name and bytes of the largest unit that the largest value reaches; None below 1 KiB."""
    present = column[column != ABSENT]
    largest = int(present.max()) if len(present) else 0
    return next((size for size in _SIZES if largest >= size[1]), None)


def _scaled(ns: int, scale: int, decimals: int) -> str:
    """``ns`` in units of ``scale`` with ``decimals`` decimals, rounded half up."""
    rounded = (abs(ns) * 10**decimals + scale // 2) // scale
    digits = f"{rounded:0{decimals + 1}}"
    text = f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits
    return f"-{text}" if ns < 0 and rounded else text


# -- exact --------------------------------------------------------------------------------


def _exact(column: Column) -> Callable[[Any], str]:
    """Writes a value of this column with all its digits; times in us."""
    if column.unit == "ns":
        return us_text
    return repr if column.kind == "float" else str


def _cells(
    column: Column, values: NDArray[Any], written: Callable[[Any], str], absent: str
) -> list[str]:
    absent = column.of_all or absent
    return [absent if _is_absent(v) else written(v) for v in values.tolist()]


def _is_absent(value: Any) -> bool:
    return value in (ABSENT, "") or (isinstance(value, float) and math.isnan(value))


def _described(result: Result) -> dict[str, Any]:
    columns = _columns(result)
    values = [[None if _is_absent(v) else v for v in c.tolist()] for _, c in columns]
    described: dict[str, Any] = {
        "name": result.table.name,
        "title": result.table.title,
        "formula": result.table.formula,
        "columns": [
            {"name": c.name, "unit": "" if c.unit == "1" else c.unit, "key": _json_key(c)}
            for c, _ in columns
        ],
        "rows": [list(row) for row in zip(*values, strict=True)],
        "total_rows": result.rows,
    }
    return described if result.rows else {**described, "needs": result.table.needs}


_KEY_UNITS = {"%": "pct", "GB/s": "gbps", "1": ""}


def _json_key(column: Column) -> str:
    """A name of a column that no other one of its table has: ``idle_ns``, ``idle_pct``."""
    words = re.sub(r"[^a-z0-9]+", "_", column.name.lower()).strip("_")
    unit = _KEY_UNITS.get(column.unit, re.sub(r"[^a-z0-9]+", "_", column.unit.lower()))
    return f"{words}_{unit}" if unit else words


# -- Markdown -----------------------------------------------------------------------------


def _markdown_table(result: Result, explain: bool) -> str:
    lines = [f"## {_headline(result)}", ""]
    if explain:
        lines += [result.table.formula, ""]
    if not result.rows:
        return "\n".join([*lines, _missing(result), ""])
    zero_ns = _zero_ns(result)
    lines += [line for note in _counted_from(zero_ns) for line in (note, "")]
    shown = _shown_columns(result)
    unit = _common(shown)
    columns = [_shown(column, values, _escaped, zero_ns, unit) for column, values in shown]
    rule = ["---" if column.kind == "text" else "---:" for column, _ in shown]
    rows = list(zip(*columns, strict=True))
    rows.insert(1, tuple(rule))
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), ""])


def _escaped(cell: str) -> str:
    flat = " ".join(cell.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
