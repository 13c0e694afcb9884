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
        many = len(self.ranks) != 1
        rows = ", ".join(f"{n:,} {kind}s" for kind, n in self.counts.items() if n)
        return [f"rank{'s' * many} {format_ranges(self.ranks)}: {rows or 'no events'}"]

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
def pack(*paths: values.Paths, out: values.AnyPath, **given: Unpack[PackArguments]) -> PackReport:
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
    asked = PackOptions.of(given)
    path = redact_url(values.path(out, "out") or "")
    check(path, asked.output.force)
    found = unlabelled(paths, asked.input).ranks(asked.ranks, asked.run.allow_missing_ranks)
    shared = all(one.source.shared for one in found)
    counts: Counter[str] = Counter()
    issues, packed = found.issues.copy(), []
    with (
        opened(path) as into,
        started(asked.run, [stored(one) for one in found], shared) as executor,
    ):
        work = Packing(executor.folder, asked.comm_patterns, asked.views)
        for capture, one in map_ranks(
            work, found.found, executor, asked.run, issues, what="packing"
        ):
            packed.append(PackedRank(capture, one.path, one.views))
            counts.update(one.counts)
        of_finding = issues.copy()
        asked.run.progress(0, 0, f"writing {path}")
        store_file.write(into, packed, found.unknown, of_finding, asked.comm_patterns)
        into.finish()
        into.settle(asked.output.force)
    ranks = tuple(one.capture.rank for one in packed if one.capture.rank is not None)
    size = sum(stored(one.capture) for one in packed)
    return PackReport(path, ranks, counts, into.size, size, issues)
