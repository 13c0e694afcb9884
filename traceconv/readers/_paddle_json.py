"""Paddle's JSON: read as trace events, its own ways undone, and turned into records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.build import TraceBuilder
from traceconv.errors import MalformedInputError
from traceconv.model import I32, I64
from traceconv.readers import _traceevents
from traceconv.readers._gpu import step_number
from traceconv.readers._lanes import DefaultPlacement
from traceconv.readers._paddle_args import Arguments
from traceconv.readers._paddle_layout import (
    MEMORY_TYPES,
    Lane,
    Records,
    What,
    memory,
    noted,
    put,
)
from traceconv.readers._paddle_repair import repaired
from traceconv.readers._paddle_times import Starts, recovered, trimmed
from traceconv.readers._trace_events.assemble import assemble
from traceconv.readers._trace_events.contract import Probes
from traceconv.readers._trace_events.reading import Reading
from traceconv.readers._trace_events.tables import INSTANT, Flows, Rows, Tables
from traceconv.source import Source

_DAMAGE = ("malformed-record", "args-not-json", "skipped-bytes", "unknown-phase")
_NO_PROBES = Probes(graph=(), type="")
_SIDE = re.compile(r"(.*)\((Python|C\+\+)\)")
_MAKER = re.compile(r".* \(([^()]+)\)")
_DEVICE = {"Kernel": What.KERNEL, "Memcpy": What.COPY, "Memset": What.COPY}
_SUFFIX = re.compile(r"\[(\d{1,15})\.(\d{3}) (ms|us)\]\Z")
_UNITS = {"us": 1, "ms": 1000}
_FLOAT_BITS = 22  # what a 32-bit float keeps of a duration, with one bit to spare


def read_json(source: Source, name: str, build: TraceBuilder, pid: int) -> tuple[int, int] | None:
    """Read one file.

    Args:
        pid: as for :func:`traceconv.readers._paddle_layout.put`.

    Returns:
        Earliest start and latest end, ns; None if there are no events.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    reading = _read(source, name, build)
    tables, keys = reading.tables, reading.keys
    rows = Rows.joined([Rows.empty(), *tables.rows])
    tables.rows.clear()
    flows = Flows.joined([Flows.empty(), *tables.flows])
    tables.flows.clear()
    span = _File(reading, rows, build, pid).put(flows)
    assemble(tables, reading.naming, DefaultPlacement(build.comm_words), build, 0)
    return span
