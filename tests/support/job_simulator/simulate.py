"""True time: when each rank does what, by rendezvous semantics.

A collective ends on its members when the last has come and the transfer is over, on each with some
noise, on none before the last has come. A message ends where it is received when both have come and
the transfer is over; where it is sent at the same time ("rendezvous"), or at once ("eager").

Random numbers are drawn in an order that does not depend on delays, so the same job without its
delays (:func:`without_delays`) is what would have happened had the slow ranks been like the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .jobs import BASE_NS, Job
from .noise import draw
from .programs import Instruction, step_program, transfer

_LEAST = 0.2  # of its usual time is the least that computing takes
_SETTLED = 0.3  # of a transfer is the least it takes


@dataclass(frozen=True)
class Op:
    """What all ranks of a stage did at the same place of their program.

    Attributes:
        what: "compute", "input", "pause" or a parallelism.
        kind: of a collective or message: "all_reduce", "send", "recv", "sendrecv"; of computing,
            the pass, if its kernels have other names.
        peer: stage at the other side of a message that is one of its own, -1 of all others.
    """

    what: str
    step: int
    kind: str = ""
    n_bytes: int = 0
    peer: int = -1


@dataclass
class Stage:
    """What happened on one pipeline stage; times are float ns since the job began.

    Attributes:
        ops: in the order of the program; those of ranks that did not take part have NaN.
        starts, ends: (ranks of the stage,) per op.
        borders: (ranks,) per step: when it began; and the end of the last.
        last:  (ranks,) per op: the global rank for which it waited, its own if for none.
        came:  (ranks,) per op: when that one began it.
        after: (ranks,) per op: index of the op whose end let it begin, -1 for none.
        borne: (ranks,) per border: index of the op whose end let the step begin.
    """

    ops: list[Op] = field(default_factory=list)
    starts: list[np.ndarray] = field(default_factory=list)
    ends: list[np.ndarray] = field(default_factory=list)
    borders: list[np.ndarray] = field(default_factory=list)
    last: list[np.ndarray] = field(default_factory=list)
    came: list[np.ndarray] = field(default_factory=list)
    after: list[np.ndarray] = field(default_factory=list)
    borne: list[np.ndarray] = field(default_factory=list)

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts and ends, (ops, ranks), and borders, (steps + 1, ranks), as one column each."""
        return np.array(self.starts), np.array(self.ends), np.array(self.borders)

    @cached_property
    def sorts(self) -> tuple[list[Op], np.ndarray]:
        """The different sorts of ops, whatever their step, and the sort of each."""
        known: dict[Op, int] = {}
        sort = [known.setdefault(replace(op, step=-1), len(known)) for op in self.ops]
        return list(known), np.array(sort)


@dataclass(frozen=True)
class Run:
    """A job that has run."""

    job: Job
    stages: list[Stage]
    usual: np.ndarray
    """(ranks,): the constant factor on what each computes."""

    @property
    def duration_ns(self) -> float:
        """Until the last rank is ready."""
        return max(float(s.borders[-1].max()) for s in self.stages)

    @property
    def step_ns(self) -> float:
        """The usual time of a step."""
        borders = np.array([s.borders for s in self.stages])
        return float(np.median(np.diff(borders, axis=1)))


def run(job: Job) -> Run:
    """Simulate ``job``."""
    return _Machine(job).go()


def without_delays(job: Job) -> Job:
    """The same with all ranks and groups alike."""
    return replace(job, delays=(), slow_group=None)


def gain_ns(happened: Run) -> float:
    """What a step would be shorter by, on average, were nobody slow."""
    saved = happened.duration_ns - run(without_delays(happened.job)).duration_ns
    return saved / happened.job.steps


class _Machine:
    """Carries out the programs of all stages."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.size = job.stage_size
        self.rngs = [np.random.default_rng((job.seed, 5, s)) for s in range(job.pp)]
        rng = np.random.default_rng((job.seed, 6))
        self.pace = np.maximum(rng.normal(1, job.pace, job.steps), 0.3)
        self.usual = 1 + job.imbalance * rng.uniform(-1, 1, job.ranks)
        self.warm = job.warm_up + (job.warm_up - 1) * job.warm_up_spread * rng.uniform(
            -1, 1, job.ranks
        )
        stages = self.usual.reshape(job.pp, -1)  # with its view: as the median of its stage
        middle = np.repeat(np.median(stages, axis=1), stages.shape[1])
        self.usual[list(job.levelled)] = middle[list(job.levelled)]
        self.wander = _wandering(np.random.default_rng((job.seed, 7)), job)
        self.wander *= lengths(job)
        self.wander *= np.repeat(job.stage_pace or (1.0,) * job.pp, self.size)
        self.batches = batch_lengths(job)
        self.experts = np.random.default_rng((job.seed, 13))
        self.pauses = _pauses(np.random.default_rng((job.seed, 14)), job)
        self.scatter = np.array([job.noisy.get(r, 1.0) for r in range(job.ranks)])
        self.stages = [Stage() for _ in range(job.pp)]
        self.now = [np.zeros(self.size) for _ in range(job.pp)]
        self.stream = [np.zeros(self.size) for _ in range(job.pp)]
        self.own = [np.arange(self.size) + s * self.size for s in range(job.pp)]
        self.at = [np.full(self.size, -1) for _ in range(job.pp)]
        self.at_stream = [np.full(self.size, -1) for _ in range(job.pp)]
        self.posts: dict = {}
        self.members = {
            name: [m - s * self.size for s in range(job.pp) for m in [self._own(members, s)]]
            for name, members in job.groups().items()
            if name in ("tp", "ep", "dp")
        }
        self.step = [0] * job.pp
        self.delay: list[np.ndarray] = [np.zeros(0)] * job.pp
        self.causes: list[list[str]] = [[]] * job.pp
        self.piece = [0] * job.pp

    def _own(self, members: np.ndarray, stage: int) -> np.ndarray:
        return members[(members // self.size == stage).all(axis=1)]

    def go(self) -> Run:
        job = self.job
        programs = [self._whole(s) for s in range(job.pp)]
        waiting = [next(p, None) for p in programs]
        while any(w is not None for w in waiting):
            moved = False
            for stage, program in enumerate(programs):
                while waiting[stage] is not None and self._done(stage, waiting[stage]):
                    waiting[stage] = next(program, None)
                    moved = True
            assert moved, "deadlock: the programs of stages do not fit"
        for stage, s in enumerate(self.stages):
            s.borders.append(self.now[stage].copy())
            s.borne.append(self.at[stage].copy())
        return Run(job, self.stages, self.usual)

    def _whole(self, stage: int):
        for step in range(self.job.steps):
            program = step_program(self.job, stage, step)
            pieces = sum(1 for i in program if i[0] == "compute")
            self._begin(stage, step, pieces)
            yield from program

    def _begin(self, stage: int, step: int, pieces: int) -> None:
        """Note where a step begins, and what its pieces of computing take longer."""
        self.now[stage] = self.now[stage] + 2 * self.job.launch_ns + self.job.gap_ns * (step > 0)
        self.stages[stage].borders.append(self.now[stage].copy())
        self.stages[stage].borne.append(self.at[stage].copy())
        self.step[stage], self.piece[stage] = step, 0
        more = np.zeros((len(self.job.delays), pieces, self.size))
        for index, delay in enumerate(self.job.delays):
            if not delay.steps(self.job.steps, self.job.seed)[step]:
                continue
            for rank in delay.ranks:
                if rank // self.size != stage:
                    continue
                column = rank % self.size
                if delay.spread:
                    more[index, :, column] = delay.ns / pieces
                elif delay.anywhere:
                    rng = np.random.default_rng((self.job.seed, 8, step, rank))
                    more[index, rng.integers(pieces), column] = delay.ns
                else:
                    more[index, 0, column] = delay.ns
        self.delay[stage] = more

    # -- instructions -----------------------------------------------------------------------

    def _done(self, stage: int, instruction: Instruction) -> bool:
        """Carry out an instruction; False if it has to wait for another stage."""
        what, *rest = instruction
        return getattr(self, f"_{what}")(stage, *rest)

    def _record(
        self, stage: int, op: Op, start: np.ndarray, end: np.ndarray,
        last: tuple[np.ndarray, np.ndarray] | None = None, aside: bool = False,
    ) -> None:  # fmt: skip
        """Note an op; ``last``: who came last, and when; ``aside``: nothing waits for it yet."""
        s = self.stages[stage]
        s.ops.append(op)
        s.starts.append(start.copy())
        s.ends.append(end.copy())
        who, came = last or (self.own[stage], start)
        s.last.append(who)
        s.came.append(came)
        queued = aside & (self.stream[stage] > self.now[stage])
        s.after.append(np.where(queued, self.at_stream[stage], self.at[stage]))
        if not aside:
            self.at[stage] = np.where(np.isnan(start), self.at[stage], len(s.ops) - 1)

    def _noise(self, stage: int, shape: str) -> np.ndarray:
        noise = draw(shape, self.rngs[stage], self.size)
        first = stage * self.size
        for one, other in self.job.copies:
            if other // self.size == stage:
                noise[other - first] = noise[one - first]
        return noise

    def _compute(
        self, stage: int, ns: float, expert: bool = False, batch: tuple[str, int] | None = None
    ) -> bool:
        job, step = self.job, self.step[stage]
        ranks = slice(stage * self.size, (stage + 1) * self.size)
        usual = ns * self.pace[step] * self.usual[ranks] * self.wander[step, ranks]
        if batch is not None and job.uneven_batches:
            usual = usual * self.batches[step, batch[1]]
        if step == 0:
            usual = usual * self.warm[ranks]
        if expert and job.expert_uneven:
            usual = usual * np.exp(job.expert_uneven * self.experts.standard_normal(self.size))
        work = np.maximum(usual + job.jitter * self._noise(stage, job.noise), _LEAST * usual)
        if job.spikes:
            work = work + job.spike_ns * (self.rngs[stage].random(self.size) < job.spikes)
        start = self._paused(stage, ranks, self.now[stage] + self.job.launch_ns)
        for delay, more in zip(job.delays, self.delay[stage][:, self.piece[stage]], strict=True):
            if delay.cause == "compute":
                work = work + more
                continue
            if more.any():
                if delay.cause != "host":
                    at = np.where(more > 0, start, np.nan)
                    self._record(stage, Op(delay.cause, step), at, at + more)
                start = start + more
        self.piece[stage] += 1
        self.now[stage] = start + work
        kind = batch[0] if batch is not None and job.uneven_batches else ""
        self._record(stage, Op("compute", step, kind), start, self.now[stage])
        return True

    def _paused(self, stage: int, ranks: slice, start: np.ndarray) -> np.ndarray:
        """When a piece of computing begins after what the collector does before."""
        hit = self.pauses[self.step[stage], ranks] == self.piece[stage]
        if hit.any():
            at = np.where(hit, start, np.nan)
            self._record(stage, Op("gc", self.step[stage]), at, at + self.job.pause_ns)
            start = start + self.job.pause_ns * hit
        return start

    def _input(self, stage: int, ns: float) -> bool:
        start = self.now[stage]
        self.now[stage] = start + ns * np.exp(0.3 * self.rngs[stage].standard_normal(self.size))
        self._record(stage, Op("input", self.step[stage]), start, self.now[stage])
        return True

    def _meet(self, stage: int, name: str, kind: str, n_bytes: int, ns: float) -> bool:
        start = self.now[stage] + self.job.launch_ns
        end, last = self._together(stage, name, kind, start, ns)
        self._record(stage, Op(name, self.step[stage], kind, n_bytes), start, end, last)
        self.now[stage] = end
        return True

    def _async(self, stage: int, name: str, kind: str, n_bytes: int, ns: float) -> bool:
        start = np.maximum(self.now[stage], self.stream[stage]) + self.job.launch_ns
        end, last = self._together(stage, name, kind, start, ns)
        op = Op(name, self.step[stage], kind, n_bytes)
        self._record(stage, op, start, end, last, aside=True)
        self.stream[stage] = end
        self.at_stream[stage] = np.full(self.size, len(self.stages[stage].ops) - 1)
        return True

    def _join(self, stage: int) -> bool:
        later = self.stream[stage] > self.now[stage]
        self.at[stage] = np.where(later, self.at_stream[stage], self.at[stage])
        self.now[stage] = np.maximum(self.now[stage], self.stream[stage])
        return True

    def _together(
        self, stage: int, name: str, kind: str, start: np.ndarray, ns: float
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Ends of a collective of groups within a stage, and who came last."""
        members, rng = self.members[name][stage], self.rngs[stage]
        last, who = np.empty(self.size), self.own[stage].copy()
        last[members] = start[members].max(axis=1, keepdims=True)
        latest = np.take_along_axis(members, start[members].argmax(axis=1)[:, None], axis=1)
        who[members] = self.own[stage][latest]
        if kind == "broadcast":  # the first of a group waits for nobody, the others for it
            last[members] = np.maximum(start[members], start[members[:, :1]])
            waits = start[members[:, :1]] > start[members]
            who[members] = self.own[stage][np.where(waits, members[:, :1], members)]
        width = 0.25 if kind == "all_to_all" else 0.02  # what experts get differs by step
        took = np.empty(self.size)
        took[members] = ns * np.exp(width * rng.standard_normal((len(members), 1)))
        return self._ended(stage, last, took * self._slower(name, stage)), (who, last)

    def _ended(self, stage: int, last: np.ndarray, took: np.ndarray) -> np.ndarray:
        ranks = slice(stage * self.size, (stage + 1) * self.size)
        off = self.job.end_jitter * self.scatter[ranks] * self._noise(stage, self.job.end_noise)
        return last + np.maximum(took + off, _SETTLED * took)

    def _slower(self, name: str, stage: int) -> np.ndarray:
        """How many times longer transfers take, per rank."""
        times = np.ones(self.job.ranks)
        if self.job.slow_group and self.job.slow_group[0] == name:
            _, index, factor = self.job.slow_group
            times[self.job.groups()[name][index]] = factor
        return times[stage * self.size : (stage + 1) * self.size]

    def _across(
        self, stage: int, name: str, stages: tuple, kind: str, n_bytes: int, ns: float, key: tuple
    ) -> bool:
        start = self.now[stage] + self.job.launch_ns
        self.posts.setdefault((name, key, stage), start)
        if any((name, key, s) not in self.posts for s in stages):
            return False
        every = np.array([self.posts[name, key, s] for s in stages])
        last = every.max() if name == "world" else every.max(axis=0)
        common = np.random.default_rng((self.job.seed, 9, self.step[stage], len(name)))
        took = np.full(self.size, ns * np.exp(0.02 * common.standard_normal()))
        end = self._ended(stage, np.broadcast_to(last, self.size), took)
        if name == "world":
            place, column = np.unravel_index(every.argmax(), every.shape)
            who = np.full(self.size, stages[place] * self.size + column)
        else:
            who = np.array(stages)[every.argmax(axis=0)] * self.size + np.arange(self.size)
        came = np.broadcast_to(last, self.size)
        self._record(stage, Op(name, self.step[stage], kind, n_bytes), start, end, (who, came))
        self.now[stage] = end
        return True

    def _exchange(self, stage: int, sent: tuple, received: tuple) -> bool:
        if not sent and not received:
            return True
        start = self.now[stage] + self.job.launch_ns
        for other, key in sent:
            start = self.posts.setdefault(("s", key, stage, other), start)
        for other, key in received:
            start = self.posts.setdefault(("r", key, other, stage), start)
        there = [("s", key, other, stage) for other, key in received]
        eager = self.job.messages == "eager"
        if not eager:
            there += [("r", key, stage, other) for other, key in sent]
        if any(one not in self.posts for one in there):
            return False
        took = transfer(self.job, "pp") * self._slower("pp", stage)
        ends = [self._ended(stage, np.maximum(start, self.posts[t]), took)
                for t in there]  # fmt: skip
        own = self.own[stage]
        others = [own % self.size + (one[2] if one[0] == "s" else one[3]) * self.size
                  for one in there]  # fmt: skip
        last = [(np.where(self.posts[t] > start, other, own), np.maximum(self.posts[t], start))
                for t, other in zip(there, others, strict=True)]  # fmt: skip
        if eager and sent:
            ends.append(start + self.job.send_ns)
            last.append((own, start))
        self._messages(stage, sent, received, start, ends, last)
        self.now[stage] = np.maximum.reduce(ends)
        return True

    def _messages(
        self, stage: int, sent: tuple, received: tuple, start: np.ndarray,
        ends: list[np.ndarray], last: list[tuple[np.ndarray, np.ndarray]],
    ) -> None:  # fmt: skip
        step, size = self.step[stage], 1 << 22
        first, latest = len(self.stages[stage].ops), np.argmax(ends, axis=0)
        if sent and received and self.job.coalesced:
            end = np.maximum.reduce(ends)
            who = tuple(np.choose(latest, side) for side in zip(*last, strict=True))
            self._record(stage, Op("pp", step, "sendrecv", size), start, end, who)
            return
        before = self.at[stage]
        kinds = [("recv", o) for o, _ in received] + [("send", o) for o, _ in sent]
        for (kind, peer), end, who in zip(kinds, ends, last, strict=True):
            self.at[stage] = before
            self._record(stage, Op("pp", step, kind, size, peer), start, end, who)
        self.at[stage] = first + latest


def lengths(job: Job) -> np.ndarray:
    """(steps, ranks): how much there is to compute, see ``uneven``."""
    drawn = np.random.default_rng((job.seed, 12)).standard_normal((job.steps, job.ranks))
    found: np.ndarray = np.exp(job.uneven * drawn)
    return found


def batch_lengths(job: Job) -> np.ndarray:
    """(steps, micro-batches, ranks of a stage): the same of micro-batches, ``uneven_batches``."""
    shape = job.steps, job.micro_batches, job.stage_size
    drawn = np.random.default_rng((job.seed, 15)).standard_normal(shape)
    found: np.ndarray = np.exp(job.uneven_batches * drawn)
    return found


def _wandering(rng, job: Job) -> np.ndarray:
    """A factor per step and rank that remembers, see ``wander``."""
    found = np.zeros((job.steps, job.ranks))
    found[0] = rng.standard_normal(job.ranks)
    for step in range(1, job.steps):
        found[step] = 0.8 * found[step - 1] + 0.6 * rng.standard_normal(job.ranks)
    return np.maximum(1 + job.wander * found, 0.3)


def _pauses(rng, job: Job) -> np.ndarray:
    """Per step and rank, before which piece of computing the collector pauses; -1: none."""
    piece = rng.integers(max(job.micro_batches * 2, 1), size=(job.steps, job.ranks))
    found: np.ndarray = np.where(rng.random(piece.shape) < job.pauses, piece, -1)
    return found


def true_ns(since) -> np.ndarray:
    """Float ns since the job began as int64 Unix ns."""
    return np.rint(since).astype(np.int64) + BASE_NS
