"""Run the benchmark and print one table: measured, target, ok or miss.

    python -m bench                       # 1 M events, 5 rounds: about 10 minutes
    python -m bench --events 250000 --rounds 3
    python -m bench --profile             # and where the time of convert goes

Every figure is of whole commands, start of the interpreter included. Times are processor seconds,
medians over rounds in which all commands take turns; a shared machine disturbs ratios of those
least. Inputs are generated (see :mod:`bench.generate`) and removed again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import measure, waiting
from bench.rows import MB, PYTHON, TIERS, Row, Suite, inputs, native_built


def main(argv: list[str] | None = None) -> int:
    """The command line; with ``--check`` exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure traceconv.")
    parser.add_argument("--events", type=int, default=1_000_000, help="of the large capture")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only",
        metavar="TEXT",
        action="append",
        default=[],
        help="only jobs whose name contains this; repeat for more",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--profile", action="store_true", help="show where convert spends time")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    parser.add_argument("--dir", type=Path, help="folder for temporary files")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="traceconv-bench-", dir=given.dir) as folder:
        rehearse(Path(folder) / "rehearsal", given.only)
        suite = Suite(Path(folder), *inputs(Path(folder), given.events))
        waiting.add(suite, Path(folder))
        jobs = chosen(suite, given.only)
        before = measure.control(PYTHON)
        measure.interleaved(jobs, given.rounds)
        control = (before, measure.control(PYTHON))
        missed = show(suite, control)
        if given.json:
            given.json.write_text(json.dumps(document(suite, control, given), indent=1))
        if given.profile:
            profile(suite.one)
    return 1 if missed and given.check else 0


def chosen(suite: Suite, only: list[str]) -> list[measure.Job]:
    """The jobs whose names contain ``only``, and the one whose output some of them read."""
    found = [
        job for job in suite.jobs.values() if not only or any(text in job.name for text in only)
    ]
    if any(job.name.endswith("stages of Perfetto") for job in found):
        naive = suite.jobs["naive"]
        return [naive, *(job for job in found if job is not naive)]
    return found


def rehearse(folder: Path, only: list[str]) -> None:
    """Run everything once on tiny inputs, so that no measured run has to compile byte code.

    An installed package has its byte code beside it; a source tree may not, and must not get any.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    folder.mkdir()
    suite = Suite(folder, *inputs(folder, 1000))
    waiting.add(suite, folder)
    measure.interleaved(chosen(suite, only), 1)


def every(suite: Suite) -> list[Row]:
    """The rows that compare commands."""
    return [*suite.rows(), *waiting.rows(suite)]


def show(suite: Suite, control: tuple[float, float]) -> int:
    """Print the tables; the number of missed targets."""
    about = measure.machine()
    print(f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}")
    print(f"two busy loops at once: {control[0]:.2f}x, {control[1]:.2f}x (2 is a quiet machine)")
    print(f"capture: {suite.events} events, {suite.one.stat().st_size / suite.events:.1f} B each\n")
    print(f"{'command':28}{'cpu s':>8}{'wall s':>8}{'RSS MB':>8}{'anon MB':>9}{'out MB':>9}")
    for job in suite.jobs.values():
        print(f"{job.name:28}{job_line(job)}")
    print("\nPerfetto and JSON of the large capture, bytes per event:")
    for name in ("naive", *(f"{t}: {w}" for t in TIERS for w in ("convert", "convert to JSON"))):
        size = suite.size(name)
        print(f"  {name:26}{'-' if size is None else f'{size / suite.events:.1f}':>8}")
    print(f"\n{'':50}{'native':>16}{'vector':>16}{'target':>10}")
    missed = 0
    for row in every(suite):
        cells = [row.figure(tier) for tier in TIERS]
        missed += sum(value is not None and not row.holds(value) for value in cells)
        print(f"{row.title:50}{''.join(cell(row, v) for v in cells)}{bound(row):>10}")
    return missed


def job_line(job: measure.Job) -> str:
    """The medians of a job, or why there are none."""
    if not job.taken:
        return f"  {job.note or 'not run'}"
    cpu, wall, rss, anonymous = (
        job.median(what) or 0.0 for what in ("cpu", "wall", "rss", "anonymous")
    )
    out = f"{sum(job.sizes) / MB:9.1f}" if job.sizes else f"{'-':>9}"
    return f"{cpu:8.2f}{wall:8.2f}{rss / MB:8.0f}{anonymous / MB:9.0f}{out}"


def cell(row: Row, value: float | None) -> str:
    """A figure and its verdict."""
    if value is None:
        return f"{'-':>16}"
    return f"{value:9.2f}{row.unit:>2} {'ok' if row.holds(value) else 'MISS':>4}"


def bound(row: Row) -> str:
    """The target."""
    return f" {'>=' if row.least else '<='} {row.target:.4g}"


def document(suite: Suite, control: tuple[float, float], given: argparse.Namespace) -> Any:
    """Everything measured, for ``--json``."""
    jobs = {
        name: {
            "note": job.note,
            "bytes": sum(job.sizes),
            "runs": [vars(t) | {"out": "", "err": ""} for t in job.taken],
        }
        for name, job in suite.jobs.items()
    }
    rows = [
        {
            "title": row.title, "target": row.target, "least": row.least,
            "measured": {tier: row.figure(tier) for tier in TIERS},
        }
        for row in every(suite)
    ]  # fmt: skip
    return {
        "machine": measure.machine(), "control": control, "events": suite.events,
        "rounds": given.rounds, "native_built": native_built(), "jobs": jobs, "rows": rows,
        "stages": {
            name: [json.loads((t.out or t.err).splitlines()[-1]) for t in job.taken]
            for name, job in suite.jobs.items()
            if name == "naive" or name.endswith(": stages")
        },
    }  # fmt: skip


def profile(path: Path) -> None:
    """Where the time of ``convert`` goes, in both tiers."""
    for tier, switch in TIERS.items():
        if tier == "vector" or native_built():
            print(f"\n== {tier} ==")
            taken = measure.run(
                [PYTHON, "-m", "bench.hotspots", str(path)], {"TRACECONV_NATIVE": switch}
            )
            print(taken.out)


if __name__ == "__main__":
    sys.exit(main())
