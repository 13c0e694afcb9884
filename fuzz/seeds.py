"""What is mutated: the golden cases, and folders of samples where there are any."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.golden_cases import case_folder
from traceconv.core.errors import TraceconvError
from traceconv.core.model import Capture
from traceconv.find import discovery
from traceconv.io.sources import sources

ROOT = Path(__file__).parents[1]

MAX_SAMPLE_BYTES = 400_000
"""Larger files are left alone: what they could show, smaller ones show sooner."""


@dataclass(frozen=True)
class Seed:
    """An input that works.

    Attributes:
        reader: who reads it.
        name:   for messages.
        path:   what is opened: a copy that may be changed.
        files:  those that can be damaged.
        size:   of all files together, bytes.
    """

    reader: str
    name: str
    path: Path
    files: tuple[Path, ...]
    size: int = 0


def golden(place: Path, only: str = "") -> Iterator[Seed]:
    """The golden cases of ``only`` (all, if empty), copied below ``place``."""
    for case in sorted((ROOT / "golden").glob(f"{only or '*'}/*/case.toml")):
        folder = case.parent
        own = place / folder.parent.name / folder.name
        path = own / "input"
        shutil.copytree(case_folder(folder) / "input", path)
        yield from _seed(folder.parent.name, f"{folder.parent.name}/{folder.name}", path)


def samples(folder: Path, place: Path) -> Iterator[Seed]:
    """Every capture below ``folder`` that has small files, with those files alone."""
    try:
        captures = discovery.discover(sources([str(folder)])).captures
    except TraceconvError:
        return
    for number, capture in enumerate(captures):
        wanted = [n for n in (*capture.files, *capture.known) if _small(capture, n)]
        if not any(name in capture.files for name in wanted):
            continue
        own = place / f"{capture.reader}-{number}" / "input"
        for name in wanted:
            target = own / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target)
        yield from _seed(capture.reader, f"sample {capture.reader} {wanted[0]}", own)


def _small(capture: Capture, name: str) -> bool:
    return 0 < capture.source.size(name) <= MAX_SAMPLE_BYTES


def _seed(reader: str, name: str, path: Path) -> Iterator[Seed]:
    files = tuple(sorted(f for f in path.rglob("*") if f.is_file() and f.stat().st_size))
    if files:
        yield Seed(reader, name, path, files, sum(f.stat().st_size for f in files))
