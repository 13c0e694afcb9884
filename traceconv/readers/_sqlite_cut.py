"""A database whose file ends too early, made fit for SQLite to read all the rows that are there.

A table is a tree: pages that refer to pages, at last to those with rows. At one that is missing
SQLite stops, though others may lie before the cut - in a table that was changed after it was
written they lie in no order. So what refers to missing pages is taken out of the trees.

Format: https://www.sqlite.org/fileformat2.html, section 1.6.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

_LEAF, _INTERIOR = 0x0D, 0x05
_DEEPEST = 20

_Reference = tuple[int, int]
"""Where in its page the cell of a reference lies (0 for the last one, which has none), and the
page referred to."""


SCHEMA = 1
"""First page of the table of tables."""

MOST_BYTES = 1 << 40
"""No database is longer; what says so is damaged or means harm."""


def fill_up(path: Path, page: int, whole: int) -> frozenset[int]:
    """Give a cut database its length back, in place; what is there of a cut page goes, too.

    Args:
        page:  bytes of a page.
        whole: bytes of the database, as it says itself.

    Returns:
        The first pages (from 1) of the tables that lack pages, as far as they are there.
    """
    there = path.stat().st_size // page
    short: frozenset[int] = frozenset()
    with path.open("r+b") as file:
        file.truncate(there * page)
        if there:
            with mmap.mmap(file.fileno(), 0) as data:
                short = _Trees(data, page, there).mended()
        file.truncate(min(whole, MOST_BYTES))  # a hole takes no room
    return short


class _Trees:
    """The trees of tables in the pages that are there; pages are counted from 1."""

    def __init__(self, data: mmap.mmap, page: int, there: int) -> None:
        self._data, self._page, self._there = data, page, there
        kinds = bytes((data[100],)) + data[page::page]
        self._inner = {found.start() + 1 for found in re.finditer(bytes((_INTERIOR,)), kinds)}
        self._met: set[int] = set()

    def mended(self) -> frozenset[int]:
        """Take out all references to missing pages; the tops of the trees that had any."""
        below = {child for number in self._inner for _, child in self._references(number)}
        return frozenset(top for top in sorted(self._inner - below) if self._mend(top)[1])

    def _head(self, number: int) -> int:
        return (number - 1) * self._page + (100 if number == SCHEMA else 0)

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._data[at : at + size], "big")

    def _write(self, at: int, size: int, number: int) -> None:
        self._data[at : at + size] = number.to_bytes(size, "big")

    def _references(self, number: int) -> Iterator[_Reference]:
        """Those of an inner page, in order; cells that cannot be in it are left out."""
        head, start = self._head(number), (number - 1) * self._page
        count = min(self._number(head + 3, 2), (self._page - 112) // 2)
        for i in range(count):
            cell = self._number(head + 12 + 2 * i, 2)
            if 12 <= cell <= self._page - 4:
                yield cell, self._number(start + cell, 4)
        yield 0, self._number(head + 8, 4)

    def _mend(self, number: int, depth: int = 0) -> tuple[int, bool]:
        """What the page above shall refer to instead of this one (0: to nothing), and whether
        anything below is missing.
        """
        if depth > _DEEPEST or number in self._met:
            return 0, True
        self._met.add(number)
        kept: list[_Reference] = []
        lost = False
        for cell, child in self._references(number):
            less = not 1 < child <= self._there
            if child in self._inner and not less:
                child, less = self._mend(child, depth + 1)
            elif less:
                child = 0
            lost |= less
            kept += [(cell, child)] if child else []
        if lost and depth and len(kept) < 2:  # too few for an inner page
            return kept[0][1] if kept else 0, True
        if lost:
            self._rewrite(number, kept)
        return number, lost

    def _rewrite(self, number: int, kept: list[_Reference]) -> None:
        """Make an inner page refer to ``kept`` only."""
        head, start = self._head(number), (number - 1) * self._page
        if not kept:
            self._data[head : head + 5] = bytes((_LEAF, 0, 0, 0, 0))
        elif len(kept) == 1 and number != SCHEMA:  # only the schema's may have a single one
            other = self._head(kept[0][1])
            self._data[start : start + self._page] = self._data[other : other + self._page]
        else:
            for i, (cell, child) in enumerate(kept[:-1]):
                self._write(head + 12 + 2 * i, 2, cell)
                self._write(start + cell, 4, child)
            self._write(head + 3, 2, len(kept) - 1)
            self._write(head + 8, 4, kept[-1][1])
