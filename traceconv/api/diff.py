"""What differs between two runs, item by item, and what of that is proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.diff.comparison import ComparedRows, RunComparison, compare
from traceconv.analysis.diff.gates import Gate, GateResult, Outcome, judged
from traceconv.analysis.diff.runs import RankPair, Run
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables.definition import texts
from traceconv.api.open import found_below
from traceconv.api.reading import opened, within
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
from traceconv.io.atomic import check
from traceconv.io.run_files import one_run
from traceconv.io.sources import sources
from traceconv.io.storage import redact_url
from traceconv.merging.merge_ranks import Target
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import Output, View
from traceconv.options.verbs import DiffOptions
from traceconv.report import diff_document, diff_page, diff_text
from traceconv.run import run_items
from traceconv.run.summaries import Summarizing, found_numbers
from traceconv.writers.output import Written

if TYPE_CHECKING:
    from traceconv.options.arguments import DiffArguments


@dataclass(frozen=True)
class DiffReport:
    """Two runs side by side.

    Attributes:
        comparison: the figures and what is proven of them.
        gates:      what becomes of every gate.
        unknown_passes: whether gates without a verdict pass.
        issues:     what finding and reading the ranks of both runs noted.
        written:    the trace of both, if one was requested.
    """

    comparison: RunComparison
    gates: tuple[GateResult, ...] = ()
    unknown_passes: bool = False
    issues: Issues = field(default_factory=Issues)
    written: Sequence[Written] = ()

    @property
    def verdict(self) -> str:
        """On the step: "slower", "faster", "no change", "no verdict"; "" if the runs cannot be
        compared and ``force_compare`` shows them."""
        return self.comparison.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why they cannot be compared."""
        return self.comparison.reasons

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of all gates: failed if one failed, else no verdict if one has none (or
        passed, by ``on_unknown``); None without gates."""
        outcomes = {gate.outcome for gate in self.gates}
        if self.unknown_passes and Outcome.UNSURE in outcomes:
            outcomes = {*outcomes - {Outcome.UNSURE}, Outcome.PASSED}
        order = (Outcome.FAILED, Outcome.UNSURE, Outcome.PASSED)
        return next((outcome for outcome in order if outcome in outcomes), None)

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
        more_columns = {
            "Count Before": items.counts[0],
            "Count After": items.counts[1],
            "Changed": texts([" ".join(changes) for changes in items.changed]),
        }
        return _table("items", items, more_columns, {"Count Before": "1", "Count After": "1"})

    @property
    def ranks(self) -> DataTable:
        """The step of every rank."""
        ranks = self.comparison.ranks
        steps = np.array([rank.step_ns for rank in ranks], np.int64).reshape(-1, 2)
        keys = {
            "Rank Before": np.array([rank.before for rank in ranks], np.int64),
            "Rank After": np.array([rank.after for rank in ranks], np.int64),
        }
        half = np.array([rank.half_ns for rank in ranks])
        verdicts = [rank.verdict for rank in ranks]
        return _table("ranks", ComparedRows(keys, steps[:, 0], steps[:, 1], half, verdicts))

    @property
    def rank_items(self) -> DataTable:
        """Every item of every rank: "Item" is a row of :attr:`items`. The changes of a rank add up
        to that of its step."""
        ranks = self.comparison.ranks
        items = len(ranks[0].items_ns[0]) if ranks else 0
        before, after = (
            np.concatenate([rank.items_ns[side] for rank in ranks] or [np.zeros(0, np.int64)])
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
        """The report as JSON values; see ``schemas/json/diff.schema.json``."""
        return diff_document.document(self.comparison, self.gates)

    def __repr__(self) -> str:
        return f"<DiffReport: {self.document['headline']}>"

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
        """The report as Markdown."""
        return diff_page.as_markdown(self.document, top)

    def csv_text(self) -> str:
        """All items, a row each."""
        return diff_text.csv_text(self.document)

    def html_text(self) -> str:
        """The page, with a waterfall of the changes."""
        return diff_page.page(self.document)

    def gate_lines(self) -> list[str]:
        """A line for every gate."""
        return [diff_document.gate_line(gate) for gate in self.document["gates"]]

    def _repr_html_(self) -> str:
        """The page, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("traceconv diff", self.text().splitlines())


def _table(
    name: str,
    rows: ComparedRows | None,
    more_columns: Mapping[str, NDArray[Any]] | None = None,
    units: Mapping[str, str] | None = None,
) -> DataTable:
    """Rows as columns; unknown values are absent or "", as in other tables."""
    if rows is None:
        return DataTable(name, {}, {})
    has_bounds = np.isfinite(rows.half_ns)
    half = np.where(has_bounds, rows.half_ns, 0)
    before = np.where(rows.before_ns > 0, rows.before_ns, 1)
    percent = np.where(rows.before_ns > 0, 100 * rows.delta_ns / before, np.nan)
    columns = {
        **{key.title(): column for key, column in rows.keys.items()},
        "Before(ns)": rows.before_ns,
        "After(ns)": rows.after_ns,
        "Change(ns)": rows.delta_ns,
        "Change(%)": percent,
        "Low(ns)": np.where(has_bounds, np.floor(rows.delta_ns - half), ABSENT).astype(np.int64),
        "High(ns)": np.where(has_bounds, np.ceil(rows.delta_ns + half), ABSENT).astype(np.int64),
        "Verdict": texts(list(rows.verdicts)),
        **(more_columns or {}),
    }
    return DataTable(name, columns, {**_units(columns), **(units or {})})


def _units(columns: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    ends = {"(ns)": "ns", "(%)": "%"}
    return {
        name: next((unit for end, unit in ends.items() if name.endswith(end)),
                   "" if column.dtype == object else "1")
        for name, column in columns.items()
    }  # fmt: skip


@takes(DiffOptions)
@one_run()
def diff(
    before: values.Paths, after: values.Paths | None = None, **keywords: Unpack[DiffArguments]
) -> DiffReport:
    """What differs between two runs: every nanosecond of a step belongs to an item, and the changes
    of the items add up to the change of the step, on every rank.

    Args:
        before, after: captures, folders of ranks, merged traces, or a report
            (``merge(..., analyse=True)`` written as JSON); texts, ``Path`` or lists of them.
            Without ``after`` ranks or steps of one run are compared.

    ``ranks`` and ``steps`` may name two sides: ``"0:3"`` compares rank 0 before with rank 3 after,
    ``"0-3:4-7"`` four pairs. ``out`` is a trace of both runs: steps begin side by side and changed
    slices are marked; every rank is read a second time. Each worker has one rank in memory.

    Raises:
        OptionError: an argument is not understood; a gate is on an operator that neither run has.
        ComparisonError: the runs cannot be compared, or there is nothing to compare.
        SelectionError: a graph or step is in none of the ranks.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    sides = [DiffOptions.of(_of_side(keywords, side)) for side in (0, 1)]
    options, selections = sides[0], [side_options.view.selection for side_options in sides]
    paired, apart = (":" in str(keywords.get(name)) for name in ("ranks", "steps"))
    gates = [Gate.of(text) for text in options.fail_on]
    if after is None and not (paired or apart):
        why = 'one run needs two sides: `ranks="0:3"`, `steps="1-5:6-10"`, or another run'
        raise OptionError(why, "after")
    target = _target(options.output)
    issues = Issues()
    places = (before, before if after is None else after)
    kept_ranks = [
        _by_number(paths, selection.ranks, options)
        for paths, selection in zip(places, selections, strict=True)
    ]
    pairs = _pairs(kept_ranks[0], kept_ranks[1]) if paired else None
    if after is None:
        all_ranks = sorted({rank for side_ranks in kept_ranks for rank in side_ranks or ()})
        job = _run(before, None if None in kept_ranks else all_ranks, options, issues)
        read = [job, job]
    else:
        read = [
            _run(paths, side_ranks, options, issues)
            for paths, side_ranks in zip(places, kept_ranks, strict=True)
        ]
    runs = []
    for side, ranked, selection in zip(read, kept_ranks, selections, strict=True):
        refuse_missing({"step": selection.steps}, {"step": side.run.steps})
        runs.append(side.run.only(ranked, selection.steps))
        if target is not None and not side.captures:
            why = f"{side.run.label} is a report; a trace is made of the captures of both runs"
            raise OptionError(why, "out")
    lenient = options.on_unknown == "pass"
    comparison = compare(runs[0], runs[1], pairs, options.tolerance, options.force_compare)
    if comparison.items is None:
        raise ComparisonError(comparison.reasons, options.force_compare or not comparison.pairs)
    results = judged(comparison, gates)
    if not target:
        return DiffReport(comparison, results, lenient, issues)
    from traceconv.merging import side_by_side

    sources = side_by_side.Sources(
        (read[0].run, read[1].run), (read[0].captures, read[1].captures), _view(options)
    )
    report = side_by_side.write(comparison, sources, target, options.run)
    return DiffReport(comparison, results, lenient, issues, report.written)


def _of_side(keywords: DiffArguments, side: int) -> dict[str, Any]:
    """The arguments of one side: of text like ``"1-5:6-10"``, what is before or after the colon."""
    arguments: dict[str, Any] = dict(keywords)
    for name in ("ranks", "steps"):
        if isinstance(arguments.get(name), str) and ":" in arguments[name]:
            arguments[name] = arguments[name].partition(":")[2 * side].strip()
    return arguments


def _view(options: DiffOptions) -> View:
    """What runs are read with; ranks and steps are selected afterwards."""
    selection = replace(options.view.selection, ranks=None, steps=None, time=None)
    return replace(options.view, selection=selection)


def _target(output: Output) -> Target | None:
    """Where the trace is written; refused early if it cannot be."""
    if output.out is None:
        return None
    factory = registry.writer_for(output.out, output.writer)
    target = Target(redact_url(output.out), factory, output.force)
    check(target.path, output.force)
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


def _by_number(
    paths: values.Paths, ranks: values.SelectedRanks, options: DiffOptions
) -> tuple[int, ...] | None:
    """The numbers of ranks that are selected by coordinates; others as they are."""
    if not isinstance(ranks, ByCoordinates):
        return ranks
    below = sources(values.paths([paths]))
    if len(below) == 1 and run_items.is_report(below[0]):
        why = f"{below[0].label} is a report: name its ranks by their numbers, not by {ranks}"
        raise OptionError(why, "ranks")
    captures = found_below([paths], options.input).ranks(ranks, options.run.allow_missing_ranks)
    return tuple(capture.rank for capture in captures.found if capture.rank is not None)


def _run(
    paths: values.Paths, ranks: Sequence[int] | None, options: DiffOptions, issues: Issues
) -> _Read:
    """One side; ``issues`` grows.

    Raises:
        RankError: a selected rank is not there.
        TraceconvError: it cannot be read.
    """
    below = sources(values.paths([paths]))
    label, selection = ", ".join(source.label for source in below), options.view.selection
    if len(below) == 1 and run_items.is_report(below[0]):
        if selection.time is not None:
            why = f"{label} is a report, which keeps no times; name its steps by `steps`"
            raise OptionError(why, "time")
        run = run_items.of_report(below[0])
        if missing := [rank for rank in ranks or () if rank not in run.ranks]:
            have = format_ranges(list(run.ranks)) or "none"
            raise RankError(f"{run.label}: no rank {format_ranges(missing)}; there are {have}")
        return _Read(run)
    work = Summarizing(SummaryRequest(items=True), _view(options))
    with opened(
        [paths], options.input, options.run, None if ranks is None else tuple(ranks)
    ) as run_ranks:
        captures = run_ranks.captures
        run_ranks, work = within(run_ranks, work, "auto", selection.time)
        _, summaries = run_ranks.summaries(work)
    issues.extend(run_ranks.issues)
    refuse_missing({"graph": selection.graphs}, found_numbers(summaries))
    return _Read(run_items.of_summaries(label, summaries), captures)
