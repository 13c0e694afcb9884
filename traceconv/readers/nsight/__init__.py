"""Reader of Nsight Systems reports."""

READERS = {
    "nsight": "reader",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
