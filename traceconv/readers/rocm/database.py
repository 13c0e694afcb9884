"""Databases of rocprofv3 and rocprof-sys (rocpd), one process of them at a time.

Tables bear the id of the process that wrote them, and ids in them hold among these only. How a
table says when and where something was differs between writers and versions, also within one file:
what its columns are decides. Views of the file are never asked.

* The time is in ``start`` and ``end``, or these are rows of a table of times.
* The place (process, thread, device, queue, stream) is in columns, or in the track of a row.
* Categories are in a separate table, or among all strings.
* The text of a marker is its name, or the ``message`` of its event; the other one is the function.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import structs

from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I64
from traceconv.core.ordering import factored_rows
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.layouts import RowLayout, TableRows
from traceconv.readers.shared.numbers import INT32_MAX, whole_number
from traceconv.readers.shared.sqlite.database import Column, Database
from traceconv.readers.shared.table_rows import database_rows

METADATA = "rocpd_metadata"
PLACE = {
    "pid": "pid", "thread": "tid", "device": "agent_id", "queue": "queue_id", "stream": "stream_id",
}  # fmt: skip
"""Columns that refer to the process, thread, device, queue and stream of a row, by field."""
GPU = "GPU"
"""The kind of GPU agents."""

RANK_VARIABLES = (
    "RANK",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
)
"""Environment variables that hold a rank, in order of precedence."""


def suffixes(database: Database) -> list[str]:
    """The table suffix of each process; empty if this is not a rocpd database."""
    return sorted(
        name.removeprefix(METADATA)
        for name in database.tables
        if name.startswith(f"{METADATA}_") and len(name) > len(METADATA) + 1
    )


@dataclass(frozen=True)
class Member:
    """A process in a database.

    Attributes:
        suffix: of its tables.
        row:    number of its row among the processes of these, -1 if there is none.
        guid:   the same in every file that holds these rows.
        pid, host: -1 and "" if they are not there.
        rank, rank_from, world_size: as its environment says.
        devices: numbers of the GPUs it used.
    """

    suffix: str
    row: int
    guid: str = ""
    pid: int = -1
    host: str = ""
    rank: int | None = None
    rank_from: str = ""
    world_size: int = -1
    devices: tuple[int, ...] = ()


def members(database: Database) -> list[Member]:
    """The processes of a database."""
    processes = []
    for suffix in suffixes(database):
        tables = Tables(database, suffix)
        tags = dict(tables.rows("metadata", "tag", "value"))
        guid = str(tags.get("guid") or tags.get("upid") or suffix[1:].replace("_", "-"))
        hosts = {k: str(v or "") for k, v in tables.rows("info_node", "id", "hostname")}
        listed = tables.rows("info_process", "id", "nid", "pid", "environment")
        used = tables.devices_by_process()
        for row, node, pid, environment in listed or [(-1, None, -1, None)]:
            rank, evidence, size = _rank(environment)
            processes.append(
                Member(
                    suffix,
                    row if isinstance(row, int) else -1,
                    guid,
                    pid if isinstance(pid, int) and 0 <= pid <= INT32_MAX else -1,
                    hosts.get(node, ""),
                    rank,
                    evidence,
                    size,
                    tuple(sorted(used.get(row, ()))),
                )
            )
    return processes


def _rank(environment: Any) -> tuple[int | None, str, int]:
    """Rank, its evidence, and world size from an environment. Nothing else in it is read."""
    if not isinstance(environment, str | bytes):
        return None, "", -1
    try:
        variables = json.loads(environment)
    except NOT_JSON:
        return None, "", -1
    if not isinstance(variables, dict):
        return None, "", -1
    size = whole_number(variables.get("WORLD_SIZE"), INT32_MAX)
    for variable in RANK_VARIABLES:
        rank = whole_number(variables.get(variable), INT32_MAX)
        if rank is not None:
            return rank, variable, -1 if size is None else size
    return None, "", -1 if size is None else size


@dataclass
class Tables:
    """The tables of one suffix."""

    database: Database
    suffix: str

    def name(self, table: str) -> str:
        """A table as it is called here."""
        return f"rocpd_{table}{self.suffix}"

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table with these columns is there."""
        return self.database.has(self.name(table), *columns)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """All rows of a small table."""
        return self.database.rows(self.name(table), *columns)

    def columns(self, table: str, requested: Mapping[str, Any]) -> dict[str, Column]:
        """Columns of a table; see :meth:`Database.columns`."""
        return self.database.columns(self.name(table), requested)

    def texts(self, table: str, key: str, value: str, ids: I64 | None = None) -> dict[int, str]:
        """Texts by number; see :meth:`Database.texts`."""
        only = None if ids is None else np.unique(ids[ids >= 0])
        return self.database.texts(self.name(table), key, value, only)

    def strings(self, ids: I64) -> dict[int, str]:
        """Strings by number."""
        return self.texts("string", "id", "string", ids)

    @cached_property
    def _tracks(self) -> dict[str, Column]:
        return self.columns("track", {"id": -1, **dict.fromkeys(PLACE.values(), -1), "name_id": -1})

    @cached_property
    def _times(self) -> dict[str, Column]:
        return self.columns("timestamp", {"id": -1, "value": -1})

    def read(self, layout: RowLayout) -> TableRows:
        """Rows of events, with their places and times from whichever table holds them.

        One query reads all columns: of a damaged table, another one may give fewer rows.
        """
        table = layout.table
        requested = {**layout.columns, **PLACE, "track": "track_id"}
        requested |= {f"{key} id": f"{key}_id" for key in ("start", "end", "timestamp")}
        wide = structs.replace(layout, table=self.name(table), columns=requested)
        rows = database_rows(self.database, wide)
        rows.where = f"table rocpd_{table}"
        if "track" in rows.columns:
            track = lookup(self._tracks["id"], rows["track"])
            for key, column in PLACE.items():
                of_track = picked(self._tracks[column], track)
                rows.columns[key] = np.where(rows[key] >= 0, rows[key], of_track)
            rows.columns["track name"] = picked(self._tracks["name_id"], track)
        for key, column in (("start", layout.start), ("end", layout.end)):
            if column and not self.has(table, column):
                time_rows = lookup(self._times["id"], rows[f"{column} id"])
                rows.columns[key] = picked(self._times["value"], time_rows)
        return rows

    @cached_property
    def agents(self) -> dict[int, tuple[str, int]]:
        """Kind and number of every device, by its row. Devices of each kind are numbered from 0."""
        by_row = {}
        listed = self.rows("info_agent", "id", "type", "type_index", "absolute_index")
        for row, kind, index, absolute in listed:
            numbers = [n for n in (index, absolute) if isinstance(n, int) and n >= 0]
            if isinstance(row, int):
                by_row[row] = (str(kind), numbers[0] if numbers else row)
        return by_row

    def devices_by_process(self) -> dict[Any, set[int]]:
        """The GPUs that ran kernels, by the row of the process."""
        rows = self.read(RowLayout(table="kernel_dispatch", end="end"))
        devices: dict[Any, set[int]] = {}
        for pid, agent in factored_rows(rows["pid"], rows["device"])[0]:
            if agent in self.agents:
                devices.setdefault(pid, set()).add(self.agents[agent][1])
        return devices
