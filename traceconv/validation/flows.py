"""How the importer connects slices by flow ids."""

from __future__ import annotations

from array import array
from collections.abc import Hashable

import numpy as np

from traceconv.validation.perfetto.decoded import Flows, column


class FlowBook:
    """All arrows of a trace. A flow is open from its first slice until it is closed.

    Args:
        ts: start of every slice row; an arrow points from the earlier one to the later one.
    """

    def __init__(self, ts: array[int]) -> None:
        self._ts = ts
        self._open: dict[Hashable, tuple[int, bool]] = {}
        self._source, self._target = array("q"), array("q")

    def is_open(self, flow: Hashable) -> bool:
        """Whether the flow has a slice to continue from."""
        return flow in self._open

    def last(self, flow: Hashable) -> int:
        """The row an open flow reached."""
        return self._open[flow][0]

    def begin(self, flow: Hashable, row: int) -> bool:
        """Open a flow at ``row``; False if it is open already."""
        if flow in self._open:
            return False
        self._open[flow] = (row, False)
        return True

    def step(self, flow: Hashable, row: int) -> None:
        """Lead an open flow on to ``row``."""
        self.arrow(self._open[flow][0], row)
        self._open[flow] = (row, True)

    def end(self, flow: Hashable, row: int, close: bool) -> None:
        """Draw the last arrow of an open flow; ``close`` frees its id."""
        earlier = self._open[flow][0]
        self.arrow(earlier, row)
        if close:
            del self._open[flow]
        else:
            self._open[flow] = (earlier, True)

    def arrow(self, a: int, b: int) -> None:
        """Connect two rows, the earlier one first; at equal times ``a`` first."""
        if self._ts[a] > self._ts[b]:
            a, b = b, a
        self.draw(a, b)

    def draw(self, source: int, target: int) -> None:
        """Connect two rows in the given direction."""
        self._source.append(source)
        self._target.append(target)

    def unused(self) -> list[Hashable]:
        """Flows that were opened and never led anywhere."""
        return [flow for flow, (_, drawn) in self._open.items() if not drawn]

    def flows(self) -> Flows:
        """The arrows, in the order they were drawn."""
        return Flows(column(self._source, np.int64), column(self._target, np.int64))
