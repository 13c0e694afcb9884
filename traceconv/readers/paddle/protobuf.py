"""Paddle's protobuf: a few thousand nodes of a thread's tree at a time, to columns.

Only the outermost framing is walked here; nodes are decoded by the protobuf runtime, with our own
description of them. So a file that is cut or damaged gives all that stands before the damage, and
memory holds one batch of nodes, not the file.
"""

from __future__ import annotations

from typing import Any

from traceconv._proto import message, parsed
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.io.sources import Source
from traceconv.readers.paddle.layout import noted, put
from traceconv.readers.paddle.nodes import Nodes
from traceconv.readers.paddle.wire import Cut, Damaged, Field, content, fields

STEM, PACKAGE = "paddle_profiler", "traceconv.paddle"
BATCH_BYTES = 256 << 10
"""Nodes are decoded in batches of about this size."""

VERSION, SPAN_INDEX, TREE, EXTRA_INFO, DEVICE = range(1, 6)
NODE = 2


def read_pb(source: Source, name: str, build: TraceBuilder, pid: int) -> tuple[int, int] | None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers.paddle.layout.put`.

    Returns:
        Earliest start and latest end, ns; None if there are no events.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    file = _File(content(source, name), build)
    file.read()
    if not file.nodes.count and file.broken:
        raise MalformedInputError(source.title(name), file.broken, "not one event can be read")
    if not file.nodes.count:
        build.skip("empty-file")
    noted(build, **file.facts)
    return put(file.nodes.records(), build, pid)


class _File:
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
            message(STEM, f"{PACKAGE}.{name}")
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
            nodes = parsed(self._tree, self._data[first:end]).host_event_nodes
        except ValueError:
            nodes = self._one_by_one(first, end)
        self.nodes.take(nodes)

    def _one_by_one(self, first: int, end: int) -> list[Any]:
        """The nodes that can be decoded."""
        found = []
        for field in fields(self._data, first, end):
            if field.number == NODE:
                try:
                    found.append(parsed(self._node, self._data[field.start : field.end]))
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
            one = parsed(self._extra, raw)
            self.facts["extra_info"][_text(one.key)] = _text(one.value)
        else:
            one = parsed(self._device, raw)
            said = ((f.name, value) for f, value in one.ListFields())
            self.facts["devices"].append(
                {name: _text(v) if isinstance(v, bytes) else v for name, v in said}
            )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
