"""``python -m tests.scenarios.causes --seeds 5``: causes that are planted, and causes found.

Each job of ``tests/support/job_simulator`` has one cause, which costs about a twelfth of a step.
The true gain is that of the same job, with the same random numbers, run again as the right remedy
says: without the delay, with equal work, without any input, host time or exposed transfer. Of every
job the first remedy is compared with the cause, and its gain with the true one. Layouts, shapes of
noise and clocks vary; who is slow, and when, is drawn by the seed. ``--markdown`` prints the tables
of docs/concepts/causes.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from job_simulator import Delay, Job, run
from job_simulator.noise import SHAPES
from job_simulator.observed import judged
from job_simulator.scenarios import any_clocks
from job_simulator.simulate import batch_lengths, lengths

NOTHING = "nothing"
_WORTH = 0.05  # of a step: a remedy that gains less is none of these causes

_QUIET = dict.fromkeys(("tp", "dp", "ep", "pp", "world", "tied"), 30e3)  # ns of transfers
_BASE = Job(steps=16, transfer_ns=_QUIET, input_ns=20e3, pace=0.01)
LAYOUTS = {
    "dp8": replace(_BASE, dp=8),
    "tp8": replace(_BASE, tp=8),
    "tp2 dp4": replace(_BASE, tp=2, dp=4),
    "dp4 pp2 (1F1B)": replace(_BASE, dp=4, pp=2, micro_batches=4),
    "dp2 pp4 (1F1B, eager)": replace(_BASE, dp=2, pp=4, micro_batches=8, messages="eager"),
    "tp2 dp2 pp2 (interleaved)": replace(
        _BASE, tp=2, dp=2, pp=2, micro_batches=4, layers=1, chunks=2, messages="eager"
    ),
    "dp8 ep4": replace(_BASE, dp=8, ep=4),
    "tp2 dp4, overlapping": replace(_BASE, tp=2, dp=4, layers=4, buckets=3, overlap=True),
    "dp8, sharded": replace(_BASE, dp=8, sharded=True, world=True),
}  # fmt: skip


def _slow(cause: str = "compute", **how: object) -> Callable[[Job, int, float], Job]:
    """One rank, drawn by the seed, takes longer."""

    def made(job: Job, rank: int, ns: float) -> Job:
        every = how.get("every", 1)
        only = tuple(range(job.steps // 2, job.steps)) if how.get("half") else ()
        share = len(only) / job.steps if only else 1 / every
        delay = Delay((rank,), ns / share, every=every, phase=every - 1, only=only, cause=cause,
                      spread=bool(how.get("spread")))  # fmt: skip
        return replace(job, delays=(delay,))

    return made


def _everywhere(cause: str) -> Callable[[Job, int, float], Job]:
    def made(job: Job, rank: int, ns: float) -> Job:
        return replace(job, delays=(Delay(tuple(range(job.ranks)), ns, cause=cause),))

    return made


def _slow_link(job: Job, rank: int, ns: float) -> Job:
    """A group of the axis with most groups takes three times as long."""
    axis = max(job.groups(), key=lambda name: (len(job.groups()[name]), name != "pp"))
    group = job.group_of(axis, rank)
    return replace(job, slow_group=(axis, group, 3.0),
                   transfer_ns={**_QUIET, axis: ns / 2 / _operations(job, axis)})  # fmt: skip


def _operations(job: Job, axis: str) -> int:
    """About how many operations of an axis a rank has in a step."""
    passes = job.micro_batches * job.chunks
    layers = 2 * passes * job.layers_of(0)
    return {"tp": layers, "ep": 2 * layers, "pp": 4 * passes}.get(axis, job.buckets)


def _uneven_stages(job: Job, rank: int, ns: float) -> Job:
    first = job.layers_of(0)
    most = rank // job.stage_size
    return replace(job, layers=tuple(first + (stage == most) for stage in range(job.pp)))


def _even_stages(job: Job, found: str) -> dict[str, Any]:
    """The same operations, with equally much work in all stages."""
    work = 3 * job.micro_batches * np.array(job.layers) + 0.25  # forward, backward, optimizer
    return {"stage_pace": tuple(work.mean() / work)}


def _of_stages(factors: np.ndarray, job: Job) -> tuple[float, ...]:
    """The mean factor on the work of each stage: ranks of a stage have equal work, stages keep
    theirs."""
    return tuple(factors.reshape(job.steps, job.pp, -1).mean(axis=(0, 2)).tolist())


@dataclass(frozen=True)
class Cause:
    """A cause that is planted.

    Attributes:
        plant: into a job, with the rank and the ns per step it costs, at most.
        mended: what of that job is different once it is mended, as the cause that was found says.
        found: causes of remedies that are right.
        fits:  in which jobs it can be.
    """

    plant: Callable[[Job, int, float], Job]
    found: tuple[str, ...]
    mended: Callable[[Job, str], dict[str, Any]] = lambda job, found: {"delays": ()}
    fits: Callable[[Job], bool] = lambda job: True


CAUSES = {
    NOTHING: Cause(lambda job, rank, ns: job, (NOTHING,)),
    "one rank slow": Cause(_slow(spread=True), ("one rank slow",)),
    "one rank slower from some step on": Cause(
        _slow(half=True, spread=True), ("one rank slower from some step on",)
    ),
    "one rank slow in some steps": Cause(_slow(every=4), ("one rank slow in some steps",)),
    "host of one rank": Cause(_slow("host"), ("host of one rank",)),
    "garbage collection of one rank": Cause(
        _slow("gc", every=4), ("garbage collection of one rank", "garbage collection")
    ),
    "input of one rank": Cause(_slow("input"), ("input of one rank", "input")),
    "copies of one rank": Cause(_slow("copy"), ("copies of one rank", "copies")),
    "slow link": Cause(
        _slow_link, ("slow link",), lambda job, found: {"slow_group": None},
        lambda job: max(len(m) for m in job.groups().values()) > 1 and job.messages != "eager",
    ),
    "uneven stages": Cause(
        _uneven_stages, ("uneven stages",), _even_stages,
        lambda job: job.pp > 1 and job.chunks == 1,
    ),
    "uneven work": Cause(
        lambda job, rank, ns: replace(job, uneven=0.08), ("uneven work",),
        lambda job, found: {"uneven": 0.0, "stage_pace": _of_stages(lengths(job), job)},
    ),
    "uneven micro-batches": Cause(
        lambda job, rank, ns: replace(job, uneven_batches=0.15), ("uneven work",),
        lambda job, found: {
            "uneven_batches": 0.0, "stage_pace": (float(batch_lengths(job).mean()),) * job.pp
        },
        lambda job: job.pp > 1,
    ),
    "input": Cause(
        _everywhere("input"), ("input",), lambda job, found: {"delays": (), "input_ns": 1.0},
        lambda job: job.pp == 1,
    ),
    "host": Cause(
        _everywhere("host"), ("host", "gaps between steps"),
        lambda job, found: {"delays": (), "launch_ns": job.launch_ns * (found != "host")},
    ),
    "gaps between steps": Cause(
        lambda job, rank, ns: replace(job, gap_ns=ns), ("gaps between steps",),
        lambda job, found: {"gap_ns": 0.0},
    ),
    "exposed communication": Cause(
        lambda job, rank, ns: replace(
            job, transfer_ns={**_QUIET, "dp": 3 * ns / (job.buckets * (1 + job.sharded))}
        ),
        ("exposed communication",),
        lambda job, found: {"transfer_ns": dict.fromkeys(_QUIET, 0.0), "send_ns": 0.0},
        lambda job: job.dp > 1,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What is said of one job.

    Attributes:
        found:  the cause of its first remedy.
        named:  whether ranks or groups are named, and none is right.
        true_ns, gain_ns: per step, of the remedy; interval_ns: of the latter.
        share:  of a step that the true gain is.
    """

    found: str
    strange: bool
    true_ns: float
    gain_ns: float
    interval_ns: tuple[float, float]
    share: float


def answer(layout: str, cause: str, seed: int) -> Answer:
    """Simulate, judge, compare."""
    base, kind = LAYOUTS[layout], CAUSES[cause]
    rng = np.random.default_rng((seed, 601))
    step_ns = run(replace(base, steps=2)).step_ns
    base = replace(
        base, seed=seed, noise=str(rng.choice([name for name in SHAPES if name != "cauchy"])),
        jitter=float(rng.uniform(2e3, 2e4)), clocks=any_clocks(seed, base.ranks),
    )  # fmt: skip
    rank = int(rng.integers(base.ranks))
    planted = kind.plant(base, rank, step_ns / 12)
    happened = run(planted)
    verdict = judged(happened)
    first = next((one for one in verdict.remedies() if one.share >= _WORTH), None)
    cause_found = first.change.cause if first else NOTHING
    without = run(replace(planted, **kind.mended(planted, cause_found)))
    true_ns = (happened.duration_ns - without.duration_ns) / planted.steps
    named = {one.rank for one in verdict.culprits}
    right = {rank} if "one rank" in cause else set()
    strange = bool(named - right) or (bool(verdict.slow_groups) and cause != "slow link")
    share = true_ns / happened.duration_ns * planted.steps
    if first is None:
        return Answer(cause_found, strange, true_ns, 0.0, (0.0, 0.0), share)
    return Answer(cause_found, strange, true_ns, first.gain_ns, first.interval_ns, share)


def table(seed: int) -> Iterator[tuple[str, str, Answer]]:
    """Cause, layout and what is said of each job with a seed."""
    for cause, kind in CAUSES.items():
        for layout, job in LAYOUTS.items():
            if kind.fits(job):
                yield cause, layout, answer(layout, cause, seed)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.causes", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="causes that begin so")
    parser.add_argument("--layout", default="", help="layouts that begin so")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to this file")
    given = parser.parse_args()
    every: dict[str, list[tuple[str, Answer]]] = {}
    for name in [one for one in CAUSES if not one.startswith(given.only)]:
        del CAUSES[name]
    for name in [one for one in LAYOUTS if not one.startswith(given.layout)]:
        del LAYOUTS[name]
    lines: list[str] = []
    for seed in range(given.first, given.first + given.seeds):
        for cause, layout, one in table(seed):
            every.setdefault(cause, []).append((layout, one))
            worth = cause == NOTHING or one.share >= _WORTH
            if one.strange or (worth and one.found not in CAUSES[cause].found):
                named = ", a wrong rank or link is named" * one.strange
                print(f"seed {seed}: {cause}, {layout}: {one.found}{named}", flush=True)
        print(f"seed {seed} done", flush=True)
        lines = list(_markdown(every))
        if given.markdown:
            Path(given.markdown).write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


def _markdown(every: dict[str, list[tuple[str, Answer]]]) -> Iterator[str]:
    """The tables: what is found of each cause, and how good gains are."""
    yield "| planted | jobs | right | found instead | gain: median error | in the interval |"
    yield "|---|--:|--:|---|--:|--:|"
    for cause, answers in every.items():
        worth = [one for _, one in answers if cause == NOTHING or one.share >= _WORTH]
        if not worth:
            continue
        right = [one for one in worth if one.found in CAUSES[cause].found]
        other = Counter(one.found for one in worth if one not in right)
        off = [abs(one.gain_ns / one.true_ns - 1) for one in right if one.gain_ns]
        inside = [one.interval_ns[0] <= one.true_ns <= one.interval_ns[1]
                  for one in right if one.gain_ns]  # fmt: skip
        cells = [
            cause, len(worth), f"{100 * len(right) / len(worth):.0f} %",
            ", ".join(f"{name} {n}" for name, n in other.most_common()) or "-",
            f"{100 * np.median(off):.1f} %" if off else "-",
            f"{100 * np.mean(inside):.0f} %" if inside else "-",
        ]  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    nobody = [pair for cause, pairs in every.items() for pair in pairs
              if "one rank" not in cause and cause != "slow link"]  # fmt: skip
    yield "| layout | jobs without a slow rank or link | a rank or link is named |"
    yield "|---|--:|--:|"
    for layout in dict.fromkeys(name for name, _ in nobody):
        mine = [one for name, one in nobody if name == layout]
        yield f"| {layout} | {len(mine)} | {sum(one.strange for one in mine)} |"


if __name__ == "__main__":
    sys.exit(main())
