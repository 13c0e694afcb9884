"""Captures of GPUs in the suite: their inputs, commands and rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.measure import run
from bench.naive_gpu import HTA, hta_installed
from bench.rows import PYTHON, TIERS, Row, Suite, native_built, ratio

SHARE = 4
"""The captures have one event for so many of the large one."""


def add(suite: Suite, folder: Path, events: int) -> None:
    """Generate a trace of PyTorch and a report of Nsight Systems, and add what reads them."""
    trace, report = folder / "gpu.pt.trace.json.gz", folder / "gpu.sqlite"
    for kind, path in (("kineto", trace), ("nsight", report)):
        words = (kind, str(path), "--events", str(events // SHARE))
        run([PYTHON, "-m", "bench.generate_gpu", *words])
    peers = (PYTHON, "-m", "bench.naive_gpu")
    job = suite.add("hta columns", *peers, "hta", str(trace))
    job.note = "" if hta_installed() else HTA
    suite.add("naive nsight", *peers, "nsight", str(report), out="nsight.pftrace")
    for tier, switch in TIERS.items():
        env, out = {"TRACECONV_NATIVE": switch}, f"{tier}-nsight.pftrace"
        convert = (PYTHON, "-m", "traceconv", "convert", str(report), "-q", "-o")
        ours = (
            suite.add(f"{tier}: kineto columns", *peers, "columns", str(trace), env=env),
            suite.add(f"{tier}: nsight convert", *convert, out=out, env=env),
        )
        for job in ours:
            job.note = "" if tier != "native" or native_built() else "not built"


def rows(suite: Suite) -> list[Row]:
    """The rows of the table."""

    def over(peer: str, what: str, of: str = "cpu") -> Callable[[str], float | None]:
        return lambda tier: ratio(suite.of(peer, of), suite.of(f"{tier}: {what}", of))

    def reading(tier: str) -> float | None:
        peer, ours = (
            suite.stage(name, "read") for name in ("hta columns", f"{tier}: kineto columns")
        )
        return ratio(peer, ours)

    return [
        Row("Kineto .gz to columns: speed over HTA's parser", 4.0, True, reading),
        Row("Kineto .gz to columns: memory of HTA over ours", 2.0, True,
            over("hta columns", "kineto columns", "anonymous")),
        Row("Nsight convert: speed over sqlite3 script", 2.0, True,
            over("naive nsight", "nsight convert")),
        Row("Nsight convert: memory of script over ours", 4.0, True,
            over("naive nsight", "nsight convert", "anonymous")),
    ]  # fmt: skip
