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


class DatabaseFile:
    """A file SQLite can open: the input itself, or a copy that goes with this object.

    Attributes:
        path: of the file.
        mode: of the URI to open it by.
        cut:  whether its end is missing, and was filled up with empty pages.
        whole: whether all rows lie in it.
    """

    def __init__(self, source: Source, name: str, salvage: bool = False) -> None:
        """
        Args:
            salvage: fill up a database that is cut off.

        Raises:
            SourceError: it cannot be read or copied.
        """
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.cut = False
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
            if salvage and _is_cut(self.path):
                self.cut, self.whole = True, False
                _fill_up(self.path)
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
    return page, page * int.from_bytes(head[28:32], "big")


def _is_cut(path: Path) -> bool:
    return path.stat().st_size < _layout(path)[1]


def _fill_up(path: Path) -> None:
    """Give a cut database its length back. What is missing of a page makes all of it damaged."""
    page, whole = _layout(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // page * page)
        file.truncate(whole)
