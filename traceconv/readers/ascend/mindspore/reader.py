"""The ``profiler`` folder of MindSpore before 2.4, and the host's side of its crashed runs.

Written by: MindSpore 1.x to 2.3; samples of 2020 and 2021.
Files: ``profiler/ascend_timeline_display_<rank>.json`` (older ``timeline_display_<device>.json``,
on GPU ``gpu_timeline_display_<device>.json``); ``step_trace_raw_<rank>_detail_time.csv`` with
``hccl_raw_<rank>.csv``; ``output_timeline_data_<rank>.txt``,
``output_data_preprocess_aicpu_<rank>.txt``, ``cpu_op_execute_timestamp_<rank>.txt``;
``host_info/{host_info,host_memory}_<rank>.csv`` and ``host_info/timeline_<rank>.json``;
``{device_queue,dataset_iterator}_profiling_<rank>.txt``. Tables beside them are side tables
(:mod:`traceconv.readers.ascend.mindspore.tables`); a folder of nothing but tables is a capture,
too.
Units and clock: display files us from their first event (later ones and those of GPU Unix time);
step table ticks of 10 ns of the device's counter, operators ms and AI CPU us of the same;
``host_info`` us of Unix time; host operators ns (durations ms) and queues ms of the host.
Rank from: ``profiler_info_<rank>.json``, else the suffix of the file's name; its stage of the
pipeline from ``parallel_strategy_<rank>.json``.
Quirks: pids name kinds of lanes; the last row of the step table is an average; a host stage
that never ended is a start without an end, in ``timeline_<rank>.json`` a lone ``B``; pids and
tids are text.
Twice in the folder, once in the trace: the display file holds the operators with their shapes and
the collectives and may be cut at a size limit; of the tables only the rows it lacks are added,
and its steps are left out if there is a step table, which has forward, backward and tail. The
records of ``host_info`` hold all its timeline does and modules, levels, notes and memory; the
timeline is read where they are missing.
Ignored: a host's files beside a device's whose clock is not Unix time, since nothing ties them.
Source: mindspore-ai/mindspore, which writes it; test data of mindspore-ai/mindinsight.
Golden cases: display, display_cut_off, host_info, host_records, step_table, data_pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers.ascend.common.identity import Identity, Trust
from traceconv.readers.ascend.tables.names import with_tables

if TYPE_CHECKING:
    from traceconv.readers.ascend.mindspore.files import Place


class MindsporeReader:
    """Reads ``profiler`` folders of old MindSpore."""

    name = "mindspore"
    title = "MindSpore 1.x to 2.3: display, host and step files"
    files = (
        "profiler/{ascend_,gpu_,}timeline_display_<rank>.json, step_trace_raw_*.csv, "
        "output_timeline_data_*.txt, host_info/*, minddata_*"
    )
    order = 120

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per folder and rank in a file name."""
        from traceconv.readers.ascend.mindspore.files import places, with_raw

        ordered = sorted(names)
        captures = [_capture(source, place, issues) for place in places(source, ordered)]
        return with_tables(with_raw(source, captures, ordered, issues), ordered, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.ascend.mindspore.profiler_folder import read_folder

        read_folder(capture, build)


def _capture(source: Source, place: Place, issues: Issues) -> Capture:
    from traceconv.readers.ascend.mindspore.files import Plan, choose

    parts, clock, offset_ns = choose(source, place, issues)
    first_name = parts[0].name if parts else next(n for n in place.names)
    label = source.title(first_name)
    identity = Identity(source, issues)
    identity.claim(Trust.SUFFIX, place.suffix, PurePosixPath(first_name).name)
    for name in place.names:
        identity.profiler_info(name)
    for name in place.names:
        identity.parallel_strategy(name)
    return identity.capture(
        READER.name,
        label,
        Plan(tuple(parts), offset_ns, identity.notes),
        files=[part.name for part in parts],
        known=place.names,
        graphs=identity.graphs,
        clock=clock,
    )


READER = MindsporeReader()
