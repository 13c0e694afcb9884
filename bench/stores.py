"""``python -m bench.stores FOLDER``: whether stores give what their captures give.

Every file and folder is packed, and everything is made of both: traces of every view and format,
tables, findings, stragglers, clocks. A line for each output that differs, and one at the end::

    python -m bench.stores ../shared/data --share 0/4
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import traceconv
from bench.hashes import VIEWS, WRITTEN, digest, selected, sources


def main(arguments: list[str] | None = None) -> None:
    """Print what differs in everything below the folder that is given."""
    parser = argparse.ArgumentParser(prog="python -m bench.stores", description=__doc__)
    folder, share = selected(parser, arguments)
    packed = compared = different = stored = read = 0
    with tempfile.TemporaryDirectory() as place, chdir(folder):
        for path in sources()[share]:
            store = Path(place) / "run.tcz"
            try:
                report = traceconv.pack(str(path), out=store, force=True, jobs=1)
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
    """The name of everything that is made, and what the store and the captures gave."""
    for view, ending in WRITTEN:
        out = place / f"out.{ending}"
        yield f"{view} {ending}", merged(store, out, VIEWS[view]), merged(path, out, VIEWS[view])
    for name, make in MADE.items():
        yield name, attempt(make, store), attempt(make, path)


def merged(source: str, out: Path, mode: Any) -> Any:
    """The bytes of a trace by their hash, and its report."""

    def make(source: str) -> Any:
        report = traceconv.merge(source, out=str(out), mode=mode, force=True, jobs=1, copy=False)
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


def tables(source: str, by: str) -> Any:
    """The tables of a source as plain values, and the issues."""
    found = traceconv.stats(source, by=by)
    columns = {
        one.table.name: {key: column.tolist() for key, column in one.data.columns.items()}
        for one in found.results
    }
    return repr(columns), [*found.issues]


MADE: dict[str, Callable[[str], Any]] = {
    "tables": lambda one: tables(one, "all"),
    "files": lambda one: tables(one, "files"),
    "findings": lambda one: traceconv.diagnose(one, analyse=True).as_dict(),
    "stragglers": lambda one: traceconv.stragglers(one).as_dict(),
    "clocks": lambda one: traceconv.align(one).as_dict(),
    "path": lambda one: traceconv.critical_path(one).as_dict(),
    "steps": lambda one: traceconv.merge(one, steps="1", dry_run=True).as_dict(),
    "inspect": lambda one: traceconv.inspect(one, counts=True).as_dict(),
}
"""Everything but traces."""


if __name__ == "__main__":
    main()
