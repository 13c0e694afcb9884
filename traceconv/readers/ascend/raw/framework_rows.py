"""Files of ``FRAMEWORK``: records of tagged fields as rows, their clock, and their tracks."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import is_unix_ns
from traceconv.core.model import I64, Mask, OpClass, TrackKind
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import starting
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.ascend.raw.clock import Clock, Counter, first_object
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_samples
from traceconv.readers.shared.numbers import whole_number

# -- files of tagged fields ---------------------------------------------------------------------
#
# u16 type, u32 length, value; all little-endian. A file is a list of such fields. The value of
# each is one record: a fixed struct, then fields with text. Lengths are read field
# by field; everything else is done for all records at once.

_HEAD = Struct("<HI")
_SAMPLE = 1000
"""Records by which one of several layouts is chosen."""

_MOST_FIELDS = 64
"""Fields of a record that are read; profilers write a dozen."""

UNDECODABLE = "N/A"

Bytes = NDArray[np.uint8]


def read_table(
    data: Any, layouts: Sequence[np.dtype[np.void]], fields: Mapping[int, str], build: TraceBuilder
) -> TableRows:
    """The records of a file as rows; those that are cut or too short are reported.

    64-bit numbers keep their bits. Texts are columns of codes.

    Args:
        data:    its bytes, or a mapping of them.
        layouts: fixed structs of the versions. The first of those whose fields read cleanest is
            used.
        fields:  names of the text fields, by type.
    """
    start, size, end = _boundaries(data)
    if end < len(data):
        build.skip("truncated", f"byte {end}")
    view = np.frombuffer(data, np.uint8)
    few = slice(0, _SAMPLE)
    layout = max(
        layouts, key=lambda candidate: _clean(view, start[few], size[few], candidate, fields)
    )

    def report(bad: Mask) -> None:
        if bad.any():
            where = f"byte {int(start[np.flatnonzero(bad)[0]])}"
            build.skip("malformed-record", where, int(bad.sum()))

    has_struct = size >= layout.itemsize
    report(~has_struct)
    start, size = start[has_struct], size[has_struct]
    tagged, bad = _fields(view, start + layout.itemsize, start + size)
    report(bad)
    fixed = _gathered(view, start, layout.itemsize).view(layout)[:, 0]
    rows = TableRows({}, "", len(start))
    for name in layout.names or ():
        rows.columns[name] = np.ascontiguousarray(fixed[name]).astype(np.int64)
    for kind, name in fields.items():
        _add_texts(rows, name, data, tagged, kind, build)
    return rows


def _boundaries(data: Any) -> tuple[I64, I64, int]:
    """Begin and size of every record, and where the last whole one ends."""
    begins, sizes, offset, end = array("q"), array("q"), 0, len(data) - _HEAD.size
    unpack, begin, measure = _HEAD.unpack_from, begins.append, sizes.append
    while offset <= end:
        size = unpack(data, offset)[1]
        after = offset + 6 + size
        if after > end + 6:
            break
        begin(offset + 6)
        measure(size)
        offset = after
    return np.array(begins, np.int64), np.array(sizes, np.int64), offset


def _gathered(view: Bytes, start: I64, size: int) -> Bytes:
    """``size`` bytes from every start, as rows."""
    if not len(start):
        return np.zeros((0, size), np.uint8)
    # a window per byte costs nothing; only those at the starts are copied
    return np.lib.stride_tricks.sliding_window_view(view, size)[start]


class _Fields(NamedTuple):
    """Fields of all records: the record, the type, the begin of the value, its size."""

    record: I64
    kind: I64
    begin: I64
    size: I64


def _fields(view: Bytes, start: I64, end: I64) -> tuple[_Fields, Mask]:
    """The fields between each start and end, and which records end within one.

    The k-th fields of all records are read together.
    """
    offset = start.copy()
    record: I64 = np.arange(len(start), dtype=np.int64)
    bad = np.zeros(len(start), bool)
    columns: list[tuple[I64, ...]] = [(record[:0],) * 4]
    for _ in range(_MOST_FIELDS):
        # records that are not yet at their end, and have room for one more head
        record = record[offset[record] < end[record]]
        roomy = offset[record] + _HEAD.size <= end[record]
        bad[record[~roomy]] = True
        record = record[roomy]
        if not len(record):
            break
        # u16 and u32 at odd places: copied together, then read as columns
        head = _gathered(view, offset[record], _HEAD.size)
        kind = head[:, :2].copy().view("<u2")[:, 0].astype(np.int64)
        size = head[:, 2:].copy().view("<u4")[:, 0].astype(np.int64)
        begin = offset[record] + _HEAD.size
        fits = begin + size <= end[record]
        bad[record[~fits]] = True
        record = record[fits]
        columns.append((record, kind[fits], begin[fits], size[fits]))
        offset[record] = (begin + size)[fits]
    bad[record[offset[record] < end[record]]] = True
    return _Fields(*(np.concatenate(column) for column in zip(*columns, strict=True))), bad


def _clean(
    view: Bytes, start: I64, size: I64, layout: np.dtype[np.void], fields: Collection[int]
) -> int:
    """How many records read as if they were laid out so."""
    has_struct = size >= layout.itemsize
    tagged, bad = _fields(view, start[has_struct] + layout.itemsize, (start + size)[has_struct])
    if fields:
        bad[tagged.record[~np.isin(tagged.kind, list(fields))]] = True
    else:
        bad |= size[has_struct] > layout.itemsize
    return int((~bad).sum())


def _add_texts(
    rows: TableRows, name: str, data: Any, fields: _Fields, kind: int, build: TraceBuilder
) -> None:
    """One field of all records, -1 if it is missing or empty; of several in a record the last."""
    of_kind = fields.kind == kind
    begin, size = fields.begin[of_kind], fields.size[of_kind]
    parts = [data[a:b] for a, b in zip(begin.tolist(), (begin + size).tolist(), strict=True)]
    index = {part: i for i, part in enumerate(dict.fromkeys(parts))}
    codes: I64 = np.full(len(rows), -1, np.int64)
    # a later field of the same record overwrites an earlier one
    codes[fields.record[of_kind]] = np.fromiter(map(index.__getitem__, parts), np.int64, len(parts))
    names, undecodable = {}, []
    for part, code in index.items():
        try:
            names[code] = part.decode()
        except UnicodeDecodeError:
            names[code] = UNDECODABLE
            undecodable.append(code)
    bad = int(np.isin(codes, undecodable).sum())
    build.skip("bad-encoding", f"field {kind}", bad)
    empty = [code for code, text in names.items() if not text]
    rows.columns[name] = np.where(np.isin(codes, empty), -1, codes)
    rows.names[name] = names


# -- the clock of the stamps --------------------------------------------------------------------

_INFO = lazy_regex(r"profiler_info(?:_\d+)?\.json")
_HOST_INFO = lazy_regex(r"PROF_[^/]+/host/info\.json")
_MHZ = lazy_regex(r"[0-9]{1,4}(?:\.[0-9]{0,6})?")


class FrameworkClock:
    """The clocks of the files in one ``FRAMEWORK`` folder.

    MindSpore stamps with the host's counter. PyTorch does so if its ``profiler_info`` tells, which
    then has the counter's speed and one value of it; else it writes nanoseconds of the monotonic
    clock. MindSpore 2.2 and 2.3 write nanoseconds where ``info.json`` has no decimal frequency.

    Args:
        folder: the one around it, "" for the source itself.
        host:   of the collector that ran beside.
    """

    def __init__(self, build: TraceBuilder, source: Source, folder: str, host: Clock) -> None:
        self._build, self._host = build, host
        self._identity = Identity(source, build.issues)
        inner = f"{folder}/" if folder else ""
        self._names = {n[len(inner) :]: n for n in starting(source.names(), inner)}
        self._torch: Counter | None = None

    def ticks_ns(self, ticks: I64) -> I64:
        """Times of ticks of the host's counter; -1 for those outside the clock."""
        if doubt := self._host.host.doubt:
            self._build.skip("clock-assumed", doubt)
        return self._host.host_ns(ticks)

    def old_ns(self, stamps: I64) -> I64:
        """Times of stamps of MindSpore 2.2 and 2.3."""
        info = self._json(_HOST_INFO)
        frequency = first_object(info.get("CPU")).get("Frequency")
        if isinstance(frequency, str) and "." in frequency:
            return self.ticks_ns(stamps)
        offset = self._host.offset_ns or 0  # for stamps of the monotonic clock
        unix = is_unix_ns(stamps)
        good = (stamps > 0) & (unix | (stamps < 2**62 - abs(offset)))
        return np.where(good, np.where(unix, stamps, np.where(good, stamps, 0) + offset), -1)

    def torch_ns(self, stamps: I64) -> I64:
        """Times of stamps of PyTorch."""
        if self._torch is None:
            self._torch = self._of_torch(self._json(_INFO))
        return self._torch.ns(stamps)

    def _of_torch(self, info: Mapping[str, Any]) -> Counter:
        start, end = info.get("start_info"), info.get("end_info")
        if not isinstance(start, dict):
            self._build.skip("clock-assumed", "no start_info of the framework: the host's counter")
            return self._host.host
        offset = self._host.offset_ns
        if offset is None:
            end_facts = end if isinstance(end, dict) else {}
            unix, steady = (
                _whole(end_facts.get(key)) for key in ("collectionTimeEnd", "MonotonicTimeEnd")
            )
            offset = unix - steady if unix is not None and steady is not None else None
        if offset is None:
            self._build.skip("clock-assumed", "nothing ties the monotonic clock to Unix time")
        base = offset or 0
        if start.get("syscnt_enable") is not True:
            return Counter(Fraction(1), 0, base)
        count, monotonic = _whole(start.get("start_cnt")), _whole(start.get("start_monotonic"))
        text = str(start.get("freq"))
        mhz = Fraction(text.rstrip(".")) if _MHZ.fullmatch(text) else Fraction(0)
        if count is None or monotonic is None or not mhz:
            return self._host.host
        return Counter(1000 / mhz, count, monotonic + base)

    def _json(self, pattern: re.Pattern[str]) -> dict[str, Any]:
        name = next((n for n in self._names if pattern.fullmatch(n)), None)
        return self._identity.read_json(self._names[name]) if name else {}


def _whole(value: object) -> int | None:
    """A number of nanoseconds or ticks; decimals are cut off."""
    number = value.partition(".")[0] if isinstance(value, str) else value
    return whole_number(number, (1 << 62) - 1)


# -- rows -----------------------------------------------------------------------------------------

RANGES = RowLayout(
    end="end", name=Shown("name"), lane=Shown("lane"), group=Shown("process"), op=OpClass.HOST
)
_MEMORY = RowLayout(
    title="Counters", group=Shown("heading"), unit=Shown(absent="MB"),
    track={"kind": TrackKind.ALLOCATOR, "device_kind": "NPU"},
)  # fmt: skip
_MB = 1 << 20


def place(rows: TableRows) -> None:
    """Put rows on the threads of their processes; most rows are of the main process."""
    pids, codes = np.unique(rows["pid"], return_inverse=True)
    main = int(pids[np.argmax(np.bincount(codes))]) if len(pids) else 0

    def lane(pid: int, thread: int) -> tuple[str, dict[str, Any]]:
        process = -1 if pid in (main, 0) else max(pid, -1)
        return f"Thread {thread % (1 << 64)}", {"process": process, "thread": max(thread, -1)}

    def process(pid: int) -> tuple[str, dict[str, Any]]:
        return "" if pid in (main, 0) else f"Process {pid % (1 << 64)}", {}

    rows.label("lane", ("pid", "thread"), lane)
    rows.label("process", ("pid",), process)


def add_memory(
    build: TraceBuilder, component: str, rows: TableRows, totals: Mapping[str, str]
) -> None:
    """Add the memory that an allocator holds, in MB, as samples per device.

    Args:
        totals: fields of bytes, by what they count ("Total Allocated").
    """
    several = len(np.unique(rows["device"])) > 1

    def device(number: int) -> tuple[str, dict[str, Any]]:
        heading = f"NPU {number} Memory" if several and number >= 0 else "Memory"
        return heading, {"device": max(number, -1)}

    rows.label("heading", ("device",), device)
    for name, field in totals.items():
        rows.columns["value"] = rows[field] / _MB
        layout = structs.replace(_MEMORY, lane=Shown(absent=f"{component}/{name}"))
        add_samples(build, layout, rows)
