"""The parts of a report or a comparison, in any format.

A page is a sequence of :class:`Section`; a section is a sequence of blocks. The renderers are
:mod:`traceconv.report.html`, which draws all of them, and :mod:`traceconv.report.markdown`, which
writes texts, tables and cards: every drawing is followed by the table of its figures, folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from traceconv.report import figures as say


class Styled(msgspec.Struct, frozen=True):
    """The text of a cell or a card, and how it is shown.

    Attributes:
        kind:  "figure" (aligned right), "code", "query" (code that is copied), or the colour of a
            tag: "bad", "doubt", "plain".
        exact: shown where one points at it.
        more:  lines that are folded below.
        span:  where it is in the trace: start and end, ns.
    """

    text: str
    kind: str = "figure"
    exact: str = ""
    more: Sequence[str] = ()
    span: tuple[int, int] | None = None


Cell: TypeAlias = "str | int | Styled"


def time(ns: int | None) -> Cell:
    """A length of time; the exact one in its tooltip."""
    return Styled(say.UNKNOWN) if ns is None else Styled(say.time(ns), exact=say.exact(ns))


class Text(msgspec.Struct, frozen=True):
    """A paragraph. Text between backticks is code.

    Attributes:
        kind: "words", "note" or "verdict".
    """

    words: str
    kind: str = "words"


class Table(msgspec.Struct, frozen=True):
    """Rows of cells."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def is_figure(self, column: int) -> bool:
        """Whether a column holds figures only."""
        cells = [row[column] for row in self.rows]
        return bool(cells) and all(
            isinstance(cell, int) or (isinstance(cell, Styled) and cell.kind == "figure")
            for cell in cells
        )


class Legend(msgspec.Struct, frozen=True):
    """What colours mean: (class, words)."""

    entries: Sequence[tuple[str, str]]


class Bar(msgspec.Struct, frozen=True):
    """One bar.

    Attributes:
        name:  in front of it; ``note`` in small letters after that.
        parts: (class, share of the drawing's width from 0 to 1, tooltip), side by side.
        end:   the figure after it.
        marked: whether it is the one to look at.
    """

    name: str
    parts: Sequence[tuple[str, float, str]]
    end: str
    note: str = ""
    marked: bool = False


class Bars(msgspec.Struct, frozen=True):
    """Bars below each other; ``wide`` puts each name on a separate line on narrow screens."""

    rows: Sequence[Bar]
    wide: bool = False


class HeatCell(msgspec.Struct, frozen=True):
    """One cell of a map: its place between the smallest and the largest (None: not known)."""

    share: float | None
    tooltip: str
    text: str = ""


class HeatMap(msgspec.Struct, frozen=True):
    """Cells that are darker where there is more.

    Attributes:
        rows, columns: names; shown as far as there is room.
        axis:   what the columns are.
        scale:  the smallest and the largest value, in words.
        widest: px of a column at most.
        marked: names of rows to look at.
    """

    grid: Sequence[Sequence[HeatCell]]
    rows: Sequence[str]
    columns: Sequence[str]
    axis: str
    scale: tuple[str, str]
    widest: int = 64
    marked: Sequence[str] = ()


class Line(msgspec.Struct, frozen=True):
    """A curve: class, points, and an upper edge if it is a band (y is the lower one then)."""

    kind: str
    x: Sequence[float]
    y: Sequence[float]
    upper: Sequence[float] = ()


class Lines(msgspec.Struct, frozen=True):
    """Curves over one axis.

    Attributes:
        labels: places below the drawing, and their text.
        unit:   of the vertical axis, and its length in units of the points.
        tooltips: (x, words), one per place that can be pointed at.
        axis:   what the horizontal axis is.
        from_zero: else the vertical axis goes from the smallest value to the largest.
    """

    lines: Sequence[Line]
    labels: tuple[Sequence[float], Sequence[str]]
    unit: tuple[str, float]
    tooltips: Sequence[tuple[float, str]] = ()
    axis: str = ""
    from_zero: bool = True


class Place(msgspec.Struct, frozen=True):
    """A slice of a trace, and the query that finds it in a viewer, or ""."""

    words: str
    query: str
    span: tuple[int, int]


class Card(msgspec.Struct, frozen=True):
    """A finding: its severity, what it is, the facts, what to do, where to look."""

    severity: str
    title: str
    text: str = ""
    facts: Sequence[str] = ()
    advice: str = ""
    places: Sequence[Place] = ()


class Cards(msgspec.Struct, frozen=True):
    """Findings below each other."""

    cards: Sequence[Card]


class Figures(msgspec.Struct, frozen=True):
    """Drawings side by side, each below its title."""

    drawings: Sequence[tuple[str, Sequence[Any]]]


class Folded(msgspec.Struct, frozen=True):
    """Blocks that a reader opens."""

    title: str
    blocks: Sequence[Any]


Block: TypeAlias = "Text | Table | Legend | Bars | HeatMap | Lines | Cards | Figures | Folded"


class Section(msgspec.Struct, frozen=True):
    """A part of a page, which ``#key`` leads to; ``folded`` ones are opened by their title."""

    key: str
    title: str
    blocks: Sequence[Block]
    folded: bool = False
