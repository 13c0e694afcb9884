"""From a path to the traces in it: plain, compressed or archived files, as random-access bytes.

Everything that is unpacked is bounded (see :mod:`traceconv.io.sources`) and lies in a temporary file,
so that a large trace costs address space, not memory.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import mmap
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from traceconv.core.errors import SourceError, UnknownFormatError
from traceconv.io.remote import RemoteFolder
from traceconv.io.sources import (
    FileSource,
    FolderSource,
    Source,
    TarSource,
    sources,
)
from traceconv.io.storage import Storage, is_url, redact_url
from traceconv.io.streams import RATIO_FREE_BYTES, RATIO_LIMIT
from traceconv.io.temporary import temporary_file
from traceconv.validation.tally import Refused

Buffer = bytes | mmap.mmap

_ZSTD = b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
_MAX_OFFSET = 1 << 60


@dataclass(frozen=True)
class Member:
    """One trace.

    Attributes:
        name:    inside the archive, "" for a single file.
        format:  "perfetto", "chrome_json", or "manifest".
        data:    its bytes, unpacked.
        shift_ns: added to every time (from the archive's manifest).
        machine: name of its machine (from the manifest), "" if none.
    """

    name: str
    format: str
    data: Buffer
    shift_ns: int = 0
    machine: str = ""


@dataclass(frozen=True)
class Opened:
    """What a path holds.

    Attributes:
        path:    as the user gave it.
        stored:  bytes on disk.
        archive: whether it is an archive.
        members: the traces, in the order viewers read them.
        absent:  files a manifest names that are not there.
    """

    path: str
    stored: int
    archive: bool
    members: tuple[Member, ...] = field(default_factory=tuple)
    absent: tuple[str, ...] = ()


def open_trace(path: str | Path) -> Opened:
    """Everything in ``path`` that viewers would load.

    Raises:
        SourceError: it cannot be read, or needs a decompressor that is not installed.
        UnknownFormatError: it is no trace.
        Refused: viewers refuse it because of what is around the traces.
    """
    label = redact_url(str(path))
    source = _source(str(path))
    stored = stored_bytes(str(path))
    if source.lone:
        data = _unpacked(source, source.names()[0], label)
        format = sniff(data)
        if format is None or format == "manifest":
            raise UnknownFormatError(_unknown(label, data))
        return Opened(label, stored, False, (Member("", format, data),))
    return Opened(label, stored, True, *_members(source, label))


def stored_bytes(path: str) -> int:
    """Bytes of the file at a path or URL.

    Raises:
        SourceError: they cannot be told.
    """
    if not is_url(path):
        return Path(path).stat().st_size
    place = Storage(path)
    with place.guarded(place.label):
        return int(place.fs.info(place.path)["size"])


def sniff(data: Buffer) -> str | None:
    """The format by its first bytes, as viewers tell it; None if they would not know it."""
    head = bytes(data[:4096])
    text = b"".join(head.removeprefix(_BOM).split())
    if text.startswith(b'{"perfetto_manifest"'):
        return "manifest"
    if text.startswith((b'{"', b'[{"')):
        return "chrome_json"
    return "perfetto" if head[:1] == b"\n" else None


def has_bom(data: Buffer) -> bool:
    """Whether the text begins with a UTF-8 byte order mark."""
    return bytes(data[:3]) == _BOM


def unzstd(data: bytes, label: str) -> bytes:
    """One zstd frame, unpacked.

    Raises:
        SourceError: no decompressor is installed, or it unpacks to too much.
        ValueError:  it is broken.
    """
    return b"".join(_unzstd_blocks(io.BytesIO(data), label, len(data)))


def _source(path: str) -> Source:
    found = sources([path])
    if len(found) != 1 or isinstance(found[0], FolderSource | RemoteFolder):
        raise SourceError(f"{redact_url(path)}: name one trace file")
    source = found[0]
    if isinstance(source, FileSource) and source.head(source.names()[0], 512)[257:262] == b"ustar":
        return TarSource(Path(path), path)
    return source


def _unknown(label: str, data: Buffer) -> str:
    if not len(data):
        return f"{label}: the file is empty"
    return f'{label}: neither a Perfetto trace (first byte 0x0A) nor Chrome JSON ({{" or [{{")'


def _unpacked(source: Source, name: str, label: str) -> Buffer:
    """A file's content; compressed layers are taken off."""
    zstd = source.head(name, 4) == _ZSTD
    where = "" if source.lone else name
    try:
        with source.open(name) as stream:
            if zstd:
                return _spooled(_unzstd_blocks(stream, label, source.size(name)))
            if stream.mapped is not None:
                return stream.mapped
            return _spooled(iter(lambda: stream.read(_BLOCK), b""))
    except ValueError as e:
        raise Refused(label, "F-compression", where) from e
    except SourceError as e:
        if isinstance(e.__cause__, (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile)):
            raise Refused(label, "F-compression", where) from e
        raise


def _unzstd_blocks(raw: Any, label: str, stored: int) -> Iterator[bytes]:
    """The content of all zstd frames of a file-like object, in blocks of bounded size."""
    limit, size = max(RATIO_FREE_BYTES, RATIO_LIMIT * stored), 0
    reader, error = _zstd_reader(raw, label)
    try:
        while block := reader.read(_BLOCK):
            size += len(block)
            if size > limit:
                raise SourceError(f"{label}: unpacks to too much; refused as a decompression bomb")
            yield block
    except (error, EOFError) as e:
        raise ValueError(f"zstd data cannot be unpacked: {e}") from e


def _zstd_reader(raw: Any, label: str) -> tuple[Any, type[Exception]]:
    """A decompressing reader around ``raw``, and what it raises for broken data."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        return module.ZstdFile(raw), module.ZstdError
    try:
        module = importlib.import_module("zstandard")
    except ImportError as e:
        raise SourceError(
            f"{label}: is compressed with zstd, which this Python cannot unpack; "
            "install the package zstandard"
        ) from e
    reader = module.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
    return reader, module.ZstdError


def _spooled(blocks: Iterator[bytes]) -> Buffer:
    with temporary_file() as file:
        for block in blocks:
            file.write(block)
        return _map(file)


def _map(file: IO[bytes]) -> Buffer:
    file.flush()
    if not file.tell():
        return b""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# -- archives ----------------------------------------------------------------------------------


def _members(source: Source, label: str) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """The traces of an archive, Perfetto files first, as viewers order them; and what is absent."""
    found: list[Member] = []
    for name in source.names():
        if any(part.startswith(".") and part not in (".", "..") for part in name.split("/")):
            continue
        data = _unpacked(source, name, label)
        format = sniff(data)
        if format is None:
            raise Refused(label, "F-member", name)
        found.append(Member(name, format, data))
    manifests = [m for m in found if m.format == "manifest"]
    placed = _placements(label, manifests)
    found = [m for m in found if m.format != "manifest"]
    if not found:
        raise Refused(label, "F-empty", "")
    found.sort(key=lambda m: (m.format != "perfetto", m.name))
    absent = sorted(placed.keys() - {m.name for m in found})
    return tuple(_placed(m, *placed.get(m.name, (0, ""))) for m in found), tuple(absent)


def _placed(member: Member, shift_ns: int, machine: str) -> Member:
    return replace(member, shift_ns=shift_ns, machine=machine)


def _placements(label: str, manifests: list[Member]) -> dict[str, tuple[int, str]]:
    """By a member's name: how far it is shifted, and its machine."""
    if not manifests:
        return {}
    try:
        if len(manifests) > 1:
            raise ValueError("several manifests")
        document = json.loads(bytes(manifests[0].data[: 1 << 24]))["perfetto_manifest"]
        if document["version"] != 1:
            raise ValueError("unknown version")
        files = {entry["path"]: entry for entry in document.get("files", [])}
        offsets = {name: _offset(files, name, len(files)) for name in files}
        machines = {name: str(e.get("machine", {}).get("name", "")) for name, e in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise Refused(label, "F-manifest", manifests[0].name) from e
    return {name: (offsets[name], machines[name]) for name in files}


def _offset(files: dict[str, Any], name: str, depth: int) -> int:
    """Nanoseconds to add to ``name``'s times: along the chain of files it is tied to."""
    clocks = files.get(name, {}).get("clocks")
    if clocks is None:
        return 0
    if depth < 0:
        raise ValueError("files are tied to each other in a circle")
    offset = clocks.get("offset_ns", 0)
    if not isinstance(offset, int) or abs(offset) > _MAX_OFFSET:
        raise ValueError("offset_ns is no integer, or out of range")
    return offset + _offset(files, clocks["sync_to"]["file"], depth - 1)
