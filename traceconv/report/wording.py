"""The verdict on a run in words: a headline, three sentences, a few figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traceconv.analysis.utilisation import utilisation
from traceconv.core.codes import Severity
from traceconv.core.errors import Issues
from traceconv.report.figures import ranks, time

Told = Mapping[str, Any]
"""JSON values: a section, a verdict on stragglers, a finding."""

_COPIES, _UNCLASSIFIED = "memory copies", "tasks of unknown types"
_SHARES = (
    ("computing", ("pure_compute_ns", "overlapped_ns")),
    ("exposed communication", ("exposed_ns",)),
    (_COPIES, ("copy_ns",)),
    (_UNCLASSIFIED, ("unclassified_ns",)),
    ("waiting for input", ("input_wait_ns",)),
    ("idle", ("idle_ns",)),
)


def sentences(
    verdict: Told, drawn: Told, found: Sequence[Told], issues: Issues, clock: str
) -> list[str]:
    """Where the time goes; who is slow; what else there is, and how far to trust it.

    Args:
        drawn: the sections "overlap" and "steps".
        found: findings, most severe first.
        clock: how clocks were aligned.
    """
    return [
        _where_time_goes(drawn["overlap"], drawn["steps"]),
        _who_is_slow(verdict),
        _what_else(found, issues, clock),
    ]


def _shares(overlap: Told) -> dict[str, float]:
    """Of what is known, over all ranks: from 0 to 1; copies and tasks of unknown types only where
    they are a share."""
    rows = overlap.get("rows", ())
    known = sum(row["known_ns"] for row in rows)
    waits = [row["input_wait_ns"] for row in rows if row["input_wait_ns"] is not None]
    sums = {
        words: sum(row.get(key) or 0 for row in rows for key in keys) for words, keys in _SHARES
    }
    sums["idle"] -= sum(waits)
    if not waits:
        del sums["waiting for input"]
    elif any(row["input_wait_steps"] < row["steps"] for row in rows):
        sums["waiting for input, at least"] = sums.pop("waiting for input")
        sums["idle, at most"] = sums.pop("idle")
    shares = {words: ns / known if known else 0.0 for words, ns in sums.items()}
    return {
        words: share
        for words, share in shares.items()
        if share or words not in (_COPIES, _UNCLASSIFIED)
    }


def _mean_step(steps: Told) -> tuple[float, int]:
    lengths = [dur for row in steps.get("rows", ()) for dur in row["dur_ns"]]
    return (sum(lengths) / len(lengths) if lengths else 0.0), len(lengths)


def _where_time_goes(overlap: Told, steps: Told) -> str:
    mean, count = _mean_step(steps)
    shares = _shares(overlap)
    parts = ", ".join(f"{100 * share:.1f} % {words}" for words, share in shares.items())
    taken = "No step is marked"
    if count:
        taken = f"A step takes {time(mean)} on average ({count} in all)"
    elif any(shares.values()) and overlap["per"] == "step":
        each = sum(row["steps"] for row in overlap["rows"])
        taken = f"How long steps take was not recorded ({each} in all)"
    if not any(shares.values()):
        return f"{taken}; no device work was seen, so it is unknown where the time goes."
    what = "of the device's time" if overlap["per"] == "step" else "of the capture"
    coverage = "; ".join(overlap.get("coverage", ()))
    limits = f" ({coverage})" if coverage else ""
    busy = " ".join(_utilisation(overlap))
    return f"{taken}; {what}, {parts}; device utilisation {busy}{limits}."


def _utilisation(overlap: Told) -> tuple[str, str]:
    """The value, and the time it is of: the mean over ranks, and over devices where some have
    several."""
    rows = overlap["rows"]
    idle, known = (sum(row[key] for row in rows) for key in ("idle_ns", "known_ns"))
    per = "a step" if overlap["per"] == "step" else "the capture"
    return f"{float(utilisation(idle, known)):.1f} %", f"of {time(known / len(rows))} {per}"


def _who_is_slow(verdict: Told) -> str:
    if len(verdict["ranks"]) < 2:
        return "One rank alone cannot be compared with others."
    text = verdict["text"]
    others = [one["rank"] for one in verdict["others"]]
    too = f"; {ranks(others)} {'are' if len(others) > 1 else 'is'} late, too" if others else ""
    return f"{text[:1].upper()}{text[1:]}{too}."


def _what_else(found: Sequence[Told], issues: Issues, clock: str) -> str:
    warnings = [one for one in found if one["severity"] == "warning"]
    text = f"{len(warnings)} finding{'s' * (len(warnings) != 1)} to act on"
    text += f", first: {warnings[0]['title']}" if warnings else ""
    lost, doubts = (
        sum(issue.count for issue in issues if issue.severity is severity)
        for severity in (Severity.LOSS, Severity.DOUBT)
    )
    trust = "nothing was lost" if not lost else f"{lost} record{_were(lost)} lost"
    trust += f", {doubts} {'are' if doubts > 1 else 'is'} in doubt" if doubts else ""
    return f"{text}; {trust}; clocks: {clock}."


def _were(count: int) -> str:
    return "s were" if count > 1 else " was"


def tiles(verdict: Told, drawn: Told) -> list[dict[str, str]]:
    """Figures to be shown large: name, value, note."""
    overlap, steps = drawn["overlap"], drawn["steps"]
    mean, count = _mean_step(steps)
    every = len(steps.get("rows", ()))
    found = []
    if count:
        note = f"mean of {count}, {every} rank{'s' * (every > 1)}"
        found.append({"name": "Step", "value": time(mean), "note": note})
    shares = _shares(overlap)
    note = "of the step" if overlap.get("per") == "step" else "of the capture"
    if any(shares.values()):
        found += [
            {"name": words.capitalize(), "value": f"{100 * share:.1f} %", "note": note}
            for words, share in shares.items()
        ]
        value, note = _utilisation(overlap)
        found.append({"name": "Device utilisation", "value": value, "note": note})
    if len(verdict["ranks"]) > 1:
        one = verdict["culprit"]
        value = f"rank {one['rank']}" if one else verdict["verdict"]
        compared = f"{verdict['collectives']} collectives compared"
        note = f"costs {time(one['gain_ns'])} per step" if one else compared
        found.append({"name": "Straggler", "value": value, "note": note})
    return found
