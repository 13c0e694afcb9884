"""Recognise tables of rocprof (v1 and v2) by their headings; their file names vary."""

from __future__ import annotations

import csv

OLD_TABLES = {
    "rocprof v1": frozenset({"KernelName", "gpu-id", "BeginNs", "EndNs"}),
    "rocprof v2": frozenset(
        {"Dispatch_ID", "GPU_ID", "Kernel_Name", "Start_Timestamp", "End_Timestamp"}
    ),
}
"""Headings that identify a table."""


def old_table(head: bytes) -> str:
    """The table of rocprof that a file is, by its headings; "" for other files."""
    headings = frozenset(headings_in(head))
    return next((layout for layout, sign in OLD_TABLES.items() if sign <= headings), "")


def headings_in(head: bytes) -> list[str]:
    """The headings of a table that begins with ``head``."""
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    return [cell.strip() for cell in cells_in(line.decode("utf-8", "replace"))]


def cells_in(line: str) -> list[str]:
    """The cells of a line; [] if it is not a line of a table."""
    try:
        return next(csv.reader([line.strip("\r")]), [])
    except csv.Error:
        return []
