"""JSON: what decoders of files raise, and documents as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
import orjson

NOT_JSON = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Exceptions of the decoder for text that is not JSON: not UTF-8, half a surrogate pair, a number
out of the range of doubles, nested too deeply, or not JSON at all."""


def encoded(document: Any, *, indented: bool = False) -> bytes:
    """A document as JSON. Bytes that are not UTF-8, such as in names of files, become escapes."""
    option = orjson.OPT_INDENT_2 if indented else None
    try:
        return orjson.dumps(document, option=option)
    except TypeError:
        return orjson.dumps(_as_utf8(document), option=option)


def _as_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_as_utf8(key): _as_utf8(member) for key, member in value.items()}
    return [*map(_as_utf8, value)] if isinstance(value, list | tuple) else value


R = TypeVar("R")

_MOST_KNOWN = 1 << 13


class Repeated(Generic[R]):
    """What follows from values of JSON objects, worked out once for all objects that repeat them.

    Most events of a kind say the same of themselves; a few thousand different answers are kept.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], R] = {}

    def of(self, values: tuple[Any, ...], make: Callable[..., R], *arguments: Any) -> R:
        """What ``make`` says of ``arguments``, which depends on ``values`` alone."""
        key = (*values, *map(type, values))  # 1 and true are equal
        try:
            return self._known[key]
        except KeyError:
            pass
        except TypeError:  # a list, where a text or a number is expected
            return make(*arguments)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        made = self._known[key] = make(*arguments)
        return made
