"""Runs: the items of all their ranks, and whether two of them can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.diff.matching import digitless
from traceconv.analysis.rank_facts import INPUT, KEY, Sort, StepItems
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
        full = {rank: items for rank, items in sorted(ranks.items()) if len(items)}
        empty = tuple(sorted(set(ranks) - set(full)))
        return cls(label, _with_shared_steps(full), world_size, empty, shape)

    def only(self, ranks: Iterable[int] | None = None, steps: Iterable[int] | None = None) -> Run:
        """Only some ranks and steps, by number; None for all."""
        chosen = self.ranks if ranks is None else [r for r in sorted(ranks) if r in self.ranks]
        selected = {rank: self.ranks[rank] for rank in chosen}
        if steps is not None:
            numbers = list(steps)
            selected = {
                r: taken(items, np.isin(items.steps["step"], numbers))
                for r, items in selected.items()
            }
        reduced = Run.of(self.label, selected, self.world_size, self.shape)
        return replace(
            reduced, empty=(*reduced.empty, *self.empty) if ranks is None else reduced.empty
        )

    @cached_property
    def warms_up(self) -> bool:
        """Whether the first step is longer than all others by more than these differ, as where the
        profiler starts or something is compiled."""
        lengths = [items.steps["ns"] for items in self.ranks.values()]
        if not lengths or min(map(len, lengths)) < _FEWEST or len(set(map(len, lengths))) > 1:
            return False
        mean = np.mean(lengths, axis=0)
        later = mean[1:]
        return bool(mean[0] > later.max() + np.ptp(later))

    @property
    def steady(self) -> Run:
        """The run without its first step, if that one is longer."""
        if not self.warms_up:
            return self
        without_first = {
            r: taken(items, np.arange(len(items)) > 0) for r, items in self.ranks.items()
        }
        return replace(self, ranks=without_first)

    @property
    def steps(self) -> set[int]:
        """Numbers of the steps of all ranks."""
        return {step for items in self.ranks.values() for step in items.steps["step"].tolist()}

    @cached_property
    def critical(self) -> dict[int, float]:
        """The critical ranks, with the share of their step that is exposed communication.

        Of the ranks whose mean step is the longest, or as good as that, those that communicate
        least: the others wait for them. Several ranks if none stands out; least first.
        """
        means = {rank: float(items.steps["ns"].mean()) for rank, items in self.ranks.items()}
        longest = max(means.values()) * (1 - _SAME_LENGTH)
        shares = {
            rank: share(self.ranks[rank], Sort.COMMUNICATION)
            for rank, mean in means.items()
            if mean >= longest
        }
        highest = min(shares.values()) + _SAME_WAIT
        ascending = sorted(shares.items(), key=lambda item: item[1])
        return {rank: exposed for rank, exposed in ascending if exposed <= highest}

    @cached_property
    def catalog(self) -> Catalog:
        """The items of all ranks."""
        number: dict[tuple[str, ...], int] = {}
        places: list[tuple[int, int]] = []
        rows = {}
        for rank, rank_items in self.ranks.items():
            columns = (rank_items.items[name].tolist() for name in (*KEY, "first", "last"))
            numbers = []
            for *key, first_place, last_place in zip(*columns, strict=True):
                numbers.append(number.setdefault(tuple(key), len(number)))
                if numbers[-1] == len(places):
                    places.append((first_place, last_place))
            rows[rank] = np.array(numbers, np.int64)
        items = {name: texts([key[i] for key in number]) for i, name in enumerate(KEY)}
        first_place, last_place = np.array(places, np.int64).reshape(-1, 2).T
        return Catalog({**items, "first": first_place, "last": last_place}, rows)

    def matrix(self, rank: int, column: str = "ns") -> I64:
        """(items of the catalog, steps) int64: a column of the parts of a rank."""
        rank_items = self.ranks[rank]
        values = np.zeros((len(self.catalog.items["sort"]), len(rank_items)), np.int64)
        values[self.catalog.rows[rank][rank_items.parts["item"]], rank_items.parts["at"]] = (
            rank_items.parts[column]
        )
        return values

    def totals(self, rank: int, column: str = "ns") -> I64:
        """A column of the parts of a rank by item of the catalog, summed over steps."""
        rank_items = self.ranks[rank]
        sums = np.zeros(len(self.catalog.items["sort"]), np.int64)
        np.add.at(sums, self.catalog.rows[rank][rank_items.parts["item"]], rank_items.parts[column])
        return sums


def taken(items: StepItems, steps: NDArray[np.bool_]) -> StepItems:
    """Only the steps of a mask."""
    if not len(items) or steps.all():
        return items
    new_step = np.cumsum(steps) - 1
    is_kept = steps[items.parts["at"]]
    parts = {name: column[is_kept] for name, column in items.parts.items()}
    return msgspec.structs.replace(
        items,
        steps={name: column[steps] for name, column in items.steps.items()},
        parts={**parts, "at": new_step[parts["at"]]},
    )


def per_step(items: StepItems, sort: Sort) -> I64:
    """What of every step belongs to items of a sort, ns."""
    rows = items.items["sort"][items.parts["item"]] == sort
    totals = np.zeros(len(items), np.int64)
    np.add.at(totals, items.parts["at"][rows], items.parts["ns"][rows])
    return totals


def share(items: StepItems, sort: Sort) -> float:
    """What of the steps belongs to items of a sort, 0 to 1."""
    return float(per_step(items, sort).sum()) / max(float(items.steps["ns"].sum()), 1.0)


def _with_shared_steps(ranks: Mapping[int, StepItems]) -> dict[int, StepItems]:
    """The steps that all ranks have, if there are any: they are drawn together."""
    columns = {
        rank: (items.steps[name].tolist() for name in ("window", "step"))
        for rank, items in ranks.items()
    }
    keys = {rank: list(zip(*numbers, strict=True)) for rank, numbers in columns.items()}
    shared = set.intersection(*map(set, keys.values())) if keys else set()
    if not shared:
        return dict(ranks)
    return {
        rank: taken(items, np.array([key in shared for key in keys[rank]], bool))
        for rank, items in ranks.items()
    }


# -- may they be compared --------------------------------------------------------------------


def empty(before: Run, after: Run, pairs: Sequence[RankPair]) -> list[str]:
    """Why there is nothing to compare, in words; none if there is.

    Args:
        pairs: of ranks that both have.
    """
    reasons = [
        f"{label} is empty: it has no step whose device work was recorded on a timeline (a trace "
        "of the summary view has none; merge with `mode='detail'`)"
        for label in dict.fromkeys(run.label for run in (before, after) if not run.ranks)
    ]
    if not reasons and not pairs:
        have = (
            f"{run.label} has rank{'s' * (len(run.ranks) > 1)} {format_ranges(list(run.ranks))}"
            for run in (before, after)
        )
        reasons.append(f"they share no rank: {', '.join(have)}")
    return reasons


def obstacles(before: Run, after: Run, pairs: Sequence[RankPair], given: bool) -> list[str]:
    """Why two runs cannot be compared, in words; none if they can.

    Args:
        pairs: of ranks that are compared.
        given: whether the user paired them.
    """
    reasons = [] if given else _sizes(before, after)
    recorded = (_recorded(before.ranks[a], after.ranks[b]) for a, b in pairs)
    reasons += dict.fromkeys(reason for reasons in recorded for reason in reasons)
    return reasons + _models(before, after, pairs)


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
    reasons = []
    if before.vendor != after.vendor:
        names = [
            ("NPUs" if side_items.vendor == "ascend" else "GPUs") for side_items in (before, after)
        ]
        reasons.append(f"other devices: {names[0]} before, {names[1]} after")
    if before.devices != after.devices:
        reasons.append(f"other devices: {before.devices} per rank before, {after.devices} after")
    if before.marked != after.marked:
        no, yes = ("before", "after") if after.marked else ("after", "before")
        reasons.append(f"different coverage: steps are marked {yes}, not {no}")
    layers = [[one for one in side.layers if one != INPUT] for side in (before, after)]
    if set(layers[0]) != set(layers[1]):
        text = [", ".join(of_side) or "nothing" for of_side in layers]
        reasons.append(f"different coverage: recorded were {text[0]} before, {text[1]} after")
    missing = [100 * share(side_items, Sort.UNRECORDED) for side_items in (before, after)]
    if abs(missing[0] - missing[1]) > _UNRECORDED:
        text = [f"{percent:.1f} %" for percent in missing]
        why = f"{text[0]} of the steps were not recorded before, {text[1]} after"
        reasons.append(f"different coverage: {why}")
    return reasons


def _models(before: Run, after: Run, pairs: Sequence[RankPair]) -> list[str]:
    """Too little computing by operators or kernels that both have, whatever their shapes."""
    names_by_side: list[list[set[str]]] = []
    for run in (before, after):
        items = run.catalog.items
        computes = items["sort"] == Sort.COMPUTE
        names, operators = (items[key][computes].tolist() for key in ("name", "type"))
        names_by_side.append(
            [
                {f"kernel {digitless(name)}", *([f"operator {operator}"] if operator else [])}
                for name, operator in zip(names, operators, strict=True)
            ]
        )
    all_names = [{name for names in side for name in names} for side in names_by_side]
    shares: list[float] = []
    for side, run in enumerate((before, after)):
        ns: F64 = np.sum([run.totals(pair[side]) for pair in pairs], axis=0, dtype=np.float64)
        ns = ns[run.catalog.items["sort"] == Sort.COMPUTE]
        if not ns.any():
            return []
        in_both = np.array(
            [bool(names & all_names[1 - side]) for names in names_by_side[side]], bool
        )
        shares.append(100 * float(ns[in_both].sum() / ns.sum()))
    if max(shares) >= _SHARED:
        return []
    text = f"{shares[0]:.0f} % of the computing before and {shares[1]:.0f} % of that after"
    return [f"other model: only {text} is by operators or kernels that both have"]
