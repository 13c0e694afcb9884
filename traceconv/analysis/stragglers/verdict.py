"""Who is late, and why: not the rank that waits at the barrier, but the one the others wait for.

What decides is a rank's own work: what it did between collectives while it waited for nobody. Where
it does more of that than its peers (:mod:`.peers`), by more than chance explains
(:mod:`.significance`), and others wait for it (:mod:`.waits`), by a part of a step that matters, it
is a straggler: in most steps, or in some. Where clocks are known well enough to say that it did not
arrive late, nothing is concluded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched, matched
from traceconv.analysis.inferred_shape import stated_shape
from traceconv.analysis.losses import Late
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.links import SlowGroup, slow_groups
from traceconv.analysis.stragglers.own_work import OWN, PARTS
from traceconv.analysis.stragglers.peers import Step, programs
from traceconv.analysis.stragglers.reasons import (
    bound,
    limits,
    peers_text,
    ranks_text,
    reason,
    some,
)
from traceconv.analysis.stragglers.replay import Replay
from traceconv.analysis.stragglers.significance import medians, over_others
from traceconv.analysis.stragglers.suspects import (
    CONSTANT,
    INTERMITTENT,
    Judged,
    Suspect,
    gain,
    stages_behind,
    until_next,
    usual,
    values_at,
)
from traceconv.analysis.stragglers.waits import Clocks, Waits
from traceconv.core.clock import time_text
from traceconv.core.job_shape import called
from traceconv.core.ordering import distinct
from traceconv.core.robust import median, normal_quantile, student

SCHEMA_VERSION = 2

MATERIAL = 0.01
"""Of a step: nobody whose peers would gain less is called a straggler."""

STRAGGLER, SLOW_GROUP, NOBODY, INCONCLUSIVE = "straggler", "slow group", "none", "inconclusive"
"""Verdicts."""

_TABLES = 16  # in which a rank does more: where others wait most is looked for among them
_ROUNDS = 4  # of leaving out those for whom nobody waits
_ARRIVES = 0.25  # of what others wait for a rank, it arrives late by at least, if clocks are known
_SURE = 3.09  # standard errors of a normal distribution that are exceeded once in a thousand times
_OF_MEDIANS = 1.25  # times as far as a mean a median is off
_STEP = 0.001  # probability that a step in which nobody is late has somebody who is


class Finding(msgspec.Struct, frozen=True):
    """A rank that comes late, in the run or in one step.

    Attributes:
        rank:    which.
        pattern: :data:`CONSTANT` or :data:`INTERMITTENT`; "" of a single step that is part of
            neither, which may be chance.
        group, kind: where others wait for it most: the group and the collective.
        excess_ns: what it does more than its peers, per step; of a single step, in that.
        gain_ns: what a step would be shorter by if it and those that are late with it were like
            their peers, as far as others wait for them.
        uncertain_ns: how far ``excess_ns`` may be off by chance, in 999 of 1000 cases.
        arrival_ns: how much later than the others it arrives there, by aligned clocks.
        parts_ns: what it did more when it was late, by :data:`.own_work.PARTS`.
        late_steps: numbers of the steps in which it is late; of_steps: how many were compared.
        peers:   how many ranks it is compared with.
        together: other ranks that are late as it is, in the same program.
        missing: whether members of its groups were not captured.
        step:    the step, or -1 for the run.
        coordinates: as texts name the rank; "" where they are unknown.
    """

    rank: int
    pattern: str
    group: str
    kind: str
    excess_ns: int
    gain_ns: int
    uncertain_ns: int
    arrival_ns: int | None = None
    parts_ns: tuple[int, ...] = ()
    late_steps: tuple[int, ...] = ()
    of_steps: int = 1
    peers: int = 1
    together: tuple[int, ...] = ()
    missing: bool = False
    step: int = -1
    coordinates: str = ""

    @property
    def called(self) -> str:
        """How texts name the rank."""
        return called(self.rank, self.coordinates)

    @property
    def why(self) -> str:
        """The part that accounts for most of it; "" if that is not known."""
        own = self.parts_ns[:OWN]
        return PARTS[int(np.argmax(own))] if own and max(own) > 0 else ""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "rank": self.rank,
            "step": self.step if self.step >= 0 else None,
            "pattern": self.pattern or None,
            "group": self.group,
            "operation": self.kind,
            "gain_ns": self.gain_ns,
            "excess_ns": self.excess_ns,
            "uncertainty_ns": self.uncertain_ns,
            "late_by_arrival_ns": self.arrival_ns,
            "late_steps": list(self.late_steps),
            "of_steps": self.of_steps,
            "peers": self.peers,
            "together": list(self.together),
            "missing_members": self.missing,
            "cause": self.why,
            "parts_ns": dict(zip(PARTS, self.parts_ns, strict=False)),
            "text": self.text(),
        }

    def text(self) -> str:
        """One line for people: the same everywhere."""
        cause = f", mostly {self.why}" if self.why else ""
        peers = peers_text(self.peers)
        if self.step >= 0:
            return (
                f"{self.called} takes {time_text(self.excess_ns)} longer than {peers}{cause}; "
                f"others wait {time_text(self.gain_ns)} for it"
                + ("" if self.pattern else "; that may be chance")
            )
        each, where = "per step", f" ({self.of_steps} steps)"
        if self.pattern == INTERMITTENT:
            each = f"in {len(self.late_steps)} of {self.of_steps} steps"
            where = f" ({some(self.late_steps)})"
        longer = self.excess_ns
        if self.pattern == INTERMITTENT and self.late_steps:
            longer = round(longer * self.of_steps / len(self.late_steps))
        with_it = f"; late with it: {ranks_text(self.together)}" if self.together else ""
        bound = "; not all members of its groups were captured" if self.missing else ""
        return (
            f"{self.called} takes {time_text(longer)} longer than {peers} {each}{where}{cause}; "
            f"it costs {time_text(self.gain_ns)} per step at {self.kind} of {self.group}"
            f" (uncertainty {time_text(self.uncertain_ns)}){with_it}{bound}"
        )


class Verdict(msgspec.Struct, frozen=True):
    """Which rank delays the others.

    Attributes:
        ranks:  that were compared.
        method: how their clocks were aligned.
        culprits: the ranks that delay others, those that cost most first.
        slow_groups: groups whose transfers are slow.
        steps:  per window and number of a step, who was latest in it, if others waited for it by a
            part of the step that matters: an observation, unless it has the pattern of a culprit.
            None: nobody, beyond the usual.
        compared: collectives that at least two ranks were seen in.
        reason:  where nobody is named: why, and what was seen.
        bound_ns: where no rank takes longer than its peers by a part of a step that matters: by how
            much at most; None where that is not known.
        limits:  what the verdict does not cover.
    """

    ranks: tuple[int, ...]
    method: str
    culprits: tuple[Finding, ...] = ()
    slow_groups: tuple[SlowGroup, ...] = ()
    steps: Mapping[Step, Finding | None] = msgspec.field(default_factory=dict)
    compared: int = 0
    reason: str = ""
    bound_ns: int | None = None
    limits: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """:data:`STRAGGLER`, :data:`SLOW_GROUP`, :data:`NOBODY` or :data:`INCONCLUSIVE`."""
        if self.culprits:
            return STRAGGLER
        if self.slow_groups:
            return SLOW_GROUP
        return INCONCLUSIVE if self.bound_ns is None else NOBODY

    @property
    def gain_ns(self) -> int:
        """What a step would be shorter by if all that are late were like their peers."""
        always = (one.gain_ns for one in self.culprits if one.pattern == CONSTANT)
        return max(always, default=0) + sum(
            one.gain_ns for one in self.culprits if one.pattern != CONSTANT
        )

    @property
    def late(self) -> tuple[Late, ...]:
        """The ranks that others wait for, and how long; of those that are late together, the one
        that they wait for longest."""
        found: list[Late] = []
        known: set[int] = set()
        for one in self.culprits:
            if one.rank not in known:
                known |= {one.rank, *one.together}
                others = tuple(rank for rank in self.ranks if rank != one.rank)
                found.append(Late(one.rank, others, one.gain_ns))
        return tuple(found)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        culprit = self.culprits[0] if self.culprits else None
        return {
            "schema_version": SCHEMA_VERSION,
            "ranks": list(self.ranks),
            "clock": self.method,
            "collectives": self.compared,
            "verdict": self.kind,
            "text": self.line(),
            "reason": self.reason,
            "bound_ns": self.bound_ns,
            "gain_ns": self.gain_ns if self.culprits else None,
            "culprit": culprit.as_dict() if culprit else None,
            "others": [one.as_dict() for one in self.culprits[1:]],
            "slow_groups": [one.as_dict() for one in self.slow_groups],
            "steps": [
                {"window": window, "step": number, "late": one.as_dict() if one else None}
                for (window, number), one in self.steps.items()
            ],
            "limits": list(self.limits),
        }

    def line(self) -> str:
        """Who it is, or why nobody: the same words everywhere."""
        if self.culprits:
            return f"straggler: {self.culprits[0].text()}"
        if self.slow_groups:
            return self.slow_groups[0].text()
        return f"{'inconclusive' if self.bound_ns is None else 'no straggler'}: {self.reason}"

    def lines(self) -> list[str]:
        """What people read, without the steps."""
        basis = f"{self.compared} collectives of {len(self.ranks)} ranks, clocks: {self.method}"
        lines = [basis, self.line()]
        lines += [f"also: {one.text()}" for one in self.culprits[1:]]
        named = [one.text() for one in self.slow_groups]
        lines += named if self.culprits else named[1:]
        return lines + [f"note: {limit}" for limit in self.limits]

    def step_lines(self) -> list[str]:
        """Who was latest in each step."""
        several = len({window for window, _ in self.steps}) > 1
        return [
            f"step {number}{f' of window {window}' if several else ''}: "
            + (one.text() if one else "nobody for certain")
            for (window, number), one in self.steps.items()
        ]


def judge(
    every: Sequence[RankSummary],
    clocks: Clocks,
    groups: Iterable[Matched] | None = None,
    material: float = MATERIAL,
) -> Verdict:
    """The verdict over all ranks.

    Args:
        every:  the summaries of all ranks.
        clocks: a plan of :mod:`traceconv.alignment.plan`.
        groups: their collectives, if these are matched already.
        material: the part of a step that others wait for, at least, where somebody is named.
    """
    by_rank = {one.rank: one for one in every}
    groups = tuple(matched([one.collectives for one in every]) if groups is None else groups)
    waits = Waits(by_rank, groups)
    looked_at = (Judged(one, by_rank) for one in programs(every, groups))
    found = [one for one in looked_at if one.where]
    among = np.sum([one.tests for one in found], axis=0).tolist() if found else []
    for one in found:
        one.judge(among, material)
    lengths = [one.program.step_ns for one in found] or [_step_ns(one) for one in every]
    step_ns = float(median([ns for ns in lengths if ns] or [0.0]))
    suspects = [suspect for one in found for suspect in one.suspects if _beyond(suspect)]
    replay = Replay.of(by_rank, waits, clocks) if suspects else None
    named = _named(suspects, waits, clocks, material, replay)
    slow = slow_groups(every, groups, material * step_ns) if step_ns else []
    steps = _by_step(found, waits, material)
    steps = {where: _as_named(one, named) for where, one in steps.items()}
    shape = stated_shape(every)
    named = [replace(one, coordinates=shape.label(one.rank)) for one in named]
    steps = {
        where: one and replace(one, coordinates=shape.label(one.rank))
        for where, one in steps.items()
    }
    late: dict[int, list[int]] = {}
    for step in filter(None, steps.values()):
        late.setdefault(step.rank, []).append(step.step)
    most = bound(found, len(by_rank), material)
    if named or slow or suspects:
        most = None
    why = ""
    if not (named or slow):
        why = reason(every, found, waits, suspects, late, len(steps), most, material)
    return Verdict(
        tuple(sorted(by_rank)),
        clocks.method,
        tuple(sorted(named, key=lambda one: (-one.gain_ns, one.rank))),
        tuple(slow),
        steps,
        sum(int(((group.row >= 0).sum(axis=1) >= 2).sum()) for group in groups),
        why,
        most,
        tuple(limits(every, found, waits, step_ns * material)),
    )


def _step_ns(one: RankSummary) -> float:
    """The mean step of a rank, by its collectives; 0 if it has none."""
    known = one.collectives
    if not len(known):
        return 0.0
    return float(known.end_ns.max() - known.start_ns.min()) / len(distinct(known.step))


# -- who is named -------------------------------------------------------------------------------


def _named(
    suspects: Sequence[Suspect],
    waits: Waits,
    clocks: Clocks,
    material: float,
    replay: Replay | None,
) -> list[Finding]:
    """Those for whom others wait, by a part of a step that matters."""
    by_rank: dict[int, list[Suspect]] = {}
    for one in sorted(suspects, key=lambda s: -s.excess_ns):
        by_rank.setdefault(one.rank, []).append(one)
    firsts = [found[0] for found in by_rank.values()]
    kept = {rank: found for rank, found in by_rank.items() if not usual(found[0], firsts)}
    best: dict[int, tuple[float, Suspect]] = {}
    beyond = {rank: stages_behind(found[0], waits) for rank, found in kept.items()}
    for _ in range(_ROUNDS):
        best = {}
        for rank, found in kept.items():
            always = [one for one in found if one.pattern == CONSTANT] or found
            behind = set(kept).union(*(beyond[r] for r in kept if r != rank))
            gains = [(gain(one, behind, waits), one) for one in always[:_TABLES]]
            best[rank] = max(gains, key=lambda pair: pair[0])
        if replay and best:
            best = _in_whole(best, replay)
        best = {
            rank: (most, one)
            for rank, (most, one) in best.items()
            if most >= material * one.judged.program.step_ns
        }
        if len(best) == len(kept):
            break
        kept = {rank: kept[rank] for rank in best}
    chosen = [one for _, one in best.values()]
    told = [_finding(one, most, chosen, waits, clocks) for most, one in best.values()]
    return [one for one in told if one is not None]


def _in_whole(
    best: Mapping[int, tuple[float, Suspect]], replay: Replay
) -> dict[int, tuple[float, Suspect]]:
    """Gains as far as they are gains of the job, where that is known."""
    whole = replay.gains([one for _, one in best.values()]).tolist()
    return {
        rank: (float(np.fmin(most, of_job)), one)
        for (rank, (most, one)), of_job in zip(best.items(), whole, strict=True)
    }


def _finding(
    one: Suspect, most: float, every: Sequence[Suspect], waits: Waits, clocks: Clocks
) -> Finding | None:
    """What is said of a rank; None if clocks say that it does not arrive late."""
    program = one.judged.program
    together = sorted(
        o.rank
        for o in every
        if o.judged is one.judged and o.pattern == one.pattern and o is not one
    )
    key, kind, rows = _where(one, waits, {one.rank, *together})
    arrival, error = waits.arrival(one.rank, key, clocks)
    late = values_at(arrival, rows)[one.late]
    shown = float(medians(late, 0).max(initial=-np.inf, where=~np.isnan(late).all(axis=0)))
    every_late = float(medians(np.nansum(np.maximum(late, 0), axis=1), 0))
    if error is not None and not together and every_late + error < _ARRIVES * most:
        return None
    numbers = [number for (_, number), hit in zip(program.steps, one.late, strict=True) if hit]
    return Finding(
        one.rank,
        one.pattern,
        key,
        kind,
        round(one.excess_ns),
        round(most),
        _uncertain(one),
        round(shown) if np.isfinite(shown) else None,
        _more_by_part(one.judged, one.table, one.column, one.late),
        tuple(numbers),
        int((~np.isnan(one.excess)).sum()),
        len(program.ranks) - 1,
        tuple(together),
        waits.incomplete(one.rank),
    )


def _beyond(one: Suspect) -> bool:
    """Whether what a rank does more in all steps is more than it may be off by."""
    return one.pattern != CONSTANT or one.excess_ns > _uncertain(one)


def _uncertain(one: Suspect) -> int:
    """How far what a rank does more per step may be off by chance, but once in a thousand times."""
    known = int((~np.isnan(one.excess)).sum())
    often = known if one.pattern == CONSTANT else int(one.late.sum())
    free = max(known - 1, 1) * len(one.judged.program.ranks) / 4  # of a median deviation
    error = _OF_MEDIANS * float(one.judged.found.noise[one.table]) * student(_SURE, max(free, 1.0))
    error *= math.sqrt(often) / known
    tested = float(one.judged.found.unsure[one.table, one.column])
    return round(min(error, tested) if one.judged.found.certain[one.table, one.column] else error)


def _where(one: Suspect, waits: Waits, behind: Collection[int]) -> tuple[str, str, NDArray[Any]]:
    """The group and the collective at which others wait most for a rank, and its rows in all
    collectives that count there: (steps, operations)."""
    index, place = one.judged.where[one.table]
    roles = one.judged.program.roles
    found: list[tuple[float, str, str, NDArray[Any]]] = []
    for role in roles if index < 0 else (roles[index],):
        gaps = waits.for_one(one.rank, role.keys[one.column], behind)
        places = range(len(role.kinds)) if place < 0 else (role.at[place],)
        for at in places:
            rows = role.rows[:, at, one.column]
            gap = values_at(gaps, rows)[one.late]
            known = gap[~np.isnan(gap)]
            wait = float(known.mean()) if len(known) else -1.0
            every = until_next(role, one.column) if place < 0 else rows[:, None]
            found.append((wait, role.keys[one.column], role.kinds[at], every))
    _, key, kind, rows = max(found, key=lambda each: each[0])
    return key, kind, rows


def _more_by_part(
    judged: Judged, table: int, column: int, late: NDArray[np.bool_]
) -> tuple[int, ...]:
    """What a rank did more than the others by part, in the steps in which it was late."""
    parts = judged.parts(table)
    more = [over_others(parts[..., part])[late, column] for part in range(len(PARTS))]
    middle = [float(medians(values, 0)) if len(values) else np.nan for values in more]
    return () if np.isnan(middle).any() else tuple(round(value) for value in middle)


# -- single steps -------------------------------------------------------------------------------


def _by_step(found: Sequence[Judged], waits: Waits, material: float) -> dict[Step, Finding | None]:
    """Per step, who is later than its peers beyond doubt, and others wait for it."""
    steps: dict[Step, Finding | None] = {step: None for one in found for step in one.program.steps}
    cells = sum(int((~np.isnan(one.found.more)).sum()) for one in found)
    times = normal_quantile(1 - _STEP / max(cells, 1))
    for one in found:
        if len(one.program.steps) < 2:
            continue  # nothing says how much is chance
        values = (one.found.steps - 1).clip(0).sum(axis=1) / 2  # a median error tells half as much
        sure = np.array([student(times, free) for free in values.tolist()])
        limit = np.maximum(material * one.program.step_ns, sure * one.found.noise)
        with np.errstate(invalid="ignore"):
            beyond = one.found.more > limit[:, None, None]
            if one.where[0] == (
                -1,
                -1,
            ):  # what ends the step before is at the first place of a step
                at_first = [i for i, (_, place) in enumerate(one.where) if place == 0]
                beyond[at_first] &= ~(one.found.more[0] < one.found.more[at_first] / 2)
        for row in np.flatnonzero(beyond.any(axis=(0, 2))).tolist():
            best = _latest(one, row, beyond[:, row], waits)
            known = steps[one.program.steps[row]]
            if best is not None and (known is None or best.gain_ns > known.gain_ns):
                steps[one.program.steps[row]] = best
    return dict(sorted(steps.items()))


def _as_named(one: Finding | None, named: Sequence[Finding]) -> Finding | None:
    """What was seen in a step, with the pattern that the verdict says it is part of."""
    for verdict in named:
        if one and verdict.rank == one.rank and one.step in verdict.late_steps:
            return replace(one, pattern=verdict.pattern)
    return one


def _latest(one: Judged, row: int, beyond: NDArray[np.bool_], waits: Waits) -> Finding | None:
    """Who is latest in one step of a program, if others wait for it."""
    more = np.where(beyond, one.found.more[:, row], -np.inf)
    table, column = np.unravel_index(int(np.argmax(more)), more.shape)
    late = np.zeros(len(one.program.steps), bool)
    late[row] = True
    excess = np.where(late, one.found.more[table][:, column], np.nan)
    suspect = Suspect(one, int(column), int(table), "", late, excess)
    wait = gain(suspect, (), waits)
    if wait < _ARRIVES * suspect.excess_ns:
        return None
    key, kind, _ = _where(suspect, waits, {suspect.rank})
    return Finding(
        suspect.rank,
        "",
        key,
        kind,
        round(suspect.excess_ns),
        round(wait),
        round(float(one.found.noise[table])),
        parts_ns=_more_by_part(one, int(table), int(column), late),
        peers=len(one.program.ranks) - 1,
        step=one.program.steps[row][1],
        late_steps=(one.program.steps[row][1],),
    )
