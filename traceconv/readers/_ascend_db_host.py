"""The host's side but for the framework: calls of CANN and of the system, marks, garbage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traceconv.model import I32, I64, Layer, OpClass
from traceconv.readers._ascend_db_codes import (
    apart,
    combined,
    label,
    number,
    shared,
    text,
    tracks,
)
from traceconv.readers._ascend_db_export import TIMES, Export
from traceconv.readers._sqlite import Column

LAYERS = {
    "acl": "AscendCL", "model": "Model", "node": "Node", "hccl": "Hccl",
    "communication": "Communication", "runtime": "Runtime",
}  # fmt: skip
"""What the JSON export puts before the name of a call, by kind in ENUM_API_TYPE."""

EVENT_KINDS = {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"}


@dataclass(frozen=True)
class Calls:
    """Rows of the host as arrows refer to them: connections, and the event of each."""

    connection: I64
    row: I64


def calls(export: Export) -> Calls:
    """Calls of CANN, on their threads."""
    wanted = {**TIMES, "type": -1, "globalTid": 0, "connectionId": -1, "name": -1}
    rows, dur = export.timed(export.database.columns("CANN_API", wanted), "CANN_API")
    kinds = export.database.texts("ENUM_API_TYPE", "id", "name")
    names, codes = _call_names(export, rows, kinds)
    args = apart(
        export.build,
        {"connection_id": rows["connectionId"]},
        {
            "Thread Id": (rows["globalTid"] & 0xFFFFFFFF, number),
            "level": (rows["type"], label(kinds)),
        },
    )
    first = export.build.extend(
        track=threads(export, rows["globalTid"], Layer.RUNTIME, "CANN"),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=names[codes],
        op=OpClass.HOST,
        args=args,
    )
    return Calls(rows["connectionId"], np.arange(first, first + len(dur)))


def _call_names(
    export: Export, rows: Mapping[str, Column], kinds: Mapping[int, str]
) -> tuple[I32, I64]:
    """Names ("Node@launch") and, for every row, which of them is its."""
    codes, table = combined(rows["type"], rows["name"])
    unknown = np.array([name not in export.strings for _, name in table], bool)
    export.build.skip("missing-name", "table CANN_API", int(unknown[codes].sum()))
    names = []
    for kind, name in table:
        said = kinds.get(kind, "")
        above = LAYERS.get(said, said)
        names.append(
            f"{above}@{export.strings.get(name, '')}" if above else export.strings.get(name, "")
        )
    return np.array([export.build.string(n) for n in names], np.int32), codes


def threads(export: Export, ids: I64, layer: Layer, title: str) -> I32:
    """The lane of the thread of every row, given global thread ids."""

    def track(thread: int) -> int:
        name = f"Thread {thread & 0xFFFFFFFF}"
        return export.build.track(layer, name, export.process(thread), title)

    return tracks((ids,), track)


def marks(export: Export) -> Calls:
    """Marks and ranges the program made itself."""
    table = "MSTX_EVENTS"
    wanted = {
        **TIMES, "eventType": -1, "message": -1, "globalTid": 0, "domainId": -1,
        "connectionId": -1, "category": -1,
    }  # fmt: skip
    rows, dur = export.timed(export.database.columns(table, wanted), table)
    kinds = export.enum("ENUM_MSTX_EVENT_TYPE", EVENT_KINDS)
    args = shared(
        export.build,
        {
            "event_type": (rows["eventType"], label(kinds)),
            "domain": (rows["domainId"], text(export.strings)),
        },
    )
    first = export.build.extend(
        track=threads(export, rows["globalTid"], Layer.HOST, "PID Name"),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=export.names(rows["message"], table),
        op=OpClass.HOST,
        args=args,
    )
    return Calls(rows["connectionId"], np.arange(first, first + len(dur)))


def others(export: Export) -> None:
    """Calls into the operating system, and collections of Python's garbage."""
    for table, layer, title in (
        ("OSRT_API", Layer.RUNTIME, "OS Runtime API"),
        ("GC_RECORD", Layer.HOST, "Python GC"),
    ):
        wanted = {**TIMES, "globalTid": 0, "name": -1}
        rows, dur = export.timed(export.database.columns(table, wanted), table)
        if not len(dur):
            continue
        named = export.database.has(table, "name")
        export.build.extend(
            track=threads(export, rows["globalTid"], layer, title),
            start_ns=rows["startNs"],
            dur_ns=dur,
            name=export.names(rows["name"], table) if named else export.build.string("GC"),
            op=OpClass.HOST,
        )
