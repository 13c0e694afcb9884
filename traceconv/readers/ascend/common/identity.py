"""Who wrote an Ascend capture: rank, device, host, process, clock, from its small files.

A rank may be named in several places. Each is a claim with a trust; the most trusted one wins,
and claims that disagree are an issue. Rank 0 is a rank like any other; -1 means unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from traceconv.core.clock import Anchor, Domain, are_unix_us, to_ns
from traceconv.core.errors import ClockError, Issues, MalformedInputError, SourceError
from traceconv.core.job_shape import STAGE, ParallelGroup, Placement, axes_of
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import derived_rank
from traceconv.readers.shared.numbers import whole_number

if TYPE_CHECKING:
    from traceconv.core.builder import TraceBuilder

_SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "dp": "data_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}
"""Keys of ``distributed_args``, by axis."""

_MOST_RANKS = 1 << 24
_SMALL_BYTES = 16 << 20
_DECODER = json.JSONDecoder(parse_float=str)
_STAMP = lazy_regex(rb'"ts"\s*:\s*"?(\d{1,18})(?!\d)')
_PROFILER_INFO = lazy_regex(r"profiler_info(?:_(\d{1,18}))?\.json")
_STRATEGY = lazy_regex(r"parallel_strategy_(\d{1,18})\.json")
_STRATEGY_HEAD = lazy_regex(r'\s*\{\s*"config"\s*:\s*(?=\{)')
_DATABASE = lazy_regex(r"(?:ascend_[a-z]+_profiler|msmonitor_\d+_\d+)_(\d{1,18})\.db")
_INFO_JSON = lazy_regex(r"(?:device_(\d{1,18})|host)/info\.json(?:\.(\d{1,18}))?")
_PROF_FACTS = lazy_regex(
    r"(?:^|/)(?:device_(?P<d>\d{1,18})/|host/)?(?P<what>info\.json|start_info)(?:\.\d+)?"
)
_WORKER = lazy_regex(r"(.+?)_\d{14,17}_ascend_(?:ms|pt)")
_HOST_PID = lazy_regex(r"(?P<host>.+)_(?P<pid>\d{1,18})")
_FOLDER_RANK = lazy_regex(r"(?:^|/)rank_?(\d{1,18})(?=[_/]|$)", re.IGNORECASE)


def describe(build: TraceBuilder, notes: Mapping[str, Any]) -> None:
    """Say of a trace that an NPU made it, and keep ``notes`` for display."""
    build.hints.vendor = "ascend"
    build.notes.update(notes)
    if isinstance(name := notes.get("device_name"), str):
        build.hints.device_names[max(build.capture.device, 0)] = name


class Trust(IntEnum):
    """How far a claim of a rank is trusted, most first."""

    FILE_NAME = 1  # profiler_info_<rank>.json
    INSIDE = 2  # rank_id in it
    METADATA = 3  # distributed_args of profiler_metadata.json
    DATABASE = 4  # name of a database
    INFO_JSON = 5  # rank_id of the CANN collector
    SUFFIX = 6  # suffix of a derived file
    FOLDER = 7  # a folder that a user named


class Identity(msgspec.Struct):
    """The statements of a capture's files about it, filled in file by file.

    Attributes:
        claims: (trust, rank, place).
        anchor: the pair of clocks of ``start_info``, if there is one.
        diff_ns: ``diff_time`` of ``profiler_info``: what the vendor's merger subtracts.
        chip:   as the collector calls it, "" if it does not say.
        placement: its parallel groups, and how many ranks those have.
        notes:  facts for reports.
    """

    source: Source
    issues: Issues
    claims: list[tuple[Trust, int, str]] = msgspec.field(default_factory=list)
    host: str = ""
    device: int = -1
    pid: int = -1
    world_size: int = -1
    graphs: tuple[int, ...] = ()
    anchor: Anchor | None = None
    diff_ns: int | None = None
    chip: str = ""
    placement: Placement = msgspec.field(default_factory=Placement)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)

    def claim(self, trust: Trust, value: object, origin: str) -> None:
        """Note that ``origin`` names ``value`` as the rank, if that is one."""
        rank = _whole(value)
        if rank >= 0:
            self.claims.append((trust, rank, origin))

    def rank(self, label: str) -> tuple[int | None, str]:
        """The rank and its source; disagreement is reported as an issue of ``label``."""
        if not self.claims:
            return None, ""
        ordered = sorted(self.claims, key=lambda c: c[0])
        files = [c for c in ordered if c[0] < Trust.FOLDER]
        if len({rank for _, rank, _ in files}) > 1:
            where = ", ".join(f"{origin}: {rank}" for _, rank, origin in files)
            self.issues.add("rank-conflict", label, where)
        return ordered[0][1], ordered[0][2]

    def capture(
        self,
        reader: str,
        label: str,
        detail: Any,
        *,
        files: Sequence[str] = (),
        known: Iterable[str] = (),
        device: int = -1,
        graphs: Iterable[int] = (),
        clock: Anchor | None = None,
    ) -> Capture:
        """The capture these files are of.

        Args:
            known:  its other files; those in ``files``, and repeated ones, are left out.
            device: -1 for that of its small files.

        Issues: rank-conflict.
        """
        rank, rank_from = self.rank(label)
        return Capture(
            reader=reader,
            source=self.source,
            files=tuple(files),
            rank=rank,
            rank_from=rank_from,
            known=tuple(dict.fromkeys(n for n in known if n not in set(files))),
            host=self.host,
            device=self.device if device < 0 else device,
            pid=self.pid,
            graphs=tuple(sorted(graphs)),
            clock=clock,
            world_size=self.world_size,
            label=label,
            detail=detail,
            placement=self.placement,
        )

    def clock(self, unix: bool) -> Anchor:
        """What stamps are measured against, given whether they count from 1970."""
        if unix:
            return Anchor(Domain.UNIX, evidence="Unix time stamps")
        if self.anchor is not None:
            return self.anchor
        if self.diff_ns:
            # any instant will do, except 0, which means unknown
            return Anchor(Domain.MONOTONIC, self.diff_ns + 1, 1, "profiler_info: diff_time")
        return Anchor(Domain.MONOTONIC, evidence="stamps far below Unix time, no start_info")

    def read_json(self, name: str) -> dict[str, Any]:
        """A small JSON object; ``{}`` and an issue if it cannot be read."""
        try:
            text = self.source.read(name, _SMALL_BYTES).decode("utf-8-sig", "replace")
            parsed, _ = _DECODER.raw_decode(text.lstrip())  # what follows the object is not ours
        except (SourceError, ValueError, RecursionError) as e:
            self.issues.add("malformed-record", self.source.title(name), str(e)[:120])
            return {}
        return parsed if isinstance(parsed, dict) else {}

    # -- the files, in order of trust -----------------------------------------------------

    def around(self, names: Iterable[str], alone: bool) -> None:
        """The files around a capture that are about it.

        Args:
            alone: it is the only capture there; else its rank must be known by now, and only
                files that carry it are taken.
        """
        ranks = {rank for _, rank, _ in self.claims}
        for name in names:
            base = name.rpartition("/")[2]
            if base.startswith("profiler_info") and (alone or derived_rank(base) in ranks):
                self.profiler_info(name)
            elif base == "profiler_metadata.json" and alone:
                self.metadata(name)

    def profiler_info(self, name: str) -> None:
        """``profiler_info[_<rank>].json`` of any generation."""
        base = name.rpartition("/")[2]
        match = _PROFILER_INFO.fullmatch(base)
        if not match:
            return
        self.claim(Trust.FILE_NAME, match[1], base)
        info = self.read_json(name)
        self.claim(Trust.INSIDE, info.get("rank_id"), f"{base}: rank_id")
        self.world_size = max(self.world_size, _whole(info.get("rank_size")))
        self._stages(base, _whole(info.get("stage_num")))
        graphs = info.get("graph_ids")
        if isinstance(graphs, list):
            self.graphs = tuple(sorted({g for g in map(_whole, graphs) if g >= 0}))
        difference = info.get("diff_time")
        if isinstance(difference, int | float | str) and not isinstance(difference, bool):
            try:
                self.diff_ns = to_ns(str(difference))
            except ClockError:
                self.issues.add("bad-time", base, "diff_time")
        self._versions(info)

    def _stages(self, base: str, stages: int) -> None:
        """How many stages MindSpore's job has; which one this rank is in is not said there."""
        if 0 < stages <= _MOST_RANKS and STAGE not in self.placement.sizes:
            sizes = {**self.placement.sizes, STAGE: stages}
            origin = self.placement.place or f"{base}: stage_num"
            self.placement = replace(self.placement, sizes=sizes, place=origin)

    def parallel_strategy(self, name: str) -> None:
        """``parallel_strategy_<rank>.json`` of MindSpore: the stage of the pipeline that a rank is
        in, and the ranks of every stage (``config``, the first member; the graph behind it may be
        long). It counts if it is of the rank in its name, and says both alike.
        """
        base = name.rpartition("/")[2]
        match = _STRATEGY.fullmatch(base)
        if not match:
            return
        try:
            text = self.source.head(name, _SMALL_BYTES).decode("utf-8", "replace")
            head = _STRATEGY_HEAD.match(text)
            config, _ = _DECODER.raw_decode(text, head.end()) if head else ({}, 0)
        except (SourceError, ValueError, RecursionError) as e:
            self.issues.add("malformed-record", self.source.title(name), str(e)[:120])
            return
        rank, stage = _whole(config.get("rankId")), _whole(config.get("stageId"))
        listed = config.get("stageDevices")
        stages = [_dimensions(shape) for shape in listed] if isinstance(listed, list) else []
        among = [number for number, ranks in enumerate(stages) if rank in ranks]
        if rank != int(match[1]) or among != [stage] or not all(stages):
            return
        self._stages(base, len(stages))
        if self.placement.sizes[STAGE] == len(stages):
            coordinates = {**self.placement.coordinates, STAGE: stage}
            self.placement = replace(
                self.placement, coordinates=coordinates, place=f"{base}: stageId"
            )

    def _versions(self, info: dict[str, Any]) -> None:
        for key in ("cann_version", "torch_npu_version", "ms_version", "jit_level"):
            if isinstance(info.get(key), str) and info[key]:
                self.notes[key] = info[key]
        config = info.get("config")
        experimental = config.get("experimental_config") if isinstance(config, dict) else None
        level = experimental.get("_profiler_level") if isinstance(experimental, dict) else None
        if isinstance(level, str):
            self.notes["profiler_level"] = level

    def metadata(self, name: str) -> None:
        """``profiler_metadata.json``: rank, world size and parallel groups; never the
        environment variables, never the addresses communicators are named after.
        """
        self.distributed(self.read_json(name), "profiler_metadata.json")

    def distributed(self, info: Mapping[str, Any], place: str) -> None:
        """Rank, world size and parallel groups out of ``distributed_args`` and
        ``parallel_group_info``, wherever these are stored.
        """
        args = info.get("distributed_args")
        sizes: dict[str, int] = {}
        if isinstance(args, dict):
            sizes = _sizes(args)
            self.claim(Trust.METADATA, args.get("rank"), place)
            self.world_size = max(self.world_size, _whole(args.get("world_size")))
        groups = info.get("parallel_group_info")
        parallel_groups: list[dict[str, Any]] = []
        if isinstance(groups, dict):
            parallel_groups = [g for g in map(_group, groups.values()) if g]
            if parallel_groups:
                self.notes["parallel_groups"] = parallel_groups
                self.world_size = max(self.world_size, *(len(g["ranks"]) for g in parallel_groups))
        if sizes or parallel_groups:
            listed = f"{place}: parallel_group_info"
            self.placement = Placement(
                tuple(
                    ParallelGroup(g["name"], tuple(g["ranks"]), listed)
                    for g in parallel_groups
                    if g["ranks"] and axes_of(g["name"])
                ),
                {**self.placement.sizes, **sizes},
                place=f"{place}: distributed_args" if sizes else self.placement.place,
            )

    def database(self, name: str) -> None:
        """The name of a framework database."""
        base = name.rpartition("/")[2]
        if match := _DATABASE.fullmatch(base):
            self.claim(Trust.DATABASE, match[1], base)

    def info_json(self, name: str) -> None:
        """``info.json[.<device>]`` of a PROF folder: rank, device, host and process."""
        info = self.read_json(name)
        base = name.rpartition("/")[2]
        self.claim(Trust.INFO_JSON, info.get("rank_id"), base)
        match = _INFO_JSON.search(name)
        if self.device < 0 and match is not None:
            device = next((d for d in match.groups() if d), info.get("devices"))
            self.device = _whole(device)
        hostname = info.get("hostname")
        if not self.host and isinstance(hostname, str) and not set(hostname) & set("/\\"):
            self.host = hostname
        if self.pid < 0:
            self.pid = _whole(info.get("pid"))
        for key, note in (("cannVersion", "cann_version"), ("platform_version", "chip")):
            if isinstance(info.get(key), str) and info[key]:
                self.notes.setdefault(note, info[key])
        self.chip = str(self.notes.get("chip", ""))
        listed = info.get("DeviceInfo")
        devices = (
            [device_facts for device_facts in listed if isinstance(device_facts, dict)]
            if type(listed) is list
            else []
        )
        for device_facts in devices:
            cores, mhz = (
                _whole(device_facts.get("ai_core_num")),
                _whole(device_facts.get("aic_frequency")),
            )
            is_own = len(devices) == 1 or _whole(device_facts.get("id")) == self.device
            if is_own and cores > 0 and mhz > 0 and self.chip:
                chip_text = f"Ascend chip {self.chip}: {cores} cores at {mhz} MHz"
                self.notes.setdefault("device_name", chip_text)

    def start_info(self, name: str) -> None:
        """``start_info[.<device>]``: one instant on the monotonic and on the Unix clock."""
        info = self.read_json(name)
        local = _whole(info.get("clockMonotonicRaw"))
        shared = _whole(info.get("collectionTimeBegin"))
        if local > 0 and shared > 0 and self.anchor is None:
            base = name.rpartition("/")[2]
            self.anchor = Anchor(Domain.MONOTONIC, local, shared * 1000, base)

    def prof_files(self, names: Iterable[str], device: int = -1) -> None:
        """``info.json`` and ``start_info`` among the files of PROF folders; those of a device
        before those of the host.

        Args:
            device: only this device's; -1 for any.
        """
        files = []
        for name in names:
            match = _PROF_FACTS.search(name)
            if match and match.end() == len(name):
                of_device = int(match["d"]) if match["d"] else -1
                if device < 0 or of_device in (-1, device):
                    files.append((of_device < 0, of_device, name, match["what"]))
        for _, _, name, what in sorted(files):
            self.info_json(name) if what == "info.json" else self.start_info(name)

    def folder(self, path: str) -> None:
        """Host, process and rank in the name of a folder, and of the one around it."""
        base = path.rstrip("/").rpartition("/")[2]
        match = _WORKER.fullmatch(base)
        worker = match[1] if match else ""
        if (process := _HOST_PID.fullmatch(worker)) and not _FOLDER_RANK.search(worker):
            self.host = self.host or process["host"]
            self.pid = int(process["pid"]) if self.pid < 0 else self.pid
        if ranks := _FOLDER_RANK.findall("/".join(path.split("/")[-2:])):
            self.claim(Trust.FOLDER, ranks[-1], "folder name")


def has_unix_stamps(head: bytes, otherwise: bool) -> bool:
    """Whether the first stamps of a trace-event file count from 1970.

    Args:
        otherwise: the answer if there is no stamp.
    """
    stamps = [int(digits) for digits in _STAMP.findall(head)[:200]]
    return are_unix_us(stamps) if stamps else otherwise


def of_cluster(
    source: Source,
    names: Iterable[str],
    sizes: Mapping[str, int],
    world_size: int,
    issues: Issues,
) -> Placement:
    """What cluster tools wrote of the parallel groups of a PyTorch job.

    That is ``comm_group_parallel_info`` of ``communication_group.json``, or the tables
    CommunicationGroupMapping and ClusterBaseInfo of ``cluster_analysis.db``. Members are sorted
    there, which is their order in PyTorch, whose groups are sorted, too; not in MindSpore. Some
    versions list the members with a capture only, so that groups of an axis count if they are of
    the size that is stated, or split all ranks of the job evenly.

    Args:
        names: the files of the folder of cluster tools.
        sizes: ranks per group that captures state, by axis.
        world_size: ranks of the job, -1 if unknown.

    Issues: malformed-record.
    """
    for name in names:
        base = name.rpartition("/")[2]
        if base == "communication_group.json":
            listed = Identity(source, issues).read_json(name).get("comm_group_parallel_info")
            rows = [
                (row.get("pg_name"), row.get("rank_set"))
                for row in (listed if isinstance(listed, list) else ())
                if isinstance(row, dict)
            ]
            stated_sizes: Mapping[str, int] = {}
        elif base == "cluster_analysis.db":
            rows, stated_sizes = _mapping(source, name, issues)
        else:
            continue
        groups = _whole_groups(rows, {**stated_sizes, **sizes}, world_size, base)
        if groups or stated_sizes:
            return Placement(
                groups, stated_sizes, place=f"{base}: ClusterBaseInfo" if stated_sizes else base
            )
    return Placement()


def _mapping(
    source: Source, name: str, issues: Issues
) -> tuple[list[tuple[object, object]], dict[str, int]]:
    """Groups and sizes in ``cluster_analysis.db``."""
    from traceconv.readers.shared.sqlite.database import opened

    try:
        with opened(source, name, salvage=True) as database:
            rows = database.rows("CommunicationGroupMapping", "pg_name", "rank_set")
            facts = dict(database.rows("ClusterBaseInfo", "key", "value"))
        args_text = facts.get("distributed_args")
        args = _DECODER.decode(args_text) if isinstance(args_text, str) else {}
    except (MalformedInputError, SourceError, ValueError, RecursionError) as e:
        issues.add("malformed-record", source.title(name), str(e)[:120])
        return [], {}
    return list(rows), _sizes(args) if isinstance(args, dict) else {}


def _whole_groups(
    rows: Iterable[tuple[object, object]], sizes: Mapping[str, int], world_size: int, place: str
) -> tuple[ParallelGroup, ...]:
    """The groups that are known to be listed with all their members."""
    by_name: dict[str, set[tuple[int, ...]]] = {}
    for name, listed in rows:
        if isinstance(listed, str):  # "(0,1)"
            listed = listed.strip("()[] ").split(",")
        members = [_whole(member) for member in listed] if isinstance(listed, list) else []
        if isinstance(name, str) and axes_of(name) and members and min(members) >= 0:
            by_name.setdefault(name, set()).add(tuple(sorted(members)))
    whole_groups = []
    for name, groups in by_name.items():
        ranks = sorted(rank for members in groups for rank in members)
        lengths = {len(members) for members in groups}
        axes = axes_of(name)
        has_stated_size = len(axes) == 1 and lengths == {sizes.get(axes[0])}
        is_split = len(lengths) == 1 and ranks == list(range(world_size))
        if has_stated_size or is_split:
            whole_groups += [ParallelGroup(name, members, place) for members in sorted(groups)]
    return tuple(whole_groups)


def _sizes(args: Mapping[str, Any]) -> dict[str, int]:
    """Ranks per group by axis, as ``distributed_args`` state them."""
    size_by_axis = {axis: _whole(args.get(key)) for axis, key in _SIZES.items()}
    return {axis: size for axis, size in size_by_axis.items() if 0 < size <= _MOST_RANKS}


def _dimensions(shape: object) -> list[int]:
    """What MindSpore writes as if it were the shape of a tensor: ``{"dim": [{"size": "4"}, ...]}``;
    empty if one of them is not a number."""
    listed = shape.get("dim") if isinstance(shape, dict) else None
    sizes = [dimension.get("size") if isinstance(dimension, dict) else None
             for dimension in (listed if isinstance(listed, list) else ())]  # fmt: skip
    numbers = [_whole(size) for size in sizes]
    return numbers if min(numbers, default=-1) >= 0 else []


def _group(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    name, ranks = entry.get("group_name"), entry.get("global_ranks")
    if not isinstance(name, str) or not isinstance(ranks, list):
        return None
    are_ranks = all(type(rank) is int and 0 <= rank <= _MOST_RANKS for rank in ranks)
    return {"name": name, "ranks": ranks} if are_ranks else None


def _whole(value: object) -> int:
    """A number from 0 on given as number or text; -1 for anything else."""
    number = whole_number(value)
    return -1 if number is None else number
