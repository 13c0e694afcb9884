"""Ranks that run the same program, step by step: what each of them did between the same operations.

A pipeline stage does not do what another does, and a step of evaluation not what one of training
does, so ranks are compared only within a stage, and only in steps in which they issued the same
operations in all of their groups. That needs no clocks: durations are compared. Which step of one
rank is which of another follows from collectives that were matched; step numbers alone say so only
where nothing was matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_matching import Matched
from traceconv.alignment.collective_records import P2P, UNKNOWN, CollectiveRecords
from traceconv.analysis.inferred_shape import recorded_stages
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.stragglers.own_work import OWN, PARTS
from traceconv.core.columns import F64, I32, I64
from traceconv.core.ordering import distinct, factored
from traceconv.core.robust import median

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Kinds in which not everybody waits for everybody."""

_ASYNCHRONOUS = 0.1  # of an operation, hidden by computing: nobody waits for it where it begins
_REGULAR = 0.9  # share of operations that repeat after a period, where steps are not marked

Step = tuple[int, int]
"""Recording window and number of a step, as the first rank of those that match counts."""


class Role(msgspec.Struct, frozen=True):
    """The groups of all ranks of a program that do the same in it, such as their tensor groups.

    Axes are steps, then places or operations, then ranks.

    Attributes:
        keys:  of the group, per rank.
        kinds: of its operations in a step.
        at:    per place, the operation that ends it. A place lasts from the start of an operation
            for which ranks wait to the start of the next such; the first, from that of the last
            step.
        parts: (steps, places, ranks, parts), ns: see :data:`.own_work.PARTS`; NaN where unknown.
        rows:  (steps, operations, ranks): in the rank's records, -1 where it has none.
    """

    keys: tuple[str, ...]
    kinds: tuple[str, ...]
    at: tuple[int, ...]
    parts: F64
    rows: I32

    @property
    def own(self) -> F64:
        """(steps, places, ranks): how long a rank worked by itself, ns."""
        own: F64 = self.parts[..., :OWN].sum(axis=3)
        return own


class Program(msgspec.Struct, frozen=True):
    """What ranks of one stage do in all steps that are alike.

    Attributes:
        ranks: that do.
        steps: in which at least two do, in the order of time.
        roles: of their groups that issue collectives.
        whole: (steps, ranks, parts), ns: of the whole step; NaN where it is not marked.
        step_ns: usual time from one step to the next, or within one, if there are no two.
    """

    ranks: tuple[int, ...]
    steps: tuple[Step, ...]
    roles: tuple[Role, ...]
    whole: F64
    step_ns: float


def programs(every: Sequence[RankSummary], groups: Iterable[Matched]) -> list[Program]:
    """All programs that at least two ranks of a stage run.

    Args:
        every:  the summaries of all ranks.
        groups: their collectives, matched.
    """
    groups = tuple(groups)
    tokens: dict[tuple[object, ...], int] = {}
    known = {
        one.rank: _Steps(one, tokens) for one in every if len(one.work.before_ns) and one.work.told
    }
    numbering = _Numbering(known, groups)
    found = []
    for stage in _stages(every):
        ranks = [known[rank] for rank in stage if rank in known]
        if len(ranks) > 1:
            found += list(_programs(ranks, numbering, _across(every, stage)))
    return found


# -- the steps of one rank ----------------------------------------------------------------------


class _Steps:
    """The operations of one rank by step and group.

    A *segment* is a run of rows: what one group did in one step. Attributes named in the plural
    are columns: of segments (``first_row``, ``length``, ``role``, ``step_of``) or of steps.
    """

    def __init__(self, summary: RankSummary, tokens: dict[tuple[object, ...], int]) -> None:
        self.summary, self.records, self.work = summary, summary.collectives, summary.work
        self.rank = summary.rank
        one = self.records
        self.token = _tokens(one, tokens)
        number = one.step if self.work.marked else _repeated(one, self.token)
        window = self.work.window
        key = (window.astype(np.int64) << 32) + number
        rows = np.flatnonzero(number >= 0)
        self.keys, at = factored(key[rows])
        self.windows, self.numbers = (self.keys >> 32), (self.keys & 0xFFFFFFFF)
        self.number, self.window = number, window
        self.step = np.full(len(one), -1, np.int64)
        self.step[rows] = at
        self._segments(tokens)

    def _segments(self, tokens: dict[tuple[object, ...], int]) -> None:
        one = self.records
        change = np.ones(len(one), bool)
        change[1:] = (one.group[1:] != one.group[:-1]) | (self.step[1:] != self.step[:-1])
        first = np.flatnonzero(change)
        length = np.diff(first, append=len(one))
        kept = self.step[first] >= 0
        first, length = first[kept], length[kept]
        order = np.lexsort((one.start_ns[first], self.step[first]))  # groups as steps use them
        self.first_row, self.length = first[order], length[order]
        self.step_of = self.step[self.first_row]
        self.group_of = one.group[self.first_row]
        self.role = np.zeros(len(order), np.int64)
        self.program = np.full(len(self.keys), -1, np.int64)
        size = [group.size for group in one.groups]
        borders = np.searchsorted(self.step_of, np.arange(len(self.keys) + 1))
        for step, (low, high) in enumerate(pairwise(borders.tolist())):
            used: Counter[int] = Counter()
            for at in range(low, high):
                a = int(self.first_row[at])
                words = self.token[a : a + int(self.length[at])].tobytes()
                number = tokens.setdefault(("group", size[self.group_of[at]], words), len(tokens))
                # groups that do the same are told apart by their order
                self.role[at] = tokens.setdefault(("role", number, used[number]), len(tokens))
                used[number] += 1
            if len(set(self.group_of[low:high].tolist())) == high - low:
                every = ("step", *sorted(self.role[low:high].tolist()))
                self.program[step] = tokens.setdefault(every, len(tokens))

    @property
    def previous(self) -> I64:
        """Per step, the step before it if that is the number before in the same window, else -1."""
        index = np.arange(len(self.keys))
        before = np.full(len(self.keys), -1, np.int64)
        follows = np.diff(self.keys) == 1
        before[1:][follows] = index[:-1][follows]
        return before

    def openings(self, rows: I64) -> F64:
        """(rows, parts): the time from the start of the step, of those operations that are the
        first of their group in a window; NaN of others."""
        found = np.full((len(rows), len(PARTS)), np.nan)
        seen = np.isin(rows, self.work.opened)
        found[seen] = self.work.opening_ns[np.searchsorted(self.work.opened, rows[seen])]
        return found

    @property
    def begins(self) -> I64:
        """When the first operation of each step starts."""
        first = np.searchsorted(self.step_of, np.arange(len(self.keys)))
        starts: I64 = self.records.start_ns[self.first_row[first]]
        return starts


def _tokens(one: CollectiveRecords, tokens: dict[tuple[object, ...], int]) -> I32:
    """A number per operation, equal on all ranks for the same kind and size."""
    if not len(one):
        return np.zeros(0, np.int32)
    pairs = np.stack((one.kind.astype(np.int64), one.size), axis=1)
    different, which = np.unique(pairs, axis=0, return_inverse=True)
    numbers = [
        tokens.setdefault(("operation", one.kinds[kind], size), len(tokens))
        for kind, size in different.tolist()
    ]
    return np.array(numbers, np.int32)[which.reshape(-1)]


def _repeated(one: CollectiveRecords, token: I32) -> I32:
    """Numbers of steps where the source marks none: of what repeats in the order of operations.

    All -1 if nothing does at least three times.
    """
    number = np.full(len(one), -1, np.int32)
    order = np.argsort(one.start_ns, kind="stable")
    words = np.stack((one.group[order], token[order]), axis=1)
    period = _period(words)
    if not period:
        return number
    size = np.array([group.size for group in one.groups])[words[:, 0]]
    # the operation that ends a step: the same on all ranks, so the rarest, whatever its group
    last: dict[tuple[int, int], list[int]] = {}
    for group, kind, ranks in zip(*words.T.tolist(), size.tolist(), strict=True):
        last.setdefault((kind, ranks), []).append(group)
    rarest = min(last, key=lambda word: (len(last[word]), word))
    ends = (words[:, 1] == rarest[0]) & (size == rarest[1])
    if ends.sum() > 1.2 * len(words) / period + 1:  # none is there once per period
        number[order] = np.arange(len(words)) // period
        return number
    number[order] = np.cumsum(ends) - ends
    return number


def _period(words: NDArray[np.int32]) -> int:
    """After how many rows they repeat, 0 if they do not three times."""
    for period in range(1, len(words) // 3 + 1):
        if (words[period] == words[0]).all() or period == 1:
            same = (words[period:] == words[:-period]).all(axis=1)
            if same.mean() >= _REGULAR:
                return period
    return 0


# -- which step is which ------------------------------------------------------------------------

_Node = tuple[int, int]
"""A rank and one of its windows."""


class _Numbering:
    """Which number of one rank's steps is which of another's: differences that most matched
    operations agree on, the best known first."""

    def __init__(self, known: Mapping[int, _Steps], groups: Sequence[Matched]) -> None:
        self._parent: dict[_Node, _Node] = {}
        self._ahead: dict[_Node, int] = {}  # of the number of the parent
        links = [link for group in groups for link in self._links(known, group)]
        for _, one, other, ahead in sorted(links, key=lambda link: -link[0]):
            self._join(one, other, ahead)

    @staticmethod
    def _links(
        known: Mapping[int, _Steps], group: Matched
    ) -> Iterator[tuple[int, _Node, _Node, int]]:
        base = known.get(group.ranks[group.base])
        for column, rank in enumerate(group.ranks):
            other = known.get(rank)
            if base is None or other is None or column == group.base:
                continue
            ours, theirs = group.row[:, group.base], group.row[:, column]
            both = (ours >= 0) & (theirs >= 0)
            a, b = ours[both], theirs[both]
            both = (base.number[a] >= 0) & (other.number[b] >= 0)
            a, b = a[both], b[both]
            seen = np.stack(
                (base.window[a], other.window[b], other.number[b] - base.number[a]), axis=1
            )
            rows, count = np.unique(seen, axis=0, return_counts=True)
            for (mine, its, ahead), weight in zip(rows.tolist(), count.tolist(), strict=True):
                yield weight, (base.rank, mine), (rank, its), ahead
            if base.work.marked and other.work.marked:
                for window in sorted(set(base.windows.tolist()) & set(other.windows.tolist())):
                    yield 0, (base.rank, window), (rank, window), 0

    def _root(self, node: _Node) -> tuple[_Node, int]:
        """Its component, and how far it is ahead of the numbers of that."""
        ahead = 0
        while node in self._parent:
            ahead += self._ahead[node]
            node = self._parent[node]
        return node, ahead

    def _join(self, one: _Node, other: _Node, ahead: int) -> None:
        a, of_a = self._root(one)
        b, of_b = self._root(other)
        if a == b:
            return
        # other = one + ahead, so root b = root a + of_a + ahead - of_b
        between = of_a + ahead - of_b
        if b < a:
            a, b, between = b, a, -between
        self._parent[b], self._ahead[b] = a, between

    def of(self, one: _Steps) -> list[tuple[_Node, int]]:
        """The steps of a rank: the component of its window, and the number in that."""
        windows = {w: self._root((one.rank, w)) for w in distinct(one.windows).tolist()}
        return [
            (windows[window][0], number - windows[window][1])
            for window, number in zip(one.windows.tolist(), one.numbers.tolist(), strict=True)
        ]


# -- who does the same --------------------------------------------------------------------------


class _Sets:
    """Sets that are joined."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def of(self, one: int) -> int:
        while (up := self._parent.get(one, one)) != one:
            self._parent[one] = self._parent.get(up, up)
            one = up
        return one

    def join(self, many: Sequence[int]) -> None:
        for other in many[1:]:
            a, b = sorted((self.of(many[0]), self.of(other)))
            self._parent[b] = a


def _stages(every: Sequence[RankSummary]) -> list[list[int]]:
    """The ranks of each pipeline stage: as recorded, else as collectives connect them.

    In the latter case ranks that exchange messages are taken for different stages, and a group with
    two of them spans stages.
    """
    recorded = recorded_stages(every)
    if recorded:
        return recorded
    members: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    named: dict[str, bool] = {}
    messages: set[str] = set()
    world = max((one.world_size for one in every), default=UNKNOWN)
    for one in every:
        known = one.collectives
        sent = {known.group[i] for i in np.flatnonzero(known.messages).tolist()}
        for index, group in enumerate(known.groups):
            members.setdefault(group.key, []).append(one.rank)
            size[group.key] = max(size.get(group.key, UNKNOWN), group.size)
            named[group.key] = group.named
            if index in sent:
                messages.add(group.key)
    pipelines = _Sets()
    for key in messages:
        pipelines.join(members[key])
    stages = _Sets()
    for key, ranks in members.items():
        apart = len({pipelines.of(rank) for rank in ranks}) == len(ranks)
        across = bool(messages) and (size[key] == world > 0 or not named[key])
        if key not in messages and apart and not across:
            stages.join(ranks)
    found: dict[int, list[int]] = {}
    for one in every:
        found.setdefault(stages.of(one.rank), []).append(one.rank)
    return list(found.values())


def _across(every: Sequence[RankSummary], stage: Sequence[int]) -> set[str]:
    """The groups that a rank outside of the stage is in, too."""
    inside = set(stage)
    return {
        group.key for one in every if one.rank not in inside for group in one.collectives.groups
    }


# -- side by side -------------------------------------------------------------------------------


def _programs(
    ranks: Sequence[_Steps], numbering: _Numbering, across: Collection[str]
) -> Iterator[Program]:
    steps = [numbering.of(one) for one in ranks]
    seen: dict[int, Counter[tuple[_Node, int]]] = {}
    for one, numbers in zip(ranks, steps, strict=True):
        for program, number in zip(one.program.tolist(), numbers, strict=True):
            if program >= 0:
                seen.setdefault(program, Counter())[number] += 1
    shared = {
        program: sorted(number for number, count in counts.items() if count > 1)
        for program, counts in seen.items()
    }
    # what came before a step is known if another rank did the same before it
    before = _before(ranks, steps)
    length = _step_ns(ranks)
    for program, numbers in sorted(shared.items()):
        where = {number: row for row, number in enumerate(numbers)}
        taking = [
            (one, _positions(one, program, mine, where))
            for one, mine in zip(ranks, steps, strict=True)
        ]
        taking = [(one, at) for one, at in taking if len(at)]
        if len(taking) > 1:
            roles = tuple(_roles(taking, len(numbers), before, across))
            yield Program(
                tuple(one.rank for one, _ in taking),
                tuple((node[1], number) for node, number in numbers),
                roles,
                _whole(taking, len(numbers)),
                length,
            )


def _whole(taking: Sequence[tuple[_Steps, I64]], steps: int) -> F64:
    found = np.full((steps, len(taking), len(PARTS)), np.nan)
    for column, (one, at) in enumerate(taking):
        numbers = one.work.steps
        if not len(numbers):
            continue
        keys = (numbers[:, 0] << 32) + numbers[:, 1]
        order = np.argsort(keys, kind="stable")
        key = one.keys[at[:, 0]]
        row = order[np.minimum(np.searchsorted(keys[order], key), len(keys) - 1)]
        same = keys[row] == key
        found[at[same, 1], column] = one.work.in_step_ns[row[same]]
    return found


def _positions(
    one: _Steps,
    program: int,
    numbers: Sequence[tuple[_Node, int]],
    where: Mapping[tuple[_Node, int], int],
) -> I64:
    """(n, 2): the steps of a rank that run a program, and their rows in what all ranks share."""
    found = [
        (step, where[numbers[step]])
        for step in np.flatnonzero(one.program == program).tolist()
        if numbers[step] in where
    ]
    return np.array(found, np.int64).reshape(-1, 2)


def _before(
    ranks: Sequence[_Steps], steps: Sequence[Sequence[tuple[_Node, int]]]
) -> dict[int, NDArray[np.bool_]]:
    """Per rank and step: whether the step before it is known, and what most did there."""
    did: dict[tuple[_Node, int], Counter[int]] = {}
    for one, numbers in zip(ranks, steps, strict=True):
        for step, previous in enumerate(one.previous.tolist()):
            if previous >= 0 and one.program[previous] >= 0:
                did.setdefault(numbers[step], Counter())[int(one.program[previous])] += 1
    most = {number: counts.most_common(1)[0] for number, counts in did.items()}
    found = {}
    for one, numbers in zip(ranks, steps, strict=True):
        usual = np.zeros(len(numbers), bool)
        for step, previous in enumerate(one.previous.tolist()):
            if previous >= 0 and numbers[step] in most:
                program, count = most[numbers[step]]
                usual[step] = count > 1 and one.program[previous] == program
        found[one.rank] = usual
    return found


def _step_ns(ranks: Sequence[_Steps]) -> float:
    apart = [np.diff(one.begins)[one.previous[1:] >= 0] for one in ranks if len(one.keys)]
    every = np.concatenate(apart) if apart else np.zeros(0)
    if len(every):
        return float(median(every))
    spans = [float(one.records.end_ns.max() - one.records.start_ns.min()) for one in ranks]
    return float(median(spans))


def _roles(
    taking: Sequence[tuple[_Steps, I64]],
    steps: int,
    before: Mapping[int, NDArray[np.bool_]],
    across: Collection[str],
) -> Iterator[Role]:
    """Those of groups within the stage in which ranks wait for each other."""
    first, at = taking[0]
    mine = np.flatnonzero(first.step_of == at[0, 0])
    for segment in mine.tolist():
        role, length = int(first.role[segment]), int(first.length[segment])
        a = int(first.first_row[segment])
        kinds = tuple(first.records.kinds[k] for k in first.records.kind[a : a + length].tolist())
        if P2P in kinds or all(kind in _ROOTED for kind in kinds):
            continue
        found = _role(role, length, kinds, taking, steps, before)
        if not any(key in across for key in found.keys):
            yield found


def _role(
    role: int,
    length: int,
    kinds: tuple[str, ...],
    taking: Sequence[tuple[_Steps, I64]],
    steps: int,
    before: Mapping[int, NDArray[np.bool_]],
) -> Role:
    shape = (steps, length, len(taking))
    rows = np.full(shape, -1, np.int32)
    parts = np.full((*shape, len(PARTS)), np.nan)
    inside, hidden = np.zeros(shape), np.zeros(shape)
    opening = np.full((steps, len(taking), len(PARTS)), np.nan)
    opens = np.ones(steps, bool)
    follows = np.full((steps, len(taking)), -1, np.int64)
    keys = []
    for column, (one, at) in enumerate(taking):
        segments = np.flatnonzero((one.role == role) & np.isin(one.step_of, at[:, 0]))
        step = one.step_of[segments]
        into = at[np.searchsorted(at[:, 0], step), 1]
        start = one.first_row[segments]
        keys.append(one.records.groups[int(one.group_of[segments[0]])].key)
        row = start[:, None] + np.arange(length)
        rows[into, :, column] = row
        spent = one.work.before_ns[row].astype(np.float64)
        spent[(spent < 0).any(axis=2)] = np.nan
        # the first is known if the one before it is the last of the step before
        previous = one.previous[step]
        last = one.step[np.maximum(start - 1, 0)]
        spent[(last != previous) | (previous < 0) | ~before[one.rank][step], 0] = np.nan
        parts[into, :, column] = spent
        opening[into, column] = one.openings(start)
        opens[into] &= previous < 0
        inside[into, :, column] = one.records.end_ns[row] - one.records.start_ns[row]
        hidden[into, :, column] = one.work.hidden_ns[row]
        row_of = np.full(len(one.keys), -1, np.int64)
        row_of[at[:, 0]] = at[:, 1]
        follows[into, column] = np.where(previous >= 0, row_of[previous], -1)
    # where nobody has a step before, all count from the start of this one
    parts[opens, 0] = opening[opens]
    ends = _waited_for(inside, hidden)
    return Role(tuple(keys), kinds, ends, _places(parts, ends, follows, opens), rows)


def _waited_for(inside: F64, hidden: F64) -> tuple[int, ...]:
    """The operations at which ranks wait: the first of a step, and all that nothing hides."""
    spent, less = (values.sum(axis=(0, 2)) for values in (inside, hidden))
    waits = less <= _ASYNCHRONOUS * spent
    return tuple(i for i in range(len(waits)) if i == 0 or waits[i])


def _places(parts: F64, ends: Sequence[int], follows: I64, opens: NDArray[np.bool_]) -> F64:
    """What ranks did at each place: operations that nobody waits for belong to the next."""
    inner = parts.copy()
    inner[:, 0] = 0
    upto = np.cumsum(inner, axis=1)
    found = np.diff(upto[:, list(ends)], axis=1, prepend=0)
    found[:, 0] = parts[:, 0]
    if ends[-1] < parts.shape[1] - 1:  # the rest of the step before
        rest = upto[:, -1] - upto[:, ends[-1]]
        column = np.arange(parts.shape[2])
        before = rest[np.maximum(follows, 0), column]
        before[follows < 0] = np.nan
        before[opens] = 0.0  # counts from where its step begins
        found[:, 0] += before
    return found
