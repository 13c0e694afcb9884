"""The coordinates of the ranks of a job, from their summaries: recorded, else inferred.

Members, kinds, sizes and times of collectives allow few inferences, because most traffic has more
than one explanation: an all-to-all belongs to experts or to context parallelism, gathering and
scattering per layer to tensor parallelism with sequences or to sharded data parallelism. Inferred
are

* ``dp``: a group that reduces (all-reduces, or reduce-scatters and then all-gathers) in the later
  part of every step only, among other communication that begins the step. Its ranks have no other
  group with each other: gradients are reduced over the ranks of one context, and of experts, too.
  Nor is there another group that gathers, scatters or reduces, but for that of ``tp``: it could
  share the data, too;
* ``tp``: a group with several times as many all-reduces, all of one size, that occur throughout
  the step, across the groups of ``dp``;
* ``pp``: a group of point-to-point operations only, whose ranks share no other group: ranks of one
  context also use point-to-point operations, but reduce their gradients together.

Groups that move a few numbers (norms, flags) do not count. Each axis needs steps that are marked,
known members and sizes, one such group for every rank, all of one size; else it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from traceconv.alignment.collective_records import P2P, CollectiveRecords
from traceconv.alignment.messages import messages
from traceconv.analysis.rank_summary import RankSummary
from traceconv.core.columns import I32, I64, UNKNOWN, Mask
from traceconv.core.job_shape import (
    DATA,
    REPLICATE,
    SHARD,
    STAGE,
    Axis,
    JobShape,
    Origin,
    recorded_shape,
    shape_of,
)

EARLIEST_REDUCTION = 0.3
"""Share of a step, in time, before which no gradient is reduced, and some activations are: backward
takes about twice as long as forward."""

TIMES_AS_MANY = 3
"""All-reduces of activations per reduction of gradients, at least."""

OF_ONE_SIZE = 0.8
"""Share of the all-reduces of activations that have the same size; the rest is of the loss."""

BEFORE_REDUCTION = 0.25
"""Share of them that come before the first reduction of gradients of a step."""

SLIGHT_BYTES = 4096
"""Operations that move at most this much carry norms, losses and flags. A step has few ..."""

SLIGHT_OPERATIONS = 8
"""... and no more than this."""

_REDUCTIONS = ("allreduce", "reducescatter")
_SHARING = (*_REDUCTIONS, "allgather")


def job_shape(summaries: Iterable[RankSummary]) -> JobShape:
    """The coordinates of the ranks in the job: as their captures state them, else inferred.

    Only summaries with collectives can tell what is not stated.
    """
    every = sorted(summaries, key=lambda one: one.rank)
    stated = stated_shape(every)
    known = {axis.name for axis in stated.axes if axis.origin is Origin.RECORDED}
    if known & {REPLICATE, SHARD}:  # which of them reduces is not all of data parallelism
        known.add(DATA)
    inferred = [one for one in _inferred(every) if one[0].name not in known]
    if not inferred:
        return stated
    names = {axis.name for axis, _ in inferred}
    columns = zip(stated.axes, stated.places, strict=True)
    kept = [(axis, places) for axis, places in columns if axis.name not in names]
    return shape_of(stated.captured, [*kept, *inferred])


def stated_shape(summaries: Iterable[RankSummary]) -> JobShape:
    """The coordinates of the ranks in the job, as their captures state them."""
    every = list(summaries)
    return recorded_shape(
        {one.rank: one.placement for one in every}, {one.rank: one.host for one in every}
    )


def same_role(summaries: Sequence[RankSummary]) -> list[list[int]]:
    """Ranks that do the same: those of each pipeline stage, as captures state it of all, else as
    communication connects them."""
    by_stage = stated_shape(summaries).ranks_by(STAGE)
    return _connected(summaries) if -1 in by_stage or not by_stage else list(by_stage.values())


# -- what groups tell -----------------------------------------------------------------------------

_Members = tuple[int, ...]


class _Traffic(msgspec.Struct, frozen=True):
    """The operations of one rank in all groups of the same members, in its whole steps.

    Attributes:
        kinds: names of the kinds of operations.
        kind, size, step: int per operation.
        place: when it began: 0 is the last communication of the previous step, 1 the last of its
            step.
        steps: how many there are in all.
    """

    kinds: tuple[str, ...]
    kind: I32
    size: I64
    step: I32
    place: np.ndarray[tuple[int], np.dtype[np.float64]]
    steps: int

    def of(self, *names: str) -> Mask:
        """Operations of these kinds."""
        rows: Mask = np.isin(self.kind, [i for i, one in enumerate(self.kinds) if one in names])
        return rows

    @property
    def is_slight(self) -> bool:
        """Whether it moves a few numbers."""
        known = (self.size >= 0) & (self.size <= SLIGHT_BYTES)
        return bool(known.all()) and len(known) <= SLIGHT_OPERATIONS * self.steps

    @property
    def is_messages(self) -> bool:
        return bool(self.of(P2P).all())

    @property
    def reduces_late(self) -> bool:
        """Whether it reduces in every step, and all it does, maybe gathering what was reduced, is
        late in the step. What gathers early may be sharded data, or keys of one context."""
        rows = self.of(*_REDUCTIONS)
        alone = self.of(*_SHARING).all() and (self.size[rows] > 0).all()
        everywhere = len(np.unique(self.step[rows])) == self.steps
        return bool(alone and everywhere and self.place.min() >= EARLIEST_REDUCTION)

    def goes_on_beside(self, gradients: _Traffic) -> bool:
        """Whether it is of activations, given the reductions of gradients."""
        rows, late = self.of("allreduce"), gradients.of(*_REDUCTIONS)
        if not rows.all() or self.size.min() <= 0:
            return False
        _, same = np.unique(self.size, return_counts=True)
        if (
            self.place.min() >= EARLIEST_REDUCTION
            or same.max() < OF_ONE_SIZE * len(rows)
            or len(rows) < TIMES_AS_MANY * late.sum()
        ):
            return False
        return (
            all(
                np.mean(self.place[self.step == step] < gradients.place[late & here].min())
                >= BEFORE_REDUCTION
                for step in np.unique(gradients.step).tolist()
                if (self.step == step).any() and (late & (here := gradients.step == step)).any()
            )
            and len(np.unique(self.step)) == self.steps
        )


def _inferred(every: Sequence[RankSummary]) -> list[tuple[Axis, list[int]]]:
    """The axes that groups determine."""
    members = _members([one.collectives for one in every])
    if len(every) < 2 or not members or not all(one.replay.marked for one in every):
        return []
    ranks = [one.rank for one in every]
    traffic = [_by_members(one.collectives, members) for one in every]
    found = _data_and_tensor(traffic, ranks)
    chains = _chains(every, members)
    stages = _one_each([[group for group in chains if rank in group] for rank in ranks], ranks)
    if found and not stages:
        alone = [[group for group, one in of.items() if one.is_messages] for of in traffic]
        stages = _one_each(alone, ranks)
        stages = stages if stages and _apart(stages, traffic) else None
    if stages:
        found[STAGE] = stages
    return [_axis(name, groups, ranks) for name, groups in found.items()]


def _chains(every: Sequence[RankSummary], members: Mapping[str, _Members]) -> set[_Members]:
    """Groups whose ranks exchange messages with their neighbours, from the first to the last."""
    known = {one.rank: one.collectives for one in every}
    pairs: dict[_Members, set[tuple[int, int]]] = {}
    for sender, row, receiver, _ in messages(known).tolist():
        group = members[known[sender].groups[known[sender].group[row]].key]
        if {sender, receiver} <= set(group):
            at = sorted((group.index(sender), group.index(receiver)))
            pairs.setdefault(group, set()).add((at[0], at[1]))
    return {
        group for group, found in pairs.items()
        if len(group) > 2 and found == {(i, i + 1) for i in range(len(group) - 1)}
    }  # fmt: skip


def _data_and_tensor(
    traffic: Sequence[Mapping[_Members, _Traffic]], ranks: Sequence[int]
) -> dict[str, list[_Members]]:
    """The groups of each rank along ``dp`` and along ``tp``."""
    gradients = _one_each(
        [[group for group, one in of.items() if one.reduces_late and _begun_by_others(group, of)]
         for of in traffic], ranks
    )  # fmt: skip
    if gradients is None or not _apart(gradients, traffic):
        return {}
    beside = [
        [group for group, one in of.items() if group != mine and one.of(*_SHARING).any()]
        for of, mine in zip(traffic, gradients, strict=True)
    ]
    if not all(
        of[group].goes_on_beside(of[mine])
        for groups, of, mine in zip(beside, traffic, gradients, strict=True)
        for group in groups
    ):
        return {}
    tensor = _one_each(beside, ranks)
    return {DATA: gradients, "tp": tensor} if tensor else {DATA: gradients}


def _axis(name: str, groups: Sequence[_Members], ranks: Sequence[int]) -> tuple[Axis, list[int]]:
    column = [group.index(rank) for group, rank in zip(groups, ranks, strict=True)]
    return Axis(name, len(groups[0]), Origin.INFERRED, "from groups"), column


def _members(every: Sequence[CollectiveRecords]) -> dict[str, _Members]:
    """Who is in each group: as its arguments list them, or all its ranks if all have captures.

    Empty if that is unknown for a group, or if lanes represent groups.
    """
    captured: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    listed: dict[str, _Members] = {}
    for one in every:
        for group in one.groups:
            if not group.named:
                return {}
            captured.setdefault(group.key, []).append(one.rank)
            size[group.key] = max(size.get(group.key, UNKNOWN), group.size)
            listed[group.key] = group.members
    found: dict[str, _Members] = {}
    for key, ranks in captured.items():
        members = listed[key] or tuple(sorted(ranks))
        whole = len(set(members)) == len(members) and set(ranks) <= set(members)
        sizes = (len(members), UNKNOWN) if listed[key] else (len(members),)
        if not whole or size[key] not in sizes:
            return {}
        found[key] = members
    return found


def _by_members(
    known: CollectiveRecords, members: Mapping[str, _Members]
) -> dict[_Members, _Traffic]:
    """The traffic of one rank in its steps that follow another one, without the last: a capture may
    hold a part of it.
    """
    every = np.unique(known.step[known.step >= 0])
    steps = every[1:-1][np.diff(every[:-1]) == 1]
    place = np.zeros(len(known))
    for step in steps.tolist():
        rows = known.step == step
        before, last = (int(known.end_ns[known.step == n].max()) for n in (step - 1, step))
        place[rows] = (known.start_ns[rows] - before) / max(last - before, 1)
    found = {}
    whole = np.isin(known.step, steps)
    of_group = [members[group.key] for group in known.groups]
    for group in dict.fromkeys(of_group):
        same = [i for i, one in enumerate(of_group) if one == group]
        rows = whole & np.isin(known.group, same)
        if len(group) > 1 and rows.any():
            columns = (known.kind[rows], known.size[rows], known.step[rows], place[rows])
            found[group] = _Traffic(known.kinds, *columns, len(steps))
    return {group: one for group, one in found.items() if not one.is_slight}


def _one_each(groups: Sequence[Sequence[_Members]], ranks: Sequence[int]) -> list[_Members] | None:
    """The group of each rank; None if some rank has none or several, captured members of a group
    have others, or they differ in size.
    """
    if any(len(of_rank) != 1 for of_rank in groups):
        return None
    found = [of_rank[0] for of_rank in groups]
    by_rank = dict(zip(ranks, found, strict=True))
    agreed = all(by_rank.get(member, group) == group for group in found for member in group)
    return found if agreed and len({len(group) for group in found}) == 1 else None


def _begun_by_others(group: _Members, traffic: Mapping[_Members, _Traffic]) -> bool:
    """Whether there is communication of other groups early in every step: else a step may begin
    with a pause, and nothing is late in it.
    """
    early: set[int] = set()
    for other, one in traffic.items():
        if other != group:
            early.update(one.step[one.place < EARLIEST_REDUCTION].tolist())
    return len(early) == traffic[group].steps


def _apart(groups: Sequence[_Members], traffic: Sequence[Mapping[_Members, _Traffic]]) -> bool:
    """Whether the ranks of each group have no other group with each other."""
    return not any(
        other != group and len(set(other) & set(group)) > 1
        for group, of in zip(groups, traffic, strict=True)
        for other in of
    )


# -- who does the same, whatever is known of axes -------------------------------------------------


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


def _connected(every: Sequence[RankSummary]) -> list[list[int]]:
    """Stages by what ranks communicate: those that exchange messages are in different ones, and a
    group with two of them spans stages; other groups are within one."""
    members: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    named: dict[str, bool] = {}
    sending: set[str] = set()
    world = max((one.world_size for one in every), default=-1)
    for one in every:
        known = one.collectives
        sent = set(known.group[known.messages].tolist())
        for index, group in enumerate(known.groups):
            members.setdefault(group.key, []).append(one.rank)
            size[group.key] = max(size.get(group.key, -1), group.size)
            named[group.key] = group.named
            if index in sent:
                sending.add(group.key)
    pipelines = _Sets()
    for key in sending:
        pipelines.join(members[key])
    stages = _Sets()
    for key, ranks in members.items():
        apart = len({pipelines.of(rank) for rank in ranks}) == len(ranks)
        across = bool(sending) and (size[key] == world > 0 or not named[key])
        if key not in sending and apart and not across:
            stages.join(ranks)
    found: dict[int, list[int]] = {}
    for one in every:
        found.setdefault(stages.of(one.rank), []).append(one.rank)
    return list(found.values())
