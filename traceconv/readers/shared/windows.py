"""Several collection windows of one rank, a file each; and whether their clock is as expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain, is_unix_ns
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Capture

Window = TypeVar("Window")
Span = tuple[int, int] | None


def read_windows(
    capture: Capture,
    build: TraceBuilder,
    windows: Iterable[tuple[str, Window]],
    read: Callable[[Window], Span],
) -> None:
    """Read every window; a broken one is booked, and the others are read.

    Args:
        windows: name of the file, and what ``read`` is to be called with.
        read:    puts a window's events into ``build``; first and last time, None without events.

    Raises:
        MalformedInputError: all of them are broken.
    """
    failures: list[MalformedInputError] = []
    for name, window in windows:
        build.file = capture.source.title(name)
        try:
            span = read(window)
        except MalformedInputError as e:
            failures.append(e)
            build.skip("malformed-record", str(e)[:200])
        else:
            if span and len(capture.files) > 1:
                build.window(*span)
    if len(failures) == len(capture.files):
        raise failures[0]


def check_clock(capture: Capture, build: TraceBuilder) -> None:
    """Book ``clock-assumed`` if the stamps are not of the clock that finding took them for.

    Finding looks at the first stamps of a file only; all have been read here.
    """
    span = build.span()
    if span is None or capture.clock is None:
        return
    if (capture.clock.domain is Domain.UNIX) != is_unix_ns(span[1]):
        build.file = capture.label
        build.skip("clock-assumed", f"last stamp {span[1]} ns, taken as {capture.clock.domain}")
