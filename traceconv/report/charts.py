"""The few drawings of a report, without a script: boxes are HTML, curves are SVG stretched to the
page, and all text is text of the page, so that it keeps its size on a phone.

Why no library: see docs/decisions. Colours are classes (``k-idle``, ``c3``, ``h5``) that the page
gives meaning to, in light and in dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from traceconv.core.markup import Markup, el
from traceconv.report.figures import ticks

WIDTH, HEIGHT = 1000, 240
"""Width and height of the drawing of a curve, in its own units; the page scales it."""

SHADES = 9
"""Classes ``h0`` (nothing) to ``h8`` (the most) of heat maps."""

LINES = 8
"""Classes ``c0`` to ``c7`` of lines."""

Scale = Callable[[float], float]

_TALL, _MIDDLE, _SMALL = 26, 18, 12  # px of a row of cells
_LABELS = 12  # at most so many under a drawing
_LABELLED_ROWS = 40
_CLOSE = 0.6  # values down to this part of the largest are close together


def legend(*entries: tuple[str, str]) -> Markup:
    """The legend of colours: (class, words)."""
    return el("p", [el("span", el("i", class_=kind), words) for kind, words in entries],
              class_="legend")  # fmt: skip


class Bar(msgspec.Struct, frozen=True):
    """One bar.

    Attributes:
        name:  in front of it; ``note`` in small letters after that.
        parts: (class, share of the drawing's width from 0 to 1, tooltip).
        end:   the figure after it.
    """

    name: str
    parts: Sequence[tuple[str, float, str]]
    end: str
    note: str = ""


def bars(rows: Sequence[Bar], wide: bool = False) -> Markup:
    """Bars below each other; ``wide`` puts each name on a separate line."""
    drawn = [
        el(
            "div",
            el("span", row.name, row.note and el("small", row.note), class_="name"),
            el("span", [_part(*part) for part in row.parts], class_="track"),
            el("span", row.end, class_="end"),
            class_="bar",
        )
        for row in rows
    ]
    dense = " dense" if len(rows) > 16 else ""
    return el("div", drawn, class_=("bars wide" if wide else "bars") + dense)


def _part(kind: str, share: float, tooltip: str) -> Markup | None:
    width = 100 * min(max(share, 0.0), 1.0)
    return el("i", class_=kind, style=f"width:{width:.2f}%", title=tooltip) if width else None


class Cell(msgspec.Struct, frozen=True):
    """One cell of a map: how much of the largest (0 to 1; None = nothing known), and words."""

    share: float | None
    tooltip: str
    text: str = ""


def cells(
    grid: Sequence[Sequence[Cell]],
    left: Sequence[str],
    below: Sequence[str],
    axis: str,
    widest: int = 64,
) -> Markup:
    """A map of cells, darker where more.

    Args:
        left, below: names of rows and columns; shown as far as there is room.
        axis:   what the columns are.
        widest: px of a column at most.
    """
    rows, columns = len(left), len(below)
    row = _TALL if rows <= 8 else _MIDDLE if rows <= 24 else _SMALL
    shown = [
        el("b", cell.text or None, class_=_shade(cell.share), title=cell.tooltip or None)
        for line in grid
        for cell in line
    ]
    size = f"grid-template-columns:repeat({columns},1fr);grid-auto-rows:{row}px"
    every = -(-rows // _LABELLED_ROWS)
    names = [el("span", name if i % every == 0 else None) for i, name in enumerate(left)]
    return el(
        "div",
        el("div", names, class_="left", style=f"grid-auto-rows:{row}px"),
        el("div", shown, class_="cells" if columns <= 64 else "cells tight", style=size),
        el("div", _below([(i + 0.5) / columns for i in range(columns)], below), class_="below"),
        el("div", axis, class_="axis"),
        class_="map" if row > _SMALL else "map fine",
        style=f"max-width:{columns * widest + 120}px",
    )


def _shade(share: float | None) -> str:
    if share is None:
        return "hx"
    return f"h{min(int(share * (SHADES - 1) + 0.999), SHADES - 1) if share > 0 else 0}"


def _below(at: Sequence[float], names: Sequence[str]) -> list[Markup]:
    every = -(-len(names) // _LABELS) if names else 1
    return [
        el("span", name, style=f"left:{100 * x:.2f}%")
        for i, (x, name) in enumerate(zip(at, names, strict=True))
        if i % every == 0
    ]


class Line(msgspec.Struct, frozen=True):
    """A curve: class, points, and an upper edge if it is a band (y is the lower one then)."""

    kind: str
    x: Sequence[float]
    y: Sequence[float]
    upper: Sequence[float] = ()


def lines(
    drawn: Sequence[Line],
    labels: tuple[Sequence[float], Sequence[str]],
    y_unit: tuple[str, float],
    tooltips: Sequence[tuple[float, str]] = (),
    axis: str = "",
    from_zero: bool = True,
) -> Markup:
    """Curves over one axis.

    Args:
        labels: places below the drawing, and their text.
        y_unit:   unit of the vertical axis, and its length in units of the points.
        tooltips: (x, words), one per place that can be pointed at.
        axis:   what the horizontal axis is.
        from_zero: else the vertical axis begins where the values do, if they are close together.
    """
    low = min((min(line.x) for line in drawn), default=0)
    high = max((max(line.x) for line in drawn), default=1)
    wide = (high - low) or 1
    top = max((max(line.upper or line.y) for line in drawn), default=0)
    least = min((min(line.y) for line in drawn), default=0)
    top = max(top, 0) or (0 if least < 0 else y_unit[1])
    span = max(top - least, 0.05 * top)
    near = not from_zero and least >= _CLOSE * top
    bottom = max(least - span, 0.0) if near else min(0.0, least)
    top += 0.08 * (top - bottom)
    unit, scale = y_unit
    marks = ticks(bottom / scale, top / scale)

    def x_of(x: float) -> float:
        return WIDTH * ((x - low) / wide if high > low else 0.5)

    def share(y: float) -> float:
        return (y - bottom) / (top - bottom)

    def y_of(y: float) -> float:
        return HEIGHT * (1 - share(y))

    rules = [el("path", d=f"M0 {y_of(m * scale):.1f}H{WIDTH}", class_="rule") for m in marks]
    curves = [_path(line, x_of, y_of) for line in drawn]
    inside = [el("span", _tick(m), style=f"bottom:{100 * share(m * scale):.2f}%") for m in marks]
    picture = el(
        "svg", rules, curves, _touched(tooltips, x_of),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", preserveAspectRatio="none", role="img",
    )  # fmt: skip
    below = _below([x_of(x) / WIDTH for x in labels[0]], labels[1])
    return el(
        "div",
        el("div", el("em", unit), class_="unit"),
        el("div", inside, class_="ticks"),
        el("div", picture, class_="picture"),
        el("div", below, class_="below"),
        el("div", axis, class_="axis") if axis else None,
        class_="lines",
    )


def _tick(value: float) -> str:
    return f"{value:.10g}"


def _path(line: Line, x_of: Scale, y_of: Scale) -> Markup:
    points = [f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in zip(line.x, line.y, strict=True)]
    if line.upper:
        back = [f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in zip(line.x, line.upper, strict=True)]
        points += reversed(back)
        return el("path", d=f"M{'L'.join(points)}Z", class_=f"band {line.kind}")
    if len(points) == 1:
        points.append(points[0])
    return el("path", d=f"M{'L'.join(points)}", class_=f"line {line.kind}")


def _touched(tooltips: Sequence[tuple[float, str]], x_of: Scale) -> list[Markup]:
    """Unseen columns that show their words when they are pointed at."""
    at = [x_of(x) for x, _ in tooltips]
    borders = [0.0, *((a + b) / 2 for a, b in pairwise(at)), float(WIDTH)]
    return [
        el("rect", el("title", words), x=f"{low:.1f}", y=0, width=f"{max(high - low, 0):.1f}",
           height=HEIGHT, class_="touch")
        for (_, words), (low, high) in zip(tooltips, pairwise(borders), strict=False)
    ]  # fmt: skip
