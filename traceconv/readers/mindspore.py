"""What old MindSpore leaves in its ``profiler`` folder (generation A), and hosts of crashed runs.

Written by: MindSpore 1.x to 2.3; samples of 2020 and 2021.
Files: ``profiler/ascend_timeline_display_<rank>.json`` (older ``timeline_display_<device>.json``,
on GPU ``gpu_timeline_display_<device>.json``); ``step_trace_raw_<rank>_detail_time.csv`` with
``hccl_raw_<rank>.csv``; ``output_timeline_data_<rank>.txt``,
``output_data_preprocess_aicpu_<rank>.txt``, ``cpu_op_execute_timestamp_<rank>.txt``;
``host_info/{host_info,host_memory}_<rank>.csv`` and ``host_info/timeline_<rank>.json``;
``{device_queue,dataset_iterator}_profiling_<rank>.txt``. Tables beside them are sheets
(:mod:`traceconv.readers._mindspore_sheets`); a folder of nothing but tables is a capture, too.
Units and clock: display files us from their first event (later ones and those of GPU Unix time);
step table ticks of 10 ns of the device's counter, operators ms and AI CPU us of the same;
``host_info`` us of Unix time; host operators ns (durations ms) and queues ms of the host.
Rank from: ``profiler_info_<rank>.json``, else the suffix of the file's name.
Quirks: pids stand for kinds of lanes; the last row of the step table is an average; a host stage
that never ended is a start without an end, in ``timeline_<rank>.json`` a lone ``B``; pids and
tids are text.
Twice in the folder, once in the trace: the display file holds the operators with their shapes and
the collectives and may be cut at a size limit; of the tables only the rows it lacks are added,
and its steps give way to the step table, which knows forward, backward and tail. The records of
``host_info`` hold all its timeline does and modules, levels, notes and memory; the timeline is
read where they are missing.
Ignored: a host's files beside a device's whose clock is not Unix time, since nothing ties them.
Source: mindspore-ai/mindspore, which writes it; test data of mindspore-ai/mindinsight.
Golden cases: display, display_cut_off, host_info, host_records, step_table, data_pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from traceconv.build import TraceBuilder
from traceconv.errors import Issues, MalformedInputError
from traceconv.model import Capture
from traceconv.readers import _mindspore_host as host
from traceconv.readers import _mindspore_operators as operators
from traceconv.readers._ascend_display import host_info_lane
from traceconv.readers._ascend_identity import Identity, Trust
from traceconv.readers._ascend_parts import check_clock, is_empty
from traceconv.readers._ascend_sheets import add_sheets
from traceconv.readers._ascend_tables import with_tables
from traceconv.readers._mindspore_choice import choose
from traceconv.readers._mindspore_display import Shown, read_display
from traceconv.readers._mindspore_files import Kind, Part, Place, Plan, places
from traceconv.readers._mindspore_queue import read_queue
from traceconv.readers._mindspore_raw import with_raw
from traceconv.readers._mindspore_steps import read_steps
from traceconv.readers._traceevents import read_events
from traceconv.source import Source


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
        ordered = sorted(names)
        found = [_capture(source, place, issues) for place in places(source, ordered)]
        return with_tables(with_raw(source, found, ordered, issues), ordered)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        plan: Plan = capture.detail
        build.notes.update(plan.notes)
        shown, failures, parts = Shown(), [], plan.parts
        for part in parts:
            build.file = capture.source.title(part.name)
            if is_empty(capture.source, part.name):
                build.skip("empty-file")
                continue
            try:
                _READ[part.kind](capture, build, part, shown)
            except MalformedInputError as e:
                failures.append(e)
                build.skip("malformed-record", str(e)[:200])
        for window in plan.raw:
            window.read_beside(build, capture.source, capture.clock)
        if failures and len(failures) == len(parts):
            raise failures[0]
        if not parts:
            build.file = capture.label
            build.skip("empty-file")
        check_clock(capture, build)
        add_sheets(capture, build)


def _capture(source: Source, place: Place, issues: Issues) -> Capture:
    parts, clock, offset_ns = choose(source, place, issues)
    first = parts[0].name if parts else next(n for n in place.names)
    label = source.title(first)
    identity = Identity(source, issues)
    identity.claim(Trust.SUFFIX, place.suffix, PurePosixPath(first).name)
    for name in place.names:
        identity.profiler_info(name)
    rank, rank_from = identity.rank(label)
    files = tuple(part.name for part in parts)
    return Capture(
        reader=READER.name,
        source=source,
        files=files,
        rank=rank,
        rank_from=rank_from,
        known=tuple(name for name in place.names if name not in files),
        graphs=identity.graphs,
        clock=clock,
        world_size=identity.world_size,
        label=label,
        detail=Plan(tuple(parts), offset_ns, identity.notes),
    )


_Read = Callable[[Capture, TraceBuilder, Part, Shown], None]


def _host_timeline(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    read_events(capture.source, part.name, build, host_info_lane)


def _host_records(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    host.read_records(capture.source, part.name, build)


def _host_memory(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    host.read_memory(capture.source, part.name, build)


_READ: dict[Kind, _Read] = {
    Kind.DISPLAY: read_display,
    Kind.OPERATORS: operators.read_operators,
    Kind.AI_CPU: operators.read_ai_cpu,
    Kind.STEPS: read_steps,
    Kind.HOST_OPERATORS: operators.read_host_operators,
    Kind.HOST_INFO: _host_records,
    Kind.HOST_TIMELINE: _host_timeline,
    Kind.HOST_MEMORY: _host_memory,
    Kind.QUEUE: read_queue,
}

READER = MindsporeReader()
