"""The whole pipeline: find captures, read each rank, pass it through the mergers, write.

One rank is worked on at a time and then parked (see :mod:`traceconv.pipeline.spill`); the base of time and
the size limit are settled when all ranks are known, before the first byte is encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_records import collective_records
from traceconv.core.errors import Issues, RankError
from traceconv.core.model import Capture, Trace
from traceconv.core.ranks import chosen, format_ranges, resolve
from traceconv.io.sources import sources
from traceconv.io.storage import redact_url
from traceconv.passes import compose
from traceconv.pipeline import registry
from traceconv.pipeline.executor import open_executor, worker_count
from traceconv.pipeline.merging import MergeOptions, Target, finish, read_or_fail, stored
from traceconv.pipeline.report import Report
from traceconv.pipeline.stages import events, passed
from traceconv.writers import WriterFactory, output
from traceconv.writers import size_limit as limits
from traceconv.writers.output import Progress, silent

if TYPE_CHECKING:
    from traceconv.api.inspect import Inspection


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
        comm_patterns: Sequence[str] = (),
        **view: Any,
    ) -> Iterator[Trace]:
        """One trace per rank, read as it is asked for.

        Args:
            mode: None for the events as read, "summary" or "detail" for that view.
            align_by: as ``align`` of :func:`merge`; ``comm_patterns`` as there. For "auto" and
                "collective" the ranks are read twice.
            view: ``graphs``, ``steps``, ``merge_graphs``, ``scope``, ``layers``, ``exclude``
                as in :func:`merge`.
        """
        known = None
        if align_by in clocks.FROM_EVENTS and len(self.found) > 1:
            every = (_events(capture, progress, comm_patterns) for capture in self.found)
            known = [collective_records(trace) for trace in every]
        plan = clocks.plan(self.found, align_by, known)
        passes = compose(mode, **view) if mode or view else []
        for capture in self.found:
            trace = passed(_events(capture, progress, comm_patterns), passes)
            yield clocks.aligned(trace, plan)


def open(
    *paths: str, reader: str | None = None, rank_from: str = "meta", mapping: str | None = None
) -> Captures:
    """Find the captures below ``paths``; reads names and small identity files, no events.

    Args:
        paths:     files, folders, glob patterns, archives, URLs, ``-``.
        reader:    the one reader to ask, by name; None asks all.
        rank_from: "meta", "name" or a regular expression; see :func:`traceconv.core.ranks.resolve`.
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
    annotate: bool = False,
    analyse: bool = False,
    align: str = "auto",
    align_max_error_ns: int | None = None,
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
    jobs: int | None = None,
    mem_limit: int | None = None,
    engine: str = "local",
    engine_address: str | None = None,
    shard: tuple[int, int] | None = None,
    copy: bool = True,
    progress: Progress = silent,
) -> Report:
    """Merge the ranks found below ``paths`` into one trace file.

    Args:
        out:    the file; its ending names the format. None: ``trace_<mode>_ranks<r>.pftrace``
            in the current folder. "-": standard output. It may be a URL.
        mode:   "summary" (step trace and overlap analysis), "detail" (everything), or None for
            the events as they are, with no steps and no overlap made from them; trace-event JSON
            into JSON, with nothing selected, is then copied by its bytes (see
            :mod:`traceconv.pipeline.copying`), and clocks are what files say of them.
        time:   (start, end) in ns, counted from the earliest event of all ranks; None = open.
        layers: names of :class:`~traceconv.core.model.Layer` to keep.
        exclude: regular expression; events whose name it finds are left out.
        args:   keys of arguments that travel; None = all, () = none.
        annotate: draw in what the analyses know: findings and stragglers as instants on lanes of
            their own, the overlap of every step as its arguments.
        analyse: judge the ranks, too, for ``Report.overview``. It changes no byte of the output.
        align:  "auto", "collective", "meta", "wall", "none" or a JSON file of offsets.
        align_max_error_ns: the largest error of a clock to put up with; None = any.
        limit:  size limit; None = none.
        mapping: as in :func:`open`.
        comm_patterns: words; GPU kernels whose name contains one communicate, besides those
            known to (see :mod:`traceconv.readers.shared.gpu_kernels`).
        writer: name of the output format, where the ending of ``out`` does not say it.
        strict: raise :class:`StrictError` if anything is lost or in doubt; nothing is written.
        dry_run: find, say what would be done, read no events.
        allow_missing_ranks: go on without ranks that are not there or cannot be read; each is an
            issue.
        jobs:   workers; None for as many as suit the machine. Bytes do not depend on it.
        mem_limit: bytes of memory this process and its workers may take; None for no limit. What
            does not fit lies in temporary files. Bytes do not depend on it.
        engine: "local" (processes of this machine), "dask" or "ray".
        engine_address: of a running cluster; None for one of our own.
        shard:  (index, count), from 0: read only this share of the ranks, and leave what
            :func:`join` makes the trace of in a folder ``out`` (``trace_<mode>_<i>of<n>.shard``).
        copy:   whether trace-event JSON may be copied where nothing else is asked; see ``mode``.

    Returns:
        What was done, lost and found. See :class:`Report`.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    options = MergeOptions(
        mode, graphs, steps, time, merge_graphs, scope, layers, exclude, args, align, limit,
        comm_patterns, align_max_error_ns, annotate, analyse,
    )  # fmt: skip
    found = open(*paths, reader=reader, rank_from=rank_from, mapping=mapping)
    captures = found.ranks(ranks, allow_missing_ranks)
    if shard is not None:
        from traceconv.pipeline import shards

        path = redact_url(out or f"trace_{mode or 'source'}_{shard[0]}of{shard[1]}{shards.SUFFIX}")
    else:
        path = redact_url(out or _default_path(mode, captures.found))
        target = Target(path, _factory(path, writer), force, strict)
    clock = clocks.plan(captures.found, align)
    report = Report.of(mode or "source", captures.found, path, captures.issues, clock)
    if dry_run:
        return report
    compose(**options.view)  # refuses early
    if shard is not None:
        shards.check(path, force, *shard)
    else:
        output.check(path, force)
    moved = any(o.correction for o in clock.offsets.values())
    if shard is None and copy and mode is None:
        from traceconv.pipeline.copying import copied, copyable
        from traceconv.pipeline.patch import Unusual

        try:
            if copyable(captures.found, options, target, moved):
                return copied(captures.found, target, report, progress)
        except Unusual as e:
            captures.issues.add("not-copied", path, str(e)[:300])
    mine = captures.found[shard[0] :: shard[1]] if shard else captures.found
    if not all(c.source.shared for c in mine):
        jobs, engine = 1, "local"
    workers = worker_count(jobs, [stored(c) for c in mine], mem_limit)
    with open_executor(workers, engine, engine_address, mem_limit) as place:
        if shard is not None:
            report = Report.of(mode or "source", mine, path, captures.issues, clock)
            shards.write_shard(
                place, captures.found, options, shard, report, allow_missing_ranks, progress
            )
            return report
        read = read_or_fail(place, mine, options, progress, captures.issues, allow_missing_ranks)
        return finish(place, read, options, target, progress)


def join(
    *paths: str,
    out: str | None = None,
    allow_missing_ranks: bool = False,
    writer: str | None = None,
    strict: bool = False,
    force: bool = False,
    jobs: int | None = None,
    mem_limit: int | None = None,
    engine: str = "local",
    engine_address: str | None = None,
    progress: Progress = silent,
) -> Report:
    """Join the shards of one merge to the trace that one run would have written.

    Args:
        paths: the folders that :func:`merge` left for ``shard``, all of one merge. What else was
            asked of it, they know.
        allow_missing_ranks: go on without shards that are not there and ranks that failed.

    Raises:
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    from traceconv.pipeline.shards import join_shards

    ranks, options = join_shards([str(p) for p in paths], allow_missing_ranks)
    path = redact_url(out or _default_path(options.mode, ranks.captures))
    target = Target(path, _factory(path, writer), force, strict)
    output.check(path, force)
    sizes = [one.path.stat().st_size for one in ranks.spilled]
    workers = worker_count(jobs, sizes, mem_limit)
    with open_executor(workers, engine, engine_address, mem_limit) as place:
        return finish(place, ranks, options, target, progress)


def _default_path(mode: str | None, captures: Sequence[Capture]) -> str:
    ranks = format_ranges([c.rank for c in captures if c.rank is not None])
    return f"trace_{mode or 'source'}_ranks{ranks}.pftrace"


def _factory(path: str, writer: str | None) -> WriterFactory:
    return registry.writer_named(writer) if writer else registry.writer_for(path)


def convert(path: str, out: str, **options: Any) -> Report:
    """One capture to one file, with what is in it and nothing else. Options as in :func:`merge`.

    It goes through the model, which mends what is damaged.
    """
    return merge(path, out=out, **{"mode": None, "align": "none", "copy": False, **options})


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
            would take, per rank and in all (upper bounds, a few percent above).

    Unlike :func:`open` it shows captures whose rank is unknown or doubled, and says so.
    """
    from traceconv.api.inspect import Inspection

    found = registry.discover(sources([str(p) for p in paths]), reader, mapping)
    inspection = Inspection(
        captures=list(found.captures),
        unknown=[source.title(name) for source, name in found.unknown],
        issues=found.issues,
    )
    try:
        inspection.take(resolve(found.captures, rank_from, found.issues))
    except RankError as e:
        inspection.problem = str(e)
        return inspection
    if counts:
        from traceconv.pipeline.prediction import Prediction

        prediction = Prediction()
        for capture in (c for c in inspection.captures if c.rank is not None):
            trace = _events(capture, progress)
            inspection.add_counts(trace, prediction.add(trace))
        inspection.predicted = prediction.whole()
    return inspection


def _events(capture: Capture, progress: Progress, comm_patterns: Sequence[str] = ()) -> Trace:
    label = f"rank {capture.rank}"
    return events(capture, lambda n: progress(n, 0, label), comm_patterns)
