"""JSON of rocprofv3: an element per process, with a list of records per kind.

Names are numbers of other lists: kernels of symbols, calls of the operations of their kind, and
what markers say, of their correlation number.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I64
from traceconv.core.ordering import factored_rows
from traceconv.core.source import Source
from traceconv.readers.rocm.process import (
    ALLOCATIONS,
    CALLS,
    COPIES,
    KERNELS,
    Process,
    category,
    copy_device,
    found_in,
    summed,
)
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.layouts import RowLayout, TableRows
from traceconv.readers.shared.numbers import INT32_MAX
from traceconv.readers.shared.table_rows import json_rows

MOST_BYTES = 4 << 30
_GPU = 2

_RECORD = {
    "kind": "kind",
    "operation": "operation",
    "correlation": "correlation_id.internal",
    "thread": "thread_id",
    "stream": "stream_id.handle",
}
_TIMES = {"start": "start_timestamp", "end": "end_timestamp"}
_KERNEL = "dispatch_info."

LAYOUTS = {
    "kernel_dispatch": msgspec.structs.replace(
        KERNELS,
        **_TIMES,
        columns={
            **_RECORD, "name": f"{_KERNEL}kernel_id", "device": f"{_KERNEL}agent_id.handle",
            "queue": f"{_KERNEL}queue_id.handle", "dispatch": f"{_KERNEL}dispatch_id",
            "LDS": f"{_KERNEL}group_segment_size", "scratch": f"{_KERNEL}private_segment_size",
            "grid": tuple(f"{_KERNEL}grid_size.{axis}" for axis in "xyz"),
            "block": tuple(f"{_KERNEL}workgroup_size.{axis}" for axis in "xyz"),
        },
    ),
    "memory_copy": msgspec.structs.replace(
        COPIES,
        **_TIMES,
        columns={
            **_RECORD, "source": "src_agent_id.handle", "target": "dst_agent_id.handle",
            "bytes": "bytes",
        },
        args=("correlation", "bytes", "stream"),
    ),
    "memory_allocation": msgspec.structs.replace(
        ALLOCATIONS,
        **_TIMES,
        columns={
            **_RECORD, "device": "agent_id.handle", "size": "allocation_size", "address": "address",
        },
        texts=frozenset({"address"}),
    ),
    "api": msgspec.structs.replace(CALLS, **_TIMES, columns=_RECORD),
}  # fmt: skip
"""The lists of records; rocprofiler-sdk, source/docs/rocprofv3-schema.json."""

_SYMBOLS = RowLayout(
    start="kernel_id",
    columns={
        "formatted": "formatted_kernel_name", "plain": "kernel_name",
        "VGPRs": "arch_vgpr_count", "accumulation VGPRs": "accum_vgpr_count", "SGPRs": "sgpr_count",
    },
    texts=frozenset({"formatted", "plain"}),
)  # fmt: skip
_TEXTS = RowLayout(start="key", columns={"text": "value"}, texts=frozenset({"text"}))
_COUNTERS = RowLayout(start="id.handle", columns={"text": "name"}, texts=frozenset({"text"}))
_ABOUT = RowLayout(start="pid", columns={"host": "node.hostname"}, texts=frozenset({"host"}))
_AGENTS = RowLayout(start="id.handle", columns={"type": "type", "number": "logical_node_type_id"})


class _Operations(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Strings(msgspec.Struct, frozen=True, gc=False):
    buffer_records: list[_Operations] = []
    marker_api: list[msgspec.Raw] = []


class _Handle(msgspec.Struct, frozen=True, gc=False):
    handle: int = -1


class _Value(msgspec.Struct, frozen=True, gc=False):
    counter_id: _Handle = _Handle()
    value: float = float("nan")


class _Dispatch(msgspec.Struct, frozen=True, gc=False):
    dispatch_id: int = -1


class _DispatchData(msgspec.Struct, frozen=True, gc=False):
    dispatch_info: _Dispatch = _Dispatch()


class _Counted(msgspec.Struct, frozen=True, gc=False):
    dispatch_data: _DispatchData = _DispatchData()
    records: list[_Value] = []


class _Element(msgspec.Struct, frozen=True, gc=False):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    agents: list[msgspec.Raw] = []
    counters: list[msgspec.Raw] = []
    strings: _Strings = _Strings()
    kernel_symbols: list[msgspec.Raw] = []
    buffer_records: dict[str, list[msgspec.Raw]] = {}
    callback_records: dict[str, list[msgspec.Raw]] = {}


class _File(msgspec.Struct, frozen=True, rename={"elements": "rocprofiler-sdk-tool"}):
    elements: list[msgspec.Raw] = []


_DESCRIBING = {"code_objects", "host_functions", "summary"}
"""Members of an element that hold no records, and are not read."""

_decode_file = msgspec.json.Decoder(_File).decode
_decode_element = msgspec.json.Decoder(_Element).decode
_decode_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_counted = msgspec.json.Decoder(_Counted).decode


def processes(source: Source, name: str) -> list[tuple[int, str]]:
    """Process id and host of each process in a file; one unknown process if it is damaged."""
    try:
        file = _decode_file(source.read(name, MOST_BYTES))
        elements = [_decode_element(element) for element in file.elements]
    except NOT_JSON:
        return [(-1, "")]
    listed = []
    for element in elements:
        rows, _ = json_rows([element.metadata], _ABOUT, "metadata")
        pid = int(rows["start"][0]) if len(rows) else -1
        host = rows.texts("host")[0] if len(rows) else ""
        listed.append((pid if pid <= INT32_MAX else -1, host))
    return listed


def read_json(source: Source, name: str, element: int, build: TraceBuilder) -> None:
    """Put one process of a file into ``build``.

    Raises:
        MalformedInputError: it is cut off or no such JSON.
    """
    try:
        text = source.read(name, MOST_BYTES)
        elements = _decode_file(text).elements[element : element + 1]
        unused = _decode_keys(text).keys() - {"rocprofiler-sdk-tool"}
        found = [(_decode_element(raw), _decode_keys(raw).keys()) for raw in elements]
    except NOT_JSON as e:
        why = f"{str(e)[:120]}; was the copy cut short? Other forms of the run may be whole"
        raise MalformedInputError(source.title(name), "", why) from e
    for process, keys in found:
        known = _DESCRIBING.union(_Element.__struct_fields__)
        build.skip_keys(unused | (keys - known))
        _Reading(build, process).read()


class _Reading:
    """One process being read."""

    def __init__(self, build: TraceBuilder, element: _Element) -> None:
        self._build, self._element, self._process = build, element, Process(build)
        agents, _ = json_rows(element.agents, _AGENTS, "agents")
        self._gpus: I64 = np.sort(agents["start"][agents["type"] == _GPU])
        number = picked(agents["number"], lookup(agents["start"], self._gpus)).tolist()
        self._devices = {
            handle: number[i] if number[i] >= 0 else i
            for i, handle in enumerate(self._gpus.tolist())
        }

    def read(self) -> None:
        """Read all lists of records."""
        for kind in self._element.buffer_records:
            if kind == "kernel_dispatch":
                self._kernels(self._rows(kind))
            elif kind == "memory_copy":
                rows = self._rows(kind)
                rows.coded("name", [name for _, name in self._operations(rows)])
                rows.columns["device"] = copy_device(rows["source"], rows["target"], self._gpus)
                self._process.work(LAYOUTS["memory_copy"], rows)
            elif kind == "memory_allocation":
                rows = self._rows(kind)
                rows.coded("operation", [name for _, name in self._operations(rows)])
                self._process.allocations(rows)
            elif kind.endswith("_api"):
                self._calls(kind, self._rows(kind))
            else:
                count = len(self._element.buffer_records[kind])
                self._build.skip("kind-not-read", kind, count)
        for kind, records in self._element.callback_records.items():
            if kind != "counter_collection":
                self._build.skip("kind-not-read", f"callback_records: {kind}", len(records))
        self._process.launched.draw(self._build)

    def _rows(self, kind: str) -> TableRows:
        layout = LAYOUTS.get(kind, LAYOUTS["api"])
        rows, bad = json_rows(self._element.buffer_records[kind], layout, kind)
        self._build.skip("malformed-record", kind, bad)
        self._process.place(rows, self._devices)
        return rows

    def _operations(self, rows: TableRows) -> list[tuple[str, str]]:
        """Names of the kind and the operation of every record."""
        kinds = self._element.strings.buffer_records
        table, pair_of = factored_rows(rows["kind"], rows["operation"])
        labels = []
        for kind, operation in table:
            domain = kinds[kind] if 0 <= kind < len(kinds) else _Operations()
            is_known = 0 <= operation < len(domain.operations)
            labels.append(
                (
                    domain.kind,
                    domain.operations[operation] if is_known else f"operation {operation}",
                )
            )
        return [labels[i] for i in pair_of.tolist()]

    def _calls(self, kind: str, rows: TableRows) -> None:
        labels = self._operations(rows)
        rows.coded("category", [domain or kind for domain, _ in labels])
        names = [name for _, name in labels]
        if category(kind).marker:
            texts, _ = json_rows(self._element.strings.marker_api, _TEXTS, "marker_api")
            messages = dict(zip(texts["start"].tolist(), texts.texts("text"), strict=True))
            numbers = rows["correlation"].tolist()
            names = [messages.get(n, name) for n, name in zip(numbers, names, strict=True)]
        rows.coded("name", names)
        by_code = {code: category(text) for code, text in rows.names["category"].items()}
        self._process.calls(LAYOUTS["api"], rows, by_code)

    def _kernels(self, rows: TableRows) -> None:
        symbols, _ = json_rows(self._element.kernel_symbols, _SYMBOLS, "kernel_symbols")
        texts = zip(symbols.texts("formatted"), symbols.texts("plain"), strict=True)
        names = [formatted or plain for formatted, plain in texts]
        rows.names["name"] = dict(zip(symbols["start"].tolist(), names, strict=True))
        symbol_rows = lookup(symbols["start"], rows["name"])
        for registers in ("VGPRs", "accumulation VGPRs", "SGPRs"):
            rows.columns[registers] = picked(symbols[registers], symbol_rows)
        counters = found_in(self._counters(), rows["dispatch"])
        self._process.work(LAYOUTS["kernel_dispatch"], rows, counters)

    def _counters(self) -> Mapping[int, bytes]:
        """Counters of dispatches, by dispatch number."""
        listed, _ = json_rows(self._element.counters, _COUNTERS, "counters")
        names = dict(zip(listed["start"].tolist(), listed.texts("text"), strict=True))
        counted, bad = [], 0
        for raw in self._element.callback_records.get("counter_collection", ()):
            try:
                counted.append(_decode_counted(raw))
            except NOT_JSON:
                bad += 1
        self._build.skip("malformed-record", "counter_collection", bad)
        measured = [
            (record.dispatch_data.dispatch_info.dispatch_id, v.counter_id.handle, v.value)
            for record in counted
            for v in record.records
        ]
        dispatches, handles, values = zip(*measured, strict=True) if measured else ((), (), ())
        texts = [names.get(handle, f"counter {handle}") for handle in handles]
        return summed(np.array(dispatches, np.int64), texts, values)
