"""The table: every scenario with many seeds, what is reached and whether that is enough."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from . import clock_scenarios  # noqa: F401 - adds its own
from .captures import write_kineto
from .observed import path, stretches
from .planted import agreement, any_layout
from .scenarios import SCENARIOS, Scenario
from .scores import RESULTS, clock_outcomes, clock_row, straggler_outcome, straggler_row
from .simulate import run as simulate

_VERDICT = (*RESULTS, "clear", "named", "steps wrong", "gain")
_CLOCK = (
    "accepted",
    "start",
    "middle",
    "end",
    "wrong",
    "surely wrong",
    "unsaid",
    "kept",
    "error us",
    "worst us",
)


def outcomes(name: str, seed: int) -> list[Any]:
    """What one scenario gives for one seed: a verdict, or the fits of each method."""
    scenario = SCENARIOS[name]
    job = scenario.job(seed)
    if not scenario.align:
        return [straggler_outcome(job)[0]]
    return [fits for fits, _ in clock_outcomes(job, scenario.align)]


def rows(scenario: Scenario, seeds: Sequence[int], run=map) -> Iterator[tuple[str, dict]]:
    """The lines of one scenario: its name with the method, and figures."""
    found = list(run(partial(outcomes, scenario.name), seeds))
    for index, align in enumerate(scenario.align or ("",)):
        column = [one[index] for one in found]
        shown = scenario.name + (f" [{align}]" if align else "")
        yield shown, clock_row(column) if align else straggler_row(column)


def failed(scenario: Scenario, row: dict[str, float]) -> list[str]:
    """The figures that do not reach what they must."""
    low = [k for k, v in scenario.least.items() if k in row and row[k] < v]
    return low + [k for k, v in scenario.most.items() if k in row and row[k] > v]


def chosen(patterns: Sequence[str]) -> list[Scenario]:
    """Scenarios whose names match or begin with one of the patterns; all, without any."""
    found = [
        s
        for name, s in SCENARIOS.items()
        if not patterns or any(fnmatch(name, p) or name.startswith(p) for p in patterns)
    ]
    if not found:
        sys.exit(f"no scenario matches {', '.join(patterns)}; --list shows all")
    return found


def _text(value: float | None, name: str) -> str:
    if value is None or value != value:
        return "-"
    if name.endswith("us"):
        return f"{value:.1f}"
    return f"{value:.2f}" if name == "gain" else f"{100 * value:.0f}%"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 if anything is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("names", nargs="*", help="names, their beginnings or patterns: 'slow/3x*'")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--largest", type=int, default=10**6, help="leave out jobs of more ranks")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", help="write the figures to this file, too")
    parser.add_argument("--show", type=int, metavar="SEED", help="print what is said of one job")
    parser.add_argument("--write", metavar="FOLDER", help="write one job as PyTorch traces")
    parser.add_argument("--paths", type=int, metavar="JOBS", help="critical paths of so many jobs")
    parser.add_argument("--apart", action="store_true", help="these have clocks of their own")
    given = parser.parse_args(arguments)
    if given.paths:
        return _paths(range(given.first, given.first + given.paths), given.apart)
    scenarios = [s for s in chosen(given.names) if s.ranks <= given.largest]
    if given.list:
        print("\n".join(f"{s.name:44} {s.ranks:4} ranks" for s in scenarios))
        return 0
    if given.write:
        (scenario,) = scenarios
        paths = write_kineto(simulate(scenario.job(given.first)), Path(given.write))
        print(f"{len(paths)} files in {given.write}")
        return 0
    if given.show is not None:
        return _show(scenarios, given.show)
    seeds = range(given.first, given.first + given.seeds)
    every: dict[str, Any] = {}
    missed, heading = 0, ()
    pool = ProcessPoolExecutor(given.jobs) if given.jobs > 1 else None
    run = partial(pool.map, chunksize=4) if pool else map
    for scenario in scenarios:
        columns = _CLOCK if scenario.align else _VERDICT
        if columns != heading:
            print(f"{'scenario':50}" + "".join(f"{c:>13}" for c in columns) + "  missed")
            heading = columns
        began = time.perf_counter()
        for shown, row in rows(scenario, seeds, run):
            lacking = failed(scenario, row)
            missed += bool(lacking)
            cells = "".join(f"{_text(row.get(c), c):>13}" for c in columns)
            print(f"{shown:50}{cells}  {', '.join(lacking)}", flush=True)
            every[shown] = {**row, "missed": lacking, "seconds": time.perf_counter() - began}
    print(f"{len(every)} lines, {missed} miss what they must reach; {len(seeds)} seeds each")
    if given.json:
        Path(given.json).write_text(json.dumps(every, indent=1))
    return int(missed > 0)


def _show(scenarios: Sequence[Scenario], seed: int) -> int:
    """Print what is true and what is said of single jobs."""
    for scenario in scenarios:
        job = scenario.job(seed)
        print(f"== {scenario.name} seed {seed}")
        if scenario.align:
            for fits, text in clock_outcomes(job, scenario.align):
                print(text)
                print(f"stated ns {fits.error_ns.tolist()}\ntrue ns {fits.apart_ns.tolist()}")
            continue
        outcome, found = straggler_outcome(job)
        print(f"slow: {job.delays or job.slow_group or 'nobody'}\n{outcome}\n{found.text}")
    return 0


EQUAL, WRONG = 0.99, 0.002
"""From which share of a step on a path is the planted one; up to which it is not wrong."""


def path_outcome(seed: int, apart: bool = False) -> tuple[float, float, float] | str:
    """The least that is the same in a step of a job, the most that is said to be certain and wrong,
    and what is certain on average; or why the path is unknown."""
    run = simulate(any_layout(seed, apart))
    found, error = path(run)
    if found.why:
        return found.why
    every = [
        agreement(run, step, stretches(found, step), 4 * error + 8000) for step, _ in found.steps
    ]
    certain = sum(one.certain for one in every) / len(every)
    return min(one.same for one in every), max(one.wrong for one in every), certain


def _paths(seeds: Sequence[int], apart: bool) -> int:
    known, equal, wrong, certain = 0, 0, 0, 0.0
    for seed in seeds:
        found = path_outcome(seed, apart)
        if isinstance(found, str):
            print(f"{seed:5} unknown: {found}", flush=True)
            continue
        known, certain = known + 1, certain + found[2]
        equal, wrong = equal + (found[0] >= EQUAL), wrong + (found[1] > WRONG)
        if found[0] < EQUAL or found[1] > WRONG:
            print(f"{seed:5} the same {found[0]:.3f}, certain and wrong {found[1]:.4f}", flush=True)
    share = f"{100 * certain / known:.0f} % certain" if known else ""
    print(f"{len(seeds)} jobs: {known} known, {equal} equal, {wrong} certain and wrong; {share}")
    return int(wrong > 0)
