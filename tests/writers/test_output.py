"""The output loop: whole files or none."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, OutputError, TraceconvError
from traceconv.core.model import Capture, Layer, Trace
from traceconv.io.sources import FileSource
from traceconv.writers import Costs, Document, Part, Plan, output


class Lines:
    """A writer small enough to see through."""

    name = "lines"
    title = "one line per rank"
    suffixes = (".ln.gz", ".ln")

    def __init__(self) -> None:
        self.issues = Issues()

    def begin(self, document: Document) -> bytes:
        return b"begin\n"

    def trace(self, trace: Trace) -> Iterator[bytes]:
        self.issues.add("value-clipped", rank=trace.rank)
        yield b"rank "
        yield b"%d\n" % trace.rank

    def end(self) -> bytes:
        return b"end\n"

    def costs(self, trace: Trace, document: Document) -> Costs:
        raise NotImplementedError


class SpilledRank:
    """A rank that keeps account of who is loaded."""

    loaded: ClassVar[list[int]] = []

    def __init__(self, rank: int, broken: bool = False) -> None:
        self.rank = rank
        self._broken = broken

    def load(self) -> Trace:
        if self._broken:
            raise TraceconvError("broken")
        self.loaded.append(self.rank)
        build = TraceBuilder(Capture("test", FileSource(Path("x"), "x"), (), self.rank))
        build.slice(build.track(Layer.HOST, "t"), 0, 1, "x")
        return build.finish()

    def release_pages(self) -> None:
        self.loaded.remove(self.rank)


def plan(*ranks: int, parts: int = 1, **options: Any) -> Plan:
    part = Part(Document(0, ranks), [SpilledRank(r) for r in ranks])
    return Plan((part,) * parts, **options)


def inside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


WHOLE = b"begin\nrank 0\nrank 1\nend\n"


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    """Begin, every rank, end; and nothing else in the folder."""
    path = tmp_path / "out.ln"
    (written,) = output.write(plan(0, 1), Lines, str(path))
    assert path.read_bytes() == WHOLE
    assert inside(tmp_path) == ["out.ln"]
    assert (written.path, written.bytes, written.content) == (str(path), len(WHOLE), len(WHOLE))
    assert (written.ranks, written.counts["slice"]) == ((0, 1), 2)
    assert written.issues.count("value-clipped") == 2


def test_what_was_written_is_json(tmp_path: Path) -> None:
    """The report takes it as it is."""
    (written,) = output.write(plan(0), Lines, str(tmp_path / "out.ln"))
    assert written.as_dict()["counts"] == {"slice": 1, "instant": 0, "counter": 0, "flow": 0}


def test_traces_are_given_back(tmp_path: Path) -> None:
    """One rank at a time is in memory."""
    output.write(plan(0, 1), Lines, str(tmp_path / "out.ln"))
    assert SpilledRank.loaded == []


def test_gzip_follows_the_name(tmp_path: Path) -> None:
    """Compressed content is the same content."""
    path = tmp_path / "out.ln.gz"
    (written,) = output.write(plan(0, 1), Lines, str(path))
    assert gzip.decompress(path.read_bytes()) == WHOLE
    assert (written.bytes, written.content) == (path.stat().st_size, len(WHOLE))


def test_gzip_is_deterministic(tmp_path: Path) -> None:
    """No name and no time in it."""
    paths = [tmp_path / "a.ln.gz", tmp_path / "b.ln.gz"]
    for path in paths:
        output.write(plan(0, 1), Lines, str(path))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash writes bytes there and closes nothing."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=raw))
    (written,) = output.write(plan(0, 1), Lines, "-")
    assert (raw.getvalue(), written.path) == (WHOLE, "-")


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    """Without force; the message names the option."""
    path = tmp_path / "out.ln"
    path.write_text("old")
    with pytest.raises(OutputError, match="force=True"):
        output.write(plan(0), Lines, str(path))
    assert path.read_text() == "old"


def test_force_overwrites(tmp_path: Path) -> None:
    """The old file is replaced in one go."""
    path = tmp_path / "out.ln"
    path.write_text("old")
    output.write(plan(0, 1), Lines, str(path), force=True)
    assert path.read_bytes() == WHOLE


def test_a_link_is_followed(tmp_path: Path) -> None:
    """Force replaces the file a link points to, not the link."""
    target, link = tmp_path / "target.ln", tmp_path / "link.ln"
    target.write_text("old")
    link.symlink_to(target)
    output.write(plan(0, 1), Lines, str(link), force=True)
    assert (link.is_symlink(), target.read_bytes()) == (True, WHOLE)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """Folders are not created silently."""
    with pytest.raises(OutputError, match="missing does not exist"):
        output.write(plan(0), Lines, str(tmp_path / "missing" / "out.ln"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """Said before anything is read."""
    with pytest.raises(OutputError, match="is a folder"):
        output.check(str(tmp_path), force=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    """Said before anything is read."""
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="not writable"):
        output.check(str(tmp_path / "out.ln"))


def test_a_name_no_system_takes_is_an_output_error() -> None:
    """Also where the system complains in its own way."""
    with pytest.raises(OutputError):
        output.write(plan(0), Lines, "bad\0name.ln")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_an_output_error() -> None:
    """And the device stays what it is."""
    with pytest.raises(OutputError, match="No space left"):
        output.write(plan(0), Lines, "/dev/full")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_device_is_written_not_replaced() -> None:
    """``-o /dev/null`` is for timing; it must survive even a run by root."""
    (written,) = output.write(plan(0, 1), Lines, os.devnull)
    assert written.bytes == len(WHOLE)
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_failed_run_leaves_nothing(tmp_path: Path) -> None:
    """An error on the second rank removes what the first had written."""
    part = Part(Document(0, (0, 1)), [SpilledRank(0), SpilledRank(1, broken=True)])
    with pytest.raises(TraceconvError, match="broken"):
        output.write([part], Lines, str(tmp_path / "out.ln"))
    assert inside(tmp_path) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Nor does Ctrl-C."""

    def interrupt(done: int, total: int, label: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        output.write(plan(0), Lines, str(tmp_path / "out.ln"), progress=interrupt)
    assert inside(tmp_path) == []


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    """The name is asked for again at the end."""
    path = tmp_path / "out.ln"

    def meddle(done: int, total: int, label: str) -> None:
        path.write_text("other")

    with pytest.raises(OutputError, match="meanwhile"):
        output.write(plan(0), Lines, str(path), progress=meddle)
    assert (path.read_text(), inside(tmp_path)) == ("other", ["out.ln"])


def test_permissions_follow_the_mask(tmp_path: Path) -> None:
    """As of any file the user makes."""
    path = tmp_path / "out.ln"
    old = os.umask(0o027)
    try:
        output.write(plan(0), Lines, str(path))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_parts_are_numbered(tmp_path: Path) -> None:
    """Before the whole suffix the format knows."""
    done = output.write(plan(0, parts=3), Lines, str(tmp_path / "my.run.ln.gz"))
    names = [Path(w.path).name for w in done]
    assert names == ["my.run-001.ln.gz", "my.run-002.ln.gz", "my.run-003.ln.gz"]
    assert inside(tmp_path) == names


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.ln", "a-002.ln"),
        ("a.b/c", "a.b/c-002"),
        ("run.unknown", "run-002.unknown"),
        ("run.unknown.gz", "run.unknown-002.gz"),
    ],
)
def test_part_names(path: str, expected: str) -> None:
    """Unknown endings are endings too."""
    assert output.part_paths(path, 3, Lines.suffixes)[1] == expected


def test_no_part_is_overwritten(tmp_path: Path) -> None:
    """One that exists stops all, before anything is written."""
    (tmp_path / "out-002.ln").write_text("old")
    with pytest.raises(OutputError, match=r"out-002\.ln: exists"):
        output.write(plan(0, parts=2), Lines, str(tmp_path / "out.ln"))
    assert inside(tmp_path) == ["out-002.ln"]


def test_a_failing_part_takes_the_others_along(tmp_path: Path) -> None:
    """All parts get their names, or none."""
    good = Part(Document(0, (0,)), [SpilledRank(0)])
    bad = Part(Document(0, (0,)), [SpilledRank(0, broken=True)])
    with pytest.raises(TraceconvError):
        output.write([good, bad], Lines, str(tmp_path / "out.ln"))
    assert inside(tmp_path) == []


def test_parts_do_not_go_to_one_stream() -> None:
    """They are files of their own."""
    with pytest.raises(OutputError, match="one stream"):
        output.write(plan(0, parts=2), Lines, "-")


def test_the_limit_is_checked_while_writing(tmp_path: Path) -> None:
    """Costs that promise too little are a fault of ours, and nothing is left of the file."""
    with pytest.raises(TraceconvError, match="internal error"):
        output.write(plan(0, 1, max_bytes=len(WHOLE) - 1), Lines, str(tmp_path / "out.ln"))
    assert inside(tmp_path) == []


def test_the_limit_counts_bytes_before_compression(tmp_path: Path) -> None:
    """A viewer holds the content, not the file."""
    output.write(plan(0, 1, max_bytes=len(WHOLE)), Lines, str(tmp_path / "out.ln.gz"))
    with pytest.raises(TraceconvError):
        output.write(plan(0, 1, max_bytes=len(WHOLE) - 1), Lines, str(tmp_path / "b.ln.gz"))


def test_progress_counts_bytes(tmp_path: Path) -> None:
    """Every block is told once, with what is expected."""
    told: list[tuple[int, int, str]] = []
    output.write(
        plan(0, 1, predicted=99), Lines, str(tmp_path / "a.ln"), progress=lambda *a: told.append(a)
    )
    assert sum(done for done, _, _ in told) == len(WHOLE)
    assert {(total, label) for _, total, label in told} == {(99, "writing a.ln")}
