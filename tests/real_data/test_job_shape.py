"""Coordinates of real jobs: those their files state, and that others are unknown."""

import pytest
from paths import DATA

import traceconv
from traceconv.core.errors import SelectionError

KINETO = "gpu/kineto/"


def shape(*names):
    return traceconv.open(*(str(DATA / name) for name in names)).shape


def test_ranks_of_an_ascend_job_of_two_stages():
    """Ranks 1 and 3 of 4: rank 1 lists no group of "dp", but one of "dp_cp", and cp is 1."""
    found = shape("ascend/msinsight/test/st/level2")
    assert [(axis.name, axis.size) for axis in found.axes] == [
        ("dp", 2), ("pp", 2), ("cp", 1), ("ep", 1), ("tp", 1),
    ]  # fmt: skip
    assert found.values.tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]
    assert [found.label(rank) for rank in (1, 3)] == ["dp1 pp0", "dp1 pp1"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "names",
    [
        (KINETO + "hta_sampled_rank-0.json.gz", KINETO + "hta_sampled_rank-1.json.gz"),
        (KINETO + "hta_nccl_data_rank0of2.json.gz",),
        (KINETO + "tracelens_b200_eager_rank0of8.json.gz",),
        (KINETO + "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",),
        ("gpu/nsys/mfu_2gpu_after.sqlite",),
        ("ascend/msinsight/test/data/pytorch/text/level1",),
    ],
    ids=["hta", "two", "b200", "gloo", "nsys", "level1"],
)
def test_jobs_whose_files_state_nothing(names):
    """Groups without a description, or no groups: nothing is known, and nothing inferred."""
    assert shape(*names).names == ()
    for axis in ("tp", "dp", "pp"):
        with pytest.raises(SelectionError, match=f"{axis} is unknown"):
            traceconv.stats(*(str(DATA / name) for name in names), by="step", group_by=axis)


@pytest.mark.parametrize(
    "name",
    ["ascend/msinsight/test/data/pytorch/db/level1", "ascend/mindinsight/profiler", "gpu/xplane"],
)
def test_ranks_of_one_host(name):
    """Its name is recorded; nothing else is."""
    found = shape(name)
    assert (found.names, found.size("node")) == (("node",), 1)
