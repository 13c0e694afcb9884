"""What broke the rules: counted, the first few places kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from traceconv.core.errors import MalformedInputError
from traceconv.validation.rules import RULES, Severity


class Refused(MalformedInputError):
    """What viewers refuse as a whole. ``rule`` says why."""

    def __init__(self, path: str, rule: str, where: str) -> None:
        self.rule = rule
        super().__init__(path, where, RULES[rule].sentence)

    @property
    def format(self) -> str:
        """The format it was taken for, "unknown" if it did not come to that."""
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
        return {
            "rule": self.rule,
            "severity": str(self.severity),
            "count": self.count,
            "places": list(self.places),
            "sentence": self.sentence,
        }


@dataclass
class Tally:
    """Counts broken rules; the first few places of each are kept.

    Attributes:
        stats: the importer's statistics by name.
    """

    PLACES_KEPT = 5

    stats: Counter[str] = field(default_factory=Counter)
    _found: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, rule: str, where: str = "", count: int = 1) -> None:
        """Count ``count`` breaches of ``rule``, the first of them at ``where``."""
        if count <= 0:
            return
        had, places = self._found.get(rule, (0, ()))
        if where and len(places) < self.PLACES_KEPT and where not in places:
            places = (*places, where)
        self._found[rule] = (had + count, places)
        for stat in RULES[rule].stats:
            self.stats[stat] += count

    def absorb(self, other: Tally, prefix: str) -> None:
        """Add what ``other`` counted; its places get ``prefix``."""
        for rule, (count, places) in other._found.items():
            self.add(rule, "", count)
            had, kept = self._found[rule]
            more = tuple(f"{prefix}{place}" for place in places)
            self._found[rule] = (had, (*kept, *more)[: self.PLACES_KEPT])

    def findings(self) -> tuple[Finding, ...]:
        """All broken rules, in the order of :data:`RULES`."""
        return tuple(
            Finding(rule, RULES[rule].severity, *self._found[rule], RULES[rule].sentence)
            for rule in RULES
            if rule in self._found
        )
