"""Decides which process each capture belongs to, and which rank that process is.

Readers only report what a capture states. This module weighs the evidence for all readers alike,
in two steps.

**Processes.** Captures of one process are its collection windows; they have one rank.

- A process records itself once at a time: :func:`contradiction` states the rule. To apply it, the
  events of small files (:data:`MOST_BYTES`) are read. Larger files are refused by the run when it
  reads them (:mod:`traceconv.run.window_reading`). No reader decides this.
- Captures that state one rank are of one process, unless they overlap. If they have no common
  clock, they are of different processes if they differ in a trait that both state (host, process
  id, device). A restarted job keeps its ranks, so the process id may differ between recordings
  that follow each other.
- Captures of one reader that state no rank are of one process if they have the same process id, or
  paths that differ in their times only, and differ in no other trait.

**Ranks.** The first evidence of :data:`EVIDENCE` that gives each process another rank, and
contradicts no rank that a process states, counts. A user's pattern (``rank_from``) replaces it.

A single process without any evidence is rank 0. Several are refused. Captures of a process without
a device (the scheduler of a server, a launcher) are optional: they are left out, with an issue, if
others have ranks. World sizes that contradict each other, and ranks that were recorded hours apart,
are a warning: captures of several jobs are in one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from traceconv.core.clock import Domain, utc_text
from traceconv.core.columns import natural_order
from traceconv.core.errors import Issues
from traceconv.core.job_shape import Placement
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_ranges import format_ranges
from traceconv.find.capture_windows import Span, span_of
from traceconv.readers.shared.rank_names import Place, agreed, path_of

OVERLAP = 0.1
"""Share of the shorter of two recordings by which they may overlap: the first events of a window
may be older than the window."""

MOST_BYTES = 256 << 20
"""Most compressed bytes of all captures that may be windows of one another."""

APART_NS = 3_600_000_000_000
"""Between two runs. Ranks of one run are recorded within an hour of each other."""

Process = list[Capture]
"""The captures of one process."""


def by_evidence(captures: Sequence[Capture], issues: Issues) -> list[Capture]:
    """The captures with ranks as far as evidence gives them; those of one process have one rank.

    Issues: rank-derived, rank-assumed.
    """
    needed = [capture for capture in captures if not capture.optional]
    optional = [capture for capture in captures if capture.optional]
    all_recorded = all(capture.rank is not None for capture in needed)
    with_ranks = needed
    if not all_recorded and (names := agreed(needed)) is not None:
        with_ranks = with_names(needed, names)
    if all(capture.rank is not None for capture in with_ranks) and not _repeated(
        _ranks(_processes(with_ranks))
    ):
        return [*with_ranks, *optional]
    processes = _processes(needed)
    representatives = [process[0] for process in processes]
    if len(representatives) == 1 and representatives[0].rank is None:
        issues.add("rank-assumed", representatives[0].title, rank=0)
        return [*(replace(capture, rank=0, rank_from="assumed") for capture in needed), *optional]
    for evidence, ranks_by in EVIDENCE:
        ranks = ranks_by(representatives)
        if ranks is None or _repeated(ranks) or _contradicted(ranks, representatives):
            continue
        hosts = {_host(capture) for capture in representatives}
        why = f"by {'host and ' if evidence in _ON_HOST and len(hosts) > 1 else ''}{evidence}"
        issues.add("rank-derived", f"ranks {format_ranges(ranks)}, {why}")
        size = max(ranks) + 1
        ranked = [
            replace(capture, rank=rank, rank_from=why, world_size=max(capture.world_size, size))
            for rank, process in zip(ranks, processes, strict=True)
            for capture in process
        ]
        return [
            *with_jobs([capture.rank for process in processes for capture in process], ranked),
            *optional,
        ]
    return list(captures)


def with_jobs(stated: Sequence[int | None], ranked: Sequence[Capture]) -> list[Capture]:
    """The captures with the job that each is of, where several processes state one rank.

    Ranks that are stated count within a job, such as a replica of a server. In the order of ranks,
    the first process that states a rank is of the first job, the second one of the second.

    Args:
        stated: the rank that each capture states.
        ranked: the same captures with the ranks that evidence gives them.
    """
    processes = {
        capture.rank: rank for rank, capture in zip(stated, ranked, strict=True) if rank is not None
    }
    if not _repeated([*processes.values()]):
        return list(ranked)
    jobs: list[dict[int, int]] = []
    of_rank: dict[int, dict[int, int]] = {}
    for rank, rank_in_job in sorted(
        (rank, rank_in_job) for rank, rank_in_job in processes.items() if rank is not None
    ):
        job = next((ranks_of_job for ranks_of_job in jobs if rank_in_job not in ranks_of_job), {})
        if not job:
            jobs.append(job)
        job[rank_in_job] = rank
        of_rank[rank] = job
    return [
        replace(capture, placement=_in_job(capture.placement, of_rank[capture.rank]))
        if capture.rank in of_rank
        else capture
        for capture in ranked
    ]


def _in_job(placement: Placement, job: Mapping[int, int]) -> Placement:
    inside = msgspec.structs.replace(placement, job=tuple(job.items()))
    groups = (
        msgspec.structs.replace(group, ranks=inside.among_all(group.ranks))
        for group in placement.groups
    )
    return msgspec.structs.replace(inside, groups=tuple(group for group in groups if group.ranks))


def warn_of_two_jobs(captures: Sequence[Capture], issues: Issues) -> None:
    """Book that captures state different sizes of their job: they are of several jobs."""
    sizes: dict[int, list[Capture]] = {}
    for capture in captures:
        if capture.world_size > 0:
            sizes.setdefault(capture.world_size, []).append(capture)
    if len(sizes) > 1:
        summary = "; ".join(
            f"{size} ranks in {of_size[0].title}"
            + (f" and {n} more" if (n := len(of_size) - 1) else "")
            for size, of_size in sorted(sizes.items())
        )
        issues.add("jobs-mixed", summary)


def warn_of_disjoint_runs(
    captures: Sequence[Capture], spans: Mapping[int, Span], issues: Issues
) -> None:
    """Book that some ranks were recorded hours before others: they are of several runs.

    Args:
        spans: of the ranks, after their clocks were aligned. Ranks whose stamps are not tied to
            Unix time are left out.
    """
    tied = {
        capture.rank for capture in captures if capture.clock is not None and capture.clock.is_tied
    }
    timed = sorted((span, rank) for rank, span in spans.items() if span and rank in tied)
    runs: list[list[int]] = []
    end_ns = 0
    for (start_ns, last_ns), rank in timed:
        if not runs or start_ns - end_ns > APART_NS:
            runs.append([])
        runs[-1].append(rank)
        end_ns = max(end_ns, last_ns)
    if len(runs) > 1:
        first_time = {rank: utc_text(span[0])[:16] for span, rank in timed}
        issues.add(
            "jobs-mixed",
            where="; ".join(
                f"ranks {format_ranges(ranks)} from {first_time[ranks[0]]}" for ranks in runs
            ),
        )


# -- processes ------------------------------------------------------------------------------------


def traits(capture: Capture) -> dict[str, object]:
    """The traits of its process that a capture states."""
    identity = {"host": capture.host, "pid": capture.pid, "device": capture.device}
    return {k: v for k, v in {**identity, **capture.traits}.items() if v not in ("", -1)}


def differ(one: Capture, other: Capture) -> str:
    """A trait that both state and in which they differ; "" without any."""
    own_traits, other_traits = traits(one), traits(other)
    return next(
        (key for key in own_traits if other_traits.get(key, own_traits[key]) != own_traits[key]), ""
    )


def _processes(captures: Sequence[Capture]) -> list[Process]:
    """The captures of each process, one that states its rank first.

    Those of one folder are joined first: a later window of a replica is in the same folder.
    """
    claims = [_claim(capture) for capture in captures]
    times = Counter(claims)
    contested = [
        capture for capture, claim in zip(captures, claims, strict=True) if times[claim] > 1
    ]
    readable, spans = _bytes(contested) <= MOST_BYTES, dict[int, Span]()
    in_folders: dict[Hashable, list[Process]] = {}
    for capture in sorted(captures, key=lambda capture: capture.rank is None):
        folder = _without_times(capture).rpartition("/")[0]
        _join([capture], in_folders.setdefault((_claim(capture), folder), []), readable, spans)
    alike: dict[Hashable, list[Process]] = {}
    for processes in in_folders.values():
        for process in processes:
            among = alike.setdefault(_claim(process[0]), [])
            joined = _join(process, among, readable, spans)
            recorded = traits(process[0])
            if joined is process and process[0].rank is not None and "pid" in recorded:
                # captures of it may state no rank
                alike.setdefault((process[0].reader, recorded["pid"]), []).append(process)
    return list(
        {id(process): process for processes in alike.values() for process in processes}.values()
    )


def _join(
    captures: Process, among: list[Process], readable: bool, spans: dict[int, Span]
) -> Process:
    """Add captures of one process to the first process that they may be of, else as another."""
    for process in among:
        if not any(
            _are_two_processes(joined, candidate, readable, spans)
            for joined in process
            for candidate in captures
        ):
            process += captures
            return process
    among.append(captures)
    return captures


def _without_times(capture: Capture) -> str:
    return _TIME.sub("#", path_of(capture))


_TIME = lazy_regex(r"\d{4}(?:[-_.]?\d\d){2}(?:[-_.T ]?\d\d){3}(?:[-_.]?\d+)?|\d{12,19}")
"""A time in a path: 2024_11_26_06_49_10, 20241126064910123, or counted from 1970."""


def _claim(capture: Capture) -> Hashable:
    """Equal for captures that may be of one process: the rank, else the process id, else the path
    without its times."""
    if capture.rank is not None:
        return capture.rank
    recorded = traits(capture)
    return (capture.reader, recorded.get("pid", _without_times(capture)))


def _are_two_processes(
    one: Capture, other: Capture, readable: bool, spans: dict[int, Span]
) -> bool:
    """Whether two captures that may be of one process are of two.

    Args:
        readable: whether their events may be read to decide it.
        spans: of captures that were read, by their id.
    """
    if one.reader != other.reader:
        return False
    if one.source is other.source and one.files == other.files:
        return True  # processes of one file
    if None in (one.rank, other.rank) and differ(one, other):
        return True
    domains = {c.clock.domain if c.clock else None for c in (one, other)}
    if domains != {Domain.UNIX}:
        return bool(differ(one, other))
    if not readable:
        return differ(one, other) not in ("", "pid")
    for capture in (one, other):
        if id(capture) not in spans:
            spans[id(capture)] = span_of(capture)
    return bool(contradiction(one, spans[id(one)], other, spans[id(other)]))


def contradiction(one: Capture, span: Span, other: Capture, another: Span) -> str:
    """Why two recordings of one reader cannot be windows of one process; "" if they can be.

    A process records itself once at a time. Recordings that overlap by more than :data:`OVERLAP` of
    the shorter one, or at all while a trait differs, are of two processes.
    """
    if span is None or another is None:
        return ""
    common = min(span[1], another[1]) - max(span[0], another[0])
    if common <= 0:
        return ""
    if trait := differ(one, other):
        values = (traits(capture)[trait] for capture in (one, other))
        return f"they ran at the same time, with {trait} {' and '.join(map(str, values))}"
    shorter = min(span[1] - span[0], another[1] - another[0])
    return "they ran at the same time" if common > OVERLAP * max(shorter, 1) else ""


def _bytes(captures: Sequence[Capture]) -> int:
    return sum(capture.source.size(name) for capture in captures for name in capture.files)


def _recorded_together(captures: Sequence[Capture]) -> bool:
    """Whether captures were certainly recorded in one run: in one file, or at one time."""
    files = {(id(capture.source), capture.files) for capture in captures}
    clocks = {capture.clock.domain if capture.clock else None for capture in captures}
    if len(files) == 1:
        return True
    if clocks not in ({Domain.UNIX}, {Domain.MONOTONIC}) or _bytes(captures) > MOST_BYTES:
        return False
    spans = sorted(span for capture in captures if (span := span_of(capture)) is not None)
    return len(spans) == len(captures) and all(a[1] > b[0] for a, b in pairwise(spans))


# -- ranks ----------------------------------------------------------------------------------------


def with_names(
    captures: Sequence[Capture], names: Sequence[tuple[int, int, Place]]
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
        for c, (rank, size, place) in zip(captures, names, strict=True)
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


def _ranks(processes: Sequence[Process]) -> list[int | None]:
    return [process[0].rank for process in processes]


def _repeated(values: Sequence[object]) -> bool:
    return len(set(values)) < len(values)


def _contradicted(ranks: Sequence[int], captures: Sequence[Capture]) -> bool:
    """Whether a capture states another rank. Ranks that several processes state count within a
    replica, a container or a host, and contradict nothing."""
    recorded = [capture.rank for capture in captures if capture.rank is not None]
    return not _repeated(recorded) and any(
        capture.rank not in (None, rank) for capture, rank in zip(captures, ranks, strict=True)
    )


def _by_process(captures: Sequence[Capture]) -> list[int] | None:
    """The ranks that processes state, where some of their captures state none."""
    ranks = [capture.rank for capture in captures if capture.rank is not None]
    return ranks if len(ranks) == len(captures) else None


def _by_names(captures: Sequence[Capture]) -> list[int] | None:
    """Ranks by coordinates in names, where ranks that are stated are of replicas."""
    names = agreed([replace(capture, rank=None) for capture in captures])
    return None if names is None else [rank for rank, *_ in names]


_NUMBER = lazy_regex(r"(\d+)")
_NO_RANK = lazy_regex(
    r"(?i)(?:attempt|cycle|epoch|gen|iter(?:ation)?|part|round|run|slice|start|step|stop|trial|try|"
    r"v|version|window)s?[-_. ]*\Z|\A[-_.:]\Z"
)
"""What precedes a number that is not a rank; a separator alone is inside of a time."""
_SPARSE = 8


def _by_numbers(captures: Sequence[Capture]) -> list[int] | None:
    """Ranks by the one number in a folder or file name that differs between all processes, counts
    from 0 and is below :data:`_SPARSE` times their number: ``%rank%``, ``$SLURM_PROCID``."""
    recorded = [tuple(sorted(traits(capture).items())) for capture in captures]
    if _repeated(recorded) and not _recorded_together(
        captures
    ):  # else they may be windows of one process
        return None
    paths = [
        path_of(capture).replace(_host(capture) or "/", "/").split("/") for capture in captures
    ]
    candidates: set[tuple[int, ...]] = set()
    for names in zip(*paths, strict=True) if len({len(path) for path in paths}) == 1 else ():
        columns = list(zip(*map(_NUMBER.split, names), strict=False))
        if any(len(set(texts)) > 1 for texts in columns[::2]):
            continue
        for (word, *_), digits in zip(columns[::2], columns[1::2], strict=False):
            numbers = tuple(int(text[:9]) for text in digits)
            small = min(numbers) == 0 and max(numbers) < _SPARSE * len(numbers)
            if small and not _repeated(numbers) and not _NO_RANK.search(word):
                candidates.add(numbers)
    return list(candidates.pop()) if len(candidates) == 1 else None


def _host(capture: Capture) -> str:
    return str(traits(capture).get("host", ""))


def _on_host(trait: str) -> Callable[[Sequence[Capture]], list[int] | None]:
    """Ranks by host and, within a host, by a trait. None if it does not distinguish all processes,
    if hosts have different numbers of them, or if nothing shows that they are of one run."""

    def ranks_by(captures: Sequence[Capture]) -> list[int] | None:
        hosts = [_host(capture) for capture in captures]
        if "" in hosts and (len(set(hosts)) > 1 or not _recorded_together(captures)):
            return None
        order = sorted(set(hosts), key=natural_order)
        values = [{**traits(capture), "rank": capture.rank}.get(trait) for capture in captures]
        inner = [value for value in values if isinstance(value, int)]
        places = [(order.index(host), n) for host, n in zip(hosts, inner, strict=False)]
        unequal = len({hosts.count(host) for host in order}) > 1
        if unequal or len(set(places)) < len(captures):
            return None
        on_hosts = [
            {n for host_number, n in places if host_number == host} for host in range(len(order))
        ]
        if trait == "pid" or any(capture != on_hosts[0] for capture in on_hosts):
            return [sorted(places).index(place) for place in places]
        return [host * (max(inner) + 1) + n for host, n in places]

    return ranks_by


_ON_HOST = ("rank", "device", "pid")

EVIDENCE: tuple[tuple[str, Callable[[Sequence[Capture]], list[int] | None]], ...] = (
    ("process: some captures of it state no rank", _by_process),
    ("names: several processes state one rank", _by_names),
    ("rank", _on_host("rank")),
    ("numbers in paths", _by_numbers),
    ("device", _on_host("device")),
    ("pid", _on_host("pid")),
)
"""What may give ranks to processes that do not state one each, the strongest first: how it is
called in the issue ``rank-derived``, and the ranks that it gives to one capture of each process."""
