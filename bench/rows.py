"""What is compared with what: the jobs, the rows of the table, their targets."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import CommandFailed, Job, run

MB = 1e6
PYTHON = sys.executable
TIERS = {"native": "1", "vector": "0"}
"""Values of TRACECONV_NATIVE: with and without the compiled kernels."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        title:  what is divided by what.
        target: the bound, as a number.
        least:  whether the figure must not be below it (else: not above).
        figure: from the jobs of a tier; None if one of them has not run.
        unit:   of the figure.
    """

    title: str
    target: float
    least: bool
    figure: Callable[[str], float | None]
    unit: str = "x"

    def holds(self, value: float) -> bool:
        """Whether ``value`` is within the target."""
        return value >= self.target if self.least else value <= self.target


class Suite:
    """The commands that are measured, over inputs below one folder.

    Attributes:
        one:    the trace file of a capture of ``events`` events.
        crossing: a trace of half as many whose slices cross (see :mod:`bench.crossing`).
        many:   trace files of eight ranks with a quarter of that each.
        jobs:   by name; those of traceconv are called "<tier>: <what>".
        events: in ``one``.
    """

    def __init__(self, folder: Path, one: Path, many: list[Path], events: int) -> None:
        self.folder, self.one, self.many, self.events = folder, one, many, events
        self.crossing = folder / "crossing.json"
        run([PYTHON, "-m", "bench.crossing", str(self.crossing), "--events", str(events // 2)])
        self.jobs: dict[str, Job] = {}
        self._peers()
        for tier, switch in TIERS.items():
            self._ours(tier, {"TRACECONV_NATIVE": switch})

    def _peers(self) -> None:
        four = [str(p) for p in self.many[:4]]
        naive = (PYTHON, "-m", "bench.naive")
        self.add("naive", *naive, "perfetto", str(self.one), out="naive.pftrace")
        self.add("naive columns", *naive, "columns", str(self.folder / "naive.pftrace"))
        self.add("orjson alone", *naive, "orjson", str(self.one))
        self.add("orjson crossing", *naive, "orjson", str(self.crossing))
        for kind in ("json", "orjson"):
            out = self.folder / f"{kind}-merge.json"
            self.add(f"{kind} merge", *naive, f"{kind}-merge", str(out), *four)
        viz = self.add("viztracer merge", PYTHON, "-m", "viztracer", "--combine", *four,
                        "-o", str(self.folder / "viztracer.json"))  # fmt: skip
        if importlib.util.find_spec("viztracer") is None:
            viz.note = "viztracer is not installed (extra: bench)"

    def _ours(self, tier: str, env: dict[str, str]) -> None:
        built = tier != "native" or native_built()

        def add(what: str, *command: str, out: str) -> None:
            words = ("-m", "traceconv", *command, "-q", "-o") if out else ("-m", *command)
            out = f"{tier}-{out}" if out else ""
            job = self.add(f"{tier}: {what}", PYTHON, *words, out=out, env=env)
            job.note = "" if built else "the compiled kernels are not built"

        one, many = str(self.one), [str(p.parents[1]) for p in self.many]
        add("convert", "convert", one, "--jobs", "1", out="convert.pftrace")
        add(
            "convert crossing", "convert", str(self.crossing), "--jobs", "1", out="crossing.pftrace"
        )
        add("convert to JSON", "convert", one, out="convert.json")
        add("summary", "merge", one, "-m", "summary", "--jobs", "1", out="summary.pftrace")
        add("small convert", "convert", many[0], "--jobs", "1", out="small.pftrace")
        add(
            "small summary",
            "merge",
            many[0],
            "-m",
            "summary",
            "--jobs",
            "1",
            out="small-summary.pftrace",
        )
        detail = ("-m", "detail", "--jobs", "1")  # workers have memory of their own
        add("merge to JSON", "merge", *many[:4], *detail, out="four.json")
        add("1 rank", "merge", many[0], *detail, out="first.pftrace")
        add("8 ranks", "merge", *many, *detail, out="eight.pftrace")
        add("stages", "bench.hotspots", one, "--stages", out="")
        written = str(self.folder / "naive.pftrace")  # by Perfetto's own builder
        add("stages of Perfetto", "bench.hotspots", written, "--stages", out="")

    def add(self, name: str, *command: str, out: str = "", env: Any = None) -> Job:
        """A further job; it writes ``out`` in the folder of the suite, if that is said."""
        outputs = (self.folder / out,) if out else ()
        words = (*command, *map(str, outputs))
        self.jobs[name] = Job(name, lambda: words, env or {}, outputs)
        return self.jobs[name]

    def stage(self, job: str, name: str) -> float | None:
        """Median seconds of one stage, of a job that prints its stages as JSON."""
        runs = [json.loads((t.out or t.err).splitlines()[-1]) for t in self.jobs[job].taken]
        return median(r.get(name, 0.0) for r in runs) if runs else None

    def reading(self, tier: str) -> float | None:
        """Seconds from a Perfetto trace to columns."""
        taken = [
            self.stage(f"{tier}: stages of Perfetto", name) for name in ("find", "read", "finish")
        ]
        return sum(one or 0.0 for one in taken) or None

    # -- figures ------------------------------------------------------------------------------

    def of(self, name: str, what: str = "cpu") -> float | None:
        """A median of a job."""
        return self.jobs[name].median(what)

    def growth(self, what: str) -> Callable[[str], float | None]:
        """Bytes of memory an event costs, from captures of ``events`` and a quarter of them."""

        def figure(tier: str) -> float | None:
            large = self.of(f"{tier}: {what}", "anonymous")
            small = self.of(f"{tier}: small {what}", "anonymous")
            if large is None or small is None:
                return None
            return (large - small) / (0.75 * self.events)

        return figure

    def size(self, name: str) -> float | None:
        """Bytes a job has written."""
        sizes = self.jobs[name].sizes
        return float(sum(sizes)) if sizes else None

    def rows(self) -> list[Row]:
        """The table."""

        def faster(peer: str, what: str) -> Callable[[str], float | None]:
            return lambda tier: ratio(self.of(peer), self.of(f"{tier}: {what}"))

        def slower(what: str, peer: str, time: str = "cpu") -> Callable[[str], float | None]:
            return lambda tier: ratio(self.of(f"{tier}: {what}", time), self.of(peer, time))

        bound = (80e6 + 80 * self.events) / MB
        return [
            Row("convert: speed over naive converter", 6.0, True, faster("naive", "convert")),
            Row("convert: time over orjson.loads alone", 1.0, False,
                slower("convert", "orjson alone")),
            Row("summary: time over orjson.loads alone", 0.6, False,
                slower("summary", "orjson alone")),
            Row("slices that cross: time over orjson.loads", 1.0, False,
                slower("convert crossing", "orjson crossing")),
            Row("encoding: speed over TraceProtoBuilder", 9.0, True,
                lambda tier: ratio(self.stage("naive", "build"),
                                   self.stage(f"{tier}: stages", "write"))),
            Row("Perfetto to columns: speed over its generated classes", 5.0, True,
                lambda tier: ratio(self.stage("naive columns", "columns"), self.reading(tier))),
            Row("merge to JSON: speed over viztracer --combine", 2.0, True,
                faster("viztracer merge", "merge to JSON")),
            Row("merge to JSON: speed over json script", 2.0, True,
                faster("json merge", "merge to JSON")),
            Row("merge to JSON: speed over orjson script", 1.0, True,
                faster("orjson merge", "merge to JSON")),
            Row("convert: anonymous memory (80 MB + 80 B/event)", bound, False,
                lambda tier: ratio(self.of(f"{tier}: convert", "anonymous"), MB), "MB"),
            Row("convert: anonymous bytes per further event", 60.0, False,
                self.growth("convert"), "B"),
            Row("summary: anonymous bytes per further event", 60.0, False,
                self.growth("summary"), "B"),
            Row("merge: memory of 8 ranks over 1 rank", 1.1, False,
                lambda tier: ratio(self.of(f"{tier}: 8 ranks", "anonymous"),
                                   self.of(f"{tier}: 1 rank", "anonymous"))),
            Row("output: Perfetto bytes over Chrome JSON bytes", 0.4, False,
                lambda tier: ratio(self.size(f"{tier}: convert"),
                                   self.size(f"{tier}: convert to JSON"))),
        ]  # fmt: skip


def ratio(a: float | None, b: float | None) -> float | None:
    """a / b, None if one is missing."""
    return a / b if a is not None and b else None


def native_built() -> bool:
    """Whether compiled kernels lie in the package."""
    spec = importlib.util.find_spec("traceconv")
    folders = (spec.submodule_search_locations or []) if spec else []
    return any(path for folder in folders for path in Path(folder).rglob("*.so"))


def inputs(folder: Path, events: int) -> tuple[Path, list[Path], int]:
    """Generate what the suite reads: one large rank, eight smaller ones; events of the first."""
    generate = (PYTHON, "-m", "bench.generate")
    one = run([*generate, str(folder / "one"), "--events", str(events)])
    many = run([*generate, str(folder / "many"), "--events", str(events // 4),
                "--ranks", "8", "--wrapped"])  # fmt: skip
    lines = [line.partition(": ") for line in (one.out + many.out).splitlines()]
    if len(lines) != 9:
        raise CommandFailed(f"the generator wrote {len(lines)} captures, not 9")
    paths = [Path(path) for path, _, _ in lines]
    return paths[0], paths[1:], int(lines[0][2].split()[0])
