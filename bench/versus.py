"""Whole commands of two trees, in turns on the same inputs: what a change costs or gains.

    git worktree add ../before COMMIT && (cd ../before && python setup.py build_ext --inplace)
    python -m bench.versus ../before [--events 1000000] [--rounds 5] [--only stats] [IN ...]

Both trees run on this Python and its packages. Of each command: medians of processor time, wall
time and memory, before and now, and the ratios; with ``--stages``, where the time of a conversion
goes in both, by the stages of :mod:`bench.hotspots`. Inputs are one rank of the generator, one of
slices that cross, four ranks, and captures that are named.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.measure import Job, control, machine, run
from bench.rows import PYTHON

NOW = Path(__file__).parents[1]

COMMANDS: dict[str, tuple[str, ...]] = {
    "convert": ("convert", "--jobs", "1"),
    "convert to JSON": ("convert", "--jobs", "1"),
    "summary": ("merge", "-m", "summary", "--jobs", "1"),
    "detail": ("merge", "-m", "detail", "--jobs", "1"),
    "detail to JSON": ("merge", "-m", "detail", "--jobs", "1"),
    "report": ("merge", "-m", "summary", "--jobs", "1", "--report", "REPORT"),
    "stats": ("stats", "--by", "all", "--jobs", "1", "--no-cache"),
}


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.versus", description="Compare two trees.")
    parser.add_argument("before", type=Path, metavar="TREE")
    parser.add_argument("paths", nargs="*", metavar="IN")
    parser.add_argument("--events", type=int, default=1_000_000, help="0: only what is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--only", choices=COMMANDS, help="this command of what is named")
    given = parser.parse_intermixed_args(argv)
    trees = {"before": given.before.resolve(), "now": NOW}
    print(", ".join(f"{what} {value}" for what, value in machine().items()))
    print(f"two busy loops at once: {control(PYTHON):.2f}x (2 is a quiet machine)")
    with tempfile.TemporaryDirectory(prefix="traceconv-versus-") as name:
        folder = Path(name)
        for what, command, sources in cases(folder, given.events, given.paths, given.only):
            jobs = {tree: job(at, folder, command, sources) for tree, at in trees.items()}
            for _ in range(given.rounds):
                for one in jobs.values():
                    one.once()
            print(f"{what:44}{line(jobs['before'], jobs['now'])}", flush=True)
            if given.stages and command == "convert":
                for tree, at in trees.items():
                    print(f"    {tree:8}{stages(at, sources[0])}", flush=True)
    return 0


def cases(
    folder: Path, events: int, paths: Sequence[str], only: str | None
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What is run: a name, the command, and the inputs."""
    if events:
        many = str(folder / "many")
        made = run([PYTHON, "-m", "bench.generate", str(folder / "one"), "--events", str(events)])
        one, crossing = made.out.partition(": ")[0], str(folder / "crossing.json")
        run([PYTHON, "-m", "bench.crossing", crossing, "--events", str(events)])
        run([PYTHON, "-m", "bench.generate", many, "--events", str(events // 4), "--ranks", "4"])
        small = str(folder / "small")
        run([PYTHON, "-m", "bench.generate", small, "--events", "2000", "--ranks", "8"])
        for command in ("convert", "convert to JSON", "summary", "report"):
            yield f"generator: {command}", command, (one,)
        yield "slices that cross: convert", "convert", (crossing,)
        for command in ("detail", "detail to JSON"):
            yield f"four ranks: {command}", command, (many,)
        for command in ("summary", "report"):
            yield f"eight small ranks: {command}", command, (small,)
    for path in paths:
        for command in (only,) if only else ("convert", "summary", "stats"):
            yield f"{Path(path).name}: {command}", command, (path,)


def job(tree: Path, folder: Path, command: str, sources: Sequence[str]) -> Job:
    """A command of one tree."""
    out = folder / ("out.json" if command.endswith("JSON") or command == "stats" else "out.pftrace")
    words = [str(folder / "out.html") if w == "REPORT" else w for w in COMMANDS[command]]
    start = f"import sys; sys.path.insert(0, {str(tree)!r}); from traceconv.cli import main; main()"
    call = (PYTHON, "-P", "-c", start, words[0], *sources, *words[1:], "-q", "-f", "-o", str(out))
    return Job(command, lambda: call, {}, (out,))


def line(before: Job, now: Job) -> str:
    """What both took."""
    for one in (before, now):
        if not one.taken:
            return f"not run: {one.note.splitlines()[-1] if one.note else ''}"
    parts = []
    for unit, scale, what in (("s cpu", 1, "cpu"), ("s wall", 1, "wall"), ("MB", 1e6, "anonymous")):
        old, new = (median(getattr(t, what) for t in one.taken) / scale for one in (before, now))
        digits = 0 if unit == "MB" else 3
        parts.append(f"{old:8.{digits}f} ->{new:7.{digits}f} {unit} ({new / old:.2f})")
    return "  ".join(parts)


def stages(tree: Path, source: str) -> str:
    """Seconds of the stages of a conversion in one tree."""
    start = f"import sys; sys.path[:0] = [{str(tree)!r}]; from bench.hotspots import main; main()"
    found = json.loads(run([PYTHON, "-P", "-c", start, source, "--stages"]).out)
    return "  ".join(f"{name} {seconds:.3f}" for name, seconds in found.items())


if __name__ == "__main__":
    sys.exit(main())
