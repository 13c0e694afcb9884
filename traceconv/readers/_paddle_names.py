"""Names in Paddle's JSON, which all end in the event's duration."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.model import I32
from traceconv.readers._gpu import step_number
from traceconv.readers._paddle_layout import MEMORY_TYPES, PHASES, phase_names
from traceconv.readers._trace_events.reading import Reading
from traceconv.readers._trace_events.tables import Rows

_SUFFIX = re.compile(r"\[(\d{1,15})\.(\d{3}) (ms|us)\]")
_UNITS_NS = {"us": 1, "ms": 1000}  # of the last digit
_FLOAT_BITS = 22  # what a 32-bit float keeps of a duration, with one bit to spare


class Names:
    """Names without the durations that the writer appends to them."""

    def __init__(self, reading: Reading, build: TraceBuilder) -> None:
        self._shapes, self._build = reading.tables.shapes, build
        self._texts = [*reading.tables.names.texts(), ""]  # the last one: no name
        self._short = list(self._texts)
        self._told = np.full(len(self._texts), -1, np.int64)  # duration in the name, ns
        self._unit = np.ones(len(self._texts), np.int64)
        for code, text in enumerate(self._texts):
            at = text.rfind("[") if text.endswith("s]") else -1
            match = _SUFFIX.fullmatch(text, at) if at >= 0 else None
            if match is not None:
                unit = _UNITS_NS[match[3]]
                self._short[code] = text[:at]
                self._told[code], self._unit[code] = int(match[1] + match[2]) * unit, unit

    def of(self, rows: Rows, instant: NDArray[np.bool_]) -> I32:
        """String ids of the names of rows; memory events are called by their type."""
        self._build.skip("missing-name", count=int((rows.name < 0).sum()))
        told, unit = self._told[rows.name], self._unit[rows.name]
        own = ~instant & (told >= 0)
        own &= np.abs(told - rows.dur) <= unit + (np.abs(rows.dur) >> _FLOAT_BITS)
        found = np.empty(len(rows), np.int32)
        for which, texts in ((own, self._short), (~own, self._texts)):
            codes, back = np.unique(rows.name[which], return_inverse=True)
            ids = [self._build.string(texts[code]) for code in codes.tolist()]
            found[which] = np.array(ids, np.int32)[back]
        for code in np.unique(rows.shape[instant]).tolist():
            if self._shapes.category[code] in MEMORY_TYPES:
                found[rows.shape == code] = self._build.string(self._shapes.category[code])
        return found

    def phases(self, rows: Rows, name: I32) -> None:
        """Note what ranges of a forward or backward pass are called."""
        for code in np.unique(rows.shape).tolist():
            if self._shapes.category[code] in PHASES:
                found = np.unique(name[rows.shape == code]).tolist()
                phase_names(self._build, self._shapes.category[code], found)

    def steps(self, rows: Rows) -> I32:
        """Step numbers of the rows that mark steps."""
        marks = [code for code, c in enumerate(self._shapes.category) if c == "ProfileStep"]
        step = np.full(len(rows), -1, np.int32)
        for row in np.flatnonzero(np.isin(rows.shape, marks)).tolist():
            step[row] = step_number(self._short[rows.name[row]])
        return step
