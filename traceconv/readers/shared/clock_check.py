"""The check of a clock that was assumed from the first stamps."""

from __future__ import annotations

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain, is_unix_ns
from traceconv.core.model import Capture


def check_clock(capture: Capture, build: TraceBuilder) -> None:
    """Count ``clock-assumed`` if the stamps contradict the clock assumed from the first ones."""
    span = build.span()
    if span is None or capture.clock is None:
        return
    if (capture.clock.domain is Domain.UNIX) != is_unix_ns(span[1]):
        build.file = capture.label
        build.skip("clock-assumed", f"last stamp {span[1]} ns, taken as {capture.clock.domain}")
