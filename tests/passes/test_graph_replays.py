"""Operators of replayed kernels, as far as evidence gives them."""

import json

import pytest
from kineto_files import row, write

import traceconv


def _captured(path, names, size=None, kernels=None):
    """A trace of a capture: a launch in each operator; kernels are named on ROCm only."""
    events = [row("cuda_runtime", "cudaStreamBeginCapture", 500, 500, 100, 5, correlation=1)]
    if size:
        events.append(row("user_annotation", f"capture_{size}_FULL", 500, 500, 90, 900))
    for i, name in enumerate(names):
        kernel = {"kernel": kernels[i]} if kernels else {}
        events += [
            row("cpu_op", name, 500, 500, 120 + 20 * i, 15),
            row("cuda_runtime", "cudaLaunchKernel", 500, 500, 125 + 20 * i, 5,
                correlation=2 + i, **kernel),
        ]  # fmt: skip
    events.append(row("cuda_runtime", "cudaStreamEndCapture", 500, 500, 800, 5, correlation=99))
    write(path, events)


def _replayed(path, kernels, streams=None, batch="decode[bs=4 tok=4 d=4]"):
    events = [
        row("user_annotation", batch, 500, 500, 1000, 300),
        row("cuda_runtime", "cudaGraphLaunch", 500, 500, 1010, 5, correlation=50),
    ]
    for i, name in enumerate(kernels):
        stream = streams[i] if streams else 7
        events.append(
            row("kernel", name, 0, stream, 1100 + 20 * i, 15, correlation=50, stream=stream)
        )
    write(path, events)


def _nodes(folder):
    table = traceconv.stats(str(folder), by="graph")["graph_node"]
    return list(zip(table["Kernel"], table["Operator"], table["Known By"], strict=True))


def test_order_on_one_stream_names_kernels(tmp_path):
    """A capture on CUDA names none, but launched as many in the same order."""
    _captured(tmp_path / "graph_capture_rank_0.json", ["aten::mm", "aten::add"])
    _replayed(tmp_path / "pass.json", ["k1", "k2"])
    way = "order in the capture trace"
    assert _nodes(tmp_path) == [("k1", "aten::mm", way), ("k2", "aten::add", way)]


@pytest.mark.parametrize(
    ("kernels", "streams"), [(["k1", "k2"], [7, 8]), (["k1", "k2", "k3"], None), (["k1"], None)]
)
def test_order_proves_nothing_on_two_streams_or_of_another_number(tmp_path, kernels, streams):
    """These stay unnamed."""
    _captured(tmp_path / "graph_capture_rank_0.json", ["aten::mm", "aten::add"])
    _replayed(tmp_path / "pass.json", kernels, streams)
    assert {(operator, way) for _, operator, way in _nodes(tmp_path)} == {("", "")}


def test_graphs_count_in_the_order_of_launches_of_all_threads(tmp_path):
    """Not thread by thread."""
    events = []
    for thread, start, name in ((600, 1000, "first"), (500, 2000, "second")):
        call = row("cuda_runtime", "cudaGraphLaunch", 500, thread, start, 5, correlation=start)
        kernel = row("kernel", name, 0, 7, start + 50, 9, correlation=start, stream=7)
        events += [call, kernel]
    write(tmp_path / "pass.json", events)
    table = traceconv.stats(str(tmp_path), by="graph")["graph_node"]
    assert dict(zip(table["Kernel"], table["Graph"], strict=True)) == {"first": 0, "second": 1}


def test_names_of_kernels_hold_on_any_stream(tmp_path):
    """The n-th of a name is the n-th captured; others that differ leave the rest."""
    names, kernels = ["aten::mm", "aten::add", "aten::mul"], ["gemm", "plus", "times"]
    _captured(tmp_path / "graph_capture_rank_0.json", names, kernels=kernels)
    _replayed(tmp_path / "pass.json", ["plus", "gemm", "other"], [7, 8, 7])
    way = "part of the capture trace"
    found = sorted(_nodes(tmp_path))
    assert found == [("gemm", "aten::mm", way), ("other", "", ""), ("plus", "aten::add", way)]


@pytest.mark.parametrize(
    ("batch", "operator"),
    [
        ("decode[bs=3 tok=9 d=9]", "aten::mm"),
        ("decode[bs=3/8 tok=9 d=9]", "aten::bmm"),
        ("prefill[bs=1 tok=7 ctx=[7]]", "aten::bmm"),
        ("step[DECODE bs=4]", "aten::mm"),
        ("step[EXTEND bs=1 toks=5]", "aten::bmm"),
        ("execute_context_0(0)_generation_5(5)", "aten::bmm"),
        ("execute_context_1(99)_generation_5(5)", ""),
        ("execute_new_0_cached_4", "aten::mm"),
        ("execute_5_context_0(sq0sk0sqsq0sqsk0)_generation_5(sq5sk9sqsq5sqsk9)", "aten::bmm"),
    ],
)
def test_the_padded_batch_decides_between_captures(tmp_path, batch, operator):
    """Graphs of 4 and of 8 have as many nodes: a batch is padded to the next size."""
    captures = tmp_path / "capture_traces"
    for size, name in ((4, "aten::mm"), (8, "aten::bmm")):
        _captured(captures / f"c{size}.json", [name, "aten::add"])
    listed = [{"file": f"c{size}.json", "batch_size": size, "mode": "FULL"} for size in (4, 8)]
    (captures / "execution_details.json").write_text(json.dumps(listed))
    _replayed(tmp_path / "rank0.json", ["k1", "k2"], batch=batch)
    assert [one[1] for one in _nodes(tmp_path)] == [operator, "aten::add"]


def test_captures_that_disagree_name_what_they_share(tmp_path):
    """Without a batch size, operators that differ between equal graphs stay unknown."""
    for number, name in enumerate(("aten::mm", "aten::bmm")):
        _captured(tmp_path / f"graph_capture_rank_0.{number}.json", [name, "aten::add"])
    _replayed(tmp_path / "pass.json", ["k1", "k2"], batch="execute_context_0(0)_generation_4(4)")
    assert [one[1] for one in _nodes(tmp_path)] == ["", "aten::add"]


def test_a_capture_within_the_profile_names_its_replays(tmp_path):
    """The same file holds the capture, and what it replays later."""
    _captured(tmp_path / "a.json", ["aten::mm", "aten::add"], kernels=["gemm", "plus"])
    _replayed(tmp_path / "b.json", ["gemm", "plus"])
    parts = [json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json")]
    (tmp_path / "b.json").unlink()
    write(tmp_path / "a.json", [*parts[0]["traceEvents"], *parts[1]["traceEvents"]])
    assert [one[1] for one in _nodes(tmp_path)] == ["aten::mm", "aten::add"]
