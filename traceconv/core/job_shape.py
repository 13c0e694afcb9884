"""The coordinates of each rank in the grid of parallel processes.

An axis is a way to split a job: tensor (``tp``), context (``cp``), expert (``ep``; tensors of
experts ``etp``), data (``dp``; replicas ``dp_replicate`` of what ``dp_shard`` ranks share) and
pipeline parallel (``pp``), or the host a rank runs on (``node``). The coordinate of a rank on
an axis is its position in its group of that axis, from 0, as its framework counts: the rank within
the group. A coordinate is *recorded* (files of the capture state it), *inferred* (from the
communication of the ranks) or *unknown*; it is never guessed from how jobs are usually laid out.

:func:`recorded_shape` makes the table of a job from the statements of captures
(:class:`Placement`); :func:`traceconv.analysis.inferred_shape.job_shape` makes it from summaries
and adds inferred coordinates. Code that compares, selects, groups or names ranks by coordinates
reads :class:`JobShape`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from traceconv.core.columns import I32, I64, UNKNOWN, Mask
from traceconv.core.patterns import lazy_regex

NODE = "node"
STAGE = "pp"

DATA, REPLICATE, SHARD = "dp", "dp_replicate", "dp_shard"

AXES = (NODE, DATA, REPLICATE, SHARD, STAGE, "cp", "ep", "etp", "tp")
"""Axes as they are shown, the slowest of most layouts first; others follow by name."""

_WORDS: Mapping[str, str] = {
    "tp": "tp", "tensor": "tp",
    "cp": "cp", "context": "cp",
    "ep": "ep", "expert": "ep", "exp": "ep", "etp": "etp",
    "dp": "dp", "data": "dp",
    "pp": "pp", "pipeline": "pp", "pipe": "pp",
}  # fmt: skip
"""What groups of one axis alone are called by Megatron-LM (``TENSOR_MODEL_PARALLEL_GROUP``), by
device meshes (``mesh_tp``), MindSpeed and MindFormers (``tp``, ``tp-0-1-2-3``), vLLM (``tp:0``)."""

_TOGETHER: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("dp", "replicate"): (REPLICATE,),
    ("dp", "shard"): (SHARD,),
    ("dp", "shard", "cp"): (SHARD, "cp"),
}
"""Words that are of one axis together, as meshes of PyTorch (hybrid sharding) and torchtitan call
it."""

_MESH = {"mesh_replicate": (REPLICATE,), "mesh_shard": (SHARD,)}
"""The same axes in the documents of PyTorch; such words tell it of a mesh only."""

_IDLE = frozenset({"model", "parallel", "group", "groups", "mesh", "pg", "gloo", "world", "comm"})
"""Words in names of groups that say nothing of their axis; ``MODEL_PARALLEL_GROUP`` is of two."""

_LETTERS = lazy_regex(r"[a-z]+")
_AXIS = lazy_regex("[a-z][a-z_]{0,20}")
_MOST = 1 << 20
_NO_HOSTS = frozenset({"localhost", "localhost.localdomain"})


class Origin(StrEnum):
    """Where a coordinate comes from."""

    RECORDED = "recorded"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


class ParallelGroup(msgspec.Struct, frozen=True):
    """A group of ranks that files of a capture list.

    Attributes:
        name:  what it is for, in the words of the framework: "TENSOR_MODEL_PARALLEL_GROUP".
        ranks: global ranks, in the order of their positions in the group.
        place: which file and entry lists it: "distributedInfo: pg_config".
    """

    name: str
    ranks: tuple[int, ...]
    place: str = ""


class Placement(msgspec.Struct, frozen=True):
    """The place of a rank in the job, as its capture states it.

    Attributes:
        groups: its groups whose names determine an axis.
        sizes:  stated number of ranks per group of an axis.
        coordinates: by axis, where stated directly: in a file name or an output of traceconv.
        place:  where these are stated.
        job:    ranks as the processes of its job state them, each with its rank among all captures;
            () if these are the same. Replicas of a server are jobs that state the same ranks.
    """

    groups: tuple[ParallelGroup, ...] = ()
    sizes: Mapping[str, int] = msgspec.field(default_factory=dict)
    coordinates: Mapping[str, int] = msgspec.field(default_factory=dict)
    place: str = ""
    job: tuple[tuple[int, int], ...] = ()

    def sharing(self, known: dict[ParallelGroup, ParallelGroup]) -> Placement:
        """The same with equal groups of all ranks as one object, for ``known`` has them: of 4096
        ranks, lists of members are most of the memory otherwise."""
        groups = tuple(known.setdefault(group, group) for group in self.groups)
        return msgspec.structs.replace(self, groups=groups)

    def among_all(self, stated: Sequence[int]) -> tuple[int, ...]:
        """Ranks that the capture states, as they are numbered among all captures; () if one of them
        was not captured."""
        if not self.job:
            return tuple(stated)
        ranks = dict(self.job)
        return tuple(ranks[one] for one in stated) if set(stated) <= ranks.keys() else ()


class Coordinate(msgspec.Struct, frozen=True):
    """One coordinate of one rank.

    Attributes:
        axis:  "pp".
        value: from 0; -1 if unknown.
        size:  ranks per group of the axis; -1 if unknown.
        origin, evidence: where it comes from, and in a few words what says so, or why nothing does.
    """

    axis: str
    value: int
    size: int
    origin: Origin
    evidence: str


class Axis(msgspec.Struct, frozen=True):
    """One axis of a job.

    Attributes:
        name: "tp".
        size: ranks per group, -1 if unknown or not the same everywhere; of ``node``: how many.
        origin: of its known values; UNKNOWN where no rank has one.
        evidence: what says so, in a few words.
        lacking: why the ranks without a value have none; "" if all have one.
    """

    name: str
    size: int = UNKNOWN
    origin: Origin = Origin.UNKNOWN
    evidence: str = ""
    lacking: str = ""


class JobShape(msgspec.Struct, frozen=True, eq=False):
    """The coordinates of all captured ranks of a job.

    Attributes:
        captured: the ranks with a capture, ascending.
        axes:     those of which anything is known, as :data:`AXES` orders them.
        places:   per axis, the coordinate of every rank; -1 where unknown.
    """

    captured: tuple[int, ...] = ()
    axes: tuple[Axis, ...] = ()
    places: tuple[tuple[int, ...], ...] = ()

    @property
    def ranks(self) -> I64:
        """The ranks with a capture as a column, ascending."""
        return np.array(self.captured, np.int64)

    @property
    def values(self) -> I32:
        """The coordinates as columns (ranks, axes); -1 where unknown."""
        places = np.array(self.places, np.int32).reshape(len(self.axes), len(self.captured))
        return places.T

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(axis.name for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """One axis; unknown where nothing is known of it."""
        matching = (axis for axis in self.axes if axis.name == name)
        return next(matching, Axis(name, lacking="nothing in the captures says which it is"))

    def size(self, name: str) -> int:
        """Ranks per group of an axis, -1 if unknown."""
        return self.axis(name).size

    def column(self, name: str) -> I32:
        """The coordinates of all ranks on an axis; -1 where unknown."""
        return np.array(self._places(name), np.int32)

    def _places(self, name: str) -> tuple[int, ...]:
        matching = (i for i, axis in enumerate(self.axes) if axis.name == name)
        column = next(matching, None)
        return (UNKNOWN,) * len(self.captured) if column is None else self.places[column]

    def value(self, rank: int, name: str) -> int:
        """The coordinate of a rank on an axis; -1 if unknown, or if the rank has no capture."""
        row = bisect_left(self.captured, rank)
        is_captured = row < len(self.captured) and self.captured[row] == rank
        return self._places(name)[row] if is_captured else UNKNOWN

    def stage(self, rank: int) -> int:
        """The pipeline stage of a rank, -1 if unknown."""
        return self.value(rank, STAGE)

    def ranks_by(self, name: str) -> dict[int, list[int]]:
        """The ranks by their coordinate on an axis, ascending. Ranks with an unknown coordinate
        come last, under -1.
        """
        by_value: dict[int, list[int]] = {}
        for rank, value in zip(self.captured, self._places(name), strict=True):
            by_value.setdefault(value, []).append(rank)
        return dict(sorted(by_value.items(), key=lambda item: (item[0] < 0, item[0])))

    def coordinates(self, rank: int) -> tuple[Coordinate, ...]:
        """All coordinates of a rank, in the order of the axes."""
        return tuple(
            Coordinate(axis.name, value, axis.size, axis.origin, axis.evidence)
            if (value := self.value(rank, axis.name)) >= 0
            else Coordinate(axis.name, UNKNOWN, axis.size, Origin.UNKNOWN, axis.lacking)
            for axis in self.axes
        )

    def label(self, rank: int) -> str:
        """The coordinates of a rank for display: ``dp1 pp3``.

        It has the known coordinates on axes along which ranks differ; "" without any. It leaves
        out the host, and the two parts of data parallelism where ``dp`` itself is known.
        """
        left_out = (NODE, REPLICATE, SHARD) if self.value(rank, DATA) >= 0 else (NODE,)
        coordinates = (
            coordinate
            for coordinate in self.coordinates(rank)
            if coordinate.value >= 0 and coordinate.size != 1
        )
        return " ".join(
            f"{coordinate.axis}{coordinate.value}"
            for coordinate in coordinates
            if coordinate.axis not in left_out
        )

    def called(self, rank: int) -> str:
        """How texts name a rank: see :func:`called`."""
        return called(rank, self.label(rank))

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: axes with what is known of them, and the coordinates of each rank; null
        where unknown.
        """
        axes = [
            {
                "name": axis.name,
                "size": axis.size if axis.size >= 0 else None,
                "source": str(axis.origin),
                "evidence": axis.evidence,
                "lacking": axis.lacking,
            }
            for axis in self.axes
        ]
        rows = [[None if n < 0 else n for n in row] for row in zip(*self.places, strict=True)]
        return {
            "axes": axes,
            "ranks": [
                {"rank": rank, **dict(zip(self.names, row, strict=True))}
                for rank, row in zip(self.captured, rows or [[]] * len(self.captured), strict=True)
            ],
        }

    def line(self) -> str:
        """The shape in one line, with its sources: ``dp 2 · pp 4 (recorded: ...)``; "" if nothing
        is known.
        """
        axes_by_source: dict[str, list[str]] = {}
        for axis in self.axes:
            if axis.origin is not Origin.UNKNOWN:
                size = f"{axis.size}" if axis.size >= 0 else "of unknown size"
                missing = self._places(axis.name).count(UNKNOWN)
                captured = len(self.captured)
                without = f" (unknown of {missing} of {captured} ranks)" if missing else ""
                source = f"{axis.origin}: {axis.evidence}"
                axes_by_source.setdefault(source, []).append(f"{axis.name} {size}{without}")
        return "; ".join(
            f"{' · '.join(axes)} ({source})" for source, axes in axes_by_source.items()
        )


NO_SHAPE = JobShape()
"""The shape of a job about which nothing is known."""


def called(rank: int, label: str) -> str:
    """How texts name a rank: ``rank 12 (dp1 pp3)``, or ``rank 12`` without coordinates.

    Args:
        label: its coordinates, as :meth:`JobShape.label` writes them.
    """
    return f"rank {rank} ({label})" if label else f"rank {rank}"


def axes_of(name: str) -> tuple[str, ...]:
    """The axes that a group name denotes; empty if the name does not determine them.

    ``TENSOR_MODEL_PARALLEL_GROUP``, ``mesh_tp``, ``tp:0`` and ``tp-0-1-2-3`` denote "tp",
    ``DATA_PARALLEL_GROUP_WITH_CP`` and ``dp_cp`` denote "dp" and "cp", ``mesh_dp_shard_cp``
    denotes "dp_shard" and "cp". Other combinations of axes are left out: the data parallel group of
    experts depends on more than its name. So does ``fsdp``: parts of a model are sharded over data
    and context, and with experts over less.
    """
    if not name.isascii():
        return ()
    words = [word for word in _LETTERS.findall(name.lower()) if word not in _IDLE]
    if together := _TOGETHER.get(tuple(words)) or _MESH.get(name.lower()):
        return together
    axes = tuple(_WORDS.get(word, "") for word in words if word != "with")
    if axes == (DATA, "cp"):
        return axes
    return axes if len(words) == 1 and axes[0] else ()


def parallel_groups(
    listed: Iterable[tuple[str, int, Any]], world_size: int, place: str
) -> tuple[ParallelGroup, ...]:
    """The groups whose names determine an axis, with their members, from PyTorch's process groups.

    A group of all ranks may be listed without members. A group with an incomplete list of members
    (long lists are truncated when written as text), or with a list of something else, is left out.

    Args:
        listed: name, size (-1 if it is not stated) and ranks: a list of whole numbers, or any other
            value.
        world_size: ranks of the job, -1 if unknown.
        place: where they are listed.
    """
    groups = []
    for name, size, ranks in listed:
        if not axes_of(name) or not isinstance(ranks, list):
            continue
        members = [
            member if type(member) is int and 0 <= member < 2**31 else UNKNOWN for member in ranks
        ]
        if not members and 0 < size == world_size <= _MOST:
            members = list(range(size))
        if members and min(members) >= 0 and size in (UNKNOWN, len(members)):
            groups.append(ParallelGroup(name, tuple(members), place))
    return tuple(groups)


def recorded_shape(placements: Mapping[int, Placement], hosts: Mapping[int, str]) -> JobShape:
    """The coordinates that captures state.

    Where a rank is in several different groups of one axis, or what is stated contradicts itself,
    the coordinate is unknown.

    Args:
        placements: by rank; every rank of the table has one.
        hosts: names of hosts by rank; "" where unknown.
    """
    ranks = sorted(placements)
    columns = [_on_nodes(ranks, hosts)]
    stated: set[str] = set()
    for placement in placements.values():
        stated |= {axis for group in placement.groups for axis in axes_of(group.name)}
        stated |= placement.coordinates.keys() | placement.sizes.keys()
    by_axis = {name: _on_axis(name, ranks, placements) for name in sorted(stated - {NODE})}
    if REPLICATE in by_axis and SHARD in by_axis and _is_unsaid(DATA, placements):
        by_axis[DATA] = _of_parts(ranks, by_axis[REPLICATE], by_axis[SHARD], placements)
    columns += by_axis.values()
    return shape_of(ranks, [column for column in columns if column is not None])


def stated_stage(rank: int, placement: Placement) -> int:
    """The pipeline stage of a rank as its own capture states it, -1 if it does not."""
    _, (stage,) = _on_axis(STAGE, [rank], {rank: placement})
    return stage


def shape_of(ranks: Sequence[int], columns: Iterable[tuple[Axis, Sequence[int]]]) -> JobShape:
    """The table of axes and their columns, in the order in which axes are shown."""
    order = {name: i for i, name in enumerate(AXES)}
    ordered = sorted(columns, key=lambda item: (order.get(item[0].name, len(AXES)), item[0].name))
    places = tuple(tuple(column) for _, column in ordered)
    return JobShape(tuple(ranks), tuple(axis for axis, _ in ordered), places)


def _on_nodes(ranks: Sequence[int], hosts: Mapping[int, str]) -> tuple[Axis, list[int]] | None:
    """Hosts, numbered in the order of their first rank."""
    number: dict[str, int] = {}
    column = [UNKNOWN] * len(ranks)
    for i, rank in enumerate(ranks):
        host = hosts.get(rank, "")
        if host and host.lower() not in _NO_HOSTS:
            column[i] = number.setdefault(host, len(number))
    if not number:
        return None
    lacking = "their captures name no host" if UNKNOWN in column else ""
    size = len(number) if not lacking else UNKNOWN
    return Axis(NODE, size, Origin.RECORDED, "names of hosts", lacking), column


def _on_axis(
    name: str, ranks: Sequence[int], placements: Mapping[int, Placement]
) -> tuple[Axis, list[int]]:
    seats = _seats(_groups_by_rank(name, placements, _is_plain(placements)))
    sizes = _recorded_sizes(name, placements)
    disagree = len(sizes) > 1
    size = UNKNOWN if disagree else next(iter(sizes), UNKNOWN)
    column = [UNKNOWN] * len(ranks)
    lengths: set[int] = set()
    places: dict[str, None] = {}
    lacking = ""
    for i, rank in enumerate(ranks):
        value, length, place, reason = _position(name, placements[rank], seats.get(rank), size)
        if disagree:
            value, reason = UNKNOWN, "captures state different sizes of it"
        column[i] = value
        lacking = lacking or reason
        if value >= 0:
            lengths.add(length)
            places.setdefault(place)
    lengths.discard(UNKNOWN)
    if size < 0 and len(lengths) == 1:
        size = lengths.pop()
    if not any(value >= 0 for value in column):
        return Axis(name, size, Origin.UNKNOWN, "", lacking), column
    return Axis(name, size, Origin.RECORDED, ", ".join(places), lacking), column


def _is_unsaid(name: str, placements: Mapping[int, Placement]) -> bool:
    """Whether nothing states an axis: no size, no coordinate, no group of it alone."""
    is_recorded = any(
        name in (*placement.sizes, *placement.coordinates) for placement in placements.values()
    )
    return not is_recorded and not _groups_by_rank(name, placements, _is_plain(placements))


def _is_plain(placements: Mapping[int, Placement]) -> bool:
    """Whether nothing is context parallel, as captures state."""
    return _recorded_sizes("cp", placements) == {1}


def _of_parts(
    ranks: Sequence[int],
    replicate: tuple[Axis, list[int]],
    shard: tuple[Axis, list[int]],
    placements: Mapping[int, Placement],
) -> tuple[Axis, list[int]]:
    """The coordinate of ``dp`` from those of replicas and shards.

    A mesh numbers the shards of one replica, then those of the next. Where the ranks are not
    numbered that way, the names mean something else and the coordinate is unknown.
    """
    (outer, replicas), (inner, shards) = replicate, shard
    column = [UNKNOWN] * len(ranks)
    size = outer.size * inner.size if min(outer.size, inner.size) > 0 else UNKNOWN
    pairs = enumerate(zip(replicas, shards, strict=True))
    complete = [i for i, pair in pairs if min(pair) >= 0] if size > 0 else []
    plain = _is_plain(placements)
    groups = {name: _groups_by_rank(name, placements, plain) for name in (REPLICATE, SHARD)}
    for i in complete:
        apart, beside = (next(iter(groups[name].get(ranks[i], {})), ()) for name in groups)
        steps = [after - before for before, after in pairwise(apart)]
        nested = min(steps, default=0) > max(beside, default=0) - min(beside, default=0)
        if beside and list(beside) == sorted(beside) and (nested or len(apart) == 1):
            column[i] = replicas[i] * inner.size + shards[i]
    lacking = "its parts do not say how it is counted" if UNKNOWN in column else ""
    if not any(value >= 0 for value in column):
        return Axis(DATA, size, Origin.UNKNOWN, "", lacking), column
    places = dict.fromkeys((outer.evidence, inner.evidence))
    evidence = f"{REPLICATE} and {SHARD} in {', '.join(places)}"
    return Axis(DATA, size, Origin.RECORDED, evidence, lacking), column


def _recorded_sizes(name: str, placements: Mapping[int, Placement]) -> set[int]:
    return {placement.sizes[name] for placement in placements.values() if name in placement.sizes}


def _groups_by_rank(
    name: str, placements: Mapping[int, Placement], plain: bool
) -> dict[int, dict[tuple[int, ...], str]]:
    """By rank, the different groups of an axis that any capture says it is in, and the place.

    Args:
        plain: nothing is context parallel, so that a group for data and context is one for data.
    """
    by_rank: dict[int, dict[tuple[int, ...], str]] = {}
    axis_names = {(name,), (name, "cp")} if plain and name in (DATA, SHARD) else {(name,)}
    places = {
        group.ranks: group.place
        for placement in placements.values()
        for group in placement.groups
        if axes_of(group.name) in axis_names
    }
    for members, place in places.items():
        for rank in members:
            by_rank.setdefault(rank, {})[members] = place
    return by_rank


class _Seat(NamedTuple):
    """The place of a rank on an axis, of how many, and what states it; or why it is unknown."""

    position: int
    length: int
    place: str
    reason: str = ""


def _unknown(reason: str) -> _Seat:
    return _Seat(UNKNOWN, UNKNOWN, "", reason)


def _seats(groups: Mapping[int, Mapping[tuple[int, ...], str]]) -> dict[int, _Seat]:
    """The seats by rank. Each group is examined once, however many ranks it has."""
    places = {members: place for of_rank in groups.values() for members, place in of_rank.items()}
    seats: dict[int, _Seat] = {}
    for members, place in places.items():
        reason = ""
        if any(len(groups[rank]) > 1 for rank in members):
            reason = "some ranks are in several groups of it"
        elif len(set(members)) < len(members):
            reason = "the recorded coordinates contradict each other"
        for i, rank in enumerate(members):
            seats[rank] = _unknown(reason) if reason else _Seat(i, len(members), place)
    return seats


def _position(name: str, placement: Placement, in_group: _Seat | None, size: int) -> _Seat:
    """The place of a rank by its group, else by what it states; -1 with the reason if unknown."""
    recorded = placement.coordinates.get(name, UNKNOWN)
    if in_group is not None:
        if in_group.reason:
            return in_group
        if recorded not in (UNKNOWN, in_group.position):
            return _unknown("the recorded coordinates contradict each other")
        if size >= 0 and size != in_group.length:
            return _unknown("its groups do not have the recorded size")
        return in_group
    if recorded >= 0:
        if 0 <= size <= recorded:
            return _unknown("the recorded coordinates contradict each other")
        return _Seat(recorded, size, placement.place)
    if size == 1:
        return _Seat(0, 1, placement.place or "its size")
    return _unknown("no group of it is named")


class ByCoordinates(msgspec.Struct, frozen=True):
    """Ranks selected by coordinates: those with one of the wanted values on every axis named.

    Attributes:
        wanted: values by axis, ascending.
    """

    wanted: Mapping[str, tuple[int, ...]]

    def __str__(self) -> str:
        return ",".join(f"{axis}={','.join(map(str, n))}" for axis, n in self.wanted.items())


def where(shape: JobShape, coordinates: Mapping[str, Iterable[int]]) -> tuple[Mask, Mask]:
    """Which ranks have one of the wanted coordinates on every axis, and which ranks may have them:
    no known coordinate excludes the rank, but at least one requested coordinate is unknown.
    """
    sure = np.ones(len(shape.ranks), bool)
    possible = sure.copy()
    for name, values in coordinates.items():
        column = shape.column(name)
        hit = np.isin(column, list(values))
        sure &= hit
        possible &= hit | (column < 0)
    return sure, possible & ~sure


def stated_in_metadata(document: object, rank: int) -> Placement:
    """What metadata of our own outputs says of a rank: ``{"axes": [[name, size], ...], "ranks":
    {rank: [value, ...]}, "jobs": [[[rank in the job, rank], ...], ...]}``; what is no such thing
    says nothing.
    """
    match document:
        case {"axes": list(axes), "ranks": dict(by_rank), **further}:
            values, jobs = by_rank.get(str(rank)), further.get("jobs")
        case _:
            return Placement()
    sizes: dict[str, int] = {}
    coordinates: dict[str, int] = {}
    for axis, value in zip(axes, values if isinstance(values, list) else [], strict=False):
        match axis, value:
            case [str(name), int(size)], int(number) if _AXIS.fullmatch(name):
                sizes |= {name: size} if 0 < size <= _MOST else {}
                coordinates |= {name: number} if 0 <= number <= _MOST else {}
    try:
        recorded = msgspec.convert(jobs or [], list[tuple[tuple[int, int], ...]])
    except msgspec.ValidationError:
        recorded = []
    job = next((job for job in recorded if rank in dict(job).values()), ())
    return Placement((), sizes, coordinates, "metadata of the trace", job)
