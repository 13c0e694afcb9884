"""Tables of clusters of which only the tables of cluster tools exist."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import traceconv

HEADER = (
    "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,"
    "Bubble,Communication(Not Overlapped and Exclude Receive),Preparing"
)
GROUP = "(0, 1, 2)"


def operation(elapse_ms, size_mb, transit_ms, link="HCCS"):
    """A rank's part of a collective: two sizes of packages share the sums of the transport."""
    times = {"Start Timestamp(us)": 10, "Elapse Time(ms)": elapse_ms, "Wait Time(ms)": 0.5,
             "Transit Time(ms)": transit_ms, "Synchronization Time(ms)": 0.25,
             "Idle Time(ms)": 0}  # fmt: skip
    sizes = {"1.0": [2, transit_ms / 2], "2.0": [1, transit_ms / 2]}
    over = {"Transit Size(MB)": size_mb, "Transit Time(ms)": transit_ms,
            "Bandwidth(GB/s)": size_mb / transit_ms, "Size Distribution": sizes}  # fmt: skip
    return {"Communication Time Info": times, "Communication Bandwidth Info": {link: over}}


@pytest.fixture
def cluster(tmp_path):
    """Three ranks, two steps; rank 2 computes longer, and its link is slow."""
    folder = tmp_path / "cluster_analysis_output"
    folder.mkdir()
    rows = [HEADER]
    for step in (1, 2):
        for rank, computing in enumerate((100, 100, 160)):
            exposed = 80 - (computing - 100)
            rows.append(
                f"{step},rank,{rank},{computing},{exposed},0,{exposed},20,200,0,{exposed},0"
            )
    (folder / "cluster_step_trace_time.csv").write_text("\n".join(rows) + "\n")
    ranks = {str(r): operation(2.0 + r, 4.0, ms) for r, ms in enumerate((1.0, 1.0, 4.0))}
    said = {GROUP: {f"step{step}": {"hcom_allReduce__1_0@9": ranks} for step in (1, 2)}}
    (folder / "cluster_communication.json").write_text(json.dumps(said))
    return str(folder)


def test_a_slow_rank_stands_above_the_median(cluster):
    """Its own time is the step without communication that others cause: 180 of 200 us, not 120."""
    table = traceconv.stats(cluster, by="cluster")["cluster"]
    assert table["Rank"].tolist() == [0, 1, 2]
    assert table["Steps"].tolist() == [2, 2, 2]
    assert table["Step Time(ns)"].tolist() == [200_000] * 3
    assert table["Own Time(ns)"].tolist() == [120_000, 120_000, 180_000]
    assert table["Own Above Median(ns)"].tolist() == [0, 0, 60_000]
    assert table["Own Above Median(%)"].tolist() == [0, 0, 30]


SUMMARY = {
    "rank": "Rank", "step": "Step", "stepTime": "Step Time(us)", "computation": "Computation(us)",
    "communicationNotOverlapComputation": "Communication Not Overlap Computation(us)",
    "communicationOverlapComputation": "Communication Overlap Computation(us)",
    "communication": "Communication(us)", "free": "Free(us)", "memory": "Memory(us)",
    "memoryNotOverlapComputationCommunication": "Memory Not Overlap Computation Communication(us)",
}  # fmt: skip


@pytest.mark.parametrize("form", ["db", "csv"])
def test_cluster_time_summary_has_the_steps_of_ranks(tmp_path, form):
    """The recipe of msprof-analyze: copies that hide behind nothing are idle time, as elsewhere."""
    folder = tmp_path / "cluster_analysis_output"
    folder.mkdir()
    rows = [(r, 4, 205, busy, 180 - busy, 0, 180 - busy, 15, 8, 5)
            for r, busy in enumerate((100, 100, 160))]  # fmt: skip
    if form == "db":
        with closing(sqlite3.connect(folder / "cluster_analysis.db")) as database, database:
            database.execute(f"CREATE TABLE ClusterTimeSummary ({', '.join(SUMMARY)})")
            database.executemany(f"INSERT INTO ClusterTimeSummary VALUES ({'?,' * 9}?)", rows)
    else:
        lines = [",".join(map(str, row)) for row in (SUMMARY.values(), *rows)]
        path = folder / "ClusterTimeSummary" / "cluster_time_summary_20261126100000.csv"
        path.parent.mkdir()
        path.write_text("\n".join(lines) + "\n")
    stats = traceconv.stats(str(folder), by="overlap,cluster")
    overlap = stats["overlap"]
    assert overlap["Rank"][:3].tolist() == [0, 1, 2]
    assert overlap["Total Compute(ns)"][:3].tolist() == [100_000, 100_000, 160_000]
    assert overlap["Idle(ns)"][:3].tolist() == [20_000] * 3
    assert overlap["Memory Copy Not Overlapped(ns)"][:3].tolist() == [5_000] * 3
    assert stats["cluster"]["Own Above Median(%)"].tolist() == [0, 0, 30]
    assert traceconv.diagnose(str(folder)).findings[0].place() == "rank 2"


def test_a_slow_link_stands_below_the_median(cluster):
    """Both steps, and each operation once, whatever packages it was cut into."""
    table = traceconv.stats(cluster, by="cluster_bandwidth")["cluster_bandwidth"]
    assert table["Transport"].tolist() == ["HCCS"] * 3
    assert table["Count"].tolist() == [2, 2, 2]
    assert table["Bytes"].tolist() == [8_000_000] * 3
    assert table["Bandwidth(GB/s)"].tolist() == [4, 4, 1]
    assert table["Of Median(%)"].tolist() == [100, 100, 25]


def test_operations_are_of_the_ranks_that_the_cluster_table_names(cluster):
    """Per rank, and of all ranks together."""
    stats = traceconv.stats(cluster, by="comm,comm_op")
    kinds = stats["comm"]
    assert kinds["Operation"].tolist() == ["hcom_allReduce"] * 4
    assert kinds["Rank"][:3].tolist() == [0, 1, 2]
    assert kinds["Total Time(ns)"].tolist() == [4_000_000, 6_000_000, 8_000_000, 18_000_000]
    assert kinds["Synchronization Time(ns)"][:3].tolist() == [500_000] * 3
    operations = stats["comm_op"]
    assert len(operations["Rank"]) == 6
    assert np.unique(operations["Step"]).tolist() == [1, 2]


def test_traffic_of_a_cluster_is_of_its_sources(cluster):
    """Its matrix does not say which rank recorded a row."""
    about = {"Transport Type": "RDMA", "Transit Time(ms)": 1.0, "Transit Size(MB)": 4.0}
    said = {"p2p": {"step1": {"hcom_send__1_0@9": {"0-1": about, "2-0": about}}}}
    (Path(cluster) / "cluster_communication_matrix.json").write_text(json.dumps(said))
    table = traceconv.stats(cluster, by="link")["link"]
    rows = zip(table["Rank"].tolist(), table["Source"].tolist(), strict=True)
    assert sorted(row for row in rows if row[0] >= 0) == [(0, 0), (2, 2)]


def test_ranks_with_timelines_have_other_tables(tmp_path):
    """One lone event log has no table of a cluster."""
    log = tmp_path / "trace.json"
    log.write_text('[{"name": "a", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]')
    assert traceconv.stats(str(log), by="cluster_bandwidth").results[0].rows == 0
