"""The analysis of a report as Markdown: the same figures as on the page, as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from traceconv.analysis.rules.findings import MINOR
from traceconv.core.clock import stamp_text
from traceconv.core.markup import visible
from traceconv.core.patterns import lazy_regex
from traceconv.report import figures as say
from traceconv.report.page_charts import INPUT_WAIT, classes

Section = Mapping[str, Any]

_ACTIVE = lazy_regex(r"([\\`*_{}\[\]<>|#])")


def lines(overview: Section | None) -> list[str]:
    """The lines of an overview (:mod:`traceconv.report.run_summary`); none without one."""
    if overview is None:
        return []
    parts: list[list[str]] = [
        [f"## {text(overview['headline'])}", "", text(" ".join(overview["sentences"]))],
        [f"- {text(remark)}" for remark in overview["remarks"]],
        list(_findings(overview["findings"])),
        [text(f"{MINOR}: {', '.join(overview['minor'])}")] * bool(overview["minor"]),
        _part("Where the time goes", overview["overlap"], _overlap),
        _part("Step times", overview["steps"], _steps),
        []
        if "missing" in (at := overview["shape"])
        else _part("Ranks at their coordinates", at, _shape),
        []
        if "missing" in (at := overview["stages"])
        else _part("Stages of the pipeline", at, _rows),
        _part("Who is behind, step by step", overview["heat"], _heat),
        _part("What bounds a step", overview["critical_path"], _path),
        _part("Communication", overview["communication"], _rows),
        _part("Traffic between ranks", overview["links"], _links),
        _part("Operators", overview["operators"], _rows),
        _part("Queues and memory", overview["curves"], _curves),
    ]
    return [line for part in parts if part for line in (*part, "")][:-1]


def _part(title: str, section: Section, render: Any) -> list[str]:
    body = [section["missing"]] if "missing" in section else list(render(section))
    return [f"## {title}", "", *body]


def text(value: Any) -> str:
    """Text that shows as it is, on one line."""
    return _ACTIVE.sub(r"\\\1", visible(" ".join(str(value).split())))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of a table."""
    shown = [f"| {' | '.join(text(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *shown]


def _findings(found: Sequence[Section]) -> Iterator[str]:
    yield from ("## Findings", "")
    if not found:
        yield "No rule reports anything."
    for one in found:
        yield f"- **{one['severity']}: {text(one['title'])}**: {text(one['text'])}"
        if one["evidence"]:
            yield f"  - {text('; '.join(one['evidence']))}"
        if one["also"]:
            yield f"  - also: {text(', '.join(one['also']))}"
        if one["advice"]:
            yield f"  - {text(one['advice'])}"
        for place in one["places"]:
            where = f"  - {text(place['name'])} of rank {place['rank']}{_lane(place)} at "
            where += stamp_text(place["start_ns"])
            if place["query"]:
                where += f", {say.time(place['dur_ns'])} long: {_code(place['query'])}"
            yield where


def _lane(place: Section) -> str:
    return f" on {text(place['lane'])}" if place["lane"] else ""


def _code(text: str) -> str:
    """Text between more backticks than it holds in a row."""
    text = visible(" ".join(text.split()))
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def _overlap(section: Section) -> Iterator[str]:
    shown = classes(section["rows"])
    keys = ("known_ns", *(key for key, _, _ in shown))
    head = ("rank", "steps", "known", *(words for _, _, words in shown), INPUT_WAIT)
    yield from table(
        head,
        [
            (
                *(row["rank"], row["steps"], *(say.exact(row[key]) for key in keys)),
                say.waiting(row),
            )
            for row in section["rows"]
        ],
    )


def _steps(section: Section) -> Iterator[str]:
    yield from table(
        ("rank", "step", "duration"),
        [
            (row["rank"], step, say.exact(dur))
            for row in section["rows"]
            for step, dur in zip(row["step"], row["dur_ns"], strict=True)
        ],
    )


def _shape(section: Section) -> Iterator[str]:
    yield from (text(section["text"]), "")
    names = ["rank", *(one["name"] for one in section["axes"]), "computing_ns"]
    head = [name.removesuffix("_ns") for name in names]
    yield from table(head, [[_cell(name, row[name]) for name in names] for row in section["rows"]])


def _heat(section: Section) -> Iterator[str]:
    yield from table(
        ("behind by", *(f"step {step}" for step in section["steps"])),
        [
            (
                say.ranks(row["ranks"]),
                *(say.UNKNOWN if v is None else say.exact(v) for v in row["late_ns"]),
            )
            for row in section["rows"]
        ],
    )


def _path(section: Section) -> Iterator[str]:
    yield from (text(section["text"]), "")
    yield from _rows(section)


def _rows(section: Section) -> Iterator[str]:
    rows = section["rows"]
    names = list(dict.fromkeys(key for row in rows for key in row))
    head = [name.removesuffix("_ns").replace("_", " ") for name in names]
    yield from table(head, [[_cell(name, row.get(name)) for name in names] for row in rows])


def _cell(name: str, value: Any) -> str:
    if value in (None, ""):
        return say.UNKNOWN
    if name.endswith("_ns"):
        return say.exact(value)
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _links(section: Section) -> Iterator[str]:
    yield from table(
        ("group", "from", "to", "bytes", "time", "transport"),
        [
            (group["group"] or say.UNKNOWN, cell["source"], cell["destination"],
             _cell("bytes", cell["bytes"]), say.exact_or_unknown(cell["time_ns"]),
             ", ".join(cell["transport"]))
            for group in section["groups"]
            for cell in group["cells"]
        ],
    )  # fmt: skip


def _curves(section: Section) -> Iterator[str]:
    yield from table(
        ("measure", "rank", "highest", "lowest", "last"),
        [
            (one["title"], line["rank"],
             *(say.amount(v, one["unit"]) for v in (max(line["y"]), min(line["y"]), line["y"][-1])))
            for one in section.get("drawings", ())
            for line in one["lines"]
        ],
    )  # fmt: skip
