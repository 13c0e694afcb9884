"""Checks: judge a trace by what Perfetto's importer and viewer make of it.

:func:`validate` gives a verdict on any Perfetto or Chrome JSON trace, ours or not; the ``decode``
functions rebuild the slices, samples and arrows a viewer would show, as columns. No importer is
run, unless asked for (``deep``): its rules (release 58.2) are followed in Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from traceconv.core.errors import UnknownFormatError
from traceconv.core.source import Progress as Advance
from traceconv.io.storage import redact_url
from traceconv.validation.chrome import build as chrome_json
from traceconv.validation.container import Buffer, Member, Opened, open_trace, stored_bytes
from traceconv.validation.decoded import Decoded, merged
from traceconv.validation.perfetto import build as perfetto
from traceconv.validation.rules import BAD, RULES, Finding, Refused, Severity, Tally

__all__ = [
    "BAD",
    "RULES",
    "Decoded",
    "Finding",
    "Severity",
    "ValidationReport",
    "decode",
    "decode_perfetto",
    "validate",
]

Progress = Callable[[int, int, str], None]
"""Called as (bytes checked since the last call, all bytes, label)."""

_Decode = Callable[[Buffer, str, Tally, Advance], Decoded]
_DECODERS: dict[str, _Decode] = {"perfetto": perfetto.decode, "chrome_json": chrome_json.decode}


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


def _silent(done: int, total: int, label: str) -> None:
    pass


def validate(
    path: str | Path, progress: Progress = _silent, deep: bool = False
) -> ValidationReport:
    """Judge a trace: plain, compressed, or an archive of several.

    Args:
        progress: told how many bytes (unpacked) were checked.
        deep:     also let Perfetto's own trace processor load it, and compare what it counts; see
            :mod:`traceconv.validation.processor`.

    Raises:
        SourceError: it cannot be read, is a decompression bomb, or needs a package to unpack it.
        UnknownFormatError: it is neither a Perfetto trace nor Chrome JSON.
        MissingExtraError, EngineError: the trace processor, or the package ``perfetto``, is not
            here or does not work.
    """
    tally = Tally()
    try:
        opened = open_trace(str(path))
        decoded = _decoded(opened, tally, progress)
    except Refused as refused:
        tally.add(refused.rule, refused.where)
        counts = dict.fromkeys(("slices", "instants", "counters", "flows", "tracks"), 0)
        counts["bytes"] = stored_bytes(str(path))
        return ValidationReport(
            redact_url(str(path)), refused.format, tally.findings(), counts, refused=True
        )
    counts = decoded.counts() | {"bytes": stored_bytes(str(path))}
    verdict = ValidationReport(opened.path, decoded.format, (), counts)
    if deep:
        from traceconv.validation.processor import compared

        counted = compared(str(path), _figures(decoded), tally, at_least=decoded.other_sources)
        verdict = replace(verdict, importer=counted)
    return replace(verdict, findings=tally.findings())


def _figures(decoded: Decoded) -> dict[str, int]:
    """What the importer's tables hold, by what we decoded: instants are slices there."""
    return {
        "slices": len(decoded.rows.ts),
        "busy_ns": int(decoded.rows.dur[~decoded.instant].clip(0).sum()),
        "counters": len(decoded.counters.ts),
        "flows": len(decoded.flows.source),
    }


def decode(path: str | Path) -> Decoded:
    """What a viewer shows of a trace of either format, or of an archive of several.

    Raises:
        MalformedInputError: viewers refuse the file; the message says why.
        SourceError, UnknownFormatError: as for :func:`validate`.
    """
    return _decoded(open_trace(str(path)), Tally())


def decode_perfetto(path: str | Path) -> Decoded:
    """What a viewer shows of a Perfetto trace.

    Raises:
        UnknownFormatError: it is none.
        MalformedInputError, SourceError: as for :func:`decode`.
    """
    opened = open_trace(str(path))
    if any(member.format != "perfetto" for member in opened.members):
        raise UnknownFormatError(f"{opened.path}: no Perfetto trace")
    return _decoded(opened, Tally())


def _decoded(opened: Opened, tally: Tally, progress: Progress = _silent) -> Decoded:
    """All traces of a file as one."""
    total = sum(len(member.data) for member in opened.members)
    label = f"checking {PurePath(opened.path).name}"
    for name in opened.absent:
        tally.add("F-absent", name)
    parts: list[Decoded] = []
    for member in opened.members:
        own, left = Tally(), _Left(len(member.data))

        def advance(n: int, left: _Left = left) -> None:
            progress(left.less(n), total, label)

        try:
            parts.append(_part(opened, member, own, advance))
            advance(len(member.data))
        finally:
            tally.absorb(own, f"{member.name}: " if opened.archive else "")
    return merged(parts, opened.members, tally)


class _Left:
    """Bytes of a trace that were not told of yet."""

    def __init__(self, n: int) -> None:
        self._n = n

    def less(self, n: int) -> int:
        """Up to ``n`` of them, from now on told."""
        n = min(max(n, 0), self._n)
        self._n -= n
        return n


def _part(opened: Opened, member: Member, tally: Tally, advance: Advance) -> Decoded:
    """One trace; the counts recorded when it was written are compared with what is there."""
    label = f"{opened.path}/{member.name}" if opened.archive else opened.path
    decoded = _DECODERS[member.format](member.data, label, tally, advance)
    recorded, found = _recorded(decoded), decoded.counts()
    for kind in ("slice", "instant", "counter", "flow"):
        wrote = recorded.get(kind)
        if isinstance(wrote, int) and wrote != found[f"{kind}s"]:
            tally.add("P24-counts", f"{kind}: {wrote} written, {found[f'{kind}s']} found")
    return decoded


def _recorded(decoded: Decoded) -> dict[str, Any]:
    """The counts in a trace's metadata: a trace attribute, or a JSON object."""
    own = decoded.metadata.get("traceconv")
    counts = own.get("counts") if isinstance(own, dict) else None
    if isinstance(text := decoded.metadata.get("traceconv.counts"), str):
        try:
            counts = json.loads(text)
        except (ValueError, RecursionError):
            return {}
    return counts if isinstance(counts, dict) else {}
