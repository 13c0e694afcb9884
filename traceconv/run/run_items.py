"""The items of a run, from its captures or from a report that keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from traceconv.analysis.diff.runs import Run
from traceconv.analysis.diff.stored import restored
from traceconv.analysis.inferred_shape import stated_shape
from traceconv.analysis.rank_summary import RankSummary
from traceconv.core.errors import MalformedInputError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source

_REPORT = lazy_regex(rb'\{\s*"schema_version": ?\d+,\s*"traceconv": ?"')
_HEAD_BYTES = 4096


def is_report(source: Source) -> bool:
    """Whether the path names a report that traceconv wrote as JSON."""
    if not source.lone:
        return False
    return any(_REPORT.match(source.head(name, _HEAD_BYTES)) for name in source.names()[:1])


def of_report(source: Source) -> Run:
    """The run whose items a report keeps.

    Raises:
        SourceError: it cannot be read.
        MalformedInputError: it keeps none, or is broken.
    """
    try:
        document = orjson.loads(source.read(source.names()[0]))
    except orjson.JSONDecodeError as e:
        raise MalformedInputError(source.label, "", f"not JSON: {e}") from e
    if not isinstance(document, dict) or "step_items" not in document:
        why = "keeps no items of steps; a report of a merge with an analysis does"
        raise MalformedInputError(source.label, "", why)
    return restored(document["step_items"], source.label)


def of_summaries(label: str, summaries: Sequence[RankSummary]) -> Run:
    """The run of ranks whose summaries have items of steps."""
    size = max((summary.world_size for summary in summaries), default=-1)
    items = {summary.rank: summary.items for summary in summaries}
    return Run.of(label, items, size, stated_shape(summaries))
