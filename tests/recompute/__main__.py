"""``python -m tests.recompute [PATH ...]``: every capture, every figure; see the package."""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from itertools import chain
from pathlib import Path

import traceconv

from .capture import Capture
from .compare import DIFFERENT, Tally

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.recompute", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[DATA])
    parser.add_argument("--show", type=int, default=20, help="differences shown per table")
    parser.add_argument("--verbose", action="store_true", help="a line per capture")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    whole, refused, done = Tally(), Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        below = ([root, *sorted(root.rglob("*"))] for root in options.paths)
        for path in captures(chain.from_iterable(below)):
            start = time.monotonic()
            try:
                tally = Capture(path, folder).compared()
            except traceconv.TraceconvError as error:
                refused[type(error).__name__] += 1
                if options.verbose:
                    print(f"{path}: {type(error).__name__}: {str(error)[:150]}", flush=True)
                continue
            done += 1
            tally.differences = [(t, f"{path}: {text}") for t, text in tally.differences]
            if options.verbose or tally.differences:
                wrong = sum(counts[DIFFERENT] for counts in tally.counts.values())
                taken = time.monotonic() - start
                print(f"{path}: {taken:.1f} s, {wrong} different", flush=True)
            whole.add(tally)
    show(whole, done, refused, options.show)
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


def show(whole, done, refused, most):
    print(f"{done} captures; not merged: {dict(refused) or 'none'}")
    print("\n".join(whole.lines()))
    for table in sorted({table for table, _ in whole.differences}):
        texts = [text for one, text in whole.differences if one == table]
        print(f"\n{table}: {len(texts)} different")
        print("\n".join(f"  {text[:300]}" for text in texts[:most]))


if __name__ == "__main__":
    sys.exit(main())
