"""Readers of Paddle's profiler: timelines and printed reports."""

READERS = {
    "paddle": "reader",
    "paddle_text": "paddle_text",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
