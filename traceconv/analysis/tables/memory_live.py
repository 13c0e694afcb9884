"""The table of allocated memory at the peak, by operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.definition import (
    NOTHING,
    RANK,
    Column,
    Ranked,
    Table,
    joined,
    ordered,
    stacked,
    texts,
)
from traceconv.analysis.tables.fields import fields, floats, named, names_of, numbers, rounded
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import Nest, innermost_names, modules, operator_nest
from traceconv.analysis.tables.memory import UNITS
from traceconv.analysis.tables.stack import SEPARATOR, paths_at
from traceconv.analysis.tables.texts import Texts
from traceconv.core.columns import I64, Mask
from traceconv.core.model import Kind, Layer, Trace
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.passes.places import threads

_KINETO = ("Bytes", "Addr", "Device Type", "Device Id", "Total Allocated", "Total Reserved")
_PADDLE = ("increase_bytes", "addr", "place", "", "current_allocated", "current_reserved")
_SNAPSHOT = ("size", "addr", "frames")
_RECORDS = {"[memory]": _KINETO, "Allocate": _PADDLE, "Free": _PADDLE,
            "alloc": _SNAPSHOT, "free_requested": _SNAPSHOT}  # fmt: skip
"""Instants that record a change of allocated memory, and their arguments."""
_DEVICE_TYPES = {"0": "CPU", "1": "GPU", "6": "GPU", "12": "XPU", "15": "HPU", "19": "MTIA",
                 "20": "NPU"}  # fmt: skip
"""``c10/core/DeviceType.h`` of PyTorch; 20 is PrivateUse1, which Ascend's adapter uses."""
_OF_GE = "cann::"
"""Begins the names of blocks of CANN's graph engine, an allocator with separate totals."""
BEFORE, UNUSED = "(before the recording)", "(reserved, not allocated)"
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class _Blocks(msgspec.Struct, frozen=True):
    """Allocations: a value per block; ``_FIRST`` and ``_LAST`` where begin or end is not recorded.

    ``recorded`` is whether the begin is; windows may bound one that is not.
    ``allocated`` and ``reserved`` are totals of the device after the allocation, else ``ABSENT``.
    """

    device: Texts
    size: I64
    start_ns: I64
    end_ns: I64
    operator: Texts
    module: Texts
    allocated: I64
    reserved: I64
    recorded: Mask


def _of_records(trace: Trace, by_path: bool = False) -> _Blocks | None:
    """Blocks from records of allocations and releases, by device and address; with ``by_path`` the
    call path in place of the operator."""
    events = trace.events
    rows = np.flatnonzero(trace.rows_of(Layer.HOST) & (events.kind == Kind.INSTANT))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    names = names_of(trace, rows)
    formats = []
    for keys in (_KINETO, _PADDLE, _SNAPSHOT):
        own = names.among(*(name for name, known in _RECORDS.items() if known is keys))
        formats.append(_read(trace, rows[own], keys, by_path))
    return next((blocks for blocks in formats if blocks is not None), None)


def _read(
    trace: Trace, rows: NDArray[np.intp], keys: Sequence[str], by_path: bool
) -> _Blocks | None:
    events = trace.events
    if not len(rows):
        return None
    keys_asked = [key for key in keys if key]
    columns = dict(zip(keys_asked, fields(trace, rows, *keys_asked), strict=True))
    size, address = columns[keys[0]].whole(ABSENT), columns[keys[1]].numbers()
    is_known = columns[keys[1]].known & (size != ABSENT)
    if not is_known.any():
        return None
    rows, size, address = rows[is_known], size[is_known], address[is_known]
    columns = {key: column[is_known] for key, column in columns.items()}
    lanes = events.track[rows].astype(np.int64)
    if keys is _SNAPSHOT:
        device = _places(trace, rows)
        size = np.where(names_of(trace, rows).among("alloc"), size, -size)
    elif keys is _PADDLE:
        device = columns["place"]
    else:
        device = _kineto_devices(columns["Device Type"], columns["Device Id"])
    time = events.start_ns[rows]
    order = np.lexsort((np.arange(len(rows)), address, device.numbers()))
    key = np.stack((device.numbers()[order], address[order]))
    follows = np.append((key[:, 1:] == key[:, :-1]).all(axis=0), False)
    allocates = size[order] > 0
    end = np.where(follows, np.append(time[order][1:], _LAST), _LAST)
    lost = ~allocates & ~np.append(
        False, follows[:-1] & allocates[:-1]
    )  # releases of earlier blocks
    starts = order[allocates | lost]
    start = np.where(allocates, time[order], _FIRST)[allocates | lost]
    end = np.where(allocates, end, time[order])[allocates | lost]
    when = threads(trace)[lanes[starts]], time[starts]
    if keys is _SNAPSHOT:
        operator = columns["frames"][starts].mapped(_path if by_path else _innermost)
        module = Texts.same("", len(starts))
    elif by_path:
        operator, module = paths_at(trace, *when), Texts.same("", len(starts))
    else:
        nests = operator_nest(trace), Nest.of(trace, modules(trace))
        operator, module = (innermost_names(trace, nest, *when) for nest in nests)
    unknown = np.full(len(starts), ABSENT, np.int64)
    allocated, reserved = (
        columns[key][starts].whole(ABSENT) if key in columns else unknown
        for key in (*keys[4:], "", "")[:2]
    )
    sizes, begun = np.abs(size[starts]), start > _FIRST
    return _Blocks(device[starts], sizes, start, end, operator, module, allocated, reserved, begun)


def _innermost(frames: str) -> str:
    lines = msgspec.json.decode(frames) if frames else []
    return str(lines[0]) if lines else ""


def _path(frames: str) -> str:
    lines = msgspec.json.decode(frames) if frames else []
    return SEPARATOR.join(str(line).replace(SEPARATOR, ":") for line in reversed(lines))


def _of_table(trace: Trace) -> _Blocks | None:
    """Blocks of the table of Ascend's adapter, one per row."""
    table = trace.side_tables.get("operator_memory")
    if not table:
        return None
    start, end = (numbers(table, f"{when} Time(ns)") for when in ("Allocation", "Release"))
    size, allocated, reserved = (
        rounded(floats(table, f"{name}({unit})") * UNITS[unit])
        for name, unit in (("Size", "KB"), ("Allocation Total Allocated", "MB"),
                           ("Allocation Total Reserved", "MB"))
    )  # fmt: skip
    if (size == ABSENT).any():
        return None
    operator, device = named(table, "Name").tolist(), named(table, "Device Type").tolist()
    places = (f"{device_name.replace(':', ' ')} {'GE' if name.startswith(_OF_GE) else 'PTA'}"
              for device_name, name in zip(device, operator, strict=True))  # fmt: skip
    return _Blocks(
        Texts.of(places), size,
        np.where(start == ABSENT, _FIRST, start), np.where(end == ABSENT, _LAST, end),
        Texts.of(operator), Texts.same("", len(size)), allocated, reserved, start != ABSENT,
    )  # fmt: skip


def _facts(trace: Trace) -> Columns:
    return _at_peak(trace, _of_table(trace) or _of_records(trace))


def _path_facts(trace: Trace) -> Columns:
    """As :func:`_facts`, by call path; the table of Ascend's adapter has none."""
    rows = dict(_at_peak(trace, _of_records(trace, by_path=True)))
    rows.pop("Module", None)
    return {"Path" if name == "Operator" else name: column for name, column in rows.items()}


def _at_peak(trace: Trace, blocks: _Blocks | None) -> Columns:
    if blocks is None:
        return NOTHING
    blocks = _within_windows(blocks, trace.windows)
    device = blocks.device.numbers()
    owns = [np.flatnonzero(device == device_number) for device_number in np.unique(device).tolist()]
    return joined([_live_at(blocks, own, _peak(blocks, own)) for own in owns])


def _within_windows(blocks: _Blocks, windows: I64) -> _Blocks:
    """Blocks whose begin or end is not recorded, bounded by the collection window of the other: a
    block that one window does not release is not known to live in the next one."""
    if len(windows) < 2:
        return blocks
    begins = np.append(windows[1:, 0], _LAST)  # of the window behind each
    ends = np.append(_FIRST, windows[:-1, 1])  # of the window before each
    start, end = blocks.start_ns, blocks.end_ns
    known = np.where(start == _FIRST, end, start)
    at = np.maximum(np.searchsorted(windows[:, 0], known, "right") - 1, 0)
    return msgspec.structs.replace(
        blocks,
        start_ns=np.where(start == _FIRST, ends[at], start),
        end_ns=np.where(end == _LAST, begins[at], end),
    )


def _peak(blocks: _Blocks, own: NDArray[np.intp]) -> int:
    """When the sum of the blocks of one device is largest."""
    start, end, size = blocks.start_ns[own], blocks.end_ns[own], blocks.size[own]
    time = np.concatenate((end, start))  # of equal times, releases come first
    order = np.argsort(time, kind="stable")
    held = np.cumsum(np.concatenate((-size, size))[order])
    return int(time[order[held.argmax()]])


_FAILED = ("oom", "[OutOfMemory]")
"""Records of an allocation that found no memory: of snapshots, and of the profiler."""


def _oom_facts(trace: Trace) -> Columns:
    """What lives when an allocation fails for want of memory, for each such record."""
    rows = np.flatnonzero(trace.rows_of(Layer.HOST) & (trace.events.kind == Kind.INSTANT))
    rows = rows[names_of(trace, rows).among(*_FAILED)]
    blocks = _of_records(trace) if len(rows) else None
    if blocks is None:
        return NOTHING
    kind, number, *sizes = fields(
        trace, rows, "Device Type", "Device Id", "size", "Bytes", "device free", *_KINETO[4:]
    )
    whole = [column.whole(ABSENT) for column in sizes]
    of_snapshot, of_profiler, free, allocated, reserved = whole
    requested = np.where(kind.known, of_profiler, of_snapshot)
    devices = np.where(
        kind.known, _kineto_devices(kind, number).column(), _places(trace, rows).column()
    )
    parts = []
    for i, time in enumerate(trace.events.start_ns[rows].tolist()):
        own_blocks = np.flatnonzero(blocks.device.among(devices[i]))
        if len(own_blocks):
            part = _live_at(blocks, own_blocks, time, [int(allocated[i]), int(reserved[i])])
            part["Timestamp(ns)"] = part.pop("Peak Timestamp(ns)")
            for name, size in (("Requested(B)", requested[i]), ("Device Free(B)", free[i])):
                part[name] = np.full(len(part["Bytes"]), size, np.int64)
            parts.append(part)
    return joined(parts) if parts else NOTHING


def _kineto_devices(kinds: Texts, numbers: Texts) -> Texts:
    """The devices of the profiler's records."""
    named_kinds = kinds.mapped(lambda kind: _DEVICE_TYPES.get(kind, f"Device type {kind}")).tolist()
    return Texts.of(
        f"{kind} {n}" if n >= 0 and kind != "CPU" else kind
        for kind, n in zip(named_kinds, numbers.whole(-1).tolist(), strict=True)
    )


def _places(trace: Trace, rows: NDArray[np.intp]) -> Texts:
    """The device of records of a memory snapshot."""
    groups = [track.group or f"GPU {max(track.device, 0)}" for track in trace.tracks]
    return Texts(groups, trace.events.track[rows].astype(np.int64))


def _live_at(
    blocks: _Blocks, own: NDArray[np.intp], peak: int, totals: Sequence[int] = ()
) -> dict[str, NDArray[Any]]:
    """Blocks of one device that live at an instant, by operator and module.

    Args:
        totals: bytes allocated and reserved then, where a record says so; else they are those of
            the allocation at that instant.
    """
    start, end, size = blocks.start_ns[own], blocks.end_ns[own], blocks.size[own]
    live = (start <= peak) & (end > peak)
    begun, last_made = (
        own[live & blocks.recorded[own]],
        own[(start == peak) & blocks.recorded[own]][-1:],
    )
    groups = Groups.of(blocks.operator[begun].numbers(), blocks.module[begun].numbers())
    first = begun[groups.first]
    totals = totals or [
        int(totals_of[last_made[0]]) if len(last_made) else ABSENT
        for totals_of in (blocks.allocated, blocks.reserved)
    ]
    recorded = int(blocks.size[begun].sum())
    earlier = int(size[live].sum()) - recorded
    other_rows = {BEFORE: totals[0] - recorded if totals[0] != ABSENT else earlier,
            UNUSED: totals[1] - totals[0] if ABSENT not in totals else 0}  # fmt: skip
    other_rows = {name: n_bytes for name, n_bytes in other_rows.items() if n_bytes > 0}
    n, unknown = len(groups) + len(other_rows), [ABSENT] * len(other_rows)
    return {
        "Device": texts([blocks.device.at(int(own[0]))] * n),
        "Operator": texts([*blocks.operator[first].tolist(), *other_rows]),
        "Module": texts([*blocks.module[first].tolist(), *[""] * len(other_rows)]),
        "Blocks": np.array([*groups.size.tolist(), *unknown], np.int64),
        "Bytes": np.array(
            [*groups.total(blocks.size[begun]).tolist(), *other_rows.values()], np.int64
        ),
        "Largest(B)": np.array([*groups.high(blocks.size[begun]).tolist(), *unknown], np.int64),
        "Peak Timestamp(ns)": np.full(n, peak if peak > _FIRST else ABSENT, np.int64),
    }


def _live(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    time = rows.get("Timestamp(ns)", np.zeros(len(rows[RANK]), np.int64))
    groups = Groups.of(rows[RANK], numbered(rows["Device"]), time)
    by = rows["Path" if "Path" in rows else "Operator"]
    held = np.where(by == UNUSED, 0, rows["Bytes"])
    rows["Ratio(%)"] = share(rows["Bytes"], groups.spread(groups.total(held)))
    return ordered(rows, numbered(rows["Device"]), time, -rows["Bytes"])


TABLES: Sequence[Table] = (
    Table(
        "memory_live",
        "What memory holds at its peak, by operator",
        "Blocks that are allocated when the sum of the recorded blocks of a device is largest (of "
        "equal times releases come first), by the operator and the module that allocated them: the "
        "innermost ones running on the thread; of PyTorch's snapshots the innermost frame of the "
        "program, an operator where frames of C++ were recorded. Bytes = "
        "sum of their sizes; Ratio = Bytes / allocated. "
        f"{BEFORE} = total the allocator states at that time - sum of the blocks whose allocation "
        "was recorded; where it states none, blocks released later without one. "
        f"{UNUSED} = reserved - allocated at that time: fragments and cache.",
        "allocations with addresses: profile_memory (PyTorch 1.12 and later, Paddle), "
        "operator_memory, memory snapshots",
        Column.parse(
            "Rank, Device:text, Operator:text, Module:text, Blocks, Bytes:B, Ratio(%), "
            "Largest(B), Peak Timestamp(ns)"
        ),
        _facts,
        _live,
        capped=True,
        reads=("operator_memory",),
    ),
    Table(
        "memory_path",
        "What memory holds at its peak, by call path",
        "As the table memory_live, by the path of the calls that allocated, outermost first: the "
        "slices of the host around it, with Python's calls where stacks were recorded; of "
        "PyTorch's snapshots the twelve innermost frames of the program.",
        "allocations with addresses: profile_memory (PyTorch 1.12 and later, Paddle), memory "
        "snapshots",
        Column.parse(
            "Rank, Device:text, Path:text, Blocks, Bytes:B, Ratio(%), Largest(B), "
            "Peak Timestamp(ns)"
        ),
        _path_facts,
        _live,
        capped=True,
    ),
    Table(
        "memory_oom",
        "What memory holds when an allocation fails",
        "As the table memory_live, at the instant of each record of an allocation that found no "
        "memory: Requested = its size, Device Free = memory of the device that nothing holds, "
        "where the record says.",
        "such a record: oom of memory snapshots, [OutOfMemory] of profile_memory (PyTorch)",
        Column.parse(
            "Rank, Timestamp(ns), Device:text, Operator:text, Module:text, Blocks, Bytes:B, "
            "Ratio(%), Largest(B), Requested(B), Device Free(B)"
        ),
        _oom_facts,
        _live,
        capped=True,
    ),
)  # fmt: skip
