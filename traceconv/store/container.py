"""The form of our own files: a sign with a version, segments, and a directory at the end.

::

    sign, version, line feed
    segments
    one zlib stream of JSON, the directory
    8 bytes: length of the JSON        8 bytes: length of the stream        8 bytes: MAGIC

Numbers are little-endian. A file that was cut off has no end. A rank in a file ends alike.
"""

from __future__ import annotations

import json
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from typing import IO, Any

from traceconv.store import blocks

MAGIC = b"tcstore\0"
_END = 24
_MOST = 1 << 30
"""Bytes of a directory at most."""


def head(sign: bytes, version: int) -> bytes:
    """The first bytes of a file."""
    return sign + b"%d\n" % version


def tail(directory: Any) -> bytes:
    """The directory, and the end of a file."""
    text = json.dumps(directory, separators=(",", ":")).encode()
    stream = blocks.pack(text)
    return stream + b"".join(n.to_bytes(8, "little") for n in (len(text), len(stream))) + MAGIC


def described(data: Any, begin: int, end: int) -> tuple[Any, int]:
    """The directory at the end of ``data[begin:end]``, JSON values, and where it begins.

    Raises:
        ValueError: it is cut off, or damaged.
    """
    stop = end - _END
    if stop < begin or data[stop + 16 : end] != MAGIC:
        raise ValueError("it is cut off")
    size, stored = (int.from_bytes(data[stop + i : stop + i + 8], "little") for i in (0, 8))
    if not 0 < stored <= stop - begin or size > min(_MOST, blocks.MOST_TIMES * stored):
        raise ValueError("its directory is damaged")
    text = blocks.unpack(data[stop - stored : stop], size)
    return json.loads(text, parse_int=lru_cache(1 << 16)(int)), stop - stored  # numbers recur


def directory(file: IO[bytes], sign: bytes, version: int) -> Any:
    """The directory of a file; JSON values.

    Raises:
        OSError: it cannot be read.
        ValueError: it is of another kind or version, cut off, or damaged.
    """
    first_line = file.readline(len(sign) + 20)
    version_text = first_line.removeprefix(sign).strip()
    if version_text != b"%d" % version or not first_line.startswith(sign):
        shown = version_text.decode("ascii", "replace")
        raise ValueError(f"it is of version {shown}, this traceconv reads version {version}")
    with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return described(data, 0, len(data))[0]
