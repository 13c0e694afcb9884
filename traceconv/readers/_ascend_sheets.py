"""The sheets of an Ascend capture. Nothing is read here: :meth:`traceconv.build.TraceBuilder.sheet`
keeps the loaders until somebody looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceconv.build import TraceBuilder
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers._mindspore_sheet_names import sheets_of
from traceconv.sheets import Sheet
from traceconv.source import Source

if TYPE_CHECKING:
    from traceconv.readers._ascend_sheet_load import Columns


def add_sheets(capture: Capture, build: TraceBuilder) -> dict[str, Sheet]:
    """Offer every table of a capture (:attr:`Capture.tables`) as a sheet of its trace."""
    if sheets_of(capture):
        from traceconv.readers._mindspore_sheets import announce

        announce(capture, build)  # the first to say how a table is read
    found = {}
    for table, files in capture.tables.items():
        load = _Loader(capture.source, table, files)
        title = capture.source.title(files[0])
        found[table] = build.sheet(table, title, load, load.issues)
    return found


class _Loader:
    """Reads one table; what it meets is booked the first time only."""

    def __init__(self, source: Source, table: str, files: tuple[str, ...]) -> None:
        self.issues = Issues()
        self._what = (source, table, files)
        self._again = False

    def __call__(self) -> Columns:
        from traceconv.readers._ascend_sheet_load import load

        issues = Issues() if self._again else self.issues
        self._again = True
        return load(*self._what, issues)
