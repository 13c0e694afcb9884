"""HTML markup with all text escaped, in one place.

Names in traces can be anything: quotes, tags, control characters, halves of surrogate pairs,
characters that reverse the direction of writing. All of them are shown; none takes effect.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from traceconv.core.patterns import lazy_regex

if TYPE_CHECKING:
    import re

_INVISIBLE = lazy_regex(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_VOID = ("br", "wbr")
_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
)  # of html.escape, whose module loads the names of all characters


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def visible(text: object) -> str:
    """Text whose characters all show: those that would act or vanish become their number."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():  # nearly all
        return shown
    return _INVISIBLE.sub(_number, shown)


def _number(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def aligned(rows: Iterable[Sequence[str]], left: Container[int]) -> list[str]:
    """Lines of columns: those in ``left`` begin at the same place, figures end there."""
    listed = [*rows]
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in listed
    ]


def one_line(text: str) -> str:
    """:func:`visible` text in one line: ends of lines become escapes, too."""
    return visible(text).replace("\n", "\\n").replace("\r", "\\r")


def esc(text: object) -> Markup:
    """``text`` as markup that shows it; markup stays as it is."""
    return text if isinstance(text, Markup) else Markup(visible(text).translate(_ESCAPES))


def el(name: str, *content: object, **attributes: object) -> Markup:
    """One element.

    Args:
        content: markup, or what is shown as text; None is left out.
        attributes: ``_`` at the end of a name is dropped, others become ``-``; None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{esc(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def join(content: object) -> Markup:
    """Pieces one after the other."""
    if isinstance(content, (list, tuple)):
        return Markup("".join(join(piece) for piece in content))
    return Markup("") if content is None else esc(content)


def table_html(caption: str, head: Iterable[object], rows: Iterable[Iterable[object]]) -> Markup:
    """A table for a notebook: caption, headings and rows, every cell escaped."""
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", [el("th", cell) for cell in head])),
        el("tbody", [el("tr", [el("td", cell) for cell in row]) for row in rows]),
    )


def lines_html(title: str, lines: Iterable[str]) -> Markup:
    """A title and lines for a notebook, as they would be printed."""
    return el("div", el("strong", title), el("pre", "\n".join(lines)))
