"""Rows of the display file, so that other files add only what it lacks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Layer


@dataclass
class Shown:
    """The starts of the display file's rows, by layer; empty without a display file."""

    starts: dict[Layer, list[I64]] = field(default_factory=dict)

    def lacks(
        self, build: TraceBuilder, layer: Layer, start_ns: I64, rows: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which of ``rows``, by their starts, are not on a layer of the display file. The others
        are reported as repeated-content.
        """
        seen = self.starts.get(layer)
        if not seen:
            return rows
        new: NDArray[np.bool_] = rows & np.isin(start_ns, np.concatenate(seen), invert=True)
        build.skip("repeated-content", "", int(np.count_nonzero(rows & ~new)))
        return new
