"""Files of ours: which ranks and parts they are, by the attributes of the trace."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from traceconv.core.clock import INT64_MAX, is_unix_ns, merged_clock
from traceconv.core.codes import CODES
from traceconv.core.errors import Issues
from traceconv.core.job_shape import stated_in_metadata
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import parse_ranges
from traceconv.core.source import HEAD_BYTES, Source
from traceconv.protobuf.message import last_values, message, signed, text, whole_fields
from traceconv.protobuf.message_columns import CUT, WHOLE, frames
from traceconv.protobuf.perfetto_schema import Attribute, TracePacket
from traceconv.readers.perfetto.others import OTHERS_NS

SIGN = "traceconv."
"""Begins the keys of our attributes."""

MOST_HEAD_BYTES = 64 << 20
"""Attributes may list what a size limit took, so they may be longer than a head."""

MOST_WINDOWS = 1_000_000

_OF_RUN = ("coordinates", "clock")
"""Facts of all ranks of a bundle."""

_LIMITS = ("size-limit", "size-coalesced", "flow-split")
"""Issues that are known only when a file is written: its attributes count them."""


Facts = Mapping[str, str | int]
"""Attributes of a trace of ours, without the sign."""


@dataclass(frozen=True)
class Own:
    """A rank of a file of ours.

    Attributes:
        rank:    its number.
        base_ns: what its times count from.
    """

    rank: int
    base_ns: int


def attributes(source: Source, name: str, head: bytes) -> dict[str, str | int]:
    """The attributes of a trace of ours, without the sign; empty if it is none."""
    found = frames(head, 0, len(head), 3)
    start, size = found.start.tolist(), found.size.tolist()
    raws = [head[a : a + n] for a, n in zip(start, size, strict=True)]
    if found.how == CUT and found.end < len(head) and len(raws) < 3:
        rest = head[found.end :]
        if len(head) >= HEAD_BYTES and rest[:1] == b"\n" and b"traceconv.version" in rest[:200]:
            rest = _more(source, name, found.end)
        raws.append(_content(rest))
    known: dict[str, str | int] = {}
    for raw in raws:
        of = {n: v for n, _, v in whole_fields(raw)}.get(TracePacket.TRACE_ATTRIBUTES)
        for n, _, value in whole_fields(_cut_content(raw) if of is None else of):
            if n == 1:
                _take_attribute(known, last_values(value))
    # the ranks in a bundle have no version: it is in the file with the facts of the run
    return known if "version" in known or {"ranks", "base_ns"} <= known.keys() else {}


def _is_bare(head: bytes) -> bool:
    """Whether a file of ours is nothing but attributes: the facts of a run, in every bundle."""
    found = frames(head, 0, len(head), 3)
    return found.how == WHOLE and found.end == len(head) and len(found.start) <= 2


def _more(source: Source, name: str, first: int) -> bytes:
    """The packet at a place near the start of a file."""
    head = source.head(name, first + 16)
    size = shift = 0
    for byte in head[first + 1 : first + 11]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return source.head(name, min(first + 16 + size, MOST_HEAD_BYTES))[first:]


def _content(record: bytes) -> bytes:
    """What is behind the tag and the length of a record, which may be cut."""
    at = 1
    while at < len(record) and record[at] >= 0x80:
        at += 1
    return record[at + 1 :]


def _cut_content(raw: bytes) -> bytes:
    """The content of attributes in a packet that is cut."""
    sign = bytes((0xF2, 0x07))
    return _content(raw[1:]) if raw.startswith(sign) else b""


def _take_attribute(known: dict[str, str | int], of: Mapping[int, int | bytes]) -> None:
    key = text(of.get(Attribute.KEY, b""))
    if key.startswith(SIGN):
        if Attribute.LONG_VALUE in of:
            known[key.removeprefix(SIGN)] = signed(of[Attribute.LONG_VALUE])
        else:
            raw = message(of.get(Attribute.STRING_VALUE, b""))
            known[key.removeprefix(SIGN)] = raw.decode("utf-8", "replace")


def captures(
    source: Source,
    names: Sequence[str],
    facts: Mapping[str, Facts],
    heads: Mapping[str, bytes],
    issues: Issues,
) -> list[Capture]:
    """The ranks in files of ours; parts of one output are one, and so is a bundle.

    Args:
        names: all files that are there.
        facts: attributes by file.
        heads: first bytes by file.
    """
    found: list[Capture] = []
    others = {name: of for name, of in facts.items() if OTHERS_NS in of}
    facts = {name: of for name, of in facts.items() if name not in others}
    bare = {folder(name): name for name in facts if _is_bare(heads[name])}
    rest = {name: of for name, of in facts.items() if name not in bare.values()}
    bundles: dict[str, dict[str, Facts]] = {}
    alone: dict[str, Facts] = {}
    for name, of in rest.items():
        if folder(name) in bare and "version" not in of:
            bundles.setdefault(folder(name), {})[name] = of
        else:
            alone[name] = of
    for where, members in bundles.items():
        made = _bundle(source, names, bare[where], facts[bare[where]], members, issues)
        beside = [(n, of[OTHERS_NS]) for n, of in others.items() if folder(n) == where]
        found += _with_others(made, [(n, at) for n, at in beside if isinstance(at, int)])
    return found + _files(source, alone, issues)


def _with_others(ranks: list[Capture], beside: Sequence[tuple[str, int]]) -> list[Capture]:
    """The ranks of a bundle; files with packets of other data sources go with the first."""
    if not beside or not ranks:
        return ranks
    first, uses = ranks[0], {name: "packets of other data sources" for name, _ in beside}
    known = (*first.known, *uses)
    first = replace(first, beside=tuple(beside), known=known, uses={**first.uses, **uses})
    return [first, *ranks[1:]]


def _bundle(
    source: Source,
    names: Sequence[str],
    common: str,
    said: Facts,
    members: Mapping[str, Facts],
    issues: Issues,
) -> list[Capture]:
    """The ranks of a bundle.

    Args:
        common: the file with the facts of the run, which are ``said``.
    """
    _add_stated(issues, source.title(common), said)
    found: list[Capture] = []
    for name, of in members.items():
        common_facts = {key: said[key] for key in _OF_RUN if key in said}
        found += _ranks(source, (name,), {**common_facts, **of}, source.title(common))
    uses = {common: "facts of the run, without events"}
    manifest = str(PurePosixPath(common).with_name("perfetto_manifest.json"))
    if manifest in names:
        uses[manifest] = "names the files of a bundle"
    return [replace(one, known=tuple(uses), uses=uses) for one in found[:1]] + found[1:]


def folder(name: str) -> str:
    """Where a file is."""
    return str(PurePosixPath(name).parent)


def _files(source: Source, facts: Mapping[str, Facts], issues: Issues) -> list[Capture]:
    """The ranks in files that are not of a bundle."""
    groups: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    for name, of in facts.items():
        part = document(of.get("part"))
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
        _add_stated(issues, source.title(names[0]), facts[names[0]])
        found += _ranks(source, names, facts[names[0]])
        if len(key) > 1 and not source.lone:  # others may be named beside it
            there = {n for n, _ in members}
            for missing in sorted(set(range(1, min(int(key[1]), 10_000) + 1)) - there)[:100]:
                issues.add("part-missing", source.title(names[0]), f"part {missing} of {key[1]}")
    return found


def document(value: object) -> dict[str, Any]:
    """A JSON object in an attribute; empty if it is none."""
    try:
        found = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _add_stated(issues: Issues, title: str, of: Facts) -> None:
    """Issues of the run that wrote a file, as its attributes have them."""
    of_job = Issues()
    add_issues(of_job, _listed(of.get("job_issues")))
    for code, count in document(of.get("issues")).items():
        if code in _LIMITS and type(count) is int:
            of_job.add(code, title, count=min(count, INT64_MAX) - of_job.count(code))
    issues.extend(of_job)


def _ranks(source: Source, names: tuple[str, ...], of: Facts, origin: str = "") -> list[Capture]:
    """The ranks of files that hold the same ones; ``origin``: the output they are of, "" for these
    files.
    """
    base = of.get("base_ns", 0)
    base = base if isinstance(base, int) and abs(base) <= INT64_MAX else 0
    said = document(of.get("coordinates"))
    title = source.title(names[0])
    clock = document(of.get("clock"))
    return [
        Capture(
            reader="perfetto",
            source=source,
            files=names,
            rank=rank,
            rank_from="its metadata",
            clock=merged_clock(clock, rank, origin or title) if is_unix_ns(base) else None,
            label=title,
            placement=stated_in_metadata(said, rank),
            detail=Own(rank, base),
        )
        for rank in parse_ranges(str(of.get("ranks", "")))
    ]


def _listed(value: object) -> list[Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def windows_of(listed: object) -> tuple[tuple[int, int], ...]:
    """Windows of time [start, end], ns, from a document; what is none is passed over."""
    found = []
    for window in listed[:MOST_WINDOWS] if isinstance(listed, list) else []:
        match window:
            case [int(start), int(end)] if abs(start) <= 2**60 and abs(end) <= 2**60:
                found.append((start, end))
    return tuple(found)


def add_issues(issues: Issues, listed: object) -> None:
    """Issues of the run that wrote a file: code, file, count, places."""
    for one in listed[:10_000] if isinstance(listed, list) else []:
        match one:
            case [str(code), str(file), int(count), list(places)] if code in CODES and count > 0:
                stated = [place for place in places if isinstance(place, str)][: issues.PLACES_KEPT]
                known = Issues()
                known.add(code, file, count=min(count, INT64_MAX))
                issues.extend(replace(issue, places=tuple(stated)) for issue in known)
