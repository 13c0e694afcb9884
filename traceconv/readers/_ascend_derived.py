"""Files the frameworks lay beside a rank's PROF folder.

What they derived from it shows the same run again, so it belongs to the capture of the PROF
folder; only the host's side holds more, and is read along where its clock is known: its records,
or the timeline made of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._ascend_known import (
    PROF,
    below,
    derived_rank,
    folder_around,
    inside,
    is_capture_file,
    is_capture_folder,
)
from traceconv.readers._ascend_parts import Part, Role, is_empty, tied_to_unix_time

_REPEATED = re.compile(r"(?:ascend_)?timeline_display_\d+\.json")
_HOST = re.compile(r"host_info/(?:(host_info_\d+\.csv)|timeline_\d+\.json)")
_UNUSED = re.compile(
    r"gpu_timeline_display_\d+\.json|FRAMEWORK/.*|host_info/(?:host_info_\d+\.csv|timeline_.*)"
)


def with_derived(
    captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with the files that MindSpore derived from them.

    A derived file goes to the capture of its rank in the same folder; one without a rank in its
    name to the first capture there.
    """
    owners: dict[tuple[str, int], int] = {}
    for i, capture in enumerate(captures):
        folder = folder_around(capture.detail.root)
        if folder is not None:
            owners.setdefault((folder, -1), i)
            if capture.rank is not None:
                owners.setdefault((folder, capture.rank), i)
    found = list(captures)
    for folder in dict.fromkeys(folder for folder, _ in owners):
        for name in below(ordered, folder):
            rank = _rank_beside(inside(name, folder), folder)
            owner = None if rank is None else owners.get((folder, rank))
            if owner is not None and name not in found[owner].known:
                found[owner] = _with(found[owner], name, inside(name, folder), issues)
    return found


def _rank_beside(relative: str, folder: str) -> int | None:
    """The rank a file beside PROF folders belongs to: -1 for any there, None if to none."""
    if not is_capture_folder(folder):
        return derived_rank(relative)
    return -1 if is_capture_file(relative) and not PROF.match(relative) else None


def _with(capture: Capture, name: str, relative: str, issues: Issues) -> Capture:
    host = _HOST.fullmatch(relative)
    if host is not None and tied_to_unix_time(capture.clock):
        if any(part.role is Role.HOST_RECORDS for part in capture.detail.parts) or (
            host[1] and is_empty(capture.source, name)
        ):
            return replace(capture, known=(*capture.known, name))  # the other one is read
        part = Part(name, Role.HOST_RECORDS if host[1] else Role.HOST_INFO)
        detail = replace(capture.detail, parts=(*capture.detail.parts, part))
        return replace(capture, files=detail.files, detail=detail)
    for code, pattern in (("repeated-content", _REPEATED), ("unused-file", _UNUSED)):
        if pattern.fullmatch(relative):
            issues.add(code, capture.source.title(name))
    return replace(capture, known=(*capture.known, name))
