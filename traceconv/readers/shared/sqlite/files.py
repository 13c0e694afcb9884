"""Database files: opening them, repairing truncated ones, and decoding plain tables as columns.

A database is opened in place and never written. It is copied first if it is packed, if it has a
journal (a killed writer leaves its last rows there, and applying them changes files), or if it is
truncated and must be salvaged.

SQLite returns rows one at a time, which dominates the reading of large tables. Tables whose rows
are plain - numbers, and numbers as text, in records that fit into their pages - are decoded here as
columns, without a Python object per value. For all others :meth:`Pages.columns` returns None, and
SQLite reads them.

Format: https://www.sqlite.org/fileformat2.html, sections 1.3 (header), 1.6 (trees of pages), 2.1
(records).
"""

from __future__ import annotations

import mmap
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from traceconv.core.errors import SourceError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.io.streams import open_regular
from traceconv.scratch.memory import ReadMapping
from traceconv.scratch.temporary import TemporaryFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAF, _INTERIOR = 0x0D, 0x05
_DEEPEST = 20

_Reference = tuple[int, int]
"""Place of a reference's cell in its page (0 for the last one, which has none), and the page it
refers to."""

SCHEMA = 1
"""First page of the table of tables."""

MOST_BYTES = 1 << 40
"""A database that claims to be longer is damaged or malicious."""


def fill_up(path: Path, page: int, whole: int) -> frozenset[int]:
    """Restore the length of a truncated database, in place, without the cut page.

    A table is a tree of pages. SQLite stops at a missing page although later ones may precede the
    cut, since the pages of a table that was changed are in no order. So references to missing pages
    are removed from the trees.

    Args:
        page:  bytes of a page.
        whole: bytes of the database, from its header.

    Returns:
        The present first pages (from 1) of the tables that lack pages.
    """
    n_pages = path.stat().st_size // page
    short: frozenset[int] = frozenset()
    with path.open("r+b") as file:
        file.truncate(n_pages * page)
        if n_pages:
            with mmap.mmap(file.fileno(), 0) as data:
                short = _Trees(data, page, n_pages).mended()
        file.truncate(min(whole, MOST_BYTES))  # a hole takes no room
    return short


class _Trees:
    """The trees of tables in the present pages, which are numbered from 1."""

    def __init__(self, data: mmap.mmap, page: int, there: int) -> None:
        self._data, self._page, self._there = data, page, there
        kinds = bytes((data[100],)) + data[page::page]
        self._inner = {match.start() + 1 for match in re.finditer(bytes((_INTERIOR,)), kinds)}
        self._visited: set[int] = set()

    def mended(self) -> frozenset[int]:
        """Remove all references to missing pages; returns the roots of the trees that had any."""
        below = {child for number in self._inner for _, child in self._references(number)}
        return frozenset(top for top in sorted(self._inner - below) if self._mend(top)[1])

    def _head(self, number: int) -> int:
        return (number - 1) * self._page + (100 if number == SCHEMA else 0)

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._data[at : at + size], "big")

    def _write(self, at: int, size: int, number: int) -> None:
        self._data[at : at + size] = number.to_bytes(size, "big")

    def _references(self, number: int) -> Iterator[_Reference]:
        """The references of an inner page, in order, without invalid cells."""
        head, start = self._head(number), (number - 1) * self._page
        count = min(self._number(head + 3, 2), (self._page - 112) // 2)
        for i in range(count):
            cell = self._number(head + 12 + 2 * i, 2)
            if 12 <= cell <= self._page - 4:
                yield cell, self._number(start + cell, 4)
        yield 0, self._number(head + 8, 4)

    def _mend(self, number: int, depth: int = 0) -> tuple[int, bool]:
        """The page that replaces this one in its parent (0: none); whether pages are missing."""
        if depth > _DEEPEST or number in self._visited:
            return 0, True
        self._visited.add(number)
        references: list[_Reference] = []
        lost = False
        for cell, child in self._references(number):
            less = not 1 < child <= self._there
            if child in self._inner and not less:
                child, less = self._mend(child, depth + 1)
            elif less:
                child = 0
            lost |= less
            references += [(cell, child)] if child else []
        if lost and depth and len(references) < 2:  # an inner page needs two
            return references[0][1] if references else 0, True
        if lost:
            self._rewrite(number, references)
        return number, lost

    def _rewrite(self, number: int, kept: list[_Reference]) -> None:
        """Make an inner page refer to ``kept`` only."""
        head, start = self._head(number), (number - 1) * self._page
        if not kept:
            self._data[head : head + 5] = bytes((_LEAF, 0, 0, 0, 0))
        elif len(kept) == 1 and number != SCHEMA:  # only the schema's may have a single one
            child_head = self._head(kept[0][1])
            self._data[start : start + self._page] = self._data[
                child_head : child_head + self._page
            ]
        else:
            for i, (cell, child) in enumerate(kept[:-1]):
                self._write(head + 12 + 2 * i, 2, cell)
                self._write(start + cell, 4, child)
            self._write(head + 3, 2, len(kept) - 1)
            self._write(head + 8, 4, kept[-1][1])


MAGIC = b"SQLite format 3\0"

_JOURNAL_HEADER = 32
"""Bytes of a write-ahead log without pages."""

_FRAME_HEADER = 24
"""Bytes before every page of a log: its number, the database's length if it completes a
transaction, the salt of the log, a checksum."""


def is_sqlite(head: bytes) -> bool:
    """Whether a file that begins so is an SQLite database."""
    return head.startswith(MAGIC)


class DatabaseFile:
    """A file that SQLite can open: the input itself, or a copy that is removed with this object.

    Attributes:
        path: of the file.
        mode: of the URI that opens it.
        cut:  whether it is truncated and was filled up.
        short: first pages of the tables that lack pages for that reason.
        is_whole: whether it holds all rows.
        torn: whether its journal ends within a transaction, whose rows are lost.
    """

    def __init__(self, source: Source, name: str, salvage: bool = False) -> None:
        """
        Args:
            salvage: fill up a database that is cut off.

        Raises:
            SourceError: it cannot be read or copied.
        """
        self._folder: TemporaryFolder | None = None
        self.cut, self.torn = False, False
        self.short: frozenset[int] = frozenset()
        try:
            path, journal = source.path(name), _journal(source, name)
            self.whole = journal is None
            is_whole = path is not None and _head(path).startswith(MAGIC) and not journal
            if path is not None and is_whole and not (salvage and _is_cut(path)):
                self.path, self.mode = path, "ro&immutable=1"
                return
            self._folder = TemporaryFolder()
            self.path, self.mode = Path(self._folder.name) / "database", "rw"
            _unpack(source, name, self.path)
            if isinstance(journal, Path):
                shutil.copyfile(journal, f"{self.path}-wal")
            elif journal is not None:
                _unpack(source, journal, Path(f"{self.path}-wal"))
            self.torn = journal is not None and _is_torn(Path(f"{self.path}-wal"))
            if salvage and journal is None and _is_cut(self.path):
                self.cut, self.whole = True, False
                self.short = fill_up(self.path, *_layout(self.path))
        except OSError as e:
            self.close()
            raise SourceError(
                f"{source.title(name)}: cannot read or copy: {e.strerror or e}"
            ) from e
        except SourceError:
            self.close()
            raise

    def close(self) -> None:
        """Remove the copy, if any."""
        if self._folder is not None:
            self._folder.cleanup()


def _head(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(100)


def _journal(source: Source, name: str) -> str | Path | None:
    """The write-ahead log of a database, unless it is empty or absent."""
    path, wal = source.path(name), f"{name}-wal"
    if path is not None:  # also of a lone file, whose source lists no other files
        beside = Path(f"{path}-wal")
        return beside if beside.is_file() and beside.stat().st_size > _JOURNAL_HEADER else None
    return wal if wal in source.names() and source.size(wal) > _JOURNAL_HEADER else None


def _unpack(source: Source, name: str, to: Path) -> None:
    with source.open(name) as stream, to.open("wb") as file:
        while part := stream.read(1 << 20):
            file.write(part)


def _layout(path: Path) -> tuple[int, int]:
    """Bytes of a page, and of the database according to its header; 0 if unknown."""
    head = _head(path)
    if len(head) < 100 or not head.startswith(MAGIC) or head[24:28] != head[92:96]:
        return 0, 0  # if the two change counters differ, the length is out of date
    size_field = int.from_bytes(head[16:18], "big")
    page = 65536 if size_field == 1 else size_field
    if page < 512 or page & (page - 1):
        return 0, 0
    return page, page * int.from_bytes(head[28:32], "big")


def _is_cut(path: Path) -> bool:
    return path.stat().st_size < _layout(path)[1]


def _is_torn(journal: Path) -> bool:
    """Whether a write-ahead log ends within a page or a transaction.

    Pages of an earlier log, with another salt, do not count.
    """
    size, torn = journal.stat().st_size, False
    with open_regular(journal) as file:
        head = file.read(_JOURNAL_HEADER)
        page, mark = int.from_bytes(head[8:12], "big"), head[16:24]
        if page < 512:
            return False
        for frame_at in range(_JOURNAL_HEADER, size, _FRAME_HEADER + page):
            file.seek(frame_at)
            frame = file.read(_FRAME_HEADER)
            if not mark.startswith(frame[8:16]):
                break
            torn = frame_at + _FRAME_HEADER + page > size or not any(frame[4:8])
    return torn


Bytes: TypeAlias = "NDArray[np.uint8]"
I64: TypeAlias = "NDArray[np.int64]"

_REAL, _ZERO, _ONE, _FIRST_TEXT = 7, 8, 9, 12
_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)
"""Bytes of a value by its serial type."""

_MAX_DIGITS = 18
_EXACT = float(1 << 62)


class NotPlain(Exception):
    """SQLite itself must read this table."""


class ColumnRequest(msgspec.Struct, frozen=True):
    """A column to read.

    Attributes:
        index:   position in the table, -1 for the rowid.
        default: the value for NULL; its type, int or float, is that of the column.
        is_rowid: whether NULL means the rowid.
    """

    index: int
    default: Any
    is_rowid: bool = False

    @property
    def dtype(self) -> str:
        """int64 or float64."""
        return "i8" if type(self.default) is int else "f8"


class Records:
    """The places of the head and the values of some rows.

    The head of a record holds the type of each value; the values follow without gaps.
    """

    def __init__(self, data: Bytes, cells: I64, usable: int, size: int) -> None:
        payload, at = _varints(data, cells)
        self.number, at = _varints(data, at)
        end = at + payload
        room = cells // size * size + usable
        if (payload > usable - 35).any() or (payload < 1).any() or (end > room).any():
            raise NotPlain
        head, self._next = _varints(data, at)
        self._body = self._stop = at + head
        if ((self._stop < self._next) | (self._stop > end)).any():
            raise NotPlain
        self._data, self._end = data, end
        self._columns: list[tuple[I64, I64]] = []

    def __len__(self) -> int:
        return len(self.number)

    def column(self, requested: ColumnRequest) -> NDArray[Any]:
        """The values of one column."""
        if requested.index < 0:
            return self.number
        while len(self._columns) <= requested.index:
            self._columns.append(self._place())
        return _decoded(self._data, *self._columns[requested.index], requested, self.number)

    def _place(self) -> tuple[I64, I64]:
        """Type and place of the next column's values; NULL in rows that end before it."""
        inside = self._next < self._stop
        if inside.all():
            kind, self._next = _varints(self._data, self._next)
        else:
            kind = np.zeros(len(self), np.int64)
            kind[inside], self._next[inside] = _varints(self._data, self._next[inside])
        begin, small = self._body, kind < _FIRST_TEXT
        width = np.array(_WIDTHS, np.int64)[np.minimum(kind, _FIRST_TEXT - 1)]
        self._body = begin + np.where(small, width, (kind - _FIRST_TEXT) >> 1)
        if (self._body > self._end).any() or (self._next > self._stop).any():
            raise NotPlain
        return kind, begin


def _varints(data: Bytes, at: I64) -> tuple[I64, I64]:
    """Varints of one to nine bytes, and their ends."""
    byte = data[at]
    value, continues = (byte & 0x7F).astype(np.int64), byte >= 0x80
    end = at + 1
    for i in range(1, 9):
        if not continues.any():
            return value, end
        unfinished = np.flatnonzero(continues)
        byte = data[at[unfinished] + i]
        bits = byte if i == 8 else byte & 0x7F
        value[unfinished] = value[unfinished] << (8 if i == 8 else 7) | bits
        end[unfinished] += 1
        continues[unfinished[byte < 0x80]] = False
    return value, end


def _windows(data: Bytes, at: I64, width: int) -> Bytes:
    """``width`` bytes from every place, as rows."""
    return np.lib.stride_tricks.sliding_window_view(data, width)[at]


def big_endian(data: Bytes, at: I64, width: int) -> I64:
    """Unsigned numbers of fewer than eight bytes."""
    room = np.zeros((len(at), 8), np.uint8)
    room[:, 8 - width :] = _windows(data, at, width)
    return room.view(">i8")[:, 0].astype(np.int64)


def _decoded(
    data: Bytes, kind: I64, place: I64, requested: ColumnRequest, number: I64
) -> NDArray[Any]:
    present = np.unique(kind) if len(kind) and (kind != kind[0]).any() else kind[:1]
    if len(present) == 1:
        return _of_kind(data, int(present[0]), place, requested, number)
    values = np.empty(len(kind), requested.dtype)
    for type_code in present.tolist():
        rows = np.flatnonzero(kind == type_code)
        values[rows] = _of_kind(data, type_code, place[rows], requested, number[rows])
    return values


def _of_kind(
    data: Bytes, kind: int, place: I64, requested: ColumnRequest, number: I64
) -> NDArray[Any]:
    """Values of one type, as int64 or float64."""
    if kind == 0 and requested.is_rowid:
        return number
    if kind in (0, _ZERO, _ONE):
        value = requested.default if kind == 0 else kind - _ZERO
        return np.full(len(place), value, requested.dtype)
    if kind < _REAL:
        width = _WIDTHS[kind]
        room = np.zeros((len(place), 8), np.uint8)
        room[:, :width] = _windows(data, place, width)
        signed: I64 = room.view(">i8")[:, 0].astype(np.int64) >> (64 - 8 * width)
        return signed
    if kind == _REAL:
        real = _windows(data, place, 8).copy().view(">f8")[:, 0].astype(np.float64)
        if requested.dtype == "i8" and not (np.abs(real) < _EXACT).all():
            raise NotPlain
        return real
    if kind > _FIRST_TEXT and kind % 2:
        return _digits(_windows(data, place, (kind - _FIRST_TEXT) >> 1))
    raise NotPlain


def _digits(text: Bytes) -> I64:
    """Numbers spelled as text."""
    value: I64 = np.zeros(len(text), np.int64)
    digits = text - np.uint8(ord("0"))
    if not 0 < text.shape[1] <= _MAX_DIGITS + 1 or (digits > 9).any():
        raise NotPlain
    if text.shape[1] > _MAX_DIGITS and (digits[:, 0] > 8).any():
        raise NotPlain
    for i in range(text.shape[1]):
        value = value * 10 + digits[:, i]
    return value


_CELLS = 1 << 16
"""Rows decoded at a time, to fit the cache."""


class PlainTable(msgspec.Struct, frozen=True):
    """A table whose rows may be plain.

    Attributes:
        root:  its first page.
        rowid: the column that is the rowid, "" without one.
    """

    root: int
    rowid: str


_ROUNDABOUT = lazy_regex(r"\bWITHOUT\b|\bVIRTUAL\b|\bGENERATED\b|\bAS\s*\(|\bDESC\b", re.IGNORECASE)
"""Words in the definition of tables whose pages may not hold plain rows."""


def plain_table(root: Any, sql: Any, info: Sequence[tuple[Any, ...]]) -> PlainTable | None:
    """The table as the schema describes it; None if its rows are not plain.

    Args:
        info: the rows of ``PRAGMA table_xinfo``.
    """
    if not isinstance(root, int) or root < 2 or not isinstance(sql, str):
        return None
    if _ROUNDABOUT.search(sql) or any(row[4] is not None or row[6] for row in info):
        return None  # a default replaces what older rows lack
    keys = [row for row in info if row[5]]
    lone = len(keys) == 1 and str(keys[0][2]).upper() == "INTEGER"
    return PlainTable(root, str(keys[0][1]) if lone else "")


class Pages:
    """The pages of a database file."""

    def __init__(self, path: Path) -> None:
        with open_regular(path) as file:
            data: Any = ReadMapping(file.fileno()) if path.stat().st_size else b""
        self._data: Bytes = np.frombuffer(data, np.uint8)
        head = self._data[:100].tobytes()
        size = int.from_bytes(head[16:18], "big") if len(head) == 100 else 0
        self._size = 65536 if size == 1 else size
        self._usable = self._size - (head[20] if size else 0)
        is_whole = size > 0 and len(self._data) % self._size == 0 and head.startswith(MAGIC)
        self._count = len(self._data) // self._size if is_whole else 0

    def columns(self, root: int, requested: Sequence[ColumnRequest]) -> list[NDArray[Any]] | None:
        """The columns of the table whose first page is ``root``, in the order of rows.

        Returns:
            int64 or float64 arrays; None if SQLite must read the table.
        """
        try:
            leaves = self._leaves(root)
            count = self._short(leaves, 3)
            if (2 * count > self._usable).any():
                return None
            columns: list[NDArray[Any]] = [np.empty(int(count.sum()), w.dtype) for w in requested]
            row = 0
            group = np.cumsum(count) // _CELLS
            ends = np.flatnonzero(np.diff(group, prepend=-1))[1:]
            for group_leaves in np.split(leaves, ends):
                cells = self._pointed(group_leaves, self._short(group_leaves, 3), 8)
                rows = Records(self._data, cells, self._usable, self._size)
                for column, request in zip(columns, requested, strict=True):
                    column[row : row + len(rows)] = rows.column(request)
                row += len(rows)
        except (NotPlain, IndexError):
            return None
        return columns

    def _short(self, page: I64, offset: int) -> I64:
        """A number of two bytes in the head of every page."""
        at = page * self._size + offset
        value: I64 = self._data[at].astype(np.int64) << 8 | self._data[at + 1]
        return value

    def _leaves(self, root: int) -> I64:
        """Pages with rows, in order; all are at the same depth."""
        level = np.array([root - 1], np.int64)
        for _ in range(20):
            if ((level < 1) | (level >= self._count)).any() or len(level) > self._count:
                break  # page 0 is the schema
            kind = self._data[level * self._size]
            if (kind == _LEAF).all():
                return level
            if not (kind == _INTERIOR).all():
                break
            count = self._short(level, 3)
            inner = big_endian(self._data, self._pointed(level, count, 12), 4)
            rightmost = big_endian(self._data, level * self._size + 8, 4)
            level = np.insert(inner, np.cumsum(count), rightmost) - 1
        raise NotPlain

    def _pointed(self, pages: I64, count: I64, head: int) -> I64:
        """The places of the cells of pages in the file, from the pointers after their heads."""
        if (head + 2 * count > self._usable).any():
            raise NotPlain
        start = np.repeat(pages * self._size, count)
        number = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
        pointers = start + head + 2 * number
        pointer = self._data[pointers].astype(np.int64) << 8 | self._data[pointers + 1]
        if ((pointer < head) | (pointer > self._usable - 4)).any():
            raise NotPlain
        cells: I64 = start + pointer
        return cells
