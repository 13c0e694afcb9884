"""A comparison as sections, for its page and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from traceconv.core.markup import el
from traceconv.report import figures as say
from traceconv.report import html, markdown
from traceconv.report.blocks import (
    Bar,
    Bars,
    Block,
    Cell,
    Folded,
    Legend,
    Line,
    Lines,
    Section,
    Styled,
    Table,
    Text,
    time,
)
from traceconv.report.diff_document import CLASS_WORDS, gate_line, signed
from traceconv.report.diff_text import (
    computing,
    parts,
    per_step,
    percent,
    proven,
    run_line,
    waterfall,
)

Document = Mapping[str, Any]

DRAWN = 20
"""Items of the waterfall on a page; the others are drawn as one and listed below."""

LISTED = 1000
"""Single items that are listed; JSON and CSV have all."""

_FEWEST_STEPS = 3
_TIPS = 400
_TAGS = {"slower": "bad", "no verdict": "doubt", "failed": "bad"}
_FIGURES = ("before", "after", "change", "%", "interval", "verdict")
_RUNS, _COLOURS = ("before", "after"), ("c0", "c1")


def page(document: Document) -> str:
    """The whole page.

    Args:
        document: of :func:`traceconv.report.diff_document.document`.
    """
    gates = document["gates"]
    about = [document["verdict"] or "not comparable"]
    about += [f"{len(gates)} gate{'s' * (len(gates) > 1)}"] * bool(gates)
    slower = document["verdict"] == "slower" or any(gate["outcome"] == "failed" for gate in gates)
    tagged = [
        el(
            "li",
            el("span", gate["outcome"], class_=f"tag {_tag(gate['outcome'])}"),
            gate_line(gate),
        )
        for gate in gates
    ]
    card = [el("h1", document["headline"]), [el("p", text) for text in proven(document)],
            el("ul", tagged, class_="facts") if gates else None]  # fmt: skip
    notes = [*(run_line(word, document[word]) for word in _RUNS), *document["remarks"]]
    head = el(
        "header",
        html.chips(about),
        el("div", card, class_=f"verdict of-{'warning' if slower else 'note'}"),
        [el("p", text, class_="note") for text in notes],
    )
    single = Section("items", "Single items", list(_single_items(document)), True)
    drawn = [*sections(document, DRAWN), single]
    return html.framed("traceconv diff", head, drawn, document["traceconv"])


def as_markdown(document: Document, top: int | None) -> str:
    """The page as Markdown, without single items.

    Args:
        top: rows of the waterfall; None for all.
    """
    facts = [*proven(document), *(run_line(word, document[word]) for word in _RUNS),
            *(f"gate {gate_line(gate)}" for gate in document["gates"]),
            *document["remarks"]]  # fmt: skip
    lines = [
        f"# {markdown.text(document['headline'])}",
        "",
        *(f"- {markdown.text(t)}" for t in facts),
    ]
    for part in sections(document, top):
        lines += ["", *markdown.section(part)[:-1]]
    return "\n".join(lines) + "\n"


def sections(document: Document, top: int | None) -> list[Section]:
    """What differs: item by item, by part of the step, step by step, and by rank."""
    drawn = [
        Section("waterfall", "From before to after", _waterfall(document, top)),
        Section("parts", "The parts of a step", _parts(document)),
        Section("steps", "Steps", _steps(document), True),
    ]
    if len(document["ranks"]) > 1:
        head = ("rank before", "rank after", "steps before", "steps after", *_FIGURES, "computing")
        rows = [
            (row["before"], row["after"], *row["steps"], *_figures(row), Styled(computing(row)))
            for row in document["ranks"]
        ]
        drawn.append(Section("ranks", "Ranks", [Table(head, rows)]))
    return [section for section in drawn if section.blocks]


def _tag(word: str) -> str:
    return _TAGS.get(word, "plain")


def _figures(row: Document) -> tuple[Cell, ...]:
    has_bounds = row["low_ns"] is not None
    interval = f"{signed(row['low_ns'])} to {signed(row['high_ns'])}" if has_bounds else say.UNKNOWN
    verdict = row["verdict"]
    return (
        time(row["before_ns"]), time(row["after_ns"]),
        Styled(signed(row["change_ns"]), exact=say.exact(row["change_ns"])), Styled(percent(row)),
        Styled(interval), Styled(verdict, _tag(verdict)) if verdict else "",
    )  # fmt: skip


def _waterfall(document: Document, top: int | None) -> list[Block]:
    """A bar per change, each beginning where the one before it has ended."""
    if not document["classes"]:
        return []
    shown, remaining = waterfall(document, top)
    step = document["classes"][0]
    changes = [
        (row["label"], row["change_ns"], "; ".join([*filter(None, [row["verdict"]]),
                                                    *row["changed"][:2]]))
        for row in shown
    ]  # fmt: skip
    rows: list[Sequence[Cell]] = [
        (row["label"], *_figures(row), "; ".join(row["changed"])) for row in shown
    ]
    if remaining:
        remaining_ns, name = sum(row["change_ns"] for row in remaining), f"{len(remaining)} others"
        changes.append((name, remaining_ns, ""))
        rows.append((name, "", "", Styled(signed(remaining_ns)), "", "", "", ""))
    levels = list(accumulate((ns for _, ns, _ in changes), initial=step["before_ns"]))
    low, high = min(levels), max(levels)
    # the axis begins where changes can be seen, unless they are most of the step
    floor = max(low - (high - low), 0) if low > 2 * (high - low) else 0
    wide = max(high - floor, 1)

    def total(name: str) -> Bar:
        ns = step[f"{name}_ns"]
        return Bar(name, [("k-idle", (ns - floor) / wide, say.exact(ns))], say.time(ns))

    bars = [
        Bar(
            name,
            [
                ("k-none", (min(start, end) - floor) / wide, ""),
                ("k-worse" if change > 0 else "k-better", abs(change) / wide,
                 f"{name}: {say.exact(change)}"),
            ],
            signed(change),
            note,
        )
        for (name, change, note), start, end in zip(changes, levels, levels[1:], strict=False)
    ]  # fmt: skip
    words = (
        "The time of a step by operator, collective, copy and cause of waiting: the changes add "
        "up, to the nanosecond."
    )
    legend_text = "the step" + f" (the axis begins at {say.time(floor)})" * bool(floor)
    kinds = [("k-worse", "takes longer"), ("k-better", "takes less"), ("k-idle", legend_text)]
    table = Table(("item", *_FIGURES, "what changed"), rows)
    return [
        Text(words), Legend(kinds), Bars([total("before"), *bars, total("after")], wide=True),
        *[Folded("figures", [table])] * bool(rows),
    ]  # fmt: skip


def _parts(document: Document) -> list[Block]:
    if not document["classes"]:
        return []
    rows = [(CLASS_WORDS[row["name"]], *_figures(row)) for row in parts(document)]
    tolerance = f"{document['tolerance_percent']:g} %"
    words = Text(f"All intervals hold together; changes below {tolerance} do not count.")
    return [words, Table((per_step(document), *_FIGURES), rows)]


def _steps(document: Document) -> list[Block]:
    """The lengths of the steps of both runs, of the critical rank."""
    runs = [document[word] for word in _RUNS]
    entries = [
        (kind, f"{word}, {run['critical_rank_called']}")
        for kind, word, run in zip(_COLOURS, _RUNS, runs, strict=True)
    ]
    lengths = [run["step_ns"] for run in runs]
    table = Table(
        ("run", "step", "length"),
        [(word, step, time(ns)) for word, run in zip(_RUNS, runs, strict=True)
         for step, ns in zip(run["steps"], run["step_ns"], strict=True)],
    )  # fmt: skip
    count = max(map(len, lengths))
    if count < _FEWEST_STEPS:
        return [table]
    numbers = list(range(1, count + 1))
    tips = [
        (i + 1, "\n".join(f"{word}, step {run['steps'][i]}: {say.time(run['step_ns'][i])}"
                          for word, run in zip(_RUNS, runs, strict=True)
                          if i < len(run["step_ns"])))
        for i in range(min(count, _TIPS))
    ]  # fmt: skip
    curves = [
        Line(kind, numbers[: len(ns)], ns) for kind, ns in zip(_COLOURS, lengths, strict=True)
    ]
    unit = say.unit_for(max(map(max, lengths)) or 1)
    drawn = Lines(
        curves, (numbers, list(map(str, numbers))), unit, tips, "compared step", from_zero=False
    )
    return [Legend(entries), drawn, Folded("figures", [table])]


def _single_items(document: Document) -> Iterator[Block]:
    single = sorted(document["items"], key=lambda row: -abs(row["change_ns"]))
    keys = ("sort", "name", "type", "shape", "module")
    rows = [
        (*(row[key] for key in keys), *_figures(row), " ".join(row["changed"]))
        for row in single[:LISTED]
    ]
    yield Table((*keys, *_FIGURES, "changed"), rows)
    if hidden := len(single) - len(rows):
        yield Text(f"and {hidden} more, in JSON and CSV", "note")
