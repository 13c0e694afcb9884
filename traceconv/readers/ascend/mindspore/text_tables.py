"""Text tables of MindSpore before 2.4: columns below ruled headings, and columns without any."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from traceconv.core.errors import Issues
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.tables.json_rows import MAX_BYTES, Row, doubts_of
from traceconv.readers.shared.csv_tables import Column, table

QUEUE_COLUMNS = ("type", "subtype", "step", "value", "time(ms)")
"""Columns of a file of queue samples; the last one is nanoseconds once it is read."""

_RULE = lazy_regex(r"-{3,}(?: +-{3,})*")
_TITLE = lazy_regex(r"=+[^=]*=*")
_SUMS = lazy_regex(r"(?:total op|AI CPU Total Time)\b")


def lines_of(source: Source, name: str) -> list[str]:
    """The lines of a small text file, without their ends.

    Raises:
        SourceError: it cannot be read, or is larger than ``MAX_BYTES``.
    """
    return source.read(name, MAX_BYTES).decode("utf-8-sig", "replace").split("\n")


def ruled_columns(source: Source, name: str, issues: Issues, number: int = 0) -> dict[str, Column]:
    """A table whose headings are underlined, as typed columns; sums below it are left out.

    The file holds tables one below the other, and all of them once more for every time the run
    was analysed: the last ones count. Some versions underline nothing and separate everything by
    single blanks: then the first line is the headings of the only table.

    Args:
        number: which table, if there are several: 0 is the first.

    Raises:
        SourceError: the file cannot be read.
    """
    doubt = doubts_of(source, name, issues)
    lines = lines_of(source, name)
    blocks = list(_tables(lines))
    names = list(dict.fromkeys(tuple(headings) for headings, _, _ in blocks))
    if number >= len(names):
        return {}
    headings, begin, body = [b for b in blocks if tuple(b[0]) == names[number]][-1]
    headings = [
        f"{heading}(ms)" if heading == "avg_execution_time" else heading for heading in headings
    ]
    cut = bool(body) and lines[-1].strip() == body[-1] and not _SUMS.match(body[-1])
    body = body[:-1] if cut else body
    rows: list[Row] = []
    for number_of_line, line in enumerate(body, begin):
        cells = line.split()
        if len(cells) == len(headings) and not _SUMS.match(line):
            rows.append(dict(zip(headings, cells, strict=True)))
        elif not _SUMS.match(line):
            doubt("malformed-record", f"line {number_of_line}", 1)
    if cut:
        doubt("truncated", f"line {len(lines)}", 1)
    return table(rows, doubt)


def _tables(lines: Sequence[str]) -> Iterator[tuple[list[str], int, list[str]]]:
    """Headings, number of the first line and lines of every table."""
    rules = [i for i, line in enumerate(lines) if i and _RULE.fullmatch(line.rstrip())]
    if not rules and not re.search(r"\d", lines[0]):
        yield lines[0].split(), 2, _body(lines[1:])
    for rule in rules:
        starts = [match.start() for match in re.finditer(r"-+", lines[rule])]
        ends = [*starts[1:], None]
        headings = [lines[rule - 1][a:b].strip() for a, b in zip(starts, ends, strict=True)]
        body = _body(lines[rule + 1 :])
        words = lines[rule - 1].split()
        # headings may be set closer than the rule below them, as rows are
        if len(words) == len(headings) or (body and len(words) == len(body[0].split())):
            headings = words
        yield headings, rule + 2, body


def _body(lines: Sequence[str]) -> list[str]:
    """The lines of a table: up to the first that is empty, or the title of another."""
    body = []
    for line in lines:
        if not line.strip() or _TITLE.fullmatch(line.strip()):
            break
        body.append(line.strip())
    return body


def spaced_columns(
    source: Source, name: str, issues: Issues, headings: Sequence[str], ended: bool = False
) -> dict[str, Column]:
    """Values with spaces between, and no headings in the file. Other lines are reported.

    Args:
        ended: as in :func:`traceconv.readers.shared.csv_tables.csv_columns`.

    Raises:
        SourceError: the file cannot be read.
    """
    doubt = doubts_of(source, name, issues)
    rows: list[Row] = []
    lines = lines_of(source, name)
    unended = bool(lines[-1].strip())
    for line_number, line in enumerate(lines[:-1] if ended else lines, 1):
        cells = line.split()
        if len(cells) == len(headings):
            rows.append(dict(zip(headings, cells, strict=True)))
        elif cells:
            doubt("malformed-record", f"line {line_number}", 1)
    if unended:
        doubt("truncated" if ended else "unended-line", f"line {len(lines)}", 1)
    return table(rows, doubt)
