"""Which rank a capture is: by its files, by its name, or by the user's pattern.

A rank is never guessed without a report: a single capture without one is rank 0 with an issue,
several are an error that explains how to name them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from traceconv.core.errors import Issues, OptionError, RankError, SelectionError
from traceconv.core.model import Capture

_IN_NAME = (
    re.compile(r"rank[_\-. ]?(\d+)", re.IGNORECASE),
    re.compile(r"(?:^|[_\-.])r(\d+)(?=[_\-./]|$)"),
    re.compile(r"worker[_\-. ]?(\d{1,7})(?!\d)", re.IGNORECASE),
    re.compile(r"[_\-.](\d{1,7})(?=(?:\.[A-Za-z_]+)*$)"),  # longer ones are times
)


def title(capture: Capture) -> str:
    """The capture as the user would name it."""
    if capture.label:
        return capture.label
    return capture.source.title(capture.files[0]) if capture.files else capture.source.label


def rank_in_name(path: str) -> int | None:
    """The rank a path spells ("rank3", "rank_3/x.json", "trace_3.json"), the rightmost first."""
    for pattern in _IN_NAME:
        found = pattern.findall(path)
        if found:
            return int(found[-1])
    return None


def resolve(captures: Sequence[Capture], rule: str, issues: Issues) -> tuple[Capture, ...]:
    """Captures with their ranks, ascending.

    Args:
        rule: "meta" (what the files name), "name" (what the path contains), or a regular expression
            whose first group is the rank, searched in the path.

    Captures a run does not need (:attr:`Capture.optional`) are left out if their rank is unknown
    and others exist.

    Raises:
        RankError: a rank stays unknown, or two captures claim the same one.
    """
    ranked = _needed([_ranked(_believed(c, issues), rule) for c in captures], issues)
    if len(ranked) == 1 and ranked[0].rank is None:
        ranked[0] = replace(ranked[0], rank=0, rank_from="assumed")
        issues.add("rank-assumed", title(ranked[0]), rank=0)
    nameless = [c for c in ranked if c.rank is None]
    if nameless:
        raise RankError(_nameless_message(nameless, len(ranked), rule))
    _refuse_doubles(ranked)
    return tuple(sorted(ranked, key=lambda c: c.rank if c.rank is not None else -1))


def _needed(captures: list[Capture], issues: Issues) -> list[Capture]:
    needed = [c for c in captures if c.rank is not None or not c.optional]
    for capture in captures if needed else ():
        if capture.rank is None and capture.optional:
            issues.add("unused-file", title(capture), "nothing names its rank")
    return needed or captures


def _believed(capture: Capture, issues: Issues) -> Capture:
    """The capture, without a rank that none can have."""
    if capture.rank is None or capture.rank >= 0:
        return capture
    issues.add("rank-conflict", title(capture), f"{capture.rank} is no rank")
    return replace(capture, rank=None, rank_from="")


def _ranked(capture: Capture, rule: str) -> Capture:
    if rule == "meta":
        return capture
    path = capture.source.title(capture.files[0]) if capture.files else title(capture)
    if rule == "name":
        rank = rank_in_name(path)
        return replace(capture, rank=rank, rank_from="name") if rank is not None else capture
    try:
        match = re.search(rule, path)
    except re.error as e:
        raise OptionError(f"{rule!r} is not a regular expression: {e}", "rank_from") from e
    if match is None:
        return replace(capture, rank=None)
    try:
        return replace(capture, rank=int(match[1]), rank_from=f"pattern {rule}")
    except (IndexError, ValueError, TypeError) as e:
        raise OptionError(
            f"{rule!r}: the first group must be the rank's digits, e.g. 'rank(\\d+)'", "rank_from"
        ) from e


def _nameless_message(nameless: list[Capture], total: int, rule: str) -> str:
    shown = ", ".join(title(c) for c in nameless[:4]) + (" ..." if len(nameless) > 4 else "")
    message = f"the rank of {len(nameless)} of {total} captures is unknown: {shown}. "
    if rule == "meta":
        named = [rank_in_name(c.source.title(c.files[0])) for c in nameless if c.files]
        if named and None not in named and len(set(named)) == len(named):
            return (
                message + f'Their names contain {named[:8]}: pass `rank_from="name"` to take these.'
            )
    return message + (
        "Name its place in the path: `rank_from='REGEX'`, with the rank as first group, e.g. "
        "`rank_from='worker(\\d+)'`; or merge one capture at a time."
    )


def _refuse_doubles(captures: Sequence[Capture]) -> None:
    first: dict[int | None, Capture] = {}
    for capture in captures:
        other = first.setdefault(capture.rank, capture)
        if other is not capture:
            raise RankError(
                f"rank {capture.rank} is claimed twice: by {title(other)} "
                f"({other.rank_from or other.reader}) and by {title(capture)} "
                f"({capture.rank_from or capture.reader}). Name one of them only, or say which "
                "rank each is with `rank_from=\"name\"` or `rank_from='REGEX'`."
            )


def chosen(
    captures: Sequence[Capture], selected: Sequence[int] | None, allow_missing: bool, issues: Issues
) -> tuple[Capture, ...]:
    """The captures of the selected ranks (None = all).

    Raises:
        RankError: a selected rank does not exist and ``allow_missing`` is off, or none exists.
    """
    if selected is None:
        return tuple(captures)
    present = {c.rank for c in captures}
    missing = [r for r in selected if r not in present]
    kept = tuple(c for c in captures if c.rank in set(selected))
    if missing and (not allow_missing or not kept):
        raise RankError(
            f"rank {format_ranges(missing)} does not exist; ranks found: "
            f"{format_ranges([c.rank for c in captures if c.rank is not None])}. "
            "Leave `ranks` out for all of them"
            + ("." if not kept else ", or pass `allow_missing_ranks=True`.")
        )
    for rank in missing:
        issues.add("rank-missing", where=f"rank {rank}")
    return kept


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
