"""Why nobody is named as a straggler, what was seen instead, and what a verdict does not cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from traceconv.alignment.collective_records import P2P
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.suspects import Judged, Suspect, usual
from traceconv.analysis.stragglers.waits import Waits
from traceconv.core.clock import time_text
from traceconv.core.rank_ranges import format_ranges

_NUMBERS = 8  # of steps that are shown
_ACCOUNTS = 0.5  # of what a rank comes later by, what it does more accounts for it


def peers_text(count: int) -> str:
    """``7 peers``."""
    return "its peer" if count == 1 else f"{count} peers"


def some(numbers: Sequence[int]) -> str:
    """``1, 5, 9, ...``: the first few."""
    more = ", ..." if len(numbers) > _NUMBERS else ""
    return ", ".join(str(number) for number in numbers[:_NUMBERS]) + more


def ranks_text(numbers: Sequence[int]) -> str:
    """``ranks 0-3``."""
    return f"rank{'s' * (len(numbers) > 1)} {format_ranges(numbers)}"


def bound(found: Sequence[Judged], ranks: int, material: float) -> int | None:
    """How much longer any rank takes than its peers at most, per step; None if that is unknown of
    some rank, or a part of a step that matters."""
    seen = {rank for one in found for rank in one.program.ranks}
    if not found or len(seen) < ranks:
        return None
    most = 0.0
    for one in found:
        whole = [i for i, (_, place) in enumerate(one.where) if place < 0]
        limit = material * one.program.step_ns
        if not whole or len(one.program.steps) < 3:
            return None
        upper = (one.found.usual + one.found.unsure)[whole].max()
        mean = np.nansum(one.found.more[whole], axis=1) / np.maximum(one.found.steps[whole], 1)
        if not (upper < limit and mean.max() < limit):  # what is there once counts in a mean
            return None
        most = max(most, float(upper))
    return round(max(most, 0.0))


def reason(
    every: Sequence[RankSummary],
    found: Sequence[Judged],
    waits: Waits,
    suspects: Sequence[Suspect],
    late: Mapping[int, Sequence[int]],
    steps: int,
    most: int | None,
    material: float,
) -> str:
    """Why nobody is named, with what comes nearest to it."""
    if not any(((group.row >= 0).sum(axis=1) >= 2).any() for group in waits.groups):
        return _unmatched(every, waits)
    if not found:
        text = "no two ranks did the same in one step"
        if not any(one.steps_marked for one in every):
            text = "no steps are marked, and in all that was recorded no two ranks did the same"
        if any(P2P in one.collectives.kinds for one in every):
            text += ": who exchanges messages, as stages of a pipeline do, is not compared"
        return text + _seen(*waits.latest())
    if max(len(one.program.steps) for one in found) < 2:
        one = "one step was captured, which proves no pattern"
        if not any(rank.steps_marked for rank in every):
            one = "no steps are marked, so all counts as one, which proves no pattern"
        return one + _in_one_step(found, waits)
    if most is not None:
        step_ns = max(one.program.step_ns for one in found)
        return (
            f"no rank takes longer than its peers by more than {time_text(most)} per step "
            f"({100 * most / step_ns:.2g} %)"
        )
    if suspects:
        return _not_named(suspects, material)
    if not any((one.found.steps > 1).any() for one in found):
        return f"nothing was seen twice, which proves no pattern{_seen(*waits.latest())}"
    return _nearest(found, material) + _single(late, steps)


def _unmatched(every: Sequence[RankSummary], waits: Waits) -> str:
    """Why no collective of one rank is known to be one of another."""
    if len(every) < 2:
        return "one rank was captured, there is none to compare it with"
    silent = sorted(one.rank for one in every if not len(one.collectives))
    if len(silent) == len(every):
        return "no collectives of devices were recorded"
    if not waits.groups:
        claimed = Counter(group.key for one in every for group in one.collectives.groups)
        key, ranks = claimed.most_common(1)[0]
        if ranks > 1:  # see alignment.collective_matching.matched
            return f"{ranks} ranks recorded collectives of {key}: several groups share that name"
        text = "no two ranks recorded collectives of the same group"
        return text + (f", {ranks_text(silent)} none at all" if silent else "")
    group = max(waits.groups, key=lambda one: len(one.row))
    why = next((f": {doubt}" for doubt in group.doubts if doubt), "")
    count = len(group.row)
    return (
        f"none of the {count} collectives of {ranks_text(group.ranks)} in {group.key} was matched"
        if count > 1
        else f"the collective of {ranks_text(group.ranks)} in {group.key} was not matched"
    ) + why


def _single(late: Mapping[int, Sequence[int]], steps: int) -> str:
    """Who is late in single steps, though not often enough for a pattern."""
    if not late:
        return ""
    rank, numbers = max(late.items(), key=lambda item: (len(item[1]), -item[0]))
    others = sorted(set(late) - {rank})
    too = f", {ranks_text(others)} in others" if others else ""
    return (
        f"; rank {rank} is late in {len(numbers)} of {steps} steps ({some(numbers)}){too}: that "
        "may be chance"
    )


def _seen(_: float, rank: int, text: str) -> str:
    return f"; rank {rank} {text}" if text else ""


def _in_one_step(found: Sequence[Judged], waits: Waits) -> str:
    """Who did most by itself, and when that was seen by others."""
    latest = waits.latest()
    best: tuple[float, str] = (latest[0] * _ACCOUNTS, _seen(*latest))
    for one in found:
        more = np.nan_to_num(one.found.more[one.kind == 0])
        if not more.size:
            continue
        table, row, column = np.unravel_index(int(np.argmax(more)), more.shape)
        longer, rank = float(more[table, row, column]), one.program.ranks[int(column)]
        _, seen, text = waits.latest(rank)
        peers = len(one.program.ranks) - 1
        took = f"; rank {rank} took {time_text(longer)} longer than {peers_text(peers)}"
        best = max(best, (longer, took + (f" and {text}" if seen == rank else "")))
    return best[1]


def _not_named(suspects: Sequence[Suspect], material: float) -> str:
    """Why none of those is who do more than their peers."""
    first = max(suspects, key=lambda one: one.excess_ns)
    ranks = sorted({one.rank for one in suspects if one.judged is first.judged})
    longer = time_text(first.excess_ns)
    if usual(first, [next(o for o in suspects if o.rank == rank) for rank in ranks]):
        of = len(first.judged.program.ranks)
        return f"{len(ranks)} of {of} ranks take longer than the others: roles may differ"
    return (
        f"rank {first.rank} takes {longer} longer than its peers per step, but others do not wait "
        f"{100 * material:g} % of a step for it"
    )


def _nearest(found: Sequence[Judged], material: float) -> str:
    best: tuple[float, str] = (-np.inf, "")
    for one in found:
        usual_ns, unsure = one.found.usual, np.maximum(one.found.unsure, 1.0)
        if not np.isfinite(usual_ns / unsure).any():
            continue
        ratio = np.where(np.isfinite(usual_ns / unsure), usual_ns / unsure, -np.inf)
        table, column = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        more, may = float(usual_ns[table, column]), float(unsure[table, column])
        within = "within the uncertainty"
        if more > may:
            within = "not clearly apart from what others take at times"
            if more < material * one.program.step_ns:
                within = f"less than {100 * material:g} % of a step"
        text = (
            f"rank {one.program.ranks[int(column)]} takes {time_text(max(more, 0))} longer than "
            f"its peers per step, uncertainty {time_text(may)}: {within}"
        )
        best = max(best, (float(ratio[table, column]), text))
    return best[1]


def limits(
    every: Sequence[RankSummary], found: Sequence[Judged], waits: Waits, least_ns: float
) -> Iterator[str]:
    """What is not covered by the verdict."""
    untold = [one.rank for one in every if not one.work.told]
    if untold:
        yield (
            f"no computing of {ranks_text(sorted(untold))} was recorded: in which of their groups "
            "they wait is unknown"
        )
    compared = {rank for one in found for rank in one.program.ranks}
    if any((one.work.before_ns[:, 0] <= 0).all() for one in every if one.rank in compared):
        yield "no computing was recorded: it is taken for granted that it waits for collectives"
    compared |= set(untold)
    alone = [one.rank for one in every if one.rank not in compared and len(one.collectives)]
    if alone and found:
        has = "have" if len(alone) > 1 else "has"
        yield f"{ranks_text(sorted(alone))} {has} no peers to compare"
    missing = [one.rank for one in every if waits.incomplete(one.rank)]
    if missing:
        yield (
            "not all members of the groups were captured: those that were not may be late, too"
            + waits.for_missing(least_ns)
        )
