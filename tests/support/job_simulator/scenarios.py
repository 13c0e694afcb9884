"""The table of scenarios: by name, which jobs they are and what must be reached.

Names begin with what is measured: ``nobody`` (nobody is slow), ``slow`` (somebody is, in all
steps), ``sometimes`` (in some), ``clocks``. Every scenario is a function from a seed to a job; the
seed also draws clocks, ranks and shapes where a name does not say them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from .jobs import Clock, Delay, Job
from .noise import SHAPES, draw

_SECOND = 10**9


@dataclass(frozen=True)
class Scenario:
    """One line of the table.

    Attributes:
        name: unique.
        job:  by seed.
        least, most: what must be reached, by name of a figure of :mod:`.scores`.
        align: methods to be measured, of clocks.
        ranks: about how many, to know what costs time.
    """

    name: str
    job: Callable[[int], Job]
    least: dict[str, float]
    most: dict[str, float]
    align: tuple[str, ...] = ()
    ranks: int = 8


SCENARIOS: dict[str, Scenario] = {}

NOBODY = {}, {"false": 0.005}
NAMED = {"right": 0.95}, {"wrong": 0.005}
CERTAIN = {"right": 0.99}, {"wrong": 0.005}
FEW = {"right": 0.90}, {"wrong": 0.005}
HARMLESS = {}, {"wrong": 0.005, "false": 0.005}
COVERED = {"start": 0.98, "middle": 0.98, "end": 0.98}, {"wrong": 0.002, "kept": 0.0}
USED = {"accepted": 0.95, **COVERED[0]}, COVERED[1]
REFUSED = {}, {"accepted": 0.0, "kept": 0.0}


def any_clocks(seed: int, ranks: int, offset_ns: float = _SECOND, ppm: float = 20.0):
    """Clocks that show anything, within bounds."""
    rng = np.random.default_rng((seed, 21))
    return tuple(
        Clock(int(o), float(d))
        for o, d in zip(
            rng.uniform(-offset_ns, offset_ns, ranks), rng.uniform(-ppm, ppm, ranks), strict=True
        )
    )


def of_seed(job: Job, seed: int) -> Job:
    """A job with a seed, and clocks unless it has some."""
    return replace(job, seed=seed, clocks=job.clocks or any_clocks(seed, job.ranks))


def add(name: str, job, goal, align: tuple[str, ...] = (), **more) -> None:
    """A scenario: ``job`` is one, with ``more`` of its fields, or a function from a seed to one."""
    base = job if callable(job) else lambda seed: job
    example = replace(base(0), **more)
    least, most = goal
    if name.startswith("clocks") and not align:
        align = ("auto", "collective")
    SCENARIOS[name] = Scenario(
        name, lambda seed: of_seed(replace(base(seed), **more), seed), least, most, align,
        example.ranks,
    )  # fmt: skip


def pieces(job: Job) -> int:
    """Pieces of computing per step, on stages of as many layers as the first."""
    return job.micro_batches * job.layers_of(0) * 2 * (1 + (job.ep > 1)) + 1


def varying(job: Job) -> float:
    """How much what a rank does before its first collective of a step varies by chance, ns: half
    of the range of 68 % of it, which is the standard deviation of normal noise."""
    alone = job.tp == job.ep == 1 and not job.overlap
    return job.jitter * _of_sum(job.noise, pieces(job) if alone else 2)


@cache
def _of_sum(noise: str, count: int) -> float:
    draws = draw(noise, np.random.default_rng(1), 20_000 * count).reshape(-1, count).sum(axis=1)
    low, high = np.quantile(draws, (0.16, 0.84))
    return float(high - low) / 2


def one_slow(job: Job, times: float, everywhere: bool = False, **delay) -> Callable[[int], Job]:
    """The job with any one rank slower, before its first collective of the step by so many times
    what varies there by chance; or everywhere, in each piece by so many times the jitter."""
    ns = times * (job.jitter * pieces(job) if everywhere else varying(job))

    def made(seed: int) -> Job:
        rank = int(np.random.default_rng((seed, 22)).choice(job.captured))
        return replace(job, delays=(Delay((rank,), ns, spread=everywhere, **delay),))

    return made


TWO = Job(dp=2, jitter=60e3)
DP4 = Job(dp=4, jitter=60e3)
DP8 = Job(dp=8, jitter=60e3)
TP8 = Job(tp=8, jitter=60e3)
GRID = Job(tp=2, dp=4, jitter=60e3)
PIPE = Job(tp=2, dp=2, pp=2, micro_batches=4, jitter=150e3)
EXPERTS = Job(dp=8, ep=4, jitter=100e3)
CHUNKS = Job(tp=2, dp=2, pp=2, micro_batches=4, layers=1, chunks=2, messages="eager", jitter=15e4)
LARGE = Job(tp=4, dp=8, pp=2, micro_batches=4, steps=10, jitter=150e3)
HUGE = Job(tp=8, dp=8, pp=4, micro_batches=4, steps=3, layers=1, jitter=150e3)
SHARDED = Job(dp=8, sharded=True, world=True, jitter=60e3)
OVERLAPPED = Job(tp=2, dp=4, layers=4, buckets=3, overlap=True, jitter=60e3)
LAYOUTS = {
    "2-ranks": TWO, "dp8": DP8, "tp8": TP8, "tp2-dp4": GRID, "tp2-dp2-pp2": PIPE,
    "dp8-ep4": EXPERTS, "sharded": SHARDED, "overlapped": OVERLAPPED,
    "pp2-ep2": Job(dp=4, ep=2, pp=2, micro_batches=4, tied=True, jitter=150e3),
    "pp4": Job(dp=2, pp=4, micro_batches=4, jitter=200e3, layers=1),
}  # fmt: skip
STRONG = {
    name: replace(job, jitter=0.02 * 3e6 * job.layers_of(0) * job.micro_batches / (2**0.5 if
                  job.tp > 1 or job.ep > 1 else 5**0.5)) for name, job in LAYOUTS.items()
}  # fmt: skip
"""So much jitter that three times as much is more than one percent of a step, beyond doubt."""
TINY = 2e3
"""Jitter of a very regular machine, 0.03 % of a step."""


def _nobody() -> None:
    add("nobody/anything", anything, NOBODY)
    for noise in SHAPES:
        add(f"nobody/noise-{noise}", GRID, NOBODY, noise=noise)
        add(f"nobody/noise-ends-{noise}", GRID, NOBODY, noise=noise, end_noise=noise,
            end_jitter=20e3)  # fmt: skip
        add(f"nobody/noise-8-steps-{noise}", DP8, NOBODY, noise=noise, steps=8)
        for name in ("2-ranks", "dp8", "tp2-dp4", "dp8-ep4", "tp2-dp2-pp2"):
            for count in (2, 3, 5):
                add(f"nobody/{count}-steps-{name}-{noise}", LAYOUTS[name], NOBODY, noise=noise,
                    steps=count)  # fmt: skip
    for name, job in LAYOUTS.items():
        add(f"nobody/layout-{name}", job, NOBODY)
        add(f"nobody/regular-{name}", job, NOBODY, jitter=TINY)
        add(f"nobody/1-step-{name}", job, NOBODY, steps=1)
        add(f"nobody/2-steps-{name}", job, NOBODY, steps=2)
        add(f"nobody/4-steps-{name}", job, NOBODY, steps=4)
    for micro in (1, 4, 8):
        for messages in ("rendezvous", "eager"):
            for coalesced in (True, False):
                how = "coalesced" if coalesced else "single"
                add(f"nobody/pp2-m{micro}-{messages}-{how}", PIPE, NOBODY, micro_batches=micro,
                    messages=messages, coalesced=coalesced)  # fmt: skip
    add("nobody/pp-message-kind", PIPE, NOBODY, message_kind="coalesced")
    add("nobody/pp-hccl", PIPE, NOBODY, dialect="hccl")
    add("nobody/pp-unnamed", PIPE, NOBODY, unnamed=True)
    add("nobody/pp-only-2", Job(pp=2, micro_batches=4), NOBODY)
    add("nobody/pp-only-4-eager", Job(pp=4, micro_batches=6, messages="eager"), NOBODY)
    add("nobody/pp-tied", PIPE, NOBODY, tied=True, world=True)
    add("nobody/uneven-layers-2", PIPE, NOBODY, layers=(3, 2), tied=True, world=True)
    add("nobody/uneven-layers-4", Job(dp=2, pp=4, micro_batches=4, jitter=2e5), NOBODY,
        layers=(1, 2, 2, 1), tied=True, world=True)  # fmt: skip
    add("nobody/64-ranks", LARGE, NOBODY)
    add("nobody/64-ranks-1-step", LARGE, NOBODY, steps=1)
    add("nobody/256-ranks", HUGE, NOBODY)
    for name in ("tp2-dp4", "dp8", "tp2-dp2-pp2", "2-ranks"):
        add(f"nobody/imbalance-1pct-{name}", LAYOUTS[name], NOBODY, imbalance=0.005, jitter=3e3)
    for percent in (1, 3):  # by so much faster or slower
        for name in ("tp2-dp4", "dp8", "tp2-dp2-pp2"):
            add(f"nobody/unlike-{percent}pct-{name}", LAYOUTS[name], HARMLESS,
                imbalance=percent / 100, jitter=1e4)  # fmt: skip
    add("nobody/immaterial", one_slow(replace(GRID, jitter=TINY), 10), NOBODY)
    add("nobody/immaterial-sometimes", one_slow(replace(GRID, jitter=TINY), 50, every=5), NOBODY,
        steps=30)  # fmt: skip
    add("nobody/warm-up", GRID, NOBODY, warm_up=8.0)
    add("nobody/warm-up-spread", GRID, NOBODY, warm_up=8.0, warm_up_spread=0.3)
    add("nobody/warm-up-spread-pp", PIPE, NOBODY, warm_up=8.0, warm_up_spread=0.3)
    add("nobody/warm-up-spread-3-steps", DP8, NOBODY, warm_up=8.0, warm_up_spread=0.3, steps=3)
    add("nobody/evaluation", GRID, NOBODY, evaluation=4, world=True, steps=16)
    add("nobody/evaluation-pp", PIPE, NOBODY, evaluation=4, world=True)
    add("nobody/mid-step", GRID, NOBODY, mid={3: 0.6})
    add("nobody/mid-step-all", GRID, NOBODY, mid={r: 0.1 * r for r in range(8)})
    add("nobody/mid-step-pp", PIPE, NOBODY, mid={1: 0.4, 6: 0.7})
    add("nobody/mid-step-3-steps", DP8, NOBODY, mid={3: 0.6}, steps=3)
    add("nobody/clipped", GRID, NOBODY, mid={3: 0.6, 5: 0.3}, clipped=True)
    add("nobody/clipped-all-2-steps", GRID, NOBODY, mid={r: 0.1 * r for r in range(8)},
        clipped=True, steps=2)  # fmt: skip
    add("nobody/clipped-1-step", GRID, NOBODY, mid={r: 0.1 * r for r in range(8)}, clipped=True,
        steps=1)  # fmt: skip
    add("nobody/one-has-1-step", GRID, NOBODY, windows={6: (4, 5)})
    add("nobody/wander", GRID, NOBODY, wander=0.003, jitter=5e3)
    add("nobody/wander-30-steps", DP8, NOBODY, wander=0.003, jitter=5e3, steps=30)
    add("nobody/noisy-ends", GRID, NOBODY, noisy={2: 20.0})
    add("nobody/resolution-10us", GRID, NOBODY, resolution_ns=10_000)
    add("nobody/windows", GRID, NOBODY, windows={1: (3, 12), 4: (0, 8), 6: (5, 12)})
    add("nobody/windows-relative", GRID, NOBODY, windows={1: (3, 12), 4: (0, 8)},
        numbering="relative")  # fmt: skip
    add("nobody/windows-pp", PIPE, NOBODY, windows={1: (3, 12), 4: (0, 8), 6: (5, 12)})
    add("nobody/no-marks", GRID, NOBODY, numbering="none")
    add("nobody/repeated-numbers", GRID, NOBODY, numbering="repeated", steps=16)
    add("nobody/uncaptured", GRID, NOBODY, uncaptured=(1, 2, 7))
    add("nobody/uncaptured-pp", PIPE, NOBODY, uncaptured=(1, 6))
    add("nobody/two-of-64", LARGE, NOBODY, uncaptured=tuple(range(2, 64)))
    add("nobody/lost", GRID, NOBODY, lost={1: 0.05, 5: 0.2})
    add("nobody/lost-pp", PIPE, NOBODY, lost={1: 0.05, 5: 0.2})
    add("nobody/split-rows", GRID, NOBODY, split={2: 0.1})
    add("nobody/spikes", GRID, NOBODY, spikes=0.004, spike_ns=3e6, steps=30)
    add("nobody/spikes-2-ranks", TWO, NOBODY, spikes=0.01, spike_ns=3e6, steps=30)
    for name in ("tp2-dp4", "dp8", "tp2-dp2-pp2", "2-ranks"):
        job = LAYOUTS[name]
        add(f"nobody/pauses-{name}", job, NOBODY, pauses=0.1, pause_ns=2e6, steps=30)
        add(f"nobody/uneven-{name}", job, NOBODY, uneven=0.05)
        add(f"nobody/uneven-few-{name}", job, NOBODY, uneven=0.2, steps=4)
        add(f"nobody/loader-{name}", job, NOBODY, broadcast=True)
        add(f"nobody/silent-{name}", job, NOBODY, silent=True)
        add(f"nobody/pace-{name}", job, NOBODY, pace=0.3)
    for name in ("dp8-ep4", "pp2-ep2"):
        add(f"nobody/experts-{name}", LAYOUTS[name], NOBODY, expert_uneven=0.3)
        add(f"nobody/experts-few-{name}", LAYOUTS[name], NOBODY, expert_uneven=0.5, steps=3)
    add("nobody/interleaved", CHUNKS, NOBODY)
    add("nobody/interleaved-1-step", CHUNKS, NOBODY, steps=1)
    add("nobody/half-captured", GRID, NOBODY, uncaptured=(0, 2, 4, 6))
    add("nobody/half-captured-dp", DP8, NOBODY, uncaptured=(4, 5, 6, 7))
    add("nobody/half-captured-pp", PIPE, NOBODY, uncaptured=(0, 3, 5, 6))
    add("nobody/clock-steps", stepping, NOBODY)
    add("nobody/drift-1000ppm", GRID, NOBODY,
        clocks=tuple(Clock(r * 10**6, 1000.0 * (r % 3)) for r in range(8)))  # fmt: skip
    add("nobody/hccl", GRID, NOBODY, dialect="hccl")
    add("nobody/unnamed", GRID, NOBODY, unnamed=True)
    add("nobody/stamps-800ms", GRID, NOBODY, stamps="unix", host_size=4,
        clocks=tuple(Clock(8 * 10**8 * (r // 4)) for r in range(8)))  # fmt: skip
    add("nobody/drift-100ppm", GRID, NOBODY,
        clocks=tuple(Clock(r * 10**6, 100.0 * (r % 2)) for r in range(8)))  # fmt: skip
    add("nobody/end-bias", GRID, NOBODY, end_bias=tuple(4e3 * (r % 3) for r in range(8)))
    add("nobody/alike", GRID, NOBODY, pace=0.0, jitter=TINY, windows={1: (6, 12), 4: (0, 7)})


def _slow() -> None:
    add("slow/anything", anything_slow, FEW)
    for noise in SHAPES:
        few = replace(STRONG["tp2-dp4"], steps=8, noise=noise)
        few = replace(few, jitter=2 * few.jitter)  # or 3 times as much would be about 1 % of a step
        # much of these is about 1 % of a step: of those that are clearly more
        add(f"slow/3x-8-steps-{noise}", one_slow(few, 3), ({"named": 0.95}, NAMED[1]))
        add(f"slow/3x-{noise}", one_slow(replace(STRONG["dp8"], noise=noise), 3), NAMED)
        add(
            f"slow/10x-8-steps-{noise}",
            one_slow(replace(STRONG["tp2-dp4"], steps=8, noise=noise), 10),
            CERTAIN,
        )
    for name, job in LAYOUTS.items():
        if job.pp == 1:
            add(f"slow/3x-{name}", one_slow(STRONG[name], 3), NAMED)
        add(f"slow/3x-everywhere-{name}", one_slow(job, 3, everywhere=True), NAMED)
        add(f"slow/10x-{name}", one_slow(job, 10), CERTAIN)
        add(f"slow/1-step-100x-{name}", one_slow(replace(job, steps=1), 100), HARMLESS)
    for count in (2, 3, 4, 5):
        for name in ("2-ranks", "dp8", "tp2-dp4"):
            goal = FEW if count > 2 else HARMLESS
            add(f"slow/30x-{count}-steps-{name}", one_slow(LAYOUTS[name], 30), goal, steps=count)
    add("slow/30x-4-steps-pp", one_slow(PIPE, 30), FEW, steps=4)
    add("slow/300x-3-steps-2-ranks", one_slow(replace(TWO, jitter=1e4), 300), FEW, steps=3)
    add("slow/10x-64-ranks", one_slow(LARGE, 10), CERTAIN)
    add("slow/30x-256-ranks", one_slow(HUGE, 30), FEW)
    add("slow/6x-everywhere", one_slow(DP8, 6, everywhere=True), NAMED)
    add("slow/1x-everywhere-pp", one_slow(PIPE, 1, everywhere=True), NAMED)
    for cause in ("host", "input", "gc"):
        add(f"slow/10x-{cause}", one_slow(GRID, 10, cause=cause), CERTAIN)
        add(f"slow/10x-{cause}-anywhere", one_slow(GRID, 10, cause=cause, anywhere=True), NAMED)
    add("slow/regular", one_slow(replace(GRID, jitter=TINY), 100), CERTAIN)
    add("slow/5pct-regular", one_slow(replace(DP8, jitter=TINY), 30, everywhere=True), CERTAIN)
    add("slow/warm-up", one_slow(replace(GRID, warm_up=8.0, warm_up_spread=0.3), 10), CERTAIN)
    add("slow/evaluation", one_slow(replace(GRID, evaluation=4, world=True, steps=16), 10), NAMED)
    add("slow/mid-step", one_slow(replace(GRID, mid={3: 0.6}), 10), CERTAIN)
    add("slow/windows", one_slow(replace(GRID, windows={1: (3, 12), 4: (0, 9)}), 10), NAMED)
    add(
        "slow/windows-relative",
        one_slow(replace(GRID, windows={1: (2, 12), 4: (0, 10)}, numbering="relative"), 10),
        NAMED,
    )
    add(
        "slow/repeated-numbers",
        one_slow(replace(GRID, numbering="repeated", steps=16), 10),
        CERTAIN,
    )
    add("slow/no-marks", one_slow(replace(GRID, numbering="none"), 10), NAMED)
    add("slow/lost", one_slow(replace(GRID, lost={1: 0.05, 5: 0.1}), 10), NAMED)
    add("slow/imbalance-1pct", one_slow(replace(GRID, imbalance=0.005, jitter=10e3), 40), CERTAIN)
    add("slow/spikes", one_slow(replace(GRID, spikes=0.004, spike_ns=3e6, steps=30), 10), NAMED)
    add("slow/hccl", one_slow(replace(GRID, dialect="hccl"), 10), CERTAIN)
    add("slow/stamps-800ms", one_slow(GRID, 10), CERTAIN, stamps="unix", host_size=4,
        clocks=tuple(Clock(8 * 10**8 * (r // 4)) for r in range(8)))  # fmt: skip
    add("slow/pp-uneven", one_slow(replace(PIPE, layers=(3, 2), tied=True, world=True), 10), NAMED)
    add("slow/half", replace(DP8, delays=(Delay((0, 2, 5, 7), 9e5),)), HARMLESS)
    add("slow/wander", one_slow(replace(GRID, wander=0.003), 10), CERTAIN)
    add("slow/pp-only", one_slow(Job(pp=4, micro_batches=4, jitter=1e5), 30), HARMLESS)
    add("slow/not-captured", replace(GRID, uncaptured=(3,), delays=(Delay((3,), 1e6),)), HARMLESS)
    add("slow/not-captured-group", replace(GRID, uncaptured=(2, 3), delays=(Delay((3,), 1e6),)),
        HARMLESS)  # fmt: skip
    add("slow/with-uncaptured", replace(GRID, uncaptured=(1, 6), delays=(Delay((3,), 1e6),)),
        NAMED)  # fmt: skip
    add("slow/immaterial-and-not", replace(DP8, delays=(Delay((3,), 1e6), Delay((5,), 2e4))),
        CERTAIN)  # fmt: skip
    add("slow/ties-2", replace(DP8, delays=(Delay((2, 5), 9e5),)), NAMED)
    add("slow/ties-clones", replace(DP8, copies=((2, 5), (2, 7)), delays=(Delay((2, 5, 7), 9e5),)),
        NAMED)  # fmt: skip
    add("slow/ties-tp-group", replace(GRID, delays=(Delay((4, 5), 9e5),)), NAMED)
    add("slow/ties-3-of-4", replace(DP4, delays=(Delay((0, 1, 3), 9e5),)), HARMLESS)
    for both in ((1, 6), (0, 1, 4)):
        delays = tuple(Delay((r,), ns) for r, ns in zip(both, (1e6, 6e5, 1e6), strict=False))
        how = "-".join(map(str, both))
        add(f"slow/unlike-delays-{how}", replace(GRID, delays=delays), NAMED)
    add("slow/both-stages", replace(PIPE, delays=(Delay((1,), 4e6), Delay((6,), 4e6))), NAMED)
    add("slow/last-stage", replace(PIPE, delays=(Delay((7,), 3e6),)), CERTAIN)
    add("slow/interleaved-last-stage", replace(CHUNKS, delays=(Delay((7,), 3e6),)), CERTAIN)
    add("slow/interleaved-everywhere", one_slow(CHUNKS, 3, everywhere=True), NAMED)
    add("slow/pauses", one_slow(replace(GRID, pauses=0.1, pause_ns=2e6, steps=30), 10), NAMED)
    add("slow/uneven", one_slow(replace(DP8, uneven=0.02, steps=20), 0.7e6 / varying(DP8)), NAMED)
    add("slow/experts", one_slow(replace(EXPERTS, expert_uneven=0.3, steps=20), 20), NAMED)
    for name in ("tp8", "dp8"):
        loads = replace(LAYOUTS[name], broadcast=True, delays=(Delay((0,), 9e5, cause="input"),))
        add(f"slow/loader-{name}", loads, CERTAIN)
    add("slow/loaders", replace(GRID, broadcast=True, delays=tuple(
        Delay((r,), 9e5, cause="input") for r in (0, 2, 4, 6))), HARMLESS)  # fmt: skip
    add("slow/half-captured", one_slow(replace(GRID, uncaptured=(0, 2, 4, 6)), 10), NAMED)
    add("slow/half-captured-dp", one_slow(replace(DP8, uncaptured=(4, 5, 6, 7)), 10), NAMED)
    add("slow/silent-dp8", one_slow(replace(DP8, silent=True), 10), NAMED)
    add("slow/clock-steps", lambda seed: one_slow(stepping(seed), 10)(seed), CERTAIN)
    add("slow/pace", one_slow(replace(GRID, pace=0.3), 10), NAMED)
    add("slow/from-some-step", replace(GRID, steps=30, delays=(
        Delay((3,), 9e5, only=tuple(range(18, 30))),)), HARMLESS)  # fmt: skip
    for name, parallelism, index in (("tp2-dp4", "tp", 2), ("tp2-dp4", "dp", 1),
                                     ("tp2-dp2-pp2", "tp", 3), ("dp8-ep4", "ep", 1),
                                     ("tp2-dp2-pp2", "pp", 1)):  # fmt: skip
        add(f"slow/link-3x-{parallelism}-of-{name}", LAYOUTS[name], NAMED,
            slow_group=(parallelism, index, 3.0), layers=4, jitter=30e3,
            transfer_ns=dict.fromkeys(("tp", "dp", "ep", "pp"), 3e5))  # fmt: skip


def _sometimes() -> None:
    grid = STRONG["tp2-dp4"]
    for noise in SHAPES:
        add(
            f"sometimes/10x-every-5-{noise}",
            one_slow(replace(grid, steps=30, noise=noise), 10, every=5, phase=4),
            NAMED,
        )
    for name in ("2-ranks", "dp8", "tp2-dp2-pp2", "dp8-ep4", "overlapped"):
        job = STRONG[name]
        add(
            f"sometimes/every-5-{name}",
            one_slow(job, 10 * (1 + (job.pp > 1)), every=5, phase=4),
            NAMED,
            steps=30,
        )
    for cause, anywhere in (("host", True), ("gc", True), ("input", False)):
        add(f"sometimes/10x-every-5-{cause}", one_slow(grid, 10, every=5, phase=4, cause=cause,
            anywhere=anywhere), NAMED, steps=30)  # fmt: skip
    for count in (10, 15, 25):
        add(f"sometimes/10x-every-5-{count}-steps", one_slow(grid, 10, every=5, phase=4), HARMLESS,
            steps=count)  # fmt: skip
    add("sometimes/10x-every-5-20-steps", one_slow(grid, 10, every=5), NAMED, steps=20)
    add("sometimes/100x-every-5", one_slow(GRID, 100, every=5, phase=4), NAMED, steps=30)
    # two late steps are of the same of eight ranks in one of eight jobs by chance: no test can tell
    add("sometimes/100x-every-5-10-steps", one_slow(GRID, 100, every=5, phase=4), HARMLESS,
        steps=10)  # fmt: skip
    add("sometimes/100x-every-3", one_slow(DP8, 100, every=3, phase=1), NAMED, steps=12)
    add("sometimes/every-2", one_slow(GRID, 10, every=2), NAMED, steps=20)
    add("sometimes/gc-every-10", one_slow(GRID, 100, every=10, phase=5, cause="gc", anywhere=True),
        NAMED, steps=30)  # fmt: skip
    add("sometimes/at-random", one_slow(GRID, 30, chance=0.25), HARMLESS, steps=30)
    add("sometimes/once", one_slow(GRID, 100, only=(7,)), HARMLESS)
    add("sometimes/once-2-ranks", one_slow(TWO, 100, only=(7,)), HARMLESS)
    add("sometimes/once-pp", one_slow(PIPE, 100, only=(7,)), HARMLESS)
    add(
        "sometimes/two-ranks",
        replace(
            DP8,
            steps=30,
            delays=(Delay((2,), 12e5, every=5, phase=1), Delay((6,), 12e5, every=5, phase=3)),
        ),
        NAMED,
    )
    add("sometimes/warm-up", one_slow(replace(GRID, warm_up=8.0, warm_up_spread=0.3), 20, every=4,
        phase=2), NAMED, steps=24)  # fmt: skip


def anything(seed: int, fewest: int = 1) -> Job:
    """Whatever jobs may be, all at once."""
    rng = np.random.default_rng((seed, 28))
    job = LAYOUTS[str(rng.choice(list(LAYOUTS)))]
    steps = int(rng.integers(fewest, 20))
    maybe = iter((rng.random(16) < 0.2).tolist())
    chosen = rng.permutation(job.ranks)[:2].tolist()
    few = steps < 4
    return replace(
        job,
        steps=steps,
        noise=str(rng.choice(list(SHAPES))),
        end_noise=str(rng.choice(list(SHAPES))),
        jitter=job.jitter * float(rng.uniform(0.1, 1.5)),
        end_jitter=float(10 ** rng.uniform(2.7, 4.5)),
        pace=float(10 ** rng.uniform(-4, -1.2)),
        imbalance=0.003 * next(maybe),
        warm_up=float(rng.uniform(1, 10)) if next(maybe) else 1.0,
        warm_up_spread=0.3 * next(maybe),
        evaluation=4 * next(maybe),
        world=next(maybe),
        tied=next(maybe),
        messages=str(rng.choice(["rendezvous", "eager"])),
        coalesced=next(maybe),
        windows={}
        if few or not next(maybe)
        else {chosen[0]: (1, steps), chosen[1]: (0, steps - 2)},
        mid={chosen[1]: 0.5} if next(maybe) else {},
        clipped=next(maybe),
        lost={chosen[0]: 0.1} if next(maybe) else {},
        split={chosen[1]: 0.05} if next(maybe) else {},
        uncaptured=tuple(chosen[:1]) if job.ranks > 2 and next(maybe) else (),
        numbering=str(rng.choice(["absolute"] * 4 + ["relative", "none"])),
        dialect=str(rng.choice(["torch", "hccl"])),
        stamps=str(rng.choice(["", "unix"])),
        clocks=any_clocks(seed, job.ranks, float(10 ** rng.uniform(5, 9)), 60.0),
        seed=seed,
    )


def anything_slow(seed: int) -> Job:
    """The same with a rank that is slow beyond doubt, in at least eight steps."""
    job = anything(seed, fewest=8)
    least = 0.05 * 3e6 * job.layers_of(0) * job.micro_batches
    return one_slow(job, max(8.0, least / varying(job)))(seed)


def stepping(seed: int) -> Job:
    """Three clocks are set, by up to 5 ms, at times of their own."""
    rng = np.random.default_rng((seed, 29))
    every = list(any_clocks(seed, GRID.ranks))
    for rank in rng.permutation(GRID.ranks)[:3].tolist():
        at, by = rng.uniform(0.1, 0.9) * GRID.steps * 7e6, rng.uniform(-5e6, 5e6)
        every[rank] = replace(every[rank], jumps=((int(at), int(by)),))
    return replace(GRID, clocks=tuple(every))


_nobody()
_slow()
_sometimes()
