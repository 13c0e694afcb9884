"""Waiting and moving data of collectives, from the durations of each on all ranks."""

import math
import random

import pytest

from traceconv.analysis.tables import collective
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource

WAIT = next(table for table in collective.TABLES if table.name == "collective_wait")
GROUP = {"Process Group Name": "0", "Process Group Ranks": "[0, 1, 2]", "Group size": 3}
JITTER = random.Random(3).choices(range(0, 5_000, 100), k=60)
SIZES = {"In msg nelems": 250, "Out msg nelems": 250, "dtype": "Float"}


def facts(folder, rank, late_ns, name="allreduce", sizes=SIZES, calls=10, clock_ns=0):
    """Collectives 10 us apart; each ends 1 us after the last rank begins it."""
    build = TraceBuilder(Capture("test", FileSource(folder, "x"), ("x",), rank=rank))
    stream = build.track(Layer.COMM, "Stream 9", device=rank)
    args = {**GROUP, **sizes, "Collective name": name}
    for i in range(calls):
        start = 10_000 * i + JITTER[i] + late_ns
        length = 3_000 + 1_000 - late_ns
        build.slice(stream, clock_ns + start, length, f"nccl:{name}", op=OpClass.COMM, args=args)
    return rank, WAIT.facts(build.finish())


def row(table, rank):
    """The row of a rank as a dictionary."""
    place = table["Rank"].tolist().index(rank)
    return {name: column[place] for name, column in table.items()}


def test_the_shortest_duration_is_transfer_and_the_rest_is_waiting(tmp_path):
    """Rank 2 begins last, and its clock differs: 10 calls move 1000 bytes in 1 us each."""
    ranked = [
        facts(tmp_path, 0, 0),
        facts(tmp_path, 1, 2_000),
        facts(tmp_path, 2, 3_000, clock_ns=5_000_000),
    ]
    table = WAIT.build(ranked)
    for rank, waited in ((0, 30_000), (1, 10_000), (2, 0)):
        found = row(table, rank)
        assert (found["Count"], found["Matched"], found["Ranks Compared"]) == (10, 10, 3)
        assert (found["Transfer Time(ns)"], found["Wait Time(ns)"]) == (10_000, waited)
        assert found["Wait(%)"] == pytest.approx(100 * waited / (waited + 10_000))
        assert found["Transfer Bandwidth(GB/s)"] == 1.0
        assert found["Transfer Bus Bandwidth(GB/s)"] == pytest.approx(4 / 3)


def test_calls_without_a_counterpart_have_no_wait(tmp_path):
    """Rank 1 recorded 50 of the 60 calls of rank 0: the last 10 are only counted."""
    table = WAIT.build([facts(tmp_path, 0, 0, calls=60), facts(tmp_path, 1, 1_000, calls=50)])
    found = row(table, 0)
    assert (found["Count"], found["Matched"]) == (60, 50)
    assert (found["Transfer Time(ns)"], found["Wait Time(ns)"]) == (150_000, 50_000)


@pytest.mark.parametrize("name", ["broadcast", "send"])
def test_operations_that_may_end_before_others_begin_tell_no_wait(tmp_path, name):
    """The root of a broadcast is done before others come."""
    assert facts(tmp_path, 0, 0, name)[1] == {}


def test_one_rank_tells_no_wait(tmp_path):
    """There is nothing to compare with."""
    assert not WAIT.build([facts(tmp_path, 0, 0)])


def test_barriers_wait_and_move_nothing(tmp_path):
    """Without a size the bandwidth is unknown."""
    table = WAIT.build([facts(tmp_path, rank, 1_000 * rank, "barrier", {}) for rank in (0, 1)])
    assert row(table, 0)["Wait Time(ns)"] == 10_000
    assert math.isnan(row(table, 0)["Transfer Bandwidth(GB/s)"])
