"""Merging in several runs: each reads its share of the ranks, the last one joins the shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceconv import parkfile
from traceconv.errors import InputError, Issues, MalformedInputError
from traceconv.model import Capture
from traceconv.park import Parked
from traceconv.ranks import spelled, title
from traceconv.report import Report
from traceconv.run.merging import Ranks, Wish, book_failure, read_ranks
from traceconv.run.shards import Shard, describe, growing, together
from traceconv.run.workplace import Workplace
from traceconv.source import RecordedSource
from traceconv.writers.output import Progress


def write_shard(
    place: Workplace,
    captures: Sequence[Capture],
    wish: Wish,
    number: tuple[int, int],
    report: Report,
    allow_missing: bool,
    progress: Progress,
) -> None:
    """Read the share ``number`` of ``captures`` and leave it in ``report.output``.

    Raises:
        TraceconvError: a rank of it cannot be read, and ``allow_missing`` is off.
    """
    index, of = number
    found = list(report.issues)
    parked, failed = [], []
    with growing(report.output) as folder:
        for capture, done in read_ranks(place, captures[index::of], wish, progress, folder):
            if done.error is None:
                one = done.value
                parked.append(one.path.name)
                report.add(one.rank, one.facts)
                continue
            if not allow_missing:
                raise done.error
            where, reason = title(capture), str(done.error)
            failed.append([capture.rank, where, reason])
            book_failure(report.issues, capture.rank, where, reason)
        ranks = [c.rank for c in captures if c.rank is not None]
        told = parkfile.told_issues(found)
        describe(folder, Shard(index, of, ranks, wish.as_dict(), parked, failed, told))


def join_shards(paths: Sequence[str], allow_missing: bool) -> tuple[Ranks, Wish]:
    """The ranks of all shards, as one run would have them, and what was wished.

    Raises:
        InputError: the shards do not make a merge; a rank failed or is missing, and
            ``allow_missing`` is off.
    """
    shards = together(paths, allow_missing)
    first = shards[0][1]
    try:
        wish, issues = Wish.of_dict(first.options), Issues()
        issues.extend(parkfile.issues_of(first.issues))
    except (TypeError, ValueError, KeyError, IndexError) as e:
        raise MalformedInputError(str(shards[0][0]), "", f"its options do not fit: {e}") from e
    parked = sorted(
        (Parked((folder / name).absolute()) for folder, shard in shards for name in shard.parked),
        key=lambda one: one.rank,
    )
    failed = sorted(failure for _, shard in shards for failure in shard.failed)
    for rank, where, reason in failed:
        if not allow_missing:
            raise InputError(f"rank {rank} could not be read: {reason}")
        book_failure(issues, rank, where, reason)
    present = {one.rank for one in parked} | {rank for rank, _, _ in failed}
    missing = sorted(set(first.ranks) - present)
    if len(parked) > len({one.rank for one in parked}) or not parked:
        raise InputError(f"{', '.join(paths)}: no rank, or one rank twice")
    if missing and not allow_missing:
        raise InputError(f"rank {spelled(missing)} is in none of the shards")
    for rank in missing:
        issues.add("rank-missing", where=f"rank {rank}")
    return Ranks(_captures(parked), tuple(parked), issues), wish


def _captures(parked: Sequence[Parked]) -> tuple[Capture, ...]:
    """Captures as they were found: those of one source share it."""
    sources: dict[str, RecordedSource] = {}
    captures = []
    for one in parked:
        capture = one.facts.capture
        sizes = {name: capture.source.size(name) for name in capture.files}
        shared = sources.setdefault(capture.source.label, RecordedSource(capture.source.label, {}))
        shared.remember(sizes)
        captures.append(replace(capture, source=shared))
    return tuple(captures)
