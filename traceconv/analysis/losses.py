"""Lost time per step: disjoint classes of device time.

Of the device windows of the steps that a capture covers, as :mod:`traceconv.analysis.utilisation`
takes them; every instant counts in one class only:

* waiting for a rank or pipeline stage that takes longer than its peers, or for uneven work, in
  communication that is not overlapped or idle;
* other communication that is not overlapped;
* waiting for input (:mod:`traceconv.passes.input_wait`), which is idle time;
* idle otherwise;
* memory copies that nothing hides (on NPUs they are idle time, as the vendor counts);
* pauses: idle time between steps, outside their windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.rank_facts import COPIES, EXPOSED, IDLE, INPUT, LATE, PAUSE, Losses
from traceconv.analysis.tables.definition import RANK
from traceconv.analysis.utilisation import measured, share
from traceconv.core.columns import I64, UNKNOWN, OverlapSums, StepTable
from traceconv.core.model import STEP_TABLE, Covered
from traceconv.core.side_tables import ABSENT, Columns

INPUT_MS = 10.0
"""A step that waits longer for input is slow for that: msprof-analyze's limit of a DataLoader."""

INPUT_PERCENT = 5.0
"""The same as a share of the step: PaddlePaddle's limit of its Reader Ratio."""


def losses(steps: StepTable, overlap: OverlapSums | None, devices: int) -> Losses:
    """The losses of a rank from its trace; see :func:`stated_losses` for a rank without one.

    Args:
        steps:   of its trace.
        overlap: sums of its overlap analysis, which are taken where no step is covered.
        devices: of which these are sums.
    """
    steps = measured(steps)
    if not len(steps):
        return Losses() if overlap is None else _of_capture(overlap, devices)
    waits = steps.input_wait_ns
    known_ns, computing, exposed, free = (
        int(column.sum())
        for column in (steps.known_ns, steps.computing_ns, steps.not_overlapped_ns, steps.free_ns)
    )
    unclassified = int(np.maximum(steps.unclassified_ns, 0).sum())
    if not (computing or unclassified):  # copies and collectives do not tell what else there was
        return Losses()
    return Losses(
        steps=len(steps),
        per_step=bool(steps.marked.all()),
        known_ns=known_ns,
        computing_ns=computing,
        exposed_ns=exposed,
        unclassified_ns=unclassified,
        copies_ns=known_ns - computing - unclassified - exposed - free,
        free_ns=free,
        input_ns=int(waits[waits >= 0].sum()) if (waits >= 0).any() else UNKNOWN,
        input_steps=int(np.count_nonzero(waits >= 0)),
        pauses=int(np.count_nonzero(steps.pause_ns >= 0)),
        pause_ns=int(steps.pause_ns[steps.pause_ns >= 0].sum()),
        source=STEP_TABLE if (steps.covered == Covered.VENDOR_TABLE).all() else "",
        devices=devices,
    )


def stated_losses(columns: Columns, rank: int) -> dict[int, Losses]:
    """The losses in the profiler's own table of steps, for every rank that it names.

    Args:
        columns: columns of the table "overlap" of steps that only such a table knows; {} if none.
        rank:   whose they are where the table names no ranks.
    """
    if not columns:
        return {}
    rank_column = columns.get(RANK, np.full(len(columns["step"]), rank, np.int64))
    by_rank = {}
    for owner in np.unique(rank_column).tolist():
        rows = {name: column[rank_column == owner] for name, column in columns.items()}
        waits = rows["input_wait_ns"]
        known_ns, computing, exposed, free = (
            int(rows[name].sum())
            for name in ("known_ns", "computing_ns", "not_overlapped_ns", "free_ns")
        )
        by_rank[owner] = Losses(
            steps=len(waits),
            per_step=bool((rows["step"] != ABSENT).all()),
            known_ns=known_ns,
            computing_ns=computing,
            exposed_ns=exposed,
            copies_ns=known_ns - computing - exposed - free,
            free_ns=free,
            input_ns=int(waits[waits != ABSENT].sum()) if (waits != ABSENT).any() else UNKNOWN,
            input_steps=int(np.count_nonzero(waits != ABSENT)),
            source=rows["source"][0],
        )
    return by_rank


def _of_capture(overlap: OverlapSums, devices: int) -> Losses:
    sums = overlap.sums_ns
    if not (sums.computing or sums.unclassified):
        return Losses()
    copies = sums.known - sums.computing - sums.not_overlapped - sums.unclassified - overlap.idle_ns
    return Losses(int(sums.known > 0), False, sums.known, sums.computing, sums.unclassified,
                  sums.not_overlapped, copies, overlap.idle_ns, devices=devices)  # fmt: skip


def waiting_for_input(input_ns: I64, known_ns: I64) -> NDArray[np.bool_]:
    """Which steps wait for input too long to say that their host keeps up."""
    waits: NDArray[np.bool_] = input_ns > INPUT_MS * 1e6
    waits |= share(input_ns, known_ns) > INPUT_PERCENT  # NaN, of unknown values, is not
    return waits


# -- of all ranks -------------------------------------------------------------------------


def of_all(sources: Iterable[Mapping[int, Losses]]) -> dict[int, Losses]:
    """The losses of every rank: measured ones, else those that its files state."""
    by_rank: dict[int, Losses] = {}
    for source in sources:
        for rank, rank_losses in source.items():
            if rank not in by_rank or (
                by_rank[rank].source and rank_losses.steps and not rank_losses.source
            ):
                by_rank[rank] = rank_losses
    return by_rank


class Late(msgspec.Struct, frozen=True):
    """A rank, a pipeline stage or uneven work that ranks wait for.

    Attributes:
        rank:   which; -1 of a stage and of uneven work.
        others: ranks that wait for it.
        per_step_ns: how long each of these waits per step: by how much a step of the replay is
            shorter if the rank or stage takes as long as its peers. What other ranks compute stays
            the same, so they wait that much less.
        stage:  which; else -1.
    """

    rank: int
    others: Sequence[int]
    per_step_ns: int
    stage: int = -1


class Loss(msgspec.Struct, frozen=True):
    """One class of lost time of a job.

    Attributes:
        name: of the class.
        ns:   per step: the mean over ranks.
        rank, stage: that others wait for, -1 of other classes.
        rest: whether the class holds more, which another loss names as waiting for a rank or stage.
        bound: "" if it is known exactly; "least" for waiting for input that only some steps record
            and for gaps if less than half are known, "most" for the rest of the idle time, and for
            exposed communication that unclassified work may hide.
    """

    name: str
    ns: float
    rank: int = -1
    stage: int = -1
    rest: bool = False
    bound: str = ""


def lost(by_rank: Mapping[int, Losses], late: Sequence[Late] = ()) -> list[Loss]:
    """The losses of a step of the job, largest first: the mean over the ranks that know them.

    Each rank waits for a late one as long as the replay says, but at most as long as it lost. That
    is taken out of its communication that is not overlapped first, then out of its idle time, so
    computing and all losses add up to the step.
    """
    known = {rank: rank_losses for rank, rank_losses in by_rank.items() if rank_losses.steps}
    if not known:
        return []
    remaining = {
        name: {rank: rank_losses.per(name) for rank, rank_losses in known.items()}
        for name in (EXPOSED, IDLE)
    }
    classes, split = [], set()
    for late_one in late:
        waited = 0.0
        for rank in known.keys() & set(late_one.others):
            wait = float(late_one.per_step_ns)
            for name, ns_by_rank in remaining.items():
                taken = min(wait, ns_by_rank[rank])
                if taken > 0:
                    split.add(name)
                    ns_by_rank[rank] -= taken
                    wait -= taken
                    waited += taken
        classes.append(Loss(LATE, waited / len(known), late_one.rank, late_one.stage))
    input_counts = [(rank_losses.input_steps, rank_losses.steps) for rank_losses in known.values()]
    is_partial = any(n for n, _ in input_counts) and any(n < steps for n, steps in input_counts)
    bounds = {INPUT: "least", IDLE: "most"} if is_partial else {}
    if any(
        100 * rank_losses.unclassified_ns >= rank_losses.known_ns for rank_losses in known.values()
    ):
        bounds[EXPOSED] = "most"
    if any(2 * rank_losses.pauses < rank_losses.steps - 1 for rank_losses in known.values()):
        bounds[PAUSE] = "least"
    for name in (EXPOSED, INPUT, IDLE, COPIES, PAUSE):
        ns_of_ranks = remaining.get(name) or {
            rank: rank_losses.per(name) for rank, rank_losses in known.items()
        }
        mean = sum(ns_of_ranks.values()) / len(known)
        classes.append(Loss(name, mean, rest=name in split, bound=bounds.get(name, "")))
    return sorted((loss for loss in classes if loss.ns > 0), key=lambda loss: -loss.ns)
