"""The compiled parts: all C of the package, and the one place that loads it.

Every part but the allocator has a Python tier, beside what uses it, that gives the same result.
A part is None here, and that tier does the work, where it was not built (no compiler) or where
``TRACECONV_NATIVE=0`` turns compiled parts off. The ``.pyi`` files say what the parts offer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from mmap import mmap
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from traceconv.native._encode import Coder
    from traceconv.native._scan import Scanned, Scanner

__all__ = [
    "TIERS",
    "Allocator",
    "Coder",
    "Scanned",
    "Scanner",
    "allocator",
    "coder",
    "copier",
    "first_fit",
    "in_use",
    "members",
    "packets",
    "records",
    "replay",
    "scanner",
    "wire",
]


class Allocator(Protocol):
    """The part ``memory.c``: large arrays in files, while a limit on memory is set."""

    def start(self, folder: str, limit: int, /) -> bool:
        """Allocate in files of ``folder``; False if they would stay in memory."""
        ...

    def stop(self) -> int:
        """Allocate as usual again; how often pages had to leave memory."""
        ...

    def resident(self) -> int:
        """Bytes of this process that are in memory."""
        ...

    def trim(self, least: int, /) -> None:
        """Give pages of freed memory back to the system, if there are ``least`` bytes of it."""
        ...

    def watch(self, mapped: mmap, /) -> None:
        """Let the pages of a file mapped for reading leave memory, too."""
        ...

    def forget(self, mapped: mmap, /) -> None:
        """The opposite, before it is unmapped."""
        ...


def coder() -> type[Coder] | None:
    """Encodes arguments for Perfetto (``json.c``)."""
    if not _usable("_encode"):
        return None
    from traceconv.native import _encode

    return _encode.Coder


def packets() -> Callable[..., tuple[bytes, bytes]] | None:
    """Encodes events as Perfetto packets (``encode.c``)."""
    if not _usable("_encode"):
        return None
    from traceconv.native import _encode

    return _encode.packets


def names() -> Callable[[list[str], int], bytes] | None:
    """Encodes names of events as entries of a table (``encode.c``)."""
    if not _usable("_encode"):
        return None
    from traceconv.native import _encode

    return _encode.names


def scanner() -> type[Scanner] | None:
    """Reads trace events into columns (``scan.c``)."""
    if not _usable("_scan"):
        return None
    from traceconv.native import _scan

    return _scan.Scanner


def members() -> Callable[..., tuple[bytes, bytes, bytes]] | None:
    """Finds values in JSON objects by key (``scan.c``)."""
    if not _usable("_scan"):
        return None
    from traceconv.native import _scan

    return _scan.members


def copier() -> Callable[..., tuple[int, int, bytes, bytes]] | None:
    """Copies trace events with new process numbers and ids (``patch.c``)."""
    if not _usable("_patch"):
        return None
    from traceconv.native import _patch

    return _patch.copy


def records() -> Callable[..., bytes | None] | None:
    """Makes text records of columns (``records.c``)."""
    if not _usable("_records"):
        return None
    from traceconv.native import _records

    return _records.records


class Replayer(Protocol):
    """The part ``replay.c``: the graph of a job, replayed; see ``_replay.pyi``."""

    def ends(
        self, before: Any, source: Any, meets: Any, lengths: Any, delays: Any, scenarios: int, /
    ) -> bytes:
        """When each operation ends in each scenario."""
        ...

    def levels(self, before: Any, meet: Any, /) -> bytes:
        """In which order operations can be replayed."""
        ...


def replay() -> Replayer | None:
    """Replays the graph of a job (``replay.c``)."""
    if not _usable("_replay"):
        return None
    from traceconv.native import _replay

    return _replay


def first_fit() -> Callable[..., tuple[bytes, int]] | None:
    """Moves slices that cross to further lanes (``lanes.c``)."""
    if not _usable("_lanes"):
        return None
    from traceconv.native import _lanes

    return _lanes.first_fit


class Wire(Protocol):
    """The part ``wire.c``: protobuf in columns; see ``_wire.pyi``."""

    Codes: Any

    def frames(self, data: Any, at: int, end: int, most: int, /) -> tuple[bytes, bytes, int, int]:
        """Where the records of a run are."""
        ...

    def columns(
        self, data: Any, start: Any, size: Any, wanted: tuple[int, ...], /
    ) -> tuple[bytes, bytes, bytes]:
        """The last value of each wanted field in every message."""
        ...

    def repeated(
        self, data: Any, start: Any, size: Any, number: int, /
    ) -> tuple[bytes, bytes, bytes]:
        """All occurrences of a field."""
        ...

    def annotations(self, data: Any, start: Any, size: Any, ends: Any, /, *tables: Any) -> Any:
        """DebugAnnotations as JSON."""
        ...


def wire() -> Wire | None:
    """Reads protobuf messages into columns (``wire.c``)."""
    if not _usable("_wire"):
        return None
    from traceconv.native import _wire

    return _wire


def allocator() -> Allocator | None:
    """Keeps large arrays in files (``memory.c``); without a Python tier, so never turned off."""
    if not _is_built("_memory"):
        return None
    from traceconv.native import _memory

    return _memory


TIERS = ("_scan", "_encode", "_patch", "_wire", "_lanes", "_records", "_replay")
"""The parts that have a Python tier."""


def in_use() -> list[str]:
    """The :data:`TIERS` in use; Python does the work of the others."""
    return [part for part in TIERS if _usable(part)]


def _usable(part: str) -> bool:
    off = "TRACECONV_NATIVE" in os.environ and os.environ["TRACECONV_NATIVE"] == "0"
    return not off and _is_built(part)


@cache
def _is_built(part: str) -> bool:
    try:
        import_module(f"{__name__}.{part}")
    except ImportError:
        return False
    return True
