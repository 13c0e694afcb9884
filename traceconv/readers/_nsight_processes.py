"""Which processes an Nsight Systems report holds, and which rank each of them is.

Of everything a report tells about the machine, only what names a rank, a host or a GPU is ever
looked at (:data:`RANK_VARIABLES`): environments, command lines and user names stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.readers._sqlite import Database

GPU_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)
HOST_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API")

RANK_VARIABLES = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
    "PADDLE_TRAINER_ID",
)
"""Environment variables that hold a rank; the first one set counts."""

_MPI_RANK = re.compile(r"MPI Rank (\d{1,9})")

NVTX_THREAD_NAME = 39


@dataclass(frozen=True)
class Process:
    """One process of a report that becomes one rank.

    Attributes:
        pid:    as the report knows it.
        others: processes without GPU work whose rows this one takes in.
        device: the one GPU it uses, -1 if several or none.
        rank:   None if nothing names it.
        rank_from: what names it.
    """

    pid: int
    others: tuple[int, ...] = ()
    device: int = -1
    rank: int | None = None
    rank_from: str = ""


def processes(database: Database) -> list[Process]:
    """The ranks of a report: its processes with GPU work, else those with any work, by pid."""
    devices = _devices_by_pid(database)
    every = sorted(set(devices) | _host_pids(database))
    working = sorted(devices) or every
    idle = tuple(p for p in every if p not in working)
    named = _ranks(database, working, devices)
    found = []
    for i, pid in enumerate(working):
        used = devices.get(pid, set())
        rank, evidence = named.get(pid, (None, ""))
        found.append(
            Process(
                pid, idle if i == 0 else (), min(used) if len(used) == 1 else -1, rank, evidence
            )
        )
    return found


def pid_of(global_id: np.ndarray) -> np.ndarray:
    """The process id within a serialized global id (bits 24 to 47)."""
    return (global_id >> 24) & 0xFFFFFF


def _devices_by_pid(database: Database) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for table in GPU_TABLES:
        rows = database.columns(table, {"globalPid": -1, "deviceId": -1})
        pairs = np.unique(np.stack((pid_of(rows["globalPid"]), rows["deviceId"])), axis=1)
        for pid, device in pairs.T.tolist():
            found.setdefault(pid, set()).add(device)
    return found


def _host_pids(database: Database) -> set[int]:
    found: set[int] = set()
    for table in HOST_TABLES:
        found |= set(pid_of(database.columns(table, {"globalTid": 0})["globalTid"]).tolist())
    return found - {0}


def _ranks(
    database: Database, pids: Sequence[int], devices: dict[int, set[int]]
) -> dict[int, tuple[int, str]]:
    """The rank of each process and what says so, in the order of trust."""
    found = _from_thread_names(database)
    for pid in pids:
        if pid not in found and len(pids) == 1 and (rank := _from_environment(database)):
            found[pid] = rank
    if not found and len(pids) > 1:
        cards = [min(devices.get(p, {-1})) for p in pids]
        alone = all(len(devices.get(p, ())) == 1 for p in pids)
        if alone and len(set(cards)) == len(cards):
            order = sorted(zip(cards, pids, strict=True))
            return {pid: (card, "one process per device") for card, pid in order}
    return found


def _from_thread_names(database: Database) -> dict[int, tuple[int, str]]:
    strings = database.texts("StringIds", "id", "value")
    wanted = {i: int(m[1]) for i, text in strings.items() if (m := _MPI_RANK.fullmatch(text))}
    found: dict[int, tuple[int, str]] = {}
    for name, thread in database.rows("ThreadNames", "nameId", "globalTid"):
        if name in wanted and isinstance(thread, int):
            found[(thread >> 24) & 0xFFFFFF] = (wanted[name], "thread name")
    if not database.has("NVTX_EVENTS", "eventType"):
        return found
    for kind, text, number, thread in database.rows(
        "NVTX_EVENTS", "eventType", "text", "textId", "globalTid"
    ):
        if kind != NVTX_THREAD_NAME or not isinstance(thread, int):
            continue
        match = _MPI_RANK.fullmatch(text or strings.get(number, ""))
        if match:
            found[(thread >> 24) & 0xFFFFFF] = (int(match[1]), "NVTX thread name")
    return found


def _from_environment(database: Database) -> tuple[int, str] | None:
    """The rank variable of the only process: reports keep the environment of one."""
    values = {
        str(name): str(value)
        for table, key in (("META_DATA_CAPTURE", "name"), ("TARGET_INFO_SYSTEM_ENV", "name"))
        for name, value in database.rows(table, key, "value")
        if isinstance(name, str) and name.rpartition(":")[2] in RANK_VARIABLES
    }
    for variable in RANK_VARIABLES:
        for name, value in values.items():
            if name.rpartition(":")[2] == variable and value.isdecimal() and len(value) < 10:
                return int(value), variable
    return None
