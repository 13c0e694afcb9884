"""Columns in compressed blocks, which are read independently.

A block holds 64 KiB of a column. Bytes of integers are grouped by significance: most of the high
ones are equal. Where that makes the first block of a column smaller, as of times, its values are
stored as differences to the previous value in the block. A block is a zlib stream (RFC 1950), whose
checksum detects damage. zstd would save a quarter of the bytes, and would be another package to
install.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from isal import isal_zlib
from isal.igzip_lib import IsalError

from traceconv.io.streams import Deflating

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTES = 1 << 16
"""Of a column in a block, before compression."""

MOST_TIMES = 1032
"""The highest compression ratio of zlib."""

_DAMAGED = (cast(type[Exception], IsalError), zlib.error)


def rows_of(dtype: np.dtype[Any]) -> int:
    """Rows in a block of this type."""
    return BYTES // dtype.itemsize


def packed(column: NDArray[Any]) -> tuple[bool, Iterator[bytes]]:
    """Whether a column is stored as differences, and its blocks."""
    size = rows_of(column.dtype)
    parts = [column[begin : begin + size] for begin in range(0, len(column), size)]
    plain, differences = (
        sum(len(pack(_sorted_bytes(part, by_step))) for part in parts[:1])
        for by_step in (False, True)
    )
    by_step = differences < plain
    return by_step, (pack(_sorted_bytes(part, by_step)) for part in parts)


def pack(content: bytes) -> bytes:
    """Bytes as one zlib stream."""
    stream = Deflating()
    return stream.add(content) + stream.end()


def unpacked(
    data: Any,
    sizes: Sequence[int],
    dtype: np.dtype[Any],
    rows: int,
    differences: bool,
    first: int = 0,
) -> NDArray[Any]:
    """The column of some blocks of a column.

    Args:
        data:  the blocks, end to end.
        sizes: bytes of each of them.
        rows:  of the whole column.
        differences: whether it is stored as differences.
        first: number of the first block.

    Raises:
        ValueError: a block is damaged, or has another number of rows.
    """
    per_block = rows_of(dtype)
    begin = first * per_block
    column = np.empty(max(min(rows - begin, len(sizes) * per_block), 0), dtype)
    offset = 0
    for number, size in enumerate(sizes):
        rows_of_block = column[number * per_block : (number + 1) * per_block]
        content = unpack(data[offset : offset + size], rows_of_block.nbytes)
        _restore(content, rows_of_block, differences)
        offset += size
    return column


def unpack(stream: Any, size: int) -> bytes:
    """The ``size`` bytes in a zlib stream; no more memory than that is used.

    Raises:
        ValueError: it is damaged, or holds another number of bytes.
    """
    inflater = isal_zlib.decompressobj()
    try:
        content: bytes = inflater.decompress(stream, size + 1)
    except _DAMAGED as e:
        raise ValueError(f"a block is damaged: {e}") from e
    if len(content) != size or not inflater.eof or inflater.unused_data:
        raise ValueError(f"a block does not hold {size} bytes")
    return content


def _sorted_bytes(values: NDArray[Any], differences: bool) -> bytes:
    values = np.ascontiguousarray(values)
    if values.dtype.kind == "f" or values.dtype.itemsize == 1:
        return values.tobytes()
    plain = values.view(f"<u{values.dtype.itemsize}")
    steps = plain.copy()
    if differences:
        steps[1:] -= plain[:-1]
    return steps.view(np.uint8).reshape(len(steps), -1).T.tobytes()


def _restore(content: bytes, into: NDArray[Any], differences: bool) -> None:
    """The opposite of :func:`_sorted_bytes`."""
    if into.dtype.kind == "f" or into.dtype.itemsize == 1:
        into[:] = np.frombuffer(content, into.dtype)
        return
    by_byte = np.frombuffer(content, np.uint8).reshape(into.dtype.itemsize, -1)
    steps = into.view(f"<u{into.dtype.itemsize}")
    steps.view(np.uint8).reshape(len(into), -1)[:] = by_byte.T
    if differences:
        np.cumsum(steps, out=steps)
