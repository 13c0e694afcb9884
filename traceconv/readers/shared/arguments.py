"""Arguments from columns: JSON objects of rows, without a Python object per value.

For sources with arguments as numbers and names (databases, tables), not as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values: TypeAlias = "NDArray[Any] | Sequence[bytes]"

AT_ONCE = 1 << 15
"""Rows whose arguments are in memory at a time."""


def quoted(text: str) -> bytes:
    """``text`` as a JSON string."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")


def register(
    build: TraceBuilder, columns: Mapping[str, Values], more: Sequence[bytes] | None = None
) -> I32:
    """Argument ids of rows with an object each.

    Args:
        columns: key -> int64 array, or JSON values as bytes. All of one length.
        more: further members of each row: ``,"key":value`` or b"".
    """
    template = b",".join(
        quoted(key).replace(b"%", b"%%") + (b":%d" if isinstance(v, np.ndarray) else b":%b")
        for key, v in columns.items()
    )
    template, values = b"{" + template + b"}", list(columns.values())
    if more is not None:
        template, values = template[:-1] + b"%b}", [*values, more]
    ids = [np.empty(0, np.int32)]
    for begin in range(0, len(values[0]), AT_ONCE):
        parts = (v[begin : begin + AT_ONCE] for v in values)
        rows = zip(*(v.tolist() if isinstance(v, np.ndarray) else v for v in parts), strict=True)
        ids.append(objects(build, [template % row for row in rows]))
    return np.concatenate(ids)


def objects(build: TraceBuilder, texts: Sequence[bytes]) -> I32:
    """Argument ids of rows with a JSON object each; -1 for b""."""
    length = np.fromiter(map(len, texts), np.int32, len(texts))
    ids = np.full(len(texts), -1, np.int32)
    with_text = np.flatnonzero(length)
    first_id = build.args_bytes(b"".join(texts), length[with_text])
    ids[with_text] = np.arange(first_id, first_id + len(with_text))
    return ids


def lookup(keys: I64, requested: I64) -> I64:
    """The first row of each of ``requested`` in ``keys``; else -1."""
    if not len(keys):
        return np.full(len(requested), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    positions = np.minimum(np.searchsorted(ordered, requested), len(keys) - 1)
    return np.where(ordered[positions] == requested, order[positions], -1)


def picked(column: I64, at: I64) -> I64:
    """``column[at]``; -1 where ``at`` is -1."""
    return np.where(at >= 0, column[at], -1) if len(column) else at
