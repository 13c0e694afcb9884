"""``traceconv new-reader``: the skeleton of a package that brings a reader."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files as resources
from pathlib import Path
from string import Template

import click

from traceconv.cli import options, say

_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "traceconv_{name}.py": "reader.py.txt",
    "tests/conftest.py": "conftest.py.txt",
    "tests/test_golden.py": "test_golden.py.txt",
    "tests/golden/first/input/rank0.{name}": "rank0.txt",
    "tests/golden/first/expect.txt": "expect.txt",
}
"""The files, and the template of each (in ``skeleton``; ``$name`` is the name)."""


@click.command(
    "new-reader",
    cls=options.Command,
    short_help="Write the skeleton of a plugin that reads a format.",
)
@click.argument("name", metavar="NAME")
@options.output("Folder to create. Default: traceconv-NAME in the current folder.")
@options.chatter
def new_reader(name: str, output: str | None, quiet: bool, verbose: bool) -> None:
    """Write an installable package with a reader called NAME and a golden case that passes.

    The reader takes one line per event, so that you can try everything before the first change.

    \b
    traceconv new-reader mylog
    pip install -e 'traceconv-mylog[test]' && pytest traceconv-mylog
    """
    from traceconv.find import registry
    from traceconv.io.atomic import replacing_folder

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise click.UsageError(
            f"NAME: {name!r} cannot name a module; use lower-case letters, digits and _"
        )
    if name in registry.readers().found:
        raise click.UsageError(
            f"NAME: there is a reader {name!r} (`traceconv formats`); choose another name"
        )
    folder = Path(output or f"traceconv-{name}")
    if folder.exists():
        raise click.UsageError(f"{folder} exists; name another folder with -o")
    templates = resources("traceconv.cli") / "skeleton"
    with replacing_folder(folder) as fresh:
        for path, template in _FILES.items():
            target = fresh / path.format(name=name)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = (templates / template).read_text(encoding="utf-8")
            target.write_text(Template(text).substitute(name=name), encoding="utf-8")
    if not quiet:
        say.message(f"wrote {folder}: the reader is in {folder / f'traceconv_{name}.py'}")
        say.message(f"next: pip install -e '{folder}[test]' && pytest {folder}")
    if verbose:
        for path in _FILES:
            say.message(f"  {path.format(name=name)}")
