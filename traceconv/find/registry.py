"""Finds readers and writers - our own modules and those of installed packages - and captures.

Each family of readers says in its ``READERS`` which modules hold one, the writers in ``WRITERS``;
third parties announce theirs under the entry-point groups ``traceconv.readers`` and
``traceconv.writers``.

All of them are imported to be asked, so ours are made of what ``find`` and the names of formats
need; what reads and what encodes is imported when it does.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from importlib.machinery import PathFinder
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

import traceconv.readers
import traceconv.writers
from traceconv.core.builder import TraceBuilder
from traceconv.core.choices import unknown as unknown_choice
from traceconv.core.errors import (
    AmbiguousFormatError,
    InputError,
    Issues,
    OptionError,
    PluginError,
    RankError,
    TraceconvError,
    UnknownFormatError,
)
from traceconv.core.model import Capture, Trace
from traceconv.core.source import Source
from traceconv.find.capture_ranks import labelled, resolve
from traceconv.find.unread import explained, left_aside
from traceconv.readers import REQUIRED as NEEDED
from traceconv.readers import Reader
from traceconv.writers import REQUIRED, Costs, Document, Writer

BORDERS = ("PROFILING_FP_START", "PROFILING_BP_END")
"""Variables of the environment by which users of MindSpore name the operators that forward begins
and backward ends with. Workers elsewhere get them with the capture."""

_SIGN = b"[traceconv."
"""How our groups begin where a package lists its entry points."""


class Named(Protocol):
    """What readers and the classes of writers have in common."""

    @property
    def name(self) -> str:
        """By which it is chosen."""
        ...


Plugin = TypeVar("Plugin", bound=Named)


class Plugins(msgspec.Struct, Generic[Plugin], frozen=True):
    """What was found under one entry-point group and in our own package.

    Attributes:
        found:  by name, in the order they are asked.
        broken: third-party entries that failed to import, or lack a member: name and reason.
        foreign: of those that are found and not ours: by name, the package that brings them.
    """

    found: dict[str, Plugin]
    broken: tuple[tuple[str, str], ...] = ()
    foreign: Mapping[str, str] = msgspec.field(default_factory=dict)

    @contextmanager
    def blamed(self, name: str) -> Iterator[None]:
        """While a plugin works: whatever it raises names it, unless it is ours.

        Raises:
            PluginError: it raised what no reader and no writer may; says what, where, and whose
                the plugin is.
        """
        try:
            yield
        except (TraceconvError, MemoryError):
            raise
        except Exception as e:
            if name not in self.foreign:
                raise
            raise PluginError(
                f"the plugin {name!r} of {self.foreign[name]} failed: {type(e).__name__}: {e}"
                f" ({_innermost(e)}); it is no part of traceconv: report it to who made it"
            ) from e


def _innermost(error: Exception) -> str:
    """The line that raised an error."""
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{PurePath(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


def _own_readers() -> Iterator[tuple[str, Reader]]:
    for module in _reader_modules().values():
        yield traceconv.readers.__name__, importlib.import_module(module).READER


def _own_writers() -> Iterator[tuple[str, type[Writer]]]:
    package = traceconv.writers
    for module in package.WRITERS.values():
        yield package.__name__, importlib.import_module(f"{package.__name__}.{module}").WRITER


@cache
def _reader_modules() -> Mapping[str, str]:
    """The modules of our own readers by their names, as the families list them."""
    families = [
        info.name for info in pkgutil.iter_modules(traceconv.readers.__path__, "traceconv.readers.")
    ]
    return {
        name: f"{family}.{module}"
        for family in families
        for name, module in getattr(importlib.import_module(family), "READERS", {}).items()
    }


def _entry_points(group: str) -> Iterable[Any]:
    """Those of other packages. Reading them loads a parser of mails, so there is a look first."""
    if not _announced():
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


@cache
def _announced() -> bool:
    """Whether an installed package may have entry points for us; False only if none can."""
    if any(hasattr(f, "find_distributions") for f in sys.meta_path if f is not PathFinder):
        return True
    return any(_SIGN in text for place in sys.path for text in _entry_point_files(place))


def _entry_point_files(place: str) -> Iterator[bytes]:
    """The entry points of all packages in a folder, as text; where it is an archive, as good as a
    sign of ours."""
    try:
        entries = list(Path(place).iterdir())
    except NotADirectoryError:
        yield _SIGN
        return
    except OSError:
        return
    for entry in entries:
        if entry.name.lower().endswith((".dist-info", "egg-info")):
            with suppress(OSError):
                yield (entry / "entry_points.txt").read_bytes()


def _collect(
    own: Iterator[tuple[str, Plugin]], group: str, what: str, required: Sequence[str] = ()
) -> Plugins[Plugin]:
    """``own`` plugins and those of other packages, which must have the ``required`` members."""
    found: dict[str, tuple[str, Plugin]] = {}
    broken = []
    candidates = list(own)
    foreign = {}
    for entry in _entry_points(group):
        try:
            plugin = entry.load()
            if missing := [name for name in required if not hasattr(plugin, name)]:
                raise PluginError(f"it lacks {', '.join(missing)}")
            candidates.append((entry.value, plugin))
            foreign[plugin.name] = _package_of(entry)
        except Exception as e:  # noqa: BLE001 - a foreign package may raise anything
            broken.append((entry.name, f"{type(e).__name__}: {e}"))
    for origin, plugin in candidates:
        if plugin.name in found:
            raise PluginError(
                f"{what} {plugin.name!r} is offered twice: by {found[plugin.name][0]} "
                f"and by {origin}; uninstall one of them"
            )
        found[plugin.name] = (origin, plugin)
    ordered = sorted(found.values(), key=lambda p: (getattr(p[1], "order", 0), p[1].name))
    return Plugins({plugin.name: plugin for _, plugin in ordered}, tuple(broken), foreign)


def _package_of(entry: Any) -> str:
    """The distribution that announces an entry point, and its version."""
    dist = getattr(entry, "dist", None)
    return f"{dist.name} {dist.version}" if dist is not None else str(entry.value)


@cache
def readers() -> Plugins[Reader]:
    """All readers, in the order they are asked."""
    return _collect(_own_readers(), traceconv.readers.__name__, "reader", NEEDED)


@cache
def writers() -> Plugins[type[Writer]]:
    """All writers, by name. A writer is a class; calling it gives one for one file."""
    return _collect(_own_writers(), traceconv.writers.__name__, "writer", REQUIRED)


def writer_named(name: str) -> type[Writer]:
    """The writer called ``name``.

    Raises:
        OptionError: there is none; the message lists those there are.
    """
    found = writers().found
    if name not in found:
        raise OptionError(unknown_choice("output format", name, found), "writer")
    return _named(found[name])


def _named(writer: type[Writer]) -> type[Writer]:
    """A writer whose errors name it if it is not ours."""
    if writer.name not in writers().foreign:
        return writer
    return cast("type[Writer]", ForeignWriters(writer))


class ForeignWriters:
    """Makes writers of another package; has the members of their class. Travels by its name."""

    def __init__(self, writer: type[Writer]) -> None:
        self._writer = writer

    def __call__(self) -> ForeignWriter:
        """A writer for one file or one rank."""
        with writers().blamed(self._writer.name):
            return ForeignWriter(self._writer())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def __reduce__(self) -> Any:
        return writer_named, (self._writer.name,)


class ForeignWriter:
    """A writer of another package: whatever it raises names it. See :class:`Writer`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._blamed = partial(writers().blamed, writer.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def __reduce__(self) -> Any:
        return ForeignWriter, (self._writer,)

    def begin(self, document: Document) -> bytes:
        with self._blamed():
            return self._writer.begin(document)

    def trace(self, trace: Trace) -> Iterator[bytes]:
        with self._blamed():
            yield from self._writer.trace(trace)

    def end(self) -> bytes:
        with self._blamed():
            return self._writer.end()

    def costs(self, trace: Trace, document: Document) -> Costs:
        with self._blamed():
            return self._writer.costs(trace, document)


def writer_for(path: str, name: str | None = None) -> type[Writer]:
    """The writer called ``name``, or without one the writer whose suffix ``path`` ends in.

    Raises:
        OptionError: there is none of that name or suffix; the message lists those there are.
    """
    if name:
        return writer_named(name)
    suffixes = {s: w for w in writers().found.values() for s in w.suffixes}
    for suffix in sorted(suffixes, key=len, reverse=True):
        if path.endswith(suffix):
            return _named(suffixes[suffix])
    endings = PurePath(path).suffixes
    ending = "".join(endings[-2:] if endings[-1:] == [".gz"] else endings[-1:])
    known = unknown_choice("output format ends in", ending, sorted(suffixes))
    if not ending:
        known = f"no ending that says the format; there are: {', '.join(sorted(suffixes))}"
    raise OptionError(f"{path}: {known}; or pass `writer`", "out")


def reader_named(name: str) -> Reader:
    """The reader called ``name``.

    Raises:
        OptionError: there is none; the message lists those there are.
    """
    found = readers().found
    if name not in found:
        raise OptionError(unknown_choice("input format", name, found), "reader")
    return found[name]


class Discovery(msgspec.Struct, frozen=True):
    """What is below some paths.

    Attributes:
        captures: as their readers found them; ranks may still be None.
        unknown:  files no reader knows: (source, name).
        issues:   what was noticed on the way.
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
    """Ask readers, in their order, for the captures in ``sources``.

    What one reader claims, later ones do not see. Outputs of ours that are in a folder among
    captures are left out, each with an issue. The variables :data:`BORDERS` of the environment
    become :attr:`~traceconv.core.model.Capture.border_operators`. Files that no reader takes and
    that may hold a profile are issues (:mod:`traceconv.find.unread`), if all readers are asked.

    Args:
        only: the one reader to ask, by name.
        mapping: how event logs with columns of their own are to be read (see
            :func:`traceconv.readers.event_log.reader.with_mapping`); these are looked for first.
        nsys: the program that exports reports of Nsight Systems; None for the one on the path.

    Raises:
        UnknownFormatError: no reader finds anything, anywhere.
        AmbiguousFormatError: two readers of one order claim a file.
    """
    asked = [reader_named(only)] if only else list(readers().found.values())
    if mapping is not None:
        from traceconv.readers.event_log.reader import with_mapping

        asked = [with_mapping(mapping), *asked]
    if nsys is not None:
        from traceconv.readers.nsight.reader import NsightReader

        asked = [NsightReader(nsys) if one.name == NsightReader.name else one for one in asked]
    from traceconv.find.own_outputs import is_own, own_outputs

    own = [own_outputs(source) for source in sources]
    found = _asked(sources, asked, own)
    if not found.captures and any(own):
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
    others = tuple(one for one in found.captures if not is_own(one))
    if len(others) in (0, len(found.captures)):
        return found
    for title in {one.label for one in found.captures} - {one.label for one in others}:
        found.issues.add("own-output", title)
    return msgspec.structs.replace(found, captures=others)


def _asked(
    sources: Sequence[Source],
    asked: Sequence[Reader],
    own: Sequence[Mapping[str, Sequence[str]]],
) -> Discovery:
    """What the readers claim of the sources.

    Args:
        own: per source, files by output that readers do not see.
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
    borders = os.environ.get(BORDERS[0], ""), os.environ.get(BORDERS[1], "")
    if any(borders):
        captures = [replace(capture, border_operators=borders) for capture in captures]
    return Discovery(tuple(captures), tuple(unknown), issues)


def ranked(
    found: Discovery, sources: Sequence[Source], rule: str, only: str | None = None
) -> tuple[Capture, ...]:
    """What was found in ``sources`` as one capture per rank, ascending, called by its coordinates
    where they are known.

    Args:
        rule: see :func:`traceconv.find.capture_ranks.resolve`.
        only: the one reader that was asked.

    Raises:
        RankError, OptionError: as there. Where readers of several formats have found something,
            the message names those that give every capture a rank if they alone are asked.
    """
    try:
        return labelled(resolve(found.captures, rule, found.issues))
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


def read_capture(capture: Capture, build: TraceBuilder) -> Trace:
    """Let the reader of ``capture`` fill ``build``; the trace of it.

    Raises:
        TraceconvError: as the reader says; a PluginError where one that is not ours fails, or its
            accounts do not close.
    """
    reader = _found(capture.reader)
    if capture.reader in _reader_modules():
        reader.read(capture, build)
        return build.finish()
    with readers().blamed(capture.reader):
        reader.read(capture, build)
        return build.finish()


@cache
def _found(name: str) -> Reader:
    """The reader that found a capture. A worker needs no other: if it is ours, none is loaded."""
    module = _reader_modules().get(name)
    return reader_named(name) if module is None else importlib.import_module(module).READER
