"""Run by a Python that has PyTorch: a small model trained on a CPU with its memory, its shapes and
its stacks recorded, and phases of which the program marks two and PyTorch the others."""

import contextlib
import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

folder, STEPS = sys.argv[1], 4
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
optimizer = torch.optim.Adam(net.parameters())
data = torch.utils.data.TensorDataset(torch.randn(192, 256), torch.randn(192, 64))


def write(recording):
    Path(folder).mkdir(parents=True, exist_ok=True)
    recording.export_chrome_trace(f"{folder}/rank0.pt.trace.json")


with profile(
    activities=[ProfilerActivity.CPU],
    profile_memory=True,
    record_shapes=True,
    with_stack=True,
    schedule=schedule(wait=1, warmup=1, active=STEPS),
    on_trace_ready=write,
) as recording:
    for x, y in torch.utils.data.DataLoader(data, batch_size=32):
        with record_function("forward"):
            loss = (net(x) - y).square().mean()
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with contextlib.suppress(RuntimeError):  # more than there is: recorded as out of memory
            torch.empty(1 << 50)
        recording.step()
