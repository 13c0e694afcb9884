"""Coordinates of ranks, from what captures state of their groups."""

import pytest

from traceconv.core.job_shape import (
    Origin,
    ParallelGroup,
    Placement,
    axes_of,
    recorded_shape,
    where,
)


def placed(*groups, sizes=None, **coordinates):
    """What one capture states: groups as (name, members)."""
    listed = tuple(ParallelGroup(name, members, "its list") for name, members in groups)
    return Placement(listed, sizes or {}, coordinates, "its name")


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("tensor_parallel", "tp"),
        ("mesh_tp", "tp"),
        ("tp:0", "tp"),
        ("tp-0-1-2-3", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("DATA_PARALLEL_GROUP_GLOO", "dp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("MODEL_PARALLEL_GROUP", ""),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", ""),
        ("EXPERT_DATA_PARALLEL_GROUP", ""),
        ("EXPERT_TENSOR_PARALLEL_GROUP", ""),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", ""),
        ("EMBEDDING_GROUP", ""),
        ("mesh_dp_shard", ""),
        ("tp_ep", ""),
        ("default_pg", ""),
        ("undefined", ""),
        ("https", ""),
        ("", ""),
    ],
)
def test_a_group_is_of_the_one_axis_that_its_name_names(name, axis):
    """Names of combined groups, and names that say nothing, are of none."""
    assert axes_of(name) == ((axis,) if axis else ())


@pytest.mark.parametrize("name", ["DATA_PARALLEL_GROUP_WITH_CP", "dp_cp"])
def test_data_and_context_together_are_data_where_nothing_is_context_parallel(name):
    """As Megatron-LM, whose groups of both are the ones that are used."""
    assert axes_of(name) == ("dp", "cp")
    members = (1, 3)
    assert recorded_shape({3: placed((name, members))}, {}).column("dp").tolist() == [-1]
    alone = recorded_shape({3: placed((name, members), sizes={"cp": 1})}, {})
    assert (alone.column("dp").tolist(), alone.column("cp").tolist()) == ([1], [0])


def test_the_coordinate_is_the_position_in_the_group():
    """Also of a rank whose own capture lists nothing, and where others have no capture at all."""
    shape = recorded_shape(
        {6: placed(("tp", (6, 7)), ("pp", (2, 6, 10))), 7: placed()}, {6: "a", 7: "b"}
    )
    assert shape.names == ("node", "pp", "tp")
    assert shape.values.tolist() == [[0, 1, 0], [1, -1, 1]]
    assert (shape.stage(6), shape.stage(7), shape.stage(8)) == (1, -1, -1)
    assert (shape.label(6), shape.label(7)) == ("pp1 tp0", "tp1")
    assert shape.ranks_by("pp") == {1: [6], -1: [7]}
    assert shape.line() == (
        "node 2 (recorded: names of hosts); "
        "pp 3 (unknown of 1 of 2 ranks) · tp 2 (recorded: its list)"
    )


@pytest.mark.parametrize(
    "stated",
    [
        {0: placed(("dp", (0, 1))), 1: placed(("dp", (1, 2)))},
        {0: placed(("dp", (0, 1)), ("dp", (0, 2))), 1: placed()},
        {0: placed(("dp", (0, 0, 1, 1))), 1: placed()},
        {0: placed(("dp", (0, 1)), dp=1), 1: placed(("dp", (0, 1)), dp=0)},
        {0: placed(("dp", (0, 1)), sizes={"dp": 4}), 1: placed()},
        {0: placed(("dp", (0, 1)), sizes={"dp": 2}), 1: placed(sizes={"dp": 3})},
        {0: placed(sizes={"dp": 4}), 1: placed(sizes={"dp": 4})},
        {0: placed(dp=2, sizes={"dp": 2}), 1: placed(dp=3)},
    ],
    ids=["crossing", "two", "twice", "contradicted", "size", "sizes", "size-alone", "too-large"],
)
def test_what_contradicts_itself_is_unknown(stated):
    """No value, and a reason."""
    shape = recorded_shape(stated, {})
    axis = shape.axis("dp")
    assert shape.column("dp").tolist() == [-1, -1]
    assert (axis.origin, shape.line()) == (Origin.UNKNOWN, "")
    assert axis.lacking


def test_a_stated_size_of_one_is_the_coordinate_zero():
    """And such an axis is in no label."""
    shape = recorded_shape({r: placed(("tp", (0, 1)), sizes={"cp": 1}) for r in (0, 1)}, {})
    assert shape.column("cp").tolist() == [0, 0]
    assert shape.label(1) == "tp1"


def test_hosts_without_a_name_are_no_nodes():
    """Every container may call itself localhost."""
    assert recorded_shape({0: placed(), 1: placed()}, {0: "localhost", 1: ""}).names == ()
    half = recorded_shape({0: placed(), 1: placed()}, {0: "h", 1: ""})
    assert half.column("node").tolist() == [0, -1]
    assert half.axis("node").lacking


def test_unknown_coordinates_rule_nothing_out():
    """A rank that may be meant is told from those that are."""
    shape = recorded_shape({0: placed(tp=0), 1: placed(tp=1), 2: placed()}, {})
    sure, possible = where(shape, {"tp": [0]})
    assert (sure.tolist(), possible.tolist()) == ([True, False, False], [False, False, True])
    sure, possible = where(shape, {"tp": [0], "pp": [3]})
    assert (sure.tolist(), possible.tolist()) == ([False] * 3, [True, False, True])
