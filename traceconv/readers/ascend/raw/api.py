"""The timeline of CANN: calls of its layers, on the threads that made them.

A record of ``api_event`` is a whole call, or one half of one that began and ended in different
places: the first half of a key is its start, the next its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64, Layer, OpClass
from traceconv.readers.ascend.db.host import LAYERS
from traceconv.readers.ascend.raw.clock import Clock
from traceconv.readers.ascend.raw.host_records import NEVER, Dictionary, HostFiles
from traceconv.readers.ascend.raw.pairs import combined_key
from traceconv.readers.shared.arguments import Value, combined, number, quoted, shared, tracks
from traceconv.readers.shared.trace_events.arrows import Binder
from traceconv.readers.shared.trace_events.placing import Anchors

ACL, MODEL, NODE, HCCL, RUNTIME = 20000, 15000, 10000, 5500, 5000
LEVELS = {
    30000: "pytorch", 25000: "pta", 20500: "msproftx", ACL: "acl", MODEL: "model", NODE: "node",
    HCCL: "communication", RUNTIME: "runtime",
}  # fmt: skip
STEP_INFO = "step_info"
"""A call of the node layer that marks a step and launches nothing."""

_ACL_MODES = {
    1: "ACL_OP", 2: "ACL_MODEL", 3: "ACL_RTS", 4: "ACL_OTHERS", 5: "ACL_NN", 6: "ACL_ASCENDC",
    7: "HOST_HCCL", 9: "ACL_DVPP", 10: "ACL_GRAPH", 11: "ACL_ATB",
}  # fmt: skip


@dataclass(frozen=True)
class Calls:
    """Calls as what they launched refers to them; int64.

    Attributes:
        type, item: as the record has them.
        row: the event of each, as the builder counts rows.
    """

    level: I64
    type: I64
    thread: I64
    item: I64
    start_ns: I64
    end_ns: I64
    row: I64

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Calls:
        """Some of them."""
        return Calls(*(column[which] for column in vars(self).values()))

    def __len__(self) -> int:
        return len(self.row)


class Around:
    """Finds the innermost of some calls around an instant of a thread."""

    def __init__(self, calls: Calls, which: NDArray[np.bool_]) -> None:
        self._index = np.flatnonzero(which)
        chosen = calls.take(self._index)
        self._end = chosen.end_ns
        self._threads, lane = np.unique(chosen.thread, return_inverse=True)
        rows = np.arange(len(chosen), dtype=np.int32)
        dur = chosen.end_ns - chosen.start_ns
        self._binder = Binder(Anchors(lane.astype(np.int32), chosen.start_ns, dur, rows))

    def at(self, thread: I64, time_ns: I64) -> I64:
        """The call around each instant, -1 if there is none.

        A record is made at the end of its call: a call that ends just then goes before one that
        begins.
        """
        found = np.full(len(thread), -1, np.int64)
        if not len(self._index):
            return found
        lane = np.searchsorted(self._threads, thread).clip(max=len(self._threads) - 1)
        known = self._threads[lane] == thread
        lane, time = lane[known].astype(np.int32), time_ns[known]
        always = np.ones(len(lane), bool)
        at = self._binder.rows(lane, time - 1, always)
        missed = (at < 0) | (self._end[at] < time)
        at[missed] = self._binder.rows(lane[missed], time[missed], always[missed])
        found[known] = np.where(at >= 0, self._index[at], -1)
        return found


def read_calls(files: HostFiles, names: Dictionary, clock: Clock) -> Calls:
    """Put all calls into the builder; halves without the other are closed, and booked."""
    build = files.build
    rows = files.columns("api_event.data")
    rows, end, closed = _whole(rows, clock.host_ns(rows["time"]), clock)
    start = rows["start_ns"]
    bad = (start < 0) | (end < 0) | (rows["time"] == 0)
    negative = ~bad & (end < start)
    build.seen("slice", len(start))
    build.skip("bad-time", "api_event", int(bad.sum()), "slice")
    build.skip("negative-duration", "api_event", int(negative.sum()), "slice")
    good = ~bad & ~negative
    build.skip("unfinished-slice", "api_event", int((good & ~closed).sum()))
    rows = {name: column[good] for name, column in rows.items()}
    start, end, closed = start[good], end[good], closed[good]
    first = build.extend(
        track=threads(build, rows["thread"], Layer.RUNTIME, "CANN"),
        start_ns=start,
        dur_ns=end - start,
        op=OpClass.HOST,
        **_said(build, names, rows, closed),
    )
    row = np.arange(first, first + len(start))
    return Calls(rows["level"], rows["type"], rows["thread"], rows["item"], start, end, row)


def threads(build: TraceBuilder, ids: I64, layer: Layer, title: str) -> I32:
    """The lane of the thread of every row."""

    def track(thread: int) -> int:
        return build.track(layer, f"Thread {thread % (1 << 64)}", "", title)

    return tracks((ids,), track)


def _whole(
    rows: dict[str, I64], time_ns: I64, clock: Clock
) -> tuple[dict[str, I64], I64, NDArray[np.bool_]]:
    """Halves joined: records of the calls, their ends, and whether those are in the file."""
    half = rows["end"] == NEVER
    end = clock.host_ns(rows["end"])
    opens, closes = _halves({name: column[half] for name, column in rows.items()})
    at = np.flatnonzero(half)
    end[at[opens]] = np.where(closes >= 0, time_ns[at[closes]], -1)
    closed = np.ones(len(end), bool)
    closed[at[opens[closes < 0]]] = False
    last = _last_of_thread(rows["thread"], np.maximum(time_ns, end))
    end = np.where(closed, end, last)
    kept = ~half
    kept[at[opens]] = True
    rows = {name: column[kept] for name, column in {**rows, "start_ns": time_ns}.items()}
    return rows, end[kept], closed[kept]


def _halves(rows: Mapping[str, I64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of starts, and of the end of each, -1 if there is none."""
    key = combined_key(*(rows[n] for n in ("level", "type", "thread", "request", "item")))
    order, turn = turns(key, rows["time"])
    opens = np.flatnonzero(turn % 2 == 0)
    after = np.minimum(opens + 1, len(order) - 1)
    ended = turn[after] == turn[opens] + 1
    return order[opens], np.where(ended, order[after], -1)


def turns(key: I64, time: I64) -> tuple[NDArray[np.intp], I64]:
    """Rows by key, then time, and how many of its key come before each, in that order."""
    order = np.lexsort((time, key))
    ordered = key[order]
    new = np.ones(len(key), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(new)
    return order, np.arange(len(key)) - first[np.cumsum(new) - 1] if len(key) else key


def _last_of_thread(thread: I64, time_ns: I64) -> I64:
    """For every row the last time of its thread."""
    if not len(thread):
        return time_ns
    order = np.argsort(thread, kind="stable")
    _, first, back = np.unique(thread[order], return_index=True, return_inverse=True)
    last: I64 = np.empty_like(time_ns)
    last[order] = np.maximum.reduceat(time_ns[order], first)[back]
    return last


def _said(
    build: TraceBuilder, names: Dictionary, rows: Mapping[str, I64], closed: NDArray[np.bool_]
) -> dict[str, I32]:
    """Names and arguments, called as in the profiler's own JSON."""
    items = names.names(_hashed_items(names, rows), "api_event: item_id")
    codes, table = combined(rows["level"], rows["type"], rows["item"])
    said = [_call(names, items, *row) for row in table]
    unknown = np.array([not names.type_name(level, kind) for level, kind, _ in table], bool)
    build.skip("name-unknown", "api_event: type", int(unknown[codes].sum()))

    def member(key: str) -> tuple[I64, Value]:
        return codes, lambda code: quoted(said[code][key]) if key in said[code] else b""

    arguments: dict[str, tuple[I64, Value]] = {
        "Thread Id": (rows["thread"], number),
        **{key: member(key) for key in ("Mode", "level", "id", "item_id")},
        "unfinished": (np.where(closed, -1, 1), lambda code: b"true" if code > 0 else b""),
    }
    texts = np.array([build.string(call["name"]) for call in said], np.int32)
    return {"name": texts[codes], "args": shared(build, arguments)}


def _hashed_items(names: Dictionary, rows: Mapping[str, I64]) -> I64:
    """Items that are hashes; 0 for those that are plain numbers."""
    codes, table = combined(rows["level"], rows["type"])
    plain = np.array([_is_plain(names, *row) for row in table], bool)
    return np.where(plain[codes], 0, rows["item"])


def _is_plain(names: Dictionary, level: int, kind: int) -> bool:
    return level == MODEL or (level == NODE and names.type_name(level, kind) == STEP_INFO)


def _call(
    names: Dictionary, items: Mapping[int, str], level: int, kind: int, item: int
) -> dict[str, str]:
    """What a call is called, and its arguments."""
    told = LEVELS.get(level, str(level))
    known = names.type_name(level, kind) or str(kind)
    plain = item == 0 or _is_plain(names, level, kind)
    what = str(item % (1 << 64)) if plain else items[item]
    above = LAYERS.get(told, "Api")
    if level == ACL:
        mode, own, name = _ACL_MODES.get(kind >> 16, str(kind >> 16)), known, known
    else:
        mode, own, name = known, "0", what if level == HCCL else known
    return {"name": f"{above}@{name}", "Mode": mode, "level": told, "id": own, "item_id": what}
