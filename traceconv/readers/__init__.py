"""Readers: one module per format. This module holds what they all agree on.

A reader finds captures by the names and the first bytes of files (:meth:`Reader.find`), and
turns one capture into columns (:meth:`Reader.read`). It knows no other reader, no merger and no
writer. Modules whose name begins with ``_`` are shared helpers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source

REQUIRED = ("name", "title", "files", "order", "find", "read")
"""The members that a reader must have."""


@runtime_checkable
class PassesOn(Protocol):
    """A reader of files that hold more than events, which an archive can hold next to the ranks."""

    def passed_on(
        self, source: Source, name: str, shift_ns: int, issues: Issues
    ) -> Iterator[bytes]:
        """The unread parts of a file of ``Capture.beside``, as a separate trace, in blocks.

        Args:
            shift_ns: what puts its stamps on the clock of the run.
            issues: gets what is passed on.
        """
        ...


class Reader(Protocol):
    """The interface of a format.

    Attributes:
        name:  one word: the module, the golden folder and the ``--from`` value.
        title: one line for people.
        files: the file names it reads, for the table of formats.
        order: lower comes first; later readers do not see claimed files.

    A reader may have further attributes: ``unverified``, the kinds of records it reads as their
    layout is described, without having met a recording of them; and ``shown``, where its files are
    shown if that is not on lanes.
    """

    name: str
    title: str
    files: str
    order: int

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """The captures of this format among ``names``.

        Looks at names, at small identity files and at :meth:`Source.head`; reads no events.
        ``rank`` is None where nothing names it. Files of a capture that are not read belong into
        ``Capture.known``. A broken identity file is an issue, not an error.
        """
        ...

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event of ``capture`` into ``build``.

        Raises:
            MalformedInputError: not even a part of it can be read.
        """
        ...
