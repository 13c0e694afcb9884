"""Finds the traces at a path: in plain, compressed or archived files."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

from traceconv.core.errors import SourceError, UnknownFormatError
from traceconv.core.source import Source
from traceconv.io.archives import TarSource
from traceconv.io.remote import RemoteFolder
from traceconv.io.sources import FileSource, FolderSource, sources
from traceconv.io.storage import Storage, is_url, redact_url
from traceconv.io.streams import ZSTD
from traceconv.readers.shared import perfetto_manifest
from traceconv.validation.rules import Refused

DAMAGE = (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile)
"""What unpacking damaged bytes raises."""

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 4096


class Member(NamedTuple):
    """One trace of a source: its name there, "perfetto" or "chrome_json", and what a manifest adds
    to its times."""

    name: str
    format: str
    shift_ns: int = 0


class Opened(NamedTuple):
    """The content of a path.

    Attributes:
        path:    as the user gave it, without secrets.
        source:  the files.
        members: the traces, in the order viewers read them.
        absent:  files a manifest names that are not there.
    """

    path: str
    source: Source
    members: tuple[Member, ...]
    absent: tuple[str, ...] = ()


def open_trace(path: str) -> Opened:
    """The traces in ``path`` that viewers would load.

    Raises:
        SourceError: it cannot be read, or needs a decompressor that is not installed.
        UnknownFormatError: it is no trace.
        Refused: viewers refuse it because of what is around the traces.
    """
    label = redact_url(path)
    try:
        opened_sources = sources([path])
        if len(opened_sources) != 1 or isinstance(opened_sources[0], FolderSource | RemoteFolder):
            raise SourceError(f"{label}: name one trace file")
        source = opened_sources[0]
        if isinstance(source, FileSource) and source.head(source.names()[0], 512)[257:262] == (
            b"ustar"
        ):
            source = TarSource(Path(path), path)
        if not source.lone:
            return _archive(source, label)
        name = source.names()[0]
        head = source.head(name, _HEAD_BYTES)
        if head.startswith(ZSTD):
            with source.open(name) as stream:  # says what to install
                head = stream.read(_HEAD_BYTES)
    except (ValueError, SourceError) as e:
        if isinstance(e, SourceError) and not isinstance(e.__cause__, DAMAGE):
            raise
        raise Refused(label, "F-compression", "") from e
    if not head and source.size(name):
        raise Refused(label, "F-compression", "")
    format = sniff(head)
    if format is None or perfetto_manifest.is_manifest(head):
        why = 'neither a Perfetto trace (first byte 0x0A) nor Chrome JSON ({" or [{")'
        raise UnknownFormatError(f"{label}: {why if head else 'the file is empty'}")
    return Opened(label, source, (Member(name, format),))


def stored_bytes(path: str) -> int:
    """Bytes of the file at a path or URL.

    Raises:
        SourceError: the storage does not answer.
    """
    if not is_url(path):
        return Path(path).stat().st_size
    storage = Storage(path)
    with storage.guarded(storage.label):
        return int(storage.fs.info(storage.path)["size"])


def sniff(head: bytes) -> str | None:
    """The format by the first bytes, as viewers detect it; None if they would not."""
    text = b"".join(head.removeprefix(_BOM).split())
    if text.startswith((b'{"', b'[{"')):
        return "chrome_json"
    return "perfetto" if head[:1] == b"\n" else None


def _archive(source: Source, label: str) -> Opened:
    """The traces of an archive, Perfetto files first, as viewers order them."""
    members: list[Member] = []
    placed: dict[str, perfetto_manifest.Placement] | None = None
    for name in source.names():
        if any(
            segment.startswith(".") and segment not in (".", "..") for segment in name.split("/")
        ):
            continue
        head = source.head(name, _HEAD_BYTES)
        if perfetto_manifest.is_manifest(head):
            try:
                if placed is not None:
                    raise ValueError("several manifests")
                placed = perfetto_manifest.placements(
                    source.read(name, perfetto_manifest.MAX_BYTES)
                )
            except ValueError as e:
                raise Refused(label, "F-manifest", name) from e
            continue
        format = sniff(head)
        if format is None:
            raise Refused(label, "F-member", name)
        members.append(Member(name, format))
    if not members:
        raise Refused(label, "F-member", "")
    placed = placed or {}
    members = [
        m._replace(shift_ns=placed[m.name].shift_ns) if m.name in placed else m for m in members
    ]
    members.sort(key=lambda m: (m.format != "perfetto", m.name))
    absent = sorted(placed.keys() - {m.name for m in members})
    return Opened(label, source, tuple(members), tuple(absent))
