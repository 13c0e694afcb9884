"""Reading a generation A ``profiler`` folder: each of its files in turn, then what lies beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture
from traceconv.io.sources import Source
from traceconv.readers.ascend.common.display import host_info_lane
from traceconv.readers.ascend.common.identity import Identity, describe
from traceconv.readers.ascend.common.parts import check_clock, is_empty
from traceconv.readers.ascend.mindspore import host, operators
from traceconv.readers.ascend.mindspore.display import Shown, read_display, read_queue
from traceconv.readers.ascend.mindspore.files import Kind, Part, Plan
from traceconv.readers.ascend.mindspore.steps import read_steps
from traceconv.readers.ascend.raw.beside import Window, beside, window, with_known, with_read
from traceconv.readers.ascend.raw.folders import Raw
from traceconv.readers.ascend.tables.offer import add_side_tables
from traceconv.readers.shared.trace_events.timeline import read_events

# Raw folders beside what old MindSpore made: known, or read where it made nothing of them.

_OF_DEVICE = (Kind.DISPLAY, Kind.OPERATORS, Kind.STEPS)
"""What is made of the records of a device."""


def with_raw(
    source: Source, captures: Sequence[Capture], ordered: Sequence[str], issues: Issues
) -> list[Capture]:
    """The captures with the raw folders beside them."""
    found = list(captures)
    for i, raws in beside(captures, ordered).items():
        plan: Plan = found[i].detail
        if any(part.kind in _OF_DEVICE for part in plan.parts):
            found[i] = with_known(found[i], raws, issues)
        else:
            windows = tuple(_window(source, raw, issues) for raw in raws)
            plan = replace(plan, raw=windows)
            found[i] = replace(with_read(found[i], raws), detail=plan, device=raws[0].device)
    return found


def _window(source: Source, raw: Raw, issues: Issues) -> Window:
    identity = Identity(source, issues)
    identity.prof_files(raw.known, raw.device)
    return window(identity, raw)


def read_folder(capture: Capture, build: TraceBuilder) -> None:
    """Put every event of a capture into ``build``.

    Raises:
        MalformedInputError: none of its files can be read.
    """
    plan: Plan = capture.detail
    describe(build, plan.notes)
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
    for one in plan.raw:
        one.read_beside(build, capture.source, capture.clock)
    if failures and len(failures) == len(parts):
        raise failures[0]
    if not parts:
        build.file = capture.label
        build.skip("empty-file")
    check_clock(capture, build)
    add_side_tables(capture, build)


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
