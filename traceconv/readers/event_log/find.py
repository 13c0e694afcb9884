"""Finding raw event logs: which files are some, and which ranks each of them holds."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture
from traceconv.io.sources import Source
from traceconv.readers.event_log import json_lines as objects
from traceconv.readers.event_log import table
from traceconv.readers.event_log.layout import columns_in, recognised
from traceconv.readers.event_log.mapping import Mapping
from traceconv.readers.event_log.records import Batch, Layout, rank_of
from traceconv.readers.shared.lines import CHUNK_BYTES, Lines, Report, rank_in_path, unheard
from traceconv.readers.shared.numbers import ABSENT, UNREADABLE, times

# Several logs of one rank: a logger that begins a new file now and then leaves windows.
#
# Logs are windows of one rank if they lie in one folder, are laid out alike, say the same rank, and
# their names differ in nothing but numbers ("rank3.1.jsonl", "rank3.2.jsonl"). Where nothing says
# the rank, a number could be one, so the name has to call it a part ("gpu_part1.csv").

_DIGITS = re.compile(r"\d+")
_PART = re.compile(r"(?<![a-z])(part|window|chunk|segment|split)([-_.]?)\d+", re.IGNORECASE)


def joined(captures: Sequence[Capture]) -> list[Capture]:
    """The captures of a source, those that are windows of one rank as one; in their order."""
    groups: dict[Any, list[Capture]] = {}
    for capture in captures:
        groups.setdefault(_key(capture), []).append(capture)
    return [_one(group) for group in groups.values()]


def _key(capture: Capture) -> Any:
    """What windows of one rank have in common."""
    path = PurePosixPath(capture.files[0])
    alike = _DIGITS if capture.rank is not None else _PART
    stem = alike.sub(lambda m: "#" if alike is _DIGITS else f"{m[1]}{m[2]}#", path.name)
    if len(capture.files) > 1 or stem == path.name:
        return capture.files, capture.rank
    layout = capture.detail[0][1]
    settings = {key: value for key, value in layout.settings.items() if key != "comment"}
    clock = capture.clock.domain if capture.clock else Domain.RELATIVE
    return path.parent, stem, capture.rank, layout.log, clock, tuple(sorted(settings.items()))


def _one(group: Sequence[Capture]) -> Capture:
    """Windows as one capture, by the numbers in their names."""
    if len(group) == 1:
        return group[0]
    ordered = sorted(group, key=lambda c: [int(n) for n in _DIGITS.findall(c.files[0])])
    return replace(
        ordered[0],
        files=tuple(c.files[0] for c in ordered),
        detail=tuple(part for c in ordered for part in c.detail),
    )


MAX_RANKS = 100_000
"""More ranks than this in one file are taken for a wrong mapping."""

_UNIX_NS = 900_000_000 * 10**9
"""Stamps behind 1998 count from 1970."""

_NSYS_TABLE = re.compile(
    r"_?(?:cuda_gpu_trace|gputrace|cuda_api_trace|cudaapitrace|nvtx_pushpop_trace|nvtxpptrace)\Z"
)

Part = tuple[str, Layout]
"""A file and how it is laid out."""


def captures(
    source: Source, names: Sequence[str], mapping: Mapping | None, issues: Issues
) -> list[Capture]:
    """One capture per rank in every log; see :class:`traceconv.readers.event_log.reader.EventLogReader`.

    Args:
        mapping: the user's; None: our schema and the known tables.

    Raises:
        MalformedInputError: the head of a log says something that cannot be; a lone table does
            not fit the mapping; too many ranks.
    """
    reports: dict[str, list[Part]] = {}
    for name in names:
        layout = recognised(source.head(name), source.title(name), mapping)
        if layout is not None:
            reports.setdefault(report_of(name, layout), []).append((name, layout))
    if mapping is not None and not reports and len(names) == 1:
        _refuse_table(source, names[0], mapping)
    return joined([c for parts in reports.values() for c in _captures(source, parts, issues)])


def batches(lines: Lines, layout: Layout, report: Report) -> Iterator[Batch]:
    """The records of a log."""
    read = table.batches if layout.columns else objects.batches
    return read(lines, layout, report)


def report_of(name: str, layout: Layout) -> str:
    """What the tables of one report have in common: the name before that of the table."""
    stem = PurePosixPath(name).with_suffix("")
    if "nsys-" in layout.log and (match := _NSYS_TABLE.search(stem.name)):
        return str(stem.with_name(stem.name[: match.start()] or "report"))
    return name


def _captures(source: Source, parts: Sequence[Part], issues: Issues) -> list[Capture]:
    name, layout = parts[0]
    title = source.title(name)
    default, evidence = _default_rank(layout, title)
    one = Capture(
        reader="event_log",
        source=source,
        files=tuple(name for name, _ in parts),
        rank=default,
        rank_from=evidence,
        host=layout.settings.get("host", ""),
        clock=_clock(source.head(name), layout),
        label=title,
        detail=tuple(parts),
    )
    if not _may_name_ranks(source, name, layout):
        return [one]
    ranks, nameless = _ranks(source, name, layout, issues)
    if nameless and default is None and ranks:
        issues.add("rank-assumed", title, "records that name no rank", nameless)
        default = 0
    default_too = {default} if nameless and default is not None else set()
    wanted: list[int | None] = [*sorted(ranks | default_too)]
    return [
        replace(
            one,
            rank=rank,
            rank_from="records" if rank in ranks else evidence,
            label=title if len(wanted) == 1 else f"{title} (rank {rank})",
            detail=((name, replace(layout, by_rank=True, rank=rank, otherwise=default)),),
        )
        for rank in wanted or [None]
    ]


def _default_rank(layout: Layout, title: str) -> tuple[int | None, str]:
    """The rank of records that name none, and what says so."""
    binding = layout.binding
    if binding.constants.get("rank", "").isdecimal():
        return int(binding.constants["rank"]), "mapping"
    if "rank" in layout.settings:
        return int(layout.settings["rank"]), "head of the log"
    rank = rank_in_path(title)
    return (rank, "name") if rank is not None else (None, "")


def _may_name_ranks(source: Source, name: str, layout: Layout) -> bool:
    """Whether records of a log may name their ranks: its header does, or the word comes up."""
    rank = layout.binding.column("rank")
    if rank is None or layout.columns:
        return rank is not None
    word, before = f'"{rank.column}"'.encode(), b""
    with source.open(name) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            if word in before + chunk:
                return True
            before = chunk[-len(word) :]
    return False


def _ranks(source: Source, name: str, layout: Layout, issues: Issues) -> tuple[set[int], int]:
    """The ranks records name, and how many name none. Books what is damaged, once for all ranks.

    Raises:
        MalformedInputError: too many ranks.
    """
    title = source.title(name)
    bound = layout.binding.column("rank")

    def report(code: str, where: str) -> None:
        issues.add(code, title, where)

    known: dict[str, int] = {}
    ranks: set[int] = set()
    nameless = 0
    with source.open(name) as stream:
        lines = Lines(stream, report)
        for number, text in (table if layout.columns else objects).rank_texts(
            lines, layout, report
        ):
            rank = known.get(text)
            if rank is None:
                rank = rank_of(text, bound)
                if rank == UNREADABLE:
                    report("malformed-record", f"line {number}: rank {text[:40]!r}")
                    continue
                known[text] = rank
                if len(known) > MAX_RANKS:
                    raise MalformedInputError(
                        title,
                        f"line {number}",
                        f"more than {MAX_RANKS} ranks; is the column right?",
                    )
            nameless += rank == ABSENT
        ranks = set(known.values()) - {ABSENT}
    return ranks, nameless


def _clock(head: bytes, layout: Layout) -> Anchor | None:
    """What stamps are measured against: as the log says, else by their size."""
    said = layout.settings.get("clock")
    if said:
        return Anchor(Domain(said), evidence=f"clock={said}")
    lines = Lines(io.BytesIO(head), unheard)
    for batch in batches(lines, layout, unheard):
        ts = times(batch.columns.get("ts", ()), layout.units["ts"])
        sound = ts.ns[ts.present & ~ts.bad]
        if len(sound):
            unix = int(sound.min()) > _UNIX_NS
            return Anchor(
                Domain.UNIX if unix else Domain.RELATIVE,
                evidence="Unix time stamps" if unix else "stamps count from a start of their own",
            )
    return None


def _refuse_table(source: Source, name: str, mapping: Mapping) -> None:
    """Say which columns of a lone table the mapping misses. Other files may be for other readers.

    Raises:
        MalformedInputError: it is a table, and none of those that are known.
    """
    head, title = source.head(name), source.title(name)
    columns = columns_in(head)
    if not columns or recognised(head, title, None):
        return
    there = [column.casefold() for column in columns]
    missing = [
        column
        for column in mapping.required()
        if not any(one.startswith(column.removesuffix("(*)").strip().casefold()) for one in there)
    ]
    raise MalformedInputError(
        title,
        "",
        f"{mapping.name} does not fit: no column {', '.join(missing) or 'for it'}; "
        f"there are: {', '.join(columns[:40]) or 'none'}",
    )
