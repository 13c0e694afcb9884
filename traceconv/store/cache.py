"""Summaries of ranks and answers on disk, for the next analysis of the same files.

An analysis makes one summary per rank and compares them; reading and summarizing take most of its
time. Summaries are kept in files below one folder; a file (:mod:`.container`) has those of one run.
The key of a summary covers everything it depends on:

* the capture as it was found, with the state of its reader;
* each file that is read: path, size, time of change, inode, and samples of its content;
* the work: view, selection, tables, rules, clocks;
* the files of this package, so that another version makes its own.

A file that was written a moment ago has no key: it may change again without a new time stamp.
Input from plugins, URLs and standard input is not kept. A damaged file is removed, and its ranks
are read again. Files appear complete. Above the limit, the least recently used are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from traceconv.core.errors import SourceError, TraceconvError
from traceconv.core.model import Capture
from traceconv.core.plugins import announced
from traceconv.io.atomic import replacing
from traceconv.store import blocks, container, rank_file

SIGN, VERSION = b"traceconv kept ", 1
SUFFIX = ".kept"

SMALL_BYTES = 1 << 20
"""Smaller input is read as fast as it is looked up."""

LIMIT = 1 << 30
"""Bytes of all files, unless the user chose another limit."""

SETTLED_NS = 2_000_000_000
"""Time stamps of files may be this coarse, ns."""

_SAMPLE = 4096
_MOST_FILES = 20_000
_MOST = 1 << 30
"""Bytes of a summary at most."""


def folder() -> Path | None:
    """The folder of kept files: ``TRACECONV_CACHE``, or one in the user's folder for caches; None
    if the cache is off.
    """
    chosen = os.environ.get("TRACECONV_CACHE", "")
    if chosen.lower() in ("off", "0", "no"):
        return None
    if chosen:
        return Path(chosen)
    with suppress(RuntimeError):  # no home folder
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "traceconv"
    return None


class Kept:
    """The kept summaries of some ranks, for one piece of work.

    Args:
        work: makes the summary of a rank.
        wanted: False neither finds nor keeps anything.
    """

    def __init__(self, captures: Sequence[Capture], work: object, wanted: bool) -> None:
        self._folder: Path | None = None
        self._keys: dict[int, str] = {}
        sizes = sum(one.source.size(name) for one in captures for name in one.files)
        place = folder() if wanted and sizes >= SMALL_BYTES and not announced() else None
        if place is None:
            return
        try:
            self._folder = place / _digest(type(work).__qualname__, work, _program())
            self._keys = _keys(captures)
        except (OSError, TypeError, ValueError, TraceconvError):
            self._folder = None  # no key

    @classmethod
    def of_folders(cls, question: object, folders: Sequence[Path]) -> Kept:
        """The answers kept for all files below some folders, as the summary of rank 0.

        Args:
            question: everything besides these files that it depends on.
        """
        kept, place = cls((), question, wanted=False), folder()
        if place is None or announced():
            return kept
        with suppress(OSError, TypeError, ValueError):
            files = [*_below(folders)]
            told = [_identity(path) for path in files]
            if None not in told and sum(path.stat().st_size for path in files) >= SMALL_BYTES:
                kept._folder = place / _digest("answer", question, _program())
                kept._keys = {0: _digest(told)}
        return kept

    @property
    def active(self) -> bool:
        """Whether summaries are kept."""
        return self._folder is not None

    def found(self) -> Iterator[tuple[int, bytes]]:
        """The kept summaries and their ranks; several of a rank where they have other parts."""
        wanted = {key: rank for rank, key in self._keys.items()}
        for path in _files(self._folder):
            with suppress(OSError):
                try:
                    yield from _read(path, wanted).items()
                except (ValueError, TypeError, KeyError):
                    path.unlink()

    def keep(self, made: Mapping[int, bytes]) -> None:
        """Keep the summaries of these ranks; it never fails."""
        kept = {self._keys[rank]: content for rank, content in made.items() if rank in self._keys}
        if self._folder is None or not kept:
            return
        with suppress(OSError, TraceconvError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._folder / f"{os.urandom(8).hex()}{SUFFIX}"
            with replacing(path) as file:
                file.write(container.head(SIGN, VERSION))
                index = {}
                for key, content in kept.items():
                    stream = blocks.pack(content)
                    index[key] = [file.tell(), len(stream), len(content)]
                    file.write(stream)
                file.write(container.tail(index))
            shrink()


def _read(path: Path, wanted: Mapping[str, int]) -> dict[int, bytes]:
    """The summaries in a file that are wanted, by rank."""
    found = {}
    with path.open("rb") as file:
        index = container.directory(file, SIGN, VERSION)
        for key in index.keys() & wanted.keys():
            at, stored, whole = index[key]
            if whole > min(_MOST, blocks.MOST_TIMES * stored):
                raise ValueError("a summary is too large")
            file.seek(at)
            found[wanted[key]] = blocks.unpack(file.read(stored), whole)
    if found:
        os.utime(path)  # it was used
    return found


# -- keys ---------------------------------------------------------------------------------


def _keys(captures: Sequence[Capture]) -> dict[int, str]:
    """The keys of ranks, but for ranks with a file that may be another one next time.

    Raises:
        OSError: a file cannot be read.
        TypeError: what a reader keeps of a rank cannot be encoded.
    """
    known: dict[Path, list[Any] | None] = {}  # several ranks may be read from one file
    found = {}
    for one in captures:
        tables = (name for files in one.tables.values() for name in files)
        names = dict.fromkeys([*one.files, *one.known, *tables])
        paths = [one.source.origin(name) for name in names]
        for path in paths:
            if path is not None and path not in known:
                known[path] = _identity(path)
        files = [None if path is None else known[path] for path in dict.fromkeys(paths)]
        if one.rank is not None and files and None not in files:
            told = [one.detail, *(part.detail for part in one.parts)]
            found[one.rank] = _digest(rank_file.recorded(one), told, files)
    return found


def _below(folders: Sequence[Path]) -> Iterator[Path]:
    """All files below some folders.

    Raises:
        ValueError: there are too many, or a folder is a link.
    """
    count = 0
    for top in folders:
        for place, inner, names in os.walk(top):
            count += len(names)
            if count > _MOST_FILES or any(Path(place, name).is_symlink() for name in inner):
                raise ValueError("looking through these folders would take long")
            inner.sort()
            yield from (Path(place, name) for name in sorted(names))


def _identity(path: Path) -> list[Any] | None:
    """The identity of a file; None if it was changed a moment ago."""
    found: list[Any] = [str(path.absolute())]
    beside = path.with_name(f"{path.name}-wal")  # of a database
    for one in (path, beside) if beside.exists() else (path,):
        about = one.stat()
        if time.time_ns() - about.st_mtime_ns < SETTLED_NS:
            return None
        found += [about.st_size, about.st_mtime_ns, about.st_ino, about.st_dev]
        with one.open("rb", buffering=0) as file:
            for at in (0, about.st_size // 2, max(about.st_size - _SAMPLE, 0)):
                file.seek(at)
                found.append(hashlib.sha256(file.read(_SAMPLE)).digest())
    return found


def _digest(*values: Any) -> str:
    try:  # sets in one order
        told = msgspec.msgpack.encode(values, enc_hook=_encodable, order="deterministic")
    except TypeError:  # a dictionary by numbers or tuples
        told = msgspec.msgpack.encode(values, enc_hook=_encodable)
    return hashlib.sha256(told).hexdigest()[:40]


def _encodable(value: object) -> Any:
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    raise TypeError(f"{type(value).__name__} cannot be a part of a key")


@lru_cache
def _program() -> str:
    """The identity of the package: paths, sizes and times of its files."""
    files = sorted(Path(__file__).parents[1].rglob("*.[pst][yo]*"))
    about = [(str(one), one.stat()) for one in files if one.suffix in (".py", ".so", ".toml")]
    return _digest([[name, stat.st_size, stat.st_mtime_ns] for name, stat in about])


# -- the folder ---------------------------------------------------------------------------


def _files(place: Path | None) -> Iterator[Path]:
    """The kept files below a folder."""
    if place is not None:
        yield from sorted(place.rglob(f"*{SUFFIX}"))


def limit() -> int:
    """Bytes that all files may take; see :func:`set_limit`."""
    place = folder()
    if place is not None:
        with suppress(OSError, ValueError):
            return int((place / "limit").read_text())
    return LIMIT


def set_limit(most: int) -> None:
    """Change the bytes that all files may take.

    Raises:
        SourceError: the cache is off.
        OutputError: the folder cannot be written.
    """
    place = folder()
    if place is None:
        raise SourceError("the cache is off; unset TRACECONV_CACHE, or name a folder with it")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(place / "limit") as file:
        file.write(b"%d\n" % most)
    shrink()


class Contents(msgspec.Struct, frozen=True):
    """The size of the cache.

    Attributes:
        folder: of the files; "" if the cache is off.
        files, bytes: how many, and their size.
        limit:  bytes they may take.
    """

    folder: str
    files: int
    bytes: int
    limit: int


def contents() -> Contents:
    """The size of the cache."""
    place = folder()
    sizes = [size for _, size, _ in _aged(place)]
    return Contents("" if place is None else str(place), len(sizes), sum(sizes), limit())


def shrink(most: int | None = None) -> int:
    """Remove the least recently used files until ``most`` bytes are left (None: the limit), and
    incomplete files of killed runs. Returns how many were removed.
    """
    place = folder()
    left = limit() if most is None else most
    aged = sorted(_aged(place), key=lambda one: -one[2])
    removed = 0
    for path, size, _ in aged:
        left -= size
        if left < 0:
            with suppress(OSError):
                path.unlink()
                removed += 1
    if place is not None and removed:
        for one in place.iterdir():
            with suppress(OSError):
                one.rmdir()  # if it is empty
    return removed


def _aged(place: Path | None) -> list[tuple[Path, int, int]]:
    """Path, size and last use of the files; removes incomplete ones of killed runs."""
    found = []
    if place is not None and place.is_dir():
        for path in place.glob("*/*"):
            with suppress(OSError):
                about = path.stat()
                if path.suffix == SUFFIX:
                    found.append((path, about.st_size, about.st_mtime_ns))
                elif time.time() - about.st_mtime > _LEFT_S:
                    path.unlink()
    return found


_LEFT_S = 3600
"""Seconds after which an incomplete file belongs to no run."""
