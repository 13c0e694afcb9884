"""Offsets from the ends of collectives, and whether they are good enough not to be asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traceconv.collectives import Evidence
from traceconv.matching import Matched, matched
from traceconv.mergers._clock_fits import Fit, solved
from traceconv.mergers._clock_offsets import Offset

ENOUGH = 8
"""So many operations a rank must share with others before collectives are used unasked."""

_FAR_NS = 3600 * 10**9  # clocks that are set by people or over the network do not err by an hour


@dataclass(frozen=True)
class Found:
    """Offsets of all ranks that are believed.

    Attributes:
        offsets: per rank.
        alone:   ranks that no operation connects to the others, and why.
        loose:   ranks whose offset is not to be believed unasked, and why.
    """

    offsets: dict[int, Offset]
    alone: Mapping[int, str]
    loose: Mapping[int, str]


def by_collectives(
    evidence: Sequence[Evidence],
    anchors: Mapping[int, Offset],
    groups: Sequence[Matched] | None = None,
) -> Found:
    """The offset of every rank against the one that most ranks are connected with.

    Args:
        anchors: what is known of clocks and Unix time. That of the rank which leads counts for
            all it is connected with; ranks that are alone keep their own.
        groups: of :func:`traceconv.matching.matched`, if that is known already.
    """
    result = solved((e.rank for e in evidence), matched(evidence) if groups is None else groups)
    sizes = Counter(result.root.values())
    main = min(sizes, key=lambda rank: (-sizes[rank], rank), default=-1)
    offsets, alone = {}, {}
    for rank, root in result.root.items():
        if root == main and sizes[main] > 1:
            offsets[rank] = _offset(result.fits[rank], root, anchors.get(root, Offset()))
            continue
        offsets[rank] = anchors.get(rank, Offset())
        if len(result.root) > 1:
            alone[rank] = result.doubts.get(rank, "no collective matches the other ranks'")
    loose = {rank: fit.loose for rank, fit in result.fits.items() if fit.loose}
    return Found(offsets, alone, loose)


def _offset(fit: Fit, root: int, anchor: Offset) -> Offset:
    """The fit of one rank, and on top of it what puts the leading rank on Unix time."""
    ours = fit.correction
    leads = not fit.matches
    said = f"leads; {anchor.evidence}" if anchor.evidence else "leads"
    return Offset(
        ours.offset_ns + anchor.offset_ns,
        "collective",
        said if leads else f"{fit.matches} operations shared, led by rank {root}",
        None if leads else round(fit.spread_ns),
        ours.drift_ppt,
        ours.at_ns if ours.drift_ppt else 0,
        0 if leads else math.ceil(fit.error_ns),
        fit.matches,
    )


def why_not(found: Found, evidence: Sequence[Evidence], anchors: Mapping[int, Offset]) -> str:
    """Why collectives do not suffice to align all ranks without being asked to; "" if they do."""
    if not any(len(one) for one in evidence):
        return "there are none"
    for doubts in (found.alone, found.loose):
        if doubts:
            rank = max(doubts)  # the first may be alone because the others are
            return f"rank {rank}: {doubts[rank]}"
    for rank, one in found.offsets.items():
        if one.error_ns and one.matches < ENOUGH:
            return f"rank {rank}: {one.matches} matched operations, wanted are {ENOUGH}"
        known = anchors.get(rank)
        if known and abs(one.offset_ns - known.offset_ns) > _FAR_NS:
            return f"rank {rank} would move by more than an hour: another run?"
    return ""
