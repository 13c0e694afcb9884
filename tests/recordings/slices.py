"""Run by a Python that has the framework: records a small job, and the count and time of the slices
of each name according to the framework's own reader.

Frameworks: ``jax`` (ProfileData), ``tensorflow`` (XSpace), ``onnxruntime``, ``viztracer`` (JSON).
"""

import json
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

framework, folder = sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True)
STEPS = 5


def record_jax():
    import jax
    import jax.numpy as jnp
    from jax.profiler import ProfileData

    product = jax.jit(lambda x: jnp.tanh(x @ x).sum())
    x = jnp.ones((300, 300))
    product(x).block_until_ready()
    with jax.profiler.trace(folder):
        for step in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                product(x).block_until_ready()
    (file,) = folder.rglob("*.xplane.pb")
    for plane in ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                yield event.name, round(event.duration_ns)


def record_tensorflow():
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    product = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ x)))
    x = tf.ones((200, 200))
    product(x)
    tf.profiler.experimental.start(str(folder))
    for step in range(STEPS):
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            product(x)
    tf.profiler.experimental.stop()
    (file,) = folder.rglob("*.xplane.pb")
    for plane in XSpace.FromString(file.read_bytes()).planes:
        for line in plane.lines:
            for event in line.events:
                about = plane.event_metadata[event.metadata_id]
                yield about.display_name or about.name, event.duration_ps // 1000


def record_onnxruntime():
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 64]) for n in ("x", "y")]
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "x"], ["y"], "second"),
    ]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "run")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for _ in range(STEPS):
        session.run(None, {"x": np.ones((64, 64), np.float32)})
    yield from events(session.end_profiling())


def record_viztracer():
    from viztracer import VizTracer

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    with VizTracer(output_file=str(folder / "viz.json"), verbose=0):
        for _ in range(STEPS):
            fib(6)
    yield from events(folder / "viz.json")


def events(file):
    listed = json.loads(Path(file).read_text(), parse_float=Decimal)
    for event in listed["traceEvents"] if isinstance(listed, dict) else listed:
        if event["ph"] == "X":
            yield event["name"], round(event["dur"] * 1000)


found = defaultdict(lambda: [0, 0])
for name, dur_ns in globals()[f"record_{framework}"]():
    found[name][0] += 1
    found[name][1] += dur_ns
(folder / "slices.names").write_text(json.dumps(found))
