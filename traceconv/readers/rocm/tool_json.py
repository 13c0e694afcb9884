"""JSON of rocprofv3: an element per process, with a list of records per kind.

Names are numbers of other lists: kernels of symbols, calls of the operations of their kind, and
what markers say, of their correlation number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I32, I64, OpClass
from traceconv.io.sources import Source
from traceconv.readers.rocm.process import (
    Process,
    Spans,
    category,
    copy_device,
    counted,
    lane_of,
    registered,
)
from traceconv.readers.shared.arguments import number
from traceconv.readers.shared.numbers import INT32_MAX, whole_number

MOST_BYTES = 4 << 30
_GPU = 2
_READ = ("kernel_dispatch", "memory_copy", "memory_allocation")


class _Handle(msgspec.Struct, frozen=True, gc=False):
    handle: int = -1


class _Ids(msgspec.Struct, frozen=True, gc=False):
    internal: int = -1


class _Size(msgspec.Struct, frozen=True, gc=False):
    x: int = -1
    y: int = -1
    z: int = -1


class _Dispatch(msgspec.Struct, frozen=True, gc=False):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = -1
    dispatch_id: int = -1
    private_segment_size: int = -1
    group_segment_size: int = -1
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class _Record(msgspec.Struct, frozen=True, gc=False):
    """A record of any kind; what a kind has not stays as it is here."""

    kind: int = -1
    operation: int = -1
    thread_id: int = -1
    correlation_id: _Ids = _Ids()
    start_timestamp: int = -1
    end_timestamp: int = -1
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle = _Handle()
    agent_id: _Handle = _Handle()
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    bytes: int = -1
    allocation_size: int = -1
    address: Any = None


class _Node(msgspec.Struct, frozen=True, gc=False):
    hostname: str = ""


class _About(msgspec.Struct, frozen=True, gc=False):
    node: _Node = _Node()
    pid: int = -1


class _Agent(msgspec.Struct, frozen=True, gc=False):
    id: _Handle = _Handle()
    type: int = -1
    logical_node_type_id: int = -1
    node_id: int = -1


class _Symbol(msgspec.Struct, frozen=True, gc=False):
    kernel_id: int = -1
    formatted_kernel_name: str = ""
    kernel_name: str = ""
    sgpr_count: int = -1
    arch_vgpr_count: int = -1
    accum_vgpr_count: int = -1


class _Operations(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Text(msgspec.Struct, frozen=True, gc=False):
    key: int = -1
    value: str = ""


class _Strings(msgspec.Struct, frozen=True, gc=False):
    buffer_records: list[_Operations] = []
    marker_api: list[_Text] = []


class _Counter(msgspec.Struct, frozen=True, gc=False):
    id: _Handle = _Handle()
    name: str = ""


class _Value(msgspec.Struct, frozen=True, gc=False):
    counter_id: _Handle = _Handle()
    value: float = float("nan")


class _DispatchData(msgspec.Struct, frozen=True, gc=False):
    dispatch_info: _Dispatch = _Dispatch()


class _Counted(msgspec.Struct, frozen=True, gc=False):
    dispatch_data: _DispatchData = _DispatchData()
    records: list[_Value] = []


class _Callbacks(msgspec.Struct, frozen=True, gc=False):
    counter_collection: list[_Counted] = []


class _Element(msgspec.Struct, frozen=True, gc=False):
    metadata: _About = _About()
    agents: list[_Agent] = []
    counters: list[_Counter] = []
    strings: _Strings = _Strings()
    kernel_symbols: list[_Symbol] = []
    buffer_records: dict[str, list[msgspec.Raw]] = {}
    callback_records: _Callbacks = _Callbacks()


class _File(msgspec.Struct, frozen=True, rename={"elements": "rocprofiler-sdk-tool"}):
    elements: list[_Element] = []


class _Head(msgspec.Struct, frozen=True, gc=False):
    metadata: _About = _About()


class _Heads(msgspec.Struct, frozen=True, rename={"elements": "rocprofiler-sdk-tool"}):
    elements: list[_Head] = []


_decode_file = msgspec.json.Decoder(_File).decode
_decode_heads = msgspec.json.Decoder(_Heads).decode
_decode_record = msgspec.json.Decoder(_Record).decode


def processes(source: Source, name: str) -> list[tuple[int, str]]:
    """Number and host of the processes in a file; one of which nothing is known if it is broken."""
    try:
        heads = _decode_heads(source.read(name, MOST_BYTES))
    except NOT_JSON:
        return [(-1, "")]
    return [
        (
            -1 if (pid := whole_number(one.metadata.pid, INT32_MAX)) is None else pid,
            one.metadata.node.hostname,
        )
        for one in heads.elements
    ]


def read_json(source: Source, name: str, element: int, build: TraceBuilder) -> None:
    """Put one process of a file into ``build``.

    Raises:
        MalformedInputError: it is cut off or no such JSON.
    """
    try:
        elements = _decode_file(source.read(name, MOST_BYTES)).elements
    except NOT_JSON as e:
        why = f"{str(e)[:120]}; was the copy cut short? Other forms of the run may be whole"
        raise MalformedInputError(source.title(name), "", why) from e
    if element < len(elements):
        _Reading(build, elements[element]).read()


class _Reading:
    """One process being read."""

    def __init__(self, build: TraceBuilder, element: _Element) -> None:
        self._build, self._element = build, element
        self._gpus = {a.id.handle: a for a in element.agents if a.type == _GPU}
        order = sorted(self._gpus)
        self._numbers = {
            handle: self._gpus[handle].logical_node_type_id
            if self._gpus[handle].logical_node_type_id >= 0
            else i
            for i, handle in enumerate(order)
        }
        self._process = Process(build, self._device, _thread)

    def read(self) -> None:
        """Every list of records."""
        for kind in self._element.buffer_records:
            records = self._records(kind)
            if kind == "kernel_dispatch":
                self._kernels(records)
            elif kind == "memory_copy":
                self._copies(records)
            elif kind == "memory_allocation":
                self._allocations(records)
            elif kind.endswith("_api"):
                self._calls(kind, records)
            else:
                self._build.skip("kind-not-read", kind, len(records))
        self._process.draw()

    def _records(self, kind: str) -> list[_Record]:
        found, bad = [], 0
        for raw in self._element.buffer_records[kind]:
            try:
                found.append(_decode_record(raw))
            except NOT_JSON:
                bad += 1
        self._build.skip("malformed-record", kind, bad)
        return found

    def _device(self, handle: int) -> str:
        return f"GPU {self._numbers.get(handle, handle)}"

    def _spans(self, records: Sequence[_Record], kind: str) -> Spans:
        return Spans(
            _whole([r.start_timestamp for r in records]),
            _whole([r.end_timestamp for r in records]),
            kind,
        )

    def _named(self, texts: Sequence[str]) -> I32:
        known = {text: self._build.string(text or "(no name)") for text in dict.fromkeys(texts)}
        return np.array([known[text] for text in texts], np.int32)

    def _operation(self, record: _Record) -> tuple[str, str]:
        """What the kind and the operation of a record are called."""
        kinds = self._element.strings.buffer_records
        of = kinds[record.kind] if 0 <= record.kind < len(kinds) else _Operations()
        known = 0 <= record.operation < len(of.operations)
        return of.kind, of.operations[
            record.operation
        ] if known else f"operation {record.operation}"

    # -- records -----------------------------------------------------------------------------

    def _calls(self, kind: str, records: Sequence[_Record]) -> None:
        named = [self._operation(record) for record in records]
        domains = [domain or kind for domain, _ in named]
        number_of = {domain: i for i, domain in enumerate(dict.fromkeys(domains))}
        correlation = _whole([r.correlation_id.internal for r in records])
        said = {text.key: text.value for text in self._element.strings.marker_api}
        marker = category(kind).marker
        names = [
            said.get(number_, name) if marker else name
            for (_, name), number_ in zip(named, correlation.tolist(), strict=True)
        ]
        self._process.calls(
            self._spans(records, kind),
            self._named(names),
            np.array([number_of[d] for d in domains], np.int64),
            [category(domain) for domain in number_of],
            _whole([r.thread_id for r in records]),
            correlation,
            lambda at: registered(self._build, {"correlation": (correlation[at], number)}),
        )

    def _kernels(self, records: Sequence[_Record]) -> None:
        infos = [record.dispatch_info or _Dispatch() for record in records]
        symbols = {s.kernel_id: s for s in self._element.kernel_symbols}
        empty = _Symbol()
        known = [symbols.get(info.kernel_id, empty) for info in infos]
        columns = {
            "correlation": _whole([r.correlation_id.internal for r in records]),
            "dispatch": _whole([info.dispatch_id for info in infos]),
            "queue": _whole([info.queue_id.handle for info in infos]),
            "stream": _whole([record.stream_id.handle for record in records]),
            "LDS": _whole([info.group_segment_size for info in infos]),
            "scratch": _whole([info.private_segment_size for info in infos]),
            "VGPRs": _whole([symbol.arch_vgpr_count for symbol in known]),
            "accumulation VGPRs": _whole([symbol.accum_vgpr_count for symbol in known]),
            "SGPRs": _whole([symbol.sgpr_count for symbol in known]),
        }
        counters = self._counters()

        def args(at: NDArray[np.intp]) -> I32:
            more = [
                b',"grid":%b,"block":%b'
                % (_triple(infos[i].grid_size), _triple(infos[i].workgroup_size))
                + counters.get(infos[i].dispatch_id, b"")
                for i in at.tolist()
            ]
            return registered(self._build, {k: (c[at], number) for k, c in columns.items()}, more)

        lane, lanes = lane_of(columns["stream"], columns["queue"])
        self._process.work(
            self._spans(records, "kernel_dispatch"),
            self._named([s.formatted_kernel_name or s.kernel_name for s in known]),
            _whole([info.agent_id.handle for info in infos]),
            lane,
            columns["correlation"],
            args,
            lanes=lanes,
        )

    def _counters(self) -> dict[int, bytes]:
        """What was counted during dispatches, by their numbers; instances are added up."""
        names = {counter.id.handle: counter.name for counter in self._element.counters}
        sums: dict[int, dict[str, float]] = {}
        for one in self._element.callback_records.counter_collection:
            known = sums.setdefault(one.dispatch_data.dispatch_info.dispatch_id, {})
            for record in one.records:
                handle = record.counter_id.handle
                name = names.get(handle, f"counter {handle}")
                known[name] = known.get(name, 0.0) + record.value
        return {dispatch: counted(known) for dispatch, known in sums.items()}

    def _copies(self, records: Sequence[_Record]) -> None:
        source = _whole([record.src_agent_id.handle for record in records])
        target = _whole([record.dst_agent_id.handle for record in records])
        columns = {
            "correlation": _whole([r.correlation_id.internal for r in records]),
            "bytes": _whole([record.bytes for record in records]),
            "stream": _whole([record.stream_id.handle for record in records]),
        }
        lane, lanes = lane_of(columns["stream"], np.full(len(records), -1))
        self._process.work(
            self._spans(records, "memory_copy"),
            self._named([self._operation(record)[1] for record in records]),
            copy_device(source, target, np.array(sorted(self._gpus), np.int64)),
            lane,
            columns["correlation"],
            lambda at: registered(self._build, {k: (c[at], number) for k, c in columns.items()}),
            op=OpClass.COPY,
            lanes=lanes,
        )

    def _allocations(self, records: Sequence[_Record]) -> None:
        self._process.allocations(
            self._spans(records, "memory_allocation"),
            [self._operation(record)[1] for record in records],
            [""] * len(records),
            _whole([record.agent_id.handle for record in records]),
            [str(record.address) for record in records],
            _whole([record.allocation_size for record in records]),
        )


def _whole(values: Sequence[int]) -> I64:
    """Numbers from 0 to 2**63 - 1; -1 where there is none."""
    return np.array([v if 0 <= v < 1 << 63 else -1 for v in values], np.int64)


def _triple(size: _Size) -> bytes:
    return b"[%d,%d,%d]" % (size.x, size.y, size.z)


def _thread(number_: int) -> str:
    return f"Thread {number_}" if number_ >= 0 else "No thread"
