"""The whole pipeline: find captures, read each rank, pass it through the mergers, write.

One rank is worked on at a time and then parked (see :mod:`traceconv.park`); the base of time and
the size limit are settled when all ranks are known, before the first byte is encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from traceconv import registry
from traceconv.build import TraceBuilder
from traceconv.errors import Issues, RankError, SelectionError, Severity, StrictError
from traceconv.mergers import VIEWS, Pass, compose
from traceconv.mergers import align as clocks
from traceconv.mergers.select import time_window
from traceconv.model import Capture, Trace
from traceconv.park import Parked
from traceconv.ranks import chosen, resolve, spelled
from traceconv.report import Inspection, Report
from traceconv.source import sources
from traceconv.writers import Document, limits, output
from traceconv.writers.output import Progress, silent


@dataclass(frozen=True)
class Captures:
    """What :func:`open` found: one capture per rank, ascending, not yet read.

    Attributes:
        found:   the captures; every one has a rank.
        unknown: titles of files no reader knows.
        issues:  what finding them met.
    """

    found: tuple[Capture, ...]
    unknown: tuple[str, ...] = ()
    issues: Issues = field(default_factory=Issues)

    def ranks(self, wanted: Sequence[int] | None, allow_missing: bool = False) -> Captures:
        """Only these ranks (None = all).

        Raises:
            RankError: one of them is not there.
        """
        issues = self.issues.copy()
        return replace(self, found=chosen(self.found, wanted, allow_missing, issues), issues=issues)

    def traces(
        self,
        mode: str | None = None,
        *,
        align_by: str = "none",
        progress: Progress = silent,
        **view: Any,
    ) -> Iterator[Trace]:
        """One trace per rank, read as it is asked for.

        Args:
            mode: None for the events as read, "summary" or "detail" for that view.
            align_by: as ``align`` of :func:`merge`.
            view: ``graphs``, ``steps``, ``merge_graphs``, ``scope``, ``layers``, ``exclude``
                as in :func:`merge`.
        """
        plan = clocks.plan(self.found, align_by)
        passes = compose(mode, **view) if mode or view else []
        for capture in self.found:
            trace = _passed(_read(capture, progress), passes)
            yield clocks.shift(trace, plan.offset_ns(trace.rank))


def open(
    *paths: str, reader: str | None = None, rank_from: str = "meta", mapping: str | None = None
) -> Captures:
    """Find the captures below ``paths``; reads names and small identity files, no events.

    Args:
        paths:     files, folders, glob patterns, archives, ``-``.
        reader:    the one reader to ask, by name; None asks all.
        rank_from: "meta", "name" or a regular expression; see :func:`traceconv.ranks.resolve`.
        mapping:   columns of an event log: "name=Name,ts=Start (ns):ns,...", a preset, or a file.

    Raises:
        SourceError, UnknownFormatError, AmbiguousFormatError, RankError.
    """
    found = registry.discover(sources([str(p) for p in paths]), reader, mapping)
    captures = resolve(found.captures, rank_from, found.issues)
    unknown = tuple(source.title(name) for source, name in found.unknown)
    return Captures(captures, unknown, found.issues)


def merge(
    *paths: str,
    out: str | None = None,
    ranks: Sequence[int] | None = None,
    mode: str | None = "summary",
    graphs: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    time: tuple[int | None, int | None] | None = None,
    merge_graphs: bool = True,
    scope: bool = False,
    layers: Sequence[str] | None = None,
    exclude: str | None = None,
    args: Sequence[str] | None = None,
    align: str = "auto",
    rank_from: str = "meta",
    allow_missing_ranks: bool = False,
    limit: limits.SizeLimit | None = None,
    reader: str | None = None,
    mapping: str | None = None,
    comm_patterns: Sequence[str] = (),
    writer: str | None = None,
    strict: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress = silent,
) -> Report:
    """Merge the ranks found below ``paths`` into one trace file.

    Args:
        out:    the file; its ending names the format. None: ``trace_<mode>_ranks<r>.pftrace``
            in the current folder. "-": standard output.
        mode:   "summary" (step trace and overlap analysis), "detail" (everything), or None for
            the events as they are, with no steps and no overlap made from them.
        time:   (start, end) in ns, counted from the earliest event of all ranks; None = open.
        layers: names of :class:`~traceconv.model.Layer` to keep.
        exclude: regular expression; events whose name it finds are left out.
        args:   keys of arguments that travel; None = all, () = none.
        align:  "auto", "meta", "wall", "none" or a JSON file of offsets.
        limit:  size limit; None = none.
        mapping: as in :func:`open`.
        comm_patterns: words; GPU kernels whose name contains one communicate, besides those
            known to (see :mod:`traceconv.readers._gpu`).
        writer: name of the output format, where the ending of ``out`` does not say it.
        strict: raise :class:`StrictError` if anything is lost or in doubt; nothing is written.
        dry_run: find, say what would be done, read no events.

    Returns:
        What was done, lost and found. See :class:`Report`.

    Raises:
        TraceconvError: see :mod:`traceconv.errors`. No file is left behind.
    """
    found = open(*paths, reader=reader, rank_from=rank_from, mapping=mapping)
    captures = found.ranks(ranks, allow_missing_ranks)
    present = [c.rank for c in captures.found if c.rank is not None]
    path = out or f"trace_{mode or 'source'}_ranks{spelled(present)}.pftrace"
    factory = registry.writer_named(writer) if writer else registry.writer_for(path)
    plan = clocks.plan(captures.found, align)
    report = Report.of(mode or "source", captures.found, path, captures.issues, plan)
    if dry_run:
        return report
    output.check(path, force)
    passes = compose(
        mode,
        graphs=graphs,
        steps=steps,
        merge_graphs=merge_graphs,
        scope=scope,
        layers=layers,
        exclude=exclude,
    )
    parked = []
    for capture in captures.found:
        trace = _passed(_read(capture, progress, comm_patterns), passes)
        trace = clocks.shift(trace, plan.offset_ns(trace.rank))
        report.add(trace)
        parked.append(Parked(trace, in_memory=len(present) == 1))
        del trace  # one rank at a time
    _refuse_missing(graphs, steps, parked)
    if time is not None:
        parked = _within(parked, time)
    base_ns = min((p.span[0] for p in parked if p.span), default=0)
    document = Document(base_ns, tuple(present), report.facts(base_ns, parked), _wanted_args(args))
    parts = limits.plan(parked, document, factory, limit)
    report.settle(parts)

    def accept(done: Sequence[output.Written]) -> None:
        report.take(done)
        if strict:
            _refuse_losses(report)

    output.write(parts, factory, path, force=force, progress=progress, accept=accept)
    return report


def convert(path: str, out: str, **options: Any) -> Report:
    """One capture to one file, with what is in it and nothing else. Options as in :func:`merge`."""
    return merge(path, out=out, **{"mode": None, "align": "none", **options})


def inspect(
    *paths: str,
    reader: str | None = None,
    rank_from: str = "meta",
    mapping: str | None = None,
    counts: bool = False,
    progress: Progress = silent,
) -> Inspection:
    """What lies below ``paths``: format, rank, device, graphs, clock and files of every capture.

    Args:
        counts: also read every event: rows by kind and layer, steps, graphs, and what each mode
            would take as a Perfetto file (an upper bound, a few percent above).

    Unlike :func:`open` it shows captures whose rank is unknown or doubled, and says so.
    """
    found = registry.discover(sources([str(p) for p in paths]), reader, mapping)
    inspection = Inspection(
        captures=list(found.captures),
        unknown=[source.title(name) for source, name in found.unknown],
        issues=found.issues,
    )
    try:
        inspection.captures = list(resolve(found.captures, rank_from, found.issues))
    except RankError as e:
        inspection.problem = str(e)
        return inspection
    if counts:
        for capture in inspection.captures:
            trace = _read(capture, progress)
            sizes = {mode: _predicted(_passed(trace, compose(mode))) for mode in VIEWS}
            inspection.add_counts(trace, sizes)
    return inspection


def _read(capture: Capture, progress: Progress, comm_patterns: Sequence[str] = ()) -> Trace:
    """All events of one capture, as its reader gives them."""
    label = f"rank {capture.rank}"
    capture.source.progress = lambda n: progress(n, 0, label)
    build = TraceBuilder(capture)
    build.comm_words = tuple(word.lower() for word in comm_patterns)
    registry.read_capture(capture, build)
    return build.finish()


def _predicted(trace: Trace) -> int:
    """Bytes of ``trace`` as a Perfetto file; a few percent too many."""
    span = trace.span()
    document = Document(span[0] if span else 0, (trace.rank,))
    costs = registry.writer_named("perfetto")().costs(trace, document)
    return int(costs.fixed + costs.events.sum() + costs.counters.sum() + costs.flows.sum())


def _passed(trace: Trace, passes: Sequence[Pass]) -> Trace:
    for one in passes:
        trace = one(trace)
    return trace


def _within(parked: Sequence[Parked], time: tuple[int | None, int | None]) -> list[Parked]:
    """Only what lies in a window that is counted from the earliest event of all ranks."""
    base_ns = min((p.span[0] for p in parked if p.span), default=0)
    start, end = (None if t is None else base_ns + t for t in time)
    return [Parked(time_window(p.load(), start, end), len(parked) == 1) for p in parked]


def _wanted_args(args: Sequence[str] | None) -> frozenset[str] | None:
    return None if args is None else frozenset(args)


def _refuse_missing(
    graphs: Sequence[int] | None, steps: Sequence[int] | None, parked: Sequence[Parked]
) -> None:
    """Raise SelectionError if a graph or step was asked for that no rank has."""
    for what, wanted in (("graph", graphs), ("step", steps)):
        present = {n for p in parked for n in p.notes.get(f"{what}s_found", ())}
        missing = sorted(set(wanted or ()) - present)
        if missing:
            raise SelectionError(
                f"{what} {spelled(missing)} is in none of the ranks; "
                f"{what}s found: {spelled(sorted(present)) or 'none'}"
            )


def _refuse_losses(report: Report) -> None:
    grave = [i for i in report.issues if i.severity is not Severity.INFO]
    if grave:
        shown = "; ".join(f"{i.code} x{i.count} ({i.file or 'run'})" for i in grave[:5])
        total = sum(i.count for i in grave)
        raise StrictError(f"--strict: {total} losses or doubts: {shown}", report)
