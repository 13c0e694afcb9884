"""Why a result would not hold a single event: said in place of writing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from traceconv.core.clock import time_text
from traceconv.core.codes import Severity
from traceconv.core.errors import EmptyResultError, Issue
from traceconv.core.model import Capture
from traceconv.options.groups import MergeOptions
from traceconv.passes.table_counters import SOURCES
from traceconv.run.spill import SpilledRank

_UNREAD = ("kind-not-read", "flow-without-end")

NAMES_SHOWN = 5
"""Captures, tables and layers that are named in a message."""


def refuse_empty(spilled: Sequence[SpilledRank], options: MergeOptions) -> None:
    """See that at least one rank has a row, after everything but a window of time was selected.

    Raises:
        EmptyResultError: none has; the message says what left nothing over.
    """
    if any(sum(rank.account.counts.values()) for rank in spilled):
        return
    stage = _emptied_by(spilled)
    if stage == "read":
        tables = dict.fromkeys(name for rank in spilled for name in rank.account.tables)
        issues = [issue for rank in spilled for issue in rank.account.issues]
        captures = [rank.account.capture for rank in spilled]
        if drawn := [name for name in tables if name in SOURCES and options.mode != "detail"]:
            raise EmptyResultError(
                f"{_titles(captures)}: holds no timeline; {_listed(drawn)} can be drawn as "
                'counters: pass `mode="detail"`, or use `traceconv stats`'
            )
        raise nothing_read(captures, list(tables), unread(issues))
    raise EmptyResultError(f"not one event is left: {_reason(stage, spilled, options)}")


def refuse_empty_window(
    spilled: Sequence[SpilledRank], time: tuple[int | None, int | None], length_ns: int
) -> None:
    """See that at least one rank has a row within a window.

    Args:
        length_ns: from the first to the last event of all ranks.

    Raises:
        EmptyResultError: none has; the message says how long the trace is.
    """
    if any(sum(rank.account.counts.values()) for rank in spilled):
        return
    start, end = ("" if t is None else time_text(t) for t in time)
    raise EmptyResultError(
        f"not one event is left: `time`: nothing is between {start or 'the start'} and "
        f"{end or 'the end'}; the trace goes from 0 to {time_text(length_ns)}"
    )


def nothing_read(
    captures: Sequence[Capture], tables: Sequence[str] = (), lost: Sequence[Issue] = ()
) -> EmptyResultError:
    """The error for input without a single event; it names the tables that are there, or what of
    the events could not be read.
    """
    where = _titles(captures)
    if not tables:
        counts = Counter[str]()
        for issue in lost:
            counts[issue.code] += issue.count
        why = _listed([f"{code} x{count}" for code, count in counts.items()])
        advice = next((f" ({i.advice})" for i in lost if i.severity is Severity.LOSS), "")
        return EmptyResultError(
            f"{where}: holds no events" + (f" that can be read: {why}{advice}" * bool(why))
        )
    return EmptyResultError(
        f"{where}: holds tables without a timeline ({_listed(tables)}); use `traceconv stats`"
    )


def unread(issues: Iterable[Issue]) -> list[Issue]:
    """The issues about events that exist and were not read."""
    return [i for i in issues if i.severity is Severity.LOSS or i.code in _UNREAD]


def _titles(captures: Sequence[Capture]) -> str:
    return _listed([capture.title for capture in captures])


def _emptied_by(spilled: Sequence[SpilledRank]) -> str:
    """The stage after which no slice was left, or no row where there were no slices; "read" if
    there was nothing to begin with.
    """
    ledger: Counter[tuple[str, str]] = Counter()
    for rank in spilled:
        ledger.update(rank.account.ledger)
    slices = {kind: rows for kind, rows in ledger.items() if kind[1] == "slice"}
    remaining, last_stage = 0, "read"
    for (stage, _), rows in (slices if any(slices.values()) else ledger).items():
        remaining += rows
        if rows < 0 and stage != "lost":
            last_stage = stage
            if remaining <= 0:
                break
    return last_stage


def _reason(stage: str, spilled: Sequence[SpilledRank], options: MergeOptions) -> str:
    selection = options.selection
    if stage == "select-layers":
        present = {str(layer) for rank in spilled for layer in rank.account.coverage.layers}
        return (
            f"`layers`: no rank has anything on {', '.join(selection.layers or ())}; "
            f"there are: {', '.join(sorted(present)) or 'none'}"
        )
    if stage == "select-names":
        return f"`exclude`: {selection.exclude!r} finds every name"
    if stage == "view" and options.mode == "detail":
        return "module scopes are hidden; pass `scope=True`"
    if stage == "view":
        explanation = "`layers` names neither" if selection.layers else "the input has neither"
        if any(rows for rank in spilled for (_, kind), rows in rank.account.ledger.items()
               if kind == "counter"):  # fmt: skip
            explanation += ", only counters"
        return f'the summary shows steps and overlap, and {explanation}; pass `mode="detail"`'
    selected = {"select-steps": "steps", "select-graphs": "graphs"}.get(stage)
    return f"`{selected}`: nothing belongs to them" if selected else f"{stage} took everything"


def _listed(names: Sequence[str]) -> str:
    hidden = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {hidden} more" if hidden > 0 else "")
