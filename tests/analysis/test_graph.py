"""Graphs of NPUs: models, their tasks, and how often these ran."""

from traceconv.analysis.tables import graph
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource

GRAPHS, NODES = graph.TABLES


def test_a_task_of_a_model_is_a_node_and_its_runs_are_replays(tmp_path):
    """Two nodes run three times on one stream, one of them was cut in the last replay; a task of
    another stream with the same number is a third node, and a task without a model none."""
    build = TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0, device=0))
    build.hints.vendor = "ascend"
    streams = [build.track(Layer.DEVICE, f"Stream {i}", device=0) for i in (2, 3)]
    for replay in range(3):
        for i, (stream, task, name) in enumerate(((0, 5, "add"), (0, 6, "add"), (1, 5, "mul"))):
            if (replay, task) == (2, 6):
                continue
            args = {"Task Id": task, "Op Type": name.title()}
            build.slice(streams[stream], 100 * replay + 10 * i, 7, name, op=OpClass.COMPUTE,
                        graph=47, args=args)  # fmt: skip
    build.slice(streams[0], 500, 9, "eager", op=OpClass.COMPUTE, args={"Task Id": 9})
    trace = build.finish()
    facts = {name: column.tolist() for name, column in GRAPHS.facts(trace).items()}
    assert facts == {
        "Graph": [47], "Nodes": [3], "Replays": [3], "Total Time(ns)": [56],
        "Named Time(ns)": [56], "Known By": ["recorded task"],
    }  # fmt: skip
    nodes = NODES.build([(0, NODES.facts(trace))])
    columns = (nodes[name].tolist() for name in ("Node", "Kernel", "Operator", "Count"))
    assert [*zip(*columns, strict=True)] == [
        (0, "add", "Add", 3), (1, "add", "Add", 2), (2, "mul", "Mul", 3),
    ]  # fmt: skip
