"""Files of the collector's host side: record layouts, names of numbers, and the calls of CANN.

They are called ``(aging|unaging).<class>.<kind>.slice_<n>``; the oldest part of what is *aging* may
have been dropped. Every record begins with the same magic number, a level and a thread.

A record of ``api_event`` is a whole call, or one half of one that began and ended in different
places: the first half of a key is its start, the next its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Layer
from traceconv.core.ordering import Parallel, combined_key, factored_rows
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.db.host import LAYERS
from traceconv.readers.ascend.raw.clock import Clock
from traceconv.readers.ascend.raw.slice_files import gathered, layout, numbered, records
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_rows
from traceconv.readers.shared.pairing import occurrences
from traceconv.readers.shared.trace_events.arrows import Binder
from traceconv.readers.shared.trace_events.placing import Anchors

MAGIC = 0x5A5A
NEVER = -1
"""The end of an API record that is one half of an event (2**64 - 1), as a column holds it."""

_HEAD = {"magic": (0, "<u2"), "thread": (8, "<u4"), "time": (16, "<u8")}
"""Fields of all records but calls; level, type and length repeat the file's name."""

LAYOUTS: Mapping[str, np.dtype[np.void]] = {
    "api_event.data": layout(
        40, magic=(0, "<u2"), level=(2, "<u2"), type=(4, "<u4"), thread=(8, "<u4"),
        request=(12, "<u4"), time=(16, "<u8"), end=(24, "<u8"), item=(32, "<u8"),
    ),
    "compact.task_track": layout(
        64, **_HEAD, device=(24, "<u2"), stream=(26, "<u2"), task=(28, "<u2"), batch=(30, "<u2"),
        kind=(32, "<u8"), kernel=(40, "<u8"),
    ),
    "compact.node_basic_info": layout(
        64, **_HEAD, op=(24, "<u8"), unit=(32, "<u4"), op_type=(36, "<u8"), blocks=(44, "<u4"),
        flags=(48, "<u4"), state=(52, "u1"),
    ),
    "compact.hccl_op_info": layout(
        64, **_HEAD, bits=(24, "u1"), data_type=(25, "u1"), algorithm=(26, "<u8"),
        count=(34, "<u8"), group=(42, "<u8"),
    ),
    "compact.memcpy_info": layout(64, **_HEAD, bytes=(24, "<u8"), direction=(40, "<u2")),
    "additional.hccl_info": layout(
        256, **_HEAD, item=(24, "<u8"), group=(40, "<u8"), local_rank=(48, "<u4"),
        remote_rank=(52, "<u4"), rank_size=(56, "<u4"), plane=(64, "<u4"), context=(68, "<u4"),
        notify=(72, "<u8"), bytes=(112, "<u8"), data_type=(124, "<u4"), link=(128, "<u4"),
        transport=(132, "<u4"), rdma=(136, "<u4"),
    ),
    "additional.graph_id_map": layout(
        256, **_HEAD, name=(24, "<u8"), graph=(32, "<u4"), model=(36, "<u4")
    ),
    "additional.context_id_info": layout(
        256, **_HEAD, op=(24, "<u8"), count=(32, "<u4"), contexts=(36, "(55,)<u4")
    ),
}  # fmt: skip
"""The records this reader takes in, by class and kind."""

HASH_DIC, TYPE_DIC = "additional.hash_dic", "additional.type_info_dic"

_FILE = lazy_regex(
    r"(?P<age>aging|unaging)\.(?P<kind>(?:additional|compact|variable)\.\w+|api_event\.data)"
)
_SIZES = {"compact": 64, "additional": 256}
_HASH_LINE = lazy_regex(rb"^[ \t]*(\d{1,20}):([^\r\n]*)", re.MULTILINE)
_TYPE_LINE = lazy_regex(rb"^[ \t]*(\d{1,5})_(\d{1,20}):([^\r\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class HostFiles:
    """The slices of one ``host/data`` folder, by class and kind; kept before aging ones."""

    source: Source
    build: TraceBuilder
    slices: Mapping[str, Sequence[Sequence[str]]]

    @classmethod
    def among(cls, source: Source, names: Iterable[str], build: TraceBuilder) -> HostFiles:
        """The files of ``names`` that the host side of the collector writes."""
        by_kind: dict[str, list[Sequence[str]]] = {}
        for stem, slices in reversed(numbered(names).items()):  # "unaging" before "aging"
            if match := _FILE.fullmatch(stem.rpartition("/")[2]):
                by_kind.setdefault(match["kind"], []).append(slices)
        return cls(source, build, by_kind)

    def columns(self, kind: str) -> dict[str, I64]:
        """The records of a kind as int64 columns (64-bit numbers keep their bits), in the order
        of their files; damaged records are reported.
        """
        cut = [np.zeros(0, LAYOUTS[kind])]
        for slices in self.slices.get(kind, ()):
            blob = gathered(self.source, slices, self.build)
            self.build.file = self.source.title(slices[0])
            cut.append(
                records(blob, LAYOUTS[kind], lambda rows: rows["magic"] == MAGIC, self.build)
            )
        return {
            name: np.concatenate([rows[name] for rows in cut]).astype(np.int64)
            for name in LAYOUTS[kind].names or ()
            if name != "magic"
        }

    def text(self, kind: str) -> bytes:
        """The lines of a dictionary."""
        return b"\n".join(
            gathered(self.source, slices, self.build) for slices in self.slices.get(kind, ())
        )

    def report_others(self) -> None:
        """Count the records of kinds that are not read."""
        for kind, files in sorted(self.slices.items()):
            if kind in LAYOUTS or kind in (HASH_DIC, TYPE_DIC):
                continue
            size = _SIZES.get(kind.partition(".")[0], 0)
            for slices in files:
                self.build.file = self.source.title(slices[0])
                stored = sum(self.source.size(name) for name in slices)
                self.build.skip("kind-not-read", kind, stored // size if size else len(slices))


@dataclass(frozen=True)
class Dictionary:
    """Names of numbers.

    Attributes:
        hashes: by 64-bit hash, as a signed number.
        types:  by level and type.
        build:  where numbers without a name are reported.
    """

    hashes: Mapping[int, str]
    types: Mapping[tuple[int, int], str]
    build: TraceBuilder
    _missing: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, files: HostFiles) -> Dictionary:
        """The dictionaries of a folder."""
        hashes = {
            # 64-bit hashes as the signed numbers of columns
            (int(number) + (1 << 63)) % (1 << 64) - (1 << 63): name.decode("utf-8", "replace")
            for number, name in _HASH_LINE.findall(files.text(HASH_DIC))
        }
        types = {
            (int(level), int(number)): name.decode("utf-8", "replace")
            for level, number, name in _TYPE_LINE.findall(files.text(TYPE_DIC))
        }
        return cls(hashes, types, files.build)

    def name(self, code: int) -> str:
        """The string of a hash; the number itself if the dictionary lacks it."""
        return self.hashes.get(code) or str(code % (1 << 64))

    def names(self, codes: I64, where: str) -> dict[int, str]:
        """Strings of all hashes of a column but 0, which means none; those that are lacking
        are reported under ``where``.
        """
        values, counts = np.unique(codes, return_counts=True)
        table = dict(zip(values.tolist(), counts.tolist(), strict=True))
        table.pop(0, None)
        self.build.skip(
            "name-unknown", where, sum(n for v, n in table.items() if v not in self.hashes)
        )
        return {v: self.name(v) for v in table}

    def type_name(self, level: int, number: int) -> str:
        """The name of a type of records of a level; older collectors hash it. "" if unknown."""
        return self.types.get((level, number)) or self.hashes.get(number, "")


# -- calls ----------------------------------------------------------------------------------------

ACL, MODEL, NODE, HCCL, RUNTIME = 20000, 15000, 10000, 5500, 5000
LEVELS = {
    30000: "pytorch", 25000: "pta", 20500: "msproftx", ACL: "acl", MODEL: "model", NODE: "node",
    HCCL: "communication", RUNTIME: "runtime",
}  # fmt: skip
STEP_INFO = "step_info"
"""A call of the node layer that states a step and launches nothing."""

_ACL_MODES = {
    1: "ACL_OP", 2: "ACL_MODEL", 3: "ACL_RTS", 4: "ACL_OTHERS", 5: "ACL_NN", 6: "ACL_ASCENDC",
    7: "HOST_HCCL", 9: "ACL_DVPP", 10: "ACL_GRAPH", 11: "ACL_ATB",
}  # fmt: skip


@dataclass(frozen=True)
class Calls(Parallel):
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


class Around:
    """Finds the innermost of some calls around an instant of a thread."""

    def __init__(self, calls: Calls, is_chosen: NDArray[np.bool_]) -> None:
        self._index = np.flatnonzero(is_chosen)
        chosen = calls.take(self._index)
        self._end = chosen.end_ns
        self._threads, lane = np.unique(chosen.thread, return_inverse=True)
        rows = np.arange(len(chosen), dtype=np.int32)
        dur = chosen.end_ns - chosen.start_ns
        self._binder = Binder(Anchors(lane.astype(np.int32), chosen.start_ns, dur, rows))

    def at(self, thread: I64, time_ns: I64) -> I64:
        """The call around each instant, -1 outside of calls.

        A record is made at the end of its call: a call that ends just then is preferred to one
        that begins.
        """
        around = np.full(len(thread), -1, np.int64)
        if not len(self._index):
            return around
        lane = np.searchsorted(self._threads, thread).clip(max=len(self._threads) - 1)
        has_calls = self._threads[lane] == thread
        lane, time = lane[has_calls].astype(np.int32), time_ns[has_calls]
        always = np.ones(len(lane), bool)
        # first the call around the instant before; what ended by then gives way to a new one
        bound = self._binder.rows(lane, time - 1, always)
        missed = (bound < 0) | (self._end[bound] < time)
        bound[missed] = self._binder.rows(lane[missed], time[missed], always[missed])
        around[has_calls] = np.where(bound >= 0, self._index[bound], -1)
        return around


CALLS = RowLayout(
    end="end", name=Shown("name"), layer=Layer.RUNTIME, title="CANN", lane=Shown("lane"),
    args=("Thread Id", "Mode", "level", "id", "item_id"),
)  # fmt: skip


def read_calls(files: HostFiles, names: Dictionary, clock: Clock) -> Calls:
    """Add all calls; halves without the other are closed, and reported."""
    build = files.build
    records = files.columns("api_event.data")
    records, end, closed = _whole(records, clock.host_ns(records["time"]), clock)
    start = np.where(records["time"] == 0, -1, records["start_ns"])
    rows = TableRows(
        {"start": start, "end": end, "Thread Id": records["thread"]}, "api_event", len(end)
    )
    usable = (start >= 0) & (end >= start)
    build.skip("unfinished-slice", "api_event", int((usable & ~closed).sum()))
    _describe(build, names, records, rows)

    def lane(thread: int) -> tuple[str, Mapping[str, int]]:
        return f"Thread {thread % (1 << 64)}", {"thread": max(thread, -1)}

    rows.label("lane", ("Thread Id",), lane)

    def state(call_rows: NDArray[np.intp]) -> list[bytes]:
        return [
            b"" if is_closed else b',"unfinished":true' for is_closed in closed[call_rows].tolist()
        ]

    event = add_rows(build, CALLS, rows, None if closed.all() else state)
    columns = (records["level"], records["type"], records["thread"], records["item"], start, end)
    return Calls(*columns, event).take(event >= 0)


def _whole(
    rows: dict[str, I64], time_ns: I64, clock: Clock
) -> tuple[dict[str, I64], I64, NDArray[np.bool_]]:
    """Halves joined: records of the calls, their ends, and whether those are in the file."""
    half = rows["end"] == NEVER
    end = clock.host_ns(rows["end"])
    opens, closes = _halves({name: column[half] for name, column in rows.items()})
    half_rows = np.flatnonzero(half)
    end[half_rows[opens]] = np.where(closes >= 0, time_ns[half_rows[closes]], -1)
    closed = np.ones(len(end), bool)
    closed[half_rows[opens[closes < 0]]] = False
    last_times = _last_of_thread(rows["thread"], np.maximum(time_ns, end))
    end = np.where(closed, end, last_times)
    is_call = ~half
    is_call[half_rows[opens]] = True  # a pair of halves is kept as its start
    rows = {name: column[is_call] for name, column in {**rows, "start_ns": time_ns}.items()}
    return rows, end[is_call], closed[is_call]


def _halves(rows: Mapping[str, I64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of starts, and of the end of each, -1 without one."""
    key = combined_key(*(rows[n] for n in ("level", "type", "thread", "request", "item")))
    order, turn = occurrences(key, rows["time"])
    # of one key the halves alternate: even ones start, and the next in order ends them
    opens = np.flatnonzero(turn % 2 == 0)
    after = np.minimum(opens + 1, len(order) - 1)
    ended = turn[after] == turn[opens] + 1
    return order[opens], np.where(ended, order[after], -1)


def _last_of_thread(thread: I64, time_ns: I64) -> I64:
    """For every row the last time of its thread."""
    if not len(thread):
        return time_ns
    order = np.argsort(thread, kind="stable")
    _, begins, back = np.unique(thread[order], return_index=True, return_inverse=True)
    last_times: I64 = np.empty_like(time_ns)
    # maximum of each thread's run in the order of threads, spread over its rows
    last_times[order] = np.maximum.reduceat(time_ns[order], begins)[back]
    return last_times


def _describe(
    build: TraceBuilder, names: Dictionary, records: Mapping[str, I64], rows: TableRows
) -> None:
    """Add names and arguments, as in the profiler's own JSON."""
    table, codes = factored_rows(records["level"], records["type"])
    plain = np.array([_is_plain(names, *row) for row in table], bool)[codes]
    items = names.names(np.where(plain, 0, records["item"]), "api_event: item_id")
    table, codes = factored_rows(records["level"], records["type"], records["item"])
    unknown = np.array([not names.type_name(level, kind) for level, kind, _ in table], bool)
    build.skip("name-unknown", "api_event: type", int(unknown[codes].sum()))
    calls = [_call(names, items, *row) for row in table]
    for key in ("name", *CALLS.args[1:]):
        rows.columns[key] = codes.astype(np.int64)
        rows.names[key] = {i: call[key] for i, call in enumerate(calls)}


def _is_plain(names: Dictionary, level: int, kind: int) -> bool:
    return level == MODEL or (level == NODE and names.type_name(level, kind) == STEP_INFO)


def _call(
    names: Dictionary, items: Mapping[int, str], level: int, kind: int, item: int
) -> dict[str, str]:
    """The name of a call and its arguments."""
    layer = LEVELS.get(level, str(level))
    type_name = names.type_name(level, kind) or str(kind)
    plain = item == 0 or _is_plain(names, level, kind)
    item_text = str(item % (1 << 64)) if plain else items[item]
    above = LAYERS.get(layer, "Api")
    if level == ACL:
        mode, id_text, name = _ACL_MODES.get(kind >> 16, str(kind >> 16)), type_name, type_name
    else:
        mode, id_text, name = type_name, "0", item_text if level == HCCL else type_name
    return {
        "name": f"{above}@{name}",
        "Mode": mode,
        "level": layer,
        "id": id_text,
        "item_id": item_text,
    }
