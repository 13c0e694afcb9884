"""Long names and wide tables, made to fit a number of columns.

Names of kernels are shortened from what tells least: first the return type, then the arguments of
templates, then the parameters, and only then the middle. Names that differ never become one text:
where shortening would make them equal, each shows the place in which it differs. Tables wrap their
headings, then shorten their texts, and at last go on below themselves, with the columns that name
the rows repeated; no column is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from traceconv.core.patterns import lazy_regex

NARROWEST = 24
"""A column of texts is not made narrower than this while a table can go on below itself."""

GAP = "  "
_CUT = "..."
_TYPES = (
    "void", "bool", "char", "int", "long", "unsigned", "float", "double", "auto",
    "static", "inline", "constexpr", "__global__", "std::", "at::", "c10::",
)  # fmt: skip
_HIDDEN = "(anonymous namespace)::"
_OPERATOR = lazy_regex(r"operator\s*(?:<=>|<<=?(?!\w)|>>=?|->\*?|[<>]=?)")


# -- names --------------------------------------------------------------------------------


def shortened(names: Sequence[str], width: int) -> list[str]:
    """``names`` in at most ``width`` characters each; equal ones stay equal, others different.

    Args:
        names: texts; runs of white space count as one blank.
        width: most characters, from 16; one that is narrower is taken as 16.
    """
    width = max(width, 16)
    plain = [" ".join(name.split()) for name in names]
    short_by_name: dict[str, str] = {}
    for name in dict.fromkeys(plain):
        forms = [*_plainer(name)]
        fitting = (form for form in forms if len(form) <= width)
        short_by_name[name] = next(fitting, None) or _middle(forms[-1], width)
    names_by_short: dict[str, list[str]] = {}
    for name, short in short_by_name.items():
        names_by_short.setdefault(short, []).append(name)
    used = {short for short, alike in names_by_short.items() if len(alike) == 1}
    for short, alike in names_by_short.items():
        if len(alike) > 1:
            short_by_name |= _distinguished(short, sorted(alike), width, used)
    return [short_by_name[name] for name in plain]


def _plainer(name: str) -> Iterator[str]:
    """The name, then shorter forms of it, without its least informative parts."""
    yield name
    name = _without_type(name)
    yield name
    name = _without_templates(name)
    yield name
    head, paren, _ = name.replace(_HIDDEN, "").partition("(")
    if re.fullmatch(r"(?:[\w~]+::)+[\w~]+|[\w~]+" if paren else r"(?:[\w~]+::)+[\w~]+", head):
        yield head
        yield head.rpartition("::")[2]


def _without_type(name: str) -> str:
    """A name without the return type of a C++ function."""
    if not name.startswith(_TYPES):
        return name
    blank, opened = 0, _Brackets()
    plain = _OPERATOR.sub(lambda match: "_" * len(match[0]), name).replace(
        _HIDDEN, "_" * len(_HIDDEN)
    )
    for position, sign in enumerate(plain):
        if sign == "(" and not opened:
            break
        if sign == " " and not opened:
            blank = position + 1
        opened.take(sign, plain[position - 1])
    return name[blank:]


class _Brackets:
    """The open brackets; ``a>b`` between round ones closes nothing."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self.angles = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def take(self, sign: str, previous: str) -> None:
        """The next character, and the one before it."""
        if sign in "<(":
            self._open.append(sign)
            self.angles += sign == "<"
        elif sign == ")" and len(self._open) > self.angles:
            while self._open.pop() == "<":
                self.angles -= 1
        elif sign == ">" and self._open and self._open[-1] == "<" and previous != "-":
            self._open.pop()
            self.angles -= 1


def _without_templates(name: str) -> str:
    """A name without template arguments; unchanged if brackets do not match."""
    marked = _OPERATOR.sub(lambda match: "_" * len(match[0]), name)
    outside: list[str] = []
    start, opened = 0, _Brackets()
    for position, sign in enumerate(marked):
        previous, inside = marked[max(position - 1, 0)], opened.angles
        if sign == "<" and not inside:
            if not re.match(r"\w", previous):
                continue
            outside.append(name[start:position])
        opened.take(sign, previous)
        if inside and not opened.angles:
            if sign != ">":
                return name
            start = position + 1
    return name if opened.angles else "".join([*outside, name[start:]])


def _middle(text: str, width: int) -> str:
    """Cut in the middle: both ends tell more than one."""
    if len(text) <= width:
        return text
    before = (width - len(_CUT) + 1) // 2
    after = width - len(_CUT) - before
    return text[:before] + _CUT + text[len(text) - after :]


def _distinguished(short: str, names: Sequence[str], width: int, used: set[str]) -> dict[str, str]:
    """Texts for names that would all become ``short``: its beginning, and where they differ.

    Args:
        names: sorted, so that those that begin alike are neighbours.
        used:  texts that are taken; the new ones are added.
    """
    texts = {}
    for position, name in enumerate(names):
        near = [n for n in (position - 1, position + 1) if 0 <= n < len(names)]
        differs = max(len(commonprefix((name, names[n]))) for n in near)  # noqa: RUF071
        text = _with_window(short, name, differs, width)
        count = 1
        while text in used:
            count += 1
            mark = f"~{count}"
            text = _middle(short, width - len(mark)) + mark
        used.add(text)
        texts[name] = text
    return texts


def _with_window(short: str, name: str, differs: int, width: int) -> str:
    """The beginning of ``short`` in at most half of the room, and ``name`` from there on where it
    differs, with a few characters before."""
    head = short.partition("(")[0].removesuffix(_CUT)
    head = head.rpartition("::")[2] or head
    head = head[: (width - 2 * len(_CUT)) // 2]
    room = width - len(head) - 2 * len(_CUT)
    start = max(differs - room // 4, 0)
    window = name[start : start + room] + _CUT
    if start + room >= len(name):
        window = name[max(len(name) - room - len(_CUT), 0) :]
    return f"{head}{_CUT}{window}"[:width]


# -- tables -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """A column as it is printed.

    Attributes:
        heading: above it.
        cells:   one per row.
        is_text: text stands left and may be shortened, numbers stand right and are not.
        is_key:  names the row, and is repeated where a table goes on below itself.
    """

    heading: str
    cells: list[str]
    is_text: bool
    is_key: bool

    @property
    def longest(self) -> int:
        """Characters of the longest cell."""
        return max(map(len, self.cells), default=0)


def lines(columns: Sequence[Cells], width: int | None, longest: int) -> list[str]:
    """The lines of a table: headings, then rows.

    Args:
        width:   most characters in a line; None for as many as it takes.
        longest: most characters of a text where ``width`` is None.
    """
    if width is None:
        cut = [_cut(column, longest) for column in columns]
        return _block(cut, [max(len(c.heading), c.longest) for c in cut])
    widths = [max(len(c.heading), c.longest) for c in columns]
    if _total(widths) <= width:
        return _block(columns, widths)
    # headings may be wrapped, cells may not
    least = [max(column.longest, _heading_width(column)) for column in columns]
    texts = [column_index for column_index, column in enumerate(columns) if column.is_text]
    while _total(least) > width and texts:
        widest = max(texts, key=lambda column_index: least[column_index])
        spare = least[widest] - max(NARROWEST, _heading_width(columns[widest]))
        if spare <= 0:
            break
        least[widest] -= min(spare, max(_total(least) - width, 1))
    return [line for block in _parts(columns, least, width) for line in block]


def _heading_width(column: Cells) -> int:
    return max(map(len, _words(column.heading)), default=0)


def _parts(columns: Sequence[Cells], widths: Sequence[int], width: int) -> Iterator[list[str]]:
    """The table, or parts of it below each other that fit; each has the columns of keys."""
    keys = [index for index, column in enumerate(columns) if column.is_key]
    remaining = [index for index in range(len(columns)) if index not in keys]
    if _total([widths[index] for index in keys]) > width * 2 // 3:
        keys, remaining = keys[:1], [*keys[1:], *remaining]
    is_first = True
    while remaining or is_first:
        fitting = [remaining.pop(0)] if remaining else []
        while remaining and _total([widths[p] for p in (*keys, *fitting, remaining[0])]) <= width:
            fitting.append(remaining.pop(0))
        shown = sorted((*keys, *fitting))
        narrow = [min(widths[index], width) for index in shown]
        over = _total(narrow) - width
        for index, column in enumerate(columns[p] for p in shown):
            if over > 0 and column.is_text:
                less = min(over, max(narrow[index] - 16, 0))
                narrow[index], over = narrow[index] - less, over - less
        yield [
            *([] if is_first else [""]),
            *_block([_cut(columns[p], w) for p, w in zip(shown, narrow, strict=True)], narrow),
        ]
        is_first = False


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(len(widths) - 1, 0)


def _cut(column: Cells, width: int) -> Cells:
    if not column.is_text:
        return column
    return Cells(column.heading, shortened(column.cells, width), True, column.is_key)


def _block(columns: Sequence[Cells], widths: Sequence[int]) -> list[str]:
    """Headings, bottom lines level, and rows."""
    heads = [
        [c.heading] if len(c.heading) <= width else _wrapped(c.heading, width)
        for c, width in zip(columns, widths, strict=True)
    ]
    high = max(map(len, heads), default=0)
    heads = [[""] * (high - len(head)) + head for head in heads]
    return [
        GAP.join(
            cell.ljust(width) if column.is_text else cell.rjust(width)
            for cell, column, width in zip(row, columns, widths, strict=True)
        ).rstrip()
        for row in (*zip(*heads, strict=True), *zip(*(c.cells for c in columns), strict=True))
    ]


def _words(heading: str) -> list[str]:
    """Where a heading may be broken: at blanks and before brackets."""
    return re.sub(r"(?<=\S)\(", " (", heading).split()


def _wrapped(heading: str, width: int) -> list[str]:
    wrapped = [""]
    for word in _words(heading):
        glue = " " if f"{wrapped[-1]} {word}" in heading else ""
        if wrapped[-1] and len(wrapped[-1]) + len(glue) + len(word) > width:
            wrapped.append(word)
        else:
            wrapped[-1] += (glue if wrapped[-1] else "") + word
    return wrapped
