"""Run by a Python that has JAX: one process of a job; the last one sleeps 10 ms in every step."""

import sys
import time

folder, rank, ranks, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

import jax  # noqa: E402

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", ranks, rank)

import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from jax_training import train  # noqa: E402

mesh = Mesh(np.array(jax.devices()), ("d",))
whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("d"))


def ones(shape, sharding):
    every = np.ones(shape, np.float32)
    return jax.make_array_from_callback(shape, sharding, lambda part: every[part])


w, x = ones((192, 192), whole), ones((64 * ranks, 192), split)
for _ in range(3):
    w, value = train(w, x)
    value.block_until_ready()
with jax.profiler.trace(f"{folder}/host{rank}"):
    for step in range(25):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            if rank == ranks - 1:
                time.sleep(0.01)
            w, value = train(w, x)
            value.block_until_ready()
