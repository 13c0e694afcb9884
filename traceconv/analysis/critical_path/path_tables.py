"""The critical path as tables: by step, by rank, and its intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.critical_path.walk import PARTS, Path, Segment
from traceconv.analysis.tables.definition import NOTHING, RANK, Column, Result, Table, texts
from traceconv.core.choices import unknown
from traceconv.core.clock import time_text
from traceconv.core.errors import OptionError
from traceconv.core.side_tables import ABSENT, Columns, DataTable

NEEDS = "ranks on one clock, with steps and device work"

_PARTS = [f"{name.title()}(ns)" for name in PARTS]
_HEADINGS = ", ".join(_PARTS)
_SUM = "The parts add up to the length, to the ns."


def _table(name: str, title: str, formula: str, headings: str, capped: bool = False) -> Table:
    columns = Column.parse(headings)
    return Table(name, title, formula, NEEDS, columns, lambda _: NOTHING, capped=capped)


TABLES: Mapping[str, Table] = {
    "steps": _table(
        "steps",
        "Critical path by step",
        "Length: from the end of the step before to the end of the last rank. "
        f"{_SUM} Jumps: from a rank that waited to the one that came last. Undecided: places where "
        "the path may go on elsewhere. Certain: share of the length that is on the path anyway.",
        f"Step, Last Rank, Length(ns), {_HEADINGS}, Jump Count, Undecided Count, Certain(%)",
    ),
    "ranks": _table(
        "ranks",
        "Critical path by rank",
        "What of the paths of all steps is on a rank: its own work, and communication that it "
        f"waited for. {_SUM} Ratio: of the length of all steps.",
        f"Rank, Step Count, Length(ns), Ratio(%), {_HEADINGS}, Certain(%)",
    ),
    "segments": _table(
        "segments",
        "Critical path, interval by interval",
        "The path of every step in order of time, on the shared clock: a rank's own work, or the "
        f"communication (kind and group) that it waited for. {_SUM} Came Last: the rank whose "
        "arrival ended the waiting. Why: the open choice there.",
        f"Step, Rank, What:text, Group:text, Start Time(ns), Length(ns), {_HEADINGS}, Came Last, "
        "Certain:text, Why:text",
        capped=True,
    ),
}
"""All tables, by name."""


def chosen(by: Iterable[str]) -> list[str]:
    """Names of tables, each once; "all" is all of them.

    Raises:
        OptionError: there is no such table.
    """
    names: dict[str, None] = {}
    for word in by:
        if word != "all" and word not in TABLES:
            raise OptionError(unknown("table", word, [*TABLES, "all"]), "by")
        names.update(dict.fromkeys(TABLES if word == "all" else (word,)))
    return list(names)


def results(path: Path, by: Iterable[str], top: int | None = None) -> tuple[Result, ...]:
    """The tables of a path.

    Args:
        top: rows kept of the stretches; None = all.
    """
    makers: Mapping[str, Callable[[Path], Columns]] = {
        "steps": _by_step, "ranks": _by_rank, "segments": _segments,
    }  # fmt: skip
    tables = []
    for name in by:
        table = TABLES[name]
        columns = makers[name](path) if path.segments else {}
        rows = len(next(iter(columns.values()))) if columns else 0
        if table.capped and top is not None:
            columns = {key: column[:top] for key, column in columns.items()}
        units = {column.key: column.unit for column in table.columns} if columns else {}
        tables.append(Result(table, DataTable(name, columns, units), rows))
    return tuple(tables)


def _parts(segments: Sequence[Segment]) -> NDArray[np.int64]:
    """(segments, parts shown) ns."""
    return np.array([segment.parts for segment in segments], np.int64).reshape(-1, len(PARTS))


def _lengths(segments: Sequence[Segment]) -> NDArray[np.int64]:
    return np.array([segment.end_ns - segment.start_ns for segment in segments], np.int64)


def _sums(path: Path, of: Sequence[Any], keys: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Length, parts, and the certain share of segments, summed up by what they are of."""
    position = {key: i for i, key in enumerate(keys)}
    positions = np.array([position[key] for key in of], np.int64)
    lengths, certain = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    parts = np.zeros((len(keys), len(PARTS)), np.int64)
    ns = _lengths(path.segments)
    np.add.at(lengths, positions, ns)
    np.add.at(certain, positions, ns * np.array([segment.certain for segment in path.segments]))
    np.add.at(parts, positions, _parts(path.segments))
    share = np.divide(100.0 * certain, lengths, out=np.full(len(keys), np.nan), where=lengths > 0)
    return {
        "Length(ns)": lengths,
        **dict(zip(_PARTS, parts.T, strict=True)),
        "Certain(%)": share,
    }


def _by_step(path: Path) -> Columns:
    steps = list(path.steps)
    position = {step: i for i, step in enumerate(steps)}
    counts = np.zeros((2, len(steps)), np.int64)
    for segment in path.segments:
        counts[:, position[segment.step]] += (
            segment.last not in (-1, segment.rank),
            bool(segment.why),
        )
    sums = _sums(path, [segment.step for segment in path.segments], steps)
    columns = {
        "Step": np.array([number for number, _ in steps], np.int64),
        "Last Rank": np.array([rank for _, _, rank in path.steps.values()], np.int64),
        "Jump Count": counts[0],
        "Undecided Count": counts[1],
        **sums,
    }
    return {column.key: columns[column.key] for column in TABLES["steps"].columns}


def _by_rank(path: Path) -> Columns:
    ranks = sorted({segment.rank for segment in path.segments})
    sums = _sums(path, [segment.rank for segment in path.segments], ranks)
    order = np.argsort(-sums["Length(ns)"], kind="stable")
    steps: dict[int, set[tuple[int, int]]] = {rank: set() for rank in ranks}
    for segment in path.segments:
        steps[segment.rank].add(segment.step)
    columns = {
        RANK: np.array(ranks, np.int64),
        "Step Count": np.array([len(steps[rank]) for rank in ranks], np.int64),
        "Ratio(%)": 100.0 * sums["Length(ns)"] / max(int(sums["Length(ns)"].sum()), 1),
        **sums,
    }
    return {column.key: columns[column.key][order] for column in TABLES["ranks"].columns}


def _segments(path: Path) -> Columns:
    position = {step: i for i, step in enumerate(path.steps)}
    rows = sorted(path.segments, key=lambda segment: (position[segment.step], segment.start_ns))
    parts = _parts(rows)
    came_last = [segment.last if segment.last >= 0 else ABSENT for segment in rows]
    columns: dict[str, NDArray[Any]] = {
        "Step": np.array([segment.step[0] for segment in rows], np.int64),
        RANK: np.array([segment.rank for segment in rows], np.int64),
        "What": texts([segment.kind or "own work" for segment in rows]),
        "Group": texts([segment.group.removeprefix("group ") for segment in rows]),
        "Start Time(ns)": np.array([segment.start_ns for segment in rows], np.int64),
        "Length(ns)": _lengths(rows),
        **dict(zip(_PARTS, parts.T, strict=True)),
        "Came Last": np.array(came_last, np.int64),
        "Certain": texts(["yes" if segment.certain else "no" for segment in rows]),
        "Why": texts([segment.why for segment in rows]),
    }
    return {column.key: columns[column.key] for column in TABLES["segments"].columns}


def line(path: Path) -> str:
    """What bounds the steps, in a line; or why that is not known."""
    if path.why or not path.segments:
        return f"critical path: unknown: {path.why or 'no step is on all ranks'}"
    ranks, steps = _by_rank(path), _by_step(path)
    total = int(ranks["Length(ns)"].sum())
    shares = {
        name: 100 * int(ranks[key].sum()) / total for name, key in zip(PARTS, _PARTS, strict=True)
    }
    shares_text = ", ".join(
        f"{name} {share:.0f} %"
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= 1
    )
    where = ", ".join(
        f"{path.shape.called(rank)} {share:.0f} %"
        for rank, share in list(zip(ranks[RANK].tolist(), ranks["Ratio(%)"].tolist(), strict=True))[
            :3
        ]
        if share >= 1
    )
    n = len(path.steps)
    length = (
        f"{n} steps with the gaps before them, {time_text(total / n)} each"
        if n > 1
        else f"1 step with the gap before it, {time_text(total)}"
    )
    sure = float((steps["Certain(%)"] * steps["Length(ns)"]).sum() / total)
    have = "rank has" if path.missing == 1 else "ranks have"
    lacking = f"; {path.missing} {have} no capture" if path.missing > 0 else ""
    return (
        f"critical path of {length}: {shares_text}; on {where}; certain: "
        f"{sure:.0f} %{_doubt(path)}{lacking}"
    )


def _doubt(path: Path) -> str:
    """The most frequent reason for uncertain intervals, by time."""
    doubted = Counter[str]()
    for segment in path.segments:
        if not segment.certain:
            doubted[segment.why] += segment.end_ns - segment.start_ns
    if not doubted:
        return ""
    reasons = [why for why, _ in doubted.most_common() if why]
    return (
        f"; uncertain where {reasons[0] if reasons else 'clocks do not tell which rank ended last'}"
    )


def document(path: Path) -> dict[str, Any]:
    """The whole path as JSON values: the line, why steps are left out, and the steps in which a
    clock change would go unnoticed."""
    left_out = [
        {"step": number, "occurrence": occurrence, "why": why}
        for (number, occurrence), why in path.left_out.items()
    ]
    unchecked = [
        {"step": number, "occurrence": occurrence, "ranks": list(ranks)}
        for (number, occurrence), ranks in path.unchecked.items()
    ]
    missing = path.missing if path.missing >= 0 and not path.why else None
    return {"known": bool(path.segments), "text": line(path), "why": path.why or None,
            "ranks_without_capture": missing, "left_out": left_out,
            "unchecked": unchecked}  # fmt: skip


RANKS_KEPT = 20
"""Most rows of a section."""


def section(path: Path) -> dict[str, Any]:
    """The section of a report, as JSON values: the line and a row per rank on the path, or under
    "missing" the reason why no path was found."""
    if not path.segments:
        return {"missing": line(path)}
    columns = _by_rank(path)
    keys = (
        "rank",
        "steps",
        "length_ns",
        "percent",
        *(name.replace(" ", "_") + "_ns" for name in PARTS),
        "certain_percent",
    )
    rows = [
        dict(zip(keys, cells, strict=True))
        for cells in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]
    return {"text": line(path), "rows": rows[:RANKS_KEPT], "others": len(rows[RANKS_KEPT:])}
