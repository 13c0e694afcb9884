"""Where slices are found in a trace, and the curves of a report, from the summaries of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.replay.graph import Clocks
from traceconv.core.side_tables import Columns
from traceconv.report.sections import Section

_LINES = 4  # of one drawing
_DRAWINGS = 6
_PASTED = 300  # characters of a name in a query


def curves(summaries: Sequence[RankSummary], clocks: Clocks, zero_ns: int) -> Section:
    """Memory and queues: one drawing per measure, and on it the ranks that go highest, and lowest.

    Args:
        zero_ns: the zero of the trace.
    """
    drawings: dict[tuple[str, str, str], list[tuple[float, int, list[Any], list[float]]]] = {}
    for summary in summaries:
        samples = summary.excerpts.curves
        for key, rows in _by_curve(samples):
            x = samples["x"][rows]
            if key[2] == "time":
                x = clocks.corrected(summary.rank, x) - zero_ns
            y = samples["y"][rows]
            drawings.setdefault(key, []).append(
                (float(y.max()), summary.rank, x.tolist(), y.tolist())
            )
    if not drawings:
        return {"missing": "no data: needs counters of memory, or records of a data queue"}
    order = sorted(drawings, key=lambda k: (k[1] != "", -max(line[0] for line in drawings[k]), k))
    return {
        "drawings": [_drawing(key, drawings[key]) for key in order[:_DRAWINGS]],
        "others": len(order[_DRAWINGS:]),
    }


def _by_curve(samples: Columns) -> Iterable[tuple[tuple[str, str, str], NDArray[Any]]]:
    if not samples:
        return
    keys = list(zip(*(samples[k].tolist() for k in ("title", "unit", "axis")), strict=True))
    for key in dict.fromkeys(keys):
        yield key, np.flatnonzero([other_key == key for other_key in keys])


def _drawing(
    key: tuple[str, str, str], lines: list[tuple[float, int, list[Any], list[float]]]
) -> Section:
    lines = sorted(lines, key=lambda line: (-line[0], line[1]))
    shown = lines if len(lines) <= _LINES else [*lines[: _LINES - 1], lines[-1]]
    shown = sorted(shown, key=lambda line: line[1])
    return {
        "title": key[0], "unit": key[1], "axis": key[2], "ranks": len(lines),
        "lines": [{"rank": rank, "x": x, "y": y} for _, rank, x, y in shown],
    }  # fmt: skip


def place(slice_facts: Mapping[str, Any], rank: int, clocks: Clocks, zero_ns: int) -> Section:
    """Where to find a slice in a trace.

    Args:
        slice_facts: its name, lane, start_ns and dur_ns, on the clock of its rank.
    """
    start = int(clocks.corrected(rank, np.array([slice_facts["start_ns"]], np.int64))[0]) - zero_ns
    dur_ns = slice_facts["dur_ns"]
    return {
        "rank": rank, "name": slice_facts["name"], "lane": slice_facts["lane"], "start_ns": start,
        "dur_ns": dur_ns,
        "query": query(str(slice_facts["name"]), start, dur_ns) if dur_ns else "",
    }  # fmt: skip


def query(name: str, start_ns: int, dur_ns: int) -> str:
    """The query that finds a slice in ui.perfetto.dev; its columns make rows link to slices.

    Long or unprintable names are left out, because few other slices start at the same time. Ranks
    may have slices with the same name and start, so the closest duration comes first. Durations
    need not be equal, because a corrected clock or a cut slice changes them.
    """
    quoted = name.replace("'", "''")
    by_name = f" AND name = '{quoted}'" if len(name) <= _PASTED and name.isprintable() else ""
    return (
        "SELECT id AS slice_id, ts, dur, track_id, name FROM slice "
        f"WHERE ts - trace_start() = {start_ns}{by_name} ORDER BY abs(dur - {dur_ns})"
    )
