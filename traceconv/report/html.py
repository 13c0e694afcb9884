"""The report as one page: no script, nothing fetched, readable in light and in dark.

The page is made of the same document that :meth:`traceconv.Report.as_dict` returns. All text goes through
:mod:`traceconv.report.markup`; the page's own security policy forbids scripts and requests, so
that a name which got through could still do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from string import Template
from typing import Any

from traceconv.report import figures as say
from traceconv.report import page_charts as charts
from traceconv.report import page_tables as tables
from traceconv.report.markup import Markup, el, esc, join

Document = Mapping[str, Any]

NO_ANALYSIS = "not analysed: this run was asked for no views"

_CHARTS: tuple[tuple[str, str, str, Callable[[Any], Markup]], ...] = (
    (
        "overlap",
        "Where the time goes",
        "The mean step of every rank, divided into four classes that do not overlap.",
        charts.overlap,
    ),
    (
        "steps",
        "Step times",
        "From the beginning to the end of every step, as marked.",
        charts.steps,
    ),
    ("heat", "Who is behind, step by step", "", charts.heat),
    (
        "communication",
        "Communication",
        "Elapsed time of whole operations, summed over ranks, by kind and group of ranks.",
        charts.communication,
    ),
    (
        "links",
        "Traffic between ranks",
        "Bytes from the rank of the row to the rank of the column, numbered within the group; "
        "the diagonal stays on the chip.",
        charts.links,
    ),
    ("operators", "Operators", "", charts.operators),
    (
        "curves",
        "Queues and memory",
        "Per measure the ranks that go highest, and the one that stays lowest.",
        charts.curves,
    ),
)

_HEAT = {
    "lateness": "The most that a rank came later than the others to one collective of the step: "
    "the time it spent inside is compared, so clocks do not matter. The others waited for "
    "ranks in a strong colour; one that was held up itself hands that on.",
    "computing": "No collectives are shared, so computing is compared: by how much a rank computed "
    "longer than the median of all.",
}


def page(document: Document) -> str:
    """The whole page.

    Args:
        document: of :meth:`traceconv.Report.as_dict`, with its "overview" if there is one.
    """
    template = Template(
        files("traceconv.report").joinpath("report.html").read_text(encoding="utf-8")
    )
    title = f"traceconv: {say.ranks(document['ranks'])}"
    sections = list(_sections(document))
    index = [el("a", name, href=f"#{key}") for key, name, _ in sections]
    body = [
        _head(document),
        el("nav", index, aria_label="sections"),
        [_section(*section) for section in sections],
    ]
    made_by = esc(document["traceconv"])
    return template.substitute(title=esc(title), body=join(body), version=made_by)


def _head(document: Document) -> Markup:
    overview = document.get("overview") or {}
    sentences = overview.get("sentences", ())
    kinds = ", ".join(sorted({c["reader"] for c in document["captures"]}))
    chips = [say.ranks(document["ranks"]), kinds, document["mode"]]
    return el(
        "header",
        el("p", [el("span", chip) for chip in chips if chip], class_="chips"),
        el("h1", overview.get("headline") or f"Report on {say.ranks(document['ranks'])}"),
        el("p", _kept_together(" ".join(sentences)), class_="verdict") if sentences else None,
        _tiles(overview.get("tiles", ())),
        [el("p", remark, class_="note") for remark in overview.get("remarks", ())],
    )


def _kept_together(text: str) -> str:
    """No line break between a figure and its unit."""
    return re.sub(r"(?<=\d) (?=(?:%|[mµun]?s)\b|%)", "\u00a0", text)


def _tiles(tiles: Any) -> Markup | None:
    if not tiles:
        return None
    drawn = [
        el("div", el("span", tile["name"]), el("strong", tile["value"]), el("small", tile["note"]))
        for tile in tiles
    ]
    return el("div", drawn, class_="tiles")


Piece = tuple[str, str, Markup]


def _sections(document: Document) -> Iterator[Piece]:
    overview = document.get("overview")
    if overview:
        for key, title, words, draw in _CHARTS:
            yield key, title, _drawn(key, overview[key], words, draw)
            if key == "overlap":
                yield "findings", "Findings", _findings(overview)
    else:
        yield "findings", "Findings", el("p", NO_ANALYSIS, class_="missing")
    yield "clock", "Clocks", tables.clock(document["clock"])
    yield "issues", "Issues", _listed(document["issues"], tables.issues, "nothing was lost")
    yield "dropped", "Left out", _listed(document["dropped"], tables.plain, "nothing: no limit met")
    yield "ranks", "What was read", tables.captures(document["captures"])
    if document["written"]:
        yield "written", "What was written", tables.plain(document["written"], ("issues",))


def _findings(overview: Document) -> Markup:
    found, places = overview["findings"], overview["places"]
    none = el("p", "no rule found anything to say", class_="missing")
    parts = [tables.findings(found) if found else none]
    if places:
        head = f"The {len(places)} longest stretches without work"
        parts.append(el("details", el("summary", head), tables.places(places)))
    if unchecked := overview["not_checked"]:
        parts.append(_unchecked(unchecked))
    if found or places:
        parts.append(_how_to_look())
    return join(parts)


def _unchecked(rules: Any) -> Markup:
    head = f"{len(rules)} rules could not look: what they would need"
    lines = [
        el("li", el("code", one["rule"]), f" needs {one['needs']}",
           f" ({say.ranks(one['ranks'])})" if one["ranks"] else None)
        for one in rules
    ]  # fmt: skip
    return el("details", el("summary", head), el("ul", lines))


def _how_to_look() -> Markup:
    return el(
        "p",
        "To find one in ui.perfetto.dev, open the merged trace, type a colon into the search box, "
        "paste the line that begins with SELECT behind it, and click the row found; searching "
        "for the name works as well. Times count from the beginning of the trace.",
        class_="note",
    )


def _drawn(key: str, section: Document, words: str, draw: Callable[[Any], Markup]) -> Markup:
    if "missing" in section:
        return el("p", section["missing"], class_="missing")
    if key == "overlap" and section["per"] == "capture":
        words = "No step has device work, so the whole capture of every rank is shown."
    words = words or section.get("by", "") or _HEAT.get(section.get("what", ""), "")
    return join([el("p", words, class_="words"), draw(section), _figures(key, section)])


def _figures(key: str, section: Document) -> Markup | None:
    """The exact figures below a drawing."""
    if key == "overlap":
        told = charts.overlap_table(section)
    elif key in ("operators", "communication"):
        told = tables.plain(section["rows"])
    elif key == "curves" and section.get("queues"):
        told = tables.plain(section["queues"])
    else:
        return None
    return el("details", el("summary", "figures"), told)


def _listed(rows: Any, draw: Callable[[Any], Markup], nothing: str) -> Markup:
    return draw(rows) if rows else el("p", nothing, class_="missing")


def _section(key: str, title: str, content: Markup) -> Markup:
    return el("section", el("h2", title), content, id=key)
