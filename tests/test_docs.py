"""The documents say what the program does: no command, option or format is missing from them."""

import re
import runpy
import shlex
import tomllib
from functools import cache

import click
import pytest
from paths import ROOT

import traceconv
from tests.support.commands import COMMANDS
from traceconv.analysis.rules.catalog import RULES
from traceconv.analysis.tables.catalog import BY, FILES, TABLES
from traceconv.cli import file_kinds, run
from traceconv.core.codes import CODES
from traceconv.core.rank_tables import TABLES as PARQUET
from traceconv.find import registry
from traceconv.validation.rules import RULES as FAULTS

OPTIONS = sorted(
    (name, option)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, click.Option)
    for option in (*parameter.opts, *parameter.secondary_opts)
    if option.startswith("--")
)
PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))


@cache
def written():
    """What people wrote: the README and all pages, without what is generated for them."""
    return "\n".join(path.read_text() for path in (ROOT / "README.md", *PAGES))


@cache
def made(name):
    """What is generated for a page."""
    return REFERENCE["filled"](f"<!-- generated {name} -->")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_in_the_readme(root, name):
    """A command nobody can find is not there."""
    assert f"traceconv {name}" in (root / "README.md").read_text()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_is_explained(name):
    """Each long option is in a page that a person wrote, in code; and in the reference, below its
    command, with a meaning."""
    section = made("commands").split(f"## traceconv {name}\n")[1].split("\n## ")[0]
    assert [
        option
        for command, option in OPTIONS
        if command == name
        and not (
            re.search(rf"`[^`\n]*{option}\b", written())
            and re.search(rf"\n\| `[^`]*{option}\b[^`]*` \| [^|\s]", section)
        )
    ] == []


@pytest.mark.parametrize("table", sorted(BY))
def test_every_table_is_explained(root, table):
    """Each value of ``stats --by`` has its line in the guide, and the help names it, too."""
    assert f"\n| `{table}` | " in (root / "docs" / "guide" / "tables.md").read_text()
    by = next(p for p in COMMANDS["stats"].params if p.name == "by")
    assert re.search(rf"\b{table}\b", by.help)


def test_no_option_is_offered_that_does_not_exist():
    """What the documents write as an option of ours is one."""
    known = {option for _, option in OPTIONS} | {"--help", "--version", "--update-golden"}
    others = r"nsys|nvprof|msprof|rocprofv3|viztracer|torchrun|python -m tests\S*"
    text = re.sub(rf"(?m)`?\b(?:{others}) [^`\n]*`?", "", written())
    assert set() == set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - known


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("commands", COMMANDS),
        ("faults", FAULTS),
        ("formats", [*registry.readers().found, *registry.writers().found]),
        ("issues", CODES),
        ("parquet", [column for columns in PARQUET.values() for column in columns]),
        ("rules", RULES),
        ("tables", [*TABLES, *FILES]),
    ],
)
def test_the_reference_is_complete(page, names):
    """Pages of the reference are made from the code; a row has as many cells as its head."""
    text = made(page)
    assert [n for n in names if f"`{n}`" not in text and f"## traceconv {n}\n" not in text] == []
    rows = re.findall(r"(?m)^\|.*\|$", re.sub(r"\\\||`[^`\n]*`", "x", text))
    heads = [i + 1 for i, row in enumerate(rows) if re.fullmatch(r"[|\- ]+", row)]
    assert heads
    for start, end in zip(heads, [*(h - 2 for h in heads[1:]), len(rows)], strict=True):
        assert {row.count("|") for row in rows[start:end]} == {rows[start - 1].count("|")}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_generated_pages_are_current(page):
    """`python docs/reference.py` writes them, so that they are not empty on a forge."""
    text = page.read_text()
    assert REFERENCE["filled"](text) == text


def test_every_generated_page_is_asked_for():
    """Nothing is made that no page shows, and no page asks for what nothing makes."""
    asked = [name for page in PAGES for name in REFERENCE["MARK"].findall(page.read_text())]
    assert sorted(asked) == sorted(REFERENCE["GENERATED"])


@pytest.mark.parametrize("reader", sorted(registry.readers().found))
def test_every_reader_has_a_how_to(root, reader):
    """Who has a file finds how to record, merge and read such; the README has the name, too."""
    assert f"`{reader}`" in "".join(p.read_text() for p in (root / "docs/how-to").glob("*.md"))
    assert f"`{reader}`" in (root / "README.md").read_text()


def test_every_public_name_is_in_the_reference_of_the_api(root):
    """What ``traceconv`` exports is documented from its docstring, once."""
    entries = re.split(r"(?m)^### ", (root / "docs" / "api.md").read_text())[1:]
    shown = [entry.partition("\n")[0] for entry in entries]
    assert {name for name in traceconv.__all__ if name != "__version__"} - set(shown) == set()
    assert len(shown) == len(set(shown))
    assert all(re.search(r"(?m)^[A-Z][^\n`]+\w", entry) for entry in entries)


def test_every_page_is_in_the_navigation(root):
    """A page that no menu leads to is not read; a menu does not lead into nothing."""
    named = re.findall(r"(?m)^ +- (?:[^:\n]+: )?(\S+\.md)$", (root / "mkdocs.yml").read_text())
    pages = [str(page.relative_to(root / "docs")) for page in PAGES]
    assert sorted(named) == pages


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=str)
def test_links_lead_somewhere(root, page):
    """Relative links are files, and addresses of ours are files of the repository."""
    ours = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    raw = ours.replace("https://github.com", "https://raw.githubusercontent.com") + "/main/"
    text = re.sub(r"(?s)```.*?```|`[^`\n]*`", "", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        for start in (f"{ours}/blob/main/", raw):
            if target.startswith(start):
                assert (root / target.removeprefix(start)).exists(), target
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


SHOWN = [
    (page.relative_to(ROOT).as_posix(), *block.split("\n", 1))
    for page in (ROOT / "README.md", ROOT / "README.zh-CN.md", *PAGES)
    for block in re.findall(r"(?s)```console\n\$ (.*?)\n```", page.read_text())
]


def test_sessions_are_shown():
    """Those that the next test runs."""
    pages = {page for page, _, _ in SHOWN}
    assert {"README.md", "README.zh-CN.md", "docs/tutorial.md", "docs/guide/what-if.md"} <= pages


@pytest.mark.parametrize(("page", "call", "answer"), SHOWN)
def test_what_is_shown_is_what_is_said(page, call, answer, root, tmp_path, monkeypatch, capsys):
    """Every line of a session is one that the command prints for a bundled sample, in order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "prof").symlink_to(root / "golden" / "trace_view" / "demo" / "input")
    (tmp_path / "examples").symlink_to(root / "examples")
    assert run(shlex.split(call)[1:]) == 0
    said = iter(capsys.readouterr().out.splitlines())
    lines = [line.replace("./prof", "prof") for line in answer.splitlines()]
    assert [line for line in lines if line not in said] == []


def test_every_kind_of_file_is_shown_somewhere():
    """The table is what readers, tables and rules declare; no row of it is empty."""
    assert [row for row in file_kinds.rows(registry.readers()) if not all(row)] == []


def test_every_issue_code_has_advice():
    """Advice is a sentence for people."""
    wordless = [name for name, code in CODES.items() if not code.advice.endswith((".", "?"))]
    assert wordless == []


def test_every_boundary_has_the_test_that_is_named(root):
    """What docs/security.md promises is tested by what it names."""
    named = set(re.findall(r"`(test_\w+)`", (root / "docs" / "security.md").read_text()))
    sources = "\n".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    assert len(named) > 20
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_every_extra_is_in_the_table_of_extras():
    """Those for users; the others are for work on traceconv itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {"test", "test-ray", "test-s3", "viewer-test", "examples", "docs", "check", "fuzz",
            "sanitize", "bench"}  # fmt: skip
    text = (ROOT / "docs/install.md").read_text()
    table = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    named = {word for row in table for word in re.findall(r"`([a-z0-9]+)`", row)}
    assert named == set(project["optional-dependencies"]) - ours
