"""Windows of a running job, judged as they appear."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from traceconv.api.diagnose import Diagnosis, diagnosed
from traceconv.api.merge import merged
from traceconv.api.open import found_below
from traceconv.core.errors import SourceError, TraceconvError, UnknownFormatError
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_ranges import format_ranges
from traceconv.find import discovery
from traceconv.find.capture_ranks import with_ranks
from traceconv.find.capture_windows import JoinedSource
from traceconv.io.run_files import one_run
from traceconv.io.sources import FolderSource
from traceconv.io.storage import is_url
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import DiagnoseOptions, MergeRequest, WatchOptions
from traceconv.readers.shared.rank_names import time_in
from traceconv.store.cache import sample

if TYPE_CHECKING:
    from traceconv.options.arguments import WatchArguments

SCHEMA_VERSION = 1

POLL_S = 1.0
"""A folder is looked through this often, but for at most a tenth of the time."""

SETTLED_S = 2.0
"""A file that has not changed for so long is complete."""

OLD_S = 60.0
"""A file that was written so long ago is complete when it is first seen."""

QUIET_S = 5.0
"""Where it is unknown which ranks come, a window is complete when no file came for so long."""

_INCOMPLETE = {"truncated", "part-missing", "rank-failed"}
"""Issues of files that may still be written."""

_PROVISIONAL = {"ascend_raw"}
"""Readers of raw data that the profiler may still export: such captures wait for the export."""

_VARYING = lazy_regex(r"\d+|[A-Z]{8,}")
_RANK = lazy_regex(r"(?i)rank[-_]?\d+")

Signature = tuple[int, int]
"""Size and time of change of a file."""


@dataclass(frozen=True)
class WatchedWindow:
    """A window of a job: what its ranks recorded between two starts of their profilers.

    Attributes:
        number:    from 1, in the order in which windows were judged.
        ranks:     those that it has.
        missing:   ranks of the job that did not come.
        paths:     its captures: what :func:`traceconv.diagnose` was given.
        diagnosis: of these paths; None if they cannot be read.
        error:     why they cannot be read, or their trace not be written; "" otherwise.
        trace:     the trace of the window; "" if none was requested or written.
        waited_s:  seconds from the last change of its files to the verdict.
    """

    number: int
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    paths: tuple[str, ...]
    diagnosis: Diagnosis | None
    error: str = ""
    trace: str = ""
    waited_s: float = 0.0

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of its steps."""
        document = self.diagnosis and self.diagnosis.document
        rows = document["overview"]["steps"].get("rows", ()) if document else ()
        return tuple(sorted({step for row in rows for step in row["step"]}))

    def figures(self) -> dict[str, Any]:
        """Its main figures, from the document of the diagnosis; None where they are unknown. Shares
        are of the device time of the mean step."""
        document = self.diagnosis and self.diagnosis.document
        if not document:
            return {}
        overview = document["overview"]
        rows = [row for row in overview["overlap"].get("rows", ()) if row["known_ns"]]
        known_ns = sum(row["known_ns"] for row in rows)
        judged = overview["straggler"]
        replay, culprit = judged["replay"] or {}, judged["culprit"] or {}
        return {
            "step_ns": round(known_ns / len(rows)) if rows else None,
            "slowdown": replay.get("slowdown"),
            **{
                f"{name}_share": sum(row[key] for row in rows) / known_ns
                if known_ns and all(row[key] is not None for row in rows)
                else None
                for name, key in _SHARES.items()
            },
            "verdict": judged["verdict"],
            "straggler_rank": culprit.get("rank"),
            "straggler_gain_ns": culprit.get("gain_ns"),
        }

    def line(self) -> str:
        """The answer, then the subject."""
        answer = self.diagnosis.headline if self.diagnosis else f"cannot be judged: {self.error}"
        steps = f"steps {format_ranges(self.steps)}" if self.steps else ""
        count = f"{len(self.ranks)} rank{'s' * (len(self.ranks) != 1)}"
        lacking = f"missing: {format_ranges(self.missing)}" if self.missing else ""
        about = ", ".join(filter(None, (steps, count, lacking)))
        lost = f"; no trace: {self.error}" if self.diagnosis and self.error else ""
        return f"window {self.number}: {answer} ({about}){lost}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON document; its "diagnosis" is that of ``traceconv diagnose --json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "window": self.number,
            "text": self.line(),
            "ranks": list(self.ranks),
            "missing_ranks": list(self.missing),
            "steps": list(self.steps),
            "figures": self.figures(),
            "error": self.error,
            "trace": self.trace,
            "waited_s": round(self.waited_s, 3),
            "paths": list(self.paths),
            "diagnosis": self.diagnosis.as_dict() if self.diagnosis else None,
        }


_SHARES = {
    "computing": "pure_compute_ns",
    "overlapped": "overlapped_ns",
    "exposed": "exposed_ns",
    "copy": "copy_ns",
    "idle": "idle_ns",
}
"""Classes of time that have nothing in common, and their key in the overview."""


@takes(WatchOptions)
def watch(folder: values.AnyPath, **keywords: Unpack[WatchArguments]) -> Iterator[WatchedWindow]:
    """Judge the windows of a running job as its ranks write them below ``folder``.

    A window is one capture of every rank. It is judged as soon as all ranks of the job have written
    it: as many as the captures or ``world_size`` say, else those of the first window. Ranks that do
    not come within ``timeout_ns`` are missing in that window, and are not waited for again before
    they come. Files are read when they have stopped changing. Memory does not grow with the number
    of windows.

    Yields:
        One window after the other, for as long as the caller wants them; with ``once``, those that
        are there.

    Raises:
        OptionError: an argument is not understood.
        SourceError: ``folder`` is not a local folder.
        UnknownFormatError: with ``once``, none of its files is read.
    """
    options = WatchOptions.of(keywords)
    path = os.fspath(folder)
    if is_url(path) or not Path(path).is_dir():
        what = "not a local" if is_url(path) or Path(path).exists() else "no such"
        raise SourceError(f"{path}: {what} folder; only local folders can be watched")
    own_options = ("once", "timeout_ns", "out", "world_size")
    return _Watching(
        Path(path), options, {k: v for k, v in keywords.items() if k not in own_options}
    ).windows()


@dataclass(frozen=True)
class _Piece:
    """The capture of one rank in one window.

    Attributes:
        paths: of the capture, as the verbs take them.
        files: of it.
        at_ns: when it was recorded, as far as names and files tell.
        name:  its path without the number of its rank.
    """

    capture: Capture
    paths: tuple[str, ...]
    files: tuple[Path, ...]
    at_ns: int
    name: str

    @property
    def rank(self) -> int:
        assert self.capture.rank is not None
        return self.capture.rank


@dataclass
class _Watching:
    folder: Path
    asked: WatchOptions
    given: Mapping[str, Any]
    """Keywords for the diagnosis."""
    number: int = 0
    expected: set[int] = field(default_factory=set)
    """Ranks that windows wait for; none before the first window."""
    known: set[int] = field(default_factory=set)
    """Ranks that windows have had."""
    changed: dict[Path, tuple[Signature, float]] = field(default_factory=dict)
    """What each file was when it was last seen to change, and when that was."""
    judged: dict[Path, Signature] = field(default_factory=dict)
    """The files of earlier windows."""
    samples: dict[Path, bytes] = field(default_factory=dict)
    """Digests of parts of these files: a change of the time alone does not make a new window."""
    cut_off: dict[Path, Signature] = field(default_factory=dict)
    """Files of windows that are not read again before one of them changes."""
    last_ns: dict[int, int] = field(default_factory=dict)
    """By rank, when its last window was recorded."""

    def windows(self) -> Iterator[WatchedWindow]:
        looked_at: dict[Path, Signature] = {}
        pieces: list[_Piece] = []
        unusable: dict[Path, Signature] = {}
        problem = ""
        started = time.monotonic()
        while True:
            began = time.monotonic()
            new = self._new_files(began)
            pause_s = max(POLL_S, 9 * (time.monotonic() - began))
            patient = began - started < self.asked.timeout_ns / 1e9
            is_written = any(self._quiet_s(path, began) < SETTLED_S for path in self.changed)
            if self.asked.once and patient and is_written:
                time.sleep(pause_s)
                continue
            if new != looked_at:
                looked_at = new
                try:
                    pieces, nameless = self._pieces(new)
                    problem = "no rank in it or its name; pass `rank_from`"
                except UnknownFormatError:  # no profile so far
                    if self.asked.once and new and not self.number:
                        raise
                    pieces, nameless = [], []
                except TraceconvError as e:
                    pieces, nameless, problem = [], [*new], str(e)
                unusable = {path: new[path] for path in nameless if path in new}
            ready = [
                window_pieces
                for window_pieces in windows_of(pieces, self.last_ns)
                if self._is_ready(window_pieces, began)
            ]
            for window in ready:
                judged_window = self._judge(window, began)
                if judged_window is not None:
                    yield judged_window
            if unusable and self._is_over(unusable, began):
                self.judged |= unusable
                self.number += 1
                paths = tuple(map(str, unusable))
                yield WatchedWindow(self.number, (), (), paths, None, problem)
                unusable = {}
            if self.asked.once:
                return
            time.sleep(pause_s)

    # -- files --------------------------------------------------------------------------------

    def _new_files(self, now: float) -> dict[Path, Signature]:
        """The complete files that no window has had."""
        signatures = dict(_files(self.folder, Path(self.asked.out) if self.asked.out else None))
        for path, signature in signatures.items():
            if (seen := self.changed.get(path)) is None or seen[0] != signature:
                age = time.time() - signature[1] / 1e9
                since = now - (age if seen is None and age > OLD_S else 0.0)
                self.changed[path] = signature, since
        for gone in self.changed.keys() - signatures:
            self.changed.pop(gone)
            self.judged.pop(gone, None)
            self.samples.pop(gone, None)
            self.cut_off.pop(gone, None)
        return {
            path: signature
            for path, signature in signatures.items()
            if self._quiet_s(path, now) >= SETTLED_S and not self._was_judged(path, signature)
        }

    def _was_judged(self, path: Path, signature: Signature) -> bool:
        """Whether an earlier window had a file with this content."""
        before = self.judged.get(path)
        if before and before != signature and before[0] == signature[0]:
            with suppress(OSError):
                if self.samples.get(path) == sample(path, signature[0]):
                    self.judged[path] = before = signature
        return before == signature

    def _quiet_s(self, path: Path, now: float) -> float:
        """Seconds since a file was last seen to change."""
        return now - self.changed[path][1]

    def _is_over(self, files: Iterable[Path], now: float) -> bool:
        """Whether nothing more is to be expected of some files."""
        least = min(self._quiet_s(path, now) for path in files)
        return self.asked.once or least >= self.asked.timeout_ns / 1e9

    # -- captures -----------------------------------------------------------------------------

    def _pieces(self, files: Mapping[Path, Signature]) -> tuple[list[_Piece], list[Path]]:
        """The captures of these files; and the files of captures without a known rank.

        Raises:
            TraceconvError: see :func:`traceconv.open`.
        """
        below = FolderSource(self.folder, str(self.folder))
        names = [name for name in below.names() if below.path(name) in files]
        if not names:
            return [], []
        source, how = JoinedSource(below.label, ((below, name) for name in names)), self.asked.input
        discovered = discovery.discover([source], how.reader, how.mapping, how.nsys)
        ranked = with_ranks(discovered.captures, how.rank_from, discovered.issues)
        nameless = [path for capture in ranked if capture.rank is None for path in _paths(capture)]
        with_rank = [capture for capture in ranked if capture.rank is not None and capture.files]
        windows = [
            (capture, window_files)
            for capture in with_rank
            for window_files in _parts(_paths(capture))
        ]
        return [
            self._piece(capture, window_files, [window_files for _, window_files in windows])
            for capture, window_files in windows
        ], nameless

    def _piece(
        self, capture: Capture, files: tuple[Path, ...], all_files: Sequence[tuple[Path, ...]]
    ) -> _Piece:
        """A capture by its folder, if nothing else is in it, else by its files. What describes it,
        such as its rank, may be in a folder above."""
        other_files = [
            path for window_files in all_files if window_files is not files for path in window_files
        ]
        described = (*files, *(path for path in _other_files(capture) if path in self.changed))
        paths = files
        for candidates in (described, files):
            folder = Path(os.path.commonpath([path.parent for path in candidates]))
            inside = folder != self.folder and folder.is_relative_to(self.folder)
            if (
                len(candidates) > 1
                and inside
                and not any(path.is_relative_to(folder) for path in other_files)
            ):
                paths = (folder,)
                break
        written = max(self.changed[path][0][1] for path in files)
        name = str(paths[0].relative_to(self.folder))
        return _Piece(
            capture,
            tuple(map(str, paths)),
            files,
            time_in(name) or written,
            _RANK.sub("rank", name) if _RANK.search(name) and not time_in(name) else "",
        )

    # -- windows ------------------------------------------------------------------------------

    def _is_ready(self, window: Sequence[_Piece], now: float) -> bool:
        files = [path for piece in window for path in piece.files]
        if self._is_over(files, now):
            return True
        if all(self.cut_off.get(path) == self.changed[path][0] for path in files):
            return False
        own_paths = {path for piece in window for path in map(Path, piece.paths)}
        if any(
            self._quiet_s(path, now) < SETTLED_S
            for path in self.changed
            if path in own_paths or not own_paths.isdisjoint(path.parents)
        ) or any(piece.capture.reader in _PROVISIONAL for piece in window):
            return False
        ranks, awaited = {piece.rank for piece in window}, self._awaited_ranks(window)
        if not awaited <= ranks:
            return False
        sure = awaited and self.known <= ranks
        return sure or min(self._quiet_s(path, now) for path in files) >= QUIET_S

    def _awaited_ranks(self, window: Sequence[_Piece]) -> set[int]:
        """The ranks that a window waits for; none if nothing is known of them."""
        return self.expected or set(range(self._size(window)))

    def _size(self, window: Sequence[_Piece]) -> int:
        """The number of ranks of the job; 0 if it is unknown."""
        return self.asked.world_size or max(piece.capture.world_size for piece in window)

    @one_run()
    def _judge(self, window: Sequence[_Piece], now: float) -> WatchedWindow | None:
        """The verdict on a window; None to wait for files that were cut off."""
        files = [path for piece in window for path in piece.files]
        ranks = tuple(sorted(piece.rank for piece in window))
        over = self._is_over(files, now)
        paths = tuple(dict.fromkeys(path for piece in window for path in piece.paths))
        signatures = {path: self.changed[path][0] for path in files}
        diagnosis, error, trace = None, "", ""
        self.number += 1
        try:
            found = found_below(paths, self.asked.input, pipes=False)
            options = DiagnoseOptions.of({**self.given, "analyse": True})
            diagnosis = diagnosed(paths, options, found)
            if self.asked.out is not None:
                out = str(Path(self.asked.out) / f"window-{self.number:05}.pftrace")
                request = MergeRequest.of({**self.given, "out": out, "force": True})
                merged([*paths], request, found=found, or_detail=True)
                trace = out
        except TraceconvError as e:
            error = str(e)
        codes = {issue.code for issue in diagnosis.issues} if diagnosis else _INCOMPLETE
        changed = dict(_files_of(files)) != signatures
        if not over and (changed or codes & _INCOMPLETE):
            self.number -= 1
            self.cut_off |= signatures
            return None
        self.judged |= signatures
        for path, (size, _) in signatures.items():
            with suppress(OSError):
                self.samples[path] = sample(path, size)
        for piece in window:  # what describes a capture is of its window, too
            self.judged |= {
                path: self.changed[path][0]
                for path in _other_files(piece.capture)
                if path in self.changed
            }
        self.last_ns |= {piece.rank: piece.at_ns for piece in window}
        late = self._awaited_ranks(window) - set(ranks)
        self.known |= set(ranks)
        missing = tuple(sorted(self.known.union(range(self._size(window))).difference(ranks)))
        self.expected = set(ranks) if late else self.expected | set(ranks)
        waited = time.time() - max((s[1] for s in signatures.values()), default=0) / 1e9
        return WatchedWindow(
            self.number, ranks, missing, paths, diagnosis, error, trace, max(waited, 0.0)
        )


def windows_of(pieces: Sequence[_Piece], last_ns: Mapping[int, int]) -> list[list[_Piece]]:
    """Captures by window, the earliest first: those with one name but for the rank, else those that
    were recorded at about the same time, at most one of a rank.

    Args:
        last_ns: by rank, when the window before these was recorded.
    """
    times: dict[int, list[int]] = {rank: [ns] for rank, ns in last_ns.items()}
    for piece in pieces:
        times.setdefault(piece.rank, []).append(piece.at_ns)
    gaps = [b - a for of_rank in times.values() for a, b in pairwise(sorted(of_rank))]
    apart = min(gaps, default=float("inf")) / 2
    windows: list[list[_Piece]] = []
    for piece in sorted(pieces, key=lambda member: (member.at_ns, member.paths)):
        free = [window for window in windows if all(member.rank != piece.rank for member in window)]
        alike = [window for window in free if piece.name and window[0].name == piece.name]
        near = [
            window
            for window in free
            if not (piece.name and window[0].name) and piece.at_ns - window[0].at_ns <= apart
        ]
        if alike or near:
            (alike or near)[-1].append(piece)
        else:
            windows.append([piece])
    return windows


def _parts(files: tuple[Path, ...]) -> list[tuple[Path, ...]]:
    """The files of a capture by window. Readers join windows whose names differ in their times."""
    if len(files) < 2:
        return [files]
    level = len(Path(os.path.commonpath(files)).parts)
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(path.parts[level], []).append(path)
    times = {time_in(name) for name in groups}
    if 0 in times or len(times) < len(groups) or len({_VARYING.sub("", n) for n in groups}) > 1:
        return [files]
    return [tuple(group) for group in groups.values()]


def _paths(capture: Capture) -> tuple[Path, ...]:
    paths = (capture.source.path(name) for name in capture.files)
    return tuple(path for path in paths if path is not None)


def _other_files(capture: Capture) -> Iterator[Path]:
    """The other files of a capture."""
    for name in capture.known:
        if (path := capture.source.path(name)) is not None:
            yield path


def _files(folder: Path, without: Path | None) -> Iterator[tuple[Path, Signature]]:
    """The files below a folder. Files that vanish meanwhile, and folders that cannot be read, are
    left out; links to folders are not followed."""
    for current, folders, names in os.walk(folder):
        below = Path(current)
        if without is not None:
            folders[:] = [name for name in folders if (below / name).resolve() != without.resolve()]
        yield from _files_of(below / name for name in names)


def _files_of(paths: Iterable[Path]) -> Iterator[tuple[Path, Signature]]:
    """Files as they are now, without those that are gone, pipes and devices."""
    for path in paths:
        with suppress(OSError):
            about = path.stat()
            if stat.S_ISREG(about.st_mode):
                yield path, (about.st_size, about.st_mtime_ns)
