"""The events of ranks as the tables of Perfetto's trace processor, so that its queries run here.

Columns have the names and the meaning of the trace processor when it loads the merged trace: ``ts``
counts from the first event of all ranks, a rank is a process, a host thread is a thread, a slice of
no class has no category. Tables have further columns - ``rank``, ``op``, ``step`` - that the trace
processor does not have. Source: ``src/trace_processor/tables/*_tables.py`` and
``perfetto_sql/stdlib/prelude`` of Perfetto.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceconv.core import frames
from traceconv.core.frames import ABSENT, Frame, Words, or_absent
from traceconv.core.json_text import NOT_JSON
from traceconv.core.kinds import OpClass
from traceconv.core.model import I64, EventTable, Trace, Track
from traceconv.writers.perfetto.encoder import with_step_numbers
from traceconv.writers.perfetto.tracks import Place, places, shown_unit

VIEWS = {
    "track": "select * exclude (utid, upid, unit) from all_tracks",
    "thread_track": "select * exclude (upid, unit) from all_tracks"
    " where utid is not null and type not like '%counter%'",
    "process_track": "select * exclude (utid, unit) from all_tracks"
    " where upid is not null and type not like '%counter%'",
    "counter_track": "select * exclude (utid, upid) from all_tracks where type like '%counter%'",
    "process_counter_track": "select * exclude (utid) from all_tracks"
    " where type like 'process_counter%'",
}
"""Views over the table of all tracks."""

TABLES = ("slice", "counter", "flow", "args", "thread", "process", *VIEWS)

_EXACT = range(-(2**63), 2**63)


def perfetto_tables(
    traces: Iterable[Trace],
    table_names: Collection[str],
    base_ns: int,
    pids: Mapping[int, int],
    needed: Collection[str] | None = None,
) -> dict[str, Any]:
    """Tables of all ranks as ``pyarrow.Table`` by name; one rank is taken at a time.

    Args:
        table_names:  names of :data:`TABLES`; views are their SQL, over ``all_tracks``.
        base_ns: the time that becomes 0.
        pids:    process id of every rank, as the merged trace shows it.
        needed:  names of columns; the others are empty. None for all.
    """
    names = dict.fromkeys("all_tracks" if name in VIEWS else name for name in table_names)
    tables_by_name: dict[str, list[Any]] = {name: [] for name in names}
    first_ids = _First()
    for trace in traces:
        rank = _Rank(trace, first_ids, base_ns, pids[trace.rank])
        for name, rank_tables in tables_by_name.items():
            frame = rank.slices(needed) if name == "slice" else rank.table(name)
            rank_tables.append(frames.to_arrow(frame, needed))
        first_ids = rank.after
    tables = {name: frames.arrow_below(rank_tables) for name, rank_tables in tables_by_name.items()}
    return tables | {name: VIEWS[name] for name in table_names if name in VIEWS}


@dataclass(frozen=True)
class _First:
    """The first id of a rank in every table: the ids of ranks follow each other.

    As in Perfetto, the first thread and the first process are those of the idle task.
    """

    event: int = 0
    counter: int = 0
    flow: int = 0
    arg_set: int = 0
    arg: int = 0
    track: int = 0
    thread: int = 1
    process: int = 1


class _Rank:
    """The tables of one rank."""

    def __init__(self, trace: Trace, first_ids: _First, base_ns: int, pid: int) -> None:
        self.trace, _ = with_step_numbers(trace, None)
        self.first, self.base_ns, self.pid = first_ids, base_ns, pid
        self.tracks = _Tracks(self.trace, first_ids, pid)
        self._args_made = 0

    @property
    def after(self) -> _First:
        """The first ids of the next rank."""
        before, trace = self.first, self.trace
        return _First(
            before.event + len(trace.events),
            before.counter + len(trace.counters),
            before.flow + len(trace.flows),
            before.arg_set + len(trace.args),
            before.arg + self._args_made,
            before.track + len(self.tracks.rows),
            before.thread + len(self.tracks.threads),
            before.process + 1,
        )

    def table(self, name: str) -> Frame:
        frame: Frame = getattr(self, f"_{name}")()
        return frame

    def slices(self, needed: Collection[str] | None) -> Frame:
        events, strings = self.trace.events, self.trace.strings
        nests = needed is None or not {"depth", "parent_id"}.isdisjoint(needed)
        depth, parent = nesting(events) if nests else (events.dur_ns, events.dur_ns)
        op = Words.of(events.op, lambda i: OpClass(i).name.lower())
        category = Words.of(
            np.where(events.op > 0, events.op, -1), lambda i: OpClass(i).name.lower()
        )
        none, number = np.full(len(events), ABSENT), _numbered(self.first.event, len(events))
        return {
            "id": number,
            "ts": events.start_ns - self.base_ns,
            "dur": events.dur_ns,
            "track_id": self.tracks.ids[events.track],
            "category": category,
            "name": Words.of(events.name, strings.__getitem__),
            "depth": depth,
            "parent_id": _job_ids(parent, self.first.event),
            "arg_set_id": _job_ids(events.args.astype(np.int64), self.first.arg_set),
            "thread_ts": none,
            "thread_dur": none,
            "cat": category,
            "slice_id": number,
            "rank": self._rank(len(events)),
            "op": op,
            "graph": or_absent(events.graph),
            "step": or_absent(events.step),
        }

    def _counter(self) -> Frame:
        counters = self.trace.counters
        factors = [shown_unit(track.unit or "")[1] for track in self.trace.tracks]
        return {
            "id": _numbered(self.first.counter, len(counters)),
            "ts": counters.start_ns - self.base_ns,
            "track_id": self.tracks.ids[counters.track],
            "value": counters.value * np.array(factors, np.float64)[counters.track],
            "arg_set_id": np.full(len(counters), ABSENT),
            "rank": self._rank(len(counters)),
        }

    def _flow(self) -> Frame:
        flows, strings = self.trace.flows, self.trace.strings
        ends = np.stack((flows.src, flows.dst)).astype(np.int64)
        start = self.trace.events.start_ns[ends]
        later = (start[0] > start[1]) | ((start[0] == start[1]) & (ends[0] > ends[1]))
        ends = np.where(later, ends[::-1], ends)  # Perfetto has flows go forward in time only
        return {
            "id": _numbered(self.first.flow, len(flows)),
            "slice_out": ends[0] + self.first.event,
            "slice_in": ends[1] + self.first.event,
            "arg_set_id": np.full(len(flows), ABSENT),
            "name": Words.of(flows.name, strings.__getitem__),
            "rank": self._rank(len(flows)),
        }

    def _args(self) -> Frame:
        used = np.unique(self.trace.events.args)
        flattened = Flattened()
        for number in used[used >= 0].tolist():
            flattened.add(number + self.first.arg_set, self.trace.args.raw(number))
        self._args_made = len(flattened.sets)
        return {"id": _numbered(self.first.arg, len(flattened.sets)), **flattened.columns()}

    def _thread(self) -> Frame:
        rows = self.tracks.threads
        none = np.full(len(rows), ABSENT)
        ids = _numbered(self.first.thread, len(rows))
        return {
            "id": ids,
            "utid": ids,
            "tid": np.array(list(rows), np.int64),
            "name": Words.per_row(list(rows.values())),
            "start_ts": none,
            "end_ts": none,
            "upid": np.full(len(rows), self.first.process),
            "is_main_thread": np.array([tid == self.pid for tid in rows], np.int64),
            "rank": self._rank(len(rows)),
        }

    def _process(self) -> Frame:
        capture, none = self.trace.capture, np.full(1, ABSENT)
        return {
            "id": np.array([self.first.process]),
            "upid": np.array([self.first.process]),
            "pid": np.array([self.pid]),
            "name": Words.per_row([capture.name or f"Rank {self.trace.rank}"]),
            "start_ts": none,
            "end_ts": none,
            "parent_upid": none,
            "arg_set_id": none,
            "rank": self._rank(1),
            "host": Words.per_row([capture.host or None]),
        }

    def _all_tracks(self) -> Frame:
        rows = self.tracks.rows
        number = _numbered(self.first.track, len(rows))
        shown_tracks = [self.trace.tracks[i] if i >= 0 else None for i in self.tracks.of]
        names, parents, utids = zip(*rows, strict=True)
        units = [
            shown_unit(track.unit)[0] or None if track and track.unit else None
            for track in shown_tracks
        ]
        return {
            "id": number,
            "name": Words.per_row(names),
            "parent_id": np.array(parents, np.int64),
            "type": Words.per_row(self._types(shown_tracks)),
            "source_arg_set_id": np.full(len(rows), ABSENT),
            "utid": np.array(utids, np.int64),
            "upid": np.where(np.array(utids, np.int64) == ABSENT, self.first.process, ABSENT),
            "unit": Words.per_row(units),
            "rank": self._rank(len(rows)),
            "layer": Words.per_row([str(track.layer) if track else None for track in shown_tracks]),
            "device": or_absent(
                np.array([track.device if track else -1 for track in shown_tracks])
            ),
            "stream": or_absent(
                np.array([track.stream if track else -1 for track in shown_tracks])
            ),
            "communicator": Words.per_row(
                [(track and track.communicator) or None for track in shown_tracks]
            ),
        }

    def _types(self, shown_tracks: Sequence[Track | None]) -> list[str]:
        """The types of tracks, as Perfetto's importer names them."""
        lanes = Counter(track.whole for track in self.trace.tracks)
        types = []
        for (name, _, utid), track in zip(self.tracks.rows, shown_tracks, strict=True):
            scope = "process" if utid == ABSENT else "thread"
            if utid != ABSENT and name is None:
                types.append("thread_execution")
            elif track is not None and track.is_counter:
                types.append(f"{scope}_counter_track_event")
            elif name is not None and (track is None or lanes[track.whole] > 1):
                types.append(f"{scope}_merged_track_event")
            else:
                types.append(f"{scope}_track_event")
        return types

    def _rank(self, rows: int) -> I64:
        return np.full(rows, self.trace.rank, np.int64)


class _Tracks:
    """The tracks of a rank as a merged trace nests them.

    Attributes:
        rows:    (name, id of the parent, utid) of each; ``ABSENT`` where there is none.
        of:      index of the track in the model; -1 for groups and threads around others.
        ids:     int64 per track of the model: its id.
        threads: name by number; the main thread is the first.
    """

    def __init__(self, trace: Trace, first_ids: _First, pid: int) -> None:
        self.rows: list[tuple[str | None, int, int]] = []
        self.of: list[int] = []
        self.ids = np.full(len(trace.tracks), ABSENT)
        self.threads: dict[int, str | None] = {pid: None}
        self._first = first_ids
        self._known: dict[Any, int] = {}
        self._add(None, ABSENT, ABSENT, -1)  # of the process
        for i, location in sorted(places(trace, trace.used, None).items()):
            self.ids[i] = self._add_track(i, location)

    def _add_track(self, track: int, location: Place) -> int:
        if location.thread is None:
            return self._add(location.name, self._group(location.above), ABSENT, track)
        thread = location.thread
        self.threads.setdefault(thread.tid, None)
        self.threads[thread.tid] = thread.name or self.threads[thread.tid]
        utid = self._first.thread + list(self.threads).index(thread.tid)
        if location.itself:
            return self._known.setdefault(thread.tid, self._add(None, ABSENT, utid, track))
        if thread.tid not in self._known:
            self._known[thread.tid] = self._add(None, ABSENT, utid, -1)
        return self._add(location.name, ABSENT, utid, track)

    def _group(self, above: tuple[str, ...]) -> int:
        """The id of the innermost of some groups; they are added when they are new."""
        if not above:
            return ABSENT
        if above not in self._known:
            self._known[above] = self._add(above[-1], self._group(above[:-1]), ABSENT, -1)
        return self._known[above]

    def _add(self, name: str | None, parent: int, utid: int, track: int) -> int:
        self.rows.append((name, parent, utid))
        self.of.append(track)
        return self._first.track + len(self.rows) - 1


def nesting(events: EventTable) -> tuple[I64, I64]:
    """Depth of every event in its track, from 0, and the row of the slice around it; -1 = none.

    Slices of a track nest, as the pass of lanes leaves them. Rows are in table order. A slice does
    not contain what begins at its end.
    """
    depth: I64 = np.zeros(len(events), np.int64)
    holds = events.dur_ns > 0
    edges = np.flatnonzero(np.diff(events.track, prepend=-1, append=-1))
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        inside = holds[a:b]
        begun: I64 = np.cumsum(inside) - inside
        ends = np.sort(events.ends(slice(a, b))[inside])
        depth[a:b] = begun - np.searchsorted(ends, events.start_ns[a:b], side="right")
    np.maximum(depth, 0, out=depth)
    parent = np.full(len(events), -1, np.int64)
    for level in range(int(depth.max(initial=0))):
        outer, inner = np.flatnonzero(holds & (depth == level)), np.flatnonzero(depth == level + 1)
        outer_index = np.searchsorted(outer, inner) - 1
        parent[inner[outer_index >= 0]] = outer[outer_index[outer_index >= 0]]
    return depth, parent


class Flattened:
    """The rows of ``args``: one for each value in the JSON objects that are added."""

    def __init__(self) -> None:
        self.sets, self._whole, self._real = array("q"), array("q"), array("d")
        self._key, self._kind, self._text = array("i"), array("i"), array("i")
        self._keys: dict[tuple[str, str], int] = {}
        self._texts: dict[str, int] = {}

    def add(self, number: int, raw: bytes) -> None:
        """The members of one JSON object, as those of the set ``number``."""
        try:
            parsed = json.loads(raw)
        except NOT_JSON:
            parsed = raw.decode("utf-8", "replace")
        members = parsed if isinstance(parsed, dict) else {"args": parsed}
        for name, value in members.items():
            key = "debug." + (name.translate(_DIVIDERS) or "(empty)")
            self._value(number, key, key, value)

    def _value(self, number: int, flat_key: str, key: str, value: Any) -> None:
        kind, integer, text, real = _TEXT, ABSENT, -1, np.nan
        if isinstance(value, str):
            text = self._texts.setdefault(value, len(self._texts))
        elif isinstance(value, int) and value in _EXACT:
            kind, integer = _BOOLEAN if isinstance(value, bool) else _WHOLE, value
        elif isinstance(value, float) and abs(value) < 1e308:
            kind, real = _REAL, value
        elif isinstance(value, dict) and value:
            for name, inner in value.items():
                below = name.translate(_DIVIDERS) or "(empty)"
                self._value(number, f"{flat_key}.{below}", f"{key}.{below}", inner)
            return
        elif isinstance(value, list) and value:
            for i, inner in enumerate(value):
                self._value(number, flat_key, f"{key}[{i}]", inner)
            return
        else:  # as Perfetto output has them
            spelled = "{}" if value in ({}, []) else json.dumps(value)
            text = self._texts.setdefault(spelled, len(self._texts))
        self.sets.append(number)
        self._key.append(self._keys.setdefault((flat_key, key), len(self._keys)))
        self._kind.append(kind)
        self._whole.append(integer)
        self._real.append(real)
        self._text.append(text)

    def columns(self) -> Frame:
        """The columns of the rows, by name."""
        keys, texts = np.array(self._key, np.int32), np.array(self._text, np.int32)
        flat_keys = [flat_key for flat_key, _ in self._keys]
        return {
            "arg_set_id": np.array(self.sets, np.int64),
            "flat_key": Words.of(keys, flat_keys.__getitem__),
            "key": Words(keys, [key for _, key in self._keys]),
            "int_value": np.array(self._whole, np.int64),
            "string_value": Words(texts, list(self._texts)),
            "real_value": np.array(self._real, np.float64),
            "value_type": Words(np.array(self._kind, np.int32), _KINDS),
        }


_KINDS = ("string", "int", "bool", "real")
_TEXT, _WHOLE, _BOOLEAN, _REAL = range(4)

_DIVIDERS = str.maketrans(".[]", "___")
"""Dots and brackets divide keys, so Perfetto's importer has none in names."""


def _numbered(first_id: int, rows: int) -> I64:
    return np.arange(first_id, first_id + rows, dtype=np.int64)


def _job_ids(ids: I64, by: int) -> I64:
    """Ids of a rank as those of all ranks; -1 becomes absent."""
    return np.where(ids < 0, ABSENT, ids + by)
