"""Which processes an Nsight Systems report holds, and which rank each of them is.

In the order of trust: ranks that MPI gave the profiler (MPI_RANKS), "MPI Rank n" as the name of a
thread, and, for a lone process, the rank of its communicators (MPI_COMMUNICATORS) and its
environment. Then what NCCL was given when communicators were made, the largest of each process,
if their ranks differ; one process per device; the name of the file.

Rows may name no process (no column, NULL or 0). They belong to the only process, or to the only one
that uses their device, or to none.

Of everything a report holds about the machine, only ranks, hosts, GPUs (:data:`RANK_VARIABLES`) and
the names of other processes that ran where a process waited (:func:`process_names`) are read.
Environments, command lines and user names are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex
from traceconv.readers.nsight.payloads import RANK, RANKS, payloads, schemas
from traceconv.readers.shared.numbers import INT32_MAX, whole_number
from traceconv.readers.shared.sqlite.database import Column, Database

GPU_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)
HOST_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API")
NVTX = "NVTX_EVENTS"

RANK_VARIABLES = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
    "PADDLE_TRAINER_ID",
)
"""Environment variables that hold a rank; the first one set counts."""

_MPI_RANK = lazy_regex(r"MPI Rank (\d{1,9})")

NVTX_THREAD_NAME = 39


@dataclass(frozen=True)
class Process:
    """One process of a report that becomes one rank.

    Attributes:
        pid:    as the report knows it, -1 if nothing in it names a process.
        others: processes without GPU work whose rows this one takes in.
        device: the one GPU it uses, -1 if several or none.
        rank:   None if nothing names it.
        rank_from: what names it.
        devices: the GPUs it uses.
        claimed: the GPUs any process uses; of the first process only, which accounts for the rest.
        lone:   there is no other process; nearly every row of the report is its own.
        owned:  the GPUs that no other process uses.
        sole:   the GPUs of any one process only; of the first process, which accounts for rows that
            are of no process.
        every:  the processes that are a rank, or part of one; of the first process only, which
            accounts for the rest.
    """

    pid: int
    others: tuple[int, ...] = ()
    device: int = -1
    rank: int | None = None
    rank_from: str = ""
    devices: tuple[int, ...] = ()
    claimed: tuple[int, ...] = ()
    lone: bool = False
    owned: tuple[int, ...] = ()
    sole: tuple[int, ...] | None = None
    every: tuple[int, ...] = ()


def processes(database: Database) -> list[Process]:
    """The ranks of a report: its processes with GPU work, else those with any work, by pid."""
    devices: dict[int, set[int]] = {}
    for table in GPU_TABLES:
        rows = database.columns(table, {"globalPid": NO_PROCESS, "deviceId": -1})
        pairs = np.unique(np.stack((owner_of(rows["globalPid"]), rows["deviceId"])), axis=1)
        for pid, device in pairs.T.tolist():
            devices.setdefault(pid, set()).add(device)
    unnamed = devices.pop(NO_PROCESS, set())
    pids = set(devices)
    for table in HOST_TABLES:
        rows = database.columns(table, {"globalTid": NO_PROCESS})
        pids |= set(owner_of(rows["globalTid"]).tolist())
    all_pids = sorted(pids - {NO_PROCESS})
    if not all_pids and any(map(database.count, (*GPU_TABLES, *HOST_TABLES))):
        all_pids = [-1]
    working = sorted(devices) or all_pids
    if len(working) == 1:
        devices[working[0]] = devices.get(working[0], set()) | unnamed
    idle = tuple(p for p in all_pids if p not in working)
    ranks = _ranks(database, working, devices)
    claimed = tuple(sorted(set().union(*devices.values())))
    users = [device for used in devices.values() for device in used]
    sole = tuple(device for device in claimed if device >= 0 and users.count(device) == 1)
    listed = []
    for i, pid in enumerate(working):
        used = tuple(sorted(devices.get(pid, set())))
        rank, evidence = ranks.get(pid, (None, ""))
        is_first = i == 0
        listed.append(
            Process(
                pid,
                others=idle if is_first else (),
                device=used[0] if len(used) == 1 else -1,
                rank=rank,
                rank_from=evidence,
                devices=used,
                claimed=claimed if is_first else (),
                lone=len(working) == 1,
                owned=tuple(d for d in used if d in sole),
                sole=sole if is_first else None,
                every=(*working, *idle) if is_first else (),
            )
        )
    return listed


def pid_of(global_id: Any) -> Any:
    """The process id within serialized global ids (bits 24 to 47)."""
    return (global_id >> 24) & 0xFFFFFF


NO_PROCESS = 0
"""What :func:`owner_of` gives for rows that name no process; a process is never 0."""


def owner_of(global_id: Any) -> Any:
    """The process ids within serialized global ids, ``NO_PROCESS`` for rows without."""
    return np.where(global_id == -1, NO_PROCESS, pid_of(global_id))


def tid_of(global_id: Any) -> Any:
    """The thread id within serialized global ids (bits 0 to 23)."""
    return global_id & 0xFFFFFF


_COMM = 15  # bytes of the name of a process that Linux keeps


def process_names(database: Database, pids: I64) -> dict[int, str]:
    """Names of processes by their ids: the first word, without folders, and no longer than the
    system keeps it, so that no arguments of a command are in it."""
    requested, process_name = set(np.unique(pids).tolist()), {}
    for pid, name in database.rows("PROCESSES", "pid", "name") if requested else ():
        if pid in requested and isinstance(name, str) and (words := name.split(maxsplit=1)):
            word = words[0].rpartition("/")[2] if words[0][0] in "/." else words[0]
            process_name[pid] = word[:_COMM]
    return process_name


Ranks = dict[int, tuple[int, str]]
"""By process: its rank, and the evidence."""


def _ranks(database: Database, pids: Sequence[int], devices: dict[int, set[int]]) -> Ranks:
    """The rank of each process with its evidence, in the order of trust."""
    by_pid = _from_thread_names(database) | {
        pid_of(thread): (rank, "MPI_RANKS")
        for thread, rank in database.rows("MPI_RANKS", "globalTid", "rank")
        if isinstance(thread, int) and isinstance(rank, int) and 0 <= rank < 1 << 31
    }
    if len(pids) == 1 and pids[0] not in by_pid:
        # communicators and the environment name no process, so they are of a lone one
        ranks_in_communicators = set(database.distinct("MPI_COMMUNICATORS", "rank"))
        if len(ranks_in_communicators) == 1 and 0 <= min(ranks_in_communicators) < 1 << 31:
            return {pids[0]: (ranks_in_communicators.pop(), "MPI_COMMUNICATORS")}
        from_environment = _from_environment(database)
        return {pids[0]: from_environment} if from_environment else _from_nccl(database, pids)
    if by_pid or len(pids) < 2:
        return by_pid
    used = [devices.get(pid, {-1}) for pid in pids]
    cards = {
        min(process_devices): pid
        for process_devices, pid in zip(used, pids, strict=True)
        if len(process_devices) == 1
    }
    apart = len(cards) == len(pids) and min(cards) >= 0
    by_device = {pid: (card, "one process per device") for card, pid in sorted(cards.items())}
    return _from_nccl(database, pids) or (by_device if apart else {})


def _from_nccl(database: Database, pids: Sequence[int]) -> Ranks:
    """Ranks in the largest communicators, if all of these are equally large."""
    if not any({RANK, RANKS} <= schema.fields.keys() for schema in schemas(database).values()):
        return {}
    rows = database.columns(NVTX, {"rowid": -1, "globalTid": 0})
    groups, _ = payloads(database, rows["rowid"])
    largest: dict[int, tuple[int, int]] = {}
    for group in groups:
        if {RANK, RANKS} <= group.values.keys():
            owner = pid_of(rows["globalTid"][group.at])
            columns = (owner, group.values[RANKS], group.values[RANK])
            for pid, size, rank in zip(*(column.tolist() for column in columns), strict=True):
                largest[pid] = max(largest.get(pid, (0, 0)), (size, rank))
    members = [largest[pid] for pid in pids if pid in largest]
    sizes, ranks = {size for size, _ in members}, {rank for _, rank in members}
    if len(sizes) != 1 or len(ranks) < len(pids) or min(ranks) < 0 or max(ranks) >= min(sizes):
        return {}
    why = f"NCCL communicator of {min(sizes)} ranks"
    return {pid: (largest[pid][1], why) for pid in pids}


def _from_thread_names(database: Database) -> Ranks:
    """ "MPI Rank n" as the name of a thread, given by the system or through NVTX."""
    by_pid: Ranks = {}
    thread_rows = database.columns("ThreadNames", {"nameId": -1, "globalTid": 0})
    for why, rows, inline in (
        ("thread name", thread_rows, {}),
        ("NVTX thread name", *_nvtx_thread_names(database)),
    ):
        strings = database.texts("StringIds", "id", "value", np.unique(rows["nameId"]))
        for i, (number, thread) in enumerate(
            zip(rows["nameId"].tolist(), rows["globalTid"].tolist(), strict=True)
        ):
            match = _MPI_RANK.fullmatch(inline.get(i) or strings.get(number, ""))
            if match:
                by_pid[pid_of(thread)] = (int(match[1]), why)
    return by_pid


def _nvtx_thread_names(database: Database) -> tuple[dict[str, Column], dict[int, str]]:
    """Columns as those of ThreadNames, and the names written in the rows, by position."""
    requested = {"textId": -1, "globalTid": 0, "rowid": -1, "eventType": -1}
    rows = database.columns(NVTX, requested)
    is_name = rows["eventType"] == NVTX_THREAD_NAME
    row_numbers = rows["rowid"][is_name]
    texts = database.texts(NVTX, "rowid", "text", row_numbers)
    inline = {i: texts[row] for i, row in enumerate(row_numbers.tolist()) if row in texts}
    return {"nameId": rows["textId"][is_name], "globalTid": rows["globalTid"][is_name]}, inline


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
            rank = whole_number(value, INT32_MAX)
            if name.rpartition(":")[2] == variable and rank is not None:
                return rank, variable
    return None
