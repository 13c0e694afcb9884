"""Members of events' arguments as columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I64
from traceconv.core.model import Trace


def fields(trace: Trace, rows: NDArray[Any], *keys: str) -> list[NDArray[Any]]:
    """One text column per key for the event ``rows``; "" where a row lacks it.

    Numbers come as written, lists and objects as JSON without white space.
    """
    decoder, needles = _decoder(keys), [msgspec.json.encode(key) for key in keys]
    ids, back = np.unique(trace.events.args[rows], return_inverse=True)
    found = [_decoded(decoder, needles, trace.args.raw(i)) for i in ids.tolist()]
    columns = []
    for member in _MEMBERS[: len(keys)]:
        column = np.empty(len(ids), object)
        column[:] = [_text(getattr(one, member)) if one is not None else "" for one in found]
        columns.append(column[back.reshape(-1)] if len(ids) else column)
    return columns


def mentioned(trace: Trace, *keys: str) -> bool:
    """Whether any argument of the trace may have one of these keys: a look at the bytes alone."""
    needles = [msgspec.json.encode(key) for key in keys]
    return any(_holds(blob, needle) for blob in trace.args.blobs for needle in needles)


def _holds(blob: Any, needle: bytes) -> bool:
    return blob.find(needle) >= 0 if hasattr(blob, "find") else True


def whole(texts: NDArray[Any]) -> I64:
    """The texts that are digits (with or without a sign) as int64; 0 for the others."""
    ids = {text: int(text) if _is_whole(text) else 0 for text in set(texts.tolist())}
    return np.array([ids[text] for text in texts.tolist()], np.int64)


def _is_whole(text: str) -> bool:
    return len(text) < 19 and text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()


_MEMBERS = tuple(f"f{number}" for number in range(8))
_NOTHING = msgspec.Raw(b"")


@cache
def _decoder(keys: tuple[str, ...]) -> Any:
    members = [
        (member, msgspec.Raw, msgspec.field(name=key, default=_NOTHING))
        for member, key in zip(_MEMBERS, keys, strict=False)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Fields", members))


def _decoded(decoder: Any, needles: Sequence[bytes], raw: bytes) -> Any:
    """The members of one object; None if none of them can be in it."""
    if not any(needle in raw for needle in needles):
        return None
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # arguments that are no object are kept as they are, and say nothing here


def _text(value: msgspec.Raw) -> str:
    return "" if value is _NOTHING else _said(bytes(value))


@lru_cache(4096)
def _said(raw: bytes) -> str:
    if raw[:1] == b'"':
        return str(msgspec.json.decode(raw))
    if raw[:1] in (b"[", b"{"):
        return msgspec.json.format(raw, indent=-1).decode()
    return raw.decode("utf-8", "replace")
