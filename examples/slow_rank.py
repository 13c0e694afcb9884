"""Train on the CPUs of this machine with one slow process, and let traceconv find it.

    torchrun --nproc-per-node 4 examples/slow_rank.py ./prof

Each process trains a small model with Gloo; rank 2 sleeps 200 ms in every step. At the end of each
of two windows of 10 steps rank 0 merges the traces and prints the verdict. Needs PyTorch and
traceconv, and no accelerator.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import traceconv

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", help="for the traces")
parser.add_argument("--slow", type=int, default=2, metavar="RANK", help="the rank that sleeps")
parser.add_argument("--sleep", type=float, default=200, metavar="MS", help="how long, every step")
given = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")  # torchrun says which rank this is
model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]))
optimizer, batch = torch.optim.SGD(model.parameters(), 0.01), torch.randn(64, 256)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=10, repeat=2),
    on_trace_ready=traceconv.torch_handler(given.folder, wait_s=60),
) as recording:
    for _ in range(24):
        if dist.get_rank() == given.slow:
            time.sleep(given.sleep / 1000)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        recording.step()
dist.barrier()
dist.destroy_process_group()
