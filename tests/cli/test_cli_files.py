"""Files that commands write beside traces."""

import os

import pytest

from traceconv.cli import files
from traceconv.core.errors import OutputError


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """A disk that fills up leaves what was there before, and nothing else."""
    path = tmp_path / "a.json"
    files.write({path: "first"})

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    with pytest.raises(OutputError, match=r"a\.json: cannot be written: No space left"):
        files.write({path: "second"})
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a.json": "first"}


def test_a_pipe_is_written_as_it_is(tmp_path):
    """Devices and pipes are never replaced by a file."""
    files.write({type(tmp_path)(os.devnull): b"x"})
    assert not type(tmp_path)(os.devnull).is_file()
