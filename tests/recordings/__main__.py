"""``python -m tests.recordings``: record, read, compare; see the package."""

import argparse
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
    python = parser.parse_args().python
    if subprocess.run([python, "-c", "import jax"], capture_output=True, check=False).returncode:
        print(f"{python} has no JAX: nothing to record")
        return 3
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for devices in (1, 2, 4, 8):
            for mode in ("blocking", "ahead", "late"):
                out = Path(folder) / f"{devices}-{mode}"
                command = [python, str(HERE / "jax_job.py"), str(out), str(devices), mode]
                subprocess.run(command, check=True, capture_output=True)
                for reader in ("xplane", "xla_json"):
                    wrong += _steps(out, reader, mode == "late")
        for ranks in (2, 3):
            wrong += _straggler(python, Path(folder) / f"job{ranks}", ranks)
    return int(wrong > 0)


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = [
        subprocess.Popen(
            [python, str(HERE / "jax_processes.py"), str(out), str(rank), str(ranks), port],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    if any(sorted(one.wait(300) for one in job)):
        print(f"{out.name:>12}  the job failed")
        return 1
    found = traceconv.stragglers(out)
    print(f"{out.name:>12}  {found.lines()[1]}")
    offsets = traceconv.align(out, method="collective").plan.offsets.values()
    print(
        f"{'':>12}  one clock; by collectives "
        + ", ".join(f"{o.offset_ns / 1e3:.0f} +- {o.error_ns / 1e3:.0f} us" for o in offsets)
    )
    apart = sum(abs(one.offset_ns) > one.error_ns for one in offsets)
    return apart + ([one.rank for one in found.verdict.culprits] != [ranks - 1])


if __name__ == "__main__":
    sys.exit(main())
