"""Whether recordings are of several jobs: by the sizes that captures state, and by their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceconv.core.clock import utc_text
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges

APART_NS = 3_600_000_000_000
"""Between two runs. Ranks of one run are recorded within an hour of each other."""


def of_several_sizes(captures: Sequence[Capture]) -> str:
    """The sizes of jobs that captures state, in words; "" if none contradicts another."""
    sizes: dict[int, list[Capture]] = {}
    for capture in captures:
        if capture.world_size > 0:
            sizes.setdefault(capture.world_size, []).append(capture)
    return "; ".join(
        f"{size} ranks in {of_size[0].title}"
        + (f" and {n} more" if (n := len(of_size) - 1) else "")
        for size, of_size in sorted(sizes.items())
        if len(sizes) > 1
    )


def of_several_times(recordings: Iterable[tuple[tuple[int, int] | None, Capture]]) -> str:
    """The runs that recordings are of, in words; "" if they may be of one.

    A recording is of another run than those more than :data:`APART_NS` before it, unless the last
    one of these is of the same process.

    Args:
        recordings: first and last time on a shared clock, and of which capture: one of each rank,
            or the collection windows of one rank. Those whose clock is not tied to Unix time, and
            those without times, are left out.
    """
    runs: list[list[tuple[tuple[int, int], Capture]]] = []
    tied = [(span, c) for span, c in recordings if span and c.clock and c.clock.is_tied]
    for span, capture in sorted(tied, key=lambda recording: recording[0]):
        earlier = runs[-1] if runs else []
        if not earlier or (
            span[0] - max(end_ns for (_, end_ns), _ in earlier) > APART_NS
            and (earlier[-1][1].rank != capture.rank or earlier[-1][1].differs(capture))
        ):
            runs.append([])
        runs[-1].append((span, capture))
    if len(runs) < 2:
        return ""
    several_ranks = len({capture.rank for _, capture in tied}) > 1
    texts = []
    for run in runs:
        (first_ns, _), capture = run[0]
        ranks = format_ranges([c.rank for _, c in run if c.rank is not None])
        name = f"ranks {ranks}" if several_ranks else capture.title
        texts.append(f"{name} from {utc_text(first_ns)[:16]}")
    return "; ".join(texts)
