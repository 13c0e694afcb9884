"""The rules a trace is judged by, and the count of those that are broken.

A rule is named after the group of importer rules it is of: ``P<nn>-<what>``, ``J16-<what>`` for
Chrome JSON only, ``F-<what>`` for the file around the events. Two faults no file can show: slices
that cross while their ends carry no name (durations are exchanged; compare with the intervals
that were intended), and flow ids that two ranks share by accident.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from traceconv.core.errors import MalformedInputError


class Severity(StrEnum):
    """How the importer reacts when a rule is broken."""

    ERROR = "error"  # an error statistic, or the whole file is refused
    LOSS = "loss"  # a data loss statistic
    SILENT = "silent"  # nothing is reported to the user, and something is lost or wrong
    NOTICE = "notice"


BAD = frozenset({Severity.ERROR, Severity.LOSS, Severity.SILENT})
"""Severities a good trace is free of."""


class Rule(NamedTuple):
    """One row of :data:`RULES`. ``stats``: the importer's statistics that may count it."""

    severity: Severity
    sentence: str
    stats: tuple[str, ...] = ()


_E, _L, _S, _N = Severity.ERROR, Severity.LOSS, Severity.SILENT, Severity.NOTICE
_DESCRIPTOR = "track_descriptor_"
_COUNTER = "track_event_counter_"
_EXTRA = "track_event_extra_counter_"

RULES: dict[str, Rule] = {
    # -- the file
    "F-compression": Rule(_E, "The compressed file is cut or broken; viewers refuse it."),
    "F-member": Rule(
        _E, "The archive holds no trace, or a file that is none; viewers refuse the whole archive."
    ),
    "F-manifest": Rule(_E, "The archive's manifest cannot be understood; viewers refuse it."),
    "F-absent": Rule(_S, "The archive's manifest names a file that is not in the archive."),
    "F-cut": Rule(_S, "The file ends in the middle of an event, which is dropped."),
    "P24-counts": Rule(
        _S, "The events in the file are not as many as its own metadata says were written."
    ),
    # -- packets and their sequences
    "P01-packet": Rule(
        _E, "A packet cannot be parsed, or other bytes are between two; viewers refuse the file."
    ),
    "P01-message": Rule(_S, "A message inside a packet is broken; the rest of it is ignored."),
    "P02-event": Rule(
        _E, "A track event has no sequence id and is dropped.", ("track_event_missing_sequence_id",)
    ),
    "P02-state": Rule(
        _E,
        "A packet without a sequence id sets state of a sequence, which is ignored.",
        (
            "interned_data_missing_sequence_id",
            "trace_packet_defaults_missing_sequence_id",
            "incremental_state_cleared_missing_sequence_id",
            "previous_packet_dropped_missing_sequence_id",
        ),
    ),
    "P02-needs": Rule(
        _E,
        "A packet needs the state or the clock of a sequence and has no sequence id; "
        "viewers refuse the file.",
    ),
    "P03-uncleared": Rule(
        _S,
        "A packet needs or extends sequence state that was never cleared; it is dropped.",
        (
            "packet_skipped_seq_needs_incremental_state_invalid",
            "interned_data_skipped_incremental_state_invalid",
        ),
    ),
    "P03-loss": Rule(_L, "The producer marked a packet loss; the sequence starts over."),
    "P04-id": Rule(
        _S,
        "An interned id is 0 or not defined; the name, category or argument is lost.",
        ("interned_data_tokenizer_errors", "track_event_parser_errors"),
    ),
    "P05-redefined": Rule(_S, "An id is defined twice with different text; the first one stays."),
    "P22-value": Rule(
        _S, "A text is not valid UTF-8, a number is not finite, or an argument has no name."
    ),
    "P23-compressed": Rule(
        _E,
        "Compressed packets cannot be unpacked, hold no packets, or are of two kinds; "
        "viewers refuse the file.",
    ),
    # -- time
    "P06-timestamp": Rule(
        _E, "A track event has no timestamp and is dropped.", ("track_event_missing_timestamp",)
    ),
    "P07-negative": Rule(
        _E,
        "A time is negative; the packet or event is dropped.",
        ("track_event_invalid_timestamp", "trace_sorter_negative_timestamp_dropped"),
    ),
    "P07-delta": Rule(_S, "A time difference is negative: the packets are not in time order."),
    "P08-clock": Rule(
        _E,
        "No clock snapshot relates a packet's clock to the trace's.",
        (
            "clock_sync_failure_unknown_source_clock",
            "clock_sync_failure_unknown_target_clock",
            "clock_sync_failure_no_path",
        ),
    ),
    "P08-lost": Rule(
        _L,
        "A packet whose time cannot be converted is dropped.",
        ("clock_sync_failure_undeferrable_packet_loss",),
    ),
    "P08-domains": Rule(
        _E,
        "The trace's own clock is not related to BOOTTIME.",
        ("clock_sync_unrelatable_clock_domains",),
    ),
    "P08-snapshot": Rule(
        _E, "A clock snapshot contradicts itself or an earlier one.", ("invalid_clock_snapshots",)
    ),
    # -- tracks
    "P09-type": Rule(
        _S,
        "An event has no type, or one that does not exist; it is dropped.",
        ("track_event_parser_errors",),
    ),
    "P09-legacy": Rule(_N, "A legacy event is not judged here; write plain track events."),
    "P10-descriptor": Rule(
        _E,
        "A track descriptor lacks its uuid, pid or tid, or is contradictory; it is dropped.",
        (
            f"{_DESCRIPTOR}missing_uuid",
            f"{_DESCRIPTOR}default_track_with_parent",
            f"{_DESCRIPTOR}invalid_child_ordering",
            f"{_DESCRIPTOR}process_missing_pid",
            f"{_DESCRIPTOR}thread_missing_pid_tid",
        ),
    ),
    "P11-zero": Rule(_S, "Pid 0 and tid 0 are those of the idle process."),
    "P12-conflict": Rule(
        _E,
        "A track is described twice, and differently; the second one is ignored.",
        (f"{_DESCRIPTOR}conflicting_reservation",),
    ),
    "P12-name": Rule(_S, "A track is described twice under different names."),
    "P13-twice": Rule(
        _S, "Two tracks describe one process or thread; the second one becomes a new one."
    ),
    "P14-parent": Rule(
        _S,
        "A track's parent is not described; everything on the track is dropped.",
        ("track_hierarchy_missing_uuid", "track_event_parser_errors"),
    ),
    "P14-loop": Rule(
        _E,
        "A track is its own ancestor, or has more than 100; everything on it is dropped.",
        (
            "track_event_track_hierarchy_loop",
            "track_event_track_hierarchy_too_deep",
            "track_event_parser_errors",
        ),
    ),
    "P15-track": Rule(_S, "A track that is used is not described."),
    "P18-counter": Rule(
        _E,
        "A counter value has no track, is missing, or its track was not described as a counter "
        "before; the event is dropped.",
        (
            f"{_COUNTER}invalid_track_uuid",
            f"{_COUNTER}missing_value",
            f"{_COUNTER}missing_track_uuid",
            "track_event_state_missing_track_uuid",
            f"{_EXTRA}missing_track_uuids",
            f"{_EXTRA}track_uuid_mismatch",
            f"{_EXTRA}exceeds_max",
            f"{_EXTRA}invalid_track",
        ),
    ),
    "P18-slice": Rule(_S, "A slice or an instant is on a counter track."),
    # -- slices and flows of both formats
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
    "P20-unbound": Rule(
        _S,
        "A flow has one end only; nothing is drawn.",
        ("flow_step_without_start", "flow_end_without_start"),
    ),
    # -- Chrome JSON
    "J16-syntax": Rule(
        _E,
        "The file is not JSON as viewers read it (cut off, a byte order mark, a surrogate "
        "escape, ...); they refuse it.",
    ),
    "J16-event": Rule(
        _E,
        "An event lacks what its phase needs, or has it in a form that viewers do not read; "
        "it is dropped.",
        ("json_tokenizer_failure", "json_parser_failure", "slice_negative_duration"),
    ),
    "J16-control": Rule(_N, "A text holds raw control characters; Chrome's own viewer refuses it."),
    "J16-ts-grid": Rule(
        _S, "A time with fractions is so large that nanoseconds are lost; subtract a base."
    ),
    "J16-overlap": Rule(
        _E,
        "A complete event crosses another one of its thread and is moved to an own row.",
        ("slice_spill_overlapping_complete_event",),
    ),
    "J16-id": Rule(
        _S,
        "A pid or tid is outside 0 to 2^32-1 and becomes 0, or an id is a number beyond 2^53, "
        "which viewers round; write it as text.",
    ),
    "J16-args": Rule(
        _S,
        "Arguments that viewers cannot parse (NaN, surrogate escapes ...) are dropped, and "
        "numbers beyond 64 bits are changed.",
    ),
    "J16-flow": Rule(
        _E,
        "A flow event is inside no slice, starts a flow twice, or has no usable id or direction; "
        "the arrow is dropped.",
        (
            "flow_invalid_id",
            "flow_no_enclosing_slice",
            "flow_duplicate_id",
            "flow_without_direction",
        ),
    ),
}
"""Every rule: id to (severity, sentence, statistics of the importer)."""


class Refused(MalformedInputError):
    """What viewers refuse as a whole. ``rule`` says why."""

    def __init__(self, path: str, rule: str, where: str) -> None:
        self.rule = rule
        super().__init__(path, where, RULES[rule].sentence)

    @property
    def format(self) -> str:
        """The format of the file, "unknown" if it was refused before that was clear."""
        return {"P": "perfetto", "J": "chrome_json"}.get(self.rule[0], "unknown")


@dataclass(frozen=True)
class Finding:
    """A broken rule.

    Attributes:
        rule:     key of :data:`RULES`.
        severity: of that rule.
        count:    how often it is broken.
        places:   the first few places ("byte 120", "uuid 7"), for looking.
        sentence: what is wrong and what a viewer makes of it.
    """

    rule: str
    severity: Severity
    count: int
    places: tuple[str, ...]
    sentence: str

    def __str__(self) -> str:
        places = ", ".join(self.places) + (" ..." if self.count > len(self.places) else "")
        return f"{self.severity} {self.rule} ({self.count}): {self.sentence} [{places}]"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self) | {"severity": str(self.severity), "places": list(self.places)}


@dataclass
class Tally:
    """Counts broken rules; the first few places of each are kept.

    Attributes:
        stats: the importer's statistics by name.
    """

    PLACES_KEPT = 5

    stats: Counter[str] = field(default_factory=Counter)
    _found: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, rule: str, where: str = "", *stats: str, count: int = 1) -> None:
        """Count ``count`` breaches of ``rule``, the first of them at ``where``.

        Args:
            stats: the importer's statistics that count it; of a rule with one, that one.
        """
        if count <= 0:
            return
        if not stats and len(RULES[rule].stats) == 1:
            stats = RULES[rule].stats
        had, places = self._found.get(rule, (0, ()))
        if where and len(places) < self.PLACES_KEPT and where not in places:
            places = (*places, where)
        self._found[rule] = (had + count, places)
        for stat in stats:
            self.stats[stat] += count

    def absorb(self, other: Tally, prefix: str) -> None:
        """Add what ``other`` counted; its places get ``prefix``."""
        self.stats.update(other.stats)
        for rule, (count, places) in other._found.items():
            had, kept = self._found.get(rule, (0, ()))
            more = tuple(f"{prefix}{place}" for place in places)
            self._found[rule] = (had + count, (*kept, *more)[: self.PLACES_KEPT])

    def findings(self) -> tuple[Finding, ...]:
        """All broken rules, in the order of :data:`RULES`."""
        return tuple(
            Finding(rule, RULES[rule].severity, *self._found[rule], RULES[rule].sentence)
            for rule in RULES
            if rule in self._found
        )
