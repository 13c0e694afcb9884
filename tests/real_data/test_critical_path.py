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


def test_steps_that_do_not_follow_from_what_was_recorded_have_no_path():
    """Two ranks of a larger job, whose groups have other members."""
    assert "replayed steps differ from the recorded ones" in path(*HTA).why


def test_collectives_bound_the_clocks_of_a_pair():
    """Four operations that the ranks of one host share: their clocks are within 2.4 ms. Who came
    last to the long ones is certain then, if there are no other ranks."""
    whys = {one.why for one in path(*PAIR).path.segments if one.kind}
    assert whys == {"how many members the group has is unknown"}
    found = path(*PAIR, world_size=2)
    assert 20 < found["steps"]["Certain(%)"][0] < 50


def test_two_processes_of_one_report():
    """It marks no steps, and has one clock: a step ends where its communication repeats."""
    found = path(NSIGHT)
    assert len(found.path.steps) == 31
    assert found["steps"]["Certain(%)"].mean() > 90


def test_two_mindspore_ranks_of_one_host():
    """Rank 1 ends every step. Nothing states how many ranks there are, so nobody knows whether a
    third was waited for."""
    found = path(MINDSPORE)
    table = found["steps"]
    assert table["Step"].tolist() == [1, 2, 3, 4]
    assert set(table["Last Rank"].tolist()) == {1}
    assert table["Length(ns)"].tolist()[0] == pytest.approx(57_520_000, abs=30_000)
    assert (table["Certain(%)"] < 15).all()


def test_two_mindspore_ranks_that_are_all():
    """Their clocks agree within 2 µs, and rank 0 came last to the first all-reduce."""
    found = path(MINDSPORE, world_size=2)
    assert found["steps"]["Certain(%)"].tolist() == [100, 100, 100, 100]
    assert found["steps"]["Jump Count"].tolist() == [1, 1, 1, 0]


def test_an_error_that_is_said_makes_a_path_of_the_pair():
    """The size of the group is not stated, so nothing is certain."""
    found = path(*PAIR, clock_error_ns="50us")
    table = found["steps"]
    assert table["Step"].tolist() == [50]
    assert table["Certain(%)"].tolist() == [0]
    whys = {one.why for one in found.path.segments if one.kind}
    assert whys == {"how many members the group has is unknown"}


def test_a_short_capture_whose_ranks_share_a_hundred_operations():
    """Five operations of a step's end and eighty within: the stamps agree with all of them."""
    found = path("field/insight/align_short_one_host")
    assert set(found["steps"]["Last Rank"].tolist()) == {3}
    assert found["steps"]["Certain(%)"].min() > 85
