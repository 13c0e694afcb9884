"""Files of tagged fields: u16 type, u32 length, value; all little-endian.

A file is a list of such fields. The value of each is one record: a fixed struct, then fields of its
own that hold text. Lengths are walked field by field; everything else is done for all records at
once.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I64

_HEAD = Struct("<HI")
_SAMPLE = 1000
"""Records by which one of several layouts is chosen."""

_MOST_FIELDS = 64
"""Fields of a record that are looked at; profilers write a dozen."""

UNDECODABLE = "N/A"

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Texts:
    """One text field of all records.

    Attributes:
        codes:  index into ``values``, per record; -1 where a record lacks the field.
        values: the different texts.
    """

    codes: I64
    values: Sequence[str]

    def mapping(self) -> dict[int, str]:
        """The texts by code."""
        return dict(enumerate(self.values))


@dataclass(frozen=True)
class Table:
    """The records of a file.

    Attributes:
        fixed: structured array, a row per record.
        texts: by type of field.
    """

    fixed: NDArray[np.void]
    texts: Mapping[int, Texts]

    def column(self, name: str) -> I64:
        """A number of the fixed struct; 64-bit ones keep their bits."""
        return np.ascontiguousarray(self.fixed[name]).astype(np.int64)

    def text(self, kind: int) -> Texts:
        """A text field; none has it if it was not asked for."""
        return self.texts.get(kind) or Texts(np.full(len(self.fixed), -1, np.int64), ())

    def __len__(self) -> int:
        return len(self.fixed)


def read_table(
    data: Any, layouts: Sequence[np.dtype[np.void]], wanted: Collection[int], build: TraceBuilder
) -> Table:
    """All records of a file; those that are cut or too short are booked.

    Args:
        data:    its bytes, or a mapping of them.
        layouts: fixed structs that versions use; the one whose fields read cleanest is taken,
            the first of several.
        wanted:  types of the text fields to read.
    """
    start, size, rest = _boundaries(data)
    if rest < len(data):
        build.skip("truncated", f"byte {rest}")
    view = np.frombuffer(data, np.uint8)
    few = slice(0, _SAMPLE)
    layout = max(layouts, key=lambda one: _clean(view, start[few], size[few], one, wanted))
    whole = size >= layout.itemsize
    if not whole.all():
        place = f"byte {int(start[np.flatnonzero(~whole)[0]])}"
        build.skip("malformed-record", place, int((~whole).sum()))
    start, size = start[whole], size[whole]
    fields, bad = _fields(view, start + layout.itemsize, start + size)
    if bad.any():
        place = f"byte {int(start[np.flatnonzero(bad)[0]])}"
        build.skip("malformed-record", place, int(bad.sum()))
    texts = {kind: _texts(data, fields, kind, len(start), build) for kind in wanted}
    return Table(_gathered(view, start, layout.itemsize).view(layout)[:, 0], texts)


def _boundaries(data: Any) -> tuple[I64, I64, int]:
    """Begin and size of every record, and where the last whole one ends."""
    begins, sizes, at, end = array("q"), array("q"), 0, len(data) - _HEAD.size
    unpack, begin, measure = _HEAD.unpack_from, begins.append, sizes.append
    while at <= end:
        size = unpack(data, at)[1]
        after = at + 6 + size
        if after > end + 6:
            break
        begin(at + 6)
        measure(size)
        at = after
    return np.array(begins, np.int64), np.array(sizes, np.int64), at


def _gathered(view: Bytes, start: I64, size: int) -> Bytes:
    """``size`` bytes from every start, as rows."""
    if not len(start):
        return np.zeros((0, size), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(view, size)[start]


@dataclass(frozen=True)
class _Fields:
    """Fields of all records: the record, the type, where the value begins, its size."""

    record: I64
    kind: I64
    begin: I64
    size: I64


def _fields(view: Bytes, start: I64, end: I64) -> tuple[_Fields, NDArray[np.bool_]]:
    """The fields between each start and end, and which records end within one.

    The k-th fields of all records are read together.
    """
    at = start.copy()
    record: I64 = np.arange(len(start), dtype=np.int64)
    bad = np.zeros(len(start), bool)
    found: list[tuple[I64, ...]] = [(record[:0],) * 4]
    for _ in range(_MOST_FIELDS):
        record = record[at[record] < end[record]]
        roomy = at[record] + _HEAD.size <= end[record]
        bad[record[~roomy]] = True
        record = record[roomy]
        if not len(record):
            break
        head = _gathered(view, at[record], _HEAD.size)
        kind = head[:, :2].copy().view("<u2")[:, 0].astype(np.int64)
        size = head[:, 2:].copy().view("<u4")[:, 0].astype(np.int64)
        begin = at[record] + _HEAD.size
        fits = begin + size <= end[record]
        bad[record[~fits]] = True
        record = record[fits]
        found.append((record, kind[fits], begin[fits], size[fits]))
        at[record] = (begin + size)[fits]
    bad[record[at[record] < end[record]]] = True
    return _Fields(*(np.concatenate(column) for column in zip(*found, strict=True))), bad


def _clean(
    view: Bytes, start: I64, size: I64, layout: np.dtype[np.void], wanted: Collection[int]
) -> int:
    """How many records read as if they were laid out so."""
    whole = size >= layout.itemsize
    fields, bad = _fields(view, start[whole] + layout.itemsize, (start + size)[whole])
    if wanted:
        bad[fields.record[~np.isin(fields.kind, list(wanted))]] = True
    else:
        bad |= size[whole] > layout.itemsize
    return int((~bad).sum())


def _texts(data: Any, fields: _Fields, kind: int, count: int, build: TraceBuilder) -> Texts:
    """One field of all records; of several in a record the last."""
    of = fields.kind == kind
    begin, size = fields.begin[of], fields.size[of]
    ends = (begin + size).tolist()
    parts = [data[a:b] for a, b in zip(begin.tolist(), ends, strict=True)]
    known = dict.fromkeys(parts)
    index = {part: i for i, part in enumerate(known)}
    codes: I64 = np.full(count, -1, np.int64)
    codes[fields.record[of]] = np.fromiter(map(index.__getitem__, parts), np.int64, len(parts))
    decoded = [_decoded(part) for part in known]
    undecodable = np.array([text is None for text in decoded], bool)
    if undecodable.any():
        told = codes[codes >= 0]
        build.skip("bad-encoding", f"field {kind}", int(undecodable[told].sum()))
    return Texts(codes, [UNDECODABLE if text is None else text for text in decoded])


def _decoded(part: bytes) -> str | None:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return None
