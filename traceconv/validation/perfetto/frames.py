"""The frame of a Perfetto file: a run of ``0A length packet``, some of them compressed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import numpy as np

from traceconv import native
from traceconv.core.columns import I64
from traceconv.core.errors import SourceError
from traceconv.io.streams import RATIO_FREE_BYTES, RATIO_LIMIT, ZSTD, unpacked
from traceconv.protobuf.message import BrokenMessage, last_values, message, varint
from traceconv.protobuf.message_columns import WHOLE, frames, varint_sizes
from traceconv.validation.container import Buffer
from traceconv.validation.rules import Refused, Tally

ZLIB_PACKETS, ZSTD_PACKETS = 50, 133

_RECORD = 0x0A
_BATCH = 1 << 15
"""So many packets are looked at together."""
_CHUNK = 4 << 20
_PACKET_BYTES = 256 << 20
"""A compressed packet may unpack to this much, whatever its size; far above any real one."""
_BLOCK_SHIFT = 40
"""A place is ``block << 40 | offset``: block 0 is the file, the others are compressed packets."""


class Batch(NamedTuple):
    """Packets one after the other: where their bytes begin, how many, and their places."""

    start: I64
    size: I64
    place: I64


class Packets:
    """The packets of one file, in order and again by their place.

    Args:
        data:  the file.
        label: its name, for messages.
        tally: where a cut end is counted.
    """

    def __init__(self, data: Buffer, label: str, tally: Tally) -> None:
        self._data, self._label, self._tally = data, label, tally
        self._blocks: list[int] = [0]
        self._kinds: set[int] = set()
        self._unpacked: tuple[int, bytes] = (0, b"")
        self._grown = 0
        self._at = 0
        self.data = data

    def where(self, place: int) -> str:
        """A place for people."""
        block, offset = place >> _BLOCK_SHIFT, place & ((1 << _BLOCK_SHIFT) - 1)
        inside = f" in the packets compressed at byte {self._blocks[block]}" if block else ""
        return f"byte {offset}{inside}"

    def packet(self, place: int) -> bytes:
        """The packet that was given together with ``place``."""
        block, offset = place >> _BLOCK_SHIFT, place & ((1 << _BLOCK_SHIFT) - 1)
        if block and self._unpacked[0] != block:
            outer = self._blocks[block]
            self._unpacked = (block, self._unpack(self.packet(outer), outer))
        data = self._unpacked[1] if block else self._data
        size, start = varint(bytes(data[offset : offset + 12]), 1)
        return bytes(data[offset + start : offset + start + size])

    def batches(self) -> Iterator[Batch]:
        """Packets of the file by the thousand, up to the first thing that is none.

        Nothing where the C part is not there: then they are read one by one.
        """
        while native.wire() is not None and self._at < len(self._data):
            found = frames(self._data, self._at, len(self._data), _BATCH)
            place = found.start - 1 - varint_sizes(found.size)
            long = np.frombuffer(self._data, np.uint8)[place] != _RECORD
            whole = int(np.argmax(long)) if long.any() else len(place)
            if not whole:
                return
            start, size = found.start[:whole], found.size[:whole]
            self._at = int(start[-1] + size[-1])
            yield Batch(start, size, place[:whole])
            if whole < len(place) or found.how != WHOLE:
                return  # sizes in more bytes than needed, and other oddities, are read one by one

    @property
    def read_bytes(self) -> int:
        """How much of the file :meth:`batches` gave."""
        return self._at

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Every packet that :meth:`batches` did not give, with its place.

        Raises:
            Refused: there are other bytes than packets.
        """
        return self._run(self._data, 0, self._at)

    def expand(self, packet: bytes, place: int) -> Iterator[tuple[bytes, int]]:
        """The packets inside a compressed packet.

        Raises:
            Refused: they cannot be unpacked, or are no run of packets.
        """
        if place >> _BLOCK_SHIFT:
            self.refuse("P23-compressed", place)
        self._blocks.append(place)
        block = len(self._blocks) - 1
        self._unpacked = (block, self._unpack(packet, place))
        yield from self._run(self._unpacked[1], block)

    def refuse(self, rule: str, place: int) -> NoReturn:
        """Give up on the file."""
        raise Refused(self._label, rule, self.where(place))

    def _run(self, data: Buffer, block: int, offset: int = 0) -> Iterator[tuple[bytes, int]]:
        """Frame by frame, read in chunks; a chunk grows where it holds no whole frame."""
        size, span = len(data), _CHUNK
        base = block << _BLOCK_SHIFT
        while offset < size:
            chunk = bytes(data[offset : offset + span])
            at, end = 0, len(chunk)
            while at + 1 < end and chunk[at] == 10:
                length, start = chunk[at + 1], at + 2
                if length >= 0x80:
                    try:
                        length, start = varint(chunk, at + 1)
                    except BrokenMessage:
                        if end - at > 11:
                            self.refuse("P01-packet", base | offset + at)
                        break
                stop = start + length
                if stop > end:
                    break
                if length:
                    yield chunk[start:stop], base | offset + at
                at = stop
            if at < end and chunk[at] != 10:
                self.refuse("P23-compressed" if block else "P01-packet", base | offset + at)
            span = _CHUNK if at else span * 2
            offset += at
            if at < end and offset + end - at == size:  # the rest of the file is no whole frame
                if block:
                    self.refuse("P23-compressed", base | offset)
                self._tally.add("F-cut", self.where(offset))
                return

    def _unpack(self, packet: bytes, place: int) -> bytes:
        content = last_values(packet)
        kind = ZLIB_PACKETS if ZLIB_PACKETS in content else ZSTD_PACKETS
        self._kinds.add(kind)
        try:
            if len(self._kinds) > 1:
                raise ValueError("both kinds of compressed packets")
            value = message(content[kind])
            if value.startswith(ZSTD) is not (kind == ZSTD_PACKETS):
                raise ValueError("compressed in another way than it says")
            out = unpacked(value, self._label, _PACKET_BYTES)
        except ValueError:
            self.refuse("P23-compressed", place)
        self._grown += len(out)
        if self._grown > max(RATIO_FREE_BYTES, RATIO_LIMIT * len(self._data)):
            raise SourceError(
                f"{self._label}: its compressed packets unpack to more than "
                f"{self._grown >> 20} MiB; refused as a decompression bomb"
            )
        return out
