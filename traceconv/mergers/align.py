"""Which offset puts each rank on the shared clock, and the one function that adds it.

An offset is never guessed: where nothing is known the times stay as they are, and an issue says
so. The shared clock is Unix time where captures tell how theirs relates to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from traceconv.clock import INT64_MAX, Anchor, Domain
from traceconv.errors import ClockError, Issues, SourceError
from traceconv.model import Capture, Trace


@dataclass(frozen=True)
class Offset:
    """What is added to the times of one rank.

    Attributes:
        offset_ns: positive moves events later.
        method:    "meta", "wall", "host", "file", or "none" if nothing is known or wanted.
        evidence:  what it was taken from.
        spread_ns: how far the anchors of one clock disagree: the error to expect, where known.
    """

    offset_ns: int = 0
    method: str = "none"
    evidence: str = ""
    spread_ns: int | None = None


_SPOKEN = {
    "meta": "Unix time, as the profilers recorded it (meta)",
    "wall": "stamps taken as Unix time (wall)",
    "host": "one clock for all, as stamped",
    "none": "as stamped, not aligned",
}


@dataclass(frozen=True)
class Plan:
    """The offsets of all ranks.

    Attributes:
        method:  of the ranks, joined by " + " if they differ.
        offsets: per rank.
        issues:  unaligned, clock-assumed.
    """

    method: str
    offsets: Mapping[int, Offset]
    issues: Issues = field(default_factory=Issues)

    def offset_ns(self, rank: int) -> int:
        """What must be added to the times of ``rank``."""
        return self.offsets[rank].offset_ns

    def as_dict(self) -> dict[str, Any]:
        """JSON values; offsets as decimal strings, for they outgrow a double."""
        return {
            "method": self.method,
            "text": self._text(),
            "ranks": {
                str(rank): {
                    "offset_ns": str(one.offset_ns),
                    "method": one.method,
                    "evidence": one.evidence,
                    **({} if one.spread_ns is None else {"spread_ns": one.spread_ns}),
                }
                for rank, one in self.offsets.items()
            },
        }

    def _text(self) -> str:
        spreads = [o.spread_ns for o in self.offsets.values() if o.spread_ns is not None]
        known = f", anchors agree within {max(spreads) / 1e6:.3f} ms" if spreads else ""
        lost = self.issues.count("unaligned")
        return (
            _SPOKEN.get(self.method, self.method)
            + known
            + (f"; {lost} ranks not aligned" if lost else "")
        )


def plan(captures: Sequence[Capture], mode: str = "auto") -> Plan:
    """The offset of every capture.

    Args:
        captures: with ranks.
        mode: "auto" - what the captures' own anchors allow, an issue where they allow nothing;
            "meta" - anchors, refused where one is missing; "wall" - stamps are Unix time already;
            "none" - no offsets; anything else - a JSON file ``{"0": offset_ns, ...}``.

    Raises:
        ClockError: the mode contradicts the captures, or the file holds no such offsets.
        SourceError: there is no such mode, and no such file.
    """
    issues = Issues()
    method = METHODS.get(mode)
    offsets = method(captures, issues) if method else _from_file(captures, mode)
    offsets = dict(sorted(offsets.items()))
    return Plan(" + ".join(sorted({o.method for o in offsets.values()})) or "none", offsets, issues)


def shift(trace: Trace, offset_ns: int) -> Trace:
    """Move everything of ``trace`` in time: the one place where an offset is added.

    Units:  ns, signed; positive moves events later.
    Shape:  same rows, same order; columns other than start_ns are shared, not copied.
    Raises: ClockError if a time would leave int64.
    """
    if not offset_ns:
        return trace
    events, counters, windows = trace.events, trace.counters, trace.windows
    stamps = [events.start_ns, events.end_ns, counters.start_ns, windows.ravel()]
    for extreme in (f(s) for s in stamps if len(s) for f in (np.min, np.max)):
        if abs(int(extreme) + offset_ns) > INT64_MAX:
            raise ClockError(
                f"rank {trace.capture.rank}: an offset of {offset_ns} ns takes stamp "
                f"{int(extreme)} out of int64 nanoseconds"
            )
    return replace(
        trace,
        events=events.with_columns(start_ns=events.start_ns + offset_ns),
        counters=counters.with_columns(start_ns=counters.start_ns + offset_ns),
        windows=windows + offset_ns,
        notes=_shifted_notes(trace.notes, offset_ns),
    )


def _shifted_notes(notes: Mapping[str, Any], offset_ns: int) -> Mapping[str, Any]:
    """Times among the notes move, too: those of the steps."""
    if "steps" not in notes:
        return notes
    moved = [
        {k: v + offset_ns if k.endswith("start_ns") else v for k, v in step.items()}
        for step in notes["steps"]
    ]
    return {**notes, "steps": moved}


# -- methods ------------------------------------------------------------------------------

Method = Callable[[Sequence[Capture], Issues], dict[int, Offset]]


def _auto(captures: Sequence[Capture], issues: Issues) -> dict[int, Offset]:
    offsets = _anchored(captures)
    rest = [c for c in captures if _rank(c) not in offsets]
    if not rest:
        return offsets
    if len(captures) == 1:
        return {_rank(rest[0]): Offset(evidence="the only rank")}
    if not offsets and _one_file(captures):
        return {_rank(c): Offset(0, "host", "stamps of one file") for c in captures}
    if not offsets and _one_host_clock(captures):
        return {_rank(c): Offset(0, "host", f"clock of host {c.host}") for c in captures}
    for capture in rest:
        offsets[_rank(capture)] = _neighbours(capture, captures, offsets, issues)
    return offsets


def _meta(captures: Sequence[Capture], issues: Issues) -> dict[int, Offset]:
    offsets = _anchored(captures)
    missing = [str(c.rank) for c in captures if _rank(c) not in offsets]
    if missing:
        raise ClockError(
            f"no file says how the clock of rank {', '.join(missing)} relates to Unix time; "
            "use --align auto, none, or a JSON file of offsets"
        )
    return offsets


def _wall(captures: Sequence[Capture], issues: Issues) -> dict[int, Offset]:
    for capture in captures:
        if capture.clock and capture.clock.domain is not Domain.UNIX:
            raise ClockError(
                f"rank {capture.rank} is not stamped in Unix time but by a "
                f"{capture.clock.domain} clock ({capture.clock.evidence or capture.label}); "
                "use --align meta"
            )
    return {_rank(c): Offset(0, "wall", "stamps taken as Unix time") for c in captures}


def _none(captures: Sequence[Capture], issues: Issues) -> dict[int, Offset]:
    return {_rank(c): Offset() for c in captures}


METHODS: Mapping[str, Method] = {"auto": _auto, "meta": _meta, "wall": _wall, "none": _none}
"""How offsets are found, by the name a user says."""


def _rank(capture: Capture) -> int:
    assert capture.rank is not None, "ranks are resolved before clocks"
    return capture.rank


def _usable(anchor: Anchor | None) -> bool:
    """Whether an anchor ties its clock to Unix time."""
    return anchor is not None and (anchor.domain is Domain.UNIX or anchor.shared_ns > 0)


def _anchored(captures: Sequence[Capture]) -> dict[int, Offset]:
    """Offsets of the captures with a usable anchor.

    The monotonic clock of a host is one physical clock: its captures share the offset of the
    first, whatever the steps of the wall clock between their starts were. A capture of such a
    host that has no pair of its own shares it, too.
    """
    offsets, clocks = {}, _host_clocks(captures)
    for capture in captures:
        anchor = capture.clock
        if anchor is None:
            continue
        shared = clocks.get(capture.host) if anchor.domain is Domain.MONOTONIC else None
        if shared and capture.host:
            offsets[_rank(capture)] = shared
        elif _usable(anchor):
            offsets[_rank(capture)] = Offset(anchor.offset_ns, "meta", anchor.evidence)
    return offsets


def _host_clocks(captures: Sequence[Capture]) -> dict[str, Offset]:
    anchors: dict[str, list[Anchor]] = {}
    for capture in captures:
        anchor = capture.clock
        if anchor and anchor.domain is Domain.MONOTONIC and _usable(anchor):
            anchors.setdefault(capture.host, []).append(anchor)
    clocks = {}
    for host, found in anchors.items():
        all_ns = [a.offset_ns for a in found]
        spread = max(all_ns) - min(all_ns) if len(found) > 1 else None
        clocks[host] = Offset(found[0].offset_ns, "meta", found[0].evidence, spread)
    return clocks


def _one_file(captures: Sequence[Capture]) -> bool:
    """Whether all ranks stand in the same files: whoever wrote them used one clock."""
    return len({(id(c.source), c.files) for c in captures}) == 1


def _one_host_clock(captures: Sequence[Capture]) -> bool:
    """Whether all stamps come from the monotonic clock of one host."""
    hosts = {c.host for c in captures}
    domains = {c.clock.domain if c.clock else None for c in captures}
    return len(hosts) == 1 and "" not in hosts and domains == {Domain.MONOTONIC}


def _neighbours(
    capture: Capture, captures: Sequence[Capture], offsets: Mapping[int, Offset], issues: Issues
) -> Offset:
    """The clock of a capture that says nothing of its own: that of all others from the same host
    and the same reader, if they agree; else none."""
    near = {
        offsets[_rank(c)]
        for c in captures
        if c.clock and c.host == capture.host and c.reader == capture.reader and _rank(c) in offsets
    }
    if capture.clock is None and capture.host and len(near) == 1:
        issues.add("clock-assumed", capture.label, rank=_rank(capture))
        return replace(near.pop(), evidence=f"as the other captures of host {capture.host}")
    issues.add("unaligned", capture.label, rank=_rank(capture))
    return Offset()


def _from_file(captures: Sequence[Capture], path: str) -> dict[int, Offset]:
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as e:
        names = ", ".join(METHODS)
        raise SourceError(
            f"--align {path}: neither {names} nor a readable file: {e.strerror or e}"
        ) from e
    except (ValueError, RecursionError) as e:
        raise ClockError(f"{path}: not JSON: {e}") from e
    if not isinstance(document, dict):
        raise ClockError(f'{path}: not an object of offsets, such as {{"0": 0, "1": -1500}}')
    missing = [str(c.rank) for c in captures if str(c.rank) not in document]
    if missing:
        raise ClockError(f"{path}: no offset for rank {', '.join(missing)}")
    return {
        _rank(c): Offset(_offset(document[str(c.rank)], path, _rank(c)), "file", path)
        for c in captures
    }


def _offset(value: Any, path: str, rank: int) -> int:
    """An offset as JSON has it: an integer, or one in quotes (as :meth:`Plan.as_dict` writes)."""
    try:
        if isinstance(value, str):
            value = int(value)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INT64_MAX:
        raise ClockError(f"{path}: the offset of rank {rank} is not a whole number of ns in int64")
    return value
