"""Tables as files of other programs: Parquet, and workbooks of Excel; each by an extra package."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any

from traceconv.core.errors import OptionError
from traceconv.core.frames import extra
from traceconv.core.side_tables import DataTable
from traceconv.report.table_text import ExactColumn

MOST_ROWS = 1_048_575
"""Most rows of a sheet, below its headings."""

MOST_CHARACTERS = 32_767
"""Most characters of a cell."""

EXACT_DIGITS = 15
"""A number of more digits is not the same after Excel has read it."""

_LONGEST_NAME = 31
_MADE = datetime(2000, 1, 1)
"""Workbooks say when they were made; the same table gives the same bytes at any time."""


def parquet(table: DataTable) -> bytes:
    """One table as a Parquet file: names and values are those of :meth:`DataTable.to_arrow`.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    frame = table.to_arrow()
    out = io.BytesIO()
    import_module("pyarrow.parquet").write_table(frame, out)
    return out.getvalue()


def workbook(sheets: Mapping[str, Sequence[ExactColumn]]) -> bytes:
    """Sheets by name as an ``.xlsx`` file, with fixed headings and a filter in each column.

    Texts are never formulas or links, whatever they begin with. A count or a time that Excel would
    round, such as a stamp of nineteen digits, is a text; shares keep sixteen digits.

    Raises:
        MissingExtraError: XlsxWriter is not installed.
        OptionError: a sheet cannot hold a table, or a cell a text.
    """
    writer = extra("xlsxwriter", "xlsx")
    out = io.BytesIO()
    book = writer.Workbook(
        out, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    )
    book.set_properties({"created": _MADE})
    bold = book.add_format({"bold": True})
    for name, columns in sheets.items():
        _refuse_too_large(name, columns)
        sheet = book.add_worksheet(name[:_LONGEST_NAME])
        sheet.freeze_panes(1, 0)
        sheet.autofilter(0, 0, max((len(c.cells) for c in columns), default=0), len(columns) - 1)
        for position, column in enumerate(columns):
            sheet.write_string(0, position, _characters(column.heading), bold)
            sheet.set_column(position, position, min(max(len(column.heading) + 4, 10), 40))
            for row, cell in enumerate(column.cells, 1):
                _write(sheet, row, position, cell, column.numbers)
    book.close()
    return out.getvalue()


def _refuse_too_large(name: str, columns: Sequence[ExactColumn]) -> None:
    for column in columns:
        if len(column.cells) > MOST_ROWS:
            raise OptionError(
                f"table {name} has {len(column.cells)} rows, and a sheet of Excel holds "
                f"{MOST_ROWS}: take fewer (top), or write Parquet or CSV"
            )
        longest = max(map(len, column.cells), default=0)
        if longest > MOST_CHARACTERS:
            raise OptionError(
                f"table {name} has a text of {longest} characters ({column.heading}), and a cell "
                f"of Excel holds {MOST_CHARACTERS}: write Parquet or CSV"
            )


def _write(sheet: Any, row: int, column: int, cell: str, numbers: bool) -> None:
    if not cell:
        return
    number = _number(cell) if numbers else None
    if number is None:
        sheet.write_string(row, column, _characters(cell))
    else:
        sheet.write_number(row, column, number)


def _number(cell: str) -> float | None:
    """The number in a cell; None if it is not a number, or if Excel would change it."""
    try:
        number = float(cell)
    except ValueError:
        return None  # the rank "all"
    if number - number != 0:
        return None  # infinite
    is_exact = repr(number) == cell or sum(map(str.isdigit, cell)) <= EXACT_DIGITS
    return number if is_exact else None


def _characters(text: str) -> str:
    """What XML can hold; halves of surrogate pairs are written as ``\\ud800``."""
    return text.encode("utf-8", "backslashreplace").decode()
