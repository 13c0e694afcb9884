"""The frame of a Perfetto file: a run of ``0A length packet``."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NoReturn

from traceconv.core.errors import SourceError
from traceconv.io.streams import RATIO_FREE_BYTES, RATIO_LIMIT
from traceconv.validation.container import Buffer, unzstd
from traceconv.validation.perfetto.wire import BrokenMessage, fields, varint
from traceconv.validation.tally import Refused, Tally

_CHUNK = 4 << 20
_PACKET_BYTES = 256 << 20
"""A compressed packet may unpack to this much, whatever its size; far above any real one."""
_BLOCK_SHIFT = 40
"""A place is ``block << 40 | offset``: block 0 is the file, the others are compressed packets."""

ZLIB_PACKETS, ZSTD_PACKETS = 50, 133


class Packets:
    """The packets of one file, in order and again by their place.

    Args:
        data:  the file.
        label: its name, for messages.
        tally: where broken frames are counted.
    """

    def __init__(self, data: Buffer, label: str, tally: Tally) -> None:
        self._data, self._label, self._tally = data, label, tally
        self._blocks: list[int] = [0]
        self._kinds: set[int] = set()
        self._unpacked: tuple[int, bytes] = (0, b"")
        self._grown = 0

    def where(self, place: int) -> str:
        """A place for people."""
        block, offset = place >> _BLOCK_SHIFT, place & ((1 << _BLOCK_SHIFT) - 1)
        if not block:
            return f"byte {offset}"
        return f"byte {offset} in the packets compressed at byte {self._blocks[block]}"

    def packet(self, place: int) -> bytes:
        """The packet that :meth:`__iter__` gave together with ``place``."""
        block, offset = place >> _BLOCK_SHIFT, place & ((1 << _BLOCK_SHIFT) - 1)
        data = self._block(block) if block else self._data
        head = bytes(data[offset : offset + 12])
        size, start = varint(head, 1)
        return bytes(data[offset + start : offset + start + size])

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Every packet with its place.

        Raises:
            Refused: bytes between packets cannot even be skipped.
        """
        offset, size, span = 0, len(self._data), _CHUNK
        while offset < size:
            chunk = bytes(self._data[offset : offset + span])
            at, end = 0, len(chunk)
            while at + 1 < end and chunk[at] == 10:
                length, start = chunk[at + 1], at + 2
                if length >= 0x80:
                    try:
                        length, start = varint(chunk, at + 1)
                    except BrokenMessage:
                        if end - at > 11:
                            self._refuse("P01-packet", offset + at)
                        break
                stop = start + length
                if stop > end:
                    break
                if length:
                    yield chunk[start:stop], offset + at
                at = stop
            last = offset + end == size
            if at < end and chunk[at] != 10:
                at = self._skipped(chunk, at, offset)
            elif last and at < end:
                self._tally.add("P01-truncated", f"byte {offset + at}")
                return
            span = _CHUNK if at else span * 2
            offset += at

    def expand(self, packet: bytes, place: int) -> Iterator[tuple[bytes, int]]:
        """The packets inside a compressed packet.

        Raises:
            Refused: they cannot be unpacked, or are no run of packets.
        """
        if place >> _BLOCK_SHIFT:
            self._refuse("P23-content", place)
        self._blocks.append(place)
        number = len(self._blocks) - 1
        data = self._unpack(packet, place)
        self._unpacked = (number, data)
        at, end = 0, len(data)
        while end - at > 2:
            if data[at] != 10:
                self._refuse("P23-content", place)
            try:
                length, start = varint(data, at + 1)
            except BrokenMessage:
                self._refuse("P23-content", place)
            if start + length > end:
                self._refuse("P23-content", place)
            if length:
                yield data[start : start + length], number << _BLOCK_SHIFT | at
            at = start + length

    def _block(self, number: int) -> bytes:
        if self._unpacked[0] != number:
            place = self._blocks[number]
            self._unpacked = (number, self._unpack(self.packet(place), place))
        return self._unpacked[1]

    def _unpack(self, packet: bytes, place: int) -> bytes:
        content = {n: v for n, _, v in fields(packet) if n in (ZLIB_PACKETS, ZSTD_PACKETS)}
        kind = ZLIB_PACKETS if ZLIB_PACKETS in content else ZSTD_PACKETS
        self._kinds.add(kind)
        if len(self._kinds) > 1:
            self._refuse("P23-mixed", place)
        value = content[kind]
        out = self._bounded(kind, value) if isinstance(value, bytes) else None
        if out is None:
            self._refuse("P23-codec", place)
        return out

    def _bounded(self, kind: int, value: bytes) -> bytes | None:
        """The content of a compressed packet; None if it is broken."""
        try:
            out = unzstd(value, self._label) if kind == ZSTD_PACKETS else _inflate(value)
        except ValueError:
            return None
        self._grown += len(out)
        if self._grown > max(RATIO_FREE_BYTES, RATIO_LIMIT * len(self._data)):
            raise SourceError(
                f"{self._label}: its compressed packets unpack to more than "
                f"{self._grown >> 20} MiB; refused as a decompression bomb"
            )
        return out

    def _skipped(self, chunk: bytes, at: int, offset: int) -> int:
        """Position behind one field that is no packet."""
        self._tally.add("P01-tag", f"byte {offset + at}")
        try:
            tag, start = varint(chunk, at)
            size, stop = (8, start) if tag & 7 == 1 else (4, start) if tag & 7 == 5 else (-1, 0)
            if tag & 7 in (0, 2):
                size, stop = varint(chunk, start)
                size = size if tag & 7 == 2 else 0
        except BrokenMessage:
            size, stop = -1, 0
        if size < 0 or stop + size > len(chunk):
            self._refuse("P01-packet", offset + at)
        return stop + size

    def _refuse(self, rule: str, place: int) -> NoReturn:
        raise Refused(self._label, rule, self.where(place))


def _inflate(data: bytes) -> bytes:
    """A zlib stream or a gzip member; ValueError if it is neither, broken, or a bomb."""
    limit = max(_PACKET_BYTES, RATIO_LIMIT * len(data))
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        out = stream.decompress(data, limit)
    except zlib.error as e:
        raise ValueError(str(e)) from e
    if not stream.eof or stream.unused_data or stream.unconsumed_tail:
        raise ValueError("the compressed data is cut off, too large, or followed by more")
    return out
