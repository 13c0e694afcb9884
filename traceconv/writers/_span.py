"""What times an output can hold."""

from __future__ import annotations

from traceconv.clock import INT64_MAX
from traceconv.errors import ClockError
from traceconv.model import Trace


def check_times(trace: Trace, base_ns: int, earliest: int = 0) -> None:
    """Refuse stamps more than ``-earliest`` ns before the base, or too far behind it for int64.

    Raises:
        ClockError: there are such.
    """
    span = trace.span() or (base_ns, base_ns)
    if not earliest <= span[0] - base_ns <= span[1] - base_ns <= INT64_MAX:
        raise ClockError(
            f"rank {trace.rank}: times from {span[0]} to {span[1]} ns cannot be counted from "
            f"{base_ns} ns, the base of the trace"
        )
