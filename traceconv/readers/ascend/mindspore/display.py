"""The data pipeline's queue to the device, as a timeline: where nothing else has times.

``device_queue_profiling_<rank>.txt`` (not sunk: ``dataset_iterator_profiling_<rank>.txt``): five
whole numbers a line, ``type subtype step value time``. Type 0 is a duration in ms that ends at
``time`` (subtype 0 waiting for the pipeline, 1 pushing, 2 the whole batch), type 1 the queue's
length, with its capacity as the subtype. ``time`` is ms of the host's steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Capture, Layer, OpClass, Track
from traceconv.readers.ascend.common.display import DisplayClassifier
from traceconv.readers.ascend.mindspore.files import Kind, Part, Plan
from traceconv.readers.ascend.mindspore.text_tables import spaced_columns, whole
from traceconv.readers.shared.ascend_lanes import Classifier
from traceconv.readers.shared.trace_events.timeline import (
    Incoming,
    Lane,
    Placed,
    Skipped,
    read_events,
)

# The display file of a generation A folder, and which rows of other files it already shows.


@dataclass
class Shown:
    """The starts of the display file's rows, by layer; empty if there is no display file."""

    starts: dict[Layer, list[I64]] = field(default_factory=dict)

    def lacks(
        self, build: TraceBuilder, layer: Layer, start_ns: I64, rows: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which of ``rows``, by their starts, are not on a layer of the display file. The others
        are booked as repeated-content.
        """
        seen = self.starts.get(layer)
        if not seen:
            return rows
        new: NDArray[np.bool_] = rows & np.isin(start_ns, np.concatenate(seen), invert=True)
        build.skip("repeated-content", "", int(np.count_nonzero(rows & ~new)))
        return new


def read_display(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Read the display file; its starts go to ``shown`` if other files show the same rows."""
    plan: Plan = capture.detail
    kinds = {other.kind for other in plan.parts}
    gpu = part.name.rpartition("/")[2].startswith("gpu_")
    place = DisplayClassifier("GPU Hardware" if gpu else "Ascend Hardware", Classifier())
    layers: dict[int, Layer] = {}

    def classify(lane: Lane) -> Placed | Skipped | None:
        placed = place(lane)
        if isinstance(placed, Placed):
            if placed.track.layer is Layer.STEP and Kind.STEPS in kinds:
                return Skipped("repeated-content")
            layers[build.add_track(placed.track)] = placed.track.layer
        return placed

    def remember(rows: Incoming) -> None:
        for track in np.unique(rows.track).tolist():
            if track in layers:
                starts = rows.start_ns[rows.track == track].copy()
                shown.starts.setdefault(layers[track], []).append(starts)

    revise = remember if len(kinds) > 1 else None
    read_events(
        capture.source, part.name, build, classify, offset_ns=lambda _: plan.offset_ns,
        revise=revise,
    )  # fmt: skip


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
