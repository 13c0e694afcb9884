"""The file of a spilled rank: its columns as they are, then what describes them, as JSON.

::

    columns, each at a multiple of 8 bytes
    JSON: version, capture, tracks, account, and the places of the columns
    8 bytes: length of the JSON        8 bytes: MAGIC

Arguments stay in the input where it is a plain file that can be mapped again; the JSON then names
it, with its size and its time of change. A shard, which is copied elsewhere, contains them.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from traceconv.alignment.collective_records import CollectiveRecords, Group
from traceconv.core.clock import Anchor
from traceconv.core.codes import Severity
from traceconv.core.columns import BLOB_BITS, OFFSET_MASK, OverlapSums
from traceconv.core.errors import Issue, Issues, MalformedInputError, SourceError
from traceconv.core.job_shape import Placement
from traceconv.core.model import (
    Args,
    Capture,
    CounterTable,
    Coverage,
    EventTable,
    FlowTable,
    Hints,
    Present,
    StepTable,
    Strings,
    Table,
    Trace,
    Track,
)
from traceconv.core.source import RecordedSource
from traceconv.core.version import RANK_FILE as VERSION
from traceconv.io.atomic import replacing
from traceconv.io.streams import MappedFile, mapped_again
from traceconv.scratch.memory import ReadMapping
from traceconv.scratch.temporary import ADVICE

MAGIC = b"tcspill\x00"

_OF_ACCOUNT = ("tracks", "counts", "span", "tables")
"""What an account says of a trace besides its fields."""

TABLES: dict[str, type[Table]] = {
    "events": EventTable,
    "counters": CounterTable,
    "flows": FlowTable,
    "steps": StepTable,
}

_OTHERS = {
    "windows": "i8",
    "strings": "u1",
    "string_bytes": "i8",
    "arg_address": "i8",
    "arg_bytes": "i4",
    "present.graphs": "i4",
    "present.steps": "i4",
}
_COLLECTIVES = "collectives."
"""Prefix of the names of columns with collectives, which are not part of the trace."""

_TYPES = {
    **{f"{t}.{name}": dtype for t, cls in TABLES.items() for name, dtype in cls.COLUMNS.items()},
    **_OTHERS,
}
"""Every column of the file, and its type."""


def save(path: Path, trace: Trace, known: CollectiveRecords, alone: bool) -> None:
    """Write ``trace`` to ``path``, which appears when the file is complete.

    Args:
        known: the collectives of the rank; they are stored beside the trace.
        alone: copy arguments that are in mapped input, too.

    Raises:
        OutputError: it cannot be written.
    """
    with replacing(path, ADVICE) as file:
        columns = (*_columns(trace), *_collective_columns(known))
        described = _described(trace, known) | {
            "columns": {name: _put(file, column) for name, column in columns},
            "blobs": [_put_blob(file, trace.args, i, alone) for i in range(len(trace.args.blobs))],
        }
        text = json.dumps(described).encode()
        file.write(text + len(text).to_bytes(8, "little") + MAGIC)


def _described(trace: Trace, known: CollectiveRecords) -> dict[str, Any]:
    return {
        "version": VERSION,
        "capture": recorded(trace.capture),
        "tracks": msgspec.to_builtins(trace.tracks),
        "used": np.flatnonzero(trace.used).tolist(),
        "counts": trace.counts(),
        "span": trace.span(),
        "hints": msgspec.to_builtins(trace.hints, str_keys=True),
        "iterations": trace.present.iterations,
        "coverage": msgspec.to_builtins(trace.coverage, str_keys=True),
        "overlap": msgspec.to_builtins(trace.overlap),
        "tables": list(trace.side_tables),
        "notes": trace.notes,
        "issues": issue_rows(trace.issues),
        "ledger": [[*key, rows] for key, rows in trace.ledger.items()],
        "collectives": {
            **{
                k: v
                for k, v in msgspec.structs.asdict(known).items()
                if not isinstance(v, np.ndarray)
            },
            "groups": msgspec.to_builtins(known.groups),
        },
    }


def recorded(capture: Capture) -> dict[str, Any]:
    """A capture as JSON values: all but what only its reader needs."""
    clock = capture.clock
    return {
        "reader": capture.reader,
        "source": capture.source.label,
        "files": {name: capture.source.size(name) for name in capture.files},
        "clock": None if clock is None else msgspec.structs.asdict(clock),
        **{name: getattr(capture, name) for name in _PLAIN},
        "graphs": list(capture.graphs),
        "placement": msgspec.to_builtins(capture.placement),
    }


def issue_rows(issues: Iterable[Issue]) -> list[list[Any]]:
    """Issues as JSON values."""
    return [[i.code, i.file, i.rank, i.count, list(i.places)] for i in issues]


def issues_of(rows: Iterable[Sequence[Any]]) -> Issues:
    """The issues that :func:`issue_rows` wrote.

    Raises:
        KeyError, ValueError: they are no such thing.
    """
    issues = Issues()
    for code, file, rank, count, places in rows:
        issues.add(code, count=0)  # refuses codes there are not
        issues.extend([Issue(code, Severity.INFO, file, count, tuple(places), rank)])
    return issues


_PLAIN = ("rank", "rank_from", "host", "device", "pid", "world_size", "label", "name")


def capture_of(record: Mapping[str, Any]) -> Capture:
    """The capture that :func:`recorded` described."""
    clock = record["clock"]
    return Capture(
        reader=record["reader"],
        source=RecordedSource(record["source"], record["files"]),
        files=tuple(record["files"]),
        clock=None if clock is None else msgspec.convert(clock, Anchor),
        graphs=tuple(record["graphs"]),
        placement=msgspec.convert(record["placement"], Placement),
        **{name: record[name] for name in _PLAIN},
    )


def _columns(trace: Trace) -> Iterator[tuple[str, Any]]:
    for table in TABLES:
        for name, column in getattr(trace, table).columns().items():
            yield f"{table}.{name}", column
    texts = [text.encode("utf-8", "surrogatepass") for text in trace.strings]
    yield "strings", np.frombuffer(b"".join(texts), np.uint8)
    yield "string_bytes", np.fromiter(map(len, texts), np.int64, len(texts))
    yield "windows", trace.windows.ravel()
    yield "arg_address", trace.args.address
    yield "arg_bytes", trace.args.length
    yield "present.graphs", trace.present.graphs
    yield "present.steps", trace.present.steps


def _collective_columns(known: CollectiveRecords) -> Iterator[tuple[str, Any]]:
    for name, value in msgspec.structs.asdict(known).items():
        if isinstance(value, np.ndarray):
            yield _COLLECTIVES + name, value


def _put(file: IO[bytes], column: Any) -> list[Any]:
    """Write a column; its place, its length and its type."""
    file.write(b"\0" * (-file.tell() % 8))
    at = file.tell()
    file.write(np.ascontiguousarray(column).view(np.uint8).data)
    return [at, len(column), column.dtype.str]


def _put_blob(file: IO[bytes], args: Args, number: int, alone: bool) -> list[Any]:
    """Write a buffer of arguments, as far as it is used, or say which file it is."""
    blob = args.blobs[number]
    if not alone and isinstance(blob, MappedFile) and blob.lasts():
        return [blob.path, len(blob), blob.mtime_ns]
    mine = args.address >> BLOB_BITS == number
    used = bool(mine.any())
    at = file.tell()
    if used:
        file.write(blob)
    return [at, len(blob) if used else 0]


class _Opened:
    """A file of a spilled rank that has been mapped, and its description."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.mapped = ReadMapping(file.fileno())
        except (OSError, ValueError) as e:
            raise SourceError(f"{path}: the file of a spilled rank cannot be read: {e}") from e
        end = len(self.mapped) - 16
        if end < 0 or self.mapped[end + 8 :] != MAGIC:
            raise self.broken("not a complete file of a spilled rank")
        size = int.from_bytes(self.mapped[end : end + 8], "little")
        try:
            self.described: dict[str, Any] = json.loads(self.mapped[max(end - size, 0) : end])
            version = self.described["version"]
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            raise self.broken(f"its description cannot be read: {e}") from e
        if version != VERSION:
            raise self.broken(f"is of version {version}, not {VERSION}; use one traceconv for both")

    def broken(self, why: str) -> MalformedInputError:
        return MalformedInputError(str(self.path), "", why)

    def column(self, name: str) -> Any:
        at, rows, kind = self.described["columns"][name]
        dtype = np.dtype(kind)
        if dtype.kind not in "iuf" or dtype != _TYPES.get(name, dtype):
            raise ValueError(f"{name} is of type {kind}")
        return np.frombuffer(self.mapped, dtype, rows, at) if rows else np.empty(0, dtype)

    def blob(self, place: list[Any]) -> Any:
        if isinstance(place[0], str):
            return mapped_again(*place)
        at, size = place
        return memoryview(self.mapped)[at : at + size]


def account(path: Path) -> dict[str, Any]:
    """The arguments of :class:`traceconv.run.spill.RankAccount`, from the file of a rank.

    Raises:
        SourceError, MalformedInputError: the file is not what it was.
    """
    opened = _Opened(path)
    try:
        return _account(opened)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as e:
        raise opened.broken(f"its description does not fit: {e}") from e


def _account(opened: _Opened) -> dict[str, Any]:
    described, tracks = opened.described, _tracks(opened)
    return {
        "capture": capture_of(described["capture"]),
        "tracks": tuple(tracks[i] for i in described["used"]),
        "counts": described["counts"],
        "span": described["span"] and tuple(described["span"]),
        "hints": msgspec.convert(described["hints"], Hints, str_keys=True),
        "present": Present(
            opened.column("present.graphs").copy(),
            opened.column("present.steps").copy(),
            int(described["iterations"]),
        ),
        "steps": _table(opened, "steps"),
        "coverage": msgspec.convert(described["coverage"], Coverage, str_keys=True),
        "overlap": msgspec.convert(described["overlap"], OverlapSums | None),
        "tables": tuple(map(str, described["tables"])),
        "notes": described["notes"],
        "windows": opened.column("windows").reshape(-1, 2).copy(),
        "issues": issues_of(described["issues"]),
        "ledger": {(stage, kind): rows for stage, kind, rows in described["ledger"]},
    }


def _tracks(opened: _Opened) -> tuple[Track, ...]:
    return msgspec.convert(opened.described["tracks"], tuple[Track, ...])


def _table(opened: _Opened, name: str) -> Any:
    """A small table, copied to memory: it outlasts the mapping of the file."""
    cls = TABLES[name]
    return cls(**{column: opened.column(f"{name}.{column}").copy() for column in cls.COLUMNS})


def collective_records(path: Path) -> CollectiveRecords:
    """The collectives of the rank in a file, copied into memory.

    Raises:
        SourceError, MalformedInputError: the file is not what it was.
    """
    opened = _Opened(path)
    try:
        plain = opened.described["collectives"]
        known: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        known["groups"] = msgspec.convert(plain["groups"], tuple[Group, ...])
        for name in opened.described["columns"]:
            if name.startswith(_COLLECTIVES):
                known[name.removeprefix(_COLLECTIVES)] = opened.column(name).copy()
        return CollectiveRecords(**known)
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise opened.broken(f"its collectives do not fit: {e}") from e


def load(path: Path) -> tuple[Trace, tuple[mmap.mmap, ...]]:
    """The trace of a spilled rank, and the mappings whose pages it uses.

    Raises:
        SourceError, MalformedInputError: the file, or the input it points to, is not what it was.
    """
    opened = _Opened(path)
    try:
        trace = _trace(opened)
        _check(trace)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as e:
        raise opened.broken(f"its columns do not fit: {e}") from e
    inputs = (blob for blob in trace.args.blobs if isinstance(blob, mmap.mmap))
    return trace, (opened.mapped, *inputs)


def _trace(opened: _Opened) -> Trace:
    tables: dict[str, Any] = {
        table: cls(**{name: opened.column(f"{table}.{name}") for name in cls.COLUMNS})
        for table, cls in TABLES.items()
        if table != "steps"
    }
    blobs = tuple(map(opened.blob, opened.described["blobs"]))
    address, length = opened.column("arg_address"), opened.column("arg_bytes")
    known = _account(opened)
    text, ends = opened.column("strings").tobytes(), np.cumsum(opened.column("string_bytes"))
    spans = pairwise([0, *ends.tolist()])
    return Trace(
        tracks=_tracks(opened),
        strings=Strings(text[a:b].decode("utf-8", "surrogatepass") for a, b in spans),
        args=Args(blobs, address, length),
        **{name: value for name, value in known.items() if name not in _OF_ACCOUNT},
        **tables,
    )


_REFERENCES = (
    ("events", "track", "tracks", 0),
    ("events", "name", "strings", 0),
    ("events", "args", "args", -1),
    ("counters", "track", "tracks", 0),
    ("flows", "src", "events", 0),
    ("flows", "dst", "events", 0),
    ("flows", "name", "strings", 0),
)
"""(table, column, what its numbers count, the least of them)."""


def _check(trace: Trace) -> None:
    """Raise ValueError if a number points beyond what it counts."""
    for table, name, counted, least in _REFERENCES:
        column = getattr(getattr(trace, table), name)
        if len(column) and not least <= column.min() <= column.max() < len(getattr(trace, counted)):
            raise ValueError(f"{table}.{name} points beyond {counted}")
    args = trace.args
    if len(args):
        sizes = np.array([len(blob) for blob in args.blobs], np.int64)
        room = sizes[args.address >> BLOB_BITS] - (args.address & OFFSET_MASK) - args.length
        if args.address.min() < 0 or args.length.min() < 0 or room.min() < 0:
            raise ValueError("arguments are beyond their buffers")
