# Made by `python -m tests.support.option_types`; do not edit.

from collections.abc import Iterable, Mapping
from typing import TypedDict

from traceconv.options.groups import MergeOptions, Selection
from traceconv.options.values import (
    Align,
    AnyPath,
    Count,
    EngineName,
    Layers,
    Layout,
    Length,
    Limit,
    Mode,
    Names,
    Numbers,
    OnUnknown,
    OverLimit,
    Progress,
    QueryEngine,
    Ranks,
    Shard,
    Size,
    Viewer,
    Window,
)

class InputArguments(TypedDict, total=False):
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None

class InspectArguments(TypedDict, total=False):
    counts: bool
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    progress: Progress | None

class TraceArguments(TypedDict, total=False):
    align: Align
    progress: Progress | None
    graphs: Numbers | None
    steps: Numbers | None
    layers: Layers | None
    exclude: str | None
    merge_graphs: bool
    scope: bool
    queues: bool
    step_marker: str | None
    comm_patterns: Names | None

class MergeArguments(TypedDict, total=False):
    dry_run: bool
    shard: Shard | None
    copy: bool
    merge_options: MergeOptions | None
    out: AnyPath | None
    writer: str | None
    strict: bool
    force: bool
    align: Align
    align_max_error_ns: Length | None
    mode: Mode | None
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    merge_graphs: bool
    scope: bool
    queues: bool
    step_marker: str | None
    comm_patterns: Names | None
    args: Names | None
    annotate: bool
    analyse: bool
    layout: Layout
    max_size: Size | None
    max_events: Count | None
    target: Viewer
    over_limit: OverLimit
    limit: Limit | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    progress: Progress | None
    selection: Selection | None

class ConvertArguments(TypedDict, total=False):
    dry_run: bool
    shard: Shard | None
    copy: bool
    merge_options: MergeOptions | None
    writer: str | None
    strict: bool
    force: bool
    align: Align
    align_max_error_ns: Length | None
    mode: Mode | None
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    merge_graphs: bool
    scope: bool
    queues: bool
    step_marker: str | None
    comm_patterns: Names | None
    args: Names | None
    annotate: bool
    analyse: bool
    layout: Layout
    max_size: Size | None
    max_events: Count | None
    target: Viewer
    over_limit: OverLimit
    limit: Limit | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    progress: Progress | None
    selection: Selection | None

class QueryArguments(TypedDict, total=False):
    engine: QueryEngine
    params: Mapping[str, object] | str | Iterable[str] | None
    timeout_ns: Length | None
    align: Align
    align_max_error_ns: Length | None
    mode: Mode | None
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    merge_graphs: bool
    scope: bool
    queues: bool
    step_marker: str | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None
    selection: Selection | None

class JoinArguments(TypedDict, total=False):
    out: AnyPath | None
    writer: str | None
    strict: bool
    force: bool
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    progress: Progress | None

class PackArguments(TypedDict, total=False):
    views: bool
    summaries: bool
    ranks: Ranks | None
    comm_patterns: Names | None
    force: bool
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    progress: Progress | None

class WriteArguments(TypedDict, total=False):
    args: Names | None
    progress: Progress | None
    writer: str | None
    strict: bool
    force: bool
    max_size: Size | None
    max_events: Count | None
    target: Viewer
    over_limit: OverLimit
    limit: Limit | None

class AlignArguments(TypedDict, total=False):
    ranks: Ranks | None
    method: Align
    max_error_ns: Length | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None

class StatsArguments(TypedDict, total=False):
    by: Names | None
    group_by: Names | None
    columns: Names | None
    sort: Names | None
    filters: Names | None
    top: Count | None
    align: Align
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    step_marker: str | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None
    selection: Selection | None

class StragglerArguments(TypedDict, total=False):
    material: float | str
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    step_marker: str | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None
    align: Align
    align_max_error_ns: Length | None
    selection: Selection | None

class WhatIfArguments(TypedDict, total=False):
    change: Names | None
    out: AnyPath | None
    force: bool
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    step_marker: str | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None
    align: Align
    align_max_error_ns: Length | None
    selection: Selection | None

class CriticalPathArguments(TypedDict, total=False):
    by: Names | None
    top: Count | None
    clock_error_ns: Length | None
    world_size: Count | None
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    step_marker: str | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None
    align: Align
    align_max_error_ns: Length | None
    selection: Selection | None

class DiagnoseArguments(TypedDict, total=False):
    rule: Names | None
    threshold: Mapping[str, float] | str | Iterable[str] | None
    analyse: bool
    align: Align
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    step_marker: str | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None
    selection: Selection | None

class WatchArguments(TypedDict, total=False):
    once: bool
    timeout_ns: Length | None
    out: AnyPath | None
    world_size: Count | None
    align: Align
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    cache: bool
    progress: Progress | None

class ExploreArguments(TypedDict, total=False):
    align: Align
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None

class DiffArguments(TypedDict, total=False):
    tolerance: float | str
    fail_on: Names | None
    on_unknown: OnUnknown
    force_compare: bool
    ranks: Ranks | None
    graphs: Numbers | None
    steps: Numbers | None
    time: Window | None
    layers: Layers | None
    exclude: str | None
    step_marker: str | None
    comm_patterns: Names | None
    reader: str | None
    rank_from: str
    mapping: AnyPath | None
    nsys: AnyPath | None
    jobs: Count | None
    mem_limit: Size | None
    engine: EngineName
    engine_address: str | None
    allow_missing_ranks: bool
    cache: bool
    progress: Progress | None
    out: AnyPath | None
    writer: str | None
    force: bool
    selection: Selection | None
