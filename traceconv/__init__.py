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

from traceconv.core.version import __version__

_HOMES = {
    "open": "api.merge",
    "merge": "api.merge",
    "convert": "api.merge",
    "inspect": "api.merge",
    "join": "api.merge",
    "stats": "api.stats",
    "align": "api.compare",
    "diagnose": "api.diagnose",
    "stragglers": "api.compare",
    "Captures": "api.merge",
    "Report": "pipeline.report",
    "Inspection": "api.inspect",
    "SizeLimit": "writers.size_limit",
    "Trace": "core.model",
    "TraceBuilder": "core.builder",
    "TraceconvError": "core.errors",
    "validate": "validation",
    "write": "api.write",
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
    "write",
]

if TYPE_CHECKING:
    from traceconv.api.compare import align, stragglers
    from traceconv.api.diagnose import diagnose
    from traceconv.api.inspect import Inspection
    from traceconv.api.merge import Captures, convert, inspect, join, merge, open
    from traceconv.api.stats import stats
    from traceconv.api.write import write
    from traceconv.core.builder import TraceBuilder
    from traceconv.core.errors import TraceconvError
    from traceconv.core.model import Trace
    from traceconv.pipeline.report import Report
    from traceconv.validation import validate
    from traceconv.writers.size_limit import SizeLimit


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'traceconv' has no attribute {name!r}")
    return getattr(import_module(f"traceconv.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
