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
    by_rank = sorted(summaries, key=lambda summary: summary.rank)
    recorded = stated_shape(by_rank)
    recorded_names = {axis.name for axis in recorded.axes if axis.origin is Origin.RECORDED}
    if recorded_names & {REPLICATE, SHARD}:  # which of them reduces is not all of data parallelism
        recorded_names.add(DATA)
    inferred = [column for column in _inferred(by_rank) if column[0].name not in recorded_names]
    if not inferred:
        return recorded
    names = {axis.name for axis, _ in inferred}
    columns = zip(recorded.axes, recorded.places, strict=True)
    kept_columns = [(axis, places) for axis, places in columns if axis.name not in names]
    return shape_of(recorded.captured, [*kept_columns, *inferred])


def stated_shape(summaries: Iterable[RankSummary]) -> JobShape:
    """The coordinates of the ranks in the job, as their captures state them."""
    listed = list(summaries)
    return recorded_shape(
        {summary.rank: summary.placement for summary in listed},
        {summary.rank: summary.host for summary in listed},
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
        rows: Mask = np.array([kind in names for kind in self.kinds], bool)[self.kind]
        return rows

    @property
    def is_slight(self) -> bool:
        """Whether it moves a few numbers."""
        is_small = (self.size >= 0) & (self.size <= SLIGHT_BYTES)
        return bool(is_small.all()) and len(is_small) <= SLIGHT_OPERATIONS * self.steps

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
        _, counts = np.unique(self.size, return_counts=True)
        if (
            self.place.min() >= EARLIEST_REDUCTION
            or counts.max() < OF_ONE_SIZE * len(rows)
            or len(rows) < TIMES_AS_MANY * late.sum()
        ):
            return False
        steps, code = np.unique(gradients.step[late], return_inverse=True)
        first = np.full(len(steps), np.inf)
        np.minimum.at(first, code, gradients.place[late])
        row = np.minimum(np.searchsorted(steps, self.step), len(steps) - 1)
        same = steps[row] == self.step
        sooner = np.bincount(row[same], self.place[same] < first[row[same]], len(steps))
        count = np.bincount(row[same], minlength=len(steps))
        early = sooner >= BEFORE_REDUCTION * count
        return bool(early.all()) and len(np.unique(self.step)) == self.steps


def _inferred(summaries: Sequence[RankSummary]) -> list[tuple[Axis, list[int]]]:
    """The axes that groups determine."""
    members = _members([summary.collectives for summary in summaries])
    if len(summaries) < 2 or not members or not all(summary.replay.marked for summary in summaries):
        return []
    ranks = [summary.rank for summary in summaries]
    traffic = [_by_members(summary.collectives, members) for summary in summaries]
    by_axis = _data_and_tensor(traffic, ranks)
    chains = _chains(summaries, members)
    stages = _only_groups([[group for group in chains if rank in group] for rank in ranks], ranks)
    if by_axis and not stages:
        alone = [
            [group for group, group_traffic in groups_of_rank.items() if group_traffic.is_messages]
            for groups_of_rank in traffic
        ]
        stages = _only_groups(alone, ranks)
        stages = stages if stages and _share_one_group(stages, traffic) else None
    if stages:
        by_axis[STAGE] = stages
    return [
        (
            Axis(name, len(groups[0]), Origin.INFERRED, "from groups"),
            [group.index(rank) for group, rank in zip(groups, ranks, strict=True)],
        )
        for name, groups in by_axis.items()
    ]


def _chains(summaries: Sequence[RankSummary], members: Mapping[str, _Members]) -> set[_Members]:
    """Groups whose ranks exchange messages with their neighbours, from the first to the last."""
    records = {summary.rank: summary.collectives for summary in summaries}
    pairs: dict[_Members, set[tuple[int, int]]] = {}
    for sender, row, receiver, _ in messages(records).tolist():
        group = members[records[sender].groups[records[sender].group[row]].key]
        if {sender, receiver} <= set(group):
            positions = sorted((group.index(sender), group.index(receiver)))
            pairs.setdefault(group, set()).add((positions[0], positions[1]))
    return {
        group for group, exchanged in pairs.items()
        if len(group) > 2 and exchanged == {(i, i + 1) for i in range(len(group) - 1)}
    }  # fmt: skip


def _data_and_tensor(
    traffic: Sequence[Mapping[_Members, _Traffic]], ranks: Sequence[int]
) -> dict[str, list[_Members]]:
    """The groups of each rank along ``dp`` and along ``tp``."""
    gradients = _only_groups(
        [[group for group, group_traffic in groups_of_rank.items()
          if group_traffic.reduces_late and _others_begin_early(group, groups_of_rank)]
         for groups_of_rank in traffic], ranks
    )  # fmt: skip
    if gradients is None or not _share_one_group(gradients, traffic):
        return {}
    beside = [
        [
            group
            for group, group_traffic in groups_of_rank.items()
            if group != own_group and group_traffic.of(*_SHARING).any()
        ]
        for groups_of_rank, own_group in zip(traffic, gradients, strict=True)
    ]
    if not all(
        groups_of_rank[group].goes_on_beside(groups_of_rank[own_group])
        for groups, groups_of_rank, own_group in zip(beside, traffic, gradients, strict=True)
        for group in groups
    ):
        return {}
    tensor = _only_groups(beside, ranks)
    return {DATA: gradients, "tp": tensor} if tensor else {DATA: gradients}


def _members(records: Sequence[CollectiveRecords]) -> dict[str, _Members]:
    """Who is in each group: as its arguments list them, or all its ranks if all have captures.

    Empty if that is unknown for a group, or if lanes represent groups.
    """
    captured: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    listed: dict[str, _Members] = {}
    for rank_records in records:
        for group in rank_records.groups:
            if not group.named:
                return {}
            captured.setdefault(group.key, []).append(rank_records.rank)
            size[group.key] = max(size.get(group.key, UNKNOWN), group.size)
            listed[group.key] = group.members
    members_by_key: dict[str, _Members] = {}
    for key, ranks in captured.items():
        members = listed[key] or tuple(sorted(ranks))
        is_complete = len(set(members)) == len(members) and set(ranks) <= set(members)
        sizes = (len(members), UNKNOWN) if listed[key] else (len(members),)
        if not is_complete or size[key] not in sizes:
            return {}
        members_by_key[key] = members
    return members_by_key


def _by_members(
    records: CollectiveRecords, members: Mapping[str, _Members]
) -> dict[_Members, _Traffic]:
    """The traffic of one rank in its steps that follow another one, without the last: a capture may
    hold a part of it.
    """
    all_steps, code = np.unique(records.step, return_inverse=True)
    is_whole = np.zeros(len(all_steps), bool)
    is_whole[1:-1] = (np.diff(all_steps[:-1]) == 1) & (all_steps[:-2] >= 0)
    ends = np.full(len(all_steps), np.iinfo(np.int64).min)
    np.maximum.at(ends, code, records.end_ns)
    before = np.roll(ends, 1)
    in_steps = is_whole[code]
    relative_start = np.zeros(len(records))
    relative_start[in_steps] = (
        (records.start_ns - before[code]) / np.maximum(ends - before, 1)[code]
    )[in_steps]
    traffic = {}
    of_group = [members[group.key] for group in records.groups]
    for group in dict.fromkeys(of_group):
        indices = [i for i, other_group in enumerate(of_group) if other_group == group]
        rows = in_steps & np.isin(records.group, indices)
        if len(group) > 1 and rows.any():
            columns = (
                records.kind[rows],
                records.size[rows],
                records.step[rows],
                relative_start[rows],
            )
            traffic[group] = _Traffic(records.kinds, *columns, int(is_whole.sum()))
    return {
        group: group_traffic
        for group, group_traffic in traffic.items()
        if not group_traffic.is_slight
    }


def _only_groups(
    groups: Sequence[Sequence[_Members]], ranks: Sequence[int]
) -> list[_Members] | None:
    """The group of each rank; None if some rank has none or several, captured members of a group
    have others, or they differ in size.
    """
    if any(len(of_rank) != 1 for of_rank in groups):
        return None
    groups_of_ranks = [of_rank[0] for of_rank in groups]
    by_rank = dict(zip(ranks, groups_of_ranks, strict=True))
    agreed = all(
        by_rank.get(member, group) == group for group in groups_of_ranks for member in group
    )
    return (
        groups_of_ranks if agreed and len({len(group) for group in groups_of_ranks}) == 1 else None
    )


def _others_begin_early(group: _Members, traffic: Mapping[_Members, _Traffic]) -> bool:
    """Whether there is communication of other groups early in every step: else a step may begin
    with a pause, and nothing is late in it.
    """
    early: set[int] = set()
    for other_group, other_traffic in traffic.items():
        if other_group != group:
            early.update(other_traffic.step[other_traffic.place < EARLIEST_REDUCTION].tolist())
    return len(early) == traffic[group].steps


def _share_one_group(
    groups: Sequence[_Members], traffic: Sequence[Mapping[_Members, _Traffic]]
) -> bool:
    """Whether the ranks of each group have no other group with each other."""
    return not any(
        other_group != group and len(set(other_group) & set(group)) > 1
        for group, traffic_of_rank in zip(groups, traffic, strict=True)
        for other_group in traffic_of_rank
    )


# -- who does the same, whatever is known of axes -------------------------------------------------


class _Sets:
    """Sets that are joined."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def of(self, item: int) -> int:
        while (up := self._parent.get(item, item)) != item:
            self._parent[item] = self._parent.get(up, up)
            item = up
        return item

    def join(self, items: Sequence[int]) -> None:
        for item in items[1:]:
            a, b = sorted((self.of(items[0]), self.of(item)))
            self._parent[b] = a


def _connected(summaries: Sequence[RankSummary]) -> list[list[int]]:
    """Stages by what ranks communicate: those that exchange messages are in different ones, and a
    group with two of them spans stages; other groups are within one."""
    members: dict[str, list[int]] = {}
    size: dict[str, int] = {}
    is_named: dict[str, bool] = {}
    sending: set[str] = set()
    world = max((summary.world_size for summary in summaries), default=-1)
    for summary in summaries:
        records = summary.collectives
        sent = set(records.group[records.messages].tolist())
        for index, group in enumerate(records.groups):
            members.setdefault(group.key, []).append(summary.rank)
            size[group.key] = max(size.get(group.key, -1), group.size)
            is_named[group.key] = group.named
            if index in sent:
                sending.add(group.key)
    pipelines = _Sets()
    for key in sending:
        pipelines.join(members[key])
    stages = _Sets()
    for key, ranks in members.items():
        apart = len({pipelines.of(rank) for rank in ranks}) == len(ranks)
        across = bool(sending) and (size[key] == world > 0 or not is_named[key])
        if key not in sending and apart and not across:
            stages.join(ranks)
    stages_found: dict[int, list[int]] = {}
    for summary in summaries:
        stages_found.setdefault(stages.of(summary.rank), []).append(summary.rank)
    return list(stages_found.values())
