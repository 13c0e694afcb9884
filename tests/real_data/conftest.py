"""What tests over the captures beside the repository share."""

import json
from pathlib import Path

import pytest
from paths import DATA, NEEDS_DATA

HERE = Path(__file__).parent


LOG = [
    {"rawlog": 1, "unit": "us", "clock": "unix", "rank": 3},
    {"name": "step 7", "ts": 1736408883700000.5, "dur": 9000, "kind": "step", "step": 7},
    {"name": "gemm", "ts": 1736408883701000, "dur": 500.25, "kind": "compute", "stream": 1},
    {"name": "allreduce", "ts": 1736408883701400, "dur": 700, "kind": "comm", "plane": "dp"},
    {"name": "gemm", "ts": 1736408883705000, "dur": 100, "kind": "compute", "stream": 1},
]


def pytest_collection_modifyitems(items):
    """All tests of this folder need the captures."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(NEEDS_DATA)


@pytest.fixture
def four(tmp_path):
    """An Ascend capture, a Kineto file, an Nsight export and a log, a folder each."""
    ascend = DATA / "ascend/msinsight/test/data/pytorch/text/level1/rank1_ascend_pt"
    links = {
        "rank0": DATA / "gpu/kineto/hta_nccl_data_rank0of2.json.gz",
        "rank1": ascend,
        "rank2": DATA / "gpu/nsys/mfu_2gpu_after.sqlite",
    }
    for name, target in links.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / target.name).symlink_to(target)
    (tmp_path / "in/rank3").mkdir()
    text = "\n".join(json.dumps(record) for record in LOG)
    (tmp_path / "in/rank3/log.jsonl").write_text(text)
    return tmp_path / "in"
