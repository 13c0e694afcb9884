"""``traceconv explain``: the meaning of codes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import click

from traceconv.cli import completion, options, say
from traceconv.core.choices import nearest

SCHEMA_VERSION = 1

_ISSUE = {
    "info": "a note; nothing is lost or uncertain",
    "doubt": "kept or repaired, but maybe wrong; an error under --strict",
    "loss": "not in the output; an error under --strict",
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
    from traceconv.analysis.rules.catalog import RULES, rows
    from traceconv.analysis.tables.catalog import FILES, TABLES
    from traceconv.core.errors import codes
    from traceconv.find import registry
    from traceconv.validation.rules import RULES as CHECKS

    registry.readers()  # a plugin announces its codes as it is imported
    for name, code in codes().items():
        severity = str(code.severity)
        yield Meaning(name, f"issue, {severity}", code.advice, (("that is", _ISSUE[severity]),))
    for rule, row in zip(RULES.values(), rows(), strict=True):
        more: tuple[tuple[str, str], ...] = (
            ("speaks if", f"{row['measure']} {row['threshold']} (from: {row['source']})"),
            ("needs", rule.needs),
            ("advice", rule.advice),
            ("change it by", f"--threshold {rule.id}=NUMBER"),
        )
        yield Meaning(rule.id, f"rule of diagnose, about {rule.theme}", rule.title, more)
    for name, check in CHECKS.items():
        severity = str(check.severity)
        more = (("that is", _FAULT[severity]),)
        yield Meaning(name, f"rule of validate, {severity}", check.sentence, more)
    for table in (*TABLES.values(), *FILES.values()):
        more = (("formula", table.formula), ("needs", table.needs))
        yield Meaning(table.name, "table of stats", table.title, more)


@click.command(cls=options.Command, short_help="Explain an issue, a rule or a table.")
@click.argument(
    "words",
    metavar="[CODE]...",
    nargs=-1,
    shell_complete=completion.one_of(lambda: [(one.code, one.kind) for one in meanings()]),
)
@options.as_json
def explain(words: Sequence[str], as_json: bool) -> None:
    """Explain each CODE: an issue, a rule of `diagnose` or `validate`, or a table of `stats`.
    Without CODE, list all of them.

    \b
    traceconv explain truncated
    traceconv explain long-tail P05-redefined
    """
    found = every = list(meanings())
    if words:
        by_code = {one.code.lower(): one for one in every}
        for word in words:
            if word.lower() not in by_code:
                near = nearest(word, [one.code for one in every])
                raise click.UsageError(f"no code {word!r}{near}; `traceconv explain` lists all")
        found = [by_code[word.lower()] for word in words]
    if as_json:
        entries = [{**asdict(one), "more": dict(one.more)} for one in found]
        say.document({"schema_version": SCHEMA_VERSION, "codes": say.flagged(entries, True)})
    elif words:
        for one in found:
            say.data(f"{one.code} ({one.kind})")
            for text in (one.says, *(f"{heading}: {text}" for heading, text in one.more if text)):
                say.page(
                    textwrap.fill(
                        say.with_flags(text), say.width(), initial_indent="  ",
                        subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
                    )
                )  # fmt: skip
    else:
        code, kind = (max(len(getattr(one, part)) for one in found) for part in ("code", "kind"))
        for one in found:
            say.data(f"{one.code:{code}}  {one.kind:{kind}}  {say.with_flags(one.says)}")
