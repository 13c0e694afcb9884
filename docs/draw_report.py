"""Draws the picture of a report in the README: the head of the page, as SVG.

python docs/draw_report.py golden/trace_view/demo/input docs/report.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import traceconv
from traceconv.report.figures import time

WIDTH, LEFT, RIGHT = 1000, 90, 90
STYLE = (
    ":root{--k0:#2b6cb0;--k1:#86b8e8;--k2:#e0762b;--k3:#c6ced6;--w:#eef1f4}"
    "text{font:13px system-ui,sans-serif;fill:#57606a}.s{font-size:11px}.n{fill:#1a2027}"
    ".h{font-size:22px;font-weight:700}"
    ".t{font-size:15px;font-weight:650}.v{font-size:20px;font-weight:650}.h,.t,.v{fill:#1a2027}"
    ".k0{fill:var(--k0)}.k1{fill:var(--k1)}.k2{fill:var(--k2)}.k3{fill:var(--k3)}"
    ".w{fill:var(--w)}.m{text-anchor:middle}.e{text-anchor:end}"
    "@media(prefers-color-scheme:dark){:root{--k0:#3f87d4;--k1:#a8d0f5;--k2:#f08a3e;--k3:#48535f;"
    "--w:#232b34}text{fill:#9eaab6}.h,.t,.v,.n{fill:#e7ecf1}}"
)
CLASSES = ("pure_compute_ns", "overlapped_ns", "exposed_ns", "idle_ns")
LEGEND = ("computing", "computing and communicating", "exposed communication", "idle")


def main(source: str, target: str) -> None:
    """Draw the report on everything below ``source``."""
    told = (traceconv.diagnose(source, analyse=True).document or {})["overview"]
    body: list[str] = []
    y = 30
    for part in (head, bars, heat):
        lines, ends = zip(*part(told, y), strict=True)
        body += lines
        y = ends[-1] + 34
    size = f'viewBox="0 0 {WIDTH} {y - 14}" width="{WIDTH}"'
    head_line = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>'
    Path(target).write_text("\n".join([head_line, *body, "</svg>", ""]), encoding="utf-8")


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, more: str = "") -> str:
    """A box."""
    place = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}"'
    return f'<rect {place} rx="2" class="{kind}"{more}/>'


def head(told: Mapping[str, Any], y: int) -> Iterator[tuple[str, int]]:
    """Headline, sentences and figures; each line with where the next may begin."""
    yield text(4, y, told["headline"], "h"), y
    for line in wrap(" ".join(told["sentences"]), 140):
        y += 22
        yield text(4, y, line), y
    wide = WIDTH / len(told["tiles"])
    for i, tile in enumerate(told["tiles"]):
        yield box(i * wide + 4, y + 16, wide - 8, 54, "w"), y
        yield text(i * wide + 16, y + 36, tile["name"], "s"), y
        yield text(i * wide + 16, y + 60, tile["value"], "v"), y + 70


def bars(told: Mapping[str, Any], y: int) -> Iterator[tuple[str, int]]:
    """Where the time of each rank goes."""
    yield text(4, y, "Where the time goes", "t"), y
    for i, words in enumerate(LEGEND):
        yield box(4 + 235 * i, y + 12, 12, 12, f"k{i}") + text(22 + 235 * i, y + 23, words), y
    y += 36
    rows = told["overlap"]["rows"]
    scale = (WIDTH - LEFT - RIGHT) / max(row["known_ns"] for row in rows)
    for row in rows:
        x = float(LEFT)
        line = text(4, y + 14, f"rank {row['rank']}")
        for i, key in enumerate(CLASSES):
            line += box(x, y, row[key] * scale, 18, f"k{i}")
            x += row[key] * scale
        yield line + text(WIDTH - 4, y + 14, time(row["known_ns"]), "e"), y + 18
        y += 24


def heat(told: Mapping[str, Any], y: int) -> Iterator[tuple[str, int]]:
    """Who is behind, step by step."""
    yield text(4, y, "Who is behind, step by step", "t"), y
    y += 14
    rows = told["heat"]["rows"]
    most = max(ns for row in rows for ns in row["late_ns"]) or 1
    wide = min((WIDTH - LEFT) / len(told["heat"]["steps"]), 130)
    for row in rows:
        line = text(4, y + 16, f"rank {row['ranks'][0]}")
        for i, ns in enumerate(row["late_ns"]):
            x = LEFT + i * wide
            line += box(x, y, wide - 2, 22, "w")
            line += box(x, y, wide - 2, 22, "k2", f' fill-opacity="{0.7 * ns / most:.2f}"')
            line += text(x + wide / 2, y + 16, time(ns), "m n")
        yield line, y + 22
        y += 24
    for i, step in enumerate(told["heat"]["steps"]):
        yield text(LEFT + (i + 0.5) * wide, y + 14, f"step {step}", "m"), y + 14


if __name__ == "__main__":
    main(*sys.argv[1:])
