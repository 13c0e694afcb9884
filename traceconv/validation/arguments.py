"""Arguments of an event: flattening them, and what can be wrong with them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from traceconv.validation.lenient import (
    SURROGATE_ESCAPE,
    Incomplete,
    LenientError,
    Scalar,
    Span,
    leaves,
    skip_space,
)
from traceconv.validation.perfetto.decoded import Argument
from traceconv.validation.perfetto.wire import (
    BrokenMessage,
    Field,
    double,
    fields,
    message,
    number,
    signed,
    text,
    whole_fields,
)

NAMES, STRINGS, CORRELATIONS = 3, 29, 43
"""Tables of interned data that arguments refer to."""

MAX_DEPTH = 100
"""Arguments nested deeper than this are left out."""

Lookup = Callable[[int, int], str | None]
"""Table and id to text; None if it is not defined."""

_RENAMED = str.maketrans(".[]", "___")


def flatten(annotation: bytes, lookup: Lookup, renamed: bool) -> Iterator[Argument]:
    """The leaves of one DebugAnnotation, under ``debug.``.

    Args:
        renamed: replace dots and brackets in names by ``_``, as the importer does.
    """
    found = whole_fields(annotation)
    name = _name(found, lookup)
    if name is not None:
        yield from _leaves(found, f"debug.{_safe(name, renamed)}", lookup, renamed, 0)


def json_leaves(document: str, prefix: str) -> tuple[list[Argument], bool]:
    """The leaves of a JSON object or array under ``prefix``, and whether all of it was read."""
    try:
        start = skip_space(document, 0)
        if document[start] not in "{[":
            return [], False
    except Incomplete:
        return [], False
    plain = _plainly(document, prefix)
    if plain is not None:
        return plain, True
    found: list[Argument] = []
    try:
        for key, value in leaves(document, Span(start, len(document)), prefix):
            found.append(_argument(key, value))
    except (LenientError, Incomplete):
        return found, False
    return found, True


def _plainly(document: str, prefix: str) -> list[Argument] | None:
    """The leaves as Python reads them; None where the importer may read them differently."""
    if SURROGATE_ESCAPE.search(document):
        return None
    try:
        content = json.loads(
            document, strict=False, parse_constant=_no, parse_int=_int, parse_float=_float
        )
        return [_argument(key, value) for key, value in _walk(content, prefix)]
    except (ValueError, RecursionError):
        return None


def _no(_: str) -> None:
    raise ValueError("no JSON number")


def _int(digits: str) -> int:
    value = int(digits)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("beyond 64 bits")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("beyond a double")
    return value


def _walk(value: Any, key: str) -> Iterator[tuple[str, Scalar]]:
    if isinstance(value, dict):
        for name, content in value.items():
            yield from _walk(content, f"{key}.{name}")
    elif isinstance(value, list):
        kept = (content for content in value if content is not None)
        for i, content in enumerate(kept):
            yield from _walk(content, f"{key}[{i}]")
    elif value is not None:
        yield key, value


def _argument(key: str, value: Scalar) -> Argument:
    kinds = {bool: "bool", int: "int", float: "real", str: "string"}
    assert value is not None
    return Argument(key, kinds[type(value)], value)


def _safe(name: str, renamed: bool) -> str:
    return name.translate(_RENAMED) if renamed else name


def _name(found: list[Field], lookup: Lookup) -> str | None:
    last = {n: v for n, _, v in found if n in (1, 10)}
    if number(last.get(1, 0)):
        return lookup(NAMES, number(last[1]))
    return text(last[10]) if 10 in last else None


def _leaves(
    found: list[Field], key: str, lookup: Lookup, renamed: bool, depth: int
) -> Iterator[Argument]:
    last = {n: v for n, _, v in found}
    if depth > MAX_DEPTH:
        return
    if 11 in last:
        for child in (whole_fields(message(v)) for n, _, v in found if n == 11):
            name = _name(child, lookup)
            if name is None:
                return
            inner = f"{key}.{_safe(name, renamed)}"
            yield from _leaves(child, inner, lookup, renamed, depth + 1)
    elif 12 in last:
        index = 0
        for child in (whole_fields(message(v)) for n, _, v in found if n == 12):
            entries = list(_leaves(child, f"{key}[{index}]", lookup, renamed, depth + 1))
            yield from entries
            index += bool(entries)
    else:
        yield from _scalar(last, key, lookup)


def _scalar(last: dict[int, int | bytes], key: str, lookup: Lookup) -> Iterator[Argument]:
    if 2 in last:
        yield Argument(key, "bool", bool(number(last[2])))
    elif 3 in last:
        yield Argument(key, "uint", number(last[3]))
    elif 4 in last:
        yield Argument(key, "int", signed(last[4]))
    elif 5 in last:
        yield Argument(key, "real", double(last[5]))
    elif 6 in last:
        yield Argument(key, "string", text(last[6]))
    elif 17 in last:
        interned = lookup(STRINGS, number(last[17]))
        if interned is not None:
            yield Argument(key, "string", interned)
    elif 7 in last:
        yield Argument(key, "pointer", f"{number(last[7]):#x}")
    elif 9 in last:
        yield from json_leaves(text(last[9]), key)[0]


class Facts(NamedTuple):
    """What judging an argument needs.

    Attributes:
        iids:  (table, id) pairs it refers to.
        rules: broken rules, without those of the ids.
    """

    iids: tuple[tuple[int, int], ...]
    rules: tuple[str, ...]


def examine(annotation: bytes) -> Facts:
    """Ids and breaches of one DebugAnnotation, with everything nested in it."""
    iids: list[tuple[int, int]] = []
    rules: list[str] = []
    pending: list[tuple[bytes, bool]] = [(annotation, True)]
    while pending:
        data, unnamed = pending.pop()
        try:
            found = fields(data)
        except BrokenMessage as e:
            rules.append("P01-message")
            found = e.fields
        for n, _, v in found:
            if n == 1 and v:
                iids.append((NAMES, number(v)))
                unnamed = False
            elif n == 10 or n == 6 or n == 9:
                unnamed = unnamed and (n != 10 or not v)
                if not _is_utf8(message(v)):
                    rules.append("P22-utf8")
            elif n == 17:
                iids.append((STRINGS, number(v)))
            elif n == 5 and not math.isfinite(double(v)):
                rules.append("P22-finite")
            elif n == 11 or n == 12:
                pending.append((message(v), n == 11))
        if unnamed:
            rules.append("P22-name")
    return Facts(tuple(iids), tuple(rules))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
