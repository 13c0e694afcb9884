"""Columns straight from the pages of a database file, without a Python object per value.

SQLite hands out rows one at a time; most of the time of reading a large table is spent there.
Tables whose rows lie in the plain form - numbers, and numbers as text, in records that fit into
their pages - are decoded here as columns. Whatever is not plain, or not as it should be, is left
to SQLite: :meth:`Pages.columns` then returns None.

Format: https://www.sqlite.org/fileformat2.html, sections 1.3, 1.6 and 2.1.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.readers._sqlite_file import MAGIC
from traceconv.readers._sqlite_records import I64, Bytes, NotPlain, Rows, Wanted, big_endian

_CELLS = 1 << 16
"""Rows decoded at a time: what stays in the cache."""

_LEAF, _INTERIOR = 0x0D, 0x05


@dataclass(frozen=True)
class PlainTable:
    """A table whose rows may lie in the plain form.

    Attributes:
        root:  its first page.
        rowid: the column whose values are the numbers of rows, "" if there is none.
    """

    root: int
    rowid: str


_ROUNDABOUT = re.compile(r"\bWITHOUT\b|\bVIRTUAL\b|\bGENERATED\b|\bAS\s*\(|\bDESC\b", re.IGNORECASE)
"""Found in the definition of a table whose rows may lie in another way."""


def plain_table(root: Any, sql: Any, info: Sequence[tuple[Any, ...]]) -> PlainTable | None:
    """The table as the schema describes it; None if its rows lie in another way.

    Args:
        info: the rows of ``PRAGMA table_xinfo``.
    """
    if not isinstance(root, int) or root < 2 or not isinstance(sql, str):
        return None
    if _ROUNDABOUT.search(sql) or any(row[4] is not None or row[6] for row in info):
        return None  # a default stands for what older rows lack
    keys = [row for row in info if row[5]]
    lone = len(keys) == 1 and str(keys[0][2]).upper() == "INTEGER"
    return PlainTable(root, str(keys[0][1]) if lone else "")


class Pages:
    """The pages of a database file that nobody writes to."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data: Bytes = np.frombuffer(_mapped(file.fileno()), np.uint8)
        head = self._data[:100].tobytes()
        size = int.from_bytes(head[16:18], "big") if len(head) == 100 else 0
        self._size = 65536 if size == 1 else size
        self._usable = self._size - (head[20] if size else 0)
        whole = size > 0 and len(self._data) % self._size == 0 and head.startswith(MAGIC)
        self._count = len(self._data) // self._size if whole else 0

    def columns(self, root: int, wanted: Sequence[Wanted]) -> list[NDArray[Any]] | None:
        """The columns of the table whose first page is ``root``, in the order of rows.

        Returns:
            int64 or float64 arrays as asked; None if SQLite must read the table.
        """
        try:
            leaves = self._leaves(root)
            count = self._short(leaves, 3)
            if (2 * count > self._usable).any():
                return None
            columns: list[NDArray[Any]] = [np.empty(int(count.sum()), w.dtype) for w in wanted]
            at = 0
            for some in _batches(leaves, count):
                rows = Rows(self._data, self._cells(some), self._usable, self._size)
                for column, what in zip(columns, wanted, strict=True):
                    column[at : at + len(rows)] = rows.column(what)
                at += len(rows)
        except (NotPlain, IndexError):
            return None
        return columns

    def _short(self, page: I64, offset: int) -> I64:
        """A number of two bytes in the head of every page."""
        at = page * self._size + offset
        value: I64 = self._data[at].astype(np.int64) << 8 | self._data[at + 1]
        return value

    def _leaves(self, root: int) -> I64:
        """Pages that hold rows, in order; all of them are equally deep."""
        level = np.array([root - 1], np.int64)
        for _ in range(20):
            if ((level < 1) | (level >= self._count)).any() or len(level) > self._count:
                break  # page 0 is that of the schema
            kind = self._data[level * self._size]
            if (kind == _LEAF).all():
                return level
            if not (kind == _INTERIOR).all():
                break
            level = self._children(level)
        raise NotPlain

    def _children(self, level: I64) -> I64:
        count = self._short(level, 3)
        cells = self._pointed(level, count, 12)
        inner = big_endian(self._data, cells, 4)
        last = big_endian(self._data, level * self._size + 8, 4)
        return np.insert(inner, np.cumsum(count), last) - 1

    def _cells(self, leaves: I64) -> I64:
        return self._pointed(leaves, self._short(leaves, 3), 8)

    def _pointed(self, pages: I64, count: I64, head: int) -> I64:
        """Where the cells of pages lie in the file, by the pointers behind their heads."""
        if (head + 2 * count > self._usable).any():
            raise NotPlain
        start = np.repeat(pages * self._size, count)
        number = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
        at = start + head + 2 * number
        pointer = self._data[at].astype(np.int64) << 8 | self._data[at + 1]
        if ((pointer < head) | (pointer > self._usable - 4)).any():
            raise NotPlain
        cells: I64 = start + pointer
        return cells


def _mapped(number: int) -> Any:
    try:
        return mmap.mmap(number, 0, access=mmap.ACCESS_READ)
    except ValueError:  # empty
        return b""


def _batches(leaves: I64, count: I64) -> Iterator[I64]:
    group = np.cumsum(count) // _CELLS
    borders = np.flatnonzero(np.diff(group, prepend=-1))
    yield from np.split(leaves, borders[1:])
