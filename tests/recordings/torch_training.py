"""Run by a Python that has PyTorch: one process of a training job on CPUs with Gloo, whose traces
``traceconv.torch_handler`` writes and judges. The slow rank sleeps in every step."""

import os
import sys
import time

folder, rank, ranks, slow, sleep_ms, port = sys.argv[1], *map(int, sys.argv[2:7])
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile, schedule  # noqa: E402

import traceconv  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=ranks)
model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]))
optimizer, x = torch.optim.SGD(model.parameters(), 0.01), torch.randn(64, 256)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=10, repeat=2),
    on_trace_ready=traceconv.torch_handler(folder, wait_s=60),
) as recording:
    for _ in range(24):
        if rank == slow:
            time.sleep(sleep_ms / 1000)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        recording.step()
dist.barrier()
dist.destroy_process_group()
