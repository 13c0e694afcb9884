"""Raw data of Ascend captures that were never analysed: what a crashed run leaves.

Written by: the collector of CANN, started by MindSpore, the Ascend PyTorch profiler or msprof;
samples of 2020 (``JOB*``).
Files: ``JOB*/[data/]{training_trace,hwts.log.data}.*`` with ``Framework.host.vm.*`` and
``DATA_PREPROCESS.dev.AICPU.*``; ``PROF_*/device_<d>/data/{ts_track,hwts,stars_soc,lpmFreqConv,
npu_mem}.*``; ``PROF_*/host/data/{aging,unaging}.*``; ``FRAMEWORK/*`` beside a PROF folder. Clocks
and identity from ``info.json``, ``start_info``, ``host_start.log`` and ``dev_start.log``.
Units and clock: ticks of counters, 100 MHz mostly; Unix time where the small files say what the
counters meant, else from the first record.
Rank from: ``profiler_info_<rank>.json`` around it, ``rank_id`` of ``info.json``.
Quirks: slices are put together by their number and may begin or end in the middle of a record;
records are lost where their running number jumps; a task's number wraps; the logical stream in
``task_desc_info`` is not the stream of the log, so operators are found by task number alone.
Only ``training_trace``, ``hwts.log.data`` and the text files were seen; all other records are read
from published descriptions of their layout.
Ignored: counters and PMU records other than those named (listed as known and counted).
Source: test data of mindspore-ai/mindinsight; Ascend/msprof and Ascend/pytorch, which read and
write the same records. Golden cases: job, job_cut_off, crashed,
crashed_cut_off, chip_6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.io.sources import Source
from traceconv.readers.ascend.common.file_names import PROF, folder_around, starting
from traceconv.readers.ascend.common.identity import Identity, collected_at, describe

if TYPE_CHECKING:
    from traceconv.readers.ascend.raw.beside import Window
    from traceconv.readers.ascend.raw.folders import Raw


@dataclass(frozen=True)
class _Detail:
    """What is remembered from finding to reading."""

    windows: tuple[Window, ...]
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(name for window in self.windows for name in window.raw.files)


class AscendRawReader:
    """Reads the collector's raw data where nothing was exported from them."""

    name = "ascend_raw"
    title = "Ascend raw data, of crashed runs"
    files = "PROF_*/{device_*,host}/data/*.slice_*, JOB*/**/*.slice_*, FRAMEWORK/*"
    order = 130
    unverified = "stars_soc, ts_track, hwts.data, lpmFreqConv, npu_mem, host/data, FRAMEWORK"

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per rank or device; the windows of one process are joined."""
        from traceconv.readers.ascend.raw.folders import raw_folders

        ordered = sorted(names)
        folders = [raw for raw in raw_folders(ordered) if raw.files]
        crowds = Counter(raw.root for raw in folders)
        alone = Counter(folder_around(root) for root in crowds)
        found = []
        for raw in folders:
            single = crowds[raw.root] == 1 and alone[folder_around(raw.root)] == 1
            found.append(_capture(source, ordered, raw, single, issues))
        return _joined_windows(found)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        detail: _Detail = capture.detail
        describe(build, detail.notes)
        for one in detail.windows:
            before = build.rows
            one.read(build, capture.source)
            span = build.span(before)
            if span and len(detail.windows) > 1:
                build.window(*span)


def _capture(
    source: Source, ordered: Sequence[str], raw: Raw, alone: bool, issues: Issues
) -> Capture:
    from traceconv.readers.ascend.raw.beside import window

    label = source.title(raw.root) if raw.root else source.label
    identity = Identity(source, issues)
    identity.prof_files(raw.known, raw.device)
    identity.folder(raw.around or raw.root or source.label.rpartition("/")[2])
    parent = raw.around if raw.around is not None else folder_around(raw.root)
    if parent is not None:
        prefix = f"{parent}/" if parent else ""
        identity.around(starting(ordered, prefix + "profiler_"), alone)
    rank, rank_from = identity.rank(label)
    own = window(identity, raw)
    detail = _Detail((own,), _notes(identity, raw))
    return Capture(
        reader=READER.name,
        source=source,
        files=detail.files,
        rank=rank,
        rank_from=rank_from,
        known=tuple(n for n in dict.fromkeys(raw.known) if n not in set(detail.files)),
        host=identity.host,
        device=raw.device if raw.device >= 0 else identity.device,
        pid=identity.pid,
        graphs=identity.graphs,
        clock=own.clock.anchor,
        world_size=identity.world_size,
        label=label,
        detail=detail,
    )


def _notes(identity: Identity, raw: Raw) -> dict[str, Any]:
    ended = any(name.rpartition("/")[2].startswith("end_info") for name in raw.known)
    return {**identity.notes, "collection_ended": ended}


def _joined_windows(captures: Sequence[Capture]) -> list[Capture]:
    """Folders one process filled one after the other, as one capture."""
    groups: dict[object, list[Capture]] = {}
    for capture in captures:
        raw: Raw = capture.detail.windows[0].raw
        whose = (capture.rank, capture.host, capture.pid, capture.device)
        stamped = capture.rank is not None and capture.pid >= 0 and _collected(raw)
        groups.setdefault(whose if stamped else (raw.root, raw.device), []).append(capture)
    done: list[Capture] = []
    for group in groups.values():
        group.sort(key=lambda c: _collected(c.detail.windows[0].raw))
        apart = len({_collected(c.detail.windows[0].raw) for c in group}) == len(group)
        done += [_joined(group)] if len(group) > 1 and apart else group
    return done


def _collected(raw: Raw) -> str:
    """The time in the name of a folder, as text that sorts by time; "" if there is none."""
    base = raw.root.rpartition("/")[2]
    if PROF.fullmatch(base):
        return base.split("_")[2]
    return collected_at(raw.around or raw.root)


def _joined(captures: Sequence[Capture]) -> Capture:
    detail = replace(
        captures[0].detail, windows=tuple(w for c in captures for w in c.detail.windows)
    )
    return replace(
        captures[0],
        files=detail.files,
        known=tuple(dict.fromkeys(name for c in captures for name in c.known)),
        world_size=max(c.world_size for c in captures),
        detail=detail,
    )


READER = AscendRawReader()
