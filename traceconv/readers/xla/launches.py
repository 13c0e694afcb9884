"""The call that launched each program of the CPU backend.

Times do not identify it, since a framework launches programs long before they run; nor do threads,
since a pool thread continues with the next program within the same region of work. The evidence
is, in this order:

1. the call that launched a program on all devices has the ``run_id`` of the program;
2. a link leads from the thread that gave a region of work to the pool, to the first program in it;
3. the n-th call of a program on one device launches the n-th run, since run numbers ascend.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64, Mask
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.pairing import latest

_CALL = lazy_regex(r"\w+Executable::Execute(?:Helper(?:OnSingleDevice)?)?(?: \(.*\))?")
_FUNCTION = lazy_regex(r"PjitFunction\((.+)\)")
UNKNOWN, BEFORE = -1, -2
"""In place of a call: it is unknown, or it precedes the recording."""

_DEPTH = 8  # pools give work to pools; nothing was seen that goes deeper

Rows = NDArray[np.intp]


def is_call(name: str) -> bool:
    """Whether events of this name launch a program."""
    return _CALL.fullmatch(name) is not None


def function_of(name: str) -> str:
    """The program that a call of a compiled function launches, or that a call names; else ""."""
    if match := _FUNCTION.fullmatch(name):
        return f"jit_{match[1]}"
    return name.partition(" (")[2][:-1] if is_call(name) else ""


class HostEvents(msgspec.Struct, frozen=True):
    """Events of host threads as columns, in any order.

    Attributes:
        start, dur: ns.
        line:   the thread.
        run:    the number of a program's run; numbers of one program ascend with launches.
        has_run: whether it has one.
        program: of operations, and where :func:`function_of` names one, the number of its name;
            else -1.
        device: the device that an event ran on as an operation, -1 for all others.
        calls:  rows of events that :func:`is_call`.
        begins, givers: rows where a thread takes a region of work, and where another gave it.
    """

    start: I64
    dur: I64
    line: I64
    run: I64
    has_run: Mask
    program: I64
    device: I64
    calls: Rows
    begins: Rows
    givers: Rows

    @property
    def end(self) -> I64:
        """``start + dur`` (computed)."""
        return self.start + self.dur


def launches(events: HostEvents, operations: Rows) -> Rows:
    """The event that launched the program each operation is part of.

    Args:
        operations: operations of one device.

    Returns:
        Rows of calls; where no calls were recorded, of the event that gave the work to a pool, or
        of the operation itself on a thread of no pool; else :data:`UNKNOWN` or :data:`BEFORE`.
    """
    if not len(operations):
        return operations
    number, start = events.run, events.start
    calls, programs = _calls(events)
    if not events.has_run[operations].all():  # of versions that do not number programs
        return _within(events, calls, programs, _givers(events, operations), operations)
    runs, back = np.unique(number[operations], return_inverse=True)
    order = np.lexsort((start[operations], back))
    first = operations[order[np.searchsorted(back[order], np.arange(len(runs)))]]
    launched_by = _within(events, calls, programs, _givers(events, first), first)
    numbered = events.has_run[calls]
    for program in np.unique(events.program[first]).tolist():
        runs_of_program = np.flatnonzero(events.program[first] == program)
        numbered_calls = calls[numbered & (programs == program)]
        if len(numbered_calls):
            launched_by[runs_of_program] = _by_number(events, runs[runs_of_program], numbered_calls)
            continue
        on = events.device[(events.program == program) & (events.device >= 0)]
        if (launched_by[runs_of_program] < 0).any() and len(np.unique(on)) == 1:
            launched_by[runs_of_program] = _in_order(
                events,
                launched_by[runs_of_program],
                first[runs_of_program],
                calls[programs == program],
            )
    return launched_by[back]


def _calls(events: HostEvents) -> tuple[Rows, I64]:
    """The outermost calls by start, and the program that each launches.

    The innermost function around a call names the program; -1 where it is unknown. If all
    operations are of one program, so are all calls.
    """
    calls = _outermost(events, events.calls)
    functions = np.flatnonzero((events.program >= 0) & (events.device < 0))
    around = _holding(events, functions, calls)
    programs = np.where(around >= 0, events.program[around], -1)
    programs_run = np.unique(events.program[events.device >= 0])
    if len(programs_run) == 1 and not np.isin(programs, programs_run).any():
        programs[:] = programs_run[0]
    return calls, programs


def _holding(events: HostEvents, ranges: Rows, rows: Rows) -> Rows:
    """The last of some ranges to begin that each event is within, on its thread; -1 = none."""
    if not len(ranges):
        return np.full(len(rows), -1, np.intp)
    line, start, end = events.line, events.start, events.end
    over = ranges[np.maximum(latest(line[ranges], start[ranges], line[rows], start[rows]), 0)]
    inside = (line[over] == line[rows]) & (start[over] <= start[rows]) & (end[over] >= end[rows])
    return np.where(inside, over, -1)


def _within(events: HostEvents, calls: Rows, programs: I64, givers: Rows, first: Rows) -> Rows:
    """The calls that gave work to a pool; unknown where the call launched another program."""
    if not len(calls):
        return givers
    calls_around = _holding(events, calls, givers)
    launched = np.full(len(events.start), -1)
    launched[calls] = programs
    same_program = launched[calls_around] == events.program[first]
    return np.where((givers >= 0) & (calls_around >= 0) & same_program, calls_around, -1)


def _givers(events: HostEvents, first: Rows) -> Rows:
    """The event that scheduled each region of work; ``first`` are the first operations of regions.

    Unknown where a thread on the way ran another program earlier in the same region: it only
    continued with this one.
    """
    line, start, run = events.line, events.start, events.run
    source = first.astype(np.intp)
    begins, givers = events.begins, events.givers
    ran = np.flatnonzero((events.device >= 0) & events.has_run)
    todo = np.full(len(first), len(begins) > 0)
    for _ in range(_DEPTH):
        if not todo.any():
            break
        thread, time = line[source], start[source]
        over = np.maximum(latest(line[begins], start[begins], thread, time), 0)
        begun = start[begins[over]]
        todo &= (line[begins[over]] == thread) & (begun <= time)
        if len(ran):
            # the first operation of the region: negated times find the next one, not the last
            after = ran[np.maximum(latest(line[ran], -start[ran], thread, -begun), 0)]
            within = (line[after] == thread) & (start[after] >= begun) & (start[after] < time)
            went_on = todo & within & (run[after] != run[first])
            todo &= ~went_on
            source = np.where(went_on, -1, source)
        giver = givers[over]
        todo &= start[giver] < time
        source = np.where(todo, giver, source)
    # pool threads launch nothing: a walk that ends at one began before the recording
    pool = np.append(line[begins], line[events.device >= 0])
    pooled = np.isin(line[source], pool) & ~np.isin(line[source], line[events.calls])
    return np.where(todo | pooled, -1, source)


def _by_number(events: HostEvents, runs: I64, calls: Rows) -> Rows:
    """The first call with the number of each run of a program.

    Numbers ascend: a run with a smaller number than every call precedes the recording.
    """
    calls = calls[np.lexsort((events.start[calls], events.run[calls]))]
    number = events.run[calls]
    spot = np.minimum(np.searchsorted(number, runs), len(calls) - 1)
    missing = np.where(runs < number[0], BEFORE, UNKNOWN)
    return np.where(number[spot] == runs, calls[spot], missing)


def _in_order(events: HostEvents, launched_by: Rows, first: Rows, calls: Rows) -> Rows:
    """The calls of the runs of one program by order, if all known launches agree on the offset."""
    start = events.start
    matched = np.flatnonzero(launched_by >= 0)
    if not len(calls) or (not len(matched) and len(calls) != len(launched_by)):
        return launched_by
    position = np.searchsorted(start[calls], start[launched_by[matched]])
    ahead = np.unique(position - matched) if len(matched) else np.zeros(1, np.intp)
    if len(ahead) != 1:
        return launched_by
    nth = np.arange(len(launched_by)) + ahead[0]
    in_range = (nth >= 0) & (nth < len(calls))
    call = calls[np.clip(nth, 0, len(calls) - 1)]
    if (start[call] > start[first])[in_range].any():  # a run before its call: the order is wrong
        return launched_by
    return np.where((launched_by < 0) & in_range, call, launched_by)


def _outermost(events: HostEvents, calls: Rows) -> Rows:
    """Calls that no other call of their thread contains, by start."""
    start, end, line = events.start[calls], events.end[calls], events.line[calls]
    outermost = [np.empty(0, np.intp)]
    for thread in np.unique(line).tolist():
        of_thread = np.flatnonzero(line == thread)
        of_thread = of_thread[np.lexsort((-end[of_thread], start[of_thread]))]
        reach = np.maximum.accumulate(end[of_thread])
        outermost.append(of_thread[np.append(True, start[of_thread[1:]] >= reach[:-1])])
    rows = np.concatenate(outermost)
    outer: Rows = calls[rows[np.argsort(start[rows], kind="stable")]]
    return outer
