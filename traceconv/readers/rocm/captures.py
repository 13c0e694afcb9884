"""Files of ROCm's profilers by name and content, and the processes they hold.

One run may lie side by side in several forms: databases are preferred, then JSON, then CSV tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.rocm.headings import old_table
from traceconv.readers.shared.lines import rank_in_path
from traceconv.readers.shared.numbers import INT32_MAX, whole_number
from traceconv.readers.shared.sqlite.files import is_sqlite
from traceconv.readers.shared.table_kinds import SAME_RUN

if TYPE_CHECKING:
    from traceconv.readers.rocm.database import Member

DATABASE, JSON, CSV = "db", "json", "csv"

_RESULTS = lazy_regex(r"(.*?)_?results\.(?:db|json|pftrace)(?:\.gz)?")
_KINDS = (
    r"(?:hip|hip_runtime|hip_compiler|hsa|hsa_core|marker|rccl|rocdecode|rocjpeg|ompt|kfd)_api|"
    r"kernel|memory_copy|memory_allocation|scratch_memory"
)
_TABLE = lazy_regex(
    rf"(?:(.*?)_)?((?:{_KINDS})_trace|counter_collection|agent_info|(?:{_KINDS}|domain)_stats|"
    r"pc_sampling_(?:host_trap|stochastic))"
    r"\.csv(?:\.gz)?"
)
_SIGN = lazy_regex(
    rb'^(?:\xef\xbb\xbf)?(?=[^\n]*"?Start_Timestamp"?)(?=[^\n]*"?(?:Kernel_Name|Function|Direction|'
    rb'Operation|Counter_Name)"?)[^\n]*"?End_Timestamp'
)
_AGENTS = lazy_regex(rb'^(?:\xef\xbb\xbf)?"?Node_Id"?,')
_SUMS = lazy_regex(rb'^(?:\xef\xbb\xbf)?"?Name"?,"?Calls"?,')
_TOOL = lazy_regex(rb'^\s*\{(?s:.*?)"rocprofiler-sdk-tool"\s*:')


class Form(msgspec.Struct, frozen=True):
    """The files that a capture is read from.

    Attributes:
        kind:   DATABASE, JSON or CSV.
        member: of a database: which process; else None.
        number: of JSON: which element; of tables: 0.
        guid:   of tables: the process whose rows are read, "" for all.
        agents: of tables: the file that lists devices, "" if there is none.
    """

    kind: str
    member: Member | None = None
    number: int = 0
    guid: str = ""
    agents: str = ""


class _Set(msgspec.Struct):
    """Files of one folder that share the beginning of their names."""

    databases: list[str] = []
    json: list[str] = []
    tables: list[str] = []
    others: list[str] = []  # of the same run, and not read
    headless: list[str] = []  # tables by name, without their headings


def captures(source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
    """One capture per process."""
    sets = _sets(source, names)
    listed: list[Capture] = []
    guids: set[str] = set()
    for (folder, stem), files in sets.items():
        unused: list[str] = []
        group: list[Capture] = []
        for kind, candidates in (
            (DATABASE, files.databases),
            (JSON, files.json),
            (CSV, files.tables),
        ):
            if not candidates:
                continue
            if not group:
                group = _of_kind(source, kind, candidates, folder, stem)
                if kind == JSON and files.tables and any(c.pid < 0 for c in group):
                    group = []  # cut off, as by a killed process; its tables may be whole
                    issues.add("malformed-record", source.title(candidates[0]), "tables are read")
            if not group or group[0].detail.kind != kind:
                unused += candidates
        fresh = [c for c in group if not (_guid(c) and _guid(c) in guids)]
        guids |= {_guid(c) for c in fresh if _guid(c)}
        if len(fresh) < len(group):
            issues.add("repeated-content", group[0].label, "", len(group) - len(fresh))
        lost = [name for c in group if c not in fresh for name in c.files]
        if fresh:
            listed.append(_with_known(fresh[0], [*unused, *files.others]))
            listed += fresh[1:]
        elif listed and lost:
            listed[0] = _with_known(listed[0], [*lost, *unused, *files.others])
    return listed


def _with_known(capture: Capture, names: Iterable[str]) -> Capture:
    added = tuple(n for n in dict.fromkeys(names) if n not in capture.files)
    uses = {**capture.uses, **dict.fromkeys(added, SAME_RUN)}
    return replace(capture, known=(*capture.known, *added), uses=uses)


def _guid(capture: Capture) -> str:
    form: Form = capture.detail
    return form.member.guid if form.member else form.guid


def _sets(source: Source, names: Sequence[str]) -> dict[tuple[str, str], _Set]:
    by_stem: dict[tuple[str, str], _Set] = {}

    def set_of(name: str, stem: str) -> _Set:
        return by_stem.setdefault((str(PurePosixPath(name).parent), stem), _Set())

    for name in sorted(names):
        base = PurePosixPath(name).name
        results, table = _RESULTS.fullmatch(base), _TABLE.fullmatch(base)
        if table:
            head = source.head(name, 4096)
            if _SIGN.match(head) or table[2].startswith("pc_sampling"):
                set_of(name, table[1] or "").tables.append(name)
            elif _AGENTS.match(head) or _SUMS.match(head):
                set_of(name, table[1] or "").others.append(name)
            else:
                set_of(name, table[1] or "").headless.append(name)
        elif results and base.endswith((".pftrace", ".pftrace.gz")):
            set_of(name, results[1]).others.append(name)
        elif is_sqlite(source.head(name, 16)):
            if _is_rocpd(source, name):
                set_of(name, results[1] if results else base).databases.append(name)
        elif base.endswith((".csv", ".csv.gz")) and old_table(source.head(name, 4096)):
            set_of(name, base).tables.append(name)
        elif base.endswith((".json", ".json.gz")) and _TOOL.match(source.head(name, 256)):
            set_of(name, results[1] if results else base).json.append(name)
    complete = {k: v for k, v in by_stem.items() if v.databases or v.json or v.tables}
    for (folder, _), files in complete.items():
        files.tables += files.headless if files.tables else []
        index = str(PurePosixPath(folder) / "index.yaml")
        if folder.endswith(".rpdb") and index in names:
            files.others.append(index)
    return complete


def _is_rocpd(source: Source, name: str) -> bool:
    from traceconv.readers.rocm.database import suffixes
    from traceconv.readers.shared.sqlite.database import opened

    try:
        with opened(source, name, salvage=True) as database:
            return bool(suffixes(database))
    except MalformedInputError:
        return False


def _of_kind(
    source: Source, kind: str, names: Sequence[str], folder: str, stem: str
) -> list[Capture]:
    """The captures of files of one kind that belong together."""
    if kind == DATABASE:
        return [c for name in names for c in _of_database(source, name)]
    if kind == JSON:
        from traceconv.readers.rocm.tool_json import processes

        captures_of_json = []
        for name in names:
            for number, process in enumerate(processes(source, name)):
                pid, host = process
                title = source.title(name)
                captures_of_json.append(
                    _capture(source, (name,), Form(JSON, number=number), pid, host, title)
                )
        return captures_of_json
    return _of_tables(source, names, folder, stem)


def _of_database(source: Source, name: str) -> list[Capture]:
    from traceconv.readers.rocm.database import members
    from traceconv.readers.shared.sqlite.database import opened

    with opened(source, name, salvage=True) as database:
        listed = members(database)
    title = source.title(name)
    processes = []
    for member in listed:
        label = title if len(listed) == 1 else f"{title} (process {member.pid})"
        capture = _capture(source, (name,), Form(DATABASE, member), member.pid, member.host, label)
        device = member.devices[0] if len(member.devices) == 1 else -1
        capture = replace(capture, world_size=member.world_size, device=device)
        if member.rank is not None:
            capture = replace(capture, rank=member.rank, rank_from=member.rank_from)
        processes.append(capture)
    return processes


def _of_tables(source: Source, names: Sequence[str], folder: str, stem: str) -> list[Capture]:
    from traceconv.readers.rocm.tables import processes

    number_in_name = whole_number(stem, INT32_MAX)
    # only the default names, <host>/<pid>_..., begin with a host
    host = PurePosixPath(folder).name if number_in_name is not None else ""
    agents = str(PurePosixPath(folder) / f"{stem}_agent_info.csv") if stem else ""
    listed = processes(source, names)
    captures_of_tables = []
    for guid, pid in listed:
        pid = number_in_name if pid < 0 and number_in_name is not None else pid
        location = str(PurePosixPath(folder) / stem) if stem else folder
        label = source.title(location) if not source.lone else source.label
        if len(listed) > 1:
            label += f" (process {pid if pid >= 0 else guid})"
        form = Form(CSV, guid=guid, agents=agents if agents in source.names() else "")
        captures_of_tables.append(_capture(source, tuple(names), form, pid, host, label))
    return captures_of_tables


def _capture(
    source: Source, files: tuple[str, ...], form: Form, pid: int, host: str, label: str
) -> Capture:
    rank = rank_in_path(files[0])
    return Capture(
        reader="rocprof",
        source=source,
        files=files,
        rank=rank,
        rank_from="name" if rank is not None else "",
        host=host,
        pid=pid,
        clock=Anchor(Domain.MONOTONIC, evidence="ns since the host booted"),
        label=label,
        detail=form,
    )


def read_process(capture: Capture, build: TraceBuilder) -> None:
    """Put every event of one process into ``build``.

    Raises:
        MalformedInputError: nothing in its files can be read.
    """
    form: Form = capture.detail
    build.file = capture.source.title(capture.files[0])
    if form.member is not None:
        from traceconv.readers.rocm.database_content import Reading
        from traceconv.readers.shared.sqlite.database import opened

        with opened(capture.source, capture.files[0], salvage=True) as database:
            Reading(build, database, form.member).read()
            for damaged in database.damaged_places():
                build.skip("truncated", damaged)
    elif form.kind == JSON:
        from traceconv.readers.rocm.tool_json import read_json

        read_json(capture.source, capture.files[0], form.number, build)
    else:
        from traceconv.readers.rocm.tables import Tables

        Tables(capture.source, form.guid, form.agents, build).read(capture.files)
