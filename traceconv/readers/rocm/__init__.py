"""Readers of the files that ROCm's profilers write."""

READERS = {
    "rocprof": "rocprof",
    "rpd": "rpd",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
