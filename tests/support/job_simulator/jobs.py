"""What is simulated: layout, program, noise, delays, clocks, and what the captures hold.

Global ranks are laid out tensor fastest, then data, then pipeline, as Megatron does by default.
Times are ns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

BASE_NS = 1_700_000_000_000_000_000
"""True time (Unix) at which a job begins."""


@dataclass(frozen=True)
class Delay:
    """What makes ranks slower than their peers.

    Attributes:
        ranks:  which; each by itself, all by the same.
        ns:     how much more each of them needs in a step that is affected.
        every, phase: steps whose number leaves ``phase`` when divided by ``every``.
        only:   these steps instead, if any.
        chance: share of these steps that are affected, at random.
        spread: over all pieces of computing of the step, instead of in its first;
        anywhere: in any of them, at random.
        cause:  "compute" (kernels take longer), "host" (nothing runs), "gc" (the same, and the host
            records what it does), "input" (waiting for the data loader), "copy" (a copy to the
            device).
    """

    ranks: tuple[int, ...]
    ns: float
    every: int = 1
    phase: int = 0
    only: tuple[int, ...] = ()
    chance: float = 1.0
    spread: bool = False
    anywhere: bool = False
    cause: str = "compute"

    def steps(self, count: int, seed: int) -> np.ndarray:
        """bool per step of the job: whether it is affected."""
        number = np.arange(count)
        hit = np.isin(number, self.only) if self.only else number % self.every == self.phase
        return hit & (np.random.default_rng((seed, 77)).random(count) < self.chance)


@dataclass(frozen=True)
class Clock:
    """What a rank's clock shows: ``true - offset - drift * (true - BASE_NS) + jumps before it``.

    Attributes:
        offset_ns: what must be added to its stamps at :data:`BASE_NS`.
        drift_ppm: what must be added more, per time.
        jumps:     (ns after the job began, by how much it is set forward then).
        bends:     (ns after the job began, by how many ppm it runs faster from then on).
    """

    offset_ns: int = 0
    drift_ppm: float = 0.0
    jumps: tuple[tuple[int, int], ...] = ()
    bends: tuple[tuple[int, float], ...] = ()

    def local(self, true_ns):
        """What it shows at true times: int64, any shape."""
        since = np.asarray(true_ns, np.int64) - BASE_NS
        shown = since - np.rint(since * (self.drift_ppm * 1e-6)).astype(np.int64)
        for at, by in self.jumps:
            shown = shown + np.where(since >= at, by, 0)
        for at, ppm in self.bends:
            shown = shown + np.rint(np.maximum(since - at, 0) * (ppm * 1e-6)).astype(np.int64)
        return shown + (BASE_NS - self.offset_ns)


@dataclass(frozen=True)
class Job:
    """A job and its captures.

    Attributes:
        tp, dp, pp: ranks per tensor, data and pipeline parallel group.
        ep: ranks per expert parallel group; divides ``dp``. More than 1: layers have experts, with
            an all-to-all before and after them.
        steps, micro_batches: steps of the job, and micro-batches per step (1F1B if pp > 1).
        layers: per stage, or for all stages; ``compute_ns`` is their forward time (backward: 2x).
        stage_pace: factor on all computing of each stage; () for 1.
        chunks: parts of the model that each stage has, one after the other (interleaved); all
            forward passes before all backward ones, messages eager.
        broadcast: each step begins with a broadcast within the tensor (or else the data) parallel
            group, by the rank that loads data.
        buckets: collectives of the data parallel group per step; ``sharded``: reduce-scatter and
            all-gather instead of an all-reduce; ``overlap``: on a stream of their own, while the
            backward pass goes on.
        world:  one all-reduce of all ranks at the end of each step (the norm of gradients).
        tied:   one all-reduce of first and last stage per step (tied embeddings).
        messages: "rendezvous" or "eager"; ``coalesced``: those sent and received at once are one
            record; ``message_kind`` is what that record is called ("" for the kernel's name).
        send_ns: how long an eager send occupies its stream.
        transfer_ns: of a collective without waiting, by parallelism; others 100 us.
        jitter, noise: of each piece of computing: scale and shape (:mod:`.noise`).
        end_jitter, end_noise: of the ends of one collective on its members, the same.
        pace:   standard deviation of a factor on all computing of one step, equal on all ranks.
        spikes: chance that a piece of computing takes ``spike_ns`` longer, on any rank.
        pauses: chance that the collector pauses a rank in a step, for ``pause_ns`` at any piece.
        uneven: standard deviation of the logarithm of a factor on what a rank computes in a step,
            drawn anew for each (sequences are not equally long); ``expert_uneven``: the same of
            each piece that experts compute; ``uneven_batches``: of each micro-batch, in all stages
            and both passes, whose kernels then have different names.
        wander: how much each rank's computing wanders by itself: standard deviation of a factor
            that keeps 80 % of its value from step to step.
        noisy:  per rank, by how much more its ends scatter.
        imbalance: half the range of a constant factor on each rank's computing; that of ranks in
            ``levelled`` is the median.
        warm_up: step 0 takes longer by this factor; ``warm_up_spread``: by so much of it more or
            less, per rank.
        evaluation: every so many steps is one that only goes forward (0: none).
        input_ns: usual wait for data, on first and last stages.
        launch_ns: between two kernels.
        gap_ns: from the end of a step to the start of the next, on all ranks.
        slow_group: (parallelism, index of the group, times its transfer takes longer).
        delays: see :class:`Delay`.
        copies: (rank, rank): the second draws the noise of the first: a clone.
        clocks: per rank; () for true time.
        end_bias: what a rank's profiler adds to ends of collectives: ns per rank, or per
            parallelism and rank.
        windows: per rank, (first, last + 1) of the steps its capture holds.
        mid:    per rank, share of its first step that the capture misses; the step has no mark.
        clipped: what runs when a capture begins is in it, from then on.
        lost:   per rank, share of collectives missing anywhere.
        split:  per rank, share of collectives recorded as two rows.
        uncaptured: ranks without a capture.
        silent: computing is not recorded.
        foreign: ranks whose capture is of another run of the same program.
        numbering: of steps: "absolute", "relative" (each capture from 0), "repeated" (after half
            of the job from 0 again), "none" (no step marks).
        unnamed: lanes and names do not say which group it is.
        dialect: "torch", "hccl", or "xla": as torch, and says which operation each is.
        resolution_ns: of stamps.
        host_size: ranks per host; stamps: "" (nobody knows), "unix", "monotonic".
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    steps: int = 12
    micro_batches: int = 1
    layers: int | tuple[int, ...] = 2
    stage_pace: tuple[float, ...] = ()
    chunks: int = 1
    broadcast: bool = False
    compute_ns: float = 1e6
    buckets: int = 1
    sharded: bool = False
    overlap: bool = False
    world: bool = False
    tied: bool = False
    messages: str = "rendezvous"
    coalesced: bool = True
    message_kind: str = ""
    send_ns: float = 15e3
    transfer_ns: dict[str, float] = field(default_factory=dict)
    jitter: float = 30e3
    noise: str = "normal"
    end_jitter: float = 2e3
    end_noise: str = "normal"
    pace: float = 0.02
    spikes: float = 0.0
    spike_ns: float = 0.0
    pauses: float = 0.0
    pause_ns: float = 0.0
    uneven: float = 0.0
    expert_uneven: float = 0.0
    uneven_batches: float = 0.0
    wander: float = 0.0
    noisy: dict[int, float] = field(default_factory=dict)
    imbalance: float = 0.0
    levelled: tuple[int, ...] = ()
    warm_up: float = 1.0
    warm_up_spread: float = 0.0
    evaluation: int = 0
    input_ns: float = 40e3
    launch_ns: float = 3e3
    gap_ns: float = 0.0
    slow_group: tuple[str, int, float] | None = None
    delays: tuple[Delay, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    clocks: tuple[Clock, ...] = ()
    end_bias: tuple[float, ...] | dict[str, tuple[float, ...]] = ()
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)
    mid: dict[int, float] = field(default_factory=dict)
    clipped: bool = False
    lost: dict[int, float] = field(default_factory=dict)
    split: dict[int, float] = field(default_factory=dict)
    uncaptured: tuple[int, ...] = ()
    silent: bool = False
    foreign: tuple[int, ...] = ()
    numbering: str = "absolute"
    unnamed: bool = False
    dialect: str = "torch"
    resolution_ns: int = 1
    host_size: int = 8
    stamps: str = ""
    seed: int = 0

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.tp * self.dp * self.pp

    @property
    def captured(self) -> tuple[int, ...]:
        """Ranks with a capture."""
        return tuple(r for r in range(self.ranks) if r not in self.uncaptured)

    @property
    def stage_size(self) -> int:
        """Ranks per pipeline stage."""
        return self.tp * self.dp

    def clock(self, rank: int) -> Clock:
        """The clock of one rank."""
        return self.clocks[rank] if self.clocks else Clock()

    def layers_of(self, stage: int) -> int:
        """Layers of one stage."""
        return self.layers if isinstance(self.layers, int) else self.layers[stage]

    def groups(self) -> dict[str, np.ndarray]:
        """Members of each communicator, (groups, size), by parallelism, those of one left out."""
        return self._groups

    @cached_property
    def _groups(self) -> dict[str, np.ndarray]:
        grid = np.arange(self.ranks).reshape(self.pp, self.dp, self.tp)
        experts = grid.reshape(self.pp, self.dp // self.ep, self.ep, self.tp)
        found = {
            "tp": grid.reshape(-1, self.tp),
            "ep": experts.transpose(0, 1, 3, 2).reshape(-1, self.ep),
            "dp": grid.transpose(0, 2, 1).reshape(-1, self.dp),
            "pp": grid.transpose(1, 2, 0).reshape(-1, self.pp),
            "tied": grid[[0, -1]].transpose(1, 2, 0).reshape(-1, 2),
            "world": grid.reshape(1, -1),
        }
        unused = {"world": not self.world, "tied": not self.tied or self.pp == 1}
        return {
            name: members
            for name, members in found.items()
            if members.shape[1] > 1 and not unused.get(name)
        }

    def group_of(self, parallelism: str, rank: int) -> int:
        """Which of the groups of a parallelism a rank is in."""
        return int(np.flatnonzero((self.groups()[parallelism] == rank).any(axis=1))[0])
