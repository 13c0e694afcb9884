"""What a profiler wrote about its own work: errors and warnings, quoted as issues.

A quotation is the first line, shortened; paths in it are left out, as they name users and machines.
"""

from __future__ import annotations

from collections.abc import Iterable

from traceconv.core.builder import TraceBuilder
from traceconv.core.patterns import lazy_regex

LONGEST = 160
"""Characters of a quotation."""

_PATH = lazy_regex(r"(?:[A-Za-z]:)?(?:[\\/][^\\/\s:'\",;]+){2,}[\\/]?")


def book_messages(
    build: TraceBuilder, errors: Iterable[object] = (), warnings: Iterable[object] = ()
) -> None:
    """Book every message under ``profiler-error`` or ``profiler-warning``."""
    for code, messages in (("profiler-error", errors), ("profiler-warning", warnings)):
        for message in messages:
            build.skip(code, _quoted(str(message)))


def _quoted(message: str) -> str:
    first = " ".join(message.strip().partition("\n")[0].split())
    text = _PATH.sub("<path>", first)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
