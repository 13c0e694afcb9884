"""The rules a trace is judged by, and the count of those that are broken.

A rule is named after the group of importer rules it is of: ``P<nn>-<what>``, ``J16-<what>`` for
Chrome JSON only, ``F-<what>`` for the file around the events, ``D-<what>`` for what only Perfetto's
own importer shows (``deep``). Two faults no file can show: slices
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
    stats: tuple[str, ...]


def _error(sentence: str, *stats: str) -> Rule:
    return Rule(Severity.ERROR, sentence, stats)


def _silent(sentence: str, *stats: str) -> Rule:
    return Rule(Severity.SILENT, sentence, stats)


def _loss(sentence: str, *stats: str) -> Rule:
    return Rule(Severity.LOSS, sentence, stats)


def _notice(sentence: str) -> Rule:
    return Rule(Severity.NOTICE, sentence, ())


def _named(before: str, after: str, *middles: str) -> tuple[str, ...]:
    """Names of statistics that differ in the middle."""
    return tuple(before + middle + after for middle in middles)


ITERR, PERR = "interned_data_tokenizer_errors", "track_event_parser_errors"

_STATE = ("interned_data", "trace_packet_defaults", "incremental_state_cleared")
_CLOCK = ("unknown_source_clock", "unknown_target_clock", "no_path")
_UNCLEARED = ("packet_skipped_seq_needs", "interned_data_skipped")
_DESCRIPTOR = ("missing_uuid", "default_track_with_parent", "invalid_child_ordering")
_COUNTER = ("invalid_track_uuid", "missing_value", "missing_track_uuid")
_EXTRA = ("missing_track_uuids", "track_uuid_mismatch", "exceeds_max", "invalid_track")
_FLOW = ("invalid_id", "no_enclosing_slice", "duplicate_id", "without_direction")

RULES: dict[str, Rule] = {
    # -- the file
    "F-compression": _error("The compressed file is cut or broken; viewers refuse it."),
    "F-member": _error("The archive has no trace, or other files; viewers refuse all of it."),
    "F-manifest": _error("The archive's manifest cannot be understood; viewers refuse all of it."),
    "F-absent": _silent("The archive's manifest names a file that is not in the archive."),
    "F-cut": _silent("The file ends in the middle of an event, which is dropped."),
    "P24-counts": _silent("There are not as many events as the file's own metadata says."),
    # -- the importer itself
    "D-refused": _error("Perfetto's importer refuses the file."),
    "D-counts": _silent("Perfetto's importer counts other events than are in the file."),
    "D-statistics": _error("Perfetto's importer counts errors or losses of data in it."),
    # -- packets and their sequences
    "P01-packet": _error("A packet cannot be parsed, or is none; viewers refuse the file."),
    "P01-message": _silent("A message inside a packet is broken; the rest of it is ignored."),
    "P02-event": _error(
        "A track event has no sequence id and is dropped.", "track_event_missing_sequence_id"
    ),
    "P02-state": _error(
        "A packet sets state of a sequence without a sequence id; it is ignored.",
        *_named("", "_missing_sequence_id", *_STATE, "previous_packet_dropped"),
    ),
    "P02-needs": _error(
        "A packet needs sequence state and names no sequence; the file is refused."
    ),
    "P03-uncleared": _silent(
        "A packet needs or extends sequence state that was never cleared; it is dropped.",
        *_named("", "_incremental_state_invalid", *_UNCLEARED),
    ),
    "P03-loss": _loss("The producer marked a packet loss; the sequence starts over."),
    "P04-id": _silent(
        "An interned id is 0 or not defined; the name, category or argument is lost.", ITERR, PERR
    ),
    "P05-redefined": _silent("An id is defined twice with different text; the first one stays."),
    "P22-value": _silent("A text is not UTF-8, a number not finite, or an argument has no name."),
    "P23-compressed": _error(
        "Compressed packets are broken, have no packets, or are of two kinds; the file is refused."
    ),
    # -- time
    "P06-timestamp": _error(
        "A track event has no timestamp and is dropped.", "track_event_missing_timestamp"
    ),
    "P07-negative": _error(
        "A time is negative; the packet or event is dropped.",
        "track_event_invalid_timestamp",
        "trace_sorter_negative_timestamp_dropped",
    ),
    "P07-delta": _silent("A time difference is negative: packets are not in time order."),
    "P08-clock": _error(
        "No clock snapshot relates a packet's clock to the trace's.",
        *_named("clock_sync_failure_", "", *_CLOCK),
    ),
    "P08-lost": _loss(
        "A packet whose time cannot be converted is dropped.",
        "clock_sync_failure_undeferrable_packet_loss",
    ),
    "P08-domains": _error(
        "The trace's own clock is not related to BOOTTIME.", "clock_sync_unrelatable_clock_domains"
    ),
    "P08-snapshot": _error(
        "A clock snapshot contradicts itself or an earlier one.", "invalid_clock_snapshots"
    ),
    # -- tracks
    "P09-type": _silent("An event has no type that exists and is dropped.", PERR),
    "P09-legacy": _notice("A legacy event is not judged here; write plain track events."),
    "P10-descriptor": _error(
        "A track descriptor lacks its uuid, pid or tid, or contradicts itself; it is dropped.",
        *_named("track_descriptor_", "", *_DESCRIPTOR),
        *_named("track_descriptor_", "", "process_missing_pid", "thread_missing_pid_tid"),
    ),
    "P11-zero": _silent("Pid 0 and tid 0 are those of the idle process."),
    "P12-conflict": _error(
        "A track is described twice, and differently; the second one is ignored.",
        "track_descriptor_conflicting_reservation",
    ),
    "P12-name": _silent("A track is described twice under different names."),
    "P13-twice": _silent(
        "Two tracks describe one process or thread; the second becomes a new one."
    ),
    "P14-parent": _silent(
        "A track's parent is not described; everything on the track is dropped.",
        *("track_hierarchy_missing_uuid", PERR),
    ),
    "P14-loop": _error(
        "A track is its own ancestor, or has more than 100; everything on it is dropped.",
        *_named("track_event_track_hierarchy_", "", "loop", "too_deep"),
        PERR,
    ),
    "P15-track": _silent("A track that is used is not described."),
    "P18-counter": _error(
        "A counter value is missing, or has no track described before as a counter; "
        "the event is dropped.",
        *_named("track_event_counter_", "", *_COUNTER),
        *_named("track_event_extra_counter_", "", *_EXTRA),
        "track_event_state_missing_track_uuid",
    ),
    "P18-slice": _silent("A slice or an instant is on a counter track."),
    # -- slices and flows of both formats
    "P16-end": _silent("A slice ends that never began; the end is ignored."),
    "P16-open": _silent("A slice never ends; it is drawn to the end of the trace."),
    "P16-depth": _error(
        "Slices nest deeper than 512; the inner ones are dropped.", "slice_max_depth_exceeded"
    ),
    "P17-crossing": _silent("Slices of one track cross: an outer one ends before an inner one."),
    "P17-misplaced": _loss(
        "The end of a crossing slice is moved to where the other one ends.", "misplaced_end_event"
    ),
    "P20-unbound": _silent(
        "A flow has one end only; nothing is drawn.",
        *_named("flow_", "_without_start", "step", "end"),
    ),
    # -- Chrome JSON
    "J16-syntax": _error("The file is not JSON as viewers read it; they refuse it."),
    "J16-event": _error(
        "An event lacks what its phase needs, or viewers cannot read it; it is dropped.",
        *("json_tokenizer_failure", "json_parser_failure", "slice_negative_duration"),
    ),
    "J16-control": _notice("A text has raw control characters; Chrome's own viewer refuses it."),
    "J16-ts-grid": _silent("A time with fractions is too large to be exact; subtract a base."),
    "J16-overlap": _error(
        "A complete event crosses another one of its thread and is moved to an own row.",
        "slice_spill_overlapping_complete_event",
    ),
    "J16-id": _silent(
        "A pid or tid is outside 0 to 2^32-1 and becomes 0, or an id is a number beyond 2^53, "
        "which viewers round; write it as text."
    ),
    "J16-args": _silent(
        "Arguments that viewers cannot parse (NaN, surrogate escapes ...) are dropped, and "
        "numbers beyond 64 bits are changed."
    ),
    "J16-flow": _error(
        "A flow event is inside no slice, starts twice, or has no usable id or direction; "
        "the arrow is dropped.",
        *_named("flow_", "", *_FLOW),
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
