"""Find raw event logs, their layouts and their ranks.

A log is recognised by its first lines: JSON lines or a table of our own schema, of a user's mapping
or of another profiler (:data:`PRESETS`).
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

import msgspec

from traceconv.core.clock import Anchor, Domain, is_unix_ns
from traceconv.core.errors import Issues, MalformedInputError, OptionError
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.core.version import RAW_EVENT_LOG as VERSION
from traceconv.readers.event_log.mapping import (
    SETTINGS,
    TARGETS,
    TIMES,
    UNITS,
    Binding,
    Field,
    Mapping,
    bound,
    from_file,
    parsed,
)
from traceconv.readers.event_log.records import Layout, batches, cells, rank_of, rank_texts
from traceconv.readers.shared.lines import (
    CHUNK_BYTES,
    OBJECT,
    Lines,
    rank_in_path,
    text,
    unheard,
)
from traceconv.readers.shared.numbers import (
    ABSENT,
    ISO,
    UNREADABLE,
    is_iso_time,
    times,
    whole_number,
)

_DIGITS = lazy_regex(r"\d+")
_PART = lazy_regex(r"(?<![a-z])(part|window|chunk|segment|split)([-_.]?)\d+", re.IGNORECASE)


def _log_of(capture: Capture) -> Hashable:
    """Equal for the files of one rank's rotating log.

    These share folder, layout and rank, and their names differ in numbers only ("rank3.1.jsonl",
    "rank3.2.jsonl"). Without a rank a number could be one, so the name must call it a part
    ("gpu_part1.csv").
    """
    path = PurePosixPath(capture.files[0])
    alike = _DIGITS if capture.rank is not None else _PART
    stem = alike.sub(lambda m: "#" if alike is _DIGITS else f"{m[1]}{m[2]}#", path.name)
    if len(capture.files) > 1 or stem == path.name:
        return capture.files, capture.rank
    layout = capture.detail[0][1]
    settings = {key: value for key, value in layout.settings.items() if key != "comment"}
    clock = capture.clock.domain if capture.clock else Domain.RELATIVE
    return path.parent, stem, capture.rank, layout.log, clock, tuple(sorted(settings.items()))


def _whole_log(files: Sequence[Capture]) -> Capture:
    """The files of a log, in the order of the numbers in their names, as one capture."""
    if len(files) == 1:
        return files[0]
    numbers = [[int(n) for n in _DIGITS.findall(one.files[0])] for one in files]
    ordered = [files[i] for i in sorted(range(len(files)), key=lambda i: (numbers[i], i))]
    return replace(
        ordered[0],
        files=tuple(one.files[0] for one in ordered),
        clock=next((one.clock for one in ordered if one.clock), None),
        detail=tuple(part for one in ordered for part in one.detail),
        label=f"{ordered[0].title} and {len(ordered) - 1} more",
    )


MAX_RANKS = 100_000
"""A file with more ranks has a wrong mapping."""

_NSYS_TABLE = lazy_regex(
    r"_?(?:cuda_gpu_trace|gputrace|cuda_api_trace|cudaapitrace|nvtx_pushpop_trace|nvtxpptrace)\Z"
)

Part = tuple[str, Layout]
"""A file and its layout."""


def captures(
    source: Source, names: Sequence[str], mapping: Mapping | None, issues: Issues
) -> list[Capture]:
    """One capture per rank in every log; see :meth:`.reader.EventLogReader.find`.

    Args:
        mapping: the user's; None: our schema and the known tables.

    Raises:
        MalformedInputError: the head of a log has an impossible value; a lone table does not fit
            the mapping; too many ranks.
    """
    reports: dict[str, list[Part]] = {}
    for name in names:
        layout = recognised(source.head(name), source.title(name), mapping)
        if layout is not None:
            reports.setdefault(report_of(name, layout), []).append((name, layout))
    if mapping is not None and not reports and len(names) == 1:
        _refuse_table(source, names[0], mapping)
    rank_captures = (c for parts in reports.values() for c in _captures(source, parts, issues))
    logs: dict[Hashable, list[Capture]] = {}
    for capture in rank_captures:
        logs.setdefault(_log_of(capture), []).append(capture)
    return [_whole_log(files) for files in logs.values()]


def report_of(name: str, layout: Layout) -> str:
    """The name that the tables of one report share: the part before that of the table."""
    stem = PurePosixPath(name).with_suffix("")
    if "nsys-" in layout.log and (match := _NSYS_TABLE.search(stem.name)):
        return str(stem.with_name(stem.name[: match.start()] or "report"))
    return name


def _captures(source: Source, parts: Sequence[Part], issues: Issues) -> list[Capture]:
    name, layout = parts[0]
    title = source.title(name)
    default, evidence = _default_rank(layout, title)
    capture = Capture(
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
        return [capture]
    ranks, nameless = _ranks(source, name, layout, issues)
    named_by = layout.binding.column("rank")
    has_pattern = named_by is not None and named_by.regex is not None
    if nameless and ranks and (default is None or has_pattern):
        issues.add("record-without-rank", title, count=nameless)
        default = default or 0
    default_too = {default} if nameless and default is not None else set()
    requested: list[int | None] = [*sorted(ranks | default_too)]
    return [
        replace(
            capture,
            rank=rank,
            rank_from="records" if rank in ranks else evidence,
            label=title if len(requested) == 1 else f"{title} (rank {rank})",
            detail=(
                (name, msgspec.structs.replace(layout, by_rank=True, rank=rank, otherwise=default)),
            ),
        )
        for rank in requested or [None]
    ]


def _default_rank(layout: Layout, title: str) -> tuple[int | None, str]:
    """The rank of records that name none, and the evidence for it."""
    binding = layout.binding
    rank = whole_number(binding.constants.get("rank"))
    if rank is not None:
        return rank, "mapping"
    if "rank" in layout.settings:
        return whole_number(layout.settings["rank"]), "head of the log"
    rank = rank_in_path(title)
    return (rank, "name") if rank is not None else (None, "")


def _may_name_ranks(source: Source, name: str, layout: Layout) -> bool:
    """Whether records may name ranks: the header does, or the word occurs in JSON lines."""
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
    """The ranks that records name, and the number of records without one; counts damage.

    Raises:
        MalformedInputError: too many ranks, or no rank is a number.
    """
    title = source.title(name)
    bound = layout.binding.column("rank")

    def report(code: str, where: str) -> None:
        issues.add(code, title, where)

    rank_by_text: dict[str, int] = {}
    ranks: set[int] = set()
    nameless, text = 0, ""
    unread: tuple[str, str] | None = None
    with source.open(name) as stream:
        lines = Lines(stream, report)
        for number, text in rank_texts(lines, layout):
            rank = rank_by_text.get(text)
            if rank is None:
                rank = rank_of(text, bound)
                if rank == UNREADABLE:
                    unread = unread or (f"line {number}", text[:40])
                    report("malformed-record", f"line {number}: rank {text[:40]!r}")
                    continue
                rank_by_text[text] = rank
                if len(rank_by_text) > MAX_RANKS:
                    raise MalformedInputError(
                        title,
                        f"line {number}",
                        f"more than {MAX_RANKS} ranks; is the column right?",
                    )
            nameless += rank == ABSENT
        ranks = set(rank_by_text.values()) - {ABSENT}
    if bound and bound.regex and nameless and not ranks:
        raise MalformedInputError(
            title, "", f"the pattern of the rank matches no {bound.column!r}, such as {text[:40]!r}"
        )
    if unread and not rank_by_text and bound and not bound.regex:
        where, text = unread
        raise MalformedInputError(
            title, where, f"{text!r} is not a rank; if it holds a number, write "
            rf"rank={bound.column}/(\d+)/ in `mapping`",
        )  # fmt: skip
    return ranks, nameless


def _clock(head: bytes, layout: Layout) -> Anchor | None:
    """The clock that the log states, else the one that the size of its stamps suggests."""
    head_says = layout.settings.get("clock")
    if head_says:
        return Anchor(Domain(head_says), evidence=f"clock={head_says}")
    lines = Lines(io.BytesIO(head), unheard)
    for batch in batches(lines, layout):
        ts = times(batch.columns.get("ts", ()), layout.units["ts"])
        sound = ts.ns[ts.present & ~ts.bad]
        if len(sound):
            unix = is_unix_ns(int(sound.min()))
            return Anchor(
                Domain.UNIX if unix else Domain.RELATIVE,
                evidence="Unix time stamps" if unix else "stamps count from an unknown start",
            )
    return None


def _refuse_table(source: Source, name: str, mapping: Mapping) -> None:
    """Name the columns that the mapping misses in a lone table.

    Raises:
        MalformedInputError: it is a table, and none of those that are known.
    """
    head, title = source.head(name), source.title(name)
    if mapping.line is not None:
        lines = [] if is_binary(head) else first_lines(head)
        first_line = f"; the first is {lines[0][1][:80]!r}" if lines else ""
        raise MalformedInputError(
            title, "", f"{mapping.name}: its pattern matches none of the first lines{first_line}"
        )
    columns = columns_in(head)
    if not columns or recognised(head, title, None):
        return
    lowered = [column.casefold() for column in columns]
    missing = [
        column
        for column in mapping.required()
        if not any(
            header.startswith(column.removesuffix("(*)").strip().casefold()) for header in lowered
        )
    ]
    raise MalformedInputError(
        title,
        "",
        f"{mapping.name} does not fit: no column {', '.join(missing) or 'for it'}; "
        f"there are: {', '.join(columns[:40]) or 'none'}",
    )


SCHEMA = Mapping(
    "raw event log",
    tuple(Field(t, t, optional=t not in ("name", "ts")) for t in TARGETS),
)
"""Version 1 of our own schema: every field has its own name."""

_TEXTS = {
    # nsys stats -r cuda_gpu_trace (gputrace)
    "nsys-gpu": (
        r"ts=Start (*),dur=Duration (*),name=Name,stream=Strm,device?=Device/\((\d+)\)/,"
        "args.correlation?=CorrId,args.context?=Ctx,title='GPU Hardware',kind='kernel',"
        "clock='relative'"
    ),
    # nsys stats -r cuda_api_trace
    "nsys-api": (
        "ts=Start (*),dur=Duration (*),name=Name,thread=Tid,process=Pid,args.correlation=CorrID,"
        "args.result?=Result,ignore=T-Pri,ignore=Thread Name,kind='runtime',title='CUDA',"
        "clock='relative'"
    ),
    # nsys stats -r nvtx_pushpop_trace, without derived columns
    "nsys-nvtx": (
        "ts=Start (*),end=End (*),name=Name/^:?(.*)$/,thread=TID,process=PID,"
        "args.range=RangeId,kind='host',title='NVTX',clock='relative',ignore=Duration (*),"
        "ignore=DurChild (*),ignore=DurNonChild (*),ignore=Lvl,ignore=NumChild,ignore=ParentId,"
        "ignore=RangeStack,ignore=NameTree"
    ),
    # nvprof --print-gpu-trace --csv
    "nvprof-gpu": (
        r"ts=Start,dur=Duration,name=Name/^(.*?)(?: \[\d+\])?$/,stream=Stream,"
        r"device?=Device/\((\d+)\)/,args.context=Context,title='GPU Hardware',kind='kernel',"
        "unit='row',comment='==',clock='relative'"
    ),
    # a row when a call is entered and one when it is left, without derived columns
    "enter-leave": (
        "ts=Timestamp (*),ph=Event Type,name=Name,rank?=Process,thread?=Thread,stream?=streamId,"
        "bytes?=bytes,kind?=type/^(kernel|memcpy|memset|CUDA_MEMCPY|CUDA_MEMSET)/,"
        "ignore=_matching_event,ignore=_matching_timestamp,ignore=_depth,ignore=_parent,"
        "ignore=_children"
    ),
}
PRESETS: dict[str, Mapping] = {name: parsed(text, name) for name, text in _TEXTS.items()}
"""Mappings of other profilers' exports by name, in the order of trying; the header selects one."""


def mapping_of(text_or_path: str) -> Mapping:
    """A mapping from a preset, a preset with changes, a file, or a text.

    Raises:
        OptionError: it is invalid, or lacks ``ts`` or ``name``.
    """
    head, comma, rest = text_or_path.strip().partition(",")
    if head == "chrome-jsonl":
        raise OptionError(
            '`mapping="chrome-jsonl"`: lines of Chrome events need no mapping; leave `mapping` '
            'out, or pass `reader="chrome_json"`'
        )
    if head in PRESETS:
        mapping = (
            parsed(rest, f'`mapping="{head}"`').over(PRESETS[head]) if comma else PRESETS[head]
        )
    elif "=" in text_or_path:
        mapping = parsed(text_or_path)
    elif text_or_path.endswith(".json"):
        mapping = from_file(text_or_path, PRESETS)
    else:
        raise OptionError(
            f"`mapping={text_or_path!r}`: neither a preset ({', '.join(PRESETS)}), nor a .json "
            "file, nor a mapping such as name=Name,ts=Start"
        )
    lacking = {"ts", "name"} - {f.target for f in mapping.fields}
    if lacking:
        raise OptionError(f"{mapping.name}: no {' and no '.join(sorted(lacking))}")
    return mapping


HEAD_LINES = 200
"""The header of a table is one of the first lines."""

_HOLE = lazy_regex(rb"\0{8,}")
_SETTING = lazy_regex(r"(?<![A-Za-z_])([A-Za-z_]++)\s*+[=:]\s*+([^\s,;]+)")
_DELIMITERS = (",", ";", "\t")
_CHROME_PHASE = lazy_regex(r"[A-Za-z()]")


def recognised(head: bytes, title: str, mapping: Mapping | None) -> Layout | None:
    """The layout of a log that begins with ``head``; None for other files.

    Args:
        title:   of the file, for messages.
        mapping: the user's; None: our schema or a preset, whichever fits.

    Raises:
        MalformedInputError: the head of the log has an impossible value.
    """
    if is_binary(head):
        return None
    lines = first_lines(head)
    first_line = next((line for _, line in lines if not line.startswith("#")), "")
    if mapping is not None and mapping.line is not None:
        layout = _text_lines(lines, title, mapping)
    elif first_line.startswith("{"):
        layout = _json_lines(lines, title, mapping or SCHEMA)
    else:
        layout = _table(lines, title, [mapping] if mapping else [SCHEMA, *PRESETS.values()])
    if not layout:
        return None
    iso: dict[str, str] = {}  # columns of times that ISO 8601 text holds, not numbers
    for batch in batches(Lines(io.BytesIO(head), unheard), layout):
        for target in ("ts", "end"):
            first_line = next(filter(None, batch.columns.get(target, ())), "")
            if is_iso_time(first_line):
                iso[target] = ISO
        break
    return msgspec.structs.replace(layout, units={**layout.units, **iso}) if iso else layout


def _text_lines(lines: Sequence[tuple[int, str]], title: str, mapping: Mapping) -> Layout | None:
    """The layout of lines of text; None if the pattern matches no line."""
    pattern = mapping.line
    if pattern is None or not any(pattern.search(line) for _, line in lines):
        return None
    columns = tuple(pattern.groupindex)
    binding, missing = bound(mapping, columns)
    if missing:
        raise OptionError(f"{mapping.name}: its pattern has no group {missing[0]!r}")
    settings = _settings({}, binding, title)
    return Layout(
        mapping.name, binding, _units(binding, settings), settings, columns, pattern=pattern
    )


def columns_in(head: bytes) -> list[str]:
    """The columns of a table, for messages; [] for other files."""
    lines = [] if is_binary(head) else first_lines(head)
    header = next((line for _, line in lines if not line.startswith("#")), "{")
    if header.startswith(("{", "[")):
        return []
    cells_by_width = max((cells(header, d) for d in _DELIMITERS), key=len)
    return [cell.strip() for cell in cells_by_width] if len(cells_by_width) > 1 else []


def row_of(line: str, header: str) -> list[str]:
    """The cells of a row, split by a delimiter that gives as many as the header has; else []."""
    width = max(len(cells(header, delimiter)) for delimiter in _DELIMITERS)
    likely = sorted(_DELIMITERS, key=lambda delimiter: len(cells(header, delimiter)), reverse=True)
    splits = (cells(line, delimiter) for delimiter in likely)
    return next((row for row in splits if len(row) == width), [])


def is_binary(head: bytes) -> bool:
    """Whether it contains zero bytes, except for long runs, which a crash leaves in text."""
    return b"\0" in head and b"\0" in _HOLE.sub(b"", head)


def first_lines(head: bytes) -> list[tuple[int, str]]:
    """The first lines that are not blank, with their numbers."""
    return list(islice(Lines(io.BytesIO(head), unheard).numbered(), HEAD_LINES))


# -- JSON lines -----------------------------------------------------------------------------


def fields_of(line: str) -> dict[str, str] | None:
    """The fields of a line as text; None unless it is a JSON object."""
    try:
        return {key: text(raw) for key, raw in OBJECT.decode(line).items()}
    except NOT_JSON:
        return None


def _json_lines(lines: Sequence[tuple[int, str]], title: str, mapping: Mapping) -> Layout | None:
    numbered = [(n, fields_of(line)) for n, line in lines if not line.startswith("#")]
    number, first = numbered[0]
    if first is None:
        return None
    has_head = "rawlog" in first
    body, head_says = (number, first) if has_head else (0, {})
    records = [record for n, record in numbered if record and n > body]
    if not has_head and not records:
        return None
    if not has_head and mapping is SCHEMA:  # without a head it could be a Chrome event
        phase = records[0].get("ph", "")
        if not {"ts", "name"} <= records[0].keys() or _CHROME_PHASE.fullmatch(phase):
            return None
    keys = list(dict.fromkeys(key for record in records for key in record))
    _, missing = bound(mapping, keys)
    if missing and mapping is not SCHEMA:
        return None
    # fields that first occur further down are in the columns of the mapping
    binding, _ = bound(mapping, [*keys, *(f.column for f in mapping.fields)])
    settings = _settings(head_says, binding, title)
    return Layout(mapping.name, binding, _units(binding, settings), settings, body=body)


# -- tables ---------------------------------------------------------------------------------


def _table(
    lines: Sequence[tuple[int, str]], title: str, mappings: Sequence[Mapping]
) -> Layout | None:
    head_says: dict[str, str] = {}
    header = True  # our own header is the first line; other profilers may print lines before theirs
    for i, (number, line) in enumerate(lines):
        if line.startswith("#"):
            head_says.update(_SETTING.findall(line[1:]))
            continue
        for mapping in mappings:
            if mapping is not SCHEMA or header:
                below = lines[i + 1][1] if i + 1 < len(lines) else ""
                if layout := _headed(number, line, below, title, mapping, head_says):
                    return layout
        header = False
    return None


def _headed(
    number: int, line: str, below: str, title: str, mapping: Mapping, head_says: Dict[str, str]
) -> Layout | None:
    """The layout of a table whose header is ``line``; None if the mapping does not fit."""
    stems = [column.removesuffix("(*)").strip().casefold() for column in mapping.required()]
    folded = line.casefold()
    if not all(stem in folded for stem in stems):
        return None
    for delimiter in _DELIMITERS:
        repeats: Counter[str] = Counter()
        names = []  # a repeated one gets its number
        for name in (cell.strip() for cell in cells(line, delimiter)):
            repeats[name] += 1
            names.append(name if repeats[name] == 1 else f"{name} ({repeats[name]})")
        columns = tuple(names)
        binding, missing = bound(mapping, columns)
        if missing or not columns:
            continue
        settings = _settings(head_says, binding, title)
        units = _units(binding, settings)
        body = number
        if settings["unit"] == "row":
            row = dict(zip(columns, cells(below, delimiter), strict=False))
            time_columns = {t: b.column for t in TIMES if (b := binding.column(t))}
            row_units = {t: UNITS.get(row.get(c, "").strip(), "") for t, c in time_columns.items()}
            if not all(row_units.values()):
                continue
            units |= row_units
            body += 1
        return Layout(mapping.name, binding, units, settings, columns, delimiter, body)
    return None


# -- settings of the whole log --------------------------------------------------------------


def _settings(head_says: Dict[str, str], binding: Binding, title: str) -> dict[str, str]:
    """The settings of the head of the log, overridden by those of the mapping.

    Raises:
        MalformedInputError: a value is impossible.
    """
    head_settings = {
        k: v for k, v in head_says.items() if k in ("rawlog", "rank", *SETTINGS) and k != "comment"
    }
    settings = {"unit": "us", **head_settings, **binding.settings}
    for key, allowed in SETTINGS.items():
        if allowed and settings.get(key, allowed[0]) not in allowed:
            raise MalformedInputError(
                title, "head", f"{key} {settings[key]!r}: must be one of {', '.join(allowed)}"
            )
    if settings.get("rawlog", str(VERSION)) != str(VERSION):
        raise MalformedInputError(
            title, "head", f"version {settings['rawlog']} of the raw event log; known is {VERSION}"
        )
    if whole_number(settings.get("rank", "0")) is None:
        raise MalformedInputError(title, "head", f"rank {settings['rank']!r} is not a whole number")
    return settings


def _units(binding: Binding, settings: Dict[str, str]) -> dict[str, str]:
    bindings = {t: binding.column(t) for t in TIMES}
    return {t: (b.unit if b else "") or settings["unit"] for t, b in bindings.items()}
