"""Sizes of HCCL's operations, against what the vendor counts on the links."""

import json

import pytest
from paths import ASCEND

import traceconv

RANKS = 8
"""Of the job: parallel_group_info of its metadata."""


@pytest.mark.parametrize("rank", [0, 1])
def test_messages_are_those_that_links_carry(rank):
    """An all-reduce moves 2 (n - 1) / n of its message through each rank."""
    folder = ASCEND / f"msinsight/test/data/pytorch/text/level1/rank{rank}_ascend_pt"
    stated = json.loads((folder / "ASCEND_PROFILER_OUTPUT/communication.json").read_text())
    moved = sorted(
        about["Communication Bandwidth Info"]["HCCS"]["Transit Size(MB)"] * 1e6
        for step in stated.values()
        for name, about in step["collective"].items()
        if name.startswith("hcom_allReduce")
    )
    table = traceconv.stats(str(folder), by="collective")["collective"].columns
    ours = sorted(table["Message(B)"].tolist())
    assert moved == pytest.approx([n * 2 * (RANKS - 1) / RANKS for n in ours], rel=3e-3)
