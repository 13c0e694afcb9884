"""Run by a Python that has HTA or TraceLens: prints what they say of captures, as JSON."""

import json
import logging
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def hta(*paths):
    """By capture: queues (stream, launches, longest), kernels (name, us), computing, us."""
    from hta.trace_analysis import TraceAnalysis

    found = {}
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(path, folder)
            try:
                analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
                times = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
                kernels = analysis.get_gpu_kernel_breakdown(
                    visualize=False, num_kernels=100_000, duration_ratio=1.0
                )[1]
                queues = analysis.get_queue_length_summary().reset_index().to_dict("records")
            except Exception as error:  # noqa: BLE001 - HTA documents no exceptions
                found[path] = {"error": repr(error)[:100]}
                continue
        found[path] = {
            "queues": [
                [int(row["stream", ""]), int(row["queue_length", "count"]) // 2,
                 int(row["queue_length", "max"])] for row in queues
            ],
            "kernels": kernels[["name", "sum (us)"]].values.tolist(),
            "computing": [float(row["compute_time(us)"]) for row in times],
        }  # fmt: skip
    return found


def tracelens(*jobs):
    """By job, group and kind of collective: calls, us of moving data, and of waiting."""
    from TraceLens.NcclAnalyser.nccl_analyser import NcclAnalyser

    found = {}
    for job in jobs:
        files = sorted(map(str, Path(job).glob("rank*.gz")), key=lambda f: int(_rank(f)))
        analyser = NcclAnalyser(files, len(files))
        rows = analyser.build_df_nccl_implicit_sync_cat(
            detailed=True, strict_metadata_check=False
        ).to_dict("records")
        sums = found[job] = {}
        for row in rows:
            kind = re.sub("[^a-z]", "", str(row["Collective name"]).lower())
            key = f"{row['Process Group Name']} {kind}"
            lengths = [v for k, v in row.items() if re.fullmatch(r"rank_\d+_dur", k) and v == v]
            one = sums.setdefault(key, [0, 0.0, 0.0])
            moved = row["comm_latency"] * len(lengths)
            one[:] = one[0] + len(lengths), one[1] + moved, one[2] + sum(lengths) - moved
    return found


def _rank(path):
    return re.search(r"rank(\d+)", path)[1]


if __name__ == "__main__":
    name, out, *paths = sys.argv[1:]
    Path(out).write_text(json.dumps({"hta": hta, "tracelens": tracelens}[name](*paths)))
