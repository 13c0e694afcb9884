"""Decides which process each capture belongs to, and which rank that process is.

Readers only report what a capture states. This module weighs the evidence for all readers in the
same order:

1. **The user's pattern** (``rank_from``) is taken as it is.
2. **Time.** A process records itself once at a time. Captures of one reader that claim the same
   rank belong to different processes if their recordings overlap by more than :data:`OVERLAP` of
   the shorter one. To decide this, the events of small files (:data:`MOST_BYTES`) are read. Larger
   files are refused by the run when it reads them.
3. **Traits of the process**: host, process id, device. Two captures without a common clock, whose
   recordings cannot be compared, belong to different processes if they differ in a trait that both
   state. The process id may differ between recordings that follow each other, because a restarted
   job keeps its ranks.
4. **A global rank that the content states** (``distributedInfo``, ``profiler_info_3.json``, MPI,
   NCCL, the environment) is the rank, unless two processes state the same one. Then the number
   counts within a replica, a container or a host.
5. **Names** of files and folders, if they are unambiguous
   (:func:`traceconv.readers.shared.rank_names.agreed`), give ranks to captures that do not state
   one, and distinguish replicas that state the same ranks.
6. **The place**: processes are numbered by host and, within a host, by the rank or device that they
   state. This is refused as ambiguous if hosts have different numbers of processes.
7. A single capture without any of this is rank 0. Several are refused.

Captures of a process without a device (the scheduler of a server, a launcher) are optional: they
are left out, with an issue, if others have ranks.

Ranks from 5 (against a statement), 6 and 7 are assumptions: each is an issue of one line. World
sizes that contradict each other, and ranks that were recorded hours apart, are a warning: captures
of several jobs are in one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain, utc_text
from traceconv.core.columns import natural_order
from traceconv.core.errors import Issues, TraceconvError
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges
from traceconv.find.registry import read_capture
from traceconv.readers.shared.rank_names import Place, agreed, path_of, rank_in_name

OVERLAP = 0.1
"""Share of the shorter of two recordings by which they may overlap: the first events of a window
may be older than the window."""

MOST_BYTES = 64 << 20
"""Most compressed bytes of all captures that claim a rank."""

APART_NS = 3_600_000_000_000
"""Between two runs. Ranks of one run are recorded within an hour of each other."""

Span = tuple[int, int] | None


def by_evidence(captures: Sequence[Capture], issues: Issues) -> list[Capture]:
    """The captures with ranks as far as evidence gives them; those of one process have one rank.

    Issues: rank-derived.
    """
    needed = [one for one in captures if not one.optional]
    rest = [one for one in captures if one.optional]
    stated = bool(needed) and all(one.rank is not None for one in needed)
    if stated and not (groups := _contested(needed)):
        return [*needed, *rest]
    if not stated and (names := agreed(needed)) is not None:
        return [*with_names(needed, names), *rest]
    processes = _processes(needed, groups) if stated else [[one] for one in needed]
    if len(processes) < 2:
        return list(captures)
    found = (stated and _by_names(processes)) or _by_place(processes)
    if found is None:
        return list(captures)
    why, ranked = found
    size = max((rank for rank, _ in ranked), default=0) + 1
    issues.add("rank-derived", f"ranks {format_ranges([rank for rank, _ in ranked])}, {why}")
    return [
        *(
            replace(one, rank=rank, rank_from=why, world_size=max(one.world_size, size))
            for rank, process in ranked
            for one in process
        ),
        *rest,
    ]


def warn_of_two_jobs(captures: Sequence[Capture], issues: Issues) -> None:
    """Book that captures state different sizes of their job: they are of several jobs."""
    sizes: dict[int, list[Capture]] = {}
    for one in captures:
        if one.world_size > 0:
            sizes.setdefault(one.world_size, []).append(one)
    if len(sizes) > 1:
        told = "; ".join(
            f"{size} ranks in {every[0].title}"
            + (f" and {n} more" if (n := len(every) - 1) else "")
            for size, every in sorted(sizes.items())
        )
        issues.add("jobs-mixed", told)


def warn_of_disjoint_runs(
    captures: Sequence[Capture], spans: Mapping[int, Span], issues: Issues
) -> None:
    """Book that some ranks were recorded hours before others: they are of several runs.

    Args:
        spans: of the ranks, after their clocks were aligned. Ranks whose stamps are not tied to
            Unix time are left out.
    """
    tied = {one.rank for one in captures if one.clock is not None and one.clock.is_tied}
    timed = sorted((span, rank) for rank, span in spans.items() if span and rank in tied)
    runs: list[list[int]] = []
    end_ns = 0
    for (start_ns, last_ns), rank in timed:
        if not runs or start_ns - end_ns > APART_NS:
            runs.append([])
        runs[-1].append(rank)
        end_ns = max(end_ns, last_ns)
    if len(runs) > 1:
        first = {rank: utc_text(span[0])[:16] for span, rank in timed}
        issues.add(
            "jobs-mixed",
            where="; ".join(f"ranks {format_ranges(one)} from {first[one[0]]}" for one in runs),
        )


# -- processes ------------------------------------------------------------------------------------


def traits(capture: Capture) -> dict[str, object]:
    """The traits of its process that a capture states."""
    known = {"host": capture.host, "pid": capture.pid, "device": capture.device}
    return {k: v for k, v in {**known, **capture.traits}.items() if v not in ("", -1)}


def differ(one: Capture, other: Capture) -> str:
    """A trait that both state and in which they differ; "" without any."""
    mine, theirs = traits(one), traits(other)
    return next((key for key in mine if theirs.get(key, mine[key]) != mine[key]), "")


def _contested(captures: Sequence[Capture]) -> dict[int, list[Capture]]:
    """The captures of each rank that several processes claim."""
    ranks: dict[int, list[Capture]] = {}
    for one in captures:
        ranks.setdefault(one.rank or 0, []).append(one)
    return {
        rank: group
        for rank, group in ranks.items()
        if len(group) > 1 and any(_apart(a, b, group) for a, b in combinations(group, 2))
    }


def _processes(
    captures: Sequence[Capture], contested: dict[int, list[Capture]]
) -> list[list[Capture]]:
    """The captures of each process. A rank without a conflict is one process."""
    found: list[list[Capture]] = []
    for one in captures:
        group = contested.get(one.rank or 0, [])
        mine = (
            p
            for p in found
            if p[0].rank == one.rank and not any(_apart(other, one, group) for other in p)
        )
        process = next(mine, None)
        if process is None:
            found.append([one])
        else:
            process.append(one)
    return found


def _apart(one: Capture, other: Capture, group: Sequence[Capture]) -> bool:
    """Whether two captures that claim one rank are of different processes."""
    if one.reader != other.reader:
        return False
    if one.source is other.source and one.files == other.files:
        return True  # processes of one file
    domains = {c.clock.domain if c.clock else None for c in (one, other)}
    if domains != {Domain.UNIX}:
        return bool(differ(one, other))
    if _bytes(group) > MOST_BYTES:
        return bool(differ(one, other)) and differ(one, other) != "pid"
    return overlap(_span(one), _span(other))


def overlap(one: Span, other: Span) -> bool:
    """Whether two recordings cannot be of one process."""
    if one is None or other is None:
        return False
    common = min(one[1], other[1]) - max(one[0], other[0])
    return common > OVERLAP * max(min(one[1] - one[0], other[1] - other[0]), 1)


def _bytes(captures: Sequence[Capture]) -> int:
    return sum(one.source.size(name) for one in captures for name in one.files)


def _span(capture: Capture) -> Span:
    """First and last time of a recording; None if it cannot be read."""
    try:
        return read_capture(capture, TraceBuilder(capture, Issues())).span()
    except TraceconvError:
        return None


# -- ranks ----------------------------------------------------------------------------------------

_Ranked = list[tuple[int, list[Capture]]]


def with_names(
    captures: Sequence[Capture], found: Sequence[tuple[int, int, Place]]
) -> list[Capture]:
    """The captures with the ranks, sizes of the job and coordinates that their names give."""
    return [
        c
        if c.rank == rank
        else at_place(
            replace(c, rank=rank, rank_from="name", world_size=max(c.world_size, size)),
            place,
            "names of the captures",
        )
        for c, (rank, size, place) in zip(captures, found, strict=True)
    ]


def at_place(capture: Capture, place: Place, said_by: str) -> Capture:
    """The capture with coordinates out of its path, where it states none itself."""
    coordinates = {_AXES.get(name, name): n for name, n in place.items() if name != "rank"}
    if not coordinates or capture.placement.groups or capture.placement.coordinates:
        return capture
    return replace(
        capture,
        placement=msgspec.structs.replace(
            capture.placement, coordinates=coordinates, place=said_by
        ),
    )


_AXES = {"stage": "pp"}
"""Names that users give to axes in patterns."""


def _by_names(processes: Sequence[list[Capture]]) -> tuple[str, _Ranked] | None:
    """Ranks by coordinates in names, where ranks that are stated are of replicas."""
    found = agreed([replace(one[0], rank=None) for one in processes])
    if found is None or len({rank for rank, *_ in found}) < len(processes):
        return None
    ranks = [rank for rank, *_ in found]
    return "by names: several processes state one rank", list(zip(ranks, processes, strict=True))


def _by_place(processes: Sequence[list[Capture]]) -> tuple[str, _Ranked] | None:
    """Ranks by host and by what tells the processes of a host apart; None if nothing does, or if
    names number them in another way."""
    first = [one[0] for one in processes]
    hosts = [str(traits(one).get("host", "")) for one in first]
    if "" in hosts and (len(set(hosts)) > 1 or not _together(first)):
        return None
    order = sorted(set(hosts), key=natural_order)
    if len({hosts.count(host) for host in order}) > 1:
        return None
    several = "host and " if len(order) > 1 else ""
    for word in ("rank", "device", "pid"):
        known = [one.rank if word == "rank" else traits(one).get(word) for one in first]
        inner = [value if isinstance(value, int) else -1 for value in known]
        places = [(order.index(host), n) for host, n in zip(hosts, inner, strict=True)]
        if min(inner) < 0 or len(set(places)) < len(places):
            continue
        if word == "pid":
            ranks = [sorted(places).index(place) for place in places]
        else:
            ranks = [host * (max(inner) + 1) + n for host, n in places]
        names = [rank_in_name(path_of(one)) for one in first]
        if (
            word != "rank"
            and len(set(names)) == len(names)
            and names != ranks
            and None not in names
        ):
            return None
        return f"by {several}{word}", list(zip(ranks, processes, strict=True))
    return None


def _together(captures: Sequence[Capture]) -> bool:
    """Whether captures that name no host are of one run for certain: they overlap in time."""
    clocks = {one.clock.domain if one.clock else None for one in captures}
    if clocks != {Domain.UNIX} or _bytes(captures) > MOST_BYTES:
        return False
    spans = sorted(span for one in captures if (span := _span(one)) is not None)
    return len(spans) == len(captures) and all(a[1] > b[0] for a, b in pairwise(spans))
