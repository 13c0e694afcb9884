"""Draws the picture in the README: a merged trace as SVG, as a viewer would lay it out.

python docs/draw.py golden/trace_view/demo/input docs/demo.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from zlib import crc32

import traceconv
from traceconv.core.model import Kind, Layer, Trace, Track

WIDTH, LEFT, ROW, GAP = 1000, 250, 13, 3
LAYERS = (Layer.STEP, Layer.OVERLAP, Layer.DEVICE, Layer.COMM)
STYLE = (
    "text{font:9px system-ui,sans-serif;fill:#57606a}.h{font-weight:600;fill:#24292f}"
    ".r{font-size:11px;font-weight:700;fill:#24292f}.s{font-size:8px;fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#9198a1}.h,.r{fill:#e6edf3}}"
)


def main(source: str, target: str) -> None:
    """Draw the detail view of everything below ``source``."""
    traces = list(traceconv.open(source).traces("detail", align_by="auto"))
    spans = [trace.span() for trace in traces]
    first = min(span[0] for span in spans if span)
    last = max(span[1] for span in spans if span)
    body, y = [], GAP
    for trace in traces:
        for line, height in drawn(trace, first, last, y):
            body.append(line)
            y += height
        y += 2 * GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}">'
    Path(target).write_text("\n".join([head, f"<style>{STYLE}</style>", *body, "</svg>", ""]))


def drawn(trace: Trace, first: int, last: int, y: int) -> Iterator[tuple[str, int]]:
    """The lines of one rank, each with the height it takes."""
    yield f'<text class="r" x="4" y="{y + 11}">Rank {trace.rank}</text>', ROW + GAP
    y += ROW + GAP
    heading = ""
    for number, track in enumerate(trace.tracks):
        if track.layer not in LAYERS:
            continue
        if track.heading != heading:
            heading = track.heading
            yield f'<text class="h" x="14" y="{y + 10}">{escape(heading)}</text>', 0
        yield f'<text x="120" y="{y + 10}">{escape(label(track))}</text>', 0
        for shape in slices(trace, number, first, last, y):
            yield shape, 0
        yield "", ROW + GAP
        y += ROW + GAP


def label(track: Track) -> str:
    """What stands beside a lane: nothing beside a sub-lane."""
    if track.lane:
        return ""
    named = track.name.startswith(track.group)
    return track.name if named else f"{track.group} {track.name}"


def slices(trace: Trace, number: int, first: int, last: int, y: int) -> Iterator[str]:
    """The outermost slices of a lane as boxes, named where there is room."""
    scale = (WIDTH - LEFT - 4) / (last - first)
    events = trace.events
    rows = (events.track == number) & (events.kind == Kind.SLICE)
    reach = first - 1
    for start, dur, name in zip(
        events.start_ns[rows].tolist(),
        events.dur_ns[rows].tolist(),
        events.name[rows].tolist(),
        strict=True,
    ):
        if start < reach:
            continue
        reach = start + dur
        x, width = LEFT + (start - first) * scale, max(dur * scale, 0.4)
        text = trace.strings[name]
        yield (
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" fill="{colour(text)}">'
            f"<title>{escape(text)}</title></rect>"
        )
        if width > 6 * len(text):
            yield f'<text class="s" x="{x + 2:.1f}" y="{y + 9}">{escape(text)}</text>'


def colour(name: str) -> str:
    """A colour that is the same for names that differ in numbers only."""
    plain = "".join(c for c in name if not c.isdigit()).encode()
    return f"hsl({crc32(plain) * 137 % 360} 45% 48%)"


if __name__ == "__main__":
    main(*sys.argv[1:])
