"""Critical paths of real ranks: they tile the steps, and claim no more than the captures show."""

import pytest
from paths import DATA

import traceconv

HTA = tuple(f"gpu/kineto/hta_sampled_rank-{rank}.json.gz" for rank in (0, 1))
PAIR = ("ascend/msinsight/test/data/pytorch/text/level1",)
MINDSPORE = "ascend/mindinsight/profiler"
NSIGHT = "gpu/nsys/mfu_2gpu_after.sqlite"


def path(*names, **how):
    """That of some captures; its tables add up."""
    found = traceconv.critical_path(*(str(DATA / name) for name in names), **how)
    lengths = sum(end - start for start, end, _ in found.path.steps.values())
    for table in found.results:
        assert not len(table.data) or table.data["Length(ns)"].sum() == lengths
    for one in found.path.segments:
        assert sum(one.parts) == one.end_ns - one.start_ns
    return found


def test_clocks_of_unknown_error_have_no_path():
    """Stamps of Unix time, nothing says how well the clocks agree, and no group is on both."""
    assert "unknown error" in path(*HTA).why


def test_collectives_bound_the_clocks_of_a_pair():
    """Four operations that the ranks of one host share: their clocks are within 2.4 ms. Who came
    last to the long ones is certain then, if there are no other ranks."""
    whys = {one.why for one in path(*PAIR).path.segments if one.kind}
    assert whys == {"how many members the group has is unknown"}
    found = path(*PAIR, world_size=2)
    assert 20 < found["steps"]["Certain(%)"][0] < 50


def test_two_processes_without_steps_have_none():
    """The report marks no steps."""
    assert "nothing marks its steps" in path(NSIGHT).why


def test_two_mindspore_ranks_of_one_host():
    """Rank 1 ends every step; the first took 57.533 ms there, most of it in one all-reduce of which
    too few are recorded to say which is which, so nothing before it is certain."""
    found = path(MINDSPORE)
    table = found["steps"]
    assert table["Step"].tolist() == [1, 2, 3, 4]
    assert set(table["Last Rank"].tolist()) == {1}
    assert table["Length(ns)"].tolist()[0] == pytest.approx(57_532_960, abs=1000)
    assert (table["Communication(ns)"] > table["Compute(ns)"]).all()
    assert table["Jump Count"].sum() == 0
    assert (table["Certain(%)"] < 15).all()


def test_two_mindspore_ranks_that_are_all():
    """Nothing in their captures says so. Their clocks agree within 2 µs, and rank 1 came last to
    the first all-reduce 9.94 ms after rank 0 began its step there."""
    found = path(MINDSPORE, world_size=2)
    assert found["steps"]["Certain(%)"].tolist() == [100, 100, 100, 100]
    assert found["steps"]["Jump Count"].tolist() == [1, 1, 1, 0]


def test_an_error_that_is_said_makes_a_path_of_the_pair():
    """Rank 1 ends step 50; the size of the group is not stated, so nothing is certain."""
    found = path(*PAIR, clock_error_ns="50us")
    table = found["steps"]
    assert table["Step"].tolist() == [50]
    assert table["Last Rank"].tolist() == [1]
    assert table["Certain(%)"].tolist() == [0]
    assert {one.why for one in found.path.segments if one.kind} == {
        "how many members the group has is unknown"
    }
