"""Reports of Nsight Systems, exported by ``nsys`` of this machine to a database for this run.

Their own layout is not public. The database is in a folder that only this user can enter, and is
removed with the last capture read from it, at the latest when the process ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from traceconv.core.errors import OptionError, SourceError
from traceconv.core.source import Source
from traceconv.io.sources import FileSource
from traceconv.readers.shared.sqlite.files import is_sqlite
from traceconv.scratch.temporary import ADVICE, TemporaryFolder

PROGRAM = "nsys"
"""The program looked up on the path."""

LIMIT_S = 3600
"""An export that takes longer is ended; those of reports of several GB take minutes."""

_SAID_LINES, _SAID = 5, 600
"""Lines and characters of the output of nsys that a message repeats."""


def program(requested: str | None) -> str | None:
    """Path of nsys: the one that is named, or the one on the path, or None.

    Raises:
        OptionError: the one that is named is no program.
    """
    path = shutil.which(requested or PROGRAM)
    if requested and not path:
        raise OptionError(f"{requested!r} is not an executable program", "nsys")
    return path


class ExportedReport(FileSource):
    """The database made of a report, under the name and the title of the report.

    Its folder is removed with this object; copies of it in workers leave that to the original.
    """

    def __init__(self, path: Path, label: str, name: str, title: str) -> None:
        super().__init__(path, label)
        self._name, self._title = name, title

    def __reduce__(self) -> Any:
        return ExportedReport, (self._path.absolute(), self.label, self._name, self._title)

    def names(self) -> tuple[str, ...]:
        return (self._name,)

    def title(self, name: str) -> str:
        return self._title


_made: weakref.WeakValueDictionary[tuple[str, ...], ExportedReport] = weakref.WeakValueDictionary()
"""Exported reports that are still in use, so that finding captures twice exports once."""


def exported(source: Source, name: str, nsys: str) -> ExportedReport:
    """A report as a database.

    Args:
        nsys: path of the program.

    Raises:
        SourceError: nsys fails, takes longer than :data:`LIMIT_S`, or there is no room; the message
            ends with what nsys said.
    """
    title, path = source.title(name), source.path(name)
    state = path.stat() if path is not None else None
    key = (nsys, title, str(state and (state.st_ino, state.st_size, state.st_mtime_ns)))
    if (already := _made.get(key)) is not None:
        return already
    try:
        private = TemporaryFolder()
    except OSError as e:
        raise SourceError(f"{title}: cannot be exported: {e.strerror or e}; {ADVICE}") from e
    folder = Path(private.name)
    with ExitStack() as undone:
        undone.callback(private.cleanup)
        database = folder / "export.sqlite"
        if path is not None:
            _export(nsys, path.absolute(), database, title)
        else:
            copy = folder / PurePosixPath(name).name
            _copy(source, name, copy)
            _export(nsys, copy, database, title)
            copy.unlink()
        result = ExportedReport(database, source.label, name, title)
        weakref.finalize(result, private.cleanup)
        undone.pop_all()
    _made[key] = result
    return result


def _copy(source: Source, name: str, to: Path) -> None:
    """A report that is in an archive or elsewhere, as a file."""
    try:
        with source.open(name) as stream, to.open("wb") as file:
            while block := stream.read(1 << 20):
                file.write(block)
    except OSError as e:
        raise SourceError(
            f"{source.title(name)}: cannot be copied: {e.strerror or e}; {ADVICE}"
        ) from e


def _export(nsys: str, report: Path, database: Path, title: str) -> None:
    """Let nsys export; it and all it starts are ended with this function.

    Raises:
        SourceError: see :func:`exported`.
    """
    import subprocess

    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true",
               "--output", str(database), str(report)]  # fmt: skip
    log_path = database.with_name("said")
    try:
        with log_path.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=database.parent, start_new_session=True,
            )  # fmt: skip
    except OSError as e:
        raise SourceError(f"{title}: {nsys} cannot be run: {e.strerror or e}") from e
    try:
        code: int | None = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if process.poll() is None:
            with suppress(OSError):  # it has gone in between
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            process.wait()
    if code is None:
        why = f"took longer than {LIMIT_S} s and was ended"
    elif code:
        why = f"ended with code {code}" if code > 0 else f"was ended by signal {-code}"
    elif not database.is_file():
        why = "wrote no database"
    else:
        with database.open("rb") as file:
            if is_sqlite(file.read(16)):
                return
        why = "wrote no SQLite database"
    with log_path.open("rb") as log:
        log.seek(max(0, log_path.stat().st_size - 4 * _SAID))
        text = log.read().decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    output_end = " | ".join(lines[-_SAID_LINES:])[-_SAID:] or "nothing"
    raise SourceError(f"{title}: cannot be exported: {nsys} {why}; its output: {output_end}")
