"""Markers among the tasks of Ascend's streams: MSTX ranges, collectives in them, turns of MC2.

CANN puts two kinds of rows on the lanes of ``Ascend Hardware`` that are no tasks. They name their
stream and no ``Task Type`` (Ascend/msprof ``DeviceTxTraceEvent``, ``KfcTurnTraceEvent``):

* an MSTX marker of the host, between two points of its stream. At profiler level "none" HCCL states
  its operations so, which is all that is known of communication then; the message is JSON or a list
  (Ascend/msprof-analyze ``mstx2commop.py``);
* a turn of a fused operator (MC2), whose server on the AI CPU drives communication. What else runs
  on the stream of the server is left out of CANN's ``Computing``, too.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.ascend_tasks import OPERATORS
from traceconv.readers.shared.trace_events.contract import (
    Classify,
    Incoming,
    Lane,
    Placed,
    Skipped,
)

MARKS, TURNS = "Device Markers", "MC2 Turns"
"""Titles of their tracks."""

_TURN = lazy_regex(
    r"(?:(StartServer|TaskWaitRequest|TaskOrchestration|TaskLaunch|TaskExecute|Finalize)"
    r"|WaitCompute|Compute) \d{1,18}"
)
_LISTED = lazy_regex(r"comm:(Hccl\w+),([^,]*),([^,]*),(\d{1,18})")
_DECODER = msgspec.json.Decoder()


def communication_of(message: str) -> dict[str, Any] | None:
    """The operation in a marker of HCCL: ``opName``, ``groupName``, ``dataType``, ``count`` etc.

    None for any other message.
    """
    if match := _LISTED.fullmatch(message):
        return dict(zip(("opName", "groupName", "dataType", "count"), match.groups(), strict=True))
    if not message.startswith("{"):
        return None
    try:
        operation = _DECODER.decode(message)
    except NOT_JSON:
        return None
    is_operation = isinstance(operation, dict) and all(
        isinstance(operation.get(key), str) and operation[key] for key in ("opName", "groupName")
    )
    return operation if is_operation else None


class HardwareLanes:
    """Places lanes as another function does, and moves markers among tasks to separate lanes.

    Give it and :meth:`revise` to ``read_events``, and call :meth:`finish` afterwards.
    """

    def __init__(self, build: TraceBuilder, classify: Classify) -> None:
        self._build, self._classify = build, classify
        self._streams: dict[int, Track] = {}  # by number of the track
        self._servers: set[int] = set()  # tracks with turns of MC2

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        placed = self._classify(lane)
        if isinstance(placed, Placed) and placed.by_type is OPERATORS and lane.phase == "X":
            self._streams[self._build.add_track(placed.track)] = placed.track
        return placed

    def revise(self, rows: Incoming) -> None:
        """Move the markers of a batch; see :data:`~traceconv.readers.shared.trace_events.contract.
        Revise`."""
        for i in np.flatnonzero(rows.op == OpClass.UNCLASSIFIED).tolist():
            args = self._build.stored(int(rows.address[i]), int(rows.length[i]))
            on_stream = int(rows.track[i]) in self._streams  # of complete events alone
            if on_stream and b'"Task Type"' not in args and b'Stream Id"' in args:
                self._move(rows, i)

    def _move(self, rows: Incoming, i: int) -> None:
        build, number = self._build, int(rows.track[i])
        stream, name = self._streams[number], build.strings[int(rows.name[i])]
        operation = communication_of(name)
        if operation is not None:
            text = json.dumps(operation, ensure_ascii=False).encode("utf-8", "replace")
            rows.address[i], rows.length[i] = build.spill(text), len(text)
            rows.name[i], rows.op[i] = build.string(operation["opName"]), OpClass.COMM
            group = f"{stream.group} Group {operation['groupName']}".strip()
            track = msgspec.structs.replace(
                stream, layer=Layer.COMM, group=group, title="Communication",
                communicator=operation["groupName"],
            )  # fmt: skip
            rows.track[i] = build.add_track(track)
            return
        turn = _TURN.fullmatch(name)
        if turn and turn[1]:
            self._servers.add(number)
        title = TURNS if turn else MARKS
        track = msgspec.structs.replace(stream, layer=Layer.OTHER, title=title)
        rows.track[i], rows.op[i] = build.add_track(track), OpClass.OTHER

    def finish(self) -> None:
        """Tasks on the streams of MC2's servers communicate, and so do copies that are parts of
        HCCL's operations: these are on planes, too.
        """
        servers = np.array(sorted(self._servers), np.int32)
        self._build.reclassify(
            lambda rows: np.isin(rows.track, servers) & (rows.op == OpClass.COMPUTE),
            OpClass.COMM_TASK,
        )
        streams = np.array(sorted(self._streams), np.int32)
        parts = self._build.starts(
            lambda rows: ~np.isin(rows.track, streams) & (rows.op == OpClass.COMM_TASK)
        )
        self._build.reclassify(
            lambda rows: (
                np.isin(rows.track, streams)
                & (rows.op == OpClass.COPY)
                & np.isin(rows.start_ns, parts)
            ),
            OpClass.COMM_TASK,
        )
