"""The display file of a generation A folder, and which rows of other files it already shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I64, Capture, Layer
from traceconv.readers._ascend import Classifier
from traceconv.readers._ascend_display import DisplayClassifier
from traceconv.readers._mindspore_files import Kind, Part, Plan
from traceconv.readers._traceevents import Incoming, Lane, Placed, Skipped, read_events


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
