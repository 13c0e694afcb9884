"""Where the time of ``convert`` goes: the stages of the pipeline, then the functions.

    python -m bench.hotspots IN [--summary] [--stages]

Stages are timed without a profiler, with ``jobs=1`` like the commands they are held beside; with
``--stages`` they are all, as JSON. The functions come from cProfile, in a second run, which makes
Python calls look dearer than they are.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import SAMPLE_SECONDS, anonymous

MB = 1e6

STAGES = (
    ("find", "traceconv.find.discovery", "discover"),
    ("read", "traceconv.find.registry", "read_capture"),
    ("finish", "traceconv.core.builder:TraceBuilder", "finish"),
    ("passes", "traceconv.run.stages", "passed"),
    ("spill", "traceconv.run.stages", "spill"),
    ("limits", "traceconv.writers.size_limit", "plan"),
    ("write", "traceconv.writers.output", "write"),
)
"""Name, module (and class), function. What one stage does within another counts for itself."""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.hotspots", description="Time parts of convert.")
    parser.add_argument("path", metavar="IN")
    parser.add_argument("--summary", action="store_true", help="merge, in summary mode")
    parser.add_argument("--stages", action="store_true", help="only the stages, as JSON")
    given = parser.parse_args()
    from traceconv import convert, merge

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "out.pftrace")
            if given.summary:
                merge(given.path, out=out, mode="summary", jobs=1)
            else:
                convert(given.path, out, jobs=1)

    stages = Stages()
    seconds = stages.run(work)
    if given.stages:
        print(json.dumps(seconds))
        return 0
    print(f"{'stage':12}{'cpu s':>8}{'anonymous MB, peak':>22}")
    for name, taken in seconds.items():
        print(f"{name:12}{taken:8.3f}{stages.peak[name] / MB:22.0f}")
    profiler = cProfile.Profile()
    profiler.runcall(work)
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(28)
    return 0


class Stages:
    """Times the stages of a run and watches their memory.

    Attributes:
        seconds: processor seconds by stage.
        peak:    anonymous bytes by stage, sampled.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.peak: dict[str, int] = defaultdict(int)
        self._at = "other"
        self._within = 0.0  # seconds of stages within the one at hand
        for name, owner, attribute in STAGES:
            holder = found(owner)
            setattr(holder, attribute, self._timer(getattr(holder, attribute), name))

    def run(self, work: Callable[[], None]) -> dict[str, float]:
        """Processor seconds per stage, and in all."""
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(done,))
        watch.start()
        start = time.process_time()
        try:
            work()
            total = time.process_time() - start
        finally:
            done.set()
            watch.join()
        self.peak["all"] = max(self.peak.values(), default=0)
        other = total - sum(self.seconds.values())
        return {**self.seconds, "other": other, "all": total}

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(SAMPLE_SECONDS):
            self.peak[self._at] = max(self.peak[self._at], anonymous(os.getpid()))

    def _timer(self, function: Any, name: str) -> Any:
        """``function``, its processor time added to those of stage ``name``."""

        def call(*args: Any, **options: Any) -> Any:
            outer, before, self._within = self._at, self._within, 0.0
            start, self._at = time.process_time(), name
            try:
                return function(*args, **options)
            finally:
                taken = time.process_time() - start
                self.seconds[name] += taken - self._within
                self._at, self._within = outer, before + taken

        return call


def found(owner: str) -> Any:
    """The module or class a stage's function belongs to."""
    module, _, cls = owner.partition(":")
    __import__(module)
    return getattr(sys.modules[module], cls) if cls else sys.modules[module]


if __name__ == "__main__":
    raise SystemExit(main())
