"""Which chain of compute, communication and waiting bounds the steps of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import structs

from traceconv.alignment import plan as clocks
from traceconv.analysis.critical_path import path_tables, walk
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables.definition import Result, data_of
from traceconv.api.reading import Read, read
from traceconv.core.errors import Issues, OptionError, SelectionError
from traceconv.core.side_tables import DataTable
from traceconv.find.rank_selection import refuse_missing
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.groups import Selection
from traceconv.options.verbs import CriticalPathOptions
from traceconv.report import table_text
from traceconv.run.summaries import found_numbers

if TYPE_CHECKING:
    from traceconv.options.arguments import CriticalPathArguments


@dataclass(frozen=True, repr=False)
class CriticalPath:
    """What bounds the steps of a job.

    Attributes:
        path:    the intervals, or why the path is unknown.
        results: tables: "steps", "ranks", "segments"; only the selected ones.
        plan:    the clocks it is based on.
        issues:  what finding and reading the ranks noted.
    """

    path: walk.Path
    results: tuple[Result, ...]
    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)

    def __repr__(self) -> str:
        found = self.why or f"{len(self.path.steps)} steps"
        return f"<CriticalPath: {found}; {', '.join(r.table.name for r in self.results)}>"

    @property
    def why(self) -> str:
        """Why the path is unknown; "" if it is known."""
        return self.path.why

    def __getitem__(self, name: str) -> DataTable:
        """The columns of a table.

        Raises:
            KeyError: it was not requested; the message names those there are.
        """
        return data_of(self.results, name)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            **path_tables.document(self.path),
            **table_text.document(self.results),
            "clocks": self.plan.as_dict(),
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def lines(self) -> list[str]:
        """The summary, the steps that are left out, and advice."""
        left_out: dict[str, list[int]] = {}
        for (number, _), why in self.path.left_out.items():
            left_out.setdefault(why, []).append(number)
        unchecked: dict[str, list[int]] = {}
        for (number, _), ranks in self.path.unchecked.items():
            names = ", ".join(map(self.path.shape.called, ranks[:4]))
            unchecked.setdefault(names + " ..." * (len(ranks) > 4), []).append(number)
        return [
            path_tables.line(self.path),
            *[f"note: {self.path.cut}"] * bool(self.path.cut),
            *(f"without {_steps(n)}: {why}" for why, n in left_out.items()),
            *(f"{_steps(n)}: a clock change of {names} in a part of it would go unnoticed"
              for names, n in unchecked.items()),
            *self._advice(),
        ]  # fmt: skip

    def _advice(self) -> list[str]:
        """Options for facts that no capture states."""
        advice = []
        whys = {segment.why for segment in self.path.segments}
        if walk.UNKNOWN_ERROR in whys:
            advice.append('if you know how far the clocks may be off: `clock_error_ns="50us"`')
        if walk.UNKNOWN_SIZE in whys:
            advice.append("if you know how many ranks the job has: `world_size=N`")
        return advice

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("critical path", self.lines())


@takes(CriticalPathOptions)
def critical_path(*paths: values.Paths, **keywords: Unpack[CriticalPathArguments]) -> CriticalPath:
    """What chain of compute, communication and waiting bounds the steps of the job below ``paths``.

    The path of a step begins where its last rank ends and goes back: over the rank's own work to
    the communication that it waited for, to the rank that came last to that, and so on to the
    start of the step. Its intervals tile the step to the ns. Where the data do not decide how it
    continues, the result has the reason, and intervals that depend on it are uncertain.

    Each worker has one rank in memory.

    Raises:
        OptionError: an argument is not understood, or a table does not exist.
        SelectionError: a graph or step is in none of the ranks.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    options = CriticalPathOptions.of(keywords)
    names, selection = path_tables.chosen(options.by), options.view.selection
    every_step = replace(options.view, selection=replace(selection, steps=None, time=None))
    requested, align = SummaryRequest(lateness=True), options.clocks.align
    job = read(
        paths,
        replace(options, view=every_step),
        requested,
        align,
        options.clocks.align_max_error_ns,
    )
    refuse_missing({"step": selection.steps}, found_numbers(job.summaries))
    options.run.progress(0, 0, "following the path")
    size = options.world_size
    if size is not None:
        _refuse_another(size, [summary.world_size for summary in job.summaries])
    path = walk.of_job(
        job.summaries,
        job.plan,
        job.groups,
        job.captures,
        options.clock_error_ns,
        size,
        once=job.once,
    )
    if selection.steps is not None or selection.time is not None:
        path = _within(path, selection, job)
    return CriticalPath(path, path_tables.results(path, names, options.top), job.plan, job.issues)


def _within(path: walk.Path, selection: Selection, job: Read) -> walk.Path:
    """The paths of the steps that are selected.

    Raises:
        SelectionError: no step lies in the window.
    """
    starts = [
        job.plan.offsets[summary.rank].correction.of(summary.span_ns[0])
        for summary in job.summaries
        if summary.span_ns
    ]
    first_ns, last_ns = (
        None if t is None else min(starts, default=0) + t for t in selection.time or (None, None)
    )
    chosen = {
        step
        for step, (start, end, _) in path.steps.items()
        if (selection.steps is None or step[0] in selection.steps)
        and (first_ns is None or start >= first_ns)
        and (last_ns is None or end <= last_ns)
    }
    if path.steps and not chosen:
        raise SelectionError("`time` contains no whole step; pass a longer window")
    return structs.replace(
        path,
        steps={step: item for step, item in path.steps.items() if step in chosen},
        segments=tuple(segment for segment in path.segments if segment.step in chosen),
        left_out={step: why for step, why in path.left_out.items() if step in chosen},
        unchecked={step: r for step, r in path.unchecked.items() if step in chosen},
    )


def _steps(numbers: Sequence[int]) -> str:
    listed = f"{', '.join(map(str, numbers[:10]))}{' ...' * (len(numbers) > 10)}"
    return f"step{'s' * (len(numbers) > 1)} {listed}"


def _refuse_another(size: int, sizes: Sequence[int]) -> None:
    """Raise OptionError for a number of ranks that captures rule out."""
    recorded = max(sizes)
    if recorded > 0 and recorded != size:
        raise OptionError(
            f"the captures state {recorded} ranks of the job, not {size}", "world_size"
        )
    if size < len(sizes):
        raise OptionError(f"{len(sizes)} ranks have a capture, more than {size}", "world_size")
