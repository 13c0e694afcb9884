"""What the critical path needs of one rank: where its time went between its collectives.

A rank's time is cut at *points*: the starts and ends of its communication operations and the
borders of its steps. What the time between two points went to is kept as sums (:data:`PARTS`), so
what a rank takes grows with its collectives, not with its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.analysis.diff.items import Placed, placed
from traceconv.analysis.diff.labels import KEY, Cause, Sort
from traceconv.analysis.tables.host import Nest, launches
from traceconv.analysis.tables.module import marked_phases
from traceconv.analysis.utilisation import measured
from traceconv.core.columns import I8, I32, I64
from traceconv.core.intervals import intersection, length_within, merged, subtraction, union
from traceconv.core.model import Covered, Kind, Layer, StepSource, Trace
from traceconv.passes.overlap import device_times

PARTS = (
    "compute", "communication", "copy", "wait for input", "wait for host", "wait, cause unknown",
    "unrecorded", "outside of the step", "unmatched",
)  # fmt: skip
"""What time goes to; classes and causes of waiting are those of
:mod:`traceconv.analysis.diff.items`.

* ``communication``: that nothing hides, while one of the rank's known operations runs;
* ``unmatched``: the same while none does that could be looked up on other ranks;
* ``outside of the step``: before the rank's own step begins, or between two of its steps.
"""

COMPUTE, COMMUNICATION, COPY, INPUT, HOST, UNKNOWN_WAIT, UNRECORDED, OUTSIDE, UNMATCHED = range(9)

QUEUED_NS = 20_000
"""An operation that begins so soon after the one before it in its group was queued behind it."""

BRIEF_NS = 20_000
"""Gaps between kernels are so long without anything to wait for."""

FIRM, LATE, ASIDE = range(3)
"""Whether what came next on a rank waited for an operation that blocks. FIRM: it did, for it
followed at once. LATE: it followed after a while, or was launched after the end, so that the host
may have been late by itself. ASIDE: the operation had been hidden by other work, and it ended in a
gap of this that is as brief as any, or goes on for a while: it may have ended there by chance.
"""


PHASES = FORWARD, BACKWARD, BUBBLE, UNTOLD = range(4)
"""What a stage of a pipeline does: computing that was launched within ranges that are a forward or
a backward pass (as the table "phase" knows them), waiting for its neighbours: while it does nothing
but send or receive, and computing beside these where no range says of any which pass it is of.
Messages do not say it: two micro-batches of a schedule in which stages follow each other once send
what one does where the chain of stages turns back at the last (V-shaped), forward and backward at
once, and the last stage sends nothing between its passes."""

PHASE_NAMES = ("forward", "backward", "bubble", "pass unknown")

NOT_LOOKED_AT = "not looked at"


class PathRecords(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Times are int64 ns on the rank's own clock. Rows of operations are those of the rank's
    :class:`~traceconv.alignment.collective_records.CollectiveRecords`.

    Attributes:
        why:    why there is no path through this rank; "" if there can be.
        steps:  (steps, 3): number, and start and end of its device window, by start.
        points: ascending; time is cut there.
        at, part, ns: of a piece of time: the point it follows (index), index into :data:`PARTS`,
            its length. Ordered by ``at``.
        blocking: per operation, whether the rank did nothing but communicate when it ended.
        loose:  per operation that does, one of :data:`FIRM`, :data:`LATE`, :data:`ASIDE`.
        queued: per operation, whether it waited for the one before it in its group.
        phases: (n, 3): what it did as a stage of a pipeline, one of :data:`PHASES`, start and end;
            disjoint, by start. A pass lasts from its first task to the last before the other one,
            a bubble or other work. Without bubbles where no messages were recorded; where neither
            was, empty.
    """

    why: str = NOT_LOOKED_AT
    steps: I64 = np.zeros((0, 3), np.int64)
    points: I64 = np.zeros(0, np.int64)
    at: I32 = np.zeros(0, np.int32)
    part: I8 = np.zeros(0, np.int8)
    ns: I64 = np.zeros(0, np.int64)
    blocking: NDArray[np.bool_] = np.zeros(0, np.bool_)
    loose: I8 = np.zeros(0, np.int8)
    queued: NDArray[np.bool_] = np.zeros(0, np.bool_)
    phases: I64 = np.zeros((0, 3), np.int64)

    def check(self, operations: int) -> None:
        """Raise ValueError unless columns fit together and the pieces tile the points."""
        if self.why:
            return
        every = (self.blocking, self.loose, self.queued)
        cells = max(len(self.points) - 1, 0)
        tables = {self.steps.shape[1:], self.phases.shape[1:]}
        if {len(one) for one in every} != {operations} or tables != {(3,)}:
            raise ValueError("critical path: columns differ in length")
        if not len(self.at) == len(self.part) == len(self.ns) or (np.diff(self.points) <= 0).any():
            raise ValueError("critical path: columns differ in length")
        inside = (self.at >= 0) & (self.at < cells) & (self.part >= 0) & (self.part < len(PARTS))
        if not inside.all() or (self.ns <= 0).any() or (np.diff(self.at) < 0).any():
            raise ValueError("critical path: a piece of time that is nowhere")
        sums = np.zeros(cells, np.int64)
        np.add.at(sums, self.at, self.ns)
        if (sums != np.diff(self.points)).any():
            raise ValueError("critical path: pieces of time do not add up")


def path_records(trace: Trace, known: CollectiveRecords) -> PathRecords:
    """Those of a rank.

    Args:
        trace: after the passes of the detail view.
        known: its communication operations.
    """
    every = measured(trace.steps)
    if not len(every) or (every.source == StepSource.WHOLE_RANGE).any():
        return PathRecords(why="nothing marks its steps" if len(every) else "no steps with device "
                           "work were recorded")  # fmt: skip
    steps = every.take(every.covered == Covered.TIMELINE)
    devices = len(device_times(trace)) if len(steps) else 0
    if devices != 1 or trace.hints.partial_device:
        what = f"{devices} devices are in one capture" if devices > 1 else "no device work"
        return PathRecords(why=what if devices > 1 else f"{what} of its steps was recorded whole")
    spans = steps.device_spans
    points = _points(spans, known)
    cells = np.stack((points[:-1], points[1:]), axis=1)
    where = placed(trace, known)
    sets = _sets(where, known)
    lengths = np.stack([length_within(one, cells) for one in sets])
    inside = length_within(union(*spans.T), cells)
    lengths[UNRECORDED] = inside - lengths.sum(axis=0)
    lengths[OUTSIDE] = cells[:, 1] - cells[:, 0] - inside
    at, part = np.nonzero(lengths.T)
    exposed = merged(sets[COMMUNICATION], sets[UNMATCHED])
    near = np.stack((known.end_ns - 2, known.end_ns), axis=1)
    return PathRecords(
        why="",
        steps=np.stack((steps.step.astype(np.int64), *spans.T), axis=1),
        points=points,
        at=at.astype(np.int32),
        part=part.astype(np.int8),
        ns=lengths.T[at, part],
        blocking=length_within(exposed, near) > 0,
        loose=_loose(known, sets),
        queued=_queued(known, sets[COMPUTE]),
        phases=_phases(trace, where, bubbles(known, sets[COMMUNICATION]), spans),
    )


def _points(spans: I64, known: CollectiveRecords) -> I64:
    first, last = spans[0, 0], spans[:, 1].max()
    points = np.unique(np.concatenate((spans.ravel(), known.start_ns, known.end_ns)))
    kept: I64 = points[(points >= first) & (points <= last)]
    return kept


def _sets(where: Placed, known: CollectiveRecords) -> list[I64]:
    """When the rank did what, within its steps; empty of what is known by the rest."""
    sort, cause = KEY.index("sort"), KEY.index("type")
    parts: Mapping[tuple[str, str], int] = {
        (Sort.COMPUTE, ""): COMPUTE, (Sort.COMMUNICATION, ""): COMMUNICATION, (Sort.COPY, ""): COPY,
        (Sort.UNCLASSIFIED, ""): COMPUTE,  # work of the device that waits for nobody
        (Sort.WAIT, Cause.INPUT): INPUT, (Sort.WAIT, Cause.HOST): HOST,
        (Sort.WAIT, Cause.UNKNOWN): UNKNOWN_WAIT,
    }  # fmt: skip
    of_item = np.array(
        [parts[key[sort], key[cause] if key[sort] == Sort.WAIT else ""] for key in where.keys],
        np.int64,
    )
    of_span = of_item[where.item] if len(of_item) else where.item
    sets = [union(*where.spans[of_span == part].T) for part in range(len(PARTS))]
    running = union(known.start_ns, known.end_ns)
    sets[UNMATCHED] = subtraction(sets[COMMUNICATION], running)
    sets[COMMUNICATION] = subtraction(sets[COMMUNICATION], sets[UNMATCHED])
    return sets


def _loose(known: CollectiveRecords, sets: Sequence[I64]) -> I8:
    """:data:`FIRM`, :data:`LATE` or :data:`ASIDE`, per operation."""
    work = merged(sets[COMPUTE], sets[COPY])
    end, found = known.end_ns, np.full(len(known), FIRM, np.int8)
    begins = np.sort(np.concatenate((work[:, 0], known.start_ns)))
    after = np.append(begins, np.iinfo(np.int64).max)[np.searchsorted(begins, end)] - end
    late = (after > BRIEF_NS) | (length_within(sets[HOST], np.stack((end, end + 2), axis=1)) > 0)
    found[late] = LATE
    # work that ended last before the end of the operation, which may have begun before that; one
    # of those queued behind each other begins with the first of them
    ended = np.concatenate(([np.iinfo(np.int64).min], work[:, 1]))
    since = ended[np.searchsorted(work[:, 1], end, "right")]
    heads = np.ones(len(known), bool)
    heads[1:] = ~adjacent(known)
    begun = known.start_ns[np.maximum.accumulate(np.where(heads, np.arange(len(known)), 0))]
    found[(begun < since) & ((end - since <= BRIEF_NS) | late)] = ASIDE
    return found


def adjacent(known: CollectiveRecords) -> NDArray[np.bool_]:
    """Of all but the first operation, whether it follows the one before it in its group at once."""
    gap = known.start_ns[1:] - known.end_ns[:-1]
    found: NDArray[np.bool_] = (np.diff(known.group) == 0) & (gap >= 0) & (gap <= QUEUED_NS)
    return found


def _queued(known: CollectiveRecords, compute: I64) -> NDArray[np.bool_]:
    """Whether an operation began when the one before it in its group let it, and not when the rank
    had come to it: it follows at once, while the rank computes. Rows are by group, then start."""
    found = np.zeros(len(known), bool)
    found[1:] = adjacent(known)
    computing = length_within(compute, np.stack((known.start_ns - 1, known.start_ns + 1), axis=1))
    return found & (computing > 0)


def bubbles(known: CollectiveRecords, exposed: I64) -> I64:
    """When a rank does nothing but send or receive.

    Args:
        exposed: when it communicates and does not compute.
    """
    messages = known.messages
    others = union(known.start_ns[~messages], known.end_ns[~messages])
    return intersection(
        exposed, subtraction(union(known.start_ns[messages], known.end_ns[messages]), others)
    )


def _phases(trace: Trace, where: Placed, bubbles: I64, steps: I64) -> I64:
    """Passes and bubbles; see :class:`PathRecords`."""
    phase = _launched_in(trace)
    compute = np.array([key[KEY.index("sort")] == Sort.COMPUTE for key in where.keys], bool)
    own = np.flatnonzero((where.row >= 0) & compute[where.item]) if len(compute) else where.row
    passes = phase[where.row[own]]
    if len(bubbles) and (passes < 0).all():
        passes = np.full(len(own), UNTOLD)
    kinds = np.concatenate((passes, np.full(len(bubbles), BUBBLE)))
    spans = np.concatenate((where.spans[own], bubbles))
    if not len(kinds):
        return np.zeros((0, 3), np.int64)
    order = np.argsort(spans[:, 0], kind="stable")
    kinds, spans = kinds[order], spans[order]
    step = np.searchsorted(steps[:, 0], spans[:, 0], "right")
    follows = (kinds[1:] == kinds[:-1]) & (step[1:] == step[:-1])
    follows &= (kinds[1:] != BUBBLE) | (spans[1:, 0] == spans[:-1, 1])
    first = np.flatnonzero(np.concatenate(([True], ~follows)))
    last = np.append(first[1:], len(kinds)) - 1
    found = np.stack((kinds[first], spans[first, 0], spans[last, 1]), axis=1)
    kept: I64 = found[found[:, 0] >= 0]
    return kept


def _launched_in(trace: Trace) -> I64:
    """The pass in whose outermost range the call that launched each event row was, -1 if none."""
    found = np.full(len(trace.events), -1, np.int64)
    host = trace.rows_of(Layer.HOST) & (trace.events.kind == Kind.SLICE) & (trace.events.step < 0)
    rows, names = marked_phases(trace, np.flatnonzero(host))
    if not len(rows):
        return found
    nest, calls = Nest.of(trace, rows), launches(trace)
    at = nest.at(calls.thread, calls.time_ns)
    while (inner := (at >= 0) & (nest.parent[at] >= 0)).any():
        at = np.where(inner, nest.parent[at], at)
    kind = np.select([names.among("Forward"), names.among("Backward")], [FORWARD, BACKWARD], -1)
    of = kind[np.searchsorted(rows, nest.rows)]
    held = at >= 0
    found[calls.device[held]] = of[at[held]]
    return found
