"""Reading a generation A ``profiler`` folder: each of its files in turn, then what lies beside."""

from __future__ import annotations

from collections.abc import Callable

from traceconv.build import TraceBuilder
from traceconv.errors import MalformedInputError
from traceconv.model import Capture
from traceconv.readers import _mindspore_host as host
from traceconv.readers import _mindspore_operators as operators
from traceconv.readers._ascend_display import host_info_lane
from traceconv.readers._ascend_parts import check_clock, is_empty
from traceconv.readers._ascend_sheets import add_sheets
from traceconv.readers._mindspore_display import Shown, read_display
from traceconv.readers._mindspore_files import Kind, Part, Plan
from traceconv.readers._mindspore_queue import read_queue
from traceconv.readers._mindspore_steps import read_steps
from traceconv.readers._traceevents import read_events


def read_folder(capture: Capture, build: TraceBuilder) -> None:
    """Put every event of a capture into ``build``.

    Raises:
        MalformedInputError: none of its files can be read.
    """
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
