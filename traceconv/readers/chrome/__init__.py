"""Reader of trace-event JSON that no other family claims."""

READERS = {
    "chrome_json": "reader",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
