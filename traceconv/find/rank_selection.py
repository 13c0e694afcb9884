"""The captures of the ranks that a user selects, and errors for selections that match nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from traceconv.core.errors import Issues, RankError, SelectionError
from traceconv.core.job_shape import ByCoordinates, JobShape, where
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import Selected, format_ranges
from traceconv.find.capture_ranks import shape_of_captures


def chosen(
    captures: Sequence[Capture],
    selected: Sequence[int] | ByCoordinates | None,
    allow_missing: bool,
    issues: Issues,
) -> tuple[Capture, ...]:
    """The captures of the selected ranks (None = all).

    Raises:
        RankError: a selected rank does not exist and ``allow_missing`` is off, or none exists; or
            ranks are selected by coordinates that no rank has, or that are unknown of some which
            may be meant (``allow_missing`` leaves those out, with an issue).
    """
    if selected is None:
        return tuple(captures)
    if isinstance(selected, ByCoordinates):
        return _at(captures, selected, allow_missing, issues)
    present = {c.rank for c in captures}
    missing = [r for r in selected if r not in present]
    selected_captures = tuple(c for c in captures if c.rank in set(selected))
    if missing and (not allow_missing or not selected_captures):
        lacking = (
            f"rank {missing[0]} does" if len(missing) == 1 else f"ranks {format_ranges(missing)} do"
        )
        raise RankError(
            f"{lacking} not exist; ranks found: "
            f"{format_ranges([c.rank for c in captures if c.rank is not None])}. "
            + "Ranks count from 0. " * (missing == [len(present)])
            + "Leave `ranks` out for all of them"
            + ("." if not selected_captures else ", or pass `allow_missing_ranks=True`.")
        )
    for rank in missing:
        issues.add("rank-missing", where=f"rank {rank}")
    return selected_captures


def _at(
    captures: Sequence[Capture], selected: ByCoordinates, allow_missing: bool, issues: Issues
) -> tuple[Capture, ...]:
    """The captures at coordinates."""
    shape = shape_of_captures(captures)
    axes = _known_axes(shape)
    for name in selected.wanted:
        if name not in axes:
            raise RankError(_unknown_axis(name, shape))
    sure, possible = where(shape, selected.wanted)
    doubtful = shape.ranks[possible].tolist()
    if doubtful and not (allow_missing and sure.any()):
        lacking = next(name for name in selected.wanted if (shape.column(name) < 0).any())
        raise RankError(
            f"{selected} may mean rank {format_ranges(doubtful)}, too, whose {lacking} is unknown: "
            f"{shape.axis(lacking).lacking}. Select ranks by their numbers"
            + (", or pass `allow_missing_ranks=True` to go on without." if sure.any() else ".")
        )
    for rank in doubtful:
        issues.add("rank-missing", where=f"rank {rank}: not known whether {selected}")
    if not sure.any():
        available = "; ".join(
            f"{name}: {format_ranges([v for v in shape.ranks_by(name) if v >= 0])}"
            for name in selected.wanted
        )
        raise RankError(f"no rank has {selected}; there are {available}")
    chosen_ranks = set(shape.ranks[sure].tolist())
    return tuple(c for c in captures if c.rank in chosen_ranks)


def _known_axes(shape: JobShape) -> list[str]:
    return [axis.name for axis in shape.axes if (shape.column(axis.name) >= 0).any()]


def refuse_unknown_axes(names: Sequence[str], shape: JobShape) -> None:
    """See that at least one rank has a coordinate on every axis.

    Raises:
        SelectionError: none has one on some axis; the message lists those that are known.
    """
    for name in names:
        if name not in _known_axes(shape):
            raise SelectionError(_unknown_axis(name, shape))


def _unknown_axis(name: str, shape: JobShape) -> str:
    if known_names := _known_axes(shape):
        axes = ", ".join(
            f"{axis} {format_ranges([v for v in shape.ranks_by(axis) if v >= 0])}"
            for axis in known_names
        )
        return f"{name} is unknown of all ranks; known coordinates: {axes}"
    return (
        f"{name} is unknown: nothing in these captures states the coordinates of ranks. Select "
        "ranks by their numbers, or say where paths have coordinates, e.g. "
        "`rank_from='pp(?P<pp>\\d+)_tp(?P<tp>\\d+)'`"
    )


def refuse_missing(
    selected: Mapping[str, Sequence[int] | None], found: Mapping[str, Collection[int]]
) -> None:
    """See that every selected number, and one of every selected range, is in one of the ranks.

    Args:
        selected: by kind ("graph", "step"); None selects nothing.
        found:    by the same kinds, what all ranks together have.

    Raises:
        SelectionError: a number or range is in no rank; the message lists those there are.
    """
    for kind, numbers in selected.items():
        available = set(found[kind])
        ranges = (
            numbers.parts
            if isinstance(numbers, Selected)
            else [range(n, n + 1) for n in numbers or ()]
        )
        missing = {n for interval in ranges if available.isdisjoint(interval) for n in interval}
        if missing:
            is_plural = len(missing) > 1
            raise SelectionError(
                f"{kind}{'s' * is_plural} {format_ranges(sorted(missing))} "
                f"{'are' if is_plural else 'is'} in none of the ranks; "
                f"{kind}s found: {format_ranges(sorted(found[kind])) or 'none'}"
            )
