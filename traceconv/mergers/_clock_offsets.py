"""What is added to the times of a rank, and the file that people keep it in."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceconv.clock import INT64_MAX, MOST_DRIFT_PPT, Correction
from traceconv.errors import ClockError, SourceError

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Offset:
    """What is added to the times of one rank.

    Attributes:
        offset_ns: positive moves events later.
        method:    "collective", "meta", "wall", "host", "file", or "none" if nothing is known or
            wanted.
        evidence:  what it was taken from.
        spread_ns: how far what it was taken from disagrees: anchors of one clock, or ends of
            collectives (one standard deviation), where known.
        drift_ppt: what the offset grows by, in parts per trillion of the time since ``at_ns``.
        at_ns:     the instant, on the rank's own clock, at which ``offset_ns`` holds.
        error_ns:  half the width of the interval the true offset lies in; None if unknown.
        matches:   collectives it was made from.
    """

    offset_ns: int = 0
    method: str = "none"
    evidence: str = ""
    spread_ns: int | None = None
    drift_ppt: int = 0
    at_ns: int = 0
    error_ns: int | None = None
    matches: int = 0

    @property
    def correction(self) -> Correction:
        """What puts the rank's stamps on the shared clock."""
        return Correction(self.offset_ns, self.drift_ppt, self.at_ns)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times of a clock as decimal strings, for they outgrow a double."""
        told: dict[str, Any] = {
            "offset_ns": str(self.offset_ns),
            "method": self.method,
            "evidence": self.evidence,
        }
        if self.spread_ns is not None:
            told["spread_ns"] = self.spread_ns
        if self.drift_ppt:
            told |= {"drift_ppt": self.drift_ppt, "at_ns": str(self.at_ns)}
        if self.error_ns is not None:
            told["error_ns"] = self.error_ns
        return told | ({"matches": self.matches} if self.matches else {})


def from_file(path: str, ranks: Collection[int], modes: Collection[str]) -> dict[int, Offset]:
    """The offsets of ``ranks`` that a JSON file holds.

    Either ``{"0": offset_ns, ...}``, or what ``traceconv align -o`` writes: under "ranks", an
    object per rank with "offset_ns" and, if its clock drifts, "drift_ppt" and "at_ns".

    Args:
        modes: what could have been said instead of a file, for the message.

    Raises:
        ClockError: the file holds no such offsets.
        SourceError: it cannot be read.
    """
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as e:
        names = ", ".join(modes)
        raise SourceError(
            f"--align {path}: neither {names} nor a readable file: {e.strerror or e}"
        ) from e
    except (ValueError, RecursionError) as e:
        raise ClockError(f"{path}: not JSON: {e}") from e
    if isinstance(document, dict) and isinstance(document.get("ranks"), dict):
        document = document["ranks"]
    if not isinstance(document, dict):
        raise ClockError(f'{path}: not an object of offsets, such as {{"0": 0, "1": -1500}}')
    missing = [str(rank) for rank in ranks if str(rank) not in document]
    if missing:
        raise ClockError(f"{path}: no offset for rank {', '.join(missing)}")
    return {rank: _offset(document[str(rank)], path, rank) for rank in ranks}


def _offset(value: Any, path: str, rank: int) -> Offset:
    if not isinstance(value, Mapping):
        return Offset(_whole(value, path, rank, "offset"), "file", path)
    drift = _whole(value.get("drift_ppt", 0), path, rank, "drift_ppt")
    if abs(drift) > MOST_DRIFT_PPT:
        raise ClockError(f"{path}: the drift of rank {rank} is more than any clock's")
    error = value.get("error_ns")
    return Offset(
        _whole(value.get("offset_ns"), path, rank, "offset"),
        "file",
        path,
        drift_ppt=drift,
        at_ns=_whole(value.get("at_ns", 0), path, rank, "at_ns"),
        error_ns=None if error is None else _whole(error, path, rank, "error_ns"),
    )


def _whole(value: Any, path: str, rank: int, what: str) -> int:
    """An integer as JSON has it, or one in quotes (as :meth:`Offset.as_dict` writes)."""
    try:
        if isinstance(value, str):
            value = int(value)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INT64_MAX:
        raise ClockError(f"{path}: the {what} of rank {rank} is not a whole number of ns in int64")
    return value
