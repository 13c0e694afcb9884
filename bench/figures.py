"""``python -m bench.figures FOLDER ... --before PYTHON``: figures of captures in two trees.

Every file and folder is merged by the traceconv that each Python has. Of each: the error, the ranks
with their readers, per rank the number and time of steps with the time that computes, communicates,
is exposed, copies and is free, the same of the whole recording, and the codes of issues. What
differs is grouped by what changed and by reader; ``--paths`` names all captures of a group::

    git worktree add ../before COMMIT && make -C ../before .venv/installed-plain
    python -m bench.figures ../shared/data --before ../before/.venv/bin/python
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import traceconv

Figures = Mapping[str, Any]

_SHOWN = 3  # captures of a group


def main(arguments: list[str] | None = None) -> None:
    """Print what differs, or with ``--print`` the figures of this tree."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="whose files and folders are merged")
    parser.add_argument("--before", help="the Python of the other tree")
    parser.add_argument("--paths", action="store_true", help="name all captures of a group")
    parser.add_argument("--print", action="store_true", help="print figures as lines of JSON")
    options = parser.parse_args(arguments)
    if options.print:
        for line in figures(options.folders):
            print(json.dumps(line), flush=True)
        return
    before, now = (made_by(python, options.folders) for python in (options.before, sys.executable))
    groups: dict[str, list[str]] = defaultdict(list)
    for path in sorted(before.keys() | now.keys()):
        for change in changes(before.get(path, {}), now.get(path, {})):
            groups[change].append(path)
    for change, paths in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        shown = paths if options.paths else paths[:_SHOWN]
        print(f"{len(paths):5}  {change}", *shown, sep="\n         ")
    changed = {path for paths in groups.values() for path in paths}
    outcomes = Counter(one["error"] or "read" for one in now.values())
    print(f"{len(now)} paths ({dict(outcomes)}); {len(changed)} of them differ")


def made_by(python: str, folders: Sequence[Path]) -> dict[str, Figures]:
    """The figures of all paths, by the traceconv of a Python."""
    command = [python, "-P", __file__, *map(str, folders), "--print"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return {one["path"]: one for one in map(json.loads, lines.splitlines())}


def figures(folders: Iterable[Path]) -> Iterator[Figures]:
    """Those of every file below folders, and of every folder that holds files itself."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(path for folder in folders for path in folder.rglob("*")):
            if path.is_file() or any(child.is_file() for child in path.iterdir()):
                out = Path(place) / "out.pftrace"
                yield {"path": str(path), **merged(path, out)}


def merged(path: Path, out: Path) -> Figures:
    """The figures of one capture."""
    try:
        report = traceconv.merge(str(path), out=str(out), mode="summary", force=True, jobs=1)
    except traceconv.TraceconvError as error:
        return {"error": type(error).__name__}
    except Exception as error:  # noqa: BLE001 - a fault of that tree is a difference, too
        return {"error": f"CRASH {type(error).__name__}"}
    said = report.as_dict()
    return {
        "error": "",
        "issues": sorted({issue["code"] for issue in said["issues"]}),
        "readers": {str(one["rank"]): one["reader"] for one in said["captures"]},
        "ranks": {rank: rank_figures(notes) for rank, notes in said["notes"].items()},
    }


def rank_figures(notes: Figures) -> Figures:
    """Sums over the steps of a rank, and of its recording."""
    sums: Counter[str] = Counter()
    for step in notes.get("steps", ()):
        sums["steps"] += 1
        for name, value in step.items():
            if name.endswith("_ns") and not name.startswith(("start", "device")):
                sums[f"steps {name}"] += value or 0
    recording = {f"all {k}_ns": v for k, v in notes.get("overlap", {}).get("sums_ns", {}).items()}
    return {name: value for name, value in {**sums, **recording}.items() if value}


def changes(before: Figures, now: Figures) -> Iterator[str]:
    """What changed between the figures of one capture, a text each."""
    then, since = (one.get("error", "no path") or "read" for one in (before, now))
    if then != since:
        yield f"{then} -> {since}"
    if {then, since} != {"read"}:
        return
    old, new = before["readers"], now["readers"]
    kind = ", ".join(sorted({*new.values()}))
    if old != new:
        yield f"{kind}: ranks or readers, {_ranks(old)} -> {_ranks(new)}"
    names = {
        name
        for rank in before["ranks"].keys() & now["ranks"].keys()
        for name in before["ranks"][rank].keys() | now["ranks"][rank].keys()
        if before["ranks"][rank].get(name) != now["ranks"][rank].get(name)
    }
    if names:
        yield f"{kind}: {', '.join(sorted(names))}"
    for word, left, right in (("gone", before, now), ("new", now, before)):
        for code in sorted({*left["issues"]} - {*right["issues"]}):
            yield f"issue {code} {word}"


def _ranks(readers: Mapping[str, str]) -> str:
    counts: Iterable[tuple[str, int]] = sorted(Counter(readers.values()).items())
    return " and ".join(f"{count} of {reader}" for reader, count in counts) or "none"


if __name__ == "__main__":
    main()
