"""A comparison as one page, drawn as reports are: nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traceconv.core.markup import Markup, el, join
from traceconv.report import figures as say
from traceconv.report.charts import Bar, Line, bars, legend, lines
from traceconv.report.diff_document import CLASS_WORDS, gate_line, signed
from traceconv.report.diff_text import percent, run_line, waterfall
from traceconv.report.html import framed, section
from traceconv.report.page_charts import table

Document = Mapping[str, Any]

DRAWN = 20
"""Items of the waterfall on a page; the others are drawn as one and listed below."""

LISTED = 1000
"""Single items that are listed; JSON and CSV have all."""

_FEWEST_STEPS = 3
_TAGS = {"slower": "bad", "cannot tell": "doubt", "failed": "bad"}


def page(document: Document) -> str:
    """The whole page.

    Args:
        document: of :func:`traceconv.report.diff_document.document`.
    """
    sections = [
        ("waterfall", "From before to after", _waterfall(document)),
        ("parts", "The parts of a step", _parts(document)),
        ("steps", "Steps", _steps(document)),
        ("items", "Items", _items(document)),
    ]
    if len(document["ranks"]) > 1:
        sections.append(("ranks", "Ranks", _ranks(document)))
    index = [el("a", name, href=f"#{key}") for key, name, _ in sections]
    body = [
        _head(document),
        el("nav", index, aria_label="sections"),
        [section(*one) for one in sections],
    ]
    return framed("traceconv diff", body, document["traceconv"])


def _head(document: Document) -> Markup:
    gates = [el("li", _tag(one["outcome"]), gate_line(one)) for one in document["gates"]]
    return el(
        "header",
        el("p", [el("span", word) for word in _chips(document)], class_="chips"),
        el("h1", document["headline"]),
        [el("p", f"Proven: {one}", class_="verdict") for one in document["proven"]],
        [el("p", run_line(word, document[word]), class_="note") for word in ("before", "after")],
        el("ul", gates, class_="facts") if gates else None,
        [el("p", remark, class_="note") for remark in document["remarks"]],
    )


def _chips(document: Document) -> list[str]:
    found = [document["verdict"] or "not comparable"]
    if document["gates"]:
        found.append(f"{len(document['gates'])} gate{'s' * (len(document['gates']) > 1)}")
    return found


def _tag(word: str) -> Markup:
    return el("span", word, class_=f"tag {_TAGS.get(word, 'plain')}")


def _verdict(row: Document) -> Markup | None:
    return _tag(row["verdict"]) if row["verdict"] else None


def _waterfall(document: Document) -> Markup:
    """A bar per change, each beginning where the one before it has ended."""
    shown, rest = waterfall(document, DRAWN)
    step = document["classes"][0]
    changes: list[tuple[str, int, Document | None]] = [
        (row["label"], row["change_ns"], row) for row in shown
    ]
    if rest:
        others = sum(row["change_ns"] for row in rest)
        changes.append((f"{len(rest)} others", others, None))
    at = low = high = step["before_ns"]
    for _, change, _ in changes:
        at += change
        low, high = min(low, at), max(high, at)
    # the axis begins where changes can be seen, unless they are most of the step
    floor = max(low - (high - low), 0) if low > 2 * (high - low) else 0
    wide = max(high - floor, 1)
    drawn = [_total("before", step["before_ns"], floor, wide)]
    at = step["before_ns"]
    for name, change, row in changes:
        start, end = sorted((at, at + change))
        kind = "k-worse" if change > 0 else "k-better"
        words = f"{name}: {say.exact(change)}"
        drawn.append(
            Bar(
                name,
                [("k-none", (start - floor) / wide, ""), (kind, (end - start) / wide, words)],
                signed(change),
                _note(row) if row else "",
            )
        )
        at += change
    drawn.append(_total("after", step["after_ns"], floor, wide))
    key = legend(("k-worse", "takes longer"), ("k-better", "takes less"), ("k-idle", "the step"))
    zero = None if not floor else el("p", f"The axis begins at {say.time(floor)}.", class_="note")
    words = el(
        "p",
        "What the time of a step consists of, by operator, collective, copy and what is waited "
        "for: the changes add up, to the nanosecond.",
        class_="words",
    )
    return join([words, key, bars(drawn, wide=True), zero])


def _total(name: str, ns: int, floor: int, wide: int) -> Bar:
    return Bar(name, [("k-idle", (ns - floor) / wide, say.exact(ns))], say.time(ns))


def _note(row: Document) -> str:
    return "; ".join([*filter(None, [row["verdict"]]), *row["changed"][:2]])


_HEAD = ("before", "after", "change", "", "interval", "verdict")


def _figures(row: Document) -> tuple[Any, ...]:
    known = row["low_ns"] is not None
    interval = f"{signed(row['low_ns'])} to {signed(row['high_ns'])}" if known else "–"
    return (say.exact(row["before_ns"]), say.exact(row["after_ns"]), signed(row["change_ns"]),
            percent(row), interval, _verdict(row))  # fmt: skip


def _parts(document: Document) -> Markup:
    rows = [(CLASS_WORDS[row["name"]], *_figures(row)) for row in document["classes"]]
    words = (
        f"All intervals hold together; a change below {document['tolerance_percent']:g} % is none."
    )
    return join(
        [el("p", words, class_="words"), table(("per step", *_HEAD), rows, right=range(1, 6))]
    )


def _steps(document: Document) -> Markup:
    """The lengths of the steps of both runs, of the critical rank."""
    runs = [document[word] for word in ("before", "after")]
    named = [("c0", f"before, {runs[0]['critical_rank_called']}"),
             ("c1", f"after, {runs[1]['critical_rank_called']}")]  # fmt: skip
    if max(len(run["step_ns"]) for run in runs) < _FEWEST_STEPS:
        longest = max(max(run["step_ns"]) for run in runs) or 1
        drawn = [
            Bar(f"{word}, step {step}", [(kind, ns / longest, say.exact(ns))], say.time(ns))
            for (kind, _), word, run in zip(named, ("before", "after"), runs, strict=True)
            for step, ns in zip(run["steps"], run["step_ns"], strict=True)
        ]
        return join([legend(*named), bars(drawn)])
    unit = say.unit_for(max(max(run["step_ns"]) for run in runs))
    every = [
        Line(kind, list(range(1, len(run["step_ns"]) + 1)), run["step_ns"])
        for (kind, _), run in zip(named, runs, strict=True)
    ]
    count = max(len(run["step_ns"]) for run in runs)
    labels = (list(range(1, count + 1)), [str(i) for i in range(1, count + 1)])
    tips = [(i + 1, _tip(runs, i)) for i in range(min(count, 400))]
    chart = lines(every, labels, unit, tips, "step of those compared", from_zero=False)
    return join([legend(*named), chart])


def _tip(runs: Sequence[Document], i: int) -> str:
    return "\n".join(
        f"{word}, step {run['steps'][i]}: {say.time(run['step_ns'][i])}"
        for word, run in zip(("before", "after"), runs, strict=True)
        if i < len(run["step_ns"])
    )


def _items(document: Document) -> Markup:
    """Operators, and every single item folded away."""
    rows = [
        (row["label"], *_figures(row), "; ".join(row["changed"])) for row in document["operators"]
    ]
    head = ("item", *_HEAD, "what changed")
    single = sorted(document["items"], key=lambda row: -abs(row["change_ns"]))
    named = ("sort", "name", "type", "shape", "module")
    listed = [
        (*(row[key] for key in named), *_figures(row), " ".join(row["changed"]))
        for row in single[:LISTED]
    ]
    more = len(single) - len(listed)
    left = el("p", f"and {more} more, in JSON and CSV", class_="note") if more else None
    folded = el(
        "details",
        el("summary", f"{len(single)} single items"),
        table((*named, *_HEAD, "changed"), listed, right=range(5, 10)),
        left,
    )
    return join([table(head, rows, right=range(1, 6)), folded])


def _ranks(document: Document) -> Markup:
    rows = [
        (row["before"], row["after"], *row["steps"], *_figures(row)) for row in document["ranks"]
    ]
    head = ("rank before", "rank after", "steps before", "steps after", *_HEAD)
    return table(head, rows, right=range(9))
