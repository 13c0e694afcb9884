"""How large the output of a merge would be, from what the writers say that rows cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from traceconv.alignment import plan as clocks
from traceconv.core.errors import Issues
from traceconv.core.model import Capture, Trace
from traceconv.passes import VIEWS, compose
from traceconv.pipeline import registry
from traceconv.pipeline.report import Report
from traceconv.pipeline.spill import RankAccount
from traceconv.pipeline.stages import passed
from traceconv.writers import Document, Writer

FORMATS = ("perfetto", "chrome_json")

Sizes = dict[str, dict[str, int]]
"""Bytes before compression by format and mode."""


class Prediction:
    """Output sizes of ranks, each alone and all in one file: upper bounds, a few percent above.

    Ranks are taken in one at a time, and forgotten but for their accounts.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, dict[int, RankAccount]] = {mode: {} for mode in VIEWS}
        self._rows: dict[tuple[str, str], int] = defaultdict(int)

    def add(self, trace: Trace) -> Sizes:
        """Take in a rank, as it was read.

        Returns:
            What it takes in a file of its own.
        """
        found: Sizes = {name: {} for name in FORMATS}
        for mode in VIEWS:
            view = passed(trace, compose(mode, zero_counters=False))
            account = {trace.rank: RankAccount.of(view)}
            self._accounts[mode].update(account)
            for name in FORMATS:
                rows = _rows(view, registry.writer_named(name))
                self._rows[name, mode] += rows
                found[name][mode] = rows + _head(mode, account, registry.writer_named(name))
        return found

    def whole(self) -> Sizes:
        """What all ranks take in one file; {} if there are none."""
        return {
            name: {
                mode: self._rows[name, mode] + _head(mode, accounts, registry.writer_named(name))
                for mode, accounts in self._accounts.items()
            }
            for name in FORMATS
            if any(self._accounts.values())
        }


def _rows(trace: Trace, writer: Callable[[], Writer]) -> int:
    """Bytes of everything but the head."""
    span = trace.span()
    document = Document(span[0] if span else 0, (trace.rank,))
    costs = writer().costs(trace, document)
    rows = sum(int(column.sum()) for column in (costs.events, costs.counters, costs.flows))
    return costs.fixed + rows - _ends(document, writer)


def _head(mode: str, ranks: Mapping[int, RankAccount], writer: Callable[[], Writer]) -> int:
    """Bytes before and behind all ranks, with the metadata of the file."""
    captures: Sequence[Capture] = [one.capture for one in ranks.values()]
    report = Report.of(mode, captures, "", Issues(), clocks.plan(captures, "auto"))
    for rank, known in ranks.items():
        report.add(rank, known)
    base_ns = min((one.span[0] for one in ranks.values() if one.span), default=0)
    metadata: dict[str, Any] = report.metadata(base_ns, ranks)
    return _ends(replace(Document(base_ns, tuple(ranks)), facts=metadata), writer)


def _ends(document: Document, writer: Callable[[], Writer]) -> int:
    one = writer()
    return len(one.begin(document)) + len(one.end())
