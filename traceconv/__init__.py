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
    "open": "api.open",
    "merge": "api.merge",
    "join": "api.merge",
    "pack": "api.pack",
    "convert": "api.convert",
    "inspect": "api.inspect",
    "stats": "api.stats",
    "align": "api.align",
    "stragglers": "api.stragglers",
    "what_if": "api.what_if",
    "critical_path": "api.critical_path",
    "diagnose": "api.diagnose",
    "diff": "api.diff",
    "watch": "api.watch",
    "explore": "api.explore",
    "validate": "validation",
    "query": "api.query",
    "write": "api.write",
    "torch_handler": "api.torch_handler",
    "trainer_callback": "api.torch_handler",
    "Captures": "api.open",
    "PackReport": "api.pack",
    "Inspection": "api.inspect",
    "Alignment": "api.align",
    "StragglerReport": "api.stragglers",
    "WhatIfReport": "api.what_if",
    "CriticalPath": "api.critical_path",
    "Diagnosis": "api.diagnose",
    "DiffReport": "api.diff",
    "Exploration": "api.explore",
    "WatchedWindow": "api.watch",
    "Statistics": "analysis.tables.catalog",
    "Report": "merging.run_report",
    "ValidationReport": "validation",
    "Selection": "options.groups",
    "MergeOptions": "options.groups",
    "SizeLimit": "writers.size_limit",
    "Capture": "core.model",
    "Layer": "core.model",
    "Trace": "core.model",
    "SideTable": "core.side_tables",
    "TraceBuilder": "core.builder",
    "Issue": "core.errors",
    "Issues": "core.errors",
    "Severity": "core.errors",
    "AmbiguousFormatError": "core.errors",
    "ClockError": "core.errors",
    "ComparisonError": "core.errors",
    "EmptyResultError": "core.errors",
    "EngineError": "core.errors",
    "InputError": "core.errors",
    "MalformedInputError": "core.errors",
    "MissingExtraError": "core.errors",
    "OptionError": "core.errors",
    "OutputError": "core.errors",
    "OutputPathError": "core.errors",
    "PluginError": "core.errors",
    "RankError": "core.errors",
    "ResourceError": "core.errors",
    "SelectionError": "core.errors",
    "SizeLimitError": "core.errors",
    "SourceError": "core.errors",
    "StrictError": "core.errors",
    "TraceconvError": "core.errors",
    "UnknownFormatError": "core.errors",
}
"""The module of every public name."""

__all__ = [
    "Alignment",
    "AmbiguousFormatError",
    "Capture",
    "Captures",
    "ClockError",
    "ComparisonError",
    "CriticalPath",
    "Diagnosis",
    "DiffReport",
    "EmptyResultError",
    "EngineError",
    "Exploration",
    "InputError",
    "Inspection",
    "Issue",
    "Issues",
    "Layer",
    "MalformedInputError",
    "MergeOptions",
    "MissingExtraError",
    "OptionError",
    "OutputError",
    "OutputPathError",
    "PackReport",
    "PluginError",
    "RankError",
    "Report",
    "ResourceError",
    "Selection",
    "SelectionError",
    "Severity",
    "SideTable",
    "SizeLimit",
    "SizeLimitError",
    "SourceError",
    "Statistics",
    "StragglerReport",
    "StrictError",
    "Trace",
    "TraceBuilder",
    "TraceconvError",
    "UnknownFormatError",
    "ValidationReport",
    "WatchedWindow",
    "WhatIfReport",
    "__version__",
    "align",
    "convert",
    "critical_path",
    "diagnose",
    "diff",
    "explore",
    "inspect",
    "join",
    "merge",
    "open",
    "pack",
    "query",
    "stats",
    "stragglers",
    "torch_handler",
    "trainer_callback",
    "validate",
    "watch",
    "what_if",
    "write",
]

if TYPE_CHECKING:
    from traceconv.analysis.tables.catalog import Statistics
    from traceconv.api.align import Alignment, align
    from traceconv.api.convert import convert
    from traceconv.api.critical_path import CriticalPath, critical_path
    from traceconv.api.diagnose import Diagnosis, diagnose
    from traceconv.api.diff import DiffReport, diff
    from traceconv.api.explore import Exploration, explore
    from traceconv.api.inspect import Inspection, inspect
    from traceconv.api.merge import join, merge
    from traceconv.api.open import Captures, open
    from traceconv.api.pack import PackReport, pack
    from traceconv.api.query import query
    from traceconv.api.stats import stats
    from traceconv.api.stragglers import StragglerReport, stragglers
    from traceconv.api.torch_handler import torch_handler, trainer_callback
    from traceconv.api.watch import WatchedWindow, watch
    from traceconv.api.what_if import WhatIfReport, what_if
    from traceconv.api.write import write
    from traceconv.core.builder import TraceBuilder
    from traceconv.core.codes import Severity
    from traceconv.core.errors import (
        AmbiguousFormatError,
        ClockError,
        ComparisonError,
        EmptyResultError,
        EngineError,
        InputError,
        Issue,
        Issues,
        MalformedInputError,
        MissingExtraError,
        OptionError,
        OutputError,
        OutputPathError,
        PluginError,
        RankError,
        ResourceError,
        SelectionError,
        SizeLimitError,
        SourceError,
        StrictError,
        TraceconvError,
        UnknownFormatError,
    )
    from traceconv.core.model import Capture, Layer, Trace
    from traceconv.core.side_tables import SideTable
    from traceconv.merging.run_report import Report
    from traceconv.options.groups import MergeOptions, Selection
    from traceconv.validation import ValidationReport, validate
    from traceconv.writers.size_limit import SizeLimit


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'traceconv' has no attribute {name!r}")
    return getattr(import_module(f"traceconv.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
