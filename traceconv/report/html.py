"""Sections as one page: nothing fetched, readable in light and in dark, on paper, on a phone.

All text goes through :mod:`traceconv.core.markup`; the page's own security policy forbids requests
and all scripts but the one beside this file, by its digest: a name which got through could still do
nothing. That script sorts, filters, chooses and zooms; without it the page says the same.

Boxes are HTML, curves are SVG stretched to the page, and all text is text of the page, so that it
keeps its size on a phone. Why no library: see docs/decisions. Colours are classes (``k-idle``,
``c3``, ``h5``) that the page gives meaning to, in light and in dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any

from traceconv.core.markup import Markup, el, esc, join
from traceconv.report import figures as say
from traceconv.report.blocks import (
    Bar,
    Bars,
    Block,
    Card,
    Cards,
    Cell,
    Figures,
    Folded,
    HeatMap,
    Legend,
    Line,
    Lines,
    Section,
    Styled,
    Table,
    Text,
)
from traceconv.report.report_page import sections

_TEMPLATE, _SCRIPT = (Path(__file__).with_name(f"report.{ending}") for ending in ("html", "js"))

WIDTH, HEIGHT = 1000, 240
"""Width and height of the drawing of a curve, in its own units; the page scales it."""

_SHADES = 9  # classes h0 (least) to h8 (most) of heat maps
_TALL, _MIDDLE, _SMALL = 26, 18, 12  # px of a row of cells
_LABELS = 12  # most names under a drawing
_LABELLED_ROWS = 40

Document = Mapping[str, Any]


def page(document: Document) -> str:
    """The page of a report.

    Args:
        document: of :meth:`traceconv.Report.as_dict`, with its "overview" if there is one.
    """
    title = f"traceconv: {say.ranks(document['ranks'])}"
    return framed(title, _head(document), sections(document), document["traceconv"])


def framed(title: str, head: Markup, parts: Sequence[Section], version: str) -> str:
    """Sections as a page, with the style and the security policy of all pages, which names the
    SHA-256 of the script: a test compares them.

    Args:
        version: of the program that made what is shown.
    """
    index = [el("a", section.title, href=f"#{section.key}") for section in parts]
    body = [head, el("nav", index, aria_label="sections"), *map(_section, parts)]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=esc(title),
        body=join(body),
        version=esc(version),
        script=_SCRIPT.read_text(encoding="utf-8"),
    )


def chips(words: Iterable[str]) -> Markup:
    """The subject of a page, in a few words each."""
    return el("p", [el("span", word) for word in words if word], class_="chips")


def _head(document: Document) -> Markup:
    """The verdict: the loss, its cause, the remedy."""
    overview = document.get("overview")
    readers = ", ".join(sorted({c["reader"] for c in document["captures"]}))
    about = chips((say.ranks(document["ranks"]), readers, document["mode"]))
    if overview is None:
        return el("header", about, el("h1", f"Report on {say.ranks(document['ranks'])}"))
    verdict = overview["verdict"]
    helps = [
        el("li", el("strong", remedy["text"]), el("code", remedy["change"]))
        for remedy in overview["what_if"]
    ]
    tiles = [
        el("div", el("span", tile["name"]), el("strong", tile["value"]), el("small", tile["note"]))
        for tile in overview["tiles"]
    ]
    card = [
        el("h1", _with_hard_spaces(verdict["text"])),
        el("p", _with_hard_spaces(verdict["lost"]), class_="lost") if verdict["lost"] else None,
        el("p", el("strong", "What to do: "), _with_code(verdict["advice"]))
        if verdict["advice"]
        else None,
        [el("p", "What would help most, replayed:"), el("ul", helps, class_="helps")]
        if helps
        else None,
    ]
    sentences = overview["sentences"][1:]  # those that the card above does not have
    if sentences and sentences[0].startswith("Straggler: "):  # the first finding says more
        sentences = sentences[1:]
    return el(
        "header",
        about,
        el("div", card, class_=f"verdict of-{verdict['severity']}"),
        el("div", tiles, class_="tiles") if tiles else None,
        [el("p", _with_hard_spaces(text), class_="note")
         for text in (*sentences, *overview["remarks"])],
    )  # fmt: skip


def _with_hard_spaces(text: str) -> str:
    """No line break between a figure and its unit."""
    return re.sub(r"(?<=\d) (?=(?:%|[mµun]?s)\b|%)", "\u00a0", text)


# -- blocks ---------------------------------------------------------------------------------------


def _section(section: Section) -> Markup:
    title, content = el("h2", section.title), blocks(section.blocks)
    if section.folded:
        return el("section", el("details", el("summary", title), content), id=section.key)
    return el("section", title, content, id=section.key)


def blocks(content: Iterable[Block]) -> Markup:
    """Blocks one after the other."""
    return join([_DRAWN[type(block)](block) for block in content])


def _text(block: Text) -> Markup:
    return el("p", _with_code(block.words), class_=block.kind)


def _with_code(text: str) -> list[Markup | str]:
    """Words between backticks as code."""
    pieces = _with_hard_spaces(text).split("`")
    return [el("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)]


def _figures(block: Figures) -> Markup:
    drawn = [el("figure", el("h3", title), blocks(content)) for title, content in block.drawings]
    return el("div", drawn, class_="multiples")


def _table(block: Table) -> Markup:
    """A table that scrolls sideways where it is too wide."""
    sides = ["r" if block.is_figure(i) else None for i in range(len(block.head))]
    heads = zip(block.head, sides, strict=True)
    top = el("tr", [el("th", h, class_=side, scope="col") for h, side in heads])
    body = [
        el("tr", [_cell(cell, side) for cell, side in zip(row, sides, strict=True)])
        for row in block.rows
    ]
    return el("div", el("table", el("thead", top), el("tbody", body)), class_="scroll")


def _cell(cell: Cell, side: str | None) -> Markup:
    if not isinstance(cell, Styled):
        return el("td", cell, class_=side)
    content: object = cell.text
    if cell.kind in ("bad", "doubt", "plain"):
        content = el("span", cell.text, class_=f"tag {cell.kind}")
    elif cell.kind == "code":
        content = el("code", cell.text)
    elif cell.kind == "query":
        content = _query(cell.text, cell.span) if cell.text else None
    if cell.more:
        lines = el("ul", [el("li", line) for line in cell.more])
        head = f"{len(cell.more)} place{'s' * (len(cell.more) > 1)}"
        content = join([el("p", content), el("details", el("summary", head), lines)])
    return el("td", content, class_=side, title=cell.exact or None)


def _query(query: str, span: tuple[int, int] | None) -> Markup:
    """What finds a slice in a viewer: a button of the script copies it."""
    start, end = span or (None, None)
    return el(
        "details", el("summary", "query"), el("code", query, class_="sql"),
        class_="find", data_start=start, data_end=end,
    )  # fmt: skip


def _card(card: Card) -> Markup:
    tag = "bad" if card.severity == "warning" else "plain"
    places = [
        el("div", el("p", p.words), _query(p.query, p.span) if p.query else None, class_="place")
        for p in card.places
    ]
    head = f"{len(places) - 1} more place{'s' * (len(places) > 2)} to look at"
    return el(
        "article",
        el("h3", el("span", card.severity, class_=f"tag {tag}"), card.title),
        el("p", card.text) if card.text else None,
        el("ul", [el("li", fact) for fact in card.facts], class_="facts") if card.facts else None,
        _text(Text(card.advice, "advice")) if card.advice else None,
        places[:1],
        el("details", el("summary", head), places[1:]) if places[1:] else None,
    )


def _legend(block: Legend) -> Markup:
    entries = [el("span", el("i", class_=kind), words) for kind, words in block.entries]
    return el("p", entries, class_="legend")


def _bars(block: Bars) -> Markup:
    dense = " dense" if len(block.rows) > 16 else ""
    drawn = [_bar(row) for row in block.rows]
    return el("div", drawn, class_=("bars wide" if block.wide else "bars") + dense)


def _bar(row: Bar) -> Markup:
    segments = [
        el("i", class_=kind, style=f"width:{100 * min(share, 1.0):.2f}%", title=tip or None)
        for kind, share, tip in row.parts
        if share > 0
    ]
    return el(
        "div",
        el("span", row.name, row.note and el("small", row.note), class_="name"),
        el("span", segments, class_="track"),
        el("span", row.end, class_="end"),
        class_="bar marked" if row.marked else "bar",
    )


def _heat_map(block: HeatMap) -> Markup:
    rows, columns = len(block.rows), len(block.columns)
    row = _TALL if rows <= 8 else _MIDDLE if rows <= 24 else _SMALL
    shown = [
        el(
            "b",
            cell.text or None,
            class_="hx" if cell.share is None else f"h{round(cell.share * (_SHADES - 1))}",
            title=cell.tooltip or None,
        )
        for line in block.grid
        for cell in line
    ]
    size = f"grid-template-columns:repeat({columns},1fr);grid-auto-rows:{row}px"
    label_step = -(-rows // _LABELLED_ROWS)
    names = [
        el("span", name if i % label_step == 0 or name in block.marked else None,
           class_="marked" if name in block.marked else None)
        for i, name in enumerate(block.rows)
    ]  # fmt: skip
    below = _below([(i + 0.5) / columns for i in range(columns)], block.columns)
    chart = el(
        "div",
        el("div", names, class_="left", style=f"grid-auto-rows:{row}px"),
        el("div", shown, class_="cells" if columns <= 64 else "cells tight", style=size),
        el("div", below, class_="below"),
        el("div", block.axis, class_="axis"),
        class_="map" if row > _SMALL else "map fine",
        style=f"max-width:{columns * block.widest + 120}px",
    )
    ramp = el("span", [el("i", class_=f"h{i}") for i in range(_SHADES)], class_="ramp")
    low, highest = block.scale
    return join([el("p", f"{low} ", ramp, f" {highest}", class_="legend"), chart])


def _below(positions: Sequence[float], names: Sequence[str]) -> list[Markup]:
    """Names below a drawing, as far as they have room."""
    shown, previous = [], -1.0
    for x, name in zip(positions, names, strict=True):
        if x - previous >= 1 / _LABELS or previous < 0:
            shown.append(el("span", name, style=f"left:{100 * x:.2f}%"))
            previous = x
    return shown


def _lines(block: Lines) -> Markup:
    """Curves: the vertical axis goes from 0, or from the smallest value, to the largest."""
    low = min(min(line.x) for line in block.lines)
    high = max(max(line.x) for line in block.lines)
    top = max(max(line.upper or line.y) for line in block.lines)
    least = min(min(line.y) for line in block.lines)
    unit, scale = block.unit
    bottom = min(least, 0.0) if block.from_zero else least
    top = top if top > bottom else bottom + (abs(bottom) or scale)
    margin = 0.06 * (top - bottom)
    top += margin
    bottom -= 0.0 if bottom in (0.0, least * block.from_zero) else margin
    marks = say.ticks(bottom / scale, top / scale)

    def x_of(x: float) -> float:
        return WIDTH * ((x - low) / (high - low) if high > low else 0.5)

    def y_of(y: float) -> float:
        return HEIGHT * (1 - (y - bottom) / (top - bottom))

    ends = [0.0, *((x_of(a) + x_of(b)) / 2 for (a, _), (b, _) in pairwise(block.tooltips)), WIDTH]
    touched = [
        el("rect", el("title", words), x=f"{start:.1f}", y=0, width=f"{max(end - start, 0):.1f}",
           height=HEIGHT, class_="touch")
        for (_, words), (start, end) in zip(block.tooltips, pairwise(ends), strict=False)
    ]  # fmt: skip
    heights = [(y_of(mark * scale), f"{mark:.10g}") for mark in marks]
    picture = el(
        "svg",
        [el("path", d=f"M0 {y:.1f}H{WIDTH}", class_="rule") for y, _ in heights],
        [_path(line, x_of, y_of) for line in block.lines],
        touched,
        viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", role="img",
    )  # fmt: skip
    ticks = [el("span", t, style=f"bottom:{100 * (1 - y / HEIGHT):.2f}%") for y, t in heights]
    positions, names = block.labels
    return el(
        "div",
        el("div", el("em", unit), class_="unit"),
        el("div", ticks, class_="ticks"),
        el("div", picture, class_="picture"),
        el("div", _below([x_of(x) / WIDTH for x in positions], names), class_="below"),
        el("div", block.axis, class_="axis") if block.axis else None,
        class_="lines",
    )


def _path(line: Line, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> Markup:
    points = [f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in zip(line.x, line.y, strict=True)]
    if line.upper:
        back = [f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in zip(line.x, line.upper, strict=True)]
        points += reversed(back)
        return el("path", d=f"M{'L'.join(points)}Z", class_=f"band {line.kind}")
    points += points[:1] * (len(points) == 1)
    return el("path", d=f"M{'L'.join(points)}", class_=f"line {line.kind}")


_DRAWN: Mapping[type, Callable[[Any], Markup]] = {
    Text: _text, Table: _table, Legend: _legend, Bars: _bars, HeatMap: _heat_map, Lines: _lines,
    Cards: lambda block: el("div", [_card(card) for card in block.cards], class_="findings"),
    Figures: _figures,
    Folded: lambda block: el("details", el("summary", block.title), blocks(block.blocks)),
}  # fmt: skip
