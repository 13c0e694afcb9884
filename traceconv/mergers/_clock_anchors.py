"""What the captures themselves tell of their clocks: anchors, hosts, neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from traceconv.clock import Anchor, Domain
from traceconv.errors import Issues
from traceconv.mergers._clock_offsets import Offset
from traceconv.model import Capture


def rank_of(capture: Capture) -> int:
    """The rank of a capture that has one."""
    assert capture.rank is not None, "ranks are resolved before clocks"
    return capture.rank


def _usable(anchor: Anchor | None) -> bool:
    """Whether an anchor ties its clock to Unix time."""
    return anchor is not None and (anchor.domain is Domain.UNIX or anchor.shared_ns > 0)


def anchored(captures: Sequence[Capture]) -> dict[int, Offset]:
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
            offsets[rank_of(capture)] = shared
        elif _usable(anchor):
            offsets[rank_of(capture)] = Offset(anchor.offset_ns, "meta", anchor.evidence)
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


def one_file(captures: Sequence[Capture]) -> bool:
    """Whether all ranks stand in the same files: whoever wrote them used one clock."""
    return len({(id(c.source), c.files) for c in captures}) == 1


def one_host_clock(captures: Sequence[Capture]) -> bool:
    """Whether all stamps come from the monotonic clock of one host."""
    hosts = {c.host for c in captures}
    domains = {c.clock.domain if c.clock else None for c in captures}
    return len(hosts) == 1 and "" not in hosts and domains == {Domain.MONOTONIC}


def neighbours(
    capture: Capture, captures: Sequence[Capture], offsets: Mapping[int, Offset], issues: Issues
) -> Offset:
    """The clock of a capture that says nothing of its own: that of all others from the same host
    and the same reader, if they agree; else none."""
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
    issues.add("unaligned", capture.label, rank=rank_of(capture))
    return Offset()
