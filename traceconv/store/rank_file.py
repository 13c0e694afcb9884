"""A rank on disk: its columns, then what describes them.

::

    columns, each at a multiple of 8 bytes
    version, capture, tracks, account, and the places of the columns (:func:`.container.tail`)

A run spills ranks as they are, to files that are mapped, one rank each. A store packs them
(:mod:`.blocks`): a segment of its file has the same parts, with places counted from its start, and
the side tables of the rank besides.

Arguments of a spilled rank stay in the input where it is a plain file that can be mapped again; the
description then names it, with its size and its time of change. Shards and stores, which are copied
elsewhere, contain them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import CollectiveRecords, Group
from traceconv.core import errors
from traceconv.core.builder import Spill
from traceconv.core.codes import Severity
from traceconv.core.columns import BLOB_BITS, OFFSET_MASK, OverlapSums
from traceconv.core.errors import (
    Issue,
    Issues,
    MalformedInputError,
    SourceError,
    TraceconvError,
)
from traceconv.core.job_shape import ParallelGroup
from traceconv.core.model import (
    I32,
    I64,
    Args,
    Capture,
    CounterTable,
    Coverage,
    EventTable,
    FlowTable,
    Hints,
    Mask,
    Present,
    StepTable,
    Strings,
    Table,
    Trace,
    Track,
)
from traceconv.core.side_tables import Columns, SideTable
from traceconv.core.source import RecordedSource, Source
from traceconv.core.version import RANK_FILE as VERSION
from traceconv.io.atomic import replacing
from traceconv.io.streams import MappedFile, mapped_again, open_regular
from traceconv.scratch.memory import ReadMapping
from traceconv.scratch.temporary import ADVICE
from traceconv.store import blocks, container
from traceconv.writers.arguments import fetch

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
    "strings.bytes": "i8",
    "args": "u1",
    "args.address": "i8",
    "args.bytes": "i4",
    "events.low_ns": "i8",
    "events.high_ns": "i8",
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


def save(path: Path, trace: Trace, records: CollectiveRecords, alone: bool) -> None:
    """Write ``trace`` to ``path``, which appears when the file is complete.

    Args:
        records: the collectives of the rank; they are stored beside the trace.
        alone: copy arguments that are in mapped input, too.

    Raises:
        OutputError: it cannot be written.
    """
    with replacing(path, ADVICE) as file:
        out = _Output(file)
        columns = {name: out.put(column) for name, column in _columns(trace, records)}
        columns["args.address"] = out.put(trace.args.address)
        inner = [_put_blob(out, trace.args, i, alone) for i in range(len(trace.args.blobs))]
        out.end({**_described(trace, records), "columns": columns, "blobs": inner})


def save_packed(path: Path, trace: Trace, records: CollectiveRecords, tables: bool = True) -> None:
    """Write ``trace`` to ``path`` as a store has it: compressed, with its side tables.

    Args:
        tables: whether the columns of side tables are written, too.

    Raises:
        OutputError: it cannot be written.
    """
    with replacing(path, ADVICE) as file:
        out = _Output(file, packed=True)
        description = _described(
            trace, records
        )  # before side tables are read, which may add issues
        columns = {name: out.put(column) for name, column in _columns(trace, records)}
        columns["args"] = out.put_bytes(
            b"".join(fetch(trace.args, np.arange(begin, end, dtype=np.int32)))
            for begin in range(0, len(trace.args), _ARGUMENTS)
            for end in (min(begin + _ARGUMENTS, len(trace.args)),)
        )
        begins = np.arange(0, len(trace.events), ROWS)
        for name, extreme, column in (  # earliest start and latest end of each ROWS events
            ("events.low_ns", np.minimum, trace.events.start_ns),
            ("events.high_ns", np.maximum, trace.events.end_ns),
        ):
            bounds = extreme.reduceat(column, begins) if len(begins) else np.empty(0, np.int64)
            columns[name] = out.put(bounds)
        side_tables = []
        for number, table in enumerate(trace.side_tables.values() if tables else ()):
            described, side_columns = _side_table(table, trace.issues)
            side_tables.append(described)
            for position, column in enumerate(side_columns):
                columns |= _put_side_column(out, f"tables.{number}.{position}", column)
        out.end({**description, "columns": columns, "side_tables": side_tables})


ROWS = blocks.BYTES // 8
"""Events whose bounds in time are stored together: those of a block of times."""


class _Output:
    """The columns of one rank as they are written, from where ``file`` is."""

    def __init__(self, file: IO[bytes], packed: bool = False) -> None:
        self._file, self._packed, self._start = file, packed, file.tell()

    def at(self) -> int:
        """The next place."""
        return self._file.tell() - self._start

    def put(self, column: Any) -> list[Any]:
        """Write a column; its place, its length and its type; of a packed one also the sizes of its
        blocks, and whether these are of differences."""
        if self._packed:
            differences, packed = blocks.packed(column)
            return [*self._put_blocks(column.dtype, packed, len(column)), differences]
        self._file.write(b"\0" * (-self.at() % 8))
        location = [self.at(), len(column), column.dtype.str]
        self._file.write(np.ascontiguousarray(column).view(np.uint8).data)
        return location

    def put_bytes(self, pieces: Iterable[bytes]) -> list[Any]:
        """Write bytes that are given in pieces of any size as a column."""
        size, buffered = 0, bytearray()

        def full() -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                size += len(piece)
                buffered.extend(piece)
                full_bytes = len(buffered) // blocks.BYTES * blocks.BYTES
                for begin in range(0, full_bytes, blocks.BYTES):
                    yield blocks.pack(bytes(buffered[begin : begin + blocks.BYTES]))
                del buffered[:full_bytes]
            if buffered:
                yield blocks.pack(bytes(buffered))

        location = self._put_blocks(np.dtype(np.uint8), full(), 0)
        return [location[0], size, *location[2:], False]

    def _put_blocks(self, dtype: np.dtype[Any], packed: Iterable[bytes], rows: int) -> list[Any]:
        offset, sizes = self.at(), []
        for block in packed:
            self._file.write(block)
            sizes.append(len(block))
        return [offset, rows, dtype.str, sizes]

    def write(self, content: Any) -> None:
        """Write bytes as they are."""
        self._file.write(content)

    def end(self, described: dict[str, Any]) -> None:
        """Write the description."""
        self._file.write(container.tail(described))


_ARGUMENTS = 4096
"""Arguments that are copied together."""


def _side_table(table: SideTable, issues: Issues) -> tuple[dict[str, Any], list[Any]]:
    """A side table as JSON values, and its columns; or the error of reading it.

    Args:
        issues: of the trace: some tables count there what reading them finds.
    """
    before = {(issue.code, issue.file, issue.rank): issue.count for issue in issues}
    described: dict[str, Any] = {
        "name": table.name,
        "file": table.file,
        "accounted": table.accounted,
    }
    columns: Columns = {}
    try:
        columns = table.load()
    except TraceconvError as e:
        described["error"] = [type(e).__name__, *e.__reduce__()[1]]
    described["headings"] = list(columns)
    described["issues"] = issue_rows(table.issues)
    added = [
        replace(issue, count=issue.count - before.get((issue.code, issue.file, issue.rank), 0))
        for issue in issues
    ]
    described["trace_issues"] = issue_rows(issue for issue in added if issue.count)
    return described, list(columns.values())


def _put_side_column(out: _Output, name: str, column: Any) -> dict[str, list[Any]]:
    if column.dtype.kind in "if":
        return {name: out.put(column)}
    texts = [text.encode("utf-8", "surrogatepass") for text in column.tolist()]
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    return {name: out.put_bytes(texts), f"{name}.bytes": out.put(sizes)}


def _described(trace: Trace, records: CollectiveRecords) -> dict[str, Any]:
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
                for k, v in msgspec.structs.asdict(records).items()
                if not isinstance(v, np.ndarray)
            },
            "groups": msgspec.to_builtins(records.groups),
        },
    }


def recorded(capture: Capture, number_of: dict[ParallelGroup, int] | None = None) -> dict[str, Any]:
    """A capture as JSON values: all but what only its reader needs.

    Args:
        number_of: groups of ranks are its numbers, new ones the next; None: in full.
    """
    plain = {name: msgspec.to_builtins(getattr(capture, name)) for name in _plain_fields()}
    groups = capture.placement.groups
    if number_of is not None:
        plain["placement"]["groups"] = [
            number_of.setdefault(group, len(number_of)) for group in groups
        ]
    return {
        **plain,
        "source": _recorded_source(capture),
        "parts": [recorded(window, number_of) for window in capture.parts],
    }


@cache
def _plain_fields() -> dict[str, Any]:
    """The fields of a capture that are JSON values, and their types."""
    return {
        name: kind
        for name, kind in get_type_hints(Capture).items()
        if name not in ("source", "parts", "detail")
    }


def _recorded_source(capture: Capture) -> dict[str, Any]:
    """The source of a capture as JSON values: its own files only."""
    source = capture.source
    read = [*capture.files, *(name for files in capture.tables.values() for name in files)]
    names = dict.fromkeys([*read, *capture.known, *(name for name, _ in capture.beside)])
    titles = {name: source.title(name) for name in names}
    return {
        "label": source.label,
        "lone": source.lone,
        "files": {name: source.size(name) if name in read else 0 for name in names},
        "titles": {n: title for n, title in titles.items() if title != f"{source.label}/{n}"},
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


def capture_of(
    record: Mapping[str, Any],
    source: Source | None = None,
    groups: Sequence[ParallelGroup] | None = None,
) -> Capture:
    """The capture that :func:`recorded` described.

    Args:
        source: where its ranks are; None if only its names are known.
        groups: those that it has by position; None if it has them in full.

    Raises:
        IndexError, KeyError, TypeError, ValueError: it is no such thing.
    """
    fields = dict(record)
    if groups is not None:
        fields["placement"] = {**record["placement"], "groups": ()}
    plain = {name: msgspec.convert(fields[name], kind) for name, kind in _plain_fields().items()}
    if groups is not None:
        of_rank = tuple(groups[number] for number in record["placement"]["groups"])
        plain["placement"] = msgspec.structs.replace(plain["placement"], groups=of_rank)
    written = record["source"]
    return Capture(
        source=source
        or RecordedSource(written["label"], written["files"], written["titles"], written["lone"]),
        parts=tuple(capture_of(window, None, groups) for window in record["parts"]),
        **plain,
    )


def _columns(trace: Trace, records: CollectiveRecords) -> Iterator[tuple[str, Any]]:
    """The columns but for those of arguments, and those of collectives."""
    for table in TABLES:
        for name, column in getattr(trace, table).columns().items():
            yield f"{table}.{name}", column
    texts = [text.encode("utf-8", "surrogatepass") for text in trace.strings]
    yield "strings", np.frombuffer(b"".join(texts), np.uint8)
    yield "strings.bytes", np.fromiter(map(len, texts), np.int64, len(texts))
    yield "windows", trace.windows.ravel()
    yield "args.bytes", trace.args.length
    yield "present.graphs", trace.present.graphs
    yield "present.steps", trace.present.steps
    for name, value in msgspec.structs.asdict(records).items():
        if isinstance(value, np.ndarray):
            yield _COLLECTIVES + name, value


def _put_blob(out: _Output, args: Args, number: int, alone: bool) -> list[Any]:
    """Write a buffer of arguments, as far as it is used, or say which file it is."""
    blob = args.blobs[number]
    if not alone and isinstance(blob, MappedFile) and blob.lasts():
        return [blob.path, len(blob), blob.mtime_ns]
    is_in_blob = args.address >> BLOB_BITS == number
    used = bool(is_in_blob.any())
    offset = out.at()
    if used:
        out.write(blob)
    return [offset, len(blob) if used else 0]


class RankFile:
    """A rank on disk. The file is mapped, and columns are read on access.

    Args:
        offset, size: the segment of the file that it is in; None for the rest of the file.

    Raises:
        SourceError, MalformedInputError: also of the methods: the file, or the input that it points
            to, is not what it was.
    """

    def __init__(self, path: Path, offset: int = 0, size: int | None = None) -> None:
        self.path, self.start = path, offset
        try:
            with open_regular(path) as file:
                self.mapped = ReadMapping(file.fileno())
        except (OSError, ValueError) as e:
            raise SourceError(f"{path}: cannot be read: {e}") from e
        end = len(self.mapped) if size is None else offset + size
        try:
            self.described, self.end = container.described(self.mapped, offset, end)
            version = self.described["version"]
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            raise self._broken(f"its description cannot be read: {e}") from e
        if version != VERSION:
            raise self._broken(
                f"is of version {version}, not {VERSION}; use one traceconv for both"
            )

    def _broken(self, why: str) -> MalformedInputError:
        return MalformedInputError(str(self.path), "", why)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Raise MalformedInputError where ``what`` is not as it was written."""
        try:
            yield
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as e:
            raise self._broken(f"its {what} cannot be read: {e}") from e

    def account(self) -> dict[str, Any]:
        """The arguments of :class:`traceconv.run.spill.RankAccount`."""
        with self._reading("description"):
            return self._account()

    def _account(self) -> dict[str, Any]:
        described, tracks = self.described, self._tracks()
        steps = {name: self._column(f"steps.{name}").copy() for name in StepTable.COLUMNS}
        return {
            "capture": capture_of(described["capture"]),
            "tracks": tuple(tracks[i] for i in described["used"]),
            "counts": described["counts"],
            "span": described["span"] and tuple(described["span"]),
            "hints": msgspec.convert(described["hints"], Hints, str_keys=True),
            "present": Present(
                self._column("present.graphs").copy(),
                self._column("present.steps").copy(),
                int(described["iterations"]),
            ),
            "steps": StepTable(**steps),  # copies outlast the mapping of the file
            "coverage": msgspec.convert(described["coverage"], Coverage, str_keys=True),
            "overlap": msgspec.convert(described["overlap"], OverlapSums | None),
            "tables": tuple(map(str, described["tables"])),
            "notes": described["notes"],
            "windows": self._column("windows").reshape(-1, 2).copy(),
            "issues": issues_of(described["issues"]),
            "ledger": {(stage, kind): rows for stage, kind, rows in described["ledger"]},
        }

    def _tracks(self) -> tuple[Track, ...]:
        return msgspec.convert(self.described["tracks"], tuple[Track, ...])

    def collective_records(self) -> CollectiveRecords:
        """The collectives of the rank, copied into memory."""
        with self._reading("collectives"):
            plain = self.described["collectives"]
            fields: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in plain.items()
            }
            fields["groups"] = msgspec.convert(plain["groups"], tuple[Group, ...])
            for name in self.described["columns"]:
                if name.startswith(_COLLECTIVES):
                    fields[name.removeprefix(_COLLECTIVES)] = self._column(name).copy()
            return CollectiveRecords(**fields)

    def load(self, args: bool = True) -> tuple[Trace, tuple[mmap.mmap, ...]]:
        """The trace, and the mappings whose pages it uses.

        Args:
            args: False leaves packed arguments empty.
        """
        with self._reading("columns"):
            trace = self._trace(args=args)
        inputs = (blob for blob in trace.args.blobs if isinstance(blob, mmap.mmap))
        return trace, (self.mapped, *inputs)

    def block_bounds(self) -> tuple[I64, I64] | None:
        """Earliest start and latest end, ns, of each :data:`ROWS` events; None if they are not
        packed."""
        with self._reading("columns"):
            if "events.low_ns" not in self.described["columns"]:
                return None
            return self._column("events.low_ns"), self._column("events.high_ns")

    def load_blocks(self, needed: Mask) -> Trace:
        """The trace with some of its packed events, the flows between these, and all samples.

        Args:
            needed: per :data:`ROWS` events, whether they are loaded. The others are counted as left
                out by ``select-time``, and nothing of them is read.
        """
        with self._reading("columns"):
            row_count = int(self.described["columns"]["events.start_ns"][1])
            if len(needed) != -(-row_count // ROWS):
                raise ValueError("bounds of blocks do not fit its rows")
            rows = np.flatnonzero(np.repeat(needed, ROWS)[:row_count]).astype(np.int32)
            trace = self._trace(rows)
            ledger = dict(trace.ledger)
            for kind, count in trace.counts().items():
                if left_out := int(self.described["counts"][kind]) - count:
                    ledger["select-time", kind] = -left_out
            return replace(trace, ledger=ledger)

    def _trace(self, rows: I32 | None = None, args: bool = True) -> Trace:
        """The trace; only some rows of events, ascending, if ``rows`` names them."""
        tables: dict[str, Any] = {
            table: cls(**{name: self._column(f"{table}.{name}") for name in cls.COLUMNS})
            for table, cls in TABLES.items()
            if table != "steps" and (rows is None or table != "events")
        }
        if rows is not None:
            tables["events"] = EventTable(
                **{name: self._some(f"events.{name}", rows) for name in EventTable.COLUMNS}
            )
            tables["flows"] = _flows_between(tables["flows"], rows)
        facts = self._account()
        needed = None if rows is None else tables["events"].args
        trace = Trace(
            tracks=self._tracks(),
            strings=Strings(self._texts("strings")),
            args=self._args(needed if args else np.empty(0, np.int32)),
            side_tables=self._side_tables(facts["issues"]),
            **{name: value for name, value in facts.items() if name not in _OF_ACCOUNT},
            **tables,
        )
        _check(trace)
        return trace

    def _column(self, name: str) -> Any:
        """A column; a view of the file if it is not packed."""
        offset, rows, kind, *packed = self.described["columns"][name]
        dtype = np.dtype(kind)
        if dtype.kind not in "iuf" or dtype != _TYPES.get(name, dtype):
            raise ValueError(f"{name} is of type {kind}")
        if packed:
            sizes, differences = packed
            data, sizes = self._blocks(offset, rows, dtype, sizes)
            return blocks.unpacked(data, sizes, dtype, rows, differences)
        return np.frombuffer(self._within(offset, rows * dtype.itemsize), dtype)

    def _some(self, name: str, rows: I32) -> Any:
        """Some rows of a packed column, ascending: only the blocks with them are read."""
        offset, row_count, kind, sizes, differences = self.described["columns"][name]
        dtype = np.dtype(kind)
        if dtype != _TYPES[name]:
            raise ValueError(f"{name} is of type {kind}")
        data, sizes = self._blocks(offset, row_count, dtype, sizes)
        ends, per_block = np.cumsum([0, *sizes]), blocks.rows_of(dtype)
        values = np.empty(len(rows), dtype)
        of_block = rows // per_block
        for number in np.unique(of_block).tolist():
            begin, after = np.searchsorted(of_block, [number, number + 1])
            block = data[ends[number] : ends[number + 1]]
            content = blocks.unpacked(block, [len(block)], dtype, row_count, differences, number)
            values[begin:after] = content[rows[begin:after] - number * per_block]
        return values

    def _within(self, offset: int, size: int) -> memoryview:
        """Bytes of the segment."""
        begin = self.start + offset
        if not 0 <= offset <= begin + size <= self.end or size < 0:
            raise ValueError("a column is beyond the file")
        return memoryview(self.mapped)[begin : begin + size]

    def _blocks(
        self, offset: int, rows: int, dtype: np.dtype[Any], sizes: list[int]
    ) -> tuple[memoryview, list[int]]:
        """The blocks of a column, end to end, and the bytes of each."""
        if len(sizes) != -(-rows // blocks.rows_of(dtype)) or min(sizes, default=1) < 1:
            raise ValueError("the blocks of a column do not fit its rows")
        return self._within(offset, sum(sizes)), sizes

    def _texts(self, name: str) -> list[str]:
        """The texts in a column of bytes."""
        text, sizes = self._column(name).tobytes(), self._column(f"{name}.bytes")
        if len(sizes) and sizes.min() < 0:
            raise ValueError(f"{name} has texts of negative length")
        ends = np.cumsum(sizes).tolist()
        if len(text) != (ends or [0])[-1]:
            raise ValueError(f"{name} has texts of another length")
        return [text[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise([0, *ends])]

    def _args(self, used: I32 | None = None) -> Args:
        """The arguments, in the buffers that they were stored in.

        Args:
            used: ids of arguments that are needed; the others are empty.
        """
        length = self._column("args.bytes")
        if "blobs" in self.described:
            inner = tuple(
                mapped_again(*place) if isinstance(place[0], str) else self._within(*place)
                for place in self.described["blobs"]
            )
            return Args(inner, self._column("args.address"), length)
        address = np.cumsum(length, dtype=np.int64) - length
        offset, size, kind, sizes, _ = self.described["columns"]["args"]
        data, sizes = self._blocks(offset, size, np.dtype(kind), sizes)
        block_sizes = np.full(len(sizes), blocks.BYTES)
        block_sizes[-1:] = size - (len(sizes) - 1) * blocks.BYTES
        needed = np.ones(len(sizes), bool)
        if used is not None:
            ids = np.unique(used[used >= 0])
            needed, address, length = _blocks_of(ids, address, length, block_sizes)
        content, ends = Spill(), np.cumsum([0, *sizes])
        for number in np.flatnonzero(needed).tolist():
            stored = data[ends[number] : ends[number + 1]]
            content.append(blocks.unpack(stored, int(block_sizes[number])))
        return Args((content.close(),), address, length)

    def _side_tables(self, of_trace: Issues) -> dict[str, SideTable]:
        """Its side tables. They are read when they are used; that may add issues to the trace."""
        tables = {}
        for number, described in enumerate(self.described.get("side_tables", ())):
            issues = Issues()
            load = partial(self._side_columns, number, described, issues, of_trace)
            table = SideTable(str(described["name"]), str(described["file"]), load, issues)
            table.accounted = described["accounted"] is True
            tables[table.name] = table
        return tables

    def _side_columns(
        self, number: int, described: dict[str, Any], issues: Issues, of_trace: Issues
    ) -> Columns:
        try:
            of_trace.extend(issues_of(described["trace_issues"]))
            if not issues:  # as when it is read for the first time
                issues.extend(issues_of(described["issues"]))
            if "error" in described:
                raise _error(*described["error"])
            columns = {
                str(heading): self._side_column(f"tables.{number}.{position}")
                for position, heading in enumerate(described["headings"])
            }
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise self._broken(f"its side table does not fit: {e}") from e
        if len({len(column) for column in columns.values()}) > 1:
            raise self._broken("columns of a side table differ in length")
        return columns

    def _side_column(self, name: str) -> Any:
        if f"{name}.bytes" not in self.described["columns"]:
            return self._column(name)
        texts = self._texts(name)
        column = np.empty(len(texts), object)
        column[:] = texts
        return column


def _blocks_of(
    ids: I32, address: I64, length: I32, sizes: NDArray[np.int64]
) -> tuple[Mask, I64, I32]:
    """The blocks that hold some arguments; and where arguments are if only these blocks are there,
    end to end: the others are empty.

    Args:
        sizes: bytes of each block.
    """
    first_block, last_block = (
        address[ids] // blocks.BYTES,
        (address[ids] + length[ids] - 1) // blocks.BYTES,
    )
    change = np.zeros(len(sizes) + 1, np.int64)
    np.add.at(change, first_block, 1)
    np.add.at(change, np.maximum(last_block, first_block) + 1, -1)
    needed = np.cumsum(change)[:-1] > 0
    begins = np.cumsum(sizes * needed) - sizes * needed
    moved, new_length = np.zeros_like(address), np.zeros_like(length)
    moved[ids] = begins[first_block] + address[ids] % blocks.BYTES
    new_length[ids] = length[ids]
    return needed, moved, new_length


def _error(kind: str, *arguments: Any) -> TraceconvError:
    """The error that reading a side table ended with."""
    error_class = getattr(errors, kind)
    if not issubclass(error_class, TraceconvError):
        raise ValueError(f"{kind} is not an error of traceconv")
    error: TraceconvError = error_class(*arguments)
    return error


def _flows_between(flows: FlowTable, rows: I32) -> FlowTable:
    """The flows from and to ``rows``, with the positions in ``rows`` as their ends."""
    if not len(rows):
        return FlowTable.empty()
    ends = [np.minimum(np.searchsorted(rows, end), len(rows) - 1) for end in (flows.src, flows.dst)]
    present = (rows[ends[0]] == flows.src) & (rows[ends[1]] == flows.dst)
    return FlowTable(
        src=ends[0][present].astype(np.int32),
        dst=ends[1][present].astype(np.int32),
        name=flows.name[present],
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
