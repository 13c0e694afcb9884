"""Runs: the items of all their ranks, and whether two of them can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.diff.matching import digitless
from traceconv.analysis.rank_facts import KEY, Sort, StepItems
from traceconv.analysis.tables.definition import texts
from traceconv.core.columns import F64, I64
from traceconv.core.job_shape import NO_SHAPE, JobShape
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.side_tables import Columns

_FEWEST = 5  # steps, to tell that the first one is longer
_SAME_LENGTH = 1e-3  # of the longest step: ranks that wait for each other differ by less
_SAME_WAIT = 0.01  # of the step: ranks that differ by less wait alike for the others
_UNRECORDED = 1.0  # percent of the step by which runs may differ
_SHARED = 25.0  # percent of computing that runs of one model have in common at least

RankPair = tuple[int, int]
"""A rank before, and the one after that it is compared with."""


class Catalog(msgspec.Struct, frozen=True):
    """The items of all ranks of a run, each once.

    Attributes:
        items: their columns; places in the step are those of the lowest rank that has them.
        rows:  by rank, the row here of each of its items.
    """

    items: Columns
    rows: Mapping[int, I64]


@dataclass(frozen=True)
class Run:
    """One side of a comparison.

    Attributes:
        label: what the user named it by.
        ranks: the items of every rank that has covered steps, ascending.
        world_size: ranks of the job, -1 if unknown.
        empty: ranks without such steps.
        shape: by which texts name ranks; a report keeps none.
    """

    label: str
    ranks: Mapping[int, StepItems]
    world_size: int = -1
    empty: tuple[int, ...] = ()
    shape: JobShape = NO_SHAPE

    @classmethod
    def of(
        cls,
        label: str,
        ranks: Mapping[int, StepItems],
        world_size: int = -1,
        shape: JobShape = NO_SHAPE,
    ) -> Run:
        """The run of all ranks, with the steps that all of them have."""
        full = {rank: one for rank, one in sorted(ranks.items()) if len(one)}
        empty = tuple(sorted(set(ranks) - set(full)))
        return cls(label, _together(full), world_size, empty, shape)

    def only(self, ranks: Iterable[int] | None = None, steps: Iterable[int] | None = None) -> Run:
        """Only some ranks and steps, by number; None for all."""
        wanted = self.ranks if ranks is None else [r for r in sorted(ranks) if r in self.ranks]
        kept = {rank: self.ranks[rank] for rank in wanted}
        if steps is not None:
            numbers = list(steps)
            kept = {r: taken(one, np.isin(one.steps["step"], numbers)) for r, one in kept.items()}
        found = Run.of(self.label, kept, self.world_size, self.shape)
        return replace(found, empty=(*found.empty, *self.empty) if ranks is None else found.empty)

    @cached_property
    def warms_up(self) -> bool:
        """Whether the first step is longer than all others by more than these differ, as where the
        profiler starts or something is compiled."""
        lengths = [one.steps["ns"] for one in self.ranks.values()]
        if not lengths or min(map(len, lengths)) < _FEWEST or len(set(map(len, lengths))) > 1:
            return False
        mean = np.mean(lengths, axis=0)
        others = mean[1:]
        return bool(mean[0] > others.max() + np.ptp(others))

    @property
    def steady(self) -> Run:
        """The run without its first step, if that one is longer."""
        if not self.warms_up:
            return self
        kept = {r: taken(one, np.arange(len(one)) > 0) for r, one in self.ranks.items()}
        return replace(self, ranks=kept)

    @property
    def steps(self) -> set[int]:
        """Numbers of the steps of all ranks."""
        return {step for one in self.ranks.values() for step in one.steps["step"].tolist()}

    @cached_property
    def critical(self) -> dict[int, float]:
        """The critical ranks, with the share of their step that is exposed communication.

        Of the ranks whose mean step is the longest, or as good as that, those that communicate
        least: the others wait for them. Several ranks if none stands out; least first.
        """
        means = {rank: float(one.steps["ns"].mean()) for rank, one in self.ranks.items()}
        longest = max(means.values()) * (1 - _SAME_LENGTH)
        shares = {
            rank: share(self.ranks[rank], Sort.COMMUNICATION)
            for rank, mean in means.items()
            if mean >= longest
        }
        most = min(shares.values()) + _SAME_WAIT
        ascending = sorted(shares.items(), key=lambda one: one[1])
        return {rank: exposed for rank, exposed in ascending if exposed <= most}

    @cached_property
    def catalog(self) -> Catalog:
        """The items of all ranks."""
        number: dict[tuple[str, ...], int] = {}
        places: list[tuple[int, int]] = []
        rows = {}
        for rank, one in self.ranks.items():
            columns = (one.items[name].tolist() for name in (*KEY, "first", "last"))
            own = []
            for *key, first, last in zip(*columns, strict=True):
                own.append(number.setdefault(tuple(key), len(number)))
                if own[-1] == len(places):
                    places.append((first, last))
            rows[rank] = np.array(own, np.int64)
        items = {name: texts([key[i] for key in number]) for i, name in enumerate(KEY)}
        first, last = np.array(places, np.int64).reshape(-1, 2).T
        return Catalog({**items, "first": first, "last": last}, rows)

    def matrix(self, rank: int, column: str = "ns") -> I64:
        """(items of the catalog, steps) int64: a column of the parts of a rank."""
        one = self.ranks[rank]
        found = np.zeros((len(self.catalog.items["sort"]), len(one)), np.int64)
        found[self.catalog.rows[rank][one.parts["item"]], one.parts["at"]] = one.parts[column]
        return found

    def totals(self, rank: int, column: str = "ns") -> I64:
        """A column of the parts of a rank by item of the catalog, summed over steps."""
        one = self.ranks[rank]
        found = np.zeros(len(self.catalog.items["sort"]), np.int64)
        np.add.at(found, self.catalog.rows[rank][one.parts["item"]], one.parts[column])
        return found


def taken(items: StepItems, steps: NDArray[np.bool_]) -> StepItems:
    """Only the steps of a mask."""
    if not len(items) or steps.all():
        return items
    place = np.cumsum(steps) - 1
    kept = steps[items.parts["at"]]
    parts = {name: column[kept] for name, column in items.parts.items()}
    return msgspec.structs.replace(
        items,
        steps={name: column[steps] for name, column in items.steps.items()},
        parts={**parts, "at": place[parts["at"]]},
    )


def per_step(items: StepItems, sort: Sort) -> I64:
    """What of every step belongs to items of a sort, ns."""
    rows = items.items["sort"][items.parts["item"]] == sort
    found = np.zeros(len(items), np.int64)
    np.add.at(found, items.parts["at"][rows], items.parts["ns"][rows])
    return found


def share(items: StepItems, sort: Sort) -> float:
    """What of the steps belongs to items of a sort, 0 to 1."""
    return float(per_step(items, sort).sum()) / max(float(items.steps["ns"].sum()), 1.0)


def _together(ranks: Mapping[int, StepItems]) -> dict[int, StepItems]:
    """The steps that all ranks have, if there are any: they are drawn together."""
    keys = {rank: _numbers(one) for rank, one in ranks.items()}
    shared = set.intersection(*map(set, keys.values())) if keys else set()
    if not shared:
        return dict(ranks)
    return {
        rank: taken(one, np.array([key in shared for key in keys[rank]], bool))
        for rank, one in ranks.items()
    }


def _numbers(items: StepItems) -> list[tuple[int, int]]:
    columns = (items.steps[name].tolist() for name in ("window", "step"))
    return list(zip(*columns, strict=True))


# -- may they be compared --------------------------------------------------------------------


def empty(before: Run, after: Run, pairs: Sequence[RankPair]) -> list[str]:
    """Why there is nothing to compare, in words; none if there is.

    Args:
        pairs: of ranks that both have.
    """
    found = [
        f"{run.label} is empty: it has no step whose device work was recorded on a timeline"
        for run in (before, after)
        if not run.ranks
    ]
    if not found and not pairs:
        have = (f"{run.label} has {_named(run.ranks)}" for run in (before, after))
        found.append(f"they share no rank: {', '.join(have)}")
    return found


def obstacles(before: Run, after: Run, pairs: Sequence[RankPair], given: bool) -> list[str]:
    """Why two runs cannot be compared, in words; none if they can.

    Args:
        pairs: of ranks that are compared.
        given: whether the user paired them.
    """
    found = [] if given else _sizes(before, after)
    recorded = (_recorded(before.ranks[a], after.ranks[b]) for a, b in pairs)
    found += dict.fromkeys(reason for reasons in recorded for reason in reasons)
    return found + _models(before, after, pairs)


def _named(ranks: Iterable[int]) -> str:
    known = list(ranks)
    return f"rank{'s' * (len(known) > 1)} {format_ranges(known)}"


def _sizes(before: Run, after: Run) -> list[str]:
    sizes = before.world_size, after.world_size
    if min(sizes) > 0:
        differ = sizes[0] != sizes[1]
        return [f"other world size: {sizes[0]} ranks before, {sizes[1]} after"] if differ else []
    counts = len(before.ranks), len(after.ranks)
    differ = counts[0] != counts[1]
    return [f"other number of ranks: {counts[0]} before, {counts[1]} after"] if differ else []


def _recorded(before: StepItems, after: StepItems) -> list[str]:
    """Other devices, or other parts of the job were recorded."""
    found = []
    if before.vendor != after.vendor:
        names = [("NPUs" if one.vendor == "ascend" else "GPUs") for one in (before, after)]
        found.append(f"other devices: {names[0]} before, {names[1]} after")
    if before.devices != after.devices:
        found.append(f"other devices: {before.devices} per rank before, {after.devices} after")
    if before.marked != after.marked:
        no, yes = ("before", "after") if after.marked else ("after", "before")
        found.append(f"different coverage: steps are marked {yes}, not {no}")
    if set(before.layers) != set(after.layers):
        text = [", ".join(one.layers) or "nothing" for one in (before, after)]
        found.append(f"different coverage: recorded were {text[0]} before, {text[1]} after")
    missing = [100 * share(one, Sort.UNRECORDED) for one in (before, after)]
    if abs(missing[0] - missing[1]) > _UNRECORDED:
        text = [f"{percent:.1f} %" for percent in missing]
        why = f"{text[0]} of the steps were not recorded before, {text[1]} after"
        found.append(f"different coverage: {why}")
    return found


def _models(before: Run, after: Run, pairs: Sequence[RankPair]) -> list[str]:
    """Too little computing by operators or kernels that both have, whatever their shapes."""
    named = [[_called(*one) for one in _compute(run)] for run in (before, after)]
    known = [{name for names in side for name in names} for side in named]
    shares: list[float] = []
    for side, run in enumerate((before, after)):
        ns: F64 = np.sum([run.totals(pair[side]) for pair in pairs], axis=0, dtype=np.float64)
        ns = ns[run.catalog.items["sort"] == Sort.COMPUTE]
        if not ns.any():
            return []
        both = np.array([bool(names & known[1 - side]) for names in named[side]], bool)
        shares.append(100 * float(ns[both].sum() / ns.sum()))
    if max(shares) >= _SHARED:
        return []
    text = f"{shares[0]:.0f} % of the computing before and {shares[1]:.0f} % of that after"
    return [f"other model: only {text} is by operators or kernels that both have"]


def _compute(run: Run) -> Iterable[tuple[str, str]]:
    """Name and operator of every item that computes."""
    items = run.catalog.items
    mine = items["sort"] == Sort.COMPUTE
    return zip(items["name"][mine].tolist(), items["type"][mine].tolist(), strict=True)


def _called(name: str, operator: str) -> set[str]:
    return {f"kernel {digitless(name)}", *([f"operator {operator}"] if operator else [])}
