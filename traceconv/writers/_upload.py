"""Outputs at URLs: nothing stands under the final name before all of it has arrived.

S3 keeps the parts of an upload apart until it is completed. Elsewhere a file grows under another
name beside the final one, and is renamed when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from traceconv.errors import OutputError
from traceconv.storage import Storage, given
from traceconv.writers._files import File

_KEPT_APART = ("s3", "s3a")
"""Storages whose uploads show when they are completed, by the names fsspec gives them."""

_PIECE = 1 << 20


class Upload(File):
    """A file at a URL that has not got its name yet.

    Attributes:
        size: bytes written.
    """

    def __init__(self, path: str) -> None:
        """
        Raises:
            OutputError: it cannot be written there.
        """
        self.size = 0
        self._label, self._place = path, Storage(given(path), OutputError)
        self._settled, self._apart = False, self._place.protocol in _KEPT_APART
        self._name = self._place.path
        if not self._apart:
            self._name += f".{os.urandom(4).hex()}.part"
        with self._guarded():
            options = {"autocommit": False} if self._apart else {}
            self._file: Any = self._place.fs.open(self._name, "wb", **options)

    def _guarded(self) -> AbstractContextManager[None]:
        return self._place.guarded(f"{self._label}: cannot write", OutputError)

    def write(self, data: bytes) -> None:
        with self._guarded():
            self._file.write(data)
        self.size += len(data)

    def append(self, path: Path) -> None:
        """Send the whole local file ``path``."""
        with path.open("rb", buffering=0) as source:
            while piece := source.read(_PIECE):
                self.write(piece)

    def finish(self) -> None:
        """Send what is left."""
        with self._guarded():
            self._file.close()

    def settle(self, force: bool) -> None:
        """Give the file its name.

        Raises:
            OutputError: a file of that name has appeared meanwhile and ``force`` is not given.
        """
        with self._guarded():
            if not force and self._place.fs.exists(self._place.path):
                raise OutputError(f"{self._label}: has appeared meanwhile; add -f to overwrite it")
            if self._apart:
                self._file.commit()
            else:
                self._place.fs.mv(self._name, self._place.path)
        self._settled = True

    def discard(self) -> None:
        """Remove what has not got its name."""
        if self._settled:
            return
        with self._guarded():
            self._file.close()
            if self._apart:
                self._file.discard()
            else:
                self._place.fs.rm(self._name)


@contextmanager
def uploading(path: str) -> Iterator[Upload]:
    """An upload that vanishes unless it is settled."""
    file = Upload(path)
    try:
        yield file
    finally:
        file.discard()


def check_url(path: str, force: bool) -> None:
    """Refuse early what could not be written later.

    Raises:
        OutputError: the storage cannot be reached, the path is a folder there, or a file that
            may not be overwritten.
    """
    place = Storage(given(path), OutputError)
    with place.guarded(f"{path}: cannot write", OutputError):
        if place.fs.isdir(place.path):
            raise OutputError(f"{path}: is a folder; name a file")
        if not force and place.fs.exists(place.path):
            raise OutputError(f"{path}: exists; add -f to overwrite it")
