"""The step trace of a rank, from whatever its source offers.

In order of preference: the ranges of the host that the user names; and in every collection window
the iterations of its graphs (rows of ``Layer.STEP``); the framework's own marks on the host
("ProfilerStep#12"), with forward/backward and tail where these are marked too; the iterations of a
server of language models ("execute_context_1(888)_generation_0(0)", "step[DECODE bs=32]"); else one
step over the whole range.

Ranges whose names have no number are numbered by time, from 0.

Training loops name their ranges ``forward``, ``backward``, ``optimizer``. In a step that has both
of the first, forward/backward lasts from the first of them to the end of the last backward, and
the tail (optimizer, clearing gradients) from there to the end of the step. Where a framework marks
these phases under other names, those are in ``Trace.hints.phase_names``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.intervals import length_within, union
from traceconv.core.kinds import WHOLE_RANGE
from traceconv.core.model import (
    EventTable,
    Kind,
    Layer,
    OpClass,
    StepSource,
    Trace,
    Track,
    arranged,
)
from traceconv.core.patterns import lazy_regex, natural
from traceconv.passes.attribution import step_source, step_table

_PHASE = lazy_regex(
    r"(?:(?P<forward>forward|fwd)|(?P<backward>backward|bwd))(?:[-_ ](?:pass|step|compute))?",
    re.IGNORECASE,
)


_SERVING = (
    lazy_regex(
        r"execute_\w{0,32}?context_\d+\([^()]*\)_generation_\d+\([^()]*\)|execute_new_\d+_cached_\d+"
    ),
    lazy_regex(r"step\[[A-Z][A-Z_]* .*\]"),
    lazy_regex(r"(?:prefill|decode)\[bs=\d.*\]|execute_diffusion_\d+_\d+x\d+"),
)
"""Names of the ranges of vLLM, of SGLang, and of ATOM and xDiT: one pass of a batch through the
model."""

_OWN_STEP = lazy_regex(r"Profiler?Step ?#\d+")
"""Names of the steps that the profilers of PyTorch and Paddle record."""

_STEP_NUMBER = lazy_regex(r"(?:iter(?:ation)?|step)[ _#:=]*(\d{1,9})\Z", re.IGNORECASE)

_HIGHEST = int(np.iinfo(np.int32).max)


def phases(trace: Trace, steps: EventTable) -> EventTable:
    """Rows of forward/backward and tail for the steps that have such ranges.

    Args:
        steps: the marks of steps, by start; phases are looked for inside each, on any thread.

    Returns:
        Rows like those of ``steps``, two per step with phases.
    """
    forward, backward = _marked(trace)
    step, end = _step_of(backward, steps), np.full(len(steps), -1, np.int64)
    np.maximum.at(end, step[step >= 0], backward.end_ns[step >= 0])
    start = _first(forward, steps)
    start = np.minimum(start, np.where(start >= 0, _first(backward, steps, start), start))
    complete = np.flatnonzero((start >= 0) & (end > start))
    return phase_rows(trace, steps.take(complete), start[complete], end[complete])


def phase_rows(
    trace: Trace, steps: EventTable, start: NDArray[np.int64], end: NDArray[np.int64]
) -> EventTable:
    """Rows of forward/backward and of the tail behind it, on the lanes of their steps.

    Args:
        steps: iterations with a number.
        start, end: of forward/backward in each; the tail lasts from there to the step's end.
    """

    def named(
        op: OpClass, word: str, start: NDArray[np.int64], end: NDArray[np.int64]
    ) -> EventTable:
        names = [trace.strings.intern(f"{word} {step}") for step in steps.step.tolist()]
        return steps.with_columns(
            op=np.full(len(steps), op, np.int8),
            start_ns=start,
            dur_ns=end - start,
            name=np.array(names, np.int32),
            args=np.full(len(steps), -1, np.int32),
        )

    of_ascend = trace.hints.vendor == "ascend"  # whose step trace calls them so
    forward_backward = named(
        OpClass.FP_BP, "FP_BP Time" if of_ascend else "Forward+backward", start, end
    )
    after = "Iteration Refresh" if of_ascend else "After backward"
    tail = named(OpClass.TAIL, after, end, steps.end_ns)
    return EventTable.concat([forward_backward, tail])


def _marked(trace: Trace) -> tuple[EventTable, EventTable]:
    """Host slices of the phase forward, and those of backward."""
    events = trace.events
    host = trace.rows_of(Layer.HOST) & (events.kind == Kind.SLICE)
    kinds: dict[str, list[int]] = {"forward": [], "backward": []}
    kind_by_name = trace.hints.phase_names
    for i, name in enumerate(trace.strings):
        match = _PHASE.fullmatch(name)
        if kind := kind_by_name.get(name) or (match and match.lastgroup):
            kinds[kind].append(i)
    forward, backward = (
        events.take(host & np.isin(events.name, ids))
        for ids in (kinds["forward"], kinds["backward"])
    )
    return forward, backward


def _step_of(rows: EventTable, steps: EventTable) -> NDArray[np.intp]:
    """Position of the step that contains each row, -1 for none."""
    position = np.searchsorted(steps.start_ns, rows.start_ns, "right") - 1
    inside = (position >= 0) & (rows.end_ns <= steps.end_ns[np.maximum(position, 0)])
    return np.where(inside, position, -1)


def _first(
    rows: EventTable, steps: EventTable, otherwise: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Earliest start of ``rows`` in each step; ``otherwise`` (or -1) for steps without rows."""
    step, earliest = _step_of(rows, steps), np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(earliest, step[step >= 0], rows.start_ns[step >= 0])
    none = earliest == np.iinfo(np.int64).max
    return np.where(none, -1 if otherwise is None else otherwise, earliest)


MERGED = Track(Layer.STEP, "iterations")
"""The track of all steps, and of steps without a graph."""

PAUSE = "Iteration Interval"
"""Name of the time between two iterations; the number of the later one follows."""


def steps(trace: Trace, merge_graphs: bool = True, step_marker: str | None = None) -> Trace:
    """Arrange the step trace, making one where the source lacks it, and set ``Trace.steps``.

    Args:
        merge_graphs: one lane "iterations" per rank, where "Iteration 3" of graph 2 is named
            "Model 2 Iteration 3"; otherwise a lane "Model 2" per graph, with names as they were.
        step_marker: regular expression; host slices whose name it finds are the steps, instead of
            all others; if there are none, slices of a log that states no place. Its
            first group is the number; without one they are numbered by time.

    Each collection window may have its steps from another source: step markers on the host are
    used in windows without iterations. Slices of different graphs may cross on the merged lane;
    the lanes pass separates them.
    Issues: steps-from-host, steps-by-time, no-steps; step-marker-unmatched, step-marker-number and
    steps-replaced of a marker.
    """
    placeless = False
    if step_marker:
        trace, placeless = _marked_by(trace, re.compile(step_marker))
    step_rows = trace.rows_of(Layer.STEP)
    events = trace.events
    if not len(events):
        return trace
    if not step_marker:
        trace = _profiler_steps(trace)
        events = trace.events
    iterations = step_rows & (events.op == OpClass.ITERATION)
    if trace.hints.made_steps and iterations.any():
        made_by = step_source(trace)
        trace = _with_step_source(trace, made_by, int(iterations.sum()))
        return replace(trace, steps=step_table(trace, made_by))
    recorded = np.unique(_window(trace, events.start_ns[iterations]))
    marks = _host_marks(trace, placeless)
    if not (step_marker or len(marks) or len(recorded)):
        trace = _served(trace)
        marks = _host_marks(trace)
    marks = marks[~np.isin(_window(trace, events.start_ns[marks]), recorded)]
    if len(marks):  # before rows move
        marked = np.unique(_window(trace, events.start_ns[marks]))
        trace = _from_host(trace, marks)
        step_rows = trace.rows_of(Layer.STEP)
    elif not len(recorded):
        trace = _with_step_source(trace, StepSource.WHOLE_RANGE, 1)
        start, end = int(trace.events.start_ns.min()), int(trace.events.end_ns.max())
        row = EventTable.filled(
            [start], end - start, track=0, name=trace.strings.intern(WHOLE_RANGE),
            op=OpClass.ITERATION, step=0,
        )  # fmt: skip
        trace = trace.add_events("steps", [MERGED], row)
        return replace(trace, steps=step_table(trace, StepSource.WHOLE_RANGE))
    if len(recorded):
        trace = _laid_out(trace, step_rows, merge_graphs)
    table = step_table(trace, StepSource.RECORDED)
    if len(marks):
        of_host = np.isin(_window(trace, table.start_ns), marked)
        source = np.where(of_host, StepSource.HOST_MARKS, StepSource.RECORDED)
        table = table.with_columns(source=source.astype(np.int8))
    return replace(trace, steps=table)


def _window(trace: Trace, start_ns: NDArray[np.int64]) -> NDArray[np.intp]:
    """The collection window that each instant is in, by its number; 0 if none is known."""
    return np.searchsorted(trace.windows[:, 0], start_ns, "right")


def _laid_out(trace: Trace, step_rows: NDArray[np.bool_], merge_graphs: bool) -> Trace:
    """The source's step rows on the lanes and under the names used here, with pauses between."""
    events = trace.events
    name, track = events.name.copy(), events.track.copy()
    lanes: dict[Track, int] = {}
    rows = np.flatnonzero(step_rows)
    for row, graph, step, op in zip(
        rows.tolist(),
        events.graph[rows].tolist(),
        events.step[rows].tolist(),
        events.op[rows].tolist(),
        strict=True,
    ):
        lane = MERGED if merge_graphs else _lane(graph)
        track[row] = len(trace.tracks) + lanes.setdefault(lane, len(lanes))
        if merge_graphs and op == OpClass.ITERATION and graph >= 0:
            label = f"Iteration {step}" if step >= 0 else trace.strings[int(name[row])]
            name[row] = trace.strings.intern(f"Model {graph} {label}")
    pauses = _pauses(trace, rows)
    pauses = pauses.with_columns(
        track=np.array(
            [len(trace.tracks) + lanes[_lane(g, merge_graphs)] for g in pauses.graph.tolist()],
            np.int32,
        )
    )
    return arranged(
        trace.evolve(
            "steps",
            tracks=(*trace.tracks, *lanes),
            events=EventTable.concat([events.with_columns(name=name, track=track), pauses]),
        )
    )


def _lane(graph: int, merge_graphs: bool = False) -> Track:
    if merge_graphs or graph < 0:
        return MERGED
    return Track(Layer.STEP, f"Model {graph}", sort=1 + graph)


def _pauses(trace: Trace, rows: NDArray[np.intp]) -> EventTable:
    """The time between iterations, when no graph runs: data is prepared. One row before each
    iteration that follows such a pause; none if the source brings its own."""
    step_rows = trace.events.take(rows)
    runs = step_rows.take((step_rows.op == OpClass.ITERATION) & (step_rows.graph >= 0))
    runs = runs.take(np.argsort(runs.start_ns, kind="stable"))
    busy = union(runs.start_ns, runs.end_ns)
    has_pauses = (step_rows.op == OpClass.INTERVAL).any() or any(
        trace.strings[i].startswith(PAUSE) for i in set(step_rows.name.tolist())
    )
    if len(busy) < 2 or has_pauses:
        return EventTable.empty()
    after = runs.take(np.searchsorted(runs.start_ns, busy[1:, 0]))
    names = [
        trace.strings.intern(f"{PAUSE} {step}" if step >= 0 else PAUSE)
        for step in after.step.tolist()
    ]
    n = len(after)
    return after.with_columns(
        op=np.full(n, OpClass.INTERVAL, np.int8),
        start_ns=busy[:-1, 1],
        dur_ns=busy[1:, 0] - busy[:-1, 1],
        name=np.array(names, np.int32),
        args=np.full(n, -1, np.int32),
    )


def _marked_by(trace: Trace, marker: re.Pattern[str]) -> tuple[Trace, bool]:
    """The ranges that ``marker`` finds have the numbers of steps, nothing else has, and the steps
    that the source recorded are removed; without such ranges the trace is unchanged.

    Returns:
        The trace, and whether the ranges are those of a log that states no place.
    """
    rows, match = _ranges_named(trace, marker.search)
    if placeless := not len(rows):
        rows, match = _ranges_named(trace, marker.search, placeless=True)
    number = None
    if marker.groups:
        texts = ((result[1] or "").strip() for result in match)
        number = np.array([natural(text, _HIGHEST) for text in texts], np.int64)
        trace = trace.with_issue("step-marker-number", count=int((number < 0).sum()))
        rows, number = rows[number >= 0], number[number >= 0]
    if not len(rows):
        own = np.unique(trace.events.name[trace.rows_of(Layer.STEP)]).tolist()
        if any(marker.search(trace.strings[name]) for name in own):
            return trace, False
        return trace.with_issue("step-marker-unmatched"), False
    step, step_rows = np.full(len(trace.events), -1, np.int32), trace.rows_of(Layer.STEP)
    trace = trace.with_issue("steps-replaced", count=int(step_rows.sum()))
    if number is None:
        trace, rows, number = _by_time(trace, rows)
    step[rows] = number
    trace = replace(trace, events=trace.events.with_columns(step=step))
    return trace.keep("steps", ~step_rows) if step_rows.any() else trace, placeless


def _profiler_steps(trace: Trace) -> Trace:
    """Ignore ranges named by a number in windows where the profiler records steps itself.

    Programs name inner ranges ("step 3" of an accumulation), too; ``torch.profiler`` and Paddle
    record every call of their ``step()``.
    """
    rows = _numbered_ranges(trace)
    names, name_of = np.unique(trace.events.name[rows], return_inverse=True)
    texts = [trace.strings[name] for name in names.tolist()]
    is_profiler = np.array([bool(_OWN_STEP.fullmatch(text)) for text in texts], bool)
    if is_profiler.all() or not is_profiler.any():
        return trace
    matches = map(_STEP_NUMBER.search, texts)
    number = np.array([-2 if not match else int(match[1]) for match in matches])
    step, window = trace.events.step.copy(), _window(trace, trace.events.start_ns[rows])
    inner = (
        ~is_profiler[name_of]
        & (number[name_of] == step[rows])
        & np.isin(window, window[is_profiler[name_of]])
    )
    step[rows[inner]] = -1
    return replace(trace, events=trace.events.with_columns(step=step))


def _numbered_ranges(trace: Trace, placeless: bool = False) -> NDArray[np.intp]:
    """Rows of the ranges that have the number of a step."""
    return np.flatnonzero((trace.events.step >= 0) & _ranges(trace, placeless))


def _ranges(trace: Trace, placeless: bool) -> NDArray[np.bool_]:
    """Which rows are slices of the host, or slices of a log that states no place."""
    events = trace.events
    layer, op = (Layer.OTHER, OpClass.OTHER) if placeless else (Layer.HOST, OpClass.HOST)
    of_class: NDArray[np.bool_] = (events.op == op) & (events.kind == Kind.SLICE)
    return of_class & trace.rows_of(layer)


def _served(trace: Trace) -> Trace:
    """Number the iterations of an inference server, if there are any."""
    rows, _ = _ranges_named(trace, *(names.fullmatch for names in _SERVING))
    if not len(rows):
        return trace
    trace, rows, number = _by_time(trace, rows)
    step = trace.events.step.copy()
    step[rows] = number
    hints = msgspec.structs.replace(trace.hints, made_steps="passes")
    return replace(trace, events=trace.events.with_columns(step=step), hints=hints)


def _ranges_named(
    trace: Trace, *tried: Callable[[str], re.Match[str] | None], placeless: bool = False
) -> tuple[NDArray[np.intp], list[re.Match[str]]]:
    """Ranges that last, and whose name the first of ``tried`` matches that matches any, with
    how."""
    events = trace.events
    rows = np.flatnonzero(_ranges(trace, placeless) & (events.dur_ns > 0))
    names, name_of = np.unique(events.name[rows], return_inverse=True)
    texts = [trace.strings[name] for name in names.tolist()]
    for matched in tried:
        matches = [matched(text) for text in texts]
        hit = np.array([candidate is not None for candidate in matches], bool)[name_of]
        if hit.any():
            how = [
                candidate
                for name in name_of[hit].tolist()
                if (candidate := matches[name]) is not None
            ]
            return rows[hit], how
    return rows[:0], []


def _by_time(
    trace: Trace, rows: NDArray[np.intp]
) -> tuple[Trace, NDArray[np.intp], NDArray[np.intp]]:
    """The outermost ranges without a number, by start, and their numbers.

    Those on the lane that has most of them; of other lanes what shares no time with these.
    """
    events = trace.events
    rows = rows[np.lexsort((-events.dur_ns[rows], events.start_ns[rows]))]
    lanes = []
    for lane in np.unique(events.track[rows]).tolist():
        lane_rows = rows[events.track[rows] == lane]
        before = np.maximum.accumulate(events.ends(lane_rows))[:-1]
        lanes.append(lane_rows[np.append(True, events.start_ns[lane_rows[1:]] >= before)])
    chosen = rows[:0]
    for lane_rows in sorted(lanes, key=len, reverse=True):
        spans = np.stack((events.start_ns[lane_rows], events.ends(lane_rows)), axis=1)
        occupied = union(events.start_ns[chosen], events.ends(chosen))
        chosen = np.concatenate((chosen, lane_rows[length_within(occupied, spans) == 0]))
    chosen = chosen[np.argsort(events.start_ns[chosen], kind="stable")]
    return trace.with_issue("steps-by-time", count=len(chosen)), chosen, np.arange(len(chosen))


def _host_marks(trace: Trace, placeless: bool = False) -> NDArray[np.intp]:
    """Rows of the framework's step ranges, by start.

    For every number the longest is kept, and others that do not overlap a kept one: numbers start
    over with every epoch and recording window, but other threads repeat the ranges of a step.
    """
    events, rows = trace.events, _numbered_ranges(trace, placeless)
    rows = rows[np.lexsort((-events.dur_ns[rows], events.step[rows]))]
    start, end = events.start_ns, events.end_ns
    chosen = rows[:0]
    while len(rows):  # once more than the most frequent number is repeated
        longest = rows[np.unique(events.step[rows], return_index=True)[1]]
        chosen = np.concatenate((chosen, longest))
        spans = np.stack((start[rows], end[rows]), axis=1)
        apart = length_within(union(start[chosen], end[chosen]), spans) == 0
        rows = rows[apart & (spans[:, 1] > spans[:, 0])]
    return chosen[np.argsort(start[chosen], kind="stable")]


def _from_host(trace: Trace, marks: NDArray[np.intp]) -> Trace:
    trace = _with_step_source(trace, StepSource.HOST_MARKS, len(marks))
    rows = trace.events.take(marks)
    name = rows.name.copy()  # "train" of step 12 becomes "train 12"
    for row, (number, step) in enumerate(zip(name.tolist(), rows.step.tolist(), strict=True)):
        text = trace.strings[number]
        if not re.search(r"\d", text):
            name[row] = trace.strings.intern(f"{text} {step}")
    rows = rows.with_columns(
        track=np.zeros(len(rows), np.int32),
        op=np.full(len(rows), OpClass.ITERATION, np.int8),
        name=name,
    )
    phase_table = phases(trace, rows)
    step_rows = EventTable.concat([rows, phase_table]) if len(phase_table) else rows
    return trace.add_events("steps", [MERGED], step_rows)


def _with_step_source(trace: Trace, source: StepSource, rows: int) -> Trace:
    """Record how the steps were made, with the issue."""
    is_whole = source is StepSource.WHOLE_RANGE
    trace = trace.with_issue("no-steps" if is_whole else "steps-from-host", count=rows)
    origin = "whole" if is_whole else trace.hints.made_steps or "host"
    return replace(trace, hints=msgspec.structs.replace(trace.hints, made_steps=origin))
