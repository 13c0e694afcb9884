"""Recognising a log by its head: JSON lines or a table, whose it is, units, clock and rank."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping as Dict
from collections.abc import Sequence

from traceconv.core.errors import InputError, MalformedInputError
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
from traceconv.readers.event_log.records import Layout
from traceconv.readers.event_log.table import cells
from traceconv.readers.shared.lines import BROKEN, OBJECT, Lines, text, unheard

# The logs that are known without a mapping: our own schema, and exports of other profilers.
#
# Every preset is written as a user would write it. Which one a log needs is seen by its header.

SCHEMA = Mapping(
    "raw event log",
    tuple(Field(t, t, optional=t not in ("name", "ts")) for t in TARGETS),
)
"""Version 1 of our own schema: every field under its own name."""

_TEXTS = {
    # nsys stats -r cuda_gpu_trace (gputrace)
    "nsys-gpu": (
        r"ts=Start (*),dur=Duration (*),name=Name,stream=Strm,device?=Device/\((\d+)\)/,"
        "args.correlation?=CorrId,args.context?=Ctx,title='GPU Hardware',clock='relative'"
    ),
    # nsys stats -r cuda_api_trace
    "nsys-api": (
        "ts=Start (*),dur=Duration (*),name=Name,thread=Tid,process=Pid,args.correlation=CorrID,"
        "args.result?=Result,ignore=T-Pri,ignore=Thread Name,kind='runtime',title='CUDA',"
        "clock='relative'"
    ),
    # nsys stats -r nvtx_pushpop_trace; what is derived from start and end is left out
    "nsys-nvtx": (
        "ts=Start (*),end=End (*),name=Name/^:?(.*)$/,thread=TID,process=PID,"
        "args.range=RangeId,kind='host',title='NVTX',clock='relative',ignore=Duration (*),"
        "ignore=DurChild (*),ignore=DurNonChild (*),ignore=Lvl,ignore=NumChild,ignore=ParentId,"
        "ignore=RangeStack,ignore=NameTree"
    ),
    # nvprof --print-gpu-trace --csv
    "nvprof-gpu": (
        r"ts=Start,dur=Duration,name=Name/^(.*?)(?: \[\d+\])?$/,stream=Stream,"
        r"device?=Device/\((\d+)\)/,args.context=Context,title='GPU Hardware',unit='row',"
        "comment='==',clock='relative'"
    ),
    # one row when a call is entered and one when it is left; what is derived of them is left out
    "enter-leave": (
        "ts=Timestamp (*),ph=Event Type,name=Name,rank?=Process,thread?=Thread,stream?=streamId,"
        "bytes?=bytes,kind?=type/^(kernel|memcpy|memset|CUDA_MEMCPY|CUDA_MEMSET)/,"
        "ignore=_matching_event,ignore=_matching_timestamp,ignore=_depth,ignore=_parent,"
        "ignore=_children"
    ),
}
PRESETS: dict[str, Mapping] = {name: parsed(text, name) for name, text in _TEXTS.items()}
"""By name, in the order they are tried."""


def mapping_of(text_or_path: str) -> Mapping:
    """The mapping a user asked for: a preset, a preset and changes to it, a file, or a text.

    Raises:
        InputError: it cannot be understood, or leaves out ``ts`` or ``name``.
    """
    head, comma, rest = text_or_path.strip().partition(",")
    if head == "chrome-jsonl":
        raise InputError(
            '`mapping="chrome-jsonl"`: lines of Chrome events need no mapping; leave `mapping` out, '
            'or pass `reader="chrome_json"`'
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
        raise InputError(
            f"`mapping={text_or_path!r}`: neither a preset ({', '.join(PRESETS)}), nor a .json file, "
            "nor a mapping such as name=Name,ts=Start"
        )
    lacking = {"ts", "name"} - {f.target for f in mapping.fields}
    if lacking:
        raise InputError(f"{mapping.name}: says nothing of {' and '.join(sorted(lacking))}")
    return mapping


HEAD_LINES = 200
"""A header row stands among the first so many lines."""

VERSION = 1
"""Of the schema; what ``rawlog`` says in the head of a log."""

_HOLE = re.compile(rb"\0{8,}")
_SETTING = re.compile(r"([A-Za-z_]+)\s*[=:]\s*([^\s,;]+)")
_DELIMITERS = (",", ";", "\t")
_CHROME_PHASE = re.compile(r"[A-Za-z()]")


def recognised(head: bytes, title: str, mapping: Mapping | None) -> Layout | None:
    """The layout of a log that begins with ``head``; None if it is none.

    Args:
        title:   of the file, for messages.
        mapping: the user's; None: our schema or a preset, whichever fits.

    Raises:
        MalformedInputError: it is one, and its head says something that cannot be.
    """
    if _is_binary(head):
        return None
    lines = _first_lines(head)
    first = next((line for _, line in lines if not line.startswith("#")), "")
    if first.startswith("{"):
        return _json_lines(lines, title, mapping or SCHEMA)
    return _table(lines, title, [mapping] if mapping else [SCHEMA, *PRESETS.values()])


def columns_in(head: bytes) -> list[str]:
    """The columns of a table, for messages; [] if this is none."""
    lines = [] if _is_binary(head) else _first_lines(head)
    first = next((line for _, line in lines if not line.startswith("#")), "{")
    if first.startswith(("{", "[")):
        return []
    found = max((cells(first, d) for d in _DELIMITERS), key=len)
    return [cell.strip() for cell in found] if len(found) > 1 else []


def _is_binary(head: bytes) -> bool:
    """Whether zeros stand in it; long runs of them are what a crash leaves in a file of text."""
    return b"\0" in head and b"\0" in _HOLE.sub(b"", head)


def _first_lines(head: bytes) -> list[tuple[int, str]]:
    lines = Lines(io.BytesIO(head), unheard).numbered()
    return [item for item, _ in zip(lines, range(HEAD_LINES), strict=False)]


# -- JSON lines -----------------------------------------------------------------------------


def _object(line: str) -> dict[str, str] | None:
    """The fields of a line as text; None if it is no JSON object."""
    try:
        return {key: text(raw) for key, raw in OBJECT.decode(line).items()}
    except BROKEN:
        return None


def _json_lines(lines: Sequence[tuple[int, str]], title: str, mapping: Mapping) -> Layout | None:
    found = [(n, _object(line)) for n, line in lines if not line.startswith("#")]
    number, first = found[0]
    if first is None:
        return None
    named = "rawlog" in first
    body, said = (number, first) if named else (0, {})
    records = [record for n, record in found if record and n > body]
    if not named and (not records or not _is_ours(records[0], mapping)):
        return None
    keys = list(dict.fromkeys(key for record in records for key in record))
    _, missing = bound(mapping, keys)
    if missing and mapping is not SCHEMA:
        return None
    # fields that first come up further down are where the mapping says
    binding, _ = bound(mapping, [*keys, *(f.column for f in mapping.fields)])
    settings = _settings(said, binding, title)
    return Layout(mapping.name, binding, _units(binding, settings), settings, body=body)


def _is_ours(record: Dict[str, str], mapping: Mapping) -> bool:
    """Whether a record without a head is one of our schema, and not a Chrome event."""
    if mapping is not SCHEMA:
        return True
    return {"ts", "name"} <= record.keys() and not _CHROME_PHASE.fullmatch(record.get("ph", ""))


# -- tables ---------------------------------------------------------------------------------


def _table(
    lines: Sequence[tuple[int, str]], title: str, mappings: Sequence[Mapping]
) -> Layout | None:
    said: dict[str, str] = {}
    header = True  # our own header comes first; what other profilers print may stand before theirs
    for i, (number, line) in enumerate(lines):
        if line.startswith("#"):
            said.update(_SETTING.findall(line[1:]))
            continue
        for mapping in mappings:
            if mapping is not SCHEMA or header:
                below = lines[i + 1][1] if i + 1 < len(lines) else ""
                if layout := _headed(number, line, below, title, mapping, said):
                    return layout
        header = False
    return None


def _headed(
    number: int, line: str, below: str, title: str, mapping: Mapping, said: Dict[str, str]
) -> Layout | None:
    """The layout of a table whose header is ``line``; None if the mapping finds no place in it."""
    stems = [column.removesuffix("(*)").strip().casefold() for column in mapping.required()]
    folded = line.casefold()
    if not all(stem in folded for stem in stems):
        return None
    for delimiter in _DELIMITERS:
        columns = _distinct([cell.strip() for cell in cells(line, delimiter)])
        binding, missing = bound(mapping, columns)
        if missing or not columns:
            continue
        settings = _settings(said, binding, title)
        units = _units(binding, settings)
        body = number
        if settings["unit"] == "row":
            row = dict(zip(columns, cells(below, delimiter), strict=False))
            units.update(said_units := _unit_row(binding, row))
            if not said_units:
                continue
            body += 1
        return Layout(mapping.name, binding, units, settings, columns, delimiter, body)
    return None


def _distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Column names, a repeated one with its number behind."""
    seen: dict[str, int] = {}
    found = []
    for name in columns:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(found)


def _unit_row(binding: Binding, row: Dict[str, str]) -> dict[str, str]:
    """Units as the row below the header says; {} if it says none."""
    columns = {t: b.column for t in TIMES if (b := binding.column(t))}
    units = {t: UNITS.get(row.get(column, "").strip(), "") for t, column in columns.items()}
    return units if all(units.values()) else {}


# -- what holds for the whole log -----------------------------------------------------------


def _settings(said: Dict[str, str], binding: Binding, title: str) -> dict[str, str]:
    """What the head of the log says; what the mapping says goes before it.

    Raises:
        MalformedInputError: a value that cannot be.
    """
    known = {k: v for k, v in said.items() if k in ("rawlog", "rank", *SETTINGS) and k != "comment"}
    settings = {"unit": "us", **known, **binding.settings}
    for key, allowed in SETTINGS.items():
        if allowed and settings.get(key, allowed[0]) not in allowed:
            raise MalformedInputError(
                title, "head", f"{key} {settings[key]!r} is none of {', '.join(allowed)}"
            )
    if settings.get("rawlog", str(VERSION)) != str(VERSION):
        raise MalformedInputError(
            title, "head", f"version {settings['rawlog']} of the raw event log; known is {VERSION}"
        )
    if not settings.get("rank", "0").isdecimal():
        raise MalformedInputError(title, "head", f"rank {settings['rank']!r} is no whole number")
    return settings


def _units(binding: Binding, settings: Dict[str, str]) -> dict[str, str]:
    found = {t: binding.column(t) for t in TIMES}
    return {t: (b.unit if b else "") or settings["unit"] for t, b in found.items()}
