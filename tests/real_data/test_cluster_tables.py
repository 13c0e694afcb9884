"""Clusters that only have the tables of cluster tools, compared by ``csv`` and ``json``."""

import csv
import json
from collections import defaultdict
from decimal import Decimal
from statistics import median

import pytest
from paths import DATA

import traceconv

CLUSTERS = [
    DATA / "ascend/msprof-analyze/resource/advisor/cluster_analysis_output",
    DATA / "ascend/msinsight/server/src/test/test_data/cluster_analysis_output",
]


@pytest.mark.parametrize("folder", CLUSTERS, ids=lambda path: path.parts[-4])
def test_ranks_of_a_cluster(folder):
    """Means over the steps of each rank, and its own time next to the median."""
    lengths = defaultdict(list)
    with (folder / "cluster_step_trace_time.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["Type"] == "rank":
                names = ("Computing", "Communication(Not Overlapped)", "Free")
                lengths[int(row["Index"])].append([Decimal(row[name]) * 1000 for name in names])
    table = traceconv.stats(str(folder), by="cluster")["cluster"].columns
    assert table["Rank"].tolist() == sorted(lengths)
    own = []
    for rank, steps, *figures in zip(
        *(table[key].tolist() for key in ("Rank", "Steps", "Computing(ns)",
          "Exposed Communication(ns)", "Idle(ns)", "Step Time(ns)", "Own Time(ns)")), strict=True
    ):  # fmt: skip
        means = [sum(column) / len(column) for column in zip(*lengths[rank], strict=True)]
        whole, alone = sum(means), means[1]
        assert steps == len(lengths[rank])
        assert figures == pytest.approx(
            [*map(float, (*means, whole, whole - alone))], abs=2
        )  # of parts in whole ns
        own.append(float(whole - alone))
    above = [value - median(own) for value in own]
    assert table["Own Above Median(ns)"].tolist() == pytest.approx(above, abs=2)


def test_bandwidth_of_a_cluster():
    """Bytes and time of each rank and transport, each operation once."""
    sums = defaultdict(lambda: [0, Decimal(0), Decimal(0)])
    said = json.loads((CLUSTERS[1] / "cluster_communication.json").read_text(), parse_float=Decimal)
    operations = [pair for steps in said.values() for of in steps.values() for pair in of.items()]
    for name, ranks in operations:
        for rank, about in ranks.items() if name != "Total Op Info" else ():
            for over, sent in about["Communication Bandwidth Info"].items():
                size, time = (Decimal(sent[f"Transit {of}"]) for of in ("Size(MB)", "Time(ms)"))
                if size > 0 and time > 0:
                    one = sums[int(rank), over]
                    one[:] = one[0] + 1, one[1] + size, one[2] + time
    table = traceconv.stats(str(CLUSTERS[1]), by="cluster_bandwidth")["cluster_bandwidth"].columns
    keys = ("Rank", "Transport", "Count", "Bytes", "Transit Time(ns)", "Bandwidth(GB/s)")
    columns = (table[key].tolist() for key in keys)
    ours = {(rank, over): rest for rank, over, *rest in zip(*columns, strict=True)}
    assert ours.keys() == sums.keys()
    for key, (count, size, time) in sums.items():
        *sums_of, bandwidth = ours[key]
        wanted = [count, float(size * 10**6), float(time * 10**6)]
        assert sums_of == pytest.approx(wanted, abs=count)  # of whole ns and bytes
        assert bandwidth == pytest.approx(float(size / time), rel=1e-4)
