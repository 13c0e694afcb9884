"""Which records of a batch can be kept, and their numbers; the others are booked by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.clock import INT64_MAX
from traceconv.errors import Issues
from traceconv.model import F64, I8, I64
from traceconv.readers._event_log_numbers import UNREADABLE, Times, times, values, whole
from traceconv.readers._event_log_records import Batch

Mask = NDArray[np.bool_]

RANGE, MARK, COUNTER, BEGIN, END, UNKNOWN, UNSAID = 0, 1, 2, 3, 4, 5, 6
PHASES = {
    "": UNSAID,
    "range": RANGE, "x": RANGE, "complete": RANGE,
    "mark": MARK, "i": MARK, "instant": MARK,
    "counter": COUNTER, "c": COUNTER,
    "begin": BEGIN, "b": BEGIN, "enter": BEGIN, "start": BEGIN,
    "end": END, "e": END, "leave": END, "exit": END, "stop": END,
}  # fmt: skip
"""What ``ph`` may say, in small letters: our own words and those of other logs."""

_WORDS = {RANGE: "slice", MARK: "instant", COUNTER: "counter"}


@dataclass
class Checked:
    """A batch in numbers.

    Attributes:
        phase: RANGE, MARK, COUNTER, BEGIN or END.
        keep:  which records are sound.
        value: of counters.
    """

    batch: Batch
    build: TraceBuilder
    phase: I8
    start: I64
    dur: I64
    graph: I64
    step: I64
    value: F64
    keep: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.keep = np.ones(len(self.batch), bool)

    def reject(self, wrong: Mask, code: str, why: str = "") -> None:
        """Book records that were sound so far, and leave them out."""
        rows = np.flatnonzero(wrong & self.keep)
        self.keep[rows] = False
        for phase in np.unique(self.phase[rows]).tolist():
            of_phase = rows[self.phase[rows] == phase]
            note(self.build, self.batch, code, of_phase, why, _WORDS.get(phase))


def note(
    build: TraceBuilder,
    batch: Batch,
    code: str,
    rows: Sequence[int] | NDArray[np.intp],
    why: str = "",
    lost: str | None = None,
) -> None:
    """Book records under an issue code, the first few with their lines; ``lost`` as in ``skip``."""
    first = Issues.PLACES_KEPT
    for row in rows[:first]:
        line = f"line {batch.lines[row]}"
        build.skip(code, f"{line}: {why}" if why else line, 1, lost)
    build.skip(code, "", max(len(rows) - first, 0), lost)


def checked(batch: Batch, units: Mapping[str, str], build: TraceBuilder) -> Checked:
    """The numbers of a batch, with what is wrong in it booked.

    Args:
        units: of "ts", "dur" and "end".
    """
    ts, dur, end = (times(_texts(batch, t), units[t]) for t in ("ts", "dur", "end"))
    rows = Checked(
        batch,
        build,
        _phases(batch, dur.present | end.present),
        ts.ns,
        np.where(end.present, _length(ts.ns, end.ns), dur.ns),
        whole(_texts(batch, "graph")),
        whole(_texts(batch, "step")),
        _values(batch),
    )
    for phase, word in _WORDS.items():
        build.seen(word, int(np.count_nonzero(rows.phase == phase)))
    _reject_damaged(rows, ts, dur, end)
    _reject_contradictions(rows, dur, end)
    _note_doubts(rows, ts, dur, end)
    return rows


def _length(start: I64, end: I64) -> I64:
    """``end - start``; -1 where it is negative or beyond int64."""
    length = end - start
    return np.where((end < start) | (length < 0), -1, length)


def _reject_damaged(rows: Checked, ts: Times, dur: Times, end: Times) -> None:
    rows.reject(rows.phase == UNKNOWN, "unknown-phase")
    nameless = np.array([not name.strip() for name in _texts(rows.batch, "name")], bool)
    rows.reject(nameless, "malformed-record", "no name")
    rows.reject(~ts.present | ts.bad, "bad-time", "ts")
    rows.reject(dur.bad, "bad-time", "dur")
    rows.reject(end.bad, "bad-time", "end")
    rows.reject(np.isnan(rows.value) & (rows.phase == COUNTER), "counter-not-numeric")
    for what, column in (("graph", rows.graph), ("step", rows.step)):
        rows.reject(column == UNREADABLE, "malformed-record", f"{what} is no whole number")
    device = whole(_texts(rows.batch, "device"))
    rows.reject(device == UNREADABLE, "malformed-record", "device is no whole number")


def _reject_contradictions(rows: Checked, dur: Times, end: Times) -> None:
    rows.reject(dur.present & end.present, "malformed-record", "both dur and end")
    long = (dur.present | end.present) & (rows.phase != RANGE)
    rows.reject(long, "malformed-record", "only a range has a length")
    places = zip(_texts(rows.batch, "stream"), _texts(rows.batch, "thread"), strict=True)
    both = np.array([bool(s.strip() and t.strip()) for s, t in places], bool)
    rows.reject(both, "malformed-record", "both stream and thread")
    rows.reject(rows.dur < 0, "negative-duration")
    late = rows.dur > INT64_MAX - np.maximum(rows.start, 0)
    rows.reject(late, "bad-time", "the end is outside int64 nanoseconds")


def _note_doubts(rows: Checked, ts: Times, dur: Times, end: Times) -> None:
    build, batch = rows.build, rows.batch
    build.skip("stamp-rounded", "", ts.rounded)
    build.skip("duration-rounded", "", dur.rounded + end.rounded)
    endless = rows.keep & (rows.phase == RANGE) & ~dur.present & ~end.present
    note(build, batch, "missing-duration", np.flatnonzero(endless))
    for line in batch.broken_args:
        build.skip("args-not-json", f"line {line}")


def _texts(batch: Batch, target: str) -> Sequence[str]:
    return batch.columns.get(target) or [""] * len(batch)


def _values(batch: Batch) -> F64:
    texts = batch.columns.get("value")
    return values(texts) if texts else np.full(len(batch), np.nan)


def _phases(batch: Batch, long: Mask) -> I8:
    """The phase of each record: as it says, else by what it has."""
    texts = _texts(batch, "ph")
    known = {text: PHASES.get(text.strip().lower(), UNKNOWN) for text in set(texts)}
    phase = np.fromiter(map(known.__getitem__, texts), np.int8, len(batch))
    counted = np.array([bool(v) for v in _texts(batch, "value")], bool)
    unsaid = phase == UNSAID
    phase[unsaid & long] = RANGE
    phase[unsaid & ~long] = MARK
    phase[unsaid & ~long & counted] = COUNTER
    return phase
