"""Replays a job with the changes that users write, to show how long its steps would take.

===================== ==============================================================
``rank:3=peers``      these ranks (``3``, ``0-3,7``, ``*``) take as long as their peers
``rank:balanced``     in each step, ranks with the same role have equally much work, and
                      so have the micro-batches of a step
``stage:balanced``    all pipeline stages have equally much work
``op:*gemm* x0.5``    kernels and copies with such names take half as long
``comm:dp x0.7``      transfers along an axis of the job, of a kind (``allreduce``) or
                      in a group take so long; ``comm:*`` is all communication
``comm:dp overlap``   they are hidden: nobody waits for their transfers
``input:0``           waiting for input takes no time; ``host:0``, ``gc:0``, ``copy:0``
                      and factors (``host:x0.5``) likewise; ``pause:0`` is idle time
                      between steps
===================== ==============================================================

Changes apply one after the other, to all steps. They cannot predict
operations that the job did not run in the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.replay.job import Replay
from traceconv.analysis.replay.operations import COLLECTOR, COMPUTE, COPY, HOST, INPUT
from traceconv.analysis.statistics import interval
from traceconv.core.clock import time_text
from traceconv.core.columns import F64
from traceconv.core.errors import OptionError
from traceconv.core.job_shape import NODE
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_ranges import parse_ranges

_LARGE_ERROR = 0.01  # of a step: less is not worth a word

CHANGE = lazy_regex(r"(rank|stage|op|comm|input|host|gc|copy|pause):(.+)")
"""How a change begins."""

_UNRECORDED = {
    "input": (
        "waiting for input",
        "record the host with the ranges of its data loader, or name the fetch of a batch "
        "'data_load' (record_function, NVTX)",
    ),
    "host": ("host time", "record host calls (CPU activities)"),
    "gc": (
        "garbage collection",
        "record it (torch_npu: gc_detect_threshold), or record collections as host ranges 'gc' "
        "from gc.callbacks",
    ),
    "copy": ("copy", "record copies of device memory; if the profiler does, none ran"),
    "comm": ("communication", "record more ranks of the job, with their collectives"),
    "pause": ("time between steps", "record several steps"),
}
"""The time that a change scales, and how to record it."""

_FACTOR = lazy_regex(r"x?(\d{1,6}(?:\.\d{1,9})?)")
_SORTS = {"input": INPUT, "host": HOST, "gc": COLLECTOR, "copy": COPY}
_NO_WORD = lazy_regex(r"\W")
_EXAMPLES = (
    "rank:3=peers", "rank:balanced", "stage:balanced", "op:*gemm* x0.5", "comm:dp x0.7",
    "comm:* overlap", "input:0", "host:0", "gc:0", "copy:0", "pause:0",
)  # fmt: skip
_VALID = ", ".join(map(repr, _EXAMPLES))


class WhatIf(msgspec.Struct, frozen=True):
    """Steps of a job before and after changes.

    Attributes:
        changes:  as written.
        steps:    recording window and number of each.
        before_ns, after_ns: how long each takes, replayed; ``after_ns`` is () where that is
            unknown.
        error:    the replay error, a share.
        cut:      what counts as a step where none is marked; "" where steps are.
        unknown:  why what changes gain is unknown: what they change was not recorded.
    """

    changes: tuple[str, ...]
    steps: tuple[tuple[int, int], ...]
    before_ns: tuple[int, ...]
    after_ns: tuple[int, ...]
    error: float
    cut: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def gain_ns(self) -> float | None:
        """By how much the mean step becomes shorter; negative if it becomes longer; None if that is
        unknown."""
        if self.unknown:
            return None
        return float(np.mean(self.before_ns) - np.mean(self.after_ns))

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """95 % interval of that."""
        if self.unknown:
            return None
        return interval(np.array(self.before_ns, np.float64) - np.array(self.after_ns))

    def as_dict(self) -> dict[str, Any]:
        """JSON values; None where nothing is known."""
        before, gain, between = float(np.mean(self.before_ns)), self.gain_ns, self.interval_ns
        after = self.after_ns or (None,) * len(self.steps)
        return {
            "changes": list(self.changes),
            "step_ns": round(before),
            "step_if_ns": None if gain is None else round(before - gain),
            "gain_ns": None if gain is None else round(gain),
            "gain_interval_ns": None if between is None else [round(ns) for ns in between],
            "gain_share": None if gain is None else gain / max(before, 1.0),
            "replay_error": self.error,
            "steps_are": self.cut or None,
            "unknown": list(self.unknown),
            "steps": [
                {"window": window, "step": number, "ns": ns, "if_ns": if_ns}
                for (window, number), ns, if_ns in zip(
                    self.steps, self.before_ns, after, strict=True
                )
            ],
            "text": self.line(),
        }

    def line(self) -> str:
        """The result in a line."""
        before, gain, between = float(np.mean(self.before_ns)), self.gain_ns, self.interval_ns
        if gain is None or between is None:
            return f"{', '.join(self.changes)}: gain unknown: {'; '.join(self.unknown)}"
        low, high = map(round, between)
        verb = "saves" if gain >= 0 else "costs"
        if gain < 0:  # the interval of the cost
            low, high = -high, -low
        return (
            f"{', '.join(self.changes)}: a step takes {time_text(before - gain)} instead of "
            f"{time_text(before)}, with the gap before it; that {verb} {time_text(abs(gain))} per "
            f"step ({100 * abs(gain) / max(before, 1.0):.2g} %, 95 % interval {time_text(low)} to "
            f"{time_text(high)})"
            + ", so it may change nothing" * (low < 0 < high)
            + f"; replay error {100 * self.error:.1f} %" * (self.error >= _LARGE_ERROR)
        )


def what_if(replay: Replay, changes: Sequence[str]) -> WhatIf:
    """The steps of a job with some changes.

    Raises:
        OptionError: a change is not understood, or concerns nothing in the job.
    """
    job = Changed(replay)
    for change in changes:
        job.apply(change)
    tails = replay.graph.tails_ns  # idle time that nothing follows stays
    after = job.steps() + tails if not job.unknown else np.zeros(0)
    return WhatIf(
        tuple(changes),
        tuple((int(w), int(k)) for w, k in replay.graph.steps.tolist()),
        tuple(round(ns) for ns in (replay.base + tails).tolist()),
        tuple(round(ns) for ns in after.tolist()),
        replay.error,
        replay.cut,
        tuple(job.unknown),
    )


LONGEST_CHANGE = 1000
"""Characters. Names of kernels are shorter, and longer patterns may take minutes to match."""


def refuse_unknown(changes: Sequence[str]) -> None:
    """Raise OptionError for changes that cannot be understood, before anything is read."""
    if not changes:
        raise OptionError(f"no change is given; write one of {_VALID}", "change")
    for change in changes:
        if len(change) > LONGEST_CHANGE:
            raise OptionError(
                f"a change has at most {LONGEST_CHANGE} characters, this one has {len(change)}; "
                "use * for a part of the name",
                "change",
            )
        match = CHANGE.fullmatch(change)
        if not match:
            heads = {example.partition(":")[0]: example for example in reversed(_EXAMPLES)}
            near = get_close_matches(_NO_WORD.split(change)[0].lower(), heads, 1)
            hint = f" (did you mean {heads[near[0]]!r}?)" if near else ""
            raise OptionError(f"{change!r} is not a change{hint}; write one of {_VALID}", "change")
        if match[1] == "stage" and match[2].strip() != "balanced":
            raise OptionError(
                f"{change!r}: a single stage cannot be changed; stages take 'stage:balanced' only, "
                "equal work in all of them. Ranks of a stage take 'rank:6-7=peers', kernels "
                "'op:*gemm* x0.8'",
                "change",
            )


class Changed:
    """Lengths and delays of a graph, changed.

    Attributes:
        unknown: what a change scales and no rank has recorded, in words: what it gains is unknown.
    """

    def __init__(self, replay: Replay) -> None:
        self.replay, self.graph = replay, replay.graph
        self.lengths: F64 = replay.lengths.copy()
        self.delays: F64 = replay.graph.delays_by_cause
        self.unknown: list[str] = []

    def steps(self) -> F64:
        """(steps,): how long steps take."""
        return self.replay.steps(self.lengths, self.delays.sum(axis=1))

    def apply(self, change: str) -> None:
        """Make a change.

        Raises:
            OptionError: it is not understood, or concerns nothing in the job.
        """
        refuse_unknown([change])
        match = CHANGE.fullmatch(change)
        assert match is not None
        subject, how = match[1], match[2].strip()
        if subject == "rank":
            self._ranks(change, how)
        elif subject == "stage":
            if self.replay.balanced is None:
                raise OptionError(f"{change!r}: pipeline stages of this job are unknown", "change")
            self.lengths *= self.replay.balanced
        elif subject == "op":
            target, factor = self._target(change, how)
            is_named = np.array([fnmatchcase(name, target) for name in self.graph.names], bool)
            is_named &= np.isin(self.graph.sorts, (COMPUTE, COPY))
            self._parts(change, is_named, factor)
        elif subject == "comm":
            self._communication(change, how)
        elif subject == "pause":
            self.delays[:, HOST] -= self.replay.gap_ns * (1 - self._factor(change, how))
            if not (self.replay.openings & (self.graph.step > 0)).any():
                self._not_recorded(subject)
        else:
            sort, factor = _SORTS[subject], self._factor(change, how)
            of_name = self.graph.sorts == sort
            graph = self.graph
            idle = graph.host_ns if sort == HOST else graph.cause_ns[graph.cause == sort]
            takes = of_name[graph.name].any() or idle.any()
            if not takes and not any(
                sort in summary.replay.recorded for summary in self.replay.every
            ):
                self._not_recorded(subject)
            self.delays[:, sort] *= factor
            if of_name.any():
                self._scale_parts(of_name, factor)

    def _not_recorded(self, subject: str) -> None:
        called, advice = _UNRECORDED[subject]
        self.unknown.append(f"no {called} was recorded; {advice}")

    def _ranks(self, change: str, how: str) -> None:
        target, _, state = how.partition("=")
        if how == "balanced":
            self.lengths *= self.replay.even.factor
            return
        if state.strip() != "peers":
            raise OptionError(
                f"{change!r}: write 'rank:{target}=peers' or 'rank:balanced'", "change"
            )
        graph = self.graph
        known = set(graph.ranks)
        numbers = known if target.strip() == "*" else set(parse_ranges(target))
        if not numbers or numbers - known:
            ranks = ", ".join(map(str, graph.ranks[:20]))
            raise OptionError(f"{change!r}: no such rank; there are {ranks}", "change")
        chosen = np.isin(np.array(graph.ranks)[graph.rank], list(numbers))
        self.lengths[chosen] *= self.replay.own.of_length[chosen]
        self.delays[chosen] *= self.replay.own.of_delay[chosen, None]

    def _communication(self, change: str, how: str) -> None:
        if how.endswith(" overlap"):
            target, factor = how.removesuffix(" overlap").strip(), 0.0
        else:
            target, factor = self._target(change, how)
        if not (self.graph.kind >= 0).any():
            self._not_recorded("comm")
            return
        rows = self._calls(target)
        if not rows.any():
            kinds = sorted({kind for kind, _, _ in self.graph.kinds})
            axes = [axis.name for axis in self.replay.shape.axes]
            choices = ", ".join(["*", *axes, *kinds])
            raise OptionError(f"{change!r}: no such communication; there is {choices}", "change")
        self.lengths[rows] *= factor

    def _calls(self, target: str) -> NDArray[np.bool_]:
        """Communication of a kind, along an axis of the job, or of a group."""
        from traceconv.analysis.stragglers.links import groups_of

        graph, shape = self.graph, self.replay.shape
        comm: NDArray[np.bool_] = graph.kind >= 0
        if target == "*":
            return comm
        kinds = [i for i, kind in enumerate(graph.kinds) if fnmatchcase(kind[0], target)]
        if kinds:
            is_kind: NDArray[np.bool_] = np.isin(graph.kind, kinds)
            return is_kind
        key_of, names, members = groups_of(self.replay)
        groups = [i for i, name in enumerate(names) if name == target]
        axes = [axis.name for axis in shape.axes if axis.name != NODE]
        if target in axes:
            columns = {axis: shape.column(axis) for axis in axes}
            row_of = {rank: i for i, rank in enumerate(shape.captured)}
            for number, ranks in enumerate(members):
                rows = [row_of[rank] for rank in ranks if rank in row_of]
                varying = [axis for axis in axes if len(np.unique(columns[axis][rows])) > 1]
                if varying == [target]:
                    groups.append(number)
        return comm & np.isin(key_of, groups)

    def _target(self, change: str, how: str) -> tuple[str, float]:
        target, _, factor = how.rpartition(" ")
        if not target or not factor.startswith("x"):
            raise OptionError(f"{change!r}: a factor is missing; write '... x0.5'", "change")
        return target.strip(), self._factor(change, factor)

    @staticmethod
    def _factor(change: str, text: str) -> float:
        match = _FACTOR.fullmatch(text)
        if not match:
            raise OptionError(f"{change!r}: {text!r} is not a factor; write 0 or x0.5", "change")
        return float(match[1])

    def _parts(self, change: str, of_name: NDArray[np.bool_], factor: float) -> None:
        if not of_name.any():
            names, sorts = self.graph.names, self.graph.sorts
            work = [n for n, sort in zip(names, sorts, strict=True) if sort in (COMPUTE, COPY)]
            raise OptionError(
                f"{change!r}: no kernel has such a name; there are e.g. {', '.join(work[:5])}",
                "change",
            )
        self._scale_parts(of_name, factor)

    def _scale_parts(self, of_name: NDArray[np.bool_], factor: float) -> None:
        """Scale parts of work, on top of earlier changes."""
        graph = self.graph
        rows = of_name[graph.name]
        added_ns = np.bincount(graph.part[rows], (factor - 1) * graph.part_ns[rows], len(graph))
        scale = np.divide(
            self.lengths, graph.length_ns, out=np.ones(len(graph)), where=graph.length_ns > 0
        )
        self.lengths += added_ns * scale
