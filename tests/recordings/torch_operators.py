"""Run by a Python that has PyTorch: one process of a job on CPUs with Gloo; writes its trace, and
PyTorch's own table of operators beside it.

Modes: ``ddp``, ``compile`` (DistributedDataParallel of a compiled model), ``fsdp`` (fully_shard),
``fsdp1`` (FullyShardedDataParallel),
``tensor`` (a mesh of two dimensions, functional collectives).
"""

import json
import os
import sys
import time
from pathlib import Path

folder, mode, rank, ranks, port = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
os.environ["MASTER_PORT"] = str(port)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import _functional_collectives as functional  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function, schedule  # noqa: E402

STEPS, SLEEP_S = 6, 0.02
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo", rank=rank, world_size=ranks)
model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(128, 128), nn.ReLU())])
x = torch.randn(32, 128)
group = None
if mode == "fsdp":
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
elif mode == "fsdp1":
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
elif mode == "tensor":
    group = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp")).get_group("tp")
else:
    model = nn.parallel.DistributedDataParallel(model)
    model = torch.compile(model) if mode == "compile" else model
optimizer = torch.optim.SGD(model.parameters(), 0.01)


def train():
    optimizer.zero_grad()
    if rank == ranks - 1:
        with record_function("sleep"):
            time.sleep(SLEEP_S)
    out = model(x)
    if group is not None:
        out = functional.all_reduce(out, "sum", group)
    out.square().mean().backward()
    optimizer.step()


for _ in range(3):
    train()


def write(recording):
    Path(folder).mkdir(parents=True, exist_ok=True)
    recording.export_chrome_trace(f"{folder}/rank{rank}.pt.trace.json")
    table = {
        one.key: [one.count, one.self_cpu_time_total, one.cpu_time_total]
        for one in recording.key_averages()
    }
    Path(f"{folder}/rank{rank}.table").write_text(json.dumps(table))


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
    on_trace_ready=write,
) as recording:
    for _ in range(STEPS + 1):
        train()
        recording.step()
dist.barrier()
dist.destroy_process_group()
