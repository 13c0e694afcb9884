"""Which files are databases of Ascend captures, and what they say about whose they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from traceconv.errors import MalformedInputError, SourceError
from traceconv.readers._ascend_identity import Identity, Trust
from traceconv.readers._sqlite_file import is_sqlite
from traceconv.source import Source

if TYPE_CHECKING:
    from traceconv.readers._sqlite import Database

_NAMED = re.compile(r"(?:ascend_[a-z]+_profiler(?:_\d+)?|msprof_\d+|msmonitor_[\d_]+)\.db")
_OTHER_KINDS = (
    ".json", ".csv", ".txt", ".gz", ".log", ".done", ".pftrace", ".xlsx", ".html", ".md", ".py",
    "-wal", "-shm",
)  # fmt: skip
_SIGNS = frozenset(
    (
        "TASK", "CANN_API", "COMMUNICATION_OP", "COMPUTE_TASK_INFO", "PYTORCH_API", "MSTX_EVENTS",
        "SESSION_TIME_INFO", "STEP_TIME", "NPU_INFO",
    )
)  # fmt: skip
_SUMS = frozenset(
    ("StepTraceTime", "CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix")
)
_METADATA = ("distributed_args", "parallel_group_info")
"""What is looked at in META_DATA; environment variables stand there too, and stay there."""


@dataclass(frozen=True)
class Held:
    """What a database holds.

    Attributes:
        events:  whether events; else sums made from them.
        ranks:   of RANK_DEVICE_MAP, without -1.
        devices: of the same.
        host:    name of the host.
        metadata: JSON values of META_DATA, by name.
    """

    events: bool
    ranks: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    host: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def tell(self, identity: Identity, name: str) -> None:
        """Add what the database and its name say."""
        if len(self.ranks) == 1:
            identity.claim(Trust.DATABASE, self.ranks[0], "RANK_DEVICE_MAP")
        identity.database(name)
        identity.distributed(self.metadata, "META_DATA")
        identity.host = identity.host or self.host
        if identity.device < 0 and len(self.devices) == 1:
            identity.device = self.devices[0]


def is_named(name: str) -> bool:
    """Whether a file is called like a database with events."""
    return _NAMED.fullmatch(PurePosixPath(name).name) is not None


def peeked(source: Source, names: Iterable[str]) -> dict[str, Held]:
    """The databases of Ascend captures among ``names``.

    A file with the right name is one even if it cannot be opened: reading it says why.
    """
    found = {}
    for name in names:
        if is_named(name) or not name.endswith(_OTHER_KINDS):
            held = _peek(source, name)
            if held is not None:
                found[name] = held
    return found


def _peek(source: Source, name: str) -> Held | None:
    if not is_sqlite(source.head(name, 16)):
        return Held(events=True) if is_named(name) and source.size(name) else None
    from traceconv.readers._sqlite import opened

    try:
        with opened(source, name, salvage=True) as database:
            return _held(database) or (Held(events=True) if is_named(name) else None)
    except (MalformedInputError, SourceError):
        return Held(events=True) if is_named(name) else None


def _held(database: Database) -> Held | None:
    if "STRING_IDS" not in database.tables or not _SIGNS & set(database.tables):
        return Held(events=False) if _SUMS & set(database.tables) else None
    devices = database.rows("RANK_DEVICE_MAP", "rankId", "deviceId")
    hosts = [h for (h,) in database.rows("HOST_INFO", "hostName") if isinstance(h, str)]
    return Held(
        events=True,
        ranks=_numbers(rank for rank, _ in devices),
        devices=_numbers(device for _, device in devices),
        host=hosts[0] if len(hosts) == 1 and not set(hosts[0]) & set("/\\") else "",
        metadata={
            name: value
            for name, said in database.rows("META_DATA", "name", "value")
            if name in _METADATA and (value := _parsed(said)) is not None
        },
    )


def _numbers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(sorted({v for v in values if isinstance(v, int) and v >= 0}))


def _parsed(said: Any) -> Any:
    try:
        return json.loads(said) if isinstance(said, str) else None
    except (ValueError, RecursionError):
        return None
