"""Records of a log to rows of a trace: checked, put on lanes, begins joined to ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import Issues
from traceconv.core.model import F64, I8, I32, I64, Kind, Mask
from traceconv.core.ordering import Parallel
from traceconv.readers.event_log.lanes import Places, Table
from traceconv.readers.event_log.records import Batch
from traceconv.readers.shared.numbers import UNREADABLE, Times, times, values, whole
from traceconv.readers.shared.pairing import nested

Index = NDArray[np.intp]

RANGE, MARK, COUNTER, BEGIN, END, UNKNOWN, UNSTATED = 0, 1, 2, 3, 4, 5, 6
PHASES = {
    "": UNSTATED,
    "range": RANGE, "x": RANGE, "complete": RANGE,
    "mark": MARK, "i": MARK, "instant": MARK,
    "counter": COUNTER, "c": COUNTER,
    "begin": BEGIN, "b": BEGIN, "enter": BEGIN, "start": BEGIN,
    "end": END, "e": END, "leave": END, "exit": END, "stop": END,
}  # fmt: skip
"""Values of ``ph`` in lower case: our own words and those of other logs."""

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
        """Count records that were sound so far under an issue, and drop them."""
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
    """Count records under an issue, the first few with their lines; ``lost`` as in ``skip``."""
    limit = Issues.PLACES_KEPT
    for row in rows[:limit]:
        line = f"line {batch.lines[row]}"
        build.skip(code, f"{line}: {why}" if why else line, 1, lost)
    build.skip(code, "", max(len(rows) - limit, 0), lost)


def checked(batch: Batch, units: Mapping[str, str], build: TraceBuilder) -> Checked:
    """The numbers of a batch; damaged records are counted.

    Args:
        units: of "ts", "dur" and "end".
    """
    ts, dur, end = (times(_texts(batch, t), units[t]) for t in ("ts", "dur", "end"))
    length = end.ns - ts.ns
    length[(end.ns < ts.ns) | (length < 0)] = -1  # negative, or beyond int64
    counted = batch.columns.get("value")
    rows = Checked(
        batch,
        build,
        _phases(batch, dur.present | end.present),
        ts.ns,
        np.where(end.present, length, dur.ns),
        whole(_texts(batch, "graph")),
        whole(_texts(batch, "step")),
        values(counted) if counted else np.full(len(batch), np.nan),
    )
    for phase, word in _WORDS.items():
        build.seen(word, int(np.count_nonzero(rows.phase == phase)))
    _reject_damaged(rows, ts, dur, end)
    _reject_contradictions(rows, dur, end)
    _note_doubts(rows, ts, dur, end)
    return rows


def _reject_damaged(rows: Checked, ts: Times, dur: Times, end: Times) -> None:
    rows.reject(rows.phase == UNKNOWN, "unknown-phase")
    nameless = np.array([not name.strip() for name in _texts(rows.batch, "name")], bool)
    rows.reject(nameless, "malformed-record", "no name")
    rows.reject(~ts.present | ts.bad, "bad-time", "ts")
    rows.reject(dur.bad, "bad-time", "dur")
    rows.reject(end.bad, "bad-time", "end")
    rows.reject(np.isnan(rows.value) & (rows.phase == COUNTER), "counter-not-numeric")
    for field_name, column in (("graph", rows.graph), ("step", rows.step)):
        rows.reject(column == UNREADABLE, "malformed-record", f"{field_name} is not a whole number")
    device = whole(_texts(rows.batch, "device"))
    rows.reject(device == UNREADABLE, "malformed-record", "device is not a whole number")


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
    build.skip("clock-assumed", "times in no zone, taken as UTC", ts.zoneless)
    endless = rows.keep & (rows.phase == RANGE) & ~dur.present & ~end.present
    note(build, batch, "missing-duration", np.flatnonzero(endless))
    for line in batch.broken_args:
        build.skip("args-not-json", f"line {line}")


def _texts(batch: Batch, target: str) -> Sequence[str]:
    return batch.columns.get(target) or [""] * len(batch)


def _phases(batch: Batch, long: Mask) -> I8:
    """The phase of each record: as stated, else by the fields it has."""
    texts = _texts(batch, "ph")
    phase_by_text = {text: PHASES.get(text.strip().lower(), UNKNOWN) for text in set(texts)}
    phase = np.fromiter(map(phase_by_text.__getitem__, texts), np.int8, len(batch))
    counted = np.array([bool(v) for v in _texts(batch, "value")], bool)
    unstated = phase == UNSTATED
    phase[unstated & long] = RANGE
    phase[unstated & ~long] = MARK
    phase[unstated & ~long & counted] = COUNTER
    return phase


def joined(key: I32, time_ns: I64, opens: Mask) -> tuple[Index, Index, Index]:
    """Pair begins with ends; those of one key in the order of time, equal times in file order.

    Args:
        key:   of each mark: marks of different keys are not paired.
        opens: whether a mark begins a range.

    Returns:
        begins and their ends (-1: never closed), in the order of begins; ends without a begin.
    """
    order = np.lexsort((time_ns, key))
    begin, end, alone = nested(key[order], opens[order])
    by_row = np.argsort(order[begin])
    begin, end = order[begin][by_row], np.where(end >= 0, order[end], -1)[by_row]
    return begin, end, np.sort(order[alone])


@dataclass
class Part(Parallel):
    """Some rows as columns, much as :meth:`TraceBuilder.extend` takes them.

    Attributes:
        place:  number in :class:`Places`.
        args:   address of the arguments, and their ``length`` in bytes; 0 for none.
        line:   number of the record.
    """

    place: I32
    start: I64
    dur: I64
    graph: I32
    step: I32
    args: I64
    length: I32
    line: I64


class EventRows:
    """Adds batches of one rank to a builder.

    Args:
        units: of "ts", "dur" and "end".
    """

    def __init__(self, build: TraceBuilder, units: Mapping[str, str]) -> None:
        self._build, self._units = build, units
        self._places = Places(build)
        self._slices: list[Part] = []
        self._instants: list[Part] = []
        self._marks: list[tuple[Part, Mask]] = []
        self._samples: list[tuple[I32, I64, F64]] = []
        self._shared_args: dict[bytes, int] = {}

    def add(self, batch: Batch) -> None:
        """Take the records of a batch; damaged ones are counted."""
        rows = checked(batch, self._units, self._build)
        place = self._places.numbers(batch.columns, rows.phase == COUNTER)
        unknown = self._places.table().unknown[place] & rows.keep
        kinds = _texts(batch, "kind")
        for kind in dict.fromkeys(kinds[row] for row in np.flatnonzero(unknown).tolist()):
            of_kind = [row for row in np.flatnonzero(unknown).tolist() if kinds[row] == kind]
            note(self._build, batch, "unknown-kind", of_kind, f"kind {kind[:40]!r}")
        for phase, parts in ((RANGE, self._slices), (MARK, self._instants)):
            selected = np.flatnonzero(rows.keep & (rows.phase == phase))
            if len(selected):
                parts.append(self._columns(rows, place, selected))
        selected = np.flatnonzero(rows.keep & ((rows.phase == BEGIN) | (rows.phase == END)))
        if len(selected):
            part = self._columns(rows, place, selected, shared=True)
            self._marks.append((part, rows.phase[selected] == BEGIN))
        selected = np.flatnonzero(rows.keep & (rows.phase == COUNTER))
        if len(selected):
            self._samples.append((place[selected], rows.start[selected], rows.value[selected]))
            with_args = [i for i in selected.tolist() if batch.args[i]]
            note(self._build, batch, "metadata-unused", with_args, "arguments of a counter sample")

    def _columns(
        self, rows: Checked, place: I32, selected: NDArray[np.intp], shared: bool = False
    ) -> Part:
        batch = rows.batch
        is_whole = len(selected) == len(batch)
        args = batch.args if is_whole else [batch.args[i] for i in selected.tolist()]
        address, length = self._stored(args, shared)
        return Part(
            place[selected],
            rows.start[selected],
            rows.dur[selected],
            rows.graph[selected].astype(np.int32),
            rows.step[selected].astype(np.int32),
            address,
            length,
            np.array(batch.lines, np.int64)[selected],
        )

    def _stored(self, args: Sequence[bytes], shared: bool) -> tuple[I64, I32]:
        """Addresses and lengths; if shared, equal ones are stored once."""
        length = np.fromiter(map(len, args), np.int32, len(args))
        if shared:
            stored, spill = self._shared_args, self._build.spill
            addresses = [stored[a] if a in stored else stored.setdefault(a, spill(a)) for a in args]
            return np.array(addresses, np.int64), length
        address = np.zeros(len(args), np.int64)
        np.cumsum(length[:-1], out=address[1:])
        return address + self._build.spill(b"".join(args)), length

    def finish(self) -> None:
        """Pair begins with ends and add everything to the builder."""
        if self._marks:
            self._slices.append(self._ranges())
        table, track = self._places.table(), self._places.tracks()
        for parts, kind in ((self._slices, Kind.SLICE), (self._instants, Kind.INSTANT)):
            while parts:
                self._add_rows(parts.pop(0), kind, table, track)
        for place, start, value in self._samples:
            self._build.counters(track=track[table.lane[place]], start_ns=start, value=value)

    def _add_rows(self, part: Part, kind: Kind, table: Table, track: I32) -> None:
        args = np.full(len(part.place), -1, np.int32)
        has_args = part.length > 0
        if has_args.any():
            first_id = self._build.args_at(part.args[has_args], part.length[has_args])
            args[has_args] = np.arange(first_id, first_id + int(has_args.sum()), dtype=np.int32)
        self._build.extend(
            track=track[table.lane[part.place]],
            kind=kind,
            op=table.op[part.place],
            start_ns=part.start,
            dur_ns=part.dur,
            name=table.name[part.place],
            graph=np.maximum(part.graph, -1),
            step=np.where(part.step >= 0, part.step, table.step[part.place]),
            args=args,
        )

    # -- begins and ends --------------------------------------------------------------------

    def _ranges(self) -> Part:
        parts = [part for part, _ in self._marks]
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        marks = Part(*map(np.concatenate, columns))
        opens = np.concatenate([o for _, o in self._marks])
        table = self._places.table()
        begin, end, alone = joined(table.key[marks.place], marks.start, opens)
        for line in marks.line[alone].tolist():
            self._build.skip("end-without-begin", f"line {line}")
        ranges, closed = marks.take(begin), end >= 0
        stop = np.where(closed, marks.start[end], ranges.start)
        if not closed.all():
            self._close(ranges, stop, np.flatnonzero(~closed), marks, table)
        ends = marks.take(end)  # ranges have the arguments of their ends, too
        has_end_args = closed & (ends.length > 0) & (ends.args != ranges.args)
        alone = has_end_args & (ranges.length == 0)
        ranges.args[alone], ranges.length[alone] = ends.args[alone], ends.length[alone]
        for i in np.flatnonzero(has_end_args & ~alone).tolist():
            end_args = self._build.stored(int(ends.args[i]), int(ends.length[i]))
            self._append(ranges, i, end_args[1:-1])
        ranges.dur = stop - ranges.start
        self._build.seen("slice", len(begin))
        beyond = ranges.dur < 0  # further apart than int64 can hold
        for line in ranges.line[beyond].tolist():
            self._build.skip("bad-time", f"line {line}", kind="slice")
        return ranges.take(~beyond)

    def _append(self, ranges: Part, i: int, members: bytes) -> None:
        """Add arguments to one row."""
        stored = self._build.stored(int(ranges.args[i]), int(ranges.length[i]))
        raw = (stored[:-1] + b"," if stored else b"{") + members + b"}"
        ranges.args[i], ranges.length[i] = self._build.spill(raw), len(raw)

    def _close(
        self, ranges: Part, stop: I64, open_: NDArray[np.intp], marks: Part, table: Table
    ) -> None:
        """End ranges that never end at the last stamp of their lane."""
        last_ns = np.full(int(table.lane.max()) + 1, -INT64_MAX, np.int64)
        for part in (marks, *self._slices, *self._instants):
            np.maximum.at(last_ns, table.lane[part.place], part.start + part.dur)
        for i in open_.tolist():
            stop[i] = last_ns[table.lane[ranges.place[i]]]
            self._build.skip("unfinished-slice", f"line {ranges.line[i]}")
            self._append(ranges, i, b'"unfinished":true')
