"""What differs between two runs, item by item, and what of that is proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.diff.comparison import TOLERANCE, ComparedRows, RunComparison, compare
from traceconv.analysis.diff.gates import Gate, GateResult, Outcome, judged
from traceconv.analysis.diff.runs import RankPair, Run
from traceconv.analysis.tables.definition import texts
from traceconv.api import options
from traceconv.api.reading import Asked, RankArguments, asked
from traceconv.core.errors import (
    ComparisonError,
    Issues,
    OptionError,
    RankError,
)
from traceconv.core.job_shape import ByCoordinates
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.side_tables import ABSENT, DataTable
from traceconv.find import registry
from traceconv.find.rank_selection import refuse_missing
from traceconv.io.sources import sources
from traceconv.io.storage import redact_url
from traceconv.merging.merge_ranks import Target
from traceconv.report import diff_document, diff_page, diff_text
from traceconv.run import run_items
from traceconv.writers import output
from traceconv.writers.output import Written


@dataclass(frozen=True)
class DiffReport:
    """Two runs side by side.

    Attributes:
        comparison: the figures and what is proven of them.
        gates:      what becomes of every gate.
        issues:     what finding and reading the ranks of both runs noted.
        written:    the trace of both, if one was requested.
    """

    comparison: RunComparison
    gates: tuple[GateResult, ...] = ()
    issues: Issues = field(default_factory=Issues)
    written: Sequence[Written] = ()

    @property
    def verdict(self) -> str:
        """On the step: "slower", "faster", "no change", "cannot tell"; "" if the runs cannot be
        compared and ``force_compare`` shows them."""
        return self.comparison.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why they cannot be compared."""
        return self.comparison.reasons

    @property
    def outcome(self) -> Outcome | None:
        """Of all gates: failed if one is, cannot tell if one of them cannot; None without gates."""
        found = {one.outcome for one in self.gates}
        order = (Outcome.FAILED, Outcome.UNSURE, Outcome.PASSED)
        return next((one for one in order if one in found), None)

    @property
    def classes(self) -> DataTable:
        """The parts of a step: rows "step", "computing", "exposed_comm" ..."""
        return _table("classes", self.comparison.classes)

    @property
    def operators(self) -> DataTable:
        """Items summed up by operator or kernel, collective, copy, or what is waited for."""
        return _table("operators", self.comparison.operators)

    @property
    def items(self) -> DataTable:
        """Every item of the critical rank; the changes add up to that of the step."""
        items = self.comparison.items
        if items is None:
            return _table("items", None)
        more = {
            "Count Before": items.counts[0],
            "Count After": items.counts[1],
            "Changed": texts([" ".join(one) for one in items.changed]),
        }
        return _table("items", items, more, {"Count Before": "1", "Count After": "1"})

    @property
    def ranks(self) -> DataTable:
        """The step of every rank."""
        ranks = self.comparison.ranks
        steps = np.array([one.step_ns for one in ranks], np.int64).reshape(-1, 2)
        keys = {
            "Rank Before": np.array([one.before for one in ranks], np.int64),
            "Rank After": np.array([one.after for one in ranks], np.int64),
        }
        half = np.array([one.half_ns for one in ranks])
        verdicts = [one.verdict for one in ranks]
        return _table("ranks", ComparedRows(keys, steps[:, 0], steps[:, 1], half, verdicts))

    @property
    def rank_items(self) -> DataTable:
        """Every item of every rank: "Item" is a row of :attr:`items`. The changes of a rank add up
        to that of its step."""
        ranks = self.comparison.ranks
        items = len(ranks[0].items_ns[0]) if ranks else 0
        before, after = (
            np.concatenate([one.items_ns[side] for one in ranks] or [np.zeros(0, np.int64)])
            for side in (0, 1)
        )
        columns = {
            "Rank Before": np.repeat(np.array([r.before for r in ranks], np.int64), items),
            "Rank After": np.repeat(np.array([r.after for r in ranks], np.int64), items),
            "Item": np.tile(np.arange(items), len(ranks)),
            "Before(ns)": before,
            "After(ns)": after,
            "Change(ns)": after - before,
        }
        return DataTable("rank_items", columns, _units(columns))

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """All of it as JSON values; see ``schemas/json/diff.schema.json``."""
        return diff_document.document(self.comparison, self.gates)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {**self.document, "issues": [issue.as_dict() for issue in self.issues]}

    def json_text(self) -> str:
        """:meth:`as_dict` as text."""
        return diff_text.json_text(self.as_dict())

    def text(self, top: int | None = diff_text.SHOWN, width: int | None = None) -> str:
        """A page for people.

        Args:
            top:   items that are shown; None for all.
            width: columns that it keeps to, from 80; None for any.
        """
        return diff_text.text(self.document, top, width)

    def markdown(self, top: int | None = diff_text.SHOWN) -> str:
        """The same as Markdown."""
        return diff_text.markdown(self.document, top)

    def csv_text(self) -> str:
        """All items, a row each."""
        return diff_text.csv_text(self.document)

    def html_text(self) -> str:
        """The page, with a waterfall of the changes."""
        return diff_page.page(self.document)

    def gate_lines(self) -> list[str]:
        """What is known of every gate."""
        return [diff_document.gate_line(one) for one in self.document["gates"]]

    def _repr_html_(self) -> str:
        """The page, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("traceconv diff", self.text().splitlines())


def _table(
    name: str,
    rows: ComparedRows | None,
    more: Mapping[str, NDArray[Any]] | None = None,
    units: Mapping[str, str] | None = None,
) -> DataTable:
    """Rows as columns: what is unknown is absent or "", as in other tables."""
    if rows is None:
        return DataTable(name, {}, {})
    known = np.isfinite(rows.half_ns)
    half = np.where(known, rows.half_ns, 0)
    before = np.where(rows.before_ns > 0, rows.before_ns, 1)
    percent = np.where(rows.before_ns > 0, 100 * rows.delta_ns / before, np.nan)
    columns = {
        **{key.title(): column for key, column in rows.keys.items()},
        "Before(ns)": rows.before_ns,
        "After(ns)": rows.after_ns,
        "Change(ns)": rows.delta_ns,
        "Change(%)": percent,
        "Low(ns)": np.where(known, np.floor(rows.delta_ns - half), ABSENT).astype(np.int64),
        "High(ns)": np.where(known, np.ceil(rows.delta_ns + half), ABSENT).astype(np.int64),
        "Verdict": texts(list(rows.verdicts)),
        **(more or {}),
    }
    return DataTable(name, columns, {**_units(columns), **(units or {})})


def _units(columns: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    ends = {"(ns)": "ns", "(%)": "%"}
    return {
        name: next((unit for end, unit in ends.items() if name.endswith(end)),
                   "" if column.dtype == object else "1")
        for name, column in columns.items()
    }  # fmt: skip


def diff(
    before: options.Paths,
    after: options.Paths | None = None,
    *,
    ranks: options.Ranks | None = None,
    graphs: options.Numbers | None = None,
    steps: options.Numbers | None = None,
    tolerance: float | str = TOLERANCE,
    fail_on: str | Sequence[str] = (),
    force_compare: bool = False,
    out: options.AnyPath | None = None,
    writer: str | None = None,
    force: bool = False,
    **given: Unpack[RankArguments],
) -> DiffReport:
    """What differs between two runs: every nanosecond of a step belongs to an item, and the changes
    of the items add up to the change of the step, on every rank.

    Args:
        before, after: captures, folders of ranks, merged traces of ours, or a report
            (``merge(..., analyse=True)`` written as JSON); texts, ``Path`` or lists of them.
            Without ``after`` ranks or steps of one run are compared.
        ranks: ``"0-3"`` for both, or before and after: ``"0:3"`` compares rank 0 before with rank 3
            after, ``"0-3:4-7"`` four pairs.
        steps: likewise: ``"2-9"``, or ``"1-5:6-10"``.
        tolerance: percent of what is compared; a smaller difference is none.
        fail_on: gates, such as ``"step>2%"``, ``"exposed_comm>500us"``, ``"op:MatMul>3%"``; see
            :class:`traceconv.analysis.diff.gates.Gate`.
        force_compare: show runs that cannot be compared, too, without verdict.
        out:    file for a trace of both runs: steps begin side by side, changed slices are marked;
            every rank is read a second time. Its ending names the format.
        writer: name of that format, where the ending does not say it.
        force:  overwrite ``out``.

    The other arguments, :class:`.RankArguments`, are those of :func:`traceconv.merge`. Each worker
    has one rank in memory.

    Raises:
        OptionError: an argument is not understood; a gate is on an operator that neither run has.
        ComparisonError: the runs cannot be compared, or there is nothing to compare.
        SelectionError: a graph or step is in none of the ranks.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    gates = [Gate.of(text) for text in ([fail_on] if isinstance(fail_on, str) else fail_on)]
    percent = options.percent(tolerance, "tolerance")
    *wanted, paired = options.rank_sides(ranks, "ranks")
    *kept_steps, apart = options.sides(steps, "steps")
    if after is None and not (paired or apart):
        why = 'one run needs two sides: `ranks="0:3"`, `steps="1-5:6-10"`, or another run'
        raise OptionError(why, "after")
    target = _target(out, writer, force)
    reading = _Reading(asked(given), options.numbers(graphs, "graphs"))
    issues = Issues()
    places = zip((before, before if after is None else after), wanted, strict=True)
    kept_ranks = [reading.by_number(paths, some) for paths, some in places]
    pairs = _pairs(kept_ranks[0], kept_ranks[1]) if paired else None
    if after is None:
        every = sorted({rank for kept in kept_ranks for rank in kept or ()})
        whole = reading.run(before, None if None in kept_ranks else every, issues)
        read = [whole, whole]
    else:
        sides = zip((before, after), kept_ranks, strict=True)
        read = [reading.run(paths, kept, issues) for paths, kept in sides]
    runs = []
    for one, ranked, kept in zip(read, kept_ranks, kept_steps, strict=True):
        refuse_missing({"graph": None, "step": kept}, {"graph": set(), "step": one.run.steps})
        runs.append(one.run.only(ranked, kept))
        if target is not None and not one.captures:
            why = f"{one.run.label} is a report; a trace is made of the captures of both runs"
            raise OptionError(why, "out")
    found = compare(runs[0], runs[1], pairs, percent, force_compare)
    if found.items is None:
        raise ComparisonError(found.reasons, force_compare or not found.pairs)
    results = judged(found, gates)
    if target is None:
        return DiffReport(found, results, issues)
    from traceconv.merging import side_by_side

    sources = side_by_side.Sources(
        (read[0].run, read[1].run), (read[0].captures, read[1].captures), reading.view,
        reading.asked.comm_patterns,
    )  # fmt: skip
    report = side_by_side.write(found, sources, target, reading.asked.run)
    return DiffReport(found, results, issues, report.written)


def _target(out: options.AnyPath | None, writer: str | None, force: bool) -> Target | None:
    """Where the trace is written; refused early if it cannot be."""
    path = options.path(out, "out")
    if path is None:
        return None
    target = Target(redact_url(path), registry.writer_for(path, writer), force)
    output.check(target.path, force)
    return target


def _pairs(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> list[RankPair] | None:
    """The ranks that are compared; None for those of one number."""
    if before is None or after is None:
        return None
    if len(before) != len(after):
        raise OptionError(f"{len(before)} ranks before and {len(after)} after do not pair", "ranks")
    return list(zip(before, after, strict=True))


@dataclass(frozen=True)
class _Read:
    """A run, and the captures it is of; none if it is a report."""

    run: Run
    captures: tuple[Capture, ...] = ()


@dataclass(frozen=True)
class _Reading:
    """How runs are read: arguments of :func:`diff`."""

    asked: Asked
    graphs: tuple[int, ...] | None

    @property
    def view(self) -> dict[str, Any]:
        """Arguments of :func:`traceconv.passes.compose`."""
        return {"mode": "detail", "graphs": self.graphs}

    def by_number(
        self, paths: options.Paths, ranks: tuple[int, ...] | ByCoordinates | None
    ) -> tuple[int, ...] | None:
        """The numbers of ranks that are selected by coordinates; others as they are."""
        if not isinstance(ranks, ByCoordinates):
            return ranks
        below = sources(options.paths([paths]))
        if len(below) == 1 and run_items.is_report(below[0]):
            why = f"{below[0].label} is a report: name its ranks by their numbers, not by {ranks}"
            raise OptionError(why, "ranks")
        found = self.asked.captures(paths, ranks=ranks).found
        return tuple(one.rank for one in found if one.rank is not None)

    def run(self, paths: options.Paths, ranks: Sequence[int] | None, issues: Issues) -> _Read:
        """One side; ``issues`` grows.

        Raises:
            RankError: a selected rank is not there.
            TraceconvError: it cannot be read.
        """
        below = sources(options.paths([paths]))
        label = ", ".join(source.label for source in below)
        if len(below) == 1 and run_items.is_report(below[0]):
            return _Read(_selected(run_items.of_report(below[0]), ranks))
        found = self.asked.captures(paths, ranks=ranks)
        run, noted, numbers = run_items.of_captures(
            label, found.found, found.issues, self.asked.run, self.view, self.asked.comm_patterns
        )
        issues.extend(noted)
        refuse_missing({"graph": self.graphs, "step": None}, numbers)
        return _Read(run, found.found)


def _selected(run: Run, ranks: Sequence[int] | None) -> Run:
    missing = [] if ranks is None else [rank for rank in ranks if rank not in run.ranks]
    if missing:
        have = format_ranges(list(run.ranks)) or "none"
        raise RankError(f"{run.label}: no rank {format_ranges(missing)}; there are {have}")
    return run
