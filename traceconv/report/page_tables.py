"""The tables of a page: findings, places, clocks, ranks, issues, what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traceconv.core.markup import Markup, el, join
from traceconv.report import figures as say
from traceconv.report.page_charts import table

Row = Mapping[str, Any]

_ALSO = 10  # further places named beside a finding
_GRAVITY = {"loss": 0, "doubt": 1, "info": 2}


def findings(found: Sequence[Row]) -> Markup:
    """One card per finding: what, how sure, where to look."""
    return el("div", [_finding(one) for one in found], class_="findings")


def _finding(one: Row) -> Markup:
    evidence = [el("li", line) for line in one.get("evidence", ())]
    also = one.get("also", ())
    more = f" and {len(also) - _ALSO} more" if len(also) > _ALSO else ""
    return el(
        "article",
        el("h3", el("span", one["severity"], class_=f"tag {_tag(one)}"), one["title"]),
        el("p", one["text"]) if one.get("text") else None,
        el("ul", evidence, class_="facts") if evidence else None,
        el("p", "also: ", ", ".join(also[:_ALSO]), more, class_="advice") if also else None,
        el("p", one["advice"], class_="advice") if one.get("advice") else None,
        _places(one.get("places", ())),
    )


def _tag(one: Row) -> str:
    return "bad" if one["severity"] == "warning" else "plain"


def _places(found: Sequence[Row]) -> Markup:
    """The first one, and the others folded away."""
    drawn = [_place(place) for place in found]
    head = f"{len(drawn) - 1} more place{'s' * (len(drawn) > 2)} to look at"
    folded = el("details", el("summary", head), drawn[1:]) if drawn[1:] else None
    return join([drawn[:1], folded])


def _place(place: Row) -> Markup:
    """A slice, and the words that find it in a viewer."""
    lane = f" on {place['lane']}" if place.get("lane") else ""
    return el(
        "div",
        el("p", el("strong", place["name"] or "(no name)"),
           f" of rank {place['rank']}{lane}, at {say.stamp(place['start_ns'])}, "
           f"{say.time(place['dur_ns'])} long"),
        el("code", place["query"]),
        class_="place",
    )  # fmt: skip


def places(found: Sequence[Row]) -> Markup:
    """The longest stretches without work."""
    head = ("what", "rank", "at", "length", "lane", "find it")
    rows = [
        (p["what"], p["rank"], say.stamp(p["start_ns"]), say.time(p["dur_ns"]), p["lane"],
         el("code", p["query"], class_="sql"))
        for p in found
    ]  # fmt: skip
    return table(head, rows, right=(1, 2, 3))


def clock(told: Row) -> Markup:
    """Offset and error of every rank."""
    rows = [
        (
            rank,
            one["method"],
            say.exact(int(one["offset_ns"])),
            _error(one, len(told["ranks"])),
            f"{one['drift_ppt'] / 1e6:.3f} ppm" if one.get("drift_ppt") else "-",
            one.get("matches") or "-",
            one["evidence"],
        )
        for rank, one in told.get("ranks", {}).items()
    ]
    head = ("rank", "method", "offset", "error", "drift", "matches", "from")
    return join([el("p", told["text"]), table(head, rows, right=(0, 2, 3, 4, 5))])


def _error(one: Row, ranks: int) -> str:
    """As :meth:`traceconv.alignment.plan.Plan.error_ns` counts it."""
    error = one.get("error_ns")
    if error is None:
        error = 0 if one["method"] == "host" or ranks == 1 else one.get("spread_ns")
    return "unknown" if error is None else f"± {say.time(error)}" if error else "none"


def captures(told: Sequence[Row]) -> Markup:
    """What was read."""
    head = ("rank", "format", "capture", "host", "device", "rank from", "size")
    rows = [
        (c["rank"], c["reader"], c["label"], c["host"] or "-",
         "-" if c["device"] in (None, -1) else c["device"], c["rank_from"], say.size(c["bytes"]))
        for c in told
    ]  # fmt: skip
    return table(head, rows, right=(0, 6))


def issues(told: Sequence[Row]) -> Markup:
    """What was lost or is in doubt: one row per code, its files folded away."""
    groups: dict[str, list[Row]] = {}
    for issue in sorted(told, key=lambda i: _GRAVITY[i["severity"]]):
        groups.setdefault(issue["code"], []).append(issue)
    rows = [
        (
            el("span", group[0]["severity"], class_=f"tag {_grave(group[0])}"),
            el("code", code),
            sum(one["count"] for one in group),
            join([el("p", group[0]["advice"]), _where(group)]),
        )
        for code, group in groups.items()
    ]
    return table(("severity", "code", "count", "what it means, and where"), rows, right=(2,))


def _grave(issue: Row) -> str:
    return {"loss": "bad", "doubt": "doubt"}.get(issue["severity"], "plain")


_FILES = 20


def _where(group: Sequence[Row]) -> Markup | None:
    told = [
        f"{'' if one['rank'] < 0 else 'rank ' + str(one['rank']) + ': '}{one['file'] or 'the run'} "
        f"×{one['count']}{': ' if one['places'] else ''}{'; '.join(one['places'])}"
        for one in group[:_FILES]
    ]
    if len(group) > _FILES:
        told.append(f"and {len(group) - _FILES} more (all in the JSON report)")
    head = f"{len(group)} place{'s' * (len(group) > 1)}"
    return el("details", el("summary", head), el("ul", [el("li", line) for line in told]))


def plain(rows: Sequence[Row], leave_out: Sequence[str] = ()) -> Markup:
    """Rows as they are, a column per key."""
    names = [n for n in dict.fromkeys(k for row in rows for k in row) if n not in leave_out]
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    figures = {
        i for i, n in enumerate(names) if all(isinstance(r.get(n), (int, float)) for r in rows)
    }
    return table([n.replace("_", " ") for n in names], cells, right=figures)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return say.digits(value)
    if isinstance(value, Mapping):
        value = [f"{key} {one}" for key, one in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
