"""``python -m bench.stores FOLDER``: whether stores and the cache give what captures give.

Every file and folder is packed, and everything is made of both: traces of every view and format, a
window of time, tables, findings, stragglers, clocks. Analyses are made once more of the summaries
in the store, and of what the cache keeps of the captures. A line for each output that differs, and
one at the end::

    python -m bench.stores ../shared/data --share 0/4
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import traceconv
from bench.hashes import VIEWS, WRITTEN, digest, selected, sources
from traceconv.store import cache


def main(arguments: list[str] | None = None) -> None:
    """Print what differs in everything below the folder that is given."""
    parser = argparse.ArgumentParser(prog="python -m bench.stores", description=__doc__)
    cache.SMALL_BYTES = cache.SETTLED_NS = 0  # small and new files are kept, too
    folder, share = selected(parser, arguments)
    packed = compared = different = stored = read = 0
    with tempfile.TemporaryDirectory() as place, chdir(folder):
        os.environ["TRACECONV_CACHE"] = f"{place}/cache"
        for path in sources()[share]:
            store = Path(place) / "run.tcz"
            try:
                report = traceconv.pack(str(path), out=store, force=True, jobs=1, summaries=True)
            except traceconv.TraceconvError:
                continue
            packed, stored, read = packed + 1, stored + report.bytes, read + report.source_bytes
            for name, made, expected in outputs(str(path), str(store), Path(place)):
                compared += 1
                if made != expected:
                    different += 1
                    print(path, name, *(str(one)[:200] for one in (expected, made)), flush=True)
    print(f"{packed} packed, {read:,} B to {stored:,} B; {different} of {compared} differ")


def outputs(path: str, store: str, place: Path) -> Iterator[tuple[str, Any, Any]]:
    """The name of everything that is made, what the store or the cache gave, and the captures."""
    out = place / "out.pftrace"
    for view, ending in WRITTEN:
        to = place / f"out.{ending}"
        yield f"{view} {ending}", *(merged(one, to, mode=VIEWS[view]) for one in (store, path))
    for time in ("0s:100us", "1ms:20ms"):
        yield f"window {time}", *(merged(one, out, time=time) for one in (store, path))
    for name, make in READ.items():
        yield name, attempt(make, store), attempt(make, path)
    for name, make in ANALYSES.items():
        expected = attempt(partial(make, cache=False), path)
        yield name, attempt(partial(make, cache=False), store), expected
        yield f"{name} from the store's summary", attempt(make, store), expected
        attempt(make, path)  # keeps its summaries
        yield f"{name} from the cache", attempt(make, path), expected


def merged(source: str, out: Path, **options: Any) -> Any:
    """The bytes of a trace by their hash, and its report."""

    def make(source: str) -> Any:
        report = traceconv.merge(source, out=str(out), force=True, jobs=1, copy=False, **options)
        content = b"".join(Path(str(one.path)).read_bytes() for one in report.written)
        return digest(content), len(content), report.as_dict()

    return attempt(make, source)


def attempt(make: Callable[[str], Any], source: str) -> Any:
    """The result, or the error."""
    try:
        return make(source)
    except traceconv.TraceconvError as e:
        return type(e).__name__, str(e)
    except Exception as e:  # noqa: BLE001 - a fault is the same fault
        return "CRASH", repr(e)


def tables(source: str, by: str, cache: bool = True) -> Any:
    """The tables of a source as plain values, and the issues."""
    found = traceconv.stats(source, by=by, cache=cache)
    columns = {
        one.table.name: {key: column.tolist() for key, column in one.data.columns.items()}
        for one in found.results
    }
    return repr(columns), [*found.issues]


READ: dict[str, Callable[[str], Any]] = {
    "steps": lambda one: traceconv.merge(one, steps="1", dry_run=True).as_dict(),
    "inspect": lambda one: traceconv.inspect(one, counts=True).as_dict(),
}
"""Outputs for which ranks are read each time."""

ANALYSES: dict[str, Callable[..., Any]] = {
    "tables": partial(tables, by="all"),
    "files": partial(tables, by="files"),
    "findings": lambda one, **to: traceconv.diagnose(one, analyse=True, **to).as_dict(),
    "stragglers": lambda one, **to: traceconv.stragglers(one, **to).as_dict(),
    "clocks": lambda one, **to: traceconv.align(one, **to).as_dict(),
    "path": lambda one, **to: traceconv.critical_path(one, **to).as_dict(),
}
"""Outputs that the cache gives the second time."""


if __name__ == "__main__":
    main()
