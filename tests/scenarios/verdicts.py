"""``python -m tests.scenarios.verdicts [FOLDER ...]``: the verdict on every job below some folders.

A job is a folder in which captures of at least two ranks are found; one line for each, in order of
paths, so that the lines of two versions can be compared.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import traceconv

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.verdicts", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[DATA])
    warnings.simplefilter("ignore")
    for root in parser.parse_args().folders:
        for folder in jobs(root):
            print(f"{folder.relative_to(root)}: {verdict(folder)}", flush=True)
    return 0


def jobs(root: Path) -> Iterator[Path]:
    """Folders with captures of several ranks; of nested ones that hold the same, the first."""
    seen = set()
    for folder in [root, *sorted(path for path in root.rglob("*") if path.is_dir())]:
        try:
            found = traceconv.open(str(folder)).found
        except traceconv.TraceconvError:
            continue
        captures = tuple(sorted(one.source.title(name) for one in found for name in one.files))
        ranks = {one.rank for one in found}
        if len(ranks) > 1 and captures not in seen:
            seen.add(captures)
            yield folder


def verdict(folder: Path) -> str:
    """The first line of the verdict, or the reason for no verdict."""
    try:
        return traceconv.stragglers(str(folder), cache=False).verdict.line()
    except traceconv.TraceconvError as e:
        return f"{type(e).__name__}: {str(e)[:150]}"


if __name__ == "__main__":
    raise SystemExit(main())
