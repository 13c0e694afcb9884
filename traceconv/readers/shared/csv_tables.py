"""CSV tables of profilers as columns of a side table.

These tables are UTF-8, some with a byte order mark, with LF or CRLF. Quoted cells may contain line
ends, long numbers may end in a tab, headings may repeat (the second ``Reduce Start(us)`` becomes
``Reduce Start(us) (2)``), tables of over a million rows are split into parts with headings each,
and the last line may be incomplete.

Cells become columns of the types of :class:`traceconv.core.side_tables.SideTable`, a batch of rows
at a time, so a large table is never in memory as text. A column whose batches have different types
gets the widest one.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import filterfalse, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import Issues, MalformedInputError, SourceError
from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, below_each_other, kinds_of, unit_of
from traceconv.core.source import Source
from traceconv.readers.shared.numbers import times

Column = NDArray[Any]
Doubt = Callable[[str, str, int], None]
"""Counts an issue: code, place, count."""

MISSING = frozenset(("", "N/A", "NA", "None", "none", "nan", "NaN", "null", "INVALID_TYPE"))
"""Spellings of a missing number."""

_INT = frozenset("0123456789-")
_FLOAT = _INT | frozenset(".eE+")
_NO_TEXT = frozenset(("", "N/A"))
_MOST_KINDS = 20
_WHOLE = lazy_regex(r"[0-9]{1,18}(?:\.0*)?")


def typed(heading: str, cells: Sequence[str], doubt: Doubt, text: bool = False) -> Column:
    """One column of stripped cells: int64, int64 nanoseconds, float64 or object.

    Args:
        text: keep it as text.
    """
    if text:
        return _texts(cells)
    if unit := unit_of(heading):
        return _times(heading, cells, unit, doubt)
    if MISSING.isdisjoint(cells):
        numbers = _numbers(cells)
        return _texts(cells) if numbers is None else numbers
    filled, present = _present(cells)
    numbers = _numbers(present)
    if numbers is None:
        return _texts(cells)
    full = np.full(len(cells), ABSENT if numbers.dtype == np.int64 else np.nan, numbers.dtype)
    full[filled] = numbers
    return full


def _present(cells: Sequence[str]) -> tuple[I64, list[str]]:
    """The cells that are not empty: their rows, and their text."""
    empty = np.fromiter(map(MISSING.__contains__, cells), bool, len(cells))
    return np.flatnonzero(~empty), list(filterfalse(MISSING.__contains__, cells))


def _texts(cells: Sequence[str]) -> Column:
    column = np.empty(len(cells), object)
    pool: dict[str, str] = dict.fromkeys(_NO_TEXT, "")
    column[:] = list(map(pool.setdefault, cells, cells))
    return column


def _numbers(texts: Sequence[str]) -> Column | None:
    """All as whole numbers, else all as numbers, else None."""
    signs = set(texts[0]) if texts else {"?"}
    if not signs <= _FLOAT or not (signs := set("".join(texts))) <= _FLOAT:
        return None
    try:
        if signs <= _INT:
            return np.array(list(map(int, texts)), np.int64)
        return np.array(list(map(float, texts)), np.float64)
    except (ValueError, OverflowError):
        return None


def _times(heading: str, cells: Sequence[str], unit: str, doubt: Doubt) -> Column:
    ns = np.full(len(cells), ABSENT, np.int64)
    filled, texts = _present(cells)
    bad = 0
    for rows in _alike(texts):
        alike = texts if len(rows) == len(texts) else [texts[i] for i in rows.tolist()]
        parsed = times(alike, unit)
        ns[filled[rows]] = np.where(parsed.bad, ABSENT, parsed.ns)
        bad += int(np.count_nonzero(parsed.bad))
    if bad:
        doubt("bad-time", f"column {heading}", bad)
    return ns


def _alike(texts: Sequence[str]) -> list[I64]:
    """Rows by number of decimals: rows with equally many are parsed at once."""
    size = np.fromiter(map(len, texts), np.int64, len(texts))
    point = np.fromiter(map(str.find, texts, repeat(".")), np.int64, len(texts))
    decimals = np.where(point < 0, 0, size - point - 1)
    kinds = np.unique(decimals).tolist()
    if len(kinds) > _MOST_KINDS:
        return [np.arange(len(texts))]
    return [np.flatnonzero(decimals == kind) for kind in kinds]


def whole(column: Column) -> I64:
    """A column as whole numbers; ``ABSENT`` for other cells. One broken cell makes a column of
    text.
    """
    if column.dtype == np.int64:
        return column
    texts = [repr(c) if isinstance(c, float) else str(c) for c in column.tolist()]
    numbers = [int(t.partition(".")[0]) if _WHOLE.fullmatch(t) else ABSENT for t in texts]
    return np.array(numbers, np.int64)


def table(
    rows: Sequence[Mapping[str, str]], doubt: Doubt, text: Collection[str] = ()
) -> dict[str, Column]:
    """Rows by heading as columns, in order of appearance; columns in ``text`` stay text."""
    headings = dict.fromkeys(key for row in rows for key in row)
    return {
        h: typed(h, [row.get(h, "").strip() for row in rows], doubt, h in text) for h in headings
    }


MAX_BYTES = 8 << 30
"""Larger tables (unpacked) are refused."""

MAX_COLUMNS = 20_000
"""A file with more headings is not a table."""

_AS_WRITTEN: Mapping[str, str] = {}
_BATCH = 1 << 12  # what fits a cache is twice as fast
_BLOCK = 1 << 20

Columns = dict[str, Column]


def csv_columns(
    source: Source,
    name: str,
    issues: Issues,
    ended: bool = False,
    renamed: Mapping[str, str] = _AS_WRITTEN,
) -> Columns:
    """The columns of one table, with the types of :class:`traceconv.core.side_tables.SideTable`.

    Rows with too few or too many cells are dropped and counted in ``issues``. An empty file has no
    columns.

    Args:
        ended: a last line without a line end is a cut record and dropped: half a stamp would make
            a wrong event.
        renamed: other headings for columns, unless a heading is in use already; one with a unit
            of time makes its column ns.

    Raises:
        SourceError: the file cannot be read, or is larger than ``MAX_BYTES``.
        MalformedInputError: it is not a table.
    """
    return csv_parts(source, [name], issues, ended, renamed)


def csv_parts(
    source: Source,
    names: Sequence[str],
    issues: Issues,
    ended: bool = False,
    renamed: Mapping[str, str] = _AS_WRITTEN,
) -> Columns:
    """The columns of one table in several files (``_slice_<n>``), concatenated.

    A column that some parts lack is empty there. See :func:`csv_columns` for the rest.
    """
    parts = [_Part(source, name, issues, ended, renamed) for name in names]
    columns, mixed = _read(parts, ())
    if mixed:  # numbers first, text later: these columns are read again, as text
        parts = [_Part(source, name, Issues(), ended, renamed) for name in names]
        columns, _ = _read(parts, mixed)
    return columns


def _read(parts: Sequence[_Part], text: Collection[str]) -> tuple[Columns, list[str]]:
    """The columns, and the headings of columns with text in some batches only."""
    batches: list[Columns] = []
    for part in parts:
        for rows in part.batches():
            columns_of_cells = list(zip(*rows, strict=True)) if rows else [()] * len(part.headings)
            batch = {
                heading: typed(heading, list(map(str.strip, cells)), part.doubt, heading in text)
                for heading, cells in zip(part.headings, columns_of_cells, strict=True)
            }
            batches += [batch] if batch else []
    columns = below_each_other(batches)
    kinds = {
        heading: kinds_of(batch[heading] for batch in batches if heading in batch)
        for heading, column in columns.items()
        if column.dtype.kind == "O"
    }
    return columns, [heading for heading, found in kinds.items() if len(found) > 1]


class _Part:
    """One file of a table; ``headings`` are known after the first batch."""

    def __init__(
        self,
        source: Source,
        name: str,
        issues: Issues,
        ended: bool,
        renamed: Mapping[str, str],
    ) -> None:
        self.headings: list[str] = []
        self._renamed = renamed
        self._source, self._name, self._issues, self._ended = source, name, issues, ended
        self._unended = False  # the last line has no line end

    def doubt(self, code: str, where: str, count: int = 1) -> None:
        """Count an issue of this file."""
        self._issues.add(code, self._source.title(self._name), where, count)

    def batches(self) -> Iterator[list[list[str]]]:
        """The rows as wide as the headings, in batches, at least one."""
        batch: list[list[str]] = []
        for row in self._whole_rows():
            batch.append(row)
            if len(batch) == _BATCH:
                yield batch
                batch = []
        yield batch

    def _whole_rows(self) -> Iterator[list[str]]:
        ragged = where = ""
        for where, row in self._rows():
            if ragged:
                self.doubt("malformed-record", ragged)
            ragged = ""
            if not self.headings:
                self.headings = self._unique_headings(row)
            elif self._unended and self._ended and len(row) >= len(self.headings):
                ragged = f"{where}: its end is missing"
            elif len(row) == len(self.headings):
                yield row
            elif len(row) > len(self.headings) and not any(row[len(self.headings) :]):
                yield row[: len(self.headings)]
            else:
                ragged = f"{where}: {len(row)} cells where there are {len(self.headings)} headings"
        if ragged:
            self.doubt("truncated", ragged)
        elif self._unended and where:
            self.doubt("unended-line", where)

    def _rows(self) -> Iterator[tuple[str, list[str]]]:
        """Yield every row that is not empty. A row that cannot be parsed is counted."""
        reader = csv.reader(self._lines())
        while True:
            where = f"line {reader.line_num + 1}"
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as e:
                self.doubt("malformed-record", f"{where}: {e}")
                continue
            if len(row) > 1 or (row and row[0].strip()):
                yield where, row

    def _lines(self) -> Iterator[str]:
        """The lines with their ends; only LF ends a line."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        size, unfinished = 0, ""
        with self._source.open(self._name) as stream:
            while block := stream.read(_BLOCK):
                size += len(block)
                if size > MAX_BYTES or len(unfinished) > 64 * _BLOCK:
                    raise SourceError(f"{stream.label}: too large for a table, refused")
                line_end, *further = decoder.decode(block).split("\n")
                if further:
                    yield unfinished + line_end + "\n"
                    yield from (line + "\n" for line in further[:-1])
                    unfinished = further[-1]
                else:
                    unfinished += line_end
        if unfinished := unfinished + decoder.decode(b"", True):
            self._unended = True
            yield unfinished

    def _unique_headings(self, row: Sequence[str]) -> list[str]:
        """The headings, each once."""
        if len(row) > MAX_COLUMNS:
            raise MalformedInputError(
                self._source.title(self._name), "line 1", f"{len(row)} headings; is it a table?"
            )
        counts: dict[str, int] = {}
        unique: list[str] = []
        stripped = [cell.strip() for cell in row]
        for heading in stripped:
            renamed = self._renamed.get(heading, heading)
            heading = heading if renamed in stripped else renamed
            counts[heading] = counts.get(heading, 0) + 1
            unique.append(heading if counts[heading] == 1 else f"{heading} ({counts[heading]})")
        return unique
