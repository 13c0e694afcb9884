"""The meaning of every code: issues, rules and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceconv.analysis.rules.catalog import RULES, rows
from traceconv.analysis.tables.catalog import FILES, TABLES
from traceconv.core.errors import codes
from traceconv.find import registry
from traceconv.validation.rules import RULES as CHECKS

_ISSUE = {
    "info": "a note; nothing is lost or uncertain",
    "doubt": "kept or repaired, but maybe wrong; an error with `strict=True`",
    "loss": "not in the output; an error with `strict=True`",
}
_FAULT = {
    "error": "viewers count an error, or refuse the file",
    "loss": "viewers count a loss",
    "silent": "viewers drop something or show it wrong, without a message",
    "notice": "nothing is lost",
}


@dataclass(frozen=True)
class Meaning:
    """The meaning of one code.

    Attributes:
        code: as it is printed.
        kind: an issue, a rule of ``diagnose`` or ``validate``, or a table.
        says: one line.
        more: (heading, text) pairs; texts may name keyword arguments.
    """

    code: str
    kind: str
    says: str
    more: tuple[tuple[str, str], ...] = ()


def meanings() -> Iterator[Meaning]:
    """Every code of issues (those of plugins, too), rules and tables."""

    registry.readers()  # a plugin announces its codes as it is imported
    for name, code in codes().items():
        severity = str(code.severity)
        yield Meaning(name, f"issue, {severity}", code.advice, (("that is", _ISSUE[severity]),))
    for rule, row in zip(RULES.values(), rows(), strict=True):
        facts: tuple[tuple[str, str], ...] = (
            ("speaks if", f"{row['measure']} {row['threshold']} (from: {row['source']})"),
            ("needs", rule.needs),
            ("advice", rule.advice),
            ("change it by", f"`threshold={rule.id}=NUMBER`"),
        )
        yield Meaning(rule.id, f"rule of diagnose, about {rule.theme}", rule.title, facts)
    for name, check in CHECKS.items():
        severity = str(check.severity)
        facts = (("that is", _FAULT[severity]),)
        yield Meaning(name, f"rule of validate, {severity}", check.sentence, facts)
    for table in (*TABLES.values(), *FILES.values()):
        facts = (("formula", table.formula), ("needs", table.needs))
        yield Meaning(table.name, "table of stats", table.title, facts)
