"""The columns of a trace. :mod:`traceconv.core.model` describes what they mean together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
)
from weakref import ref

import msgspec
import numpy as np

from traceconv.core import frames
from traceconv.core.frames import Words, or_absent
from traceconv.core.kinds import Kind, OpClass, StepSource
from traceconv.core.ordering import in_lanes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

I8: TypeAlias = "NDArray[np.int8]"
I32: TypeAlias = "NDArray[np.int32]"
F32: TypeAlias = "NDArray[np.float32]"
I64: TypeAlias = "NDArray[np.int64]"
F64: TypeAlias = "NDArray[np.float64]"
Mask: TypeAlias = "NDArray[np.bool_]"

_TYPES = {"I8": "i1", "I32": "i4", "I64": "i8", "F64": "f8"}

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def once_each(function: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Cache the last result of ``function(trace, ...)``: tables and rules call it in turn.

    The result is kept while its trace lives and the further arguments are the same objects.
    Callers must not modify it.
    """
    last: list[tuple[ref[T], tuple[Any, ...], R]] = []

    @wraps(function)
    def call(trace: T, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        for owner, its_arguments, result in last:
            if (
                owner() is trace
                and list(map(id, its_arguments)) == list(map(id, arguments))
                and not keywords
            ):
                return result
        computed = function(trace, *arguments, **keywords)
        reference = ref(trace, lambda gone: last.clear() if last and last[0][0] is gone else None)
        last[:] = [] if keywords else [(reference, arguments, computed)]
        return computed

    return call


_BLOCK = 1 << 16


def looked_up(table: NDArray[Any], codes: NDArray[Any]) -> NDArray[Any]:
    """``table[codes]``, block by block: numpy makes codes of 8 bytes each first.

    Raises:
        IndexError: a code is not in the table.
    """
    values = np.empty(len(codes), table.dtype)
    for begin in range(0, len(codes), _BLOCK):
        values[begin : begin + _BLOCK] = table.take(codes[begin : begin + _BLOCK])
    return values


def edges(track: I32, tracks: int) -> I64:
    """The first row of each track, then the end of the last track. Rows must be sorted by track."""
    rows: I64 = np.searchsorted(track, np.arange(tracks + 1, dtype=track.dtype))
    return rows


class Strings:
    """Strings of one trace, numbered from 0. Append-only, so traces may share one."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """
        Args:
            values: the first of them; what occurs again counts once.
        """
        self._values = list(dict.fromkeys(values))

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Who only writes a trace asks for none."""
        return {value: number for number, value in enumerate(self._values)}

    def intern(self, value: str) -> int:
        """The id of ``value``, new or known."""
        number = self._ids.get(value)
        if number is None:
            number = self._ids[value] = len(self._values)
            self._values.append(value)
        return number

    def find(self, value: str) -> int:
        """The id of ``value``; -1 if the table does not have it."""
        return self._ids.get(value, -1)

    def of(self, ids: NDArray[Any]) -> list[str]:
        """The strings of some ids."""
        return list(map(self._values.__getitem__, ids.tolist()))

    def __getitem__(self, index: int) -> str:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)


BLOB_BITS = 48
OFFSET_MASK = (1 << BLOB_BITS) - 1
"""An argument address is a blob number shifted left by ``BLOB_BITS``, plus an offset."""


class Args(msgspec.Struct, frozen=True):
    """Arguments of events: one JSON object per id, as the bytes they were read as.

    The bytes stay in their buffer (the mapped input, a spill file) until they are written.

    Attributes:
        blobs:   buffers.
        address: int64 per id: number of the blob in the upper 16 bits, offset in the lower 48.
        length:  int32 per id, bytes.
    """

    blobs: tuple[Any, ...] = ()
    address: I64 = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    length: I32 = msgspec.field(default_factory=lambda: np.empty(0, np.int32))

    def __len__(self) -> int:
        return len(self.address)

    def raw(self, index: int) -> bytes:
        """The JSON object of one id; ``b""`` for -1."""
        if index < 0:
            return b""
        address = int(self.address[index])
        offset = address & OFFSET_MASK
        return bytes(self.blobs[address >> BLOB_BITS][offset : offset + int(self.length[index])])

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One id, parsed; ``{}`` for -1. For people and tests, not for columns."""
        raw = self.raw(index)
        parsed = json.loads(raw) if raw else {}
        return parsed if isinstance(parsed, dict) else {"args": parsed}

    def column(self, ids: I32, parsed: bool = False) -> NDArray[Any]:
        """The arguments of rows as an object column: JSON texts, None without, or dicts.

        Args:
            ids:    int32 per row; -1 = absent.
            parsed: a dict per row; text that is no JSON object is kept as it is under "args".
        """
        used, where = np.unique(ids, return_inverse=True)
        texts = np.empty(len(used), object)
        texts[:] = [self.raw(i).decode("utf-8", "replace") or None for i in used.tolist()]
        if not parsed:
            return texts[where]
        decoded = np.empty(len(ids), object)
        for row, text in enumerate(texts[where].tolist()):
            try:
                value = json.loads(text) if text else {}
            except (ValueError, RecursionError):
                value = text
            decoded[row] = value if isinstance(value, dict) else {"args": value}
        return decoded

    def extended(self, values: Sequence[bytes]) -> tuple[Args, int]:
        """These and ``values`` (JSON objects); the id of the first new one."""
        length = np.array([len(v) for v in values], np.int32)
        start = np.zeros(len(values), np.int64)
        np.cumsum(length[:-1], out=start[1:])
        start += len(self.blobs) << BLOB_BITS
        grown = Args(
            (*self.blobs, b"".join(values)),
            np.concatenate((self.address, start)),
            np.concatenate((self.length, length)),
        )
        return grown, len(self)


class Names(msgspec.Struct, frozen=True):
    """What numbers in the tables of one trace refer to: its tracks, strings and arguments."""

    tracks: Sequence[Any]
    strings: Strings
    args: Args

    def same_as(self, other: Names) -> bool:
        """Whether these are the very same objects; nothing is compared."""
        return (
            self.tracks is other.tracks
            and self.strings is other.strings
            and self.args is other.args
        )


class Table:
    """Columns of equal length: the attributes of a subclass whose types are arrays.

    Attributes:
        COLUMNS: their types, by name.
        names: of the trace the table belongs to, for data frames; None if it is of no trace.
    """

    COLUMNS: ClassVar[Mapping[str, str]] = {}
    names: Names | None = None

    def __init_subclass__(cls) -> None:
        cls.COLUMNS = {name: _TYPES[of] for name, of in cls.__annotations__.items() if of in _TYPES}

    def __init__(self, **columns: NDArray[Any]) -> None:
        if columns.keys() != self.COLUMNS.keys():
            raise TypeError(f"{type(self).__name__} has columns {list(self.COLUMNS)}")
        for name, dtype in self.COLUMNS.items():
            setattr(self, name, np.asanyarray(columns[name], dtype))
        if len({len(c) for c in columns.values()}) > 1:
            raise ValueError("columns differ in length")

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls(**{n: np.empty(0, t) for n, t in cls.COLUMNS.items()})

    @classmethod
    def concat(cls, tables: Sequence[Self]) -> Self:
        """All rows of ``tables``, in order."""
        if not tables:
            return cls.empty()
        return cls(**{n: np.concatenate([getattr(t, n) for t in tables]) for n in cls.COLUMNS})

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name (not copied)."""
        return {name: getattr(self, name) for name in self.COLUMNS}

    def take(self, rows: Any) -> Self:
        """The rows an index array, mask or slice names, in that order."""
        table = object.__new__(type(self))
        columns = {name: getattr(self, name)[rows] for name in self.COLUMNS}
        vars(table).update(columns, names=self.names)  # of the types they were
        return table

    def reorder(self, rows: Any) -> None:
        """As :meth:`take`, in place, column by column. Nothing else may refer to the table."""
        for name in self.COLUMNS:
            setattr(self, name, getattr(self, name)[rows])

    def with_columns(self, **changed: NDArray[Any]) -> Self:
        """The table with some columns replaced; the others are shared."""
        return type(self)(**{**self.columns(), **changed})

    def of(self, names: Names) -> Self:
        """The columns as a table of the trace with these names."""
        bound = object.__new__(type(self))
        vars(bound).update(vars(self), names=names)
        return bound

    def to_pandas(self, args: Literal["json", "dict", "none"] = "json") -> Any:
        """A ``pandas.DataFrame`` with names, tracks and classes as words; times are int64 ns.

        ``track`` becomes ``layer``, ``group`` and ``track``; ``name``, ``kind`` and ``op`` are
        categories of words; a missing ``graph`` or ``step`` is ``<NA>``.

        Args:
            args: arguments of events as JSON text, as a dict per row, or left out.

        Raises:
            MissingExtraError: pandas is not installed.
            ValueError: the table is of no trace, or ``args`` is something else.
        """
        return frames.to_pandas(self.worded(args), complete=("start_ns", "dur_ns"))

    def to_arrow(self, args: Literal["json", "none"] = "json") -> Any:
        """A ``pyarrow.Table`` with the columns of :meth:`to_pandas`; missing values are null.

        Raises:
            MissingExtraError: pyarrow is not installed.
            ValueError: as for :meth:`to_pandas`.
        """
        return frames.to_arrow(self.worded(args))

    def to_polars(self, args: Literal["json", "none"] = "json") -> Any:
        """A ``polars.DataFrame`` with the columns of :meth:`to_pandas`; missing values are null.

        Raises:
            MissingExtraError: polars is not installed.
            ValueError: as for :meth:`to_pandas`.
        """
        return frames.to_polars(self.worded(args))

    def worded(self, args: str = "json") -> dict[str, NDArray[Any] | Words]:
        """The columns with text in place of ids and codes.

        ``track`` becomes ``layer``, ``group`` and ``track`` (and ``unit`` for counters); ``name``
        becomes text, ``kind`` "slice" or "instant", and ``op`` the class of operation ("compute",
        "comm", ...). -1 in ``graph`` and ``step`` becomes a missing value.

        Args:
            args: arguments as "json" (text), "dict" (one per row) or "none" (no column).

        Raises:
            ValueError: the table belongs to no trace, or ``args`` is something else.
        """
        if args not in ("json", "dict", "none"):
            raise ValueError(f"args is {args!r}; it can be json, dict, none")
        if self.names is None:
            raise ValueError("this table belongs to no trace, so names are unknown: use columns()")
        tracks, strings = self.names.tracks, self.names.strings
        columns: dict[str, NDArray[Any] | Words] = {}
        for column, values in self.columns().items():
            if column == "track":
                columns["layer"] = Words.of(values, lambda i: str(tracks[i].layer))
                columns["group"] = Words.of(values, lambda i: str(tracks[i].group))
                columns["track"] = Words.of(values, lambda i: str(tracks[i].name))
            elif column == "name":
                columns["name"] = Words.of(values, strings.__getitem__)
            elif column == "kind":
                columns["kind"] = Words.of(values, lambda i: Kind(i).name.lower())
            elif column == "op":
                columns["op"] = Words.of(values, lambda i: OpClass(i).name.lower())
            elif column in ("graph", "step"):
                columns[column] = or_absent(values)
            elif column != "args":
                columns[column] = values
            elif args != "none":
                columns["args"] = self.names.args.column(values, parsed=args == "dict")
        return columns

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.COLUMNS))))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} rows>"

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        head = self.take(slice(0, frames.HTML_ROWS))
        columns = head.worded() if head.names else head.columns()
        shown = {n: c.texts() if isinstance(c, Words) else c for n, c in columns.items()}
        return frames.html(f"{type(self).__name__}, {len(self)} rows in all", shown)


class EventTable(Table):
    """Slices and instants, sorted by (track, start_ns, -dur_ns), ties in input order.

    Columns: ``track`` (index into ``Trace.tracks``), ``kind`` and ``op`` (``Kind`` and ``OpClass``
    of :mod:`traceconv.core.model`), ``start_ns``, ``dur_ns`` (0 for instants), ``name`` (string
    id), ``graph`` and ``step`` (-1 = none), ``args`` (argument id, -1 = none). 38 bytes a row.
    """

    track: I32
    kind: I8
    op: I8
    start_ns: I64
    dur_ns: I64
    name: I32
    graph: I32
    step: I32
    args: I32

    @classmethod
    def filled(
        cls, start_ns: ArrayLike, dur_ns: ArrayLike, *, track: ArrayLike, name: ArrayLike,
        kind: ArrayLike = Kind.SLICE, op: ArrayLike = OpClass.OTHER, graph: ArrayLike = -1,
        step: ArrayLike = -1, args: ArrayLike = -1,
    ) -> EventTable:  # fmt: skip
        """Rows at some times; one value of another column is that of all rows."""
        columns = {
            "start_ns": start_ns, "dur_ns": dur_ns, "track": track, "name": name, "kind": kind,
            "op": op, "graph": graph, "step": step, "args": args,
        }  # fmt: skip
        n = len(np.asarray(start_ns))
        return cls(
            **{
                key: np.full(n, value, cls.COLUMNS[key]) if np.ndim(value) == 0 else value
                for key, value in columns.items()
            }  # type: ignore[arg-type]
        )

    @property
    def end_ns(self) -> I64:
        """``start_ns + dur_ns`` (computed)."""
        return self.start_ns + self.dur_ns

    def ends(self, rows: Any) -> I64:
        """``end_ns`` of the rows an index array, mask or slice names; of no others."""
        ends: I64 = self.start_ns[rows] + self.dur_ns[rows]
        return ends

    def sort_order(self) -> NDArray[np.intp]:
        """The permutation that puts rows into table order."""
        order = in_lanes(self.track)
        track, start = self.track.take(order), self.start_ns.take(order)
        bad = (track[1:] == track[:-1]) & (start[1:] <= start[:-1])
        tied = np.flatnonzero(bad & (start[1:] == start[:-1]))  # few
        bad[tied] = self.dur_ns[order[tied + 1]] > self.dur_ns[order[tied]]
        # most tracks are in order as they were recorded; the others one by one, if not too many
        unsorted = np.unique(track[1:][bad])
        if len(unsorted) > 4096:
            return np.lexsort((-self.dur_ns, self.start_ns, self.track))
        begins = np.searchsorted(track, unsorted)
        after = np.searchsorted(track, unsorted, side="right")
        for a, b in zip(begins.tolist(), after.tolist(), strict=True):
            rows = order[a:b]
            order[a:b] = rows[np.lexsort((-self.dur_ns[rows], start[a:b]))]
        return order


UNKNOWN = -1
"""A length in :class:`StepTable` that was not measured. It does not mean zero."""


class StepTable(Table):
    """The steps of a rank, one row per iteration, by start. Never cut short.

    Columns:

    * ``graph`` (-1 = the framework's own steps), ``step`` (its number, which may occur again in a
      later window), ``window`` (number of the recording window it is in, from 1), ``source`` (where
      the boundaries come from: ``StepSource`` of :mod:`traceconv.core.model`);
    * ``start_ns``, ``dur_ns``: the step as its source records it;
    * ``covered``: how its device work is known (``Covered`` of :mod:`traceconv.core.model`);
    * ``device_start_ns``, ``device_dur_ns``: its device window, within which the figures are
      measured. The window of a graph's iteration is the iteration. The windows of steps that the
      host annotates do not overlap: each begins with the step, or at the end of the previous
      window if that is later, and ends with the step or its last device row, the later one. If no
      steps are marked, the window runs from the first to the last device row;
    * ``work_start_ns``: where its device work begins; the start of the window without any;
    * ``computing_ns``, ``communication_ns``, ``not_overlapped_ns``, ``copying_ns``,
      ``copy_not_overlapped_ns``, ``unclassified_ns``: the tracks of the overlap analysis, clipped
      to the window, total over devices;
    * ``known_ns``: how much of the window was recorded, total over devices;
    * ``free_ns``: idle time, the part of ``known_ns`` that is not computing, communication or
      unclassified. On GPUs copies are not idle either; on NPUs they are, as the vendor counts;
    * ``input_wait_ns``: the part of ``free_ns`` in which the rank waits for input, filled by
      :func:`traceconv.passes.input_wait.input_wait`; :data:`UNKNOWN` where no source records it;
    * ``pause_ns``: idle time between the device window of the previous step of the same graph and
      this one, also filled there; :data:`UNKNOWN` for a first step, and unless both are covered.

    Columns in :data:`FIGURES` are :data:`UNKNOWN` where a step is not covered, and until
    :func:`traceconv.passes.overlap.overlap` fills them. The vendor's own table of steps does not
    have copies: where the other figures come from it, those of copies are unknown. A row takes 142
    bytes.
    """

    FIGURES: ClassVar[tuple[str, ...]] = (
        "computing_ns",
        "communication_ns",
        "not_overlapped_ns",
        "free_ns",
        "copying_ns",
        "copy_not_overlapped_ns",
        "unclassified_ns",
        "known_ns",
    )
    """The lanes of the overlap analysis, and what is known."""
    LENGTHS: ClassVar[tuple[str, ...]] = (*FIGURES, "input_wait_ns", "pause_ns")
    """All columns in which a value may be :data:`UNKNOWN`."""

    @property
    def marked(self) -> NDArray[np.bool_]:
        """Which steps were recorded; one made for the whole range was not."""
        marked: NDArray[np.bool_] = self.source != StepSource.WHOLE_RANGE
        return marked

    graph: I32
    step: I32
    window: I32
    source: I8
    covered: I8
    start_ns: I64
    dur_ns: I64
    device_start_ns: I64
    device_dur_ns: I64
    work_start_ns: I64
    computing_ns: I64
    communication_ns: I64
    not_overlapped_ns: I64
    free_ns: I64
    copying_ns: I64
    copy_not_overlapped_ns: I64
    unclassified_ns: I64
    known_ns: I64
    input_wait_ns: I64
    pause_ns: I64

    @property
    def end_ns(self) -> I64:
        """``start_ns + dur_ns`` (computed)."""
        return self.start_ns + self.dur_ns

    @property
    def device_spans(self) -> I64:
        """(n, 2) int64: start and end of the device window of each step (computed)."""
        return np.stack((self.device_start_ns, self.device_start_ns + self.device_dur_ns), axis=1)

    def shown_lengths(self) -> tuple[str, ...]:
        """:data:`LENGTHS`, without ``unclassified_ns`` where no task is unclassified."""
        none = not (self.unclassified_ns > 0).any()
        return tuple(name for name in self.LENGTHS if name != "unclassified_ns" or not none)

    def of_main_graph(self, length: str = "dur_ns") -> StepTable:
        """The steps of the graph that takes most of the time, the first of several equal ones.

        Graphs may be nested: adding up the steps of all of them would count work twice.

        Args:
            length: the column that says how long a step takes.
        """
        if not len(self):
            return self
        graphs, first_rows, graph_of = np.unique(self.graph, return_index=True, return_inverse=True)
        took = np.zeros(len(graphs), np.int64)
        np.add.at(took, graph_of, getattr(self, length))
        longest = np.lexsort((first_rows, -took))[0]
        return self.take(graph_of == longest)


class CounterTable(Table):
    """Counter samples, sorted by (track, start_ns), ties in input order.

    Columns: ``track``, ``start_ns``, ``value`` (float64, in the unit of the track).
    """

    track: I32
    start_ns: I64
    value: F64

    def worded(self, args: str = "json") -> dict[str, NDArray[Any] | Words]:
        columns = super().worded(args)
        tracks = self.names.tracks if self.names is not None else ()
        columns["unit"] = Words.of(self.track, lambda i: tracks[i].unit or "")
        return columns


class FlowTable(Table):
    """Flows from one event to another: ``src`` and ``dst`` are rows of the event table,
    ``name`` is a string id (the flow's category: "HostToDevice", "fwdbwd").
    """

    src: I32
    dst: I32
    name: I32


Natural = tuple[tuple[int, int, str], ...]


def natural_order(text: str) -> Natural:
    """Sort key by which "Stream 3" comes before "Stream 12"."""
    return _known_order(text) if len(text) <= _SHORT else _natural_order(text)


_SHORT = 128  # keys take a hundred times the text


def _natural_order(text: str) -> Natural:
    parts: list[tuple[int, int, str]] = []
    word, digits = "", ""
    for char in text + "\0":  # which ends the last run of digits
        if char.isascii() and char.isdigit():
            digits += char
            continue
        if digits:
            parts.append((0, len(digits.lstrip("0")), digits.lstrip("0")))
            digits = ""
        word = char
        parts.append((1, 0, word))
    return tuple(parts)


_known_order = lru_cache(4096)(_natural_order)


class OverlapTimes(NamedTuple):
    """Lengths of the classes of the overlap analysis, ns; ``known`` is how much was recorded."""

    computing: int
    communication: int
    not_overlapped: int
    free: int
    copying: int = 0
    copy_not_overlapped: int = 0
    unclassified: int = 0
    known: int = 0


class OverlapSums(msgspec.Struct, frozen=True):
    """The overlap analysis of a whole rank, summed over its devices.

    Attributes:
        free_rule: what bounded the spans, see :data:`traceconv.passes.overlap.RULES`; joined by
            " + " where devices differ.
        spans:     in how many spans of time idle time was looked for.
        sums_ns:   the classes as computed here; ``free`` is the length of that lane.
        idle_ns:   what of the known time is idle; on NPUs more than the vendor's Free lane, which
            is from the first task to the last.
        vendor_sums_ns: the same of the source's own lanes, None if it has none.
    """

    free_rule: str
    spans: int
    sums_ns: OverlapTimes
    idle_ns: int
    vendor_sums_ns: OverlapTimes | None = None
