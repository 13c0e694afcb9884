"""Reading the tables of Ascend captures. Headings are those of the newest generation."""

from __future__ import annotations

from collections.abc import Callable

from traceconv.core.errors import Issues
from traceconv.io.sources import Source
from traceconv.readers.ascend.tables import communication_json as structured
from traceconv.readers.ascend.tables.database import database_columns
from traceconv.readers.shared.csv_tables import Column, csv_parts, stacked
from traceconv.readers.shared.sqlite.database import opened

Columns = dict[str, Column]

_JSON: dict[str, Callable[[Source, str, Issues], Columns]] = {
    "communication": structured.operation_columns,
    "communication_bandwidth": structured.bandwidth_columns,
    "communication_matrix": structured.matrix_columns,
    "cluster_communication": structured.operation_columns,
    "cluster_communication_bandwidth": structured.bandwidth_columns,
    "cluster_communication_matrix": structured.matrix_columns,
    "communication_group": structured.group_columns,
}

_HEADINGS = {
    "kernel_details": {
        "Op Name": "Name", "OP Type": "Type", "Op Type": "Type", "Task Type": "Accelerator Core",
        "Task Start Time(us)": "Start Time(us)", "Task Duration(us)": "Duration(us)",
        "Task Wait Time(us)": "Wait Time(us)", "Block Num": "Block Dim",
        "Mix Block Num": "Mix Block Dim", "Step ID": "Step Id",
    },
}  # fmt: skip
"""Other headings of the same columns."""

_STEPS = ("Step", "Step Id")


def load(source: Source, table: str, files: tuple[str, ...], issues: Issues) -> Columns:
    """The columns of one table, of one or several files.

    Raises:
        SourceError, MalformedInputError: it cannot be read.
    """
    text = [name for name in files if name.endswith((".csv", ".csv.gz"))]
    parts = [csv_parts(source, text, issues)] if text else []
    parts += [_part(source, table, name, issues) for name in files if name not in text]
    columns = stacked([part for part in parts if part])
    renamed = _HEADINGS.get(table, {})
    columns = {
        heading if renamed.get(heading, heading) in columns else renamed.get(heading, heading): c
        for heading, c in columns.items()
    }
    for heading in _STEPS:
        if heading in columns and columns[heading].dtype == object:
            columns[heading] = structured.whole(columns[heading], _ignored)
    return columns


def _part(source: Source, table: str, name: str, issues: Issues) -> Columns:
    if name.endswith(".json"):
        return _JSON[table](source, name, issues)

    def doubt(code: str, where: str, count: int) -> None:
        issues.add(code, source.title(name), where, count)

    with opened(source, name, salvage=True) as database:
        return database_columns(database, table, doubt)


def _ignored(code: str, where: str, count: int) -> None:
    return None  # every cell was typed, and booked, before
