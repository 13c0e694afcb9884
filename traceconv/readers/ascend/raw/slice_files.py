"""Binary files of the collector: slices put together, cut into records, faults counted.

A file comes in slices ``<kind>.slice_<n>``; a record may be split between two of them. The
collector drops its oldest bytes when it runs out of room, so a file may begin in the middle of a
record; one that was being written when the run died ends in the middle of one.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import SourceError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

Records: TypeAlias = "NDArray[np.void]"
"""A structured array: one record per row."""

Blob = bytes | mmap.mmap

Plausible: TypeAlias = "Callable[[Records], NDArray[np.bool_]]"
"""Which records look as they should."""

SLICE = lazy_regex(r"(?P<stem>.+)\.slice_(?P<number>\d{1,18})")
DONE = ".done"

LARGEST_BYTES = 4 << 30
"""More of one kind than this is refused."""

_FILESIZE = lazy_regex(rb"filesize:\s*(\d{1,18})")


def numbered(names: Iterable[str]) -> dict[str, list[str]]:
    """Slices by what they are slices of, in the order of their numbers; other files are left."""
    by_stem: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if match := SLICE.fullmatch(name):
            by_stem.setdefault(match["stem"], []).append((int(match["number"]), name))
    return {stem: [name for _, name in sorted(slices)] for stem, slices in sorted(by_stem.items())}


def gathered(source: Source, names: Sequence[str], build: TraceBuilder) -> Blob:
    """The bytes of slices, one after the other; those that cannot be read are reported."""
    parts: list[Blob] = []
    room = LARGEST_BYTES
    for name in names:
        build.file = source.title(name)
        try:
            parts.append(_content(source, name, room, alone=len(names) == 1))
        except SourceError as e:
            build.skip("skipped-bytes", str(e)[:120])
            continue
        size = len(parts[-1])
        room -= size
        stated_size = _FILESIZE.search(source.head(name + DONE, 64))
        if stated_size and int(stated_size[1]) > size:
            build.skip("truncated", f"{size} of {int(stated_size[1])} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _content(source: Source, name: str, room: int, alone: bool) -> Blob:
    """One slice; mapped, not read, where it is the only one and that costs nothing."""
    with source.open(name) as stream:
        if alone and stream.mapped is not None and len(stream.mapped) <= room:
            stream.advance(len(stream.mapped))
            return stream.mapped
    return source.read(name, room)


def records(
    blob: Blob, layout: np.dtype[np.void], plausible: Plausible, build: TraceBuilder
) -> Records:
    """The plausible records of a file; all other bytes are reported.

    Args:
        blob:      its bytes.
        layout:    of a record.
        plausible: tells records from what is between them, and so where the first one begins.
    """
    # an odd number of bytes is a cut record at one of the ends: first it is taken to be at the
    # beginning; if more records look right when it is at the end, it is there
    spare = len(blob) % layout.itemsize
    rows = _from(blob, layout, spare)
    good = plausible(rows)
    if spare and not good.all():
        cut = _from(blob, layout, 0)
        fine = plausible(cut)
        if int(fine.sum()) > int(good.sum()):
            build.skip("truncated", f"{spare} bytes of a record at byte {len(blob) - spare}")
            rows, good, spare = cut, fine, 0
    if spare:
        build.skip("skipped-bytes", f"{spare} bytes of a record at byte 0")
    if good.all():
        return rows
    first_bad = int(np.flatnonzero(~good)[0])
    where = f"byte {spare + first_bad * layout.itemsize}"
    build.skip("malformed-record", where, len(rows) - int(good.sum()))
    return chosen(rows, good)


def chosen(rows: Records, is_chosen: NDArray[np.bool_]) -> Records:
    """Some records, with the bytes between their fields: indexing alone copies fields only."""
    opaque = rows.view(f"V{rows.dtype.itemsize}")[is_chosen]  # as opaque bytes
    return opaque.view(rows.dtype)


def _from(blob: Blob, layout: np.dtype[np.void], start: int) -> Records:
    count = (len(blob) - start) // layout.itemsize
    return np.frombuffer(blob, layout, count, start)


def layout(size: int, /, **fields: tuple[int, str]) -> np.dtype[np.void]:
    """A record of ``size`` bytes with fields at (offset, little-endian type)."""
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for _, kind in fields.values()],
            "offsets": [offset for offset, _ in fields.values()],
            "itemsize": size,
        }
    )


def lost_between(sequence: NDArray[np.uint8]) -> int:
    """Records missing in a run that is numbered from 0 to 15 over and over.

    Numbers that do not follow each other more often than not number something else: 0.
    """
    if len(sequence) < 2:
        return 0
    step = (sequence[1:].astype(np.int16) - sequence[:-1]) % 16
    gaps = (step - 1) % 16  # 0 between neighbours
    return int(gaps.sum()) if int((gaps == 0).sum()) * 2 > len(gaps) else 0
