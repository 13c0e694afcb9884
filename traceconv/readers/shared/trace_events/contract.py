"""What readers of trace-event files exchange with this package: lanes in, their places out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from traceconv.core.model import I8, I32, I64, OpClass, Track
from traceconv.core.patterns import natural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Names(msgspec.Struct, frozen=True):
    """All metadata of a file, as far as it names things: for lanes that depend on others.

    Attributes:
        processes: ``process_name`` by pid.
        labels:    ``process_labels`` by pid.
        threads:   ``thread_name`` by (pid, tid).
        lanes:     (phase, category, pid, tid) of all events there are, as in the file.
    """

    processes: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    threads: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict)
    lanes: tuple[tuple[str, str, str, str], ...] = ()


class Lane(msgspec.Struct, frozen=True):
    """One row of the file: a (process, thread) with the category of some of its events.

    Attributes:
        pid, tid: as in the file, as text ("" where absent).
        process, thread: the names metadata gives them, "" if none.
        labels: ``process_labels`` ("NPU 0"), "" if none.
        category: of the events ("cpu_op", "kernel"), "" if none.
        phase: "X", "i", "C" ... as in the file (B/E count as "X", b/e as "b", s/t/f as "s": for
            flows only a :class:`Skipped` answer, or None, means something).
        extra: further string or integer keys of the args of ``thread_name`` metadata (and of
            ``process_name``, where both have one the thread's counts); our own Chrome JSON keeps
            the exact track there.
        names: all names of the file, one object for all its lanes (Ascend planes belong to the
            nearest communication group thread before them).
        sort: ``thread_sort_index``, 0 if none.
    """

    pid: str
    tid: str
    process: str = ""
    thread: str = ""
    labels: str = ""
    category: str = ""
    phase: str = "X"
    extra: Mapping[str, str | int] = msgspec.field(default_factory=dict)
    names: Names = msgspec.field(default_factory=Names)
    sort: int = 0

    @property
    def process_id(self) -> int:
        """The number in ``pid``, or -1."""
        return natural(self.pid)

    @property
    def thread_id(self) -> int:
        """The number in ``tid``, or -1."""
        return natural(self.tid)


class Named(msgspec.Struct, frozen=True):
    """The facts that the name of an event adds to those of its lane."""

    op: OpClass
    graph: int = -1
    step: int = -1


class Placed(msgspec.Struct, frozen=True):
    """Where events of a lane are put.

    Attributes:
        track:   for slices and instants. For counters: ``track.name`` and ``unit`` are filled in
            per series, the rest is taken; a track that has a unit already is taken whole.
        op:      class of all its events ...
        by_type: ... unless the value of the type probe ("Task Type") is a key here ...
        by_name: ... or this returns something for the event's name (asked once per name).
            It takes precedence over ``by_type``; a graph or step of -1 in the answer means none.
        graph: of events whose name and arguments say none (2023 msprof names it in the file name).
    """

    track: Track
    op: OpClass = OpClass.OTHER
    by_type: Mapping[str, OpClass] = msgspec.field(default_factory=dict)
    by_name: Callable[[str], Named | None] | None = None
    graph: int = -1


class Skipped(msgspec.Struct, frozen=True):
    """A lane whose events are left out.

    Attributes:
        code:    of the issue that says why.
        between: of flows: those from one such lane to another are drawn all the same.
    """

    code: str
    between: bool = False


Classify = Callable[[Lane], Placed | Skipped | None]
"""Gives the place of a lane. None: it belongs to another capture and is neither seen nor lost.

Lanes of flows are placed again after all other events; the second answer counts.
"""


class Incoming(msgspec.Struct):
    """Slices and instants about to be added, for readers that must look into their arguments.

    All but ``first``, ``instant`` and times may be changed in place.

    Attributes:
        first:    number of the first row, as ``TraceBuilder.extend`` will return it.
        instant:  bool per row.
        track:    number of the track.
        graph:    value of the graph probe, -1 if there is none.
        step:     of the step that a name says, -1 if it says none.
        name:     string id.
        start_ns, dur_ns: as they will be.
        address, length: of the arguments (``TraceBuilder.stored``); length 0: none.
    """

    first: int
    instant: NDArray[np.bool_]
    track: I32
    op: I8
    graph: I32
    step: I32
    name: I32
    start_ns: I64
    dur_ns: I64
    address: I64
    length: I32


Revise = Callable[[Incoming], None]
"""Called with every batch of rows before it is added."""


class Probes(msgspec.Struct, frozen=True):
    """Argument keys whose values become columns while reading.

    Attributes:
        graph: spellings of the graph key, at most 8; 4294967295 becomes -1.
        type:  the key :attr:`Placed.by_type` is looked up by.
    """

    graph: tuple[str, ...] = ("Model Id", "model id", "Model ID")
    type: str = "Task Type"
