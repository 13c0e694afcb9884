"""The message for a name that is not one of the choices, with the nearest choice."""

from __future__ import annotations

from collections.abc import Iterable

LISTED = 24
"""Choices that a message lists."""

NEAR = 3
"""Choices that contain the word, which a message offers."""


def unknown(what: str, word: object, choices: Iterable[str]) -> str:
    """The message: ``no table 'kernl' (did you mean 'kernel'?); there are: ...``.

    Args:
        what:    what the name should be the name of.
        word:    the name.
        choices: those there are.
    """
    every = list(choices)
    shown = every if len(every) <= LISTED else [*every[:LISTED], "..."]
    return f"no {what} {word!r}{nearest(word, every)}; there are: {', '.join(shown)}"


def nearest(word: object, choices: Iterable[str]) -> str:
    """``" (did you mean 'kernel'?)"``, or the choices that contain the word; "" where no choice is
    near."""
    from difflib import get_close_matches

    asked = str(word).lower()
    spelled = {choice.lower(): choice for choice in choices}
    near = get_close_matches(asked, spelled, 1)
    if not near and len(asked) > 2:
        near = [one for one in spelled if asked in one][:NEAR]
    return f" (did you mean {' or '.join(repr(spelled[one]) for one in near)}?)" if near else ""
