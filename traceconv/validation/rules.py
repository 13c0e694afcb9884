"""The rules a trace is judged by.

A rule is named ``P<nn>-<what>`` after the number of the Perfetto rule it belongs to, ``J16-<what>``
for Chrome JSON, and ``F-<what>`` for the file around them. Its severity is that of the statistic
which Perfetto's importer counts for it (``error``, ``loss``, ``notice``, ``info``), or ``silent``
where the importer says nothing a user would see although something is lost or wrong: then this
check is the only one. ``stats`` names the statistics the importer raises along with it.

Some rules no file can show to be broken, so nothing here stands for them: slices that cross while
their ends carry no name (the durations are exchanged; compare with the intervals that were meant),
flow ids that two ranks share by accident, and whether siblings of one name are meant to be one
(that is reported as information).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How the importer takes it when a rule is broken."""

    ERROR = "error"  # an error statistic, or the whole file is refused
    LOSS = "loss"  # a data loss statistic
    SILENT = "silent"  # nothing is said, and something is lost or wrong
    NOTICE = "notice"
    INFO = "info"


BAD = frozenset({Severity.ERROR, Severity.LOSS, Severity.SILENT})
"""Severities a good trace is free of."""


class Rule(NamedTuple):
    """One row of :data:`RULES`."""

    severity: Severity
    sentence: str
    stats: tuple[str, ...] = ()


_E, _L, _S = Severity.ERROR, Severity.LOSS, Severity.SILENT
_N, _I = Severity.NOTICE, Severity.INFO
_ITERR = "interned_data_tokenizer_errors"
_PERR = "track_event_parser_errors"

_FILE = {
    "F-compression": Rule(_E, "The compressed file is cut or broken; viewers refuse it."),
    "F-member": Rule(_E, "A file in the archive is no trace; viewers refuse the whole archive."),
    "F-manifest": Rule(_E, "The archive's manifest cannot be understood; viewers refuse it."),
    "F-absent": Rule(_S, "The archive's manifest names a file that is not in the archive."),
    "F-empty": Rule(_E, "The archive holds no trace."),
    "P24-counts": Rule(
        _S, "The events in the file are not as many as its own metadata says were written."
    ),
}

_WIRE = {
    "P01-tag": Rule(_E, "Between two packets stand bytes that are no packet."),
    "P01-packet": Rule(_E, "A packet cannot be parsed; viewers refuse the whole file."),
    "P01-truncated": Rule(_S, "The file ends in the middle of a packet, which is dropped."),
    "P01-message": Rule(_S, "A message inside a packet is broken; the rest of it is ignored."),
    "P02-event": Rule(
        _E, "A track event has no sequence id and is dropped.", ("track_event_missing_sequence_id",)
    ),
    "P02-interned": Rule(
        _E,
        "Interned data without a sequence id is dropped.",
        ("interned_data_missing_sequence_id",),
    ),
    "P02-defaults": Rule(
        _E,
        "Packet defaults without a sequence id are dropped.",
        ("trace_packet_defaults_missing_sequence_id",),
    ),
    "P02-cleared": Rule(
        _E,
        "State is cleared in a packet without a sequence id.",
        ("incremental_state_cleared_missing_sequence_id",),
    ),
    "P02-dropped": Rule(
        _E,
        "A packet loss is marked in a packet without a sequence id.",
        ("previous_packet_dropped_missing_sequence_id",),
    ),
    "P02-needs": Rule(
        _E, "A packet needs sequence state and has no sequence id; viewers refuse the file."
    ),
    "P02-zero": Rule(_S, "Sequence id 0 is used; it means that there is none."),
    "P03-packet": Rule(
        _S,
        "A packet needs sequence state that was never cleared and is dropped.",
        ("packet_skipped_seq_needs_incremental_state_invalid",),
    ),
    "P03-interned": Rule(
        _S,
        "Interned data comes before the state of its sequence was cleared and is dropped.",
        ("interned_data_skipped_incremental_state_invalid",),
    ),
    "P03-defaults": Rule(
        _S, "Packet defaults come before the state of their sequence was cleared."
    ),
    "P03-loss": Rule(_L, "The producer marked a packet loss; the sequence starts over."),
    "P04-name": Rule(_S, "An event's name id is not defined; the event has no name.", (_ITERR,)),
    "P04-category": Rule(_S, "An event's category id is not defined.", (_ITERR,)),
    "P04-argument": Rule(
        _S, "An argument refers to an undefined id and is dropped.", (_ITERR, _PERR)
    ),
    "P04-zero": Rule(_S, "An interned entry has no id, or id 0.", (_ITERR,)),
    "P04-late": Rule(_N, "An id is used before the packet that defines it."),
    "P05-redefined": Rule(_S, "An id is defined twice with different text; the first one stays."),
    "P22-utf8": Rule(_S, "A text is not valid UTF-8."),
    "P22-name": Rule(_S, "An argument has no name, or an empty one."),
    "P22-finite": Rule(_S, "A number is infinite or not a number."),
    "P23-codec": Rule(_E, "Compressed packets are neither zlib nor gzip; viewers refuse the file."),
    "P23-content": Rule(
        _E, "Compressed packets do not hold a run of packets; viewers refuse the file."
    ),
    "P23-mixed": Rule(_E, "Both kinds of compressed packets are used; viewers refuse the file."),
}

_TIME = {
    "P06-timestamp": Rule(
        _E, "A track event has no timestamp and is dropped.", ("track_event_missing_timestamp",)
    ),
    "P07-negative": Rule(
        _E, "A track event's time is negative; it is dropped.", ("track_event_invalid_timestamp",)
    ),
    "P07-sorter": Rule(
        _E,
        "A packet's time is negative; it is dropped.",
        ("trace_sorter_negative_timestamp_dropped",),
    ),
    "P07-delta": Rule(_S, "A time difference is negative: the packets are not in time order."),
    "P08-clock": Rule(
        _E, "A packet's clock is in no snapshot.", ("clock_sync_failure_unknown_source_clock",)
    ),
    "P08-target": Rule(
        _E, "The trace's own clock is in no snapshot.", ("clock_sync_failure_unknown_target_clock",)
    ),
    "P08-path": Rule(
        _E, "No snapshot ties a packet's clock to the trace's.", ("clock_sync_failure_no_path",)
    ),
    "P08-lost": Rule(
        _L,
        "A packet whose time cannot be converted is dropped.",
        ("clock_sync_failure_undeferrable_packet_loss",),
    ),
    "P08-domains": Rule(
        _E,
        "The trace's own clock is not tied to BOOTTIME.",
        ("clock_sync_unrelatable_clock_domains",),
    ),
    "P08-snapshot": Rule(
        _E, "A clock snapshot contradicts itself or an earlier one.", ("invalid_clock_snapshots",)
    ),
    "P08-sequence": Rule(
        _E, "A sequence's own clock is used without a sequence id; viewers refuse the file."
    ),
    "P08-late": Rule(_N, "A clock snapshot comes after packets that need it."),
}

_TRACKS = {
    "P09-type": Rule(
        _S, "An event has no type, or one that does not exist; it is dropped.", (_PERR,)
    ),
    "P09-legacy": Rule(_N, "A legacy event is not judged here; write plain track events."),
    "P10-uuid": Rule(
        _E, "A track descriptor has no uuid and is dropped.", ("track_descriptor_missing_uuid",)
    ),
    "P10-root": Rule(
        _E,
        "The root track (uuid 0) has a parent; the descriptor is dropped.",
        ("track_descriptor_default_track_with_parent",),
    ),
    "P10-ordering": Rule(
        _E,
        "A track descriptor asks for an unknown order and is dropped.",
        ("track_descriptor_invalid_child_ordering",),
    ),
    "P11-process": Rule(
        _E, "A process has no pid; its track is dropped.", ("track_descriptor_process_missing_pid",)
    ),
    "P11-thread": Rule(
        _E,
        "A thread has no pid or no tid; its track is dropped.",
        ("track_descriptor_thread_missing_pid_tid",),
    ),
    "P11-zero": Rule(_S, "Pid 0 and tid 0 stand for the idle process."),
    "P12-conflict": Rule(
        _E,
        "A track is described twice, and differently; the second one is ignored.",
        ("track_descriptor_conflicting_reservation",),
    ),
    "P12-name": Rule(_S, "A track is described twice under different names."),
    "P13-process": Rule(_S, "Two tracks describe one pid; the second one becomes a new process."),
    "P13-thread": Rule(_S, "Two tracks describe one tid; the second one becomes a new thread."),
    "P14-parent": Rule(
        _S,
        "A track's parent is not described; everything on the track is dropped.",
        ("track_hierarchy_missing_uuid", _PERR),
    ),
    "P14-loop": Rule(
        _E,
        "A track is its own ancestor; everything on it is dropped.",
        ("track_event_track_hierarchy_loop", _PERR),
    ),
    "P14-depth": Rule(
        _E,
        "A track has more than 100 ancestors; everything on it is dropped.",
        ("track_event_track_hierarchy_too_deep", _PERR),
    ),
    "P15-track": Rule(_S, "A track that is used is not described."),
    "P18-track": Rule(
        _E,
        "A counter event stands on a track that is no counter, or not described before it; "
        "it is dropped.",
        ("track_event_counter_invalid_track_uuid",),
    ),
    "P18-value": Rule(
        _E, "A counter event has no value and is dropped.", ("track_event_counter_missing_value",)
    ),
    "P18-uuid": Rule(
        _E,
        "A counter event names no track and is dropped.",
        ("track_event_counter_missing_track_uuid",),
    ),
    "P18-slice": Rule(_S, "A slice or an instant stands on a counter track."),
    "P18-state": Rule(
        _E, "A state names no track and is dropped.", ("track_event_state_missing_track_uuid",)
    ),
    "P19-uuids": Rule(
        _E,
        "Extra counter values come without tracks; the event is dropped.",
        ("track_event_extra_counter_missing_track_uuids",),
    ),
    "P19-mismatch": Rule(
        _E,
        "There are more extra counter values than tracks for them; the event is dropped.",
        ("track_event_extra_counter_track_uuid_mismatch",),
    ),
    "P19-many": Rule(
        _E,
        "An event has more than 8 extra counter values; it is dropped.",
        ("track_event_extra_counter_exceeds_max",),
    ),
    "P19-track": Rule(
        _E,
        "An extra counter value belongs to a track that is no counter; the event is dropped.",
        ("track_event_extra_counter_invalid_track",),
    ),
    "P21-merged": Rule(
        _I, "Sibling tracks of one name are shown as one; give them merge keys if that is meant."
    ),
}

_EVENTS = {
    "P16-end": Rule(_S, "A slice ends that never began; the end is ignored."),
    "P16-open": Rule(_S, "A slice never ends; it is drawn to the end of the trace."),
    "P16-depth": Rule(
        _E,
        "Slices nest deeper than 512; the inner ones are dropped.",
        ("slice_max_depth_exceeded",),
    ),
    "P17-crossing": Rule(_S, "Slices of one track cross: an outer one ends before an inner one."),
    "P17-misplaced": Rule(
        _L,
        "The end of a crossing slice is moved to where the other one ends.",
        ("misplaced_end_event",),
    ),
    "P20-single": Rule(_S, "A flow id is used once only; nothing is drawn."),
    "P20-unopened": Rule(_S, "A flow is terminated that is not open; nothing is drawn."),
}

_JSON = {
    "J16-bom": Rule(_E, "The file begins with a byte order mark; viewers refuse it."),
    "J16-syntax": Rule(_E, "The file is not JSON as viewers read it; they refuse it."),
    "J16-surrogate": Rule(
        _E, "A text is written with a surrogate escape (\\ud83d ...); viewers refuse the file."
    ),
    "J16-truncated": Rule(_E, "The outer object is not closed; viewers refuse the file."),
    "J16-unclosed": Rule(_N, "The array of events is not closed."),
    "J16-cut": Rule(_S, "The file ends in the middle of an event, which is dropped."),
    "J16-control": Rule(_N, "A text holds raw control characters; other tools refuse that."),
    "J16-utf8": Rule(_S, "The file holds bytes that are not valid UTF-8."),
    "J16-phase": Rule(_E, "An event has no phase and is dropped.", ("json_tokenizer_failure",)),
    "J16-unknown-phase": Rule(_S, "Events of this phase are dropped."),
    "J16-ts": Rule(
        _E,
        "An event has no time, or one that is no number; it is dropped.",
        ("json_tokenizer_failure",),
    ),
    "J16-dur-type": Rule(
        _E,
        "A duration is no number; everything after it is lost.",
        ("json_tokenizer_failure",),
    ),
    "J16-dur": Rule(
        _E, "A complete event has no duration and is dropped.", ("json_parser_failure",)
    ),
    "J16-negative-dur": Rule(
        _E, "A complete event has a negative duration and is dropped.", ("slice_negative_duration",)
    ),
    "J16-negative-ts": Rule(
        _E,
        "An event's time is negative; it is dropped.",
        ("trace_sorter_negative_timestamp_dropped",),
    ),
    "J16-ts-grid": Rule(
        _S, "A time with fractions is so large that nanoseconds are lost; subtract a base."
    ),
    "J16-overlap": Rule(
        _E,
        "A complete event crosses another one of its thread and is moved to an own row.",
        ("slice_spill_overlapping_complete_event",),
    ),
    "J16-range": Rule(_S, "A pid or tid is negative or above 2^32-1 and becomes 0."),
    "J16-idle": Rule(_S, "Pid 0 and tid 0 stand for the idle process."),
    "J16-tid": Rule(_N, "A tid of 0, or none, is replaced by the pid."),
    "J16-text-id": Rule(_N, "A pid or tid is a text; it becomes a name with an arbitrary number."),
    "J16-args": Rule(
        _S, "Arguments that viewers cannot parse (NaN, surrogate escapes ...) are dropped."
    ),
    "J16-args-number": Rule(_S, "A number beyond 64 bits among the arguments is changed."),
    "J16-counter": Rule(
        _E,
        "A counter has no value, or one that is no number; it is dropped.",
        ("json_parser_failure",),
    ),
    "J16-async": Rule(
        _E, "An asynchronous event has no pid or no id and is dropped.", ("json_parser_failure",)
    ),
    "J16-instant": Rule(
        _E, "An instant has no tid or pid to stand on and is dropped.", ("json_parser_failure",)
    ),
    "J16-state": Rule(
        _E, "A thread state (phase T) has no duration and is dropped.", ("json_parser_failure",)
    ),
    "J16-metadata": Rule(_E, "A metadata event has no usable value.", ("json_parser_failure",)),
    "J16-id2": Rule(_E, "An id2 cannot be parsed.", ("json_tokenizer_failure",)),
    "J16-end": Rule(_S, "A slice ends that never began; the end is ignored."),
    "J16-open": Rule(_S, "A slice never ends; it is drawn to the end of the trace."),
    "J16-depth": Rule(
        _E,
        "Slices nest deeper than 512; the inner ones are dropped.",
        ("slice_max_depth_exceeded",),
    ),
    "J16-crossing": Rule(_S, "Slices of one thread cross: an outer one ends before an inner one."),
    "J16-misplaced": Rule(
        _L,
        "The end of a crossing slice is moved to where the other one ends.",
        ("misplaced_end_event",),
    ),
    "J16-flow-id": Rule(
        _E,
        "A flow id is neither an integer nor hexadecimal; the arrow is dropped.",
        ("flow_invalid_id",),
    ),
    "J16-flow-slice": Rule(
        _E, "A flow event is inside no slice; the arrow is dropped.", ("flow_no_enclosing_slice",)
    ),
    "J16-flow-twice": Rule(
        _E, "A flow id starts twice; the second start is dropped.", ("flow_duplicate_id",)
    ),
    "J16-flow-direction": Rule(
        _E, "A bind_id has neither flow_in nor flow_out.", ("flow_without_direction",)
    ),
    "J16-flow-step": Rule(
        _S, "A flow step has no start; nothing is drawn.", ("flow_step_without_start",)
    ),
    "J16-flow-end": Rule(
        _S, "A flow end has no start; nothing is drawn.", ("flow_end_without_start",)
    ),
    "J16-flow-single": Rule(_S, "A flow start has no end; nothing is drawn."),
    "J16-flow-pending": Rule(
        _S, 'A flow end without "bp":"e" waits for a slice that never comes; nothing is drawn.'
    ),
}

RULES: dict[str, Rule] = {**_FILE, **_WIRE, **_TIME, **_TRACKS, **_EVENTS, **_JSON}
"""Every rule: id to (severity, sentence, statistics of the importer)."""
