"""Errors and warnings of a profiler, quoted as issues.

A quotation is the first line, shortened and without paths, since these name users and machines.
"""

from __future__ import annotations

from collections.abc import Iterable

from traceconv.core.builder import TraceBuilder
from traceconv.core.patterns import lazy_regex

LONGEST = 160
"""Maximum characters of a quotation."""

_PATH = lazy_regex(r"(?:[A-Za-z]:)?(?:[\\/][^\\/\s:'\",;]+){2,}[\\/]?")


def book_messages(
    build: TraceBuilder, errors: Iterable[object] = (), warnings: Iterable[object] = ()
) -> None:
    """Count every message as ``profiler-error`` or ``profiler-warning``."""
    for code, messages in (("profiler-error", errors), ("profiler-warning", warnings)):
        for message in messages:
            first_line = " ".join(str(message).strip().partition("\n")[0].split())
            text = _PATH.sub("<path>", first_line)
            build.skip(code, text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")
