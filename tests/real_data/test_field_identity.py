"""Ranks and processes by evidence, on the inputs of ``../shared/data/field``: each stands for a
kind, and its README says what is right."""

import pytest
from paths import DATA

import traceconv
from traceconv.core.errors import RankError
from traceconv.core.model import Layer, OpClass

FIELD = DATA / "field"


def _found(name, **options):
    return traceconv.open(FIELD / name, **options)


def _ranks(found):
    return [one.rank for one in found.found]


def _busy_ns(trace):
    rows = trace.events.op == OpClass.COMPUTE
    return int(trace.events.dur_ns[rows].sum())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpu/kineto_replicas_in_containers", "by names: several processes state one rank"),
        ("gpu/kineto_all_named_r0", "by device"),
        ("gpu/nsight_two_nodes_equal_pids", "by host and rank"),
        ("gpu/nsight_node_reports_of_many_processes", "by host and rank"),
        ("gpu/nsight_slurm_names", "by numbers in paths"),
        ("ascend/msprof_cli", "by device"),
        ("gpu/names_r0_to_r3", "by numbers in paths"),
        ("gpu/names_rank_in_brackets", "by numbers in paths"),
    ],
)
def test_ranks_follow_from_evidence_and_it_is_said(name, why):
    """A capture per rank, in one line what the ranks follow from."""
    found = _found(name)
    ranks = {"gpu/kineto_replicas_in_containers": 2, "ascend/msprof_cli": 2}.get(name, 4)
    assert _ranks(found) == list(range(ranks))
    [said] = [one for one in found.issues if one.code == "rank-derived"]
    assert said.file == f"ranks 0-{ranks - 1}, {why}"


@pytest.mark.parametrize(
    "name", ["gpu/kineto_on_demand", "gpu/vllm_with_async_llm", "gpu/names_r0_to_r3"]
)
def test_names_and_statements_give_the_same_ranks(name):
    """Whether ranks are stated, or taken from names; a process of the host is left out."""
    assert _ranks(_found(name)) == [0, 1, 2, 3]
    assert "rank-derived" not in {one.code for one in _found("gpu/kineto_on_demand").issues}


@pytest.mark.parametrize(
    "name", ["gpu/names_r0_to_r3", "gpu/names_rank_in_brackets", "gpu/nsight_slurm_names"]
)
def test_ranks_in_names_are_found_when_asked(name):
    """``r3-…``, ``rank[3]`` and ``profile.3.sqlite``."""
    assert _ranks(_found(name, rank_from="name")) == [0, 1, 2, 3]


def test_a_lone_file_of_rank_3_is_rank_3():
    """What a daemon records states the rank behind the events."""
    found = traceconv.open(FIELD / "gpu/kineto_on_demand/libkineto_trace_5003.json")
    assert _ranks(found) == [3]


def test_replicas_keep_their_own_figures():
    """Two replicas, each rank 0 of its own world, were recorded at one time."""
    traces = _found("gpu/kineto_replicas_in_containers").traces("detail")
    assert [_busy_ns(trace) for trace in traces] == [3_000_000, 4_000_000]


@pytest.mark.parametrize(
    "name", ["gpu/nsight_two_nodes_equal_pids", "gpu/nsight_node_reports_of_many_processes"]
)
def test_each_process_of_each_node_is_a_rank(name):
    """10 kernels each, however equal process ids are."""
    traces = _found(name).traces("detail")
    assert [int(trace.rows_of(Layer.DEVICE).sum()) for trace in traces] == [10] * 4


def test_a_pattern_may_use_what_inspect_shows():
    """Processes of one report differ in nothing but what stands in brackets."""
    pattern = r"node(?P<node>\d).*process 1(?P<rank>\d\d)\)"
    found = _found("gpu/nsight_node_reports_of_many_processes", rank_from=pattern)
    assert [one.title[-13:] for one in found.found] == [
        "(process 100)", "(process 101)", "(process 177)", "(process 178)",
    ]  # fmt: skip


def test_captures_of_two_jobs_are_a_warning():
    """Sizes of 8 and 128 ranks, 200 days apart."""
    found = _found("general/two_runs_in_one_folder")
    assert [one.code for one in found.issues if one.code == "jobs-mixed"] == ["jobs-mixed"]


def test_a_merged_file_has_a_rank_for_every_part():
    """Correlation numbers are equal in both; launches join within their process."""
    traces = list(_found("gpu/sglang_merged_profile").traces("detail"))
    assert [trace.rank for trace in traces] == [0, 1]
    assert [_busy_ns(trace) for trace in traces] == [2_000_000, 3_000_000]
    for trace in traces:
        assert len(trace.flows) == 10
        names = {trace.strings[i] for i in trace.events.name[trace.flows.dst].tolist()}
        assert names == {f"kernel_rank{trace.rank}"}


@pytest.mark.parametrize("name", ["mpi", "slurm"])
def test_the_task_in_front_of_a_line_is_its_rank(name):
    """As ``mpirun --tag-output`` and ``srun --label`` write it."""
    assert _ranks(_found(f"hub/mllog_mpirun/{name}.log")) == [0, 1]


def test_mlperf_logs_of_several_runs_are_not_one():
    """Two logs have tasks 0 and 1 and the same events; logs without tasks are left out."""
    with pytest.raises(RankError, match=r"claimed twice: by .*mpi\.log.*Name one of them only"):
        list(_found("hub/mllog_mpirun").traces())


def test_an_archive_in_a_folder_is_opened():
    """All ranks of it, as when it is named itself."""
    folder = FIELD / "general/packed_run_in_folder"
    assert _ranks(traceconv.open(folder)) == list(range(8))
    assert _ranks(traceconv.open(folder / "run7.tar.gz")) == list(range(8))


def test_parts_of_one_output_may_be_named_one_by_one():
    """As when their folder is named."""
    folder = FIELD / "hub/own_parts_one_by_one"
    named = traceconv.open(*map(str, sorted(folder.iterdir())))
    assert _ranks(named) == _ranks(traceconv.open(folder)) == [0, 1]
    both = [next(iter(one.traces())).counts() for one in (named, traceconv.open(folder))]
    assert both[0] == both[1]


def test_processes_of_unitrace_name_their_rank():
    """Devices have lanes of their own, by name; calls lead to what they launched."""
    traces = list(_found("hub/unitrace_two_ranks").traces("detail"))
    assert [trace.rank for trace in traces] == [0, 1]
    for trace in traces:
        lanes = {t.title for t in trace.tracks if t.layer is Layer.DEVICE}
        assert all(title.startswith(f"RANK {trace.rank} DEVICE<") for title in lanes)
        assert _busy_ns(trace) > 0
