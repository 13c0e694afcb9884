"""The packets of a file, some thousands at a time, as columns.

A file is a run of ``0A length packet``; some packets hold a compressed run of further ones. Where
something else is between two packets, reading continues at the next place where several packets
follow each other, and what is between is booked. Nothing of a packet's meaning is known here but
which fields say that it is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import SourceError
from traceconv.core.model import I64, Mask
from traceconv.core.source import Source
from traceconv.io.streams import RATIO_FREE_BYTES, RATIO_LIMIT, ZSTD, unpacked
from traceconv.io.window import Window
from traceconv.protobuf.message_columns import (
    CUT,
    DAMAGED,
    FOREIGN,
    VARINT,
    Columns,
    columns,
    frames,
)
from traceconv.protobuf.perfetto_schema import OWN_FIELD, TracePacket, numbers

CHUNK_BYTES = 1 << 20
"""Bytes of packets that are taken at a time."""

PACKET_BYTES = 256 << 20
"""A compressed packet may unpack to this much, whatever its size; far above any real one."""

LONGEST = 512 << 20
"""No packet is longer; what seems to be is damaged."""

FIELDS = (*numbers(TracePacket).values(), OWN_FIELD)
"""The fields that are read; other fields hold data of other sources."""

_NUMBERS = (
    *(TracePacket.TIMESTAMP, TracePacket.TRUSTED_PACKET_SEQUENCE_ID, TracePacket.SEQUENCE_FLAGS),
    *(TracePacket.INCREMENTAL_STATE_CLEARED, TracePacket.PREVIOUS_PACKET_DROPPED),
    *(TracePacket.TIMESTAMP_CLOCK_ID, TracePacket.MACHINE_ID),
)
_COMPRESSED = (TracePacket.COMPRESSED_PACKETS, TracePacket.ZSTD_COMPRESSED_PACKETS)

_IN_A_ROW = 3
"""This many packets in a row are taken for a trace."""

_AHEAD = 1 << 16
"""Bytes behind a place within which they have to be."""

_RECORD = 0x0A

_CANDIDATES = 20_000
"""Places that are tried for a packet in one file: damaged files may have any number."""


class Fault(Protocol):
    """Called for each breach of the format: the rule (of :mod:`traceconv.validation.rules`), the
    place and the count. Reading repairs most breaches; ``validate`` reports them."""

    def __call__(self, rule: str, where: str = "", count: int = 1) -> None: ...


def unjudged(rule: str, where: str = "", count: int = 1) -> None:
    """Ignore what reading repairs."""


@dataclass(frozen=True)
class Packets:
    """Packets that follow each other.

    Attributes:
        data:    buffer they are in; valid until the next ones are asked for.
        start, size: int64 per packet.
        columns: :data:`FIELDS` of each.
        place:   what to add to a start to get its byte in the file; -1 if they were compressed.
        inside:  of the compressed packet, its byte in the file.
    """

    data: Any
    start: I64
    size: I64
    columns: Columns
    place: int
    inside: int = -1

    def __len__(self) -> int:
        return len(self.start)

    def where(self, row: int) -> str:
        """A packet as messages name it."""
        if self.inside >= 0:
            return f"in the packets compressed at byte {self.inside}"
        return f"byte {self.place + int(self.start[row])}"

    def bytes_of(self, row: int) -> bytes:
        """A packet."""
        begin = int(self.start[row])
        return bytes(self.data[begin : begin + int(self.size[row])])

    def rows(self, first: int, stop: int) -> Packets:
        """The packets from ``first`` up to ``stop``."""
        return self.take(np.arange(first, stop))

    def take(self, rows: Any) -> Packets:
        """The packets of an index array or mask."""
        all_columns = self.columns
        taken_columns = Columns(
            all_columns.wanted,
            all_columns.values[:, rows],
            all_columns.lengths[:, rows],
            all_columns.rest[rows],
        )
        return replace(self, start=self.start[rows], size=self.size[rows], columns=taken_columns)


def packets(
    source: Source, name: str, build: TraceBuilder, fault: Fault = unjudged
) -> Iterator[Packets]:
    """All packets of a file, in order; ``build`` counts what is lost.

    Raises:
        SourceError: it cannot be read, or its compressed packets unpack to far too much.
        MissingExtraError: they need a package to be unpacked.
    """
    with source.open(name) as stream:
        window = Window(stream, CHUNK_BYTES)
        yield from _Run(window, build, source.title(name), source.size(name), fault).packets()
        if window.broken:
            fault("F-compression", window.broken)
            build.skip("truncated", f"{window.broken.removeprefix(stream.label)[2:80]}")
        window.close()


def plausible(of: Columns) -> Mask:
    """Which messages can be packets: the fields known here are of the kind they have."""
    good: Mask = (of.rest & DAMAGED) == 0
    has_fields = np.zeros(len(of), bool)
    for i, number in enumerate(of.wanted):
        is_present = of.lengths[i] != -1
        expected = of.lengths[i] == VARINT if number in _NUMBERS else of.lengths[i] >= 0
        good &= ~is_present | expected
        has_fields |= is_present & (number != TracePacket.CLOCK_SNAPSHOT)
    return good & has_fields


class _Run:
    """Packets of a window, one chunk after the other."""

    def __init__(
        self, window: Window, build: TraceBuilder, label: str, stored: int, fault: Fault
    ) -> None:
        self._window, self._build, self._label = window, build, label
        self._fault = fault
        self._kinds: set[int] = set()  # of compressed packets
        self._left = _CANDIDATES
        self._over = False
        self._room = max(RATIO_FREE_BYTES, RATIO_LIMIT * stored)

    def packets(self) -> Iterator[Packets]:
        """Yield all packets; moves the window to its end."""
        window = self._window
        while window.pos < window.end or self._more():
            run_frames = frames(window.data, window.pos, window.end, 1 << 62)
            if len(run_frames.start):
                packet_columns = columns(window.data, run_frames.start, run_frames.size, FIELDS)
                batch = Packets(
                    window.data,
                    run_frames.start,
                    run_frames.size,
                    packet_columns,
                    window.offset - window.pos,
                )
                if run_frames.how == FOREIGN and packet_columns.rest[-1] & DAMAGED:
                    # its length may be what is damaged: what follows is looked for inside
                    run_frames = run_frames._replace(end=int(run_frames.start[-1]))
                    batch = batch.rows(0, len(batch) - 1)
                yield from self._expanded(batch)
            window.pos = run_frames.end
            if run_frames.how == FOREIGN:
                self._fault("P01-packet", window.place(window.pos))
            if run_frames.how == FOREIGN or (run_frames.how == CUT and not self._longer()):
                self._skip("truncated" if run_frames.how == CUT and self._over else "skipped-bytes")

    def _more(self) -> bool:
        self._over = self._over or not self._window.more()
        return not self._over

    def _longer(self) -> bool:
        """Load more of the packet at the window's position; False if it cannot be that long."""
        data, position = self._window.data, self._window.pos + 1
        size = shift = 0
        for byte in bytes(data[position : min(position + 10, self._window.end)]):
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return size <= LONGEST and self._more()

    def _skip(self, code: str) -> None:
        """Move to the next place from which packets follow each other, and book what is between.

        Args:
            code: what it is if there is no such place.
        """
        window = self._window
        begun, where = window.offset, window.place(window.pos)
        window.pos += 1
        while not self._find_packets():
            if self._over:
                window.pos = window.end
                break
        has_more = window.pos < window.end
        code = "skipped-bytes" if has_more else code
        self._fault("F-cut" if code == "truncated" else "P01-packet", where)
        self._build.skip(code, f"{where}, {window.offset - begun} bytes")

    def _find_packets(self) -> bool:
        """Whether packets follow from a place in the window; its position is there then, else
        behind the last place that was tried."""
        window = self._window
        while window.end - window.pos < 2 * _AHEAD and self._more():
            pass
        stop = window.end if self._over else window.end - _AHEAD
        cells = np.frombuffer(window.data, np.uint8)[window.pos : stop]
        for candidate in (np.flatnonzero(cells == _RECORD) + window.pos).tolist():
            self._left -= 1
            if self._left < 0:
                break
            next_frames = frames(window.data, candidate, window.end, _IN_A_ROW)
            is_end = self._over and next_frames.end == window.end and len(next_frames.start) > 1
            if (len(next_frames.start) == _IN_A_ROW or is_end) and plausible(
                columns(window.data, next_frames.start, next_frames.size, FIELDS)
            ).all():
                window.pos = candidate
                return True
        window.pos = stop
        return False

    # -- compressed packets --------------------------------------------------------------------

    def _expanded(self, batch: Packets) -> Iterator[Packets]:
        """The packets, those inside compressed ones in their places; damaged ones are booked."""
        damaged = (batch.columns.rest & DAMAGED) > 0
        if damaged.any():
            rows = np.flatnonzero(damaged)
            self._fault("P01-packet", batch.where(int(rows[0])), len(rows))
            self._build.skip("malformed-record", batch.where(int(rows[0])), len(rows))
            batch = batch.take(~damaged)
        packed = batch.columns.is_bytes(_COMPRESSED[0]) | batch.columns.is_bytes(_COMPRESSED[1])
        if not packed.any():
            yield batch
            return
        places = np.flatnonzero(packed).tolist()
        for before, row in pairwise([-1, *places]):
            if row > before + 1:
                yield batch.rows(before + 1, row)
            yield from self._inside(batch, row)
        if places[-1] + 1 < len(batch):
            yield batch.rows(places[-1] + 1, len(batch))

    def _inside(self, batch: Packets, row: int) -> Iterator[Packets]:
        """The packets in a compressed one."""
        kind = next(n for n in _COMPRESSED if batch.columns.is_bytes(n)[row])
        start, size = batch.columns.spans(kind)
        data = bytes(batch.data[int(start[row]) : int(start[row] + size[row])])
        self._kinds.add(kind)
        zstd = kind == TracePacket.ZSTD_COMPRESSED_PACKETS
        if len(self._kinds) > 1 or data.startswith(ZSTD) is not zstd:
            self._fault("P23-compressed", batch.where(row))
        try:
            content = unpacked(data, self._label, PACKET_BYTES)
        except ValueError as e:
            self._fault("P23-compressed", batch.where(row))
            self._build.skip("malformed-record", f"{batch.where(row)}: {e}")
            return
        self._room -= len(content)
        if self._room < 0:
            raise SourceError(
                f"{self._label}: its compressed packets unpack to far more than it has; refused as "
                "a decompression bomb"
            )
        position, inside = 0, batch.place + int(batch.start[row])
        while position < len(content):
            inner_frames = frames(
                content, position, min(position + CHUNK_BYTES, len(content)), 1 << 62
            )
            if inner_frames.how == CUT and inner_frames.end == position:
                inner_frames = frames(content, position, len(content), 1)
            if len(inner_frames.start):
                packet_columns = columns(content, inner_frames.start, inner_frames.size, FIELDS)
                good = (packet_columns.rest & DAMAGED) == 0
                for number in _COMPRESSED:  # those inside are not nested again
                    good &= ~packet_columns.has(number)
                lost = len(good) - int(good.sum())
                inner = Packets(
                    content, inner_frames.start, inner_frames.size, packet_columns, -1, inside
                )
                if lost:
                    self._fault("P23-compressed", inner.where(0), lost)
                self._build.skip("malformed-record", inner.where(0), lost)
                yield inner.take(good)
            if inner_frames.how == FOREIGN or inner_frames.end == position:
                where = f"in the packets compressed at byte {inside}"
                self._fault("P23-compressed", where)
                self._build.skip("malformed-record", where)
                return
            position = inner_frames.end
