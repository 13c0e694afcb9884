"""Database files: what of an input SQLite can open, and how.

A database is opened where it lies, and never written to. It is copied first if it is packed, if
its journal lies beside it (a writer that was killed leaves its last rows there, and taking them
over changes files), or if its end is missing and what is left shall be read.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from traceconv.errors import SourceError
from traceconv.source import Source, temporary_folder

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
            self._folder = tempfile.TemporaryDirectory(prefix="traceconv-", dir=temporary_folder())
            self.path, self.mode = Path(self._folder.name) / "database", "rw"
            self._copy(source, name, journal)
            self.torn = journal is not None and _is_torn(Path(f"{self.path}-wal"))
            if salvage and journal is None and _is_cut(self.path):
                from traceconv.readers._sqlite_cut import fill_up

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
