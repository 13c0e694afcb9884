"""PyTorch profiler (Kineto): Chrome traces of ``torch.profiler``, of GPUs and of hosts alone.

Written by: PyTorch 1.8 (2021) to 2.x, on demand (dynolog) or by ``torch.profiler``; CUDA, ROCm,
XPU, MTIA, or no device. Seen: 2021-05 to 2026-03, also filtered and cut down by other tools.
Files: ``<worker>.<time>.pt.trace.json[.gz]``; any other name is recognised by what is in it.
The files of one rank are its collection windows.
Units and clock: us, whole or with three digits. Stamps count from ``baseTimeNanoseconds`` (2.3 and
later), which is added when read, or from 1970. Either way events come out in Unix time. The base
may follow the events: then the end of the file is read, too.
Rank from: ``distributedInfo`` (``rank``), before or behind the events; in files that were merged of
several ranks, what is in front of process ids (``[TP01] 2000``); else names, where all leave no
doubt (vLLM, SGLang).
Quirks: device rows are known by category, not by process number (a GPU's may be any); device
projections of host ranges (``gpu_user_annotation``) are no work and get lanes of their own, as do
synchronisation records; kernels of a collective are on the lanes of NCCL, by process group;
a ``perfetto_manifest.json`` beside the files sets machine and offset of each (manifest_beside);
ranges of the user are named in ``hints.range_names``;
``[memory]`` marks make counters, too; the profiler's own overhead has process -1 (two_ranks).
Launch flows follow correlation numbers, since recorded flows lack ends (replay_two_gpus) or begin
at the same time (first_kineto). A file cut off may have lost its base (cut_off).
How a graph was captured (``graph_capture_rank_0…``, or as ``execution_details.json`` lists) is no
window of the rank: it names the nodes of the graphs that the rank replays.
Without any device, operations of Gloo are communication of the one group there is; their names do
not tell groups apart (gloo_on_cpus).
Errors and warnings in the profiler's log (``ERROR``, ``WARNING``) are issues (logged).
Ignored: keys around the events about the user, the job and the settings, by name; other log lines;
of the host its name is taken.
Source: pytorch/kineto, which writes it; test data of facebookresearch/HolisticTraceAnalysis,
AMD-AGI/TraceLens and pytorch/kineto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared import perfetto_manifest
from traceconv.readers.shared.clock_check import check_clock
from traceconv.readers.shared.rank_names import ranks_of
from traceconv.readers.torch.kineto.graph_captures import NO_WINDOW, captures_among, of_rank

_PLACE = lazy_regex(r"([A-Za-z]{2,4})-?(\d{1,6})")
_MERGED = lazy_regex(r"merged-(\d{1,19}(?:\.\d{1,9})?)(?=[-.])")
_WORKER = lazy_regex(r"(.+)_(\d{1,9})\.\d{13,19}\.pt\.trace\.json(?:\.gz)?")
"""Host and process id: the name that ``tensorboard_trace_handler`` gives to a worker."""


class KinetoReader:
    """Reads Chrome traces of the PyTorch profiler."""

    name = "kineto"
    title = "PyTorch profiler (Kineto)"
    files = "*.pt.trace.json[.gz], or by content"
    order = 200

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per file, or per rank in a file that was merged of several."""
        captures = [capture for name in sorted(names) for capture in self._captures(source, name)]
        captures = _without_merged(captures, issues)
        if captures:
            placed = perfetto_manifest.found_in(source, names, issues)
            for i, c in enumerate(captures):
                if (placement := placed.get(c.files[0])) is not None:
                    traits = {**c.traits, "shift_ns": placement.shift_ns}
                    captures[i] = replace(c, host=placement.machine or c.host, traits=traits)
            if placed:
                manifests = [n for n in names if PurePosixPath(n).name == perfetto_manifest.NAME]
                use = dict.fromkeys(manifests, "places the files")
                captures[0] = replace(captures[0], known=tuple(use), uses=use)
        of_graphs = captures_among(source, names)
        passes = [c for c in captures if c.files[0] not in of_graphs]
        if passes and of_graphs:  # alone, such a file is the capture
            uses = [{**capture.uses, **of_rank(of_graphs, capture.rank)} for capture in passes]
            passes = [replace(c, known=tuple(u), uses=u) for c, u in zip(passes, uses, strict=True)]
        return passes or captures

    def _captures(self, source: Source, name: str) -> list[Capture]:
        from traceconv.readers.torch.kineto.header import header

        head = header(source, name)
        if not head:
            return []
        title = source.title(name)
        whole_file = Capture(
            reader=self.name,
            source=source,
            files=(name,),
            rank=head.rank,
            rank_from="distributedInfo" if head.rank is not None else "",
            host=head.host or _host_in(name, head.traits.get("pid")),
            clock=head.clock(),
            world_size=head.world_size,
            placement=head.placement,
            traits=head.traits,
            optional=head.rank is None and head.on_host,
            label=title,
            detail=bool(head.is_unix),
        )
        if not head.merged:
            return [whole_file]
        places = [{w.lower(): int(n) for w, n in _PLACE.findall(part)} for part in head.merged]
        ranks: list[int | None] = [None] * len(places)
        if all(place.keys() == places[0].keys() for place in places):
            ranks = [*ranks_of(places)]
        return [
            replace(
                whole_file,
                rank=rank,
                rank_from=f"{part} in front of process ids",
                traits={"part": part},
                optional=False,
                label=f"{title} {part}",
            )
            for part, rank in zip(head.merged, ranks, strict=True)
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.torch.kineto.trace_file import File

        build.hints.free_rule = "device"

        build.file = capture.source.title(capture.files[0])
        part, shift_ns = str(capture.traits.get("part", "")), int(capture.traits.get("shift_ns", 0))
        File(build, capture.detail, part, shift_ns).read(capture.source, capture.files[0])
        check_clock(capture, build)
        self._graph_nodes(capture, build)

    def _graph_nodes(self, capture: Capture, build: TraceBuilder) -> None:
        """Add the table of the nodes of graphs, if the rank replays any."""
        if not any("GraphLaunch" in text for text in build.strings):
            return
        from traceconv.readers.shared.graph_nodes import TABLE
        from traceconv.readers.torch.kineto.graph_nodes import batch_sizes, nodes

        files = dict(capture.uses)
        if any("BeginCapture" in text for text in build.strings):
            files |= dict.fromkeys(capture.files, NO_WINDOW)
        build.hints.batch_sizes |= (sizes := batch_sizes(build.strings))
        if files:
            load = partial(nodes, capture, files, set(sizes.values()))
            build.side_table(TABLE, capture.source.title(next(iter(files))), load)


def _without_merged(captures: Sequence[Capture], issues: Issues) -> list[Capture]:
    """The captures without files that SGLang merged from others in their folder: ``merged-<id>…``
    from ``<id>-TP-0…`` (sglang/srt/utils/profile_merger.py)."""
    parts = [PurePosixPath(c.files[0]) for c in captures if "part" not in c.traits]
    copies: dict[str, str] = {}
    for name in {capture.files[0] for capture in captures if "part" in capture.traits}:
        path = PurePosixPath(name)
        match = _MERGED.match(path.name)
        if match and any(p.parent == path.parent and p.name.startswith(match[1]) for p in parts):
            copies[name] = "merged from other files in its folder"
    kept = [capture for capture in captures if capture.files[0] not in copies]
    for name in sorted(copies):
        issues.add("repeated-content", kept[0].source.title(name))
        kept[0] = replace(kept[0], known=tuple(copies), uses=copies)
    return kept


def _host_in(name: str, pid: int | None) -> str:
    """The host in a name that has the process id of the events behind it, else ""."""
    match = _WORKER.fullmatch(PurePosixPath(name).name)
    return match[1] if match and int(match[2]) == pid else ""


READER = KinetoReader()
