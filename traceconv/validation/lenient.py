"""JSON as the importer reads it, where that differs from the standard.

Only used for text that Python's own parser refuses, or would read differently. Nested values are
first skipped as balanced blocks, so damage inside the arguments of an event does not reach the
event itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
"""What a text outside the basic plane looks like when written with escapes."""

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0(?![0-9])|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_NUMBER_LIKE = re.compile(r"[-+.0-9eE]*")
_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
_PLAIN = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_WORDS = {"true": True, "false": False, "null": None}
_INT64 = 1 << 63
MAX_DEPTH = 1000
"""Values nested deeper are left out."""


class LenientError(ValueError):
    """The importer gives up here. ``surrogate``: because of a surrogate escape."""

    surrogate = False


class SurrogateError(LenientError):
    """A surrogate escape in a text that is parsed."""

    surrogate = True


class Incomplete(ValueError):
    """The text ends inside a value."""


@dataclass(frozen=True)
class Span:
    """A nested object or array, not looked into yet: ``text[start:end]``."""

    start: int
    end: int


Scalar = str | int | float | bool | None


def skip_space(text: str, at: int) -> int:
    """Position of the next character that is no blank.

    Raises:
        Incomplete: there is none.
    """
    match = _SPACE.match(text, at)
    assert match is not None
    if match.end() == len(text):
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
    return _number(text, at)


def string(text: str, at: int) -> tuple[str, int]:
    """The string at ``at``.

    Raises:
        LenientError, Incomplete: as for :func:`value`.
    """
    if text[at] != '"':
        raise LenientError("a string was expected")
    match = _STRING.match(text, at)
    if match is None:
        raise Incomplete
    raw = match[1]
    return (_ESCAPE.sub(_unescaped, raw) if "\\" in raw else raw), match.end()


def object_fields(text: str, at: int) -> Iterator[tuple[str, Scalar | Span, int]]:
    """Key, value and the position behind each field of the object at ``at``.

    The last item has the key "" and the position behind the object.

    Raises:
        LenientError, Incomplete: as for :func:`value`.
    """
    if text[at] != "{":
        raise LenientError("an object was expected")
    at = skip_space(text, at + 1)
    while text[at] != "}":
        key, at = _key(text, at)
        content, at = value(text, at)
        at = skip_space(text, at)
        yield key, content, at
        at = _behind_comma(text, at, "}")
    yield "", None, at + 1


@dataclass
class _Scope:
    """An object or array that is being read. ``index``: of the next kept array element."""

    close: str
    path: str
    index: int = 0

    def step(self) -> str:
        """The path of the next array element."""
        self.index += 1
        return f"{self.path}[{self.index - 1}]"


def leaves(text: str, span: Span, key: str) -> Iterator[tuple[str, Scalar]]:
    """Flattened leaves of a nested value: nested keys with dots, arrays with ``[i]``; no nulls.

    Raises:
        LenientError, Incomplete: after the leaves that stood before the damage.
    """
    inner = text[span.start : span.end]
    try:
        yield from _leaves(inner, key)
    except IndexError:
        raise Incomplete from None


def _leaves(inner: str, key: str) -> Iterator[tuple[str, Scalar]]:
    scopes = [_Scope("}" if inner[0] == "{" else "]", key)]
    at = skip_space(inner, 1)
    while scopes:
        scope = scopes[-1]
        if inner[at] in "}]":
            at += 1
            scopes.pop()
            if scopes:
                at = _behind_comma(inner, skip_space(inner, at), scopes[-1].close)
            continue
        name = ""
        if scope.close == "}":
            name, at = _key(inner, at)
        if inner[at] in "{[":
            path = f"{scope.path}.{name}" if scope.close == "}" else scope.step()
            scopes.append(_Scope("}" if inner[at] == "{" else "]", path))
            if len(scopes) > MAX_DEPTH:
                raise LenientError("nested too deep")
            at = skip_space(inner, at + 1)
            continue
        content, at = value(inner, at)
        if content is not None and not isinstance(content, Span):
            yield f"{scope.path}.{name}" if scope.close == "}" else scope.step(), content
        at = _behind_comma(inner, skip_space(inner, at), scope.close)


def _key(text: str, at: int) -> tuple[str, int]:
    """A key and the position of its value."""
    name, at = string(text, at)
    at = skip_space(text, at)
    if text[at] != ":":
        raise LenientError("':' was expected")
    return name, skip_space(text, at + 1)


def _behind_comma(text: str, at: int, close: str) -> int:
    if text[at] == ",":
        return skip_space(text, at + 1)
    if text[at] != close:
        raise LenientError(f"',' or {close!r} was expected")
    return at


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
    if len(escape) < 5:
        raise LenientError("a broken \\u escape")
    code = int(escape[1:], 16)
    if 0xD800 <= code <= 0xDFFF:
        raise SurrogateError("a surrogate escape")
    return chr(code)


def _number(text: str, at: int) -> tuple[int | float, int]:
    written = _NUMBER_LIKE.match(text, at)
    assert written is not None
    if written.end() == len(text):
        raise Incomplete
    return number(written[0]), written.end()


def number(digits: str) -> int | float:
    """A JSON number: exact where 64 bits hold it, else what the importer makes of it.

    Raises:
        LenientError: it overflows a double.
    """
    match = _NUMBER.fullmatch(digits)
    if match is None or len(digits) > 1000:
        raise LenientError("not a number")
    if match[1] is None and match[2] is None:
        exact = int(digits)
        if -_INT64 <= exact < _INT64:
            return exact
    try:
        result = _double(digits, match)
    except OverflowError:
        result = math.inf
    if math.isinf(result) or math.isnan(result):
        raise LenientError("a number overflows")
    return result


def _double(digits: str, match: re.Match[str]) -> float:
    """As the importer computes it: 64-bit integer part, plus fraction, times a power of ten."""
    body = digits.lstrip("-")
    whole = re.match("[0-9]+", body)
    assert whole is not None
    result = float(_wrapped(int(whole[0])))
    if match[1]:
        result += float(_wrapped(int(match[1]))) / float(
            10 ** len(match[1]) & (2 * _INT64 - 1) or 1
        )
    if match[2]:
        power = int(match[2])
        if abs(power) > 400:
            return math.inf if power > 0 and result else 0.0
        result = result / 10.0**-power if power < 0 else result * 10.0**power
    return -result if digits.startswith("-") else result


def _wrapped(n: int) -> int:
    return (n + _INT64) % (2 * _INT64) - _INT64
