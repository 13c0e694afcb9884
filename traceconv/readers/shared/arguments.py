"""Arguments from columns: one JSON object per row, without a Python object per value.

For sources that hold arguments as numbers and names (databases, tables), not as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder

Values = NDArray[Any] | Sequence[bytes]


def quoted(text: str) -> bytes:
    """``text`` as a JSON string."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")


def named(codes: NDArray[Any], names: Mapping[int, str]) -> list[bytes]:
    """The JSON string of each code; a code without a name stands as its number."""
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
    rows = zip(
        *(v.tolist() if isinstance(v, np.ndarray) else v for v in columns.values()), strict=True
    )
    texts = [template % row for row in rows]
    if not texts:
        return np.empty(0, np.int32)
    first = build.args_bytes(b"".join(texts), np.array([len(t) for t in texts], np.int32))
    return np.arange(first, first + len(texts), dtype=np.int32)
