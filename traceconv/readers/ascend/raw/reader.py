"""Raw data of Ascend captures that were never analysed, such as those of crashed runs.

Written by: the collector of CANN, started by MindSpore, the Ascend PyTorch profiler or msprof;
samples of 2020 (``JOB*``).
Files: ``JOB*/[data/]{training_trace,hwts.log.data}.*`` with ``Framework.host.vm.*`` and
``DATA_PREPROCESS.dev.{AICPU,TDT}.*``; ``PROF_*/device_<d>/data/{ts_track,hwts,stars_soc,
lpmFreqConv,npu_mem}.*``; ``PROF_*/host/data/{aging,unaging}.*``; ``FRAMEWORK/*`` beside a PROF
folder. Clocks and identity from ``info.json``, ``start_info``, ``host_start.log`` and
``dev_start.log``.
Units and clock: ticks of counters, 100 MHz mostly; Unix time where the small files have an
anchor of the counters, else from the first record.
Rank from: ``profiler_info_<rank>.json`` around it, ``rank_id`` of ``info.json``.
Quirks: slices are put together by their number and may begin or end in the middle of a record;
records are lost where their running number jumps; a task's number wraps; the logical stream in
``task_desc_info`` is not the stream of the log, so operators are found by task number alone; the
log of the data queue (TDT) counts microseconds of the device's counter.
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
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import (
    derived_rank,
    files_in,
    folder_around,
    folder_path,
)
from traceconv.readers.ascend.common.identity import Identity, describe
from traceconv.readers.ascend.tables.names import with_tables
from traceconv.readers.ascend.tables.side_tables import add_side_tables

if TYPE_CHECKING:
    from traceconv.readers.ascend.raw.folders import Raw, Window


class _Detail(msgspec.Struct, frozen=True):
    """The raw folder of a capture, from finding to reading."""

    window: Window
    notes: dict[str, Any]


class AscendRawReader:
    """Reads the collector's raw data where nothing was exported from them."""

    name = "ascend_raw"
    title = "Ascend raw data, of crashed runs"
    files = "PROF_*/{device_*,host}/data/*.slice_*, JOB*/**/*.slice_*, FRAMEWORK/*"
    order = 130
    unverified = "stars_soc, ts_track, hwts.data, lpmFreqConv, npu_mem, host/data, FRAMEWORK"

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per folder and device."""
        from traceconv.readers.ascend.raw.folders import raw_folders

        ordered = sorted(names)
        folders = [raw for raw in raw_folders(ordered) if raw.files]
        per_folder = Counter(raw.root for raw in folders)
        alone = Counter(folder_around(root) for root in per_folder)
        captures_found = []
        for raw in folders:
            single = per_folder[raw.root] == 1 and alone[folder_around(raw.root)] == 1
            captures_found.append(_capture(source, ordered, raw, single, issues))
        captures = _with_derived(captures_found, ordered)
        described = with_tables(captures, ordered, issues)
        return [
            replace(after, uses={**after.uses, **before.uses})
            for before, after in zip(captures, described, strict=True)
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.ascend.raw.device_records import read_window

        detail: _Detail = capture.detail
        describe(build, detail.notes)
        read_window(build, capture.source, detail.window)
        add_side_tables(capture, build)


def _capture(
    source: Source, ordered: Sequence[str], raw: Raw, alone: bool, issues: Issues
) -> Capture:
    from traceconv.readers.ascend.raw.folders import window
    from traceconv.readers.ascend.tables.names import use_of

    label = source.title(raw.root) if raw.root else source.label
    identity = Identity(source, issues)
    identity.prof_files(raw.known, raw.device)
    identity.folder(folder_path(source, raw.around or raw.root))
    parent = raw.around if raw.around is not None else folder_around(raw.root)
    identity.around(files_in(ordered, parent, "profiler_"), alone)
    capture = identity.capture(
        READER.name,
        label,
        None,
        files=raw.files,
        known=raw.known,
        device=raw.device,
        graphs=identity.graphs,
    )
    raw_window = window(identity, raw)
    ended = any(name.rpartition("/")[2].startswith("end_info") for name in raw.known)
    detail = _Detail(raw_window, {**identity.notes, "collection_ended": ended})
    uses = {name: use_of(source, name) for name in raw.known}
    return replace(capture, clock=raw_window.clock.anchor, detail=detail, uses=uses)


def _with_derived(captures: Sequence[Capture], ordered: Sequence[str]) -> list[Capture]:
    """The captures with the files that MindSpore left in or beside their folders: each belongs to
    the capture of the rank in its name, or to the only one there.
    """
    derived: dict[str, list[tuple[str, int]]] = {}
    for name in ordered:
        folder, _, base = name.rpartition("/")
        rank = derived_rank(base)
        if rank is not None:
            derived.setdefault(folder, []).append((name, rank))
    with_files = []
    for capture in captures:
        root = capture.detail.window.raw.root
        folders = dict.fromkeys((root, folder_around(root) or ""))
        own_files = [
            name
            for folder in folders
            for name, rank in derived.get(folder, ())
            if rank in (-1, capture.rank) or len(captures) == 1
        ]
        known_files = tuple(dict.fromkeys((*capture.known, *own_files)))
        with_files.append(replace(capture, known=known_files) if own_files else capture)
    return with_files


READER = AscendRawReader()
