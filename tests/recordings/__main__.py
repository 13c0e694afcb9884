"""``python -m tests.recordings``: record, read, compare; see the package."""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

import traceconv

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
    python, wrong, recorded = parser.parse_args().python, 0, 0
    for framework, record in (("jax", _jax), ("torch", _torch)):
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


def started(python, program, arguments, stderr=subprocess.DEVNULL):
    """Processes of a job, each with its arguments and a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [
        subprocess.Popen(
            [python, str(HERE / program), *map(str, own), port],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )
        for own in arguments
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
