"""How long the steps of a job would take after a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from traceconv.alignment import plan as clocks
from traceconv.analysis.replay import what_if as replayed
from traceconv.analysis.replay.graph import Unusable
from traceconv.analysis.replay.job import replay_of
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api.reading import read
from traceconv.core.errors import EmptyResultError, Issues
from traceconv.find import registry
from traceconv.io.atomic import check
from traceconv.io.storage import redact_url
from traceconv.merging.merge_ranks import Target
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import WhatIfOptions
from traceconv.writers.output import Written

if TYPE_CHECKING:
    from traceconv.options.arguments import WhatIfArguments


@dataclass(frozen=True)
class WhatIfReport:
    """Steps before and after changes.

    Attributes:
        result: the steps, what they gain, and the replay error.
        plan:   the clocks that it is based on.
        issues: what finding and reading the ranks noted.
        written: the trace of both, if one was requested.
    """

    result: replayed.WhatIf
    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)
    written: Sequence[Written] = ()

    def __repr__(self) -> str:
        return f"<WhatIfReport: {self.result.line()}>"

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **self.result.as_dict(),
            "clocks": self.plan.as_dict(),
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def lines(self) -> list[str]:
        """What people read."""
        return [self.result.line()]

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("what-if", self.lines())


@takes(WhatIfOptions)
def what_if(*paths: values.Paths, **given: Unpack[WhatIfArguments]) -> WhatIfReport:
    """How long the steps of the job below ``paths`` would take with some changes.

    Changes are written as ``rank:3=peers``, ``stage:balanced``, ``op:*gemm* x0.5``,
    ``comm:dp x0.7``, ``comm:* overlap``, ``input:0``; several apply one after the other. ``out``
    is a trace of the job as recorded and with the changes, side by side. Each worker has one rank
    in memory.

    Raises:
        OptionError: an argument or a change is not understood.
        EmptyResultError: nothing can be replayed, or replayed steps are not the recorded ones.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    asked = WhatIfOptions.of(given)
    replayed.refuse_unknown(asked.change)
    target = None
    if asked.out is not None:
        factory = registry.writer_for(asked.out, None)
        target = Target(redact_url(asked.out), factory, asked.force)
        check(target.path, asked.force)
    requested = SummaryRequest(lateness=True)
    found = read(paths, asked, requested, asked.clocks.align, asked.clocks.align_max_error_ns)
    try:
        replay = replay_of(found.summaries, found.plan, found.groups)
    except Unusable as e:
        raise EmptyResultError(f"the job cannot be replayed: {e}") from e
    if not replay.usable:
        raise EmptyResultError(
            f"{replay.error_text}: the replay does not reproduce the recorded steps, so "
            "no prediction is possible"
        )
    result = replayed.what_if(replay, asked.change)
    if target is None:
        return WhatIfReport(result, found.plan, found.issues)
    if result.unknown:
        raise EmptyResultError(f"no trace is written: {result.line()}")
    from traceconv.merging import hypothetical

    report = hypothetical.write(replay, asked.change, found.captures, target, asked.run)
    return WhatIfReport(result, found.plan, found.issues, report.written)
