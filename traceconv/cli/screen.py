"""What fits on one screen: the answer first, and how to have the rest."""

from __future__ import annotations

from collections.abc import Iterable

from traceconv.cli import say

LINES = 23
"""Lines of a result that is all there is to say."""

RESULT = 18
"""Lines of a result; a screen has 24, and messages follow it."""

MORE = "-v shows all"


def folded(lines: Iterable[str], most: int = RESULT, more: str = MORE) -> list[str]:
    """The first lines, wrapped to the width of the terminal, and how many are left out."""
    if not say.fits():
        return cut(list(lines), most, more)
    return cut([wrapped_line for line in lines for wrapped_line in say.wrapped(line)], most, more)


def cut(lines: list[str], most: int = RESULT, more: str = MORE) -> list[str]:
    """The first lines, and how many are left out."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"... {len(lines) - most + 1} more lines ({more})"]
