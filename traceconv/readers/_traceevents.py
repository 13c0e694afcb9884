"""Trace-event JSON in chunks to columns: what every reader of such files calls.

(Interface; the body follows.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from traceconv.build import TraceBuilder
from traceconv.model import OpClass, Track
from traceconv.source import Source


@dataclass(frozen=True)
class Lane:
    """One row of the file: a (process, thread) with the category of some of its events.

    Attributes:
        pid, tid: as in the file, as text ("" where absent).
        process, thread: the names metadata gives them, "" if none.
        labels: ``process_labels`` ("NPU 0"), "" if none.
        category: of the events ("cpu_op", "kernel"), "" if none.
        phase: "X", "i", "C" ... as in the file (B/E count as "X", b/e as "b").
        extra: further string or integer keys of the ``thread_name`` metadata's args; our own
            Chrome JSON keeps the exact track there.
    """

    pid: str
    tid: str
    process: str = ""
    thread: str = ""
    labels: str = ""
    category: str = ""
    phase: str = "X"
    extra: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Named:
    """What an event's name says beyond its lane's."""

    op: OpClass
    graph: int = -1
    step: int = -1


@dataclass(frozen=True)
class Placed:
    """Where events of a lane go.

    Attributes:
        track:   for slices and instants. For counters: ``track.name`` and ``unit`` are filled in
            per series (see ``read_events``), the rest is taken.
        op:      class of all its events ...
        by_type: ... unless the value of the type probe ("Task Type") is a key here ...
        by_name: ... or this returns something for the event's name (asked once per name).
    """

    track: Track
    op: OpClass = OpClass.OTHER
    by_type: Mapping[str, OpClass] = field(default_factory=dict)
    by_name: Callable[[str], Named | None] | None = None


@dataclass(frozen=True)
class Skipped:
    """A lane whose events are left out, and the issue code that says why."""

    code: str


Classify = Callable[[Lane], Placed | Skipped]


@dataclass(frozen=True)
class Probes:
    """Argument keys whose values become columns while reading.

    Attributes:
        graph: spellings of the graph key; 4294967295 becomes -1.
        type:  the key :attr:`Placed.by_type` is looked up by.
    """

    graph: tuple[str, ...] = ("Model Id", "model id", "Model ID")
    type: str = "Task Type"


def read_events(
    source: Source,
    name: str,
    build: TraceBuilder,
    classify: Classify,
    probes: Probes = Probes(),
) -> tuple[int, int] | None:
    """Read one trace-event file into ``build``.

    Args:
        classify: asked once per lane, after all metadata of the file is known.

    Returns:
        Earliest start and latest end of the slices, ns; None if there are none.

    Raises:
        MalformedInputError: nothing in it can be read as trace events.
    """
    raise NotImplementedError
