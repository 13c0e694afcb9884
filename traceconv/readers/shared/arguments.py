"""Arguments from columns: JSON objects of rows, without a Python object per value.

For sources with arguments as numbers and names (databases, tables), not as JSON text. Equal rows
can share one object (:func:`shared`), or each row has its own (:func:`register`, :func:`apart`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64
from traceconv.core.ordering import factored_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values: TypeAlias = "NDArray[Any] | Sequence[bytes]"

AT_ONCE = 1 << 15
"""Rows whose arguments are in memory at a time."""


def quoted(text: str) -> bytes:
    """``text`` as a JSON string."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")


def named(codes: NDArray[Any], names: Mapping[int, str]) -> list[bytes]:
    """The JSON string of each code; of a code without a name, its number."""
    distinct, back = np.unique(codes, return_inverse=True)
    table = [quoted(names[c]) if c in names else b"%d" % c for c in distinct.tolist()]
    return [table[i] for i in back.tolist()]


def register(build: TraceBuilder, columns: Mapping[str, Values]) -> NDArray[np.int32]:
    """One object per row, registered with ``build``; the ids.

    Args:
        columns: key -> int64 array, or JSON values as bytes. All of one length.
    """
    template = (
        b"{"
        + b",".join(
            quoted(key).replace(b"%", b"%%") + (b":%d" if isinstance(v, np.ndarray) else b":%b")
            for key, v in columns.items()
        )
        + b"}"
    )
    n = len(next(iter(columns.values()), ()))
    if any(len(v) != n for v in columns.values()):
        raise ValueError("columns of different lengths")
    first = 0
    for at in range(0, n, AT_ONCE):
        parts = (v[at : at + AT_ONCE] for v in columns.values())
        rows = zip(*(v.tolist() if isinstance(v, np.ndarray) else v for v in parts), strict=True)
        texts = [template % row for row in rows]
        started = build.args_bytes(b"".join(texts), np.array([len(t) for t in texts], np.int32))
        first = first if at else started
    return np.arange(first, first + n, dtype=np.int32)


def objects(build: TraceBuilder, texts: Sequence[bytes]) -> I32:
    """Argument ids of rows with a JSON object each; -1 for b""."""
    length = np.fromiter(map(len, texts), np.int32, len(texts))
    ids = np.full(len(texts), -1, np.int32)
    some = np.flatnonzero(length)
    first = build.args_bytes(b"".join(texts), length[some])
    ids[some] = np.arange(first, first + len(some))
    return ids


Value = Callable[[int], bytes]
"""The JSON value of a stored number; ``b""`` leaves the member out."""

Columns = Mapping[str, tuple[I64, Value]]
"""Argument key -> column and what its numbers mean."""


def tracks(columns: Sequence[I64], track: Callable[..., int]) -> I32:
    """The track of every row; ``track`` is called once per combination of values."""
    table, codes = factored_rows(*columns)
    return np.array([track(*row) for row in table], np.int32)[codes]


def lookup(keys: I64, requested: I64) -> I64:
    """The first row of each of ``requested`` in ``keys``; else -1."""
    if not len(keys):
        return np.full(len(requested), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    at = np.minimum(np.searchsorted(ordered, requested), len(keys) - 1)
    return np.where(ordered[at] == requested, order[at], -1)


def picked(column: I64, at: I64) -> I64:
    """``column[at]``; -1 where ``at`` is -1."""
    return np.where(at >= 0, column[at], -1) if len(column) else at


# -- arguments --------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """An integer; a negative one means NULL and is left out."""
    return b"%d" % value if value >= 0 else b""


def text(strings: Mapping[int, str]) -> Value:
    """The string of a number; "N/A", empty and unknown ones are left out."""

    def value(code: int) -> bytes:
        stated = strings.get(code, "")
        return quoted(stated) if stated and stated != "N/A" else b""

    return value


def label(names: Mapping[int, str]) -> Value:
    """The name of a number, else the number."""

    def value(code: int) -> bytes:
        return quoted(names[code]) if code in names else number(code)

    return value


def members(columns: Columns) -> tuple[I64, list[bytes]]:
    """``,"key":value`` of every row: a code per row, and the text of each code."""
    table, codes = factored_rows(*(column for column, _ in columns.values()))
    keys = [b"," + quoted(key) + b":" for key in columns]
    values = [value for _, value in columns.values()]
    texts = []
    for row in table:
        stated = (value(code) for value, code in zip(values, row, strict=True))
        texts.append(b"".join(k + v for k, v in zip(keys, stated, strict=True) if v))
    return codes, texts


def shared(build: TraceBuilder, columns: Columns) -> I32:
    """Argument ids; equal rows share one."""
    codes, texts = members(columns)
    objects = [b"{" + t[1:] + b"}" if t else b"" for t in texts]
    return np.array([build.args(o or None) for o in objects], np.int32)[codes]


def apart(
    build: TraceBuilder,
    numbers: Mapping[str, I64],
    columns: Columns,
    more: Callable[[slice], Sequence[bytes]] | None = None,
) -> I32:
    """Argument ids, one per row.

    Args:
        numbers: members with mostly different values.
        columns: members with few different values.
        more: further members of some rows, each beginning with a comma.
    """
    codes, texts = members(columns)
    n = len(codes)
    template = b",".join(quoted(key).replace(b"%", b"%%") + b":%d" for key in numbers)
    template = b"{" + template + b"%b%b}"
    first = 0
    for at in range(0, n, AT_ONCE):
        part = slice(at, at + AT_ONCE)
        stated = [texts[code] for code in codes[part].tolist()]
        extra = more(part) if more else [b""] * len(stated)
        plain = (column[part].tolist() for column in numbers.values())
        rows = [template % row for row in zip(*plain, stated, extra, strict=True)]
        length = np.array([len(row) for row in rows], np.int32)
        started = build.args_bytes(b"".join(rows), length)
        first = first if at else started
    ids: NDArray[np.int32] = np.arange(first, first + n, dtype=np.int32)
    return ids
