"""Tables of a capture as side tables of its trace."""

from __future__ import annotations

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
    found = {}
    for table, files in capture.tables.items():
        load = _Loader(capture.source, table, files)
        title = capture.source.title(files[0])
        found[table] = build.side_table(table, title, load, load.issues)
    return found


class _Loader:
    """Reads one table; issues are reported the first time only."""

    def __init__(self, source: Source, table: str, files: tuple[str, ...]) -> None:
        self.issues = Issues()
        self._what = (source, table, files)
        self._again = False

    def __call__(self) -> Columns:
        from traceconv.readers.ascend.tables.load import load

        issues = Issues() if self._again else self.issues
        self._again = True
        return load(*self._what, issues)
