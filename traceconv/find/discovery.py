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
    sources = _with_parts_joined(sources)
    chosen_readers = [reader_named(only)] if only else list(readers().found.values())
    if mapping is not None:
        from traceconv.readers.event_log.reader import with_mapping

        chosen_readers = [with_mapping(mapping), *chosen_readers]
    if nsys is not None:
        from traceconv.readers.nsight.reader import NsightReader

        chosen_readers = [
            NsightReader(nsys) if reader.name == NsightReader.name else reader
            for reader in chosen_readers
        ]
    bundles = own_bundles(sources)
    all_sources, sources = (
        sources,
        [source_below for source_below in sources if source_below not in bundles],
    )
    outputs_by_source = [own_outputs(source) for source in sources]
    result = _claimed_captures(sources, chosen_readers, outputs_by_source)
    read_from(
        path
        for capture in result.captures
        for name in (*capture.files, *capture.known)
        if (path := capture.source.path(name)) is not None
    )
    if not result.captures and (bundles or any(outputs_by_source)):
        sources, bundles = all_sources, []
        outputs_by_source = [{} for _ in sources]
        result = _claimed_captures(sources, chosen_readers, outputs_by_source)
    if not result.captures:
        raise UnknownFormatError(
            explained(result.unknown, result.issues)
            or _unknown_message(sources, result.unknown, chosen_readers)
        )
    if only is None:
        left_aside(result.unknown, result.issues)
    for source, outputs in zip(sources, outputs_by_source, strict=True):
        for name in outputs:
            result.issues.add("own-output", source.title(name))
    for bundle in bundles:
        result.issues.add("own-output", bundle.label)
    foreign = tuple(capture for capture in result.captures if not is_own(capture))
    if len(foreign) in (0, len(result.captures)):
        return result
    for title in {capture.label for capture in result.captures} - {
        capture.label for capture in foreign
    }:
        result.issues.add("own-output", title)
    return msgspec.structs.replace(result, captures=foreign)


_PART = lazy_regex(r"(.+)-\d{3,}(?:\.\w+)+")


def _with_parts_joined(sources: Sequence[Source]) -> list[Source]:
    """The sources. Parts of one output of traceconv that were named one by one become one source,
    as if their folder were named."""
    by_output: dict[str, list[Source]] = {}
    for source in sources:
        match = _PART.fullmatch(source.label) if source.lone else None
        is_ours = match is not None and written_by_us(source, source.names()[0])
        key = match[1] if match is not None and is_ours else f"{len(by_output)}/{source.label}"
        by_output.setdefault(key, []).append(source)
    return [
        group[0]
        if len(group) == 1
        else JoinedSource(stem, ((member, member.names()[0]) for member in group))
        for stem, group in by_output.items()
    ]


def _claimed_captures(
    sources: Sequence[Source],
    chosen_readers: Sequence[Reader],
    own_files: Sequence[Mapping[str, Sequence[str]]],
) -> Discovery:
    """The captures that the readers find in the sources.

    Args:
        own_files: per source, the files of each output of traceconv, which readers do not see.
    """
    issues = Issues()
    captures: list[Capture] = []
    unknown: list[tuple[Source, str]] = []
    for source, outputs in zip(sources, own_files, strict=True):
        hidden = {name for files in outputs.values() for name in files}
        unclaimed = [name for name in source.names() if name not in hidden]
        for _, group in groupby(chosen_readers, key=lambda r: r.order):
            claims = _claims(list(group), source, unclaimed, issues)
            captures += claims
            claimed = {n for c in claims for n in (*c.files, *c.known)}
            unclaimed = [n for n in unclaimed if n not in claimed]
            if not unclaimed:
                break
        unknown += [(source, name) for name in unclaimed]
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
            claims = list(reader.find(source, names, issues))
        for capture in claims:
            for name in capture.files:
                first_reader = claimed.setdefault(name, reader.name)
                if first_reader != reader.name:
                    raise AmbiguousFormatError(
                        f"{source.title(name)}: claimed by the readers {first_reader} and "
                        f'{reader.name}; pass `reader="{first_reader}"` or `reader="{reader.name}"`'
                    )
            captures.append(capture)
    return captures


def _unknown_message(
    sources: Sequence[Source],
    unknown: Sequence[tuple[Source, str]],
    chosen_readers: Sequence[Reader],
) -> str:
    where = ", ".join(s.label for s in sources[:3]) + (" ..." if len(sources) > 3 else "")
    if not unknown:
        return (
            f"{where}: holds no files\n"
            "  name the folder that the profiler wrote, or a file in it (was it copied whole?); "
            "`traceconv formats` lists what is read"
        )
    examples = ", ".join(name for _, name in unknown[:3]) + (", ..." if len(unknown) > 3 else "")
    if len(chosen_readers) == 1:
        (reader,) = chosen_readers
        return (
            f"{where}: no known profile here (seen: {examples}): {reader.name} was looked for: "
            f"{reader.files}\n"
            "  leave `reader` out to ask all readers"
        )
    return (
        f"{where}: no known profile here (seen: {examples})\n"
        "  name the folder that the profiler wrote, or a file in it (was it copied whole?); "
        "`traceconv formats` lists what is read; for a log of your own say with `mapping` where "
        "times and names are"
    )
