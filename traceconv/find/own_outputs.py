"""What traceconv itself wrote, recognised by content: a folder of captures is read without it.

A merge in the folder of the captures leaves its trace, and maybe a report, beside them; the next
one must not take these for captures. Files that are named themselves are read, and so is a folder
that holds nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.io.streams import open_regular

HEAD_BYTES = 4096
"""Bytes at the start of a file that say who wrote it."""

ENDINGS = (
    *(".json", ".json.gz", ".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz"),
    *(".tar", ".txt", ".txt.gz", ".md", ".html", ".tcz", ".parquet", ".shard/shard.json"),
)
"""Of the files that are looked into."""

FOOTER_BYTES = 2 << 20
"""Bytes at the end of a Parquet file, where its metadata is."""

MANIFEST = "perfetto_manifest.json"
"""In every bundle."""

_SIGNS = lazy_regex(
    rb'(?s)\{"displayTimeUnit":"ns","metadata":\{"traceconv":'  # Chrome JSON
    rb"|.{0,200}traceconv\.(?:version|ranks)"  # a Perfetto trace
    rb"|perfetto_manifest\.json\0.*traceconv\.version"  # a bundle of them
    rb"|traceconv (?:text|store) \d"
    rb'|\{\s*"schema_version": ?\d+,\s*"(?:traceconv":|inputs":|method": ?"[^"]*",\s*"text":'
    rb'|ranks": ?\[[\d\s,]*\],\s*"findings":|tables": ?\[\s*\{\s*"name":)'  # documents
    rb'|\{\s*"version": ?\d+,\s*"index": ?\d+,\s*"of": ?\d+,'  # a shard
    rb"|# traceconv \d"
    rb"|<!DOCTYPE html>.{0,1000}<title>[^<]{0,200}traceconv"
)

_PARQUET_SIGN = lazy_regex(rb'(?s)traceconv\x18.{1,5}\{"')
"""The key of our metadata and, after its length, the value."""


def own_outputs(source: Source) -> dict[str, tuple[str, ...]]:
    """The outputs directly in a folder or archive, each with its files.

    A shard is a folder; files in other folders are not opened for this.
    """
    if source.lone or _is_bundle(source):
        return {}
    outputs: dict[str, tuple[str, ...]] = {}
    names = source.names()
    for name in names:
        folder, _, inner = name.partition("/")
        if not name.endswith(ENDINGS) or (inner and inner != "shard.json"):
            continue
        if written_by_us(source, name):
            inside = [file for file in names if file.startswith(f"{folder}/")] if inner else [name]
            outputs[folder] = tuple(inside)
    return outputs


def written_by_us(source: Source, name: str) -> bool:
    """Whether the first bytes of a file, or the last of a Parquet file, say that we wrote it."""
    if name.endswith(".parquet"):
        path = source.path(name)
        return path is not None and _is_our_parquet(path)
    return _SIGNS.match(source.head(name, HEAD_BYTES)) is not None


def _is_our_parquet(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, 2) - FOOTER_BYTES))
            return _PARQUET_SIGN.search(file.read()) is not None
    except OSError:
        return False  # reading the file reports the reason


def _is_bundle(source: Source) -> bool:
    """Whether it is an archive that we wrote, which was named itself."""
    return MANIFEST in source.names() and source.path(MANIFEST) is None


def own_bundles(sources: Sequence[Source]) -> list[Source]:
    """The bundles written by traceconv that were found in a folder, not named themselves."""
    return [
        source
        for source in sources
        if source.inner
        and _is_bundle(source)
        and any(written_by_us(source, name) for name in source.names() if name.endswith(".pftrace"))
    ]


def is_own(capture: Capture) -> bool:
    """Whether a capture is an output of traceconv in a subfolder."""
    source = capture.source
    has_metadata = (
        capture.rank_from == "its metadata" and not source.lone and not _is_bundle(source)
    )
    return has_metadata and written_by_us(capture.source, capture.files[0])
