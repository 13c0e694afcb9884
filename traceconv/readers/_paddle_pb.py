"""Paddle's protobuf: a few thousand nodes of a thread's tree at a time, to columns.

Only the outermost framing is walked here; nodes are decoded by the protobuf runtime, with our own
description of them. So a file that is cut or damaged gives all that stands before the damage, and
memory holds one batch of nodes, not the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from traceconv import _proto
from traceconv.build import TraceBuilder
from traceconv.errors import MalformedInputError
from traceconv.readers._paddle_layout import noted, put
from traceconv.readers._paddle_nodes import Nodes
from traceconv.source import Source

STEM, PACKAGE = "paddle_profiler", "traceconv.paddle"
BATCH_BYTES = 256 << 10
"""Nodes are decoded in batches of about this size."""

VERSION, SPAN_INDEX, TREE, EXTRA_INFO, DEVICE = range(1, 6)
NODE = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Cut(Exception):
    """The bytes end within a field; its place."""


class Damaged(Exception):
    """What stands here is no field; its place."""


@dataclass(frozen=True)
class Field:
    """One field of a message: a number, or the bytes ``[start, end)``, which may go beyond the
    message if that is cut.
    """

    number: int
    value: int
    begin: int
    start: int
    end: int


def fields(data: Any, at: int, end: int) -> Iterator[Field]:
    """The fields of the message ``data[at:end]``.

    Raises:
        Cut: the message ends within a field's head.
        Damaged: a field is of no known kind.
    """
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        value, start = 0, at
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at, end)
        elif kind == _BYTES:
            value, start = _varint(data, at, end)
            at = start + value
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise Damaged(begin)
        yield Field(tag >> 3, value, begin, start, at)


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise Damaged(at)
    raise Cut(at)


def read_pb(source: Source, name: str, build: TraceBuilder, pid: int) -> tuple[int, int] | None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers._paddle_layout.put`.

    Returns:
        Earliest start and latest end, ns; None if there are no events.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    with source.open(name) as stream:
        data: Any = stream.mapped
        if data is None:
            parts = []
            while part := stream.read(1 << 20):
                parts.append(part)
            data = b"".join(parts)
        else:
            stream.advance(len(data))
        message = _Message(data, build)
        message.read()
    if not message.nodes.count and message.broken:
        raise MalformedInputError(source.title(name), message.broken, "not one event can be read")
    if not message.nodes.count:
        build.skip("empty-file")
    noted(build, **message.facts)
    return put(message.nodes.records(), build, pid)


class _Message:
    """One NodeTreesProto.

    Attributes:
        nodes:  the events read so far.
        facts:  what else it says.
        broken: where it is cut or damaged, "" if it is whole.
    """

    def __init__(self, data: Any, build: TraceBuilder) -> None:
        self._data, self._build = data, build
        self.nodes = Nodes(build)
        self.facts: dict[str, Any] = {
            "version": None, "span_index": None, "devices": [], "extra_info": {},
        }  # fmt: skip
        self.broken = ""
        self._tree, self._node, self._extra, self._device = (
            _proto.message(STEM, f"{PACKAGE}.{name}")
            for name in (
                "ThreadNodeTreeProto",
                "HostTraceEventNodeProto",
                "NodeTreesProto.ExtraInfoMap",
                "DevicePropertyProto",
            )
        )

    def read(self) -> None:
        """Take everything, up to where the file is cut or damaged."""
        size = len(self._data)
        try:
            for field in fields(self._data, 0, size):
                if field.number == TREE:
                    self._take_tree(field.start, min(field.end, size))
                elif field.end <= size:
                    self._take_fact(field)
                if field.end > size:
                    self._lose("truncated", field.begin)
        except Cut as e:
            self._lose("truncated", e.args[0])
        except Damaged as e:
            self._lose("skipped-bytes", e.args[0], size - e.args[0])

    def _lose(self, code: str, at: int, count: int = 1) -> None:
        if not self.broken or code != "truncated":
            self._build.skip(code, f"byte {at}", count)
        self.broken = self.broken or f"byte {at}"

    def _take_tree(self, at: int, end: int) -> None:
        """The nodes of one thread."""
        first = at
        try:
            for field in fields(self._data, at, end):
                if field.end > end:
                    self._lose("truncated" if end == len(self._data) else "malformed-record", at)
                    break
                if at - first >= BATCH_BYTES:
                    self._take_nodes(first, at)
                    first = at
                at = field.end
        except Cut as e:
            self._lose("truncated", e.args[0])
        except Damaged as e:
            self._lose("skipped-bytes", e.args[0], end - e.args[0])
        self._take_nodes(first, at)

    def _take_nodes(self, first: int, end: int) -> None:
        """Nodes (and the thread's id) that lie in ``data[first:end]``."""
        try:
            nodes = _proto.parsed(self._tree, self._data[first:end]).host_event_nodes
        except ValueError:
            nodes = self._one_by_one(first, end)
        self.nodes.take(nodes)

    def _one_by_one(self, first: int, end: int) -> list[Any]:
        """The nodes that can be decoded."""
        found = []
        for field in fields(self._data, first, end):
            if field.number == NODE:
                try:
                    found.append(_proto.parsed(self._node, self._data[field.start : field.end]))
                except ValueError:
                    self._lose("malformed-record", field.begin)
        return found

    def _take_fact(self, field: Field) -> None:
        raw = self._data[field.start : field.end]
        if field.number == VERSION:
            self.facts["version"] = raw.decode("utf-8", "replace")
        elif field.number == SPAN_INDEX:
            self.facts["span_index"] = field.value
        elif field.number in (EXTRA_INFO, DEVICE):
            try:
                self._take_message(field.number, raw)
            except ValueError:
                self._lose("malformed-record", field.begin)

    def _take_message(self, number: int, raw: bytes) -> None:
        if number == EXTRA_INFO:
            one = _proto.parsed(self._extra, raw)
            self.facts["extra_info"][_text(one.key)] = _text(one.value)
        else:
            one = _proto.parsed(self._device, raw)
            said = ((f.name, value) for f, value in one.ListFields())
            self.facts["devices"].append(
                {name: _text(v) if isinstance(v, bytes) else v for name, v in said}
            )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
