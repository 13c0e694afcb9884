"""Sections as Markdown: texts, tables and findings; drawings are left to the tables below them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from traceconv.core.markup import visible
from traceconv.core.patterns import lazy_regex
from traceconv.report.blocks import Block, Card, Cards, Cell, Folded, Mark, Section, Table, Text
from traceconv.report.report_page import analysis

_ACTIVE = lazy_regex(r"(`[a-z_]+(?:=\w+)?`)|([\\`*_{}\[\]<>|#])")
"""The name of an option, which is code, and signs that Markdown would take for markup."""


def lines(overview: Mapping[str, Any] | None) -> list[str]:
    """The lines of an overview (:mod:`traceconv.report.run_summary`); none without one."""
    if overview is None:
        return []
    verdict = overview["verdict"]
    told = [f"## {text(verdict['text'])}", "", text(verdict["lost"])]
    told += ["", f"**What to do:** {text(verdict['advice'])}"] * bool(verdict["advice"])
    helps = [f"- {text(one['text'])}: {_code(one['change'])}" for one in overview["what_if"]]
    told += ["", "What would help most, replayed:", "", *helps] * bool(helps)
    told += ["", text(" ".join(overview["sentences"]))]
    told += ["", *(f"- {text(remark)}" for remark in overview["remarks"])]
    return [*told, "", *(line for one in analysis(overview) for line in section(one))]


def section(one: Section, level: int = 2) -> list[str]:
    """The lines of a section, and an empty one."""
    parts = [part for part in (_block(block) for block in one.blocks) if part]
    return [f"{'#' * level} {one.title}", "", *(line for part in parts for line in (*part, ""))]


def _block(one: Block) -> list[str]:
    if isinstance(one, Text):
        return [text(one.words)]
    if isinstance(one, Table):
        return table(one.head, one.rows)
    if isinstance(one, Cards):
        return [line for card in one.cards for line in _card(card)]
    if isinstance(one, Folded):
        return [line for block in one.blocks for line in _block(block)]
    return []


def text(value: object) -> str:
    """Text that shows as it is, on one line."""
    shown = visible(" ".join(str(value).split()))
    return _ACTIVE.sub(lambda match: match[1] or f"\\{match[2]}", shown)


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """The lines of a table."""
    shown = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *shown]


def _cell(cell: Cell) -> str:
    if isinstance(cell, Mark):
        shown = _code(cell.text) if cell.kind in ("query", "code") else text(cell.text)
        return f"{shown}: {text('; '.join(cell.more))}" if cell.more else shown
    return text(cell)


def _card(card: Card) -> Iterator[str]:
    yield f"- **{card.severity}: {text(card.title)}**: {text(card.text)}"
    if card.facts:
        yield f"  - {text('; '.join(card.facts))}"
    if card.advice:
        yield f"  - {text(card.advice)}"
    for place in card.places:
        yield f"  - {text(place.words)}" + (f": {_code(place.query)}" if place.query else "")


def _code(words: str) -> str:
    """Text between more backticks than it holds in a row; bars would end a cell."""
    words = visible(" ".join(words.split())).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", words)), default=0) + 1)
    return f"{fence} {words} {fence}" if "`" in words else f"`{words}`"
