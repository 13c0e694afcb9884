"""A store: the ranks of a run in one file (:mod:`.container`), as their readers left them.

Each segment is a packed rank (:mod:`.rank_file`). The directory has what finding the captures told:
the captures, the issues, the files that no reader takes. ``docs/reference/store.md`` describes the
format for other programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.core.errors import Issues, MalformedInputError, OptionError, SourceError
from traceconv.core.job_shape import ParallelGroup
from traceconv.core.model import Capture, Trace
from traceconv.core.source import RecordedSource, Source
from traceconv.core.version import STORE as VERSION
from traceconv.core.version import __version__
from traceconv.io.atomic import Destination
from traceconv.io.streams import open_regular
from traceconv.store import SIGN, blocks, container, rank_file


class PackedRank(msgspec.Struct, frozen=True):
    """A packed rank in a separate file.

    Attributes:
        capture: as it was found.
        path:    of its segment.
        views:   of segments with views of it, by mode.
        summary: of the stream with its summary, and how many bytes are in that; None without one.
    """

    capture: Capture
    path: Path
    views: Mapping[str, Path] = {}
    summary: tuple[Path, int] | None = None


class Store(msgspec.Struct, frozen=True):
    """The captures in a store.

    Attributes:
        captures: of its ranks, ascending; their sources read from the store.
        unknown:  titles of files that no reader took.
        issues:   what finding the captures noted.
    """

    captures: tuple[Capture, ...]
    unknown: tuple[str, ...]
    issues: Issues


class StoredSource(RecordedSource):
    """The source of a rank in a store. Its files are out of reach, its events are here.

    Attributes:
        store: the file.
        at, segment: place and bytes of the rank in it.
        comm_patterns: those that it was packed with.
        border_operators: those that its views were made with.
        views: first byte and length of the segments with views of it, by mode.
        summary: first byte, length and content length of the summary of its detail view; () if
            no summary of this version of traceconv is there.
    """

    def __init__(
        self,
        recorded: dict[str, Any],
        store: Path,
        at: int,
        segment: int,
        comm_patterns: tuple[str, ...],
        border_operators: tuple[str, str] = ("", ""),
        views: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        summary: tuple[int, int, int] | tuple[()] = (),
    ) -> None:
        super().__init__(recorded["label"], recorded["files"], recorded["titles"], recorded["lone"])
        self.store, self.at, self.segment = store, at, segment
        self.comm_patterns, self.border_operators = comm_patterns, border_operators
        self.views, self.summary = dict(views), summary

    def trace(self, capture: Capture, comm_patterns: Sequence[str]) -> Trace:
        """All events of the rank.

        Args:
            capture: of this source.

        Raises:
            OptionError: other patterns are asked for than those it was packed with.
            SourceError, MalformedInputError: the store is not what it was.
        """
        self.refuse_patterns(comm_patterns)
        trace, _ = rank_file.RankFile(self.store, self.at, self.segment).load()
        self.progress(sum(self._sizes.values()))
        named_capture = replace(
            trace.capture,
            name=capture.name,
            border_operators=capture.border_operators,
        )
        return replace(trace, capture=named_capture)

    def as_packed(self, capture: Capture) -> bool:
        """Whether views of a capture of this source are those that were packed."""
        return capture.border_operators == self.border_operators

    def kept_summary(self) -> bytes:
        """The summary, see :class:`traceconv.run.summaries.Summarizing`.

        Raises:
            SourceError, MalformedInputError: the store is not what it was.
        """
        offset, size, content = self.summary or (0, 0, 0)
        try:
            with open_regular(self.store) as file:
                file.seek(offset)
                return blocks.unpack(file.read(size), content)
        except OSError as e:
            raise SourceError(f"{self.store}: cannot be read: {e.strerror or e}") from e
        except ValueError as e:
            raise MalformedInputError(str(self.store), "", f"its summary is damaged: {e}") from e

    def refuse_patterns(self, comm_patterns: Sequence[str]) -> None:
        """Raise OptionError for other patterns than those that the rank was packed with."""
        if tuple(comm_patterns) not in ((), self.comm_patterns):
            words = ",".join(self.comm_patterns)
            packed = f"with the patterns {words}" if words else "without patterns of communication"
            why = f"{self.store}: was packed {packed}; give them to `traceconv pack`"
            raise OptionError(why, "comm_patterns")

    def origin(self, name: str) -> Path | None:
        return self.store

    def collective_records(self) -> CollectiveRecords:
        """The collectives of the rank."""
        return rank_file.RankFile(self.store, self.at, self.segment).collective_records()


def write(
    into: Destination,
    ranks: Iterable[PackedRank],
    unknown: Sequence[str],
    issues: Issues,
    comm_patterns: Sequence[str],
) -> None:
    """Write a store; the files of its ranks are removed one by one.

    Raises:
        OutputError: it cannot be written.
    """
    into.write(container.head(SIGN, VERSION))
    listed = []
    groups: dict[ParallelGroup, int] = {}  # each once: many ranks list the same members
    for rank in ranks:
        offset, size = _append(into, rank.path)
        views = {mode: _append(into, path) for mode, path in rank.views.items()}
        capture = rank_file.recorded(rank.capture, groups)
        listed.append({"capture": capture, "at": offset, "size": size, "views": views})
        if rank.summary is not None:
            listed[-1]["summary"] = [*_append(into, rank.summary[0]), rank.summary[1]]
    directory = {
        "version": VERSION,
        "traceconv": __version__,
        "comm_patterns": list(comm_patterns),
        "unknown": list(unknown),
        "issues": rank_file.issue_rows(issues),
        "groups": msgspec.to_builtins([*groups]),
        "ranks": listed,
    }
    into.write(container.tail(directory))


def _append(into: Destination, path: Path) -> tuple[int, int]:
    """Move the content of a file to a store: its first byte, and how many there are."""
    offset = into.size
    into.append(path)
    path.unlink(missing_ok=True)
    return offset, into.size - offset


def load(source: Source) -> Store:
    """Open the store ``source``; reads no events.

    Raises:
        SourceError: it cannot be read, or is not on this machine.
        MalformedInputError: it is damaged, cut off, or of another version.
    """
    path, label = source.path(source.names()[0]), source.label
    if path is None:
        raise SourceError(f"{label}: a store is read where it is; copy it to a folder")
    try:
        with open_regular(path) as file:
            directory = container.directory(file, SIGN, VERSION)
        issues = Issues()
        issues.extend(rank_file.issues_of(directory["issues"]))
        words = msgspec.convert(directory["comm_patterns"], tuple[str, ...])
        groups = msgspec.convert(directory["groups"], tuple[ParallelGroup, ...])
        current = directory["traceconv"] == __version__
        captures = tuple(
            _capture(record, path.absolute(), words, groups, current)
            for record in directory["ranks"]
        )
        if not captures:
            raise ValueError("it holds no ranks")
        return Store(captures, msgspec.convert(directory["unknown"], tuple[str, ...]), issues)
    except OSError as e:
        raise SourceError(f"{label}: cannot be read: {e.strerror or e}") from e
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as e:
        why = f"not a store that can be read: {e}; pack the captures again"
        raise MalformedInputError(label, "", why) from e


def _capture(
    entry: dict[str, Any],
    path: Path,
    comm_patterns: tuple[str, ...],
    groups: Sequence[ParallelGroup],
    current: bool,
) -> Capture:
    offset, size = int(entry["at"]), int(entry["size"])
    record = entry["capture"]
    views = msgspec.convert(entry["views"], dict[str, tuple[int, int]])
    borders = msgspec.convert(record["border_operators"], tuple[str, str])
    summary: tuple[int, int, int] | tuple[()] = ()
    if current and "summary" in entry:
        summary = at, stored, content = msgspec.convert(entry["summary"], tuple[int, int, int])
        if min(at, stored) < 0 or not 0 <= content <= blocks.MOST_TIMES * stored:
            raise ValueError("the place of a summary is beyond the file")
    source = StoredSource(
        record["source"], path, offset, size, comm_patterns, borders, views, summary
    )
    capture = rank_file.capture_of(record, source, groups)
    if capture.rank is None or offset < 0 or size < 0:
        raise ValueError("a rank without number or place")
    return capture
