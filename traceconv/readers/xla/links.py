"""Links between events of an XSpace, drawn as flows.

An event may begin a link, named by a type and a number, and other events of the file may end it.
Calls into a runtime and the device work they launch share a correlation id instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Mask
from traceconv.core.ordering import combined_key
from traceconv.readers.shared.pairing import latest
from traceconv.readers.xla.space import Plane

POOL = 15
"""Type of the links from the thread that gives work to a pool to the thread that takes it."""

_FLOWS = {
    0: "generic", 2: "executor", 5: "PjRt", 9: "launch", 11: "launch", 12: "launch",
    14: "PjRt call", 15: "thread pool",
}  # fmt: skip
"""Names of flows by the type of the link."""

_TWIN = "end: "
"""Prefix of events that only represent the end of another."""


@dataclass
class Links:
    """Ends of links, collected plane by plane.

    Attributes:
        ends:  type, number, row in the trace (-1 if it is of another rank), whether the link begins
            there, and whether the event only marks the end of another.
        calls, work: correlation ids and rows in the trace.
    """

    ends: list[tuple[I64, I64, I64, Mask, Mask]] = field(default_factory=list)
    calls: list[tuple[I64, I64]] = field(default_factory=list)
    work: list[tuple[I64, I64]] = field(default_factory=list)

    def take(self, plane: Plane, rows: I64) -> None:
        """Collect the links of a plane, those of other ranks included."""
        for kind_key, number_key, is_origin in (("_pt", "_p", True), ("_ct", "_c", False)):
            values, present = plane.integers(number_key)
            events = np.flatnonzero(present)
            twins = [i for i, name in enumerate(plane.kinds) if name.startswith(_TWIN)]
            is_twin = np.isin(plane.kind_of[events], twins)
            kinds = plane.integers(kind_key)[0][events]
            self.ends.append(
                (kinds, values[events], rows[events], np.full(len(events), is_origin), is_twin)
            )

    def take_calls(self, plane: Plane, rows: I64, work: bool) -> None:
        """Collect the correlation ids of calls, or of device work."""
        number, present = plane.integers("correlation_id")
        events = np.flatnonzero(present & (rows >= 0))
        (self.work if work else self.calls).append((number[events], rows[events]))

    def draw(self, build: TraceBuilder) -> None:
        """Add all flows; links with one end only are counted."""
        if self.work:
            self._draw_launches(build)
        if not self.ends:
            return
        kind, number, row, is_origin, twin = map(np.concatenate, zip(*self.ends, strict=True))
        _, pair = np.unique(combined_key(kind, number), return_inverse=True)
        size = int(pair.max(initial=-1)) + 1
        source = np.full(size, -1, np.int64)
        begins = np.flatnonzero(is_origin)[::-1]  # the first of several counts
        source[pair[begins]] = begins
        heads = np.zeros(size, np.int64)
        np.add.at(heads, pair[~is_origin], 1)
        decoration = np.zeros(size, bool)
        decoration[pair[twin & (kind == 0)]] = True
        skipped = int((twin & (kind == 0) & (row >= 0)).sum())
        build.skip("decoration-skipped", "ends of operations", skipped)
        head = np.flatnonzero(~is_origin & ~decoration[pair])
        tail = source[pair[head]]
        head_here = row[head] >= 0
        has_tail = tail >= 0
        tail_row = np.where(has_tail, row[np.maximum(tail, 0)], -1)
        drawn = head_here & (tail_row >= 0)
        lonely = int((head_here & ~has_tail).sum())
        lonely += int((is_origin & (row >= 0) & (heads[pair] == 0)).sum())
        across = int((head_here & has_tail & (tail_row < 0)).sum())
        build.seen("flow", int(drawn.sum()) + lonely + across)
        build.skip("flow-without-end", "", lonely, "flow")
        build.skip("flow-across-ranks", "", across, "flow")
        kinds = kind[head[drawn]].tolist()
        names = [build.string(_FLOWS.get(k, f"type {k}")) for k in kinds]
        build.flows(src=tail_row[drawn], dst=row[head[drawn]], name=np.array(names, np.int32))

    def _draw_launches(self, build: TraceBuilder) -> None:
        work, task = map(np.concatenate, zip(*self.work, strict=True))
        none = np.empty(0, np.int64)
        call, caller = map(np.concatenate, zip(*(self.calls or [(none, none)]), strict=True))
        over = latest(call, np.zeros(len(call), np.int64), work, np.zeros(len(work), np.int64))
        matched = over >= 0
        build.seen("flow", len(work))
        build.skip("flow-without-end", "no launching call", int((~matched).sum()), "flow")
        build.flows(src=caller[over[matched]], dst=task[matched], name=build.string("launch"))


def pair_codes(kind: I64, number: I64) -> I64:
    """A hash of type and number of each link."""
    mixed = kind.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ number.view(np.uint64)
    return mixed.view(np.int64)
