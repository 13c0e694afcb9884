"""Rows of a framework's own timeline: what its files share on the way into the trace."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import is_unix_ns
from traceconv.core.model import I32, I64, Kind, Layer, Mask, OpClass, TrackKind
from traceconv.core.ordering import factored_rows
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import starting
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.ascend.raw.clock import Clock, Counter, first_object
from traceconv.readers.shared.arguments import Columns, apart, tracks
from traceconv.readers.shared.ascend_lanes import host_named
from traceconv.readers.shared.numbers import whole_number

# -- files of tagged fields ---------------------------------------------------------------------
#
# u16 type, u32 length, value; all little-endian. A file is a list of such fields. The value of
# each is one record: a fixed struct, then fields of its own that hold text. Lengths are walked
# field by field; everything else is done for all records at once.

_HEAD = Struct("<HI")
_SAMPLE = 1000
"""Records by which one of several layouts is chosen."""

_MOST_FIELDS = 64
"""Fields of a record that are looked at; profilers write a dozen."""

UNDECODABLE = "N/A"

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Texts:
    """One text field of all records.

    Attributes:
        codes:  index into ``values``, per record; -1 where a record lacks the field.
        values: the different texts.
    """

    codes: I64
    values: Sequence[str]

    def mapping(self) -> dict[int, str]:
        """The texts by code."""
        return dict(enumerate(self.values))


@dataclass(frozen=True)
class Table:
    """The records of a file.

    Attributes:
        fixed: structured array, a row per record.
        texts: by type of field.
    """

    fixed: NDArray[np.void]
    texts: Mapping[int, Texts]

    def column(self, name: str) -> I64:
        """A number of the fixed struct; 64-bit ones keep their bits."""
        return np.ascontiguousarray(self.fixed[name]).astype(np.int64)

    def text(self, kind: int) -> Texts:
        """A text field; none has it if it was not asked for."""
        return self.texts.get(kind) or Texts(np.full(len(self.fixed), -1, np.int64), ())

    def __len__(self) -> int:
        return len(self.fixed)


def read_table(
    data: Any, layouts: Sequence[np.dtype[np.void]], wanted: Collection[int], build: TraceBuilder
) -> Table:
    """All records of a file; those that are cut or too short are booked.

    Args:
        data:    its bytes, or a mapping of them.
        layouts: fixed structs that versions use; the one whose fields read cleanest is taken,
            the first of several.
        wanted:  types of the text fields to read.
    """
    start, size, rest = _boundaries(data)
    if rest < len(data):
        build.skip("truncated", f"byte {rest}")
    view = np.frombuffer(data, np.uint8)
    few = slice(0, _SAMPLE)
    layout = max(layouts, key=lambda one: _clean(view, start[few], size[few], one, wanted))
    whole = size >= layout.itemsize
    if not whole.all():
        place = f"byte {int(start[np.flatnonzero(~whole)[0]])}"
        build.skip("malformed-record", place, int((~whole).sum()))
    start, size = start[whole], size[whole]
    fields, bad = _fields(view, start + layout.itemsize, start + size)
    if bad.any():
        place = f"byte {int(start[np.flatnonzero(bad)[0]])}"
        build.skip("malformed-record", place, int(bad.sum()))
    texts = {kind: _texts(data, fields, kind, len(start), build) for kind in wanted}
    return Table(_gathered(view, start, layout.itemsize).view(layout)[:, 0], texts)


def _boundaries(data: Any) -> tuple[I64, I64, int]:
    """Begin and size of every record, and where the last whole one ends."""
    begins, sizes, at, end = array("q"), array("q"), 0, len(data) - _HEAD.size
    unpack, begin, measure = _HEAD.unpack_from, begins.append, sizes.append
    while at <= end:
        size = unpack(data, at)[1]
        after = at + 6 + size
        if after > end + 6:
            break
        begin(at + 6)
        measure(size)
        at = after
    return np.array(begins, np.int64), np.array(sizes, np.int64), at


def _gathered(view: Bytes, start: I64, size: int) -> Bytes:
    """``size`` bytes from every start, as rows."""
    if not len(start):
        return np.zeros((0, size), np.uint8)
    # a window per byte costs nothing; only those at the starts are copied
    return np.lib.stride_tricks.sliding_window_view(view, size)[start]


@dataclass(frozen=True)
class _Fields:
    """Fields of all records: the record, the type, where the value begins, its size."""

    record: I64
    kind: I64
    begin: I64
    size: I64


def _fields(view: Bytes, start: I64, end: I64) -> tuple[_Fields, Mask]:
    """The fields between each start and end, and which records end within one.

    The k-th fields of all records are read together.
    """
    at = start.copy()
    record: I64 = np.arange(len(start), dtype=np.int64)
    bad = np.zeros(len(start), bool)
    found: list[tuple[I64, ...]] = [(record[:0],) * 4]
    for _ in range(_MOST_FIELDS):
        # records that are not yet at their end, and have room for one more head
        record = record[at[record] < end[record]]
        roomy = at[record] + _HEAD.size <= end[record]
        bad[record[~roomy]] = True
        record = record[roomy]
        if not len(record):
            break
        # u16 and u32 at odd places: copied together, then read as columns
        head = _gathered(view, at[record], _HEAD.size)
        kind = head[:, :2].copy().view("<u2")[:, 0].astype(np.int64)
        size = head[:, 2:].copy().view("<u4")[:, 0].astype(np.int64)
        begin = at[record] + _HEAD.size
        fits = begin + size <= end[record]
        bad[record[~fits]] = True
        record = record[fits]
        found.append((record, kind[fits], begin[fits], size[fits]))
        at[record] = (begin + size)[fits]
    bad[record[at[record] < end[record]]] = True
    return _Fields(*(np.concatenate(column) for column in zip(*found, strict=True))), bad


def _clean(
    view: Bytes, start: I64, size: I64, layout: np.dtype[np.void], wanted: Collection[int]
) -> int:
    """How many records read as if they were laid out so."""
    whole = size >= layout.itemsize
    fields, bad = _fields(view, start[whole] + layout.itemsize, (start + size)[whole])
    if wanted:
        bad[fields.record[~np.isin(fields.kind, list(wanted))]] = True
    else:
        bad |= size[whole] > layout.itemsize
    return int((~bad).sum())


def _texts(data: Any, fields: _Fields, kind: int, count: int, build: TraceBuilder) -> Texts:
    """One field of all records; of several in a record the last."""
    of = fields.kind == kind
    begin, size = fields.begin[of], fields.size[of]
    ends = (begin + size).tolist()
    parts = [data[a:b] for a, b in zip(begin.tolist(), ends, strict=True)]
    known = dict.fromkeys(parts)
    index = {part: i for i, part in enumerate(known)}
    codes: I64 = np.full(count, -1, np.int64)
    # a later field of the same record overwrites an earlier one
    codes[fields.record[of]] = np.fromiter(map(index.__getitem__, parts), np.int64, len(parts))
    decoded = [_decoded(part) for part in known]
    undecodable = np.array([text is None for text in decoded], bool)
    if undecodable.any():
        present = codes[codes >= 0]
        build.skip("bad-encoding", f"field {kind}", int(undecodable[present].sum()))
    return Texts(codes, [UNDECODABLE if text is None else text for text in decoded])


def _decoded(part: bytes) -> str | None:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return None


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
        return _nanoseconds(stamps, self._host.offset_ns or 0)

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
            offset = _offset(end if isinstance(end, dict) else {})
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

    def _json(self, wanted: re.Pattern[str]) -> dict[str, Any]:
        name = next((n for n in self._names if wanted.fullmatch(n)), None)
        return self._identity.read_json(self._names[name]) if name else {}


def _nanoseconds(stamps: I64, offset: int) -> I64:
    """Stamps of Unix time, or of the monotonic clock, as times; -1 for unusable ones."""
    unix = is_unix_ns(stamps)
    reach = 2**62 - abs(offset)
    good = (stamps > 0) & (unix | (stamps < reach))
    return np.where(good, np.where(unix, stamps, np.where(good, stamps, 0) + offset), -1)


def _offset(end: Mapping[str, Any]) -> int | None:
    """Unix time minus the monotonic clock, as the end of collecting tells them."""
    unix, monotonic = (_whole(end.get(key)) for key in ("collectionTimeEnd", "MonotonicTimeEnd"))
    return unix - monotonic if unix is not None and monotonic is not None else None


def _whole(value: object) -> int | None:
    """A number of nanoseconds or ticks; decimals are cut off."""
    whole = value.partition(".")[0] if isinstance(value, str) else value
    return whole_number(whole, (1 << 62) - 1)


# -- rows -----------------------------------------------------------------------------------------

MB = 1 << 20


@dataclass(frozen=True)
class Names:
    """Names of rows: a code per row, and the text of each code."""

    codes: I64
    values: list[str]

    @classmethod
    def joined(cls, columns: tuple[I64, ...], spelled: Mapping[tuple[int, ...], str]) -> Names:
        """Those a few columns spell together."""
        table, codes = factored_rows(*columns)
        return cls(codes, [spelled[row] for row in table])

    def take(self, rows: Mask | I64) -> Names:
        """The names of some rows."""
        return Names(self.codes[rows], self.values)

    def ids(self, build: TraceBuilder) -> I32:
        """String ids; those nobody uses are not stored."""
        used, back = np.unique(self.codes, return_inverse=True)
        found = [build.string(self.values[code]) for code in used.tolist()]
        return np.array(found, np.int32)[back]

    def steps(self) -> I32:
        """The step each row marks; -1 for none."""
        used, back = np.unique(self.codes, return_inverse=True)
        marks = [host_named(self.values[code]) for code in used.tolist()]
        return np.array([mark.step if mark else -1 for mark in marks], np.int32)[back]


def of_texts(texts: Texts) -> Names:
    """A text field as names; "" where a record lacks it."""
    lacking = len(texts.values)
    return Names(np.where(texts.codes >= 0, texts.codes, lacking), [*texts.values, ""])


@dataclass(frozen=True)
class Lanes:
    """Threads of a framework as tracks.

    Attributes:
        title: of their layer: "Python", "MindSpore".
    """

    build: TraceBuilder
    title: str
    main: int

    @classmethod
    def of(cls, build: TraceBuilder, title: str, pids: I64) -> Lanes:
        """Those of a file; what most rows are of is the main process."""
        values, codes = np.unique(pids, return_inverse=True)
        main = int(values[np.argmax(np.bincount(codes))]) if len(values) else 0
        return cls(build, title, main)

    def tracks(self, pids: I64, threads: I64) -> I32:
        """The lane of every row."""

        def track(pid: int, thread: int) -> int:
            own = pid in (self.main, 0)
            return self.build.track(
                Layer.HOST,
                f"Thread {thread % (1 << 64)}",
                "" if own else f"Process {pid % (1 << 64)}",
                self.title,
                process=-1 if own else max(pid, -1),
                thread=max(thread, -1),
            )

        return tracks((pids, threads), track)


def put_slices(
    build: TraceBuilder, track: I32, start: I64, end: I64, names: Names, args: ArrayLike = -1,
    step: ArrayLike = -1,
) -> I64:  # fmt: skip
    """Add slices of the host; the row of each."""
    first = build.extend(
        track=track, start_ns=start, dur_ns=end - start, name=names.ids(build), op=OpClass.HOST,
        step=step, args=args, kind=Kind.SLICE,
    )  # fmt: skip
    return np.arange(first, first + len(start))


def arguments(build: TraceBuilder, numbers: Mapping[str, I64], columns: Columns) -> I32:
    """Argument ids, one per row."""
    if not len(next(iter(numbers.values()))):
        return np.empty(0, np.int32)
    return apart(build, numbers, columns)


def put_memory(
    build: TraceBuilder, component: str, device: I64, time_ns: I64, sums: Mapping[str, I64]
) -> None:
    """Add what an allocator holds, in MB, as samples per device.

    Args:
        sums: bytes by what they count ("Total Allocated").
    """
    several = len(np.unique(device, return_inverse=True)[0]) > 1
    good = time_ns >= 0
    for name, value in sums.items():
        build.seen("counter", len(value))
        build.skip("bad-time", "", int((~good).sum()), "counter")

        def track(number: int, name: str = name) -> int:
            group = f"NPU {number} Memory" if several and number >= 0 else "Memory"
            return build.track(
                Layer.COUNTER,
                f"{component}/{name}",
                group,
                "Counters",
                unit="MB",
                kind=TrackKind.ALLOCATOR,
                device=max(number, -1),
                device_kind="NPU",
            )

        if good.any():
            lanes = tracks((device[good],), track)
            build.counters(track=lanes, start_ns=time_ns[good], value=value[good] / MB)
