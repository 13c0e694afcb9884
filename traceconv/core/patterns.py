"""Regular expressions: of modules, compiled when they are first used, and of users; whole numbers.

A command loads the patterns of many formats and uses those of few: compiling all of them took a
tenth of a small merge.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast


def lazy_regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As :func:`re.compile`, later: an invalid pattern raises where it is first used."""
    return cast("re.Pattern[AnyStr]", _Lazy(pattern, flags))


def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As :func:`re.compile`, for a pattern that a user wrote.

    Raises:
        re.error: it cannot be compiled, also because it counts too far or is nested too deeply.
    """
    try:
        return re.compile(pattern, flags)
    except (OverflowError, RecursionError) as e:
        raise re.error(str(e)) from e


def natural(text: str, most: int = 10**18 - 1) -> int:
    """The whole number that a text is in ASCII digits, up to ``most``; -1 for any other text."""
    is_short = len(text) <= len(str(most)) and text.isascii() and text.isdecimal()
    return number if is_short and (number := int(text)) <= most else -1


class _Lazy(Generic[AnyStr]):
    """Has the methods and attributes of the pattern, each looked up once."""

    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self.pattern: AnyStr = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, attribute)
        return attribute
