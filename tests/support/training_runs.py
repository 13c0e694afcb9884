"""Training runs whose steps are simulated, as PyTorch's profiler records them: what a comparison of
two of them has to find is known.

A host thread fetches a batch, launches kernels one after the other, and waits for the device at the
end of the step; a stream runs what was launched in order; collectives run beside it on a stream of
their own and end on all ranks together. Times are in microseconds with three decimals.
"""

import json
from dataclasses import dataclass, field, replace

import numpy as np
from kineto_files import arrow, row

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
GEMM = "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_256x128_32x3_tn_align8>(Params)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 3>>(int)"
HOST, COMPUTE, COMM, COPY = (900, 900), (0, 7), (0, 20), (0, 8)


@dataclass(frozen=True)
class Work:
    """A kernel of every step: its name, operator, shapes, module and length in µs."""

    kernel: str
    operator: str
    shape: str
    module: str
    us: float


def model(layers=4):
    """The kernels of a small transformer."""
    works = []
    for i in range(layers):
        at = f"Model_0/Layer_{i}"
        works += [
            Work(GEMM, "aten::mm", "[[4096,1024],[1024,3072]]", f"{at}/Attention_{i}", 900.0),
            Work("flash_fwd_kernel<128>", "aten::_flash_attention", "[[8,16,512,64]]",
                 f"{at}/Attention_{i}", 700.0),
            Work(ELEMENTWISE.format("FusedGeluAdd<bf16>"), "fused_gelu_add", "[[4096,4096]]",
                 f"{at}/Mlp_{i}", 400.0),
            Work(GEMM, "aten::mm", "[[4096,4096],[4096,1024]]", f"{at}/Mlp_{i}", 1200.0),
        ]  # fmt: skip
    return tuple(works)


@dataclass(frozen=True)
class Plan:
    """A run.

    Attributes:
        works: kernels of a step, in order; an allreduce follows every fourth.
        noise: relative scatter of every kernel; ``pace`` that of everything in a step.
        overlap: whether collectives run beside later kernels, or hold them up.
        reduce_us: length of a collective.
        fetch_us: of the host, before the first kernel of a step; mean of an exponential, to which
            ``stall_us`` is added.
        launch_us: of the host, per kernel.
        shape: of noise: "normal", "exponential" or "student".
        drift: by which everything gets slower from the first to the last step.
        ranks, steps: how many; the first step is number ``first``.
    """

    works: tuple[Work, ...] = field(default_factory=model)
    noise: float = 0.004
    pace: float = 0.004
    overlap: bool = True
    reduce_us: float = 600.0
    fetch_us: float = 150.0
    stall_us: float = 0.0
    launch_us: float = 12.0
    shape: str = "normal"
    drift: float = 0.0
    ranks: int = 1
    steps: int = 10
    first: int = 1
    seed: int = 0


def scatter(rng, plan, n):
    """Factors around 1, not below a half."""
    raw = {
        "normal": lambda: rng.standard_normal(n),
        "exponential": lambda: rng.standard_exponential(n) - 1,
        "student": lambda: rng.standard_t(3, n) / 3**0.5,
    }[plan.shape]()
    return np.maximum(1 + plan.noise * raw, 0.5)


def write(folder, plan):
    """The traces of all ranks below ``folder``."""
    rng = np.random.default_rng(plan.seed)
    kernels = np.array([work.us for work in plan.works])
    events = [[] for _ in range(plan.ranks)]
    now = np.full(plan.ranks, 1_000_000.0)
    number = 0
    for step in range(plan.steps):
        pace = 1 + plan.pace * rng.standard_normal() + plan.drift * step / max(plan.steps - 1, 1)
        begun = now.copy()
        fetch = plan.stall_us + plan.fetch_us * rng.standard_exponential(plan.ranks)
        took = [kernels * pace * scatter(rng, plan, len(kernels)) for _ in range(plan.ranks)]
        moved = 40 * pace * rng.uniform(0.9, 1.1, plan.ranks)
        host = now + fetch
        stream, other = host.copy(), host.copy()
        for rank in range(plan.ranks):
            events[rank].append(row("user_annotation", FETCH, *HOST, now[rank], fetch[rank]))
            number += 1
            launch(events[rank], number, host[rank], "cudaMemcpyAsync", None,
                   ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", COPY, moved[rank]),
                   host[rank] + 8)  # fmt: skip
            stream[rank] = host[rank] + 8 + moved[rank]
            host[rank] += 10
        for i, work in enumerate(plan.works):
            for rank in range(plan.ranks):
                number += 1
                start = max(stream[rank], host[rank] + 6)
                launch(events[rank], number, host[rank], "cudaLaunchKernel", work,
                       ("kernel", work.kernel, COMPUTE, took[rank][i]), start)  # fmt: skip
                stream[rank] = start + took[rank][i]
                host[rank] += plan.launch_us * rng.uniform(0.9, 1.5)
            if i % 4 == 3:
                begin = np.maximum(stream, other)
                end = begin.max() + plan.reduce_us * pace * scatter(rng, plan, 1)[0]
                for rank in range(plan.ranks):
                    number += 1
                    launch(events[rank], number, host[rank], "cudaLaunchKernel", None,
                           ("kernel", NCCL, COMM, end - begin[rank]), begin[rank])  # fmt: skip
                other[:] = end
                if not plan.overlap:
                    stream[:] = end
        now = np.maximum(np.maximum(stream, other), host) + 20
        for rank in range(plan.ranks):
            mark = f"ProfilerStep#{plan.first + step}"
            events[rank].append(row("user_annotation", mark, *HOST, begun[rank],
                                    now[rank] - begun[rank]))  # fmt: skip
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for rank, rows in enumerate(events):
        for one in rows:
            one.update({key: float(f"{one[key]:.3f}") for key in ("ts", "dur") if key in one})
        about = {"rank": rank, "world_size": plan.ranks, "backend": "nccl"}
        keys = {"schemaVersion": 1, "distributedInfo": about, "traceEvents": rows}
        paths.append(folder / f"rank{rank}.pt.trace.json")
        paths[-1].write_text(json.dumps(keys))
    return str(folder)


def launch(events, number, at, call, work, device, start):
    """The call of the host, within its operator and modules, and what it starts on the device."""
    cat, name, (pid, stream), length = device
    if work is not None:
        for depth, module in enumerate(work.module.split("/")):
            wide = 2.5 - 0.4 * depth  # less than a launch takes: calls do not cross
            events.append(row("python_function", f"nn.Module: {module}", *HOST, at - wide,
                              2 * wide + 4))  # fmt: skip
        dims = {"Input_Dims": json.loads(work.shape)}
        events.append(row("cpu_op", work.operator, *HOST, at - 1, 6, **dims))
    events.append(row("cuda_runtime", call, *HOST, at, 4, correlation=number))
    events.append(row(cat, name, pid, stream, start, length, device=0, stream=stream,
                      correlation=number))  # fmt: skip
    events.append(arrow("s", "ac2g", number, *HOST, at))
    events.append(arrow("f", "ac2g", number, pid, stream, start))


def slower(works, operator, factor):
    """One operator longer."""
    return tuple(
        replace(one, us=one.us * factor) if one.operator == operator else one for one in works
    )


def unfused(works):
    """The fused kernel as its two parts."""
    found = []
    for one in works:
        if one.operator != "fused_gelu_add":
            found.append(one)
            continue
        found += [
            replace(one, kernel=ELEMENTWISE.format("GeluCUDAKernel<bf16>"), operator="aten::gelu",
                    us=0.7 * one.us),
            replace(one, kernel=ELEMENTWISE.format("CUDAFunctor_add<bf16>"), operator="aten::add",
                    us=0.6 * one.us),
        ]  # fmt: skip
    return tuple(found)


def reshaped(works, before, after, factor):
    """One shape another one, and its kernel longer."""
    return tuple(
        replace(one, shape=after, us=one.us * factor) if one.shape == before else one
        for one in works
    )
