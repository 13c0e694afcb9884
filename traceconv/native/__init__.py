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

    def apart(self, least: int, /) -> None:
        """From now on, give blocks of ``least`` bytes and more back as soon as they are freed."""
        ...

    def watch(self, mapped: mmap, /) -> None:
        """Let the pages of a file mapped for reading leave memory, too."""
        ...

    def forget(self, mapped: mmap, /) -> None:
        """The opposite, before it is unmapped."""
        ...


def _part(name: str) -> Any:
    """A compiled module; None where it is not built, or turned off."""
    off = os.environ.get("TRACECONV_NATIVE") == "0"
    return None if off else _built(name)


@cache
def _built(name: str) -> Any:
    try:
        return import_module(f"{__name__}.{name}")
    except ImportError:
        return None


def coder() -> type[Coder] | None:
    """Encodes arguments for Perfetto (``json.c``)."""
    return getattr(_part("_encode"), "Coder", None)


def packets() -> Callable[..., tuple[bytes, bytes]] | None:
    """Encodes events as Perfetto packets (``encode.c``)."""
    return getattr(_part("_encode"), "packets", None)


def names() -> Callable[[list[str], int], bytes] | None:
    """Encodes names of events as entries of a table (``encode.c``)."""
    return getattr(_part("_encode"), "names", None)


def scanner() -> type[Scanner] | None:
    """Reads trace events into columns (``scan.c``)."""
    return getattr(_part("_scan"), "Scanner", None)


def members() -> Callable[..., tuple[bytes, bytes, bytes]] | None:
    """Finds values in JSON objects by key (``scan.c``)."""
    return getattr(_part("_scan"), "members", None)


def copier() -> Callable[..., tuple[int, int, bytes, bytes]] | None:
    """Copies trace events with new process numbers and ids (``patch.c``)."""
    return getattr(_part("_patch"), "copy", None)


def records() -> Callable[..., bytes | None] | None:
    """Makes text records of columns (``records.c``)."""
    return getattr(_part("_records"), "records", None)


def first_fit() -> Callable[..., tuple[bytes, int]] | None:
    """Moves slices that cross to further lanes (``lanes.c``)."""
    return getattr(_part("_lanes"), "first_fit", None)


def replay() -> Any:
    """Replays the graph of a job (``replay.c``): the module ``_replay``, or None."""
    return _part("_replay")


def wire() -> Any:
    """Reads protobuf messages into columns (``wire.c``): the module ``_wire``, or None."""
    return _part("_wire")


def allocator() -> Allocator | None:
    """Keeps large arrays in files (``memory.c``); without a Python tier, so never turned off."""
    built: Allocator | None = _built("_memory")
    return built


TIERS = ("_scan", "_encode", "_patch", "_wire", "_lanes", "_records", "_replay")
"""The parts that have a Python tier."""


def in_use() -> list[str]:
    """The :data:`TIERS` in use; Python does the work of the others."""
    return [name for name in TIERS if _part(name) is not None]
