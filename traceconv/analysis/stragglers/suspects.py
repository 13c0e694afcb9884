"""Ranks that do more than their peers, and how long others wait for them for that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.own_work import OWN
from traceconv.analysis.stragglers.peers import Program, Role
from traceconv.analysis.stragglers.significance import RECURS, compared, recurring, tests
from traceconv.analysis.stragglers.waits import Waits
from traceconv.core.columns import F64, I32, I64
from traceconv.core.robust import median

CONSTANT, INTERMITTENT = "constant", "intermittent"
"""Patterns: late in most steps, and in some."""

_ALWAYS = 0.6  # of the steps: from there on a rank is late in all that matters
_LATE = 1.5  # times the usual scatter: values that may be what makes a rank late
_RESTS = 0.25  # of what it is late by, at most, a rank that is late in some steps is in others
_HEAPS = 4.5  # standard deviations between two heaps; between the halves of one there are about 3
_STANDS_OUT = 3.0  # times that: what is looked at where not all steps are late
_MINORITY = 0.5  # of the ranks of a program may be slower than the others, or roles differ


class Suspect(msgspec.Struct, frozen=True):
    """A rank that does more than its peers.

    Attributes:
        judged: the program; column: of the rank in it; table: where it is seen best.
        late:   (steps,): in which it is late.
        excess: (steps,): what it did more than usual there, NaN where unknown.
    """

    judged: Judged
    column: int
    table: int
    pattern: str
    late: NDArray[np.bool_]
    excess: F64

    @property
    def rank(self) -> int:
        return self.judged.program.ranks[self.column]

    @property
    def excess_ns(self) -> float:
        """Per step."""
        return float(np.nanmean(self.excess))


class Judged:
    """A program, and what is made of it."""

    def __init__(self, program: Program, every: Mapping[int, RankSummary]) -> None:
        self.program = program
        self._every = every
        self.where: list[tuple[int, int]] = []  # role and place, -1 for all of them
        tables = []
        whole = program.whole[..., :OWN].sum(axis=2)
        known = int((~np.isnan(whole)).sum())
        if known:
            tables.append(whole)
            self.where.append((-1, -1))
        for index, role in enumerate(program.roles):
            own = role.own
            if own.shape[1] > 1:
                tables += [own[:, place] for place in range(own.shape[1])]
                self.where += [(index, place) for place in range(own.shape[1])]
            total = own.sum(axis=1)
            if int((~np.isnan(total)).sum()) > known:  # else it is the same once more
                tables.append(total)
                self.where.append((index, -1))
        shape = (0, len(program.steps), len(program.ranks))
        self.table: F64 = np.stack(tables) if tables else np.zeros(shape)
        #: (tables,): 0 of whole steps, 1 of places in them
        self.kind: NDArray[np.intp] = np.array([place >= 0 for _, place in self.where], np.intp)
        self.suspects: list[Suspect] = []

    def records(self, column: int) -> I64:
        """Starts of the operations of a rank."""
        return self._every[self.program.ranks[column]].collectives.start_ns

    @property
    def tests(self) -> NDArray[np.intp]:
        """(2,): how many ranks are looked at in tables of each kind."""
        looked_at, kind = tests(self.table), self.kind
        return np.array([looked_at[kind == one].sum() for one in range(2)], np.intp)

    def judge(self, among: Sequence[int], material: float) -> None:
        """Find those that do more than their peers."""
        self.found = compared(self.table, self.kind, among)
        limit = material * self.program.step_ns
        certain, recurs = self.found.certain, self._recurring(limit)
        for table, column in np.argwhere(certain | recurs).tolist():
            one = self._pattern(column, table, bool(recurs[table, column]))
            if one is None or one.excess_ns < limit:
                continue
            # what is large in some steps says nothing of those in which it is not
            if one.pattern == INTERMITTENT or certain[table, column]:
                self.suspects.append(one)

    def _recurring(self, limit: float) -> NDArray[np.bool_]:
        """(tables, ranks): who is late in some steps, more often than chance explains."""
        numbers = np.array([number for _, number in self.program.steps], np.int64)
        found = np.zeros((len(self.where), len(self.program.ranks)), bool)
        places = int(self.kind.sum())
        for table, more in enumerate(self.found.more):
            least_ns = max(limit, _STANDS_OUT * self.found.noise[table])
            level = RECURS / 2 / (places if self.kind[table] else 1)
            with np.errstate(invalid="ignore"):
                often = (more > least_ns).sum(axis=0)
            for column in np.flatnonzero(often >= 2).tolist():
                chance = recurring(more, column, numbers, least_ns)
                found[table, column] = chance < level
        return found

    def parts(self, table: int) -> F64:
        """(steps, ranks, parts): what a table is the sum of."""
        index, place = self.where[table]
        if index < 0:
            return self.program.whole
        parts = self.program.roles[index].parts
        return parts.sum(axis=1) if place < 0 else parts[:, place]

    def _pattern(self, column: int, table: int, recurs: bool) -> Suspect | None:
        """In which steps a rank is late: in most, or in some, if what is large ``recurs`` there or
        is clearly apart from the rest; None if it is late once."""
        more = self.found.more[table][:, column]
        known = ~np.isnan(more)
        with np.errstate(invalid="ignore"):
            large = more > _LATE * self.found.noise[table]
            if not large.any():
                large = more > 0
            if not large.any():
                return None
            level = float(median(more[large]))
            late = more > level / 2
        rest = float(median(more[known & ~late])) if (known & ~late).any() else level
        always = late.sum() >= _ALWAYS * known.sum() or rest > _RESTS * level
        if always or not (recurs or _apart(more[known & late], more[known & ~late])):
            excess = np.where(known, self.found.usual[table, column], np.nan)
            return Suspect(self, column, table, CONSTANT, late, excess)
        if late.sum() < 2:
            return None
        excess = np.where(known, np.where(late, np.maximum(more - max(rest, 0), 0), 0), np.nan)
        return Suspect(self, column, table, INTERMITTENT, late, excess)


def _apart(late: F64, rest: F64) -> bool:
    """Whether values are two heaps, not two parts of one."""
    squares = late.var() * len(late) + rest.var() * len(rest)
    within = float(np.sqrt(squares / max(len(late) + len(rest) - 2, 1)))
    return bool(late.mean() - rest.mean() > _HEAPS * within)


# -- who is waited for --------------------------------------------------------------------------


def usual(one: Suspect, every: Sequence[Suspect]) -> bool:
    """Whether so many of its peers are suspected that what they do is no exception."""
    ranks = len(one.judged.program.ranks)
    alike = sum(other.judged is one.judged for other in every)
    return ranks > 2 and alike >= _MINORITY * ranks


def gain(one: Suspect, others: Collection[int], waits: Waits) -> float:
    """What the peers of a rank would gain per step if it did as they do: what it does more, as far
    as those wait who did not come late with it; 0 if nobody was seen to."""
    program = one.judged.program
    index, place = one.judged.where[one.table]
    if index < 0:
        return max((_first_gain(one, r, None, others, waits) for r in program.roles), default=0.0)
    role = program.roles[index]
    if place < 0:
        return _first_gain(one, role, slice(None), others, waits)
    at = slice(role.at[place - 1] + 1 if place else 0, role.at[place] + 1)
    return _first_gain(one, role, at, others, waits)


def stages_behind(one: Suspect, waits: Waits) -> set[int]:
    """The ranks of other stages that get messages late because of a rank: from itself, or from
    those that wait for it before they send."""
    program, behind = one.judged.program, {one.rank}
    for role in program.roles:
        rows = role.rows[(role.rows[:, 0, one.column] >= 0).argmax(), :, one.column]
        if rows.min() >= 0 and waits.exchanges(one.rank, int(rows[0]), int(rows[-1])):
            behind |= _met(program, role, behind)
    return waits.partners(behind) - set(program.ranks)


def _first_gain(
    one: Suspect, role: Role, at: slice | None, others: Collection[int], waits: Waits
) -> float:
    """The same, if others meet it in a group of one role first."""
    program = one.judged.program
    behind = {one.rank, *others}
    waited = [_waited(one, role, behind, waits, at)]
    behind |= _met(program, role, behind)
    for wider in _following(one, role):
        waited.append(_waited(one, wider, behind, waits, None))
        behind |= _met(program, wider, behind)
    known = [values for values in waited if not np.isnan(values).all()]
    if not known:
        return 0.0
    per_step = np.fmin.reduce(known)
    return float(np.nanmean(np.where(np.isnan(one.excess), np.nan, per_step)))


def _waited(
    one: Suspect, role: Role, behind: Collection[int], waits: Waits, at: slice | None
) -> F64:
    """(steps,): how long others wait for what a rank does more; NaN where that is unknown.

    Args:
        at: for which operations, None for all of a step.
    """
    rows = role.rows[:, at or slice(None), one.column]
    if at is None and one.pattern != CONSTANT:
        rows = until_next(role, one.column)
    gap = values_at(waits.for_one(one.rank, role.keys[one.column], behind), rows)
    known = ~np.isnan(gap).all(axis=1)
    return np.where(known, np.minimum(one.excess, np.nansum(gap, axis=1)), np.nan)


def until_next(role: Role, column: int) -> I32:
    """(steps, operations + 1): rows of the operations of a rank, and of the first of the next step:
    what happens after the last shows there."""
    rows = role.rows[:, :, column]
    return np.hstack((rows, np.append(rows[1:, 0], np.int32(-1))[:, None]))


def values_at(values: F64, rows: I32) -> F64:
    """Values of the operations of a rank; NaN where a row is -1."""
    found: F64 = np.where(rows >= 0, values[np.maximum(rows, 0)], np.nan)
    return found


def _met(program: Program, role: Role, behind: Collection[int]) -> set[int]:
    """All that are in a group of this role with one of those that are behind."""
    keys = {key for key, rank in zip(role.keys, program.ranks, strict=True) if rank in behind}
    return {rank for key, rank in zip(role.keys, program.ranks, strict=True) if key in keys}


def _following(one: Suspect, role: Role) -> list[Role]:
    """The other roles, in the order in which the rank meets their groups after those of one."""
    program = one.judged.program
    index, place = one.judged.where[one.table]
    records = one.judged.records(one.column)
    step = int(np.argmax(role.rows[:, 0, one.column] >= 0))
    mine = records[role.rows[step, role.at[max(place, 0)] if index >= 0 else 0, one.column]]
    rest = [other for other in program.roles if other is not role]
    apart = {
        id(other): (records[other.rows[step, 0, one.column]] - mine) % max(program.step_ns, 1.0)
        for other in rest
    }
    return sorted(rest, key=lambda other: apart[id(other)])
