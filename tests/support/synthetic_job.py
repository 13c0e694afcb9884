"""A training job whose clocks, delays and links are known: what alignment has to find again.

Ranks are laid out as tensor x data x pipeline parallel groups. Time is simulated in true time - a
collective ends for all members when the last has come and the transfer is over - and only then
stamped with the clock of each rank.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from traceconv.alignment.collective_records import CollectiveRecords, Group, collective_records
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import PPT, Anchor, Domain
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource

BASE_NS = 1_700_000_000_000_000_000

NOISES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "exponential": lambda rng, n: rng.standard_exponential(n) - 1,
    "student": lambda rng, n: rng.standard_t(3, n) / 3**0.5,
}
"""Shapes of jitter: mean 0, standard deviation 1; Student's t has three degrees of freedom."""


@dataclass(frozen=True)
class Job:
    """What is simulated; times in ns.

    Attributes:
        tp, dp, pp: ranks per tensor, data and pipeline parallel group.
        steps, layers: a step is, per layer, computing and a collective of the tensor group; then
            one of the pipeline group and one of the data group, as far as these have members.
        jitter: standard deviation of what each rank's end of a collective is off, and of what
            computing takes; ``noise`` is its shape, a key of :data:`NOISES`.
        offset: per rank, what its clock shows less than true time; ``drift_ppt`` as for
            corrections.
        slow: a rank, and what it computes longer before the first collective of each step.
        dropped: per rank, operations its capture misses at the start.
        lost: per rank, share of operations missing anywhere.
        slow_link: source, destination, and how many times longer it takes than others like it.
        pace: by how much steps differ for all ranks alike, as their data do.
    """

    tp: int = 2
    dp: int = 2
    pp: int = 1
    steps: int = 20
    layers: int = 3
    jitter: float = 0.0
    offset: tuple[int, ...] = ()
    drift_ppt: tuple[int, ...] = ()
    slow: tuple[int, int] | None = None
    dropped: dict[int, int] = field(default_factory=dict)
    lost: dict[int, float] = field(default_factory=dict)
    seed: int = 0
    compute: int = 800_000
    transfer: int = 150_000
    pace: float = 0.02
    noise: str = "normal"
    slow_link: tuple[int, int, float] | None = None

    @property
    def ranks(self):
        """How many there are."""
        return self.tp * self.dp * self.pp

    def local(self, rank, true_ns):
        """What the clock of a rank shows at a true time."""
        drift = self.drift_ppt[rank] if self.drift_ppt else 0
        offset = self.offset[rank] if self.offset else 0
        gained = np.rint((true_ns - BASE_NS) * (drift / PPT)).astype(np.int64)
        return true_ns - offset - gained

    def groups(self):
        """Members of each communicator, (groups, size), by kind of parallelism."""
        grid = np.arange(self.ranks).reshape(self.pp, self.dp, self.tp)
        return {
            "tp": grid.reshape(-1, self.tp),
            "pp": grid.transpose(1, 2, 0).reshape(-1, self.pp),
            "dp": grid.transpose(0, 2, 1).reshape(-1, self.dp),
        }


@dataclass(frozen=True)
class Run:
    """What happened: (operations, ranks), true times; ``spent`` is computing before each."""

    job: Job
    names: list[tuple[str, str, int]]  # parallelism, kind, bytes
    start: np.ndarray
    end: np.ndarray
    spent: np.ndarray


def run(job):
    """Simulate ``job``."""
    rng, noise = np.random.default_rng(job.seed), NOISES[job.noise]
    groups = {name: g for name, g in job.groups().items() if g.shape[1] > 1}
    program = [("tp", "allReduce", 4096)] * job.layers
    program += [("pp", "broadcast", 1 << 20), ("dp", "reduceScatter", 1 << 24)]
    program = [op for op in program if op[0] in groups]
    now = np.full(job.ranks, BASE_NS + 1_000_000, np.int64)
    names, starts, ends, works = [], [], [], []
    for _ in range(job.steps):
        pace = rng.normal(1, job.pace)
        for number, op in enumerate(program):
            work = job.compute * pace * (1 + number % 3) + job.jitter * noise(rng, job.ranks)
            if job.slow and number == 0:
                work[job.slow[0]] += job.slow[1]
            start = now + np.rint(np.maximum(work, 1000)).astype(np.int64)
            members = groups[op[0]]
            last = np.empty(job.ranks, np.int64)
            last[members] = start[members].max(axis=1, keepdims=True) + job.transfer
            end = last + np.rint(job.jitter * noise(rng, job.ranks)).astype(np.int64)
            end = np.maximum(end, start + 1000)
            names.append(op)
            starts.append(start)
            ends.append(end)
            works.append(start - now)
            now = end
    return Run(job, names, np.array(starts), np.array(ends), np.array(works))


def kept(run, rank):
    """Which operations the capture of a rank holds."""
    job, n = run.job, len(run.names)
    keep = np.arange(n) >= job.dropped.get(rank, 0)
    rng = np.random.default_rng((job.seed, rank))
    return np.flatnonzero(keep & (rng.random(n) >= job.lost.get(rank, 0.0)))


def group_name(run, parallelism, rank):
    """The name of a rank's communicator, equal on all its members."""
    groups = run.job.groups()[parallelism]
    return f"{parallelism}{int(np.flatnonzero((groups == rank).any(axis=1))[0])}"


def knowledge(run):
    """What every rank knows of its collectives, without the detour of a trace."""
    kinds = {"allReduce": "allreduce", "broadcast": "broadcast", "reduceScatter": "reducescatter"}
    every = list(kinds.values())
    order = sorted({op[0] for op in run.names})
    parallel = np.array([order.index(op[0]) for op in run.names])
    kind = np.array([every.index(kinds[op[1]]) for op in run.names])
    size = np.array([op[2] for op in run.names], np.int64)
    found = []
    for rank in range(run.job.ranks):
        rows = kept(run, rank)
        rows = rows[np.argsort(parallel[rows], kind="stable")]
        found.append(
            CollectiveRecords(
                rank,
                tuple(Group(group_name(run, p, rank), run.job.groups()[p].shape[1]) for p in order),
                tuple(every),
                parallel[rows].astype(np.int32),
                kind[rows].astype(np.int32),
                size[rows],
                (rows // (len(run.names) // run.job.steps)).astype(np.int32),
                run.job.local(rank, run.start[rows, rank]),
                run.job.local(rank, run.end[rows, rank]),
            )
        )
    return found


def capture(rank, clock=None, host=""):
    """The capture of one rank."""
    source = FileSource(Path("x"), f"p{rank}")
    return Capture("synthetic", source, ("x",), rank, host=host, clock=clock, label=f"p{rank}")


UNIX = Anchor(Domain.UNIX, evidence="Unix time stamps")


def trace(run, rank, clock=None):
    """The trace of one rank, as a reader of HCCL would make it; indexes count from what it saw."""
    build = TraceBuilder(capture(rank, clock))
    rows = kept(run, rank)
    stream = build.track(Layer.DEVICE, "Stream 1")
    start, end = (run.job.local(rank, t[rows, rank]) for t in (run.start, run.end))
    began = run.job.local(rank, run.start[rows, rank] - run.spent[rows, rank])
    build.seen("slice", len(rows))
    build.extend(
        track=stream,
        start_ns=began,
        dur_ns=start - began,
        name=build.string("MatMul"),
        op=OpClass.COMPUTE,
    )
    build.seen("slice", len(rows))
    names, tracks, args = [], [], []
    for index, (parallelism, kind, size) in enumerate(run.names[i] for i in rows.tolist()):
        group = group_name(run, parallelism, rank)
        code = 1 + sum(map(ord, group)) % 900
        names.append(build.string(f"hcom_{kind}__{code}_{index}_1"))
        tracks.append(
            build.track(
                Layer.COMM,
                f"Group {group} Communication",
                f"Group {group}",
                communicator=f"Group {group} Communication",
            )
        )
        args.append(
            build.args({"count": size, "rank_size": run.job.groups()[parallelism].shape[1]})
        )
    build.extend(
        track=np.array(tracks, np.int32),
        start_ns=start,
        dur_ns=end - start,
        name=np.array(names, np.int32),
        args=np.array(args, np.int32),
        op=OpClass.COMM,
    )
    per = len(run.names) // run.job.steps
    steps = build.track(Layer.STEP, "iterations")
    for step in sorted(set((rows // per).tolist())):
        inside = rows // per == step
        first = int(began[inside][0])
        build.slice(
            steps, first, int(end[inside][-1]) - first, f"Iteration {step}",
            op=OpClass.ITERATION, step=step,
        )  # fmt: skip
    return build.finish()


def traces(run, clock=None):
    """The traces of all ranks, one at a time."""
    return (trace(run, rank, clock) for rank in range(run.job.ranks))


def evidences(run):
    """What the traces of all ranks say of collectives."""
    return [collective_records(one) for one in traces(run)]


def apart(run, plan):
    """By how much the corrected clocks of all ranks disagree with that of rank 0, at the start,
    in the middle and at the end of the run: int64 (3, ranks)."""
    first, last = int(run.start.min()), int(run.end.max())
    true = np.array([first, (first + last) // 2, last])
    shown = [plan.corrected(r, run.job.local(r, true)) for r in range(run.job.ranks)]
    return np.stack(shown, axis=1) - shown[0][:, None]


SPEEDS = {"HCCS": 25.0, "PCIE": 12.0, "RDMA": 6.0}
"""GB/s: within a board of four ranks, within a host of eight, and beyond."""


def link_side_table(job, rank):
    """The communication matrix of one rank, as its side table has it: what it sends to the ranks it
    shares groups with, 5 percent of noise on the time each link takes."""
    rng = np.random.default_rng((job.seed, rank))
    members = [row for g in job.groups().values() for row in g.tolist() if rank in row]
    others = sorted({other for row in members for other in row} - {rank})
    near = [rank // 4 != o // 4 for o in others], [rank // 8 != o // 8 for o in others]
    transport = [list(SPEEDS)[board + host] for board, host in zip(*near, strict=True)]
    size = rng.uniform(50, 200, len(others))
    slower = [job.slow_link[2] if job.slow_link and job.slow_link[:2] == (rank, o) else 1.0
              for o in others]  # fmt: skip
    speed = np.array([SPEEDS[t] for t in transport]) / slower
    time = size * 1e6 / speed * rng.normal(1, 0.05, len(others))
    n = len(others)
    return {
        "Operator": np.array(["allreduce-total"] * n, object),
        "Group": np.array(["world"] * n, object),
        "Source": np.full(n, rank),
        "Target": np.array(others, np.int64),
        "Transport Type": np.array(transport, object),
        "Transit Size(MB)": size,
        "Transit Time(ms)": np.rint(time).astype(np.int64),
    }
