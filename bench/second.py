"""``python -m bench.second PATH ...``: the cost of a store, a first command and later ones.

For each path: the size of its store beside that of its files; ``diagnose`` and ``stats`` without
and with an empty cache, in turn; and other commands on the same files after ``diagnose``. Seconds
are of the processor, of all processes; the least of some runs::

    python -m bench.generate build/m8 --events 1000000 --ranks 8
    python -c "from bench.generate_gpu import *; job(Path('build/k1024'), 1024, 100)"
    python -m bench.second build/m8 build/k1024
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import traceconv

FIRST = ("diagnose", "stats")
AFTER = (
    "diagnose", "inspect", "stats", "stats --by op", "stats --by comm", "align", "critical-path",
    "critical-path --by segments", "stragglers", "what-if", "what-if --change rank:0=peers",
)  # fmt: skip
STORED = ("count(*) from slice", "name, sum(dur) from slice group by name order by 2 desc limit 10")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of every path that is given."""
    parser = argparse.ArgumentParser(prog="python -m bench.second", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each")
    given = parser.parse_args(arguments)
    compileall.compile_dir(Path(traceconv.__file__).parent, quiet=1)  # as an installation does
    for path in given.paths:
        with tempfile.TemporaryDirectory() as place:
            measured(os.path.abspath(path), Path(place), given.rounds)  # noqa: PTH100


def measured(path: str, place: Path, rounds: int) -> None:
    """Print the figures of one path."""
    store = place / "run.tcz"
    report = traceconv.pack(path, out=store)
    ratio = report.source_bytes / report.bytes
    print(f"{path}\n  store: {report.source_bytes:,} B to {report.bytes:,} B, 1/{ratio:.1f}")
    for command in FIRST:
        without, with_cache = [], []
        for number in range(rounds):
            without.append(cpu_seconds(command, path, "off"))
            with_cache.append(cpu_seconds(command, path, place / f"{command} {number}"))
        least, kept = min(without), min(with_cache)
        print(f"  first {command}: {least:.2f} s, cached {kept:.2f} s, {kept / least - 1:+.1%}")
    for source in (path, store):
        cache = place / f"after {source == store}"
        cpu_seconds("diagnose", source, cache)
        for command in AFTER:
            runs = [cpu_seconds(command, source, cache, again=bool(i)) for i in range(rounds)]
            print(f"  {'store: ' * (source == store)}{command}: {runs[0]:.2f} s, {min(runs):.2f} s")
    for query in STORED:
        runs = [cpu_seconds("query", store, "off", f"select {query}") for _ in range(rounds)]
        print(f"  store: query {query}: {min(runs):.2f} s")


_NEW = count()


def cpu_seconds(
    command: str, path: str | Path, cache: str | Path, *words: str, again: bool = False
) -> float:
    """CPU seconds of a command, whatever its exit code.

    Args:
        again: whether an answer that it printed before must not be printed again.
    """
    name, *options = command.split()
    environment = {**os.environ, "TRACECONV_CACHE": str(cache)}
    if again:  # an answer depends on these variables, results over ranks do not
        environment["TRACECONV_BENCH"] = str(next(_NEW))
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "traceconv", name, str(path), *words, *options],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
