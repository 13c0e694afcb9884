"""Which rank a capture is: by its files, by its name, or by the user's pattern.

A rank is never guessed without a report: a single capture without one is rank 0 with an issue,
several are an error that explains how to name them. Several captures of one rank are its
collection windows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from traceconv.core.errors import Issues, RankError, SelectionError
from traceconv.core.job_shape import ByCoordinates, JobShape, recorded_shape, where
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_names import Place, agreed, by_pattern, path_of, rank_in_name
from traceconv.core.rank_windows import as_one

MOST_RANKS = 1_000_000
"""No job has more ranks."""

_RANGE = lazy_regex(r"(\d{1,9})(?:-(\d{1,9}))?")

_PATTERN = "the pattern of ranks in paths"
_AXES = {"stage": "pp"}
"""Names that users give to axes in patterns."""

LARGEST_IN_NAME = 99_999
"""A larger number in a name is a time, not a rank."""


def resolve(captures: Sequence[Capture], rule: str, issues: Issues) -> tuple[Capture, ...]:
    """One capture per rank, ascending.

    Args:
        rule: "meta" (what the files name; where they name nothing, names that leave no doubt, see
            :func:`traceconv.core.rank_names.agreed`), "name" (what the path contains), or a
            regular expression that is searched in the path: its first group is the rank, or its
            named groups are coordinates the rank is computed from
            (:data:`traceconv.core.rank_names.COORDINATES`).

    Captures a run does not need (:attr:`Capture.optional`) are left out if their rank is unknown
    and others exist.

    Raises:
        RankError: a rank stays unknown, or two captures cannot both be windows of their rank.
        OptionError: ``rule`` is no regular expression with groups of digits.
    """
    ranked = _needed(_ranked([_believed(c, issues) for c in captures], rule), issues)
    if len(ranked) == 1 and ranked[0].rank is None:
        ranked[0] = replace(ranked[0], rank=0, rank_from="assumed")
        issues.add("rank-assumed", ranked[0].title, rank=0)
    if any(c.rank is None for c in ranked):
        raise RankError(_nameless_message(ranked, rule))
    return _one_each(ranked)


def _one_each(captures: Sequence[Capture]) -> tuple[Capture, ...]:
    """The captures by rank, those of one rank as one."""
    groups: dict[int, list[Capture]] = {}
    for capture in sorted(captures, key=lambda c: c.rank or 0):
        groups.setdefault(capture.rank or 0, []).append(capture)
    return tuple(as_one(group) if len(group) > 1 else group[0] for group in groups.values())


def _needed(captures: list[Capture], issues: Issues) -> list[Capture]:
    needed = [c for c in captures if c.rank is not None or not c.optional]
    for capture in captures if needed else ():
        if capture.rank is None and capture.optional:
            issues.add("unused-file", capture.title, "nothing names its rank")
    return needed or captures


def _believed(capture: Capture, issues: Issues) -> Capture:
    """The capture, without a rank that none can have."""
    if capture.rank is None or capture.rank >= 0:
        return capture
    issues.add("rank-conflict", capture.title, f"{capture.rank} is no rank")
    return replace(capture, rank=None, rank_from="")


def _ranked(captures: Sequence[Capture], rule: str) -> list[Capture]:
    """The captures with the ranks that ``rule`` gives them."""
    if rule == "meta":
        return _by_files(captures)
    if rule == "name":
        names = _named(captures, agreed([replace(c, rank=None) for c in captures]))
        loose = (_replaced(c, rank_in_name(path_of(c)), "name") for c in captures)
        return names or [one or c for one, c in zip(loose, captures, strict=True)]
    return [
        replace(c, rank=None)
        if found is None
        else _placed(replace(c, rank=found[0], rank_from=f"pattern {rule}"), found[1], _PATTERN)
        for c, found in zip(captures, by_pattern(captures, rule), strict=True)
    ]


def _by_files(captures: Sequence[Capture]) -> list[Capture]:
    """The captures with the ranks that their files name; where some name none, with those in
    their names, if all agree.
    """
    asked = [c for c in captures if not c.optional]
    if all(c.rank is not None for c in asked):
        return list(captures)
    named = _named(asked, agreed(asked))
    return [*named, *(c for c in captures if c.optional)] if named else list(captures)


def _named(
    captures: Sequence[Capture], found: list[tuple[int, int, Place]] | None
) -> list[Capture]:
    """The captures with the ranks, sizes of the job and coordinates that were found in their
    names.
    """
    return [
        c
        if c.rank == rank
        else _placed(
            replace(c, rank=rank, rank_from="name", world_size=max(c.world_size, size)),
            place,
            "names of the captures",
        )
        for c, (rank, size, place) in zip(captures, found or (), strict=found is not None)
    ]


def _placed(capture: Capture, place: Place, said_by: str) -> Capture:
    """The capture with coordinates out of its path, where it states none itself."""
    coordinates = {_AXES.get(name, name): n for name, n in place.items() if name != "rank"}
    if not coordinates or capture.placement.groups or capture.placement.coordinates:
        return capture
    return replace(
        capture,
        placement=msgspec.structs.replace(
            capture.placement, coordinates=coordinates, place=said_by
        ),
    )


def _replaced(capture: Capture, rank: int | None, evidence: str) -> Capture | None:
    return None if rank is None else replace(capture, rank=rank, rank_from=evidence)


def _nameless_message(captures: Sequence[Capture], rule: str) -> str:
    nameless = [c for c in captures if c.rank is None]
    shown = ", ".join(c.title for c in nameless[:4]) + (" ..." if len(nameless) > 4 else "")
    message = f"the rank of {len(nameless)} of {len(captures)} captures is unknown: {shown}. "
    if rule == "meta":
        named = sorted(c.rank for c in _ranked(captures, "name") if c.rank is not None)
        if len(set(named)) == len(captures) and named[-1] <= LARGEST_IN_NAME:
            return f'{message}Names contain {named[:8]}: pass `rank_from="name"` to take these.'
    return message + (
        "Name its place in the path: `rank_from='REGEX'`, with the rank as first group, e.g. "
        "`rank_from='worker(\\d+)'`, or with coordinates as named groups, e.g. "
        "`rank_from='pp(?P<pp>\\d+)_tp(?P<tp>\\d+)'`; or merge one capture at a time."
    )


def shape_of_captures(captures: Sequence[Capture]) -> JobShape:
    """The coordinates that captures with ranks state."""
    ranked = {c.rank: c for c in captures if c.rank is not None}
    return recorded_shape(
        {rank: c.placement for rank, c in ranked.items()},
        {rank: c.host for rank, c in ranked.items()},
    )


def labelled(captures: Sequence[Capture]) -> tuple[Capture, ...]:
    """The captures, called by their coordinates in viewers where these are known."""
    shape = shape_of_captures(captures)
    labels = [("" if c.rank is None else shape.label(c.rank)) for c in captures]
    return tuple(
        replace(c, name=f"Rank {c.rank} \u00b7 {label}") if label and not c.name else c
        for c, label in zip(captures, labels, strict=True)
    )


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
    kept = tuple(c for c in captures if c.rank in set(selected))
    if missing and (not allow_missing or not kept):
        lacking = (
            f"rank {missing[0]} does" if len(missing) == 1 else f"ranks {format_ranges(missing)} do"
        )
        raise RankError(
            f"{lacking} not exist; ranks found: "
            f"{format_ranges([c.rank for c in captures if c.rank is not None])}. "
            "Leave `ranks` out for all of them"
            + ("." if not kept else ", or pass `allow_missing_ranks=True`.")
        )
    for rank in missing:
        issues.add("rank-missing", where=f"rank {rank}")
    return kept


def _at(
    captures: Sequence[Capture], selected: ByCoordinates, allow_missing: bool, issues: Issues
) -> tuple[Capture, ...]:
    """The captures at coordinates."""
    shape = shape_of_captures(captures)
    known = _known_axes(shape)
    for name in selected.wanted:
        if name not in known:
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
        there = "; ".join(
            f"{name}: {format_ranges([v for v in shape.ranks_by(name) if v >= 0])}"
            for name in selected.wanted
        )
        raise RankError(f"no rank has {selected}; there are {there}")
    kept = set(shape.ranks[sure].tolist())
    return tuple(c for c in captures if c.rank in kept)


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
    if known := _known_axes(shape):
        axes = ", ".join(
            f"{axis} {format_ranges([v for v in shape.ranks_by(axis) if v >= 0])}" for axis in known
        )
        return f"{name} is unknown of all ranks; known coordinates: {axes}"
    return (
        f"{name} is unknown: nothing in these captures states the coordinates of ranks. Select "
        "ranks by their numbers, or say where paths have coordinates, e.g. "
        "`rank_from='pp(?P<pp>\\d+)_tp(?P<tp>\\d+)'`"
    )


def parse_ranges(text: str) -> list[int]:
    """Ranks as :func:`format_ranges` writes them, ascending; none if the text is something else, or
    names more than :data:`MOST_RANKS`.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first + len(found) >= MOST_RANKS:
            return []
        found.update(range(first, last + 1))
    return sorted(found)


def format_ranges(ranks: Sequence[int]) -> str:
    """Ranks as users write them: ``0-3,7``."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def refuse_missing(
    selected: Mapping[str, Sequence[int] | None], found: Mapping[str, Collection[int]]
) -> None:
    """See that every selected number is in at least one of the ranks.

    Args:
        selected: by kind ("graph", "step"); None selects nothing.
        found:    by the same kinds, what all ranks together have.

    Raises:
        SelectionError: a number is in no rank; the message lists those there are.
    """
    for what, numbers in selected.items():
        missing = sorted(set(numbers or ()) - set(found[what]))
        if missing:
            raise SelectionError(
                f"{what} {format_ranges(missing)} is in none of the ranks; "
                f"{what}s found: {format_ranges(sorted(found[what])) or 'none'}"
            )
