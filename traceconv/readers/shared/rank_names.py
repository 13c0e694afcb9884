"""Ranks in the names of files whose content states none.

Frameworks name a process by its rank (``trace_rank0of8.json``, vLLM's ``<id>-rank-3.<time>...``)
or by its coordinates in the grid of parallel processes (SGLang's ``<id>-TP-0-DP-1-PP-0-EP-0...``).
:data:`COORDINATES` is the order in which the rank counts the grid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import product
from pathlib import PurePosixPath

from traceconv.core.errors import OptionError
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex

COORDINATES = ("dp", "pp", "pcp", "cp", "dcp", "ep", "tp", "rank")
"""Known coordinates, the slowest first: ``tp`` differs between neighbouring ranks, ``dp`` only
between replicas of a whole model. This is the order of vLLM and SGLang; Megatron-LM has ``pp``
outside ``dp``. ``rank`` is the fastest. Other names are slower than these, in the given order, so
every layout can be described."""

_WORD = lazy_regex(
    r"(?i)(?<![a-z])(?<!lora[-_])(rank|dp|pp|pcp|cp|dcp|ep|tp)[-_.]?(\d{1,6})"
    r"(?:[-_]?of[-_]?(\d{1,6}))?(?![\da-z])"
)
_LOOSE = (
    lazy_regex(r"(?i)rank[_\-. \[(]?(\d{1,18})(?!\d)"),
    lazy_regex(r"(?:^|[_\-./])r(\d{1,18})(?=[_\-./]|$)"),
    lazy_regex(r"(?i)worker[_\-. ]?(\d{1,7})(?!\d)"),
    lazy_regex(r"[_\-.](\d{1,7})(?=(?:\.[A-Za-z_]+)*$)"),  # longer ones are times
)

Place = Mapping[str, int]
"""Coordinates of one process, by name."""


def rank_in_name(path: str) -> int | None:
    """The rightmost rank in a path ("rank3", "rank_3/x.json", "trace_3.json").

    It may be another number; :func:`agreed` only takes numbers that must be ranks.
    """
    for pattern in _LOOSE:
        numbers = pattern.findall(path)
        if numbers:
            return int(numbers[-1])
    return None


_TIME = lazy_regex(
    r"(?<!\d)(?:(1\d{9})(\d{3}|\d{6}|\d{9})?(?!\d)"
    r"|(20\d\d)[-_.]?(\d\d)[-_.]?(\d\d)[-_.T ]?(\d\d)[-_.]?(\d\d)[-_.]?(\d\d)"
    r"(?:[-_.]?(\d{1,9}))?(?!\d)"
    r"|\d{12,19}(?!\d))"
)
"""A time: counted from 1970, 2024_11_26_06_49_10, 20241126064910123; or some other clock."""


def without_times(path: str) -> str:
    """A path with the same text for every time in it."""
    return _TIME.sub("#", path)


def time_in(name: str) -> int:
    """The last time in a name, Unix ns; 0 without one. Dates are taken as local time."""
    last = 0
    for seconds, fraction, *date, rest in _TIME.findall(name):
        if seconds:
            last = int((seconds + fraction).ljust(19, "0"))
        elif date[0]:
            with suppress(ValueError):  # no such day
                year, month, day, hour, minute, second = map(int, date)
                at = datetime(year, month, day, hour, minute, second).timestamp()
                last = int(at) * 1_000_000_000 + int(rest.ljust(9, "0"))
    return last


def path_of(capture: Capture) -> str:
    """The path of a capture."""
    return capture.source.title(capture.files[0]) if capture.files else capture.title


def shown(capture: Capture) -> str:
    """The name of a capture in ``inspect``: its path and the process in the file."""
    path = path_of(capture)
    return capture.title if capture.title.startswith(path) else path


def agreed(captures: Sequence[Capture]) -> list[tuple[int, int, Place]] | None:
    """Rank, size of the job (or -1) and coordinates of each capture, if names are unambiguous.

    Every name must have the same kinds of coordinates, each combination once; ranks must be below
    the named size of the job, which must be the same for all; coordinates must fill their grid;
    and no file may state another rank.
    """
    named_places = [_in_name(capture) for capture in captures]
    if not named_places or None in named_places:
        return None
    places = [place for place, _ in filter(None, named_places)]
    sizes = {size for _, size in filter(None, named_places)}
    if len(sizes) > 1 or any(place.keys() != places[0].keys() for place in places):
        return None
    if not _is_grid(places):
        return None
    ranks, size = ranks_of(places), sizes.pop()
    if 0 <= size <= max(ranks):
        return None
    if any(c.rank not in (None, rank) for c, rank in zip(captures, ranks, strict=True)):
        return None
    return [(rank, size, place) for rank, place in zip(ranks, places, strict=True)]


def place_in_name(capture: Capture) -> Place:
    """The coordinates in the name of a capture; empty without any."""
    place_and_size = _in_name(capture)
    return place_and_size[0] if place_and_size else {}


def _in_name(capture: Capture) -> tuple[Place, int] | None:
    """The coordinates in a name and the size of the job (or -1); None without coordinates, or
    with two values of one in the same part of the path.
    """
    name = capture.files[0] if capture.files else capture.title
    words: dict[str, int] = {}
    size = -1
    for part in PurePosixPath(PurePosixPath(capture.source.label).name, name).parts:
        inner: dict[str, int] = {}
        for word, digits, job_size in _WORD.findall(part):
            if inner.setdefault(word.lower(), int(digits)) != int(digits):
                return None
            size = int(job_size) if job_size else size
        words |= inner
    if "rank" in words:  # other words need not be coordinates: "ep" is also an epoch
        return {key: words[key] for key in ("dp", "rank") if key in words}, size
    return (words, size) if "tp" in words else None


def _is_grid(places: Sequence[Place]) -> bool:
    """Whether coordinates count from 0 and are all combinations; ranks may be any.

    ``tp8`` alone is the size of a grid, not a place in it.
    """
    names = _independent(places)
    if names == ["rank"]:
        return True
    values = [sorted({place[name] for place in places}) for name in names]
    if any(v != list(range(len(v))) for v in values):
        return False
    return {tuple(place[name] for name in names) for place in places} == set(product(*values))


def _independent(places: Sequence[Place]) -> list[str]:
    """The coordinates that determine the rank, the slowest first.

    These differ between processes with equal faster coordinates, or are the same for all and not
    0. Others follow from faster ones: experts or attention replicas spread over ``tp``.
    """
    ordered_names = [name for name in COORDINATES if name in places[0]]
    independent: list[str] = []
    for name in reversed([*(n for n in places[0] if n not in COORDINATES), *ordered_names]):
        values = {place[name] for place in places}
        apart = {tuple(place[n] for n in independent) for place in places}
        together = {tuple(place[n] for n in (name, *independent)) for place in places}
        if len(together) > len(apart) or (len(values) == 1 and values != {0}):
            independent.insert(0, name)
    return independent


def ranks_of(places: Sequence[Place]) -> list[int]:
    """The ranks of processes: numbers whose digits are the coordinates.

    The base of each digit is one more than its largest value, so all processes must be present,
    except for the last ones of the slowest coordinate.

    Args:
        places: all with the same names, in the order of :data:`COORDINATES`.
    """
    ranks = [0] * len(places)
    for name in _independent(places):
        base = max(place[name] for place in places) + 1
        ranks = [rank * base + place[name] for rank, place in zip(ranks, places, strict=True)]
    return ranks


def by_pattern(captures: Sequence[Capture], pattern: str) -> list[tuple[int, Place] | None]:
    """Ranks and coordinates that a user's pattern finds in the paths; None where it does not match.

    Args:
        pattern: a regular expression. Its named groups are coordinates (:data:`COORDINATES`), 0 if
            they do not take part in a match; without named groups, the first group is the rank.

    Raises:
        OptionError: the pattern is invalid or has no group, or a group is not a number.
    """
    compiled = _compiled(pattern)
    places = [_matched(compiled, shown(capture)) for capture in captures]
    matched = [place for place in places if place is not None]
    ranks = iter(ranks_of(matched) if matched else ())
    return [None if place is None else (next(ranks), place) for place in places]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as e:
        raise OptionError(f"{pattern!r} is not a regular expression: {e}", "rank_from") from e
    if not compiled.groups:
        raise OptionError(
            f"{pattern!r} has no group: put the digits of the rank in parentheses, e.g. "
            r"'rank(\d+)', or name coordinates, e.g. 'TP-(?P<tp>\d+)-PP-(?P<pp>\d+)'",
            "rank_from",
        )
    return compiled


def _matched(pattern: re.Pattern[str], path: str) -> Place | None:
    match = pattern.search(path)
    if not match:
        return None
    texts = match.groupdict(default="0") or {"rank": match[1] or ""}
    for name, text in texts.items():
        if not re.fullmatch("[0-9]{1,9}", text):
            raise OptionError(
                f"{pattern.pattern!r}: {name!r} is {text!r} in {path}: "
                r"a group must be digits, e.g. '(\d+)'",
                "rank_from",
            )
    return {name: int(text) for name, text in texts.items()}
