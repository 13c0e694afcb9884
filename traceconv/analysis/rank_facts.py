"""What analyses find out about one rank, as types: losses, items of steps, operations, dumps.

An analysis fills its type from a trace, and :class:`traceconv.analysis.rank_summary.RankSummary`
holds them all. The types do not know the analyses.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I8, I32, I64, UNKNOWN

EXPOSED, LATE, INPUT, IDLE, COPIES = "exposed", "late", "input", "idle", "copies"
PAUSE = "pause"
"""Classes of lost time."""

COMPUTING, UNCLASSIFIED = "computing", "unclassified"


class Losses(msgspec.Struct, frozen=True):
    """The time of one rank by class, ns, summed over its measured steps.

    Attributes:
        steps:    how many; 0 if nothing is known.
        per_step: whether they are steps; else the capture counts as one.
        devices:  of the rank. All lengths are summed over them, and those per step are means.
        known_ns: their device time as far as it was recorded.
        computing_ns, exposed_ns, copies_ns: parts of it.
        unclassified_ns: the part in which nothing but tasks of unknown types runs; these may
            compute, and hide communication.
        free_ns:  idle, whatever for.
        input_ns: the part of ``free_ns`` that waits for input; :data:`UNKNOWN` where no source says
            so of any step.
        input_steps: of how many steps that is known; where these are some only, ``input_ns`` is the
            least that can have been.
        pauses, pause_ns: how many pauses before steps are known, and what of them is idle; in none
            of the others.
        source:   the profiler's own table that all of it is from, "" if it was measured.
    """

    steps: int = 0
    per_step: bool = True
    known_ns: int = 0
    computing_ns: int = 0
    unclassified_ns: int = 0
    exposed_ns: int = 0
    copies_ns: int = 0
    free_ns: int = 0
    input_ns: int = UNKNOWN
    input_steps: int = 0
    pauses: int = 0
    pause_ns: int = 0
    source: str = ""
    devices: int = 1

    def knows(self, name: str) -> bool:
        """Whether anything is known of a class."""
        if name == PAUSE:
            return self.pauses > 0
        return self.steps > 0 and (name != INPUT or self.input_ns >= 0)

    def per(self, name: str) -> float:
        """A class, ns per step, the mean over devices; 0 where nothing is known."""
        waits = max(self.input_ns, 0)
        sums = {EXPOSED: self.exposed_ns, INPUT: waits, IDLE: self.free_ns - waits,
                COPIES: self.copies_ns, COMPUTING: self.computing_ns,
                UNCLASSIFIED: self.unclassified_ns,
                PAUSE: self.pause_ns if self.knows(PAUSE) else 0}  # fmt: skip
        return sums[name] / (self.steps * self.devices) if self.steps else 0.0

    @property
    def mean_pause_ns(self) -> float:
        """The mean of the known pauses, ns; the first step of a capture follows none."""
        return self.pause_ns / (self.pauses * self.devices) if self.knows(PAUSE) else 0.0

    @property
    def step_ns(self) -> float:
        """The mean step, ns."""
        return self.known_ns / (self.steps * self.devices) if self.steps else 0.0


class Sort(StrEnum):
    """What an item is."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    COPY = "copy"
    UNCLASSIFIED = "unclassified"
    WAIT = "wait"
    UNRECORDED = "unrecorded"


KEY = ("sort", "name", "type", "shape", "module")
"""The columns that tell items apart, all text:

* ``name``: of the kernel, the kind of collective, the copy, the work that ends a gap;
* ``type``: of the operator, the group of ranks, the cause of a gap;
* ``shape``: of the operator's inputs; bytes or elements of a collective;
* ``module``: path of the modules, scopes or ranges around the operator, outermost first.

Empty where nothing is known. Digits that differ from run to run are left out.
"""


class StepItems(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The items of the covered steps of one rank. Times are int64 ns.

    Attributes:
        devices: of the rank, whose times are added up.
        marked: whether the source marks steps; else the capture is one.
        vendor: "ascend" for NPUs, "" for GPUs.
        layers: those of :data:`traceconv.analysis.diff.items.RECORDED` that the capture holds, and
            :data:`INPUT` where it is known how long steps wait for input.
        steps:  a row each: ``step`` (its number), ``window``, ``start_ns`` and ``end_ns`` (as
            marked, or with its last device row if that is later), ``ns`` (length of its device
            window times devices), ``pause_ns`` (idle time before it, in none of the items; -1 =
            unknown).
        items:  a row each: :data:`KEY`, and ``first`` and ``last``: at which place in a step it
            occurs for the first time, as the smallest and largest of all steps; -1 of waiting.
        parts:  of every item (``item``, a row of ``items``) in every step (``at``, a row of
            ``steps``) in which it occurs: ``ns`` that belong to it, ``count`` of rows that begin
            (of gaps), and ``busy_ns``, how long these take, hidden or not.
    """

    devices: int = 0
    marked: bool = True
    vendor: str = ""
    layers: tuple[str, ...] = ()
    steps: Mapping[str, NDArray[Any]] = {}
    items: Mapping[str, NDArray[Any]] = {}
    parts: Mapping[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.steps["step"]) if self.steps else 0

    def check(self) -> None:
        """Raise ValueError unless columns fit together and the items add up to the steps."""
        if not self.steps:
            return
        tables = ((self.steps, _STEPS), (self.items, (*KEY, "first", "last")), (self.parts, _PARTS))
        for columns, names in tables:
            if set(columns) != set(names) or len({len(c) for c in columns.values()}) > 1:
                raise ValueError("items of steps: columns are missing, or differ in length")
        for name, rows in (("item", len(self.items["sort"])), ("at", len(self))):
            column = self.parts[name]
            if len(column) and not 0 <= column.min() <= column.max() < rows:
                raise ValueError("items of steps: a part of no item, or of no step")
        if set(self.items["sort"].tolist()) - set(Sort):
            raise ValueError("items of steps: of an unknown sort")
        sums = np.zeros(len(self), np.int64)
        np.add.at(sums, self.parts["at"], self.parts["ns"])
        if (self.parts["ns"] < 0).any() or (sums != self.steps["ns"]).any():
            raise ValueError("items of steps: they do not add up to the steps")


INPUT = "input"
_STEPS = ("step", "window", "start_ns", "end_ns", "ns", "pause_ns")
_PARTS = ("item", "at", "ns", "count", "busy_ns")


SORTS = ("compute", "copy", "host", "input", "garbage collection")
"""What time of a rank goes to besides communication."""

EDGES = 4
"""Most operations of its rank that an operation waits for."""

NOT_REQUESTED = "not requested"


class Operations(msgspec.Struct, kw_only=True, eq=False):
    """Times are int64 ns on the rank's own clock; operations are ordered by start.

    Attributes:
        why:    why the rank is not in the graph; "" if it is.
        marked: whether the source marks steps; else the capture is one.
        steps:  (steps, 4): recording window, number, start and end of the device window.
        start_ns, end_ns: of each operation.
        step:   per operation, a row of ``steps``.
        call:   per operation, its row in the rank's
            :class:`~traceconv.alignment.collective_records.CollectiveRecords`; -1 of work.
        lead:   the name of its first kernel or copy, which begins when it does; -1 of others.
        before: (operations, :data:`EDGES`): rows of the operations that it waits for; -1 = none.
        host_ns: per operation, time from the end of the last of these to its start (of an operation
            that waits for none, from the start of its step) without a recorded cause.
        cause_at, cause, cause_ns: the rest of that time: the operation, which of :data:`SORTS` it
            went to, and how much; each pair once.
        names:  of kernels, copies and causes of idle time.
        sorts:  per name, one of :data:`SORTS`.
        at, name, ns, count: what work consists of: the operation, the name, the time that belongs
            to it (of two kernels at once, to the one that began first), and how many began. The
            parts of an operation add up to it, to the ns.
        recorded: those of :data:`SORTS` that the capture holds events of, whether or not anything
            waited for these.
    """

    why: str = NOT_REQUESTED
    marked: bool = True
    steps: I64 = np.zeros((0, 4), np.int64)
    start_ns: I64 = np.zeros(0, np.int64)
    end_ns: I64 = np.zeros(0, np.int64)
    step: I32 = np.zeros(0, np.int32)
    call: I32 = np.zeros(0, np.int32)
    lead: I32 = np.zeros(0, np.int32)
    before: I32 = np.zeros((0, EDGES), np.int32)
    host_ns: I64 = np.zeros(0, np.int64)
    cause_at: I32 = np.zeros(0, np.int32)
    cause: I8 = np.zeros(0, np.int8)
    cause_ns: I64 = np.zeros(0, np.int64)
    names: tuple[str, ...] = ()
    sorts: I8 = np.zeros(0, np.int8)
    at: I32 = np.zeros(0, np.int32)
    name: I32 = np.zeros(0, np.int32)
    ns: I64 = np.zeros(0, np.int64)
    count: I32 = np.zeros(0, np.int32)
    recorded: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.start_ns)

    def release(self) -> None:
        """Free what only the graph of the job needs, if no other graph is made: columns but
        for start, end and first kernel of operations."""
        empty = Operations()
        for name in ("step", "call", "before", "host_ns", "at", "name", "ns", "count"):
            setattr(self, name, getattr(empty, name))

    def check(self, calls: int) -> None:
        """Raise ValueError unless columns fit together and the parts add up."""
        n = len(self)
        columns = (self.end_ns, self.step, self.call, self.lead, self.before, self.host_ns)
        if {len(column) for column in columns} != {n} or len(self.sorts) != len(self.names):
            raise ValueError("replay: columns differ in length")
        if self.before.shape[1:] != (EDGES,):
            raise ValueError("replay: columns differ in shape")
        for parts in (
            (self.at, self.name, self.ns, self.count),
            (self.cause_at, self.cause, self.cause_ns),
        ):
            if len({len(column) for column in parts}) > 1:
                raise ValueError("replay: columns of parts differ in length")
        limits = (
            (self.step, 0, len(self.steps)), (self.call, -1, calls), (self.at, 0, n),
            (self.lead, -1, len(self.names)),
            (self.name, 0, len(self.names)), (self.sorts, 0, len(SORTS)),
            (self.cause_at, 0, n), (self.cause, 0, len(SORTS)),
        )  # fmt: skip
        if any(len(c) and not low <= c.min() <= c.max() < high for c, low, high in limits):
            raise ValueError("replay: a number that points at nothing")
        if (self.before < -1).any() or (self.before >= np.arange(n)[:, None]).any():
            raise ValueError("replay: an operation that waits for a later one")
        sums = np.zeros(n, np.int64)
        np.add.at(sums, self.at, self.ns)
        work = self.call < 0
        if (sums[work] != (self.end_ns - self.start_ns)[work]).any():
            raise ValueError("replay: the parts of an operation do not add up to it")


SCHEDULED, STARTED, COMPLETED = range(3)
STATES = ("scheduled", "started", "completed")


class Recorded(msgspec.Struct, frozen=True, eq=False):
    """The operations in the dump of one rank, in the order in which they were issued.

    Attributes:
        groups: name, purpose and global ranks of each process group; () where these are unknown.
        issued: what was issued: name, and input and output as texts.
        stacks: where, the innermost call first.
        group, what, stack: int32 per operation, indexes into these; -1 without a stack.
        number: int64, among the collectives of its group; of messages, among these.
        message: int8, :data:`.SEND`, :data:`.RECEIVE` or 0.
        peer:   int32, the place of the other rank in the group, -1 of collectives.
        state:  int8, one of :data:`STATES`.
        whole:  whether the dump still holds the first operation.
    """

    groups: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    issued: tuple[tuple[str, str, str], ...] = ()
    stacks: tuple[tuple[str, ...], ...] = ()
    group: NDArray[np.int32] = np.zeros(0, np.int32)
    what: I32 = np.zeros(0, np.int32)
    stack: I32 = np.zeros(0, np.int32)
    number: I64 = np.zeros(0, np.int64)
    message: I8 = np.zeros(0, np.int8)
    peer: I32 = np.zeros(0, np.int32)
    state: I8 = np.zeros(0, np.int8)
    whole: bool = False

    def __len__(self) -> int:
        return len(self.group)

    def check(self) -> None:
        """Raise ValueError unless columns fit together."""
        columns = (self.what, self.stack, self.number, self.message, self.peer, self.state)
        if {len(column) for column in columns} != {len(self)}:
            raise ValueError("flight recorder: columns differ in length")
        limits = ((self.group, 0, self.groups), (self.what, 0, self.issued),
                  (self.stack, -1, self.stacks), (self.state, 0, STATES))  # fmt: skip
        if any(len(c) and not low <= c.min() <= c.max() < len(table) for c, low, table in limits):
            raise ValueError("flight recorder: a number that points at nothing")
