"""Find the captures below some paths, with all readers in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import msgspec

from traceconv.core.errors import (
    AmbiguousFormatError,
    InputError,
    Issues,
    RankError,
    UnknownFormatError,
)
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.find.capture_ranks import resolve
from traceconv.find.capture_windows import JoinedSource
from traceconv.find.own_outputs import is_own, own_bundles, own_outputs, written_by_us
from traceconv.find.registry import reader_named, readers
from traceconv.find.unread import explained, left_aside
from traceconv.io.run_files import read_from
from traceconv.readers import Reader

BORDERS = ("PROFILING_FP_START", "PROFILING_BP_END")
"""Variables of the environment by which users of MindSpore name the operators that forward begins
and backward ends with. Workers elsewhere get them with the capture."""


class Discovery(msgspec.Struct, frozen=True):
    """The captures and other files below some paths.

    Attributes:
        captures: as their readers found them; ranks may still be None.
        unknown:  files that no reader knows: (source, name).
        issues:   issues found on the way.
    """

    captures: tuple[Capture, ...]
    unknown: tuple[tuple[Source, str], ...] = ()
    issues: Issues = msgspec.field(default_factory=Issues)


def discover(
    sources: Sequence[Source],
    only: str | None = None,
    mapping: str | None = None,
    nsys: str | None = None,
) -> Discovery:
    """Find the captures in ``sources`` with the readers in order.

    Later readers do not see files that an earlier one claims. Outputs of traceconv in a folder
    among captures are left out, each with an issue. The environment variables :data:`BORDERS`
    become :attr:`~traceconv.core.model.Capture.border_operators`. With all readers, files that no
    reader takes and that may hold a profile become issues (:mod:`traceconv.find.unread`).

    Args:
        only: use this reader only, by name.
        mapping: how to read event logs with custom columns (see
            :func:`traceconv.readers.event_log.reader.with_mapping`); these are looked for first.
        nsys: the program that exports reports of Nsight Systems; None for the one on the path.

    Raises:
        UnknownFormatError: no reader finds anything.
        AmbiguousFormatError: two readers with the same order claim a file.
    """
    sources = _parts_together(sources)
    asked = [reader_named(only)] if only else list(readers().found.values())
    if mapping is not None:
        from traceconv.readers.event_log.reader import with_mapping

        asked = [with_mapping(mapping), *asked]
    if nsys is not None:
        from traceconv.readers.nsight.reader import NsightReader

        asked = [NsightReader(nsys) if one.name == NsightReader.name else one for one in asked]
    bundles = own_bundles(sources)
    every, sources = sources, [one for one in sources if one not in bundles]
    own = [own_outputs(source) for source in sources]
    found = _asked(sources, asked, own)
    read_from(
        path
        for one in found.captures
        for name in (*one.files, *one.known)
        if (path := one.source.path(name)) is not None
    )
    if not found.captures and (bundles or any(own)):
        sources, bundles = every, []
        own = [{} for _ in sources]
        found = _asked(sources, asked, own)
    if not found.captures:
        raise UnknownFormatError(
            explained(found.unknown, found.issues)
            or _unknown_message(sources, found.unknown, asked)
        )
    if only is None:
        left_aside(found.unknown, found.issues)
    for source, outputs in zip(sources, own, strict=True):
        for name in outputs:
            found.issues.add("own-output", source.title(name))
    for bundle in bundles:
        found.issues.add("own-output", bundle.label)
    others = tuple(one for one in found.captures if not is_own(one))
    if len(others) in (0, len(found.captures)):
        return found
    for title in {one.label for one in found.captures} - {one.label for one in others}:
        found.issues.add("own-output", title)
    return msgspec.structs.replace(found, captures=others)


_PART = lazy_regex(r"(.+)-\d{3,}(?:\.\w+)+")


def _parts_together(sources: Sequence[Source]) -> list[Source]:
    """The sources. Parts of one output of traceconv that were named one by one become one source,
    as if their folder were named."""
    found: dict[str, list[Source]] = {}
    for source in sources:
        match = _PART.fullmatch(source.label) if source.lone else None
        ours = match is not None and written_by_us(source, source.names()[0])
        key = match[1] if match is not None and ours else f"{len(found)}/{source.label}"
        found.setdefault(key, []).append(source)
    return [
        group[0]
        if len(group) == 1
        else JoinedSource(stem, ((one, one.names()[0]) for one in group))
        for stem, group in found.items()
    ]


def _asked(
    sources: Sequence[Source],
    asked: Sequence[Reader],
    own: Sequence[Mapping[str, Sequence[str]]],
) -> Discovery:
    """The captures that the readers find in the sources.

    Args:
        own: per source, the files of each output of traceconv, which readers do not see.
    """
    issues = Issues()
    captures: list[Capture] = []
    unknown: list[tuple[Source, str]] = []
    for source, outputs in zip(sources, own, strict=True):
        hidden = {name for files in outputs.values() for name in files}
        left = [name for name in source.names() if name not in hidden]
        for _, group in groupby(asked, key=lambda r: r.order):
            claims = _claims(list(group), source, left, issues)
            captures += claims
            taken = {n for c in claims for n in (*c.files, *c.known)}
            left = [n for n in left if n not in taken]
            if not left:
                break
        unknown += [(source, name) for name in left]
    return Discovery(with_borders(captures), tuple(unknown), issues)


def with_borders(captures: Iterable[Capture]) -> tuple[Capture, ...]:
    """The captures with the operators that the environment names in :data:`BORDERS`, if any."""
    borders = os.environ.get(BORDERS[0], ""), os.environ.get(BORDERS[1], "")
    if not any(borders):
        return tuple(captures)
    return tuple(replace(capture, border_operators=borders) for capture in captures)


def ranked(
    found: Discovery, sources: Sequence[Source], rule: str, only: str | None = None
) -> tuple[Capture, ...]:
    """One capture per rank, ascending.

    Args:
        rule: see :func:`traceconv.find.capture_ranks.resolve`.
        only: the only reader that was used, if there was one.

    Raises:
        RankError, OptionError: as :func:`traceconv.find.capture_ranks.resolve`. If readers of
            several formats found something, the message names those that give every capture a rank
            when used alone.
    """
    try:
        return resolve(found.captures, rule, found.issues)
    except RankError as e:
        names = dict.fromkeys(capture.reader for capture in found.captures)
        alone = [n for n in names if _has_ranks(sources, n, rule)] if len(names) > 1 else []
        if only or not alone:
            raise
        choices = " or ".join(f'`reader="{name}"`' for name in alone)
        raise RankError(f"{e} Or read one format only, with {choices}.") from e


def _has_ranks(sources: Sequence[Source], reader: str, rule: str) -> bool:
    """Whether all that a reader finds has a rank."""
    if reader not in readers().found:
        return False
    try:
        resolve(discover(sources, reader).captures, rule, Issues())
    except InputError:
        return False
    return True


def _claims(
    group: Iterable[Reader], source: Source, names: list[str], issues: Issues
) -> list[Capture]:
    captures: list[Capture] = []
    claimed: dict[str, str] = {}
    for reader in group:
        with readers().blamed(reader.name):
            found = list(reader.find(source, names, issues))
        for capture in found:
            for name in capture.files:
                other = claimed.setdefault(name, reader.name)
                if other != reader.name:
                    raise AmbiguousFormatError(
                        f"{source.title(name)}: claimed by the readers {other} and {reader.name}; "
                        f'pass `reader="{other}"` or `reader="{reader.name}"`'
                    )
            captures.append(capture)
    return captures


def _unknown_message(
    sources: Sequence[Source], unknown: Sequence[tuple[Source, str]], asked: Sequence[Reader]
) -> str:
    where = ", ".join(s.label for s in sources[:3]) + (" ..." if len(sources) > 3 else "")
    if not unknown:
        return (
            f"{where}: holds no files\n"
            "  name the folder that the profiler wrote, or a file in it (was it copied whole?); "
            "`traceconv formats` lists what is read"
        )
    seen = ", ".join(name for _, name in unknown[:3]) + (", ..." if len(unknown) > 3 else "")
    if len(asked) == 1:
        (one,) = asked
        return (
            f"{where}: no known profile here (seen: {seen}): {one.name} was looked for: "
            f"{one.files}\n"
            "  leave `reader` out to ask all readers"
        )
    return (
        f"{where}: no known profile here (seen: {seen})\n"
        "  name the folder that the profiler wrote, or a file in it (was it copied whole?); "
        "`traceconv formats` lists what is read; for a log of your own say with `mapping` where "
        "times and names are"
    )
