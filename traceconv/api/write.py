"""Save traces that were opened, filtered or built in Python, with the loop that merges use."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

from traceconv.alignment.collective_records import collective_records
from traceconv.core.errors import Issues, RankError
from traceconv.core.model import Trace, arranged
from traceconv.core.rank_ranges import format_ranges
from traceconv.find import registry
from traceconv.io.atomic import check
from traceconv.io.run_files import one_run, read_from
from traceconv.io.storage import redact_url
from traceconv.merging.merge_ranks import Ranks, Target, finish
from traceconv.merging.run_report import Report
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import MergeOptions, RunOptions
from traceconv.options.verbs import WriteOptions
from traceconv.passes.lanes import lanes
from traceconv.run.executor import Executor, started
from traceconv.run.spill import InMemoryRank, SpilledRank, rank_path, spill

if TYPE_CHECKING:
    from traceconv.options.arguments import WriteArguments


@takes(WriteOptions)
@one_run()
def write(
    traces: Trace | Iterable[Trace], out: values.AnyPath, **keywords: Unpack[WriteArguments]
) -> Report:
    """Write traces, one per rank, into one file.

    The traces are written as they are, on the clocks they are on: nothing is derived, aligned or
    selected; ranks that were read with ``align="none"`` cause a warning. Rows are put into table
    order, and slices that cross get further tracks. Traces are taken one at a time, so that
    ``traceconv.open(...).traces()`` may be written from a generator whatever its size; ranks wait
    in temporary files.

    Args:
        traces: from :meth:`traceconv.Captures.traces`, changed by :meth:`traceconv.Trace.keep` and
            numpy, or made by a :class:`traceconv.TraceBuilder`.
        out:    the file; its extension selects the format. "-": standard output. It may be a URL.

    Returns:
        The report of the run.

    Raises:
        RankError: ``traces`` is empty, or two have the same rank.
        OutputError: ``out`` exists, names no format, or cannot be written. No file is left behind.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    options = WriteOptions.of(keywords)
    output = options.output
    path = redact_url(values.path(out, "out") or "")
    factory = registry.writer_for(path, output.writer)
    check(path, output.force)
    limit = options.limits.size_limit()
    merge_options = MergeOptions(mode="source", align="none", args=options.args, limit=limit)
    target = Target(path, factory, output.force, output.strict)
    with started(RunOptions(jobs=1), [0]) as executor:
        ranks = _ranks([traces] if isinstance(traces, Trace) else traces, executor)
        return finish(ranks, merge_options, target, executor, options.progress)


def _ranks(traces: Iterable[Trace], executor: Executor) -> Ranks:
    """The traces by rank; unless one is all there is, they are not kept in memory."""
    alone = isinstance(traces, Sequence) and len(traces) == 1
    by_rank: dict[int, SpilledRank] = {}
    captures = {}
    unaligned: list[int] = []
    for unsorted in traces:
        source = unsorted.capture.source
        read_from(
            path for name in unsorted.capture.files if (path := source.path(name)) is not None
        )
        trace = lanes(arranged(unsorted))
        if trace.rank in by_rank:
            raise RankError(f"two traces are of rank {trace.rank}; a file has each rank once")
        file = rank_path(executor.folder, trace.rank)
        by_rank[trace.rank] = (
            InMemoryRank(trace) if alone else spill(trace, collective_records(trace), file)
        )
        captures[trace.rank] = trace.capture
        unaligned += [trace.rank] * (not trace.aligned)
        del unsorted, trace  # one rank at a time
    if not by_rank:
        raise RankError("no traces to write")
    order = sorted(by_rank)
    issues = Issues()
    if unaligned and len(order) > 1:
        ranks = format_ranges(sorted(unaligned))
        warnings.warn(
            f"the clocks of ranks {ranks} were not aligned (align='none'): do not compare times "
            "across ranks, or read them with `traces(align='auto')`",
            stacklevel=4,
        )
        for rank in unaligned:
            issues.add("unaligned", captures[rank].title, "align='none'", rank=rank)
    return Ranks(tuple(captures[r] for r in order), tuple(by_rank[r] for r in order), issues)
