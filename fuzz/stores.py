"""``python -m fuzz stores``: stores and the cache while processes die and files are damaged.

Commands that write or read a store, or use the cache, are killed at random moments: nothing may
be there afterwards that gives another answer. Two pack and analyse at once. Damaged stores are
errors or give the same answer; damaged files of the cache never matter.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import traceconv
from fuzz.mutate import bit_flip, cut, hole, noise, zeros
from traceconv.store import cache

MUTATIONS = (cut, bit_flip, hole, noise, zeros)
DEMO = Path(__file__).parents[1] / "golden" / "trace_view" / "demo" / "input"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what happened; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m fuzz stores", description=__doc__)
    parser.add_argument("source", nargs="?", type=Path, default=DEMO, help="what is packed")
    parser.add_argument("--kills", type=int, default=10, help="rounds of three kills")
    parser.add_argument("--count", type=int, default=300, help="damaged stores, and cached files")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    rng, seen = random.Random(given.seed), Counter[str]()
    cache.SMALL_BYTES = cache.SETTLED_NS = 0
    with tempfile.TemporaryDirectory() as place:
        os.environ["TRACECONV_CACHE"] = f"{place}/cache"
        job = Job(given.source.resolve(), Path(place), rng, seen)
        for _ in range(given.kills):
            job.killed()
        for _ in range(max(given.kills // 4, 1)):
            job.at_once()
        for _ in range(given.count):
            job.damaged()
    print(", ".join(f"{what} {times}" for what, times in seen.items()))
    return int(any("wrong" in what for what in seen))


class Job:
    """The store of a source, and the answers that are right."""

    def __init__(self, source: Path, place: Path, rng: random.Random, seen: Counter[str]) -> None:
        self.source, self.place, self.rng, self.seen = source, place, rng, seen
        self.store, self.damaged_store = place / "good.tcz", place / "damaged.tcz"
        traceconv.pack(str(source), out=self.store, jobs=1)
        self.content = self.store.read_bytes()
        self.right = answer(self.store, cache=False)
        self.of_source = answer(source, cache=False)
        answer(source)
        self.cached = {path: path.read_bytes() for path in (place / "cache").rglob("*.kept")}

    def note(self, what: str, good: bool) -> None:
        self.seen[what if good else f"{what}: wrong"] += 1

    def killed(self) -> None:
        """Kill each command at a random moment."""
        new = self.place / "new.tcz"
        for words in (
            ["pack", str(self.source), "-o", str(new)],
            [self.rng.choice(["stats", "stragglers", "diagnose"]), str(self.source)],
            ["stats", str(self.store)],
        ):
            process = started(words)
            time.sleep(self.rng.uniform(0.1, 3))
            self.seen["killed" if process.poll() is None else "finished"] += 1
            process.kill()
            process.wait()
        self.note("packed", not new.exists() or new.read_bytes() == self.content)
        new.unlink(missing_ok=True)
        self.note("answers after a kill", self.answers_are_right())

    def at_once(self) -> None:
        """Two write the same store, and two the cache."""
        new = self.place / "new.tcz"
        pack = ["pack", str(self.source), "-o", str(new), "--force"]
        several = [started(pack) for _ in range(2)]
        several += [started(["stats", str(self.source)]) for _ in range(2)]
        ended = [process.wait() for process in several]
        self.note("two at once", ended[2:] == [0, 0] and new.read_bytes() == self.content)
        self.note("answers after two", self.answers_are_right())

    def damaged(self) -> None:
        """Damage the store, and all files of the cache."""
        self.damaged_store.write_bytes(self.mutant(self.content))
        try:
            self.note("damaged store, same answer",
                      answer(self.damaged_store, cache=False) == self.right)  # fmt: skip
        except traceconv.TraceconvError:
            self.seen["damaged store, error"] += 1
        for path in (self.place / "cache").rglob("*.kept"):
            path.unlink()
        for path, content in self.cached.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self.mutant(content))
        self.note("damaged cache", answer(self.source) == self.of_source)

    def mutant(self, content: bytes) -> bytes:
        """The content with one mutation; half of the time near its end, where directories are."""
        begin = max(len(content) - 4096, 0) if self.rng.random() < 0.5 else 0
        mutate = self.rng.choice(MUTATIONS)
        return content[:begin] + mutate(self.rng, content[begin:], self.content)

    def answers_are_right(self) -> bool:
        return answer(self.source) == self.of_source and answer(self.store) == self.right


def started(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """A command that says nothing."""
    return subprocess.Popen(
        [sys.executable, "-m", "traceconv", *words, "-q"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def answer(source: Path, **options: bool) -> str:
    """The tables of a source and its verdict."""
    tables = traceconv.stats(str(source), by=("step", "op"), jobs=1, **options).results
    columns = [(one.table.name, {k: c.tolist() for k, c in one.data.columns.items()})
               for one in tables]  # fmt: skip
    return repr((columns, traceconv.stragglers(str(source), jobs=1, **options).as_dict()))
