"""Sections as Markdown: texts, tables and findings; drawings are left to the tables below them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from traceconv.core.markup import visible
from traceconv.core.patterns import lazy_regex
from traceconv.report.blocks import Block, Card, Cards, Cell, Folded, Section, Styled, Table, Text
from traceconv.report.report_page import analysis

_ACTIVE = lazy_regex(r"(`[a-z_]+(?:=\w+)?`)|([\\`*_{}\[\]<>|#])")
"""The name of an option, which is code, and signs that Markdown would take for markup."""


def lines(overview: Mapping[str, Any] | None) -> list[str]:
    """The lines of an overview (:mod:`traceconv.report.run_summary`); none without one."""
    if overview is None:
        return []
    verdict = overview["verdict"]
    texts = [f"## {text(verdict['text'])}", "", text(verdict["lost"])]
    texts += ["", f"**What to do:** {text(verdict['advice'])}"] * bool(verdict["advice"])
    helps = [
        f"- {text(remedy['text'])}: {_code(remedy['change'])}" for remedy in overview["what_if"]
    ]
    texts += ["", "What would help most, replayed:", "", *helps] * bool(helps)
    texts += ["", text(" ".join(overview["sentences"]))]
    texts += ["", *(f"- {text(remark)}" for remark in overview["remarks"])]
    return [*texts, "", *(line for part in analysis(overview) for line in section(part))]


def section(content: Section, level: int = 2) -> list[str]:
    """The lines of a section, and an empty one."""
    listed = [
        block_lines for block_lines in (_block(block) for block in content.blocks) if block_lines
    ]
    return [
        f"{'#' * level} {content.title}",
        "",
        *(line for block_lines in listed for line in (*block_lines, "")),
    ]


def _block(content: Block) -> list[str]:
    if isinstance(content, Text):
        return [text(content.words)]
    if isinstance(content, Table):
        return table(content.head, content.rows)
    if isinstance(content, Cards):
        return [line for card in content.cards for line in _card(card)]
    if isinstance(content, Folded):
        return [line for block in content.blocks for line in _block(block)]
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
    if isinstance(cell, Styled):
        shown = _code(cell.text) if cell.kind in ("query", "code") else text(cell.text)
        return f"{shown.rstrip('.')}: {text('; '.join(cell.more))}" if cell.more else shown
    return text(cell)


def _card(card: Card) -> Iterator[str]:
    yield f"- **{card.severity}: {text(card.title)}**: {text(card.text)}"
    if card.facts:
        yield f"  - {text('; '.join(card.facts))}"
    if card.advice:
        yield f"  - {text(card.advice)}"
    for location in card.places:
        yield f"  - {text(location.words)}" + (
            f": {_code(location.query)}" if location.query else ""
        )


def _code(words: str) -> str:
    """Text between more backticks than it holds in a row; bars would end a cell."""
    words = visible(" ".join(words.split())).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", words)), default=0) + 1)
    return f"{fence} {words} {fence}" if "`" in words else f"`{words}`"
