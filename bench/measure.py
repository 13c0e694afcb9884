"""Run whole commands and say what they took: time, memory, bytes.

Commands are started one after the other, interleaved by the caller; nothing is imported here that
would make the starting process large, since a child is charged with the memory of its parent until
it has become another program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

SAMPLE_SECONDS = 0.004


@dataclass(frozen=True)
class Taken:
    """What one run of a command took.

    Attributes:
        cpu:       seconds of processor time, user and system, with children.
        wall:      seconds.
        rss:       peak resident bytes, mapped files included.
        anonymous: peak bytes of memory that no file backs, sampled every few ms.
        out:       standard output; ``err``: standard error.
    """

    cpu: float
    wall: float
    rss: int
    anonymous: int
    out: str
    err: str


class CommandFailed(Exception):
    """A measured command ended with an error; the message ends with what it said."""


def run(command: Sequence[str], env: dict[str, str] | None = None) -> Taken:
    """Run ``command`` to its end.

    Raises:
        CommandFailed: it exits with anything but 0.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, **(env or {})}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    peak = Peak(process.pid)
    err: list[str] = []
    reader = threading.Thread(target=lambda: err.append(process.stderr.read()))  # type: ignore[union-attr]
    reader.start()
    out = process.stdout.read()  # type: ignore[union-attr]
    reader.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    anonymous = peak.stop()
    process.stdout.close()  # type: ignore[union-attr]
    process.stderr.close()  # type: ignore[union-attr]
    if process.returncode:
        raise CommandFailed(f"{' '.join(command)}: exit {process.returncode}\n{err[0][-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Taken(cpu, wall, usage.ru_maxrss * 1024, anonymous, out, err[0])


class Peak:
    """Samples the anonymous memory of a process and its children until it is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, sum(map(anonymous, _family(self._pid))))

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._peak


def _family(pid: int) -> list[int]:
    found, at = [pid], 0
    while at < len(found):
        children = Path(f"/proc/{found[at]}/task/{found[at]}/children")
        with suppress(OSError):  # it has ended
            found += map(int, children.read_text().split())
        at += 1
    return found


def anonymous(pid: int) -> int:
    """Bytes of memory of a process that no file backs; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    _, _, rest = text.partition("RssAnon:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if rest else 0


@dataclass
class Job:
    """A command that is measured in every round.

    Attributes:
        name:   how rows refer to it.
        make:   the command; asked anew for each round.
        env:    on top of the environment.
        outputs: files whose sizes count; removed before each round.
        taken:  one entry per round.
        note:   why it does not run, if it does not.
    """

    name: str
    make: Callable[[], Sequence[str]]
    env: dict[str, str] = field(default_factory=dict)
    outputs: tuple[Path, ...] = ()
    taken: list[Taken] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    note: str = ""

    def once(self) -> None:
        """Run it one more time; a failure becomes the note and ends it."""
        if self.note:
            return
        for path in self.outputs:
            path.unlink(missing_ok=True)
        try:
            self.taken.append(run(self.make(), self.env))
        except (CommandFailed, OSError) as e:
            self.note = str(e).strip().splitlines()[-1][:120]
            print(f"\n{e}", file=sys.stderr)
            return
        self.sizes = [path.stat().st_size for path in self.outputs]

    def median(self, what: str) -> float | None:
        """The middle value of ``cpu``, ``wall``, ``rss`` or ``anonymous``; None without runs."""
        return median(getattr(t, what) for t in self.taken) if self.taken else None


def interleaved(jobs: Sequence[Job], rounds: int) -> None:
    """Every job once per round, in turn, so that a busy minute hits all of them."""
    for number in range(rounds):
        for job in jobs:
            if sys.stderr.isatty():
                print(f"\rround {number + 1}/{rounds} {job.name:40.40}\r", end="", file=sys.stderr)
            job.once()


SPIN = "n = 0\nwhile n < 6_000_000: n += 1"


def control(python: str) -> float:
    """How much faster two busy loops run at once than one after the other; 2.0 is ideal."""
    start = time.perf_counter()
    subprocess.run([python, "-c", SPIN], check=True)
    alone = time.perf_counter() - start
    start = time.perf_counter()
    both = [subprocess.Popen([python, "-c", SPIN]) for _ in range(2)]
    for process in both:
        process.wait()
    return 2 * alone / (time.perf_counter() - start)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "python": sys.version.split()[0],
        "system": f"{os.uname().sysname} {os.uname().release}",
    }
