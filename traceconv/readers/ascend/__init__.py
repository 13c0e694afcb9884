"""Readers of what Ascend's profilers leave: exported timelines, databases, tables, raw data."""

READERS = {
    "ascend_db": "db.reader",
    "ascend_raw": "raw.reader",
    "ascend_tables": "tables.reader",
    "mindspore": "mindspore.reader",
    "msprof": "msprof",
    "trace_view": "trace_view",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
