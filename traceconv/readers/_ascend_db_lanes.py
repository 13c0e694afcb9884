"""Lanes that the export derived itself: steps and overlap; and units beside the streams."""

from __future__ import annotations

import numpy as np

from traceconv.model import Layer, OpClass
from traceconv.readers._ascend import step_lane
from traceconv.readers._ascend_db_codes import factored, shared, text, tracks
from traceconv.readers._ascend_db_export import TIMES, Export
from traceconv.readers._ascend_ops import OVERLAP_LANES

_INT32_MAX = 2**31 - 1

_UNITS = (
    ("CCU", "CCU", {"deviceId": -1, "name": -1}),
    ("DPU_TASK", "DPU", {"dpuDeviceId": -1, "opName": -1}),
)
"""Table, title of its lane, its columns of device and name."""


def steps(export: Export) -> None:
    """The steps of the framework, called as in its own marks."""
    wanted = {**TIMES, "id": -1}
    rows, dur = export.timed(export.database.columns("STEP_TIME", wanted), "STEP_TIME")
    if not len(dur):
        return
    step = np.where((rows["id"] >= 0) & (rows["id"] <= _INT32_MAX), rows["id"], -1)
    values, codes = factored(step)
    names = [f"ProfilerStep#{s}" if s >= 0 else "ProfilerStep" for s in values.tolist()]
    export.build.extend(
        track=export.build.add_track(step_lane(-1).track),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=np.array([export.build.string(n) for n in names], np.int32)[codes],
        op=OpClass.ITERATION,
        step=step.astype(np.int32),
    )


def overlap(export: Export) -> None:
    """The overlap analysis that newer exporters, and viewers, leave in the database."""
    table = "OVERLAP_ANALYSIS"
    rows = export.database.columns(table, {**TIMES, "deviceId": -1, "type": -1})
    lanes = list(OVERLAP_LANES.items())
    known = (rows["type"] >= 0) & (rows["type"] < len(lanes))
    export.build.skip("kind-not-read", f"table {table}", int((~known).sum()))
    rows, dur = export.timed({name: column[known] for name, column in rows.items()}, table)

    def lane(device: int, kind: int) -> int:
        name, (sort, _) = lanes[kind]
        group = export.device(device)
        return export.build.track(Layer.OVERLAP, name, group, "Overlap Analysis", sort)

    names = np.array([export.build.string(name) for name, _ in lanes], np.int32)
    classes = np.array([op for _, (_, op) in lanes], np.int8)
    export.build.extend(
        track=tracks((rows["deviceId"], rows["type"]), lane),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=names[rows["type"]],
        op=classes[rows["type"]],
    )


def units(export: Export) -> None:
    """What units beside the streams did."""
    for table, title, columns in _UNITS:
        wanted = {**TIMES, **columns, "args": -1}
        rows, dur = export.timed(export.database.columns(table, wanted), table)
        device, name = (rows[column] for column in columns)

        def lane(number: int, title: str = title) -> int:
            return export.build.track(Layer.DEVICE, title, export.device(number), title)

        export.build.extend(
            track=tracks((device,), lane),
            start_ns=rows["startNs"],
            dur_ns=dur,
            name=export.names(name, table),
            args=shared(export.build, {"args": (rows["args"], text(export.strings))}),
        )
