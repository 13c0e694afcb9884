"""Where the time of ``convert`` goes: the stages of the pipeline, then the functions.

    python -m bench.hotspots IN [--mode summary] [--stages]

Stages are timed without a profiler; with ``--stages`` they are all, as JSON. The functions come
from cProfile, in a second run, which makes Python calls look dearer than they are.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

STAGES = (
    ("read", "traceconv.registry", "read_capture"),
    ("finish", "traceconv.build:TraceBuilder", "finish"),
    ("passes", "traceconv.api", "_passed"),
    ("park", "traceconv.api", "Parked"),
    ("limits", "traceconv.writers.limits", "plan"),
    ("write", "traceconv.writers.output", "write"),
)
"""Name, module (and class), function. Calls of one stage do not lie within another."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.hotspots", description="Time parts of convert.")
    parser.add_argument("path", metavar="IN")
    parser.add_argument("--mode", choices=("summary", "detail"), default="detail")
    parser.add_argument("--stages", action="store_true", help="only the stages, as JSON")
    given = parser.parse_args()
    from traceconv import merge

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            out, detail = str(Path(folder) / "out.pftrace"), given.mode == "detail"
            merge(given.path, out=out, mode=given.mode, align="none", scope=detail)

    seconds = timed(work)
    if given.stages:
        print(json.dumps(seconds))
        return 0
    for name, taken in seconds.items():
        print(f"  {name:12}{taken:8.3f} s")
    profiler = cProfile.Profile()
    profiler.runcall(work)
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(28)
    return 0


def timed(work: Any) -> dict[str, float]:
    """Processor seconds per stage."""
    seconds: dict[str, float] = defaultdict(float)
    for name, owner, attribute in STAGES:
        holder = found(owner)
        setattr(holder, attribute, timer(getattr(holder, attribute), name, seconds))
    start = time.process_time()
    work()
    total = time.process_time() - start
    seconds["other"] = total - sum(seconds.values())
    return {**seconds, "all": total}


def found(owner: str) -> Any:
    """The module or class a stage's function belongs to."""
    module, _, cls = owner.partition(":")
    __import__(module)
    return getattr(sys.modules[module], cls) if cls else sys.modules[module]


def timer(function: Any, name: str, seconds: dict[str, float]) -> Any:
    """``function``, its processor time added to ``seconds[name]``."""

    def call(*args: Any, **options: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args, **options)
        finally:
            seconds[name] += time.process_time() - start

    return call


if __name__ == "__main__":
    raise SystemExit(main())
