"""What bounds operators, beside sums over the rows of the profiler's own table."""

import csv
from collections import Counter, defaultdict

import pytest
from paths import DATA

import traceconv

RANK = DATA / "ascend/msinsight/test/data/pytorch/text/level1/rank0_ascend_pt"
UNITS = {
    "Cube": ["aic_mac"], "Vector": ["aiv_vec"], "Scalar": ["aic_scalar", "aiv_scalar"],
    "MTE1": ["aic_mte1"], "MTE2": ["aic_mte2", "aiv_mte2"], "MTE3": ["aiv_mte3"],
    "FixPipe": ["aic_fixpipe"],
}  # fmt: skip


def test_shares_of_units_are_those_of_kernel_details():
    """Every operator type: tasks, mean blocks, and each unit's share of the time of the cores."""
    wanted = defaultdict(Counter)
    with (RANK / "ASCEND_PROFILER_OUTPUT/kernel_details.csv").open() as file:
        for row in csv.DictReader(file):
            if row["aicore_time(us)"] not in ("", "N/A"):
                sums = wanted[row["Type"], row["Accelerator Core"]]
                sums["tasks"] += 1
                sums["blocks"] += int(row["Block Dim"])
                sums["core"] += float(row["aicore_time(us)"]) + float(row["aiv_time(us)"])
                for unit, counters in UNITS.items():
                    sums[unit] += sum(float(row[f"{counter}_time(us)"]) for counter in counters)
    table = traceconv.stats(str(RANK), by="operator_bound")["operator_bound"].columns
    keys = zip(table["OP Type"].tolist(), table["Core Type"].tolist(), strict=True)
    found = dict(zip(keys, range(len(table["Rank"])), strict=True))
    assert found.keys() == wanted.keys()
    for key, sums in wanted.items():
        at = found[key]
        assert table["Count"][at] == sums["tasks"]
        assert table["Block Dim"][at] == pytest.approx(sums["blocks"] / sums["tasks"])
        shares = {unit: 100 * sums[unit] / sums["core"] for unit in UNITS if sums["core"]}
        for unit, share in shares.items():
            assert table[f"{unit}(%)"][at] == pytest.approx(share, rel=1e-6, abs=1e-6)
        most = max(shares, key=shares.get, default="")
        assert table["Bound"][at] == (most if most and shares[most] >= 80 else "none")
