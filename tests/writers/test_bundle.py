"""Bundles: one Perfetto file per rank in an archive, with a manifest that names them."""

import io
import json
import tarfile

import pytest
from decoded import decode
from small_jobs import job

import traceconv
from traceconv import SizeLimit
from traceconv.writers import Capacity
from traceconv.writers.bundle import BundleWriter


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """Three ranks."""
    return str(job(tmp_path_factory.mktemp("job"), 3, 900))


def merged(capture, path, **options):
    """A merge to ``path`` in detail mode."""
    return traceconv.merge(capture, out=str(path), mode="detail", **options)


def members(path):
    """The members of an archive: name -> content, in their order."""
    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}


def test_every_rank_is_a_member(capture, tmp_path):
    """Beside the manifest and the facts of the run."""
    merged(capture, tmp_path / "b.tar")
    assert list(members(tmp_path / "b.tar")) == [
        "perfetto_manifest.json",
        "facts.pftrace",
        "rank-0.pftrace",
        "rank-1.pftrace",
        "rank-2.pftrace",
    ]


def test_the_manifest_names_machines_and_offsets(capture, tmp_path):
    """Its first bytes are what the viewer knows it by."""
    merged(capture, tmp_path / "b.tar", ranks=[0, 2])
    content = members(tmp_path / "b.tar")["perfetto_manifest.json"]
    assert content.startswith(b'{"perfetto_manifest"')
    assert json.loads(content)["perfetto_manifest"] == {
        "version": 1,
        "files": [
            {"path": "rank-0.pftrace", "machine": {"name": "rank 0"}},
            {
                "path": "rank-2.pftrace",
                "machine": {"name": "rank 2"},
                "clocks": {"sync_to": {"file": "rank-0.pftrace"}, "offset_ns": 0},
            },
        ],
    }


def test_a_bundle_shows_what_one_file_shows(capture, tmp_path):
    """The same slices at the same times."""
    merged(capture, tmp_path / "b.tar")
    merged(capture, tmp_path / "b.pftrace")
    bundle, file = (decode(tmp_path / f"b.{e}") for e in ("tar", "pftrace"))
    assert _seen(bundle) == _seen(file)
    assert bundle.counts() == file.counts()


def _seen(decoded):
    rows = decoded.rows
    columns = (rows.ts.tolist(), rows.dur.tolist(), rows.name, rows.category, rows.track)
    return sorted(zip(*columns, strict=True))


def test_validate_judges_every_member(capture, tmp_path):
    """A rank whose events are not what its head says is found."""
    merged(capture, tmp_path / "b.tar")
    assert traceconv.validate(tmp_path / "b.tar").ok
    content = members(tmp_path / "b.tar")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            kept = data if name != "rank-1.pftrace" else data[:-4000]
            info.size = len(kept)
            archive.addfile(info, io.BytesIO(kept))
    (tmp_path / "cut.tar").write_bytes(packed.getvalue())
    verdict = traceconv.validate(tmp_path / "cut.tar")
    assert (verdict.ok, {p.split(":")[0] for f in verdict.findings for p in f.places}) == (
        False,
        {"rank-1.pftrace"},
    )


def test_a_member_stands_alone(capture, tmp_path):
    """Taken out of the archive, it is a trace of its own, on the clock of the others."""
    merged(capture, tmp_path / "b.tar")
    (tmp_path / "r.pftrace").write_bytes(members(tmp_path / "b.tar")["rank-1.pftrace"])
    assert traceconv.validate(tmp_path / "r.pftrace").ok
    alone, all_of_them = (decode(tmp_path / n) for n in ("r.pftrace", "b.tar"))
    assert set(_seen(alone)) <= set(_seen(all_of_them))


def test_bundles_are_equal_bytes(capture, tmp_path):
    """No time, no owner, and workers make no difference."""
    merged(capture, tmp_path / "a.tar", jobs=1)
    merged(capture, tmp_path / "b.tar", jobs=3)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as archive:
        owners = {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in archive.getmembers()}
    assert owners == {(0, 0, 0, "", "")}


@pytest.mark.parametrize("policy", ["reduce", "split"])
def test_a_limit_is_that_of_the_archive(capture, tmp_path, policy):
    """However it is kept."""
    report = merged(capture, tmp_path / "b.tar", limit=SizeLimit(100_000, policy=policy))
    assert [w.path for w in report.written if w.bytes > 100_000] == []
    assert all(traceconv.validate(w.path).ok for w in report.written)


def test_members_stay_below_what_the_viewer_opens(capture, tmp_path, monkeypatch):
    """Without any limit asked for, a rank too large is reduced, and the report says so."""
    whole = merged(capture, tmp_path / "a.tar", jobs=1)
    largest = max(map(len, members(tmp_path / "a.tar").values()))
    monkeypatch.setattr(BundleWriter, "member_capacity", Capacity(largest - 2000))
    report = merged(capture, tmp_path / "b.tar", jobs=1)
    assert max(map(len, members(tmp_path / "b.tar").values())) <= largest - 2000
    assert report.dropped and not whole.dropped
    assert traceconv.validate(tmp_path / "b.tar").ok
