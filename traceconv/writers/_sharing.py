"""How ranks share what room there is."""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.writers._measure import Size

FLOOR = 8
"""No rank is given less than this part of an equal share, unless it needs less."""


def shares(room: Size, needs: Sequence[Size]) -> list[Size]:
    """What of ``room`` each rank gets, in proportion to what it needs, but none next to nothing.

    A rank whose part would be less than an eighth of ``room`` shared equally gets that eighth, or
    what it needs if that is less; the others share the rest, again in proportion. So ranks of
    about one size keep the same detail, and a small one does not vanish beside large ones.
    """
    columns = [_shared(room[i], [need[i] for need in needs]) for i in range(len(room))]
    return [Size(*share) for share in zip(*columns, strict=True)]


def _shared(room: int, needs: Sequence[int]) -> list[int]:
    total = sum(needs)
    if not total:
        return [0] * len(needs)
    part = [need * room // total for need in needs]
    least = [min(need, room // (FLOOR * len(needs))) for need in needs]
    poor = [one < low for one, low in zip(part, least, strict=True)]
    left = room - sum(low for low, is_poor in zip(least, poor, strict=True) if is_poor)
    rest = sum(need for need, is_poor in zip(needs, poor, strict=True) if not is_poor)
    return [
        low if is_poor else need * left // rest
        for need, low, is_poor in zip(needs, least, poor, strict=True)
    ]
