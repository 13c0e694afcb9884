"""Collection windows of one rank, a file each, and the check of their clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain, is_unix_ns
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Capture
from traceconv.core.robust import FAR_NS

Window = TypeVar("Window")
Span = tuple[int, int] | None


def joined_windows(
    captures: Iterable[Capture],
    key: Callable[[Capture], Hashable],
    begin: Callable[[Capture], Any],
    apart: Callable[[Sequence[Capture]], bool] = lambda _: False,
) -> list[Capture]:
    """The captures of a source; windows of one rank become one capture.

    Args:
        key:    equal for windows of one rank.
        begin:  sort key by the begin of a window. Windows with equal keys are not joined: they are
            copies, or of different ranks.
        apart:  whether windows, in the order of time, must not be joined for another reason.
    """
    groups: dict[Hashable, list[Capture]] = {}
    for capture in captures:
        groups.setdefault(key(capture), []).append(capture)
    found: list[Capture] = []
    for group in groups.values():
        windows = sorted(group, key=begin)
        begins = [begin(window) for window in windows]
        twice = any(a == b for a, b in itertools.pairwise(begins))
        found += windows if twice or apart(windows) else [_joined(windows)]
    return found


def _joined(windows: Sequence[Capture]) -> Capture:
    """One capture of windows in the order of time; their ``detail`` tuples are concatenated."""
    if len(windows) == 1:
        return windows[0]
    return replace(
        windows[0],
        files=tuple(name for window in windows for name in window.files),
        known=tuple(dict.fromkeys(name for window in windows for name in window.known)),
        graphs=tuple(sorted({graph for window in windows for graph in window.graphs})),
        world_size=max(window.world_size for window in windows),
        clock=next((window.clock for window in windows if window.clock), None),
        detail=sum((window.detail for window in windows), ()),
        windows=len(windows),
    )


def read_windows(
    capture: Capture,
    build: TraceBuilder,
    windows: Iterable[tuple[str, Window]],
    read: Callable[[Window], Span],
) -> None:
    """Read every window; a broken one is counted and skipped.

    Args:
        windows: name of the file, and the argument of ``read``.
        read:    adds a window's events; returns first and last time, None without events.

    Raises:
        MalformedInputError: all windows are broken.
    """
    failures: list[MalformedInputError] = []
    for name, window in windows:
        build.file, before = capture.source.title(name), build.rows
        try:
            span = read(window)
        except MalformedInputError as e:
            failures.append(e)
            build.skip("malformed-record", str(e)[:200])
        else:
            if span and len(capture.files) > 1:
                far = span[1] - span[0] > FAR_NS  # stamps may be damaged
                build.window(*((far and build.span(before)) or span))
    if len(failures) == len(capture.files):
        raise failures[0]


def check_clock(capture: Capture, build: TraceBuilder) -> None:
    """Count ``clock-assumed`` if the stamps contradict the clock assumed from the first ones."""
    span = build.span()
    if span is None or capture.clock is None:
        return
    if (capture.clock.domain is Domain.UNIX) != is_unix_ns(span[1]):
        build.file = capture.label
        build.skip("clock-assumed", f"last stamp {span[1]} ns, taken as {capture.clock.domain}")
