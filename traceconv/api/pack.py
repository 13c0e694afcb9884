"""Pack ranks into a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from traceconv.analysis.summarize import NO_PARTS, all_parts
from traceconv.api.open import unlabelled
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.plugins import announced
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.source import Progress
from traceconv.io.atomic import check, opened, replacing
from traceconv.io.run_files import one_run
from traceconv.io.sources import sources
from traceconv.io.storage import redact_url
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import View
from traceconv.options.verbs import PackOptions
from traceconv.run.executor import started
from traceconv.run.rank_loop import map_ranks, stored
from traceconv.run.spill import compact
from traceconv.run.stages import collectives, events, passed
from traceconv.run.summaries import Summarizing
from traceconv.store import blocks, rank_file, store_file
from traceconv.store.store_file import PackedRank

if TYPE_CHECKING:
    from traceconv.options.arguments import PackArguments


@dataclass(frozen=True)
class PackReport:
    """What was packed.

    Attributes:
        path:   the store.
        ranks:  in it, ascending.
        counts: rows by kind, of all ranks.
        bytes, source_bytes: sizes of the store and of the files that its ranks were read from.
        issues: what finding and reading the ranks noted.
    """

    path: str
    ranks: tuple[int, ...]
    counts: Mapping[str, int]
    bytes: int
    source_bytes: int
    issues: Issues = field(default_factory=Issues)

    def __repr__(self) -> str:
        return f"<PackReport: ranks {format_ranges(self.ranks)} in {self.path}>"

    def lines(self) -> list[str]:
        """The ranks and rows, in a line."""
        is_plural = len(self.ranks) != 1
        rows = ", ".join(f"{n:,} {kind}s" for kind, n in self.counts.items() if n)
        return [f"rank{'s' * is_plural} {format_ranges(self.ranks)}: {rows or 'no events'}"]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "schema_version": 1,
            "path": self.path,
            "ranks": list(self.ranks),
            "counts": dict(self.counts),
            "bytes": self.bytes,
            "source_bytes": self.source_bytes,
            "issues": [issue.as_dict() for issue in self.issues],
        }


class Packed(msgspec.Struct, frozen=True):
    """A rank that was packed.

    Attributes:
        path:   its file.
        views:  files of its views, by mode.
        summary: file of its summary, and how many bytes are in it.
        counts: rows by kind.
        issues: of reading it.
    """

    path: Path
    views: dict[str, Path]
    summary: tuple[Path, int] | None
    counts: dict[str, int]
    issues: Issues


class Packing(msgspec.Struct, frozen=True):
    """Read one rank, and pack it into a file of ``folder``."""

    folder: Path
    comm_patterns: tuple[str, ...] = ()
    views: bool = False
    summaries: bool = False

    def __call__(self, capture: Capture, advance: Progress) -> Packed:
        """The rank, packed.

        Raises:
            TraceconvError: it cannot be read, or not be written.
        """
        trace = events(capture, advance, self.comm_patterns)
        records = collectives(capture, trace)
        path = self.folder / f"rank-{trace.rank}.packed"
        rank_file.save_packed(path, compact(trace), records)
        views: dict[str, Path] = {}
        for mode in VIEWS if self.views else ():
            # loaded as it will be: tables that are read add issues
            view, _ = rank_file.RankFile(path).load()
            view = passed(view, View(mode=mode).passes(zero_counters=False))
            views[mode] = self.folder / f"rank-{trace.rank}.{mode}"
            rank_file.save_packed(views[mode], compact(view), records, tables=False)
        counts, issues = trace.counts(), trace.issues
        del trace
        summary = self._summary(path) if self.summaries else None
        return Packed(path, views, summary, counts, issues)

    def _summary(self, path: Path) -> tuple[Path, int] | None:
        """The summary of a packed rank, for all analyses; None where only the events tell."""
        if announced():  # tables and rules of plugins
            return None
        trace, _ = rank_file.RankFile(path).load()
        view = View(mode="detail", comm_patterns=self.comm_patterns)
        content = Summarizing(NO_PARTS, view, spare=all_parts()).of(trace.capture, trace)
        summary_path = path.with_suffix(".analysed")
        with replacing(summary_path) as file:
            file.write(blocks.pack(content))
        return summary_path, len(content)


VIEWS: tuple[values.Mode, ...] = ("summary", "detail")
"""The views that a store may hold besides what was read."""


@takes(PackOptions)
@one_run()
def pack(
    *paths: values.Paths, out: values.AnyPath, **keywords: Unpack[PackArguments]
) -> PackReport:
    """Pack the ranks found below ``paths`` into one file, a store, which every function reads as it
    reads captures.

    A store holds all that was read: events with their arguments, side tables, clocks and issues. It
    does not hold the files themselves, so trace-event JSON from it is not a copy byte for byte.

    Args:
        paths: as of :func:`traceconv.open`.
        out:   the file, ``run.tcz``.

    Raises:
        OutputError: ``out`` exists or cannot be written. No file is left behind.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    options = PackOptions.of(keywords)
    path = redact_url(values.path(out, "out") or "")
    below = sources(values.paths(paths))
    check(path, options.output.force)
    captures = unlabelled(below, options.input).ranks(
        options.ranks, options.run.allow_missing_ranks
    )
    shared = all(item.source.shared for item in captures)
    counts: Counter[str] = Counter()
    issues, packed = captures.issues.copy(), []
    with (
        opened(path) as into,
        started(options.run, [stored(item) for item in captures], shared) as executor,
    ):
        work = Packing(executor.folder, options.comm_patterns, options.views, options.summaries)
        for capture, account in map_ranks(
            work, captures.found, executor, options.run, issues, what="packing"
        ):
            packed.append(PackedRank(capture, account.path, account.views, account.summary))
            counts.update(account.counts)
        of_finding = issues.copy()
        options.run.progress(0, 0, f"writing {path}")
        store_file.write(into, packed, captures.unknown, of_finding, options.comm_patterns)
        into.finish()
        into.settle(options.output.force)
    ranks = tuple(rank.capture.rank for rank in packed if rank.capture.rank is not None)
    size = sum(stored(rank.capture) for rank in packed)
    return PackReport(path, ranks, counts, into.size, size, issues)
