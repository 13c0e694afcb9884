"""What memory holds at its peak, against the totals that the allocators state themselves."""

import csv
import gzip
import json
from decimal import Decimal

import pytest
from paths import ASCEND, GPU

import traceconv

TEXT = ASCEND / "msinsight/test/data/pytorch/text"


def held(path):
    """Bytes at the peak by device, without what is only reserved."""
    table = traceconv.stats(str(path), by="memory_live")["memory_live"].columns
    columns = (table[name].tolist() for name in ("Device", "Operator", "Bytes"))
    found = {}
    for device, operator, n_bytes in zip(*columns, strict=True):
        if not operator.startswith("(reserved"):
            found[device] = found.get(device, 0) + n_bytes
    return found


@pytest.mark.parametrize("rank", ["level0/rank0", "level1/rank0", "level1/rank1"])
def test_the_peak_is_the_largest_total_of_each_allocator(rank):
    """operator_memory.csv: PyTorch's own allocator, and that of the graph engine."""
    folder = TEXT / f"{rank}_ascend_pt"
    most = {"PTA": Decimal(0), "GE": Decimal(0)}
    with (folder / "ASCEND_PROFILER_OUTPUT/operator_memory.csv").open() as file:
        for row in csv.DictReader(file):
            allocator = "GE" if row["Name"].startswith("cann::") else "PTA"
            total = Decimal(row["Allocation Total Allocated(MB)"]) * 1024 * 1024
            most[allocator] = max(most[allocator], total)
    assert {device.split()[-1]: n_bytes for device, n_bytes in held(folder).items()} == most


def test_the_peak_is_the_largest_total_of_pytorch():
    """Records of profile_memory, by device."""
    path = GPU / "kineto/tracelens_h100_bert_small.json.gz"
    with gzip.open(path) as file:
        records = [e["args"] for e in json.load(file)["traceEvents"] if e["name"] == "[memory]"]
    most = {
        device: max(r["Total Allocated"] for r in records if r["Device Type"] == kind)
        for kind, device in ((0, "CPU"), (1, "GPU 0"))
    }
    assert held(path) == most
