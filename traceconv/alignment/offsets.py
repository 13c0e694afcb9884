"""Offsets of clocks: their type and file, and those that captures state by themselves.

A capture may hold an anchor (a pair of local and Unix time), share the monotonic clock of a host
with others, or take over the clock of the other captures of its host.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from traceconv.core.clock import (
    INT64_MAX,
    MOST_DRIFT_PPT,
    Anchor,
    Correction,
    Domain,
    stated_check,
    stated_error,
)
from traceconv.core.errors import ClockError, Issues, SourceError
from traceconv.core.model import Capture

SCHEMA_VERSION = 1


_OUTSIDE = 0.01  # share of a capture after which time with an unchecked clock is a warning


def unchecked_ns(checked: tuple[int, int], first: int, last: int) -> tuple[int, int]:
    """How much of a capture, at its beginning and at its end, is outside of where a clock that was
    set would have shown, ns; 0 if it is not worth a warning.

    Args:
        checked: between which instants it would have.
        first, last: of the capture, on the same clock.
    """
    ends = checked[0] - first, last - checked[1]
    limit = _OUTSIDE * (last - first)
    return ends[0] if ends[0] > limit else 0, ends[1] if ends[1] > limit else 0


class Offset(msgspec.Struct, frozen=True):
    """The offset that is added to the times of one rank.

    Attributes:
        offset_ns: positive moves events later.
        method:    "collective", "meta", "wall", "host", "file", or "none" if nothing is known
            or requested.
        evidence:  the source of the offset, in words.
        spread_ns: spread of the values behind it, where known: range of the anchors of one clock,
            or one standard deviation of the ends of collectives.
        drift_ppt: what the offset grows by, in parts per trillion of the time since ``at_ns``.
        at_ns:     the instant, on the rank's own clock, at which ``offset_ns`` holds.
        error_ns:  half the width of the interval the true offset lies in; None if unknown.
        matches:   collectives it was made from.
        checked_ns: on the rank's own clock, the first and the last instant between which a clock
            that was set would have shown; that none was before or after, ``error_ns`` takes for
            granted. None where nothing was checked.
    """

    offset_ns: int = 0
    method: str = "none"
    evidence: str = ""
    spread_ns: int | None = None
    drift_ppt: int = 0
    at_ns: int = 0
    error_ns: int | None = None
    matches: int = 0
    checked_ns: tuple[int, int] | None = None

    @property
    def correction(self) -> Correction:
        """What puts the rank's stamps on the shared clock."""
        return Correction(self.offset_ns, self.drift_ppt, self.at_ns)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; clock times are decimal strings because they exceed a double's precision."""
        values: dict[str, Any] = {
            "offset_ns": str(self.offset_ns),
            "method": self.method,
            "evidence": self.evidence,
        }
        if self.spread_ns is not None:
            values["spread_ns"] = self.spread_ns
        if self.drift_ppt:
            values |= {"drift_ppt": self.drift_ppt, "at_ns": str(self.at_ns)}
        if self.error_ns is not None:
            values["error_ns"] = self.error_ns
        if self.checked_ns is not None:
            values["checked_ns"] = [str(ns) for ns in self.checked_ns]
        return values | ({"matches": self.matches} if self.matches else {})


def from_file(path: str, ranks: Collection[int], modes: Collection[str]) -> dict[int, Offset]:
    """The offsets of ``ranks`` that a JSON file holds.

    Either ``{"0": offset_ns, ...}``, or what ``traceconv align -o`` writes: under "ranks", an
    object per rank with "offset_ns" and, if its clock drifts, "drift_ppt" and "at_ns"; errors are
    those that are stated there.

    Args:
        modes: the method names that are valid in place of a file, for the message.

    Raises:
        ClockError: the file holds no such offsets.
        SourceError: it cannot be read.
    """
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as e:
        names = ", ".join(modes)
        raise SourceError(
            f"`align={path!r}`: neither {names} nor a readable file: {e.strerror or e}"
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
        raise ClockError(f"{path}: the drift of rank {rank} is larger than any clock's")
    error = value.get("error_ns")
    if error is not None and _whole(error, path, rank, "error_ns") < 0:
        raise ClockError(f"{path}: the error_ns of rank {rank} is negative")
    return Offset(
        _whole(value.get("offset_ns"), path, rank, "offset"),
        "file",
        path,
        drift_ppt=drift,
        at_ns=_whole(value.get("at_ns", 0), path, rank, "at_ns"),
        error_ns=stated_error(value) if error is None else _whole(error, path, rank, "error_ns"),
        checked_ns=stated_check(value),
    )


def _whole(value: Any, path: str, rank: int, label: str) -> int:
    """An integer as JSON has it, or one in quotes (as :meth:`Offset.as_dict` writes)."""
    try:
        if isinstance(value, str):
            value = int(value)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INT64_MAX:
        raise ClockError(f"{path}: the {label} of rank {rank} is not a whole number of ns in int64")
    return value


def rank_of(capture: Capture) -> int:
    """The rank of a capture that has one."""
    assert capture.rank is not None, "ranks are resolved before clocks"
    return capture.rank


def anchored(captures: Sequence[Capture]) -> dict[int, Offset]:
    """Offsets of the captures with a usable anchor.

    The monotonic clock of a host is one physical clock: its captures share the offset of the
    first, whatever the steps of the wall clock between their starts were. This includes
    captures without a clock pair. The errors that an output of traceconv states hold among its
    ranks; relative to other captures they are unknown.
    """
    offsets, clocks = {}, _host_clocks(captures)
    together = len({capture.clock.origin for capture in captures if capture.clock}) == 1
    for capture in captures:
        anchor = capture.clock
        if anchor is None:
            continue
        shared = clocks.get(capture.host) if anchor.domain is Domain.MONOTONIC else None
        if shared and capture.host:
            offsets[rank_of(capture)] = shared
        elif anchor.is_tied:
            offsets[rank_of(capture)] = Offset(
                anchor.offset_ns, "meta", anchor.evidence,
                error_ns=anchor.error_ns if together else None, checked_ns=anchor.checked_ns,
            )  # fmt: skip
    return offsets


def stamped(captures: Sequence[Capture]) -> dict[int, int]:
    """Nanoseconds to add to the stamps of ranks to compare them, by their files.

    Only of captures that say something of their clock.
    """
    if one_file(captures) or one_host_clock(captures):
        return {rank_of(capture): 0 for capture in captures}
    return {rank: offset.offset_ns for rank, offset in anchored(captures).items()}


def _host_clocks(captures: Sequence[Capture]) -> dict[str, Offset]:
    anchors: dict[str, list[Anchor]] = {}
    for capture in captures:
        anchor = capture.clock
        if anchor and anchor.domain is Domain.MONOTONIC and anchor.is_tied:
            anchors.setdefault(capture.host, []).append(anchor)
    clocks = {}
    for host, host_anchors in anchors.items():
        all_ns = [a.offset_ns for a in host_anchors]
        spread = max(all_ns) - min(all_ns) if len(host_anchors) > 1 else None
        clocks[host] = Offset(host_anchors[0].offset_ns, "meta", host_anchors[0].evidence, spread)
    return clocks


GATHERED = "stamps of one file, into which ranks were gathered"
"""The evidence of offsets whose error is unknown: ranks of one file of a format
into which programs gather them, ours among them, so that it is not one clock."""

_GATHERING = ("perfetto", "chrome_json")


def gathered(captures: Sequence[Capture]) -> bool:
    """Whether some of them are of such a format."""
    return any(capture.reader in _GATHERING for capture in captures)


def one_file(captures: Sequence[Capture]) -> bool:
    """Whether all ranks come from the same files, whose writer used one clock: not the clocks of
    several hosts since their boot."""
    domains = {c.clock.domain if c.clock else None for c in captures}
    one_clock = domains != {Domain.MONOTONIC} or len({c.host for c in captures}) == 1
    return one_clock and len({(c.source.label, c.files) for c in captures}) == 1


def one_host_clock(captures: Sequence[Capture]) -> bool:
    """Whether all stamps come from the monotonic clock of one host."""
    hosts = {c.host for c in captures}
    domains = {c.clock.domain if c.clock else None for c in captures}
    return len(hosts) == 1 and "" not in hosts and domains == {Domain.MONOTONIC}


def neighbours(
    capture: Capture,
    captures: Sequence[Capture],
    offsets: Mapping[int, Offset],
    issues: Issues,
    why: str = "",
) -> Offset:
    """The offset of a capture without a clock: that of all others of its host and reader.

    If those disagree or do not exist, the offset stays unknown, and an ``unaligned`` issue with
    ``why`` is added.
    """
    near = {
        offsets[rank_of(c)]
        for c in captures
        if c.clock
        and c.host == capture.host
        and c.reader == capture.reader
        and rank_of(c) in offsets
    }
    if capture.clock is None and capture.host and len(near) == 1:
        issues.add("clock-assumed", capture.label, rank=rank_of(capture))
        return replace(near.pop(), evidence=f"as the other captures of host {capture.host}")
    issues.add("unaligned", capture.label, why, rank=rank_of(capture))
    return Offset()
