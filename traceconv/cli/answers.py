"""Answers that are kept: what an analysis printed, for the same call on the same files.

The cache has the summaries of ranks, and comparing these takes seconds for large runs. So what a
call printed is kept as well, with its exit code. The next call prints it again if it has the same
options, folders, width and environment, and no file in the folders has changed. Calls that write
files, name single files or fail are not kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from traceconv.cli import say

_MOST = 1 << 24
"""Characters of an answer at most."""


def answered(ctx: click.Context, work: Callable[[], Any]) -> None:
    """Print the answer of a call: the one that is kept, or that of ``work``, which is kept."""
    folders = _folders(ctx.params)
    if folders is None or ctx.params.get("cache") is False:
        work()
        return
    import msgspec

    from traceconv.store.cache import Kept

    screen = say.width(), say.fits(), sys.stdout is not None and sys.stdout.isatty()
    environment = sorted(item for item in os.environ.items() if item[0].startswith("TRACECONV_"))
    parameters = sorted(ctx.params.items())
    question = [ctx.command.name, parameters, str(Path.cwd()), screen, environment]
    cached = Kept.of_folders(question, folders)
    contents = next((content for _, content in cached.found()), None)
    if contents is not None:
        code, spoken = msgspec.msgpack.decode(contents, type=tuple[int, list[tuple[bool, str]]])
        for err, text in spoken:
            say.again(text, err)
        if ctx.params.get("verbose") and not ctx.params.get("quiet"):
            say.message("this answer is from the cache; --no-cache reads the files again")
        ctx.exit(code)
    code = 0
    with say.recorded() as spoken:
        try:
            work()
        except click.exceptions.Exit as e:
            code = e.exit_code
    if sum(len(text) for _, text in spoken) <= _MOST:
        cached.keep({0: msgspec.msgpack.encode((code, spoken))})
    ctx.exit(code)


def _folders(params: Mapping[str, Any]) -> list[Path] | None:
    """The folders that a call reads; None if it writes a file, or reads one by name."""
    if params.get("output") or params.get("out"):
        return None
    folders = [path for path in map(Path, params["paths"]) if path.exists()] or [Path()]
    other_params = {**params, "paths": ()}
    if any(Path(text).exists() for text in _texts(other_params.values())):
        return None
    return folders if all(path.is_dir() for path in folders) else None


def _texts(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _texts(value)
