"""The table of issue codes: what can be lost or in doubt, how bad that is, and what to do."""

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


_I, _D, _L = Severity.INFO, Severity.DOUBT, Severity.LOSS

CODES: dict[str, Code] = {
    # reading: containers
    "truncated": Code(
        _L,
        "The file ends in the middle of a record; everything before it was read. "
        "Was the profiler killed, or the copy cut short?",
    ),
    "unclosed-array": Code(
        _D,
        "The list of events is not closed, as some writers leave it; if it was to be, the profiler "
        "was stopped before it had written everything.",
    ),
    "unended-line": Code(
        _D,
        "The last line of a table does not end; if the file was cut there, so was its last value.",
    ),
    "malformed-record": Code(
        _L, "A record cannot be parsed and was skipped; look at the place given."
    ),
    "line-unmatched": Code(
        _D,
        "Lines of a text log that its pattern does not match, such as tracebacks, are left out.",
    ),
    "repaired-record": Code(
        _D,
        "Records that were not valid JSON (the writer escapes nothing) were repaired and kept; "
        "look at the names.",
    ),
    "skipped-bytes": Code(
        _L, "Bytes between two readable records were skipped; their content is lost."
    ),
    "perfetto-packet-unread": Code(
        _I,
        "Packets of other data sources than TrackEvents and GPUs (ftrace, CPU samples, memory ...) "
        "are no events of a rank; the places give their kinds. In an archive (.tar) those that "
        "viewers show are beside the ranks (perfetto-packet-beside).",
    ),
    "perfetto-field-unread": Code(
        _I,
        "Events have further fields that no arguments are made of: those of a browser or a system "
        "(tasks, calls between processes ...); the places give their numbers in TrackEvent.",
    ),
    "perfetto-packet-beside": Code(
        _I,
        "Packets of other data sources that are in the archive, as a trace beside the ranks; "
        "the places give their kinds.",
    ),
    "state-lost": Code(
        _L,
        "Packets that refer to what an earlier packet of their sequence said, and that packet is "
        "not there, were skipped: the beginning of the recording is missing, or the profiler "
        "dropped packets.",
    ),
    "interned-unknown": Code(
        _D,
        "Names and texts that are referred to by number were never sent: such events have no name, "
        "such arguments are left out.",
    ),
    "details-lost": Code(
        _D, "Rows are lost: graphs, steps and rare arguments of those beside them are, too."
    ),
    "track-without-rank": Code(
        _L,
        "A file of several ranks has further tracks - of a process that uses no device, say, or of "
        "no process: what is on them is of no rank, and was skipped.",
    ),
    "track-unknown": Code(
        _L,
        "Events on tracks that viewers do not show - they are inside a track that is not "
        "described, or values of what is no counter - were skipped.",
    ),
    "track-conflict": Code(
        _D, "A track is described several times, differently; the first description counts."
    ),
    "unknown-phase": Code(_L, "A trace event of a phase this reader does not know was skipped."),
    "bad-encoding": Code(_D, "Text that is not valid UTF-8 was read with replacement characters."),
    "empty-file": Code(_I, "The file has no events."),
    "unread-file": Code(
        _D,
        "A file that may hold a profile was not read: it is closed, packed or damaged, or cannot "
        "be opened. Name it alone to hear what it is, and what to do.",
    ),
    "superseded-export": Code(
        _I, "There is a newer export of the same data beside an older one; only the newest is read."
    ),
    "export-unused": Code(
        _I,
        "Another export of the same run (a database beside text, or text beside a database) was "
        "left out. Pass `reader` to choose another one.",
    ),
    "repeated-content": Code(
        _I, "The same events are in several files, or groups of a file; each was taken once."
    ),
    "part-missing": Code(
        _L,
        "A file of a numbered series is missing, while its neighbours exist; its content is lost, "
        "or was read from files with less detail. Was the copy complete?",
    ),
    "own-output": Code(_I, "Written by traceconv, and left out; to read it, name the file itself."),
    "unused-file": Code(_I, "The file is known, and has nothing the trace needs."),
    # reading: events
    "missing-duration": Code(_D, "A slice without a duration is kept with duration 0."),
    "negative-duration": Code(_L, "A slice that ends before it starts was skipped."),
    "bad-time": Code(_L, "A record without a usable time stamp was skipped."),
    "far-stamp": Code(
        _D,
        "Events are so far from all others that they stretch the timeline; they are kept. If their "
        "time stamps are wrong, leave them out with a `time` window.",
    ),
    "missing-name": Code(_D, "An event without a name is kept under an empty name."),
    "not-copied": Code(
        _I, "The files could not be merged by copying bytes; they were read and written again."
    ),
    "copy-faulty": Code(
        _D,
        "The files were copied by their bytes, and viewers drop or misplace some of that: see "
        "`traceconv validate`. `traceconv convert` and a .pftrace repair what can be repaired.",
    ),
    "copy-unchecked": Code(
        _I,
        "The files were copied by their bytes; for their size they were not checked: "
        "`traceconv validate` says whether viewers show all of them.",
    ),
    "name-unknown": Code(
        _D, "The file that names numbers lacks some of them; the numbers are used as names."
    ),
    "time-rounded": Code(
        _D,
        "Time stamps in the file are coarser than 1 ns (written through floating point); "
        "they are kept as written.",
    ),
    "slice-trimmed": Code(
        _D,
        "Slices that seemed to outlast the one around them, or to reach into the next, by no more "
        "than the resolution of their time stamps were cut to fit.",
    ),
    "duration-rounded": Code(
        _I, "Durations finer than 1 ns were rounded half up to the nanosecond."
    ),
    "stamp-rounded": Code(
        _I, "Time stamps finer than 1 ns were rounded half up to the nanosecond."
    ),
    "unfinished-slice": Code(
        _D, "A slice that was never ended is closed at the last stamp of its lane."
    ),
    "end-unknown": Code(
        _D,
        "The source says that these have ended, but not when: they are marks where they began, and "
        "in no sum.",
    ),
    "end-without-begin": Code(_L, "An end mark without a begin was skipped."),
    "flow-without-end": Code(
        _I,
        "The source has only one end of these arrows: the other was outside the recorded window, "
        "or its layer was not recorded. There is nothing to draw.",
    ),
    "flow-unbound": Code(
        _L,
        "Launch arrows whose slices cannot be found cannot be drawn: a slice was skipped, or its "
        "lane has none at that time.",
    ),
    "flow-across-ranks": Code(
        _I,
        "Arrows between rows of two ranks, such as two devices of one process or two processes in "
        "one file: no arrow leads from one rank to another.",
    ),
    "launch-backwards": Code(
        _I,
        "Work on a device begins before the call that launched it: the two clocks differ by at "
        "least the amount given; do not compare times of host and device more finely than that.",
    ),
    "launch-unknown": Code(
        _D,
        "Nothing tells when the programs were launched that these operations are part of, and so "
        "of which step they are: nothing is said of what steps do on the device.",
    ),
    "decoration-skipped": Code(_I, "Marks that only decorate the profiler's own viewer."),
    "launch-mark": Code(
        _I,
        "Both ends of every launch are also marked apart (ac2g); the arrows were drawn from the "
        "correlation numbers of calls and tasks, which give the same arrows exactly.",
    ),
    "metadata-unused": Code(_I, "Metadata records that carry nothing the trace needs."),
    "kind-not-read": Code(
        _I,
        "Records of kinds that this reader does not convert (CPU samples, scheduling, the "
        "profiler's own overhead ...) are not in the output.",
    ),
    "unknown-kind": Code(
        _D, "Events of an unknown kind are kept among the others; correct the kind."
    ),
    "time-estimated": Code(
        _D,
        "The start or end of an event is not in the file; its length or the nearest time set it.",
    ),
    "profiler-error": Code(
        _D,
        "The profiler reports errors of its own, quoted in the places: what they are about may be "
        "missing from the capture, or wrong.",
    ),
    "profiler-warning": Code(
        _I, "The profiler reports warnings about its own work, quoted in the places."
    ),
    "source-dropped": Code(
        _D, "The profiler reports that it had no room for these events and did not write them."
    ),
    "counter-unplaced": Code(
        _I,
        "The first value of a counter that reports the time before its samples is not shown: "
        "nothing says when that time began.",
    ),
    "counter-not-numeric": Code(_L, "A counter sample whose value is not a number was skipped."),
    "counter-zero": Code(
        _I,
        "Samples of counters that are zero throughout a rank are not drawn in the detail; the mode "
        "source and conversions keep them.",
    ),
    "counter-clipped": Code(
        _D,
        "A counter that is computed back from the end of a recording would fall below zero and is "
        "kept at zero: the log and the state at its end do not agree.",
    ),
    "row-unmatched": Code(
        _D,
        "Rows of a table beside the timeline describe operators that are not in the timeline.",
    ),
    "args-not-json": Code(_D, "Arguments that are not valid JSON are kept as text."),
    # identity
    "rank-assumed": Code(
        _I,
        "No file names the rank of the only capture; it is taken as 0. `rank_from` names it.",
    ),
    "process-assumed": Code(
        _D,
        "Rows of a report that name no process were taken as those of its only process, or of the "
        "only one that uses their device.",
    ),
    "process-unknown": Code(
        _L,
        "Rows of a report name no process, and it has several: they are not in the output. Export "
        "the report again with a newer nsys.",
    ),
    "rank-order": Code(
        _D,
        "Nothing names the ranks of these hosts or processes: they were numbered in the order of "
        "the hosts' names, or of the process ids. Merge a file at a time, or name hosts so that "
        "their order is that of the job.",
    ),
    "host-rows-first": Code(
        _I,
        "One process drives several devices, and each of them is a rank: rows of the host that are "
        "about none of them are with the first.",
    ),
    "record-without-rank": Code(
        _D, "Records that name no rank, in a file whose other records do, are taken as rank 0's."
    ),
    "rank-conflict": Code(
        _D, "Files of one capture name different ranks; the most trusted one is used."
    ),
    "rank-missing": Code(_D, "Ranks that were expected are not there."),
    "rank-failed": Code(
        _L, "A rank could not be read and is not in the output; the place gives the reason."
    ),
    "window-failed": Code(
        _L,
        "One of several captures of a rank could not be read; its others are in the output.",
    ),
    "window-skipped": Code(_I, "Collection windows of a rank that were not selected."),
    # clocks
    "unaligned": Code(
        _D,
        "No shared clock is known for these ranks: compare no times across them. They are kept as "
        "stamped or, if that is far from the others, moved to start with them.",
    ),
    "clock-unchecked": Code(
        _I,
        "Clocks were aligned by collectives, and in this part of the capture, before the first of "
        "them or after the last, nothing shows that none was set: the stated error holds if none "
        "was.",
    ),
    "clock-unknown": Code(
        _L,
        "Packets whose time is that of a clock which nothing relates to the clock of the trace "
        "were skipped.",
    ),
    "snapshot-unused": Code(
        _D, "A reading of several clocks that contradicts itself, or an earlier one, is not used."
    ),
    "clock-assumed": Code(
        _D,
        "No file of a capture says what its clock is, or that of a part of it; it was taken to be "
        "as the place says, else as that of its neighbours.",
    ),
    # steps and overlap
    "no-steps": Code(_I, "The capture marks no steps; the whole range counts as one step."),
    "steps-from-host": Code(
        _I,
        "Steps were taken from ranges of the host: the framework's own marks (ProfilerStep#n), "
        "iterations of a server of language models, or what the step marker names.",
    ),
    "steps-by-time": Code(
        _I,
        "Names of the ranges that are steps have no number; they were numbered by time, from 0. "
        "Steps of one number are the same on all ranks if all began to record in the same one.",
    ),
    "steps-replaced": Code(
        _I, "Rows of the source's own step trace gave way to the ranges the step marker names."
    ),
    "step-marker-unmatched": Code(
        _D, "The step marker names no range of the host; steps are those of the source."
    ),
    "step-marker-number": Code(
        _D,
        "A range that the step marker finds has no number where its first group is, or one too "
        "large; it is no step.",
    ),
    "steps-from-operators": Code(
        _I,
        "Steps were taken from a table of operators, which names the step of each: a step lasts "
        "from the first to the last of its operators.",
    ),
    "steps-uncovered": Code(
        _I,
        "Device work was recorded for some of the steps only; figures of the others are unknown.",
    ),
    "borders-derived": Code(
        _I,
        "The profiler marked no borders of forward and backward; they are those of the operators "
        "that it recorded beside the timeline, or that `PROFILING_FP_START` and `PROFILING_BP_END` "
        "name.",
    ),
    "borders-missing": Code(
        _I,
        "Iterations without borders of forward and backward, in which the operators that are to be "
        "these borders do not run, or not one after the other.",
    ),
    "overlap-recomputed": Code(
        _I, "The profiler's own overlap lane was replaced by the one computed here."
    ),
    "overlap-differs": Code(
        _D, "The computed overlap differs from the profiler's own lane; both figures are given."
    ),
    "unclassified-tasks": Code(
        _D,
        "Device tasks of types that no table of their producer has: the device is busy, and nobody "
        "knows whether it computes or communicates. They are a share of their own; the places give "
        "the types, and how long their tasks take together.",
    ),
    "no-device-events": Code(
        _I, "No device or communication slices: the overlap analysis of this rank is empty."
    ),
    "operators-missing": Code(
        _D,
        "The table of operators lacks some: idle time, shares and lengths of steps are those of "
        "the profiler's table of steps, else unknown; counts and sums are of the rows there are.",
    ),
    "computing-unknown": Code(
        _I, "Collectives were recorded and computing was not: overlap and idle time are unknown."
    ),
    # output
    "size-limit": Code(
        _L,
        "Left out to keep the size limit; see the dropped table. "
        'Raise `limit`, or pass `over_limit="split"` to keep everything.',
    ),
    "size-coalesced": Code(
        _L, "Runs of small slices were joined to one slice with their count and busy time."
    ),
    "flow-split": Code(_L, "A launch arrow whose ends are in two output parts cannot be drawn."),
    "args-dropped": Code(_I, "Arguments that were not selected (`args`) are not written."),
    "value-clipped": Code(_I, "A number too large for the output was written as text."),
    "viewer-rounds": Code(
        _D,
        "Times so far from the earliest event are exact in the file, but viewers of Chrome JSON "
        "read them as doubles and round them; write a .pftrace, or select a `time` window.",
    ),
    "nested-deep": Code(_D, "Slices nested deeper than viewers draw were moved to another lane."),
}
"""Every issue code. A plugin brings its own through :meth:`Issues.register`."""
