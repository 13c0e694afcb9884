"""The one loop that writes files: traces in, finished files out, or nothing.

A file grows under another name in its own folder and gets its name when it is complete; no part
gets its name before all parts are complete. A failed run leaves nothing behind. Ranks are encoded
here, one after the other, or by workers; the bytes are the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceconv.core.errors import Issues, OutputError
from traceconv.io.storage import is_url
from traceconv.writers import Part, Plan, Writer
from traceconv.writers.encoded import Encoded, Encoding
from traceconv.writers.files import Sink, is_stream, opened, reason

Progress = Callable[[int, int, str], None]
"""Called as (bytes written since the last call, expected in all or 0, label)."""


def silent(done: int, total: int, label: str) -> None:
    """Report no progress."""


Encode = Callable[[Sequence[Encoding]], Iterator[Encoded]]
"""Encodes ranks elsewhere; they come back in order."""


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
    if is_url(path):
        from traceconv.writers.files import check_url  # fsspec, where it is asked for

        check_url(path, force)
        return
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputError(f"{path}: is a folder; name a file")
        if is_stream(target):
            return
        if not target.parent.is_dir():
            raise OutputError(f"{path}: its folder {target.parent} does not exist; create it first")
        if target.exists() and not force:
            raise OutputError(f"{path}: exists; pass `force=True` to overwrite it")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise OutputError(f"{path}: its folder {target.parent} is not writable")
    except (OSError, ValueError) as e:
        raise OutputError(f"{path}: cannot write there: {reason(e)}") from e


def write(
    plan: Plan | Sequence[Part],
    writer_factory: Callable[[], Writer],
    path: str,
    *,
    force: bool = False,
    progress: Progress = silent,
    accept: Callable[[list[Written]], None] = lambda done: None,
    elsewhere: Encode | None = None,
) -> list[Written]:
    """Write all parts of ``plan``: ``path`` itself, or ``name-001.suffix`` ... if they are many.

    Traces are loaded one at a time, in order, and forgotten. A path that ends in ``.gz`` is
    compressed; equal content gives equal bytes. "-" is standard output.

    Args:
        accept: called when everything is written and nothing has its name yet; if it raises,
            nothing is left.
        elsewhere: encodes the ranks in other processes, and tells their progress; None for here.

    Raises:
        OutputError: see :func:`check`; or the disk is full, or a pipe was closed.
        TraceconvError: a part grew beyond the plan's limit (a fault of the writer's costs).
    """
    parts = plan.parts if isinstance(plan, Plan) else tuple(plan)
    max_bytes = plan.max_bytes if isinstance(plan, Plan) else None
    expected = plan.predicted if isinstance(plan, Plan) else 0
    if len(parts) > 1 and (path == "-" or is_stream(Path(path))):
        raise OutputError(f"{path}: {len(parts)} parts cannot go to one stream; name a file")
    paths = part_paths(path, len(parts), writer_factory().suffixes)
    for one in paths:
        check(one, force)
    packed = path.endswith(".gz")
    jobs = [
        [Encoding(one, writer_factory, part.document, packed) for one in part.traces]
        for part in parts
    ]
    made = elsewhere([job for of_part in jobs for job in of_part]) if elsewhere else None
    with ExitStack() as unnamed:
        files = []
        done = []
        for part, own, name in zip(parts, jobs, paths, strict=True):
            file = unnamed.enter_context(opened(name))
            files.append(file)
            sink = Sink(file, name, max_bytes, _labelled(progress, expected, name))
            done.append(_written(part, own, writer_factory(), sink, made))
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


def _written(
    part: Part,
    jobs: Sequence[Encoding],
    writer: Writer,
    sink: Sink,
    made: Iterator[Encoded] | None,
) -> Written:
    sink.write(writer.begin(part.document))
    counts: Counter[str] = Counter()
    issues, between, begun = Issues(), getattr(writer, "between", b""), False
    for job in jobs:
        lead = between if begun else b""
        if made is None:
            done = _here(job, sink, lead)
        else:
            done = next(made)
            sink.write(lead if done.content else b"")
        sink.take(done)
        begun = begun or done.content > 0
        counts.update(done.counts)
        issues.extend(done.issues)
    sink.write(writer.end())
    issues.extend(getattr(writer, "issues", None) or Issues())
    ranks = tuple(job.spilled.rank for job in jobs)
    return Written(sink.path, sink.close(), sink.content, ranks, dict(counts), issues)


def _here(job: Encoding, sink: Sink, lead: bytes) -> Encoded:
    """Encode a rank straight into the file."""
    stretch = sink.stretch()

    def advance(n: int) -> None:
        sink.room(stretch.content)
        sink.progress(n)

    return job.into(stretch, advance, lambda: sink.write(lead))


def _labelled(progress: Progress, expected: int, path: str) -> Callable[[int], None]:
    label = f"writing {Path(path).name}" if path != "-" else "writing"
    return lambda n: progress(n, expected, label)
