"""Perfetto's own trace processor: SQL over a trace, and what its importer counts.

The package ``perfetto`` talks to the program ``trace_processor_shell``, which must be here: the one
that ``TRACECONV_TRACE_PROCESSOR`` names, or one on the path. It is never fetched. It serves this
process on a port of the loopback device, and is ended with the query.
"""

from __future__ import annotations

import http.client
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.errors import (
    EngineError,
    MissingExtraError,
    OptionError,
    SourceError,
    extra_line,
)
from traceconv.core.side_tables import ABSENT, DataTable
from traceconv.io.storage import is_url, redact_url
from traceconv.validation.rules import Tally

VARIABLE = "TRACECONV_TRACE_PROCESSOR"
"""Environment variable that names the program."""

PROGRAM = "trace_processor_shell"
"""Programs to find on the path."""

_BLOCK = 1 << 20
_EXACT = 1 << 53
"""Whole numbers up to this are exact as floating point numbers."""

COUNTS = """
select (select count(*) from slice) as slices,
  (select ifnull(sum(dur), 0) from slice where dur > 0) as busy_ns,
  (select count(*) from counter) as counters,
  (select count(*) from flow) as flows
"""
"""What ``validate(..., deep=True)`` compares, in one row."""

STATISTICS = """
select name, sum(value) as value from stats
where severity in ('error', 'data_loss') group by name having sum(value) > 0 order by name
"""


def program() -> str:
    """Path of the trace processor.

    Raises:
        MissingExtraError: there is none; the message says how one is named.
    """
    requested = os.environ.get(VARIABLE, "")
    if requested:
        path = shutil.which(requested)
        if path is None:
            raise MissingExtraError(
                f"{VARIABLE}: {requested!r} is not a program that can be run here"
            )
        return path
    path = shutil.which(PROGRAM)
    if path is not None:
        return path
    raise MissingExtraError(
        f"Perfetto's trace processor is not here: put {PROGRAM} on the path, or name it "
        f"in {VARIABLE}; it is in the releases of Perfetto, and is never downloaded automatically"
    )


class Processor:
    """A trace that the processor has loaded."""

    def __init__(self, client: Any, failures: Any) -> None:
        self._client, self._failures = client, failures

    def query(self, sql: str) -> DataTable:
        """The rows of the last statement that has some, as columns.

        Whole numbers are int64 (``ABSENT`` where NULL), numbers float64 (NaN), texts and bytes (as
        hexadecimal digits) object with None. Columns of one name get a number.

        Raises:
            OptionError: the processor does not understand it; the message is its own.
        """
        try:
            answer = self._client.query(sql)
            names, cells = list(answer.column_names), list(answer.cells)
        except self._failures as e:
            raise OptionError(str(e).strip() or "the trace processor gives no answer", "sql") from e
        repeats: Counter[str] = Counter()
        columns = {}
        for position, name in enumerate(names):
            repeats[name] += 1
            heading = name if repeats[name] == 1 else f"{name} ({repeats[name]})"
            columns[heading] = _column(cells[position :: len(names)])
        return DataTable("query", columns, dict.fromkeys(columns, ""))


_TOO_OLD = (
    "the packages perfetto and protobuf here do not fit: pip install -U perfetto protobuf "
    "(perfetto 0.59 or newer)"
)


def _column(values: Sequence[Any]) -> NDArray[Any]:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int}:
        return np.array([ABSENT if value is None else value for value in values], np.int64)
    exact = all(abs(value) <= _EXACT for value in values if type(value) is int)
    if kinds and kinds <= {int, float} and exact:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    column = np.empty(len(values), object)
    column[:] = [
        None if value is None else value.hex() if isinstance(value, bytes) else str(value)
        for value in values
    ]
    return column


@contextmanager
def loaded(path: str) -> Iterator[Processor]:
    """A trace in the processor, for as long as the context lasts.

    Args:
        path: of a file on this machine that Perfetto reads: a trace, compressed or not, an archive.

    Raises:
        MissingExtraError: the package or the program is missing, or too old.
        SourceError: the file cannot be read, or the processor refuses it.
        EngineError: the processor does not start, or ends.
    """
    if is_url(path):
        why = "the trace processor reads files of this machine; copy it here first"
        raise SourceError(f"{redact_url(path)}: {why}")
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as e:
        raise SourceError(f"{path}: cannot open: {e.strerror or e}") from e
    shell = program()
    package = _package()
    client: Any = None
    try:
        client = _started(package, shell, path)
        yield Processor(client, package.TraceProcessorException)
    except (http.client.HTTPException, OSError) as e:
        raise EngineError(f"{shell} does not answer any more: {e}") from e
    finally:
        if client is not None:
            client.close()


def _package() -> Any:
    """The part of the package ``perfetto`` that starts the processor and asks it."""
    try:
        return import_module("perfetto.trace_processor.api")
    except ImportError as e:
        if (e.name or "").startswith("perfetto"):
            why = f"perfetto is not installed; {extra_line('query')}"
            raise MissingExtraError(why) from e
        raise MissingExtraError(_TOO_OLD) from e


def _started(package: Any, shell: str, path: str) -> Any:
    with Path(path).open("rb") as file:
        blocks = iter(lambda: file.read(_BLOCK), b"")
        try:
            config = package.TraceProcessorConfig(bin_path=shell)  # without one it is fetched
            return package.TraceProcessor(trace=blocks, config=config)
        except package.TraceProcessorException as e:
            why = str(e).strip()
            if file.tell():
                raise SourceError(f"{path}: refused by the trace processor: {why}") from e
            raise EngineError(f"{shell} does not start: {why}") from e
        except (AttributeError, TypeError) as e:
            raise MissingExtraError(_TOO_OLD) from e


def compared(
    path: str, counts: Mapping[str, int], tally: Tally, at_least: bool = False
) -> dict[str, int] | None:
    """The counts of the importer; differences from ``counts`` and its own errors are noted.

    Args:
        counts: by name, as :data:`COUNTS` has them.
        at_least: the file holds what is not counted, so the importer may count more.

    Returns:
        None if it refuses the file, which is noted.

    Raises:
        MissingExtraError, EngineError: as :func:`loaded`.
    """
    try:
        with loaded(path) as processor:
            figures = processor.query(COUNTS).columns
            noted = processor.query(STATISTICS).columns
    except SourceError as e:
        tally.add("D-refused", str(e).partition(": ")[2])
        return None
    importer = {name: int(values[0]) for name, values in figures.items()}
    for name, value in zip(noted["name"].tolist(), noted["value"].tolist(), strict=True):
        tally.add("D-statistics", f"{name}: {int(value)}", count=int(value))
    for name, count in counts.items():
        if importer[name] != count and not (at_least and importer[name] > count):
            tally.add("D-counts", f"{name}: {count} in the file, {importer[name]} there")
    return importer
