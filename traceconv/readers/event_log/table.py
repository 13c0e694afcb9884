"""Tables (CSV after RFC 4180) as columns of text: quoted cells, with line ends in them or not."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain

from traceconv.readers.event_log.mapping import Bound
from traceconv.readers.event_log.records import (
    Batch,
    Layout,
    Mine,
    batched,
    constants,
    fixed_members,
    inner,
    members,
    objects,
    picked,
)
from traceconv.readers.shared.lines import MAX_LINE_BYTES, Lines, Report

MAX_ROW_LINES = 1000
"""A quoted cell that goes on for more lines was never closed."""


def cells(line: str, delimiter: str) -> list[str]:
    """One line cut at a delimiter; [] if its quotes do not match."""
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def batches(lines: Lines, layout: Layout, report: Report) -> Iterator[Batch]:
    """The records of a table, those of the wanted rank only."""
    rank = layout.binding.column("rank")
    at = layout.columns.index(rank.column) if rank and layout.by_rank else -1
    mine = Mine(layout)
    every = rows(lines, layout, report)
    for numbers, kept in batched((n, row) for n, row in every if at < 0 or mine[row[at]]):
        yield _batch(numbers, kept, layout)


def rank_texts(lines: Lines, layout: Layout, report: Report) -> Iterator[tuple[int, str]]:
    """Line number and rank of every record, as it is written."""
    rank = layout.binding.column("rank")
    at = layout.columns.index(rank.column) if rank else -1
    for number, row in rows(lines, layout, report):
        yield number, row[at] if at >= 0 else ""


def rows(lines: Lines, layout: Layout, report: Report) -> Iterator[tuple[int, list[str]]]:
    """Every row behind the header, as wide as it, with the number of its first line."""
    width = len(layout.columns)
    for number, row in _Rows(lines, layout, report):
        if number == lines.unended and len(row) >= width:
            report("unended-line", f"line {number}")
        if len(row) == width:
            yield number, row
        elif len(row) > width and not any(cell.strip() for cell in row[width:]):
            yield number, row[:width]
        else:
            short = len(row) < width and number == lines.unended
            why = f"line {number}: {len(row)} cells where the header has {width}"
            report("truncated" if short else "malformed-record", why)


class _Rows:
    """Rows of any width. A row that cannot be parsed costs its first line only."""

    def __init__(self, lines: Lines, layout: Layout, report: Report) -> None:
        self._lines, self._report = lines, report
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
            self._report("truncated" if cut else "malformed-record", f"line {number}: {e}")
            return []
        finally:
            if size > usual:
                csv.field_size_limit(usual)


# -- rows to columns ------------------------------------------------------------------------


def _batch(numbers: list[int], kept: list[list[str]], layout: Layout) -> Batch:
    binding = layout.binding
    column = dict(zip(layout.columns, zip(*kept, strict=True), strict=True))
    found = {b.target: picked(column[b.column], b) for b in binding.found}
    parts = [
        members(target.removeprefix("args."), found[target])
        for target in found
        if target == "bytes" or target.startswith("args.")
    ]
    parts += fixed_members(binding, len(kept))
    parts += [members(_key(name), column[name]) for name in _rest(layout, binding.found)]
    broken: list[int] = []
    if "args" in found:
        parts.append(_objects(found["args"], numbers, broken))
    return Batch(
        numbers, {**found, **constants(binding, len(kept))}, objects(parts, len(kept)), broken
    )


def _rest(layout: Layout, found: Sequence[Bound]) -> list[str]:
    """The columns that the mapping does not speak of."""
    used = {b.column for b in found} | layout.binding.ignored
    return [name for name in layout.columns if name not in used]


def _key(column: str) -> str:
    return column.removeprefix("args.")


def _objects(texts: Sequence[str], numbers: Sequence[int], broken: list[int]) -> list[bytes]:
    """The members of arguments written as JSON; those that are none stand as text."""
    found = []
    for text, number in zip(texts, numbers, strict=True):
        try:
            found.append(inner(text.encode()) if text else b"")
        except ValueError:
            broken.append(number)
            found.append(members("args", [text])[0])
    return found
