"""The options that several verbs share, by group.

Each group is a dataclass of checked values; each field of it declares one option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, get_args

from traceconv.core.errors import OptionError, TraceconvError
from traceconv.options import values
from traceconv.options.declaration import Group, group, option
from traceconv.options.values import (
    AlignMethod,
    EngineName,
    LayerName,
    Layout,
    Mode,
    OverLimit,
    Progress,
    Viewer,
)

if TYPE_CHECKING:
    from traceconv.core.job_shape import ByCoordinates
    from traceconv.core.model import Trace
    from traceconv.writers.size_limit import SizeLimit

# -- groups -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Input(Group):
    """How captures are recognised, and how their ranks are numbered."""

    title = "Input"

    reader: str | None = option(
        None, values.text, "--from", metavar="FORMAT", complete="readers",
        help="Use only this reader. `traceconv formats` lists the readers.",
    )  # fmt: skip
    rank_from: str = option(
        "meta", values.text, "--rank-from", metavar="meta|name|order|REGEX",
        complete="rank_sources",
        help="Source of the rank of a capture. meta: the files, or their names if the files record "
        "no rank; name: file names; order: each capture is a rank, in the order of paths; REGEX: "
        "its first group in the path, or its named groups as coordinates, as in "
        "'pp(?P<pp>\\d+)_tp(?P<tp>\\d+)'.",
    )  # fmt: skip
    mapping: str | None = option(
        None, values.path, "--map", metavar="COLUMNS|PRESET|FILE", complete="presets",
        help="Columns of an event log. 'name=Name,ts=Start (ns):ns,dur=Time:us' names columns, "
        "'line=/(?P<ts>\\S+) (?P<name>.*)/' or \"line='%(asctime)s %(message)s'\" reads lines of "
        "text; a preset is nsys-gpu, nsys-api, nsys-nvtx, nvprof-gpu or enter-leave; FILE is JSON.",
    )  # fmt: skip
    nsys: str | None = option(
        None, values.path, "--nsys", metavar="PROGRAM", complete="files",
        help="The nsys program that exports .nsys-rep files. Default: the one on the path.",
    )  # fmt: skip


@dataclass(frozen=True)
class Selection(Group):
    """The part of a run that is kept. Filters are combined with AND; None keeps everything.

    Attributes:
        ranks:   global ranks, or those at coordinates.
        graphs:  graph ids.
        steps:   step numbers.
        time:    (start, end) in ns, counted from the earliest event of all ranks; None = open.
        layers:  names of :class:`~traceconv.core.model.Layer`.
        exclude: regular expression; events whose name matches are left out.
    """

    title = "Selection"

    ranks: tuple[int, ...] | ByCoordinates | None = option(
        None, values.ranks, "--ranks", metavar="0-7,12|tp=0,pp=1|all", usual=True,
        help="Only these ranks, by number or by coordinates.",
    )  # fmt: skip
    graphs: tuple[int, ...] | None = option(
        None, values.numbers, "--graphs", metavar="1,2|all", help="Only these graphs (model ids)."
    )
    steps: tuple[int, ...] | None = option(
        None,
        values.numbers,
        "--steps",
        metavar="10-12|all",
        help="Only these steps: numbers and ranges, as 3,10-12.",
        usual=True,
    )
    time: tuple[int | None, int | None] | None = option(
        None, values.window, "--time", metavar="1.2s:1.5s",
        help="Only this window of time. It is counted from the first event of all ranks, in s, ms, "
        "us or ns; either end may be left out. Analyses keep the steps that lie in the window.",
    )  # fmt: skip
    layers: tuple[LayerName, ...] | None = option(
        None, values.layers, "--layers", metavar="step,overlap,...", complete="layers",
        help=f"Only these layers: {', '.join(get_args(LayerName))}.",
    )  # fmt: skip
    exclude: str | None = option(
        None, values.pattern, "--exclude", metavar="REGEX",
        help="Leave out events whose name matches.",
    )  # fmt: skip

    @property
    def numbers(self) -> dict[str, tuple[int, ...] | None]:
        """Graphs and steps, as :func:`traceconv.find.rank_selection.refuse_missing` takes them."""
        return {"graph": self.graphs, "step": self.steps}


@dataclass(frozen=True)
class View(Group):
    """The view of a rank's events, and the part of them that is kept."""

    title = "View"

    mode: Mode = option(
        "summary", values.mode, "-m", "--mode", metavar="|".join(get_args(Mode)), usual=True,
        help="How much is written. summary: steps and overlap; detail: also every stream, plane, "
        "call and counter; source: the events as recorded, with nothing derived. In source mode, "
        "trace-event JSON into JSON is copied byte for byte if nothing is selected. Where no rank "
        "has device work, merging writes the detail view by default.",
    )  # fmt: skip
    selection: Selection = group(Selection, whole=True)
    merge_graphs: bool = option(
        True, values.switch, "--merge-graphs/--split-graphs",
        help="One track of steps per rank, or one per graph.",
    )  # fmt: skip
    scope: bool = option(
        False, values.switch, "--scope", help="Add the tracks of module scopes (detail only)."
    )
    queues: bool = option(
        False, values.switch, "--queues",
        help="Add a counter of the tasks that wait on each stream (detail only).",
    )  # fmt: skip
    step_marker: str | None = option(
        None, values.pattern, "--step-marker", metavar="REGEX",
        help="Take the host ranges (NVTX, rocTX, annotations) whose name matches as steps. The "
        "first group is the number of the step; without one, steps are numbered by time.",
    )  # fmt: skip
    comm_patterns: tuple[str, ...] = option(
        (), values.words, "--comm-pattern", metavar="WORD,...",
        help="Also take GPU kernels whose name contains one of these words as communication.",
    )  # fmt: skip

    def passes(self, zero_counters: bool = True) -> list[Callable[[Trace], Trace]]:
        """The passes that make this view; see :func:`traceconv.passes.compose`."""
        from traceconv.passes import compose

        selection = self.selection
        return compose(
            None if self.mode == "source" else self.mode,
            graphs=selection.graphs,
            merge_graphs=self.merge_graphs,
            step_marker=self.step_marker,
            steps=selection.steps,
            layers=selection.layers,
            exclude=selection.exclude,
            scope=self.scope,
            queues=self.queues,
            zero_counters=zero_counters,
        )

    @property
    def of_analysis(self) -> View:
        """The view of analyses of the same ranks, which does not depend on the mode."""
        selection = Selection(graphs=self.selection.graphs, steps=self.selection.steps)
        return View(
            mode="detail", selection=selection, merge_graphs=self.merge_graphs,
            step_marker=self.step_marker, comm_patterns=self.comm_patterns,
        )  # fmt: skip


@dataclass(frozen=True)
class Clocks(Group):
    """How clocks are aligned."""

    title = "Clocks"

    align: str = option(
        "auto", values.align, "--align", metavar="|".join([*get_args(AlignMethod), "FILE"]),
        complete="clocks",
        help="How the clocks of ranks are aligned. collective: by the ends of collectives; meta: "
        "by what profilers recorded; wall: as recorded; auto: the best of these; FILE: JSON as "
        "`traceconv align` writes it, or {rank: offset in ns}.",
    )  # fmt: skip
    align_max_error_ns: int | None = option(
        None, values.length, "--align-max-error", metavar="50us",
        help="Refuse an alignment whose error may be larger, or is unknown (exit code 5).",
    )  # fmt: skip


@dataclass(frozen=True)
class Limits(Group):
    """How large an output file may be."""

    title = "Size limit"

    max_size: int | None = option(
        None, values.size, "--max-size", metavar="200M",
        help="Largest size of an output file, before compression, in units of 1024.",
    )  # fmt: skip
    max_events: int | None = option(
        None, values.count, "--max-events", metavar="1M",
        help="Most events (slices, instants, samples, flows) in an output file, in units of 1000.",
    )  # fmt: skip
    target: Viewer = option(
        "none", values.one_of(*get_args(Viewer)), "--target", metavar="|".join(get_args(Viewer)),
        help="Limits that suit a viewer: perfetto 1G and 10M events, chrome 256M and 2M. "
        "`max_size` and `max_events` override these.",
    )  # fmt: skip
    over_limit: OverLimit = option(
        "reduce", values.one_of(*get_args(OverLimit)), "--over-limit",
        metavar="|".join(get_args(OverLimit)),
        help="What to do at the limit: reduce leaves out the least important events, split writes "
        "several files, fail stops.",
    )  # fmt: skip
    limit: SizeLimit | None = option(
        None, values.limit, help="A `SizeLimit`, or bytes as `max_size`, in place of these."
    )

    def size_limit(self) -> SizeLimit | None:
        """The limit of these options; None for none.

        Raises:
            OptionError: they contradict each other.
        """
        if self == Limits():
            return None
        from traceconv.writers.size_limit import SizeLimit

        if self.limit is None:
            return SizeLimit.of_viewer(self.target, self.max_size, self.max_events, self.over_limit)
        if self.over_limit in ("reduce", self.limit.policy):
            return self.limit
        if self.limit.policy == "reduce":
            return replace(self.limit, policy=self.over_limit)
        raise OptionError(
            f"{self.over_limit!r}, but `limit` says {self.limit.policy!r}", "over_limit"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Output(Group):
    """The output, and when it is refused."""

    title = "Output"

    out: str | None = option(
        None, values.path, "-o", "--output", metavar="FILE", complete="files", usual=True,
        help="Output file; the extension selects the format. `traceconv formats` lists the "
        "formats; - is standard output. Default: trace_<mode>_ranks<ranks>.pftrace, here.",
    )  # fmt: skip
    writer: str | None = option(
        None, values.text, "--to", metavar="FORMAT", complete="writers",
        help="Output format, whatever the extension.",
    )  # fmt: skip
    strict: bool = option(
        False, values.switch, "--strict",
        help="Write nothing if anything is lost or uncertain (exit code 4).",
    )  # fmt: skip
    force: bool = option(False, values.switch, "-f", "--force", help="Overwrite existing files.")


@dataclass(frozen=True)
class RunOptions(Group):
    """Who does the work, and how failures are treated. Only the last but one affects the result."""

    title = "Resources"

    jobs: int | None = option(
        None, values.count, "-j", "--jobs", metavar="N",
        help="Worker processes, at most one per rank, and threads if there are fewer ranks. "
        "Default: TRACECONV_JOBS, or what suits the machine and the input.",
    )  # fmt: skip
    mem_limit: int | None = option(
        None, values.size, "--mem-limit", metavar="SIZE",
        help="Memory for all processes together, at least 192M for each. Larger "
        "data is kept in temporary files.",
    )  # fmt: skip
    engine: EngineName = option(
        "local", values.one_of(*get_args(EngineName)), "--engine",
        metavar="|".join(get_args(EngineName)),
        help="Where workers run. dask and ray are extras; all workers must see TRACECONV_TMPDIR.",
    )  # fmt: skip
    engine_address: str | None = option(
        None, values.text, "--engine-address", metavar="ADDRESS",
        help="Address of a running Dask scheduler or Ray cluster. Default: start one here.",
    )  # fmt: skip
    allow_missing_ranks: bool = option(
        False, values.switch, "--allow-missing-ranks", section="Input",
        help="Go on without selected ranks that are absent, and without ranks that cannot be read.",
    )  # fmt: skip
    cache: bool = option(
        True, values.switch, "--cache/--no-cache",
        help="Keep the summary of each rank for the next analysis of the same files. "
        "`traceconv cache` shows and clears the cache.",
    )  # fmt: skip
    progress: Progress = option(
        values.no_progress, values.progress,
        help="Called as (bytes done since the last call, bytes in total or 0, label).",
    )  # fmt: skip


@dataclass(frozen=True)
class MergeOptions(View, Clocks):
    """Everything that affects the bytes of a merge, besides its input: keywords of ``merge``."""

    title = "View"

    args: tuple[str, ...] | None = option(
        None, values.kept_args, "--args", metavar="all|none|KEY,...", complete="args",
        help="Which arguments of events are kept.",
    )  # fmt: skip
    annotate: bool = option(
        False, values.switch, "--annotate",
        help="Add what the analyses find: findings and stragglers as instants, the critical path "
        "and pipeline stages as slices, the overlap of each step as its arguments.",
    )  # fmt: skip
    analyse: bool = option(
        False, values.switch,
        help="Also judge the ranks, for `Report.overview`. The output does not depend on it.",
    )  # fmt: skip
    layout: Layout = option(
        "rank", values.one_of(*get_args(Layout)), "--layout", metavar="|".join(get_args(Layout)),
        help="rank: all tracks of a rank together; lane: the same track of all ranks together, the "
        "rank that others wait for first (Perfetto output only).",
    )  # fmt: skip
    limit: SizeLimit | None = None

    @property
    def summarizes(self) -> bool:
        """Whether the analyses look at every rank."""
        return self.annotate or self.analyse

    @property
    def of_any_rank(self) -> MergeOptions:
        """The options that decide on the bytes of every rank."""
        return replace(self, selection=replace(self.selection, ranks=None))

    def as_dict(self) -> dict[str, Any]:
        """JSON values, for shards."""
        import msgspec

        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def of_dict(cls, plain: Mapping[str, Any]) -> MergeOptions:
        """What :meth:`as_dict` made.

        Raises:
            ValueError: it is something else.
        """
        from traceconv.writers.size_limit import SizeLimit

        if not isinstance(plain, Mapping) or set(plain) != {member.name for member in fields(cls)}:
            raise ValueError("not the options of a merge")
        try:
            keywords = dict(plain)
            limit, selection = keywords.pop("limit"), dict(keywords.pop("selection"))
            if isinstance(selection["ranks"], Mapping):
                selection["ranks"] = selection["ranks"]["wanted"]
            options = cls.of({**keywords, "selection": Selection.of(selection)})
            return replace(options, limit=SizeLimit(**limit) if limit else None)
        except (TypeError, ValueError, KeyError, TraceconvError) as e:
            raise ValueError(str(e)) from e
