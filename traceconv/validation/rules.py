"""Rules for traces, and counts of broken rules.

A rule is named after the group of importer rules it belongs to: ``P<nn>-<what>``, ``J16-<what>``
for Chrome JSON only, ``F-<what>`` for the file around the events, ``D-<what>`` for what only
Perfetto's own importer shows (``deep``). Two faults no file can show:
slices that cross while their ends carry no name (durations are exchanged; compare with the
intervals that were intended), and flow ids that two ranks share by accident.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
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
    """One row of :data:`RULES`."""

    severity: Severity
    sentence: str


_error, _silent = partial(Rule, Severity.ERROR), partial(Rule, Severity.SILENT)
_loss, _notice = partial(Rule, Severity.LOSS), partial(Rule, Severity.NOTICE)

RULES: dict[str, Rule] = {
    # -- the file
    "F-compression": _error("The compressed file is cut or broken; viewers refuse it."),
    "F-member": _error(
        "The archive has no trace, or files that are not traces; viewers refuse all of it."
    ),
    "F-manifest": _error("The archive's manifest cannot be understood; viewers refuse all of it."),
    "F-absent": _silent("The archive's manifest names a file that is not in the archive."),
    "F-cut": _silent("The file ends in the middle of an event, which is dropped."),
    "P24-counts": _silent("There are not as many events as the file's own metadata says."),
    # -- Perfetto's importer
    "D-refused": _error("Perfetto's importer refuses the file."),
    "D-counts": _silent("Perfetto's importer counts other events than are in the file."),
    "D-statistics": _error("Perfetto's importer counts errors or losses of data in it."),
    # -- packets and their sequences
    "P01-packet": _error("A packet cannot be parsed, or is not a packet; viewers refuse the file."),
    "P01-message": _silent("A message inside a packet is broken; the rest of it is ignored."),
    "P02-event": _error("A track event has no sequence id and is dropped."),
    "P02-state": _error("A packet sets state of a sequence without a sequence id; it is ignored."),
    "P02-needs": _error(
        "A packet needs sequence state and names no sequence; the file is refused."
    ),
    "P03-uncleared": _silent(
        "A packet needs or extends sequence state that was never cleared; it is dropped."
    ),
    "P03-loss": _loss("The producer marked a packet loss; the sequence starts over."),
    "P04-id": _silent(
        "An interned id is 0 or not defined; the name, category or argument is lost."
    ),
    "P05-redefined": _silent("An id is defined twice with different text; the first one stays."),
    "P22-value": _silent("A text is not UTF-8, a number not finite, or an argument has no name."),
    "P23-compressed": _error(
        "Compressed packets are broken, have no packets, or are of two kinds; the file is refused."
    ),
    # -- time
    "P06-timestamp": _error("A track event has no timestamp and is dropped."),
    "P07-negative": _error("A time is negative; the packet or event is dropped."),
    "P07-delta": _silent("A time difference is negative: packets are not in time order."),
    "P08-clock": _error("No clock snapshot relates a packet's clock to the trace's."),
    "P08-lost": _loss("A packet whose time cannot be converted is dropped."),
    "P08-domains": _error("The trace's own clock is not related to BOOTTIME."),
    "P08-snapshot": _error("A clock snapshot contradicts itself or an earlier one."),
    # -- tracks
    "P09-type": _silent("An event has no type that exists and is dropped."),
    "P09-legacy": _notice(
        "A legacy event; viewers still read it, but plain track events are exact."
    ),
    "P10-descriptor": _error(
        "A track descriptor lacks its uuid, pid or tid, or contradicts itself; it is dropped."
    ),
    "P11-zero": _silent("Pid 0 and tid 0 are those of the idle process."),
    "P12-conflict": _error(
        "A track is described twice, and differently; the second one is ignored."
    ),
    "P12-name": _silent("A track is described twice under different names."),
    "P13-twice": _silent(
        "Two tracks describe one process or thread; the second becomes a new one."
    ),
    "P14-parent": _silent("A track's parent is not described; everything on the track is dropped."),
    "P14-loop": _error(
        "A track is its own ancestor, or has more than 100; everything on it is dropped."
    ),
    "P15-track": _silent("A track that is used is not described."),
    "P18-counter": _error(
        "A counter value is missing, or has no track described before as a counter; the event "
        "is dropped."
    ),
    "P18-slice": _silent("A slice or an instant is on a counter track."),
    # -- slices and flows of both formats
    "P16-end": _silent("A slice ends that never began; the end is ignored."),
    "P16-open": _silent("A slice never ends; it is drawn to the end of the trace."),
    "P16-depth": _error("Slices nest deeper than 512; the inner ones are dropped."),
    "P17-crossing": _silent("Slices of one track cross: an outer one ends before an inner one."),
    "P17-misplaced": _loss("The end of a crossing slice is moved to where the other one ends."),
    "P20-unbound": _silent("A flow has one end only; nothing is drawn."),
    # -- Chrome JSON
    "J16-syntax": _error("The file is not JSON as viewers read it; they refuse it."),
    "J16-event": _error(
        "An event lacks what its phase needs, or viewers cannot read it; it is dropped."
    ),
    "J16-control": _notice("A text has raw control characters; Chrome's own viewer refuses it."),
    "J16-ts-grid": _silent("A time with fractions is too large to be exact; subtract a base."),
    "J16-overlap": _error(
        "A complete event crosses another one of its thread and is moved to a separate row."
    ),
    "J16-id": _silent(
        "A pid or tid is outside 0 to 2^32-1 and becomes 0, or an id is a number beyond 2^53, "
        "which viewers round; write it as text."
    ),
    "J16-args": _silent(
        "Arguments that viewers cannot parse (NaN, surrogate escapes ...) are dropped."
    ),
    "J16-number": _silent("A number in the arguments is beyond 64 bits, and viewers change it."),
    "J16-flow": _error(
        "A flow event is inside no slice, starts twice, or has no usable id or direction; the "
        "arrow is dropped."
    ),
}
"""Every rule: id to severity and sentence."""

REFUSING = frozenset(
    ("F-compression", "F-member", "F-manifest", "J16-syntax", "P01-packet", "P02-needs",
     "P23-compressed")
)  # fmt: skip
"""Rules for which viewers refuse the whole file."""


class Refused(MalformedInputError):
    """What viewers refuse as a whole. ``rule`` says why."""

    def __init__(self, path: str, rule: str, where: str) -> None:
        self.rule, self.place = rule, where
        super().__init__(path, where, RULES[rule].sentence)

    @property
    def format(self) -> str:
        """The format of the file, "unknown" if it was refused before that was clear."""
        return {"P": "perfetto", "J": "chrome_json"}.get(self.rule[0], "unknown")


class Found(NamedTuple):
    """The content of a trace.

    Attributes:
        format:   "perfetto" or "chrome_json".
        counts:   slices, instants, counters (samples), flows, and tracks that have any.
        busy_ns:  the lengths of all slices that end, together.
        first_ns: the earliest start; None without slices and instants.
        recorded: the counts that its writer recorded, by kind ("slice").
        system_data: whether there is data of other sources, which is not counted here.
    """

    format: str
    counts: dict[str, int]
    busy_ns: int
    first_ns: int | None
    recorded: dict[str, Any]
    system_data: bool = False


@dataclass(frozen=True)
class Finding:
    """A broken rule.

    Attributes:
        rule:     key of :data:`RULES`.
        severity: of that rule.
        count:    how often it is broken.
        places:   the first few places ("byte 120", "track 7"), for looking.
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
    """Counts broken rules; the first few places of each are kept, behind ``prefix``."""

    PLACES_KEPT = 5

    prefix: str = ""
    _found: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, rule: str, where: str = "", count: int = 1) -> None:
        """Count ``count`` breaches of ``rule``, the first of them at ``where``."""
        if count <= 0:
            return
        had, places = self._found.get(rule, (0, ()))
        where = f"{self.prefix}{where}" if where else ""
        if where and len(places) < self.PLACES_KEPT and where not in places:
            places = (*places, where)
        self._found[rule] = (had + count, places)

    def findings(self) -> tuple[Finding, ...]:
        """All broken rules, in the order of :data:`RULES`."""
        return tuple(
            Finding(rule, RULES[rule].severity, *self._found[rule], RULES[rule].sentence)
            for rule in RULES
            if rule in self._found
        )
