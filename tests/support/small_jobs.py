"""Captures of a few ranks, made by the benchmark's generator, and runs over them in processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paths import ROOT

from bench.generate import generate


def job(folder: Path, ranks: int = 3, events: int = 600) -> Path:
    """A folder with a capture per rank."""
    for rank in range(ranks):
        generate(folder, rank, events)
    return folder


def capture_of(folder: Path, rank: int) -> Path:
    """The trace file of one rank."""
    return next(folder.glob(f"worker{rank}_*")) / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"


def started(*words: str | Path, temporary: Path, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, its temporary files in ``temporary``."""
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "traceconv", *map(str, words)],
        env={
            **os.environ,
            "TRACECONV_TMPDIR": str(temporary),
            "PYTHONPATH": str(ROOT),
        },
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and messages."""
    _, messages = process.communicate(timeout=60)
    return process.returncode, messages


def living(temporary: Path) -> set[int]:
    """The processes that work for a run with this folder of temporary files."""
    mark = f"TRACECONV_TMPDIR={temporary}\0".encode()
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes():
                found.add(int(place.name))
        except OSError:
            pass  # gone meanwhile, or not ours
    return found


def awaited(holds: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether something comes true before long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
