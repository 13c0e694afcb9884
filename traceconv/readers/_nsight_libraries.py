"""Calls into libraries, on their threads: the operating system, MPI, cuDNN, cuBLAS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceconv.model import Layer, OpClass
from traceconv.readers._argtable import register
from traceconv.readers._nsight_report import TIMES, Report

_OS_CALL = 27


@dataclass(frozen=True)
class Library:
    """A table of calls.

    Attributes:
        name:  the column with the number of the call's name.
        calls: the event class of calls, other rows being marks of the profiler; -1 = every row.
        told:  arguments: key -> column; absent numbers are not said.
    """

    title: str
    layer: Layer = Layer.RUNTIME
    name: str = "nameId"
    calls: int = -1
    told: tuple[tuple[str, str], ...] = ()


_MPI = Library("MPI", Layer.HOST, "textId")
LIBRARIES = {
    "OSRT_API": Library("OS Runtime", calls=_OS_CALL),
    "CUDNN_EVENTS": Library("cuDNN"),
    "CUBLAS_EVENTS": Library("cuBLAS"),
    "MPI_P2P_EVENTS": Library(
        "MPI", Layer.HOST, "textId", told=(("bytes", "size"), ("peer", "remoteRank"))
    ),
    "MPI_COLLECTIVES_EVENTS": Library(
        "MPI", Layer.HOST, "textId", told=(("bytes", "size"), ("root", "rootRank"))
    ),
    "MPI_START_WAIT_EVENTS": _MPI,
    "MPI_OTHER_EVENTS": _MPI,
}


def library_calls(report: Report) -> None:
    """Add the calls of every table there is."""
    for table, library in LIBRARIES.items():
        if table in report.database.tables:
            _read(report, table, library)


def _read(report: Report, table: str, library: Library) -> None:
    wanted = {**TIMES, "eventClass": library.calls, library.name: -1}
    rows = report.rows(table, {**wanted, **{column: -1 for _, column in library.told}}, "globalTid")
    call = (
        rows["eventClass"] == library.calls
        if library.calls >= 0
        else rows["start"] == rows["start"]
    )
    report.build.skip("metadata-unused", f"table {table}", int((~call).sum()))
    rows = {name: column[call] for name, column in rows.items()}
    unended = rows["end"] < 0
    report.build.skip("unfinished-slice", f"table {table}", int(unended.sum()))
    rows["end"] = np.where(
        unended, np.maximum(rows["start"], rows["end"].max(initial=0)), rows["end"]
    )
    rows, dur = report.timed(rows, table)
    args = np.full(len(dur), -1, np.int32)
    if library.told:
        said = np.stack([rows[column] >= 0 for _, column in library.told], axis=1)
        for there in np.unique(said, axis=0).tolist():
            at = np.flatnonzero((said == there).all(axis=1))
            known = [pair for pair, yes in zip(library.told, there, strict=True) if yes]
            if known:
                args[at] = register(report.build, {key: rows[c][at] for key, c in known})
    report.build.extend(
        track=report.threads(rows["globalTid"], library.layer, library.title),
        start_ns=rows["start"],
        dur_ns=dur,
        name=report.texts(rows[library.name]),
        op=OpClass.HOST,
        args=args,
    )
