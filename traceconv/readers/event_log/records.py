"""Records of a log as columns of text: rows of tables (CSV after RFC 4180), JSON lines, and lines
of text that a pattern splits.

Cells may be quoted and may contain line ends. Numbers stay as they are written.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import msgspec

from traceconv.core.json_text import NOT_JSON
from traceconv.core.patterns import lazy_regex
from traceconv.readers.event_log.mapping import TIMES, Binding, Bound
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.lines import MAX_LINE_BYTES, OBJECT, Lines, text
from traceconv.readers.shared.numbers import ABSENT, UNREADABLE, whole

BATCH_RECORDS = 32768
"""Records that become columns at a time."""

MAX_ROW_LINES = 1000
"""A quoted cell of more lines was never closed."""

_JSON_NUMBER = lazy_regex(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_MAX_NUMBER = 40
"""Longer numbers stay text in arguments."""

_NULL = msgspec.Raw(b"null")


class Layout(msgspec.Struct, frozen=True):
    """The layout of one log, and the selection of its records.

    Attributes:
        log:       name of the mapping that fits.
        binding:   where the fields are.
        units:     of "ts", "dur" and "end".
        settings:  from the head of the log and the mapping: clock, rank, host.
        columns:   header of a table, groups of a pattern; () for JSON lines.
        delimiter: of a table; "" for JSON lines.
        body:      number of the last line of the head; records follow.
        by_rank:   only records of ``rank`` are taken. Damage was counted while the ranks were
            collected, so it is not counted again per rank.
        otherwise: the rank of records that name none.
        pattern:   of lines of text; None for other logs.
    """

    log: str
    binding: Binding
    units: Mapping[str, str]
    settings: Mapping[str, str] = {}
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    body: int = 0
    by_rank: bool = False
    rank: int | None = None
    otherwise: int | None = None
    pattern: re.Pattern[str] | None = None

    @property
    def comment(self) -> str:
        """Prefix of lines that hold no record."""
        return self.settings.get("comment", "#")


class Batch(msgspec.Struct):
    """Some records as columns of text.

    Attributes:
        lines:   line number of each record.
        columns: target -> text per record, "" for none; targets that no record has are absent.
        args:    JSON object per record, b"" for none.
        broken_args: line numbers of arguments that are not JSON; these are kept as text.
    """

    lines: list[int]
    columns: dict[str, Sequence[str]]
    args: list[bytes]
    broken_args: list[int] = []

    def __len__(self) -> int:
        return len(self.lines)


def batches(lines: Lines, layout: Layout) -> Iterator[Batch]:
    """The records of a log; those of the selected rank only, if the layout selects one."""
    records, ours = _records(lines, layout), dict[str, bool]()
    rank_text, where = _rank_text(layout), layout.binding.column("rank")

    def is_ours(record: Any) -> bool:
        text = rank_text(record)
        if text not in ours:
            rank = rank_of(text, where)
            record_rank = layout.otherwise if rank == ABSENT else rank
            ours[text] = rank != UNREADABLE and record_rank == layout.rank
        return ours[text]

    if layout.by_rank:
        records = ((number, record) for number, record in records if is_ours(record))
    while chunk := list(islice(records, BATCH_RECORDS)):
        numbers, contents = [number for number, _ in chunk], [record for _, record in chunk]
        source = _Cells(layout, numbers, contents) if layout.columns else _Fields(contents)
        yield _batch(numbers, source, layout.binding)


def rank_texts(lines: Lines, layout: Layout) -> Iterator[tuple[int, str]]:
    """Line number and rank of every record, as it is written."""
    rank_text = _rank_text(layout)
    return ((number, rank_text(record)) for number, record in _records(lines, layout))


def rank_of(text: str, rank: Bound | None) -> int:
    """The rank in a cell, or ABSENT or UNREADABLE."""
    return int(whole(picked([text], rank))[0]) if rank else ABSENT


def _rank_text(layout: Layout) -> Callable[[Any], str]:
    rank = layout.binding.column("rank")
    if rank is None:
        return lambda record: ""
    if layout.columns:
        return itemgetter(layout.columns.index(rank.column))
    return lambda record: text(record.get(rank.column, _NULL))


# -- records ---------------------------------------------------------------------------------


def _records(lines: Lines, layout: Layout) -> Iterator[tuple[int, Any]]:
    """Line number and cells of every record (JSON lines: its fields); damage is reported."""
    if layout.pattern is not None:
        return _matched_lines(lines, layout.pattern)
    return _table_rows(lines, layout) if layout.columns else _objects(lines, layout)


def _objects(lines: Lines, layout: Layout) -> Iterator[tuple[int, dict[str, msgspec.Raw]]]:
    for number, line in lines.numbered():
        if number > layout.body and not line.startswith(layout.comment):
            try:
                yield number, OBJECT.decode(line)
            except NOT_JSON as e:
                lines.damaged(number, e)


def _matched_lines(lines: Lines, pattern: re.Pattern[str]) -> Iterator[tuple[int, list[str]]]:
    """The named groups of every line; lines that do not match are counted."""
    groups = [number - 1 for number in pattern.groupindex.values()]
    for number, line in lines.numbered():
        match = pattern.search(line)
        if not match:
            lines.report("line-unmatched", f"line {number}: {line.strip()[:60]!r}")
            continue
        values = match.groups("")
        yield number, [values[group] for group in groups]


def _table_rows(lines: Lines, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Every row after the header, as wide as it, with the number of its first line."""
    width = len(layout.columns)
    for number, row in _WideRows(lines, layout):
        if number == lines.unended and len(row) >= width:
            lines.report("unended-line", f"line {number}")
        if len(row) == width:
            yield number, row
        elif len(row) > width and not any(cell.strip() for cell in row[width:]):
            yield number, row[:width]
        else:
            short = len(row) < width and number == lines.unended
            why = f"line {number}: {len(row)} cells where the header has {width}"
            lines.report("truncated" if short else "malformed-record", why)


def cells(line: str, delimiter: str) -> list[str]:
    """One line split at a delimiter; [] if its quotes do not match."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


class _WideRows:
    """Rows of any width. A row that cannot be parsed costs its first line only."""

    def __init__(self, lines: Lines, layout: Layout) -> None:
        self._lines = lines
        self._delimiter, self._comment = layout.delimiter, layout.comment
        self._back: deque[tuple[int, str]] = deque()
        numbered = chain.from_iterable(
            enumerate(b, first_number) for first_number, b in lines.blocks()
        )
        self._fresh = islice(numbered, layout.body, None)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        while numbered := self._take():
            number, line = numbered
            if not line or line.isspace() or line.startswith(self._comment):
                continue
            if '"' not in line:
                yield number, line.split(self._delimiter)
            elif row := self._quoted(number, line):
                yield number, row

    def _take(self) -> tuple[int, str] | None:
        return self._back.popleft() if self._back else next(self._fresh, None)

    def _quoted(self, number: int, line: str) -> list[str]:
        """The row that begins with ``line``; [] if it has no end."""
        row_lines = [(number, line)]
        size, open_ = len(line), line.count('"') % 2
        while open_ and len(row_lines) < MAX_ROW_LINES and size < MAX_LINE_BYTES:
            next_line = self._take()
            if next_line is None:
                break
            row_lines.append(next_line)
            size += len(next_line[1])
            open_ ^= next_line[1].count('"') % 2
        texts = [text + "\n" for _, text in row_lines]
        reader, row = csv.reader(texts, delimiter=self._delimiter, strict=True), list[str]()
        limit = csv.field_size_limit(max(size, csv.field_size_limit()))
        try:
            row = next(reader)
        except csv.Error as e:
            cut = number == self._lines.unended
            self._lines.report("truncated" if cut else "malformed-record", f"line {number}: {e}")
        finally:
            csv.field_size_limit(limit)
        if len(row_lines) > 1:
            self._back.extendleft(reversed(row_lines[reader.line_num if row else 1 :]))
        return row


# -- columns ---------------------------------------------------------------------------------


class _Cells:
    """Rows of a table as columns; arguments are numbers where they look like numbers."""

    def __init__(self, layout: Layout, numbers: list[int], rows: list[list[str]]) -> None:
        self.broken: list[int] = []
        self._numbers = numbers
        self._columns = dict(zip(layout.columns, zip(*rows, strict=True), strict=True))
        self._comma = layout.delimiter == ";"  # then a comma may be a decimal point
        self.present = layout.columns

    def texts(self, binding: Bound) -> Sequence[str]:
        texts = picked(self._columns[binding.column], binding)
        if self._comma and binding.target in (*TIMES, "value"):
            return [text.replace(",", ".") for text in texts]
        return texts

    def members(self, key: str, binding: Bound) -> list[bytes]:
        return members(key, picked(self._columns[binding.column], binding))

    def args(self, binding: Bound) -> list[bytes]:
        """The members of arguments written as JSON; other text is kept under "args"."""
        arguments = []
        for cell, number in zip(self.texts(binding), self._numbers, strict=True):
            try:
                arguments.append(_inner(cell.encode()) if cell else b"")
            except NOT_JSON:
                self.broken.append(number)
                arguments += members("args", [cell])
        return arguments

    def rest(self, used: set[str]) -> list[list[bytes]]:
        names = [name for name in self.present if name not in used]
        return [members(name.removeprefix("args."), self._columns[name]) for name in names]


class _Fields:
    """Records of JSON lines as columns; arguments keep their JSON."""

    def __init__(self, records: list[dict[str, msgspec.Raw]]) -> None:
        self.broken: list[int] = []
        self._records_in_batch = records
        self.present = dict.fromkeys(chain.from_iterable(records))

    def _raws(self, binding: Bound) -> list[bytes]:
        return [bytes(record.get(binding.column, _NULL)) for record in self._records_in_batch]

    def texts(self, binding: Bound) -> Sequence[str]:
        raws = self._raws(binding)
        joined = b"\n".join(raws)  # a record is one line, so no value contains a line end
        if b'"' not in joined and b"null" not in joined:
            return picked(joined.decode().split("\n"), binding)
        decoded = {raw: text(raw) for raw in set(raws)}
        return picked([decoded[raw] for raw in raws], binding)

    def members(self, key: str, binding: Bound) -> list[bytes]:
        if binding.regex is not None:
            return members(key, self.texts(binding))
        head = quoted(key) + b":"
        return [b"" if raw == b"null" else head + raw for raw in self._raws(binding)]

    def args(self, binding: Bound) -> list[bytes]:
        """The members of argument objects; any other value is kept under "args"."""
        return [
            raw[1:-1].strip() if raw[:1] == b"{" else b"" if raw == b"null" else b'"args":' + raw
            for raw in self._raws(binding)
        ]

    def rest(self, used: set[str]) -> list[list[bytes]]:
        heads = {key: quoted(key) + b":" for key in self.present if key not in used}
        if not heads:
            return []
        return [
            [
                b",".join([heads[k] + bytes(raw) for k, raw in record.items() if k in heads])
                for record in self._records_in_batch
            ]
        ]


def _batch(numbers: list[int], source: _Cells | _Fields, binding: Binding) -> Batch:
    columns: dict[str, Sequence[str]] = {}
    arguments: list[list[bytes]] = []
    trailing: list[list[bytes]] = []
    for bound_column in binding.found:
        if bound_column.column not in source.present:
            continue
        key = bound_column.target.removeprefix("args.")
        if key == "args":
            (trailing if isinstance(source, _Cells) else arguments).append(
                source.args(bound_column)
            )
        elif key == "bytes" or key != bound_column.target:
            arguments.append(source.members(key, bound_column))
        else:
            columns[key] = source.texts(bound_column)
    for target, constant in binding.constants.items():
        if target.startswith("args."):
            arguments.append(members(target.removeprefix("args."), [constant]) * len(numbers))
        else:
            columns[target] = [constant] * len(numbers)
    arguments += (
        source.rest({bound_column.column for bound_column in binding.found} | binding.ignored)
        + trailing
    )
    joined = [b",".join(filter(None, row)) for row in zip(*arguments, strict=True)]
    args = [b"{" + row + b"}" if row else b"" for row in joined or [b""] * len(numbers)]
    return Batch(numbers, columns, args, source.broken)


def picked(texts: Sequence[str], where: Bound) -> Sequence[str]:
    """The part of each text that the mapping selects."""
    if where.regex is None:
        return texts
    matches = {text: where.regex.search(text) for text in set(texts)}
    selected = {text: (match[1] or "") if match else "" for text, match in matches.items()}
    return [selected[text] for text in texts]


def members(key: str, texts: Sequence[str]) -> list[bytes]:
    """``"key":value`` for each text; b"" for empty ones. Numbers stay numbers."""
    head = quoted(key) + b":"
    member_by_cell = {"": b""}
    for cell in set(texts) - {""}:
        is_number = len(cell) <= _MAX_NUMBER and _JSON_NUMBER.fullmatch(cell)
        member_by_cell[cell] = head + (cell.encode() if is_number else quoted(cell))
    return [member_by_cell[cell] for cell in texts]


def _inner(raw: bytes) -> bytes:
    """The members of a JSON object without its braces; raises what decoding it raises."""
    OBJECT.decode(raw)
    return raw.strip()[1:-1].strip()
