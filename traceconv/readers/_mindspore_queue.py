"""The data pipeline's queue to the device, as a timeline: where nothing else has times.

``device_queue_profiling_<rank>.txt`` (not sunk: ``dataset_iterator_profiling_<rank>.txt``): five
whole numbers a line, ``type subtype step value time``. Type 0 is a duration in ms that ends at
``time`` (subtype 0 waiting for the pipeline, 1 pushing, 2 the whole batch), type 1 the queue's
length, with its capacity as the subtype. ``time`` is ms of the host's steady clock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I64, Capture, Layer, OpClass, Track
from traceconv.readers._mindspore_display import Shown
from traceconv.readers._mindspore_files import Part
from traceconv.readers._mindspore_text import spaced_columns, whole

QUEUE_COLUMNS = ("type", "subtype", "step", "value", "time(ms)")
"""Of both files; the last one is nanoseconds once read."""

_TIMES = {2: "Batch", 0: "Get from Pipeline", 1: "Push to Device"}
_MS = 1_000_000
_LONGEST = 2**31


def read_queue(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Add a slice per duration, and the length of the queue as a counter."""
    columns = spaced_columns(capture.source, part.name, build.issues, QUEUE_COLUMNS, ended=True)
    if not columns:
        return
    kind, subtype, step, value, end = (whole(columns[heading]) for heading in QUEUE_COLUMNS)
    sane = (value >= 0) & (value < _LONGEST) & (step >= 0) & (step < _LONGEST) & (end > 0)
    build.skip("malformed-record", "no such numbers", int(np.count_nonzero(~sane)))
    group = "Iterator" if "dataset_iterator" in part.name else "Device Queue"
    for number, name in _TIMES.items():
        rows = sane & (kind == 0) & (subtype == number)
        track = Track(Layer.HOST, name, group, "Data Pipeline", sort=list(_TIMES).index(number))
        _add_times(build, build.add_track(track), name, step[rows], value[rows], end[rows])
    rows = sane & (kind == 1)
    build.seen("counter", int(np.count_nonzero(rows)))
    track = Track(Layer.COUNTER, "Queue Size", group, "Data Pipeline", unit="")
    build.counters(
        track=build.add_track(track), start_ns=end[rows], value=value[rows].astype(np.float64)
    )
    known = sane & ((kind == 1) | ((kind == 0) & np.isin(subtype, list(_TIMES))))
    build.skip("kind-not-read", "", int(np.count_nonzero(sane & ~known)))


def _add_times(
    build: TraceBuilder,
    track: int,
    name: str,
    step: NDArray[np.int64],
    value: I64,
    end: I64,
) -> None:
    build.seen("slice", len(step))
    names = [build.string(f"{name} {number}") for number in step.tolist()]
    build.extend(
        track=track, start_ns=end - value * _MS, dur_ns=value * _MS, op=OpClass.HOST,
        name=np.array(names, np.int32),
    )  # fmt: skip
