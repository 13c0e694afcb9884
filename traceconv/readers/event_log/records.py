"""Records of a log as columns of text: rows of tables (CSV after RFC 4180), JSON lines, and lines
of text that a pattern takes apart.

Cells may be quoted, with line ends in them or not. Numbers stay as they are written.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec

from traceconv.core.json_text import NOT_JSON
from traceconv.core.patterns import lazy_regex
from traceconv.readers.event_log.mapping import TIMES, Binding, Bound
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.lines import MAX_LINE_BYTES, OBJECT, Lines, text
from traceconv.readers.shared.numbers import ABSENT, UNREADABLE, whole

BATCH_RECORDS = 32768
"""So many records are turned into columns at a time."""

_JSON_NUMBER = lazy_regex(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_MAX_NUMBER = 40  # characters; anything longer is no number people mean


_Record = TypeVar("_Record")


def batched(
    records: Iterable[tuple[int, _Record]],
) -> Iterator[tuple[list[int], list[_Record]]]:
    """Line numbers and records, :data:`BATCH_RECORDS` of them at a time."""
    records = iter(records)
    while some := list(islice(records, BATCH_RECORDS)):
        yield [number for number, _ in some], [record for _, record in some]


class Layout(msgspec.Struct, frozen=True):
    """How one log is laid out, and which of its records are selected.

    Attributes:
        log:       name of the mapping that fits.
        binding:   where the fields are.
        units:     of "ts", "dur" and "end".
        settings:  what the head of the log and the mapping say: clock, rank, host.
        columns:   header of a table, groups of a pattern; () for JSON lines.
        delimiter: of a table; "" for JSON lines.
        body:      number of the last line of the head; records begin behind it.
        by_rank:   only records of ``rank`` are taken. Damage was booked when ranks were looked
            for, so that it is not counted once per rank.
        otherwise: the rank of records that name none.
        pattern:   of lines of text; None for the others.
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
        """What lines begin with that hold no record."""
        return self.settings.get("comment", "#")


class Batch(msgspec.Struct):
    """Some records as columns of text.

    Attributes:
        lines:   line number of each record.
        columns: target -> text per record, "" for none; targets no record has are missing.
        args:    JSON object per record, b"" for none.
        broken_args: line numbers of arguments that are not JSON; these are kept as text.
    """

    lines: list[int]
    columns: dict[str, Sequence[str]]
    args: list[bytes]
    broken_args: list[int] = []

    def __len__(self) -> int:
        return len(self.lines)


class Mine(dict[str, bool]):
    """Whether a record is selected, by its rank as it is written."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._layout, self._bound = layout, layout.binding.column("rank")

    def __missing__(self, text: str) -> bool:
        rank = rank_of(text, self._bound)
        found = self._layout.otherwise if rank == ABSENT else rank
        mine = self[text] = rank != UNREADABLE and found == self._layout.rank
        return mine


def rank_of(text: str, rank: Bound | None) -> int:
    """The rank a cell spells; ABSENT or UNREADABLE where it spells none."""
    return int(whole(picked([text], rank))[0]) if rank else ABSENT


def picked(texts: Sequence[str], where: Bound) -> Sequence[str]:
    """The part of each text that the mapping asks for."""
    if where.regex is None:
        return texts
    known = {text: _first_group(where.regex, text) for text in set(texts)}
    return [known[text] for text in texts]


def _first_group(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return (match[1] or "") if match else ""


def members(key: str, texts: Sequence[str]) -> list[bytes]:
    """``"key":value`` for each text; b"" for empty ones. Numbers stay numbers."""
    head = quoted(key) + b":"
    known = {text: head + _json(text) if text else b"" for text in set(texts)}
    return [known[text] for text in texts]


def _json(text: str) -> bytes:
    if len(text) <= _MAX_NUMBER and _JSON_NUMBER.fullmatch(text):
        return text.encode()
    return quoted(text)


def inner(raw: bytes) -> bytes:
    """The members of a JSON object that is written as ``raw``, without its braces.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        OBJECT.decode(raw)
    except NOT_JSON as e:
        raise ValueError(str(e)) from e
    return raw.strip()[1:-1].strip()


def objects(parts: Sequence[Sequence[bytes]], count: int) -> list[bytes]:
    """One JSON object per record of its members, b"" where there are none."""
    if not parts:
        return [b""] * count
    joined = (b",".join(filter(None, row)) for row in zip(*parts, strict=True))
    return [b"{" + row + b"}" if row else b"" for row in joined]


def constants(binding: Binding, count: int) -> dict[str, Sequence[str]]:
    """The columns that are the same for every record."""
    return {
        target: [text] * count
        for target, text in binding.constants.items()
        if not target.startswith("args.")
    }


def fixed_members(binding: Binding, count: int) -> list[Any]:
    """Arguments that are the same for every record."""
    return [
        members(target.removeprefix("args."), [text]) * count
        for target, text in binding.constants.items()
        if target.startswith("args.")
    ]


def batches(lines: Lines, layout: Layout) -> Iterator[Batch]:
    """The records of a log; those of the selected rank only, if the layout selects one."""
    read = table_batches if layout.columns else json_batches
    return read(lines, layout)


def rank_texts(lines: Lines, layout: Layout) -> Iterator[tuple[int, str]]:
    """Line number and rank of every record, as it is written."""
    return (_table_ranks if layout.columns else _json_ranks)(lines, layout)


MAX_ROW_LINES = 1000
"""A quoted cell of more lines was never closed."""


def cells(line: str, delimiter: str) -> list[str]:
    """One line cut at a delimiter; [] if its quotes do not match."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def table_batches(lines: Lines, layout: Layout) -> Iterator[Batch]:
    """The records of a table, those of the selected rank only."""
    rank = layout.binding.column("rank")
    at = layout.columns.index(rank.column) if rank and layout.by_rank else -1
    mine = Mine(layout)
    every = _table_rows(lines, layout)
    for numbers, kept in batched((n, row) for n, row in every if at < 0 or mine[row[at]]):
        yield _table_batch(numbers, kept, layout)


def _table_ranks(lines: Lines, layout: Layout) -> Iterator[tuple[int, str]]:
    """Line number and rank of every record, as it is written."""
    rank = layout.binding.column("rank")
    at = layout.columns.index(rank.column) if rank else -1
    for number, row in _table_rows(lines, layout):
        yield number, row[at] if at >= 0 else ""


def _table_rows(lines: Lines, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Every row behind the header, as wide as it, with the number of its first line."""
    if layout.pattern is not None:
        yield from _matched_lines(lines, layout.pattern)
        return
    width = len(layout.columns)
    for number, row in _Rows(lines, layout):
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


def _matched_lines(lines: Lines, pattern: re.Pattern[str]) -> Iterator[tuple[int, list[str]]]:
    """The named groups of every line; lines that do not match are counted."""
    groups = [place - 1 for place in pattern.groupindex.values()]
    for number, line in lines.numbered():
        match = pattern.search(line)
        if match is None:
            lines.report("line-unmatched", f"line {number}: {line.strip()[:60]!r}")
            continue
        found = match.groups("")
        yield number, [found[place] for place in groups]


class _Rows:
    """Rows of any width. A row that cannot be parsed costs its first line only."""

    def __init__(self, lines: Lines, layout: Layout) -> None:
        self._lines = lines
        self._delimiter, self._comment = layout.delimiter, layout.comment
        self._back: deque[tuple[int, str]] = deque()
        self._fresh = chain.from_iterable(enumerate(b, first) for first, b in lines.blocks())
        for _ in range(layout.body):
            next(self._fresh, None)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        delimiter, comment = self._delimiter, self._comment
        while taken := self._take():
            number, line = taken
            if not line or line.isspace() or line.startswith(comment):
                continue
            if '"' not in line:
                yield number, line.split(delimiter)
            elif row := self._quoted(number, line):
                yield number, row

    def _take(self) -> tuple[int, str] | None:
        return self._back.popleft() if self._back else next(self._fresh, None)

    def _quoted(self, number: int, line: str) -> list[str]:
        """The row that begins with ``line``; [] if there is none."""
        parts = [(number, line)]
        size, open_ = len(line), line.count('"') % 2
        while open_ and len(parts) < MAX_ROW_LINES and size < MAX_LINE_BYTES:
            more = self._take()
            if more is None:
                break
            parts.append(more)
            size += len(more[1])
            open_ ^= more[1].count('"') % 2
        texts = [text + "\n" for _, text in parts]
        reader = csv.reader(texts, delimiter=self._delimiter, strict=True)
        row = self._parsed(reader, number, size)
        if len(parts) > 1:
            self._back.extendleft(reversed(parts[reader.line_num if row else 1 :]))
        return row

    def _parsed(self, reader: Iterator[list[str]], number: int, size: int) -> list[str]:
        usual = csv.field_size_limit()
        try:
            if size > usual:
                csv.field_size_limit(size)
            return next(reader)
        except csv.Error as e:
            cut = number == self._lines.unended
            self._lines.report("truncated" if cut else "malformed-record", f"line {number}: {e}")
            return []
        finally:
            if size > usual:
                csv.field_size_limit(usual)


# -- rows to columns ------------------------------------------------------------------------


def _table_batch(numbers: list[int], kept: list[list[str]], layout: Layout) -> Batch:
    binding = layout.binding
    column = dict(zip(layout.columns, zip(*kept, strict=True), strict=True))
    found = {b.target: picked(column[b.column], b) for b in binding.found}
    if layout.delimiter == ";":  # a comma, which delimits nothing, may be a decimal point
        for target in found.keys() & {*TIMES, "value"}:
            found[target] = [text.replace(",", ".") for text in found[target]]
    parts = [
        members(target.removeprefix("args."), found[target])
        for target in found
        if target == "bytes" or target.startswith("args.")
    ]
    parts += fixed_members(binding, len(kept))
    parts += [
        members(_key(name), column[name]) for name in _unmapped_columns(layout, binding.found)
    ]
    broken: list[int] = []
    if "args" in found:
        parts.append(_parsed_args(found["args"], numbers, broken))
    return Batch(
        numbers, {**found, **constants(binding, len(kept))}, objects(parts, len(kept)), broken
    )


def _unmapped_columns(layout: Layout, found: Sequence[Bound]) -> list[str]:
    """The columns that the mapping does not speak of."""
    used = {b.column for b in found} | layout.binding.ignored
    return [name for name in layout.columns if name not in used]


def _key(column: str) -> str:
    return column.removeprefix("args.")


def _parsed_args(texts: Sequence[str], numbers: Sequence[int], broken: list[int]) -> list[bytes]:
    """The members of arguments written as JSON; those that are none are kept as text."""
    found = []
    for cell, number in zip(texts, numbers, strict=True):
        try:
            found.append(inner(cell.encode()) if cell else b"")
        except ValueError:
            broken.append(number)
            found.append(members("args", [cell])[0])
    return found


Record = dict[str, msgspec.Raw]

_NULL = msgspec.Raw(b"null")


def json_batches(lines: Lines, layout: Layout) -> Iterator[Batch]:
    """The records of JSON lines, those of the selected rank only."""
    for numbers, kept in batched(_selected(lines, layout)):
        yield _json_batch(numbers, kept, layout)


def _selected(lines: Lines, layout: Layout) -> Iterator[tuple[int, Record]]:
    rank = layout.binding.column("rank")
    key = rank.column if rank and layout.by_rank else None
    mine = Mine(layout)
    for number, line in _bodies(lines, layout):
        try:
            record = OBJECT.decode(line)
        except NOT_JSON as e:
            lines.damaged(number, e)
            continue
        if key is None or mine[text(record.get(key, _NULL))]:
            yield number, record


def _json_ranks(lines: Lines, layout: Layout) -> Iterator[tuple[int, str]]:
    """Line number and rank of every record, as it is written."""
    rank = layout.binding.column("rank")
    assert rank is not None
    ranked = msgspec.defstruct(
        "Ranked", [("rank", msgspec.Raw, _NULL)], rename={"rank": rank.column}
    )
    decoder = msgspec.json.Decoder(ranked)
    for number, line in _bodies(lines, layout):
        try:
            record = decoder.decode(line)
        except NOT_JSON as e:
            lines.damaged(number, e)
        else:
            yield number, text(record.rank)  # type: ignore[attr-defined]


def _bodies(lines: Lines, layout: Layout) -> Iterator[tuple[int, str]]:
    for number, line in lines.numbered():
        if number > layout.body and not line.startswith(layout.comment):
            yield number, line


def _texts(raws: Sequence[msgspec.Raw]) -> Sequence[str]:
    joined = b"\n".join(raws)
    if b'"' not in joined and b"null" not in joined:
        return joined.decode().split("\n")
    each = joined.split(b"\n")  # a record is one line, so no value has a line end in it
    known = {raw: text(raw) for raw in set(each)}
    return [known[raw] for raw in each]


# -- records to columns ---------------------------------------------------------------------


def _json_batch(numbers: list[int], kept: list[Record], layout: Layout) -> Batch:
    binding = layout.binding
    present = set().union(*kept)
    columns: dict[str, Sequence[str]] = {}
    parts: list[Sequence[bytes]] = []
    for one in binding.found:
        if one.column not in present:
            continue
        raws = [record.get(one.column, _NULL) for record in kept]
        if one.target == "args":
            parts.append([_args_members(bytes(raw)) for raw in raws])
        elif one.target == "bytes" or one.target.startswith("args."):
            parts.append(_field_members(one, raws))
        else:
            columns[one.target] = picked(_texts(raws), one)
    parts += fixed_members(binding, len(kept))
    rest = present - {b.column for b in binding.found} - binding.ignored
    if rest:
        heads = {key: quoted(key) + b":" for key in rest}
        parts.append([_unmapped_fields(record, heads) for record in kept])
    columns.update(constants(binding, len(kept)))
    return Batch(numbers, columns, objects(parts, len(kept)))


def _field_members(one: Bound, raws: Sequence[msgspec.Raw]) -> list[bytes]:
    key = one.target.removeprefix("args.")
    if one.regex is not None:
        return members(key, picked(_texts(raws), one))
    head = quoted(key) + b":"
    return [b"" if raw == b"null" else head + raw for raw in map(bytes, raws)]


def _args_members(raw: bytes) -> bytes:
    """The members of an argument object; any other value is kept under "args"."""
    if raw[:1] == b"{":
        return raw[1:-1].strip()
    return b"" if raw == b"null" else b'"args":' + raw


def _unmapped_fields(record: Record, heads: Mapping[str, bytes]) -> bytes:
    """The fields the mapping does not speak of, as members."""
    return b",".join([heads[k] + bytes(raw) for k, raw in record.items() if k in heads])
