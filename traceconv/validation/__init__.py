"""Checks: judge a trace by what Perfetto's importer and viewer make of it.

:func:`validate` gives a verdict on any Perfetto or Chrome JSON trace, ours or not. Our own readers
read it and tell everything that they would repair; rules of the importer (release 58.2) judge what
they find. Exact counts come from Perfetto's trace processor (``deep``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from traceconv.core.errors import SourceError
from traceconv.io.storage import redact_url
from traceconv.validation import chrome, perfetto
from traceconv.validation.container import DAMAGE, Opened, open_trace, stored_bytes
from traceconv.validation.rules import BAD, RULES, Finding, Found, Refused, Severity, Tally

__all__ = ["BAD", "RULES", "Finding", "Severity", "ValidationReport", "validate"]

Progress = Callable[[int, int, str], None]
"""Called as (stored bytes checked since the last call, all of them, label)."""

_JUDGES = {"perfetto": perfetto.judge, "chrome_json": chrome.judge}
_NOTHING = dict.fromkeys(("slices", "instants", "counters", "flows", "tracks"), 0)


@dataclass(frozen=True)
class ValidationReport:
    """What became of a check.

    Attributes:
        path:     the file, as it was named.
        format:   "perfetto", "chrome_json", "archive" (several files, not all of one format), or
            "unknown" (refused before it came to that).
        findings: broken rules, in the order of :data:`RULES`.
        counts:   slices, instants, counters, flows, tracks, and ``bytes`` on disk.
        refused:  whether viewers refuse the file as a whole; the counts are then 0.
        importer: what Perfetto's importer counts of it; None if it was not asked, or refuses it.
    """

    path: str
    format: str
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    refused: bool = False
    importer: dict[str, int] | None = None

    @property
    def ok(self) -> bool:
        """Whether a viewer shows all of the trace, and shows it right."""
        return not any(finding.severity in BAD for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "path": self.path,
            "format": self.format,
            "ok": self.ok,
            "refused": self.refused,
            "counts": dict(self.counts),
            "importer": self.importer,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def validate(
    path: str | Path, progress: Progress = lambda *_: None, deep: bool = False
) -> ValidationReport:
    """Judge a trace: plain, compressed, or an archive of several.

    Args:
        progress: told how many bytes were checked.
        deep:     also let Perfetto's own trace processor load it, and compare what it counts; see
            :mod:`traceconv.validation.processor`.

    Raises:
        SourceError: it cannot be read, is a decompression bomb, or needs a package to unpack it.
        UnknownFormatError: it is neither a Perfetto trace nor Chrome JSON.
        MissingExtraError, EngineError: the trace processor, or the package ``perfetto``, is not
            here or does not work.
    """
    tally, label = Tally(), redact_url(str(path))
    try:
        opened = open_trace(str(path))
        contents = _judged(opened, tally, progress)
    except Refused as e:
        tally.add(e.rule, e.place)
        counts = {**_NOTHING, "bytes": stored_bytes(str(path))}
        return ValidationReport(label, e.format, tally.findings(), counts, refused=True)
    formats = {content.format for content in contents}
    counts = _sum(contents) | {"bytes": stored_bytes(str(path))}
    report = ValidationReport(label, formats.pop() if len(formats) == 1 else "archive", (), counts)
    if deep:
        from traceconv.validation.processor import compared

        has_system_data = any(content.system_data for content in contents)
        report = replace(
            report, importer=compared(str(path), _rows(contents), tally, at_least=has_system_data)
        )
    return replace(report, findings=tally.findings())


def _judged(opened: Opened, tally: Tally, progress: Progress) -> list[Found]:
    """The content of each trace in a file."""
    source, contents = opened.source, list[Found]()
    total = sum(source.size(member.name) for member in opened.members)
    label, remaining = f"checking {PurePath(opened.path).name}", total

    def advance(n: int) -> None:
        nonlocal remaining
        n = min(n, remaining)
        remaining -= n
        progress(n, total, label)

    for name in opened.absent:
        tally.add("F-absent", name)
    source.progress = advance
    for member in opened.members:
        tally.prefix = "" if source.lone else f"{member.name}: "
        path = opened.path if source.lone else f"{opened.path}/{member.name}"
        try:
            content = _JUDGES[member.format](source, member.name, path, tally)
        except SourceError as e:
            if not isinstance(e.__cause__, DAMAGE):
                raise
            raise Refused(path, "F-compression", "" if source.lone else member.name) from e
        if content.first_ns is not None and content.first_ns + member.shift_ns < 0:
            tally.add("P07-negative", f"shifted by {member.shift_ns} ns")
        for kind in ("slice", "instant", "counter", "flow"):
            wrote, counted = content.recorded.get(kind), content.counts[f"{kind}s"]
            if isinstance(wrote, int) and wrote != counted:
                tally.add("P24-counts", f"{kind}: {wrote} written, {counted} found")
        contents.append(content)
    tally.prefix = ""
    progress(remaining, total, label)
    return contents


def _sum(contents: list[Found]) -> dict[str, int]:
    counts: Counter[str] = Counter(_NOTHING)
    for content in contents:
        counts.update(content.counts)
    return dict(counts)


def _rows(contents: list[Found]) -> dict[str, int]:
    """Expected row counts of the importer's tables, where instants are slices."""
    counts = _sum(contents)
    return {
        "slices": counts["slices"] + counts["instants"],
        "busy_ns": sum(content.busy_ns for content in contents),
        "counters": counts["counters"],
        "flows": counts["flows"],
    }
