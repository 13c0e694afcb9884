"""Trace-event JSON to columns: what every reader of such files calls.

Files: an array of events or an object with ``traceEvents`` (other keys before and after), or one
event per line; plain or gzip. Not closed, with doubled commas, cut or damaged: what can be read
is. Times may be numbers or text; they are exact.

Which events become what: ``X``, and pairs of ``B`` and ``E``, are slices; ``i``, ``I``, ``R``
instants; ``C`` samples, each numeric argument a series of its own; ``s``, ``t``, ``f`` arrows;
``b``, ``n``, ``e`` (and ``S``, ``T``, ``p``, ``F``) slices and instants on lanes of their own;
``M`` names. Other phases are counted as ``unknown-phase``.

The work is done in the other modules of this package, by a C extension where there is one.
``TRACECONV_NATIVE=0`` in the environment leaves it out; the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from traceconv.core.builder import TraceBuilder
from traceconv.io.sources import Source
from traceconv.readers.shared.trace_events.assemble import assemble
from traceconv.readers.shared.trace_events.contract import (
    Classify,
    Incoming,
    Lane,
    Named,
    Names,
    Placed,
    Probes,
    Revise,
    Skipped,
)
from traceconv.readers.shared.trace_events.reading import Reading

__all__ = [
    "Classify",
    "Incoming",
    "Lane",
    "Named",
    "Names",
    "Placed",
    "Probes",
    "Revise",
    "Skipped",
    "read_events",
]

CHUNK_BYTES = 256 << 10
"""Bytes decoded at a time: small enough to stay in the cache."""

PROBES = Probes()
"""What Ascend calls graphs and kinds of tasks."""

Offset = Callable[[Mapping[str, Any]], int]
"""Given the other members of the outermost object: nanoseconds to add to every stamp."""


def read_events(
    source: Source,
    name: str,
    build: TraceBuilder,
    classify: Classify,
    probes: Probes = PROBES,
    offset_ns: Offset | None = None,
    revise: Revise | None = None,
) -> tuple[int, int] | None:
    """Read one trace-event file into ``build``.

    Args:
        classify: asked once per lane, after all metadata of the file is known.
        offset_ns: asked once, after the file has been read; for files whose stamps count from a
            base named in the file (``baseTimeNanoseconds``). It comes before ``classify``.
        revise: called with every batch of slices and instants before it is added.

    Returns:
        Earliest start and latest end of the slices, ns; None if there are none.

    Raises:
        MalformedInputError: nothing in it can be read as trace events.
    """
    reading = Reading(build, probes)
    reading.read(source, name, CHUNK_BYTES)
    offset = offset_ns(reading.keys) if offset_ns else 0
    return assemble(reading.tables, reading.naming, classify, build, offset, revise)
