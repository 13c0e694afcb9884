"""The manifest of an archive of traces: machine names, and clocks related to each other.

Written by: people and tools that merge traces for ui.perfetto.dev (Perfetto v58 and later); by us.
Files: a JSON member of a zip or tar that begins with ``{"perfetto_manifest"``, or is named so.
Units and clock: ``offset_ns`` is added to every time of a file, along the chain of files that it
is synchronised to.
Source: Perfetto's documentation, "Merging traces".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues
from traceconv.core.source import Source

NAME = "perfetto_manifest.json"
MAX_BYTES = 16 << 20
_MAX_OFFSET = 1 << 60


class Placement(NamedTuple):
    """The entry of a file: nanoseconds to add to its times, and the name of its machine."""

    shift_ns: int
    machine: str

    @property
    def clock(self) -> Anchor:
        """The clock that all files of the archive are on."""
        return Anchor(Domain.UNIX, evidence="a manifest relates the clocks of the files")


def is_manifest(head: bytes) -> bool:
    """Whether a file with these first bytes is a manifest."""
    text = b"".join(head[:256].split())
    return text.startswith(b'{"perfetto_manifest"')


def found_in(source: Source, names: Sequence[str], issues: Issues) -> dict[str, Placement]:
    """The entries of the manifest among some files, by file name; empty without a manifest.

    Issues: malformed-record and clock-assumed, if it cannot be read.
    """
    for name in names:
        small = name.lower().endswith(".json") and source.size(name) <= MAX_BYTES
        if not small or len(names) == 1:
            continue
        if PurePosixPath(name).name == NAME or is_manifest(source.head(name)):
            try:
                return placements(source.read(name, MAX_BYTES))
            except ValueError as e:
                issues.add("malformed-record", source.title(name), str(e))
                issues.add("clock-assumed", source.title(name), "files keep the times they state")
    return {}


def placements(content: bytes) -> dict[str, Placement]:
    """The entries of a manifest, by file name.

    Raises:
        ValueError: it cannot be understood.
    """
    try:
        document = json.loads(content)["perfetto_manifest"]
        if document["version"] != 1:
            raise ValueError("unknown version")
        files = {entry["path"]: entry for entry in document.get("files", [])}
        return {
            name: Placement(
                _offset(files, name, len(files)), str(entry.get("machine", {}).get("name", ""))
            )
            for name, entry in files.items()
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ValueError(f"not a manifest: {e}") from e


def _offset(files: Mapping[str, Any], name: str, depth: int) -> int:
    clocks = files.get(name, {}).get("clocks")
    if clocks is None:
        return 0
    if depth < 0:
        raise ValueError("files are related to each other in a circle")
    total = clocks.get("offset_ns", 0) + _offset(files, clocks["sync_to"]["file"], depth - 1)
    if type(total) is not int or abs(total) > _MAX_OFFSET:
        raise ValueError("offset_ns is not an integer, or out of range")
    return total
