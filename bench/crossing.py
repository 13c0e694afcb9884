"""Write a trace that is hard on converters: slices that cross, many names, arguments of their own.

    python -m bench.crossing OUT.json --events 1000000

Host threads hold slices that overlap without nesting (asynchronous calls, coroutines), as recorded
by runtimes that log a call where it returns; names number in the tens of thousands, and hardly two
events have the same arguments. Seeded; nothing in it was ever measured.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

SEED = 20240612
THREADS = 16
BLOCK = 20_000
"""Events turned into text at a time."""


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.crossing", description="Write a trace.")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(argv)
    generate(given.out, given.events, given.seed)
    print(f"{given.out}: {given.events} events, {given.out.stat().st_size} bytes")
    return 0


def generate(out: Path, events: int, seed: int = SEED) -> None:
    """Write ``events`` slices on :data:`THREADS` threads, in the order in which they end."""
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.integers(1, 4000, events)) + 1_700_000_000_000_000_000
    # as long as some ten neighbours of the same thread: four in five slices cross another
    dur = rng.exponential(20_000 * THREADS, events).astype(np.int64) + 1
    order = np.argsort(start + dur)
    names = max(1, events // 25)
    name, thread = rng.integers(0, names, events), rng.integers(0, THREADS, events)
    size, handle = rng.integers(0, 2**40, events), rng.integers(0, 2**63, events)
    with out.open("w", encoding="ascii") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for at in range(0, events, BLOCK):
            records = [
                json.dumps({
                    "ph": "X", "cat": "call", "name": f"module_{name[i] % 97}.call_{name[i]}",
                    "pid": 7, "tid": 100 + int(thread[i]),
                    "ts": float(f"{start[i] // 1000 % 10**11}.{start[i] % 1000:03d}"),
                    "dur": float(f"{dur[i] // 1000}.{dur[i] % 1000:03d}"),
                    "args": {
                        "bytes": int(size[i]), "handle": f"0x{handle[i]:016x}", "call": int(i),
                    },
                })
                for i in order[at : at + BLOCK].tolist()
            ]  # fmt: skip
            file.write((",\n" if at else "") + ",\n".join(records))
        file.write("\n]}\n")


if __name__ == "__main__":
    raise SystemExit(main())
