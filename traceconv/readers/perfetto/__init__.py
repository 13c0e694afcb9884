"""Reader of Perfetto traces in protobuf, of any program."""

READERS = {
    "perfetto": "reader",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
