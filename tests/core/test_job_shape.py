"""Coordinates of ranks, from what captures state of their groups."""

import numpy as np
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
        ("mesh_dp_shard", "dp_shard"),
        ("mesh_dp_replicate", "dp_replicate"),
        ("mesh_shard", "dp_shard"),
        ("mesh_replicate", "dp_replicate"),
        ("mesh_etp", "etp"),
        ("shard", ""),
        ("shard_group", ""),
        ("mesh_fsdp", ""),
        ("mesh_hsdp", ""),
        ("mesh_dp_shard_in_ep", ""),
        ("mesh_dp_shard_mod_ep", ""),
        ("tp_ep", ""),
        ("default_pg", ""),
        ("undefined", ""),
        ("https", ""),
        ("tp\u00e9", ""),
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


@pytest.mark.parametrize("cp", [None, 1, 2])
def test_shards_and_context_together_are_shards_where_nothing_is_context_parallel(cp):
    """As torchtitan, which always calls it so."""
    assert axes_of("mesh_dp_shard_cp") == ("dp_shard", "cp")
    sizes = {"cp": cp} if cp else {}
    shape = recorded_shape({3: placed(("mesh_dp_shard_cp", (1, 3)), sizes=sizes)}, {})
    assert shape.column("dp_shard").tolist() == [1 if cp == 1 else -1]


def meshed(sizes, captured=None, named=None):
    """What ranks of a mesh state: sizes by name, the slowest first; ``named``: the dimensions that
    have groups, all unless given. Also the coordinates."""
    grid = np.arange(np.prod([*sizes.values()])).reshape(*sizes.values())
    stated, places = {}, {}
    for place in np.ndindex(*grid.shape):
        groups = []
        for i, name in enumerate(sizes):
            line = grid[(*place[:i], slice(None), *place[i + 1 :])]
            if named is None or name in named:
                groups.append((f"mesh_{name}", tuple(line.tolist())))
        rank = int(grid[place])
        places[rank] = dict(zip(sizes, place, strict=True))
        if captured is None or rank in captured:
            stated[rank] = placed(*groups)
    return stated, places


@pytest.mark.parametrize(
    "sizes",
    [
        {"pp": 2, "dp_replicate": 2, "dp_shard": 3, "tp": 2},
        {"dp_replicate": 2, "dp_shard": 4},
        {"dp_replicate": 3, "pp": 2, "dp_shard": 2, "cp": 2, "tp": 2},
        {"dp_replicate": 1, "dp_shard": 4, "tp": 2},
        {"dp_replicate": 4, "dp_shard": 1},
        {"replicate": 2, "shard": 2},
    ],
    ids=str,
)
def test_replicas_of_shards_are_data_parallelism(sizes):
    """Counted through the shards of a replica, then through the next; of every rank of a mesh, and
    with captures of some."""
    for captured in (None, {0, 3}):
        stated, places = meshed(sizes, captured)
        shape = recorded_shape(stated, {})
        for rank in stated:
            place = {f"dp_{name}" if name in ("replicate", "shard") else name: value
                     for name, value in places[rank].items()}  # fmt: skip
            shards = next(n for name, n in sizes.items() if name.endswith("shard"))
            place["dp"] = place["dp_replicate"] * shards + place["dp_shard"]
            assert {name: shape.value(rank, name) for name in shape.names} == place
    assert shape.axis("dp").origin is Origin.RECORDED
    assert shape.axis("dp").evidence == "dp_replicate and dp_shard in its list"


def test_labels_show_data_parallelism_once():
    """Its parts only where the whole is unknown."""
    stated, _ = meshed({"dp_replicate": 2, "dp_shard": 2, "tp": 2})
    assert recorded_shape(stated, {}).label(7) == "dp3 tp1"
    stated, _ = meshed({"dp_shard": 4, "tp": 2})
    assert recorded_shape(stated, {}).label(7) == "dp_shard3 tp1"


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"dp_shard": 2, "dp_replicate": 2, "tp": 2}, None),
        ({"dp_replicate": 2, "dp_shard": 2, "tp": 2}, {"dp_replicate", "tp"}),
        ({"dp_replicate": 2, "dp_shard": 2, "tp": 2}, {"dp_shard", "tp"}),
    ],
    ids=["shards outside", "replicas alone", "shards alone"],
)
def test_data_parallelism_is_unknown_where_its_parts_do_not_tell(sizes, named):
    """The other coordinates are known all the same."""
    stated, places = meshed(sizes, named=named)
    shape = recorded_shape(stated, {})
    assert set(shape.column("dp").tolist()) == {-1}
    for name in named or sizes:
        assert shape.column(name).tolist() == [places[rank][name] for rank in sorted(places)]


def test_a_group_of_all_data_parallelism_says_more_than_its_parts():
    """torchtitan flattens both into ``dp``: what is stated counts, also where it contradicts."""
    stated, _ = meshed({"dp_replicate": 2, "dp_shard": 2})
    whole = {
        rank: placed(*((g.name, g.ranks) for g in one.groups), ("mesh_dp", (3, 2, 1, 0)))
        for rank, one in stated.items()
    }
    assert recorded_shape(whole, {}).column("dp").tolist() == [3, 2, 1, 0]
    sized = {rank: placed(*((g.name, g.ranks) for g in one.groups), sizes={"dp": 3})
             for rank, one in stated.items()}  # fmt: skip
    assert set(recorded_shape(sized, {}).column("dp").tolist()) == {-1}


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


def test_groups_of_no_known_axis_do_not_matter():
    """All ranks, embeddings, models: they are groups of none."""
    others = [(name, (0, 1, 2, 3)) for name in ("default_group", "mp", "embd", "")]
    shape = recorded_shape({1: placed(*others, ("pp", (1, 3)))}, {})
    assert (shape.names, shape.values.tolist()) == (("pp",), [[0]])


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
