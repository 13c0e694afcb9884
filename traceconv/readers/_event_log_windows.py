"""Several logs of one rank: a logger that begins a new file now and then leaves windows.

Logs are windows of one rank if they lie in one folder, are laid out alike, say the same rank, and
their names differ in nothing but numbers ("rank3.1.jsonl", "rank3.2.jsonl"). Where nothing says
the rank, a number could be one, so the name has to call it a part ("gpu_part1.csv").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from traceconv.clock import Domain
from traceconv.model import Capture

_DIGITS = re.compile(r"\d+")
_PART = re.compile(r"(?<![a-z])(part|window|chunk|segment|split)([-_.]?)\d+", re.IGNORECASE)


def joined(captures: Sequence[Capture]) -> list[Capture]:
    """The captures of a source, those that are windows of one rank as one; in their order."""
    groups: dict[Any, list[Capture]] = {}
    for capture in captures:
        groups.setdefault(_key(capture), []).append(capture)
    return [_one(group) for group in groups.values()]


def _key(capture: Capture) -> Any:
    """What windows of one rank have in common."""
    path = PurePosixPath(capture.files[0])
    alike = _DIGITS if capture.rank is not None else _PART
    stem = alike.sub(lambda m: "#" if alike is _DIGITS else f"{m[1]}{m[2]}#", path.name)
    if len(capture.files) > 1 or stem == path.name:
        return capture.files, capture.rank
    layout = capture.detail[0][1]
    settings = {key: value for key, value in layout.settings.items() if key != "comment"}
    clock = capture.clock.domain if capture.clock else Domain.RELATIVE
    return path.parent, stem, capture.rank, layout.log, clock, tuple(sorted(settings.items()))


def _one(group: Sequence[Capture]) -> Capture:
    """Windows as one capture, by the numbers in their names."""
    if len(group) == 1:
        return group[0]
    ordered = sorted(group, key=lambda c: [int(n) for n in _DIGITS.findall(c.files[0])])
    return replace(
        ordered[0],
        files=tuple(c.files[0] for c in ordered),
        detail=tuple(part for c in ordered for part in c.detail),
    )
