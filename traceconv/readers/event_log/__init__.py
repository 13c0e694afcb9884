"""Readers of logs with one event per line."""

READERS = {
    "event_log": "reader",
    "mllog": "mllog",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
