"""Which rank a capture is: by its files, by its name, or by the user's pattern.

What evidence is weighed, and how: :mod:`traceconv.find.identity`. Several captures of one rank are
its collection windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceconv.alignment.jobs import of_several_sizes
from traceconv.core.columns import natural_order
from traceconv.core.errors import Issues, RankError
from traceconv.core.job_shape import JobShape, recorded_shape
from traceconv.core.model import Capture
from traceconv.find.capture_windows import NAME_THEM, as_one
from traceconv.find.identity import at_place, by_evidence, with_jobs, with_names
from traceconv.readers.shared.rank_names import (
    agreed,
    by_pattern,
    path_of,
    rank_in_name,
    shown,
)

_PATTERN = "the pattern of ranks in paths"
_TOLD = 4
"""Most problems of a folder that a message lists."""

LARGEST_IN_NAME = 99_999
"""A larger number in a name is a time, not a rank."""


def resolve(captures: Sequence[Capture], rule: str, issues: Issues) -> tuple[Capture, ...]:
    """One capture per rank, ascending.

    Args:
        rule: "meta" (the rank that the files name; where they name none, the rank in their names if
            :func:`traceconv.readers.shared.rank_names.agreed` finds no doubt), "name" (the rank in
            the path), "order" (each capture is a rank, numbered in the natural order of paths), or
            a regular expression that is searched in the path: its first group is the rank, or its
            named groups are coordinates that the rank is computed from
            (:data:`traceconv.readers.shared.rank_names.COORDINATES`).

    Captures a run does not need (:attr:`Capture.optional`) and files of 0 bytes are left out if
    their rank is unknown and others exist.

    Raises:
        RankError: a rank stays unknown, or two captures cannot both be windows of their rank.
        OptionError: ``rule`` is no regular expression with groups of digits.
    """
    ranked = with_ranks(captures, rule, issues)
    groups: dict[int, list[Capture]] = {}
    for capture in ranked:
        if capture.rank is not None:
            groups.setdefault(capture.rank, []).append(capture)
    resolved, problems = [], []
    for _, group in sorted(groups.items()):
        try:
            resolved.append(as_one(group) if len(group) > 1 else group[0])
        except RankError as e:
            problems.append(str(e))
    if any(c.rank is None for c in ranked):
        problems.insert(0, _nameless_message(ranked, rule))
    if problems:
        note = [f"... and {len(problems) - _TOLD} more of these"] * (len(problems) > _TOLD)
        raise RankError("\nalso: ".join([*problems[:_TOLD], *note]))
    if sizes := of_several_sizes(ranked):
        issues.add("jobs-mixed", sizes)
    return tuple(resolved)


def with_ranks(captures: Sequence[Capture], rule: str, issues: Issues) -> list[Capture]:
    """Every capture that is needed, with its rank; None where it stays unknown.

    Args:
        rule: as of :func:`resolve`.
    """
    possible = list(captures)
    for position, capture in enumerate(captures):
        if capture.rank is not None and capture.rank < 0:
            issues.add("rank-conflict", capture.title, f"{capture.rank} is not a rank")
            possible[position] = replace(capture, rank=None, rank_from="")
    found = _ranked(possible, rule, issues)
    spare = ["" if c.rank is not None else _why_spare(c) for c in found]
    ranked = [c for c, code in zip(found, spare, strict=True) if not code] or found
    for capture, code in zip(found, spare, strict=True):
        if code and ranked is not found:
            issues.add(code, capture.title, "nothing names its rank")
    if len(ranked) == 1 and ranked[0].rank is None:
        ranked = [replace(ranked[0], rank=0, rank_from="assumed")]
        issues.add("rank-assumed", ranked[0].title, rank=0)
    return ranked


def _why_spare(capture: Capture) -> str:
    """The issue code of a capture that a run can do without; "" of others."""
    if capture.files and not any(map(capture.source.size, capture.files)):
        return "empty-file"
    return "unused-file" if capture.optional else ""


def _ranked(captures: Sequence[Capture], rule: str, issues: Issues) -> list[Capture]:
    """The captures with the ranks that ``rule`` gives them."""
    if rule == "meta":
        return by_evidence(captures, issues)
    if rule == "name":
        names = agreed([replace(c, rank=None) for c in captures])
        if names is not None:
            return with_names(captures, names)
        by_name = [(c, rank_in_name(path_of(c))) for c in captures]
        return [
            c if rank is None else replace(c, rank=rank, rank_from="name") for c, rank in by_name
        ]
    if rule == "order":
        needed = [c for c in captures if not c.optional] or captures
        ordered = sorted(needed, key=lambda c: natural_order(shown(c)))
        ranked = [replace(c, rank=n, rank_from="order of paths") for n, c in enumerate(ordered)]
        return with_jobs([c.rank for c in ordered], ranked)
    ranked = [
        replace(c, rank=None)
        if rank_and_place is None
        else at_place(
            replace(c, rank=rank_and_place[0], rank_from=f"pattern {rule}"),
            rank_and_place[1],
            _PATTERN,
        )
        for c, rank_and_place in zip(captures, by_pattern(captures, rule), strict=True)
    ]
    return with_jobs([c.rank for c in captures], ranked)


def _nameless_message(captures: Sequence[Capture], rule: str) -> str:
    nameless = [c for c in captures if c.rank is None]
    examples = ", ".join(c.title for c in nameless[:4]) + (" ..." if len(nameless) > 4 else "")
    message = f"the rank of {len(nameless)} of {len(captures)} captures is unknown: {examples}. "
    if rule == "meta":
        named_ranks = sorted(
            c.rank for c in _ranked(captures, "name", Issues()) if c.rank is not None
        )
        if len(set(named_ranks)) == len(captures) and named_ranks[-1] <= LARGEST_IN_NAME:
            return (
                f'{message}Names contain {named_ranks[:8]}: pass `rank_from="name"` to take these.'
            )
    return message + NAME_THEM


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
