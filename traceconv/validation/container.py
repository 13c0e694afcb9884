"""From a path to the traces in it: plain, compressed or archived files, as random-access bytes.

Everything that is unpacked is bounded (see :mod:`traceconv.io.streams`) and stored in a temporary
file, so that a large trace costs address space, not memory.
"""

from __future__ import annotations

import gzip
import json
import mmap
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from traceconv.core.errors import SourceError, UnknownFormatError
from traceconv.core.source import Progress, Source
from traceconv.io.archives import TarSource
from traceconv.io.atomic import output_errors
from traceconv.io.remote import RemoteFolder
from traceconv.io.sources import FileSource, FolderSource, sources
from traceconv.io.storage import Storage, is_url, redact_url
from traceconv.scratch.temporary import ADVICE, temporary_file
from traceconv.validation.rules import Refused

Buffer = bytes | mmap.mmap
Row = TypeVar("Row", bound=tuple[Any, ...])

BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
_TOLD = 512
"""Progress is told after so many rows."""

_MAX_OFFSET = 1 << 60


class Member(NamedTuple):
    """One trace.

    Attributes:
        name:    inside the archive, "" for a single file.
        format:  "perfetto", "chrome_json", or "manifest".
        data:    its bytes, unpacked.
        shift_ns, machine: added to every time, and the name of its machine (of the manifest).
    """

    name: str
    format: str
    data: Buffer
    shift_ns: int = 0
    machine: str = ""


class Opened(NamedTuple):
    """What is at a path.

    Attributes:
        path:    as the user gave it, without secrets.
        archive: whether it is an archive.
        members: the traces, in the order viewers read them.
        absent:  files a manifest names that are not there.
    """

    path: str
    archive: bool
    members: tuple[Member, ...]
    absent: tuple[str, ...] = ()


def open_trace(path: str) -> Opened:
    """Everything in ``path`` that viewers would load.

    Raises:
        SourceError: it cannot be read, or needs a decompressor that is not installed.
        UnknownFormatError: it is no trace.
        Refused: viewers refuse it because of what is around the traces.
    """
    label = redact_url(path)
    source = _source(path)
    if not source.lone:
        return _archive(source, label)
    data = _unpacked(source, source.names()[0], label)
    format = sniff(data)
    if format in (None, "manifest"):
        why = 'neither a Perfetto trace (first byte 0x0A) nor Chrome JSON ({" or [{")'
        raise UnknownFormatError(f"{label}: {why if len(data) else 'the file is empty'}")
    return Opened(label, False, (Member("", str(format), data),))


def followed(rows: Iterable[Row], at: int, advance: Progress, last: int = 0) -> Iterator[Row]:
    """``rows``, while ``advance`` is told how many bytes are behind them.

    Args:
        at:   index of the place in a row, bytes from the start of the data.
        last: the place where they begin.
    """
    for count, row in enumerate(rows):
        if count % _TOLD == 0:
            advance(row[at] - last)
            last = row[at]
        yield row


def unheard(n: int) -> None:
    """Nobody wants to know how far it is."""


def stored_bytes(path: str) -> int:
    """Bytes of the file at a path or URL.

    Raises:
        SourceError: the storage does not answer.
    """
    if not is_url(path):
        return Path(path).stat().st_size
    place = Storage(path)
    with place.guarded(place.label):
        return int(place.fs.info(place.path)["size"])


def sniff(data: Buffer) -> str | None:
    """The format by its first bytes, as viewers detect it; None if they would not."""
    head = bytes(data[:4096])
    text = b"".join(head.removeprefix(BOM).split())
    if text.startswith(b'{"perfetto_manifest"'):
        return "manifest"
    if text.startswith((b'{"', b'[{"')):
        return "chrome_json"
    return "perfetto" if head[:1] == b"\n" else None


def _source(path: str) -> Source:
    found = sources([path])
    if len(found) != 1 or isinstance(found[0], FolderSource | RemoteFolder):
        raise SourceError(f"{redact_url(path)}: name one trace file")
    source = found[0]
    if isinstance(source, FileSource) and source.head(source.names()[0], 512)[257:262] == b"ustar":
        return TarSource(Path(path), path)
    return source


def _unpacked(source: Source, name: str, label: str) -> Buffer:
    """A file's content; compressed layers are taken off."""
    try:
        with source.open(name) as stream:
            if stream.mapped is not None:
                return stream.mapped
            return _spooled(iter(lambda: stream.read(_BLOCK), b""))
    except (ValueError, SourceError) as e:
        damage = (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile)
        if isinstance(e, SourceError) and not isinstance(e.__cause__, damage):
            raise
        raise Refused(label, "F-compression", "" if source.lone else name) from e


def _spooled(blocks: Iterator[bytes]) -> Buffer:
    """``blocks`` as a mapped temporary file, which vanishes with the mapping."""
    with output_errors("temporary files", ADVICE), temporary_file() as file:
        for block in blocks:
            file.write(block)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""


def _archive(source: Source, label: str) -> Opened:
    """The traces of an archive, Perfetto files first, as viewers order them."""
    found: list[Member] = []
    for name in source.names():
        if any(part.startswith(".") and part not in (".", "..") for part in name.split("/")):
            continue
        data = _unpacked(source, name, label)
        format = sniff(data)
        if format is None:
            raise Refused(label, "F-member", name)
        found.append(Member(name, format, data))
    placed = _placements(label, [m for m in found if m.format == "manifest"])
    traces = [m for m in found if m.format != "manifest"]
    if not traces:
        raise Refused(label, "F-member", "")
    traces.sort(key=lambda m: (m.format != "perfetto", m.name))
    absent = sorted(placed.keys() - {m.name for m in traces})
    return Opened(
        label, True, tuple(m._replace(**placed.get(m.name, {})) for m in traces), tuple(absent)
    )


def _placements(label: str, manifests: list[Member]) -> dict[str, dict[str, Any]]:
    """By a member's name: what the manifest sets of it."""
    if not manifests:
        return {}
    try:
        if len(manifests) > 1:
            raise ValueError("several manifests")
        document = json.loads(bytes(manifests[0].data[: 1 << 24]))["perfetto_manifest"]
        if document["version"] != 1:
            raise ValueError("unknown version")
        files = {entry["path"]: entry for entry in document.get("files", [])}
        return {
            name: {
                "shift_ns": _offset(files, name, len(files)),
                "machine": str(entry.get("machine", {}).get("name", "")),
            }
            for name, entry in files.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise Refused(label, "F-manifest", manifests[0].name) from e


def _offset(files: dict[str, Any], name: str, depth: int) -> int:
    """Nanoseconds to add to ``name``'s times: along the chain of files it is related to."""
    clocks = files.get(name, {}).get("clocks")
    if clocks is None:
        return 0
    if depth < 0:
        raise ValueError("files are related to each other in a circle")
    total = clocks.get("offset_ns", 0) + _offset(files, clocks["sync_to"]["file"], depth - 1)
    if not isinstance(total, int) or abs(total) > _MAX_OFFSET:
        raise ValueError("offset_ns is no integer, or out of range")
    return total
