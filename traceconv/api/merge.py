"""Merge ranks into one trace, in one run or in several."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from traceconv.alignment import plan as clocks
from traceconv.api import options
from traceconv.api.open import Captures
from traceconv.api.open import open as find
from traceconv.core.errors import OptionError
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges
from traceconv.find import registry
from traceconv.io.storage import redact_url
from traceconv.merging.merge_ranks import Target, finish, read_ranks
from traceconv.merging.run_report import Report
from traceconv.passes import compose
from traceconv.run.executor import Executor, started
from traceconv.run.rank_loop import stored
from traceconv.run.settings import (
    EngineName,
    Layout,
    MergeOptions,
    Mode,
    OverLimit,
    RunOptions,
    Selection,
)
from traceconv.writers import output
from traceconv.writers.output import Progress, silent


def merge(
    *paths: options.Paths,
    out: options.AnyPath | None = None,
    ranks: options.Ranks | None = None,
    mode: Mode | None = "summary",
    graphs: options.Numbers | None = None,
    steps: options.Numbers | None = None,
    time: options.Window | None = None,
    layers: options.Layers | None = None,
    exclude: str | None = None,
    selection: Selection | None = None,
    merge_graphs: bool = True,
    scope: bool = False,
    args: options.Names | None = None,
    annotate: bool = False,
    analyse: bool = False,
    layout: Layout = "rank",
    align: options.Align = "auto",
    align_max_error_ns: options.Length | None = None,
    limit: options.Limit | None = None,
    over_limit: OverLimit = "reduce",
    comm_patterns: options.Names = (),
    step_marker: str | None = None,
    merge_options: MergeOptions | None = None,
    rank_from: str = "meta",
    reader: str | None = None,
    mapping: options.AnyPath | None = None,
    nsys: options.AnyPath | None = None,
    writer: str | None = None,
    strict: bool = False,
    force: bool = False,
    dry_run: bool = False,
    shard: options.Shard | None = None,
    copy: bool = True,
    allow_missing_ranks: bool = False,
    jobs: int | None = None,
    mem_limit: options.Size | None = None,
    engine: EngineName = "local",
    engine_address: str | None = None,
    progress: Progress = silent,
) -> Report:
    """Merge the ranks found below ``paths`` into one trace file.

    Args:
        out:    the file; its ending names the format. None: ``trace_<mode>_ranks<r>.pftrace``
            in the current folder. "-": standard output. It may be a URL.
        ranks, graphs, steps: which to keep: ``3``, ``[0, 2]``, ``range(4)`` or ``"0-7,12"``; None
            = all.
        mode:   "summary" (step trace and overlap analysis), "detail" (everything), or "source"
            (also None) for the events as they are, with no steps and no overlap made from them;
            trace-event JSON into JSON, with nothing selected, is then copied by its bytes (see
            :mod:`traceconv.merging.copying`), and clocks are what files say of them.
        time:   a window, counted from the earliest event of all ranks: ``"1.2s:1.5s"``, or
            (start, end) in ns; None = open.
        layers: names of :class:`~traceconv.core.model.Layer` to keep.
        exclude: regular expression; events whose name it finds are left out.
        selection: ``ranks`` to ``exclude`` at once, in place of these.
        merge_graphs: one lane of steps for all graphs, or one lane each.
        scope:  show module scopes (detail only).
        args:   keys of arguments that are kept; None = all, () = none.
        annotate: draw in what the analyses know: findings and stragglers as instants on lanes of
            their own, the critical path and pipeline stages as slices, the overlap of every step as
            its arguments.
        analyse: judge the ranks, too, for ``Report.overview``. It changes no byte of the output.
        layout: "rank" for the lanes of each rank together, or "lane" for each lane of all ranks
            together, the rank that loses most first (Perfetto output only).
        align:  "auto", "collective", "meta", "wall", "none" or a JSON file of offsets.
        align_max_error_ns: the largest error of a clock that is accepted, ns or ``"50us"``; None =
            any.
        limit:  largest size of an output file before compression: bytes, ``"200M"`` or a
            :class:`SizeLimit`; None = any.
        over_limit: what is done at the limit: "reduce", "split" or "fail".
        comm_patterns: words; GPU kernels whose name contains one communicate, besides those
            known to (see :mod:`traceconv.readers.shared.gpu_kernels`).
        step_marker: regular expression; ranges of the host whose name it finds are the steps, and
            its first group, if any, is their number.
        merge_options: everything from ``ranks`` to ``step_marker`` at once, in place of these.
        reader, rank_from, mapping, nsys: as in :func:`traceconv.open`.
        writer: name of the output format, where the ending of ``out`` does not say it.
        strict: raise :class:`StrictError` if anything is lost or in doubt; nothing is written.
        force:  overwrite.
        dry_run: find the captures and report what would be done, without reading events.
        shard:  (index, count), from 0, or ``"0/8"``: read only this share of the ranks, and leave
            what :func:`join` makes the trace of in a folder ``out``
            (``trace_<mode>_<i>of<n>.shard``).
        copy:   whether trace-event JSON may be copied where nothing else is asked; see ``mode``.
        allow_missing_ranks: go on without ranks that are not there or cannot be read; each is an
            issue.
        jobs:   workers, and threads where ranks are fewer; None for as many as suit the machine.
            Bytes do not depend on it.
        mem_limit: memory this process and its workers may take, bytes or ``"600M"``; None for no
            limit. What does not fit is kept in temporary files. Bytes do not depend on it.
        engine: "local" (processes of this machine), "dask" or "ray".
        engine_address: of a running cluster; None for one of our own.
        progress: called as (done since the last call, expected in all or 0, label).

    Returns:
        What was done, lost and found. See :class:`Report`.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    given = MergeOptions(
        mode=options.mode(mode),
        selection=options.selection(
            selection, ranks=ranks, graphs=graphs, steps=steps, time=time, layers=layers,
            exclude=exclude,
        ),
        merge_graphs=merge_graphs,
        scope=scope,
        args=options.kept_args(args, "args"),
        align=options.align(align),
        align_max_error_ns=options.length(align_max_error_ns, "align_max_error_ns"),
        limit=options.limit(limit, over_limit),
        comm_patterns=options.words(comm_patterns, "comm_patterns") or (),
        step_marker=options.pattern(step_marker, "step_marker"),
        annotate=annotate,
        analyse=analyse,
        layout=options.layout(layout),
    )  # fmt: skip
    run = options.run_options(
        jobs, mem_limit, engine, engine_address, allow_missing_ranks, progress
    )
    asked = options.merge_options(merge_options, given)
    share, name = options.shard(shard), options.path(out, "out")
    found = find(*paths, reader=reader, rank_from=rank_from, mapping=mapping, nsys=nsys)
    captures = found.ranks(asked.selection.ranks, allow_missing_ranks)
    if share is not None:
        return _shard(captures, name, asked, share, run, force=force, dry_run=dry_run)
    path = redact_url(name or _default_path(asked.mode, captures.found))
    target = Target(path, registry.writer_for(path, writer), force, strict)
    _refuse_layout(asked, target)
    return _merge(captures, asked, target, run, copy=copy, dry_run=dry_run)


def _merge(
    captures: Captures,
    asked: MergeOptions,
    target: Target,
    run: RunOptions,
    *,
    copy: bool,
    dry_run: bool,
) -> Report:
    clock = clocks.plan(captures.found, asked.align)
    report = Report.of(asked.mode, captures.found, target.path, captures.issues, clock)
    if dry_run:
        return report
    compose(**asked.view)  # refuses early
    output.check(target.path, target.force)
    moved = any(o.correction for o in clock.offsets.values())
    if copy and asked.mode == "source":
        from traceconv.merging.copying import copied, copyable
        from traceconv.merging.patch import Unusual

        try:
            if copyable(captures.found, asked, target, moved):
                return copied(captures.found, target, report, asked, run, clock)
        except Unusual as e:
            captures.issues.add("not-copied", target.path, str(e)[:300])
    with _started(captures.found, run) as executor:
        read = read_ranks(captures.found, asked, executor, run, captures.issues)
        return finish(read, asked, target, executor, run.progress)


def _refuse_layout(asked: MergeOptions, target: Target) -> None:
    """Raise OptionError for lanes across ranks in what has none."""
    if asked.layout == "lane" and target.writer().name != "perfetto":
        raise OptionError(f"{target.path}: only Perfetto output (.pftrace) has the layout 'lane'")


def _shard(
    captures: Captures,
    name: str | None,
    asked: MergeOptions,
    share: tuple[int, int],
    run: RunOptions,
    *,
    force: bool,
    dry_run: bool,
) -> Report:
    from traceconv.merging import shards

    path = redact_url(name or f"trace_{asked.mode}_{share[0]}of{share[1]}{shards.SUFFIX}")
    clock = clocks.plan(captures.found, asked.align)
    if dry_run:
        return Report.of(asked.mode, captures.found, path, captures.issues, clock)
    compose(**asked.view)  # refuses early
    shards.check(path, force, *share)
    mine = captures.found[share[0] :: share[1]]
    report = Report.of(asked.mode, mine, path, captures.issues, clock)
    with _started(mine, run) as executor:
        shards.write_shard(captures.found, share, asked, report, executor, run)
    return report


def _started(captures: Sequence[Capture], run: RunOptions) -> AbstractContextManager[Executor]:
    shared = all(one.source.shared for one in captures)
    return started(run, [stored(one) for one in captures], shared)


def join(
    *paths: options.Paths,
    out: options.AnyPath | None = None,
    writer: str | None = None,
    strict: bool = False,
    force: bool = False,
    allow_missing_ranks: bool = False,
    jobs: int | None = None,
    mem_limit: options.Size | None = None,
    engine: EngineName = "local",
    engine_address: str | None = None,
    progress: Progress = silent,
) -> Report:
    """Join the shards of one merge to the trace that one run would have written.

    Args:
        paths: the folders that :func:`merge` left for ``shard``, all of one merge. They contain
            the other options of the merge.
        allow_missing_ranks: go on without shards that are not there and ranks that failed.

    The other arguments are those of :func:`merge`.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    from traceconv.merging.shards import join_shards

    run = options.run_options(
        jobs, mem_limit, engine, engine_address, allow_missing_ranks, progress
    )
    ranks, asked = join_shards(options.paths(paths), allow_missing_ranks)
    path = redact_url(options.path(out, "out") or _default_path(asked.mode, ranks.captures))
    target = Target(path, registry.writer_for(path, writer), force, strict)
    _refuse_layout(asked, target)
    output.check(path, force)
    with started(run, [one.path.stat().st_size for one in ranks.spilled]) as executor:
        return finish(ranks, asked, target, executor, progress)


def _default_path(mode: Mode, captures: Sequence[Capture]) -> str:
    ranks = format_ranges([c.rank for c in captures if c.rank is not None])
    return f"trace_{mode}_ranks{ranks}.pftrace"
