"""JSON as the importer reads it, where that differs from the standard.

For text that Python's own parser refuses or would read differently. Nested values are first skipped
as balanced blocks, so damage inside the arguments of an event does not reach the event itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from traceconv.core.patterns import lazy_regex
from traceconv.validation.decoded import Argument

SURROGATE_ESCAPE = lazy_regex(r"\\u[dD][89a-fA-F]")
"""What a text outside the basic plane looks like when written with escapes."""

MAX_DEPTH = 200
"""Values nested deeper are left out."""

_SPACE = lazy_regex(r"[ \t\n\r]*")
_STRING = lazy_regex(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE = lazy_regex(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NUMBER = lazy_regex(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER_LIKE = lazy_regex(r"[-+.0-9eE]*")
_MARK = lazy_regex(r'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
_PLAIN = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_WORDS = {"true": True, "false": False, "null": None}
_INT64 = 1 << 63
_KINDS = {bool: "bool", int: "int", float: "real", str: "string"}


class LenientError(ValueError):
    """The importer gives up here."""


class Incomplete(IndexError):
    """The text ends inside a value."""


class Span(NamedTuple):
    """A nested object or array, not parsed yet: ``text[start:end]``."""

    start: int
    end: int


Scalar = str | int | float | bool | None


def skip_space(text: str, at: int) -> int:
    """Position of the next character that is no blank.

    Raises:
        Incomplete: there is none.
    """
    match = _SPACE.match(text, at)
    if match is None or match.end() >= len(text):
        raise Incomplete
    return match.end()


def value(text: str, at: int) -> tuple[Scalar | Span, int]:
    """The value at ``at`` and the position behind it; nested ones as a :class:`Span`.

    Raises:
        LenientError: it is no value.
        Incomplete:   it is cut off.
    """
    first = text[at]
    if first in "{[":
        end = _block(text, at)
        return Span(at, end), end
    if first == '"':
        return string(text, at)
    for word, constant in _WORDS.items():
        if first == word[0]:
            if text.startswith(word, at):
                return constant, at + len(word)
            raise Incomplete if word.startswith(text[at:]) else LenientError(f"not {word!r}")
    match = _NUMBER_LIKE.match(text, at)
    if match is None or match.end() == len(text):
        raise Incomplete
    return number(match[0]), match.end()


def string(text: str, at: int) -> tuple[str, int]:
    """The string at ``at``, and the position behind it; raises as :func:`value` does."""
    if text[at] != '"':
        raise LenientError("a string was expected")
    match = _STRING.match(text, at)
    if match is None:
        raise Incomplete
    raw = match[1]
    return (_ESCAPE.sub(_unescaped, raw) if "\\" in raw else raw), match.end()


def key(text: str, at: int) -> tuple[str, int]:
    """The key at ``at``, and the position of its value; raises as :func:`value` does."""
    name, at = string(text, at)
    at = skip_space(text, at)
    if text[at] != ":":
        raise LenientError("':' was expected")
    return name, skip_space(text, at + 1)


def items(text: str, at: int) -> Iterator[tuple[str | None, Scalar | Span]]:
    """Key (None in arrays) and value of everything in the object or array at ``at``.

    Raises:
        LenientError, Incomplete: as for :func:`value`.
    """
    close = "}" if text[at] == "{" else "]"
    at = skip_space(text, at + 1)
    while text[at] != close:
        name = None
        if close == "}":
            name, at = key(text, at)
        content, at = value(text, at)
        yield name, content
        at = skip_space(text, at)
        if text[at] == ",":
            at = skip_space(text, at + 1)
        elif text[at] != close:
            raise LenientError(f"',' or {close!r} was expected")


def json_leaves(document: str, prefix: str) -> tuple[list[Argument], bool]:
    """The leaves of a JSON object or array under ``prefix``, and whether all of it was read.

    Nested keys are joined by dots, positions in arrays are ``[i]``; nulls are left out.
    """
    found: list[Argument] = []
    try:
        start = skip_space(document, 0)
        if document[start] in "{[":
            for argument in _leaves(document, start, prefix, 0):
                found.append(argument)
            return found, True
    except (LenientError, IndexError):
        pass
    return found, False


def number(digits: str) -> int | float:
    """A JSON number: exact where 64 bits hold it, else what the importer makes of it.

    Raises:
        LenientError: it is none, or overflows a double.
    """
    match = _NUMBER.fullmatch(digits)
    if match is None or len(digits) > 1000:
        raise LenientError("not a number")
    if match[1] is None and match[2] is None:
        exact = int(digits)
        wrapped = (abs(exact) + _INT64) % (2 * _INT64) - _INT64  # as 64 bits overflow
        fits = -_INT64 <= exact < _INT64
        return exact if fits else float(-wrapped if exact < 0 else wrapped)
    if math.isinf(result := float(digits)):
        raise LenientError("a number overflows")
    return result


def _leaves(text: str, at: int, path: str, depth: int) -> Iterator[Argument]:
    index = 0
    if depth > MAX_DEPTH:
        raise LenientError("nested too deep")
    for name, content in items(text, at):
        if content is None:
            continue
        inner = f"{path}[{index}]" if name is None else f"{path}.{name}"
        index += 1
        if isinstance(content, Span):
            yield from _leaves(text, content.start, inner, depth + 1)
        else:
            yield Argument(inner, _KINDS[type(content)], content)


def _block(text: str, at: int) -> int:
    """Position behind a balanced block; only its own kind of bracket is counted."""
    opening, closing = text[at], "}" if text[at] == "{" else "]"
    depth = 0
    for mark in _MARK.finditer(text, at):
        found = mark[0]
        if found == '"':
            break
        depth += (found == opening) - (found == closing)
        if depth == 0:
            return mark.end()
    raise Incomplete


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] != "u":
        return _PLAIN.get(escape, "")
    if len(escape) < 5 or 0xD800 <= int(escape[1:], 16) <= 0xDFFF:
        raise LenientError(f"the escape \\{escape}")
    return chr(int(escape[1:], 16))
