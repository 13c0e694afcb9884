"""Find captures, and read their traces one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from traceconv.alignment import plan as clocks
from traceconv.core import frames
from traceconv.core.errors import Issues, OptionError
from traceconv.core.job_shape import JobShape
from traceconv.core.markup import table_html
from traceconv.core.model import Capture, Trace
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.rank_tables import TABLES, arrow_table
from traceconv.core.source import Source
from traceconv.find import discovery
from traceconv.find.capture_ranks import labelled, shape_of_captures
from traceconv.find.capture_windows import twice
from traceconv.find.identity import warn_of_two_jobs
from traceconv.find.rank_selection import chosen
from traceconv.io.run_files import read_from
from traceconv.io.sources import sources
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import Input, View
from traceconv.options.verbs import QueryOptions, TraceOptions
from traceconv.passes import Pass
from traceconv.run.stages import collectives, events, passed
from traceconv.store import is_store, store_file
from traceconv.writers.output import Progress

if TYPE_CHECKING:
    from traceconv.api.sql import Rows
    from traceconv.options.arguments import InputArguments, QueryArguments, TraceArguments


@dataclass(frozen=True)
class Captures:
    """What :func:`open` found: one capture per rank, ascending, not yet read.

    Attributes:
        found:   the captures; every one has a rank.
        unknown: titles of files no reader knows.
        issues:  what finding them noted.
    """

    found: tuple[Capture, ...]
    unknown: tuple[str, ...] = ()
    issues: Issues = field(default_factory=Issues)

    def ranks(self, selected: values.Ranks | None, allow_missing: bool = False) -> Captures:
        """Only these ranks (None = all): ``3``, ``[0, 2]``, ``range(4)``, ``"0-7,12"``, or those at
        coordinates, ``"tp=0,pp=1"``.

        Raises:
            RankError: one of them is not there; coordinates are unknown, or no rank has them.
            OptionError: these are no ranks.
        """
        issues, ranks = self.issues.copy(), values.ranks(selected, "ranks")
        return replace(self, found=chosen(self.found, ranks, allow_missing, issues), issues=issues)

    @property
    def shape(self) -> JobShape:
        """The coordinates of the ranks, as far as the captures state them."""
        return shape_of_captures(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Capture]:
        return iter(self.found)

    def __repr__(self) -> str:
        ranks = format_ranges([one.rank for one in self.found if one.rank is not None])
        readers = ", ".join(sorted({one.reader for one in self.found}))
        return f"<Captures: rank{'s' * (len(self) != 1)} {ranks} ({readers})>"

    def _repr_html_(self) -> str:
        """A row per rank, for notebooks."""
        rows = [(one.rank, one.reader, one.title, one.host) for one in self.found]
        return table_html(repr(self)[1:-1], ("rank", "format", "capture", "host"), rows)

    @takes(TraceOptions)
    def traces(
        self, mode: values.Mode | None = None, **given: Unpack[TraceArguments]
    ) -> Iterator[Trace]:
        """One trace per rank, read when the iteration comes to it.

        Args:
            mode: "summary" or "detail" for that view; None or "source" for the events as read, of
                which the selection is kept.

        Times are on one clock, as in a merge; ``align="none"`` leaves those of every rank as they
        were recorded. For ``align="auto"`` and "collective" several ranks are read twice.

        Raises:
            TraceconvError: see :mod:`traceconv.core.errors`; before the first trace, or for it.
        """
        asked = TraceOptions.of({**given, "mode": mode})
        passes = (
            []
            if asked.view == View(mode="source", comm_patterns=asked.view.comm_patterns)
            else asked.view.passes()
        )
        return self._traces(passes, asked)

    def events(
        self, mode: values.Mode | None = "detail", **given: Unpack[TraceArguments]
    ) -> RankFrames:
        """The events of all ranks, as one data frame with a column ``rank``; read when it is made.

        Args:
            mode:  as of :meth:`traces`.
            given: keywords of :meth:`traces`.
        """
        return RankFrames(repr(self)[1:-1], lambda: self.traces(mode, **given))

    def to_arrow(
        self, mode: values.Mode | None = "detail", **given: Unpack[TraceArguments]
    ) -> dict[str, Any]:
        """The tables of all ranks, each a ``pyarrow.Table``, by name: ``events``, ``counters``,
        ``flows``, ``tracks`` and ``steps``, with the columns of the Parquet output.

        Args:
            mode:  as of :meth:`traces`.
            given: keywords of :meth:`traces`.

        Raises:
            MissingExtraError: pyarrow is not installed.
            TraceconvError: a rank cannot be read.
        """
        frames.extra("pyarrow", "arrow")  # refuses before ranks are read
        parts: dict[str, list[Any]] = {name: [] for name in TABLES}
        for trace in self.traces(mode, **given):
            for name, some in parts.items():
                some.append(arrow_table(trace, name))
        return {name: frames.arrow_below(some) for name, some in parts.items()}

    def sql(self, sql: str, **given: Unpack[QueryArguments]) -> Rows:
        """The rows that DuckDB finds in these captures.

        Args:
            sql:   statements; see :func:`traceconv.query` for the tables there are.
            given: keywords of :func:`traceconv.query`; those that say how captures are found do
                nothing here.

        Raises:
            MissingExtraError: DuckDB is not installed.
            OptionError: the SQL is not understood, or an argument is not.
            TraceconvError: a rank cannot be read.
        """
        from traceconv.api.sql import answer

        asked = QueryOptions.of(given)
        if asked.engine == "perfetto":
            raise OptionError("takes one trace file; use `traceconv.query`", "engine")
        kept = self.ranks(asked.merge_options.selection.ranks, asked.run.allow_missing_ranks)
        return answer(kept.found, kept.issues, sql, asked)

    def _traces(self, passes: Sequence[Pass], asked: TraceOptions) -> Iterator[Trace]:
        known, spans = None, {}
        patterns, align, progress = asked.view.comm_patterns, asked.align, asked.progress
        if align in clocks.FROM_EVENTS and len(self.found) > 1:
            known = []
            for capture in self.found:
                trace = _events(capture, progress, patterns)
                known.append(collectives(capture, trace))
                spans[trace.rank] = trace.span()
                del trace  # one rank at a time
        plan = clocks.plan(self.found, align, known, spans=spans)
        for capture in self.found:
            trace = clocks.aligned(passed(_events(capture, progress, patterns), passes), plan)
            yield replace(trace, aligned=False) if align == "none" else trace


@dataclass(frozen=True)
class RankFrames:
    """The events of several ranks, for data frames."""

    captures: str
    traces: Callable[[], Iterable[Trace]]

    def __repr__(self) -> str:
        return f"<RankFrames of {self.captures}; to_pandas(), to_arrow() and to_polars() read them>"

    def _joined(self, args: str) -> frames.Frame:
        parts = []
        for trace in self.traces():
            rank = np.full(len(trace.events), trace.rank, np.int64)
            parts.append({"rank": rank, **trace.events.worded(args)})
        return frames.below(parts)

    def to_pandas(self, args: Literal["json", "dict", "none"] = "json") -> Any:
        """A ``pandas.DataFrame``: ``rank``, and the columns of ``trace.events.to_pandas()``.

        Raises:
            MissingExtraError: pandas is not installed.
            TraceconvError: a rank cannot be read.
        """
        return frames.to_pandas(self._joined(args), complete=("rank", "start_ns", "dur_ns"))

    def to_arrow(self, args: Literal["json", "none"] = "json") -> Any:
        """A ``pyarrow.Table`` with the columns of :meth:`to_pandas`.

        Raises:
            MissingExtraError: pyarrow is not installed.
            TraceconvError: a rank cannot be read.
        """
        return frames.to_arrow(self._joined(args))

    def to_polars(self, args: Literal["json", "none"] = "json") -> Any:
        """A ``polars.DataFrame`` with the columns of :meth:`to_pandas`.

        Raises:
            MissingExtraError: polars is not installed.
            TraceconvError: a rank cannot be read.
        """
        return frames.to_polars(self._joined(args))


def _events(capture: Capture, progress: Progress, comm_patterns: Sequence[str]) -> Trace:
    label = f"rank {capture.rank}"
    return events(capture, lambda n: progress(n, 0, label), comm_patterns)


@takes(Input)
def open(*paths: values.Paths, **given: Unpack[InputArguments]) -> Captures:
    """Find the captures below ``paths``; reads names and small identity files, no events.

    Args:
        paths: files, folders, stores (:func:`traceconv.pack`), glob patterns, archives, URLs,
            ``-``; texts, ``Path`` or lists.

    Raises:
        SourceError, UnknownFormatError, AmbiguousFormatError, RankError: see those.
        OptionError: an argument has a wrong type.
    """
    return found_below(paths, Input.of(given))


def found_below(paths: Iterable[values.Paths], source: Input) -> Captures:
    """As :func:`open`, of options that have been checked."""
    return found_in(sources(values.paths(paths)), source)


def found_in(below: Sequence[Source], source: Input) -> Captures:
    """As :func:`open`, of sources."""
    found = _found(below, source)
    return replace(found, found=labelled(found.found))


def unlabelled(paths: Iterable[values.Paths], source: Input) -> Captures:
    """The captures without the names that coordinates give to ranks in viewers."""
    return _found(sources(values.paths(paths)), source)


def _found(below: Sequence[Source], source: Input) -> Captures:
    stores = [one for one in below if is_store(one)]
    if not stores:
        found = discovery.discover(below, source.reader, source.mapping, source.nsys)
        captures = discovery.ranked(found, below, source.rank_from, source.reader)
        unknown = tuple(one.title(name) for one, name in found.unknown)
        return Captures(captures, unknown, found.issues)
    for name in ("reader", "mapping", "rank_from"):
        if getattr(source, name) != getattr(Input(), name):
            why = "was decided when the ranks were packed; give it to `traceconv pack`"
            raise OptionError(f"{stores[0].label}: {why}", name)
    read_from(path for one in stores if (path := one.path(one.names()[0])) is not None)
    every = [_packed(one) for one in stores]
    if others := [one for one in below if one not in stores]:
        every.append(_found(others, source))
    return _together(every)


def _packed(source: Source) -> Captures:
    store = store_file.load(source)
    return Captures(discovery.with_borders(store.captures), store.unknown, store.issues)


def _together(every: Sequence[Captures]) -> Captures:
    """The ranks of several stores, and of captures besides.

    Raises:
        RankError: two of them have the same rank.
    """
    ranks: dict[int | None, Capture] = {}
    issues = Issues()
    for one in every:
        issues.extend(one.issues)
        for capture in one.found:
            other = ranks.setdefault(capture.rank, capture)
            if other is not capture:
                raise twice(other, capture, "they are in two inputs")
    captures = tuple(sorted(ranks.values(), key=lambda capture: capture.rank or 0))
    if len(every) > 1:
        warn_of_two_jobs(captures, issues)
    return Captures(captures, tuple(name for one in every for name in one.unknown), issues)
