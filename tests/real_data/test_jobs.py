"""Recorded captures, merged by several processes and in several runs: the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import DATA
from trace_bytes import content

import traceconv


@pytest.fixture
def alone(four: Path, tmp_path: Path) -> bytes:
    """The merge of four producers by one process."""
    (four / "rank2" / "mfu_2gpu_after.sqlite").unlink()  # of two ranks
    (four / "rank2" / "mock.sqlite").symlink_to(DATA / "gpu/nsys/mock.sqlite")
    return merged(four, tmp_path / "alone.pftrace.gz", jobs=1)


def merged(captures: Path, out: Path, **options: object) -> bytes:
    asked = {"rank_from": r"in/rank(\d)", "mode": "detail", **options}
    traceconv.merge(str(captures), out=str(out), **asked)
    return content(out)


def test_workers_write_the_same(four, alone, tmp_path):
    """Compressed input, a database, a folder, and a log."""
    assert alone == merged(four, tmp_path / "workers.pftrace.gz", jobs=3)


def test_shards_join_to_the_same(four, alone, tmp_path):
    """Without the captures."""
    paths = [tmp_path / f"{i}.shard" for i in range(2)]
    for i, path in enumerate(paths):
        asked = {"rank_from": r"in/rank(\d)", "mode": "detail"}
        traceconv.merge(str(four), out=str(path), shard=(i, 2), **asked)
    out = tmp_path / "joined.pftrace.gz"
    traceconv.join(*map(str, paths), out=str(out))
    assert alone == content(out)
