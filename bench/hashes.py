"""``python -m bench.hashes FOLDER > hashes.txt``: what ``merge`` makes of everything in a folder.

A line per file or folder, view and format: the hash and size of the output, or the class of the
error. Two versions whose lines are equal write the same bytes and report the same issues, so a
refactoring can be shown to change no output::

    python -m bench.hashes ../shared/data > before.txt    # and again after the change
    diff before.txt after.txt
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import traceconv

VIEWS = {"summary": "summary", "detail": "detail", "source": None}
"""The values of ``mode`` by the names of the views."""

WRITTEN = [
    ("summary", "pftrace"),
    ("detail", "pftrace"),
    ("detail", "json"),
    ("detail", "txt"),
    ("source", "pftrace"),
    ("source", "json"),
]
"""Views and formats that are hashed: both of those that viewers open, and the text dump."""


def main(arguments: list[str] | None = None) -> None:
    """Print a line for everything below the folder that is given."""
    parser = argparse.ArgumentParser(prog="python -m bench.hashes", description=__doc__)
    folder, share = selected(parser, arguments)
    with tempfile.TemporaryDirectory() as place, chdir(folder):
        for path in sources()[share]:
            for view, ending in WRITTEN:
                out = Path(place) / f"out.{ending}"
                print(path, view, ending, *merged(path, out, VIEWS[view]), flush=True)


def selected(parser: argparse.ArgumentParser, arguments: list[str] | None) -> tuple[Path, slice]:
    """The folder that is given, and which of its paths are tried; warnings are not shown."""
    parser.add_argument("folder", type=Path, help="what to try, each file and folder by itself")
    parser.add_argument(
        "--share", default="0/1", metavar="I/N", help="every N-th path only, from the I-th on"
    )
    options = parser.parse_args(arguments)
    index, count = map(int, options.share.split("/"))
    warnings.simplefilter("ignore")
    return options.folder, slice(index, None, count)


def sources() -> list[Path]:
    """Every file below the current folder, and every folder that has files of its own; relative,
    so that outputs do not depend on where the folder is.
    """
    paths = Path().rglob("*")
    return sorted(p for p in paths if p.is_file() or any(c.is_file() for c in children(p)))


def children(path: Path) -> Iterator[Path]:
    """What is directly in a folder; nothing for what is none."""
    return path.iterdir() if path.is_dir() else iter(())


def merged(source: Path, out: Path, mode: str | None) -> tuple[object, ...]:
    """Hash and size of the output, and a hash of issues and counts of rows; or the class of the
    error. Any error that is not a :class:`traceconv.TraceconvError` is a fault of ours, and its
    message is in the line.
    """
    try:
        report = traceconv.merge(str(source), out=str(out), mode=mode, force=True, jobs=1)
    except traceconv.TraceconvError as e:
        return (type(e).__name__,)
    except Exception as e:  # noqa: BLE001 - the others are hashed, too
        return "CRASH", repr(e)[:100]
    files = [Path(written.path) for written in report.written]
    issues = sorted((issue.code, issue.count, issue.rank) for issue in report.issues)
    counts = [sorted(written.counts.items()) for written in report.written]
    size = sum(file.stat().st_size for file in files)
    content = b"".join(file.read_bytes() for file in files)
    return digest(content), size, digest(repr((issues, counts)).encode())[:8]


def digest(data: bytes) -> str:
    """Enough of a SHA-256 to tell outputs apart."""
    return hashlib.sha256(data).hexdigest()[:24]


if __name__ == "__main__":
    main()
