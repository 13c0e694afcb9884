"""Paddle's files: whose rank, which window, which format; and what was before 2.3."""

import gzip

import pytest
from paddle_files import (
    Host,
    Recording,
    as_json,
    as_pb,
    as_profile,
    as_timeline,
    small,
)
from paddle_traces import codes, find, named, read, rows, write

import traceconv
from traceconv.core.clock import Domain
from traceconv.core.errors import RankError


@pytest.mark.parametrize(
    ("worker", "rank", "host"),
    [
        ("rank3", 3, ""),
        ("job_rank_12", 12, ""),
        ("trainer4", 4, ""),
        ("worker-5", 5, ""),
        ("single_rank0", 0, ""),
        ("worker1_rank9", 9, ""),
        ("Rank7", 7, ""),
        ("frank2", None, ""),
        ("myrun", None, ""),
        ("host_node-worker3pid_77", None, "node-worker3"),
        ("host_rank1.clusterpid_5", None, "rank1.cluster"),
    ],
)
@pytest.mark.parametrize("form", [as_json, as_pb])
def test_rank_is_what_the_worker_was_named(tmp_path, worker, rank, host, form):
    """A name given by the user may say the rank; the name of a host does not."""
    ((capture,), _) = find(write(tmp_path, worker, form(small())))
    assert (capture.rank, capture.host, capture.pid) == (rank, host, 100)
    assert capture.clock.domain is Domain.UNIX


@pytest.mark.parametrize("form", [as_json, as_pb])
@pytest.mark.parametrize("packed", [False, True])
def test_content_is_enough(tmp_path, form, packed):
    """Files of any name are known by their first bytes, packed or not."""
    data = form(small())
    data = data.encode() if isinstance(data, str) else data
    (tmp_path / "any").write_bytes(gzip.compress(data) if packed else data)
    assert len(rows(read(tmp_path / "any"))) == 19


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"traceEvents": []}',
        b"\n\x03abc",
        b"\n\n\n\n",
        b"plain text",
        bytes(range(64)),
    ],
)
def test_other_files_are_left_alone(tmp_path, data):
    """What is not Paddle's is not claimed."""
    (tmp_path / "any.json").write_bytes(data)
    assert find(tmp_path)[0] == []


def later(seconds, index):
    """A small window some time after the first."""
    moved = seconds * 10**9
    host = Host(f"ProfileStep#{index}", "ProfileStep", moved, moved + 5_000)
    return Recording([host], span_index=index)


def test_windows_of_a_process_are_one_rank(tmp_path):
    """In the order of their times, whatever their names; between them nothing is known."""
    write(tmp_path, "rank0", as_json(later(9, 2)), second=0)
    write(tmp_path, "rank0", as_json(later(0, 0)), second=3)
    write(tmp_path, "rank0", as_pb(later(4, 1)), second=2)
    (trace,) = traceconv.open(str(tmp_path)).traces()
    assert trace.events.step.tolist() == [0, 1, 2]
    assert len(trace.windows) == 3


def test_one_broken_window_does_not_cost_the_others(tmp_path):
    """Its loss is booked."""
    write(tmp_path, "rank0", as_json(later(0, 0)), second=0)
    broken = as_json(later(9, 1))
    write(tmp_path, "rank0", broken[: broken.index('"ph"')], second=1)
    (trace,) = traceconv.open(str(tmp_path)).traces()
    assert (trace.events.step.tolist(), codes(trace)["window-failed"]) == ([0], 1)


def test_json_beside_its_protobuf_is_not_read(tmp_path):
    """One recording in both formats counts once; the exact one is taken."""
    text = write(tmp_path, "rank0", as_json(small()), second=1)
    raw = write(tmp_path, "rank0", as_pb(small()), second=2)
    ((capture,), issues) = find(tmp_path)
    assert (capture.files, capture.known) == ((raw.name,), (text.name,))
    assert issues.count("repeated-content") == 1


def test_json_of_another_process_is_read(tmp_path):
    """Only files of one worker can hold one recording."""
    write(tmp_path, "rank0", as_json(small()))
    write(tmp_path, "rank1", as_pb(small()))
    assert [c.rank for c in find(tmp_path)[0]] == [0, 1]


def test_windows_that_claim_one_time_are_refused(tmp_path):
    """Two files of one worker and process about the same time cannot both be its windows."""
    write(tmp_path, "rank0", as_json(small()), second=1)
    write(tmp_path, "rank0", as_json(small()), second=2)
    with pytest.raises(RankError, match="rank 0 is claimed twice"):
        traceconv.open(str(tmp_path))


def test_exports_of_one_name_are_one_recording(tmp_path):
    """``Profiler.export`` takes any name; the same in both formats is the same recording."""
    (tmp_path / "mine.json").write_text(as_json(small()))
    (tmp_path / "mine.pb").write_bytes(as_pb(small()))
    ((capture,), _) = find(tmp_path)
    assert capture.files == ("mine.pb",)


# -- before 2.3 ----------------------------------------------------------------------------


def test_old_profiles_are_read(tmp_path):
    """A ``Profile`` message has the same events in other words; a few bytes tell it from others."""
    (tmp_path / "profile").write_bytes(as_profile(small()))
    (tmp_path / "new").write_bytes(as_pb(small()))
    old, new = rows(read(tmp_path / "profile")), rows(read(tmp_path / "new"))
    assert sorted(r[4:8] for r in old) == sorted(r[4:8] for r in new)


def test_old_timelines_are_a_thousand_times_shorter(tmp_path, monkeypatch):
    """``timeline.py`` wrote nanoseconds; every trainer in it is a rank."""
    monkeypatch.setattr("traceconv.readers.paddle.old.BLOCK_BYTES", 97)
    text = as_timeline({"trainer2": small(), "trainer5": Recording([Host("x", "Forward", 5, 9)])})
    (tmp_path / "timeline").write_text(text)
    first, second = traceconv.open(str(tmp_path / "timeline")).traces()
    assert ((first.rank, second.rank), named(second, "x")) == ((2, 5), [(5, 4)])
    (tmp_path / "profile").write_bytes(as_profile(small()))
    assert sorted(r[4:8] for r in rows(first)) == sorted(
        r[4:8] for r in rows(read(tmp_path / "profile"))
    )
