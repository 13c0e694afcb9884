"""What plugins are made of: the one module that a package which extends traceconv imports.

A package announces what it brings under entry-point groups::

    [project.entry-points."traceconv.readers"]
    mylog = "traceconv_mylog:READER"        # an object with the members of Reader

    [project.entry-points."traceconv.writers"]
    mylog = "traceconv_mylog:MyWriter"      # a class with the members of Writer

    [project.entry-points."traceconv.rules"]
    long-calls = "traceconv_mylog:RULE"     # a Rule of `traceconv diagnose`

    [project.entry-points."traceconv.tables"]
    calls = "traceconv_mylog:TABLE"         # a Table of `traceconv stats`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.codes import Severity
from traceconv.core.errors import Issues, MalformedInputError, SourceError, TraceconvError
from traceconv.core.model import Capture, Kind, Layer, OpClass, Trace, Track
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.core.source import Source, Stream
from traceconv.readers import Reader
from traceconv.writers import Capacity, Costs, Document, Writer

if TYPE_CHECKING:
    from traceconv.analysis.rules.definition import (
        Case,
        FindingSeverity,
        Known,
        Limit,
        Limits,
        Rule,
        Slice,
        each_rank,
    )
    from traceconv.analysis.tables.definition import RANK, Column, Ranked, Table, stacked

__all__ = [
    "ABSENT",
    "RANK",
    "Anchor",
    "Capacity",
    "Capture",
    "Case",
    "Column",
    "Columns",
    "Costs",
    "Document",
    "Domain",
    "FindingSeverity",
    "Issues",
    "Kind",
    "Known",
    "Layer",
    "Limit",
    "Limits",
    "MalformedInputError",
    "OpClass",
    "Ranked",
    "Reader",
    "Rule",
    "Severity",
    "Slice",
    "Source",
    "SourceError",
    "Stream",
    "Table",
    "Trace",
    "TraceBuilder",
    "TraceconvError",
    "Track",
    "Writer",
    "each_rank",
    "stacked",
]

_RULES, _TABLES = "traceconv.analysis.rules.definition", "traceconv.analysis.tables.definition"
_HOMES = {
    **dict.fromkeys(
        ("Case", "FindingSeverity", "Known", "Limit", "Limits", "Rule", "Slice", "each_rank"),
        _RULES,
    ),
    **dict.fromkeys(("RANK", "Column", "Ranked", "Table", "stacked"), _TABLES),
}
"""Names that are imported when they are used: a reader needs no analysis."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'traceconv.plugin' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(globals().keys() | _HOMES.keys())
