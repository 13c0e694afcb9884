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
    from difflib import get_close_matches

    every = list(choices)
    near = get_close_matches(str(word).lower(), every, 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"no {what} {word!r}{meant}; there are: {', '.join(every)}"
