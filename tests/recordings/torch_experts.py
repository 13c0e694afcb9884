"""Run by a Python that has PyTorch: one process of a mixture of experts on CPUs with Gloo; writes
its trace, and what its router did beside it.

Each rank holds two experts of every layer; most tokens go to the first ones. Their products are
grouped (``torch._grouped_mm``, PyTorch 2.9 and later).
"""

import json
import os
import sys
from pathlib import Path

folder, rank, ranks, port = sys.argv[1], *map(int, sys.argv[2:5])
os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
os.environ["MASTER_PORT"] = str(port)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402

OWN, LAYERS, STEPS, TOKENS, HIDDEN = 2, 3, 4, 256, 32
torch.set_num_threads(1)
torch.manual_seed(rank)
dist.init_process_group("gloo", rank=rank, world_size=ranks)
up = torch.randn(LAYERS, OWN, HIDDEN, 2 * HIDDEN, dtype=torch.bfloat16)
down = torch.randn(LAYERS, OWN, 2 * HIDDEN, HIDDEN, dtype=torch.bfloat16)
routed = []


def mixture(x, layer):
    """Every token to the rank of its expert, through that expert, and back."""
    bias = torch.linspace(1.5, -0.5, ranks * OWN)
    expert = (torch.randn(TOKENS, ranks * OWN) + bias).argmax(1)
    order = expert.argsort()
    wanted = torch.bincount(expert, minlength=ranks * OWN)
    offered = torch.empty_like(wanted)
    dist.all_to_all_single(offered, wanted)
    sent, taken = wanted.view(ranks, OWN).sum(1).tolist(), offered.view(ranks, OWN).sum(1).tolist()
    routed.append((layer, sent, taken))
    got = torch.empty(sum(taken), HIDDEN, dtype=torch.bfloat16)
    dist.all_to_all_single(got, x[order], taken, sent)
    own = torch.arange(OWN).repeat(ranks).repeat_interleave(offered).argsort()
    ends = offered.view(ranks, OWN).sum(0).cumsum(0).to(torch.int32)
    hidden = torch._grouped_mm(got[own], up[layer], offs=ends)
    made = torch.empty_like(got)
    made[own] = torch._grouped_mm(hidden, down[layer], offs=ends)
    back = torch.empty_like(x)
    dist.all_to_all_single(back, made, sent, taken)
    x[order] = back
    return x


with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
    for step in range(STEPS):
        with record_function(f"ProfilerStep#{step}"):
            x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16)
            for layer in range(LAYERS):
                x = mixture(x, layer)
Path(folder).mkdir(parents=True, exist_ok=True)
recording.export_chrome_trace(f"{folder}/rank{rank}.pt.trace.json")
Path(f"{folder}/rank{rank}.routed").write_text(json.dumps(routed))
dist.barrier()
dist.destroy_process_group()
