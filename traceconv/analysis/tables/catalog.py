"""The tables: which there are, what they need of a rank, and the tables of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.tables import calls as _call_tables
from traceconv.analysis.tables import cluster as _cluster_tables
from traceconv.analysis.tables import collective as _collective_tables
from traceconv.analysis.tables import communication as _comm_tables
from traceconv.analysis.tables import data as _data_tables
from traceconv.analysis.tables import expert as _expert_tables
from traceconv.analysis.tables import file_tables
from traceconv.analysis.tables import graph as _graph_tables
from traceconv.analysis.tables import idle as _idle_tables
from traceconv.analysis.tables import kernel as _kernel_tables
from traceconv.analysis.tables import memory as _memory_tables
from traceconv.analysis.tables import memory_live as _live_tables
from traceconv.analysis.tables import module as _module_tables
from traceconv.analysis.tables import operator as _op_tables
from traceconv.analysis.tables import range as _range_tables
from traceconv.analysis.tables import sampled as _sampled_tables
from traceconv.analysis.tables import stack as _stack_tables
from traceconv.analysis.tables import step as _step_tables
from traceconv.analysis.tables import work_table as _work_tables
from traceconv.analysis.tables.definition import RANK, Column, Ranked, Result, Table, data_of
from traceconv.core.choices import nearest, unknown
from traceconv.core.errors import Issues, OptionError, PluginError
from traceconv.core.job_shape import JobShape
from traceconv.core.model import Trace
from traceconv.core.plugins import Plugins, collect
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.side_tables import ABSENT, Columns, DataTable

_MODULES = (
    _step_tables, _op_tables, _kernel_tables, _module_tables, _comm_tables, _memory_tables,
    _data_tables, _call_tables, _graph_tables, _work_tables,
    _collective_tables, _idle_tables, _range_tables, _live_tables, _stack_tables,
    _sampled_tables, _expert_tables, _cluster_tables,
)  # fmt: skip


def _wrong(table: Any) -> str:
    """The fault in the definition of a plugin's table; "" without one."""
    if not isinstance(table, Table):
        return "it is not a traceconv.plugin.Table"
    for column in table.columns:
        if not isinstance(column, Column):
            return f"its columns contain {column!r:.80}, which is not a Column: use Column.parse"
    if RANK not in [column.key for column in table.columns]:
        return f'its columns lack {RANK!r}: begin with it, Column.parse("{RANK}, ...")'
    return ""


PLUGINS: Plugins[Table] = collect(
    "traceconv.tables",
    ((module.__name__, table) for module in _MODULES for table in module.TABLES),
    attrgetter("name"),
    _wrong,
)
"""Our tables, and those that installed packages announce."""

_DTYPES = {"int": "iu", "float": "f", "text": "O"}
"""Kinds of numpy arrays by kind of column."""


def _guarded(table: Table) -> Table:
    """A table whose errors name the package that brings it, if it is not ours."""
    if table.name not in PLUGINS.foreign:
        return table
    blamed = PLUGINS.blamed(table.name)
    by_key = {column.key: column for column in table.columns}
    origin = f"the table {table.name!r} of {PLUGINS.foreign[table.name]}"

    def build(ranked: Ranked) -> Columns:
        """The rows, which are checked.

        Raises:
            PluginError: they do not fit the columns.
        """
        built = blamed(table.build)(ranked)
        for key, values in built.items():
            if key not in by_key:
                raise PluginError(
                    f"{origin}: build() returns a column {key!r}, which the table does not declare"
                    f"{nearest(key, by_key)}; its columns: {', '.join(by_key)}"
                )
            kind = by_key[key].kind
            if not isinstance(values, np.ndarray) or values.dtype.kind not in _DTYPES[kind]:
                raise PluginError(f"{origin}: build() must return an array of {kind} as {key!r}")
        if built and RANK not in built:
            raise PluginError(f"{origin}: build() returns no column {RANK!r}")
        if len({len(values) for values in built.values()}) > 1:
            raise PluginError(f"{origin}: build() returns columns that differ in length")
        return built

    def facts(trace: Trace) -> Columns:
        """The facts of a plugin's table about a rank.

        Raises:
            PluginError: it is not columns.
        """
        facts_made = blamed(table.facts)(trace)
        if not isinstance(facts_made, Mapping):
            raise PluginError(f"{origin}: facts() must return a dict of arrays, {{}} for no data")
        return facts_made

    return replace(table, facts=facts, build=build)


TABLES: Mapping[str, Table] = {name: _guarded(table) for name, table in PLUGINS.found.items()}
"""Every table that is computed, by name."""

FILES: Mapping[str, Table] = {table.name: table for table in file_tables.tables(tuple(TABLES))}
"""The profilers' own tables as they are, by name."""

_EVERY: Mapping[str, Table] = {**TABLES, **FILES}

RANKS = "Ranks"
"""Key of the column that counts the ranks of a group."""

OF_DEVICE = ("op", "type", "kernel", "copy", "shape", "comm")
"""Tables that count rows of the device: where some of these are missing, shares are unknown."""

WITH_SCOPES = ("module", "memory_live")
"""Tables that need the lanes of module scopes; the others are the same without."""

BY: Mapping[str, tuple[str, ...]] = {
    "step": ("step_summary", "step", "stage"),
    "overlap": ("overlap", "step_trace_time"),
    "op": ("op",),
    "type": ("type",),
    "flops": ("operator_flops", "operator_bound", "flops"),
    "graph": ("graph", "graph_node"),
    "kernel": ("kernel", "copy", "device"),
    "shape": ("shape",),
    "module": ("module", "phase"),
    "comm": ("comm", "comm_op"),
    "link": ("link",),
    "collective": ("collective", "collective_wait"),
    "expert": ("expert", "expert_layer", "expert_peer"),
    "cluster": ("cluster", "cluster_bandwidth"),
    "idle": ("idle", "idle_step", "idle_gap"),
    "launch": ("launch", "launch_queue"),
    "stack": ("stack", "stack_path"),
    "range": ("range", "range_instance"),
    "memory": (
        "memory",
        "memory_live",
        "memory_path",
        "memory_oom",
        "memory_step",
        "memory_phase",
        "memory_curve",
    ),
    "frequency": ("frequency", "frequency_kernel"),
    "network": ("network",),
    "data": ("data", "pipeline", "reader", "cpu"),
    "api": ("api",),
    "summary": ("paddle_summary",),
    "files": tuple(FILES),
}
"""The tables that answer one question; names of tables are accepted beside these."""


@dataclass(frozen=True)
class Statistics:
    """The tables of a run.

    Attributes:
        results: one per selected table, in the order requested.
        ranks:   that were read, ascending.
        issues:  everything that was lost or is in doubt.
        left_out: names of tables that columns or filters leave nothing of, with the reason.
        steps:   how many steps are known, and of how many the device work, by rank.
        shape:   the coordinates of the ranks.
    """

    results: tuple[Result, ...]
    ranks: tuple[int, ...]
    issues: Issues
    left_out: tuple[tuple[str, str], ...] = ()
    steps: Mapping[int, str] = field(default_factory=dict)
    shape: JobShape = field(default_factory=JobShape)

    def __repr__(self) -> str:
        ranks = f"rank{'s' * (len(self.ranks) != 1)} {format_ranges(self.ranks)}"
        return f"<Statistics of {ranks}: {', '.join(self)}>"

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[str]:
        return (result.table.name for result in self.results)

    def plot(self, kind: str = "overlap", ax: Any = None) -> Any:
        """Draw the table "overlap": a bar per step and rank, or with kind "ranks" the mean step of
        each rank.

        Args:
            ax: the ``matplotlib`` axes to draw on; None for new ones.

        Returns:
            The axes.

        Raises:
            OptionError: the table was not requested, or the kind does not exist.
            MissingExtraError: matplotlib is not installed.
        """
        from traceconv.analysis.tables import plots

        if "overlap" not in {result.table.name for result in self.results}:
            raise OptionError('a drawing needs the table "overlap"', "by")
        return plots.overlap(self["overlap"], kind, ax)

    @property
    def step_lines(self) -> list[str]:
        """One line for ranks with the same coverage: "ranks 0-1: device data for all 3"."""
        alike: dict[str, list[int]] = {}
        for rank, coverage in self.steps.items():
            alike.setdefault(coverage, []).append(rank)
        return [
            f"steps of rank{'s' * (len(ranks) > 1)} {format_ranges(ranks)}: {coverage}"
            for coverage, ranks in alike.items()
        ]

    def __getitem__(self, name: str) -> DataTable:
        """The columns of the table of this name; one ``by`` may make several.

        Raises:
            KeyError: it was not requested, or is a file that no rank has; the message names those
                there are.
        """
        return data_of(self.results, name)

    def _repr_html_(self) -> str:
        """The first rows of every table, for notebooks."""
        from traceconv.core import frames

        return "".join(frames.html(r.table.title, r.data.columns) for r in self.results)


def chosen(by: Iterable[str]) -> list[str]:
    """Names of the requested tables, each once, in the order requested.

    Args:
        by: keys of :data:`BY`, names of tables, or "all": all of :data:`TABLES`.

    Raises:
        OptionError: there is no such table; the message lists those there are.
        PluginError: it is a plugin's table that does not load.
    """
    requested: dict[str, None] = {}
    for word in by:
        names = (word,) if word in _EVERY and word not in BY else BY.get(word, ())
        names = tuple(TABLES) if word == "all" else names
        if not names:
            if word in (broken := dict(PLUGINS.broken)):
                raise PluginError(f"the table {word!r} of a plugin does not load: {broken[word]}")
            single = [name for name in TABLES if name not in BY]
            raise OptionError(unknown("table", word, [*BY, "all", *single]), "by")
        requested.update(dict.fromkeys(names))
    return list(requested)


def of_rank(trace: Trace, name: str) -> Columns:
    """The facts of one rank for the table ``name``; {} if the rank has no data for it.

    Args:
        trace: after the passes of the detail view, for :data:`WITH_SCOPES` with scopes: steps,
            overlap and lanes made.

    Raises:
        TraceconvError: a table of the profiler that is needed cannot be read.
    """
    return _EVERY[name].facts(trace)


def tables(summaries: Sequence[RankSummary], top: int | None = None) -> list[Result]:
    """The tables of all ranks: rows per rank, and job-wide ones where several have data.

    Of several tables, those of :data:`FILES` that no rank has are left out.

    Args:
        summaries: with the same tables, one per rank.
        top:   rows kept per rank of tables that are usually long; None = all.
    """
    summaries = sorted(summaries, key=lambda summary: summary.rank)
    names = list(summaries[0].tables) if summaries else []
    results = [_result(_EVERY[name], summaries, top) for name in names]
    return [
        result
        for result in results
        if result.rows or len(results) == 1 or result.table.name not in FILES
    ]


def grouped_tables(
    summaries: Sequence[RankSummary], shape: JobShape, axes: Sequence[str], top: int | None = None
) -> tuple[list[Result], tuple[tuple[str, str], ...]]:
    """The tables of ranks with equal coordinates together, as :func:`tables` has those of all.

    In place of the rank are the coordinates - absent where unknown: these ranks are a group of
    their own, the last - and the number of ranks with data.

    Args:
        axes: what is grouped by.
        top:  rows kept per group of tables that are usually long; None = all.

    Returns:
        The tables, and the names of tables without figures over several ranks, each
        with the reason.
    """
    summaries = sorted(summaries, key=lambda summary: summary.rank)
    results: list[Result] = []
    left_out: list[tuple[str, str]] = []
    for name in summaries[0].tables if summaries else ():
        table = _EVERY[name]
        ranked = _by_rank({summary.rank: summary.tables[name] for summary in summaries})
        partial = [summary.rank for summary in summaries if name in summary.partial]
        by_place: dict[tuple[int, ...], list[tuple[int, Columns]]] = {}
        for rank, facts in ranked:
            coordinates = tuple(shape.value(rank, axis) for axis in axes)
            by_place.setdefault(coordinates, []).append((rank, facts))
        parts = []
        unknown_last = sorted(by_place, key=lambda values: [(value < 0, value) for value in values])
        for coordinates, members in ((values, by_place[values]) for values in unknown_last):
            table, columns = _built(_EVERY[name], members, partial)
            if len(members) > 1:
                together = columns[RANK] == ABSENT
                columns = {key: column[together] for key, column in columns.items()}
            if top is not None and table.capped:
                columns = {key: column[:top] for key, column in columns.items()}
            parts.append(_with_coordinates(coordinates, axes, len(members), columns))
        if ranked and not any(len(part[RANKS]) for part in parts):
            left_out.append((name, "it has no figures of several ranks together"))
        elif ranked or name not in FILES:
            results.append(_joined(table, axes, parts))
    return results, tuple(left_out)


def coordinate_columns(axes: Sequence[str]) -> tuple[Column, ...]:
    """The columns of grouped tables that other tables do not have."""
    return Column.parse(", ".join((*axes, RANKS)))


def _with_coordinates(
    coordinates: Sequence[int], axes: Sequence[str], ranks: int, columns: Columns
) -> Columns:
    """Rows with the coordinates and the number of ranks in front, without the rank."""
    n = len(columns[RANK])
    values = zip(
        (*axes, RANKS), (*(v if v >= 0 else ABSENT for v in coordinates), ranks), strict=True
    )
    front = {name: np.full(n, value, np.int64) for name, value in values}
    return {**front, **{key: column for key, column in columns.items() if key != RANK}}


def _joined(table: Table, axes: Sequence[str], parts: Sequence[Columns]) -> Result:
    """The rows of all groups, below each other."""
    shown = tuple(
        column
        for column in _EVERY[table.name].columns or table.columns
        if column.key != RANK and (not parts or any(column.key in part for part in parts))
    )
    table = replace(table, columns=(*coordinate_columns(axes), *shown))
    columns: Columns = {
        column.key: np.concatenate([_column(column, part) for part in parts])
        for column in table.columns
        if parts
    }
    units = {column.key: column.unit for column in table.columns} if parts else {}
    rows = len(next(iter(columns.values()), ()))
    return Result(table, DataTable(table.name, columns, units), rows)


def _column(column: Column, part: Columns) -> NDArray[Any]:
    """A column of some rows; unknown where their table has none."""
    if column.key in part:
        return part[column.key]
    n = len(next(iter(part.values())))
    return np.full(n, np.nan) if column.kind == "float" else np.full(n, ABSENT, np.int64)


def _result(table: Table, summaries: Sequence[RankSummary], top: int | None) -> Result:
    ranked = _by_rank({summary.rank: summary.tables[table.name] for summary in summaries})
    partial = [summary.rank for summary in summaries if table.name in summary.partial]
    table, columns = _built(table, ranked, partial)
    rows = len(next(iter(columns.values()))) if columns else 0
    if columns and top is not None and table.capped:
        columns = first_rows(columns, top)
    units = {column.key: column.unit for column in table.columns} if columns else {}
    return Result(table, DataTable(table.name, columns, units), rows)


def _built(table: Table, ranked: Ranked, partial: Sequence[int]) -> tuple[Table, Columns]:
    """The table with all its columns, and its values.

    Args:
        partial: ranks of which rows are known to be missing.
    """
    built = table.build(ranked) if ranked else {}
    if built and not table.columns:
        table = replace(table, columns=file_tables.columns_of(built))
    if {rank for rank, _ in ranked} & set(partial) and "Ratio(%)" in built:
        unknown_shares = np.isin(built[RANK], [*partial, ABSENT])
        built = {**built, "Ratio(%)": np.where(unknown_shares, np.nan, built["Ratio(%)"])}
    if built:  # columns of classes that do not occur are left out
        table = replace(table, columns=tuple(c for c in table.columns if c.key in built))
    return table, {column.key: built[column.key] for column in table.columns} if built else {}


def _by_rank(facts: Mapping[int, Columns]) -> Ranked:
    """Facts by the rank they are of, ascending; captures without data are left out.

    Tables of a whole cluster have a column :data:`RANK`; a rank's own facts are preferred.
    """
    by_rank: dict[int, Columns] = {}
    for columns in (columns_of for columns_of in facts.values() if RANK in columns_of):
        rank_of_row = columns[RANK]
        rows = {name: column for name, column in columns.items() if name != RANK}
        by_rank |= {
            r: {n: c[rank_of_row == r] for n, c in rows.items()}
            for r in np.unique(rank_of_row).tolist()
        }
    own_facts = {
        rank: columns_of
        for rank, columns_of in facts.items()
        if columns_of and RANK not in columns_of
    }
    return sorted({**by_rank, **own_facts}.items(), key=lambda pair: pair[0])


def first_rows(columns: Columns, top: int) -> Columns:
    """The first ``top`` rows of every rank; rows of a rank follow each other."""
    rank = columns[RANK]
    border = np.flatnonzero(rank[1:] != rank[:-1]) + 1
    start = np.concatenate(([0], border))
    position = np.arange(len(rank)) - np.repeat(start, np.diff(np.append(start, len(rank))))
    return {heading: column[position < top] for heading, column in columns.items()}
