"""Many ranks, and one that is larger than memory: time, memory of the largest process, output.

    python -m bench.scale                 # some 15 minutes and 15 GB of disk
    python -m bench.scale --part peers    # one part: ranks, slope, collectives, limit, ...
    python -m bench.scale --small         # a tenth of everything, to see that it works

Each figure is of a whole command. ``resident`` is the peak of the largest process, mapped files
included; ``anonymous`` the peak sum of memory that no file backs, over all processes.
"""

from __future__ import annotations

import argparse
import filecmp
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench import bounds, generate_gpu, limits, measure
from bench.generate import generate
from bench.measure import Taken
from bench.rows import PYTHON

MB = 1e6
EVENT_BYTES = 217
HUNDRED_MB = 460_000
"""Events of a capture of 100 MB."""


class Bench:
    """A folder and a scale; parts print their tables."""

    def __init__(self, folder: Path, scale: float, rounds: int) -> None:
        self.folder, self.scale, self.rounds = folder, scale, rounds

    def captures(self, name: str, ranks: int, events: int) -> Path:
        """A folder of ``ranks`` captures; made at the first call."""
        folder = self.folder / name
        if not folder.exists():
            for rank in range(ranks):
                generate(folder, rank, max(300, round(events * self.scale)), wrapped=True)
        return folder

    def merge(self, source: Sequence[Path], out: str, *options: str) -> Taken:
        """``traceconv merge``, the middle of some runs by wall time."""
        target = self.folder / out
        command = [PYTHON, "-m", "traceconv", "merge", *map(str, source), "-q", "-f", "-o"]
        return self.middle([*command, str(target), "--align", "none", *options])

    def middle(self, command: Sequence[str]) -> Taken:
        runs = sorted((measure.run(command) for _ in range(self.rounds)), key=lambda t: t.wall)
        return runs[len(runs) // 2]

    def size(self, out: str) -> float:
        return (self.folder / out).stat().st_size / MB

    # -- parts ------------------------------------------------------------------------------

    def limits(self) -> None:
        """Much of one thing: see :mod:`bench.limits`."""
        limits.table(self.folder, self.scale)

    def bounds(self) -> None:
        """``--mem-limit`` reader by reader: see :mod:`bench.bounds`."""
        bounds.table(self.folder, self.scale)

    def ranks(self) -> None:
        """8 x 100 MB and 64 x 20 MB, beside one rank of each."""
        print(f"\n{'ranks':24}{'jobs':>5}" + HEAD)
        for count, events in ((8, HUNDRED_MB), (64, HUNDRED_MB // 5)):
            folder = self.captures(f"ranks-{count}", count, events)
            one = sorted(folder.iterdir())[0]
            for mode in ("summary", "detail"):
                for label, source, jobs in (
                    ("1", one, "1"),
                    (str(count), folder, "1"),
                    (str(count), folder, "2"),
                ):
                    out = f"{count}-{mode}.pftrace"
                    taken = self.merge([source], out, "-m", mode, "--jobs", jobs)
                    size = round(events * self.scale) * EVENT_BYTES / MB
                    title = f"{label} x {size:.0f} MB {mode}"
                    print(f"{title:24}{jobs:>5}" + figures(taken, self.size(out)))

    def slope(self) -> None:
        """What an event costs from 1 to 1024 ranks, and what a report takes beside."""
        print(f"\n{'ranks':>6}{'events':>9}{'us per event':>14}{'with report':>13}" + HEAD)
        events = 2000
        most = self.captures("slope", 1024, events)
        every = sorted(most.iterdir())
        for count in (1, 8, 64, 256, 1024):
            how = ("slope.pftrace", "-m", "detail", "--jobs", "1")
            taken = self.merge(every[:count], *how)
            told = self.merge(every[:count], *how, "--report", str(self.folder / "slope.html"))
            total = count * max(300, round(events * self.scale))
            cost = taken.cpu / total * 1e6
            line = f"{count:6}{total:9}{cost:14.2f}{told.cpu / taken.cpu:12.2f}x"
            print(line + figures(taken, self.size("slope.pftrace")), flush=True)

    def limit(self) -> None:
        """One file of 4 GB with and without a limit on memory."""
        folder = self.captures("large", 1, 19_500_000)
        size = sum(p.stat().st_size for p in folder.rglob("*.json")) / MB
        print(f"\n{f'one file of {size:.0f} MB':29}" + HEAD)
        free = self.merge([folder], "free.pftrace", "-m", "detail")
        print(f"{'no limit':29}" + figures(free, self.size("free.pftrace")))
        bound = "600M" if self.scale == 1 else "192M"
        taken = self.merge([folder], "bound.pftrace", "-m", "detail", "--mem-limit", bound)
        print(f"{f'--mem-limit {bound}':29}" + figures(taken, self.size("bound.pftrace")))
        same = filecmp.cmp(self.folder / "free.pftrace", self.folder / "bound.pftrace", False)
        print("the same bytes" if same else "THE BYTES DIFFER")

    def collectives(self) -> None:
        """Clocks and stragglers of a job of 1024 ranks with 1000 collectives each."""
        folder = self.folder / "collectives"
        ranks = max(64, round(1024 * self.scale) // 8 * 8)
        generate_gpu.job(folder, ranks, 100)
        print(f"\n{f'{ranks} ranks x 1000 collectives':33}{HEAD}")
        shown = ["-m", "summary", "-o", str(self.folder / "c.pftrace"), "-f"]
        alone, fresh = ["--jobs", "1"], ["--no-cache"]
        for words in (
            ["merge", "--align", "none", *shown, *alone], ["align", *fresh, *alone],
            ["stragglers", *fresh, *alone], ["stragglers", *fresh],
        ):  # fmt: skip
            taken = self.middle([PYTHON, "-m", "traceconv", *words, str(folder), "-q"])
            name = words[0] + ", all cores" * ("--jobs" not in words)
            print(f"{name:33}" + figures(taken, 0), flush=True)
        shutil.rmtree(folder)

    def peers(self) -> None:
        """Eight ranks of 100 MB into one file, beside viztracer (which takes orjson if it can)."""
        if importlib.util.find_spec("viztracer") is None:
            print("\nviztracer is not installed (extra: bench)")
            return
        folder = self.captures("ranks-8", 8, HUNDRED_MB)
        files = sorted(map(str, folder.rglob("trace_view.json")))
        words = ["--combine", *files, "-o", str(self.folder / "viztracer.json")]
        jobs: dict[str, tuple[str, Callable[[], Taken]]] = {
            "viztracer": (
                "viztracer.json",
                lambda: measure.run([PYTHON, "-c", PLAIN_VIZTRACER, *words]),
            ),
            "viztracer with orjson": (
                "viztracer.json",
                lambda: measure.run([PYTHON, "-m", "viztracer", *words]),
            ),
            "merge to Perfetto": ("p.pftrace", lambda: self.once(folder, "p.pftrace", "detail")),
            "merge by bytes": ("p.json", lambda: self.once(folder, "p.json", "source")),
        }
        runs: dict[str, list[Taken]] = {name: [] for name in jobs}
        sizes = {}
        for _ in range(self.rounds):  # in turn, so that a busy minute hits all
            for name, (out, job) in jobs.items():
                runs[name].append(job())
                sizes[name] = self.size(out)
        head = f"{'cpu':>8}{'wall':>8}{'anon':>8}"
        print(f"\n{'8 x 100 MB':29}{head}" + HEAD)
        base = {w: median(getattr(t, w) for t in runs["viztracer"]) for w in WHAT}
        for name, taken in runs.items():
            ratio = {w: base[w] / median(getattr(t, w) for t in taken) for w in WHAT}
            middle = sorted(taken, key=lambda t: t.cpu)[len(taken) // 2]
            shown = "".join(f"{ratio[w]:7.1f}x" for w in WHAT)
            print(f"{name:29}{shown}" + figures(middle, sizes[name]))

    def once(self, folder: Path, out: str, mode: str) -> Taken:
        command = [PYTHON, "-m", "traceconv", "merge", str(folder), "-q", "-f", "--jobs", "1"]
        target = str(self.folder / out)
        return measure.run([*command, "--align", "none", "-o", target, "-m", mode])


WHAT = ("cpu", "wall", "anonymous")
PLAIN_VIZTRACER = (
    "import sys; sys.modules['orjson'] = None; from viztracer.main import main; sys.exit(main())"
)
"""As it is where nobody has installed orjson, which it does not ask for."""

HEAD = f"{'wall s':>9}{'cpu s':>8}{'resident MB':>13}{'anonymous MB':>14}{'out MB':>9}"


def figures(taken: Taken, size: float) -> str:
    """The columns of ``HEAD``."""
    memory = f"{taken.rss / MB:13.0f}{taken.anonymous / MB:14.0f}"
    return f"{taken.wall:9.1f}{taken.cpu:8.1f}{memory}{size:9.1f}"


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.scale", description="Measure at scale.")
    parts = ("ranks", "slope", "collectives", "limit", "peers", "limits", "bounds")
    parser.add_argument("--part", choices=parts, action="append", help="only this (repeatable)")
    parser.add_argument("--small", action="store_true", help="a tenth of everything")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each command")
    parser.add_argument("--dir", type=Path, help="folder for temporary files")
    given = parser.parse_args(argv)
    about = measure.machine()
    print(f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}")
    print(f"two busy loops at once: {measure.control(PYTHON):.2f}x (2 is a quiet machine)")
    with tempfile.TemporaryDirectory(prefix="traceconv-scale-", dir=given.dir) as folder:
        bench = Bench(Path(folder), 0.1 if given.small else 1, given.rounds)
        for part in given.part or parts:
            getattr(bench, part)()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
