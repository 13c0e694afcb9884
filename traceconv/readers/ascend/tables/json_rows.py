"""JSON files of Ascend captures as rows of text, to be typed as CSV cells are.

Numbers with decimals stay text, since times are taken from their digits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.source import Source
from traceconv.readers.shared.csv_tables import Column, Doubt, table

Row = dict[str, str]

MAX_BYTES = 512 << 20
"""Larger files are refused."""

DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)


def loaded(source: Source, name: str) -> Mapping[str, Any]:
    """A whole JSON object.

    Raises:
        SourceError: the file cannot be read, or is larger than ``MAX_BYTES``.
        MalformedInputError: it holds no JSON object.
    """
    text = source.read(name, MAX_BYTES).decode("utf-8-sig", "replace")
    try:
        parsed = DECODER.decode(text.strip())
    except (ValueError, RecursionError) as e:
        raise MalformedInputError(source.title(name), "", f"not JSON: {str(e)[:120]}") from e
    if not isinstance(parsed, dict):
        raise MalformedInputError(source.title(name), "", "not a JSON object")
    return parsed


def columns_of(
    source: Source, name: str, issues: Issues, rows: Iterable[Row], text: Collection[str] = ()
) -> dict[str, Column]:
    """Rows of one file as typed columns; ``text`` are headings of names."""
    return table(list(rows), doubts_of(source, name, issues), text)


def doubts_of(source: Source, name: str, issues: Issues) -> Doubt:
    """A function that reports an issue of one file."""
    title = source.title(name)

    def doubt(code: str, where: str, count: int = 1) -> None:
        issues.add(code, title, where, count)

    return doubt


def cell(value: object) -> str:
    """A value as text; "" for null, JSON for objects and lists."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def row(one: object, renamed: Mapping[str, str] | None = None) -> Row:
    """A JSON object as a row."""
    return {(renamed or {}).get(key, key): cell(value) for key, value in mapping(one).items()}


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> Sequence[Any]:
    """A JSON list; an empty one for anything else."""
    return value if isinstance(value, list) else ()


def objects(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a JSON list."""
    return (entry for entry in listed(value) if isinstance(entry, dict))
