"""JSON that came from a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

NOT_JSON = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Exceptions of the decoder for text that is not JSON: not UTF-8, half a surrogate pair, a number
out of the range of doubles, nested too deeply, or not JSON at all."""

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
