"""What each pipeline stage does in a step; all ranks of a stage do the same.

Instructions are tuples, whose first member says what they are:

=============================================  ================================================
``("compute", ns)``                            each rank by itself; with ``True``: its experts;
                                               then pass and number of the micro-batch, if any
``("input", ns)``                              waiting for the data loader, the same
``("meet", parallelism, kind, bytes, ns)``     a collective within the stage
``("async", parallelism, kind, bytes, ns)``    the same, on a stream of its own
``("join",)``                                  wait for that stream
``("across", parallelism, stages, kind, bytes, ns, key)``  a collective of several stages
``("exchange", sent, received)``               messages: tuples of (other stage, key)
=============================================  ================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .jobs import Job

Instruction = tuple[Any, ...]

_TRANSFER = 100e3


def step_program(job: Job, stage: int, step: int) -> list[Instruction]:
    """One step of one stage."""
    forward_only = job.evaluation > 0 and step % job.evaluation == job.evaluation - 1
    return list(_input(job, stage)) + list(
        _evaluated(job, stage, step) if forward_only else _trained(job, stage, step)
    )


def _input(job: Job, stage: int) -> Iterator[Instruction]:
    if stage in (0, job.pp - 1) and job.input_ns:
        yield "input", job.input_ns
    if job.broadcast:
        name = "tp" if job.tp > 1 else "dp"
        yield "compute", job.compute_ns / 50
        yield "meet", name, "broadcast", 1 << 16, transfer(job, name) / 10


def _trained(job: Job, stage: int, step: int) -> Iterator[Instruction]:
    yield from (_interleaved if job.chunks > 1 else _schedule)(job, stage, step)
    yield from _reduced(job, stage, step)
    yield "compute", job.compute_ns / 4  # the optimizer
    if job.sharded and job.dp > 1:
        yield from _gathered(job)


def _evaluated(job: Job, stage: int, step: int) -> Iterator[Instruction]:
    for number in range(job.micro_batches):
        if stage:
            yield "exchange", (), ((stage - 1, (step, "f", number)),)
        yield from _forward(job, stage, number)
        if stage < job.pp - 1:
            yield "exchange", ((stage + 1, (step, "f", number)),), ()
    yield from _world(job, step)


def _schedule(job: Job, stage: int, step: int) -> Iterator[Instruction]:
    """1F1B: some forward passes, then one forward and one backward, then the rest backward."""
    last, total = job.pp - 1, job.micro_batches
    warm = min(last - stage, total)
    steady = total - warm

    def fro(number: int) -> tuple[Any, ...]:
        return ((stage - 1, (step, "f", number)),) if stage and number < total else ()

    def on(number: int) -> tuple[Any, ...]:
        return ((stage + 1, (step, "f", number)),) if stage < last else ()

    def back_fro(number: int) -> tuple[Any, ...]:
        return ((stage + 1, (step, "b", number)),) if stage < last else ()

    def back_on(number: int) -> tuple[Any, ...]:
        return ((stage - 1, (step, "b", number)),) if stage else ()

    def backward(number: int) -> Iterator[Instruction]:
        yield from _backward(job, stage, number, number == total - 1)

    for number in range(warm):
        yield "exchange", (), fro(number)
        yield from _forward(job, stage, number)
        yield "exchange", on(number), ()
    if steady:
        yield "exchange", (), fro(warm)
    for number in range(steady):
        yield from _forward(job, stage, warm + number)
        yield "exchange", on(warm + number), back_fro(number)
        yield from backward(number)
        following = fro(warm + number + 1) if number < steady - 1 else ()
        yield "exchange", back_on(number), following
    for number in range(steady, total):
        yield "exchange", (), back_fro(number)
        yield from backward(number)
        yield "exchange", back_on(number), ()


def _interleaved(job: Job, stage: int, step: int) -> Iterator[Instruction]:
    """All forward passes, one part of the model after the other, then all backward ones."""
    last, before, after = job.pp * job.chunks - 1, (stage - 1) % job.pp, (stage + 1) % job.pp
    parts = [chunk * job.pp + stage for chunk in range(job.chunks)]
    for part in parts:
        for number in range(job.micro_batches):
            if part:
                yield "exchange", (), ((before, (step, "f", part - 1, number)),)
            yield from _forward(job, stage, number)
            if part < last:
                yield "exchange", ((after, (step, "f", part, number)),), ()
    for part in reversed(parts):
        for number in range(job.micro_batches):
            if part < last:
                yield "exchange", (), ((after, (step, "b", part + 1, number)),)
            final = part == stage and number == job.micro_batches - 1
            yield from _backward(job, stage, number, final)
            if part:
                yield "exchange", ((before, (step, "b", part, number)),), ()


def _forward(job: Job, stage: int, number: int) -> Iterator[Instruction]:
    for _ in range(job.layers_of(stage)):
        yield from _layer(job, job.compute_ns, ("forward", number))


def _backward(job: Job, stage: int, number: int, final: bool) -> Iterator[Instruction]:
    layers = job.layers_of(stage)
    early = min(job.buckets, layers) if final and job.overlap and job.dp > 1 else 0
    for layer in range(layers):
        yield from _layer(job, 2 * job.compute_ns, ("backward", number))
        if layer >= layers - early:
            yield ("async", *_gradients(job))


def _layer(job: Job, ns: float, batch: tuple[str, int]) -> Iterator[Instruction]:
    yield "compute", ns, False, batch
    if job.tp > 1:
        yield "meet", "tp", "all_reduce", 1 << 22, transfer(job, "tp")
    if job.ep > 1:
        yield "meet", "ep", "all_to_all", 1 << 21, transfer(job, "ep")
        yield "compute", ns / 2, True, batch
        yield "meet", "ep", "all_to_all", 1 << 21, transfer(job, "ep")


def _reduced(job: Job, stage: int, step: int) -> Iterator[Instruction]:
    if job.dp > 1:
        if job.overlap:
            early = min(job.buckets, job.layers_of(stage))
            yield from (("async", *_gradients(job)) for _ in range(job.buckets - early))
            yield ("join",)
        else:
            yield from (("meet", *_gradients(job)) for _ in range(job.buckets))
    if job.tied and job.pp > 1 and stage in (0, job.pp - 1):
        stages = (0, job.pp - 1)
        yield "across", "tied", stages, "all_reduce", 1 << 20, transfer(job, "tied"), (step, "tied")
    yield from _world(job, step)


def _gradients(job: Job) -> Instruction:
    kind = "reduce_scatter" if job.sharded else "all_reduce"
    return "dp", kind, 1 << 24, transfer(job, "dp")


def _gathered(job: Job) -> Iterator[Instruction]:
    yield "meet", "dp", "all_gather", 1 << 24, transfer(job, "dp")


def _world(job: Job, step: int) -> Iterator[Instruction]:
    if job.world and job.ranks > 1:
        every = tuple(range(job.pp))
        yield "across", "world", every, "all_reduce", 8, transfer(job, "world"), (step, "world")


def transfer(job: Job, parallelism: str) -> float:
    """What a collective or message takes when all are there, ns."""
    return job.transfer_ns.get(parallelism, _TRANSFER)
