"""What makes the steps of a job longer than they have to be: a verdict, and its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from traceconv.alignment.plan import METHOD_TEXT
from traceconv.analysis.hang import Hang
from traceconv.analysis.losses import Late
from traceconv.analysis.rank_facts import SORTS
from traceconv.analysis.replay.job import Replay
from traceconv.analysis.replay.operations import COLLECTOR, COMPUTE, COPY, HOST, INPUT
from traceconv.analysis.replay.remedies import OF_UNEVEN_WORK, Change, Remedy, remedies
from traceconv.analysis.stragglers.links import SlowGroup
from traceconv.core.clock import in_one_unit, time_text
from traceconv.core.job_shape import called
from traceconv.core.markup import aligned
from traceconv.core.rank_ranges import format_ranges

SCHEMA_VERSION = 3

MATERIAL = 0.01
"""Share of a step below which a cost is not named, nor the replay error."""

HANG = "hang"
STRAGGLER, SLOW_GROUP, STAGES = "straggler", "slow group", "uneven stages"
UNEVEN, NOBODY = "uneven work", "none"
NO_VERDICT = "no verdict"
"""Verdicts."""

CONSTANT, INTERMITTENT = "constant", "intermittent"
"""A rank is late in most steps, or in some."""

Step = tuple[int, int]
"""Recording window and number of a step."""

_SHOWN = 8  # numbers of steps
_ROWS = 8  # ranks of the table
_UNEVEN = 1.005  # a slowdown that is named

_MOSTLY = 2 / 3  # of a gain
_CAUSES = {COMPUTE: "computing", COPY: "copies", HOST: "host", INPUT: "input",
           COLLECTOR: "garbage collection"}  # fmt: skip

_ADVICE = {
    COMPUTE: "Compare clock rates, power, temperature and other load of this device with those of "
    "its peers; if they are alike, it has more work.",
    COPY: "Move copies off the critical path: pinned memory, non-blocking copies, fewer of them.",
    HOST: "Look at the process on its host: other load, CPU affinity, Python work and "
    "synchronisation between launches.",
    INPUT: "Give its input pipeline more workers or prefetch further; check its storage.",
    COLLECTOR: "Disable automatic garbage collection, and collect on all ranks in the same step.",
}
_OTHER = (COPY, INPUT, COLLECTOR)
_IDLE_ADVICE = "Record host calls (CPU activities) to see what it waits for."


class Finding(msgspec.Struct, frozen=True):
    """A rank that makes steps longer, in the run or in one step.

    Attributes:
        rank:    which.
        pattern: :data:`CONSTANT` or :data:`INTERMITTENT`; "" of a single step that is part of
            neither, which may be chance.
        excess_ns: what it takes longer than its peers by itself, per step; of a single step, in it.
        gain_ns: what a step would be shorter by if it took as long as its peers, while all others
            that are slow did, too.
        interval_ns: 95 % interval of that; unknown of a single step.
        parts_ns: what it takes longer by, by :data:`~..replay.operations.SORTS`.
        kernel:  that accounts for most of it; "" if none does.
        late_steps: numbers of the steps in which it is late; of_steps: how many were compared.
        since:   whether it is late from the first of these on, and was not before.
        peers:   how many ranks it is compared with.
        together: other ranks that are late, too.
        step:    the step, or -1 for the run.
        share:   of the mean step that ``gain_ns`` is; of a single step, of that.
        slice_name, start_ns: of the kernel that begins the operation that shows it best, on the
            rank's own clock; "" if there is none; dur_ns: how long that takes.
        coordinates: as texts name the rank; "" where they are unknown.
        hidden:  whether ``excess_ns`` is how much later it begins communication, all of a step
            together, while it works: its own time is not longer.
        idle:    whether host calls were not recorded, so that what else it is idle for is unknown.
        unclassified: whether no device work is known to compute.
    """

    rank: int
    pattern: str
    excess_ns: int
    gain_ns: int
    interval_ns: tuple[int, int] = (0, 0)
    parts_ns: tuple[int, ...] = ()
    kernel: str = ""
    late_steps: tuple[int, ...] = ()
    of_steps: int = 1
    since: bool = False
    peers: int = 1
    together: tuple[int, ...] = ()
    step: int = -1
    share: float = 0.0
    slice_name: str = ""
    start_ns: int = 0
    dur_ns: int = 0
    coordinates: str = ""
    hidden: bool = False
    idle: bool = False
    unclassified: bool = False

    @property
    def called(self) -> str:
        """How texts name the rank."""
        return called(self.rank, self.coordinates)

    @property
    def sort(self) -> int:
        """What accounts for most of it, an index into :data:`~..replay.operations.SORTS`."""
        return int(np.argmax(self.parts_ns)) if self.parts_ns else COMPUTE

    @property
    def why(self) -> str:
        """The reason in a word; "" if it is unknown."""
        if self.idle and self.sort == HOST:
            return "idle time"
        if self.unclassified and self.sort == COMPUTE:
            return "unclassified work"
        return _CAUSES[self.sort] if self.parts_ns and max(self.parts_ns) > 0 else ""

    @property
    def cause(self) -> str:
        """The cause in words."""
        if self.sort != COMPUTE:
            return f"{_CAUSES[self.sort]} of one rank"
        if self.since:
            return "one rank slower from some step on"
        return "one rank slow" if self.pattern == CONSTANT else "one rank slow in some steps"

    @property
    def advice(self) -> str:
        """What to do, in one sentence."""
        if self.sort == COMPUTE and self.since:
            return (
                "It became slower during the capture: look for thermal or power throttling of "
                "this device at that time."
            )
        return _IDLE_ADVICE if self.idle and self.sort == HOST else _ADVICE[self.sort]

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "rank": self.rank,
            "step": self.step if self.step >= 0 else None,
            "pattern": self.pattern or None,
            "gain_ns": self.gain_ns,
            "gain_share": self.share,
            "gain_interval_ns": list(self.interval_ns) if self.step < 0 else None,
            "excess_ns": self.excess_ns,
            "late_steps": list(self.late_steps),
            "of_steps": self.of_steps,
            "peers": self.peers,
            "together": list(self.together),
            "cause": self.why,
            "kernel": self.kernel or None,
            "parts_ns": dict(zip(SORTS, self.parts_ns, strict=False)),
            "slice": self.slice_name or None,
            "start_ns": self.start_ns if self.slice_name else None,
            "dur_ns": self.dur_ns if self.slice_name else None,
            "advice": self.advice,
            "text": self.text(),
        }

    def text(self) -> str:
        """One line for people: the same everywhere."""
        if self.step >= 0:
            return self.of_step(time_text(self.excess_ns), time_text(self.gain_ns))
        longer, when = self.excess_ns, f"per step ({self.of_steps} steps)"
        if self.pattern == INTERMITTENT and self.late_steps:
            longer = round(longer * self.of_steps / len(self.late_steps))
            when = f"in {len(self.late_steps)} of {self.of_steps} steps ({some(self.late_steps)})"
            if self.since:
                when = f"from step {self.late_steps[0]} on"
        with_it = f"; late as well: {ranks_text(self.together)}" if self.together else ""
        costs = f"{time_text(self.gain_ns)} per step"
        if self.share:
            costs += f" ({100 * self.share:.2g} % of the recorded step)"
        does = f"takes {time_text(longer)} longer"
        if self.hidden:
            does = f"begins communication {time_text(longer)} later"
        return (
            f"{self.called} {does} than {self._peers} {when}{self._cause}; "
            f"it costs {costs}{with_it}"
        )

    @property
    def _peers(self) -> str:
        return "its peer" if self.peers == 1 else f"{self.peers} peers"

    @property
    def _cause(self) -> str:
        kernel = f" ({self.kernel})" if self.kernel else ""
        return f", mostly {self.why}{kernel}" if self.why else kernel

    def of_step(self, longer: str, costs: str) -> str:
        """The line for single steps.

        Args:
            longer, costs: how much longer the rank takes, and what that costs.
        """
        chance = "" if self.pattern else ", maybe by chance"
        return (
            f"{self.called} takes {longer} longer than {self._peers}{self._cause}; that costs "
            f"{costs}{chance}"
        )


class SlowStage(msgspec.Struct, frozen=True):
    """A pipeline stage with more work than the others.

    Attributes:
        stage, ranks: which.
        excess_ns: what its ranks work longer than those of the other stages, per step.
        gain_ns: what a step would be shorter by if all stages had equal work.
        interval_ns: 95 % interval of that.
        share: of the mean step that it is.
        waits_ns: how long the other stages wait for it: what a step would be shorter by if its
            ranks worked as long as those of the other stages, and these as long as now.
    """

    stage: int
    ranks: tuple[int, ...]
    excess_ns: int
    gain_ns: int
    interval_ns: tuple[int, int]
    share: float = 0.0
    waits_ns: int = 0

    advice = "Move layers to other stages, or split the embedding or loss layers from this one."

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "stage": self.stage, "ranks": list(self.ranks), "excess_ns": self.excess_ns,
            "gain_ns": self.gain_ns, "gain_interval_ns": list(self.interval_ns),
            "advice": self.advice, "text": self.text(),
        }  # fmt: skip

    @property
    def longer(self) -> str:
        """``stage 3 (ranks 6-7) works 532 ms longer``."""
        longer = time_text(self.excess_ns)
        return f"stage {self.stage} ({ranks_text(self.ranks)}) works {longer} longer"

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.longer} than the other stages per step; equal stages would save "
            f"{time_text(self.gain_ns)} per step ({100 * self.share:.2g} % of the recorded step)"
        )


class UnevenWork(msgspec.Struct, frozen=True):
    """Work that moves between ranks and micro-batches from step to step, where no rank is slow.

    Attributes:
        gain_ns: what a step would be shorter by if ranks with the same role had equally much work
            in each step, and micro-batches of a step, too.
        interval_ns: 95 % interval of that.
        share: of the mean step that it is.
        of_ranks, of_batches: standard deviations of the work of ranks within a step, and of
            micro-batches of a rank and step, as shares of it; noise left out.
    """

    gain_ns: int
    interval_ns: tuple[int, int]
    share: float
    of_ranks: float
    of_batches: float

    advice = OF_UNEVEN_WORK.advice

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "gain_ns": self.gain_ns, "gain_interval_ns": list(self.interval_ns),
            "spread_of_ranks": self.of_ranks, "spread_of_micro_batches": self.of_batches,
            "advice": self.advice, "text": self.text(),
        }  # fmt: skip

    @property
    def spread(self) -> str:
        """By how much work differs."""
        text = f"ranks differ by {100 * self.of_ranks:.2g} % in a step"
        if self.of_batches:
            text = f"micro-batches differ by {100 * self.of_batches:.2g} %, {text}"
        return text

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.spread}; equal work would save "
            f"{time_text(self.gain_ns)} per step ({100 * self.share:.2g} % of the recorded step)"
        )


class Verdict(msgspec.Struct, frozen=True):
    """What makes the steps of a job longer.

    Attributes:
        ranks:  of the job that have a capture.
        method: how their clocks were aligned.
        culprits: the ranks that make steps longer, those that cost most first.
        slow_groups: groups whose transfers are slow.
        stage:  the stage with more work than the others, if one has.
        steps:  per step, the rank that made it longer by a part that matters: an observation,
            unless the rank is a culprit. None: no rank stands out.
        compared: collectives that at least two ranks were seen in.
        reason: where nothing is named: why, and what was seen.
        bound_ns: where no rank stands out: what one could cost at most; None if that is unknown.
        limits: what the verdict does not cover.
        step_ns: the mean step.
        uneven: work that moves between ranks, if that costs a part of a step that matters.
        replay: of the job, or None.
        saves_ns: what a step would be shorter by if all culprits were like their peers.
        hang:   where the job hangs, by dumps of the flight recorder; then nothing else is said.
    """

    ranks: tuple[int, ...]
    method: str
    culprits: tuple[Finding, ...] = ()
    slow_groups: tuple[SlowGroup, ...] = ()
    stage: SlowStage | None = None
    steps: Mapping[Step, Finding | None] = msgspec.field(default_factory=dict)
    compared: int = 0
    reason: str = ""
    bound_ns: int | None = None
    limits: tuple[str, ...] = ()
    step_ns: float = 0.0
    uneven: UnevenWork | None = None
    replay: Replay | None = None
    saves_ns: int = 0
    hang: Hang | None = None

    def __repr__(self) -> str:
        return f"<Verdict: {self.line()}>"

    @property
    def kind(self) -> str:
        """The most expensive cause: :data:`STRAGGLER`, :data:`SLOW_GROUP`, :data:`STAGES` or
        :data:`UNEVEN`; else :data:`NOBODY` or :data:`NO_VERDICT`."""
        if self.hang:
            return HANG
        if self.named:
            return _KINDS[type(self.named[0])]
        return NO_VERDICT if self.bound_ns is None else NOBODY

    @property
    def named(self) -> list[Finding | SlowGroup | SlowStage | UnevenWork]:
        """All causes that are named, the most expensive first. Uneven work counts less, as in
        :mod:`traceconv.analysis.replay.remedies`: no job gets rid of all of it."""
        causes: list[Finding | SlowGroup | SlowStage | UnevenWork] = [*self.culprits]
        causes += self.slow_groups
        if self.stage:
            causes.append(self.stage)
        if self.uneven:
            causes.append(self.uneven)
        uneven = OF_UNEVEN_WORK.weight
        return sorted(
            causes,
            key=lambda cause: -cause.gain_ns * (uneven if isinstance(cause, UnevenWork) else 1),
        )

    @property
    def gain_ns(self) -> int:
        """The time per step that is saved if all late ranks are like their peers."""
        return self.saves_ns

    def headline(self) -> str:
        """What costs most, how much of a step that is, and what to do; "" if nothing is named."""
        if self.hang:
            return "H" + self.hang.line()[1:]
        if not self.named:
            return ""
        cause = self.named[0]
        share = 100 * cause.gain_ns / max(self.step_ns, 1.0)
        costs = f"costs {time_text(cause.gain_ns)} per step ({share:.2g} %)"
        if isinstance(cause, Finding):
            why = f", mostly {cause.why}" if cause.why else ""
            return f"R{cause.called[1:]} {costs}{why}. {cause.advice}"
        if isinstance(cause, SlowStage):
            return (
                f"Equal stages would save {time_text(cause.gain_ns)} per step ({share:.2g} %): "
                f"{cause.longer} than the others. {cause.advice}"
            )
        if isinstance(cause, UnevenWork):
            return f"Uneven work {costs}: {cause.spread}. {cause.advice}"
        return f"The slow link of {ranks_text(cause.ranks)} {costs}. {cause.advice}"

    def remedies(self) -> tuple[Remedy, ...]:
        """The changes that gain most."""
        if self.replay is None:
            return ()
        changes = [
            Change(finding.cause, f"rank:{finding.rank}=peers", finding.advice)
            for finding in self.culprits
        ]
        if len(changes) > 1 and self._is_shared():
            culprits = ",".join(str(finding.rank) for finding in self.culprits)
            changes.insert(
                0, Change("several ranks slow", f"rank:{culprits}=peers", changes[0].advice)
            )
        for group in self.slow_groups:
            factor = f"x{group.usual_ns / max(group.time_ns, 1):.4f}"
            changes.append(Change("slow link", f"comm:{group.key} {factor}", group.advice))
        if self.stage:
            changes.append(Change("uneven stages", "stage:balanced", self.stage.advice))
        replay, listed = self.replay, [change.change for change in changes]
        return replay.once(
            f"remedies of {listed}", tuple[Remedy, ...], lambda: remedies(replay, changes)
        )

    def _is_shared(self) -> bool:
        """Whether no single rank accounts for most of the cost of all slow ranks."""
        assert self.replay is not None
        columns = [[self.replay.graph.ranks.index(finding.rank)] for finding in self.culprits]
        alone = (self.replay.base - self.replay.mended(*columns)).mean(axis=1)
        return bool(alone.max() < _MOSTLY * self.saves_ns)

    def replayed(self) -> Any:
        """The replay of the job, or why nothing can be concluded from one."""
        if self.replay is None:
            return self.reason
        return self.replay if self.replay.usable else self.replay.too_wrong

    @property
    def late(self) -> tuple[Late, ...]:
        """The ranks, the stage and the uneven work that others wait for, and how long. Among ranks
        that are late in the same steps, only the one that causes the longest wait; these do not
        wait for it."""
        waits: list[Late] = []
        late_steps: set[int] = set()
        for finding in self.culprits:
            if not late_steps & set(finding.late_steps):
                late_steps |= set(finding.late_steps)
                slow = {
                    two.rank for two in self.culprits if {*finding.late_steps} & {*two.late_steps}
                }
                waiting = tuple(rank for rank in self.ranks if rank not in {finding.rank, *slow})
                waits.append(Late(finding.rank, waiting, finding.gain_ns))
        if self.stage:
            waiting = tuple(rank for rank in self.ranks if rank not in self.stage.ranks)
            waits.append(Late(-1, waiting, self.stage.waits_ns, self.stage.stage))
        if self.uneven:
            waits.insert(0, Late(-1, self.ranks, self.uneven.gain_ns))
        return tuple(waits)

    def covers(self, kind: str, rank: int) -> bool:
        """Whether it names a cause of this kind: a straggler that is this rank, or uneven stages
        (of which it says what each has)."""
        if kind == STRAGGLER:
            return any(culprit.rank == rank for culprit in self.culprits)
        return kind == STAGES and self.stage is not None

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        culprit = self.culprits[0] if self.culprits else None
        return {
            "schema_version": SCHEMA_VERSION,
            "ranks": list(self.ranks),
            "clock": self.method,
            "collectives": self.compared,
            "verdict": self.kind,
            "text": self.line(),
            "reason": self.reason,
            "bound_ns": self.bound_ns,
            "gain_ns": self.gain_ns if self.culprits else None,
            "culprit": culprit.as_dict() if culprit else None,
            "others": [finding.as_dict() for finding in self.culprits[1:]],
            "slow_groups": [group.as_dict() for group in self.slow_groups],
            "stage": self.stage.as_dict() if self.stage else None,
            "uneven": self.uneven.as_dict() if self.uneven else None,
            "replay": self.replay.as_dict() if self.replay else None,
            "steps": [
                {"window": window, "step": number, "late": finding.as_dict() if finding else None}
                for (window, number), finding in self.steps.items()
            ],
            "limits": list(self.limits),
            "hang": self.hang.as_dict() if self.hang else None,
        }

    def line(self) -> str:
        """What costs most, or why nothing is named: the same words everywhere."""
        if self.hang:
            return self.hang.line()
        if self.named:
            prefix = "" if self.kind == SLOW_GROUP else f"{self.kind}: "
            return f"{prefix}{self.named[0].text()}"
        return f"{NO_VERDICT if self.bound_ns is None else 'no rank stands out'}: {self.reason}"

    @property
    def longer_ns(self) -> dict[int, int]:
        """How much longer than its peers each rank takes by itself, ns per step; {} if unknown."""
        replay: Replay | None = self.replay
        if not replay or not replay.usable:
            return {}
        excess = np.nan_to_num(replay.own.excess).sum(axis=0)
        steps = np.maximum((~np.isnan(replay.own.excess)).sum(axis=0), 1)
        means = np.maximum(excess / steps, 0).round().astype(int).tolist()
        longer = dict(zip(replay.graph.ranks, means, strict=True))
        named = (finding for finding in self.culprits if not finding.hidden)
        return longer | {finding.rank: finding.excess_ns for finding in named}

    def _recorded(self, sort: int) -> bool:
        every = self.replay.every if self.replay else ()
        return any(sort in one.replay.recorded for one in every)

    def rank_lines(self, every: bool = False) -> list[str]:
        """A table of the ranks: those that the verdict names first, marked; then those that take
        longest by themselves. [] where they are not compared.

        Args:
            every: all ranks, not only the first.
        """
        longer = self.longer_ns
        if len(longer) < 2 or not self.replay:
            return []
        graph, own = self.replay.graph, self.replay.own
        recorded = ~np.isnan(own.table)
        sums = np.where(recorded[..., None], np.nan_to_num(own.parts), 0).sum(axis=0)
        means = sums / np.maximum(recorded.sum(axis=0), 1)[:, None]
        parts = dict(zip(graph.ranks, means.tolist(), strict=True))
        alone = dict(zip(graph.ranks, np.nanmean(own.table, axis=0).tolist(), strict=True))
        gains = {finding.rank: finding.gain_ns for finding in self.culprits}
        named = {*gains, *(self.stage.ranks if self.stage else ())}
        order = sorted(
            longer, key=lambda rank: (rank not in named, -gains.get(rank, 0), -longer[rank], rank)
        )
        shown = order if every else order[:_ROWS]
        lengths = {
            "longer": [longer[rank] for rank in shown],
            "own computing" if self._recorded(COMPUTE) else "own work": [
                parts[rank][COMPUTE] for rank in shown
            ],
            "own host" if self._recorded(HOST) else "own idle": [
                parts[rank][HOST] for rank in shown
            ],
            "own other": [sum(parts[rank][sort] for sort in _OTHER) for rank in shown],
            "waiting": [max(float(graph.recorded_ns.mean()) - alone[rank], 0) for rank in shown],
            "costs": [gains.get(rank) for rank in shown],
        }
        called = [f"{self.replay.shape.called(rank)}{' *' * (rank in named)}" for rank in shown]
        columns = [["mean per step and gap" + ", * named" * bool(named), *called]]
        columns += [[head, *in_one_unit(ns)] for head, ns in lengths.items() if any(ns)]
        lines = aligned(zip(*columns, strict=True), (0,))
        if self.stage:
            lines.append("longer: than the other ranks of the same stage")
        hidden = len(order) - len(shown)
        return lines + [f"{hidden} more ranks"] * (hidden > 0)

    def lines(self, every: bool = False) -> list[str]:
        """What people read, without the steps.

        Args:
            every: also how far the job is from one with equal ranks.
        """
        if self.hang:
            return self.hang.lines()
        if len(self.ranks) == 1 or not (self.compared or self.named):
            return [self.line()]
        lines = [self.line(), *(f"also: {cause.text()}" for cause in self.named[1:])]
        lines += [f"advice: {cause.advice}" for cause in self.named[:1]]
        if every and self.named and self.replay and self.replay.slowdown >= _UNEVEN:
            lines.append(
                f"without idle time, a step takes {self.replay.slowdown:.2f} times as long as with "
                "equal ranks and links"
            )
        lines += [f"note: {limit}" for limit in self.limits]
        clock = " + ".join(METHOD_TEXT.get(method, method) for method in self.method.split(" + "))
        basis = f"based on {self.compared} collectives of {len(self.ranks)} ranks; clock: {clock}"
        if self.replay and self.replay.usable and self.replay.error >= MATERIAL:
            basis += f"; {self.replay.error_text}"
        return [*lines, basis]

    def step_lines(self) -> list[str]:
        """Which rank made each step longer; steps in which none did share a line. None where that
        is true of all."""
        if not any(self.steps.values()):
            return []
        several = len({window for window, _ in self.steps}) > 1
        lines = []
        for _, alike in groupby(self.steps.items(), lambda step: (step[0][0], _line_key(step[1]))):
            group = list(alike)
            window, first = group[0][0]
            last = group[-1][0][1]
            where = f"step {first}" if len(group) == 1 else f"steps {first}-{last}"
            where += f" of window {window}" if several else ""
            where += f" ({len(group)} steps)" * (last - first >= len(group))
            findings = [finding for _, finding in group if finding]
            lines.append(f"{where}: {_of_steps(findings) if findings else 'no rank stands out'}")
        return lines


def _line_key(finding: Finding | None) -> tuple[Any, ...]:
    """What consecutive steps have in common that share a line."""
    return (
        (finding.rank, finding.why, finding.kernel, finding.peers, finding.pattern)
        if finding
        else ()
    )


def _of_steps(findings: Sequence[Finding]) -> str:
    """The line for a rank that takes longer in one step or in consecutive ones."""
    first = findings[0]
    longer, costs = (
        time_text(min(values)) if min(values) == max(values)
        else f"{time_text(min(values))} to {time_text(max(values))}"
        for values in ([finding.excess_ns for finding in findings],
                       [finding.gain_ns for finding in findings])
    )  # fmt: skip
    return first.of_step(longer, costs + " each" * (len(findings) > 1))


_KINDS = {Finding: STRAGGLER, SlowGroup: SLOW_GROUP, SlowStage: STAGES, UnevenWork: UNEVEN}


def some(numbers: Sequence[int]) -> str:
    """``1, 5, 9, ...``: the first few."""
    more = ", ..." if len(numbers) > _SHOWN else ""
    return ", ".join(str(number) for number in numbers[:_SHOWN]) + more


def ranks_text(numbers: Sequence[int]) -> str:
    """``ranks 0-3``."""
    return f"rank{'s' * (len(numbers) > 1)} {format_ranges(numbers)}"
