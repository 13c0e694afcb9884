"""The scenarios of clocks, of the same table: see :mod:`.scenarios`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .jobs import Clock, Delay, Job
from .noise import SHAPES
from .scenarios import (
    COVERED,
    DP8,
    GRID,
    LARGE,
    LAYOUTS,
    OVERLAPPED,
    PIPE,
    REFUSED,
    TINY,
    TWO,
    USED,
    add,
    any_clocks,
    anything,
)  # fmt: skip

CHECKED = ({"middle": 0.98}, {"surely wrong": 0.002, "unsaid": 0.002, "kept": 0.0})

REGULAR = Job(tp=2, dp=4, jitter=5e3)
SHORT = Job(tp=2, dp=4, layers=1, compute_ns=1e6, jitter=5e3)


def _clocks() -> None:
    add("clocks/anything", anything, COVERED)
    for noise in SHAPES:
        add(
            f"clocks/ends-{noise}", REGULAR, COVERED if noise == "cauchy" else USED, end_noise=noise
        )
        add(f"clocks/ends-20us-{noise}", REGULAR, COVERED, end_noise=noise, end_jitter=20e3)
        add(f"clocks/busy-{noise}", GRID, COVERED, noise=noise, end_noise=noise, end_jitter=5e3)
    for name, job in LAYOUTS.items():
        add(f"clocks/layout-{name}", job, COVERED)
        add(f"clocks/layout-{name}-2-steps", job, COVERED, steps=2)
        add(f"clocks/layout-{name}-1-step", job, COVERED, steps=1)
    for coalesced in (True, False):
        how = "coalesced" if coalesced else "single"
        add(f"clocks/pp-eager-{how}", PIPE, COVERED, messages="eager", coalesced=coalesced)
        add(f"clocks/pp-only-{how}", Job(pp=4, micro_batches=4), COVERED, coalesced=coalesced)
    add("clocks/64-ranks", LARGE, COVERED)
    add("clocks/hccl", GRID, COVERED, dialect="hccl")
    xla = replace(REGULAR, dialect="xla")
    add("clocks/identified", xla, USED)
    add("clocks/identified-alike-lost", xla, USED, lost=dict.fromkeys(range(8), 0.3), pace=0.0,
        jitter=TINY / 2, input_ns=0)  # fmt: skip
    for noise in ("normal", "lognormal", "pareto"):
        add(f"clocks/identified-ends-1ms-{noise}", xla, COVERED, end_noise=noise, end_jitter=1e6)
    for where, made in (("near-ends", jump_near_ends), ("anywhere", jump_anywhere)):
        add(f"clocks/identified-jump-{where}", lambda seed, by=made: by(seed, xla), CHECKED)
    add("clocks/unnamed", GRID, COVERED, unnamed=True)
    for numbering in ("absolute", "relative", "none"):
        for pace in (0.0, 3e-5, 1e-3):
            add(f"clocks/alike-6-apart-{numbering}-pace-{pace:g}", DP8, COVERED, pace=pace,
                jitter=TINY / 2, input_ns=0, windows={3: (6, 24), 5: (0, 18)}, steps=24,
                numbering=numbering)  # fmt: skip
        add(f"clocks/alike-equal-length-{numbering}", TWO, COVERED, pace=3e-5, jitter=TINY / 2,
            input_ns=0, windows={0: (0, 18), 1: (6, 24)}, steps=24, numbering=numbering,
            layers=1)  # fmt: skip
        add(f"clocks/little-overlap-{numbering}", little_overlap, COVERED, numbering=numbering)
    add("clocks/no-overlap", TWO, REFUSED, windows={0: (0, 10), 1: (12, 22)}, steps=22)
    add("clocks/no-overlap-relative", TWO, REFUSED, windows={0: (0, 10), 1: (12, 22)}, steps=22,
        numbering="relative")  # fmt: skip
    for jump in (20_000, 200_000, 1_000_000, 50_000_000, -1_000_000):
        add(f"clocks/jump-{jump / 1e3:g}us", lambda seed, by=jump: jumping(seed, by), COVERED)
    add("clocks/jump-1ms-2-ranks", lambda seed: jumping(seed, 10**6, TWO), COVERED)
    add("clocks/bend-40ppm", bending, COVERED)
    add("clocks/drift-100ppm-150ms", drifting(SHORT), COVERED, steps=30)
    add("clocks/drift-100ppm-2-ranks", drifting(TWO), COVERED, steps=20)
    add("clocks/drift-100ppm-long", drifting(replace(SHORT, compute_ns=2e7)), COVERED, steps=30)
    add("clocks/drift-100ppm-chain", drifting(OVERLAPPED), COVERED)
    for size in (2, 10):
        add(f"clocks/bias-{size}us", lambda seed, us=size: biased(seed, us * 1e3, False), COVERED)
        add(f"clocks/bias-{size}us-by-group", lambda seed, us=size: biased(seed, us * 1e3, True),
            COVERED)  # fmt: skip
    for size in (5, 20):  # members of a ring end one after the other
        ramp = tuple(size * 1e3 * rank for rank in range(8))
        add(f"clocks/ring-{size}us", REGULAR, COVERED, end_bias=ramp)
        add(f"clocks/ring-{size}us-dp8", DP8, COVERED, end_bias=ramp)
    # before the first match ends nothing shows it: intervals hold where they are said to be checked
    for name, job in (("", REGULAR), ("-dp8", DP8)):
        for where, made in (("near-ends", jump_near_ends), ("anywhere", jump_anywhere)):
            add(f"clocks/jump-{where}{name}", lambda seed, of=job, by=made: by(seed, of), CHECKED)
    add("clocks/jump-anywhere-windows", lambda seed: replace(jump_anywhere(seed, DP8), steps=24,
        windows={r: (seed * r % 9, 15 + seed * r % 9) for r in range(8)}), CHECKED)  # fmt: skip
    add("clocks/several-jumps", several_jumps, COVERED)
    add("clocks/jump-and-back", lambda seed: several_jumps(seed, back=True), COVERED)
    for numbering in ("absolute", "relative"):
        add(f"clocks/alike-apart-{numbering}", alike_apart(REGULAR), COVERED, numbering=numbering)
        add(f"clocks/period-4-{numbering}", alike_apart(REGULAR), COVERED, numbering=numbering,
            jitter=5e3, delays=(Delay(tuple(range(8)), 3e6, every=4),))  # fmt: skip
        add(f"clocks/touching-{numbering}", Job(tp=2, layers=4), REFUSED, numbering=numbering,
            windows={0: (0, 10), 1: (10, 20)}, steps=20)  # fmt: skip
    add("clocks/uneven-steps", REGULAR, COVERED, pace=0.5, lost=dict.fromkeys(range(8), 0.2))
    add("clocks/lost-40pct-drift", drifting(REGULAR), COVERED, steps=30,
        lost=dict.fromkeys(range(8), 0.4))  # fmt: skip
    add("clocks/one-step-24-layers", Job(tp=2, dp=4, layers=24, steps=1), COVERED)
    add("clocks/256-ranks", Job(tp=8, dp=8, pp=4, micro_batches=2, steps=4), COVERED)
    add("clocks/lost-10pct", REGULAR, COVERED, lost=dict.fromkeys(range(8), 0.1))
    add("clocks/lost-half-of-one", REGULAR, COVERED, lost={3: 0.5})
    add("clocks/lost-alike", REGULAR, COVERED, lost=dict.fromkeys(range(8), 0.1), pace=0.0)
    add("clocks/windows", REGULAR, COVERED, windows={1: (3, 12), 4: (0, 8), 6: (5, 12)})
    add("clocks/windows-relative", REGULAR, COVERED, windows={1: (3, 12), 4: (0, 8), 6: (5, 12)},
        numbering="relative")  # fmt: skip
    add("clocks/mid-step", REGULAR, COVERED, mid={3: 0.6, 5: 0.2})
    add("clocks/split-rows", REGULAR, COVERED, split={2: 0.1})
    add("clocks/repeated-numbers", REGULAR, COVERED, numbering="repeated", steps=16)
    add("clocks/evaluation", GRID, COVERED, evaluation=4, world=True, steps=16)
    add("clocks/uncaptured", REGULAR, COVERED, uncaptured=(1, 2, 7))
    add("clocks/resolution-1us", REGULAR, USED, resolution_ns=1000)
    add("clocks/resolution-10us", REGULAR, COVERED, resolution_ns=10_000)
    add("clocks/noisy-ranks", REGULAR, COVERED, noisy={0: 10.0, 2: 5.0, 5: 20.0})
    add("clocks/clipped", REGULAR, COVERED, mid={3: 0.6, 5: 0.2}, clipped=True)
    add("clocks/one-has-1-step", REGULAR, COVERED, windows={6: (4, 5)})
    add("clocks/short-windows", replace(DP8, layers=1), COVERED, steps=30,
        windows={r: (3 * r, 3 * r + 9) for r in range(8)})  # fmt: skip
    add("clocks/host-jumps-1ms", host_jumping, COVERED)
    add("clocks/two-runs", DP8, COVERED, foreign=(4, 5, 6, 7))
    add("clocks/two-runs-alike", DP8, COVERED, foreign=(4, 5, 6, 7), pace=0.0, jitter=TINY)
    add("clocks/unix-1ms", hosts(1e6), COVERED, ("auto",))
    add("clocks/unix-800ms", hosts(8e8), COVERED, ("auto",))
    add("clocks/unix-800ms-ends-30us", hosts(8e8, 30e3), COVERED, ("auto",))
    add("clocks/unix-800ms-ends-30us-heavy", hosts(8e8, 30e3), COVERED, ("auto",), end_noise="t3")
    add("clocks/unix-800ms-ends-150us", hosts(8e8, 150e3), COVERED, ("auto",))
    add(
        "clocks/unix-800ms-messages",
        replace(
            PIPE,
            dp=1,
            tp=1,
            pp=4,
            stamps="unix",
            host_size=2,
            clocks=tuple(Clock(8 * 10**8 * (r // 2)) for r in range(4)),
        ),
        COVERED,
        ("auto",),
    )
    add("clocks/unix-800ms-few", hosts(8e8), COVERED, ("auto",), steps=2, layers=1)
    add("clocks/unix-1ms-alike-6-apart", hosts(1e6), COVERED, ("auto",), pace=3e-5, jitter=TINY,
        numbering="relative", steps=24, windows=dict.fromkeys(range(4, 8), (6, 24)))  # fmt: skip


def little_overlap(seed: int) -> Job:
    """9 of 60 operations are on both, and clocks drift by 100 ppm."""
    job = replace(TWO, layers=1, steps=111, windows={0: (0, 60), 1: (51, 111)}, jitter=5e3)
    return replace(job, clocks=(Clock(), any_clocks(seed, 2)[1]), seed=seed) if seed % 2 else (
        replace(job, clocks=(Clock(), Clock(any_clocks(seed, 2)[1].offset_ns, 100.0)))
    )  # fmt: skip


def jumping(seed: int, by: int, job: Job = REGULAR) -> Job:
    """A clock is set anywhere in the middle half of the run."""
    rng = np.random.default_rng((seed, 23))
    length = job.steps * 7e6
    every = list(any_clocks(seed, job.ranks))
    rank = int(rng.integers(1, job.ranks))
    every[rank] = replace(every[rank], jumps=((int(rng.uniform(0.25, 0.75) * length), by),))
    return replace(job, clocks=tuple(every))


def jump_near_ends(seed: int, job: Job = REGULAR) -> Job:
    """A clock is set within the first or last 6 % of the run."""
    rng = np.random.default_rng((seed, 41))
    at = rng.uniform(0, 0.06)
    at = job.steps * 7.2e6 * (at if rng.random() < 0.5 else 1 - at)
    every = list(any_clocks(seed, job.ranks))
    rank = int(rng.integers(1, job.ranks))
    by = int(rng.choice((-1, 1)) * 10 ** rng.uniform(4.3, 6))
    every[rank] = replace(every[rank], jumps=((int(at), by),))
    return replace(job, clocks=tuple(every))


def jump_anywhere(seed: int, job: Job = REGULAR) -> Job:
    """A clock is set at any time of the run."""
    rng = np.random.default_rng((seed, 43))
    every = list(any_clocks(seed, job.ranks))
    rank = int(rng.integers(0, job.ranks))
    by = int(rng.choice((-1, 1)) * 10 ** rng.uniform(4.5, 7))
    jumps = ((int(rng.uniform(0, 1) * job.steps * 7.2e6), by),)
    every[rank] = replace(every[rank], jumps=jumps)
    return replace(job, clocks=tuple(every))


def several_jumps(seed: int, back: bool = False) -> Job:
    """A clock is set three times, or for a while."""
    rng = np.random.default_rng((seed, 31))
    at = np.sort(rng.uniform(0.1, 0.9, 2 if back else 3)) * REGULAR.steps * 7e6
    by = rng.choice((-1, 1), len(at)) * 10 ** rng.uniform(4.3, 6, len(at))
    if back:
        by[1] = -by[0]
    every = list(any_clocks(seed, REGULAR.ranks))
    jumps = tuple(zip(at.astype(int).tolist(), by.astype(int).tolist(), strict=True))
    every[3] = replace(every[3], jumps=jumps)
    return replace(REGULAR, clocks=tuple(every))


def alike_apart(job: Job) -> Callable[[int], Job]:
    """Steps of equal length; captures begin up to six steps apart."""
    return lambda seed: replace(
        job, pace=0.0, jitter=TINY / 2, input_ns=0.0, steps=24,
        windows={1: (seed % 6 + 1, seed % 6 + 17), 2: (0, 16), 3: (seed % 6 + 1, 24)},
    )  # fmt: skip


def host_jumping(seed: int) -> Job:
    """All clocks of a host are set at once, by 1 ms."""
    at = int(np.random.default_rng((seed, 27)).uniform(0.25, 0.75) * REGULAR.steps * 7e6)
    every = any_clocks(seed, REGULAR.ranks)
    jumps = ((at, 10**6),)
    return replace(REGULAR, clocks=tuple(
        replace(c, jumps=jumps) if r >= 4 else c for r, c in enumerate(every)))  # fmt: skip


def bending(seed: int) -> Job:
    """All clocks change their pace by up to 40 ppm within the run."""
    rng = np.random.default_rng((seed, 24))
    job = replace(REGULAR, steps=30)
    at = rng.uniform(0.2, 0.8, job.ranks) * job.steps * 7.2e6
    every = (
        replace(c, bends=((int(t), float(rng.uniform(-40, 40))),))
        for c, t in zip(any_clocks(seed, job.ranks), at.tolist(), strict=True)
    )
    return replace(job, clocks=tuple(every))


def drifting(job: Job) -> Callable[[int], Job]:
    """Clocks that differ by 100 ppm."""
    return lambda seed: replace(
        job,
        clocks=tuple(
            Clock(c.offset_ns, 100.0 * (r % 2)) for r, c in enumerate(any_clocks(seed, job.ranks))
        ),
    )


def biased(seed: int, ns: float, by_group: bool) -> Job:
    """Each rank's ends are stamped late by its own bias, equal in all groups or not."""
    rng = np.random.default_rng((seed, 25))
    draws = {name: tuple(rng.normal(0, ns, REGULAR.ranks).tolist()) for name in REGULAR.groups()}
    return replace(REGULAR, end_bias=draws if by_group else draws["tp"])


def hosts(apart_ns: float, end_jitter: float = 2e3) -> Callable[[int], Job]:
    """Two hosts with Unix stamps so far apart; ranks of one host share its clock."""

    def made(seed: int) -> Job:
        off = int(np.random.default_rng((seed, 26)).choice((-1, 1)) * apart_ns)
        every = tuple(Clock(off * (r // 4), 5.0 * (r // 4)) for r in range(8))
        return replace(REGULAR, end_jitter=end_jitter, clocks=every, stamps="unix", host_size=4)

    return made


_clocks()
