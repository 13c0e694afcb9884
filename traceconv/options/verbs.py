"""The options of every verb: its own, and the groups it shares with others.

The command line defines all of these classes at every start, so they have no more methods than they
need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from traceconv.options import values
from traceconv.options.declaration import Group, group, option, same_as
from traceconv.options.groups import (
    Clocks,
    Input,
    Limits,
    MergeOptions,
    Output,
    RunOptions,
    Selection,
    View,
)

# -- finding and writing ------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class InspectOptions(Group):
    """Options of :func:`traceconv.inspect`."""

    title = "Output"

    counts: bool = option(
        False, values.switch, "--counts", usual=True,
        help="Also read every event: counts by kind and layer, steps, graphs, and the size of an "
        "output.",
    )  # fmt: skip
    input: Input = group(Input)
    run: RunOptions = group(RunOptions, without={"allow_missing_ranks", "cache"})


@dataclass(eq=False, repr=False)
class TraceOptions(Group):
    """Options of :meth:`traceconv.Captures.traces`."""

    view: View = group(View, without={"ranks", "time"}, mode="source")
    align: str = same_as(Clocks, "align")
    progress: values.Progress = same_as(RunOptions, "progress")


@dataclass(eq=False, repr=False)
class MergeRequest(Group):
    """Options of :func:`traceconv.merge`."""

    title = "Output"

    output: Output = group(Output)
    dry_run: bool = option(
        False, values.switch, "-n", "--dry-run",
        help="Report what would be done, without reading events.",
    )  # fmt: skip
    shard: tuple[int, int] | None = option(
        None, values.shard, "--shard", metavar="I/N", section="Resources",
        help="Read only share I (from 0) of N, into a folder. `traceconv join` makes the trace of "
        "all these folders.",
    )  # fmt: skip
    copy: bool = option(
        True, values.switch,
        help="Whether trace-event JSON may be copied byte for byte; see `mode`.",
    )  # fmt: skip
    merge_options: MergeOptions = group(MergeOptions, whole=True)
    limits: Limits = group(Limits)
    input: Input = group(Input)
    run: RunOptions = group(RunOptions, without={"cache"})


@dataclass(eq=False, repr=False)
class ConvertRequest(MergeRequest):
    """Options of :func:`traceconv.convert`: a merge that keeps the content of a file as it is."""

    merge_options: MergeOptions = group(MergeOptions, whole=True, mode="source", align="none")


@dataclass(eq=False, repr=False)
class PackOptions(Group):
    """Options of :func:`traceconv.pack`."""

    title = "Output"

    output: Output = group(Output, without={"out", "writer", "strict"})
    views: bool = option(
        False, values.switch, "--views", usual=True,
        help="Also pack the views summary and detail, so that a window of time is cut out of them "
        "at once. The store takes about twice the bytes.",
    )  # fmt: skip
    summaries: bool = option(
        False, values.switch, "--summaries", usual=True,
        help="Also pack a summary of each rank, so that analyses read no events of the store.",
    )  # fmt: skip
    ranks: values.SelectedRanks = same_as(Selection, "ranks")
    comm_patterns: tuple[str, ...] = same_as(View, "comm_patterns")
    input: Input = group(Input)
    run: RunOptions = group(RunOptions, without={"cache"})


@dataclass(eq=False, repr=False)
class JoinOptions(Group):
    """Options of :func:`traceconv.join`."""

    output: Output = group(Output)
    run: RunOptions = group(RunOptions, without={"cache"})


@dataclass(eq=False, repr=False)
class WriteOptions(Group):
    """Options of :func:`traceconv.write`."""

    output: Output = group(Output, without={"out"})
    args: tuple[str, ...] | None = same_as(MergeOptions, "args")
    limits: Limits = group(Limits)
    progress: values.Progress = same_as(RunOptions, "progress")


@dataclass(eq=False, repr=False)
class QueryOptions(Group):
    """Of :func:`traceconv.query`."""

    title = "Query"

    engine: values.QueryEngine = option(
        "auto", values.one_of(*get_args(values.QueryEngine)), "--engine",
        metavar="|".join(get_args(values.QueryEngine)), usual=True,
        help="duckdb: captures of any format, any number of ranks; perfetto: Perfetto's trace "
        "processor, one trace; auto: duckdb if it is installed.",
    )  # fmt: skip
    params: dict[str, object] | None = option(
        None, values.parameters, "--param", metavar="NAME=VALUE", repeated=True, usual=True,
        help="Value of $NAME in the SQL. It is bound, never pasted into the text.",
    )  # fmt: skip
    timeout_ns: int | None = option(
        None, values.length, "--timeout", metavar="60s", section="Resources",
        help="End a statement of duckdb that takes longer.",
    )  # fmt: skip
    merge_options: MergeOptions = group(
        MergeOptions, without={"args", "annotate", "analyse", "layout"}, mode="detail"
    )
    input: Input = group(Input)
    run: RunOptions = group(RunOptions, without={"engine", "engine_address"})


# -- analyses -----------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Analysis(Group):
    """What every analysis of ranks is given."""

    view: View = group(View, without={"mode", "merge_graphs", "scope", "queues"}, mode="detail")
    input: Input = group(Input)
    run: RunOptions = group(RunOptions)


@dataclass(eq=False, repr=False)
class AlignOptions(Group):
    """Options of :func:`traceconv.align`."""

    ranks: values.SelectedRanks = same_as(Selection, "ranks")
    method: str = same_as(Clocks, "align")
    max_error_ns: int | None = same_as(Clocks, "align_max_error_ns")
    comm_patterns: tuple[str, ...] = same_as(View, "comm_patterns")
    input: Input = group(Input)
    run: RunOptions = group(RunOptions)


@dataclass(eq=False, repr=False)
class StatsOptions(Analysis):
    """Options of :func:`traceconv.stats`."""

    title = "Tables"

    by: tuple[str, ...] = option(
        ("step", "overlap"), values.words, "--by", metavar="TABLE,...", complete="tables",
        usual=True,
        help="Which tables: step, overlap, op, type, kernel, shape, flops, module, graph, comm, "
        "link, collective, expert, cluster, idle, launch, range, stack, memory, frequency, "
        "network, data, api, summary, files, a table's name, or all.",
    )  # fmt: skip
    group_by: tuple[str, ...] = option(
        (), values.words, "--group-by", metavar="pp,tp,node,...",
        help="One row for all ranks with equal coordinates. `traceconv inspect` shows which "
        "coordinates are known; ranks without one form one group.",
    )  # fmt: skip
    columns: tuple[str, ...] = option(
        (), values.words, "--columns", metavar="NAME,...", complete="of_columns",
        help="Only these columns, in this order. Tables that have none of them "
        "besides Rank, Graph, Step and Window are left out.",
    )  # fmt: skip
    sort: tuple[str, ...] = option(
        (), values.words, "--sort", metavar="NAME[:asc|:desc],...", complete="of_columns",
        help="Sort rows by these columns. Numbers sort descending, text ascending, unless given; "
        "unknown values are at the end.",
    )  # fmt: skip
    filters: tuple[str, ...] = option(
        (), values.texts, "--filter", metavar="NAME=VALUE", repeated=True, complete="of_columns",
        help="Only rows for which this holds: = != < <= > >=, or ~ and !~ for regular "
        "expressions. Times and sizes have units ('Total Time>1ms'). All filters must hold; "
        "unknown values pass none.",
    )  # fmt: skip
    top: int | None = option(
        None, values.rows, "--top", metavar="N|all", usual=True,
        help="Most rows of a long table: per rank, or in total if sorted.",
    )  # fmt: skip
    view: View = group(View, without={"mode", "merge_graphs", "scope", "queues"}, mode="detail")
    align: str = same_as(Clocks, "align", default="none")


@dataclass(eq=False, repr=False)
class StragglerOptions(Analysis):
    """Options of :func:`traceconv.stragglers`."""

    title = "Verdict"

    material: float = option(
        1.0, values.percent, "--material", metavar="PERCENT", usual=True,
        help="Name only ranks and links that cost at least this share of a step.",
    )  # fmt: skip
    clocks: Clocks = group(Clocks)


@dataclass(eq=False, repr=False)
class WhatIfOptions(Analysis):
    """Options of :func:`traceconv.what_if`."""

    title = "Changes"

    change: tuple[str, ...] = option(
        (), values.texts, "--change", metavar="CHANGE", repeated=True, usual=True,
        help="A change: rank:3=peers, rank:balanced, stage:balanced, op:*gemm* x0.5, "
        "comm:dp x0.7, comm:* overlap, input:0, host:0, gc:0, copy:0, pause:0.",
    )  # fmt: skip
    clocks: Clocks = group(Clocks)
    out: str | None = option(
        None, values.path, "-o", "--output", metavar="FILE", complete="files", usual=True,
        section="Output",
        help="Trace of the job as recorded and with the changes, side by side; the extension "
        "selects the format.",
    )  # fmt: skip
    force: bool = option(
        False, values.switch, "-f", "--force", section="Output", help="Overwrite existing files."
    )


@dataclass(eq=False, repr=False)
class CriticalPathOptions(Analysis):
    """Options of :func:`traceconv.critical_path`."""

    title = "Tables"

    by: tuple[str, ...] = option(
        ("steps", "ranks", "segments"), values.words, "--by", metavar="TABLE,...", usual=True,
        help="Which tables: steps, ranks, segments (every interval of the path), or all.",
    )  # fmt: skip
    top: int | None = option(
        None, values.rows, "--top", metavar="N|all", help="Most rows of the table segments."
    )
    clock_error_ns: int | None = option(
        None, values.length, "--clock-error", metavar="50us", section="Clocks",
        help="Assume this error for clocks whose error is unknown. Without it, the error is "
        "estimated from collectives; without collectives no path can be found.",
    )  # fmt: skip
    world_size: int | None = option(
        None, values.count, "--world-size", metavar="N", section="Input",
        help="Number of ranks of the job, for captures that do not record it.",
    )  # fmt: skip
    clocks: Clocks = group(Clocks)


@dataclass(eq=False, repr=False)
class DiagnoseOptions(Analysis):
    """Options of :func:`traceconv.diagnose`."""

    title = "Rules"

    rule: tuple[str, ...] | None = option(
        None, values.names, "--rule", metavar="ID,...", complete="rules", usual=True,
        help="Only these rules. `traceconv explain` lists all.",
    )  # fmt: skip
    threshold: dict[str, float] | None = option(
        None, values.thresholds, "--threshold", metavar="RULE[.NAME]=NUMBER", repeated=True,
        help="Use another threshold than the default, as in long-tail=30.",
    )  # fmt: skip
    analyse: bool = option(False, values.switch, help="Also make the document of an HTML report.")
    align: str = same_as(Clocks, "align")


@dataclass(eq=False, repr=False)
class WatchOptions(Group):
    """Of :func:`traceconv.watch`."""

    title = "Windows"

    once: bool = option(
        False, values.switch, "--once", usual=True,
        help="Judge the windows that are there, and end.",
    )  # fmt: skip
    timeout_ns: int = option(
        60_000_000_000, values.length, "--timeout", metavar="60s", usual=True,
        help="How long a window waits for ranks that do not come and for files that are cut off, "
        "from its last file.",
    )  # fmt: skip
    out: str | None = option(
        None, values.path, "-o", "--output", metavar="FOLDER", complete="files", usual=True,
        section="Output",
        help="Also write a trace of every window into this folder, in the summary mode.",
    )  # fmt: skip
    world_size: int | None = same_as(CriticalPathOptions, "world_size")
    align: str = same_as(Clocks, "align")
    input: Input = group(Input)
    run: RunOptions = group(RunOptions, without={"allow_missing_ranks"})


@dataclass(eq=False, repr=False)
class ExploreOptions(Group):
    """Of :func:`traceconv.explore`."""

    align: str = same_as(Clocks, "align")
    input: Input = group(Input)
    run: RunOptions = group(RunOptions)


@dataclass(eq=False, repr=False)
class DiffOptions(Analysis):
    """Options of :func:`traceconv.diff`."""

    title = "Comparison"

    tolerance: float = option(
        1.0, values.percent, "--tolerance", metavar="PERCENT",
        help="Ignore differences smaller than this share of the compared time. Gates have their "
        "own limits.",
    )  # fmt: skip
    fail_on: tuple[str, ...] = option(
        (), values.texts, "--fail-on", metavar="FIGURE>LIMIT", repeated=True, usual=True,
        help="A gate, such as 'step>2%', 'exposed_comm>500us' or 'op:MatMul>3%'. Exit code 10 if "
        "one is proven to fail, 11 without a verdict.",
    )  # fmt: skip
    on_unknown: values.OnUnknown = option(
        "fail", values.one_of(*get_args(values.OnUnknown)), "--on-unknown", metavar="pass|fail",
        help="Whether a gate without a verdict fails (exit code 11) or passes (exit code 0).",
    )  # fmt: skip
    force_compare: bool = option(
        False, values.switch, "--force-compare",
        help="Also show runs that cannot be compared, without a verdict.",
    )  # fmt: skip
    output: Output = group(Output, without={"strict"})


VERBS: dict[str, type[Group]] = {
    "inspect": InspectOptions,
    "merge": MergeRequest,
    "convert": ConvertRequest,
    "query": QueryOptions,
    "join": JoinOptions,
    "pack": PackOptions,
    "align": AlignOptions,
    "stats": StatsOptions,
    "stragglers": StragglerOptions,
    "what-if": WhatIfOptions,
    "critical-path": CriticalPathOptions,
    "diagnose": DiagnoseOptions,
    "watch": WatchOptions,
    "explore": ExploreOptions,
    "diff": DiffOptions,
}
"""By command."""
