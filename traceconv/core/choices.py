"""The message for a name that is not one of the choices, with the nearest choice."""

from __future__ import annotations

from collections.abc import Iterable


def unknown(what: str, word: object, choices: Iterable[str]) -> str:
    """The message: ``no table 'kernl' (did you mean 'kernel'?); there are: ...``.

    Args:
        what:    what the name should be the name of.
        word:    the name.
        choices: those there are.
    """
    every = list(choices)
    return f"no {what} {word!r}{nearest(word, every)}; there are: {', '.join(every)}"


def nearest(word: object, choices: Iterable[str]) -> str:
    """``" (did you mean 'kernel'?)"``; "" where no choice is near."""
    from difflib import get_close_matches

    spelled = {choice.lower(): choice for choice in choices}
    near = get_close_matches(str(word).lower(), spelled, 1)
    return f" (did you mean {spelled[near[0]]!r}?)" if near else ""
