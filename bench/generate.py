"""Write captures shaped like those of the Ascend PyTorch profiler, of any size.

    python -m bench.generate OUT --events 1000000 --ranks 2

Nothing in them was ever measured: all values come from a seeded generator. What is taken over is
the shape: key order and spacing of the two layers (framework events begin with ``ph``, device
events end with it), stamps as strings of 16 digits and 3 decimals, numeric durations with up to
8 decimals, a flow name per connection, the folder layout. Of the events 57 % are slices, 39 %
flow ends, 4 % counters and metadata; one takes 217 bytes in the mean.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.layers import GROUP_EVENTS, Identity, trace_view
from bench.schedule import EPOCH_NS, Schedule, schedule

SEED = 20240612


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.generate", description="Write captures.")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the captures")
    parser.add_argument("--events", type=int, default=1_000_000, help="about so many per rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--overlap", action="store_true", help="with Overlap Analysis lanes")
    parser.add_argument("--wrapped", action="store_true", help="as an object with traceEvents")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(argv)
    for rank in range(given.ranks):
        path, events = generate(
            given.out, rank, given.events, given.seed, given.overlap, given.wrapped
        )
        print(f"{path}: {events} events, {path.stat().st_size} bytes")
    return 0


def generate(
    out: Path,
    rank: int,
    events: int,
    seed: int = SEED,
    overlap: bool = False,
    wrapped: bool = False,
) -> tuple[Path, int]:
    """Write one rank's capture below ``out``; the trace file and the number of its events.

    ``wrapped`` puts the array into an object, the only form some tools read.
    """
    times = schedule(max(1, round(events / GROUP_EVENTS)), rank, seed)
    root = out / f"worker{rank}_20240612082838997_ascend_pt"
    path = root / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    (root / f"profiler_info_{rank}.json").write_text(profiler_info(rank, times))
    count, before = 0, '{"traceEvents": [' if wrapped else "["
    with path.open("wb") as file:
        for rows, text in trace_view(Identity(rank, seed), times, overlap):
            file.write((before + text).encode("ascii"))
            count, before = count + rows, ", "
        file.write(b"]}" if wrapped else b"]")
    return path, count


def profiler_info(rank: int, times: Schedule) -> str:
    """The identity file: level, clock readings at start and end, the rank."""
    end = int(times.comm[-1]) + 5_000_000
    start = {"syscnt_enable": True, "freq": 100, "start_cnt": 10**13, "start_monotonic": 10**14}
    stop = {"collectionTimeEnd": end, "MonotonicTimeEnd": 10**14 + end - EPOCH_NS}
    level = {"_profiler_level": "Level1", "_export_type": "text"}
    config = {"common_config": {"with_stack": True}, "experimental_config": level}
    body = {"config": config, "start_info": start, "end_info": stop, "rank_id": rank}
    return json.dumps(body, indent=4)


if __name__ == "__main__":
    raise SystemExit(main())
