"""``python -m tests.recompute [PATH ...]``: every capture, every figure; see the package."""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import chain
from pathlib import Path

import traceconv
from traceconv.analysis.tables.catalog import TABLES

from .capture import ELSEWHERE, Capture
from .compare import DIFFERENT, Tally

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.recompute", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[DATA])
    parser.add_argument("--show", type=int, default=20, help="differences shown per table")
    parser.add_argument("--verbose", action="store_true", help="a line per capture")
    parser.add_argument("--jobs", type=int, default=1, help="captures recomputed at a time")
    parser.add_argument("--skip", nargs="*", default=(), help="names of files and folders left out")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    whole, refused, done, seconds = Tally(), Counter(), 0, 0.0
    with ProcessPoolExecutor(options.jobs) as pool:
        below = ([root, *sorted(root.rglob("*"))] for root in options.paths)
        wanted = (p for p in chain.from_iterable(below) if not {*p.parts} & {*options.skip})
        for result in as_completed([pool.submit(recomputed, p) for p in captures(wanted)]):
            path, tally, error, taken = result.result()
            seconds += taken
            if error:
                refused[error.partition(":")[0]] += 1
                if options.verbose:
                    print(f"{path}: {error[:150]}", flush=True)
                continue
            done += 1
            if options.verbose or tally.differences:
                wrong = sum(counts[DIFFERENT] for counts in tally.counts.values())
                print(f"{path}: {taken:.1f} CPU s, {wrong} different", flush=True)
            whole.add(tally)
    print(f"{done} captures in {seconds:.0f} CPU s; not merged: {dict(refused) or 'none'}")
    show(whole, options.show)
    return 1 if whole.differences else 0


def captures(paths):
    """Those of the files and folders that are captures; what holds the same only once."""
    seen = set()
    for path in paths:
        try:
            found = traceconv.open(str(path)).found
        except traceconv.TraceconvError:
            continue
        key = tuple(sorted(
            (one.reader, *sorted(map(one.source.title, {*one.files, *one.known})))
            for one in found
        ))  # fmt: skip
        if found and key not in seen:
            seen.add(key)
            yield path


def recomputed(path):
    """The capture, its tally, the error instead of one, and the CPU seconds it took."""
    warnings.simplefilter("ignore")
    start, tally, error = time.process_time(), Tally(), ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            tally = Capture(path, folder).compared()
    except traceconv.TraceconvError as refusal:
        error = f"{type(refusal).__name__}: {refusal}"
    tally.differences = [(table, f"{path}: {text}") for table, text in tally.differences]
    tally.counts = dict(tally.counts)
    return path, tally, error, time.process_time() - start


def show(whole, most):
    print("\n".join(whole.lines()))
    for table, why in ELSEWHERE.items():
        print(f"{table} is not recomputed: {why}")
    absent = [table for table in TABLES if not any(whole.counts[table].values())]
    print(f"tables without a row in any capture: {', '.join(absent) or 'none'}")
    for table in sorted({table for table, _ in whole.differences}):
        texts = [text for one, text in whole.differences if one == table]
        print(f"\n{table}: {len(texts)} different")
        print("\n".join(f"  {text[:300]}" for text in texts[:most]))


if __name__ == "__main__":
    sys.exit(main())
