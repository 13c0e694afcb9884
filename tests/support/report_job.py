"""Reports of simulated jobs: every section has data, and the slow rank is known."""

from dataclasses import replace

import msgspec
import numpy as np
from synthetic_job import UNIX, Job, capture, run, traces

from traceconv.alignment import plan as align
from traceconv.analysis.rank_summary import Excerpts
from traceconv.analysis.summarize import summarize
from traceconv.core.source import RecordedSource
from traceconv.merging.run_report import Report, known_issues
from traceconv.passes import compose
from traceconv.report import html, run_summary
from traceconv.run.stages import passed


def texts(*values):
    """A text column."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def matrix(ranks, transport="HCCS"):
    """Columns of the table "link": all ranks of a group send to all."""
    source, target = (axis.ravel() for axis in np.meshgrid(*[np.arange(ranks)] * 2, indexing="ij"))
    n = len(source)
    time = np.full(n, 1_000_000, np.int64)
    return {
        "Group": texts(*["Group 0"] * n),
        "Operation": texts(*["allReduce"] * n),
        "Source": source,
        "Destination": target,
        "Transport": texts(*[transport] * n),
        "count": np.ones(n, np.int64),
        "total": time,
        "low": time,
        "high": time,
        "m2": np.zeros(n),
        "Bytes": np.arange(n, dtype=np.int64) << 20,
        "Unsized": np.zeros(n, np.int64),
    }


def operators(names):
    """Columns of the table "type": operators of these names."""
    n = len(names)
    total = np.arange(n, 0, -1, dtype=np.int64) * 1_000_000
    return {
        "OP Type": texts(*names),
        "Core Type": texts(*["AI_CORE"] * n),
        "count": np.full(n, 10, np.int64),
        "total": total,
        "low": total // 20,
        "high": total // 5,
        "m2": np.zeros(n),
    }


def curve(title, points=160):
    """A curve of memory in the middle of the job."""
    x = np.arange(points, dtype=np.int64) * 1_000_000 + 1_700_000_000_000_000_000
    y = np.abs(np.sin(np.arange(points) / 9)) * 2**34
    plain = {"title": title, "unit": "B", "axis": "time"}
    return {**{key: texts(*[value] * points) for key, value in plain.items()}, "x": x, "y": y}


def summaries(job, curves=None, **more):
    """The summaries of all ranks of ``job``; ``more`` are columns of tables of every rank."""
    curves = curve("HBM") if curves is None else curves
    for trace in traces(run(job), UNIX):
        one = summarize(passed(trace, compose("detail")), run_summary.request())
        excerpts = Excerpts(one.excerpts.calls, one.excerpts.places, curves)
        yield msgspec.structs.replace(one, tables={**one.tables, **more}, excerpts=excerpts)


def document(job, issues=None, ranks=None, **more):
    """The document of a report on ``job``, or on its first ``ranks``."""
    every = list(summaries(job, **more))[:ranks]
    source = RecordedSource("job", {"x": 1000})
    found = tuple(replace(capture(one.rank, UNIX), source=source) for one in every)
    plan = align.plan(found, "auto", [one.collectives for one in every])
    every_issue = known_issues(issues or (), plan, {})
    judged = run_summary.judge(every, plan, found)
    overview = run_summary.overview(every, plan, every_issue, judged)
    report = Report.of("summary", "trace.pftrace", found, plan, every_issue, overview=overview)
    return report.as_dict()


def small(**more):
    """A job of four ranks, the third of which is slow."""
    job = Job(1, 4, 1, steps=6, jitter=2000, slow=(2, 300_000))
    return document(job, **{"link": matrix(4), "type": operators(["MatMul", "Add"]), **more})


def page(report):
    """The page of a document."""
    return html.page(report)
