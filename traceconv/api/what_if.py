"""How long the steps of a job would take after a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from traceconv.alignment import plan as clocks
from traceconv.analysis.replay import what_if as replayed
from traceconv.analysis.replay.graph import Unusable
from traceconv.analysis.replay.job import replay_of
from traceconv.analysis.replay.remedies import Remedy
from traceconv.analysis.stragglers.judging import judge
from traceconv.analysis.summarize import SummaryRequest
from traceconv.api.reading import read
from traceconv.core.clock import time_text
from traceconv.core.errors import EmptyResultError, Issues
from traceconv.core.markup import aligned
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
        result: the steps, what they gain, and the replay error. Without a change, the steps are
            those recorded.
        plan:   the clocks that it is based on.
        issues: what finding and reading the ranks noted.
        written: the trace of both, if one was requested.
        suggested: the changes that gain most, where none was given.
    """

    result: replayed.WhatIf
    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)
    written: Sequence[Written] = ()
    suggested: Sequence[Remedy] = ()

    def __repr__(self) -> str:
        if self.result.changes:
            return f"<WhatIfReport: {self.result.line()}>"
        gains = [f"{o.change.change} saves {time_text(o.gain_ns)}" for o in self.suggested]
        return f"<WhatIfReport: {'; '.join(gains) or 'no change gains 1 %'} per step>"

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **self.result.as_dict(),
            **({} if self.result.changes else {"suggested": [o.as_dict() for o in self.suggested]}),
            "clocks": self.plan.as_dict(),
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def lines(self) -> list[str]:
        """What people read."""
        note = [f"note: {self.result.cut}"] * bool(self.result.cut)
        if self.result.changes:
            return [self.result.line(), *note]
        if not self.suggested:
            return ["no change saves 1 % of a step", *note]
        rows = [
            (remedy.change.change, time_text(remedy.gain_ns), f"{100 * remedy.share:.2g} %",
             remedy.change.advice)
            for remedy in sorted(self.suggested, key=lambda remedy: -remedy.gain_ns)
        ]  # fmt: skip
        before = time_text(float(np.mean(self.result.before_ns)))
        whole = "" if self.result.cut else " (a step of all ranks with the gap before it)"
        return [
            f"changes that save most, each by itself, of {before}{whole}:",
            *aligned(rows, (0, 3)),
            *note,
        ]

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("what-if", self.lines())


@takes(WhatIfOptions)
def what_if(*paths: values.Paths, **keywords: Unpack[WhatIfArguments]) -> WhatIfReport:
    """How long the steps of the job below ``paths`` would take with some changes.

    Changes are written as ``rank:3=peers``, ``stage:balanced``, ``op:*gemm* x0.5``,
    ``comm:dp x0.7``, ``comm:* overlap``, ``input:0``; several apply one after the other; without
    any, the result has the changes that gain most. ``out``
    is a trace of the job as recorded and with the changes, side by side. Each worker has one rank
    in memory.

    Raises:
        OptionError: an argument or a change is not understood.
        EmptyResultError: nothing can be replayed, or replayed steps are not the recorded ones.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    options = WhatIfOptions.of(keywords)
    if options.change or options.out is not None:
        replayed.refuse_unknown(options.change)
    target = None
    if options.out is not None:
        factory = registry.writer_for(options.out, None)
        target = Target(redact_url(options.out), factory, options.force)
        check(target.path, options.force)
    requested = SummaryRequest(lateness=True)
    job = read(paths, options, requested, options.clocks.align, options.clocks.align_max_error_ns)
    try:
        replay = replay_of(job.summaries, job.plan, job.groups, once=job.once)
    except Unusable as e:
        raise EmptyResultError(f"the job cannot be replayed: {e}") from e
    if not replay.usable:
        raise EmptyResultError(f"no prediction is possible: {replay.too_wrong}")
    result = replayed.what_if(replay, options.change)
    if not options.change:
        verdict = judge(job.summaries, job.plan, job.groups, replay=replay, once=job.once)
        return WhatIfReport(result, job.plan, job.issues, suggested=verdict.remedies())
    if not target:
        return WhatIfReport(result, job.plan, job.issues)
    if result.unknown:
        raise EmptyResultError(f"no trace is written: {result.line()}")
    from traceconv.merging import hypothetical

    report = hypothetical.write(replay, options.change, job.captures, target, options.run)
    return WhatIfReport(result, job.plan, job.issues, report.written)
