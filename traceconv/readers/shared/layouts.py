"""Turn rows with columns into events, as described by data: one interpreter for all tables.

Profilers write the same kernel as a row of SQLite, CSV or JSON, and every version names the columns
differently. A :class:`RowLayout` holds what differs: columns, names of numbers, track, class and
arguments. This module holds what is the same. Reading a table takes two steps::

    KERNELS = RowLayout(
        table="CUPTI_ACTIVITY_KIND_KERNEL",
        columns={"name": "shortName", "stream": "streamId", "grid": ("gridX", "gridY", "gridZ")},
        name=Shown("name", "(no name)"), lane=Shown("stream", "Stream {}"),
        layer=Layer.DEVICE, title="GPU Hardware", op=KERNEL, args=("stream", "grid"),
    )
    rows = database_rows(database, KERNELS, strings)      # see .table_rows for CSV and JSON
    added = add_rows(build, KERNELS, rows)                # event row of each, -1 if lost

Rows are columns of numbers (:class:`TableRows`), never an object per row. Text is a column of codes
with a dictionary of their names. References to a table of strings work the same way, and so may
numbers of devices and threads. Between the two steps a reader can add or change columns.

Times are int64 ns; CSV columns with a unit in their heading are read as ns. An absent number is -1,
an absent float NaN. Issues count the rows that have no usable time (``bad-time``), end before they
start (``negative-duration``), never end (``unfinished-slice``) or have no name (``missing-name``),
and columns that are not read (``columns-unread``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I8, I32, I64, Kind, Layer, OpClass
from traceconv.core.ordering import combined_key, different, factored_rows, mapped
from traceconv.readers.shared.arguments import AT_ONCE, lookup, objects, picked, quoted
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import kernel_class, step_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

Column: TypeAlias = "NDArray[Any]"
Members = Callable[["NDArray[np.intp]"], Sequence[bytes]]
"""Further arguments of some rows: ``,"key":value`` of each, b"" for none."""

KERNEL = None
"""The class of a kernel follows from its name. Communication kernels get a track per library."""


class Shown(NamedTuple):
    """How a number of a column is shown.

    Attributes:
        field:  the column; "" for the same text in every row, which is ``absent``.
        number: format of a number that has no name.
        name:   format of its name.
        absent: text for -1 and for an empty name.
        of:     the field of a track that the number is, such as "stream"; "" if it is none.
    """

    field: str = ""
    number: str = "{}"
    name: str = "{}"
    absent: str = ""
    of: str = ""

    def text(self, rows: TableRows, code: int) -> str:
        """The text for one number."""
        name = rows.names.get(self.field, {}).get(code)
        if name is None:
            return self.number.format(code) if code >= 0 else self.absent
        return self.name.format(name) if name else self.absent

    def identity(self, rows: TableRows, code: int) -> Mapping[str, Any]:
        """The track fields that follow from one number."""
        identity = rows.identity.get(self.field, {}).get(code)
        if identity is not None:
            return identity
        return {self.of: code} if self.of and code >= 0 else {}


class Classes(NamedTuple):
    """Classes of rows by the value of a column.

    Attributes:
        field: the column.
        table: class by text, or by number where the number has no text. Values that are not in
            the table are unclassified.
        source: the producer's enumeration that the table covers.
    """

    field: str
    table: Mapping[Any, OpClass | None]
    source: str = ""


CLASS_COLUMN = Classes("class", {int(one): one for one in OpClass})
"""Classes that the reader decided itself."""


class RowLayout(msgspec.Struct, frozen=True):
    """The layout of one table, and the events that its rows become.

    Attributes:
        table:   its name in the source.
        start, end, duration: columns of the times. ``duration`` replaces ``end``; instants and
            counters have neither.
        columns: field -> column. Names separated by "|" are one renamed column, a tuple is a
            vector; for JSON, the path of a member ("dispatch_info.kernel_id").
        texts:   fields that are stored as text.
        strings: fields whose numbers refer to the source's table of strings.
        names:   field -> names of its numbers, from the producer's enumeration.
        floats:  fields that are not whole numbers.
        links:   columns that only identify rows; they are not reported as unread.
        first_ns: the earliest usable time.
        unended: whether a row without an end lasts until the last timestamp of the table. If not,
            it has no usable time.
        name:    name of the events.
        layer, title: layer and heading of the tracks.
        lane, group: name of a track, and the group above it.
        track:   further fields of all tracks: ``{"device_kind": "GPU"}``.
        op:      class of all rows, :data:`KERNEL`, or classes by a column.
        kind:    slices or instants.
        steps:   whether an event can be a step ("iteration 5").
        args:    fields that become arguments, in this order. -1 and NaN are left out.
        unit:    unit of a counter; its value is the field ``value``.
    """

    table: str = ""
    start: str = "start"
    end: str = ""
    duration: str = ""
    columns: Mapping[str, str | tuple[str, ...]] = {}
    texts: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    names: Mapping[str, Mapping[int, str]] = {}
    floats: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    first_ns: int = 0
    unended: bool = False
    name: Shown = Shown("name", absent="(no name)", number="(no name)")
    layer: Layer = Layer.HOST
    title: str = ""
    lane: Shown = Shown()
    group: Shown = Shown()
    track: Mapping[str, Any] = {}
    op: OpClass | Classes | None = OpClass.HOST
    kind: Kind = Kind.SLICE
    steps: bool = False
    args: tuple[str, ...] = ()
    unit: Shown = Shown()

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """Field -> columns, including those of the times."""
        times = {"start": self.start, "end": self.end, "duration": self.duration}
        by_field = {**{key: column for key, column in times.items() if column}, **self.columns}
        return {
            key: (columns,) if isinstance(columns, str) else columns
            for key, columns in by_field.items()
        }

    @property
    def reads(self) -> frozenset[str]:
        """All names of columns that are read, and :attr:`links`."""
        names = (column for columns in self.sources.values() for column in columns)
        return self.links.union(*(name.split("|") for name in names))


@dataclass
class TableRows:
    """Rows of one table.

    Attributes:
        columns: int64, or float64 for ``floats``; two-dimensional for vectors.
        where: name of the table in messages.
        count: number of rows.
        names: field -> names of its numbers.
        identity: field -> track fields by number, where the number itself is not the field:
            ``{"thread": {row: {"thread": 4101, "thread_name": "main"}}}``.
        unread: columns with values that are not read and not reported yet; shared by all parts.
    """

    columns: dict[str, Column]
    where: str
    count: int
    names: dict[str, Mapping[int, str]] = field(default_factory=dict)
    identity: dict[str, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, name: str) -> Column:
        column = self.columns.get(name)
        return np.full(self.count, -1, np.int64) if column is None else column

    def take(self, which: NDArray[Any]) -> TableRows:
        """The rows of a mask or an index array."""
        columns = {name: column[which] for name, column in self.columns.items()}
        count = int(which.sum()) if which.dtype == bool else len(which)
        names, identity = dict(self.names), dict(self.identity)
        return replace(self, columns=columns, count=count, names=names, identity=identity)

    def keep(self, *fields: str) -> None:
        """Drop the columns of all other fields."""
        self.columns = {field: self.columns[field] for field in fields if field in self.columns}

    def coded(self, name: str, texts: Sequence[str]) -> None:
        """Add a column of text. "" is absent."""
        codes = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        self.names[name] = {code: text for text, code in codes.items()}
        if "" in codes:
            codes[""] = -1
        self.columns[name] = np.fromiter(map(codes.__getitem__, texts), np.int64, len(texts))

    def label(
        self, name: str, fields: Sequence[str], text: Callable[..., tuple[str, Mapping[str, Any]]]
    ) -> None:
        """Add a column that numbers the combinations of some fields.

        Args:
            text: returns the text and the track fields of a combination, given the names of its
                fields. Fields without names give numbers.
        """
        table, codes = factored_rows(*(self[field] for field in fields))
        names = [self.names.get(field) for field in fields]
        labels = [
            text(*(v if n is None else n.get(v, "") for v, n in zip(row, names, strict=True)))
            for row in table
        ]
        self.columns[name] = codes.astype(np.int64)
        self.names[name] = dict(enumerate(label for label, _ in labels))
        self.identity[name] = dict(enumerate(fields for _, fields in labels))

    def texts(self, name: str) -> list[str]:
        """The text of every row; "" if absent. For rules that a layout cannot express."""
        names = self.names.get(name, {})
        return [names.get(code, "") for code in self[name].tolist()]


# -- events ---------------------------------------------------------------------------------------


def add_rows(
    build: TraceBuilder,
    layout: RowLayout,
    rows: TableRows,
    more: Members | None = None,
    args: I32 | None = None,
    **columns: I32,
) -> I64:
    """Add the rows of a table as slices or instants.

    Args:
        more: makes further arguments of rows, given their positions.
        args: argument ids that replace those of the layout.
        columns: further columns of the events, by row: ``graph``, ``step``.

    Returns:
        The event row of each row, -1 for rows that are left out; see ``TraceBuilder.extend``.
    """
    book_unread(build, rows)
    start, dur, good = _spans(build, layout, rows)
    good_rows = np.flatnonzero(good)
    codes, back = different(rows[layout.name.field][good_rows])
    texts = [layout.name.text(rows, code) for code in codes.tolist()]
    nameless = np.array([text in _NAMELESS for text in texts], bool)
    if nameless.any():
        build.skip("missing-name", rows.where, int(nameless[back].sum()))
    string = np.array([build.string(text) for text in texts], np.int32)
    name = string[back] if len(string) else np.empty(0, np.int32)
    op = _classes(build, layout, rows, good_rows, name)
    further = {key: column[good_rows] for key, column in columns.items()}
    if layout.steps:
        step = np.array([step_number(text) for text in texts], np.int32)
        further["step"] = step[back] if len(step) else step
    first_row = build.extend(
        track=_tracks(build, layout, rows, good_rows, np.where(op == OpClass.COMM, name, -1)),
        kind=layout.kind,
        start_ns=start[good_rows],
        dur_ns=dur[good_rows] if layout.kind is Kind.SLICE else 0,
        name=name,
        op=op,
        args=arguments(build, rows, layout.args, good_rows, more)
        if args is None
        else args[good_rows],
        **further,
    )
    added = np.full(len(rows), -1, np.int64)
    added[good_rows] = np.arange(first_row, first_row + len(good_rows))
    return added


def book_unread(build: TraceBuilder, rows: TableRows) -> None:
    """Report the columns that are not read, once for all parts of a table."""
    where = f"{rows.where}: {', '.join(rows.unread)}"
    build.skip("columns-unread", where, len(rows.unread))
    rows.unread.clear()


_NAMELESS = ("", "(no name)")
_BY_NAME = -1


def _spans(
    build: TraceBuilder, layout: RowLayout, rows: TableRows
) -> tuple[I64, I64, NDArray[np.bool_]]:
    """Start and duration of rows, and which are usable. All rows are counted."""
    start, kind = rows["start"], "slice" if layout.kind is Kind.SLICE else "instant"
    bad = start < layout.first_ns
    if layout.duration:
        dur = rows["duration"]
        bad |= dur == -1
        negative = ~bad & (dur < 0)
    elif layout.end and layout.kind is Kind.SLICE:
        end = rows["end"]
        if layout.unended and (unended := ~bad & (end < 0)).any():
            build.skip("unfinished-slice", rows.where, int(unended.sum()))
            end = np.where(unended, max(int(end.max()), int(start.max())), end)
        bad |= end < 0
        negative = ~bad & (end < start)
        dur = end - start
    else:
        dur, negative = np.zeros_like(start), np.zeros(len(rows), bool)
    build.seen(kind, len(rows))
    build.skip("bad-time", rows.where, int(bad.sum()), kind)
    build.skip("negative-duration", rows.where, int(negative.sum()), kind)
    return start, dur, ~bad & ~negative


def _classes(
    build: TraceBuilder, layout: RowLayout, rows: TableRows, at: NDArray[np.intp], name: I32
) -> I8:
    """The class of each row."""
    if isinstance(layout.op, OpClass):
        return np.full(len(at), layout.op, np.int8)
    op = np.full(len(at), _BY_NAME, np.int8)
    if layout.op is not None:
        key, table, _ = layout.op
        names = rows.names.get(key, {})

        def of_code(code: int) -> int:
            op_class = table.get(names.get(code, code), OpClass.UNCLASSIFIED)
            return _BY_NAME if op_class is None else op_class

        op = mapped(rows[key][at], of_code, np.int8)

    def of_name(string: int) -> OpClass:
        text = build.strings[string]
        return OpClass.UNCLASSIFIED if text in _NAMELESS else kernel_class(text, build.comm_words)

    kernels = np.flatnonzero(op == _BY_NAME)
    op[kernels] = mapped(name[kernels], of_name, np.int8)
    return op


def _tracks(
    build: TraceBuilder, layout: RowLayout, rows: TableRows, at: NDArray[np.intp], library: Column
) -> I32:
    """The track of each row. Communication kernels are on tracks of their library."""
    lane, group = rows[layout.lane.field][at], rows[layout.group.field][at]
    by_library = layout.op is None or isinstance(layout.op, Classes)
    library = library if by_library else np.full(len(at), -1)
    table, track_of_row = factored_rows(lane, group, library)
    tracks = []
    for lane_code, group_code, name in table:
        layer, title = layout.layer, layout.title
        if name >= 0:
            layer, title = Layer.COMM, lane_title(build.strings[name])
        tracks.append(_track(build, layout, rows, layer, title, (lane_code, group_code)))
    return np.array(tracks, np.int32)[track_of_row] if tracks else np.empty(0, np.int32)


def _track(
    build: TraceBuilder, layout: RowLayout, rows: TableRows, layer: Layer, title: str,
    codes: tuple[int, int], unit: str | None = None,
) -> int:  # fmt: skip
    labels = tuple(zip((layout.lane, layout.group), codes, strict=True))
    name, group = (label.text(rows, code) for label, code in labels)
    identity = dict(layout.track)
    for label, code in labels:
        identity |= label.identity(rows, code)
    return build.track(layer, name, group, title, unit=unit, **identity)


def add_samples(build: TraceBuilder, layout: RowLayout, rows: TableRows) -> None:
    """Add the rows of a table as counter samples; ``lane`` names the counters."""
    book_unread(build, rows)
    start_ns, value = rows["start"], rows["value"].astype(np.float64)
    bad, odd = start_ns < layout.first_ns, ~np.isfinite(value)
    build.seen("counter", len(rows))
    build.skip("bad-time", rows.where, int(bad.sum()), "counter")
    build.skip("counter-not-numeric", rows.where, int((odd & ~bad).sum()), "counter")
    good = np.flatnonzero(~bad & ~odd)
    labels = (layout.lane, layout.group, layout.unit)
    table, track_of_row = factored_rows(*(rows[label.field][good] for label in labels))
    tracks = []
    for lane, group, unit in table:
        unit_text = layout.unit.text(rows, unit)
        tracks.append(
            _track(build, layout, rows, Layer.COUNTER, layout.title, (lane, group), unit_text)
        )
    build.counters(
        track=np.array(tracks, np.int32)[track_of_row] if tracks else np.empty(0, np.int32),
        start_ns=start_ns[good],
        value=value[good],
    )


# -- arguments ------------------------------------------------------------------------------------


def arguments(
    build: TraceBuilder,
    rows: TableRows,
    keys: Sequence[str],
    at: NDArray[np.intp],
    more: Members | None = None,
) -> I32:
    """One JSON object per row, from the fields ``keys``; -1 for rows without members.

    Rows share an object if most rows have equal fields. Only the texts of one batch of rows are in
    memory at a time.
    """
    if not keys and more is None:
        return np.full(len(at), -1, np.int32)
    if more is None and (repeated := _repeated(rows, keys, at)) is not None:
        first_of_each, object_of_row = repeated
        return arguments(build, rows, keys, at[first_of_each])[object_of_row]
    ids = np.full(len(at), -1, np.int32)
    for begin in range(0, len(at), AT_ONCE):
        part = at[begin : begin + AT_ONCE]
        template, columns = [], []
        for key in keys:
            piece, values = _member(key, rows, part)
            template.append(piece)
            columns += values
        if more is not None:
            template.append(b"%b")
            columns.append(more(part))
        form = b"".join(template)
        texts = [form % row for row in zip(*columns, strict=True)]
        json_objects = [b"{" + text[1:] + b"}" if text else b"" for text in texts]
        ids[begin : begin + AT_ONCE] = objects(build, json_objects)
    return ids


_SAMPLE = 1 << 12


def _repeated(
    rows: TableRows, keys: Sequence[str], at: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """The first of some rows with equal fields, and which of them each row equals; None if most
    rows differ."""
    if any(rows[key].ndim > 1 or rows[key].dtype.kind != "i" for key in keys):
        return None
    for part in (at[:_SAMPLE], at):
        distinct, object_of_row = different(combined_key(*(rows[key][part] for key in keys)))
        if len(distinct) * 2 >= len(part):
            return None
    first_rows = np.empty(len(distinct), np.intp)
    first_rows[object_of_row[::-1]] = np.arange(len(at))[::-1]
    return first_rows, object_of_row


def _member(key: str, rows: TableRows, part: NDArray[np.intp]) -> tuple[bytes, list[Sequence[Any]]]:
    """The format of one member of the objects, and its values."""
    column, names = rows[key][part], rows.names.get(key)
    head = b"," + quoted(key).replace(b"%", b"%%") + b":"
    if column.ndim > 1:
        if len(column) and column.min() < 0:
            vector = b"," + quoted(key) + b":[" + b",".join([b"%d"] * column.shape[1]) + b"]"
            return b"%b", [[vector % tuple(v) if min(v) >= 0 else b"" for v in column.tolist()]]
        places = b",".join([b"%d"] * column.shape[1])
        return head + b"[" + places + b"]", [column[:, i].tolist() for i in range(column.shape[1])]
    if names is None and column.dtype.kind == "i" and (not len(column) or column.min() >= 0):
        return head + b"%d", [column.tolist()]
    codes, back = different(column)
    plain = b"," + quoted(key) + b":"
    table = [_value(plain, names, code) for code in codes.tolist()]
    return b"%b", [[table[i] for i in back.tolist()]]


def _value(head: bytes, names: Mapping[int, str] | None, code: float) -> bytes:
    """One member of an object; b"" if the value is absent."""
    if names and code in names:
        return head + quoted(names[int(code)])
    if isinstance(code, float):
        number = int(code) if code.is_integer() else code
        return head + repr(number).encode() if isfinite(code) else b""
    return head + b"%d" % code if code >= 0 else b""


# -- launches -------------------------------------------------------------------------------------


@dataclass
class Launched:
    """Calls and the work they launched, by correlation number (-1: none)."""

    calls: list[tuple[I64, I64]] = field(default_factory=list)
    work: list[tuple[I64, I64]] = field(default_factory=list)

    def draw(self, build: TraceBuilder) -> None:
        """Add a flow from the first call of each number to all its work. Work without a recorded
        call is counted as an issue."""
        (called, call), (number, task) = _joined(self.calls), _joined(self.work)
        add_arrows(build, picked(call, lookup(called, number)), task)


def add_arrows(build: TraceBuilder, call: I64, task: I64) -> None:
    """Add flows between event rows of calls and of their work. Flows with an end of -1 are counted
    as an issue."""
    lost = int(((call < 0) | (task < 0)).sum())
    build.lose("flow-without-end", "no launching call", lost, "flow")
    build.arrows("launch", call, task)


def _joined(parts: Sequence[tuple[I64, I64]]) -> tuple[I64, I64]:
    none = np.empty(0, np.int64)
    numbers, rows = zip(*parts, strict=True) if parts else ((none,), (none,))
    number, row = np.concatenate(numbers), np.concatenate(rows)
    usable = np.flatnonzero((number >= 0) & (row >= 0))
    return number[usable], row[usable]
