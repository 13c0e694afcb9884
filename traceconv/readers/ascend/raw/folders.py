"""Folders of raw data of the CANN collector: the kind and the capture of each file.

Three kinds of folders hold them: ``PROF_*`` with a folder per side, ``JOB*`` of old MindSpore
with one of one device, and the folders of the frameworks' profilers around a PROF folder.

Where old MindSpore made files itself, raw data show the same run once more, so they are not
read again. A run that crashed has only its host's side derived; the records then
complete the same capture.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex, natural
from traceconv.readers.ascend.common.capture_files import (
    PROF,
    below,
    folder_around,
    inside,
    is_capture_folder,
)
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.ascend.raw.slice_files import DONE, SLICE

if TYPE_CHECKING:
    from traceconv.readers.ascend.raw.clock import Clock


_KINDS = {
    "steps": r"training_trace(?:\.data)?(?:\.\d+)?\.dev\.[^/]*?\.(\d{1,18})",
    "hwts": r"hwts(?:\.log)?\.data(?:\.\d+\.dev\.[^/]*?)?\.(\d{1,18})",
    "track": r"ts_track\.data\.(\d{1,18})",
    "stars": r"stars_soc\.data\.(\d{1,18})",
    "frequency": r"lpmFreqConv(?:\.data)?\.(\d{1,18})",
    "memory": r"npu_mem(?:\.data)?\.(\d{1,18})",
    "ai_cpu": r"DATA_PREPROCESS\.dev\.AICPU\.(\d{1,18})",
    "data_queue": r"DATA_PREPROCESS\.dev\.TDT\.(\d{1,18})",
    "tasks": r"Framework\.host\.vm\.task_desc_info\.(\d{1,18})",
    "graph": r"Framework\.host\.vm\.graph_desc_info\.(\d{1,18})",
    "points": r"Framework\.host\.vm\.point\.(\d{1,18})",
}
_KIND = {kind: lazy_regex(rf"(?:.*/)?{pattern}") for kind, pattern in _KINDS.items()}
_HOST = lazy_regex(r"(?:aging|unaging)\.[^/]+\.slice_\d+")
_OF = lazy_regex(r"(?:^|/)device_(\d{1,18})/")
_FRAMEWORK = lazy_regex(
    r"(?:torch|mindspore)\.(?:op_range|op_mark|memory_usage|gc_record|python_tracer_func"
    r"|python_tracer_hash)|op_range_\d+"
)
_CLOCKS = lazy_regex(
    r"(?:(?:host|device_\d+)/)?(?:info\.json|start_info|end_info|host_start\.log|dev_start\.log"
    r"|sample\.json)(?:\.\d+)?(?:\.done)?"
)
_PROF_CLOCKS = lazy_regex(rf"{PROF.pattern}/(?:{_CLOCKS.pattern})")


class Raw(msgspec.Struct, frozen=True):
    """The raw data of one device in one folder.

    Attributes:
        root:   the folder they share.
        device: -1 if there is only the host's side.
        slices: kind of the device's records -> files by number; "other" holds the unknown ones.
        host:   files of the host's side.
        framework: files of ``FRAMEWORK``.
        known:  all others in the folder.
        around: the folder of a framework's profiler that holds it, None for none.
    """

    root: str
    device: int
    slices: dict[str, list[str]]
    host: tuple[str, ...] = ()
    framework: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    around: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """All that are read for events, in the order they are read."""
        device = [n for kind in _KIND for n in self.slices.get(kind, ())]
        return (*device, *self.host, *self.framework)


def kind_of(name: str) -> tuple[str, int] | None:
    """Kind of records and device of a slice's name; None for other files."""
    match = SLICE.fullmatch(name)
    if not match:
        return None
    for kind, pattern in _KIND.items():
        if device_match := pattern.fullmatch(match["stem"]):
            return kind, int(device_match[1])
    base = match["stem"].rpartition("/")[2]
    return "other", natural(base.rpartition(".")[2], 9999)


def raw_folders(ordered: Sequence[str]) -> list[Raw]:
    """Every folder with raw data among ``ordered`` names, one entry per device."""
    roots: dict[str, None] = {}
    for name in ordered:
        if _is_raw(name):
            roots.setdefault(_root(name))
    per_folder = Counter(folder_around(root) for root in roots)
    folders = [
        raw
        for root in roots
        for raw in _in_folder(ordered, root, per_folder[folder_around(root)] == 1)
    ]
    return folders + _framework_alone(ordered, folders)


def _is_raw(name: str) -> bool:
    """Whether a file is one the collector leaves: recognised by its folder or its own name."""
    base = name.rpartition("/")[2]
    if not SLICE.fullmatch(base):
        return False
    slice_kind = kind_of(name)
    sided = re.search(r"(?:^|/)(?:host|device_\d+)/data/[^/]+$", name)
    return (
        bool(sided)
        or (slice_kind is not None and slice_kind[0] != "other")
        or bool(_HOST.fullmatch(base))
    )


def _root(name: str) -> str:
    parts = name.split("/")[:-1]
    for i in range(len(parts), 0, -1):
        if PROF.fullmatch(parts[i - 1]):
            return "/".join(parts[:i])
    if parts and parts[-1] == "data":
        parts = parts[:-1]
        if parts and re.fullmatch(r"host|device_\d+", parts[-1]):
            parts = parts[:-1]
    return "/".join(parts)


def _in_folder(ordered: Sequence[str], root: str, alone: bool) -> list[Raw]:
    """One entry per device of a folder; the host's side belongs to each.

    Args:
        alone: no other folder with raw data is beside it.
    """
    files = [n for n in below(ordered, root) if _belongs(inside(n, root))]
    data = [n for n in files if SLICE.fullmatch(n)]
    host = [n for n in data if _HOST.fullmatch(n.rpartition("/")[2])]
    by_device: dict[int, dict[str, list[str]]] = {}
    for name in data:
        if name not in set(host):
            kind, device = kind_of(name) or ("other", -1)
            folder = _OF.search(inside(name, root))
            device = int(folder[1]) if folder else device
            by_device.setdefault(device, {}).setdefault(kind, []).append(name)
    unnumbered = by_device.pop(-1, {}) if len(by_device) > 1 else {}
    around = folder_around(root)
    holder = root if around is None or not (alone or is_capture_folder(around)) else around
    around = around if around is not None and is_capture_folder(around) else None
    used = {*host, *(n for kinds in by_device.values() for names in kinds.values() for n in names)}
    unused = [n for n in files if n not in used] + [
        n for names in unnumbered.values() for n in names
    ]
    read, other_files = _framework(ordered, holder)
    entries = []
    for device, kinds in sorted(by_device.items()) or [(-1, {})]:
        slices = {kind: _by_number(names) for kind, names in kinds.items()}
        own_files = [n for n in unused if (m := _OF.search(n)) is None or device in (-1, int(m[1]))]
        other_slices = slices.get("other", [])
        entries.append(
            Raw(root, device, slices, tuple(host), (), (*own_files, *other_slices), around)
        )
    known = (*entries[0].known, *other_files)
    entries[0] = structs.replace(entries[0], framework=read, known=known)
    return entries


def _belongs(relative: str) -> bool:
    """Whether a file below a root is the collector's own."""
    base = relative.rpartition("/")[2].removesuffix(DONE)
    if relative.count("/") > 2:
        return False
    sided = re.match(r"(?:host|device_\d+)/(?:data|sqlite)/", relative)
    job = relative.count("/") == 0 or relative.startswith("data/")
    raw = SLICE.fullmatch(base) is not None and (job or sided is not None)
    return raw or sided is not None or _CLOCKS.fullmatch(relative) is not None


def _framework(ordered: Sequence[str], folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files of ``FRAMEWORK`` in a folder that are read, and the other small ones there."""
    inner = below(ordered, f"{folder}/FRAMEWORK" if folder else "FRAMEWORK")
    read = tuple(n for n in inner if _FRAMEWORK.fullmatch(n.rpartition("/")[2]))
    other_files = [n for n in inner if n not in read]
    if is_capture_folder(folder):
        other_files += [
            n for n in below(ordered, folder)
            if re.fullmatch(r"(?:profiler_info(?:_\d+)?|profiler_metadata)\.json|logs/.+",
                            inside(n, folder))
        ]  # fmt: skip
    return read, tuple(other_files)


def _framework_alone(ordered: Sequence[str], folders_found: Iterable[Raw]) -> list[Raw]:
    """Folders of a framework's profiler in which only its own side was written."""
    used = {n for raw in folders_found for n in raw.framework}
    folders: dict[str, None] = {}
    for name in ordered:
        parts = name.rpartition("/")
        inner = parts[0].rpartition("/")[2] == "FRAMEWORK" and name not in used
        if inner and _FRAMEWORK.fullmatch(parts[2]):
            folders.setdefault(parts[0].rpartition("/")[0])
    entries = []
    for folder in folders:
        read, other_files = _framework(ordered, folder)
        clocks = [n for n in below(ordered, folder) if _PROF_CLOCKS.fullmatch(inside(n, folder))]
        around = folder if is_capture_folder(folder) else None
        entries.append(Raw(folder, -1, {}, (), read, (*other_files, *clocks), around))
    return entries


def _by_number(names: Iterable[str]) -> list[str]:
    def key(name: str) -> tuple[str, int]:
        match = SLICE.fullmatch(name)
        return (match["stem"], int(match["number"])) if match else (name, 0)

    return sorted(names, key=key)


# -- raw folders as parts of captures -------------------------------------------------------------


class Window(msgspec.Struct, frozen=True):
    """One raw folder of a capture, with its clock and the chip's ``platform_version``."""

    raw: Raw
    clock: Clock
    chip: str = ""


def window(identity: Identity, raw: Raw) -> Window:
    """A folder with its clock and chip, from its small files."""
    from traceconv.readers.ascend.raw.clock import read_clock

    clock = read_clock(identity, raw.known, raw.device)
    return Window(raw, clock, identity.chip)


def beside(captures: Sequence[Capture], ordered: Sequence[str]) -> dict[int, list[Raw]]:
    """Raw folders by the capture (its position) they are beside: of several the one whose rank
    is the device's number.
    """
    raw_by_capture: dict[int, list[Raw]] = {}
    folders = [raw for raw in raw_folders(ordered) if raw.slices]
    places = []  # the ``profiler`` folder of each capture
    for capture in captures:
        name = next(iter((*capture.files, *capture.known)), "")
        folder = name.rpartition("/")[0]
        inner = folder.rpartition("/")[2] in ("host_info", "FRAMEWORK")
        places.append(folder.rpartition("/")[0] if inner else folder)
    for raw in folders:
        around = folder_around(raw.root)
        near = [i for i, place in enumerate(places) if around is not None and place == around]
        alone = len([r for r in folders if folder_around(r.root) == around]) == 1
        if not (alone and len(near) == 1):
            near = [i for i in near if captures[i].rank == raw.device]
        for i in near[:1]:
            raw_by_capture.setdefault(i, []).append(raw)
    return raw_by_capture
