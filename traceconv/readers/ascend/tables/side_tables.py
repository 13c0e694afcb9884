"""Tables of a capture as side tables of its trace."""

from __future__ import annotations

from itertools import chain

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.side_tables import Columns, SideTable
from traceconv.core.source import Source
from traceconv.readers.ascend.tables.names import mindspore_tables_of


def add_side_tables(capture: Capture, build: TraceBuilder) -> dict[str, SideTable]:
    """Offer every table of a capture (:attr:`Capture.tables`) as a side table of its trace."""
    if mindspore_tables_of(capture):
        from traceconv.readers.ascend.mindspore.tables import announce

        announce(capture, build)  # of two ways to read a table, the first announced is used
    return {
        table: _side_table(build, capture.source, table, files)
        for table, files in capture.tables.items()
    }


def _side_table(
    build: TraceBuilder, source: Source, table: str, files: tuple[str, ...]
) -> SideTable:
    first = Issues()
    accounts = chain([first], iter(Issues, None))  # issues are reported the first time only

    def read() -> Columns:
        from traceconv.readers.ascend.tables.load import load

        return load(source, table, files, next(accounts))

    return build.side_table(table, source.title(files[0]), read, first)
