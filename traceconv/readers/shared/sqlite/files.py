"""Database files: what of an input SQLite can open, and how.

A database is opened where it lies, and never written to. It is copied first if it is packed, if
its journal lies beside it (a writer that was killed leaves its last rows there, and taking them
over changes files), or if its end is missing and what is left shall be read.
"""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from traceconv.core.errors import SourceError
from traceconv.io.sources import Source
from traceconv.io.temporary import temporary_directory

# A database whose file ends too early, made fit for SQLite to read all the rows that are there.
#
# A table is a tree: pages that refer to pages, at last to those with rows. At one that is missing
# SQLite stops, though others may lie before the cut - in a table that was changed after it was
# written they lie in no order. So what refers to missing pages is taken out of the trees.
#
# Format: https://www.sqlite.org/fileformat2.html, section 1.6.

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


MAGIC = b"SQLite format 3\0"

_JOURNAL_HEADER = 32
"""Bytes of a write-ahead log that holds no pages."""

_FRAME_HEADER = 24
"""Bytes before every page in it: its number, the database's length if it completes a transaction,
the marks of the log, a checksum."""


def is_sqlite(head: bytes) -> bool:
    """Whether a file that begins so is an SQLite database."""
    return head.startswith(MAGIC)


class DatabaseFile:
    """A file SQLite can open: the input itself, or a copy that goes with this object.

    Attributes:
        path: of the file.
        mode: of the URI to open it by.
        cut:  whether its end is missing, and was filled up.
        short: first pages of the tables that lack pages because of that.
        whole: whether all rows lie in it.
        torn: whether its journal ends within a transaction: that one's rows are not to be had.
    """

    def __init__(self, source: Source, name: str, salvage: bool = False) -> None:
        """
        Args:
            salvage: fill up a database that is cut off.

        Raises:
            SourceError: it cannot be read or copied.
        """
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.cut, self.torn = False, False
        self.short: frozenset[int] = frozenset()
        try:
            path, journal = source.path(name), _journal(source, name)
            self.whole = journal is None
            whole = path is not None and _head(path).startswith(MAGIC) and not journal
            if path is not None and whole and not (salvage and _is_cut(path)):
                self.path, self.mode = path, "ro&immutable=1"
                return
            self._folder = temporary_directory()
            self.path, self.mode = Path(self._folder.name) / "database", "rw"
            self._copy(source, name, journal)
            self.torn = journal is not None and _is_torn(Path(f"{self.path}-wal"))
            if salvage and journal is None and _is_cut(self.path):
                self.cut, self.whole = True, False
                self.short = fill_up(self.path, *_layout(self.path))
        except OSError as e:
            self.close()
            raise SourceError(f"{source.title(name)}: cannot read or copy: {e}") from e
        except SourceError:
            self.close()
            raise

    def _copy(self, source: Source, name: str, journal: str | Path | None) -> None:
        _unpack(source, name, self.path)
        beside = Path(f"{self.path}-wal")
        if isinstance(journal, Path):
            shutil.copyfile(journal, beside)
        elif journal is not None:
            _unpack(source, journal, beside)

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self._folder is not None:
            self._folder.cleanup()


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100)


def _journal(source: Source, name: str) -> str | Path | None:
    """The write-ahead log beside a database, None if there is none or nothing is in it."""
    path, wal = source.path(name), f"{name}-wal"
    if path is not None:  # also beside a lone file, which knows no neighbours
        beside = Path(f"{path}-wal")
        return beside if beside.is_file() and beside.stat().st_size > _JOURNAL_HEADER else None
    return wal if wal in source.names() and source.size(wal) > _JOURNAL_HEADER else None


def _unpack(source: Source, name: str, to: Path) -> None:
    with source.open(name) as stream, to.open("wb") as file:
        while part := stream.read(1 << 20):
            file.write(part)


def _layout(path: Path) -> tuple[int, int]:
    """Bytes of a page, and of the whole as a database says itself; 0 if it does not say."""
    head = _head(path)
    if len(head) < 100 or not head.startswith(MAGIC) or head[24:28] != head[92:96]:
        return 0, 0  # where the two change counters differ, the length is out of date
    said = int.from_bytes(head[16:18], "big")
    page = 65536 if said == 1 else said
    if page < 512 or page & (page - 1):
        return 0, 0
    return page, page * int.from_bytes(head[28:32], "big")


def _is_cut(path: Path) -> bool:
    return path.stat().st_size < _layout(path)[1]


def _is_torn(journal: Path) -> bool:
    """Whether a write-ahead log ends within a page, or with one that completes no transaction.

    What an earlier log left behind the last page bears other marks, and does not count.
    """
    size, torn = journal.stat().st_size, False
    with journal.open("rb") as file:
        head = file.read(_JOURNAL_HEADER)
        page, mark = int.from_bytes(head[8:12], "big"), head[16:24]
        if page < 512:
            return False
        for at in range(_JOURNAL_HEADER, size, _FRAME_HEADER + page):
            file.seek(at)
            frame = file.read(_FRAME_HEADER)
            if not mark.startswith(frame[8:16]):
                break
            torn = at + _FRAME_HEADER + page > size or not any(frame[4:8])
    return torn
