"""``python -m tests.other_tools``: ask the tools, compare; see the package."""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import traceconv

DATA = Path(__file__).parents[2].parent / "shared" / "data"
ASK = Path(__file__).parent / "ask.py"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.other_tools", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[DATA / "gpu/inference"])
    parser.add_argument("--python", default=sys.executable, help="one that has the tools")
    parser.add_argument("--tracelens", default="", help="a checkout of TraceLens")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tally = Tally()
    files = sorted((DATA / "gpu/kineto").glob("*.json.gz"))
    compare_hta(tally, _asked(options, "hta", files))
    compare_tracelens(tally, _asked(options, "tracelens", sorted((DATA / "jobs").glob("*/"))))
    for folder in options.folders:
        for sheets in sorted({path.parent for path in folder.rglob("GEMM.csv")}):
            compare_sheets(tally, sheets)
    for name, counts in tally.counts.items():
        print(f"{name}: {counts[True]} of {sum(counts.values())} rows equal")


class Tally:
    """How many rows are equal by table; others are printed."""

    def __init__(self):
        self.counts = defaultdict(Counter)

    def row(self, table, equal, text):
        """Count a row."""
        self.counts[table][equal] += 1
        if not equal:
            print(f"  {table}: {text}")


def _asked(options, tool, paths):
    """The figures of a tool; {} if that Python lacks it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "said.json"
        command = [options.python, str(ASK), tool, str(out), *map(str, paths)]
        environment = {**os.environ, "PYTHONPATH": options.tracelens}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            print(f"no {tool}: {done.stderr.strip().rpartition(chr(10))[2] or done.returncode}")
            return {}
        return json.loads(out.read_text())


def _rows(stats, name, *keys):
    columns = stats[name].columns
    return list(zip(*(columns[key].tolist() for key in keys), strict=True)) if columns else []


# -- HTA ----------------------------------------------------------------------------------


def compare_hta(tally, said):
    """Queues, kernels and computing of each capture."""
    for path, theirs in said.items():
        where = Path(path).name[:40]
        if "error" in theirs:
            print(f"  HTA cannot read {where}: {theirs['error']}")
            continue
        stats = traceconv.stats(
            path, by=["overlap", "kernel", "copy", "launch_queue"], align="none", cache=False
        )
        queues = _rows(stats, "launch_queue", "Stream", "Launches", "Max Length")
        ours = {stream: rest for stream, *rest in queues}
        for stream, launches, longest in theirs["queues"]:
            mine = ours.get(f"Stream {stream}")
            text = f"{where} stream {stream}: {mine}, HTA {launches, longest}"
            tally.row("launch_queue", mine == [launches, longest], text)
        spent, calls = Counter(), Counter()
        for table, key in (("kernel", "Kernel"), ("copy", "Copy")):
            for name, count, ns in _rows(stats, table, key, "Count", "Total Time(ns)"):
                spent[name] += ns / 1000
                calls[name] += count
        for name, us in theirs["kernels"]:
            if name != "others":
                close = abs(spent[name] - us) <= 2 * calls[name]  # HTA cuts both ends to whole us
                tally.row("kernel", close, f"{where} {name[:60]}: {spent[name]}, HTA {us}")
        whole = [ns / 1000 for step, ns in _rows(stats, "overlap", "Step", "Total Compute(ns)")
                 if step < 0]  # fmt: skip
        if whole and len(theirs["computing"]) == 1:
            us = theirs["computing"][0]
            close = abs(sum(whole) - us) <= 2 * calls.total()
            tally.row("overlap", close, f"{where}: computing {sum(whole)}, HTA {us}")


# -- collectives ----------------------------------------------------------------------------


def compare_tracelens(tally, said):
    """Moving data and waiting, by group and kind, over all ranks."""
    keys = ("Rank", "Group", "Operation", "Matched", "Transfer Time(ns)", "Wait Time(ns)")
    for job, theirs in said.items():
        stats = traceconv.stats(job, by=["collective_wait"], cache=False)
        for rank, group, kind, matched, *ours in _rows(stats, "collective_wait", *keys):
            number = group.removeprefix("Process Group ").removeprefix("Group ").split(" ")[0]
            found = [v for key, v in theirs.items()
                     if key.split(" ")[0] == number and kind in key.split(" ")[1]]  # fmt: skip
            if rank >= 0 or not found:
                continue
            calls, *us = found[0]
            apart = max(abs(mine - 1000 * one) for mine, one in zip(ours, us, strict=True))
            equal = calls == matched and apart < 1.5 * matched
            text = f"{Path(job).name} {group} {kind}: {matched, *ours}, TraceLens {calls, *us} us"
            tally.row("collective_wait", equal, text)


# -- sheets ---------------------------------------------------------------------------------

SHEETS = ("GEMM", "SDPA_fwd", "SDPA_bwd", "CONV_fwd", "CONV_bwd", "InferenceAttention_fwd",
          "Normalization", "Normalization_fwd", "RMSNorm_fwd")  # fmt: skip

KEY = ("Input Dims_first", "GFLOPS_first", "Data Moved (MB)_first")


def compare_sheets(tally, sheets):
    """Rows of the sheets: operations, bytes, calls and time. Formulas of normalization differ by
    what they count beside the elements, so 2.5 % are equal there."""
    names = [sheets.name.removesuffix(end) for end in ("_perf_report_csvs", "_csvs")]
    beside = [sheets.with_name(f"{name}.json.gz") for name in names]
    capture = next((path for path in beside if path.is_file()), sheets.parent)
    if not [*sheets.parent.glob("*.json.gz")]:
        print(f"  no capture beside {sheets}")
        return
    try:
        stats = traceconv.stats(str(capture), by=["operator_flops"], align="none", cache=False)
    except traceconv.TraceconvError as error:
        print(f"  no capture beside {sheets}: {type(error).__name__}")
        return
    keys = ("FLOPs", "Bytes", "Count", "Total Time(ns)")
    ours = _rows(stats, "operator_flops", *keys)
    for sheet in SHEETS:
        path = sheets / f"{sheet}.csv"
        if not path.is_file():
            continue
        within = 0.025 if "orm" in sheet else 1e-5
        rows = defaultdict(lambda: [0, 0.0])
        for row in csv.DictReader(path.open(encoding="utf-8")):
            dims, *figures = (row.get(key) for key in KEY)
            one = rows[row["name"], dims, *(float(figure or 0) for figure in figures)]
            one[0] += int(float(row["name_count"]))
            one[1] += float(row["Kernel Time (µs)_sum"])
        for (name, dims, gflop, mib), (count, us) in rows.items():
            equal = any(
                abs(flops / 1e9 - gflop) <= within * gflop and abs(ns / 1000 - us) <= 0.001 * us
                and calls == count and abs(n_bytes / 2**20 - mib) <= max(within, 1e-3) * mib
                for flops, n_bytes, calls, ns in ours
            )  # fmt: skip
            text = f"{capture.name} {name} {gflop} GFLOP, {mib} MiB, {count} calls, {us} us {dims}"
            tally.row(f"operator_flops, sheet {sheet}", equal, text[:200])


if __name__ == "__main__":
    main()
