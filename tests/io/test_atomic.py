"""Files and folders that appear complete or not at all."""

import os
from pathlib import Path

import pytest

from traceconv.core.errors import OutputError
from traceconv.io.atomic import replacing, replacing_folder, write_file


def test_a_file_appears_when_it_is_complete(tmp_path):
    """Until then, what was there before stays."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"new"}


def test_nothing_is_left_of_what_failed(tmp_path):
    """Whatever was raised; errors of the system name the file and what to do."""
    with pytest.raises(KeyError), replacing(tmp_path / "a") as file:
        file.write(b"x")
        raise KeyError
    why = r"a: cannot be written: No space left.*; do this"
    with pytest.raises(OutputError, match=why), replacing(tmp_path / "a", "do this"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path):
    """What it points to is replaced."""
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", b"new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "real").read_bytes()) == (True, b"new")


def test_devices_are_written_as_they_are():
    """They are never replaced by a file."""
    write_file(Path(os.devnull), b"x")
    assert not Path(os.devnull).is_file()


def test_a_folder_replaces_the_one_before(tmp_path):
    """With all its files; a failure leaves the old one."""
    target = tmp_path / "s"
    for name in ("one", "two"):
        with replacing_folder(target) as folder:
            (folder / name).write_text(name)
    with pytest.raises(KeyError), replacing_folder(target):
        raise KeyError
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    assert [p.name for p in target.iterdir()] == ["two"]
