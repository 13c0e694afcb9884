"""Chrome JSON: the instants at which arrows touch their slices.

The format binds an arrow to the innermost slice at its time. Perfetto takes the slice that began
last on the thread instead: there, no arrow can name a parent whose child begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from traceconv.model import I64, EventTable, FlowTable, Trace

NEAR_CHILDREN = 64
"""How many children are looked at for a gap between them."""


def ends_ns(events: EventTable, flows: FlowTable, times: Mapping[int, int]) -> tuple[I64, I64]:
    """When each arrow leaves and arrives: at its slices' starts, unless ``times`` says otherwise.

    An arrow must not leave after it arrives because of that; then the start has to do.
    """
    src, dst = _ends(events, flows.src, times), _ends(events, flows.dst, times)
    return np.where(src > dst, events.start_ns[flows.src], src), dst


def _ends(events: EventTable, rows: NDArray[np.int32], times: Mapping[int, int]) -> I64:
    ns = events.start_ns[rows]
    if times:
        moved = np.flatnonzero(np.isin(rows, np.fromiter(times, np.int32)))
        ns[moved] = [times[row] for row in rows[moved].tolist()]
    return ns


def binding_ns(trace: Trace) -> dict[int, int]:
    """Where arrows touch those slices whose start does not name them.

    If a child begins with its parent, the parent's start belongs to the child: the arrow goes to
    the first gap between children.
    """
    events, flows = trace.events, trace.flows
    rows = np.unique(np.concatenate((flows.src, flows.dst)))
    after = np.minimum(rows + 1, len(events) - 1)
    shared = (rows < after) & (events.track[rows] == events.track[after])
    shared &= events.start_ns[rows] == events.start_ns[after]
    found = ((row, _first_gap(events, row)) for row in rows[shared].tolist())
    return {row: ns for row, ns in found if ns is not None}


def _first_gap(events: EventTable, row: int) -> int | None:
    """The first ns at which ``row`` has no open child (a slice is open at its end), if any."""
    track, ns = events.track[row], int(events.start_ns[row])
    end = ns + int(events.dur_ns[row])
    for child in range(row + 1, min(row + 1 + NEAR_CHILDREN, len(events))):
        start = int(events.start_ns[child])
        if events.track[child] != track or start > ns:
            return ns if ns < end else None
        ns = max(ns, start + int(events.dur_ns[child]) + 1)
    return ns if row + 1 + NEAR_CHILDREN > len(events) and ns < end else None
