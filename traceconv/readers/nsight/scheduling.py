"""When threads of a process were off the CPU, and which other processes ran there meanwhile:
records of the operating system's scheduler.

Every record says that a thread was given a CPU, or lost it. From one that lost it to the next that
gives it one, to the same thread, is a slice "Off CPU" of the thread; why it was off, the tables do
not say (``threadState`` holds nothing but the end of a thread in reports of Linux).

From one that gives another process a CPU to the next that takes it away is a run of that process.
Runs are on tracks of the CPU ("Other Processes"), only those that touch the time in which a thread
of this process that calls the runtime had lost that CPU, or waited for it: nearly all runs of a
machine have no effect on the rank. The rest is counted.

``--cpuctxsw=process-tree`` records the processes that nsys launched, ``system-wide`` all of the
machine. No column states which; records of the idle task or of threads of the kernel prove
``system-wide``. Then "Off CPU" slices have the time that other processes ran on either CPU;
otherwise this is unknown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.intervals import length_within, none, union
from traceconv.core.model import I64, Mask
from traceconv.readers.nsight import tables
from traceconv.readers.nsight.processes import NO_PROCESS, owner_of, pid_of, process_names
from traceconv.readers.nsight.report import Report
from traceconv.readers.shared.layouts import TableRows, add_rows
from traceconv.readers.shared.sqlite.database import Column

TABLE = "SCHED_EVENTS"

_KERNEL = ("kworker/", "ksoftirqd/", "migration/")
"""How names of threads of the kernel begin: no process launches these."""

Rows = dict[str, Column]


def scheduling(report: Report) -> None:
    """Add what is known of the threads of this process, and of other processes in their place.

    Records at which a thread loses a CPU are slices. Those without the next one are booked: a
    thread that ends loses its CPU for good, and one that waits when the recording ends looks the
    same. So are those of a thread that has none to lose. Records of gaining one end slices.
    """
    if TABLE not in report.database.tables:
        return
    defaults = {"start": -1, "cpu": -1, "isSchedIn": -1, "globalTid": NO_PROCESS}
    rows = report.database.columns(TABLE, defaults)
    idle = (rows["globalTid"] > 0) & (pid_of(rows["globalTid"]) == 0)
    rows, resting = _select(rows, ~idle), int(idle.sum())
    pids = owner_of(rows["globalTid"])
    strangers = _select(rows, (pids != NO_PROCESS) & (pids != report.process.pid))
    is_owned, rows["globalTid"] = report.owned(TABLE, rows["globalTid"])
    own, others = _slices(report, _select(rows, is_owned)), _runs(report, strangers, resting)
    names = process_names(report.database, pid_of(others["globalTid"]))
    is_system_wide = resting > 0 or any(name.startswith(_KERNEL) for name in names.values())
    _add_slices(report, own, others if is_system_wide else None)
    runs = _select(others, _touching(report, own, others))
    pids = pid_of(runs["globalTid"])
    shown = TableRows({**runs, "pid": pids}, f"table {TABLE}", len(pids))
    shown.names["pid"] = {
        pid: f"{names.get(pid, 'process')} (pid {pid})" for pid in np.unique(pids).tolist()
    }
    add_rows(report.build, tables.RUNS, shown)


def _add_slices(report: Report, own: Rows, others: Rows | None) -> None:
    """Add the slices of this process; with what ``others`` did meanwhile, if that is known."""
    columns = {key: own[key] for key in ("start", "end")} | {"thread": own["globalTid"]}
    args = {"from CPU": own["from"], "to CPU": own["to"]}
    if others is not None:
        of_process = np.flatnonzero(pid_of(own["globalTid"]) == report.process.pid)
        process_slices = _select(own, of_process)
        for edge in ("from", "to"):
            beside = np.full(len(own["start"]), -1, np.int64)
            beside[of_process] = _time_of_others(process_slices, process_slices[edge], others)
            args[f"other processes on {edge} CPU (ns)"] = beside
    rows = TableRows({**columns, **args}, f"table {TABLE}", len(own["start"]))
    report.name_threads(rows)
    add_rows(report.build, structs.replace(tables.OFF_CPU, args=tuple(args)), rows)


def _select(rows: Rows, selected: NDArray[Any]) -> Rows:
    return {name: column[selected] for name, column in rows.items()}


def _slices(report: Report, rows: Rows) -> Rows:
    """The slices of this process: ``globalTid``, ``start``, ``end``, ``from`` and ``to`` CPU."""
    build, lost = report.build, rows["isSchedIn"] == 0
    total = int(lost.sum())
    bad = rows["start"] < 0
    build.skip("bad-time", f"table {TABLE}", int((bad & lost).sum()), "slice")
    odd = ~bad & ~lost & (rows["isSchedIn"] != 1)
    build.skip("kind-not-read", f"table {TABLE}", int((odd | (bad & ~lost)).sum()))
    rows, lost, follows = _by_thread(_select(rows, ~bad & ~odd))
    ended = lost & follows & ~np.append(lost[1:], True)
    build.skip("metadata-unused", f"table {TABLE}", int((lost & ~ended).sum()), "slice")
    begins = np.flatnonzero(ended)
    build.seen("slice", total - len(begins))
    return {
        "globalTid": rows["globalTid"][begins],
        "start": rows["start"][begins],
        "end": rows["start"][begins + 1],
        "from": rows["cpu"][begins],
        "to": rows["cpu"][begins + 1],
    }


def _by_thread(rows: Rows) -> tuple[Rows, Mask, Mask]:
    """Records by thread and time; which of them lose a CPU, and which are followed by one of the
    same thread."""
    lost = rows["isSchedIn"] == 0
    order = np.lexsort((~lost, rows["start"], rows["globalTid"]))
    rows = _select(rows, order)
    follows = np.append(rows["globalTid"][1:] == rows["globalTid"][:-1], False)
    return rows, lost[order], follows[: len(order)]


def _runs(report: Report, rows: Rows, resting: int) -> Rows:
    """The runs of other processes: ``globalTid``, ``cpu``, ``start``, ``end``.

    Records of processes that are part of no rank are booked with the first rank, if they make no
    run; so are ``resting`` ones, of the idle task.
    """
    nobody = ~np.isin(owner_of(rows["globalTid"]), report.process.every)
    bad, odd = rows["start"] < 0, ~np.isin(rows["isSchedIn"], (0, 1))
    strange = int((bad & nobody).sum()), int((odd & ~bad & nobody).sum())
    rows, lost, follows = _by_thread(_select(rows, ~bad & ~odd))
    ended = ~lost & follows & np.append(lost[1:], False)
    ended[:-1] &= rows["cpu"][1:] == rows["cpu"][:-1]
    begins = np.flatnonzero(ended)
    if report.process.sole is not None:
        unknown = f"table {TABLE}, other processes"
        report.build.skip("bad-time", unknown, strange[0])
        report.build.skip("kind-not-read", unknown, strange[1])
        report.build.skip("metadata-unused", f"table {TABLE}, the idle task", resting)
        alone = ~lost & ~ended & ~np.isin(owner_of(rows["globalTid"]), report.process.every)
        report.build.skip("metadata-unused", unknown, int(alone.sum()))
    return {
        "globalTid": rows["globalTid"][begins],
        "cpu": rows["cpu"][begins],
        "start": rows["start"][begins],
        "end": rows["start"][begins + 1],
    }


def _touching(report: Report, own: Rows, others: Rows) -> Mask:
    """Which runs touch the time in which a thread that calls the runtime had lost the CPU, or came
    back to it; all threads count where none does."""
    calling = np.isin(own["globalTid"], report.calls["thread"])
    if not len(report.calls):
        calling[:] = True
    touching = np.zeros(len(others["start"]), bool)
    for cpu, on_cpu in _of_cpus(others).items():
        away = calling & ((own["from"] == cpu) | (own["to"] == cpu))
        spans = np.stack((others["start"][on_cpu], others["end"][on_cpu]), axis=1)
        touching[on_cpu] = length_within(union(own["start"][away], own["end"][away]), spans) > 0
    if report.process.sole is not None:
        nobody = ~touching & ~np.isin(owner_of(others["globalTid"]), report.process.every)
        elsewhere = f"table {TABLE}, other processes where no launching thread waits"
        report.build.skip("metadata-unused", elsewhere, int(nobody.sum()))
    return touching


def _of_cpus(runs: Rows) -> dict[int, NDArray[np.intp]]:
    """By CPU the runs on it."""
    order = np.argsort(runs["cpu"], kind="stable")
    cpus, first_rows = np.unique(runs["cpu"][order], return_index=True)
    return dict(zip(cpus.tolist(), np.split(order, first_rows[1:]), strict=len(cpus) > 0))


def _time_of_others(own: Rows, cpus: I64, others: Rows) -> I64:
    """How long others ran on a CPU during each slice, ns; ``cpus`` is the CPU of each slice."""
    runs = _of_cpus(others)
    ran_ns = np.zeros(len(cpus), np.int64)
    for cpu in np.unique(cpus).tolist():
        on_cpu, ran = np.flatnonzero(cpus == cpu), runs.get(cpu)
        spans = np.stack((own["start"][on_cpu], own["end"][on_cpu]), axis=1)
        busy = none() if ran is None else union(others["start"][ran], others["end"][ran])
        ran_ns[on_cpu] = length_within(busy, spans)
    return ran_ns
