"""Pack ranks into a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from traceconv.api.open import unlabelled
from traceconv.core.errors import Issues
from traceconv.core.rank_ranges import format_ranges
from traceconv.io.atomic import check, opened
from traceconv.io.run_files import one_run
from traceconv.io.storage import redact_url
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import PackOptions
from traceconv.run.executor import started
from traceconv.run.rank_loop import map_ranks, stored
from traceconv.run.stages import Packing
from traceconv.store import store_file
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
    check(path, options.output.force)
    captures = unlabelled(paths, options.input).ranks(
        options.ranks, options.run.allow_missing_ranks
    )
    shared = all(item.source.shared for item in captures)
    counts: Counter[str] = Counter()
    issues, packed = captures.issues.copy(), []
    with (
        opened(path) as into,
        started(options.run, [stored(item) for item in captures], shared) as executor,
    ):
        work = Packing(executor.folder, options.comm_patterns, options.views)
        for capture, account in map_ranks(
            work, captures.found, executor, options.run, issues, what="packing"
        ):
            packed.append(PackedRank(capture, account.path, account.views))
            counts.update(account.counts)
        of_finding = issues.copy()
        options.run.progress(0, 0, f"writing {path}")
        store_file.write(into, packed, captures.unknown, of_finding, options.comm_patterns)
        into.finish()
        into.settle(options.output.force)
    ranks = tuple(rank.capture.rank for rank in packed if rank.capture.rank is not None)
    size = sum(stored(rank.capture) for rank in packed)
    return PackReport(path, ranks, counts, into.size, size, issues)
