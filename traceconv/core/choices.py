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
    names = list(choices)
    shown = names if len(names) <= LISTED else [*names[:LISTED], "..."]
    return f"no {what} {word!r}{nearest(word, names)}; there are: {', '.join(shown)}"


def nearest(word: object, choices: Iterable[str]) -> str:
    """``" (did you mean 'kernel'?)"``, or the choices that contain the word; "" where no choice is
    near."""
    from difflib import get_close_matches

    lowered = str(word).lower()
    spelled = {choice.lower(): choice for choice in choices}
    near = get_close_matches(lowered, spelled, 1)
    if not near and len(lowered) > 2:
        near = [choice for choice in spelled if lowered in choice][:NEAR]
    return (
        f" (did you mean {' or '.join(repr(spelled[choice]) for choice in near)}?)" if near else ""
    )
