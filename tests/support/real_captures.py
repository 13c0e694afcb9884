"""The files and folders of real captures, for tests that go over all of them."""

from __future__ import annotations

from pathlib import Path

from effort import THOROUGH
from paths import DATA

_NOT_CAPTURES = (".md", ".txt", ".expect.json", "truth.json")
_HARD = "field/hard"  # inputs that are slow, or nothing but damage

_USUAL = (
    "ascend/mindinsight/profiler",
    "ascend/msinsight/test/data/pytorch/text/level1",
    "field/gpu/flight_recorder_hang",
    "field/gpu/nsight_two_nodes_equal_pids",
    "field/insight/uneven_not_a_bound",
    "gpu/inference/sglang_decode",
    "hub/rocpd/v4",
    "hub/xplane/cpu_4dev",
)
"""Of every vendor one: what a usual run tries."""


def captures() -> list[Path]:
    """All files and folders in a thorough run, else a few. Some hold no capture."""
    if not THOROUGH:
        return [DATA / name for name in _USUAL]
    return [
        path
        for path in sorted(DATA.rglob("*"))
        if _HARD not in path.as_posix() and not path.name.endswith(_NOT_CAPTURES)
    ]


def name_of(path: Path) -> str:
    """As tests name it."""
    return path.relative_to(DATA).as_posix()
