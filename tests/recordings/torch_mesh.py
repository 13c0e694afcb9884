"""Run by a Python that has PyTorch: a process of a job on a mesh of devices; prints where it is."""

import json
import os
import sys
from pathlib import Path

folder, rank, names, sizes, port = sys.argv[1], sys.argv[2], *sys.argv[3:6]
sizes = [int(size) for size in sizes.split(",")]
world = 1
for size in sizes:
    world *= size
os.environ |= {"RANK": rank, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
os.environ["MASTER_PORT"] = port

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

torch.set_num_threads(1)
mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(names.split(",")))
with profile(activities=[ProfilerActivity.CPU]) as recording:
    for _ in range(3):
        for name in names.split(","):
            dist.all_reduce(torch.ones(100), group=mesh.get_group(name))
Path(folder).mkdir(parents=True, exist_ok=True)
recording.export_chrome_trace(f"{folder}/rank{rank}.json")
told = {name: mesh.get_local_rank(name) for name in names.split(",")}
if {
    "dp_replicate",
    "dp_shard",
} <= told.keys():  # made later, so that the recording has no such group
    told["dp"] = mesh["dp_replicate", "dp_shard"]._flatten("dp").get_local_rank()
print(json.dumps(told))
dist.barrier()
dist.destroy_process_group()
