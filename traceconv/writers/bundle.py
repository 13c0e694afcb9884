"""Bundle: a tar archive with one Perfetto file per rank, which the viewer opens as one timeline.

*Members*: ``perfetto_manifest.json`` (names every rank's file and its machine; ui.perfetto.dev
reads it from version 58 on), ``facts.pftrace`` (no events, the facts of the run),
``rank-<n>.pftrace``, complete each, and ``system-<n>.pftrace``, what inputs hold besides events.
*Time*: ranks count from the base of the run, so their offsets in the manifest are 0, and a rank
taken out of the archive still fits the others; the offset of other files is their clock's.
*Sizes*: a rank stays below what the viewer opens (``member_capacity``), reduced if need be; a
requested limit is that of the archive. *Order*: that of the names; the importer of release 52 ends
where it finds a member behind one whose name comes later. *Headers*: no owner and no time: equal
traces give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

from traceconv.core.errors import Issues
from traceconv.core.model import Trace
from traceconv.core.source import pieces
from traceconv.scratch.temporary import spooled_temporary_file
from traceconv.writers import Beside, Capacity, Costs, Document, Writer
from traceconv.writers.perfetto import PerfettoWriter
from traceconv.writers.size_limit import VIEWERS

MANIFEST = "perfetto_manifest.json"
FACTS = "facts.pftrace"

IN_MEMORY = 8 << 20
"""Bytes of a member kept in memory; larger ones are written to a temporary file first.

The size of a member is in the header before it.
"""

_RECORD = 512


class BundleWriter:
    """Writes one archive. See :class:`traceconv.writers.Writer`."""

    name: ClassVar[str] = "bundle"
    title: ClassVar[str] = "Perfetto traces, one per rank, in a tar archive"
    suffixes: ClassVar[tuple[str, ...]] = (".tar",)
    between: ClassVar[bytes] = b""
    member_capacity: ClassVar[Capacity | None] = VIEWERS["perfetto"]

    def __init__(self) -> None:
        self.issues = Issues()
        self._document = Document(0, ())

    def begin(self, document: Document) -> bytes:
        self._document = document
        common = {key: value for key, value in document.facts.items() if key != "counts"}
        facts = PerfettoWriter().begin(replace(document, facts=common))
        manifest = _manifest(document.ranks, document.beside)
        return _member(MANIFEST, manifest) + _member(FACTS, facts)

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """One rank, in blocks of bounded size.

        Raises:
            ClockError, OutputError: as the Perfetto writer.
        """
        writer = PerfettoWriter()
        writer.begin(self._document)
        head = PerfettoWriter().begin(_document_of_rank(self._document, trace))
        yield from _spooled(
            _name(trace.rank, self._document.ranks), chain([head], writer.trace(trace))
        )
        self.issues.extend(writer.issues)

    def beside(self, member: Beside, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """A trace that is not a rank, unchanged."""
        yield from _spooled(member.name, blocks)

    def end(self) -> bytes:
        """Two empty records close an archive."""
        return bytes(2 * _RECORD)

    def costs(self, trace: Trace, document: Document) -> Costs:
        """What rows take; reads and encodes their arguments once.

        Raises:
            ClockError, OutputError: as :meth:`trace`.
        """
        costs = PerfettoWriter().costs(trace, _document_of_rank(document, trace))
        return replace(costs, fixed=costs.fixed + 2 * _RECORD)


def _document_of_rank(document: Document, trace: Trace) -> Document:
    """The document of one rank's file."""
    facts: dict[str, Any] = {"ranks": str(trace.rank), "counts": trace.counts()}
    return replace(document, ranks=(trace.rank,), facts=facts)


def _manifest(ranks: tuple[int, ...], beside: tuple[Beside, ...]) -> bytes:
    files: list[dict[str, Any]] = [
        {"path": _name(rank, ranks), "machine": {"name": f"rank {rank}"}} for rank in ranks
    ]
    for file in files[1:]:
        file["clocks"] = {"sync_to": {"file": files[0]["path"]}, "offset_ns": 0}
    for member in beside:
        clocks = {"sync_to": {"file": files[0]["path"]}, "offset_ns": member.offset_ns}
        machine = {"name": member.name.partition(".")[0]}
        files.append({"path": member.name, "machine": machine, "clocks": clocks})
    return json.dumps({"perfetto_manifest": {"version": 1, "files": files}}).encode()


def _name(rank: int, ranks: tuple[int, ...]) -> str:
    """Names of one length, so that they sort as ranks do."""
    return f"rank-{rank:0{len(str(max(ranks)))}}.pftrace"


def _spooled(name: str, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """A member whose size is only known at its end, but is written before it."""
    with spooled_temporary_file(IN_MEMORY) as file:
        for block in blocks:
            file.write(block)
        size = file.tell()
        file.seek(0)
        yield _header(name, size)
        yield from pieces(file)
    yield _padding(size)


def _member(name: str, content: bytes) -> bytes:
    return _header(name, len(content)) + content + _padding(len(content))


def _header(name: str, size: int) -> bytes:
    import tarfile

    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _RECORD)


WRITER: type[Writer] = BundleWriter
