"""Where CANN's exports lie: PROF folders, and what stands for one if only a part is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from traceconv.readers._ascend_exports import is_timeline, single_device
from traceconv.readers._ascend_known import PROF, folder_around, is_capture_folder, starting


@dataclass(frozen=True)
class Place:
    """One folder with exports.

    Attributes:
        root:    the PROF folder, or what stands for it.
        device:  of single exports; -1 for the devices of a joint one.
        exports: the timelines.
        around:  files beside the folder that may tell whose it is.
        alone:   whether they can speak of nothing else, as no other PROF folder lies there.
    """

    root: str
    device: int
    exports: tuple[str, ...]
    around: tuple[str, ...]
    alone: bool


def places(ordered: Sequence[str]) -> list[Place]:
    """Timelines by folder and device; a joint export takes the single ones along."""
    found: dict[tuple[str, int], list[str]] = {}
    for name in ordered:
        if is_timeline(name):
            found.setdefault((_root(name), single_device(name)), []).append(name)
    joint = {root for root, device in found if device < 0}
    merged: dict[tuple[str, int], list[str]] = {}
    for (root, device), names in found.items():
        merged.setdefault((root, -1 if root in joint else device), []).extend(names)
    crowds = Counter(folder_around(root) for root, _ in merged)
    found_places = []
    for (root, device), names in merged.items():
        folder = folder_around(root)
        alone = crowds[folder] == 1 or is_capture_folder(folder or "")
        around = _files_in(ordered, folder)
        found_places.append(Place(root, device, tuple(names), around, alone))
    return found_places


def _files_in(ordered: Sequence[str], folder: str | None) -> tuple[str, ...]:
    """The files of a folder that holds PROF folders that may tell whose these are."""
    if folder is None:
        return ()
    wanted = ("profiler_info", "profiler_metadata.json", "ASCEND_PROFILER_OUTPUT/ascend_")
    prefix = f"{folder}/" if folder else ""
    return tuple(n for start in wanted for n in starting(ordered, prefix + start))


def _root(name: str) -> str:
    """The folder an export belongs to: the PROF folder, or what stands for it."""
    parts = PurePosixPath(name).parts[:-1]
    for i in range(len(parts), 0, -1):
        if PROF.fullmatch(parts[i - 1]):
            return "/".join(parts[:i])
    if parts and parts[-1] == "mindstudio_profiler_output":
        parts = parts[:-1]
    elif len(parts) > 1 and parts[-1] == "timeline" and parts[-2].startswith("device_"):
        parts = parts[:-2]
    return "/".join(parts)
