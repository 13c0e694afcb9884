"""Where results go: standard output, or files that are written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import click

from traceconv.cli import say
from traceconv.core.choices import unknown
from traceconv.io import atomic

BINARY = ("parquet", "xlsx")
"""Forms of tables that a terminal cannot show."""

Content = str | bytes


@dataclass(frozen=True)
class Target:
    """Where the result of a command goes, checked before any work is done.

    Attributes:
        form:  of the result.
        path:  of its file; None for standard output.
        force: whether the file is overwritten.
        quiet: whether nothing is said of it.
    """

    form: str
    path: Path | None
    force: bool
    quiet: bool

    @classmethod
    def of(
        cls,
        output: str | None,
        form: str | None,
        forms: Sequence[str],
        *,
        as_json: bool,
        force: bool,
        quiet: bool,
        apart: Sequence[str] = (),
    ) -> Target:
        """The target that -o, --format and --json ask for.

        Args:
            output: name of a file; None or "-" for standard output.
            form:   as --format says; None for what the extension says.
            forms:  those there are; the first is the default.
            apart:  those in which every table is a file, whose names are not known yet.

        Raises:
            click.UsageError: options contradict each other, or the form is none of these.
            OutputError: the file cannot be written.
        """
        path = None if output in (None, "-") else Path(str(output))
        if as_json and path is None:
            if form not in (None, "json"):
                raise click.UsageError(
                    f"--json and --format {form} both want stdout; name a file with -o"
                )
            form = "json"
        form = form_of(path, form, forms)
        if path is None and form in BINARY:
            raise click.UsageError(f"{form} needs a file; name one with -o FILE.{form}")
        if path is not None and form not in apart:
            atomic.check(str(path), force)
        return cls(form, path, force, quiet)

    def put(self, content: Content) -> None:
        """Print the result, or write its file."""
        if self.path is not None:
            self.put_files({self.path: content})
        elif self.form in ("text", "md"):
            say.page(str(content))
        else:
            say.raw(str(content).rstrip("\n"))

    def put_tables(self, contents: Mapping[str, Content], several: bool) -> None:
        """Write one file, or one for each table: all of them or none.

        Args:
            contents: by name of table; "" where one file has all.
            several:  whether names of files tell tables apart, even if there is one.

        Raises:
            OutputError: a file exists, or cannot be written.
        """
        assert self.path is not None
        stem = self.path.stem
        content_by_path = {
            self.path.with_stem(f"{stem}_{name}") if several and name else self.path: content
            for name, content in contents.items()
        }
        for path in content_by_path:
            atomic.check(str(path), self.force)
        self.put_files(content_by_path)

    def put_files(self, contents: Mapping[Path, Content]) -> None:
        """Write files, and name them."""
        write(contents)
        for path in contents if not self.quiet else ():
            say.message(f"wrote {path}")


def write(contents: Mapping[Path, Content]) -> None:
    """Write files: all of them or none.

    Raises:
        OutputError: one cannot be written.
    """
    atomic.write_files(
        {
            path: content.encode("utf-8", "backslashreplace")
            if isinstance(content, str)
            else content
            for path, content in contents.items()
        }
    )


def form_of(path: PurePath | None, form: str | None, forms: Sequence[str]) -> str:
    """How a result is written: as the extension of ``path`` says, else in ``form``, else in the
    first of ``forms``.

    Raises:
        click.UsageError: the extension names none of ``forms``, or another one than ``form``.
    """
    form_by_ending = {".txt" if name == "text" else f".{name}": name for name in forms}
    ending = path.suffix if path else ""
    ending = max(
        (suffix for suffix in form_by_ending if path and path.name.endswith(suffix)),
        key=len,
        default=ending,
    )
    if ending and ending not in form_by_ending:
        raise click.UsageError(f"-o {path}: {unknown('format ends in', ending, form_by_ending)}")
    if ending and form not in (None, form_by_ending[ending]):
        why = f"the extension says {form_by_ending[ending]}, and --format says {form}"
        raise click.UsageError(f"-o {path}: {why}")
    return form_by_ending[ending] if ending else form or forms[0]
