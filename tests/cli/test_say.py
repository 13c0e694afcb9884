"""Messages of the library name keyword arguments, and the command line shows them as flags."""

import ast
import functools
import re
import time

import click
import pytest
from paths import ROOT
from trees import trees

from tests.support.commands import COMMANDS
from traceconv.cli import run, say

SAMPLE = str(ROOT / "golden" / "trace_view" / "demo" / "input")

LIBRARY = [
    path
    for path in sorted((ROOT / "traceconv").rglob("*.py"))
    if path.relative_to(ROOT / "traceconv").parts[0] != "cli"
    and path.name != "rank_tables.py"  # whose texts describe columns, and name columns
]
FLAG = re.compile(r"(?:^|[\s\"'(`])-(?:-[a-z][a-z-]+|[a-z])(?![\w-])")
KEYWORD = re.compile(r"`([a-z_]+)(?:=[^`]*)?`")
OTHERS = re.compile(r"\b(?:nsys|unzip|lz4|nvprof|tail) ")
"""Commands of other programs have flags of their own."""


@functools.cache
def texts(path):
    """(line, text) of the strings of a module that may become messages: all but docstrings;
    f-strings as one text.
    """
    found, skipped = [], set()
    for node in ast.walk(trees()[path]):  # outer nodes come first
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            skipped.update(ast.walk(node))
            pieces = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            found.append((node.lineno, "".join(pieces)))
        elif isinstance(node, ast.Constant) and node not in skipped and isinstance(node.value, str):
            found.append((node.lineno, node.value))
    return found


def test_the_library_quotes_no_flags():
    """Who calls it from Python has none."""
    assert [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in LIBRARY
        for line, text in texts(path)
        if FLAG.search(text) and " " in text and not OTHERS.search(text)
    ] == []


def test_every_keyword_of_a_message_has_a_flag():
    """The table is complete."""
    named = {
        keyword for path in LIBRARY for _, text in texts(path) for keyword in KEYWORD.findall(text)
    }
    assert {"force", "rank_from", "over_limit", "threshold"} <= named
    assert named - set(say.FLAGS) - say.API_ONLY == set()


def test_every_flag_of_the_table_exists():
    """Some command has it."""
    flags = {
        flag
        for command in COMMANDS.values()
        for param in command.params
        if isinstance(param, click.Option)
        for flag in param.opts
    }
    assert set(say.FLAGS.values()) - flags == {"AFTER", "PATH"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pass `force=True` to overwrite it", "pass -f to overwrite it"),
        ('pass `rank_from="name"` or `rank_from=\'REGEX\'`',
         "pass --rank-from name or --rank-from REGEX"),
        ("`rank_from='rank(\\d+)'`", "--rank-from 'rank(\\d+)'"),
        ("`strict=True`: 3 losses", "--strict: 3 losses"),
        ("Raise `limit`, or pass `over_limit=\"split\"`",
         "Raise --max-size, or pass --over-limit split"),
        ("`top=None` for the rest", "--top all for the rest"),
        ('`threshold={"a.b": GB}`', "--threshold a.b=GB"),
        ("`traceconv stragglers` says which", "`traceconv stragglers` says which"),
        ("a slice `foo` and `bar=1`", "a slice `foo` and `bar=1`"),
    ],
)  # fmt: skip
def test_keywords_become_flags(text, shown):
    """As a user of the command line would type them."""
    assert say.with_flags(text) == shown


def test_only_advice_in_documents_is_rewritten():
    """Names of events and files stay what they are."""
    found = say.flagged(
        {"name": "`force=True`", "issues": [{"advice": "`args`", "file": "`args`"}]}
    )
    assert found == {"name": "`force=True`", "issues": [{"advice": "--args", "file": "`args`"}]}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["merge", SAMPLE, "-o", "exists.json"], "exists; pass -f to overwrite it"),
        (["merge", SAMPLE, "--ranks", "7"], "Leave --ranks out for all of them"),
        (["merge", SAMPLE, "--rank-from", "("], "--rank-from: '(' is not a regular expression"),
        (["merge", SAMPLE, "-o", "x.json", "--align", "no.json"], "--align no.json: neither"),
        (["merge", SAMPLE, "--layers", "devices"], "did you mean 'device'"),
        (["merge", SAMPLE, "-o", "x.xyz"], "or pass --to"),
    ],
)
def test_messages_name_flags(tmp_path, monkeypatch, capsys, words, text):
    """Whatever the library said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exists.json").write_text("")
    assert run(words) in (2, 3)
    err = capsys.readouterr().err
    assert text in err
    assert "`" not in err


# -- bars ----------------------------------------------------------------------------------


@pytest.fixture
def on_a_terminal(monkeypatch):
    """From its call on, bars are drawn."""
    return lambda: monkeypatch.setattr("sys.stderr.isatty", lambda: True)


def test_bars_count_bytes(on_a_terminal, capsys):
    """In units of 1024, with how many per second; a stage that counts nothing is named."""
    on_a_terminal()
    with say.bar(quiet=False) as progress:
        progress(0, 0, "aligning clocks")
        progress(1 << 20, 4 << 20, "reading 2 ranks")
        time.sleep(0.12)
        progress(1 << 20, 4 << 20, "reading 2 ranks")
        progress(1 << 20, 0, "writing")
    drawn = capsys.readouterr().err
    assert "aligning clocks ..." in drawn
    assert re.search(r"reading 2 ranks:  50%.*2\.00M/4\.00M .*B/s\]", drawn)
    assert re.search(r"writing: .*B/s\]", drawn)


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        (["merge", SAMPLE, "-o", "x.pftrace", "--time", "0s:1s"], "reading 2 ranks:"),
        (["merge", SAMPLE, "-o", "x.pftrace", "--time", "0s:1s"], "aligning clocks ..."),
        (["merge", SAMPLE, "-o", "x.pftrace", "--time", "0s:1s"], "cutting out the window ..."),
        (["merge", SAMPLE, "-o", "x.pftrace"], "writing x.pftrace:"),
        (["stats", SAMPLE], "reading 2 ranks:"),
        (["stats", SAMPLE], "making tables ..."),
        (["validate", "made.json"], "checking made.json:"),
    ],
)
def test_commands_say_how_far_they_are(on_a_terminal, tmp_path, monkeypatch, capsys, words, stage):
    """On terminals; not with -q."""
    monkeypatch.chdir(tmp_path)
    on_a_terminal()
    assert run(["merge", SAMPLE, "-o", "made.json", "-q"]) == 0
    assert "\r" not in capsys.readouterr().err
    assert run(words) == 0
    assert stage in capsys.readouterr().err
