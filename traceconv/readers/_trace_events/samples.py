"""Counters: series of values out of the arguments of counter events, and how they are called."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from traceconv.readers._trace_events.decode import BROKEN

_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?\s*", re.ASCII)
_IDENTIFIER = re.compile(r"(?:.*[_\s])?id", re.IGNORECASE | re.DOTALL)
_UNIT_SUFFIX = re.compile(r"(.*?)\s*\(([^()]{1,16})\)", re.DOTALL)
_UNIT = re.compile(r"%|[KMG]i?B(?:/s)?|B/s|bytes|[KMG]?Hz|m[WV]|[num]s")

_decode_all = msgspec.json.Decoder(list[dict[str, Any]]).decode

Series = tuple[str, str]
"""The key of a series, and what else tells it apart ("acc_id 3"), "" if nothing."""


def series_of(raws: Sequence[bytes]) -> Iterator[list[tuple[Series, float | None]]]:
    """The series of counter events and their values, None where that is not a number.

    Args:
        raws: arguments as JSON objects, ``b""`` where there are none.
    """
    try:
        parsed: Sequence[Any] = _decode_all(b"[" + b",".join(r or b"{}" for r in raws) + b"]")
    except BROKEN:
        parsed = [_parsed(raw) for raw in raws]
    for args in parsed:
        if len(args) == 1:
            ((key, value),) = args.items()
            yield [((key, ""), value + 0.0 if type(value) is float else _value(value))]
        else:
            yield _series(args) or [(("", ""), None)]


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        args = msgspec.json.decode(raw) if raw else {}
    except BROKEN:
        return {}
    return args if isinstance(args, dict) else {}


def _series(args: dict[str, Any]) -> list[tuple[Series, float | None]]:
    apart = ""
    if len(args) > 1:
        ids = [key for key in args if _IDENTIFIER.fullmatch(key)]
        if len(ids) < len(args):
            apart = " ".join(f"{key} {args[key]}" for key in ids)
            args = {key: value for key, value in args.items() if key not in ids}
    return [((key, apart), _value(value)) for key, value in args.items()]


def _value(value: Any) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value) and len(value) < 400:
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value) + 0.0
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def titles(name: str, series: Sequence[Series]) -> list[tuple[str, str]]:
    """Name and unit of the tracks of all series that one counter name has in a lane.

    The key says no more than the unit ("KB"), or repeats the end of the name
    ("HBM 0/Read", "Read(MB/s)"): then the name stands alone.
    """
    several = len({key for key, _ in series}) > 1
    made = [_title(name, key, apart, several) for key, apart in series]
    if len(set(made)) < len(made):  # keys that differ in spelling only
        return [(" ".join(filter(None, (name, *one))), made[i][1]) for i, one in enumerate(series)]
    return made


def _title(name: str, key: str, apart: str, several: bool) -> tuple[str, str]:
    base, unit = key, ""
    match = _UNIT_SUFFIX.fullmatch(key)
    if match:
        base, unit = match[1], match[2]
    elif _UNIT.fullmatch(key):
        base, unit = (key if several else ""), key
    elif key == "value" and not several:
        base = ""
    if not several and name.lower().endswith(base.lower()):
        base = ""
    return " ".join(filter(None, (name, base, apart))), unit
