"""What only our own reader needs to know of a rank: one packet with facts and packed columns.

Perfetto has no fields for the identity of a track, the graph and step of a row, the names and
directions of flows, or the issues of reading. ``schemas/proto/traceconv_rank.proto`` describes the
message. The rows of a track are in order of time, so a few runs of equal values give the steps of
all rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from traceconv.core.clock import INT64_MAX
from traceconv.core.hints import Hints
from traceconv.core.model import I64, Track
from traceconv.core.tracks import Number
from traceconv.protobuf.message import varint_bytes, varints

_FAR = 2**60

Ns = Annotated[int, msgspec.Meta(ge=-_FAR, le=_FAR)]
Count = Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]


class OwnRank:
    """Field numbers of the message."""

    ABOUT = 1
    ROWS = 2
    GRAPHS = 3
    STEPS = 4
    FLOW_NAMES = 5
    FLOW_NAME = 6
    TURNED_FLOWS = 7
    ODD_ROWS = 8
    ODD_ARGUMENTS = 9


class About(msgspec.Struct):
    """The facts of a rank, a JSON document.

    Attributes:
        tracks:  those with rows or samples, by the uuids of their descriptors.
        windows: recorded time, ns since the base of the file.
        issues:  of reading the rank: code, file, count, places.
    """

    tracks: dict[int, Track] = msgspec.field(default_factory=dict)
    host: str = ""
    device: Number = -1
    pid: Number = -1
    world_size: Number = -1
    windows: list[tuple[Ns, Ns]] = msgspec.field(default_factory=list)
    hints: Hints = msgspec.field(default_factory=Hints)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    issues: list[tuple[str, str, Count, list[str]]] = msgspec.field(default_factory=list)


def about_json(about: Mapping[str, Any]) -> str:
    """The document of some values of :class:`About`; empty ones are left out."""
    given = {key: value for key, value in about.items() if value not in ("", -1, [], {})}
    return json.dumps(msgspec.to_builtins(given), ensure_ascii=False, separators=(",", ":"))


def about_of(text: bytes) -> About | None:
    """The facts in a document; None if it is damaged."""
    try:
        about = msgspec.convert(json.loads(text.decode("utf-8", "replace")), About, str_keys=True)
    except (ValueError, RecursionError):
        return None
    tracks = about.tracks.values()
    if any(abs(track.sort) > INT64_MAX or not 0 <= track.lane < 2**31 for track in tracks):
        return None
    return about


def runs(column: I64) -> bytes:
    """A column of non-negative numbers as pairs of varints: how many rows in turn have a value, and
    the value.
    """
    begins = np.flatnonzero(np.diff(column, prepend=-1))
    lengths = np.diff(np.append(begins, len(column)))
    pairs = np.stack((lengths, column[begins]), axis=1)
    return b"".join(map(varint_bytes, pairs.ravel().tolist()))


def of_runs(data: bytes, rows: I64) -> I64:
    """The values of some rows of a column; 0 where ``data`` ends before a row."""
    numbers = np.array(varints(data), np.uint64).view(np.int64)
    lengths, values = numbers[: len(numbers) // 2 * 2].reshape(-1, 2).T
    ends = np.cumsum(np.clip(lengths, 0, INT64_MAX // max(len(lengths), 1)))
    run_of_row = np.searchsorted(ends, rows, "right")
    row_values: I64 = np.append(values, 0)[run_of_row]
    return row_values


def run_costs(column: I64) -> tuple[I64, int]:
    """Bytes per row, and of all rows together, that :func:`runs` takes whatever rows are kept.

    Fewer rows have no more runs: either all runs count once, or each row with a value counts for
    its own run and the one behind it, whichever is less.
    """
    together = len(runs(column))
    per_value = 2 * (len(varint_bytes(len(column))) + len(varint_bytes(int(column.max(initial=0)))))
    valued = column > 0
    if per_value * int(valued.sum()) < together:
        return valued * np.int64(per_value), per_value
    return np.zeros(len(column), np.int64), together
