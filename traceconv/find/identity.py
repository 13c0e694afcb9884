"""Decides which process each capture belongs to, and which rank that process is.

Readers only report what a capture states. This module weighs the evidence for all readers alike,
in two steps.

**Processes.** Captures of one process are its collection windows; they have one rank.

- A process records itself once at a time: :func:`contradiction` states the rule. To apply it, the
  events of small files (:data:`MOST_BYTES`) are read. Larger files are refused by the run when it
  reads them (:mod:`traceconv.run.window_reading`). No reader decides this.
- Captures that state one rank are of one process, unless they overlap, or their names have
  different coordinates (``dp0``, ``dp1``). If they have no common clock, they are of different
  processes if they differ in a trait that both state (host, process id, device). A restarted job
  keeps its ranks, so the process id may differ between recordings that follow each other.
- Captures of one reader that state no rank are of one process if they have the same process id, or
  paths that differ in their times only, and differ in no other trait.

**Ranks.** The first evidence of :data:`EVIDENCE` that gives each process another rank, and
contradicts no rank that a process states, counts. A user's pattern (``rank_from``) replaces it.

A single process without any evidence is rank 0. Several are refused. Captures of a process without
a device (the scheduler of a server, a launcher) are optional: they are left out, with an issue, if
others have ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from traceconv.core.clock import Domain
from traceconv.core.columns import natural_order
from traceconv.core.errors import Issues
from traceconv.core.job_shape import Placement
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_ranges import format_ranges
from traceconv.find.capture_windows import Span, span_of
from traceconv.readers.shared.rank_names import Place, agreed, path_of, place_in_name, without_times

OVERLAP = 0.1
"""Share of the shorter of two recordings by which they may overlap: the first events of a window
may be older than the window."""

MOST_BYTES = 256 << 20
"""Most compressed bytes of all captures that may be windows of one another."""

Process = list[Capture]
"""The captures of one process."""


def by_evidence(captures: Sequence[Capture], issues: Issues) -> list[Capture]:
    """The captures with ranks as far as evidence gives them; those of one process have one rank.

    Issues: rank-derived, rank-assumed.
    """
    needed = [capture for capture in captures if not capture.optional]
    optional = [capture for capture in captures if capture.optional]
    all_recorded = all(capture.rank is not None for capture in needed)
    with_ranks, times = needed, _Times(needed)
    if not all_recorded and (names := agreed(needed)) is not None:
        with_ranks = with_names(needed, names)
    if all(capture.rank is not None for capture in with_ranks) and not _repeated(
        [process[0].rank for process in _processes(with_ranks, times)]
    ):
        return [*with_ranks, *optional]
    processes = _processes(needed, times)
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
    if all(rank == rank_in_job for rank, rank_in_job in processes.items()):
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


# -- processes ------------------------------------------------------------------------------------


class _Times:
    """When captures were recorded.

    Attributes:
        known: whether the events of all captures that may be of one process may be read for it.
    """

    def __init__(self, captures: Sequence[Capture]) -> None:
        claims = Counter(map(_claim, captures))
        contested = [capture for capture in captures if claims[_claim(capture)] > 1]
        self.known = bytes_of(contested) <= MOST_BYTES
        self._spans: dict[int, tuple[Capture, Span]] = {}

    def span(self, capture: Capture) -> Span:
        """First and last time of a capture."""
        if id(capture) not in self._spans:
            self._spans[id(capture)] = capture, span_of(capture)
        return self._spans[id(capture)][1]


def _processes(captures: Sequence[Capture], times: _Times) -> list[Process]:
    """The captures of each process, one that states its rank first.

    Those of one folder are joined first: a later window of a replica is in the same folder.
    """
    in_folders: dict[Hashable, list[Process]] = {}
    for capture in sorted(captures, key=lambda capture: capture.rank is None):
        folder = without_times(path_of(capture)).rpartition("/")[0]
        _join([capture], in_folders.setdefault((_claim(capture), folder), []), times)
    alike: dict[Hashable, list[Process]] = {}
    for processes in in_folders.values():
        for process in processes:
            among = alike.setdefault(_claim(process[0]), [])
            joined = _join(process, among, times)
            recorded = process[0].identity()
            if joined is process and process[0].rank is not None and "pid" in recorded:
                # captures of it may state no rank
                alike.setdefault((process[0].reader, recorded["pid"]), []).append(process)
    return list(
        {id(process): process for processes in alike.values() for process in processes}.values()
    )


def _join(captures: Process, among: list[Process], times: _Times) -> Process:
    """Add captures of one process to the first process that they may be of, else as another."""
    for process in among:
        if not any(
            _are_two_processes(joined, candidate, times)
            for joined in process
            for candidate in captures
        ):
            process += captures
            return process
    among.append(captures)
    return captures


def _claim(capture: Capture) -> Hashable:
    """Equal for captures that may be of one process: the rank, else the process id, else the path
    without its times."""
    if capture.rank is not None:
        return capture.rank
    recorded = capture.identity()
    return (capture.reader, recorded.get("pid", without_times(path_of(capture))))


def _are_two_processes(one: Capture, other: Capture, times: _Times) -> bool:
    """Whether two captures that may be of one process are of two."""
    if one.reader != other.reader:
        return False
    if one.source is other.source and one.files == other.files:
        return True  # processes of one file
    different = one.differs(other)
    if different and None in (one.rank, other.rank):
        return True
    clocks = {c.clock.domain if c.clock else None for c in (one, other)}
    if clocks not in ({Domain.UNIX}, {Domain.MONOTONIC}):
        return bool(different or contradiction(one, None, other, None))
    if not times.known:
        return different not in ([], ["pid"]) or bool(contradiction(one, None, other, None))
    return bool(contradiction(one, times.span(one), other, times.span(other)))


def contradiction(one: Capture, span: Span, other: Capture, another: Span) -> str:
    """Why two recordings of one reader cannot be windows of one process; "" if they can be.

    A process records itself once at a time. Recordings that overlap by more than :data:`OVERLAP` of
    the shorter one, or at all while a trait differs, are of two processes. So are those whose names
    have different coordinates, which a job that is started again keeps ("ep" is also an epoch).
    """
    place, other_place = place_in_name(one), place_in_name(other)
    for axis, n in place.items():
        if axis != "ep" and other_place.get(axis, n) != n:
            return f"their names have {axis} {n} and {other_place[axis]}"
    if span is None or another is None:
        return ""
    common = min(span[1], another[1]) - max(span[0], another[0])
    if common <= 0:
        return ""
    if different := one.differs(other):
        values = (str(capture.identity()[different[0]]) for capture in (one, other))
        return f"they ran at the same time, with {different[0]} {' and '.join(values)}"
    shorter = min(span[1] - span[0], another[1] - another[0])
    return "they ran at the same time" if common > OVERLAP * max(shorter, 1) else ""


def bytes_of(captures: Sequence[Capture]) -> int:
    """The size of the files that are read for events."""
    return sum(capture.source.size(name) for capture in captures for name in capture.files)


def _recorded_together(captures: Sequence[Capture]) -> bool:
    """Whether captures were certainly recorded in one run: in one file, or at one time."""
    files = {(id(capture.source), capture.files) for capture in captures}
    clocks = {capture.clock.domain if capture.clock else None for capture in captures}
    if len(files) == 1:
        return True
    if clocks not in ({Domain.UNIX}, {Domain.MONOTONIC}) or bytes_of(captures) > MOST_BYTES:
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


def _repeated(values: Sequence[object]) -> bool:
    return len(set(values)) < len(values)


def _contradicted(ranks: Sequence[int], captures: Sequence[Capture]) -> bool:
    """Whether a capture states another rank. Ranks that several processes state, or that a name
    gives next to the replica, count within a replica, a container or a host, and contradict
    nothing."""
    recorded = [capture.rank for capture in captures if capture.rank is not None]
    if _repeated(recorded):
        return False
    places = [place_in_name(capture) for capture in captures]
    return any(
        capture.rank not in (None, rank, place["rank"] if len(place) > 1 else rank)
        for capture, rank, place in zip(captures, ranks, places, strict=True)
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
    recorded = [tuple(sorted(capture.identity().items())) for capture in captures]
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
    return str(capture.identity().get("host", ""))


def _on_host(trait: str) -> Callable[[Sequence[Capture]], list[int] | None]:
    """Ranks by host and, within a host, by a trait. None if it does not distinguish all processes,
    if hosts have different numbers of them, or if nothing shows that they are of one run."""

    def ranks_by(captures: Sequence[Capture]) -> list[int] | None:
        hosts = [_host(capture) for capture in captures]
        if "" in hosts and (len(set(hosts)) > 1 or not _recorded_together(captures)):
            return None
        order = sorted(set(hosts), key=natural_order)
        values = [{**capture.identity(), "rank": capture.rank}.get(trait) for capture in captures]
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
