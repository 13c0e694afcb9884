"""A comparison of two runs as one JSON document, from which all other formats are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from traceconv.analysis.diff.comparison import (
    CRITICAL,
    PAUSE,
    ComparedRows,
    Items,
    RunComparison,
    operator_of,
)
from traceconv.analysis.diff.gates import GateResult, Outcome
from traceconv.analysis.diff.labels import END, Cause
from traceconv.analysis.diff.matching import plain
from traceconv.analysis.diff.runs import Run
from traceconv.analysis.diff.significance import ERROR, DifferenceVerdict
from traceconv.analysis.rank_facts import KEY, Sort
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.version import __version__
from traceconv.report.figures import digits, ranks, time

SCHEMA_VERSION = 1

_OUTLIER = 1.25  # times the median of the steps
_LONGEST_NAME = 80
_NAMED = 3  # operators that a headline is followed by
_GROUP = lazy_regex(r"(\S+) \[([\d, ]+)\]")  # as PyTorch describes a process group
_TOGETHER = "Intervals of several gates hold together, so they are wider than that of one figure."
_SHORT = 1000  # ns; shorter times are given in them

CLASS_WORDS = {
    "step": "step",
    "computing": "computing",
    "exposed_comm": "exposed communication",
    "copies": "exposed memory copies",
    "waiting": "waiting",
    "input_wait": "of it for input",
    "host_wait": "of it for the host",
    "unrecorded": "not recorded",
    CRITICAL: "another rank is critical",
    PAUSE: "mean gap between steps",
}
"""What people read of the parts of a step."""


def document(comparison: RunComparison, gates: Sequence[GateResult] = ()) -> dict[str, Any]:
    """The document; see ``schemas/json/diff.schema.json``. Times are ns per step."""
    items = comparison.items
    return {
        "schema_version": SCHEMA_VERSION,
        "traceconv": __version__,
        "verdict": comparison.verdict or None,
        "headline": headline(comparison),
        "proven": proven(comparison),
        "comparable": not comparison.reasons,
        "reasons": list(comparison.reasons),
        "tolerance_percent": comparison.tolerance,
        "confidence_percent": 100 * (1 - ERROR["step"]),
        "before": _run(comparison.before, comparison.critical[0], _critical(comparison)[0]),
        "after": _run(comparison.after, comparison.critical[1], _critical(comparison)[1]),
        "gates": [_gate(comparison, gate) for gate in gates],
        "classes": [] if comparison.classes is None else _rows(comparison.classes),
        "operators": _operators(comparison),
        "items": [] if items is None else _items(comparison, items),
        "ranks": [_rank(comparison, row) for row in range(len(comparison.ranks))],
        "remarks": [*remarks(comparison), *[_TOGETHER] * (len(gates) > 1)],
    }


def _run(run: Run, rank: int, called: str) -> dict[str, Any]:
    critical = run.ranks[rank]
    lengths = critical.steps["ns"].tolist()
    return {
        "label": run.label,
        "ranks": list(run.ranks),
        "world_size": run.world_size if run.world_size > 0 else None,
        "critical_rank": rank,
        "critical_rank_called": called,
        "marked": critical.marked,
        "steps": critical.steps["step"].tolist(),
        "step_ns": lengths,
    }


def _percent(before: int, after: int) -> float | None:
    return 100 * (after - before) / before if before else None


def _figures(before: int, after: int, half: float, verdict: str) -> dict[str, Any]:
    has_bounds = math.isfinite(half)
    delta = after - before
    return {
        "before_ns": before,
        "after_ns": after,
        "change_ns": delta,
        "change_percent": _percent(before, after),
        "low_ns": math.floor(delta - half) if has_bounds else None,
        "high_ns": math.ceil(delta + half) if has_bounds else None,
        "verdict": verdict or None,
    }


def _rows(rows: ComparedRows) -> list[dict[str, Any]]:
    """Keys and figures of every row."""
    columns = {name: column.tolist() for name, column in rows.keys.items()}
    figures = zip(rows.before_ns.tolist(), rows.after_ns.tolist(), rows.half_ns.tolist(),
                  rows.verdicts, strict=True)  # fmt: skip
    return [
        {**{name: column[i] for name, column in columns.items()}, **_figures(*figures_of_row)}
        for i, figures_of_row in enumerate(figures)
    ]


def _operators(comparison: RunComparison) -> list[dict[str, Any]]:
    """Operators, the largest change first."""
    rows, member = comparison.operators, comparison.member
    if rows is None or member is None or comparison.items is None:
        return []
    operators = _rows(rows)
    notes = _notes(comparison.items, member, len(rows))
    for i, row in enumerate(operators):
        row["label"] = label(row["sort"], row["name"], row["type"], _critical(comparison))
        row["changed"] = notes[i]
        row["items"] = np.flatnonzero(member == i).tolist()
    return sorted(operators, key=lambda row: -abs(row["change_ns"]))


def _notes(items: Items, member: np.ndarray[Any, Any], groups: int) -> list[list[str]]:
    """What changed of the items of every operator, in words, most time first; of several kernels
    with their names."""
    notes: list[list[str]] = [[] for _ in range(groups)]
    is_one_of_several = np.bincount(member, minlength=groups) > 1
    for row in np.argsort(-np.abs(items.delta_ns), kind="stable").tolist():
        operator = int(member[row])
        name = f" ({plain(items.keys['name'][row])})" if is_one_of_several[operator] else ""
        texts = [f"{text}{name}" for text in changes(items, row)]
        notes[operator] += [text for text in texts if text not in notes[operator]]
    return notes


def _critical(comparison: RunComparison) -> tuple[str, str]:
    """How texts name the ranks that are critical, before and after. A report keeps no coordinates:
    its ranks have those of the other run."""
    shapes = comparison.before.shape, comparison.after.shape
    before, after = (
        (shapes[side] if shapes[side].axes else shapes[1 - side]).called(comparison.critical[side])
        for side in (0, 1)
    )
    return before, after


def label(sort: str, name: str, kind: str, critical: tuple[str, str]) -> str:
    """What people read of an operator, a collective, a copy or a reason to wait.

    Args:
        critical: the ranks that are critical, before and after, as texts name them.
    """
    short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
    if sort == Sort.COMMUNICATION:
        if group := _GROUP.fullmatch(kind):
            kind = f"group {group[1]}: ranks {format_ranges([*map(int, group[2].split(','))])}"
        return f"exposed {short} ({kind})" if kind else f"exposed {short}"
    if sort == Sort.COPY:
        return f"copy: {short}"
    if sort == Sort.WAIT:
        whom = {Cause.INPUT: " for input", Cause.HOST: " for the host"}.get(Cause(kind), "")
        return f"waiting{whom} at the {END}" if name == END else f"waiting{whom} before {short}"
    if sort == Sort.UNRECORDED:
        return "not recorded"
    if sort == CRITICAL:
        return f"{critical[0]} was critical, now it is {critical[1]}"
    return short


def _items(comparison: RunComparison, items: Items) -> list[dict[str, Any]]:
    described = _rows(items)
    member = comparison.member
    for i, row in enumerate(described):
        row["was"] = {key: column[i] for key, column in items.was.items() if column[i]}
        row["count"] = [float(count) for count in items.counts[:, i]]
        row["busy_ns"] = [float(busy) for busy in items.busy_ns[:, i]]
        row["changed"] = list(items.changed[i])
        row["instead"] = list(items.instead.get(i, ()))
        row["operator"] = -1 if member is None else int(member[i])
    return described


def changes(items: Items, row: int) -> list[str]:
    """In what an item differs, in words."""
    key, was = ({k: columns[k][row] for k in KEY} for columns in (items.keys, items.was))
    count = [digits(round(float(value), 2)) for value in items.counts[:, row]]
    mean_ns = [
        float(busy) / float(n) if n else 0.0
        for busy, n in zip(items.busy_ns[:, row], items.counts[:, row], strict=True)
    ]
    instead = [
        operator_of(*(str(items.keys[k][replacing]) for k in KEY[:3]))[0]
        for replacing in items.instead.get(row, ())
    ]
    also = f" in place of {', '.join(dict.fromkeys(instead))}" if instead else ""
    now = f" by {', '.join(dict.fromkeys(instead))}" if instead else ""
    words = {
        "added": f"new{also}",
        "removed": f"replaced{now}" if now else "gone",
        "moved": f"moved{_arrow(was['module'], key['module'])}" if was["module"] else "moved",
        "shape": f"shape{_arrow(was['shape'], key['shape'])}",
        "kernel": f"kernel{_arrow(plain(was['name']), plain(key['name']))}",
        "group": f"group{_arrow(was['type'], key['type'])}",
        "operator": f"operator{_arrow(was['type'], key['type'])}",
        "count": f"{count[0]} → {count[1]} times",
        "duration": f"{time(mean_ns[0])} → {time(mean_ns[1])} each",
        "overlap": f"hidden {_hidden(items, 0, row)} → {_hidden(items, 1, row)}",
    }
    return [words[change] for change in items.changed[row]]


def _arrow(before: str, after: str) -> str:
    def short(text: str) -> str:
        return (text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}...") or "none"

    return f" {short(before)} → {short(after)}"


def _hidden(items: Items, side: int, row: int) -> str:
    ns = (items.before_ns, items.after_ns)[side][row]
    busy = float(items.busy_ns[side, row])
    return f"{100 * max(busy - float(ns), 0) / busy:.0f} %" if busy else "nothing"


def _rank(comparison: RunComparison, row: int) -> dict[str, Any]:
    """A rank, with the figures of its items that it has: [row of items, before, after]."""
    rank = comparison.ranks[row]
    before, after = rank.items_ns
    present = np.flatnonzero((before != 0) | (after != 0))
    columns = (present.tolist(), before[present].tolist(), after[present].tolist())
    return {
        "before": rank.before,
        "after": rank.after,
        "steps": list(rank.steps),
        "computing_ns": [int(rank.computing.before_ns[0]), int(rank.computing.after_ns[0])],
        **{k: v for k, v in _figures(*rank.step_ns, rank.half_ns, rank.verdict).items()
           if k not in ("before", "after")},
        "items": [list(item) for item in zip(*columns, strict=True)],
    }  # fmt: skip


def _gate(comparison: RunComparison, result: GateResult) -> dict[str, Any]:
    figures = _figures(result.before_ns, result.after_ns, result.half_ns, "")
    del figures["verdict"]
    limit = result.gate.limit * result.before_ns / 100 if result.gate.percent else result.gate.limit
    reason = _no_verdict(comparison, result) if result.outcome == Outcome.UNSURE else None
    return {
        "gate": result.gate.text,
        "outcome": str(result.outcome),
        "reason": reason,
        "limit_ns": limit,
        **figures,
    }


def _no_verdict(comparison: RunComparison, gate: GateResult) -> str | None:
    """Why a gate has no verdict, in words; None where its interval says it."""
    if comparison.reasons or comparison.series is None:
        return "not comparable"
    if gate.gate.metric == PAUSE and not comparison.pauses_known:
        return "gaps between steps are unknown"
    if gate.gate.metric == "input_wait" and not comparison.input_known:
        return "waits for input were not recorded"
    if not _marked(comparison):
        return "no steps marked: `step_marker`"
    return _FEW_STEPS if _has_one_step(comparison) else None


_FEW_STEPS = "one step says nothing of the others"


def _has_one_step(comparison: RunComparison) -> bool:
    return min(item.steps for item in comparison.series or ()) < 2


def _marked(comparison: RunComparison) -> bool:
    """Whether steps are marked in both runs."""
    runs = zip((comparison.before, comparison.after), comparison.critical, strict=True)
    return all(run.ranks[rank].marked for run, rank in runs)


# -- words --------------------------------------------------------------------------------


def headline(comparison: RunComparison) -> str:
    """The result of comparing two runs, in one line."""
    if comparison.reasons:
        return f"not comparable: {'; '.join(comparison.reasons)}"
    rows = comparison.classes
    if rows is None:
        return "nothing to compare"
    before, after = int(rows.before_ns[0]), int(rows.after_ns[0])
    marked = _marked(comparison)
    subject = "a step takes" if marked else "the recording lasts"
    text = f"{subject} {time(after)}, before {time(before)}: {_more(before, after)}"
    half = float(rows.half_ns[0])
    is_known = math.isfinite(half) and not comparison.same
    sure = f" ({_sure(before, after - before, half)})" if is_known else ""
    verdict = rows.verdicts[0]
    if verdict == DifferenceVerdict.UNSURE:
        why = _FEW_STEPS if _has_one_step(comparison) else "steps differ too much"
        why = why if marked else "without marked steps, chance and change look alike"
        return f"no verdict: {text}{sure}, but {why}"
    if verdict == DifferenceVerdict.SAME and abs(after - before) > half:
        sure += f", within the tolerance of {comparison.tolerance:g} %"
    return f"{verdict}: {text}{sure}"


def proven(comparison: RunComparison) -> list[str]:
    """What got slower or faster for sure, in words: the largest changes of operators."""
    rows = comparison.operators
    if rows is None:
        return []
    texts: list[str] = []
    for row in np.argsort(-np.abs(rows.delta_ns), kind="stable").tolist():
        if (
            rows.verdicts[row] in (DifferenceVerdict.SLOWER, DifferenceVerdict.FASTER)
            and len(texts) < _NAMED
        ):
            key = {name: str(column[row]) for name, column in rows.keys.items()}
            name = label(key["sort"], key["name"], key["type"], _critical(comparison))
            before, after = int(rows.before_ns[row]), int(rows.after_ns[row])
            word = rows.verdicts[row] if before and after else "new" if after else "gone"
            if key["sort"] == CRITICAL:
                texts.append(f"{name}: {signed(after - before)}")
            else:
                texts.append(f"{name} {word}: {_more(before, after)}")
    return _changed_ranks(comparison) + texts


def _changed_ranks(comparison: RunComparison) -> list[str]:
    """On which ranks computing changed, in words, if it provably did much less on the others."""
    items, compared = comparison.items, comparison.ranks
    numbers = comparison.critical
    ends = [one for one in compared if one.before == numbers[0] or one.after == numbers[1]]
    if items is None or not ends:
        return []
    critical = max(ends, key=lambda rank: abs(int(rank.computing.delta_ns[0])))
    [verdict], [largest] = critical.computing.verdicts, abs(critical.computing.delta_ns).tolist()
    changed = [rank.after for rank in compared if rank.computing.verdicts[0] == verdict]
    others = [rank for rank in compared if rank.after not in changed]
    farthest = [abs(rank.computing.delta_ns[0]) + rank.computing.half_ns[0] for rank in others]
    proven = verdict in (DifferenceVerdict.SLOWER, DifferenceVerdict.FASTER)
    if not proven or not others or 2 * max(farthest) > largest:
        return []
    called = comparison.after.shape.called(changed[0]) if len(changed) == 1 else ranks(changed)
    text = f"computing {verdict} on {called} only"
    own_items = critical.items_ns.shape[1]  # that another rank is critical is an item of none
    exposed = items.keys["sort"][:own_items] == Sort.COMMUNICATION
    exposed_change = [int((rank.items_ns[1] - rank.items_ns[0])[exposed].sum()) for rank in others]
    change = critical.step_ns[1] - critical.step_ns[0]
    if all(2 * ns >= change if change > 0 else 2 * ns <= change for ns in exposed_change):
        waits = "wait" if verdict == DifferenceVerdict.SLOWER else "waited"
        text += f"; the other ranks {waits} for {'it' if len(changed) == 1 else 'them'}"
    return [text]


def _more(before: int, after: int) -> str:
    share = _percent(before, after)
    percent = f" ({signed_percent(share)})" if share is not None else ""
    return f"{signed(after - before)}{percent}"


def signed_percent(share: float) -> str:
    """A relative change with its sign; from 100 % on without decimals."""
    return f"{share:+.{0 if abs(share) >= 100 else 1}f} %"


def signed(ns: float) -> str:
    """A difference with its sign."""
    length = time(abs(ns)) if abs(ns) >= _SHORT or not ns else f"{digits(abs(ns))} ns"
    return f"{'-' if ns < 0 else '+'}{length}"


def _sure(before: int, delta: int, half: float) -> str:
    confidence = 100 * (1 - ERROR["step"])
    if before and half >= before:  # the interval would include negative lengths
        return "any length is within the interval"
    if before:
        low, high = 100 * (delta - half) / before, 100 * (delta + half) / before
        return f"{confidence:g} % interval {low:+.1f} % to {high:+.1f} %"
    return f"{confidence:g} % interval {signed(delta - half)} to {signed(delta + half)}"


def gate_line(one: Mapping[str, Any]) -> str:
    """The result of a gate in one line; ``one`` is its entry in the document."""
    before, after = one["before_ns"], one["after_ns"]
    if one["reason"] and not (before or after):
        return f"{one['gate']} {one['outcome']}: {one['reason']}"
    sure = ""
    if one["high_ns"] is not None:
        low, high = (
            f"{100 * ns / before:+.1f} %" if before and one["gate"][-1] == "%" else signed(ns)
            for ns in (one["low_ns"], one["high_ns"])
        )
        passed = one["outcome"] == Outcome.PASSED
        sure = f", at most {high}" if passed else f", between {low} and {high}"
    figures = f"{time(before)} → {time(after)}, {_more(before, after)}{sure}"
    reason = f" ({one['reason']})" if one["reason"] else ""
    return f"{one['gate']} {one['outcome']}: {figures}{reason}"


def remarks(comparison: RunComparison) -> list[str]:
    """Further facts that are needed to read the comparison."""
    texts = ["Both are the same recording."] if comparison.same else []
    runs = (comparison.before, comparison.after)
    unmarked = [
        run.label
        for run, rank in zip(runs, comparison.critical, strict=True)
        if not run.ranks[rank].marked
    ]
    if unmarked:
        where = f" in {unmarked[0]}" if len(unmarked) == 1 else ""
        texts.append(
            f"No steps are marked{where}: all recorded time counts as one step. `step_marker` "
            "takes the host ranges whose name matches as steps."
        )
    for run, missing in zip(runs, comparison.left_out, strict=True):
        if missing:
            texts.append(f"Not compared: {ranks(missing)} of {run.label}.")
    for run, longer in zip(runs, comparison.warm_up, strict=True):
        if longer:
            texts.append(
                f"The first step of {run.label} is left out: it is longer than all others."
            )
    for run, rank in zip(runs, comparison.critical, strict=True):
        items = run.ranks[rank]
        if not items.marked:
            continue
        lengths = items.steps["ns"].tolist()
        usual = median(lengths)
        for step, length in zip(items.steps["step"].tolist(), lengths, strict=True):
            if len(lengths) > 2 and length > _OUTLIER * usual:
                texts.append(
                    f"Step {step} of {run.label} takes {length / usual:.1f} times the others; "
                    "`steps` leaves it out."
                )
                break
    return texts
