"""Archives of every kind that ``tar`` and ``zip`` write: what is in them is read, or refused."""

import bz2
import gzip
import io
import lzma
import random
import subprocess
import tarfile
import warnings
import zipfile

import pytest

import traceconv
from traceconv.core.errors import MissingExtraError, SourceError, TraceconvError
from traceconv.io.sources import sources

TARS = ("v7", "oldgnu", "gnu", "ustar", "pax")
"""Formats of GNU tar; the first and ``ustar`` have no long names."""

NAMES = (
    "rank0.json", "d/rank 1.json", "é/日本-2.json", "d/" + "n" * 90 + ".json",
    "/".join(["long"] * 40) + "/" + "n" * 120 + ".json", "-dash.json", "a'b\"c.json",
)  # fmt: skip

PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: _zstd().ZstdCompressor().compress(data),
}


def _zstd():
    return pytest.importorskip("zstandard")


def tree(folder, rng):
    """Files with odd names, holes, second names by hard links; what each holds."""
    held = {}
    for name in rng.sample(NAMES, rng.randint(2, len(NAMES))):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for _ in range(rng.randint(1, 3)):
                file.seek(rng.choice((0, 0, 100_000)), 1)
                file.write(rng.randbytes(rng.choice((1, 511, 512, 4097))))
        held[name] = path.read_bytes()
    first = next(iter(held))
    (folder / "second.json").hardlink_to(folder / first)
    (folder / "link.json").symlink_to("second.json")
    return held | {"second.json": held[first]}


def read(path):
    """The members of an archive by their names."""
    [source] = sources([str(path)])
    return {name: source.read(name) for name in source.names()}


@pytest.mark.parametrize("kind", TARS)
@pytest.mark.parametrize("packed", PACKERS)
def test_tar(tmp_path, kind, packed):
    """Sparse files, hard links, long and foreign names, whatever packs the whole."""
    (tmp_path / "in").mkdir()
    rng = random.Random(f"{kind} {packed}")
    held = tree(tmp_path / "in", rng)
    more = {"v7": [], "ustar": []}.get(kind, rng.choice(([], ["-S"])))
    if more and kind == "pax":
        more.append(f"--sparse-version={rng.choice(('0.0', '0.1', '1.0'))}")
    command = ["tar", f"--format={kind}", *more, "-cf", "-", "-C", str(tmp_path / "in"), "."]
    made = subprocess.run(command, capture_output=True, check=False)  # 2: a name is too long
    path = tmp_path / f"x.tar{packed}"
    path.write_bytes(PACKERS[packed](made.stdout))
    found = read(path)
    lost = set(held) - set(found)
    assert found == {name: held[name] for name in found}
    assert all(len(name) > 90 for name in lost) and bool(lost) <= bool(made.returncode)


@pytest.mark.parametrize(("ending", "packed"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_what_is_packed_otherwise_is_refused(tmp_path, ending, packed):
    """With the command that unpacks it."""
    path = tmp_path / f"x.tar.{ending}"
    path.write_bytes(packed(bytes(10240)))
    with pytest.raises(TraceconvError, match="unpack it first"):
        traceconv.open(path)


@pytest.mark.parametrize("method", ["ZIP_STORED", "ZIP_DEFLATED", "ZIP_BZIP2", "ZIP_LZMA"])
def test_zip(tmp_path, method):
    """Each method, with sizes of 64 bits or behind the content, folders, equal names, comments."""
    rng = random.Random(method)
    (tmp_path / "in").mkdir()
    held = tree(tmp_path / "in", rng)
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", getattr(zipfile, method)) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of equal names
        archive.mkdir("empty")
        archive.comment = b"made by us"
        for name, content in held.items():
            with archive.open(name, "w", force_zip64=rng.random() < 0.5) as file:
                file.write(content)
        archive.writestr("second.json", b"again")
    assert read(path) == held | {"second (2).json": b"again"}


def test_zip_of_a_pipe(tmp_path):
    """Sizes stand behind the content, where the writer could not go back."""

    class Pipe(io.RawIOBase):
        def __init__(self):
            self.sent = bytearray()

        def writable(self):
            return True

        def write(self, data):
            self.sent += data
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", b"x" * 9999)
    (tmp_path / "x.zip").write_bytes(bytes(pipe.sent))
    assert read(tmp_path / "x.zip") == {"a.json": b"x" * 9999}


@pytest.mark.parametrize("content", range(40))
def test_a_damaged_archive_gives_the_members_that_are_whole_or_says_why(tmp_path, content):
    """Never other bytes than were packed, unless an error says that they are damaged."""
    rng = random.Random(content)
    whole = io.BytesIO()
    held = {f"m{i}.json": rng.randbytes(700) for i in range(4)}
    if content % 2:
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in held.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=whole, mode="w", format=rng.choice((0, 1, 2))) as archive:
            for name, data in held.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    data = whole.getvalue()
    path = tmp_path / ("x.zip" if content % 2 else "x.tar")
    path.write_bytes(data[: rng.randrange(1, len(data))])
    try:
        [source] = sources([str(path)])
        found = {name: source.read(name) for name in source.names()}
    except (SourceError, MissingExtraError):
        return
    for name, got in found.items():
        assert held[name].startswith(got)
