"""A comparison as text, JSON and CSV; made of its document."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import orjson

from traceconv.analysis.diff.significance import DifferenceVerdict
from traceconv.core.clock import us_text
from traceconv.core.json_text import encoded
from traceconv.core.markup import aligned
from traceconv.report.diff_document import CLASS_WORDS, gate_line, signed, signed_percent
from traceconv.report.figures import UNKNOWN, ranks, time
from traceconv.report.fitting import shortened

Document = Mapping[str, Any]

SHOWN = 10
"""Items of a waterfall; the others are summed up, and listed on request."""

_BAR = 20  # characters
_WIDEST, _NARROWEST = 48, 24  # characters of a name, unless half of a wide screen is more
_REST = 58  # characters of the other columns
_NOTED, _LEAST_NOTED = 64, 16  # characters of the change


def text(document: Document, top: int | None = SHOWN, width: int | None = None) -> str:
    """A page: verdict, steps before and after, waterfall.

    Args:
        top:   rows of the waterfall; None for all.
        width: columns that tables keep to, from 80; None for any.
    """
    parts_of_step = parts(document)
    if all(row["verdict"] == DifferenceVerdict.UNSURE for row in parts_of_step):
        kept = ("operators", "ranks")  # without verdicts: the headline says it
        rows = {key: [{**row, "verdict": None} for row in document[key]] for key in kept}
        document = {**document, **rows}
        parts_of_step = [{**row, "verdict": None} for row in parts_of_step]
    pages = [
        [document["headline"], *(f"proven: {change}" for change in proven(document))],
        [run_line(word, document[word]) for word in ("before", "after")],
        [f"gate {gate_line(gate)}" for gate in document["gates"]],
        _aligned(
            (per_step(document), "before", "after", "change", "", ""),
            [(CLASS_WORDS[row["name"]], *_figures(row)) for row in parts_of_step],
        ),
        _waterfall(document, top, width),
        _ranks(document, top),
        list(document["remarks"]),
    ]
    return "\n\n".join("\n".join(page) for page in pages if page) + "\n"


def per_step(document: Document) -> str:
    """The head of the parts of a step: those of the rank that is critical after, in both runs."""
    number, called = (document["after"][key] for key in ("critical_rank", "critical_rank_called"))
    other = next((r["before"] for r in document["ranks"] if r["after"] == number), number)
    marked = document["before"]["marked"] and document["after"]["marked"]
    per = "per step" if marked else "all recorded"
    several = len(document["after"]["ranks"]) > 1
    names = called if other == number else f"rank {other} and {called}"
    return f"{per}, {names}" if several else per


def parts(document: Document) -> list[Document]:
    """The parts of a step that take time in either run."""
    return [row for row in document["classes"] if row["before_ns"] or row["after_ns"]]


def proven(document: Document) -> list[str]:
    """What got slower or faster for sure, in a line; none if nothing did."""
    return ["; ".join(document["proven"])] if document["proven"] else []


def run_line(word: str, run: Document) -> str:
    """One of the runs: its ranks and steps, and how long these take."""
    lengths = run["step_ns"]
    mean = sum(lengths) / len(lengths)
    critical = f", critical: {run['critical_rank_called']}" if len(run["ranks"]) > 1 else ""
    if not run["marked"]:
        steps = "no steps marked"
    else:
        numbers = f"{run['steps'][0]}-{run['steps'][-1]}" if len(lengths) > 1 else run["steps"][0]
        steps = f"{len(lengths)} step{'s' * (len(lengths) > 1)} ({numbers})"
    spread = f" ({time(min(lengths))} to {time(max(lengths))})" if len(lengths) > 1 else ""
    return (
        f"{word:6}  {run['label']}: {ranks(run['ranks'])}{critical}; {steps}, {time(mean)}{spread}"
    )


def percent(row: Document) -> str:
    """The change of a row, relative to its value before."""
    share = row["change_percent"]
    if share is None:
        return "new" if row["after_ns"] else UNKNOWN
    return signed_percent(share)


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns; the first and the last are text, those between are figures."""
    return aligned([head, *rows], (0, len(head) - 1)) if rows else []


def waterfall(document: Document, top: int | None) -> tuple[list[Document], list[Document]]:
    """The operators that are shown, largest change first, and the others that changed."""
    rows = [row for row in document["operators"] if row["change_ns"]]
    return rows[:top], rows[len(rows[:top]) :]


def _waterfall(document: Document, top: int | None, width: int | None) -> list[str]:
    shown, remaining = waterfall(document, top)
    if not shown:
        return []
    step = document["classes"][0]
    changes = [row["change_ns"] for row in shown]
    changes += [sum(row["change_ns"] for row in remaining)] * bool(remaining)
    levels = list(accumulate(changes, initial=step["before_ns"]))
    reach = min(levels), max(levels)
    bars = [_bar(start, end, reach) for start, end in pairwise(levels)]
    labels = [row["label"] for row in shown]
    room = max(map(len, labels))
    if width is not None:
        widest = max(_WIDEST, (width - _REST) // 2)
        room = min(room, max(min(width - _REST, widest), _NARROWEST))
    noted = [_verdict(row, None if width is None else width - _REST - room) for row in shown]
    texts = [*shortened(labels, room), f"{len(remaining)} others"]
    percents = [*map(percent, shown), ""]
    rows = [
        ("before", time(step["before_ns"]), "", "", ""),
        *zip(texts, map(signed, changes), percents, bars, [*noted, ""], strict=False),
        ("after", time(step["after_ns"]), "", "", ""),
    ]
    return _aligned(("from before to after", "", "", "", ""), rows)


def _verdict(row: Document, room: int | None) -> str:
    """The verdict, followed by the change as far as there is room."""
    text = row["verdict"] or ""
    room = _NOTED if room is None else room + len("no verdict")
    for note in row["changed"][:2]:
        spare = room - len(text) - 2 * bool(text)
        if spare < min(len(note), _LEAST_NOTED):
            break
        short = note if len(note) <= spare else f"{note[: spare - 3]}..."
        text = f"{text}; {short}" if text else short
    return text


def _bar(start: int, end: int, reach: tuple[int, int]) -> str:
    low, high = reach
    width = (high - low) or 1
    begin, stop = sorted(round(_BAR * (x - low) / width) for x in (start, end))
    stop = max(stop, begin + 1)
    return (" " * min(begin, _BAR - 1) + "█" * (stop - begin))[:_BAR].ljust(_BAR)


def _ranks(document: Document, top: int | None) -> list[str]:
    """The ranks; of more than ``top``, the critical ones and those that changed most."""
    all_ranks = document["ranks"]
    if len(all_ranks) < 2:
        return []
    before, critical = (document[word]["critical_rank"] for word in ("before", "after"))
    by_change = sorted(
        all_ranks,
        key=lambda row: (row["after"] != critical, row["before"] != before, -abs(row["change_ns"])),
    )
    shown = [id(row) for row in by_change[:top]]
    rows = [
        (
            f"{row['before']}"
            + f" → {row['after']}" * (row["before"] != row["after"])
            + " *" * (row["after"] == critical),
            *_figures(row)[:-1],
            rank_verdict(row),
            computing(row),
        )
        for row in all_ranks
        if id(row) in shown
    ]
    head = ("rank (* critical)", "before", "after", "change", "", "", "computing")
    table = aligned([head, *rows], (0, 5))
    hidden = [row["change_ns"] for row in all_ranks if id(row) not in shown]
    if not hidden:
        return table
    ends = dict.fromkeys((signed(min(hidden)), signed(max(hidden))))
    return [*table, f"{len(hidden)} more ranks: {' to '.join(ends)}"]


def rank_verdict(row: Document) -> str:
    """The verdict on a rank, and whether something else than its own computing changed."""
    before, after = row["computing_ns"]
    changed = row["verdict"] in (DifferenceVerdict.SLOWER, DifferenceVerdict.FASTER)
    elsewhere = changed and 2 * abs(after - before) < abs(row["change_ns"])
    return f"{row['verdict'] or ''}{', not by its own computing' * elsewhere}"


def computing(row: Document) -> str:
    """By how much a rank computes longer."""
    before, after = row["computing_ns"]
    return signed(after - before)


def _figures(row: Document) -> tuple[str, ...]:
    return (time(row["before_ns"]), time(row["after_ns"]), signed(row["change_ns"]),
            percent(row), row["verdict"] or "")  # fmt: skip


# -- for programs and pages -----------------------------------------------------------------

_ONE_LINE = ("items", "operators", "ranks")


def json_text(document: Document) -> str:
    """The document, with one line per item."""
    plain = dict(document)
    for key in _ONE_LINE:
        plain[key] = [orjson.Fragment(encoded(row)) for row in document[key]]
    return encoded(plain, indented=True).decode() + "\n"


_FIGURES = ("before_ns", "after_ns", "change_ns", "low_ns", "high_ns")


def csv_text(document: Document) -> str:
    """All items, a row each, most time first; times in us with three decimals."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = ("sort", "name", "type", "shape", "module")
    writer.writerow(
        (
            *(key.capitalize() for key in keys), "Before(us)", "After(us)", "Change(us)", "Low(us)",
            "High(us)", "Change(%)", "Verdict", "Count Before", "Count After", "Changed",
        )
    )  # fmt: skip
    for row in sorted(document["items"], key=lambda item: -abs(item["change_ns"])):
        figures = ["" if row[key] is None else us_text(row[key]) for key in _FIGURES]
        share = "" if row["change_percent"] is None else f"{row['change_percent']:.3f}"
        writer.writerow(
            (
                *(row[key] for key in keys), *figures, share, row["verdict"] or "",
                *(f"{count:g}" for count in row["count"]), " ".join(row["changed"]),
            )
        )  # fmt: skip
    return out.getvalue()
