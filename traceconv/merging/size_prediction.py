"""How large the output of a merge would be, from what the writers say that rows cost: upper bounds,
a few percent above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from traceconv.alignment import plan as clocks
from traceconv.core.model import Capture, Trace
from traceconv.find import registry
from traceconv.merging.run_report import known_issues, trace_metadata
from traceconv.passes import VIEWS, compose
from traceconv.run.spill import RankAccount
from traceconv.run.stages import passed
from traceconv.writers import Document, Writer

FORMATS = ("perfetto", "chrome_json")

Sizes = dict[str, dict[str, int]]
"""Bytes before compression by format and mode."""


class Prediction(msgspec.Struct, frozen=True):
    """The predicted size of the output of one rank, and the data to predict that of several.

    Attributes:
        accounts: by mode.
        rows:  bytes of everything except the head of the file.
        alone: bytes in a separate file.
    """

    accounts: dict[str, RankAccount]
    rows: Sizes
    alone: Sizes

    @classmethod
    def of(cls, trace: Trace) -> Prediction:
        """The prediction for a rank, as it was read."""
        prediction = cls({}, {name: {} for name in FORMATS}, {name: {} for name in FORMATS})
        for mode in VIEWS:
            view = passed(trace, compose(mode, zero_counters=False))
            account = prediction.accounts[mode] = RankAccount.of(view)
            for name in FORMATS:
                writer = registry.writer_named(name)
                span = view.span()
                document = Document(span[0] if span else 0, (view.rank,))
                costs = writer().costs(view, document)
                columns = costs.events, costs.counters, costs.flows
                rows = costs.fixed + sum(int(c.sum()) for c in columns) - _ends(document, writer)
                prediction.rows[name][mode] = rows
                prediction.alone[name][mode] = rows + _head(mode, {trace.rank: account}, writer)
        return prediction


def together(predictions: Mapping[int, Prediction]) -> Sizes:
    """The size of all ranks in one file; {} without ranks."""
    return {
        name: {
            mode: sum(prediction.rows[name][mode] for prediction in predictions.values())
            + _head(
                mode,
                {rank: prediction.accounts[mode] for rank, prediction in predictions.items()},
                registry.writer_named(name),
            )
            for mode in VIEWS
        }
        for name in FORMATS
        if predictions
    }


def _head(mode: str, ranks: Mapping[int, RankAccount], writer: Callable[[], Writer]) -> int:
    """Bytes before and behind all ranks, with the metadata of the file."""
    captures: Sequence[Capture] = [account.capture for account in ranks.values()]
    clock = clocks.plan(captures, "auto")
    base_ns = min((account.span[0] for account in ranks.values() if account.span), default=0)
    issues = known_issues((), clock, ranks)
    facts = trace_metadata(mode, captures, clock, issues, base_ns, ranks)
    return _ends(Document(base_ns, tuple(ranks), facts), writer)


def _ends(document: Document, writer: Callable[[], Writer]) -> int:
    file_writer = writer()
    return len(file_writer.begin(document)) + len(file_writer.end())
