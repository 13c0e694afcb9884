"""traceconv: the profiles of many ranks, from any vendor, as one exact trace.

    import traceconv

    report = traceconv.merge("./prof", ranks=[0, 1], mode="summary")
    for trace in traceconv.open("./prof").traces():
        print(trace.rank, trace.counts())

Names are imported when they are used, so that ``import traceconv`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "open": "api",
    "merge": "api",
    "convert": "api",
    "inspect": "api",
    "join": "api",
    "stats": "statistics",
    "align": "comparison",
    "diagnose": "diagnosis",
    "stragglers": "comparison",
    "Captures": "api",
    "Report": "report",
    "Inspection": "inspection",
    "SizeLimit": "writers.limits",
    "Trace": "model",
    "TraceBuilder": "build",
    "TraceconvError": "errors",
    "validate": "checks",
}

__all__ = [
    "Captures",
    "Inspection",
    "Report",
    "SizeLimit",
    "Trace",
    "TraceBuilder",
    "TraceconvError",
    "__version__",
    "align",
    "convert",
    "diagnose",
    "inspect",
    "join",
    "merge",
    "open",
    "stats",
    "stragglers",
    "validate",
]

if TYPE_CHECKING:
    from traceconv.api import Captures, convert, inspect, join, merge, open
    from traceconv.build import TraceBuilder
    from traceconv.checks import validate
    from traceconv.comparison import align, stragglers
    from traceconv.diagnosis import diagnose
    from traceconv.errors import TraceconvError
    from traceconv.inspection import Inspection
    from traceconv.model import Trace
    from traceconv.report import Report
    from traceconv.statistics import stats
    from traceconv.writers.limits import SizeLimit


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'traceconv' has no attribute {name!r}")
    return getattr(import_module(f"traceconv.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
