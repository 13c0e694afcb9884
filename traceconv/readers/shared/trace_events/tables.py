"""Columns of one file as they are read, and the codes in them.

Codes are numbers in order of appearance: shapes (phase, category, pid, tid as text),
names, series of counters, values of the type probe, ids of asynchronous events. Batches of
columns wait here until the metadata of the whole file is known, and are freed as they are placed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.columns import natural_order
from traceconv.core.model import I32, I64
from traceconv.core.patterns import lazy_regex

SLICE, INSTANT, BEGIN, END, FLOW, SAMPLE, ASYNC, METADATA, UNKNOWN = range(9)
"""Kinds of events, by phase."""

STATE = "state"
"""The phase of shapes of thread states: ``T`` with a duration, as Perfetto writes them."""

PHASES = {
    "X": SLICE,
    STATE: SLICE,
    **dict.fromkeys("iIR", INSTANT),
    "B": BEGIN,
    "E": END,
    **dict.fromkeys("stf", FLOW),
    "C": SAMPLE,
    **dict.fromkeys("bneSTpF", ASYNC),
    "M": METADATA,
}

_WHOLE = lazy_regex(r"(-?\d+)\.0*")

BATCH_ROWS = 16384
"""Smaller batches are joined."""

K = TypeVar("K", bound=Hashable)


class Codes(dict[K, int], Generic[K]):
    """Numbers values in order of appearance: ``codes[value]`` is the number, new or known."""

    def __missing__(self, value: K) -> int:
        code = self[value] = len(self)
        return code


def spelled(value: Any) -> str:
    """A process or thread id as text; 7, 7.0, "7" and "7.0" are one."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)
    match = _WHOLE.fullmatch(text)
    return match[1] if match else text


class NameCodes(dict[str | None, int]):
    """Like :class:`Codes`; no name has the code -1."""

    def __init__(self) -> None:
        super().__init__({None: -1})

    def __missing__(self, value: str | None) -> int:
        code = self[value] = len(self) - 1
        return code

    def texts(self) -> list[str]:
        """The names by code."""
        return [name for name in self if name is not None]


class Shapes(dict[tuple[Any, ...], int]):
    """Codes of (phase, category, pid, tid), by these values as they were decoded.

    Attributes:
        phase, category, pid, tid: text per code.
        kinds: per code, what the phase makes of an event; ``kind`` is the same as a column.
        lane: code of (pid, tid) per code.
        lanes: (pid, tid) per code of a lane.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase: list[str] = []
        self.category: list[str] = []
        self.pid: list[str] = []
        self.tid: list[str] = []
        self.lanes: Codes[tuple[str, str]] = Codes()
        self._known: Codes[tuple[str, str, str, str]] = Codes()
        self.kinds = bytearray()
        self._lane: list[int] = []

    def __missing__(self, raw: tuple[Any, ...]) -> int:
        phase, category, pid, tid = raw
        code = self[raw] = self.code(phase or "", category or "", spelled(pid), spelled(tid))
        return code

    def code(self, phase: str, category: str, pid: str, tid: str) -> int:
        """The code of texts."""
        code = self._known[phase, category, pid, tid]
        if code == len(self.phase):
            self.phase.append(phase)
            self.category.append(category)
            self.pid.append(pid)
            self.tid.append(tid)
            self.kinds.append(PHASES.get(phase, UNKNOWN))
            self._lane.append(self.lanes[pid, tid])
        return code

    @property
    def kind(self) -> NDArray[np.uint8]:
        return np.frombuffer(bytes(self.kinds), np.uint8)

    @property
    def lane(self) -> I32:
        return np.array(self._lane, np.int32)

    def place(self, code: int) -> str:
        """How to call the lane of a shape in messages."""
        return f"pid {self.pid[code] or '-'} tid {self.tid[code] or '-'}"


_TYPES = {
    **dict.fromkeys(("start", "dur", "args", "key"), "i8"),
    "value": "f8",
    "encloses": "?",
}
"""Types of the columns of batches by name; those of the others are int32."""


class Batch(msgspec.Struct):
    """Columns of equal length; a column of None holds -1 throughout."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self, rows: Any) -> Self:
        """The rows an index array or a mask names."""
        return type(self)(*(None if c is None else c[rows] for c in self.columns()))

    def columns(self) -> list[Any]:
        return [getattr(self, name) for name in self.__struct_fields__]

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> Self:
        """A batch of some rows, given as tuples."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(cls.__struct_fields__)
        by_field = zip(cls.__struct_fields__, columns, strict=True)
        return cls(*(np.array(values, _TYPES.get(name, "i4")) for name, values in by_field))

    @classmethod
    def joined(cls, batches: Sequence[Self]) -> Self:
        """One batch of one or more."""
        columns = zip(*(batch.columns() for batch in batches), strict=True)
        sizes = list(map(len, batches))
        if len(batches) == 1:
            return batches[0]
        return cls(*(_concatenated(parts, sizes) for parts in columns))


def _concatenated(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    if all(part is None for part in parts):
        return None
    filled = zip(parts, sizes, strict=True)
    return np.concatenate([np.full(n, -1, np.int32) if p is None else p for p, n in filled])


class Rows(Batch):
    """Slices, instants, begins and ends. ``name`` is -1 without one; ``args`` is the address of
    the arguments, ``length`` their bytes, 0 without any.
    """

    shape: I32
    name: I32
    start: I64
    dur: I64
    args: I64
    length: I32
    graph: I32 | None = None
    step: I32 | None = None
    type: I32 | None = None


class Flows(Batch):
    """Ends of flows. ``key`` is a code of category, name and id; ``name`` is -1 where the category
    names the flow; ``encloses`` says whether it binds to the slice around it.
    """

    shape: I32
    name: I32
    start: I64
    key: I64
    encloses: NDArray[np.bool_]


class Samples(Batch):
    """Values of counters."""

    shape: I32
    name: I32
    series: I32
    start: I64
    value: NDArray[np.float64]


class Asyncs(Batch):
    """Asynchronous events; ``key`` is the code of their pid, category and id."""

    shape: I32
    name: I32
    start: I64
    args: I64
    length: I32
    key: I32


B = TypeVar("B", bound=Batch)


class Pile(Generic[B]):
    """Batches of one kind, in order. Small ones are joined as they come: many small arrays among
    short-lived objects would keep memory from being given back.
    """

    def __init__(self) -> None:
        self._batches: deque[B] = deque()
        self._small: list[B] = []
        self._rows = 0

    def append(self, batch: B) -> None:
        self._small.append(batch)
        self._rows += len(batch)
        if self._rows >= BATCH_ROWS:
            self._settle()

    def _settle(self) -> None:
        if self._small:
            self._batches.append(type(self._small[0]).joined(self._small))
            self._small, self._rows = [], 0

    def __bool__(self) -> bool:
        return bool(self._batches or self._small)

    def __iter__(self) -> Iterator[B]:
        self._settle()
        return iter(self._batches)

    def drain(self) -> Iterator[B]:
        """Yield every batch, and drop it then."""
        self._settle()
        while self._batches:
            yield self._batches.popleft()

    def whole(self) -> B:
        """All rows as one batch, given up a column at a time; there must be some."""
        batches = list(self.drain())
        if len(batches) == 1:
            return batches[0]
        sizes, columns = list(map(len, batches)), []
        for name in type(batches[0]).__struct_fields__:
            columns.append(_concatenated([getattr(batch, name) for batch in batches], sizes))
            for batch in batches:
                setattr(batch, name, None)
        return type(batches[0])(*columns)


class Tally:
    """The counts of events seen, lost and repaired, until the file has been read.

    Places are kept apart from the order of reading, so that accounts do not depend on the size of
    chunks or on the tier.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._counts: Counter[tuple[str, str | None]] = Counter()
        self._places: dict[tuple[str, str | None], Counter[str]] = {}

    def saw(self, kind: str, count: int = 1) -> None:
        """Count rows of a kind (see :data:`traceconv.core.model.KINDS`) as seen."""
        self._seen[kind] += int(count)

    def add(self, code: str, where: str = "", count: int = 1, kind: str | None = None) -> None:
        """Book ``count`` records under an issue code; ``kind`` as in ``TraceBuilder.skip``."""
        if count <= 0:
            return
        self._counts[code, kind] += int(count)
        if where:
            self._places.setdefault((code, kind), Counter())[where] += int(count)

    def count(self, code: str) -> int:
        return sum(n for (c, _), n in self._counts.items() if c == code)

    def places(self, code: str) -> list[str]:
        """Where records were counted under an issue code."""
        place_counts = (places for (c, _), places in self._places.items() if c == code)
        return [where for places in place_counts for where in places]

    def book(self, build: TraceBuilder) -> None:
        """Hand everything to the builder."""
        for record_kind, count in self._seen.items():
            build.seen(record_kind, count)
        for (code, kind), unlisted in sorted(self._counts.items(), key=str):
            places = self._places.get((code, kind), Counter())
            if code == "event-field-unread":  # names of fields, however many
                listed = ", ".join(f"{name[:40]}: {places[name]}" for name in sorted(places)[:100])
                places = Counter({listed: unlisted})
            for where in sorted(places, key=natural_order)[: build.issues.PLACES_KEPT]:
                build.skip(code, where, places[where], kind)
                unlisted -= places[where]
            build.skip(code, count=unlisted, kind=kind)


class Tables(msgspec.Struct):
    """All that is read of a file: batches by kind, codes, accounts."""

    shapes: Shapes = msgspec.field(default_factory=Shapes)
    names: NameCodes = msgspec.field(default_factory=NameCodes)
    series: Codes[tuple[str, str]] = msgspec.field(default_factory=Codes)
    types: Codes[str] = msgspec.field(default_factory=Codes)
    async_ids: Codes[tuple[str, str, str]] = msgspec.field(default_factory=Codes)
    tally: Tally = msgspec.field(default_factory=Tally)
    rows: Pile[Rows] = msgspec.field(default_factory=Pile)
    marks: Pile[Rows] = msgspec.field(default_factory=Pile)
    flows: Pile[Flows] = msgspec.field(default_factory=Pile)
    samples: Pile[Samples] = msgspec.field(default_factory=Pile)
    asyncs: Pile[Asyncs] = msgspec.field(default_factory=Pile)
    events: int = 0
    rounded_durations: int = 0
    rounded_stamps: int = 0

    def add_rows(self, rows: Rows) -> None:
        """Take slices and instants, and begins and ends apart from them."""
        kind = self.shapes.kind[rows.shape]
        marks = kind >= BEGIN
        if marks.any():
            self.marks.append(rows.take(marks))
            rows = rows.take(~marks)
        if len(rows):
            self.rows.append(rows)
