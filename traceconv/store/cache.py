"""Results on disk, for the next analysis of the same files.

An analysis makes one summary per rank, compares them and prints an answer. Summaries, what was
computed over the ranks (clocks, the graph of the job, the verdict) and answers are kept in files
below one folder; a file (:mod:`.container`) has the summaries of one run, or one other result. The
key of a result covers everything it depends on:

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """The kept bytes of some ranks, for one piece of work, by rank.

    Args:
        folder: of its files; None neither finds nor keeps anything.
        keys: by rank.
    """

    def __init__(self, folder: Path | None = None, keys: Mapping[int, str] | None = None) -> None:
        self._folder, self._keys = folder, keys or {}

    @classmethod
    def of_captures(
        cls, captures: Sequence[Capture], enabled: bool, least: int | None = None
    ) -> Kept:
        """Of some captures; :meth:`of` names the work.

        Args:
            enabled: False neither finds nor keeps anything.
            least: bytes of input that are worth it; None for :data:`SMALL_BYTES`.
        """
        sizes = sum(capture.source.size(name) for capture in captures for name in capture.files)
        enough = sizes >= (SMALL_BYTES if least is None else least)
        cache_folder = folder() if enabled and enough and not announced() else None
        if cache_folder is not None:
            with suppress(OSError, TypeError, ValueError, TraceconvError):  # no key
                return cls(cache_folder, _keys(captures))
        return cls()

    @classmethod
    def of_folders(cls, question: object, folders: Sequence[Path]) -> Kept:
        """The answers kept for all files below some folders, as the result of rank 0.

        Args:
            question: everything besides these files that it depends on.
        """
        cache_folder = folder()
        if cache_folder is None or announced():
            return cls()
        with suppress(OSError, TypeError, ValueError):
            files = [*_below(folders)]
            identities = [_identity(path) for path in files]
            if None not in identities and sum(path.stat().st_size for path in files) >= SMALL_BYTES:
                return cls(cache_folder, {0: _digest(identities)}).of(question)
        return cls()

    def of(self, work: object) -> Kept:
        """The results of one piece of work; ``work`` is everything besides the files that they
        depend on."""
        if self._folder is not None:
            with suppress(TypeError, ValueError):
                name = _digest(type(work).__qualname__, work, _program())
                return Kept(self._folder / name, self._keys)
        return Kept()

    def of_all(self, ranks: Iterable[int | None]) -> Kept:
        """The result of all of these ranks together, as that of rank 0."""
        keys = [(rank, self._keys.get(-1 if rank is None else rank)) for rank in ranks]
        complete = all(key for _, key in keys)
        return Kept(self._folder, {0: _digest(keys)}) if complete else Kept()

    @property
    def active(self) -> bool:
        """Whether summaries are kept."""
        return self._folder is not None

    def found(self) -> Iterator[tuple[int, bytes]]:
        """The kept summaries and their ranks; several of a rank where they have other parts."""
        rank_by_key = {key: rank for rank, key in self._keys.items()}
        folder_path = self._folder
        for path in sorted(folder_path.rglob(f"*{SUFFIX}")) if folder_path else ():
            with suppress(OSError):
                try:
                    yield from _read(path, rank_by_key)
                except (ValueError, TypeError, KeyError):
                    path.unlink()

    def keep(self, summaries: Mapping[int, bytes]) -> None:
        """Keep the summaries of these ranks; it never fails."""
        by_key = {
            self._keys[rank]: content for rank, content in summaries.items() if rank in self._keys
        }
        if self._folder is None or not by_key:
            return
        with suppress(OSError, TraceconvError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._folder / f"{os.urandom(8).hex()}{SUFFIX}"
            with replacing(path) as file:
                file.write(container.head(SIGN, VERSION))
                index = {}
                for key, content in by_key.items():
                    stream = blocks.pack(content)
                    index[key] = [file.tell(), len(stream), len(content)]
                    file.write(stream)
                file.write(container.tail(index))
            shrink()


def _read(path: Path, rank_by_key: Mapping[str, int]) -> Iterator[tuple[int, bytes]]:
    """The ranks whose summaries a file holds that are wanted, and these."""
    with path.open("rb") as file:
        index = container.directory(file, SIGN, VERSION)
        wanted = index.keys() & rank_by_key.keys()
        if wanted:
            os.utime(path)  # it is used
        for key in wanted:
            offset, stored, size = index[key]
            if size > min(_MOST, blocks.MOST_TIMES * stored):
                raise ValueError("a summary is too large")
            file.seek(offset)
            yield rank_by_key[key], blocks.unpack(file.read(stored), size)


# -- keys ---------------------------------------------------------------------------------


def _keys(captures: Sequence[Capture]) -> dict[int, str]:
    """The keys of ranks, but for ranks with a file that may be another one next time.

    Raises:
        OSError: a file cannot be read.
        TypeError: what a reader keeps of a rank cannot be encoded.
    """
    identities: dict[Path, list[Any] | None] = {}  # several ranks may be read from one file
    keys = {}
    for capture in captures:
        tables = (name for files in capture.tables.values() for name in files)
        names = dict.fromkeys([*capture.files, *capture.known, *tables])
        paths = [capture.source.origin(name) for name in names]
        for path in paths:
            if path is not None and path not in identities:
                identities[path] = _identity(path)
        files = [None if path is None else identities[path] for path in dict.fromkeys(paths)]
        if capture.rank is not None and files and None not in files:
            details = [capture.detail, *(window.detail for window in capture.parts)]
            keys[capture.rank] = _digest(rank_file.recorded(capture), details, files)
    return keys


def _below(folders: Sequence[Path]) -> Iterator[Path]:
    """All files below some folders.

    Raises:
        ValueError: there are too many, or a folder is a link.
    """
    count = 0
    for top in folders:
        for current, inner, names in os.walk(top):
            count += len(names)
            if count > _MOST_FILES or any(Path(current, name).is_symlink() for name in inner):
                raise ValueError("looking through these folders would take long")
            inner.sort()
            yield from (Path(current, name) for name in sorted(names))


def _identity(path: Path) -> list[Any] | None:
    """The identity of a file; None if it was changed a moment ago."""
    parts: list[Any] = [str(path.absolute())]
    beside = path.with_name(f"{path.name}-wal")  # of a database
    for file_path in (path, beside) if beside.exists() else (path,):
        about = file_path.stat()
        if time.time_ns() - about.st_mtime_ns < SETTLED_NS:
            return None
        parts += [about.st_size, about.st_mtime_ns, about.st_ino, about.st_dev]
        parts.append(sample(file_path, about.st_size))
    return parts


def sample(path: Path, size: int) -> bytes:
    """A digest of the beginning, the middle and the end of a file of ``size`` bytes.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        for offset in (0, size // 2, max(size - _SAMPLE, 0)):
            file.seek(offset)
            digest.update(file.read(_SAMPLE))
    return digest.digest()


def _digest(*values: Any) -> str:
    try:  # sets in one order
        encoded = msgspec.msgpack.encode(values, enc_hook=_encodable, order="deterministic")
    except TypeError:  # a dictionary by numbers or tuples
        encoded = msgspec.msgpack.encode(values, enc_hook=_encodable)
    return hashlib.sha256(encoded).hexdigest()[:40]


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
    about = []
    for current, _, names in os.walk(Path(__file__).parents[1]):
        for name in names:
            if name.endswith((".py", ".so", ".toml")):
                path = os.path.join(current, name)  # noqa: PTH118 - of each command, some 500
                status = os.stat(path)  # noqa: PTH116
                about.append((path, status.st_size, status.st_mtime_ns))
    return _digest(sorted(about))


# -- the folder ---------------------------------------------------------------------------


def limit() -> int:
    """Bytes that all files may take; see :func:`set_limit`."""
    cache_folder = folder()
    if cache_folder is not None:
        with suppress(OSError, ValueError):
            return int((cache_folder / "limit").read_text())
    return LIMIT


def set_limit(limit_bytes: int) -> None:
    """Change the bytes that all files may take.

    Raises:
        SourceError: the cache is off.
        OutputError: the folder cannot be written.
    """
    cache_folder = folder()
    if cache_folder is None:
        raise SourceError("the cache is off; unset TRACECONV_CACHE, or name a folder with it")
    cache_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(cache_folder / "limit") as file:
        file.write(b"%d\n" % limit_bytes)
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
    cache_folder = folder()
    sizes = [size for _, size, _ in _aged(cache_folder)]
    return Contents(
        "" if cache_folder is None else str(cache_folder), len(sizes), sum(sizes), limit()
    )


def shrink(limit_bytes: int | None = None) -> int:
    """Remove the least recently used files until ``limit_bytes`` are left (None: the limit), and
    incomplete files of killed runs. Returns how many were removed.
    """
    cache_folder = folder()
    remaining = limit() if limit_bytes is None else limit_bytes
    aged = sorted(_aged(cache_folder), key=lambda entry: -entry[2])
    removed = 0
    for path, size, _ in aged:
        remaining -= size
        if remaining < 0:
            with suppress(OSError):
                path.unlink()
                removed += 1
    if cache_folder is not None and removed:
        for inner in cache_folder.iterdir():
            with suppress(OSError):
                inner.rmdir()  # if it is empty
    return removed


def _aged(cache_folder: Path | None) -> list[tuple[Path, int, int]]:
    """Path, size and last use of the files; removes incomplete ones of killed runs."""
    listed = []
    if cache_folder is not None and cache_folder.is_dir():
        for path in cache_folder.glob("*/*"):
            with suppress(OSError):
                about = path.stat()
                if path.suffix == SUFFIX:
                    listed.append((path, about.st_size, about.st_mtime_ns))
                elif time.time() - about.st_mtime > _LEFT_S:
                    path.unlink()
    return listed


_LEFT_S = 3600
"""Seconds after which an incomplete file belongs to no run."""
