"""The one loop that writes files: traces in, finished files out, or nothing.

A file grows under another name in its own folder and gets its name when it is complete; no part
gets its name before all parts are complete. A failed run leaves nothing behind.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from traceconv.errors import Issues, OutputError, TraceconvError
from traceconv.writers import Part, Plan, Writer

Progress = Callable[[int, int, str], None]
"""Called as (bytes written since the last call, expected in all or 0, label)."""

GZIP_LEVEL = 1
"""isal's level 1: as small as its level 3 on traces, three times as fast."""


def silent(done: int, total: int, label: str) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Written:
    """One file that was written.

    Attributes:
        path:    as asked for, with its part number; "-" for standard output.
        bytes:   of the file.
        content: bytes before compression.
        ranks:   in it, ascending.
        counts:  rows by kind.
        issues:  what the format could not take as it was.
    """

    path: str
    bytes: int
    content: int
    ranks: tuple[int, ...]
    counts: dict[str, int]
    issues: Issues = field(default_factory=Issues)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form used in reports."""
        return {
            "path": self.path,
            "bytes": self.bytes,
            "content_bytes": self.content,
            "ranks": list(self.ranks),
            "counts": self.counts,
            "issues": [issue.as_dict() for issue in self.issues],
        }


def check(path: str, force: bool = False) -> None:
    """Refuse early what could not be written later.

    Raises:
        OutputError: the folder is missing or read-only, the path is a folder, or a file is there
            and ``force`` is not given.
    """
    if path == "-":
        return
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputError(f"{path}: is a folder; name a file")
        if _is_stream(target):
            return
        if not target.parent.is_dir():
            raise OutputError(f"{path}: its folder {target.parent} does not exist; create it first")
        if target.exists() and not force:
            raise OutputError(f"{path}: exists; add -f to overwrite it")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise OutputError(f"{path}: its folder {target.parent} is not writable")
    except (OSError, ValueError) as e:
        raise OutputError(f"{path}: cannot write there: {_reason(e)}") from e


def write(
    plan: Plan | Sequence[Part],
    writer_factory: Callable[[], Writer],
    path: str,
    *,
    force: bool = False,
    progress: Progress = silent,
    accept: Callable[[list[Written]], None] = lambda done: None,
) -> list[Written]:
    """Write all parts of ``plan``: ``path`` itself, or ``name-001.suffix`` ... if they are many.

    Traces are loaded one at a time, in order, and forgotten. A path that ends in ``.gz`` is
    compressed; equal content gives equal bytes. "-" is standard output.

    Args:
        accept: called when everything is written and nothing has its name yet; if it raises,
            nothing is left.

    Raises:
        OutputError: see :func:`check`; or the disk is full, or a pipe was closed.
        TraceconvError: a part grew beyond the plan's limit (a fault of the writer's costs).
    """
    parts = plan.parts if isinstance(plan, Plan) else tuple(plan)
    max_bytes = plan.max_bytes if isinstance(plan, Plan) else None
    expected = plan.predicted if isinstance(plan, Plan) else 0
    if len(parts) > 1 and (path == "-" or _is_stream(Path(path))):
        raise OutputError(f"{path}: {len(parts)} parts cannot go to one stream; name a file")
    paths = part_paths(path, len(parts), writer_factory().suffixes)
    for one in paths:
        check(one, force)
    with ExitStack() as unnamed:
        files = []
        done = []
        for part, name in zip(parts, paths, strict=True):
            file = unnamed.enter_context(_opened(name))
            files.append(file)
            sink = _Sink(file, name, max_bytes, _labelled(progress, expected, name))
            done.append(_written(part, writer_factory(), sink))
        accept(done)
        for file in files:
            file.settle(force)
    return done


def part_paths(path: str, count: int, suffixes: Sequence[str]) -> list[str]:
    """The paths of ``count`` parts: numbers go before the suffix."""
    if count <= 1:
        return [path] * count
    known = (s for s in sorted((*suffixes, ".gz"), key=len, reverse=True) if path.endswith(s))
    suffix = next(known, Path(path).suffix)
    stem = path[: len(path) - len(suffix)]
    digits = max(3, len(str(count)))
    return [f"{stem}-{i:0{digits}}{suffix}" for i in range(1, count + 1)]


def _written(part: Part, writer: Writer, sink: _Sink) -> Written:
    sink.write(writer.begin(part.document))
    counts: Counter[str] = Counter()
    ranks = []
    for parked in part.traces:
        trace = parked.load()
        for block in writer.trace(trace):
            sink.write(block)
        counts.update(trace.counts())
        ranks.append(parked.rank)
        del trace  # one rank at a time
        if rest := getattr(parked, "rest", None):
            rest()
    sink.write(writer.end())
    stored = sink.close()
    issues = getattr(writer, "issues", None) or Issues()
    return Written(sink.path, stored, sink.content, tuple(ranks), dict(counts), issues)


def _labelled(progress: Progress, expected: int, path: str) -> Callable[[int], None]:
    label = f"writing {Path(path).name}" if path != "-" else "writing"
    return lambda n: progress(n, expected, label)


class _Sink:
    """Counts, limits and compresses what goes into one file."""

    def __init__(
        self, file: _File, path: str, max_bytes: int | None, progress: Callable[[int], None]
    ) -> None:
        self.path = path
        self.content = 0
        self._file, self._max_bytes, self._progress = file, max_bytes, progress
        self._out: Any = _gzipped(file) if path.endswith(".gz") else file

    def write(self, block: bytes) -> None:
        """Add ``block``.

        Raises:
            OutputError: it cannot be written.
            TraceconvError: it does not fit.
        """
        self.content += len(block)
        if self._max_bytes is not None and self.content > self._max_bytes:
            raise TraceconvError(
                f"internal error: {self.path} grew beyond the limit of {self._max_bytes} bytes "
                "that it was planned for; please report this"
            )
        with _as_output_error(self.path):
            self._out.write(block)
        self._progress(len(block))

    def close(self) -> int:
        """Finish compression; the size of the file."""
        with _as_output_error(self.path):
            if self._out is not self._file:
                self._out.close()
            self._file.finish()
        return self._file.size


class _File:
    """An open file that has not got its name yet, or a stream that needs none."""

    def __init__(self, raw: IO[bytes], path: str, unnamed: Path | None) -> None:
        self.size = 0
        self._raw, self._path, self._unnamed = raw, path, unnamed

    def write(self, data: bytes) -> int:
        self._raw.write(data)
        self.size += len(data)
        return len(data)

    def finish(self) -> None:
        """Bring everything to the disk."""
        self._raw.flush()
        if self._unnamed is not None:
            os.fsync(self._raw.fileno())
            self._raw.close()

    def settle(self, force: bool) -> None:
        """Give the file its name.

        Raises:
            OutputError: a file of that name has appeared meanwhile and ``force`` is not given.
        """
        if self._unnamed is None:
            return
        with _as_output_error(self._path):
            if Path(self._path).exists() and not force:
                raise OutputError(f"{self._path}: has appeared meanwhile; add -f to overwrite it")
            self._unnamed.replace(Path(self._path).resolve())
            self._unnamed = None

    def discard(self) -> None:
        """Close; remove what has not got its name."""
        if self._unnamed is not None:
            self._unnamed.unlink(missing_ok=True)
        if self._path != "-":
            self._raw.close()


@contextmanager
def _opened(path: str) -> Iterator[_File]:
    """A file that vanishes unless it is settled. It has the permissions of any new file."""
    with _as_output_error(path):
        target = Path(path)
        if path == "-":
            file = _File(sys.stdout.buffer, path, None)
        elif _is_stream(target):
            file = _File(target.open("wb"), path, None)
        else:
            unnamed = target.resolve().with_name(f"{target.name}.{os.urandom(4).hex()}.part")
            file = _File(unnamed.open("xb"), path, unnamed)
    try:
        yield file
    finally:
        with _as_output_error(path):
            file.discard()


def _is_stream(path: Path) -> bool:
    """A pipe or device (``/dev/null``): written as it is, never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _gzipped(file: _File) -> Any:
    """A compressor that names neither a file nor a time, so that equal content is equal bytes."""
    from isal import igzip

    raw = cast(IO[bytes], file)
    return igzip.IGzipFile(  # type: ignore[no-untyped-call]
        filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=raw, mtime=0
    )


@contextmanager
def _as_output_error(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as e:
        raise OutputError(f"{path}: cannot write: {_reason(e)}") from e


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
