"""The peers for captures of GPUs, and what they are compared with.

    python -m bench.naive_gpu hta IN.json.gz          HolisticTraceAnalysis' parser
    python -m bench.naive_gpu columns IN.json.gz      ours, as far: to columns
    python -m bench.naive_gpu nsight IN.sqlite OUT    sqlite3, fetchall, TraceProtoBuilder

The first two read one compressed trace from disk to columns - a data frame with the parser's
default arguments there, a trace with all arguments here - and print the processor seconds of that
alone, without imports. ``nsight`` writes what ``traceconv convert`` writes: every kernel, copy,
call and range with its arguments, and an arrow per launch.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.naive import Tracks, add_argument, add_event

HTA = "HolisticTraceAnalysis is not installed (pip install HolisticTraceAnalysis)"

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    what, *paths = argv if argv is not None else sys.argv[1:]
    match what:
        case "hta":
            print(json.dumps(hta(*paths)))
        case "columns":
            print(json.dumps(columns(*paths)))
        case "nsight":
            Path(paths[1]).write_bytes(nsight(paths[0]))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def hta_installed() -> bool:
    """Whether the first peer can run."""
    return importlib.util.find_spec("hta") is not None


def hta(path: str) -> dict[str, float]:
    """Seconds HolisticTraceAnalysis takes to a data frame, and its rows."""
    from hta.common.trace_parser import parse_trace_dataframe  # type: ignore[import-not-found]
    from hta.configs.parser_config import ParserConfig  # type: ignore[import-not-found]

    config = ParserConfig.get_default_cfg()
    start = time.process_time()
    _, frame, _ = parse_trace_dataframe(path, config)
    return {"read": time.process_time() - start, "rows": len(frame)}


def columns(path: str) -> dict[str, float]:
    """Seconds traceconv takes to a trace, and its slices."""
    from traceconv.api import open as api
    from traceconv.readers.torch.kineto import content as _kineto_file  # noqa: F401 - imported before time is taken

    start = time.process_time()
    [trace] = api.open(path).traces()
    return {"read": time.process_time() - start, "rows": trace.counts()["slice"]}


# -- Nsight ---------------------------------------------------------------------------------

_QUERIES = {
    "kernel": "SELECT t.*, s.value AS name FROM CUPTI_ACTIVITY_KIND_KERNEL t "
    "JOIN StringIds s ON s.id = t.demangledName",
    "copy": "SELECT *, 'Memcpy' AS name FROM CUPTI_ACTIVITY_KIND_MEMCPY",
    "set": "SELECT *, 'Memset' AS name FROM CUPTI_ACTIVITY_KIND_MEMSET",
    "wait": "SELECT *, 'Synchronize' AS name FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "call": "SELECT t.*, s.value AS name FROM CUPTI_ACTIVITY_KIND_RUNTIME t "
    "JOIN StringIds s ON s.id = t.nameId WHERE eventClass IN (0, 1)",
    "range": "SELECT t.*, COALESCE(t.text, s.value) AS name FROM NVTX_EVENTS t "
    "LEFT JOIN StringIds s ON s.id = t.textId WHERE eventType IN (59, 60)",
}
_ARGUMENTS = {
    "deviceId": "device", "contextId": "context", "streamId": "stream",
    "correlationId": "correlation", "bytes": "bytes", "copyKind": "kind", "value": "value",
    "registersPerThread": "registers per thread", "staticSharedMemory": "shared memory",
    "returnValue": "result",
}  # fmt: skip


def nsight(path: str) -> bytes:
    """The bytes of a Perfetto trace of a report's tables."""
    from perfetto.trace_builder.proto_builder import (  # type: ignore[import-untyped]
        TraceProtoBuilder,
    )

    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    db.row_factory = sqlite3.Row
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master").fetchall()}
    found = {
        kind: [dict(row) for row in db.execute(query).fetchall()]
        for kind, query in _QUERIES.items()
        if query.split(" FROM ")[1].split()[0] in there
    }
    flows = _flows(found)
    lanes: dict[tuple[int, str, str], list[Row]] = defaultdict(list)
    for kind, rows in found.items():
        for row in rows:
            lanes[_lane(kind, row)].append(row)
    base = min(row["start"] for rows in found.values() for row in rows)
    trace = TraceProtoBuilder()
    tracks = Tracks(trace, {})
    for (pid, group, name), rows in lanes.items():
        _add_slices(trace, tracks.add(f"{pid} {group}", name), rows, base, flows)
    written: bytes = trace.serialize()
    return written


def _pid(row: Row) -> int:
    return (row.get("globalPid", row.get("globalTid")) >> 24) & 0xFFFFFF


def _lane(kind: str, row: Row) -> tuple[int, str, str]:
    if kind in ("call", "range"):
        return _pid(row), kind, f"Thread {row['globalTid'] & 0xFFFFFF}"
    return _pid(row), "wait" if kind == "wait" else "device", f"Stream {row['streamId']}"


def _flows(found: dict[str, list[Row]]) -> dict[int, list[int]]:
    """Numbers of the arrows at every row, by the row's identity."""
    calls: dict[tuple[int, int], Row] = {}
    for row in found.get("call", ()):
        calls.setdefault((_pid(row), row["correlationId"]), row)
    flows: dict[int, list[int]] = defaultdict(list)
    number = 0
    for kind in ("kernel", "copy", "set", "wait"):
        for row in found.get(kind, ()):
            call = calls.get((_pid(row), row["correlationId"]))
            if call is not None:
                number += 1
                flows[id(call)].append(number)
                flows[id(row)].append(number)
    return flows


def _add_slices(
    trace: Any, track: int, rows: list[Row], base: int, flows: dict[int, list[int]]
) -> None:
    """Begin and end packets of one lane, in the order in which they nest."""
    rows.sort(key=lambda row: (row["start"], -(row["end"] or row["start"])))
    open_ends: list[int] = []
    for row in rows:
        start, end = row["start"] - base, (row["end"] or row["start"]) - base
        while open_ends and open_ends[-1] <= start:
            add_event(trace, track, open_ends.pop(), 2)
        event = add_event(trace, track, start, 1)
        event.name = row["name"]
        event.flow_ids.extend(flows.get(id(row), ()))
        _add_arguments(event, row)
        open_ends.append(end)
    while open_ends:
        add_event(trace, track, open_ends.pop(), 2)


def _add_arguments(event: Any, row: Row) -> None:
    for column, key in _ARGUMENTS.items():
        if row.get(column) is not None:
            add_argument(event, key, row[column])
    for what in ("grid", "block"):
        if what + "X" in row:
            for axis in "XYZ":
                add_argument(event, f"{what}[{axis}]", row[what + axis])


if __name__ == "__main__":
    raise SystemExit(main())
