"""Writes the output files of a run: all of them complete, or none.

A file grows under a temporary name in its own folder and is renamed when it is complete; no part
gets its name before all parts are complete. A failed run leaves nothing behind.

Ranks are encoded in this process, one after the other, or by workers, each into a separate file;
the bytes are the same. This works because the bytes of a rank do not depend on other ranks. They
follow each other with ``Writer.between`` between them, and in a compressed file every rank is a
section of the deflate stream that does not refer to other sections.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from traceconv.core.errors import Issues, OutputPathError, TraceconvError
from traceconv.io.atomic import Destination, check, is_stream, opened, replacing
from traceconv.io.streams import Deflating
from traceconv.io.threads import ahead
from traceconv.scratch.memory import scarce
from traceconv.scratch.temporary import ADVICE
from traceconv.writers import (
    ArchiveWriter,
    Document,
    Part,
    Plan,
    SpilledRank,
    TableWriter,
    Writer,
    WriterFactory,
)

Advance = Callable[[int], None]
"""Called with the bytes (before compression) that were written since the last call."""

Progress = Callable[[int, int, str], None]
"""Called as (bytes written since the last call, expected in all or 0, label)."""


def silent(done: int, total: int, label: str) -> None:
    """Report no progress."""


_RAW_DEFLATE = -15

_GZIP_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
"""Neither a name nor a time, so that equal content gives equal bytes."""


class Section:
    """Bytes on their way into a file; compressed, they can be unpacked without those before.

    Attributes:
        content: bytes before compression.
        stored:  bytes in the file.
        crc:     of the content; 0 while nothing is compressed.
    """

    def __init__(self, put: Callable[[bytes], object], packed: bool) -> None:
        self.content = self.stored = self.crc = 0
        self._put = put
        self._packer = Deflating(_RAW_DEFLATE) if packed else None

    def write(self, block: bytes) -> None:
        """Add ``block``."""
        self.content += len(block)
        if self._packer is not None:
            from isal import isal_zlib

            self.crc = isal_zlib.crc32(block, self.crc)
            block = self._packer.add(block)
        self._store(block)

    def close(self, last: bool = False) -> None:
        """Finish; ``last`` ends the whole stream."""
        if self._packer is not None:
            self._store(self._packer.end(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH))

    def _store(self, data: bytes) -> None:
        if data:
            self._put(data)
            self.stored += len(data)


class Encoded(msgspec.Struct, frozen=True):
    """A rank that was encoded.

    Attributes:
        rank, counts: of the rank; rows by kind.
        issues: what the format could not represent as it was.
        content, stored, crc: of its :class:`Section`.
        path:   the file with its bytes; None if they are in the output already.
    """

    rank: int
    counts: dict[str, int]
    issues: Issues = msgspec.field(default_factory=Issues)
    content: int = 0
    stored: int = 0
    crc: int = 0
    path: Path | None = None


class Encoding(msgspec.Struct, frozen=True):
    """A rank to be encoded.

    Attributes:
        spilled:  the rank.
        writer:   of the format.
        document: that of the file; its facts are in the head, which is not made here.
        packed:   whether the file is compressed.
        path:     where a worker leaves the bytes; None if they are not made by one.
    """

    spilled: SpilledRank
    writer: WriterFactory
    document: Document
    packed: bool
    path: Path | None = None

    def into(
        self,
        section: Section,
        advance: Advance,
        lead: Callable[[], None] = lambda: None,
        begun: TableWriter | None = None,
    ) -> Encoded:
        """Encode the rank into ``section``.

        Args:
            advance: called with the bytes that were added, before compression.
            lead:    called before the first of them, if there are any.
            begun:   writes all ranks of the file; None where each has a writer of its own.
        """
        writer: Writer
        if begun is None:
            writer = self.writer()
            writer.begin(replace(self.document, facts={}))
        else:
            writer = begun
        trace = self.spilled.load()
        blocks = writer.trace(trace)
        # compressed and written while the next ones are encoded
        for block in ahead(blocks) if len(trace.events) >= WORTHWHILE else blocks:
            if block and not section.content:
                lead()
            section.write(block)
            advance(len(block))
            if scarce():
                self.spilled.release_pages()
        section.close()
        counts = trace.counts()
        issues = writer.issues
        if begun is not None:  # whose issues are those of the file
            counts, issues = {kind: counts[kind] for kind in begun.kinds}, Issues()
        del trace  # one rank at a time is in memory
        self.spilled.release_pages()
        sizes = (section.content, section.stored, section.crc)
        return Encoded(self.spilled.rank, counts, issues, *sizes, self.path)


WORTHWHILE = 1 << 15
"""Rows of a rank from which on a thread that encodes ahead is worth its start."""

EncodeRanks = Callable[[Sequence[Encoding]], Iterator[Encoded]]
"""Encodes ranks in other processes; they come back in order."""


def encode(job: Encoding, advance: Advance) -> Encoded:
    """Encode a rank into the separate file that the job names; for workers.

    Raises:
        OutputError: the file cannot be written.
    """
    assert job.path is not None
    with replacing(job.path, ADVICE) as file:
        return job.into(Section(file.write, job.packed), advance)


class Sink:
    """Counts, limits and compresses what is written to one file.

    Attributes:
        path:    of the file, as it was asked for.
        content: bytes before compression, so far.
    """

    def __init__(
        self, file: Destination, path: str, max_bytes: int | None, progress: Advance
    ) -> None:
        self.path = path
        self.content = 0
        self.progress = progress
        self._file, self._max_bytes = file, max_bytes
        self._crc = 0
        self._packed = is_packed(path)
        if self._packed:
            file.write(_GZIP_HEAD)

    def write(self, block: bytes) -> None:
        """Add ``block`` as a separate section.

        Raises:
            OutputError: it cannot be written.
            TraceconvError: it exceeds the size limit.
        """
        if block:
            section = self.section()
            section.write(block)
            section.close()
            self.progress(len(block))
            self._count(section.content, section.crc)

    def section(self) -> Section:
        """A section to be filled by the caller, who then calls :meth:`take`."""
        return Section(self._file.write, self._packed)

    def take(self, done: Encoded) -> None:
        """Count a rank. If a worker wrote it to a separate file, copy and remove that file.

        Raises:
            OutputError: it cannot be written.
            TraceconvError: it exceeds the size limit.
        """
        self._count(done.content, done.crc)
        if done.path is not None:
            self._file.append(done.path)
            done.path.unlink()

    def check_room(self, n_bytes: int) -> None:
        """Raise TraceconvError if ``n_bytes`` bytes of content do not fit."""
        if self._max_bytes is not None and self.content + n_bytes > self._max_bytes:
            raise TraceconvError(
                f"internal error: {self.path} grew beyond the limit of {self._max_bytes} bytes "
                "that it was planned for; please report this"
            )

    def _count(self, content: int, crc: int) -> None:
        self.check_room(content)
        self.content += content
        if self._packed:
            from isal import isal_zlib

            self._crc = isal_zlib.crc32_combine(self._crc, crc, content)

    def close(self) -> int:
        """Finish compression; the size of the file."""
        if self._packed:
            self.section().close(last=True)
            size = self.content & 0xFFFFFFFF
            self._file.write(self._crc.to_bytes(4, "little") + size.to_bytes(4, "little"))
        self._file.finish()
        return self._file.size


def is_packed(path: str) -> bool:
    """Whether the file is compressed, by its name."""
    return path.endswith(".gz")


class Written(msgspec.Struct, frozen=True):
    """One file that was written.

    Attributes:
        path:    as asked for, with its part number; "-" for standard output.
        bytes:   of the file.
        content: bytes before compression.
        ranks:   in it, ascending.
        counts:  rows by kind.
        issues:  what the format could not represent as it was.
        unnamed: the file while it is not accepted yet; None for streams and URLs.
    """

    path: str
    bytes: int
    content: int
    ranks: tuple[int, ...]
    counts: dict[str, int]
    issues: Issues = msgspec.field(default_factory=Issues)
    unnamed: Path | None = None

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


def write(
    plan: Plan | Sequence[Part],
    writer_factory: WriterFactory,
    path: str,
    *,
    force: bool = False,
    progress: Progress = silent,
    accept: Callable[[list[Written]], None] = lambda done: None,
    elsewhere: EncodeRanks | None = None,
) -> list[Written]:
    """Write all parts of ``plan``: ``path`` itself, or ``name-001.suffix`` ... if they are many.

    A format of tables has the files that :func:`table_paths` names. Traces are loaded one at a
    time, in order, and released. A path that ends in ``.gz`` is compressed; equal content gives
    equal bytes. "-" is standard output.

    Args:
        accept: called when everything is written and no file has its name yet; if it raises,
            nothing is left.
        elsewhere: encodes the ranks in other processes, and reports their progress; None to
            encode them here.

    Raises:
        OutputError: as :func:`traceconv.io.atomic.check`, or the disk is full, or a pipe closed.
        TraceconvError: a part grew beyond the plan's limit (a fault of the writer's costs).
    """
    plan = plan if isinstance(plan, Plan) else Plan(tuple(plan))
    if len(plan.parts) > 1 and (path == "-" or is_stream(Path(path))):
        parts = len(plan.parts)
        raise OutputPathError(f"{path}: {parts} parts cannot go to one stream; name a file")
    files = _files(plan, writer_factory, path)
    for file_plan in files:
        check(file_plan.path, force)
    jobs = [job for file_plan in files for job in file_plan.jobs]
    encoded = elsewhere(jobs) if elsewhere and not files[0].together else None
    with ExitStack() as unnamed:
        opened_files = []
        done = []
        for file_plan in files:
            file = unnamed.enter_context(opened(file_plan.path))
            opened_files.append(file)
            advance = _labelled(progress, plan.predicted, file_plan.path)
            sink = Sink(file, file_plan.path, plan.max_bytes, advance)
            written = _written(file_plan.part, file_plan.jobs, file_plan.writer(), sink, encoded)
            done.append(msgspec.structs.replace(written, unnamed=file.unnamed))
        accept(done)
        for file in opened_files:
            file.settle(force)
    return done


class _File(msgspec.Struct, frozen=True):
    """A file to be written, and its ranks; ``together`` means that one writer encodes them all."""

    path: str
    part: Part
    writer: WriterFactory
    together: bool = False

    @property
    def jobs(self) -> list[Encoding]:
        packed = is_packed(self.path)
        ranks = self.part.traces
        return [Encoding(trace, self.writer, self.part.document, packed) for trace in ranks]


def _files(plan: Plan, factory: WriterFactory, path: str) -> list[_File]:
    """One file for each part, or for each table of a format that has tables."""
    writer = factory()
    if not isinstance(writer, TableWriter):
        paths = part_paths(path, len(plan.parts), writer.suffixes)
        return [
            _File(*path_and_part, factory) for path_and_part in zip(paths, plan.parts, strict=True)
        ]
    if path == "-" or is_stream(Path(path)):
        files = len(writer.tables)
        raise OutputPathError(f"{path}: {files} files cannot go to one stream; name a file")
    [part] = plan.parts  # only a size limit makes several
    pairs = zip(table_paths(path, writer), writer.tables, strict=True)
    return [_File(table_path, part, partial(factory, table), True) for table_path, table in pairs]


def table_paths(path: str, writer: Writer) -> list[str]:
    """The files of an output: ``run.parquet``, ``run_counters.parquet`` ... for a format of tables,
    else the one file."""
    if not isinstance(writer, TableWriter):
        return [path]
    suffix = next((candidate for candidate in writer.suffixes if path.endswith(candidate)), "")
    stem = path.removesuffix(suffix)
    return [path, *(f"{stem}_{table}{suffix}" for table in writer.tables[1:])]


def part_paths(path: str, count: int, suffixes: Sequence[str]) -> list[str]:
    """The paths of ``count`` parts: numbers are inserted before the suffix."""
    if count <= 1:
        return [path] * count
    suffixes_of_path = (
        s for s in sorted((*suffixes, ".gz"), key=len, reverse=True) if path.endswith(s)
    )
    suffix = next(suffixes_of_path, Path(path).suffix)
    stem = path[: len(path) - len(suffix)]
    digits = max(3, len(str(count)))
    return [f"{stem}-{i:0{digits}}{suffix}" for i in range(1, count + 1)]


def _written(
    part: Part,
    jobs: Sequence[Encoding],
    writer: Writer,
    sink: Sink,
    encoded: Iterator[Encoded] | None,
) -> Written:
    """Write one part; its ranks are encoded here unless they are ``encoded`` by workers."""
    sink.write(writer.begin(part.document))
    counts: Counter[str] = Counter()
    issues, begun = Issues(), False
    for job in jobs:
        lead = writer.between if begun else b""
        if encoded is None:
            done = _encoded_here(job, sink, lead, writer)
        else:
            done = next(encoded)
            sink.write(lead if done.content else b"")
        sink.take(done)
        begun = begun or done.content > 0
        counts.update(done.counts)
        issues.extend(done.issues)
    for member, content in zip(part.document.beside, part.beside, strict=True):
        assert isinstance(writer, ArchiveWriter)  # others are not asked for it
        for block in writer.beside(member, content()):
            sink.write(block)
    sink.write(writer.end())
    issues.extend(writer.issues)
    ranks = tuple(job.spilled.rank for job in jobs)
    return Written(sink.path, sink.close(), sink.content, ranks, dict(counts), issues)


def _encoded_here(job: Encoding, sink: Sink, lead: bytes, writer: Writer) -> Encoded:
    """Encode a rank straight into the file."""
    section = sink.section()

    def advance(n: int) -> None:
        sink.check_room(section.content)
        sink.progress(n)

    begun = writer if isinstance(writer, TableWriter) else None
    return job.into(section, advance, lambda: sink.write(lead), begun)


def _labelled(progress: Progress, expected: int, path: str) -> Advance:
    label = f"writing {Path(path).name}" if path != "-" else "writing"
    return lambda n: progress(n, expected, label)
