"""Cells of a table as typed columns: what every sheet is made of, whatever file it came from.

The types are those of :class:`traceconv.sheets.Sheet`. Tables come in batches of rows, so that a
large one never stands in memory as text; a column whose batches disagree is typed as the widest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import filterfalse, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.model import I64
from traceconv.readers._event_log_numbers import times
from traceconv.sheets import ABSENT, unit_of

Column = NDArray[Any]
Doubt = Callable[[str, str, int], None]
"""Books an issue: code, place, how often."""

MISSING = frozenset(("", "N/A", "NA", "None", "none", "nan", "NaN", "null", "INVALID_TYPE"))
"""How the profilers write that a number is not there."""

_INT = frozenset("0123456789-")
_FLOAT = _INT | frozenset(".eE+")
_NO_TEXT = frozenset(("", "N/A"))
_MOST_KINDS = 20


def typed(heading: str, cells: Sequence[str], doubt: Doubt, text: bool = False) -> Column:
    """One column of stripped cells: int64, int64 nanoseconds, float64 or object.

    Args:
        text: leave it as text, whatever is in it.
    """
    if text:
        return _texts(cells)
    if unit := unit_of(heading):
        return _times(heading, cells, unit, doubt)
    if MISSING.isdisjoint(cells):
        numbers = _numbers(cells)
        return _texts(cells) if numbers is None else numbers
    there, present = _present(cells)
    numbers = _numbers(present)
    if numbers is None:
        return _texts(cells)
    full = np.full(len(cells), ABSENT if numbers.dtype == np.int64 else np.nan, numbers.dtype)
    full[there] = numbers
    return full


def _present(cells: Sequence[str]) -> tuple[I64, list[str]]:
    """The cells that are not empty: where they stand, and what they say."""
    empty = np.fromiter(map(MISSING.__contains__, cells), bool, len(cells))
    return np.flatnonzero(~empty), list(filterfalse(MISSING.__contains__, cells))


def absent(like: Column, rows: int) -> Column:
    """``rows`` empty cells for a column of the type of ``like``."""
    empty: Any = {"i": ABSENT, "f": np.nan}.get(like.dtype.kind, "")
    return np.full(rows, empty, like.dtype)


def fits(parts: Sequence[Column]) -> bool:
    """Whether batches of one column can be joined without looking at their text again.

    Batches without any value do not count: they fit every type.
    """
    kinds = {part.dtype.kind for part in parts if not _is_blank(part)}
    return "O" not in kinds or len(kinds) == 1


def joined(parts: Sequence[Column]) -> Column:
    """Batches of one column as one, for which :func:`fits` is true."""
    kinds = {part.dtype.kind for part in parts if not _is_blank(part)}
    kinds = kinds or {part.dtype.kind for part in parts}
    kind = "O" if "O" in kinds else "f" if "f" in kinds else "i"
    return np.concatenate([_as(part, kind) for part in parts])


def _as(part: Column, kind: str) -> Column:
    if part.dtype.kind == kind:
        return part
    if part.dtype.kind == "O" or kind == "O":  # nothing is in it
        return absent(np.empty(0, {"i": np.int64, "f": np.float64, "O": object}[kind]), len(part))
    return np.where(part == ABSENT, np.nan, part.astype(np.float64))


def _is_blank(part: Column) -> bool:
    if part.dtype.kind == "O":
        return not any(part.tolist())
    return part.dtype.kind == "i" and bool((part == ABSENT).all())


def _texts(cells: Sequence[str]) -> Column:
    column = np.empty(len(cells), object)
    pool: dict[str, str] = dict.fromkeys(_NO_TEXT, "")
    column[:] = list(map(pool.setdefault, cells, cells))
    return column


def _numbers(texts: Sequence[str]) -> Column | None:
    """All as whole numbers, else all as numbers; None if some are neither, or there are none."""
    signs = set(texts[0]) if texts else {"?"}
    if not signs <= _FLOAT or not (signs := set("".join(texts))) <= _FLOAT:
        return None
    try:
        if signs <= _INT:
            return np.array(list(map(int, texts)), np.int64)
        return np.array(list(map(float, texts)), np.float64)
    except (ValueError, OverflowError):
        return None


def _times(heading: str, cells: Sequence[str], unit: str, doubt: Doubt) -> Column:
    ns = np.full(len(cells), ABSENT, np.int64)
    there, texts = _present(cells)
    bad = 0
    for rows in _alike(texts):
        alike = texts if len(rows) == len(texts) else [texts[i] for i in rows.tolist()]
        found = times(alike, unit)
        ns[there[rows]] = np.where(found.bad, ABSENT, found.ns)
        bad += int(np.count_nonzero(found.bad))
    if bad:
        doubt("bad-time", f"column {heading}", bad)
    return ns


def _alike(texts: Sequence[str]) -> list[I64]:
    """Rows by the number of their decimals: such as have equally many are parsed in one go."""
    size = np.fromiter(map(len, texts), np.int64, len(texts))
    point = np.fromiter(map(str.find, texts, repeat(".")), np.int64, len(texts))
    decimals = np.where(point < 0, 0, size - point - 1)
    kinds = np.unique(decimals).tolist()
    if len(kinds) > _MOST_KINDS:
        return [np.arange(len(texts))]
    return [np.flatnonzero(decimals == kind) for kind in kinds]


def table(
    rows: Sequence[Mapping[str, str]], doubt: Doubt, text: Collection[str] = ()
) -> dict[str, Column]:
    """Rows by heading as columns; headings in the order they are met, ``text`` those of names."""
    headings = dict.fromkeys(key for row in rows for key in row)
    return {
        h: typed(h, [row.get(h, "").strip() for row in rows], doubt, h in text) for h in headings
    }
