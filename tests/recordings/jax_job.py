"""Run by a Python that has JAX: a job of one process, as many devices as told, 12 steps."""

import os
import sys

folder, devices, blocking, ahead = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "blocking", 6
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402
from jax_training import train  # noqa: E402

mesh = Mesh(np.array(jax.devices()), ("d",))


@jax.jit
def measure(y):
    return jnp.sin(y) * 2 + 1


w = jax.device_put(jnp.ones((256, 256)) * 0.01, NamedSharding(mesh, PartitionSpec()))
x = jax.device_put(jnp.ones((256, 256)), NamedSharding(mesh, PartitionSpec("d")))
y = jnp.ones((64, 64))
for _ in range(2):
    w, value = train(w, x)
    y = measure(y)
jax.block_until_ready((value, y))
if sys.argv[3] == "late":  # the recording begins when programs are on their way
    for _ in range(ahead):
        w, value = train(w, x)
with jax.profiler.trace(folder):
    for step in range(12):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            w, value = train(w, x)
            for _ in range(1 + (step % 3 == 2)):
                y = measure(y)
            if blocking:
                value.block_until_ready()
    jax.block_until_ready((value, y))
