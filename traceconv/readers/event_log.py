"""Raw event logs: one event per line, as JSON or as a table, of our own schema or of any other.

Written by: people's own loggers (schema: ``schemas/json/raw_event_log.schema.json``);
            ``nsys stats`` (GPU, API and NVTX traces as CSV), ``nvprof --print-gpu-trace --csv``,
            Enter/Leave tables of analysis libraries - these are known by their header row; any
            other log with a mapping (:func:`with_mapping`).
Files:      any name; JSON lines or CSV, recognised by the first lines. Logs of one rank whose
            names differ in numbers are its windows. JSON lines may begin with
            an object that has ``rawlog``, tables with lines ``# key=value``: unit, clock, rank,
            host.
Units and clock: as the head, the mapping or the header says, else us; digits are taken as they
            are written, beyond the nanosecond half up. ``clock`` says whether stamps are Unix
            time; where nothing does, their size tells.
Rank from:  the record, the mapping, the head, "rank<n>" in the path. A file may hold many ranks.
Quirks:     records come in any order; a begin is ended by the next end of its lane and name
            (golden case ``begin_end``); banners, notices and a row of units may surround a table
            (``nsys_stats``, ``nvprof``); quoted cells hold line ends (``table``).
Ignored:    columns of known tables that are derived from others of the same row.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.clock import Anchor, Domain
from traceconv.errors import Issues, MalformedInputError
from traceconv.model import Capture
from traceconv.readers import Reader
from traceconv.readers import _event_log_objects as objects
from traceconv.readers import _event_log_table as table
from traceconv.readers._event_log_layout import columns_in, recognised
from traceconv.readers._event_log_lines import CHUNK_BYTES, Lines, Report, unheard
from traceconv.readers._event_log_mapping import Mapping
from traceconv.readers._event_log_numbers import ABSENT, UNREADABLE, times
from traceconv.readers._event_log_presets import mapping_of
from traceconv.readers._event_log_records import Batch, Layout, rank_in_path, rank_of
from traceconv.readers._event_log_rows import Rows
from traceconv.readers._event_log_windows import joined
from traceconv.readers._windows import read_windows
from traceconv.source import Source

MAX_RANKS = 100_000
"""More ranks than this in one file are taken for a wrong mapping."""

_UNIX_NS = 900_000_000 * 10**9
"""Stamps behind 1998 count from 1970."""


_NSYS_TABLE = re.compile(
    r"_?(?:cuda_gpu_trace|gputrace|cuda_api_trace|cudaapitrace|nvtx_pushpop_trace|nvtxpptrace)\Z"
)

Part = tuple[str, Layout]
"""A file and how it is laid out."""


class EventLogReader:
    """Reads raw event logs.

    Args:
        mapping: the user's; None: our schema and the known tables.
    """

    name = "event_log"
    title = "Raw event logs: JSON lines, CSV, nsys stats, nvprof"
    files = "*.jsonl, *.csv (the first lines tell)"
    order = 400

    def __init__(self, mapping: Mapping | None = None) -> None:
        self._mapping = mapping
        if mapping is not None:
            self.order = 50  # what the user has mapped is nobody else's
            self.files = f"logs with {', '.join(mapping.required())}"

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per rank in every log; the tables of one nsys report are one log, and files
        that one rank began one after another are its windows."""
        reports: dict[str, list[Part]] = {}
        for name in names:
            layout = recognised(source.head(name), source.title(name), self._mapping)
            if layout is not None:
                reports.setdefault(_report(name, layout), []).append((name, layout))
        if self._mapping is not None and not reports and len(names) == 1:
            _refuse_table(source, names[0], self._mapping)
        return joined([c for parts in reports.values() for c in _captures(source, parts, issues)])

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event of one rank into ``build``; see :class:`traceconv.readers.Reader`."""
        parts: Sequence[Part] = capture.detail
        tables = len({_report(name, layout) for name, layout in parts}) < len(parts)

        def read(part: Part) -> tuple[int, int] | None:
            first, (name, layout) = build.rows, part
            rows = Rows(build, layout.units)
            report: Report = unheard if layout.by_rank else build.skip
            with capture.source.open(name) as stream:
                for batch in _batches(Lines(stream, report), layout, report):
                    rows.add(batch)
            rows.finish()
            return None if tables else build.span(first)  # tables of a report are no windows

        read_windows(capture, build, ((part[0], part) for part in parts), read)


def with_mapping(text_or_path: str) -> Reader:
    """A reader of logs in a layout of their own.

    Args:
        text_or_path: a mapping (``name=Name,ts=Start (ns):ns,dur=Length,kind='compute'``), a JSON
            file with one, or a preset (nsys-gpu, nsys-api, nsys-nvtx, nvprof-gpu, enter-leave),
            which changes may follow (``nsys-gpu,rank='3'``).

    Raises:
        InputError: it cannot be understood; the message says which part, and what there is.
        SourceError: the file cannot be read.
    """
    return EventLogReader(mapping_of(text_or_path))


def _batches(lines: Lines, layout: Layout, report: Report) -> Iterator[Batch]:
    read = table.batches if layout.columns else objects.batches
    return read(lines, layout, report)


# -- captures -------------------------------------------------------------------------------


def _report(name: str, layout: Layout) -> str:
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
        reader=EventLogReader.name,
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
    for batch in _batches(lines, layout, unheard):
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


READER = EventLogReader()
