"""Merge ranks into one trace, in one run or in several."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import msgspec

from traceconv.alignment import plan as clocks
from traceconv.api.open import Captures, found_below
from traceconv.core.errors import OptionError
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges
from traceconv.find import registry
from traceconv.io.atomic import check
from traceconv.io.run_files import one_run
from traceconv.io.storage import redact_url
from traceconv.merging.merge_ranks import Target, finish, read_ranks
from traceconv.merging.run_report import Report, known_issues
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import MergeOptions, RunOptions
from traceconv.options.values import Mode
from traceconv.options.verbs import JoinOptions, MergeRequest
from traceconv.run.executor import Executor, started
from traceconv.run.rank_loop import stored
from traceconv.writers.output import table_paths

if TYPE_CHECKING:
    from traceconv.options.arguments import JoinArguments, MergeArguments


@takes(MergeRequest)
def merge(*paths: values.Paths, **keywords: Unpack[MergeArguments]) -> Report:
    """Merge the ranks found below ``paths`` into one trace file.

    ``selection`` and ``merge_options`` take several keywords at once, in place of these.

    Returns:
        The report of the run, see :class:`Report`.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    named = "mode" in keywords or "merge_options" in keywords
    return merged(paths, MergeRequest.of(keywords), or_detail=not named)


@one_run()
def merged(
    paths: Sequence[values.Paths],
    request: MergeRequest,
    keep: bool = False,
    found: Captures | None = None,
    or_detail: bool = False,
) -> Report:
    """As :func:`merge`, of options that have been checked.

    Args:
        keep:  a file of trace events for which nothing is asked is written as it is.
        found: what is below the paths, if that is known.
        or_detail: write the detail view if no rank has device work, which a summary is made of.
    """
    options, limit = request.merge_options, request.limits.size_limit()
    if limit is not None:
        options = replace(options, limit=limit)
    run, output = request.run, request.output
    found = found or found_below(paths, request.input)
    captures = found.ranks(options.selection.ranks, run.allow_missing_ranks)
    if request.shard is not None:
        return _shard(captures, options, request, request.shard)
    path = redact_url(output.out or _default_path(options.mode, captures.found))
    target = Target(path, registry.writer_for(path, output.writer), output.force, output.strict)
    _refuse_layout(options, target)
    detail = output.out or _default_path("detail", captures.found)
    fallback = msgspec.structs.replace(target, path=redact_url(detail)) if or_detail else None
    return _merge(
        captures, options, target, run, copy=request.copy, keep=keep, dry_run=request.dry_run,
        fallback=fallback,
    )  # fmt: skip


def _merge(
    captures: Captures,
    options: MergeOptions,
    target: Target,
    run: RunOptions,
    *,
    copy: bool,
    keep: bool,
    dry_run: bool,
    fallback: Target | None = None,
) -> Report:
    """As :func:`merged`; ``fallback`` is where the detail view goes if no rank has device work."""
    clock = clocks.plan(captures.found, options.align)
    if dry_run:
        issues = known_issues(captures.issues, clock, {})
        return Report.of(options.mode, target.path, captures.found, clock, issues)
    options.passes()  # refuses early
    for table_path in table_paths(target.path, target.writer()):
        check(table_path, target.force)
    moved = any(o.correction for o in clock.offsets.values())
    if (copy or keep) and options.mode == "source":
        from traceconv.merging.copying import READERS, copied, copyable, kept
        from traceconv.merging.patch import Unusual

        lone = keep and len(captures.found) == 1 and not options.analyse
        try:
            if copyable(captures.found, options, target, moved):
                if lone:
                    return kept(captures.found[0], target, captures.issues, options, run, clock)
                if copy:
                    return copied(captures.found, target, captures.issues, options, run, clock)
            elif (
                keep
                and target.writer().name == "chrome_json"
                and all(capture.reader in READERS for capture in captures.found)
            ):
                captures.issues.add("not-copied", target.path, "events were selected or changed")
        except Unusual as e:
            captures.issues.add("not-copied", target.path, str(e)[:300])
    with _started(captures.found, run) as executor:
        issues = captures.issues.copy()
        read = read_ranks(captures.found, options, executor, run, captures.issues)
        if fallback and all(rank.account.issues.count("no-device-events") for rank in read.spilled):
            options, target = replace(options, mode="detail"), fallback
            check(target.path, target.force)
            read = read_ranks(captures.found, options, executor, run, issues)
        return finish(read, options, target, executor, run.progress)


def _refuse_layout(options: MergeOptions, target: Target) -> None:
    """Raise OptionError for lanes across ranks in what has none."""
    if options.layout == "lane" and target.writer().name != "perfetto":
        raise OptionError(f"{target.path}: only Perfetto output (.pftrace) has the layout 'lane'")


def _shard(
    captures: Captures, options: MergeOptions, request: MergeRequest, share: tuple[int, int]
) -> Report:
    from traceconv.merging import shards

    name = request.output.out or f"trace_{options.mode}_{share[0]}of{share[1]}{shards.SUFFIX}"
    path = redact_url(name)
    clock = clocks.plan(captures.found, options.align)
    issues = known_issues(captures.issues, clock, {})
    if request.dry_run:
        return Report.of(options.mode, path, captures.found, clock, issues)
    options.passes()  # refuses early
    shards.check(path, request.output.force, *share)
    share_captures = captures.found[share[0] :: share[1]]
    with _started(share_captures, request.run) as executor:
        accounts = shards.write_shard(
            captures.found, share, options, path, issues, executor, request.run
        )
    for rank, account in accounts.items():
        issues.extend(account.issues, rank=rank)
    return Report.of(options.mode, path, share_captures, clock, issues, found=accounts)


def _started(captures: Sequence[Capture], run: RunOptions) -> AbstractContextManager[Executor]:
    shared = all(capture.source.shared for capture in captures)
    return started(run, [stored(capture) for capture in captures], shared)


@takes(JoinOptions)
@one_run()
def join(*paths: values.Paths, **keywords: Unpack[JoinArguments]) -> Report:
    """Join the shards of one merge to the trace that one run would have written.

    Args:
        paths: the folders that :func:`merge` left for ``shard``, all of one merge. They contain
            the other options of the merge.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    from traceconv.merging.shards import join_shards

    request = JoinOptions.of(keywords)
    output, run = request.output, request.run
    ranks, options = join_shards(values.paths(paths), run.allow_missing_ranks)
    path = redact_url(output.out or _default_path(options.mode, ranks.captures))
    target = Target(path, registry.writer_for(path, output.writer), output.force, output.strict)
    _refuse_layout(options, target)
    check(path, output.force)
    with started(run, [rank.path.stat().st_size for rank in ranks.spilled]) as executor:
        return finish(ranks, options, target, executor, run.progress)


def _default_path(mode: Mode, captures: Sequence[Capture]) -> str:
    ranks = format_ranges([c.rank for c in captures if c.rank is not None])
    return f"trace_{mode}_ranks{ranks}.pftrace"
