"""The README says what the program does: no command, option or format is missing from it."""

import re

import click
import pytest

from tests.support.commands import COMMANDS
from traceconv.analysis.rules import catalog as _rules
from traceconv.analysis.tables.catalog import BY
from traceconv.cli import file_kinds
from traceconv.cli.formats import format_rows, markdown_tables
from traceconv.pipeline import registry

OPTIONS = sorted(
    (name, option)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, click.Option)
    for option in (*parameter.opts, *parameter.secondary_opts)
    if option.startswith("--")
)
TABLES = re.compile(r"(?<=<!-- formats -->\n).*?(?=<!-- end of formats -->)", re.DOTALL)
FILE_TABLE = re.compile(r"(?<=<!-- files -->\n).*?(?=<!-- end of files -->)", re.DOTALL)
RULE_TABLE = re.compile(r"(?<=<!-- rules -->\n).*?(?=<!-- end of rules -->)", re.DOTALL)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_in_the_readme(root, name):
    """A command nobody can find is not there."""
    assert f"traceconv {name}" in (root / "README.md").read_text()


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_option_is_in_the_readme(root, name, option):
    """Each long option is in the README, in code."""
    assert re.search(rf"`[^`\n]*{option}\b", (root / "README.md").read_text()), f"{name} {option}"


@pytest.mark.parametrize("table", sorted(BY))
def test_every_table_is_in_the_readme(root, table):
    """Each value of ``stats --by`` has its line, and the help names it, too."""
    assert f"\n| `{table}` | " in (root / "README.md").read_text()
    by = next(p for p in COMMANDS["stats"].params if p.name == "by")
    assert re.search(rf"\b{table}\b", by.help)


def test_readme_offers_no_option_that_does_not_exist(root):
    """What the README writes as an option of ours is one."""
    known = {option for _, option in OPTIONS} | {"--help", "--version", "--update-golden"}
    text = TABLES.sub("", (root / "README.md").read_text())
    text = re.sub(r"`(?:nsys|nvprof) [^`]*`", "", text)  # options of others
    assert set() == set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - known


def test_format_table_is_the_registry(root, update_golden):
    """The README's tables of formats are those of ``traceconv formats --markdown``."""
    path = root / "README.md"
    tables = markdown_tables(*format_rows(registry.readers(), registry.writers())) + "\n"
    if update_golden:
        path.write_text(TABLES.sub(lambda _: tables, path.read_text()))
    assert [tables] == TABLES.findall(path.read_text())


def test_table_of_rules_is_the_registry(root, update_golden):
    """The README's table of rules has their thresholds and where these come from."""
    path = root / "README.md"
    table = _rules.markdown_table() + "\n"
    if update_golden:
        path.write_text(RULE_TABLE.sub(lambda _: table, path.read_text()))
    assert [table] == RULE_TABLE.findall(path.read_text())


def test_every_kind_of_file_is_shown_somewhere(root, update_golden):
    """The page is what readers, tables and rules declare; no row of it is empty."""
    path = root / "docs" / "files.md"
    readers = registry.readers()
    table = file_kinds.markdown_table(readers) + "\n"
    if update_golden:
        path.write_text(FILE_TABLE.sub(lambda _: table, path.read_text()))
    assert [table] == FILE_TABLE.findall(path.read_text())
    assert [row for row in file_kinds.rows(readers) if not all(row)] == []


def test_every_issue_code_has_advice():
    """Advice is a sentence for people."""
    from traceconv.core.codes import CODES

    wordless = [name for name, code in CODES.items() if not code.advice.endswith((".", "?"))]
    assert wordless == []


def test_changelog_has_an_unreleased_section(root):
    """There is a place for the next change."""
    assert "## Unreleased" in (root / "CHANGELOG.md").read_text()
