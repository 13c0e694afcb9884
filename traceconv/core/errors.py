"""Errors and issues.

There are two kinds, which are never mixed:

* An *error* ends the run. It is an exception below :class:`TraceconvError`::

    TraceconvError
    ├── InputError                the input cannot be used
    │   ├── SourceError           a path is missing, unreadable, or an archive is unsafe
    │   ├── UnknownFormatError    no reader recognises it
    │   ├── AmbiguousFormatError  two readers claim it
    │   ├── MalformedInputError   it is of a known format, but broken beyond salvage
    │   ├── RankError             a rank is unknown, doubled or missing
    │   ├── SelectionError        a rank, graph, step or window was selected that does not exist
    │   ├── EmptyResultError      not one event is left to be written
    │   └── ComparisonError       two runs cannot be compared
    ├── OptionError               an argument of a wrong type, or a choice that does not exist
    ├── ClockError                times beyond int64 nanoseconds, or alignment refused
    ├── SizeLimitError            the chosen policy cannot keep the limit
    ├── OutputError               the result cannot be written
    │   └── OutputPathError       the output path exists, or a file cannot be created there
    ├── MissingExtraError         a package that is needed is not installed
    ├── EngineError               workers cannot be started, or died
    ├── StrictError               losses or warnings with ``strict=True``
    ├── ResourceError             a limit on memory cannot be kept
    └── PluginError               a third-party reader or writer is broken or clashes

* An *issue* does not end the run, but something is lost or doubtful. :class:`Issue` has a code of
  the closed table :data:`CODES`, a count per file, and the first few places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from traceconv.core.codes import CODES, Code, Severity


class TraceconvError(Exception):
    """Base of every error that leaves the library. The message is fit for a user's eyes.

    ``exit_code`` is what the command line ends with (see ``traceconv --help``).
    """

    exit_code = 1


class InputError(TraceconvError):
    """The input cannot be used."""

    exit_code = 3


class SourceError(InputError):
    """A path is missing, unreadable, or an archive is unsafe."""


class UnknownFormatError(InputError):
    """No reader recognises the input."""


class AmbiguousFormatError(InputError):
    """Two readers of the same order claim the input."""


class MalformedInputError(InputError):
    """The input is of a known format, but broken beyond salvage.

    Args:
        path:  file as the user knows it.
        where: place in it ("byte 1207", "line 3", "table TASK row 17").
        why:   the problem, and what to do next.
    """

    def __init__(self, path: str, where: str, why: str) -> None:
        self.path, self.where, self.why = path, where, why
        super().__init__(f"{path}: {where}: {why}" if where else f"{path}: {why}")

    def __reduce__(self) -> Any:
        return MalformedInputError, (self.path, self.where, self.why)


class RankError(InputError):
    """A rank is unknown, claimed twice, or missing."""


class SelectionError(InputError):
    """Something was selected that does not exist. The message lists what does."""


class EmptyResultError(InputError):
    """Not one event is left to be written; the message says why."""


class ComparisonError(InputError):
    """Two runs cannot be compared; ``forced``: there is nothing to show, either."""

    exit_code = 11

    def __init__(self, reasons: Sequence[str], forced: bool = False) -> None:
        self.reasons, self.forced = tuple(reasons), forced
        advice = "" if forced else " (`force_compare=True` shows what there is, without verdict)"
        super().__init__(f"the runs cannot be compared: {'; '.join(self.reasons)}{advice}")

    def __reduce__(self) -> Any:
        return ComparisonError, (self.reasons, self.forced)


class OptionError(TraceconvError):
    """An argument has a wrong type or value. The message lists what is valid.

    Args:
        why:    the problem, and the valid values.
        option: name of the argument; "" if several are meant.
    """

    exit_code = 2

    def __init__(self, why: str, option: str = "") -> None:
        self.why, self.option = why, option
        super().__init__(f"`{option}`: {why}" if option else why)

    def __reduce__(self) -> Any:
        return OptionError, (self.why, self.option)


class ClockError(TraceconvError):
    """A time leaves int64 nanoseconds, or an alignment was refused."""

    exit_code = 5


class SizeLimitError(TraceconvError):
    """The chosen policy cannot keep the size limit."""

    exit_code = 3


class OutputError(TraceconvError):
    """The result cannot be written."""

    exit_code = 3


class OutputPathError(OutputError):
    """The output path exists already, or a file cannot be created there."""

    exit_code = 2


class MissingExtraError(TraceconvError):
    """A package that is needed is not installed. The message has the line that installs it."""

    exit_code = 2


def extra_line(extra: str) -> str:
    """The line that installs an extra. traceconv is not on the package index yet."""
    return f"in a checkout: pip install '.[{extra}]'"


class EngineError(TraceconvError):
    """Workers cannot be started, or died repeatedly."""


class StrictError(TraceconvError):
    """Something was lost or is doubtful, and ``strict=True`` forbids that.

    Attributes:
        report: the account of the run, as far as it came; nothing was written.
    """

    exit_code = 4

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class ResourceError(TraceconvError):
    """A limit on memory cannot be kept here, or makes no sense."""

    exit_code = 2


class PluginError(TraceconvError):
    """A third-party reader or writer is broken, or its name is taken."""

    exit_code = 2


@dataclass(frozen=True)
class Issue:
    """One kind of loss or doubt in one file.

    Attributes:
        code:     a key of :data:`CODES`.
        severity: of that code.
        file:     path as the user knows it, or "" when it concerns the whole run.
        count:    how many records it touches.
        places:   the first few places ("byte 120", "pid 3 tid 7"), for looking.
        rank:     the rank it belongs to, -1 if none.
    """

    code: str
    severity: Severity
    file: str
    count: int
    places: tuple[str, ...] = ()
    rank: int = -1

    @property
    def advice(self) -> str:
        """One sentence on what it means and what to do."""
        return codes()[self.code].advice

    def as_dict(self) -> dict[str, Any]:
        """The JSON form used in reports and trace metadata."""
        return {
            "code": self.code,
            "severity": str(self.severity),
            "file": self.file,
            "rank": self.rank,
            "count": self.count,
            "places": list(self.places),
            "advice": self.advice,
        }


_PLUGIN_CODES: dict[str, Code] = {}


def codes() -> dict[str, Code]:
    """Every issue code, with those of plugins that were imported."""
    return {**CODES, **_PLUGIN_CODES}


@dataclass
class Issues:
    """A tally of issues: equal codes of one file are counted, the first few located.

    The order of first appearance is kept, so that reports are the same in every run.
    """

    PLACES_KEPT = 5

    _tally: dict[tuple[str, str, int], tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    @staticmethod
    def register(plugin: str, code: str, severity: Severity, advice: str) -> None:
        """Add a plugin's own code; it must begin with ``<plugin>-``."""
        if not code.startswith(f"{plugin}-"):
            raise PluginError(f"issue code {code!r} must begin with {plugin + '-'!r}")
        _PLUGIN_CODES[code] = Code(severity, advice)

    def add(
        self, code: str, file: str = "", where: str = "", count: int = 1, rank: int = -1
    ) -> None:
        """Count ``count`` records under ``code``; ``where`` is kept for the first few."""
        if code not in CODES and code not in _PLUGIN_CODES:
            raise KeyError(f"unknown issue code {code!r}; known are {sorted(CODES)}")
        if count <= 0:
            return
        had, places = self._tally.get((code, file, rank), (0, ()))
        if where and len(places) < self.PLACES_KEPT and where not in places:
            places = (*places, where)
        self._tally[code, file, rank] = (had + count, places)

    def extend(self, issues: Iterable[Issue], rank: int | None = None) -> None:
        """Add the counts of ``issues``, stamped with ``rank`` if given."""
        for issue in issues:
            stamp = issue.rank if rank is None or issue.rank >= 0 else rank
            had, places = self._tally.get((issue.code, issue.file, stamp), (0, ()))
            shown = (*places, *(p for p in issue.places if p not in places))[: self.PLACES_KEPT]
            self._tally[issue.code, issue.file, stamp] = (had + issue.count, shown)

    def __iter__(self) -> Iterator[Issue]:
        for (code, file, rank), (count, places) in self._tally.items():
            severity = (CODES.get(code) or _PLUGIN_CODES[code]).severity
            yield Issue(code, severity, file, count, places, rank)

    def __len__(self) -> int:
        return len(self._tally)

    def count(self, code: str) -> int:
        """How many records are counted under ``code``, over all files."""
        return sum(n for (c, _, _), (n, _) in self._tally.items() if c == code)

    def worst(self) -> Severity | None:
        """The worst severity present, or None when nothing happened."""
        present = {issue.severity for issue in self}
        return next((s for s in reversed(list(Severity)) if s in present), None)

    def copy(self, without: str = "") -> Issues:
        """An independent tally with the same counts, except those of the code ``without``."""
        return Issues({key: had for key, had in self._tally.items() if key[0] != without})
