"""Which files of an Ascend capture are tables, their names, and the use of the other files.

Tables are CSV with names of three generations (``op_summary_<time>.csv``, its ``_slice_<n>_``
parts, ``op_summary_<device>_<model>_<iteration>.csv``), files of JSON, and tables of databases.
Equal content has one name: ``op_summary`` is ``kernel_details``. The ``profiler`` folder of
MindSpore before 2.4 has tables of its own (:mod:`traceconv.readers.ascend.mindspore.tables`).

Only databases are opened here, to list their tables. A table is read when it is first used
(:mod:`traceconv.readers.ascend.tables.load`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import msgspec

from traceconv.core.errors import Issues, MalformedInputError, SourceError
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import (
    MINDSPORE_TABLES,
    PROF,
    folder_around,
    last_run,
)
from traceconv.readers.ascend.common.capture_files import TABLES as TABLES_OF_FILES
from traceconv.readers.ascend.common.identity import of_cluster
from traceconv.readers.shared.sqlite.files import is_sqlite
from traceconv.readers.shared.table_kinds import NOT_NEEDED

_OPERATION = {
    "step": "Step", "type": "Kind", "hccl_op_name": "Operator", "group_name": "Group",
}  # fmt: skip
_TRANSIT = {
    "transport_type": "Transport Type", "transit_size": "Transit Size(MB)",
    "transit_time": "Transit Time(ms)", "bandwidth": "Bandwidth(GB/s)",
}  # fmt: skip

STEP_TIMES: Mapping[str, str] = {
    heading: f"{heading}(us)"
    for heading in (
        "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free",
        "Stage", "Bubble", "Communication(Not Overlapped and Exclude Receive)", "Preparing",
    )
}  # fmt: skip
"""Columns of ``step_trace_time.csv``: all are us, which their headings leave out."""

_STEP_COLUMNS = {
    heading.lower().replace("(", "_").replace(")", "").replace(" ", "_"): in_us
    for heading, in_us in STEP_TIMES.items()
}
_TIMES = {
    "start_timestamp": "Start Timestamp(us)", "elapse_time": "Elapse Time(ms)",
    "elapsed_time": "Elapse Time(ms)", "transit_time": "Transit Time(ms)",
    "wait_time": "Wait Time(ms)", "synchronization_time": "Synchronization Time(ms)",
    "idle_time": "Idle Time(ms)",
}  # fmt: skip
_PACKAGES = {
    "large_packet_ratio": "Large Packet Ratio", "package_size": "Package Size(MB)",
    "count": "Count", "total_duration": "Total Duration(ms)",
}  # fmt: skip
_LINKS = {"src_rank": "Source", "dst_rank": "Target", **_TRANSIT, "op_name": "Op Name"}

SUMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "step_trace_time": (
        "StepTraceTime", {"deviceId": "Device_id", "step": "Step", **_STEP_COLUMNS},
    ),
    # of cluster tools: Ascend/msprof-analyze tables_config.py, 2026-08-20
    "cluster_step_trace_time": (
        "ClusterStepTraceTime", {"step": "Step", "type": "Type", "index": "Index", **_STEP_COLUMNS},
    ),
    "cluster_time_summary": ("ClusterTimeSummary", {
        "rank": "Rank", "step": "Step", "stepTime": "Step Time(us)",
        "computation": "Computation(us)",
        "communicationNotOverlapComputation": "Communication Not Overlap Computation(us)",
        "communicationOverlapComputation": "Communication Overlap Computation(us)",
        "communication": "Communication(us)", "free": "Free(us)",
        "communicationWaitStageTime": "Communication Wait Stage Time(us)",
        "communicationTransmitStageTime": "Communication Transmit Stage Time(us)",
        "memory": "Memory(us)", "memoryNotOverlapComputationCommunication":
        "Memory Not Overlap Computation Communication(us)",
    }),
    "cluster_communication": (
        "ClusterCommunicationTime", {**_OPERATION, "rank_id": "Rank", **_TIMES},
    ),
    "cluster_communication_bandwidth": (
        "ClusterCommunicationBandwidth",
        {**_OPERATION, "rank_id": "Rank", "band_type": "Transport Type", **_TRANSIT, **_PACKAGES},
    ),
    "cluster_communication_matrix": ("ClusterCommunicationMatrix", {**_OPERATION, **_LINKS}),
    "communication": ("CommAnalyzerTime", {**_OPERATION, **_TIMES}),
    "communication_bandwidth": (
        "CommAnalyzerBandwidth", {**_OPERATION, **_TRANSIT, **_PACKAGES},
    ),
    "communication_matrix": ("CommAnalyzerMatrix", {**_OPERATION, **_LINKS}),
}  # fmt: skip
"""Side tables of sums: the table, and the heading of each of its columns."""

TABLES: Mapping[str, frozenset[str]] = {
    "kernel_details": frozenset(("TASK", "COMPUTE_TASK_INFO", "STRING_IDS")),
    "memory_record": frozenset(("MEMORY_RECORD", "STRING_IDS")),
    "operator_memory": frozenset(("OP_MEMORY", "STRING_IDS")),
    "npu_module_mem": frozenset(("NPU_MODULE_MEM", "ENUM_MODULE")),
}
"""Side tables made of the tables of events, and the tables they need."""


_ALIASES = {"op_summary": "kernel_details", "aicpu": "data_preprocess"}

_PLAIN = (*TABLES_OF_FILES, "cluster_step_trace_time", "cluster_time_summary")
_NAME = lazy_regex(
    rf"({'|'.join(_PLAIN)})(?:_slice_(?P<part>\d{{1,18}}))?(?P<numbers>(?:_\d+)*)\.csv(?:\.gz)?"
)
_OTHER_NAMES = (
    (lazy_regex(r"(cluster_)?communication\.json"), "{0}communication"),
    (lazy_regex(r"(cluster_)?communication_matrix\.json"), "{0}communication_matrix"),
    (lazy_regex(r"communication_group(?:_old)?\.json"), "communication_group"),
)
_ENDINGS = (".csv", ".csv.gz", ".json")
_SIGNS = {
    "communication": (b"Communication Time Info",),
    "cluster_communication": (b"Communication Time Info",),
    "communication_matrix": (b"Transport Type",),
    "cluster_communication_matrix": (b"Transport Type",),
    "communication_group": (b'"collective"',),
    "step_trace_time": (b"Communication(Not Overlapped)",),
    "cluster_step_trace_time": (b"Communication(Not Overlapped)",),
    "cluster_time_summary": (b"Communication Not Overlap Computation",),
    "dataset": (b"Operation,Stage",),
    "kernel_details": (b"Start Time(us)", b"Accelerator Core", b"Task Type", b"Task Duration(us)"),
}
_ANY_SIGN = (b"(us)", b"(KB)", b"(MB)", b"Hit Rate", b"_id", b"Device", b"stream")
"""Text in the first bytes of a table; other programs use the same file names."""

_BANDWIDTH = {
    "communication": "communication_bandwidth",
    "cluster_communication": "cluster_communication_bandwidth",
}
"""Files with a second table."""

_OTHER_VENDORS = frozenset(("cambricon_output",))
"""Folders whose tables have these names, too (Cambricon/torch_mlu, ``profiler/analysis``, 2026)."""

_PYTORCH = lazy_regex(r"_ascend_pt/|/ascend_pytorch_profiler")

CLUSTER = "cluster_analysis_output"
"""The folder that cluster tools write next to the captures of all ranks."""

_IDENTITY = lazy_regex(
    r"profiler_info.*\.json|profiler_metadata\.json|info\.json.*|(?:start|end)_info.*"
    r"|(?:host_start|dev_start)\.log.*|sample\.json.*|incompatible_features\.json.*"
)
_RAW = ("data", "sqlite", "FRAMEWORK")
"""Folders of raw data within a capture; their many files are not opened."""

_RAW_USE = "raw data, as the timeline holds it"

LEFT_OUT = "left out, as another export of the same run is read"
_EXPORT = lazy_regex(r"(?:trace_view|msprof(?:_.*)?)\.json(?:\.gz)?|.*\.db")
"""Files that hold the events of a run, or its tables; of several kinds one is read."""

USES = (
    (
        "data/*, sqlite/*, FRAMEWORK/* beside a timeline",
        lazy_regex(r"(?!)"),  # found by its folder
        _RAW_USE,
    ),
    (
        "*.db beside text, trace_view.json and msprof*.json beside a database",
        lazy_regex(r"(?!)"),  # found by what is read
        LEFT_OUT,
    ),
    ("*.done", lazy_regex(r".*\.done"), "states that a file is complete"),
    (
        "profiler_info*.json, profiler_metadata.json, info.json*, start_info*, end_info*, "
        "host_start.log*, dev_start.log*, sample.json*, incompatible_features.json*",
        _IDENTITY,
        "rank, device, host, clock",
    ),
    ("*-wal, *-shm", lazy_regex(r".*-(?:wal|shm)"), "read with its database"),
    ("*.log", lazy_regex(r".*\.log"), "log"),
    (
        "output_format_data_hwts_*.txt",
        lazy_regex(r"output_format_data_hwts_\d+\.txt"),
        "repeats output_timeline_data",
    ),
    (
        "other *.json, *.db",
        lazy_regex(r".*\.(?:json(?:\.gz)?|db)"),
        "repeats what other files hold",
    ),
)
"""Files of captures that hold neither events nor a table: names for people, the same as a pattern,
and their use in words for ``inspect``."""


def table_of(name: str) -> str:
    """The table that a file holds by its name, "" for other files and databases."""
    if not name.endswith(_ENDINGS):
        return ""
    base = name.rpartition("/")[2]
    if match := _NAME.fullmatch(base):
        return _ALIASES.get(match[1], match[1])
    for pattern, called in _OTHER_NAMES:
        if match := pattern.fullmatch(base):
            return called.format(*(group or "" for group in match.groups()))
    return ""


def looks_like(source: Source, name: str) -> bool:
    """Whether a file that no timeline claims is a table, by its name and its first bytes."""
    if not _OTHER_VENDORS.isdisjoint(f"{source.label}/{name}".split("/")):
        return False
    table = table_of(name)
    if not table:
        sums = is_sqlite(source.head(name, 16)) if name.endswith((".db", ".dat")) else False
        return sums and bool(_tables_held(source, name, set(SUMS)))
    if not source.size(name):
        return False
    head = source.head(name)
    return any(sign in head for sign in _SIGNS.get(table, _ANY_SIGN))


def with_tables(
    captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with their tables, and with the uses of their other files.

    Tables of cluster tools belong to the first of the captures they were made from. Their parallel
    groups are used for all captures if no capture states its own.
    Issues: export-unused, malformed-record.
    """
    with_facts = list(captures)
    folders = dict.fromkeys(name.rpartition("/")[0] for name in ordered)
    for folder in folders:
        if folder.rpartition("/")[2] != CLUSTER:
            continue
        around, inside = folder_around(folder), [n for n in ordered if n.startswith(f"{folder}/")]
        parents = [{str(p) for n in c.files for p in PurePosixPath(n).parents} for c in with_facts]
        beside = [i for i, above in enumerate(parents) if around == "" or around in above]
        if beside:
            owner = with_facts[beside[0]]
            tables = [n for n in inside if table_of(n) or n == f"{folder}/cluster_analysis.db"]
            known_files = tuple(dict.fromkeys((*owner.known, *tables)))
            with_facts[beside[0]] = replace(owner, known=known_files)
            _place(with_facts, beside, inside, issues)
    with_facts = [_described(capture) for capture in with_facts]
    for capture in with_facts:
        for name, use in capture.uses.items():
            if use == LEFT_OUT:
                issues.add("export-unused", capture.source.title(name))
    return with_facts


def _place(
    captures: list[Capture], beside: Sequence[int], names: Sequence[str], issues: Issues
) -> None:
    """Use the parallel groups that cluster tools state."""
    near = [captures[i] for i in beside]
    has_own = any(c.placement.groups or c.placement.coordinates for c in near)
    if has_own or not all(_PYTORCH.search(name) for c in near for name in c.files[:1]):
        return
    sizes = {axis: size for c in near for axis, size in c.placement.sizes.items()}
    world_size = max(c.world_size for c in near)
    stated = of_cluster(near[0].source, names, sizes, world_size, issues)
    if stated.groups or stated.sizes:
        for i in beside:
            known_sizes = {**stated.sizes, **captures[i].placement.sizes}
            captures[i] = replace(
                captures[i], placement=msgspec.structs.replace(stated, sizes=known_sizes)
            )


def _described(capture: Capture) -> Capture:
    source = capture.source
    tables = found_tables(source, (*capture.files, *capture.known))
    tables |= {name: (file,) for name, file, _ in mindspore_tables_of(capture)}
    holds: dict[str, str] = {}
    for table, names in sorted(tables.items()):
        for name in names:
            holds[name] = f"{holds[name]}, {table}" if name in holds else f"table {table}"
    database = any(name.endswith(".db") for name in capture.files)
    uses = {}
    for name in capture.known:
        raw = not name.endswith(".done") and not set(name.split("/")).isdisjoint(_RAW)
        is_other_export = name.endswith(".db") != database and _EXPORT.fullmatch(
            name.rpartition("/")[2]
        )
        if (
            is_other_export
            and capture.files
            and name not in holds
            and not raw
            and source.size(name)
        ):
            uses[name] = LEFT_OUT
        else:
            uses[name] = holds.get(name) or (_RAW_USE if raw else use_of(source, name))
    return replace(capture, tables=dict(sorted(tables.items())), uses=uses)


def use_of(source: Source, name: str) -> str:
    """The use of a file that is not read, in words for ``inspect``."""
    base = name.rpartition("/")[2]
    if not source.size(name):
        return "empty"
    if table := table_of(name):
        return f"another export of table {table}"
    return next((words for _, pattern, words in USES if pattern.fullmatch(base)), NOT_NEEDED)


def found_tables(source: Source, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Tables by name with the files each is made of, in order: text first, then databases."""
    groups: dict[str, list[str]] = {}
    databases = []
    for name in names:
        if table := table_of(name):
            if source.size(name):
                groups.setdefault(table, []).append(name)
        elif name.endswith((".db", ".dat")):
            databases.append(name)
    tables = {table: _chosen(files) for table, files in groups.items()}
    for table, second in _BANDWIDTH.items():
        if table in tables:
            tables[second] = tables[table]
    lacking = {*SUMS, *TABLES} - tables.keys()
    held: dict[str, list[str]] = {}
    for name in databases:
        for table in _tables_held(source, name, lacking):
            held.setdefault(table, []).append(name)
    for table, files in held.items():
        # one database per folder, the framework's before the collector's; the others repeat it
        folders: dict[str, str] = {}
        for name in [name for name in files if not PROF.search(name)] or files:
            folders.setdefault(name.rpartition("/")[0], name)
        tables[table] = tuple(folders.values())
    return dict(sorted(tables.items()))


def _tables_held(source: Source, name: str, lacking: Collection[str]) -> list[str]:
    """Which of the lacking tables a database holds; nothing is raised."""
    if not lacking or not is_sqlite(source.head(name, 16)):
        return []
    from traceconv.readers.shared.sqlite.database import opened

    try:
        with opened(source, name, salvage=True) as database:
            present = set(database.tables)
    except (MalformedInputError, SourceError):
        return []
    sums = [t for t, (table, _) in SUMS.items() if table in present]
    from_columns = [t for t, needed in TABLES.items() if present.issuperset(needed)]
    return [t for t in (*sums, *from_columns) if t in lacking]


def _chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The files of one table that are read: the framework's before the collector's, of these the
    newest export, one below the other where there are several windows or iterations.
    """
    outside = [n for n in names if not PROF.search(n)]
    groups: dict[str, list[str]] = {}
    for name in outside or names:
        groups.setdefault(str(PurePosixPath(name).parent), []).append(name)
    return tuple(name for group in groups.values() for name in _newest(group))


def _newest(names: Sequence[str]) -> list[str]:
    stamped: dict[str, str] = {}
    slices: dict[str, tuple[str, int]] = {}
    for name in names:
        match = _NAME.fullmatch(PurePosixPath(name).name)
        numbers = match["numbers"].split("_")[1:] if match else []
        if match and match["part"] is not None:
            slices[name] = (numbers[-1] if numbers else "", int(match["part"]))
        elif len(numbers) == 1 and len(numbers[0]) >= 8:
            stamped[name] = numbers[0]
    single = [n for n in names if n not in stamped and n not in slices]
    single.sort(key=lambda n: [*map(int, re.findall(r"\d{1,18}", PurePosixPath(n).name))])
    run = last_run(slices)
    newest = max(stamped.values(), default="")
    if stamped and newest >= max((slices[n][0] for n in run), default=""):
        return [n for n, stamp in stamped.items() if stamp == newest]
    return run or single


# -- tables of old MindSpore ----------------------------------------------------------------------

_MINDSPORE_STARTS = (
    "step_trace_", "hccl_raw_", "aicore_", "aicpu_", "output_", "framework_raw_", "timeline_",
    "ascend_", "gpu_", "min_cycle_", "dataset_", "minddata_", "pipeline_", "device_queue_",
    "dynamic_shape_", "flops_", "parallel_strategy_",
)  # fmt: skip
"""How their names begin: PROF folders hold thousands of others."""


_MINDSPORE_FILES = tuple(lazy_regex(f"{file}(?:\\.gz)?") for _, file, _ in MINDSPORE_TABLES)
"""Names of the files of :data:`MINDSPORE_TABLES`."""


def mindspore_tables_of(capture: Capture) -> list[tuple[str, str, str]]:
    """Name, file and layout of the side tables of a capture; of two files the preferred one."""
    names = [
        name
        for name in sorted((*capture.known, *capture.files))
        if name.rpartition("/")[2].startswith(_MINDSPORE_STARTS)
    ]
    by_table: dict[str, tuple[str, str, str]] = {}
    tables = zip(MINDSPORE_TABLES, _MINDSPORE_FILES, strict=True)
    for (side_table, _, layout), pattern in tables if names else ():
        for name in names:
            if pattern.fullmatch(name.rpartition("/")[2]) and capture.source.size(name):
                by_table[side_table] = (side_table, name, layout)
    return list(by_table.values())
