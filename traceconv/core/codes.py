"""The table of issue codes: their severity and advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much an issue matters."""

    INFO = "info"  # done by design, nothing is missing
    DOUBT = "doubt"  # something in the result was assumed or repaired
    LOSS = "loss"  # a record of the input is not in the output


@dataclass(frozen=True)
class Code:
    """One row of the table of issue codes: how bad it is, and what the user can do."""

    severity: Severity
    advice: str


_TABLE = """
-- reading: containers
truncated: loss
    The file ends in the middle of a record; everything before it was read. Check whether the
    profiler was killed or the copy was cut short.
unclosed-array: doubt
    The list of events is not closed. Some writers never close it; otherwise the profiler was
    stopped before it had written everything.
unended-line: doubt
    The last line of a table has no line end. If the file was cut there, its last value is cut,
    too.
malformed-record: loss
    A record cannot be parsed and was skipped; look at the place given.
line-unmatched: doubt
    Lines of a text log that the pattern does not match, such as tracebacks, were left out.
repaired-record: doubt
    Records that were not valid JSON (the writer escapes nothing) were repaired and kept; check
    the names.
skipped-bytes: loss
    Bytes between two readable records were skipped; their content is lost.
perfetto-packet-unread: info
    Packets of other data sources than TrackEvent and GPU events (ftrace, CPU samples, memory
    ...) are not part of a rank; the places give their types. In an archive (.tar), those that
    viewers show are kept as a separate trace (perfetto-packet-beside).
perfetto-field-unread: info
    Events or descriptors of tracks have fields that are not read, such as those of a browser or
    an operating system; the places give their names.
event-field-unread: info
    Events have fields that are not used, such as their colour; the places give their names. A
    copy of the file (convert from JSON to JSON) keeps them.
perfetto-packet-beside: info
    Packets of other data sources are in the archive as a separate trace next to the ranks; the
    places give their types.
state-lost: loss
    Packets that refer to an earlier packet of their sequence were skipped because that packet
    is missing: the beginning of the recording is lost, or the profiler dropped packets.
interned-unknown: doubt
    Some names and texts are referred to by number but were never sent. Such events have no
    name, and such arguments are left out.
details-lost: doubt
    The graphs, steps and tracks of an output of traceconv cannot be restored: rows are missing,
    or a version before 0.1.0 wrote it. Merge the original captures again.
track-without-rank: loss
    A file of several ranks has tracks that belong to no rank, for example those of a process
    that uses no device. Their events were skipped.
track-unknown: loss
    Events were skipped because viewers do not show their tracks: a parent track is not
    described, or the track is not a counter.
track-conflict: doubt
    A track is described several times with different content; the first description is used.
unknown-phase: loss
    A trace event of a phase this reader does not know was skipped.
bad-encoding: doubt
    Text that is not valid UTF-8 was read with replacement characters.
empty-file: info
    The file has no events.
unread-file: doubt
    A file that may hold a profile was not read: access is denied, or it is packed or damaged.
    Pass this file on its own to see what it is and what to do.
superseded-export: info
    A newer export of the same data exists; only the newest is read.
export-unused: info
    Another export of the same run (a database and text files, for example) was left out. Pass
    `reader` to choose it.
repeated-content: info
    Several files, or parts of a file, hold the same events; each event was taken once.
part-missing: loss
    A file of a numbered series is missing although later ones exist. Its content is lost, or
    was read from files with less detail. Check that the copy is complete.
own-output: info
    The file was written by traceconv and left out. To read it, pass the file itself.
log-unmapped: doubt
    A table of events with custom columns was left out. Name it alone: the message has the
    `mapping` that reads it.
unused-file: info
    A file of a known kind that the trace does not use.

-- reading: events
missing-duration: doubt
    A slice without a duration is kept with duration 0.
negative-duration: loss
    A slice that ends before it starts was skipped.
bad-time: loss
    A record without a usable timestamp was skipped. Is the unit right, in a log of your own?
far-stamp: loss
    Events with a timestamp of zero or far from all others were left out: the timestamp is
    damaged, and the event is neither shown nor counted.
missing-name: doubt
    An event without a name is kept under an empty name.
not-copied: info
    The events could not be copied as they are; they were read and written again, with categories
    (kernel becomes compute) and numbers of processes and threads of traceconv.
copy-faulty: doubt
    The files were merged by copying bytes, and viewers drop or misplace some of their events:
    see `traceconv validate`. `traceconv convert` or a .pftrace output repairs most of this.
copy-unchecked: info
    The files were merged by copying bytes and are too large to be checked on the way;
    `traceconv validate` checks whether viewers show all events.
name-unknown: doubt
    The file that maps numbers to names lacks some of them; the numbers are used as names.
time-rounded: doubt
    Timestamps in the file are coarser than 1 ns (written through floating point); they are kept
    as written.
slice-trimmed: doubt
    Slices that ended after the slice around them, or overlapped the next one, by no more than
    the resolution of their timestamps were cut to fit.
duration-rounded: info
    Durations finer than 1 ns were rounded half up to the nanosecond.
stamp-rounded: info
    Timestamps finer than 1 ns were rounded half up to the nanosecond.
unfinished-slice: doubt
    A slice that never ends is closed at the last timestamp of its track.
end-unknown: doubt
    The source says that these events ended, but not when. They are shown as instants at their
    start and excluded from totals.
end-without-begin: loss
    The end of a slice has no begin and was skipped.
flow-without-end: info
    The source has only one end of these flows: the other end was outside the recorded window,
    or its layer was not recorded.
flow-unbound: loss
    Launch flows cannot be drawn because their slices were not found: a slice was skipped, or
    its track has none at that time.
flow-across-ranks: info
    Flows between two ranks, such as two devices of one process or two processes in one file,
    are not drawn.
launch-backwards: info
    Work on a device begins before the call that launched it: the clocks of host and device
    differ by at least the amount given. Do not compare host and device times more finely than
    that.
launch-unknown: doubt
    The capture does not say when the programs of these operations were launched, so their steps
    are unknown. Figures of steps leave their device work out.
decoration-skipped: info
    Records that only decorate the profiler's own viewer were left out.
launch-mark: info
    Both ends of every launch are recorded a second time (ac2g); the flows were made from the
    correlation numbers of calls and tasks, which give the same flows exactly.
metadata-unused: info
    Metadata that the trace does not use.
columns-unread: info
    Tables have more columns than are read; the places name them.
kind-not-read: info
    Records of types that this reader does not convert (CPU samples, scheduling, the profiler's
    own overhead ...) are not in the output.
unknown-kind: doubt
    Events of an unknown kind are kept under layer "other". In a log of your own, a kind is one
    of compute, kernel, gpu, comm, memcpy, host, runtime, step, phase, other.
time-estimated: doubt
    The start or end of an event is not in the file; it was derived from its duration, the
    nearest timestamp, or the order of the records.
profiler-error: doubt
    The profiler reports errors, quoted in the places. The data they refer to may be missing or
    wrong.
profiler-warning: info
    The profiler reports warnings about its own work, quoted in the places.
source-dropped: doubt
    The profiler reports that it dropped these events for lack of space.
counter-unplaced: info
    The first value of a counter that reports the time before its samples is not shown: the
    start of that time is unknown.
counter-not-numeric: loss
    A counter sample whose value is not a number was skipped.
counter-zero: info
    Counters that are zero throughout a rank are not drawn in the detail view; the view source
    and conversions keep them.
counter-clipped: doubt
    A counter computed backwards from the end of a recording would fall below zero and is kept
    at zero: the log and the state at its end do not agree.
row-unmatched: doubt
    Rows of a table describe operators that are not in the timeline.
args-not-json: doubt
    Arguments that are not valid JSON are kept as text.

-- identity
rank-assumed: info
    No file names the rank of the only process; rank 0 is assumed. Pass `rank_from` to name it.
rank-derived: doubt
    The files do not state a rank for every process, or state one rank for several. Ranks follow
    from the evidence that is named. Pass `rank_from` to say where paths name them, or
    `rank_from="order"` to number captures in the order of their paths.
jobs-mixed: doubt
    Captures state different sizes of their job, or were recorded hours apart, so they are of
    several jobs. Name the captures of one job only.
steps-repeated: doubt
    Ranks were recorded twice with the same step numbers, by two processes or more than 10 min
    apart. Are these two runs? Name one of them, or compare them: `traceconv diff RUN1 RUN2`.
process-assumed: doubt
    Rows of a report that name no process were assigned to its only process, or to the only one
    that uses their device.
process-unknown: loss
    Rows of a report name no process, and the report has several: they are not in the output.
    Export the report again with a newer nsys.
host-rows-first: info
    One process drives several devices, and each device is a rank. Host rows that concern no
    single device are shown with the first rank.
sparse-core: info
    Operations of a SparseCore are shown but count in no figure: computing, communication and idle
    time of a TPU are those of its TensorCore, as in XProf.
record-without-rank: doubt
    Records that name no rank, in a file whose other records do, were assigned to the rank
    that the path of the file states, else to rank 0. Does the pattern of the rank match all values?
rank-conflict: doubt
    Files of one capture name different ranks; the most trusted one is used.
rank-missing: doubt
    Expected ranks are missing.
rank-failed: loss
    A rank could not be read and is not in the output; the place gives the reason.
window-failed: loss
    One of several captures of a rank could not be read; the others are in the output.
window-skipped: info
    Collection windows of a rank that were not selected were left out.

-- clocks
unaligned: doubt
    These ranks share no known clock: do not compare times across them. They keep their
    timestamps or, if those are far from the others, start with them. For a log of your own, name
    the host where it was recorded in `mapping`.
clock-unchecked: info
    Clocks were aligned by collectives. Before the first collective and after the last, a clock
    change would go unnoticed, so the stated error holds only without one.
clock-unknown: loss
    Packets were skipped because nothing relates their clock to the clock of the trace.
snapshot-unused: doubt
    A clock snapshot contradicts itself or an earlier one and is not used.
clock-assumed: doubt
    The clock is assumed: the files do not name it, or not for a part of a capture. The place says
    what was assumed; otherwise the clock of its neighbours was taken.

-- steps and overlap
no-steps: info
    The capture has no steps; its whole range counts as one step. If ranges of the host are its
    steps, name them by `step_marker`.
steps-from-host: info
    Steps were taken from host ranges: the framework's own steps (ProfilerStep#n), iterations of
    an inference server, or the ranges that the step marker matches.
steps-by-time: info
    The names of the step ranges have no number; the steps were numbered by time, from 0. Equal
    numbers on several ranks are the same step only if all ranks began to record in the same
    step.
steps-replaced: info
    The ranges that the step marker matches replace the source's own steps.
step-marker-unmatched: doubt
    The step marker matches no range of the host (of a log of your own: no row that is not device
    work); the source's own steps are used, if it has some.
step-marker-number: doubt
    A range that the step marker matches has no number in the first group, or one that is too
    large; it is not a step.
steps-from-operators: info
    Steps were taken from a table of operators that names the step of each: a step lasts from
    its first to its last operator.
steps-uncovered: info
    Device work was recorded for some of the steps only; figures of the other steps are unknown.
borders-derived: info
    The profiler recorded no boundaries of forward and backward. They were taken from the
    operators that it recorded in another file, or that `PROFILING_FP_START` and
    `PROFILING_BP_END` name.
borders-missing: info
    Iterations have no boundaries of forward and backward, because the operators that delimit
    them do not run, or run in another order.
overlap-recomputed: info
    The profiler's own overlap track was replaced by the one computed here.
overlap-differs: doubt
    The computed overlap differs from the profiler's own track; both figures are given.
unclassified-tasks: doubt
    Device tasks of unknown type, or without the name of an operator: the device is busy, but
    whether it computes or communicates is unknown. They have a separate share; the places give
    the types and the time. In a log of your own, a column "kind" says it, and `comm_patterns`
    names communication.
no-device-events: info
    No device or communication slices: the overlap analysis of this rank is empty. In a log of
    your own, a column "stream" or "kind" makes them (compute, comm, memcpy or kernel).
operators-missing: doubt
    The table of operators is incomplete: idle time, shares and step durations are those of the
    profiler's step table, or unknown; counts and totals cover the rows that exist.
figures-differ: doubt
    Figures computed from the timeline differ from the profiler's own table of steps; both are
    stated.
collection-paused: info
    The profiler switched itself off while a stream waited for a value (MEM_WAIT_VALUE,
    CAPTURE_WAIT). The device's work in this time is unknown, so it does not count as idle.
work-outside-steps: doubt
    Device tasks were recorded, but outside of the marked steps only, so no step has figures.
    Were the steps marked while the device was not recorded?
computing-unknown: info
    Collectives or copies were recorded and computing was not: overlap and idle time are unknown.
    Record kernels too; in a log of your own, a column "kind" says what computes.

-- output
size-limit: loss
    Rows were left out to keep the size limit; see the table of dropped rows. Raise `limit`, or
    pass `over_limit="split"` to keep everything.
size-coalesced: loss
    Runs of small slices were joined to one slice with their count and busy time.
flow-split: loss
    A launch flow whose ends are in two output parts cannot be drawn.
args-dropped: info
    Arguments that were not selected (`args`) were not written.
value-clipped: info
    A number too large for the output was written as text.
viewer-rounds: doubt
    Times this far from the earliest event are exact in the file, but viewers of Chrome JSON
    read them as doubles and round them. Write a .pftrace, or select a `time` window.
viewer-drops: doubt
    Viewers of Chrome JSON nest events without length that are at one time, and drop those
    deeper than 512. Write a .pftrace.
nested-deep: doubt
    Slices nested deeper than viewers draw were moved to another track.
"""


def _codes(table: str) -> dict[str, Code]:
    """The codes of a table: ``name: severity``, and the advice in the indented lines below it."""
    advice_by_heading: dict[str, list[str]] = {}
    heading = ""
    for line in table.splitlines():
        if line.startswith("    "):
            advice_by_heading[heading].append(line.strip())
        elif line and not line.startswith("--"):
            heading = line
            advice_by_heading[heading] = []
    headings = (
        (heading.split(": "), " ".join(advice)) for heading, advice in advice_by_heading.items()
    )
    return {code: Code(Severity(severity), advice) for (code, severity), advice in headings}


CODES = _codes(_TABLE)
"""Every issue code. A plugin brings its own through :meth:`Issues.register`."""
