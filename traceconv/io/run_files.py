"""The files of one run: an output never replaces another output or an input.

Files are compared by what they are on the disk, so a link to an input, or its name in other letters
where the disk ignores case, is the input. Two outputs whose names differ only in case are one file
on many disks, and are refused on all.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from traceconv.core.errors import OutputPathError
from traceconv.io.storage import is_url, original_url

_Identity = tuple[int, int]


@dataclass
class _RunFiles:
    """The files of a run so far.

    Attributes:
        inputs:  files that are read.
        outputs: by what makes a file the same: what it is for, and its path.
    """

    inputs: list[Path] = field(default_factory=list)
    outputs: dict[str | _Identity, tuple[str, str]] = field(default_factory=dict)


_current: ContextVar[_RunFiles | None] = ContextVar("run_files", default=None)


@contextmanager
def one_run() -> Iterator[None]:
    """Everything inside is one run; so is what it calls."""
    if _current.get() is not None:
        yield
        return
    token = _current.set(_RunFiles())
    try:
        yield
    finally:
        _current.reset(token)


def planned(path: str, what: str) -> None:
    """Note that a run will write ``path``.

    Args:
        what: it is for; the same file may be planned again for the same.

    Raises:
        OutputPathError: it is planned for something else, or is an input.
    """
    run = _current.get()
    if run is None or path == "-":
        return
    full = original_url(path) if is_url(path) else os.path.realpath(path)
    keys: list[str | _Identity] = [unicodedata.normalize("NFC", full).casefold()]
    if not is_url(path) and (identity := _identity(Path(path))) is not None:
        if not Path(path).is_file():
            return  # a pipe or a device, which is never replaced
        keys.append(identity)
        if any(_identity(input_file) == identity for input_file in run.inputs):
            raise _is_input(path)
    for key in keys:
        earlier = run.outputs.setdefault(key, (what, path))
        if earlier[0] != what:
            raise OutputPathError(
                f"{path}: is {earlier[0]} as well; choose another name for {what}"
            )


def read_from(files: Iterable[Path]) -> None:
    """Note that a run reads ``files``.

    Raises:
        OutputPathError: one of them is planned as an output.
    """
    run = _current.get()
    if run is None:
        return
    files = list(files)
    run.inputs += files
    outputs = {key: path for key, (_, path) in run.outputs.items() if not isinstance(key, str)}
    for file in files if outputs else ():
        if (identity := _identity(file)) in outputs:
            raise _is_input(outputs[identity])


def _is_input(path: str) -> OutputPathError:
    return OutputPathError(f"{path}: is an input of this run; choose another name for the output")


def _identity(path: Path) -> _Identity | None:
    """Device and number of an existing file; None for others."""
    with suppress(OSError, ValueError):
        about = path.stat()
        return about.st_dev, about.st_ino
    return None
