"""Which chain of compute, communication and waiting bounds the steps of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from msgspec.structs import replace

from traceconv.alignment import plan as clocks
from traceconv.alignment.collective_matching import matched
from traceconv.alignment.offsets import stamped
from traceconv.analysis.critical_path import path_tables, walk
from traceconv.analysis.summarize import SummaryRequest
from traceconv.analysis.tables.definition import Result, data_of
from traceconv.api import options
from traceconv.api.reading import RankArguments, asked
from traceconv.core.errors import Issues, OptionError
from traceconv.core.side_tables import DataTable
from traceconv.find.rank_selection import refuse_missing
from traceconv.report import table_text
from traceconv.run.summaries import Summarizing, found_numbers, spans_of


@dataclass(frozen=True)
class CriticalPath:
    """What bounds the steps of a job.

    Attributes:
        path:    the stretches, and why there are none.
        results: tables: "steps", "ranks", "segments"; those that were asked for.
        plan:    the clocks it is based on.
        issues:  what finding and reading the ranks noted.
    """

    path: walk.Path
    results: tuple[Result, ...]
    plan: clocks.Plan
    issues: Issues = field(default_factory=Issues)

    @property
    def why(self) -> str:
        """Why there is no path; "" if there is one."""
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
        """What it comes to, steps that are left out, and what would say more."""
        left_out: dict[str, list[int]] = {}
        for (number, _), why in self.path.left_out.items():
            left_out.setdefault(why, []).append(number)
        unchecked: dict[str, list[int]] = {}
        for (number, _), ranks in self.path.unchecked.items():
            whose = ", ".join(map(self.path.shape.called, ranks[:4]))
            unchecked.setdefault(whose + " ..." * (len(ranks) > 4), []).append(number)
        return [
            path_tables.line(self.path),
            *(f"without {_steps(n)}: {why}" for why, n in left_out.items()),
            *(f"{_steps(n)}: a part is outside of what the clock of {whose} was checked by: one "
              "that was set would not show there" for whose, n in unchecked.items()),
            *self._advice(),
        ]  # fmt: skip

    def _advice(self) -> list[str]:
        """What a user may know that no capture states."""
        advice = []
        if walk.UNKNOWN_ERROR in self.path.why:
            advice.append('if you know how far the clocks may be off: `clock_error_ns="50us"`')
        if any(one.why == walk.UNKNOWN_SIZE for one in self.path.segments):
            advice.append("if you know how many ranks the job has: `world_size=N`")
        return advice

    def _repr_html_(self) -> str:
        """What is printed for people, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("critical path", self.lines())


def critical_path(
    *paths: options.Paths,
    by: options.Names = ("steps", "ranks", "segments"),
    align: options.Align = "auto",
    align_max_error_ns: options.Length | None = None,
    clock_error_ns: options.Length | None = None,
    world_size: int | None = None,
    ranks: options.Ranks | None = None,
    steps: options.Numbers | None = None,
    top: int | None = None,
    step_marker: str | None = None,
    **given: Unpack[RankArguments],
) -> CriticalPath:
    """What chain of compute, communication and waiting bounds the steps of the job below ``paths``.

    The path of a step begins where its last rank ends and goes back: over the rank's own work to
    the communication that it waited for, to the rank that came last to that, and so on to the
    start of the step. Its stretches tile the step to the ns. Where it is not decided how the path
    goes on, that is said, and what depends on it is not certain.

    Args:
        by:    tables: "steps", "ranks", "segments", or "all".
        clock_error_ns: how far clocks may be off of which nothing says it, ns or ``"50us"``; None:
            what collectives bound it to, and the path is unknown where there are none.
        world_size: ranks of the job, for captures that do not state it: where all of them have a
            capture, groups without a size that all ranks know have all of them as members.
        steps: only the paths of these steps.
        top:   rows kept of the stretches; None = all.

    The other arguments, :class:`.RankArguments`, are those of :func:`traceconv.merge`. Each worker
    has one rank in memory.

    Raises:
        OptionError: an argument is not understood; there is no such table.
        SelectionError: a step is in none of the ranks.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    names = path_tables.chosen(options.words(by, "by") or ())
    reading = asked(given)
    kept, most = options.numbers(steps, "steps"), options.count(top, "top")
    how, error = options.align(align), options.length(align_max_error_ns, "align_max_error_ns")
    assumed = options.length(clock_error_ns, "clock_error_ns")
    size = options.count(world_size, "world_size")
    view = {"mode": "detail", "step_marker": options.pattern(step_marker, "step_marker")}
    work = Summarizing(SummaryRequest(lateness=True, path=True), view, reading.comm_patterns)
    with reading.opened(*paths, ranks=ranks) as every:
        read, summaries = every.summaries(work)
    refuse_missing({"step": kept}, found_numbers(summaries))
    reading.run.progress(0, 0, "following the path")
    groups = tuple(matched([one.collectives for one in summaries], stamped(read)))
    records = [one.collectives for one in summaries]
    plan = clocks.plan(read, how, records, error, groups, spans_of(summaries))
    every.issues.extend(plan.issues)
    if size is not None:
        _refuse_another(size, [one.world_size for one in summaries])
    path = walk.of_job(summaries, plan, groups, read, assumed, size)
    if kept is not None:
        path = replace(
            path,
            steps={step: one for step, one in path.steps.items() if step[0] in kept},
            segments=tuple(one for one in path.segments if one.step[0] in kept),
            left_out={step: why for step, why in path.left_out.items() if step[0] in kept},
            unchecked={step: r for step, r in path.unchecked.items() if step[0] in kept},
        )
    return CriticalPath(path, path_tables.results(path, names, most), plan, every.issues)


def _steps(numbers: Sequence[int]) -> str:
    some = f"{', '.join(map(str, numbers[:10]))}{' ...' * (len(numbers) > 10)}"
    return f"step{'s' * (len(numbers) > 1)} {some}"


def _refuse_another(size: int, stated: Sequence[int]) -> None:
    """Raise OptionError for a number of ranks that captures rule out."""
    known = max(stated)
    if known > 0 and known != size:
        raise OptionError(f"the captures state {known} ranks of the job, not {size}", "world_size")
    if size < len(stated):
        raise OptionError(f"{len(stated)} ranks have a capture, more than {size}", "world_size")
