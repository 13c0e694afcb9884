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
    found = frames(head, 0, len(head), 3)
    rest = head[found.end : found.end + 200]
    if found.how == CUT and len(head) >= HEAD_BYTES and b"traceconv.version" in rest:
        head = source.head(name, _MOST_HEAD_BYTES)
        found = frames(head, 0, len(head), 3)
    known: dict[str, str | int] = {}
    for start, size in zip(found.start.tolist(), found.size.tolist(), strict=True):
        packet = last_values(head[start : start + size])
        for n, _, value in whole_fields(packet.get(TracePacket.TRACE_ATTRIBUTES, b"")):
            of = last_values(value)
            key = text(of.get(Attribute.KEY, b""))
            if n != 1 or not key.startswith(SIGN):
                continue
            stated: str | int = message(of.get(Attribute.STRING_VALUE, b"")).decode(
                errors="replace"
            )
            if Attribute.LONG_VALUE in of:
                stated = signed(of[Attribute.LONG_VALUE])
            known[key.removeprefix(SIGN)] = stated
    # the ranks in a bundle have no version: it is in the file with the facts of the run
    return known if "version" in known or {"ranks", "base_ns"} <= known.keys() else {}


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
    others = {name: at for name, of in facts.items() if isinstance(at := of.get(OTHERS_NS), int)}
    common = {}  # files with the facts of a run, by folder: in every bundle, without events
    for name in facts.keys() - others.keys():
        found = frames(heads[name], 0, len(heads[name]), 3)
        if found.how == WHOLE and found.end == len(heads[name]) and len(found.start) <= 2:
            common[folder(name)] = name
    members: defaultdict[str, dict[str, Facts]] = defaultdict(dict)
    alone: dict[str, Facts] = {}
    for name, of in facts.items():
        if folder(name) in common and "version" not in of:
            members[folder(name)][name] = of
        elif name not in others and name not in common.values():
            alone[name] = of
    made: list[Capture] = []
    for where, ranks in members.items():
        beside = {name: at for name, at in others.items() if folder(name) == where}
        name = common[where]
        made += _bundle(source, names, (name, facts[name]), ranks, beside, issues)
    return made + _files(source, alone, issues)


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
    common, told = run
    _add_stated(issues, source.title(common), told)
    shared = {key: told[key] for key in _OF_RUN if key in told}
    found: list[Capture] = []
    for name, of in members.items():
        found += _ranks(source, (name,), {**shared, **of}, source.title(common))
    uses = {common: "facts of the run, without events"}
    manifest = str(PurePosixPath(common).with_name("perfetto_manifest.json"))
    if manifest in names:
        uses[manifest] = "names the files of a bundle"
    uses |= dict.fromkeys(beside, "packets of other data sources")
    first = (
        replace(one, known=tuple(uses), uses=uses, beside=tuple(beside.items()))
        for one in found[:1]
    )
    return [*first, *found[1:]]


def folder(name: str) -> str:
    """Where a file is."""
    return str(PurePosixPath(name).parent)


def _files(source: Source, facts: Mapping[str, Facts], issues: Issues) -> list[Capture]:
    """The ranks in files that are not of a bundle."""
    groups: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    for name, of in facts.items():
        part = _document(of.get("part"), dict[str, Any], {})
        number, parts = part.get("number"), part.get("of")
        if type(number) is int and type(parts) is int:
            unnumbered = re.sub(r"-\d+(\.[^/]*)$", r"\1", name)
            key = (folder(name), parts, of.get("base_ns"), of.get("ranks"), unnumbered)
            groups.setdefault(key, []).append((number, name))
        else:
            groups[(name,)] = [(0, name)]
    found: list[Capture] = []
    for key, members in groups.items():
        names = tuple(name for _, name in sorted(members))
        title = source.title(names[0])
        _add_stated(issues, title, facts[names[0]])
        found += _ranks(source, names, facts[names[0]])
        if len(key) > 1 and not source.lone:  # other parts may be given next to it
            every = set(range(1, min(int(key[1]), _MOST_PARTS) + 1))
            for missing in sorted(every - {n for n, _ in members})[:_MOST_MISSING]:
                issues.add("part-missing", title, f"part {missing} of {key[1]}")
    return found


def _document(value: object, kind: type[T], none: T) -> T:
    """A JSON document in an attribute; ``none`` if it is not of this kind."""
    try:
        return msgspec.convert(json.loads(value), kind) if isinstance(value, str) else none
    except (ValueError, RecursionError):
        return none


def _add_stated(issues: Issues, title: str, of: Facts) -> None:
    """Issues of the run that wrote a file, as its attributes have them."""
    of_job = Issues()
    listed = _document(of.get("job_issues"), list[tuple[str, str, Count, list[str]]], [])
    add_issues(of_job, listed)
    for code, count in _document(of.get("issues"), dict[str, Count], {}).items():
        if code in _LIMITS:
            of_job.add(code, title, count=count - of_job.count(code))
    issues.extend(of_job)


def _ranks(source: Source, names: tuple[str, ...], of: Facts, origin: str = "") -> list[Capture]:
    """The ranks of files that hold the same ones; ``origin``: the output they are of, "" for these
    files.
    """
    base = of.get("base_ns", 0)
    base = base if isinstance(base, int) and abs(base) <= INT64_MAX else 0
    coordinates = _document(of.get("coordinates"), dict[str, Any], {})
    title = source.title(names[0])
    clock = _document(of.get("clock"), dict[str, Any], {})
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
            content=stated_content(of),
        )
        for rank in parse_ranges(str(of.get("ranks", "")))
    ]


def add_issues(issues: Issues, listed: Iterable[tuple[str, str, int, list[str]]]) -> None:
    """Issues of the run that wrote a file: code, file, count, places."""
    for code, file, count, places in list(listed)[:_MOST_ISSUES]:
        if code in CODES:
            known = Issues()
            known.add(code, file, count=count)
            kept = tuple(places[: issues.PLACES_KEPT])
            issues.extend(replace(issue, places=kept) for issue in known)
