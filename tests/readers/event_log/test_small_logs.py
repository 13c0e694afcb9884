"""The small log readers: NCCL Inspector, flight recorder, MLPerf; their order."""

import json
from itertools import pairwise

import pytest
from event_logs import booked, found_by

from traceconv.core.builder import TraceBuilder
from traceconv.readers.event_log import mllog
from traceconv.readers.event_log import reader as event_log
from traceconv.readers.torch import flight_recorder, nccl_inspector


def test_other_json_is_no_flight_recorder_dump(tmp_path):
    """A trace that speaks of process groups is left to its own reader."""
    (tmp_path / "x.json").write_text('{"traceEvents":[],"pg_config":{},"pg_status":{}}')
    assert found_by(flight_recorder.READER, tmp_path)[0] == []


def test_two_processes_in_one_inspector_log(tmp_path):
    """Logs that were put together are taken apart by process."""
    lines = [
        {
            "header": {"id": "0x1", "rank": rank, "n_ranks": 2},
            "metadata": {
                "dump_timestamp_us": 17 * 10**14 + rank,
                "hostname": "h",
                "pid": 100 + rank,
            },
            "coll_perf": {"coll": "AllReduce", "coll_exec_time_us": 5},
        }
        for rank in (0, 1)
    ]
    (tmp_path / "all.log").write_text("broken\n".join(json.dumps(line) + "\n" for line in lines))
    captures, issues = found_by(nccl_inspector.READER, tmp_path)
    builds = [TraceBuilder(capture) for capture in captures]
    for build in builds:
        nccl_inspector.READER.read(build.capture, build)
    assert [(c.rank, c.world_size, c.pid) for c in captures] == [(0, 2, 100), (1, 2, 101)]
    assert [len(build.finish().events) for build in builds] == [1, 1]
    assert booked(issues)[0][:2] == ("malformed-record", 1)


@pytest.mark.parametrize(
    ("before", "rank"),
    [("", None), (" 3: ", 3), ("[4] ", 4), ("job | [5]: ", 5), ("12:30:05 INFO ", None)],
)
def test_task_in_front_of_a_line(tmp_path, before, rank):
    """The task a launcher puts in front is the rank; a time of day is not."""
    line = '{"time_ms": 5, "event_type": "POINT_IN_TIME", "key": "seed", "value": 1}'
    (tmp_path / "out.txt").write_text(f"{before}:::MLLOG {line}\n")
    captures, _ = found_by(mllog.READER, tmp_path)
    assert [c.rank for c in captures] == [rank]


def test_readers_of_logs_are_asked_one_after_the_other():
    """Narrow formats first: each has an order of its own, before the reader of any trace event."""
    readers = (nccl_inspector.READER, flight_recorder.READER, mllog.READER, event_log.READER)
    assert all(a.order < b.order < 900 for a, b in pairwise(readers))
    assert event_log.with_mapping("nsys-gpu").order < 100
