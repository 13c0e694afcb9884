"""``python -m tests.recordings``: record, read, compare; see the package."""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np

import traceconv
from tests.recompute.capture import Capture
from tests.recompute.compare import EQUAL

HERE = Path(__file__).parent
STEPS = 12
LAUNCHED = {
    "jit_train": list(range(STEPS)),
    "jit_measure": [step for step in range(STEPS) for _ in range(1 + (step % 3 == 2))],
}
"""By program the step of each of its runs, of ``jax_job.py``."""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.recordings", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="one that has the frameworks")
    parser.add_argument("--only", choices=RECORDS, help="one kind of job")
    options = parser.parse_args()
    python, wrong, recorded = options.python, 0, 0
    for kind, record in RECORDS.items():
        if options.only not in (None, kind):
            continue
        framework = kind.partition("-")[0]
        asked = subprocess.run([python, "-c", f"import {framework}"], capture_output=True)
        if asked.returncode:
            print(f"{python} has no {framework}")
            continue
        recorded += 1
        with tempfile.TemporaryDirectory() as folder:
            wrong += record(python, Path(folder))
    return int(wrong > 0) if recorded else 3


def _jax(python, folder):
    """Steps of devices, and processes one of which sleeps; how much of it is wrong."""
    wrong = 0
    for devices in (1, 2, 4, 8):
        for mode in ("blocking", "ahead", "late"):
            out = folder / f"{devices}-{mode}"
            command = [python, str(HERE / "jax_job.py"), str(out), str(devices), mode]
            subprocess.run(command, check=True, capture_output=True)
            for reader in ("xplane", "xla_json"):
                wrong += _steps(out, reader, mode == "late")
    return wrong + sum(_straggler(python, folder / f"job{ranks}", ranks) for ranks in (2, 3))


def _steps(out, reader, late):
    """Print, and count, the operations that are not in the step that launched their program."""
    found = Counter()
    for trace in traceconv.open(out, reader=reader).traces("detail"):
        events, runs = trace.events, defaultdict(list)
        for row in np.flatnonzero(trace.rows_of("device", "comm")).tolist():
            about = trace.args[events.args[row]]
            runs[about["hlo_module"], int(about["run_id"])].append(row)
        for module, steps in LAUNCHED.items():
            numbers = sorted(number for name, number in runs if name == module)
            if not numbers:  # of another device only
                continue
            truth = [-1] * (len(numbers) - len(steps)) + steps
            for number, step in zip(numbers, truth, strict=True):
                for row in runs[module, number]:
                    said = int(events.step[row])
                    found["right" if said == step else "unknown" if said < 0 else "wrong"] += 1
    print(f"{out.name:>12} {reader:>9}  {dict(found)}")
    return found["wrong"] + (0 if late else found["unknown"])


def _straggler(python, out, ranks):
    """Print what is said of the process that sleeps, and of the clocks of all, which are one; how
    much of it is wrong."""
    job = started(python, "jax_processes.py", [(out, rank, ranks) for rank in range(ranks)])
    if any(sorted(one.wait(300) for one in job)):
        print(f"{out.name:>12}  the job failed")
        return 1
    found = traceconv.stragglers(out)
    print(f"{out.name:>12}  {found.lines()[1]}")
    offsets = traceconv.align(out, method="collective").plan.offsets.values()
    stated = [one for one in offsets if one.error_ns is not None]  # else it is refused
    listed = (f"{one.offset_ns / 1e3:.0f} +- {one.error_ns / 1e3:.0f} us" for one in stated)
    print(f"{'':>12}  one clock; by collectives {', '.join(listed) or 'refused'}")
    apart = sum(abs(one.offset_ns) > one.error_ns for one in stated)
    return apart + ([one.rank for one in found.verdict.culprits] != [ranks - 1])


def _torch(python, folder):
    """Coordinates of ranks on meshes of devices, against what their processes say."""
    wrong = 0
    meshes = (
        ("dp,tp", "2,2"), ("pp,dp,tp", "2,2,2"), ("tp,pp", "3,2"), ("dp_replicate,dp_shard", "2,3"),
        ("pp,dp_replicate,dp_shard,tp", "1,2,2,2"),
    )  # fmt: skip
    for names, sizes in meshes:
        out, ranks = folder / names, int(np.prod([int(size) for size in sizes.split(",")]))
        job = started(python, "torch_mesh.py", [(out, r, names, sizes) for r in range(ranks)])
        told = [json.loads(one.communicate(timeout=300)[0].splitlines()[-1]) for one in job]
        shape = traceconv.inspect(out).shape
        found = [{name: shape.value(r, name) for name in told[r]} for r in range(ranks)]
        print(f"{names:>12} {sizes:>9}  {'right' if found == told else f'{found}, not {told}'}")
        wrong += found != told
    return wrong


COLLECTIVES = {
    "ddp": {"gloo:all_reduce": 1},
    "compile": {"gloo:all_reduce": 1},
    "fsdp": {"gloo:all_gather": 6, "gloo:all_reduce": 3},
    "fsdp1": {"gloo:all_gather": 1, "gloo:all_reduce": 1},
    "tensor": {"gloo:all_reduce": 2},
}
"""By mode of ``torch_operators.py`` the collectives of a step: three layers are sharded apart, each
is gathered for forward and for backward, and its gradients are reduced (scattered, by Gloo's
all-reduce); ``fsdp1`` shards them together and gathers them once; what is reduced forward is
reduced backward as well."""

STEPS_OF_TORCH, SLEEP_NS = 6, 20_000_000


def _torch_tables(python, folder):
    """Names, counts and self times against PyTorch's own table, and collectives and sleeps against
    what the job did."""
    wrong = 0
    for mode, collectives in COLLECTIVES.items():
        ranks, out = (4 if mode == "tensor" else 2), folder / mode
        job = started(python, "torch_operators.py", [(out, mode, r, ranks) for r in range(ranks)])
        if any(sorted(one.wait(300) for one in job)):
            print(f"{mode:>12}  the job failed")
            wrong += 1
            continue
        for trace in traceconv.open(out, reader="kineto").traces("source"):
            stated = json.loads((out / f"rank{trace.rank}.table").read_text())
            faults = _differences(_table(trace), stated, trace.rank == ranks - 1, collectives)
            print(f"{mode:>12} {trace.rank}  {faults or f'right: {len(stated)} names'}")
            wrong += len(faults)
    return wrong


def _table(trace):
    """By name: count, self time and total time of the host's slices, ns. A slice that is all there
    is in one of the same name is left out, as ``key_averages`` does."""
    events, lanes = trace.events, defaultdict(list)
    for row in np.flatnonzero((events.kind == 0) & trace.rows_of("host", "comm")).tolist():
        track = trace.tracks[events.track[row]]
        name = trace.strings[events.name[row]]
        name = "ProfilerStep*" if name.startswith("ProfilerStep#") else name
        start, length = int(events.start_ns[row]), int(events.dur_ns[row])
        lanes[(track.process, track.thread, track.layer)].append((start, -length, name))
    count, own, total = Counter(), Counter(), Counter()
    for rows in lanes.values():
        slices, stack = [], []
        for start, length, name in sorted(rows):
            while stack and slices[stack[-1]][1] <= start:
                stack.pop()
            parent = stack[-1] if stack else -1
            stack.append(len(slices))
            slices.append((start, start - length, name, parent))
        children = Counter(parent for _, _, _, parent in slices)
        for start, end, name, parent in slices:
            own[name] += end - start
            if parent >= 0:
                own[slices[parent][2]] -= end - start
            if parent >= 0 and children[parent] == 1 and slices[parent][2] == name:
                continue
            count[name] += 1
            total[name] += end - start
    return {name: (count[name], own[name], total[name]) for name in count}


def _differences(found, stated, sleeps, collectives):
    """What is not as PyTorch, or the job, says; times of the table are us. Operations that run
    beside their thread have no self time there."""
    faults = [f"only in one: {', '.join(sorted(found.keys() ^ stated.keys()))}"]
    faults = faults if found.keys() != stated.keys() else []
    for name in sorted(found.keys() & stated.keys()):
        count, own, _ = found[name]
        if count != stated[name][0]:
            faults.append(f"{name}: {count}, not {stated[name][0]}")
        if not name.startswith("gloo:") and abs(own / 1e3 - stated[name][1]) > 0.01 * count + 0.1:
            faults.append(f"{name}: {own / 1e3:.3f} us of its own, not {stated[name][1]:.3f}")
    slept = found.get("sleep", (0, 0, 0))
    if (slept[0], slept[2] >= STEPS_OF_TORCH * SLEEP_NS) != (
        (STEPS_OF_TORCH, True) if sleeps else (0, False)
    ):
        faults.append(f"slept {slept[0]} times, {slept[2]} ns")
    ran = {name: one[0] for name, one in found.items() if name.startswith("gloo:")}
    if ran != {name: STEPS_OF_TORCH * n for name, n in collectives.items()}:
        faults.append(f"collectives {ran}")
    return faults


def _torch_experts(python, folder):
    """Rows of experts by peer and layer, exchanged and multiplied, against the router of each."""
    ranks, layers, out = 4, 3, folder / "experts"
    job = started(python, "torch_experts.py", [(out, rank, ranks) for rank in range(ranks)])
    if any(sorted(one.wait(300) for one in job)):
        print("     experts  the job failed")
        return 1
    peers, rows = Counter(), Counter()
    for rank in range(ranks):
        for layer, _, taken in json.loads((out / f"rank{rank}.routed").read_text()):
            peers |= {(rank, peer): peers[rank, peer] + n for peer, n in enumerate(taken)}
            rows[rank, f"exchange {layer + 1}"] += sum(taken)
            for product in (2 * layer + 1, 2 * layer + 2):
                rows[rank, f"product {product}"] += sum(taken)
    found = traceconv.stats(out, by=["expert_peer", "expert_layer"], cache=False)
    wrong = 0
    for name, keys, wanted in (
        ("expert_peer", ("Rank", "Peer", "Routed"), peers),
        ("expert_layer", ("Rank", "Layer", "Rows"), rows),
    ):
        columns = (found[name].columns[key].tolist() for key in keys)
        ours = {(rank, of): n for rank, of, n in zip(*columns, strict=True) if of != "all layers"}
        right = sum(ours.get(key) == n for key, n in wanted.items())
        print(f"     experts  {name}: {right} of {len(wanted)} right")
        wrong += len(wanted) - right + len(ours.keys() - wanted.keys())
    return wrong + (len(rows) != 3 * layers * ranks)


MEMORY = ("memory", "memory_live", "memory_path", "memory_phase", "memory_oom")


def _torch_memory(python, folder):
    """Every table of memory against the records of the trace, by plain loops."""
    out = folder / "memory"
    subprocess.run([python, str(HERE / "torch_memory.py"), str(out)], check=True)
    tally = Capture(out, folder).compared()
    counts = {name: tally.counts[name] for name in MEMORY}
    equal = ", ".join(f"{name} {of[EQUAL]}" for name, of in counts.items())
    print(f"      memory  {equal} figures right; different: {tally.differences or 'none'}")
    return len(tally.differences) + sum(not of[EQUAL] for of in counts.values())


def _slices(python, folder, framework):
    """Count and time of every name, against what the framework's own reader says."""
    out = folder / framework
    subprocess.run([python, str(HERE / "slices.py"), framework, str(out)], check=True,
                   capture_output=True)  # fmt: skip
    found = defaultdict(lambda: [0, 0])
    for trace in traceconv.open(out).traces("source"):
        events = trace.events
        for row in np.flatnonzero(events.kind == 0).tolist():
            of_name = found[trace.strings[events.name[row]]]
            of_name[0] += 1
            of_name[1] += int(events.dur_ns[row])
    stated = json.loads((out / "slices.names").read_text())
    apart = {name: (found.get(name), of) for name, of in stated.items() if found.get(name) != of}
    print(f"{framework:>12}  {len(stated) - len(apart)} of {len(stated)} names right", apart or "")
    return len(apart)


def started(python, program, arguments):
    """Processes of a job, each with its arguments and a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [
        subprocess.Popen(
            [python, str(HERE / program), *map(str, own), port],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for own in arguments
    ]  # fmt: skip


RECORDS = {
    "jax": _jax,
    "torch-meshes": _torch,
    "torch-operators": _torch_tables,
    "torch-experts": _torch_experts,
    "torch-memory": _torch_memory,
    **{
        f"{framework}-slices": partial(_slices, framework=framework)
        for framework in ("jax", "tensorflow", "onnxruntime", "viztracer")
    },
}
"""What records and compares each kind of job; the framework is the first word."""


if __name__ == "__main__":
    sys.exit(main())
