"""``python -m fuzz mutants``: mutated inputs by the thousand, each through the whole pipeline.

A child process does the work under a limit of memory; a watchdog in it ends it, with a stack, when
one input takes longer than :data:`HANG_S`. The parent notes what the child died of and starts the
next one behind that input, so that every input counts. Runs are repeatable: the mutation of an
input depends on the seed and its number alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzz.mutate import cut, mutated
from fuzz.pipeline import Outcome, Wrong, examined, invented
from fuzz.seeds import Seed, golden, samples

HANG_S = 10
"""An input that takes more processor time is a finding."""

IDLE = 30
"""Times of it that may pass on the clock: a busy machine is no hang."""

MEMORY_BYTES = 2 << 30
"""Address space of a child: what no input of this size may come near."""

HEAD_BYTES = 3000
"""What taking an input through the pipeline costs whatever its size, in bytes of input that cost as
much: seeds are chosen so that each gets the same time, not the same number of mutants.
"""

SUFFIXES = ("", ".pftrace", "", ".json", "")
"""What is written, in turn: writing and reading back takes most of the time."""

_FRAME = re.compile(r'File "[^"]*?(traceconv/[^"]*|fuzz/[^"]*)", line (\d+)')

MODES = ("summary", "detail", None)


Examine = Callable[[Seed, Path, Random, argparse.Namespace], str]
"""What is done with a damaged input: its copy, a folder for outputs, chance, what was given. Says
whether it was ``read`` or ``refused``; whatever it raises is a finding.
"""


def main(given: list[str], name: str = "mutants", examine: Examine | None = None) -> int:
    """Parse arguments, run, print the table; 1 if anything was found.

    Args:
        name:    of the command, under which children are started.
        examine: None takes inputs through the pipeline, and cuts some of them cleanly.
    """
    parser = argparse.ArgumentParser(prog=f"python -m fuzz {name}", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="inputs per reader")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long; 0: never")
    parser.add_argument("--reader", default="", help="this one only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=Path, action="append", default=[], help="more seeds")
    parser.add_argument(
        "--tiers", type=int, default=7, metavar="N", help="compare both tiers on every N-th input"
    )
    parser.add_argument(
        "--reading",
        action="store_true",
        help="find and read with the one reader, no passes, no outputs: several times as fast",
    )
    parser.add_argument("--findings", type=Path, default=None, help="folder for what was found")
    parser.add_argument("--child", type=int, default=-1, help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    if args.child >= 0:
        return _child(args, examine)
    return _parent(args, [name, *given])


# -- the parent --------------------------------------------------------------------------------


def _parent(args: argparse.Namespace, given: list[str]) -> int:
    begun, tally, found = time.monotonic(), _Tally(), []
    after = 0
    while True:
        command = [sys.executable, "-m", "fuzz", *given, "--child", str(after)]
        with (
            tempfile.TemporaryFile() as told,  # a pipe nobody reads would stop the child
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told) as child,
        ):
            at = after
            for line in child.stdout:
                said = json.loads(line)
                at = said["number"]
                tally.take(said)
                if said.get("found"):
                    found.append(said)
                if args.seconds and time.monotonic() - begun > args.seconds:
                    child.kill()
                    break
            else:
                child.wait()
                told.seek(0)
                stack = told.read().decode(errors="replace")
                if child.returncode == 0:
                    break
                found.append(
                    {"number": at, "found": f"child died ({child.returncode}): {stack[-3000:]}"}
                )
                after = at + 1
                continue
        break
    print(tally.table(time.monotonic() - begun))
    _show(found)
    return 1 if found else 0


def _show(found: list[dict]) -> None:
    """Findings, those that end in the same place together."""
    alike: dict[str, list[dict]] = {}
    for one in found:
        places = _FRAME.findall(one["found"])
        alike.setdefault(f"{places[-1:]} {one['found'].splitlines()[-1][:60]}", []).append(one)
    for same in alike.values():
        numbers = " ".join(f"#{one['number']}" for one in same[:8])
        print(f"\n{len(same)} x: {numbers}")
        print(f"{same[0].get('name', '')} ({same[0].get('how', '')})\n{same[0]['found']}")


class _Tally:
    """Inputs, seconds and outcomes per reader."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def take(self, said: dict) -> None:
        row = self._counts.setdefault(said["reader"], Counter())
        if "outcome" in said:
            row["inputs"] += 1
            row[said["outcome"]] += 1
            row["ms"] += said["ms"]
            row["slowest"] = max(row["slowest"], said["ms"])

    def table(self, seconds: float) -> str:
        heads = ("reader", "inputs", "read", "refused", "found", "mean ms", "slowest ms")
        lines = [heads]
        total: Counter[str] = Counter()
        for reader, row in sorted(self._counts.items()):
            total.update({k: v for k, v in row.items() if k != "slowest"})
            total["slowest"] = max(total["slowest"], row["slowest"])
            lines.append(_cells(reader, row))
        lines.append(_cells("all", total))
        shown = "\n".join("  ".join(str(c).rjust(10) for c in line) for line in lines)
        return f"{shown}\n{seconds:.0f} s"


def _cells(name: str, row: Counter[str]) -> tuple:
    mean = f"{row['ms'] / max(row['inputs'], 1):.1f}"
    return name, row["inputs"], row["read"], row["refused"], row["found"], mean, int(row["slowest"])


# -- the child ---------------------------------------------------------------------------------


def _child(args: argparse.Namespace, examine: Examine | None) -> int:
    warnings.simplefilter("error")
    for ends in (signal.SIGPROF, signal.SIGALRM):
        faulthandler.register(ends, chain=True)  # a stack, and the end
    if "asan" not in os.environ.get("LD_PRELOAD", ""):  # sanitizers map all there is
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        seeds = list(golden(Path(place) / "golden", args.reader))
        for i, folder in enumerate(args.samples):
            more = samples(folder, Path(place) / f"samples-{i}")
            seeds += [s for s in more if args.reader in ("", s.reader)]
        readers = sorted({seed.reader for seed in seeds})
        by_reader = {r: [s for s in seeds if s.reader == r] for r in readers}
        whole: dict[str, Outcome] = {}
        pool = [f.read_bytes() for s in seeds for f in s.files if f.stat().st_size < 200_000]
        for number in range(args.child, args.count * len(readers)):
            reader = readers[number % len(readers)]
            rng = Random(f"{args.seed} {number}")
            seed = rng.choices(
                by_reader[reader], [1 / (HEAD_BYTES + s.size) for s in by_reader[reader]]
            )[0]
            _one(number, rng, seed, pool, whole, Path(place), args, examine)
    return 0


def _same_without_c(
    seed: Seed, scratch: Path, mode: str | None, only: str | None, native: Outcome
) -> None:
    """Raise Wrong unless the Python tiers read the same."""
    os.environ["TRACECONV_NATIVE"] = "0"
    try:
        plain = examined(seed.path, scratch, mode=mode, only=only)
    finally:
        del os.environ["TRACECONV_NATIVE"]
    if plain.rows != native.rows or list(plain.issues) != list(native.issues):
        more = {"rows": plain.rows - native.rows, "issues": [*plain.issues], "C": [*native.issues]}
        raise Wrong(f"without C: {str(more)[:2000]}")


def _one(
    number: int,
    rng: Random,
    seed: Seed,
    pool: list[bytes],
    whole: dict[str, Outcome],
    scratch: Path,
    given: argparse.Namespace,
    examine: Examine | None,
) -> None:
    """One damaged input: what it is, then what became of it, as lines of JSON."""
    file = rng.choice(seed.files)
    original = file.read_bytes()
    clean = examine is None and rng.random() < 0.15
    if clean:  # nothing but a cut: what is left must have been there
        how, data = "clean cut", cut(rng, original, b"")
    else:
        how, data = mutated(rng, original, rng.choice(pool))
    said = {"number": number, "reader": seed.reader, "name": f"{seed.name}:{file.name}", "how": how}
    print(json.dumps(said), flush=True)
    begun, only = time.perf_counter(), seed.reader if given.reading else None
    try:
        if clean and seed.name not in whole:
            whole[seed.name] = examined(seed.path, scratch, only=only)
        file.write_bytes(data)
        begun = time.perf_counter()
        if examine is None:
            _watch(HANG_S)
            undamaged = whole[seed.name] if clean else None
            said["outcome"] = _through(number, rng, seed, undamaged, scratch, given)
        else:
            _watch(6 * HANG_S)
            said["outcome"] = examine(seed, scratch, rng, given)
    except (Exception, MemoryError):  # noqa: BLE001 - to be reported, whatever it is
        _note(said, given, number, file, data)
    finally:
        _watch(0)
        file.write_bytes(original)
    said["ms"] = round(1000 * (time.perf_counter() - begun), 1)
    print(json.dumps(said), flush=True)


def _through(
    number: int,
    rng: Random,
    seed: Seed,
    undamaged: Outcome | None,
    scratch: Path,
    given: argparse.Namespace,
) -> str:
    """An input through the pipeline: ``read`` or ``refused``.

    Args:
        undamaged: what is read of the input that this is the beginning of; None for other damage.
    """
    mode, suffix = rng.choice(MODES), SUFFIXES[number % len(SUFFIXES)]
    only = seed.reader if given.reading else None
    outcome = examined(seed.path, scratch, mode=mode, suffix=suffix, only=only)
    if number % given.tiers == 0:
        _same_without_c(seed, scratch, mode, only, outcome)
    if undamaged is not None and (extra := invented(undamaged, outcome)):
        raise Wrong(f"{len(extra)} events that were not there: {extra[:3]}")
    return "refused" if outcome.error and not outcome.rows else "read"


def _watch(seconds: float) -> None:
    """Let the process end after so many seconds of work, or much waiting; 0: not at all."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, IDLE * seconds)


def _note(said: dict, given: argparse.Namespace, number: int, file: Path, data: bytes) -> None:
    """A finding: what was raised, and the input."""
    said["outcome"], said["found"] = "found", traceback.format_exc()[-3000:]
    if given.findings is not None:
        given.findings.mkdir(parents=True, exist_ok=True)
        (given.findings / f"{said['reader']}-{number}-{file.name}").write_bytes(data)
