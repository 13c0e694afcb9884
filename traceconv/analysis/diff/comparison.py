"""Two runs side by side: what each item of a step took, by how much that differs, what is proven.

The figures of a run are means over its steps, as whole nanoseconds that add up to the mean step
(rounded by the largest remainder), so that the differences of the items are the difference of the
step, on every rank and for the job.

The job is represented by its *critical* rank: the one with the longest mean step. Among ranks
within one part in a thousand of it, it is the one with the least exposed communication, for the
others wait for it. A run may have several critical ranks, if
none is clearly the slowest. Then the rank that is critical in both runs is compared. If no rank is,
the critical rank of the second run is compared with itself in the first run; its difference to the
critical rank of the first run is a separate item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.diff.labels import Cause
from traceconv.analysis.diff.matching import Pairs, match, plain
from traceconv.analysis.diff.runs import RankPair, Run, empty, obstacles, per_step
from traceconv.analysis.diff.significance import (
    DifferenceVerdict,
    Series,
    half_widths,
    resolution,
    verdicts,
)
from traceconv.analysis.rank_facts import INPUT, KEY, Sort
from traceconv.analysis.tables.definition import texts
from traceconv.analysis.tables.groups import numbered
from traceconv.core.columns import F64, I64

TOLERANCE = 1.0
"""Percent of the compared figure: a smaller difference counts as no difference."""

_SMALL = 0.05  # percent of the step: smaller changes are not mentioned

COUNT, DURATION, HIDDEN = "count", "duration", "overlap"
"""What changed of an item, besides what :mod:`.matching` says: how often it occurs, how long it
takes each time, how much of it other work hides."""

CRITICAL = "critical rank"
"""Sort of the item for a change of the critical rank."""

SORTS = (*(str(sort) for sort in Sort), CRITICAL)


@dataclass(frozen=True)
class ComparedRows:
    """Things that are compared, a row each. Times are ns per step.

    Attributes:
        keys:   text columns that say what they are.
        before_ns, after_ns: int64, means that add up.
        half_ns: half the width of the interval of the difference; infinite if unknown.
        verdicts: what is proven; "" where runs cannot be compared.
    """

    keys: Mapping[str, NDArray[Any]]
    before_ns: I64
    after_ns: I64
    half_ns: F64
    verdicts: Sequence[str]

    def __len__(self) -> int:
        return len(self.before_ns)

    @property
    def delta_ns(self) -> I64:
        """The difference, after minus before."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class Items(ComparedRows):
    """Items in both runs, with :data:`~.items.KEY` as keys: those after, else before.

    Attributes:
        was:     the same columns before, where an item differs in one of them, else "".
        counts, busy_ns: (2, rows) float64: how often it occurs per step, and how long that takes,
            hidden or not; before and after.
        changed: in what the item differs.
        instead: rows that are in its place in the other run.
    """

    was: Mapping[str, NDArray[Any]]
    counts: F64
    busy_ns: F64
    changed: Sequence[tuple[str, ...]]
    instead: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class RankChange:
    """One rank in both runs.

    Attributes:
        before, after: its number.
        steps:     how many there are, before and after.
        items_ns:  (2, items) int64: its figures for every item of the comparison but the last
            one of jobs in which another rank is critical after.
        half_ns:   of the difference of its step.
        verdict:   on its step.
        computing: one row: what of its step it computes.
    """

    before: int
    after: int
    steps: tuple[int, int]
    items_ns: I64
    half_ns: float
    verdict: str
    computing: ComparedRows

    @property
    def step_ns(self) -> tuple[int, int]:
        """The mean step, before and after."""
        before, after = self.items_ns.sum(axis=1).tolist()
        return before, after


CLASSES = (
    "step", "computing", "exposed_comm", "copies", "waiting", "input_wait", "host_wait",
    "unrecorded", CRITICAL,
)  # fmt: skip
"""The parts of a step: from "computing" on they add up to it, with "input_wait" and "host_wait"
inside of "waiting"."""

PAUSE = "pause"
"""Idle time between the device windows of two steps, where that is known: in no step."""


@dataclass(frozen=True)
class RunComparison:
    """Two runs side by side.

    Attributes:
        before, after: the runs, with the ranks and steps that are compared.
        pairs:     of their ranks.
        reasons:   why they cannot be compared; then nothing is proven.
        tolerance: percent.
        critical:  the critical rank before, and after.
        items:     of the job.
        operators: items of one operator, kernel, collective, copy or reason to wait together; keys
            "sort" and "name".
        member:    per item, its row in ``operators``.
        classes:   key "name", of :data:`CLASSES`; then :data:`PAUSE`, where that is known.
        ranks:     every pair.
        series:    what was measured of every item in every step of the critical rank.
        same:      whether both are one recording.
        left_out:  ranks before and after that are not compared.
        warm_up:   whether the first step is left out, before and after; see
            :attr:`.runs.Run.warms_up`.
    """

    before: Run
    after: Run
    pairs: tuple[RankPair, ...] = ()
    reasons: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    critical: RankPair = (-1, -1)
    items: Items | None = None
    operators: ComparedRows | None = None
    member: I64 | None = None
    classes: ComparedRows | None = None
    ranks: tuple[RankChange, ...] = ()
    series: tuple[Series, Series] | None = None
    same: bool = False
    left_out: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    warm_up: tuple[bool, bool] = (False, False)

    @property
    def pauses_known(self) -> bool:
        """Whether pauses between the steps of the critical rank are known on both sides."""
        sides = zip((self.before, self.after), self.critical, strict=True)
        return all((run.ranks[rank].steps["pause_ns"] >= 0).any() for run, rank in sides)

    @property
    def input_known(self) -> bool:
        """Whether it is known on both sides how long the critical rank waits for input."""
        if self.items is None:
            return False
        waits = class_masks(self.items)["input_wait"]
        sides = (self.before, self.items.before_ns), (self.after, self.items.after_ns)
        return all(
            INPUT in run.ranks[rank].layers or ns[waits].any()
            for (run, ns), rank in zip(sides, self.critical, strict=True)
        )

    @property
    def verdict(self) -> str:
        """On the step; "" if nothing can be proven."""
        return "" if self.reasons or self.classes is None else self.classes.verdicts[0]


def compare(
    before: Run,
    after: Run,
    pairs: Sequence[RankPair] | None = None,
    tolerance: float = TOLERANCE,
    forced: bool = False,
) -> RunComparison:
    """Two runs side by side.

    Args:
        pairs:     of ranks; None: those of one number.
        tolerance: percent.
        forced:    also show runs that cannot be compared.

    Returns:
        Without figures if the runs cannot be compared and this is not forced, or if they have none.
    """
    requested = [(rank, rank) for rank in before.ranks] if pairs is None else list(pairs)
    ranked = [(a, b) for a, b in requested if a in before.ranks and b in after.ranks]
    if nothing := empty(before, after, ranked):
        return RunComparison(before, after, reasons=tuple(nothing), tolerance=tolerance)
    sides = before.only([a for a, _ in ranked]), after.only([b for _, b in ranked])
    warm_up = sides[0].warms_up, sides[1].warms_up
    comparing = _Comparing(sides[0].steady, sides[1].steady, ranked, tolerance)
    reasons = obstacles(before, after, ranked, pairs is not None)
    if reasons and not forced:
        return RunComparison(before, after, tuple(ranked), tuple(reasons), tolerance)
    not_compared = [
        tuple(
            rank for rank in (*run.ranks, *run.empty) if rank not in {pair[side] for pair in ranked}
        )
        for side, run in enumerate((before, after))
    ]
    return replace(
        comparing.finish(tuple(reasons)),
        left_out=(not_compared[0], not_compared[1]),
        warm_up=warm_up,
    )


@dataclass(frozen=True)
class _Comparing:
    """The work of :func:`compare`."""

    before: Run
    after: Run
    pairs: Sequence[RankPair]
    tolerance: float

    @cached_property
    def matched(self) -> Pairs:
        return match(self.before.catalog.items, self.after.catalog.items)

    @cached_property
    def compared(self) -> RankPair:
        """The rank that is critical in both runs, else the one that is critical after."""
        before, after = self.before.critical, self.after.critical
        critical_in_both = [pair for pair in self.pairs if pair[0] in before and pair[1] in after]
        if critical_in_both:
            return min(critical_in_both, key=lambda pair: before[pair[0]] + after[pair[1]])
        return next(pair for pair in self.pairs if pair[1] == next(iter(after)))

    @cached_property
    def critical(self) -> int:
        """The rank that was critical before."""
        critical = self.before.critical
        return self.compared[0] if self.compared[0] in critical else next(iter(critical))

    @property
    def other(self) -> bool:
        """Whether another rank was critical before."""
        return self.critical != self.compared[0]

    @cached_property
    def same(self) -> bool:
        """Whether both are one recording: equal in every item and step, to the ns."""
        rows_before, rows_after = self.matched.before, self.matched.after
        if (rows_before < 0).any() or (rows_after < 0).any():
            return False
        return all(
            np.array_equal(self.before.matrix(a)[rows_before], self.after.matrix(b)[rows_after])
            for a, b in self.pairs
        )

    def half(
        self, before: Series, after: Series, kind: str, group: NDArray[np.intp] | None = None,
        among: float = 1, alike: bool = False,
    ) -> F64:  # fmt: skip
        """As :func:`half_widths`; nothing is in doubt if both are one recording."""
        if self.same:
            return np.zeros(len(before.values))
        return half_widths(before, after, kind, group, among, alike)

    def finish(self, reasons: tuple[str, ...]) -> RunComparison:
        """The comparison of the runs, without verdicts if there are ``reasons`` against them."""
        sort = self._keys()[0]["sort"]
        group = np.array([SORTS.index(name) for name in sort.tolist()], np.int64)
        group = np.unique(group, return_inverse=True)[1]
        series = self._series()
        ns = np.stack([self._rank_ns(side, self.compared[side]) for side in (0, 1)])
        if self.other:  # a last row: the difference between two critical ranks
            longest = int(self._rank_ns(0, self.critical).sum())
            ns = np.concatenate((ns, [[longest - int(ns[0].sum())], [0]]), axis=1)
        items = self._items(series, ns, group, reasons)
        member, operators = self._operators(items, series, group, reasons)
        return RunComparison(
            self.before,
            self.after,
            tuple(self.pairs),
            reasons,
            self.tolerance,
            (self.critical, self.compared[1]),
            items,
            operators,
            member,
            self._classes(items, series, reasons),
            tuple(self._rank(pair, reasons) for pair in self.pairs),
            series,
            self.same,
        )

    # -- what was measured ----------------------------------------------------------------

    def _side(self, side: int) -> tuple[Run, int, I64]:
        """The run, its critical rank, and the row of each pair among its items."""
        run = (self.before, self.after)[side]
        item_rows = (self.matched.before, self.matched.after)[side]
        return run, self.compared[side], item_rows

    def _of_pairs(self, values: NDArray[Any], item_rows: I64) -> NDArray[Any]:
        """Values of the items of a run, by pair; 0 where it has no such item."""
        padded = np.concatenate((values, np.zeros((1, *values.shape[1:]), values.dtype)))
        return padded[item_rows]

    def _series(self) -> tuple[Series, Series]:
        series = []
        for side in (0, 1):
            run, rank, item_rows = self._side(side)
            values = self._of_pairs(run.matrix(rank), item_rows).astype(np.float64)
            counts = self._of_pairs(run.totals(rank, "count"), item_rows) / len(run.ranks[rank])
            if self.other:
                values = np.concatenate((values, self._more(side)[None, :]))
                counts = np.append(counts, 0.0)
            series.append(Series(values, counts, resolution(run.ranks[rank].parts["ns"])))
        return series[0], series[1]

    def _more(self, side: int) -> F64:
        """By how much the steps of the rank that was critical before were longer, per step."""
        compared_ns = self.before.ranks[self.compared[0]].steps["ns"].astype(np.float64)
        if side:
            return np.zeros(len(self.after.ranks[self.compared[1]]))
        longest = self.before.ranks[self.critical].steps["ns"].astype(np.float64)
        if len(compared_ns) == len(longest):
            return np.asarray(longest - compared_ns)
        return np.full(len(compared_ns), longest.mean() - compared_ns.mean())

    def _rank_ns(self, side: int, rank: int) -> I64:
        """The figures of a rank by pair."""
        run, _, item_rows = self._side(side)
        means = whole_means(run.totals(rank), len(run.ranks[rank]))
        return np.asarray(self._of_pairs(means, item_rows))

    # -- rows -----------------------------------------------------------------------------

    def _keys(self) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """What items are, and what they were where that differs."""
        pairs = self.matched
        keys, was = {}, {}
        for name in KEY:
            sides = [self._of_pairs_text(side, name) for side in (0, 1)]
            keys[name] = np.where(pairs.after >= 0, sides[1], sides[0])
            in_both = (pairs.before >= 0) & (pairs.after >= 0)
            was[name] = np.where(in_both & (sides[0] != sides[1]), sides[0], "")
            if self.other:
                keys[name] = np.append(keys[name], CRITICAL if name == "sort" else "")
                was[name] = np.append(was[name], "")
        return keys, was

    def _of_pairs_text(self, side: int, name: str) -> NDArray[Any]:
        run, _, item_rows = self._side(side)
        return np.append(run.catalog.items[name], "")[item_rows]

    def _items(
        self,
        series: tuple[Series, Series],
        ns: I64,
        group: NDArray[np.intp],
        reasons: Sequence[str],
    ) -> Items:
        keys, was = self._keys()
        rows = self._judged(keys, ns, self.half(*series, "item", group), reasons)
        counts, busy = self._statistics("count"), self._statistics("busy_ns")
        changed_figures = self._changed(rows, counts, busy)
        changed_keys = (*self.matched.changed, *([()] * self.other))
        return Items(
            **vars(rows),
            was=was,
            counts=counts[:, :, 0],
            busy_ns=busy[:, :, 0],
            changed=[
                (*key_changes, *figure_changes)
                for key_changes, figure_changes in zip(changed_keys, changed_figures, strict=True)
            ],
            instead=self.matched.instead,
        )

    def _statistics(self, column: str) -> F64:
        """(2, rows, 3): mean, smallest and largest of a column over the steps, before and after."""
        figures = []
        for side in (0, 1):
            run, rank, item_rows = self._side(side)
            values = self._of_pairs(run.matrix(rank, column), item_rows).astype(np.float64)
            if self.other:
                values = np.concatenate((values, np.zeros((1, values.shape[1]))))
            figures.append(
                np.stack((values.mean(axis=1), values.min(axis=1), values.max(axis=1)), 1)
            )
        return np.stack(figures)

    def _judged(
        self, keys: Mapping[str, NDArray[Any]], ns: I64, half: F64, reasons: Sequence[str],
        small: bool = True,
    ) -> ComparedRows:  # fmt: skip
        """Rows with verdicts; without, where there are reasons against them."""
        if reasons:
            return ComparedRows(keys, ns[0], ns[1], np.full(len(half), np.inf), [""] * len(half))
        tolerance = self.tolerance / 100 * ns.max(axis=0)
        step = float(self.before.ranks[self.critical].steps["ns"].mean())
        row_verdicts = verdicts(
            (ns[1] - ns[0]).astype(np.float64), half, tolerance, _SMALL / 100 * step * small
        )
        return ComparedRows(keys, ns[0], ns[1], half, [str(verdict) for verdict in row_verdicts])

    def _changed(self, rows: ComparedRows, counts: F64, busy: F64) -> list[tuple[str, ...]]:
        """Count, duration and overlap, of items that are in both runs."""
        in_both = (self.matched.before >= 0) & (self.matched.after >= 0)
        in_both = np.append(in_both, np.zeros(int(self.other), bool))
        count = in_both & (
            (counts[1, :, 1] > counts[0, :, 2]) | (counts[1, :, 2] < counts[0, :, 1])
        )
        proven = in_both & np.isin(
            rows.verdicts, (str(DifferenceVerdict.SLOWER), str(DifferenceVerdict.FASTER))
        )
        mean_ns = np.divide(busy[:, :, 0], counts[:, :, 0], out=np.zeros(counts.shape[:2]),
                         where=counts[:, :, 0] > 0)  # fmt: skip
        longer = np.abs(mean_ns[1] - mean_ns[0]) > self.tolerance / 100 * mean_ns.max(axis=0)
        work = np.abs(busy[1, :, 0] - busy[0, :, 0])
        hidden = 2 * work < np.abs(rows.delta_ns)
        marks = ((COUNT, count), (DURATION, proven & longer & ~hidden), (HIDDEN, proven & hidden))
        return [
            tuple(word for word, mask in marks if mask[row]) for row in range(len(rows.verdicts))
        ]

    def _operators(
        self, items: Items, series: tuple[Series, Series], group: NDArray[np.intp],
        reasons: Sequence[str],
    ) -> tuple[I64, ComparedRows]:  # fmt: skip
        """What items are of, and these summed up."""
        labels = [operator_of(*key) for key in zip(*(items.keys[k] for k in KEY[:3]), strict=True)]
        columns = [items.keys["sort"], *(texts(list(c)) for c in zip(*labels, strict=True))]
        codes = np.stack([numbered(column) for column in columns])
        _, first_rows, member = np.unique(codes, axis=1, return_index=True, return_inverse=True)
        member = member.reshape(-1)
        keys = {k: c[first_rows] for k, c in zip(("sort", "name", "type"), columns, strict=True)}
        ns = np.zeros((2, len(first_rows)), np.int64)
        for of_side, side_ns in zip(ns, (items.before_ns, items.after_ns), strict=True):
            np.add.at(of_side, member, side_ns)
        summed = [run_series.summed(member, len(first_rows)) for run_series in series]
        half = self.half(summed[0], summed[1], "operator", group[first_rows])
        return member, self._judged(keys, ns, half, reasons)

    def _classes(
        self, items: Items, series: tuple[Series, Series], reasons: Sequence[str]
    ) -> ComparedRows:
        masks = class_masks(items)
        ns = np.array([[int(side_ns[mask].sum()) for mask in masks.values()]
                       for side_ns in (items.before_ns, items.after_ns)])  # fmt: skip
        summed = [
            Series(
                np.stack([run_series.values[mask].sum(axis=0) for mask in masks.values()]),
                np.array([run_series.counts[mask].sum() for mask in masks.values()]),
                run_series.resolution_ns,
            )
            for run_series in series
        ]
        before, after = summed
        step = self.half(before.rows(slice(1)), after.rows(slice(1)), "step")
        classes = slice(1, None)
        half = np.append(step, self.half(before.rows(classes), after.rows(classes), "class"))
        rows = self._judged({"name": texts(list(masks))}, ns, half, reasons)
        step_row = self._judged(
            {"name": rows.keys["name"][:1]}, ns[:, :1], step, reasons, small=False
        )
        rows = replace(rows, verdicts=[*step_row.verdicts, *rows.verdicts[1:]])
        return self._with_pause(rows, reasons)

    def _with_pause(self, rows: ComparedRows, reasons: Sequence[str]) -> ComparedRows:
        """And the idle time between steps, where it is known of both."""
        pauses_of_runs = []
        for side in (0, 1):
            run, rank, _ = self._side(side)
            pauses = run.ranks[rank].steps["pause_ns"]
            pauses_of_runs.append(pauses[pauses >= 0])
        if not (
            len(pauses_of_runs[0])
            and len(pauses_of_runs[1])
            and any(run_pauses.any() for run_pauses in pauses_of_runs)
        ):
            return rows
        series = [
            Series(run_pauses[None, :].astype(np.float64), np.ones(1))
            for run_pauses in pauses_of_runs
        ]
        ns = np.array(
            [
                [int(whole_means(run_pauses.sum(keepdims=True), len(run_pauses))[0])]
                for run_pauses in pauses_of_runs
            ]
        )
        pause_row = self._judged(
            {"name": texts([PAUSE])}, ns, self.half(series[0], series[1], "step"), reasons
        )
        return ComparedRows(
            {"name": np.append(rows.keys["name"], PAUSE)},
            np.append(rows.before_ns, pause_row.before_ns),
            np.append(rows.after_ns, pause_row.after_ns),
            np.append(rows.half_ns, pause_row.half_ns),
            [*rows.verdicts, *pause_row.verdicts],
        )

    def _rank(self, pair: RankPair, reasons: Sequence[str]) -> RankChange:
        sides = self.before.ranks[pair[0]], self.after.ranks[pair[1]]
        ns = np.stack([self._rank_ns(side, pair[side]) for side in (0, 1)])
        step_half, computing_half = self._halves[pair]
        step = self._of_rank(ns, step_half, reasons)
        sort = self._of_pairs_text(0, "sort")
        sort = np.where(sort == "", self._of_pairs_text(1, "sort"), sort)
        computing = self._of_rank(ns[:, sort == Sort.COMPUTE], computing_half, reasons)
        return RankChange(
            *pair,
            (len(sides[0]), len(sides[1])),
            ns,
            float(step.half_ns[0]),
            step.verdicts[0],
            computing,
        )

    @cached_property
    def _halves(self) -> dict[RankPair, tuple[float, float]]:
        """Half the widths of the intervals of the step and of computing; of ranks with as many
        steps together."""
        alike: dict[tuple[int, int], list[RankPair]] = {}
        for pair in self.pairs:
            sizes = len(self.before.ranks[pair[0]]), len(self.after.ranks[pair[1]])
            alike.setdefault(sizes, []).append(pair)
        halves: dict[RankPair, tuple[float, float]] = {}
        for pairs in alike.values():
            among = len(self.pairs) / len(pairs)
            widths = [
                self.half(self._by_rank(0, pairs, sort), self._by_rank(1, pairs, sort), "step",
                          among=among, alike=True).tolist()
                for sort in (None, Sort.COMPUTE)
            ]  # fmt: skip
            halves |= dict(zip(pairs, zip(*widths, strict=True), strict=True))
        return halves

    def _by_rank(self, side: int, pairs: Sequence[RankPair], sort: Sort | None) -> Series:
        """How long the steps of some ranks take, or the items of a sort in them."""
        ranks = [(self.before, self.after)[side].ranks[pair[side]] for pair in pairs]
        values = [one.steps["ns"] if sort is None else per_step(one, sort) for one in ranks]
        return Series(np.stack(values).astype(np.float64), np.ones(len(pairs)))

    def _of_rank(self, ns: I64, half_ns: float, reasons: Sequence[str]) -> ComparedRows:
        """The sum of some items of a rank."""
        total = ns.sum(axis=1, keepdims=True)
        return self._judged({"name": texts([""])}, total, np.array([half_ns]), reasons, small=False)


def operator_of(sort: str, name: str, kind: str) -> tuple[str, str]:
    """Name and type of the operator of an item, or of its kernel if the operator is unknown."""
    if sort == Sort.COMPUTE:
        return (kind if kind not in ("", "N/A") else plain(name)), ""
    return (plain(name) if sort == Sort.WAIT else name), kind


def class_masks(items: Items) -> dict[str, NDArray[np.bool_]]:
    """Which items each of :data:`CLASSES` is the sum of."""
    sort, kind = items.keys["sort"], items.keys["type"]
    waits = sort == Sort.WAIT
    masks = {
        "step": np.ones(len(items), bool),
        "computing": sort == Sort.COMPUTE,
        "exposed_comm": sort == Sort.COMMUNICATION,
        "copies": sort == Sort.COPY,
        "waiting": waits,
        "input_wait": waits & (kind == Cause.INPUT),
        "host_wait": waits & (kind == Cause.HOST),
        "unrecorded": sort == Sort.UNRECORDED,
        CRITICAL: sort == CRITICAL,
    }
    return {name: masks[name] for name in CLASSES}


def whole_means(sums: I64, steps: int) -> I64:
    """Means in whole units whose sum is the mean of the sum, rounded half up: the largest
    remainders are rounded up."""
    means, remainder = sums // steps, sums % steps
    target = (2 * int(sums.sum()) + steps) // (2 * steps)
    up = np.argsort(-remainder, kind="stable")[: target - int(means.sum())]
    means[up] += 1
    return means
