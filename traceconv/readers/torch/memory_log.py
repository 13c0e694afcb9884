"""The log of PyTorch's allocator: its curves, its records, and its largest blocks.

``allocated`` is what programs hold, ``active`` that and what waits to be free, ``reserved`` what
the allocator holds itself. What each was at the end of the log is known from the segments; what
every record changed is taken away again, from the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import I64, Capture, Kind, Layer, OpClass, TrackKind
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.arguments import objects, quoted
from traceconv.readers.shared.lines import Slices
from traceconv.readers.torch.plain_pickle import Cut, Refused, label, load

MOST_BYTES = 2 << 30
LARGEST_BLOCKS = 100
"""Blocks of a device that are drawn from their allocation to their release."""

_FRAMES = 12
"""Frames that are named with a block, the innermost first."""

_OPERATORS = lazy_regex(r"at::_ops::(\w+)::(?:call|redispatch)\(")
_NODES = lazy_regex(r"torch::autograd::(?:\w+::)*(\w+)::apply\(")
_MODULE_CALLS = ("_call_impl", "_wrapped_call_impl")
"""How PyTorch calls a module: two frames around each."""

_ALLOCATED, _ACTIVE, _RESERVED = range(3)
_CURVES = ("Allocated", "Active", "Reserved")
_CHANGES: Mapping[str, tuple[int, int, int]] = {
    "alloc": (1, 1, 0),
    "free_requested": (-1, 0, 0),
    "free_completed": (0, -1, 0),
    "segment_alloc": (0, 0, 1),
    "segment_map": (0, 0, 1),
    "segment_free": (0, 0, -1),
    "segment_unmap": (0, 0, -1),
    "workspace_snapshot": (0, 0, 0),
    "snapshot": (0, 0, 0),
    "oom": (0, 0, 0),
}
"""How a record of the log changes the bytes allocated, active and reserved."""

_ACTIVE_STATES = ("active_allocated", "active_pending_free", "active_awaiting_free")
_NOT_ARGUMENTS = ("action", "time_us", "frames", "compile_context", "user_metadata", "addr")


def read_snapshot(capture: Capture, build: TraceBuilder) -> None:
    """Put a snapshot into ``build``.

    Raises:
        MalformedInputError: it holds something other than plain values, or no log.
    """
    name = capture.files[0]
    build.file = capture.source.title(name)
    raw = capture.source.read(name, MOST_BYTES)
    try:
        value = load(raw)
    except (Refused, Cut) as e:
        raise MalformedInputError(
            build.file, "", f"{e}; dump it again, with torch.cuda.memory._dump_snapshot"
        ) from e
    if not isinstance(value, dict):
        raise MalformedInputError(build.file, "", "a pickle, but no memory snapshot")
    snapshot = _Snapshot(build, value)
    for device, records in enumerate(_lists(value.get("device_traces"))):
        if records:
            snapshot.device(device, records)
    snapshot.annotations(_list(value.get("external_annotations")))
    snapshot.finish()


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _lists(value: Any) -> Iterator[list[Any]]:
    yield from map(_list, _list(value))


def _number(value: Any) -> int:
    """A whole number within int64, else -1."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if is_whole and abs(value) < 1 << 62 else -1


def _described(frame: Mapping[Any, Any]) -> tuple[str, bool]:
    """A frame as text, and whether it tells where in the program it is."""
    name, path = label(frame.get("name", "")), label(frame.get("filename", ""))
    return _text_of(name, path, _number(frame.get("line")))


@lru_cache(1 << 16)
def _text_of(name: str, path: str, line: int) -> tuple[str, bool]:
    if match := _OPERATORS.match(name):
        return f"aten::{match[1]}"[:200], True
    if match := _NODES.match(name):
        return match[1][:200], True
    file = path.rpartition("/")[2]
    location = f"{file}:{line}" if line >= 0 else file
    of_python = file.endswith(".py") or path.startswith("<")
    return f"{name} ({location})"[:200], of_python and name not in _MODULE_CALLS


@dataclass
class _Log:
    """The records of one device that have a time.

    Attributes:
        time_ns: ascending as in the file, where equal times keep their order.
        size:    bytes.
        records: as in the file.
    """

    time_ns: I64
    size: I64
    actions: list[str]
    records: list[dict[Any, Any]]


@dataclass
class _Snapshot:
    """One snapshot being read."""

    build: TraceBuilder
    value: dict[Any, Any]
    _frames: dict[int, bytes] = field(default_factory=dict)
    _last_ns: int = 0

    def __post_init__(self) -> None:
        self._slices = Slices(self.build)
        logs = list(_lists(self.value.get("device_traces")))
        self._several = sum(map(bool, logs)) > 1
        records = (record for log in logs for record in log if isinstance(record, dict))
        self._timed = any("time_us" in record for record in records)

    def finish(self) -> None:
        """Hand over what is left, and say what was held at the end."""
        self._slices.flush()
        devices = sorted({max(_number(s.get("device")), 0) for s in self._segments()})
        held = {str(d): self._totals_at_end(d) for d in devices}
        self.build.notes["memory_at_dump"] = {
            device: dict(zip(map(str.lower, _CURVES), sums, strict=True))
            for device, sums in held.items()
        }

    def _group(self, device: int) -> str:
        return f"GPU {device}" if self._several else ""

    def _segments(self) -> Iterator[dict[Any, Any]]:
        return (
            segment for segment in _list(self.value.get("segments")) if isinstance(segment, dict)
        )

    def _totals_at_end(self, device: int) -> list[int]:
        """Bytes allocated, active and reserved at the end."""
        sums = [0, 0, 0]
        for segment in self._segments():
            if max(_number(segment.get("device")), 0) != device:
                continue
            sums[_RESERVED] += max(_number(segment.get("total_size")), 0)
            for block in _list(segment.get("blocks")):
                if not isinstance(block, dict):
                    continue
                state, size = block.get("state"), max(_number(block.get("size")), 0)
                sums[_ALLOCATED] += size if state == _ACTIVE_STATES[0] else 0
                sums[_ACTIVE] += size if state in _ACTIVE_STATES else 0
        return sums

    # -- one device --------------------------------------------------------------------------

    def device(self, device: int, listed: Sequence[Any]) -> None:
        """Add the log of a device."""
        log = self._log(device, listed)
        if not log.records:
            return
        self._last_ns = max(self._last_ns, int(log.time_ns.max()))
        self._marks(device, log)
        self._curves(device, log)
        self._blocks(device, log)

    def _log(self, device: int, listed: Sequence[Any]) -> _Log:
        build, where = self.build, f"device_traces {device}"
        records = [record for record in listed if isinstance(record, dict)]
        build.skip("malformed-record", where, len(listed) - len(records))
        build.seen("instant", len(records))
        times = [_number(record.get("time_us")) for record in records]
        if not self._timed:
            times = list(range(1, len(records) + 1))
            text = f"{where}: no record has a time; they are in their order, 1 us apart"
            build.skip("time-estimated", text, len(records))
        timed = [i for i, time in enumerate(times) if 0 < time < (1 << 62) // 1000]
        build.skip("bad-time", f"{where}: no time", len(records) - len(timed), "instant")
        timed_records = [records[i] for i in timed]
        return _Log(
            np.array([times[i] for i in timed], np.int64) * 1000,
            np.array([max(_number(record.get("size")), 0) for record in timed_records], np.int64),
            [label(record.get("action")) for record in timed_records],
            timed_records,
        )

    def _marks(self, device: int, log: _Log) -> None:
        """Every record as an instant; of unknown kinds, too, and those are counted."""
        build = self.build
        build.skip(
            "unknown-kind", f"device_traces {device}", sum(a not in _CHANGES for a in log.actions)
        )
        track = build.track(Layer.HOST, "Allocator", self._group(device), "Memory", device=device)
        args = [self._args(record) for record in log.records]
        build.extend(
            track=track,
            kind=Kind.INSTANT,
            start_ns=log.time_ns,
            name=np.array([build.string(action) for action in log.actions], np.int32),
            op=OpClass.HOST,
            args=objects(build, args),
        )

    def _args(self, record: Mapping[Any, Any]) -> bytes:
        members = [
            quoted(str(key)) + b":" + (quoted(label(v)) if isinstance(v, str) else b"%d" % v)
            for key, v in islice(record.items(), 40)
            if key not in _NOT_ARGUMENTS and (isinstance(v, str) or type(v) is int)
        ]
        address = _number(record.get("addr"))
        if address >= 0:
            free = record.get("action") == "oom"  # which has no address
            members.append((b'"device free":%d' if free else b'"addr":"0x%x"') % address)
        if stack := self._stack(record.get("frames")):
            members.append(b'"frames":' + stack)
        return b"{" + b",".join(members) + b"}" if members else b""

    def _stack(self, frames: Any) -> bytes:
        """The innermost frames as a JSON list, or b""; shared lists are encoded once.

        Where frames of C++ were recorded, too (the default of PyTorch), calls of operators and
        nodes of autograd are kept of them, by their names: the innermost ones are the same for all
        blocks, those of the allocator and of unwinding.
        """
        if not isinstance(frames, list | tuple) or not frames:
            return b""
        if id(frames) not in self._frames:
            named = [_described(frame) for frame in frames if isinstance(frame, dict)]
            kept = [text for text, tells in named if tells] or [text for text, _ in named]
            texts = [text for i, text in enumerate(kept) if not i or text != kept[i - 1]]
            self._frames[id(frames)] = b"[" + b",".join(map(quoted, texts[:_FRAMES])) + b"]"
        return self._frames[id(frames)]

    def _curves(self, device: int, log: _Log) -> None:
        """The bytes held after every record that changes them, backwards from the end."""
        build = self.build
        nothing = (0, 0, 0)
        signs = np.array([_CHANGES.get(a, nothing) for a in log.actions], np.int64)
        changes = signs * log.size[:, None]
        clipped = 0
        order = np.argsort(log.time_ns, kind="stable")
        for curve, (name, at_end) in enumerate(
            zip(_CURVES, self._totals_at_end(device), strict=True)
        ):
            change = changes[order, curve]
            rows = np.flatnonzero(change)
            if not len(rows):
                continue
            after = at_end - (change.sum() - np.cumsum(change))
            clipped += int((after[rows] < 0).sum())
            build.seen("counter", len(rows))
            build.counters(
                track=build.track(
                    Layer.COUNTER,
                    name,
                    self._group(device),
                    "PyTorch Memory",
                    unit="B",
                    kind=TrackKind.ALLOCATOR,
                    device=device,
                ),
                start_ns=log.time_ns[order][rows],
                value=np.maximum(after[rows], 0).astype(np.float64),
            )
        build.skip("counter-clipped", f"device_traces {device}", clipped)

    def _blocks(self, device: int, log: _Log) -> None:
        """The largest blocks, from their allocation to their release or the end of the log.

        Blocks allocated before the log begins are not drawn: their start is unknown.
        """
        allocations: dict[int, int] = {}  # address -> row of its allocation
        spans: list[tuple[int, int, int]] = []  # size, row, end
        end = int(log.time_ns.max())
        for row in np.argsort(log.time_ns, kind="stable").tolist():
            address = _number(log.records[row].get("addr"))
            if log.actions[row] == "alloc":
                allocations[address] = row
            elif log.actions[row] == "free_completed" and address in allocations:
                begun = allocations.pop(address)
                spans.append((int(log.size[begun]), begun, int(log.time_ns[row])))
        spans += [(int(log.size[row]), row, end) for row in allocations.values()]
        spans.sort(key=lambda span: (-span[0], span[1]))
        track = self.build.track(
            Layer.HOST, "Largest blocks", self._group(device), "Memory", device=device
        )
        for size, row, until in spans[:LARGEST_BLOCKS]:
            start = int(log.time_ns[row])
            shift, unit = next((s, u) for s, u in _UNITS if size >= 1 << s or not s)
            args = self._args(log.records[row])
            name = f"{size / (1 << shift):.4g} {unit}" if shift else f"{size} B"
            self._slices.add(track, start, until - start, name, OpClass.OTHER, args)

    # -- ranges ------------------------------------------------------------------------------

    def annotations(self, listed: Sequence[Any]) -> None:
        """Ranges that the program annotated: a begin and an end of the same name."""
        build = self.build
        open_: dict[tuple[int, str], list[int]] = {}
        alone = 0
        marks = [mark for mark in listed if isinstance(mark, dict)]
        build.skip("malformed-record", "external_annotations", len(listed) - len(marks))
        for mark in sorted(marks, key=lambda m: _number(m.get("time_us"))):
            device, name = max(_number(mark.get("device")), 0), label(mark.get("name"))
            time = _number(mark.get("time_us"))
            if not 0 < time < (1 << 62) // 1000:
                build.lose("bad-time", "external_annotations")
            elif label(mark.get("stage")).upper() == "START":
                open_.setdefault((device, name), []).append(time * 1000)
            elif begun := open_.get((device, name)):
                self._range(device, name, begun.pop(), time * 1000)
            else:
                alone += 1
        build.lose("end-without-begin", "external_annotations", alone)
        for (device, name), begun in open_.items():
            for start in begun:
                build.skip("unfinished-slice", "external_annotations")
                self._range(device, name, start, max(start, self._last_ns))

    def _range(self, device: int, name: str, start: int, end: int) -> None:
        track = self.build.track(
            Layer.HOST, "Annotations", self._group(device), "Memory", device=device
        )
        self._slices.add(track, start, end - start, name, OpClass.HOST)


_UNITS = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))
