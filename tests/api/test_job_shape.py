"""Coordinates of ranks, from files to what is selected, shown and written."""

import json
import pickle
import re
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from effort import effort
from job_simulator import Delay, Job, run, write_kineto
from kineto_files import CALL, KERNEL, OPERATOR
from layouts import MEGATRON, Layout, layouts, write
from paths import ROOT

import traceconv
from traceconv.core.errors import OptionError, RankError, SelectionError
from traceconv.core.side_tables import ABSENT

EVENTS = [OPERATOR, CALL, KERNEL]


@pytest.fixture
def job(tmp_path):
    """A folder of 8 ranks: tp 2, pp 2, dp 2, the pipeline between the others."""
    layout = Layout(("tp", "pp", "dp"), {"tp": 2, "pp": 2, "dp": 2}, MEGATRON)
    folder = tmp_path / "job"
    folder.mkdir()
    write(folder, layout, list(range(8)), EVENTS)
    return folder


def shown(shape, rank):
    return {one.axis: one.value for one in shape.coordinates(rank)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", layouts()[:: effort(2, 1)], ids=lambda layout: layout.text)
def test_layouts_are_found_in_process_groups(layout, tmp_path):
    """Every third rank has no capture: whatever the order of axes, coordinates are those."""
    kept = [rank for rank in layout.coordinates() if rank % 3]
    write(tmp_path, layout, kept, EVENTS)
    shape = traceconv.open(tmp_path).shape
    assert shape.ranks.tolist() == kept
    assert {rank: shown(shape, rank) for rank in kept} == {
        rank: where for rank, where in layout.coordinates().items() if rank in kept
    }
    assert {axis: shape.size(axis) for axis in layout.order} == layout.sizes


def test_ranks_are_selected_by_coordinates(job):
    """By one value, several, on several axes; as text and as values."""
    captures = traceconv.open(job)

    def ranks(selected):
        return [one.rank for one in captures.ranks(selected).found]

    assert ranks("tp=1") == [1, 3, 5, 7]
    assert ranks("tp=0,pp=1") == [2, 6]
    assert ranks("dp=0-1,tp=0") == [0, 2, 4, 6]
    assert ranks({"dp": 1, "pp": [0, 1]}) == [4, 5, 6, 7]
    assert ranks("PP=1,0") == list(range(8))


@pytest.mark.parametrize(
    ("selected", "said"),
    [
        ("ep=0", "ep is unknown of all ranks; known coordinates: dp 0-1, pp 0-1, tp 0-1"),
        ("tp=2", "no rank has tp=2; there are tp: 0-1"),
    ],
)
def test_coordinates_that_nobody_has_are_refused(job, selected, said):
    """With those there are."""
    with pytest.raises(RankError, match=said):
        traceconv.stats(job, ranks=selected)


@pytest.mark.parametrize("selected", ["tp=", "tp=x", "=1", "tp=0,tp=1", {}, {"tp": "all"}])
def test_what_names_no_coordinates_is_refused(job, selected):
    """As an error of usage."""
    with pytest.raises(OptionError):
        traceconv.stats(job, ranks=selected)


def test_a_rank_that_may_be_meant_is_never_left_out_silently(job):
    """Ranks 4, 5 and 7 state nothing, and no other capture lists their stages."""
    for rank in (4, 5, 7):
        path = job / f"{rank}.json"
        document = json.loads(path.read_text())
        document["distributedInfo"].pop("pg_config")
        path.write_text(json.dumps(document))
    for rank in (1, 6):
        (job / f"{rank}.json").unlink()
    captures = traceconv.open(job)
    assert shown(captures.shape, 5) == {"dp": -1, "pp": -1, "tp": -1}
    with pytest.raises(RankError, match="pp=0 may mean rank 4-5,7, too, whose pp is unknown"):
        captures.ranks("pp=0")
    left = captures.ranks("pp=0", allow_missing=True)
    assert [one.rank for one in left.found] == [0]
    assert left.issues.count("rank-missing") == 3


def test_captures_that_state_nothing_say_what_to_do(tmp_path):
    """Numbers, or a pattern."""
    write(tmp_path, Layout(("tp",), {"tp": 2}, {"tp": "undefined"}), [0, 1], EVENTS)
    with pytest.raises(RankError, match="by their numbers, or say where paths have coordinates"):
        traceconv.open(tmp_path).ranks("tp=0")
    assert traceconv.inspect(tmp_path).shape.line() == ""


def test_patterns_of_paths_give_coordinates(tmp_path):
    """As the user names them; a stage is one of a pipeline."""
    for stage in (0, 1):
        for tp in (0, 1):
            path = tmp_path / f"s{stage}_t{tp}.json"
            path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    pattern = r"s(?P<stage>\d)_t(?P<tp>\d)"
    found = traceconv.open(tmp_path, rank_from=pattern)
    assert [shown(found.shape, rank) for rank in range(4)] == [
        {"pp": s, "tp": t} for s in (0, 1) for t in (0, 1)
    ]
    assert [one.name for one in found.found][2] == "Rank 2 · pp1 tp0"


@pytest.mark.parametrize("name", ["out.json", "out.pftrace", "out.tar"])
def test_outputs_keep_coordinates(job, tmp_path, name):
    """Names in viewers have them, and what is read back can be selected by them."""
    out = tmp_path / name
    traceconv.merge(job, out=out, mode="detail", align="none")
    assert "Rank 6 · dp1 pp1 tp0".encode() in out.read_bytes()
    again = traceconv.open(out)
    whole = traceconv.open(job)
    assert again.shape.values.tolist() == whole.shape.values.tolist()
    assert [one.name for one in again.found] == [one.name for one in whole.found]
    assert [one.rank for one in again.ranks("dp=1,tp=1").found] == [5, 7]
    traceconv.merge(out, out=tmp_path / f"again_{name}", mode="detail", align="none", ranks="pp=0")
    rest = traceconv.open(tmp_path / f"again_{name}")
    assert [(one.rank, rest.shape.label(one.rank)) for one in rest.found] == [
        (0, "dp0 pp0 tp0"), (1, "dp0 pp0 tp1"), (4, "dp1 pp0 tp0"), (5, "dp1 pp0 tp1"),
    ]  # fmt: skip


def test_copied_events_are_named_by_coordinates_too(job, tmp_path):
    """Where files are merged by their bytes; the names are taken off when they are read back."""
    out = tmp_path / "out.json"
    traceconv.merge(job, out=out, mode="source", align="none")
    text = out.read_text()
    assert '"copied":true' in text
    assert "Rank 6 · dp1 pp1 tp0 " in text
    again = traceconv.open(out)
    assert again.shape.values.tolist() == traceconv.open(job).shape.values.tolist()
    [trace] = again.ranks(6).traces()
    assert trace.counts()["slice"] == len(EVENTS)
    assert not any("dp1" in track.title for track in trace.tracks)


def test_shards_keep_coordinates(job, tmp_path):
    """Joined, they are the same bytes."""
    whole, joined = tmp_path / "whole.json", tmp_path / "joined.json"
    traceconv.merge(job, out=whole, align="none", ranks="tp=0")
    for share in range(2):
        traceconv.merge(
            job, out=tmp_path / f"{share}.shard", shard=(share, 2), align="none", ranks="tp=0"
        )
    traceconv.join(tmp_path / "0.shard", tmp_path / "1.shard", out=joined)
    assert joined.read_bytes() == whole.read_bytes()


def test_inspect_shows_the_shape(job):
    """In a line with its source, and in the document."""
    found = traceconv.inspect(job)
    line = "shape: dp 2 · pp 2 · tp 2 (recorded: distributedInfo: pg_config)"
    assert line in found.lines()
    shape = found.as_dict()["shape"]
    assert shape["ranks"][3] == {"rank": 3, "dp": 0, "pp": 1, "tp": 1}
    assert [axis["name"] for axis in shape["axes"]] == ["dp", "pp", "tp"]


def test_sides_of_a_comparison_are_selected_by_coordinates(job):
    """Rank by rank, as numbers are."""
    found = traceconv.diff(job, ranks="tp=0,pp=0:tp=1,pp=0")
    assert found.ranks["Rank Before"].tolist() == [0, 4]
    assert found.ranks["Rank After"].tolist() == [1, 5]


# -- what is compared and summed -----------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Captures of a simulated job, tp 2, dp 2, pp 2: with coordinates, and without."""
    folder = tmp_path_factory.mktemp("trained")
    layout = Layout(("tp", "dp", "pp"), {"tp": 2, "dp": 2, "pp": 2}, MEGATRON)
    plain, stated = folder / "plain", folder / "stated"
    for one in (plain, stated):
        one.mkdir()
        write_kineto(run(Job(tp=2, dp=2, pp=2, steps=4, world=True)), one)
    for rank in range(8):
        path = stated / f"rank{rank}.pt.trace.json"
        document = json.loads(path.read_text())
        if rank != 7:
            document["distributedInfo"]["pg_config"] = layout.process_groups(rank, 8)
        path.write_text(json.dumps(document))
    return plain, stated


def test_ranks_of_equal_coordinates_are_one_row(trained):
    """Sums are those of the ranks' own rows; rank 7 is in the groups that others list."""
    own = traceconv.stats(trained[1], by="overlap", align="none")["overlap"]
    of_stage = traceconv.stats(trained[1], by="overlap", group_by="pp")["overlap"]
    assert of_stage["pp"].tolist() == [0] * 5 + [1] * 5
    assert set(of_stage["Ranks"].tolist()) == {4}
    assert "Rank" not in of_stage.columns
    kernels = traceconv.stats(trained[1], by="kernel", group_by="tp,pp")["kernel"]
    ranks = traceconv.stats(trained[1], by="kernel")["kernel"]
    for tp, pp in [(0, 0), (1, 0), (0, 1), (1, 1)]:
        at = (kernels["tp"] == tp) & (kernels["pp"] == pp)
        members = np.isin(ranks["Rank"], [4 * pp + tp, 4 * pp + tp + 2])
        assert kernels["Total Time(ns)"][at].sum() == ranks["Total Time(ns)"][members].sum()
        assert kernels["Count"][at].sum() == ranks["Count"][members].sum()
    assert len(own.columns) == len(of_stage.columns) - 1


def test_ranks_of_unknown_coordinates_are_a_group_of_their_own(trained, tmp_path):
    """The last; their coordinate is absent, in no sum of another."""
    for rank in (0, 1, 7):
        shutil.copy(trained[1] / f"rank{rank}.pt.trace.json", tmp_path)
    found = traceconv.stats(tmp_path, by="kernel", group_by="dp")["kernel"]
    assert set(zip(found["dp"].tolist(), found["Ranks"].tolist(), strict=True)) == {
        (0, 2), (ABSENT, 1),
    }  # fmt: skip
    assert found["dp"][-1] == ABSENT
    with pytest.raises(SelectionError, match="ep is unknown of all ranks; known coordinates: dp 0"):
        traceconv.stats(tmp_path, by="kernel", group_by="ep")


def test_tables_without_figures_of_several_ranks_are_left_out(trained):
    """And are named."""
    found = traceconv.stats(trained[1], by="step", group_by="pp")
    assert dict(found.left_out) == {"step": "it has no figures of several ranks together"}


def test_stages_are_those_that_are_recorded(trained):
    """Those of a simulated job are the same as collectives tell."""
    plain, stated = (traceconv.stragglers(one, align="none").verdict.as_dict() for one in trained)
    assert plain == stated


def test_texts_name_ranks_by_their_coordinates(tmp_path):
    """Findings, stragglers, critical paths and comparisons call a rank the same; where nothing
    states them, by its number alone."""
    layout = Layout(("tp", "dp"), {"tp": 2, "dp": 2}, MEGATRON)
    late = Job(tp=2, dp=2, steps=12, world=True, stamps="monotonic", delays=(Delay((3,), 3e6),))
    write_kineto(run(late), tmp_path)
    named = re.compile(r"\brank (\d)(?: \((.*?)\))?")
    for stated in (False, True):
        wanted = {n: f"dp{n // 2} tp{n % 2}" if stated else "" for n in range(4)}
        found = traceconv.diagnose(tmp_path)
        lines = [line for line in found.text().splitlines() if not line.startswith(" ")]
        path = traceconv.critical_path(tmp_path, clock_error_ns="1us")
        sides = traceconv.diff(tmp_path, tmp_path, force=True)
        said = {
            "findings": "\n".join(line for line in lines if line.startswith("warning")),
            "stragglers": "\n".join(line for line in lines if "straggler" in line),
            "headline": lines[0],
            "path": "\n".join(path.lines()),
            "diff": sides.text().split("\n\n")[1],
        }
        for where, text in said.items():
            ranks = [(int(n), label or "") for n, label in named.findall(text)]
            assert ranks, where
            assert {label == wanted[rank] for rank, label in ranks} == {True}, (where, text)
        for rank in range(4):
            file = tmp_path / f"rank{rank}.pt.trace.json"
            document = json.loads(file.read_text())
            document["distributedInfo"]["pg_config"] = layout.process_groups(rank, 4)
            file.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("stages", "said"), [(1, (0, 1)), (2, (-1, 2)), ("4", (-1, 4)), (0, None), ("x", None)]
)
def test_mindspore_states_how_many_stages_there_are(stages, said, tmp_path):
    """Which one a rank is in it does not state, unless there is one only."""
    shutil.copytree(ROOT / "golden/mindspore/step_table/input", tmp_path, dirs_exist_ok=True)
    path = tmp_path / "profiler/profiler_info_2.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "stage_num": stages}))
    shape = traceconv.open(tmp_path).shape
    assert ("pp" in shape.names) is bool(said)
    if said:
        assert (shape.stage(2), shape.size("pp")) == said
        assert shape.axis("pp").evidence in ("profiler_info_2.json: stage_num", "")


def strategy(rank=2, stage=1, stages=((0, 1), (2, 3)), **changed):
    """What MindSpore writes of its strategy, as protobuf spells it; then the graph, cut short."""
    listed = [{"dim": [{"size": str(one)} for one in ranks]} for ranks in stages]
    config = {"rankId": rank, "stageId": stage, "parallelType": "semi_auto_parallel",
              "stageDevices": listed, **changed}  # fmt: skip
    return f'{{"config":{json.dumps(config)},"graph":{{"node":[{{"name":'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (strategy(), (1, 2)),
        (strategy(stages=((0, 1, 2, 3),), stage=0), (0, 1)),
        (strategy(stage=0), (-1, -1)),
        (strategy(rank=3), (-1, -1)),
        (strategy(stages=((0, 2), (2, 3))), (-1, -1)),
        (strategy(stages=((0, "x"), (2, 3))), (-1, -1)),
        (strategy(stageDevices="all"), (-1, -1)),
        ('{"config":{"rankId":2,"parallelType":"data_parallel"},"graph":{}}', (-1, -1)),
        ('{"graph":{}}', (-1, -1)),
        ("[]", (-1, -1)),
    ],
    ids=["stages", "one", "another stage", "another rank", "twice", "no rank", "no list", "data",
         "no config", "no object"],
)  # fmt: skip
def test_the_stage_that_mindspore_states(text, said, tmp_path):
    """Of the rank in its name, where it and the list of ranks say the same."""
    shutil.copytree(ROOT / "golden/mindspore/step_table/input", tmp_path, dirs_exist_ok=True)
    (tmp_path / "profiler/parallel_strategy_2.json").write_text(text)
    shape = traceconv.open(tmp_path).shape
    assert (shape.stage(2), shape.size("pp")) == said
    if said[0] >= 0:
        assert shape.axis("pp").evidence == "parallel_strategy_2.json: stageId"


def test_a_strategy_that_contradicts_the_number_of_stages(tmp_path):
    """The number stays, and which stage it is in is unknown; a broken file is an issue."""
    shutil.copytree(ROOT / "golden/mindspore/step_table/input", tmp_path, dirs_exist_ok=True)
    info, plan = (
        tmp_path / f"profiler/{name}_2.json" for name in ("profiler_info", "parallel_strategy")
    )
    info.write_text(json.dumps({**json.loads(info.read_text()), "stage_num": 4}))
    plan.write_text(strategy())
    shape = traceconv.open(tmp_path).shape
    assert (shape.stage(2), shape.size("pp")) == (-1, 4)
    plan.write_text(strategy()[:40])
    issues = traceconv.open(tmp_path).issues
    assert issues.count("malformed-record") == 1


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_groups_of_a_flight_recorder_have_any_order(form, tmp_path):
    """Coordinates are positions in the listed groups; ranks as a list, or as text."""
    groups = {"TENSOR_MODEL_PARALLEL_GROUP": "[6, 2]", "mesh_dp": [2, 3], "default_pg": "[0, 1]"}
    config = {f"{n}": {"desc": name, "ranks": groups[name]} for n, name in enumerate(groups)}
    entry = {"profiling_name": "nccl:all_reduce", "time_created_ns": 1_700_000_000_000_000_000}
    dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": [entry]}
    text = pickle.dumps(dump, 2) if form == "pickle" else json.dumps(dump).encode()
    (tmp_path / "nccl_trace_rank_2").write_bytes(text)
    [capture] = traceconv.open(tmp_path).found
    assert (capture.rank, capture.world_size) == (2, 2)
    assert shown(traceconv.open(tmp_path).shape, 2) == {"tp": 1, "dp": 0}


def write_cluster(folder, layout, ranks, listed, *, form="text", framework="pt", sizes=()):
    """Ascend captures of some ranks, and what cluster tools make of those and others: members in
    ascending order, and in old versions only those of ``listed``."""
    for rank in ranks:
        root = folder / f"host_{rank}_20240101000000000_ascend_{framework}"
        (root / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        args = {f"{name}_size": size for name, size in sizes}
        (root / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
        (root / "profiler_metadata.json").write_text(json.dumps({"distributed_args": args}))
        (root / "ASCEND_PROFILER_OUTPUT/trace_view.json").write_text(json.dumps(EVENTS))
    rows = {
        (
            layout.names.get(axis, ""),
            tuple(r for r in sorted(layout.group(axis, rank)) if r in listed),
        )
        for axis in layout.order
        for rank in layout.coordinates()
    }
    output = folder / "cluster_analysis_output"
    output.mkdir()
    if form == "text":
        stated = [
            {"type": "collective", "rank_set": list(members), "group_name": "1", "pg_name": name}
            for name, members in rows
            if members
        ]
        text = {"collective": [list(m) for _, m in rows], "comm_group_parallel_info": stated}
        (output / "communication_group.json").write_text(json.dumps(text))
        return
    with closing(sqlite3.connect(output / "cluster_analysis.db")) as db, db:
        db.execute("create table CommunicationGroupMapping (type, rank_set, group_name, pg_name)")
        db.executemany(
            "insert into CommunicationGroupMapping values ('collective', ?, '1', ?)",
            [(f"({','.join(map(str, members))})", name) for name, members in rows if members],
        )
        db.execute("create table ClusterBaseInfo (key, value)")
        args = json.dumps({f"{name}_size": size for name, size in sizes})
        db.execute("insert into ClusterBaseInfo values ('distributed_args', ?)", (args,))


CLUSTER = Layout(
    ("pp", "tp", "dp"), {"pp": 2, "tp": 2, "dp": 2}, {"pp": "pp", "tp": "tp", "dp": "dp"}
)
WORLD, STATED = ("world", 8), (("tensor_model_parallel", 2), ("pipeline_model_parallel", 2))


@pytest.mark.parametrize("form", ["text", "db"])
@pytest.mark.parametrize(
    ("sizes", "listed", "framework", "known"),
    [
        ((WORLD,), range(8), "pt", "dp pp tp"),
        (STATED, range(8), "pt", "pp tp"),
        ((), range(8), "pt", ""),
        ((WORLD,), range(4), "pt", ""),
        (STATED, range(4), "pt", "pp tp"),
        (STATED, (0, 1, 3, 4), "pt", ""),
        ((WORLD,), range(8), "ms", ""),
    ],
    ids=["world", "sizes", "nothing", "half", "half-of-sizes", "torn", "mindspore"],
)
def test_groups_that_cluster_tools_list(sizes, listed, framework, known, form, tmp_path):
    """Right where they are listed with all their members, and sorted by those who made them."""
    captured = [1, 2, 3]
    write_cluster(tmp_path, CLUSTER, captured, listed, form=form, framework=framework, sizes=sizes)
    shape = traceconv.open(tmp_path).shape
    every = CLUSTER.coordinates()
    for axis in CLUSTER.order:
        right = [every[rank][axis] if axis in known else -1 for rank in captured]
        assert shape.column(axis).tolist() == right, axis
