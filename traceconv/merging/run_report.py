"""The report of a run: lines for people, one document for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from traceconv.core.clock import time_text
from traceconv.core.codes import Severity
from traceconv.core.columns import OverlapSums, OverlapTimes
from traceconv.core.errors import Issue, Issues
from traceconv.core.job_shape import NODE, JobShape, Origin
from traceconv.core.model import UNKNOWN, Capture, Coverage, Hints, StepTable
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.version import REPORT, __version__
from traceconv.find.capture_ranks import shape_of_captures

if TYPE_CHECKING:
    from traceconv.alignment.plan import Plan as ClockPlan
    from traceconv.run.spill import RankAccount
    from traceconv.writers import DroppedRows
    from traceconv.writers.output import Written

_FEWEST = 3
"""Steps of a rank whose scatter is known."""

_CERTAIN = 4.0
"""Standard errors that a difference needs to be significant, given the many ranks of a job."""

WINDOWS_KEPT = 200
"""Most collection windows per rank that are listed in trace metadata."""


@dataclass(frozen=True)
class Report:
    """The account of one merge, made when it is done.

    Attributes:
        mode:     "summary", "detail" or "source".
        ranks:    in the output, ascending.
        output:   the file asked for; parts carry a number.
        world_size: ranks of the job, -1 if unknown.
        captures: per rank: reader, label, host, device, what named the rank.
        shape:    coordinates of the ranks, as their captures state them.
        clock:    method, and per rank the offset in ns and its evidence.
        issues:   everything lost or in doubt, of all ranks.
        found:    per rank, what its reader noted and its passes found (steps, overlap).
        dropped:  events that the size limit left out.
        written:  the files: path, bytes, rows.
        overview: the analysis, if one was requested; see
            :func:`traceconv.report.run_summary.overview`.
        step_items: what every nanosecond of the steps went to, with an analysis; see
            :mod:`traceconv.analysis.diff.stored`.
        headline: what costs most and what to do, or where the job hangs; "" if nothing is named.
        lost:     the losses of the steps, with the waits that an analysis explains; "" without one.
        verdict:  why no rank is named; "" if one is, or ranks were not compared.
    """

    mode: str
    ranks: tuple[int, ...]
    output: str
    world_size: int = -1
    captures: Sequence[dict[str, Any]] = ()
    shape: JobShape = field(default_factory=JobShape)
    clock: Mapping[str, Any] = field(default_factory=dict)
    issues: Issues = field(default_factory=Issues)
    found: Mapping[int, RankAccount] = field(default_factory=dict)
    dropped: Sequence[DroppedRows] = ()
    written: Sequence[Written] = ()
    overview: Mapping[str, Any] | None = None
    step_items: Mapping[str, Any] | None = None
    headline: str = ""
    lost: str = ""
    verdict: str = ""

    @classmethod
    def of(
        cls, mode: str, output: str, captures: Sequence[Capture], clock: ClockPlan, issues: Issues,
        *, found: Mapping[int, RankAccount] = MappingProxyType({}),
        dropped: Sequence[DroppedRows] = (), written: Sequence[Written] = (),
        overview: Mapping[str, Any] | None = None, step_items: Mapping[str, Any] | None = None,
        headline: str = "", lost: str = "", verdict: str = "",
    ) -> Report:  # fmt: skip
        """The report of a run on ``captures``."""
        return cls(
            mode, tuple(c.rank for c in captures if c.rank is not None), output,
            max((c.world_size for c in captures), default=-1), [described(c) for c in captures],
            shape_of_captures(captures), clock.as_dict(), issues, found, dropped, written, overview,
            step_items, headline, lost, verdict,
        )  # fmt: skip

    def __repr__(self) -> str:
        ranks = f"rank{'s' * (len(self.ranks) != 1)} {format_ranges(self.ranks)}"
        wrote = ", ".join(str(output_file.path) for output_file in self.written) or "nothing"
        return f"<Report: {self.mode} of {ranks}, wrote {wrote}>"

    @property
    def ledger(self) -> dict[int, dict[str, dict[str, int]]]:
        """Per rank, what every stage added or took away, by kind of row."""
        stages: dict[int, dict[str, dict[str, int]]] = {}
        for rank, account in self.found.items():
            of_rank = stages.setdefault(rank, {})
            for (stage, kind), rows in account.ledger.items():
                of_rank.setdefault(stage, {})[kind] = rows
        return stages

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of a run."""
        return {
            "schema_version": REPORT,
            "traceconv": __version__,
            "mode": self.mode,
            "ranks": list(self.ranks),
            "captures": list(self.captures),
            "clock": dict(self.clock),
            "ledger": {str(r): stages for r, stages in self.ledger.items()},
            "notes": {str(rank): _noted(account) for rank, account in self.found.items()},
            "dropped": list(self.dropped),
            "issues": [issue.as_dict() for issue in self.issues],
            "written": [w.as_dict() for w in self.written],
            **({} if self.overview is None else {"overview": self.overview}),
            **({} if self.step_items is None else {"step_items": self.step_items}),
        }

    def _repr_html_(self) -> str:
        """The printed report, as HTML for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html(
            "traceconv report", [*self.lines(), *(f"wrote {w.path}" for w in self.written)]
        )

    def lines(self) -> list[str]:
        """The few lines a user reads after a merge, without issues and files."""
        is_plural = len(self.ranks) != 1
        kinds = ", ".join(sorted({c["reader"] for c in self.captures}))
        whose = f"rank{'s' * is_plural} {format_ranges(self.ranks)} ({kinds}), "
        whose += "as recorded" if self.mode == "source" else f"{self.mode} view"
        what = "; ".join(filter(None, (whose, steps_text(self.found))))
        named = bool(self.headline)
        lost = self.lost or ("" if named else self._headline())
        unnamed = self.verdict or ("" if named else self._slowest())
        lines = list(filter(None, (self.headline, what, lost, unnamed)))
        if is_plural:
            text = self.clock.get("text", "none")
            known, unused, why = text.partition("; collectives not used")
            few = unused and why.endswith("needed")  # too few to align by is usual
            lines.append(f"clock: {f'{known}{unused} (traceconv align: why)' if few else text}")
        return [*lines, *self._emptiness()]

    def _emptiness(self) -> list[str]:
        """What to do about a summary that has nothing to sum up."""
        lines, n_ranks = [], len(self.ranks)
        without = Counter[str]()
        for issue in self.issues:
            without[issue.code] += issue.count
        if self.mode == "summary" and self.found and without["no-device-events"] >= n_ranks:
            lines.append(
                'no device work is known, so this view has steps only; `mode="detail"` has all'
            )
        own_log = any(capture["reader"] == "event_log" for capture in self.captures)
        if own_log and without["no-steps"] >= n_ranks:
            lines.append(
                "no steps are marked: `step_marker` finds ranges of the host, not device work; "
                "give such rows the kind step, or host"
                if without["step-marker-unmatched"]
                else "no steps are marked: give rows the kind step, or name them with `step_marker`"
            )
        unknown = without["no-device-events"] + without["computing-unknown"]
        if own_log and unknown >= n_ranks:
            lines.append(
                "nothing in this log says what is device work: add kind=COLUMN (its values: "
                "compute, comm, memcpy, gpu, host, step ...), kind='gpu' for all rows, or "
                "stream=COLUMN to `mapping`"
            )
        return lines

    def _headline(self) -> str:
        """The time that steps lose, waiting for slow ranks included; "" without device data."""
        from traceconv.analysis.losses import losses
        from traceconv.report.headline import headline

        losses_by_rank = {
            rank: losses(account.steps, account.overlap, account.coverage.devices)
            for rank, account in self.found.items()
        }
        if not any(lost.steps for lost in losses_by_rank.values()):
            return ""
        return headline(losses_by_rank, job_size=self.world_size)

    def _slowest(self) -> str:
        """The rank that computes longest per step, where that is more than steps scatter."""
        computing = {rank: _computing(account.steps) for rank, account in self.found.items()}
        computing = {
            rank: mean_and_variance
            for rank, mean_and_variance in computing.items()
            if mean_and_variance[0] > 0
        }
        if len(computing) < 2:
            return ""
        slow = max(computing, key=lambda rank: computing[rank][0])
        others_computing = [
            mean_and_variance for rank, mean_and_variance in computing.items() if rank != slow
        ]
        usual = sum(mean for mean, _ in others_computing) / len(others_computing)
        slowest, variance = computing[slow]
        doubt = (
            _CERTAIN
            * (variance + sum(v for _, v in others_computing) / len(others_computing) ** 2) ** 0.5
        )
        if slowest - usual <= doubt:
            return ""
        return f"rank {slow} computes longest: {time_text(slowest)} per step; " + (
            f"the others {time_text(usual)} on average"
            if len(others_computing) > 1
            else f"the other {time_text(usual)}"
        )


def known_issues(
    issues: Iterable[Issue], clock: ClockPlan, found: Mapping[int, RankAccount]
) -> Issues:
    """The issues known before anything is written: from finding and reading captures, from
    aligning their clocks, and of each rank.
    """
    all_issues = Issues()
    all_issues.extend(issues)
    all_issues.extend(clock.issues)
    for rank, account in found.items():
        all_issues.extend(account.issues, rank=rank)
    return all_issues


def steps_text(found: Mapping[int, RankAccount]) -> str:
    """How many steps each rank has; "" if none has any."""
    counts: dict[str, list[int]] = {}
    for rank, account in found.items():
        marked = account.steps.marked
        graphs = np.unique(account.steps.graph[marked], return_counts=True)
        pairs = zip(*(column.tolist() for column in graphs), strict=True)
        counts_by_graph = [f"{n} of graph {g}" if g >= 0 else str(n) for g, n in pairs]
        text = " + ".join(counts_by_graph) or ("none marked" if len(marked) else "none")
        counts.setdefault(text, []).append(rank)
    covered = sorted({account.coverage.text for account in found.values()} - {""})
    data = f" ({' or '.join(covered)})" if covered else ""
    if counts.keys() <= {"none"}:
        return ""
    several = len(counts) > 1
    texts = [
        f"{text} on rank{'s' * (len(ranks) > 1)} {format_ranges(ranks)}" if several else text
        for text, ranks in counts.items()
    ]
    return f"steps per rank: {', '.join(texts)}{data}"


def trace_metadata(
    mode: str, captures: Sequence[Capture], clock: ClockPlan, issues: Issues, base_ns: int,
    found: Mapping[int, RankAccount],
) -> dict[str, Any]:  # fmt: skip
    """The document that is written as trace metadata. Equal inputs give equal documents.

    Args:
        issues:  so far, see :func:`known_issues`.
        base_ns: the instant that is 0 in the trace.
        found:   what is known of each rank.
    """
    counts: Counter[str] = Counter()
    for account in found.values():
        counts.update(account.counts)
    grave = [issue for issue in issues if issue.severity is not Severity.INFO]
    tally: Counter[str] = Counter()
    for issue in grave:
        tally[issue.code] += issue.count
    of_job = [
        [issue.code, issue.file, issue.count, list(issue.places)]
        for issue in grave
        if issue.rank < 0
    ]
    return {
        "version": __version__,
        "base_ns": str(base_ns),
        "ranks": format_ranges([c.rank for c in captures if c.rank is not None]),
        **_coordinates(captures),
        "mode": mode,
        **({"steps": steps} if (steps := steps_text(found)) else {}),
        "clock": clock.as_dict(),
        "counts": dict(counts),
        "issues": dict(tally),
        **({"job_issues": of_job} if of_job else {}),
        "dropped": [],
        "windows": {
            str(rank): (account.windows - base_ns).tolist()
            if len(account.windows) <= WINDOWS_KEPT
            else []
            for rank, account in found.items()
        },
    }


def _coordinates(captures: Sequence[Capture]) -> dict[str, Any]:
    """What trace metadata says of the places of ranks: axes with their size, the values of each
    rank (-1 where unknown), and jobs that state the same ranks. Nothing where none is known.
    """
    shape = shape_of_captures(captures)
    axes = [axis for axis in shape.axes if axis.origin is Origin.RECORDED and axis.name != NODE]
    jobs = [*dict.fromkeys(c.placement.job for c in captures if c.placement.job)]
    if not (axes or jobs):
        return {}
    places = [shape.column(axis.name) for axis in axes]
    values = np.stack(places, axis=1).tolist() if axes else [[]] * len(shape.captured)
    return {
        "coordinates": {
            "axes": [[axis.name, axis.size] for axis in axes],
            "ranks": dict(zip(map(str, shape.ranks.tolist()), values, strict=True)),
            **({"jobs": jobs} if jobs else {}),
        }
    }


def _computing(steps: StepTable) -> tuple[float, float]:
    """Mean computing time of the measured steps, ns, and the variance of that mean; NaN for few."""
    from traceconv.analysis.utilisation import measured

    computing = measured(steps).computing_ns.astype(np.float64)
    if len(computing) < _FEWEST:
        return np.nan, np.nan
    return float(computing.mean()), float(computing.var(ddof=1)) / len(computing)


def _noted(account: RankAccount) -> dict[str, Any]:
    """The part of the document about a rank, as JSON values."""
    facts = {
        "graphs_found": account.present.graphs.tolist(),
        "steps_found": account.present.steps.tolist(),
        "steps_total": account.present.iterations,
        "steps": _steps(account.steps),
        "coverage": _coverage(account.coverage),
    }
    overlap = {} if account.overlap is None else {"overlap": _overlap(account.overlap)}
    return {**_hinted(account.hints), **account.notes, **facts, **overlap}


def _hinted(hints: Hints) -> dict[str, Any]:
    """The hints that are known. Shares of the CPU are shown as the source wrote them."""
    shown = {
        "vendor": hints.vendor,
        "free_rule": hints.free_rule,
        "partial_device": hints.partial_device,
        "range_names": list(hints.range_names),
        "phase_names": dict(hints.phase_names),
        "device_memory_bytes": {str(n): size for n, size in hints.device_memory_bytes.items()},
    }
    return {key: value for key, value in shown.items() if value}


def _steps(steps: StepTable) -> list[dict[str, int | None]]:
    """One object per step. Unknown values are null; figures that no step has are left out, and so
    is the graph of steps without one."""
    known_lengths = [
        name for name in steps.shown_lengths() if (getattr(steps, name) != UNKNOWN).any()
    ]
    places = ("graph", "step", "window", "start_ns", "dur_ns", "device_start_ns", "device_dur_ns")
    names = (*places, *known_lengths)
    rows = zip(*(getattr(steps, name).tolist() for name in names), strict=True)
    return [
        {
            name: None if name in ("graph", *known_lengths) and value == UNKNOWN else value
            for name, value in zip(names, row, strict=True)
        }
        for row in rows
    ]


def _coverage(coverage: Coverage) -> dict[str, Any]:
    """Which steps have device data, and the recorded spans of each layer, ns."""
    return {
        "steps": coverage.steps,
        "recorded": coverage.recorded,
        "vendor": coverage.vendor,
        "layers": {str(layer): [list(span) for span in spans]
                   for layer, spans in coverage.layers.items()},
    }  # fmt: skip


def _overlap(sums: OverlapSums) -> dict[str, Any]:
    vendor = sums.vendor_sums_ns
    return {
        "free_rule": sums.free_rule,
        "spans": sums.spans,
        "sums_ns": _times(sums.sums_ns),
        "idle_ns": sums.idle_ns,
        "vendor_sums_ns": None if vendor is None else _times(vendor),
    }


def _times(sums: OverlapTimes) -> dict[str, int]:
    """The lengths by class; of unclassified tasks only where there are any."""
    lengths = sums._asdict()
    return (
        lengths
        if sums.unclassified
        else {k: ns for k, ns in lengths.items() if k != "unclassified"}
    )


def described(capture: Capture) -> dict[str, Any]:
    """A capture as JSON values; None for unknown values."""
    read = capture.files or [name for files in capture.tables.values() for name in files]
    return {
        "rank": capture.rank,
        "rank_from": capture.rank_from or None,
        "reader": capture.reader,
        "label": capture.title,
        "host": capture.host or None,
        "device": capture.device if capture.device >= 0 else None,
        "graphs": list(capture.graphs),
        "clock": str(capture.clock.domain) if capture.clock else "unknown",
        **({"content": capture.content} if capture.content else {}),
        "files": list(capture.files),
        "bytes": sum(capture.source.size(name) for name in dict.fromkeys(read)),
    }
