"""Finds ranks and parts in outputs of traceconv, by the attributes of the trace."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec

from traceconv.core.clock import INT64_MAX, is_unix_ns, merged_clock
from traceconv.core.codes import CODES
from traceconv.core.errors import Issues
from traceconv.core.job_shape import stated_in_metadata
from traceconv.core.model import Capture, stated_content
from traceconv.core.rank_ranges import parse_ranges
from traceconv.core.source import HEAD_BYTES, Source
from traceconv.protobuf.message import last_values, message, signed, text, whole_fields
from traceconv.protobuf.message_columns import CUT, WHOLE, frames
from traceconv.protobuf.own_rank import Count
from traceconv.protobuf.perfetto_schema import Attribute, TracePacket
from traceconv.readers.perfetto.others import OTHERS_NS
from traceconv.readers.shared import perfetto_manifest

SIGN = "traceconv."
"""Begins the keys of our attributes."""

_MOST_HEAD_BYTES = 64 << 20
"""Attributes may list what a size limit took, so they may be longer than a head."""

_OF_RUN = ("coordinates", "clock", "mode", "steps")
"""Facts of all ranks of a bundle."""

_LIMITS = ("size-limit", "size-coalesced", "flow-split")
"""Issues that are known only when a file is written: its attributes count them."""

_MOST_ISSUES, _MOST_PARTS, _MOST_MISSING = 10_000, 10_000, 100

T = TypeVar("T")

Facts = Mapping[str, str | int]
"""Attributes of an output of traceconv, without the prefix."""


@dataclass(frozen=True)
class Own:
    """A rank of an output of traceconv.

    Attributes:
        rank:    its number.
        base_ns: what its times count from.
    """

    rank: int
    base_ns: int


def attributes(source: Source, name: str, head: bytes) -> dict[str, str | int]:
    """The attributes of an output of traceconv, without the prefix; empty for other traces."""
    first_frames = frames(head, 0, len(head), 3)
    behind = head[first_frames.end : first_frames.end + 200]
    if first_frames.how == CUT and len(head) >= HEAD_BYTES and b"traceconv.version" in behind:
        head = source.head(name, _MOST_HEAD_BYTES)
        first_frames = frames(head, 0, len(head), 3)
    attributes_found: dict[str, str | int] = {}
    for start, size in zip(first_frames.start.tolist(), first_frames.size.tolist(), strict=True):
        packet = last_values(head[start : start + size])
        for n, _, value in whole_fields(packet.get(TracePacket.TRACE_ATTRIBUTES, b"")):
            attribute = last_values(value)
            key = text(attribute.get(Attribute.KEY, b""))
            if n != 1 or not key.startswith(SIGN):
                continue
            attribute_value: str | int = message(attribute.get(Attribute.STRING_VALUE, b"")).decode(
                errors="replace"
            )
            if Attribute.LONG_VALUE in attribute:
                attribute_value = signed(attribute[Attribute.LONG_VALUE])
            attributes_found[key.removeprefix(SIGN)] = attribute_value
    # the ranks in a bundle have no version: it is in the file with the facts of the run
    return (
        attributes_found
        if "version" in attributes_found or {"ranks", "base_ns"} <= attributes_found.keys()
        else {}
    )


def captures(
    source: Source,
    names: Sequence[str],
    facts: Mapping[str, Facts],
    heads: Mapping[str, bytes],
    issues: Issues,
) -> list[Capture]:
    """The ranks in outputs of traceconv. Parts of one output belong together, and so does a bundle.

    Args:
        names: all files that are there.
        facts: attributes by file.
        heads: first bytes by file.
    """
    others = {
        name: shift_ns
        for name, attributes_of in facts.items()
        if isinstance(shift_ns := attributes_of.get(OTHERS_NS), int)
    }
    common = {}  # files with the facts of a run, by folder: in every bundle, without events
    for name in facts.keys() - others.keys():
        first_frames = frames(heads[name], 0, len(heads[name]), 3)
        if (
            first_frames.how == WHOLE
            and first_frames.end == len(heads[name])
            and len(first_frames.start) <= 2
        ):
            common[folder(name)] = name
    members: defaultdict[str, dict[str, Facts]] = defaultdict(dict)
    alone: dict[str, Facts] = {}
    for name, attributes_of in facts.items():
        if folder(name) in common and "version" not in attributes_of:
            members[folder(name)][name] = attributes_of
        elif name not in others and name not in common.values():
            alone[name] = attributes_of
    captures_made: list[Capture] = []
    for where, ranks in members.items():
        beside = {name: shift_ns for name, shift_ns in others.items() if folder(name) == where}
        name = common[where]
        captures_made += _bundle(source, names, (name, facts[name]), ranks, beside, issues)
    return captures_made + _files(source, alone, issues)


def _bundle(
    source: Source,
    names: Sequence[str],
    run: tuple[str, Facts],
    members: Mapping[str, Facts],
    beside: Mapping[str, int],
    issues: Issues,
) -> list[Capture]:
    """The ranks of a bundle. Further files belong to the first rank.

    Args:
        run:    the file with the facts of the run, and these.
        beside: files with packets of other data sources, and what to add to their stamps.
    """
    common, run_facts = run
    _add_recorded_issues(issues, source.title(common), run_facts)
    shared = {key: run_facts[key] for key in _OF_RUN if key in run_facts}
    ranks: list[Capture] = []
    for name, rank_facts in members.items():
        ranks += _ranks(source, (name,), {**shared, **rank_facts}, source.title(common))
    uses = {common: "facts of the run, without events"}
    manifest = str(PurePosixPath(common).with_name(perfetto_manifest.NAME))
    if manifest in names:
        uses[manifest] = "names the files of a bundle"
    uses |= dict.fromkeys(beside, "packets of other data sources")
    first = (
        replace(capture, known=tuple(uses), uses=uses, beside=tuple(beside.items()))
        for capture in ranks[:1]
    )
    return [*first, *ranks[1:]]


def folder(name: str) -> str:
    """Where a file is."""
    return str(PurePosixPath(name).parent)


def _files(source: Source, facts: Mapping[str, Facts], issues: Issues) -> list[Capture]:
    """The ranks in files that are not of a bundle."""
    groups: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    for name, file_facts in facts.items():
        part = _document(file_facts.get("part"), dict[str, Any], {})
        number, parts = part.get("number"), part.get("of")
        if type(number) is int and type(parts) is int:
            unnumbered = re.sub(r"-\d+(\.[^/]*)$", r"\1", name)
            key = (
                folder(name),
                parts,
                file_facts.get("base_ns"),
                file_facts.get("ranks"),
                unnumbered,
            )
            groups.setdefault(key, []).append((number, name))
        else:
            groups[(name,)] = [(0, name)]
    captures_found: list[Capture] = []
    for key, members in groups.items():
        names = tuple(name for _, name in sorted(members))
        title = source.title(names[0])
        _add_recorded_issues(issues, title, facts[names[0]])
        captures_found += _ranks(source, names, facts[names[0]])
        if len(key) > 1 and not source.lone:  # other parts may be given next to it
            numbers = set(range(1, min(int(key[1]), _MOST_PARTS) + 1))
            for missing in sorted(numbers - {n for n, _ in members})[:_MOST_MISSING]:
                issues.add("part-missing", title, f"part {missing} of {key[1]}")
    return captures_found


def _document(value: object, kind: type[T], none: T) -> T:
    """A JSON document in an attribute; ``none`` if it is not of this kind."""
    try:
        return msgspec.convert(json.loads(value), kind) if isinstance(value, str) else none
    except (ValueError, RecursionError):
        return none


def _add_recorded_issues(issues: Issues, title: str, file_facts: Facts) -> None:
    """Issues of the run that wrote a file, as its attributes have them."""
    of_job = Issues()
    listed = _document(file_facts.get("job_issues"), list[tuple[str, str, Count, list[str]]], [])
    add_issues(of_job, listed)
    for code, count in _document(file_facts.get("issues"), dict[str, Count], {}).items():
        if code in _LIMITS:
            of_job.add(code, title, count=count - of_job.count(code))
    issues.extend(of_job)


def _ranks(
    source: Source, names: tuple[str, ...], file_facts: Facts, origin: str = ""
) -> list[Capture]:
    """The ranks of files that hold the same ones; ``origin``: the output they are of, "" for these
    files.
    """
    base = file_facts.get("base_ns", 0)
    base = base if isinstance(base, int) and abs(base) <= INT64_MAX else 0
    coordinates = _document(file_facts.get("coordinates"), dict[str, Any], {})
    title = source.title(names[0])
    clock = _document(file_facts.get("clock"), dict[str, Any], {})
    return [
        Capture(
            reader="perfetto",
            source=source,
            files=names,
            rank=rank,
            rank_from="its metadata",
            clock=merged_clock(clock, rank, origin or title) if is_unix_ns(base) else None,
            label=title,
            placement=stated_in_metadata(coordinates, rank),
            detail=Own(rank, base),
            content=stated_content(file_facts),
        )
        for rank in parse_ranges(str(file_facts.get("ranks", "")))
    ]


def add_issues(issues: Issues, listed: Iterable[tuple[str, str, int, list[str]]]) -> None:
    """Issues of the run that wrote a file: code, file, count, places."""
    for code, file, count, places in list(listed)[:_MOST_ISSUES]:
        if code in CODES:
            own_issues = Issues()
            own_issues.add(code, file, count=count)
            kept_places = tuple(places[: issues.PLACES_KEPT])
            issues.extend(replace(issue, places=kept_places) for issue in own_issues)
