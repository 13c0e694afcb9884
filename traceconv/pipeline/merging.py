"""What a merge does: read all ranks, settle what depends on all of them, write.

Ranks are read and encoded one by one, here or by workers. Between the two stand the clocks, the
base of time and the size limit, which need what is known of all ranks, and no event of any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceconv.alignment import plan as clocks
from traceconv.core.errors import Issues, Severity, StrictError
from traceconv.core.model import Capture
from traceconv.core.ranks import refuse_missing, title
from traceconv.pipeline import engines
from traceconv.pipeline.executor import Executor
from traceconv.pipeline.report import Report
from traceconv.pipeline.spill import SpilledRank
from traceconv.pipeline.stages import Annotating, Narrowing, Reading, annotated, narrow, read
from traceconv.writers import Document, Plan, WriterFactory, output
from traceconv.writers import size_limit as limits
from traceconv.writers.output import Encoded, Encoding, Progress, encode

if TYPE_CHECKING:
    from traceconv.analysis.rank_summary import Facts
    from traceconv.report.run_summary import Judged


@dataclass(frozen=True)
class MergeOptions:
    """What decides on the bytes of a merge, besides its input; see :func:`traceconv.merge`."""

    mode: str | None = "summary"
    graphs: Sequence[int] | None = None
    steps: Sequence[int] | None = None
    time: tuple[int | None, int | None] | None = None
    merge_graphs: bool = True
    scope: bool = False
    layers: Sequence[str] | None = None
    exclude: str | None = None
    args: Sequence[str] | None = None
    align: str = "auto"
    limit: limits.SizeLimit | None = None
    comm_patterns: Sequence[str] = ()
    align_max_error_ns: int | None = None
    annotate: bool = False
    analyse: bool = False

    @property
    def view(self) -> dict[str, Any]:
        """Arguments of :func:`traceconv.passes.compose`."""
        names = ("mode", "graphs", "steps", "merge_graphs", "scope", "layers", "exclude")
        return {name: getattr(self, name) for name in names}

    @property
    def judges(self) -> bool:
        """Whether the analyses look at every rank."""
        return self.annotate or self.analyse

    def as_dict(self) -> dict[str, Any]:
        """JSON values, for shards."""
        plain = {
            key: list(value) if isinstance(value, (list, tuple)) else value
            for key, value in vars(self).items()
        }
        return {**plain, "limit": None if self.limit is None else vars(self.limit)}

    @classmethod
    def of_dict(cls, told: Mapping[str, Any]) -> MergeOptions:
        """What :meth:`as_dict` told of.

        Raises:
            TypeError, ValueError: it is something else.
        """
        limit, time = told["limit"], told["time"]
        return cls(
            **{
                **told,
                "limit": None if limit is None else limits.SizeLimit(**limit),
                "time": None if time is None else (time[0], time[1]),
            }
        )


@dataclass(frozen=True)
class Ranks:
    """The ranks of a merge, read and set aside.

    Attributes:
        captures: of those that could be read, ascending.
        parked:   the same, set aside.
        issues:   what finding and reading them met.
    """

    captures: tuple[Capture, ...]
    spilled: tuple[SpilledRank, ...]
    issues: Issues = field(default_factory=Issues)


def read_ranks(
    place: Executor,
    captures: Sequence[Capture],
    options: MergeOptions,
    progress: Progress,
    folder: Path | None = None,
) -> Iterator[tuple[Capture, engines.Done]]:
    """Every capture, in order, with its :class:`~traceconv.pipeline.spill.SpilledRank` rank or its failure.

    Args:
        folder: where ranks are set aside for good; None for the folder of the run, or memory
            where one rank is all there is.
    """
    keep = folder is None and len(captures) == 1 and not place.parallel
    jobs = [
        Reading(
            capture,
            options.view,
            None if keep else (folder or place.folder) / f"rank-{capture.rank}.parked",
            folder is not None,
            tuple(options.comm_patterns),
            _facts_file(folder or place.folder, capture.rank) if options.judges else None,
            options.analyse,
        )
        for capture in captures
    ]
    sizes = [stored(capture) for capture in captures]
    label = f"reading {len(captures)} ranks" if len(captures) > 1 else "reading"
    counted = partial(_counted, progress, sum(sizes), label)
    dones = place.watched(read, jobs, counted, sizes)
    yield from zip(captures, engines.in_order(dones), strict=True)


def _counted(progress: Progress, total: int, label: str, n: int) -> None:
    progress(n, total, label)


def stored(capture: Capture) -> int:
    """Bytes of the files a capture is read from."""
    return sum(capture.source.size(name) for name in capture.files)


def book_failure(issues: Issues, rank: int | None, where: str, reason: str) -> None:
    """Note that a rank is not in the output."""
    issues.add("rank-failed", where, reason[:300], rank=-1 if rank is None else rank)


def read_or_fail(
    place: Executor,
    captures: Sequence[Capture],
    options: MergeOptions,
    progress: Progress,
    issues: Issues,
    allow_missing: bool,
) -> Ranks:
    """All ranks, set aside; those that fail are left out if ``allow_missing``.

    Raises:
        TraceconvError: a rank cannot be read, or none can.
    """
    kept, spilled, failure = [], [], None
    for capture, done in read_ranks(place, captures, options, progress):
        if done.error is None:
            kept.append(capture)
            spilled.append(done.value)
            continue
        if not allow_missing:
            raise done.error
        failure = failure or done.error
        book_failure(issues, capture.rank, title(capture), str(done.error))
    if not kept and failure:
        raise failure
    return Ranks(tuple(kept), tuple(spilled), issues)


@dataclass(frozen=True)
class Target:
    """Where a merge goes to.

    Attributes:
        path:   of the file.
        writer: of its format.
        force:  whether it may be there already.
        strict: whether losses and doubts are refused.
    """

    path: str
    writer: WriterFactory
    force: bool = False
    strict: bool = False


def finish(
    place: Executor, ranks: Ranks, options: MergeOptions, target: Target, progress: Progress
) -> Report:
    """Settle clocks, base of time and size, and write.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    known = [p.collective_records() for p in ranks.spilled]
    clock = clocks.plan(ranks.captures, options.align, known, options.align_max_error_ns)
    report = Report.of(options.mode or "source", ranks.captures, target.path, ranks.issues, clock)
    told = _JobSummary.of(place, ranks, clock) if options.judges else None
    own = (
        _annotated(place, ranks.spilled, told.judged)
        if told and options.annotate
        else ranks.spilled
    )
    spilled: Sequence[SpilledRank] = [
        p.changed(partial(clocks.shift, by=clock.offsets[p.rank].correction)) for p in own
    ]
    _refuse_missing(options, spilled)
    if options.time is not None:
        spilled = _within(place, spilled, options.time)
    for one in spilled:
        report.add(one.rank, one.facts)
    base_ns = _base_ns(spilled)
    document = Document(
        base_ns,
        tuple(p.rank for p in spilled),
        report.facts(base_ns, {p.rank: p.facts for p in spilled}),
        None if options.args is None else frozenset(options.args),
        {p.rank: p.facts.capture.pid for p in spilled},
    )
    plan = limits.plan(spilled, document, target.writer, options.limit, place.each)
    report.settle(plan)
    if told:
        report.verdict = told.verdict()
    if told and options.analyse:
        report.overview = told.overview(options, clock, report.issues, base_ns)
    _write(place, plan, target, report, progress)
    return report


def _write(place: Executor, plan: Plan, target: Target, report: Report, progress: Progress) -> None:
    def accept(done: Sequence[output.Written]) -> None:
        report.take(done)
        if target.strict:
            _refuse_losses(report)

    def elsewhere(jobs: Sequence[Encoding]) -> Iterator[Encoded]:
        named = [replace(job, path=place.folder / f"encoded-{i}") for i, job in enumerate(jobs)]
        label = f"writing {Path(target.path).name}"
        counted = partial(_counted, progress, plan.predicted, label)
        return engines.ordered(place.watched(encode, named, counted))

    output.write(
        plan,
        target.writer,
        target.path,
        force=target.force,
        progress=progress,
        accept=accept,
        elsewhere=elsewhere if place.parallel else None,
    )


@dataclass(frozen=True)
class _JobSummary:
    """What the analyses tell: the facts that lay beside the ranks, and what is wrong."""

    facts: Sequence[Facts]
    judged: Judged

    @classmethod
    def of(cls, place: Executor, ranks: Ranks, clock: clocks.Plan) -> _JobSummary:
        """Of ranks that were read for it."""
        from traceconv.analysis import rank_summary as rank_summary
        from traceconv.report import run_summary as overview

        folders = [place.folder if p.held else p.path.parent for p in ranks.spilled]
        files = [_facts_file(f, p.rank) for f, p in zip(folders, ranks.spilled, strict=True)]
        facts = [rank_summary.load(file) for file in files]
        return cls(facts, overview.judge(facts, clock))

    def verdict(self) -> str:
        """Who holds the others up, in a line; "" where there is one rank only."""
        found = self.judged.verdict
        if len(found.ranks) < 2:
            return ""
        return found.line() if found.culprit else f"straggler: {found.line()}"

    def overview(
        self, options: MergeOptions, clock: clocks.Plan, issues: Issues, base_ns: int
    ) -> dict[str, Any]:
        """The analysis of a report."""
        from traceconv.report.run_summary import overview, remarks

        found = overview(self.facts, clock, issues, self.judged, base_ns)
        return {
            **found,
            "remarks": [*found["remarks"], *remarks(options.mode, options.time is not None)],
        }


def _facts_file(folder: Path, rank: int | None) -> Path:
    from traceconv.analysis import rank_summary as rank_summary

    return folder / f"rank-{rank}{rank_summary.SUFFIX}"


def _base_ns(spilled: Sequence[SpilledRank]) -> int:
    return min((p.facts.span[0] for p in spilled if p.facts.span), default=0)


def _within(
    place: Executor, spilled: Sequence[SpilledRank], time: tuple[int | None, int | None]
) -> list[SpilledRank]:
    """Only what lies in a window that is counted from the earliest event of all ranks."""
    base_ns = _base_ns(spilled)
    start, end = (None if t is None else base_ns + t for t in time)
    held = len(spilled) == 1 and not place.parallel
    jobs = [
        Narrowing(p, start, end, None if held else place.folder / f"window-{p.rank}.parked")
        for p in spilled
    ]
    return list(engines.ordered(place.run(narrow, jobs)))


def _annotated(
    place: Executor, spilled: Sequence[SpilledRank], judged: Judged
) -> list[SpilledRank]:
    """The ranks, on their own clocks, with the marks of what all of them together tell."""
    from traceconv.pipeline import annotation

    marks = annotation.marks(judged.findings, judged.verdict)
    held = len(spilled) == 1 and not place.parallel
    jobs = [
        Annotating(
            p, marks.get(p.rank, ()), None if held else place.folder / f"annotated-{p.rank}.parked"
        )
        for p in spilled
    ]
    return list(engines.ordered(place.run(annotated, jobs)))


def _refuse_missing(options: MergeOptions, spilled: Sequence[SpilledRank]) -> None:
    """Raise SelectionError if a graph or step was asked for that no rank has."""
    refuse_missing(options.graphs, options.steps, (p.facts.present for p in spilled))


def _refuse_losses(report: Report) -> None:
    grave = [i for i in report.issues if i.severity is not Severity.INFO]
    if grave:
        shown = "; ".join(f"{i.code} x{i.count} ({i.file or 'run'})" for i in grave[:5])
        total = sum(i.count for i in grave)
        raise StrictError(f"--strict: {total} losses or doubts: {shown}", report)
