"""Ranks as columns in files: spilled ranks, shards and stores.

:mod:`.rank_file` is the one form of a rank on disk, as it is or packed in :mod:`.blocks`;
:mod:`.store_file` is a file with many of them.
"""

from __future__ import annotations

from traceconv.core.source import Source

SUFFIX = ".tcz"

SIGN = b"traceconv store "
"""The first bytes of a store; the version and a line feed follow."""


def is_store(source: Source) -> bool:
    """Whether a source is one file that begins as a store does."""
    return source.lone and source.head(source.names()[0], len(SIGN)) == SIGN
