"""Sources: files, folders, archives, compressed or not, hostile or not."""

import gzip
import io
import subprocess
import sys
import tarfile
import zipfile
import zlib

import pytest

from traceconv.core.errors import MissingExtraError, SourceError
from traceconv.io import sources as source_module
from traceconv.io import streams
from traceconv.io.sources import sources


def _one(path):
    [source] = sources([str(path)])
    return source


def test_a_folder_lists_files_relative_and_sorted(tmp_path):
    """Names are POSIX paths below the folder."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.json").write_bytes(b"1")
    (tmp_path / "a.json").write_bytes(b"2")
    assert _one(tmp_path).names() == ("a.json", "b/x.json")


def test_names_that_are_shown_alike_stay_apart(tmp_path):
    """A line end in a name is shown as two characters, which another name may have."""
    for name in ("a\nb.json", "a\\nb.json", "c\n.json"):
        (tmp_path / name).write_text(name)
    source = _one(tmp_path)
    names = source.names()
    assert names == ("a\\nb (2).json", "a\\nb.json", "c\\n.json")
    assert [source.path(name).read_text() for name in names] == [
        "a\nb.json", "a\\nb.json", "c\n.json",
    ]  # fmt: skip


def test_a_link_loop_ends(tmp_path):
    """A folder that contains itself is read once."""
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert _one(tmp_path).names() == ("f",)


def test_gzip_is_found_by_content(tmp_path):
    """The ending of the name does not matter."""
    (tmp_path / "x.json").write_bytes(gzip.compress(b"[1]"))
    assert _one(tmp_path).read("x.json") == b"[1]"


def test_zip_members_are_read(tmp_path):
    """An archive is a folder."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("r0/trace.json", gzip.compress(b"[2]"))
    source = _one(tmp_path / "a.zip")
    assert (source.names(), source.read("r0/trace.json")) == (("r0/trace.json",), b"[2]")


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_tar_members_are_read(tmp_path, ending):
    """Compressed or not."""
    with tarfile.open(tmp_path / f"a{ending}", "w:gz" if "gz" in ending else "w") as archive:
        info = tarfile.TarInfo("d/t.json")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"[3]"))
    source = _one(tmp_path / f"a{ending}")
    assert (source.names(), source.read("d/t.json")) == (("d/t.json",), b"[3]")


def test_members_outside_the_archive_are_refused(tmp_path):
    """No path leads out."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../evil.json", b"[]")
    with pytest.raises(SourceError, match="points outside"):
        sources([str(tmp_path / "a.zip")])


def test_decompression_is_bounded(tmp_path, monkeypatch):
    """A few bytes do not become a flood."""
    monkeypatch.setattr(streams, "RATIO_FREE_BYTES", 1 << 16)
    (tmp_path / "bomb.json").write_bytes(gzip.compress(b"0" * (1 << 24)))
    with pytest.raises(SourceError, match="decompression bomb"):
        _one(tmp_path / "bomb.json").read("bomb.json")


def test_zstd_is_found_by_content(tmp_path):
    """All frames of a file, one after the other; damage is a named error."""
    zstandard = pytest.importorskip("zstandard")
    frames = zstandard.compress(b"[1") + zstandard.compress(b"]" * 100_000)
    (tmp_path / "x.json").write_bytes(frames)
    assert _one(tmp_path).read("x.json") == b"[1" + b"]" * 100_000
    (tmp_path / "x.json").write_bytes(frames[:8] + bytes(20))
    with pytest.raises(SourceError, match="zstd data cannot be unpacked"):
        _one(tmp_path).read("x.json")


def test_zstd_that_cannot_be_unpacked_here_says_what_to_install(tmp_path, monkeypatch):
    """Its head is what is stored, so that a reader can claim the file."""

    def nothing(name):
        raise ImportError(name)

    monkeypatch.setattr(streams.importlib, "import_module", nothing)
    (tmp_path / "x.json").write_bytes(streams.ZSTD + b"rest")
    source = _one(tmp_path)
    assert source.head("x.json") == streams.ZSTD + b"rest"
    with pytest.raises(MissingExtraError, match=r"x\.json: .*pip install zstandard"):
        source.read("x.json")


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_cut_gzip_gives_every_byte_before_the_cut(tmp_path, share):
    """As many as a plain decompressor gets out of it; then the error."""
    plain = b"".join(b'{"ts":%d,"n":"%x"}\n' % (i, i * i * 2654435761) for i in range(40_000))
    packed = gzip.compress(plain[:400_000]) + gzip.compress(plain[400_000:])  # two members
    cut = packed[: int(len(packed) * share)]
    (tmp_path / "x.json").write_bytes(cut)
    unpack = zlib.decompressobj(31)
    known = unpack.decompress(cut)
    if unpack.eof:
        known += zlib.decompressobj(31).decompress(unpack.unused_data)
    got = b""
    with _one(tmp_path / "x.json").open("x.json") as stream, pytest.raises(SourceError):
        while piece := stream.read(70_000):
            got += piece
    assert got == known


def test_damaged_gzip_is_a_named_error(tmp_path):
    """The file is named, no traceback of the library leaves."""
    (tmp_path / "x.json").write_bytes(gzip.compress(b"[1]" * 10_000)[:40])
    with pytest.raises(SourceError, match=r"x\.json: cannot read"):
        _one(tmp_path).read("x.json")


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "no such file"), ("*.none", "no file matches"), ("", "no such file")],
)
def test_what_is_not_there_is_named(tmp_path, monkeypatch, path, message):
    """A typo gets a clear answer."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=message):
        sources([path])


def test_patterns_expand_in_order(tmp_path):
    """A glob names files, sorted."""
    for name in ("r1.json", "r0.json"):
        (tmp_path / name).write_bytes(b"[]")
    found = sources([str(tmp_path / "r*.json")])
    assert [s.names() for s in found] == [("r0.json",), ("r1.json",)]


def test_standard_input_is_a_file_named_stdin(monkeypatch):
    """Data may come through a pipe."""

    class Piped:
        buffer = io.BytesIO(b"[4]")

    monkeypatch.setattr(source_module.sys, "stdin", Piped)
    source = _one("-")
    assert (source.names(), source.read("stdin")) == (("stdin",), b"[4]")


def test_heads_never_raise(tmp_path):
    """Recognising a format must not fail on a bad file."""
    (tmp_path / "x").write_bytes(b"\x1f\x8bnot gzip")
    assert _one(tmp_path / "x").head("x") == b""


def test_plain_files_are_mapped(tmp_path):
    """The whole content is there without being read."""
    (tmp_path / "x").write_bytes(b"[5]")
    with _one(tmp_path / "x").open("x") as stream:
        assert bytes(stream.mapped) == b"[5]"


def test_bytes_read_are_reported(tmp_path):
    """Progress counts stored bytes."""
    packed = gzip.compress(b"[6]" * 1000)
    (tmp_path / "x.gz").write_bytes(packed)
    source, seen = _one(tmp_path / "x.gz"), []
    source.progress = seen.append
    source.read("x.gz")
    assert sum(seen) >= len(packed)


OPENED_MEANWHILE = """
import fcntl, subprocess, sys
from pathlib import Path
from traceconv.io.streams import mapped

path, real = Path(sys.argv[1]), fcntl.fcntl
write = "import os, sys; os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)"

def opened_meanwhile(*given):
    done = real(*given)
    if given[1:] == (fcntl.F_SETLEASE, fcntl.F_RDLCK):
        subprocess.run([sys.executable, "-c", write, path], capture_output=True)
    return done

fcntl.fcntl = opened_meanwhile
with path.open("rb") as raw:
    print(len(mapped(raw, path)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has leases on files")
def test_a_file_opened_for_writing_as_it_is_mapped(tmp_path):
    """The system tells the holder of a lease by a signal; it does not end the process."""
    path = tmp_path / "trace.json"
    path.write_text("x" * 100)
    command = [sys.executable, "-c", OPENED_MEANWHILE, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "100\n")


def test_members_of_one_name_are_both_there(tmp_path):
    """In archives that were appended to."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, pytest.warns(UserWarning):
        for text in ("one", "two"):
            archive.writestr("d/t.json", text)
    [source] = sources([str(tmp_path / "a.zip")])
    assert {n: source.read(n) for n in source.names()} == {
        "d/t.json": b"one",
        "d/t (2).json": b"two",
    }


def test_links_and_holes_in_a_tar(tmp_path):
    """A hard link is the file that it names; holes are zeros."""
    raw = tmp_path / "sparse"
    with raw.open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    command = ["tar", "-S", "-cf", "a.tar", "one", "two", "sparse"]
    subprocess.run(command, cwd=tmp_path, check=True)
    [source] = sources([str(tmp_path / "a.tar")])
    found = {n: source.read(n) for n in source.names()}
    assert found == {"one": b"1", "two": b"1", "sparse": bytes(1 << 20) + b"end"}
    assert source.size("sparse") == (1 << 20) + 3
