"""When everything happens in a generated capture: int64 ns columns, one row per operator.

The timeline is that of a training script on an accelerator. Groups of :data:`OPS` operators run
on the main thread and on the autograd thread in turn; each operator is enqueued, dequeued by a
second thread, launched by three nested API calls and executed on a stream; each group ends in one
collective that all ranks leave at the same true time. Threads nest, streams are sequential.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

OPS = 16
"""Operators in a group."""
STEP_GROUPS = 64
"""Groups in a training step."""
PLANES = 4
"""HCCL planes, each with three tasks per collective."""
EPOCH_NS = 1_718_180_918_000_000_000
SKEW_NS = 37_411
"""How much later the clock of each further rank shows the same instant."""


@dataclass(frozen=True)
class Schedule:
    """One rank's times. Arrays have one row per operator unless ``comm`` or ``step`` is in the
    name (one per group, one per step). ``*_dur`` of device rows count 10^-5 ns, others ns.
    """

    autograd: NDArray[np.bool_]
    module: I64
    module_dur: I64
    op: I64
    op_dur: I64
    enqueue: I64
    enqueue_dur: I64
    dequeue: I64
    dequeue_dur: I64
    api: I64
    api_dur: I64
    node: I64
    node_dur: I64
    launch: I64
    launch_dur: I64
    stream: I64
    kernel: I64
    kernel_dur: I64
    comm: I64
    comm_dur: I64
    comm_call: I64
    step: I64
    step_dur: I64


def schedule(groups: int, rank: int, seed: int) -> Schedule:
    """The times of one rank; the same arguments give the same times.

    Host times are the same on all ranks before the skew of their clocks; kernels and the starts
    of collectives differ.
    """
    host, device = np.random.default_rng(seed), np.random.default_rng((seed, rank))
    n = groups * OPS
    zero = EPOCH_NS + 997_123_450 + rank * SKEW_NS // 10 * 10

    length = tens(host, 30_000, 60_000, n)
    module = zero + np.cumsum(length + tens(host, 1_000, 4_000, n)) - length
    op = module + tens(host, 1_000, 3_000, n)
    op_dur = length - tens(host, 4_000, 6_000, n)
    enqueue = op + tens(host, 2_000, 6_000, n)
    dequeue, dequeue_dur = enqueue + 15_000, tens(host, 14_000, 22_000, n)
    api, api_dur = dequeue + 900, dequeue_dur - 1_500
    node, node_dur = api + tens(host, 500, 1_500, n), api_dur - 4_000
    launch, launch_dur = node + tens(host, 500, 1_500, n), node_dur - 3_000

    stream = np.where(np.arange(n) % 8 == 7, 3, 2)
    ticks = device.lognormal(6.5, 0.6, n).astype(np.int64) + 30  # of 20 ns
    kernel = launch + 3_000 + device.integers(0, 1_000, n)
    for number in (2, 3):
        on = stream == number
        kernel[on] = queued(kernel[on], ticks[on] * 20 + 1)

    group_end = (module + length)[OPS - 1 :: OPS]
    comm_ns = device.integers(150_000, 350_000, groups)
    comm = group_end + 600_000 - comm_ns + rank * SKEW_NS % 10
    first = np.arange(0, n, OPS * STEP_GROUPS)
    last = np.minimum(first + OPS * STEP_GROUPS, n) - 1
    return Schedule(
        autograd=np.arange(n) // OPS % 2 == 1,
        module=module, module_dur=length, op=op, op_dur=op_dur,
        enqueue=enqueue, enqueue_dur=tens(host, 5_000, 12_000, n),
        dequeue=dequeue, dequeue_dur=dequeue_dur, api=api, api_dur=api_dur,
        node=node, node_dur=node_dur, launch=launch, launch_dur=launch_dur,
        stream=stream, kernel=kernel, kernel_dur=device_dur(device, ticks * 20),
        comm=comm, comm_dur=device_dur(device, comm_ns), comm_call=group_end - 20_000,
        step=module[first] - 500, step_dur=(module + length)[last] - module[first] + 800,
    )  # fmt: skip


def tens(rng: np.random.Generator, low: int, high: int, n: int) -> I64:
    """Random multiples of ten: host clocks are written with two decimals."""
    return rng.integers(low // 10, high // 10, n) * 10


def queued(ready: I64, length: I64) -> I64:
    """Starts on one stream: as soon as ready, but not before the one before has ended."""
    before = np.cumsum(length) - length
    return before + np.maximum.accumulate(ready - before)


def device_dur(rng: np.random.Generator, ns: I64) -> I64:
    """``ns`` in units of 10^-5 ns, with the fractions device counters leave (up to 8 decimals)."""
    return ns * 100_000 + rng.integers(0, 3, len(ns)) * 3125
