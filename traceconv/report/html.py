"""The report as one page: nothing fetched, readable in light and in dark, on paper, on a phone.

The page is made of the same document that :meth:`traceconv.Report.as_dict` returns. All text goes
through :mod:`traceconv.core.markup`; the page's own security policy forbids requests and all
scripts but the one of this room, by its digest: a name which got through could still do nothing.
That script sorts, filters, chooses and zooms; without it the page says the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from traceconv.analysis.rules.findings import MINOR
from traceconv.core.clock import stamp_text
from traceconv.core.markup import Markup, el, esc, join
from traceconv.report import figures as say
from traceconv.report import page_charts as charts

Document = Mapping[str, Any]

_TEMPLATE, _SCRIPT = (Path(__file__).with_name(f"report.{ending}") for ending in ("html", "js"))

NO_ANALYSIS = "not analysed: this run was asked for no views"

_CHARTS: tuple[tuple[str, str, str, Callable[[Any], Markup]], ...] = (
    (
        "overlap",
        "Where the time goes",
        "The mean step of every rank - of its devices, where it has several - divided into five "
        "classes that do not overlap.",
        charts.overlap,
    ),
    (
        "steps",
        "Step times",
        "From the beginning to the end of every step, as marked.",
        charts.steps,
    ),
    (
        "shape",
        "Ranks at their coordinates",
        "What each rank computes per step, ranks where they stand in the job.",
        charts.shape,
    ),
    (
        "stages",
        "Stages of the pipeline",
        "A step of each stage, the mean over its ranks: its passes, from their first task to the "
        "last, and bubbles, in which it does nothing but send or receive.",
        charts.stages,
    ),
    ("heat", "Who is behind, step by step", "", charts.heat),
    (
        "critical_path",
        "What bounds a step",
        "The critical path over all ranks: what of it is on each.",
        lambda section: join(
            [el("p", _kept_together(section["text"])), _plain_table(section["rows"], time=say.time)]
        ),
    ),
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
    sections = list(_sections(document))
    index = [el("a", name, href=f"#{key}") for key, name, _ in sections]
    body = [
        _head(document),
        el("nav", index, aria_label="sections"),
        [section(*one) for one in sections],
    ]
    return framed(f"traceconv: {say.ranks(document['ranks'])}", body, document["traceconv"])


def framed(title: str, body: object, version: str) -> str:
    """A page around markup, with the style and the security policy of all pages, which names the
    SHA-256 of the script: a test compares them.

    Args:
        version: of the program that made what is shown.
    """
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    script = _SCRIPT.read_text(encoding="utf-8")
    return template.substitute(
        title=esc(title), body=join(body), version=esc(version), script=script
    )


def _head(document: Document) -> Markup:
    overview = document.get("overview") or {}
    sentences = overview.get("sentences", ())
    kinds = ", ".join(sorted({c["reader"] for c in document["captures"]}))
    chips = [say.ranks(document["ranks"]), kinds, document["mode"]]
    return el(
        "header",
        el("p", [el("span", chip) for chip in chips if chip], class_="chips"),
        el(
            "h1",
            _kept_together(overview.get("headline") or f"Report on {say.ranks(document['ranks'])}"),
        ),
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
            if key in ("shape", "stages") and "missing" in overview[key]:
                continue  # of one rank, and of most small jobs, there is no more to say
            yield key, title, _drawn(key, overview[key], words, draw)
            if key == "overlap":
                yield "findings", "Findings", _findings(overview)
    else:
        yield "findings", "Findings", el("p", NO_ANALYSIS, class_="missing")
    yield "clock", "Clocks", _clock_table(document["clock"])
    yield "issues", "Issues", _listed(document["issues"], _issues_table, "nothing was lost")
    yield "dropped", "Left out", _listed(document["dropped"], _plain_table, "nothing: no limit met")
    yield "ranks", "What was read", _captures_table(document["captures"])
    if document["written"]:
        yield "written", "What was written", _plain_table(document["written"], ("issues",))


def _findings(overview: Document) -> Markup:
    found, places = overview["findings"], overview["places"]
    none = el("p", "no rule found anything to say", class_="missing")
    parts = [_finding_cards(found) if found else none]
    if places:
        head = f"The {len(places)} longest stretches without work"
        parts.append(el("details", el("summary", head), _places_table(places)))
    if overview["minor"]:
        parts.append(el("p", f"{MINOR}: {', '.join(overview['minor'])}", class_="note"))
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
        shown = charts.overlap_table(section)
    elif key in ("operators", "communication", "stages"):
        shown = _plain_table(section["rows"])
    elif key == "curves" and section.get("queues"):
        shown = _plain_table(section["queues"])
    else:
        return None
    return el("details", el("summary", "figures"), shown)


def _listed(rows: Any, draw: Callable[[Any], Markup], nothing: str) -> Markup:
    return draw(rows) if rows else el("p", nothing, class_="missing")


def section(key: str, title: str, content: Markup) -> Markup:
    """A part of a page, which ``#key`` leads to."""
    return el("section", el("h2", title), content, id=key)


# -- tables of the page ---------------------------------------------------------------------------

_ALSO = 10  # further places named beside a finding
_SEVERITY = {"loss": 0, "doubt": 1, "info": 2}


def _finding_cards(found: Sequence[Document]) -> Markup:
    """One card per finding: what, how sure, where to look."""
    return el("div", [_finding(one) for one in found], class_="findings")


def _finding(one: Document) -> Markup:
    evidence = [el("li", line) for line in one.get("evidence", ())]
    also = one.get("also", ())
    more = f" and {len(also) - _ALSO} more" if len(also) > _ALSO else ""
    return el(
        "article",
        el("h3", el("span", one["severity"], class_=f"tag {_tag(one)}"), one["title"]),
        el("p", one["text"]) if one.get("text") else None,
        el("ul", evidence, class_="facts") if evidence else None,
        el("p", "also: ", ", ".join(also[:_ALSO]), more, class_="advice") if also else None,
        el("p", _with_code(one["advice"]), class_="advice") if one.get("advice") else None,
        _places(one.get("places", ())),
    )


def _with_code(text: str) -> list[str | Markup]:
    """Text between backticks as code."""
    return [el("code", part) if i % 2 else part for i, part in enumerate(text.split("`"))]


def _tag(one: Document) -> str:
    return "bad" if one["severity"] == "warning" else "plain"


def _places(found: Sequence[Document]) -> Markup:
    """The first one, and the others folded away."""
    drawn = [_place(place) for place in found]
    head = f"{len(drawn) - 1} more place{'s' * (len(drawn) > 2)} to look at"
    folded = el("details", el("summary", head), drawn[1:]) if drawn[1:] else None
    return join([drawn[:1], folded])


def _place(place: Document) -> Markup:
    """A slice, and the query that finds it in a viewer."""
    lane = f" on {place['lane']}" if place.get("lane") else ""
    return el(
        "div",
        el("p", el("strong", place["name"] or "(no name)"),
           f" of rank {place['rank']}{lane}, at {stamp_text(place['start_ns'])}",
           f", {say.time(place['dur_ns'])} long" if place["query"] else None),
        el("code", place["query"]) if place["query"] else None,
        class_="place", **_stretch(place),
    )  # fmt: skip


def _stretch(place: Document) -> dict[str, str]:
    """Where it is, ns from the beginning of the trace, for what leads into the viewer."""
    start = place["start_ns"]
    return {"data_start": str(start), "data_end": str(start + place["dur_ns"])}


def _places_table(found: Sequence[Document]) -> Markup:
    """The table of the longest idle intervals."""
    head = ("what", "rank", "at", "length", "lane", "find it")
    rows = [
        (p["what"], p["rank"], stamp_text(p["start_ns"]), say.time(p["dur_ns"]), p["lane"],
         el("code", p["query"], class_="sql", **_stretch(p)))
        for p in found
    ]  # fmt: skip
    return charts.table(head, rows, right=(1, 2, 3))


def _clock_table(section: Document) -> Markup:
    """Offset and error of every rank."""
    rows = [
        (
            rank,
            one["method"],
            say.exact(int(one["offset_ns"])),
            _error(one, len(section["ranks"])),
            f"{one['drift_ppt'] / 1e6:.3f} ppm" if one.get("drift_ppt") else say.UNKNOWN,
            one.get("matches") or say.UNKNOWN,
            one["evidence"],
        )
        for rank, one in section.get("ranks", {}).items()
    ]
    head = ("rank", "method", "offset", "error", "drift", "matches", "from")
    return join([el("p", section["text"]), charts.table(head, rows, right=(0, 2, 3, 4, 5))])


def _error(one: Document, ranks: int) -> str:
    """As :meth:`traceconv.alignment.plan.Plan.error_ns` counts it."""
    error = one.get("error_ns")
    if error is None:
        error = 0 if one["method"] == "host" or ranks == 1 else one.get("spread_ns")
    return "unknown" if error is None else f"± {say.time(error)}" if error else "none"


def _captures_table(found: Sequence[Document]) -> Markup:
    """What was read."""
    head = ("rank", "format", "capture", "host", "device", "rank from", "size")
    rows = [
        (c["rank"], c["reader"], c["label"], c["host"] or say.UNKNOWN,
         say.UNKNOWN if c["device"] is None else c["device"],
         c["rank_from"] or say.UNKNOWN, say.size(c["bytes"]))
        for c in found
    ]  # fmt: skip
    return charts.table(head, rows, right=(0, 6))


def _issues_table(found: Sequence[Document]) -> Markup:
    """The losses and warnings: one row per code, with its files collapsed."""
    groups: dict[str, list[Document]] = {}
    for issue in sorted(found, key=lambda i: _SEVERITY[i["severity"]]):
        groups.setdefault(issue["code"], []).append(issue)
    rows = [
        (
            el("span", group[0]["severity"], class_=f"tag {_tag_class(group[0])}"),
            el("code", code),
            sum(one["count"] for one in group),
            join([el("p", group[0]["advice"]), _where(group)]),
        )
        for code, group in groups.items()
    ]
    return charts.table(("severity", "code", "count", "what it means, and where"), rows, right=(2,))


def _tag_class(issue: Document) -> str:
    return {"loss": "bad", "doubt": "doubt"}.get(issue["severity"], "plain")


_FILES = 20


def _where(group: Sequence[Document]) -> Markup | None:
    lines = [
        f"{'' if one['rank'] < 0 else 'rank ' + str(one['rank']) + ': '}{one['file'] or 'the run'} "
        f"×{one['count']}{': ' if one['places'] else ''}{'; '.join(one['places'])}"
        for one in group[:_FILES]
    ]
    if len(group) > _FILES:
        lines.append(f"and {len(group) - _FILES} more (all in the JSON report)")
    head = f"{len(group)} place{'s' * (len(group) > 1)}"
    return el("details", el("summary", head), el("ul", [el("li", line) for line in lines]))


def _plain_table(
    rows: Sequence[Document], leave_out: Sequence[str] = (), time: Callable[[int], str] = say.exact
) -> Markup:
    """Rows as they are, a column per key; ``time`` writes those of ns."""
    names = [n for n in dict.fromkeys(k for row in rows for k in row) if n not in leave_out]
    cells = [[_cell(row.get(name), name, time) for name in names] for row in rows]
    figures = {
        i for i, n in enumerate(names) if all(isinstance(r.get(n), (int, float)) for r in rows)
    }
    heads = [n.removesuffix("_ns").replace("_", " ") for n in names]
    return charts.table(heads, cells, right=figures)


def _cell(value: Any, name: str, time: Callable[[int], str]) -> str:
    if value in (None, ""):
        return say.UNKNOWN
    if name.endswith("_ns") and isinstance(value, int):
        return time(value)
    if isinstance(value, float):
        return say.digits(value)
    if isinstance(value, Mapping):
        value = [f"{key} {one}" for key, one in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
