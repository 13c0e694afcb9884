"""Readers and writers: our own modules and those of installed packages.

Each family of readers names the modules that hold one in its ``READERS``, the writers in
``WRITERS``; other packages announce theirs under the entry-point groups ``traceconv.readers`` and
``traceconv.writers``.

All of them are imported to find captures, so our modules import only what ``find`` and the names of
formats need. Decoders and encoders are imported when they are used.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache, partial
from operator import attrgetter
from pathlib import PurePath
from typing import Any, cast

import traceconv.readers
import traceconv.writers
from traceconv.core.builder import TraceBuilder
from traceconv.core.choices import unknown as unknown_choice
from traceconv.core.errors import OptionError
from traceconv.core.model import Capture, Trace
from traceconv.core.plugins import Plugins, collect, lacking
from traceconv.readers import REQUIRED as NEEDED
from traceconv.readers import Reader
from traceconv.writers import REQUIRED, Costs, Document, Writer


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


@cache
def readers() -> Plugins[Reader]:
    """All readers, in the order in which they look for captures."""
    own_readers = [
        (module, importlib.import_module(module).READER) for module in _reader_modules().values()
    ]
    collected = collect("traceconv.readers", own_readers, attrgetter("name"), lacking(*NEEDED))
    ordered = sorted(collected.found.items(), key=lambda item: (item[1].order, item[0]))
    return Plugins(dict(ordered), collected.broken, collected.foreign)


@cache
def writers() -> Plugins[type[Writer]]:
    """All writers, by name. A writer is a class; calling it gives one for one file."""
    modules = [f"traceconv.writers.{module}" for module in traceconv.writers.WRITERS.values()]
    own_writers = [(module, importlib.import_module(module).WRITER) for module in modules]
    collected = collect("traceconv.writers", own_writers, attrgetter("name"), lacking(*REQUIRED))
    return Plugins(dict(sorted(collected.found.items())), collected.broken, collected.foreign)


def writer_named(name: str) -> type[Writer]:
    """The writer called ``name``.

    Raises:
        OptionError: there is none; the message lists those there are.
    """
    by_name = writers().found
    if name not in by_name:
        raise OptionError(unknown_choice("output format", name, by_name), "writer")
    return _checked_writer(by_name[name])


def _checked_writer(writer: type[Writer]) -> type[Writer]:
    """A writer whose errors name it if it is not ours."""
    if writer.name not in writers().foreign:
        return writer
    return cast("type[Writer]", ForeignWriters(writer))


class ForeignWriters:
    """Makes writers of another package; has the members of their class. Pickled by its name."""

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
            return _checked_writer(suffixes[suffix])
    endings = PurePath(path).suffixes
    ending = "".join(endings[-2:] if endings[-1:] == [".gz"] else endings[-1:])
    message = unknown_choice("output format ends in", ending, sorted(suffixes))
    if not ending:
        message = f"no extension that names a format; there are: {', '.join(sorted(suffixes))}"
    raise OptionError(f"{path}: {message}; or pass `writer`", "out")


def reader_named(name: str) -> Reader:
    """The reader called ``name``.

    Raises:
        OptionError: there is none; the message lists those there are.
    """
    by_name = readers().found
    if name not in by_name:
        raise OptionError(unknown_choice("input format", name, by_name), "reader")
    return by_name[name]


def read_capture(capture: Capture, build: TraceBuilder) -> Trace:
    """Let the reader of ``capture`` fill ``build``; the trace of it.

    Raises:
        TraceconvError: as the reader says; a PluginError where one that is not ours fails, or its
            accounts do not close.
    """
    reader = _reader_of(capture.reader)
    if capture.reader in _reader_modules():
        reader.read(capture, build)
        return build.finish()
    with readers().blamed(capture.reader):
        reader.read(capture, build)
        return build.finish()


@cache
def _reader_of(name: str) -> Reader:
    """The reader that found a capture. A worker needs no other: if it is ours, none is loaded."""
    module = _reader_modules().get(name)
    return reader_named(name) if module is None else importlib.import_module(module).READER
