"""Records of the task scheduler (``ts_track``, 40 bytes): steps, tasks, wraps of task numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I64, NO_GRAPH
from traceconv.readers._ascend_raw_pairs import combined_key, paired
from traceconv.readers._ascend_raw_slices import Records, chosen, layout
from traceconv.readers._ascend_raw_steps import Marks
from traceconv.readers._ascend_raw_tasks import NO_CONTEXT, TS_MEMCPY, TS_TYPED, Tasks

TRACK = layout(40, type=(1, "u1"), size=(2, "<u2"), time=(8, "<u8"))
"""The head every record has."""
SIZE = TRACK.itemsize

_MARK = layout(
    40, type=(1, "u1"), time=(8, "<u8"), index=(16, "<u8"), graph=(24, "<u8"), stream=(32, "<u2"),
    task=(34, "<u2"), tag=(36, "<u2"),
)  # fmt: skip
_MARK_6 = layout(
    40, type=(1, "u1"), time=(8, "<u8"), index=(16, "<u8"), graph=(24, "<u8"), tag=(32, "<u2"),
    stream=(34, "<u2"), task=(36, "<u4"),
)  # fmt: skip
_COPY = layout(
    40, time=(8, "<u8"), stream=(16, "<u2"), task=(18, "<u2"), state=(20, "u1")
)  # fmt: skip
_TYPED = layout(
    40, time=(8, "<u8"), stream=(16, "<u2"), task=(18, "<u2"), kind=(20, "<u2"), state=(22, "u1")
)  # fmt: skip
_FLIP = layout(
    40, time=(8, "<u8"), stream=(16, "<u2"), number=(18, "<u2"), task=(22, "<u2")
)  # fmt: skip

_STEP, _COPIED, _TASK_TYPE, _WRAPPED, _BLOCKS = 10, 11, 12, 14, 15
_RECEIVED, _STARTED = 0, 1
_STREAMS = 2047


@dataclass(frozen=True)
class Flips:
    """Where task numbers of a stream started anew: ticks, and how often they had by then."""

    stream: I64
    time: I64
    number: I64


def plausible(rows: Records) -> NDArray[np.bool_]:
    """Records say their own size."""
    found: NDArray[np.bool_] = rows["size"] == SIZE
    return found


def marks(rows: Records, chip_6: bool) -> Marks:
    """The step marks, laid out as the chip's generation does."""
    of = chosen(rows, rows["type"] == _STEP).view(_MARK_6 if chip_6 else _MARK)
    tag, time, stream, task, graph, index = (
        of[name].astype(np.int64) for name in ("tag", "time", "stream", "task", "graph", "index")
    )
    real = (graph >= 0) & (graph < NO_GRAPH)
    return Marks(tag, time, stream & _STREAMS, task, np.where(real, graph, -1), index)


def tasks(rows: Records, build: TraceBuilder) -> Tasks:
    """Tasks the scheduler carried out or watched itself, those with both ends."""
    known = (_STEP, _COPIED, _TASK_TYPE, _WRAPPED, _BLOCKS)
    strange = int((~np.isin(rows["type"], known)).sum())
    build.skip("kind-not-read", "records of other types", strange)
    build.skip("metadata-unused", "numbers of blocks", int((rows["type"] == _BLOCKS).sum()))
    copies = chosen(rows, rows["type"] == _COPIED).view(_COPY)
    typed = chosen(rows, rows["type"] == _TASK_TYPE).view(_TYPED)
    columns = [
        np.concatenate((copies[name], typed[name])).astype(np.int64)
        for name in ("stream", "task", "time", "state")
    ]
    kind = np.concatenate((np.full(len(copies), TS_MEMCPY), TS_TYPED + typed["kind"].astype("i8")))
    order = np.argsort(columns[2], kind="stable")
    stream, task, time, state = (column[order] for column in columns)
    kind = kind[order]
    moving = state != _RECEIVED
    build.skip("metadata-unused", "tasks being received", int((~moving).sum()))
    stream, task, time, kind = stream[moving] & _STREAMS, task[moving], time[moving], kind[moving]
    start, end, matched = paired(combined_key(stream, task, kind), state[moving] == _STARTED)
    rest = int((~matched).sum())
    build.seen("slice", rest)
    build.skip("end-without-begin", "states of tasks without their other end", rest, "slice")
    none = np.full(len(start), NO_CONTEXT, np.int64)
    return Tasks(stream[start], task[start], time[start], time[end], kind[start], none)


def flips(rows: Records) -> Flips:
    """The wraps of task numbers, in the order of time."""
    of = chosen(rows, rows["type"] == _WRAPPED).view(_FLIP)
    of = of[np.argsort(of["time"], kind="stable")]
    stream, time, number = (of[name].astype(np.int64) for name in ("stream", "time", "number"))
    return Flips(stream & _STREAMS, time, number)
