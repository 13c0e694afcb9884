"""The steps of a merge: read all ranks, decide what depends on all of them, write.

Ranks are read and encoded one by one, in this process or by workers. In between, clocks, the base
time and the size limit are determined from the accounts of all ranks, without their events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from traceconv.alignment import plan as clocks
from traceconv.core.codes import Severity
from traceconv.core.errors import Issues, StrictError
from traceconv.core.model import Capture, Track
from traceconv.find.rank_selection import refuse_missing
from traceconv.merging import beside
from traceconv.merging.beside import OtherSources
from traceconv.merging.run_report import Report, known_issues, trace_metadata
from traceconv.options.groups import MergeOptions, RunOptions
from traceconv.run import engines
from traceconv.run.emptiness import refuse_empty, refuse_empty_window
from traceconv.run.executor import Executor
from traceconv.run.rank_loop import counted_progress, map_ranks
from traceconv.run.spill import SpilledRank
from traceconv.run.stages import Annotating, Narrowing, Reading, annotated, narrow
from traceconv.store.store_file import StoredSource
from traceconv.writers import Across, Document, Plan, WriterFactory, output
from traceconv.writers import size_limit as limits
from traceconv.writers.output import Encoded, Encoding, Progress, encode

if TYPE_CHECKING:
    from traceconv.merging.job_summary import JobSummary
    from traceconv.passes.annotate import Mark


class Ranks(msgspec.Struct, frozen=True):
    """The ranks of a merge, read and spilled.

    Attributes:
        captures: of those that could be read, ascending.
        spilled:  the same, read.
        issues:   what finding and reading them noted.
        summarized: whether each has a summary.
    """

    captures: tuple[Capture, ...]
    spilled: tuple[SpilledRank, ...]
    issues: Issues = msgspec.field(default_factory=Issues)
    summarized: bool = False


_MOST_COMPARED = 64
"""Ranks that are compared though nothing asks for it, at most: it takes time and memory."""


def of_dumps(captures: Sequence[Capture]) -> bool:
    """Whether the report has to say where a job hangs."""
    return any("flight_recorder" in capture.reader for capture in captures)


def _compares(captures: Sequence[Capture], options: MergeOptions) -> bool:
    """Whether ranks are compared even if the options do not ask for it: the first line of the
    report names the largest loss, and where a job hangs. Views that a store holds are taken as they
    are."""
    stored = any(isinstance(capture.source, StoredSource) for capture in captures)
    few = 1 < len(captures) <= _MOST_COMPARED
    return of_dumps(captures) or (few and options.mode != "source" and not stored)


def reading(
    captures: Sequence[Capture],
    options: MergeOptions,
    folder: Path,
    *,
    in_memory: bool = False,
    alone: bool = False,
) -> Reading:
    """How every rank of a merge is read.

    Args:
        captures:  all of the merge.
        folder:    where ranks are spilled.
        in_memory: the one rank of the merge is kept in memory instead.
        alone:     see :func:`traceconv.run.spill.spill`.
    """
    plain = Reading(folder, options, in_memory, alone)
    if not options.summarizes:
        if not (of_dumps(captures) if alone else _compares(captures, options)):
            return plain
        from traceconv.analysis.summarize import SummaryRequest

        return replace(plain, summary=SummaryRequest(lateness=True, issues=False))
    from traceconv.report.run_summary import request

    requested = replace(request(drawn=options.analyse), items=options.analyse, phases=True)
    return replace(plain, summary=requested)


def read_ranks(
    captures: Sequence[Capture],
    options: MergeOptions,
    executor: Executor,
    run: RunOptions,
    issues: Issues,
) -> Ranks:
    """All ranks, spilled; those that fail are left out if the run allows that.

    Raises:
        TraceconvError: a rank cannot be read, or none can.
    """
    in_memory = len(captures) == 1 and not executor.parallel
    work = reading(captures, options, executor.folder, in_memory=in_memory)
    read = list(map_ranks(work, captures, executor, run, issues))
    done = tuple(c for c, _ in read), tuple(spilled for _, spilled in read)
    return Ranks(*done, issues, work.summary is not None)


class Target(msgspec.Struct, frozen=True):
    """Where the output of a merge is written.

    Attributes:
        path:   of the file.
        writer: of its format.
        force:  whether it may be there already.
        strict: whether losses and doubts are errors.
    """

    path: str
    writer: WriterFactory
    force: bool = False
    strict: bool = False


class Settled(msgspec.Struct, frozen=True):
    """What depends on all ranks.

    Attributes:
        spilled: the ranks on one clock, cut to the window of time that was selected.
        clock:   how their clocks were aligned.
        base_ns: the earliest event, which becomes time 0.
        job:     the summary of all ranks; None unless the options ask for it.
    """

    spilled: Sequence[SpilledRank]
    clock: clocks.Plan
    base_ns: int
    job: JobSummary | None


def settled(ranks: Ranks, options: MergeOptions, executor: Executor, progress: Progress) -> Settled:
    """Align clocks, and cut out the window of time.

    Raises:
        EmptyResultError, SelectionError: nothing is left, or what was selected is in no rank.
    """
    progress(0, 0, "aligning clocks")
    records = [p.collective_records() for p in ranks.spilled]
    spans = {p.rank: p.account.span for p in ranks.spilled}
    clock = clocks.plan(
        ranks.captures, options.align, records, options.align_max_error_ns, spans=spans
    )
    job: JobSummary | None = None
    if options.summarizes or ranks.summarized:
        from traceconv.merging.job_summary import JobSummary

        progress(0, 0, "comparing ranks")
        job = JobSummary.of(
            executor, ranks.spilled, clock, ranks.captures, whole=options.summarizes
        )
    with_marks = (
        _annotated(ranks.spilled, job.marks(), executor) if job and options.annotate else None
    )
    spilled: Sequence[SpilledRank] = [
        p.changed(partial(clocks.shift, by=clock.offsets[p.rank].correction))
        for p in with_marks or ranks.spilled
    ]
    present = [rank.account.present for rank in spilled]
    refuse_missing(
        options.selection.numbers,
        {
            "graph": {n for rank in present for n in rank.graphs.tolist()},
            "step": {n for rank in present for n in rank.steps.tolist()},
        },
    )
    refuse_empty(spilled, options)
    if options.selection.time is not None:
        progress(0, 0, "cutting out the window")
        spilled = _within(spilled, options.selection.time, executor)
    return Settled(spilled, clock, _base_ns(spilled), job)


def finish(
    ranks: Ranks, options: MergeOptions, target: Target, executor: Executor, progress: Progress
) -> Report:
    """Settle clocks, base of time and size, and write.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    done = settled(ranks, options, executor, progress)
    spilled, clock, base_ns, job = done.spilled, done.clock, done.base_ns, done.job
    accounts = {rank.rank: rank.account for rank in spilled}
    issues = known_issues(ranks.issues, clock, accounts)
    document = Document(
        base_ns,
        tuple(p.rank for p in spilled),
        trace_metadata(options.mode, ranks.captures, clock, issues, base_ns, accounts),
        None if options.args is None else frozenset(options.args),
        {p.rank: p.account.capture.pid for p in spilled},
        _across(spilled) if options.layout == "lane" else None,
    )
    if options.limit:
        progress(0, 0, "finding what fits")
    other_sources = OtherSources(ranks.captures, spilled, clock, base_ns)
    keeps_all = beside.keeps_all(options, target.writer)
    document = other_sources.into(document) if keeps_all else document
    plan = limits.plan(spilled, document, target.writer, options.limit, executor.each)
    plan = other_sources.planned(plan) if keeps_all else plan
    issues.extend(plan.issues)
    analysed = job if options.analyse else None
    overview = analysed.overview(options, clock, issues, base_ns) if analysed else None
    headline, lost, verdict = job.account() if job else ("", "", "")

    def report(written: Sequence[output.Written]) -> Report:
        all_issues = issues.copy()
        for output_file in written:
            all_issues.extend(output_file.issues)
        all_issues.extend(other_sources.issues)
        return Report.of(
            options.mode, target.path, ranks.captures, clock, all_issues, found=accounts,
            dropped=plan.dropped, written=written, overview=overview,
            step_items=analysed.step_items() if analysed else None,
            headline=headline, lost=lost, verdict=verdict,
        )  # fmt: skip

    def accept(done: Sequence[output.Written]) -> None:
        if target.strict:
            refuse_losses(report(done))

    return report(_write(plan, target, accept, executor, progress))


def _write(
    plan: Plan,
    target: Target,
    accept: Callable[[Sequence[output.Written]], None],
    executor: Executor,
    progress: Progress,
) -> Sequence[output.Written]:
    def elsewhere(jobs: Sequence[Encoding]) -> Iterator[Encoded]:
        with_paths = [
            replace(job, path=executor.folder / f"encoded-{i}") for i, job in enumerate(jobs)
        ]
        label = f"writing {Path(target.path).name}"
        counted = partial(counted_progress, progress, plan.predicted, label)
        return engines.ordered(executor.watched(encode, with_paths, counted))

    return output.write(
        plan,
        target.writer,
        target.path,
        force=target.force,
        progress=progress,
        accept=accept,
        elsewhere=elsewhere if executor.parallel else None,
    )


def _base_ns(spilled: Sequence[SpilledRank]) -> int:
    return min((p.account.span[0] for p in spilled if p.account.span), default=0)


def _across(spilled: Sequence[SpilledRank]) -> Across:
    """The tracks of all ranks side by side: first the rank that waits least in communication, as
    the others wait for it. Without communication, the rank that computes least. Ranks without known
    times are last."""
    from traceconv.analysis.losses import losses
    from traceconv.writers.perfetto.tracks import thread_of

    lost = {
        rank.rank: losses(rank.account.steps, rank.account.overlap, rank.account.coverage.devices)
        for rank in spilled
    }
    waits = any(rank.exposed_ns for rank in lost.values())

    def order(rank: SpilledRank) -> tuple[float, int]:
        losses_of_rank = lost[rank.rank]
        share = (losses_of_rank.exposed_ns if waits else losses_of_rank.computing_ns) / max(
            losses_of_rank.known_ns, 1
        )
        return share if losses_of_rank.known_ns else 2.0, rank.rank

    lanes = {
        track.whole
        for rank in spilled
        for track in rank.account.tracks
        if thread_of(track, rank.account.capture) is None
    }
    return Across(
        tuple(rank.rank for rank in sorted(spilled, key=order)),
        tuple(sorted(lanes, key=Track.order_key)),
    )


def _within(
    spilled: Sequence[SpilledRank], time: tuple[int | None, int | None], executor: Executor
) -> list[SpilledRank]:
    """Only what is in a window that is counted from the earliest event of all ranks.

    Raises:
        EmptyResultError: nothing is.
    """
    base_ns = _base_ns(spilled)
    start, end = (None if t is None else base_ns + t for t in time)
    jobs = [
        Narrowing(p, start, end, _file(executor, f"window-{p.rank}", len(spilled))) for p in spilled
    ]
    narrowed = list(engines.ordered(executor.run(narrow, jobs)))
    last_ns = max((p.account.span[1] for p in spilled if p.account.span), default=base_ns)
    refuse_empty_window(narrowed, time, last_ns - base_ns)
    return narrowed


def _annotated(
    spilled: Sequence[SpilledRank], marks: Mapping[int, Sequence[Mark]], executor: Executor
) -> list[SpilledRank]:
    """The ranks, on their own clocks, with slices for the results of the analyses."""
    jobs = [
        Annotating(p, marks.get(p.rank, ()), _file(executor, f"annotated-{p.rank}", len(spilled)))
        for p in spilled
    ]
    return list(engines.ordered(executor.run(annotated, jobs)))


def _file(executor: Executor, name: str, ranks: int) -> Path | None:
    """The file of a rank; None, for memory, where it is the only one and this process works."""
    if ranks == 1 and not executor.parallel:
        return None
    return executor.folder / f"{name}.spilled"


def refuse_losses(report: Report) -> None:
    """Raise StrictError if anything was lost or is in doubt."""
    grave = [i for i in report.issues if i.severity is not Severity.INFO]
    if grave:
        shown = "; ".join(f"{i.code} x{i.count} ({i.file or 'run'})" for i in grave[:5])
        total = sum(i.count for i in grave)
        raise StrictError(f"`strict=True`: {total} losses or doubts: {shown}", report)
