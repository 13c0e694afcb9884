"""When threads of a process were off the CPU: records of the operating system's scheduler.

Every record says that a thread was given a CPU, or lost it. From one that lost it to the next that
gives it one, to the same thread, is a slice; why the thread was off, the tables do not say.
"""

from __future__ import annotations

import numpy as np

from traceconv.core.model import Layer, OpClass
from traceconv.readers.nsight.report import Report
from traceconv.readers.shared.arguments import register

TABLE = "SCHED_EVENTS"
TITLE = "CPU Scheduling"
NAME = "Off CPU"


def scheduling(report: Report) -> None:
    """Add what is known of the threads of this process.

    Records at which a thread loses a CPU are slices. Those without the next one are booked: a
    thread that ends loses its CPU for good, and one that waits when the recording ends looks the
    same. So are those of a thread that has none to lose. Records of gaining one end slices.
    """
    if TABLE not in report.database.tables:
        return
    rows = report.rows(TABLE, {"start": -1, "cpu": -1, "isSchedIn": -1}, "globalTid")
    build = report.build
    lost = rows["isSchedIn"] == 0
    build.seen("slice", int(lost.sum()))
    bad = rows["start"] < 0
    build.skip("bad-time", f"table {TABLE}", int((bad & lost).sum()), "slice")
    odd = ~bad & ~lost & (rows["isSchedIn"] != 1)
    build.skip("kind-not-read", f"table {TABLE}", int((odd | (bad & ~lost)).sum()))
    kept = ~bad & ~odd
    rows, lost = {name: column[kept] for name, column in rows.items()}, lost[kept]
    order = np.lexsort((~lost, rows["start"], rows["globalTid"]))
    rows, lost = {name: column[order] for name, column in rows.items()}, lost[order]
    thread, time, cpu = rows["globalTid"], rows["start"], rows["cpu"]
    ended = lost.copy()
    ended[-1:] = False
    ended[:-1] &= (thread[1:] == thread[:-1]) & ~lost[1:]
    build.skip("metadata-unused", f"table {TABLE}", int((lost & ~ended).sum()), "slice")
    begin = np.flatnonzero(ended)
    if not len(begin):
        return
    build.extend(
        track=report.threads(thread[begin], Layer.OTHER, TITLE),
        start_ns=time[begin],
        dur_ns=time[begin + 1] - time[begin],
        name=np.full(len(begin), build.string(NAME), np.int32),
        op=OpClass.OTHER,
        args=register(build, {"from CPU": cpu[begin], "to CPU": cpu[begin + 1]}),
    )
