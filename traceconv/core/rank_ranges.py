"""Numbers of ranks as users write them: ``0-3,7``."""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.core.patterns import lazy_regex

MOST_RANKS = 1_000_000
"""No job has more ranks."""


class Selected(tuple[int, ...]):
    """Numbers that a user selects, ascending, each once.

    Attributes:
        parts: the single numbers and the ranges as they were written. A single number must exist;
            of a range one must.
    """

    parts: tuple[range, ...]

    @classmethod
    def of(cls, parts: Sequence[range]) -> Selected:
        """The numbers of ``parts``."""
        selected = cls(sorted({number for part in parts for number in part}))
        selected.parts = tuple(parts)
        return selected


_RANGE = lazy_regex(r"(\d{1,9})(?:-(\d{1,9}))?")


def parse_ranges(text: str) -> list[int]:
    """Ranks as :func:`format_ranges` writes them, ascending; none if the text is something else, or
    names more than :data:`MOST_RANKS`.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first + len(ranks) >= MOST_RANKS:
            return []
        ranks.update(range(first, last + 1))
    return sorted(ranks)


def format_ranges(ranks: Sequence[int]) -> str:
    """Ranks as users write them: ``0-3,7``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in runs)
