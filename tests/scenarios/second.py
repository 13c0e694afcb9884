"""``python -m tests.scenarios.second --seeds 20``: the same questions, asked by another simulator.

It shares nothing with ``tests/support/job_simulator`` but the reading of what is said
(:mod:`job_simulator.observed`), and differs in what it takes a job for: processes per rank (a
stream of computing and one of communication) that meet at events, whatever order that gives.
Computing wanders with a memory, each operation has a scatter of its own, machines get slower as
they get warm, collectors pause any rank at any time, links have good and bad days, steps do not
have equally many micro-batches, experts get what the router gives them, messages are eager. Clocks
follow the temperature, are slewed and set, also where a capture begins or ends.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from job_simulator import observed

from traceconv.alignment.collective_matching import matched
from traceconv.alignment.offsets import stamped
from traceconv.alignment.plan import plan
from traceconv.analysis.stragglers.judging import judge
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource
from traceconv.passes import compose
from traceconv.run.stages import passed
from traceconv.run.summaries import spans_of

_BEGAN = 1_760_000_000_000_000_000  # Unix ns
_MATERIAL = 0.01
_CLEAR = 1.3


@dataclass(frozen=True)
class World:
    """A job; ns. ``slow``: (rank, share of all its computing that it takes longer); ``late``:
    (rank, ns, every so many steps). ``memory`` is the correlation from one operation to the next of
    what all of a rank's computing wanders by (``wander``); ``uneven`` the largest ratio of what
    operations scatter by; ``routed`` how unequally experts are used (lognormal), in each layer;
    ``tired``: by which share ranks get slower, each by itself, until the end."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    experts: bool = False
    sharded: bool = False
    steps: int = 12
    micro: tuple[int, ...] = (2, 4)
    layers: int = 2
    layer_ns: float = 1.5e6
    scatter: float = 0.01
    tail: float = 0.0
    uneven: float = 4.0
    wander: float = 0.0
    memory: float = 0.95
    tired: float = 0.0
    pauses: float = 0.0
    routed: float = 0.0
    congested: float = 0.05
    ends_ns: float = 3e3
    behind_ns: tuple[float, ...] = ()
    slow: tuple[int, float] | None = None
    late: tuple[int, float, int] | None = None
    clocks: str = "offset"
    seed: int = 0

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.dp * self.tp * self.pp


@dataclass
class _Rank:
    """What happened on a rank, and its processes."""

    time: dict[str, float] = field(default_factory=lambda: {"gpu": 0.0, "net": 0.0})
    rows: list[tuple[str, str, dict, float, float]] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)  # per step, what it did by itself
    level: float = 0.0


class _Cluster:
    def __init__(self, world: World) -> None:
        self.world = w = world
        self.rng = np.random.default_rng((w.seed, 501))
        self.ranks = [_Rank() for _ in range(w.ranks)]
        self.events: dict[tuple, float] = {}
        self.arrived: dict[tuple, dict[int, float]] = {}
        self.ended: dict[tuple, dict[int, float]] = {}
        self.day: dict[str, float] = {}
        self.own = np.exp(np.log(w.uneven) * self.rng.random(64))  # scatter of each operation
        self.tire = w.tired * self.rng.random(w.ranks)
        self.length = w.steps * np.mean(w.micro) * w.layers * 3 * w.layer_ns

    def go(self) -> _Cluster:
        """Run all processes until they are done."""
        processes = {}
        for rank in range(self.world.ranks):
            gpu, net = _program(self.world, rank)
            processes[rank, "gpu"], processes[rank, "net"] = gpu, net
        at = dict.fromkeys(processes, 0)
        while True:
            moved = False
            for key, program in processes.items():
                while at[key] < len(program) and self.done(*key, program[at[key]]):
                    at[key] += 1
                    moved = True
            if all(at[key] == len(program) for key, program in processes.items()):
                return self
            assert moved, "deadlock"

    def done(self, rank: int, stream: str, what: tuple) -> bool:
        """Carry out an instruction; False if it has to wait."""
        one, now = self.ranks[rank], self.ranks[rank].time[stream]
        name, *more = what
        if name == "step":
            one.marks.append(now)
            one.work.append(0.0)
        elif name == "post":
            self.events[rank, *more] = now
        elif name == "wait":
            if (rank, *more) not in self.events:
                return False
            one.time[stream] = max(now, self.events[rank, *more])
        elif name == "work":
            self.work(rank, *more)
        elif name == "pause":
            one.rows.append(("host", "gc.collect", {}, now, now + more[0]))
            one.time[stream] = now + more[0]
            one.work[-1] += more[0]
        elif name == "send":
            to, key, size = more
            self.events["message", rank, to, key] = now + 4e3
            one.rows.append(("pp", "send", _message(rank, to, size), now + 2e3, now + 12e3))
            one.time[stream] = now + 12e3
        elif name == "recv":
            source, key, size = more
            if ("message", source, rank, key) not in self.events:
                return False
            sent = self.events["message", source, rank, key]
            end = max(now + 2e3, sent) + 60e3 * self.rng.lognormal(0, 0.1)
            one.rows.append(("pp", "recv", _message(source, rank, size), now + 2e3, end))
            one.time[stream] = end
        else:
            return self.meet(rank, stream, *more)
        return True

    def work(self, rank: int, ns: float, number: int) -> None:
        w, one = self.world, self.ranks[rank]
        one.level = w.memory * one.level + np.sqrt(1 - w.memory**2) * self.rng.standard_normal()
        noise = self.rng.standard_normal()
        if w.tail:
            noise = self.rng.standard_t(w.tail)
        warm = 1 + self.tire[rank] * one.time["gpu"] / self.length
        share = w.scatter * self.own[number % 64] / 2 * noise + w.wander * one.level
        took = ns * max(warm + share, 0.5)
        if w.slow and w.slow[0] == rank:
            took += ns * w.slow[1]
        step = len(one.marks) - 1
        if w.late and w.late[0] == rank and number == 0 and step % w.late[2] == w.late[2] - 1:
            took += w.late[1]
        start = one.time["gpu"] + 3e3
        one.rows.append(("gpu", f"kernel_{number}", {}, start, start + took))
        one.time["gpu"] = start + took
        one.work[-1] += took

    def meet(
        self, rank: int, stream: str, group: str, members: tuple, kind: str, size: int, ns: float,
        key: tuple,
    ) -> bool:  # fmt: skip
        one, now = self.ranks[rank], self.ranks[rank].time[stream]
        here = self.arrived.setdefault((group, members, key), {})
        here.setdefault(rank, now + 3e3)
        if len(here) < len(members):
            return False
        ends = self.ended.setdefault((group, members, key), {})
        if not ends:
            name = f"{group}{members}"
            before = self.day.get(name, 0.0)
            self.day[name] = day = 0.9 * before + 0.44 * self.rng.standard_normal()
            took = ns * np.exp(self.world.congested * day)
            for order, who in enumerate(members):  # of a ring, one after the other
                behind = self.world.behind_ns[who] if self.world.behind_ns else 0.0
                jitter = self.world.ends_ns * (self.rng.gamma(2.0) - 2.0)
                ends[who] = max(here.values()) + max(took + behind + jitter, 0.3 * took) + order
        words = {
            "Collective name": kind, "In msg nelems": size, "Out msg nelems": size,
            "dtype": "BFloat16", "Group size": len(members), "bytes": 2 * size,
            "Process Group Name": f"{group}:{members[0]}",
            "Process Group Ranks": str(list(members)),
        }  # fmt: skip
        one.rows.append((group, kind, words, here[rank], ends[rank]))
        one.time[stream] = ends[rank]
        return True


def _message(one: int, other: int, size: int) -> dict:
    both = sorted((one, other))
    return {
        "Collective name": "send" if one < other else "recv", "In msg nelems": size,
        "Out msg nelems": size, "dtype": "BFloat16", "Group size": 2, "bytes": 2 * size,
        "Process Group Name": f"p2p:{both[0]}:{both[1]}", "Process Group Ranks": str(both),
    }  # fmt: skip


# -- what ranks do ------------------------------------------------------------------------------


def _program(w: World, rank: int) -> tuple[list[tuple], list[tuple]]:
    """The instructions of both streams of a rank: data parallel fastest, then tensor, pipeline."""
    stage, rest = divmod(rank, w.dp * w.tp)
    column, replica = divmod(rest, w.dp)
    first = stage * w.dp * w.tp
    data = tuple(first + column * w.dp + i for i in range(w.dp))
    tensor = tuple(first + i * w.dp + replica for i in range(w.tp))
    every = tuple(range(w.ranks))
    gpu: list[tuple] = []
    net: list[tuple] = []
    pauses = np.random.default_rng((w.seed, 502, rank))
    routes = np.random.default_rng((w.seed, 503, rank))
    count: Counter[str] = Counter()

    def meet(group: str, members: tuple, kind: str, size: int, ns: float, out=None) -> None:
        if len(members) > 1:
            count[group] += 1
            (gpu if out is None else out).append(
                ("meet", group, members, kind, size, ns, (count[group],))
            )

    def layer(ns: float, number: int) -> None:
        if w.sharded and w.dp > 1:  # gathered ahead, on the other stream
            gpu.append(("post", "ready", count["fsdp"]))
            net.append(("wait", "ready", count["fsdp"]))
            meet("fsdp", data, "all_gather", 1 << 20, 2e5, net)
            net.append(("post", "there", count["fsdp"]))
            gpu.append(("wait", "there", count["fsdp"]))
        gpu.append(("work", ns, number))
        meet("tp", tensor, "all_reduce", 1 << 19, 8e4)
        if w.experts and w.dp > 1:
            load = np.exp(w.routed * routes.standard_normal())
            meet("ep", data, "all_to_allv", int((1 << 18) * load), 1.2e5)
            gpu.append(("work", ns / 3 * load, number + 20))
            meet("ep", data, "all_to_allv", int((1 << 18) * load), 1.2e5)

    def forward(step: int, micro: int) -> None:
        if stage:
            gpu.append(("recv", rank - w.dp * w.tp, (step, "f", micro), 1 << 16))
        for number in range(w.layers):
            layer(w.layer_ns, number)
        if stage < w.pp - 1:
            gpu.append(("send", rank + w.dp * w.tp, (step, "f", micro), 1 << 16))

    def backward(step: int, micro: int) -> None:
        if stage < w.pp - 1:
            gpu.append(("recv", rank + w.dp * w.tp, (step, "b", micro), 1 << 16))
        for number in range(w.layers):
            layer(2 * w.layer_ns, 8 + number)
        if stage:
            gpu.append(("send", rank - w.dp * w.tp, (step, "b", micro), 1 << 16))

    for step in range(w.steps):
        gpu.append(("step",))
        if pauses.random() < w.pauses:
            gpu.append(("pause", 2e6 * pauses.lognormal(0, 0.5)))
        many = w.micro[step % len(w.micro)]
        ahead = min(w.pp - 1 - stage, many)
        for micro in range(ahead):
            forward(step, micro)
        for micro in range(many - ahead):
            forward(step, ahead + micro)
            backward(step, micro)
        for micro in range(many - ahead, many):
            backward(step, micro)
        for _ in range(1 + (w.sharded or 0)):
            kind = "reduce_scatter" if w.sharded else "all_reduce"
            meet("dp", data, kind, 1 << 22, 3e5)
        meet("world", every, "all_reduce", 1, 3e4)
        gpu.append(("work", w.layer_ns / 3, 40))
    gpu.append(("step",))
    return gpu, net


# -- clocks -------------------------------------------------------------------------------------


def _clock(w: World, rank: int, length: float) -> Callable[[np.ndarray], np.ndarray]:
    """What a rank's clock shows at true times since the job began: int64 ns."""
    rng = np.random.default_rng((w.seed, 504, rank))
    offset, ppm = rng.uniform(-5e8, 5e8), rng.uniform(-30, 30)
    kinds = w.clocks.split("+")
    turns, phase = rng.uniform(0.5, 3), rng.uniform(0, 6.28)
    swing = rng.uniform(1, 8) * 1e-6 if "warm" in kinds else 0.0  # ppm, with the temperature
    begin, during = rng.uniform(0, 0.8) * length, rng.uniform(0.1, 0.5) * length
    slew = rng.choice((-1, 1)) * rng.uniform(50e-6, 500e-6) if "slew" in kinds else 0.0
    slew *= rng.random() < 0.3
    sets = []
    if rank and rng.random() < 0.3:
        by = rng.choice((-1, 1)) * 10 ** rng.uniform(4.5, 6.7)
        if "ends" in kinds:
            at = rng.uniform(0, 0.06)
            sets = [((at if rng.random() < 0.5 else 1 - at) * length, by)]
        if "set" in kinds:
            sets = [(rng.uniform(0.06, 0.94) * length, by)]

    def local(t: np.ndarray) -> np.ndarray:
        shown = t + offset + ppm * 1e-6 * t
        wave = length / (6.28 * turns)
        shown = shown + swing * wave * np.sin(t / wave + phase)
        shown = shown + slew * np.clip(t - begin, 0, during)
        for at, by in sets:
            shown = shown + np.where(t >= at, by, 0)
        return np.rint(shown).astype(np.int64) + _BEGAN

    return local


# -- what is said -------------------------------------------------------------------------------


def _trace(w: World, rank: int, one: _Rank, local) -> object:
    source = FileSource(Path("x"), f"x{rank}")
    build = TraceBuilder(Capture("simulated", source, ("x",), rank, label=f"p{rank}"))
    rows = sorted(one.rows, key=lambda row: row[3])
    facts = []
    for lane, name, words, *_ in rows:
        if lane == "gpu":
            facts.append((build.track(Layer.DEVICE, "Stream 7"), name, OpClass.COMPUTE, None))
        elif lane == "host":
            facts.append((build.track(Layer.HOST, "Thread 1", thread=1), name, OpClass.HOST, None))
        else:
            kernel = {"send": "SendRecv", "recv": "SendRecv"}.get(name, name.title())
            group = f"Group {words['Process Group Name']}"
            track = build.track(Layer.COMM, group, communicator=group)
            facts.append((track, f"ncclDevKernel_{kernel}", OpClass.COMM, words))
    start = local(np.array([row[3] for row in rows]))
    end = np.maximum(local(np.array([row[4] for row in rows])), start)
    build.seen("slice", len(rows))
    build.extend(
        track=np.array([f[0] for f in facts], np.int32), start_ns=start, dur_ns=end - start,
        name=np.array([build.string(f[1]) for f in facts], np.int32),
        op=np.array([int(f[2]) for f in facts], np.int8),
        args=np.array([-1 if f[3] is None else build.args(f[3]) for f in facts], np.int32),
    )  # fmt: skip
    marks = local(np.array(one.marks))
    build.seen("slice", w.steps)
    build.extend(
        track=build.track(Layer.STEP, "iterations"), start_ns=marks[:-1], dur_ns=np.diff(marks),
        name=np.array([build.string(f"Iteration {n}") for n in range(w.steps)], np.int32),
        op=OpClass.ITERATION, step=np.arange(w.steps, dtype=np.int32),
    )  # fmt: skip
    return build.finish()


@dataclass(frozen=True)
class Answer:
    """What is said of one job, and whether that is so.

    Attributes:
        named, groups, steps: who, by the verdict and by lines that do not mention chance.
        much: ranks that did more than their peers by 1 % of a step, by design or by chance.
        fits: how many; inside: how many intervals hold the truth all the time; wrong: that are off
            by three times as much anywhere.
        text: for people.
    """

    named: frozenset[int]
    groups: int
    steps: frozenset[int]
    much: frozenset[int]
    fits: int
    inside: int
    wrong: int
    text: str


def answer(w: World) -> Answer:
    """Simulate, ask, compare."""
    cluster = _Cluster(w).go()
    length = max(one.marks[-1] for one in cluster.ranks)
    local = [_clock(w, rank, length) for rank in range(w.ranks)]
    traces = [_trace(w, r, one, local[r]) for r, one in enumerate(cluster.ranks)]
    every = [passed(one, compose(mode="detail")) for one in traces]
    known = [summarize(one, SummaryRequest(lateness=True, links=True)) for one in every]
    records = [one.collectives for one in known]
    captures = [one.capture for one in every]
    groups = tuple(matched(records, stamped(captures)))
    clocks = plan(captures, "auto", records, groups=groups, spans=spans_of(known))
    said = observed.said(judge(known, clocks, groups))
    fitted = {r: o for r, o in clocks.offsets.items() if o.method == "collective"}
    leads = [r for r, o in fitted.items() if not o.matches]
    inside = wrong = 0
    notes = []
    for rank in (r for r in fitted if r not in leads):
        rows = cluster.ranks[rank].rows
        t = np.linspace(min(r[3] for r in rows), max(r[4] for r in rows), 41)
        apart = np.abs(
            clocks.corrected(rank, local[rank](t)) - clocks.corrected(leads[0], local[leads[0]](t))
        ).max()
        stated = clocks.error_ns(rank) or 0
        inside += apart <= stated + 2
        wrong += apart > 3 * (stated + 2)
        notes.append(f"{rank}: {apart / 1e3:.1f} of {stated / 1e3:.1f} us")
    per_stage = w.dp * w.tp
    work = np.array([np.mean(one.work[1:-1] or one.work[:-1]) for one in cluster.ranks]).reshape(
        -1, per_stage
    )
    more = (work - np.median(work, axis=1, keepdims=True)).reshape(-1)
    much = frozenset(np.flatnonzero(more > _MATERIAL / _CLEAR * length / w.steps).tolist())
    return Answer(
        said.named, len(said.groups), said.stated, much, len(notes), inside, wrong,
        "\n".join([said.text, *notes]),
    )  # fmt: skip


# -- the table ----------------------------------------------------------------------------------

_LAYOUTS = {
    "dp8": World(dp=8), "tp2-dp4": World(tp=2, dp=4), "dp2": World(dp=2, micro=(1,)),
    "tp2-dp2-pp2": World(tp=2, dp=2, pp=2, micro=(4,)), "dp2-pp4": World(dp=2, pp=4, micro=(4, 8)),
    "experts": World(dp=8, experts=True, routed=0.3), "sharded": World(dp=8, sharded=True),
    "experts-pp": World(dp=4, pp=2, experts=True, routed=0.3, micro=(4,)),
}  # fmt: skip
_KINDS = {
    "plain": {}, "one-step": {"steps": 1}, "3-steps": {"steps": 3}, "30-steps": {"steps": 30},
    "remembers": {"wander": 0.01}, "remembers-long": {"wander": 0.01, "memory": 0.995},
    "wild": {"tail": 1.5}, "tired": {"tired": 0.01}, "pauses": {"pauses": 0.15},
    "all": {"wander": 0.005, "tail": 2.5, "pauses": 0.1, "tired": 0.005, "uneven": 20.0},
}  # fmt: skip
_CLOCKS = {
    "warm": {"clocks": "warm", "layer_ns": 3e7, "scatter": 0.002},
    "slew": {"clocks": "slew"}, "slew-long": {"clocks": "slew", "layer_ns": 3e7},
    "set": {"clocks": "set"}, "set-at-ends": {"clocks": "ends", "steps": 24},
    "set-at-ends-wild": {"clocks": "ends", "steps": 12, "ends_ns": 20e3},
    "behind-20us": {"behind_ns": tuple(2e4 * (r % 3) for r in range(16))},
    "behind-100us": {"behind_ns": tuple(1e5 * (r % 3) for r in range(16))},
    "ring-100us": {"behind_ns": tuple(1e5 * r for r in range(16))},
    "all": {"clocks": "warm+slew+set", "ends_ns": 8e3, "wander": 0.005},
}  # fmt: skip


_COLUMNS = ("jobs", "false", "by_much", "right", "steps", "fits", "inside", "wrong")


def table() -> Iterator[tuple[str, str, World]]:
    """(what is measured, name, job)."""
    for layout, job in _LAYOUTS.items():
        for kind, more in _KINDS.items():
            yield "nobody", f"{layout}/{kind}", replace(job, **more)
        yield "slow", f"{layout}/6-percent", replace(job, slow=(0, 0.06))
        yield "slow", f"{layout}/every-4", replace(job, steps=24, late=(0, 6e6, 4))
        for kind, more in _CLOCKS.items():
            yield "clocks", f"{layout}/{kind}", replace(job, **more)


def of_seed(w: World, seed: int) -> World:
    """The job with a seed, which also says who is slow."""
    rank = seed % w.ranks
    slow, late = (one and (rank, *one[1:]) for one in (w.slow, w.late))
    return replace(w, seed=seed, slow=slow, late=late)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.second", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of 'nobody/dp8/wild' and the like")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print what is wrong")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    for what, name, job in table():
        full = f"{what}/{name}"
        if given.names and not any(full.startswith(one) for one in given.names):
            continue
        seen: Counter[str] = Counter()
        for seed in range(given.first, given.first + given.seeds):
            w = of_seed(job, seed)
            one = answer(w)
            true = {w.slow[0]} if w.slow else {w.late[0]} if w.late else set()
            strange = one.named - true
            slow_link = one.groups > 0 and not w.behind_ns  # these do take longer
            now = Counter(
                jobs=1, named=bool(one.named), false=bool(strange - one.much) or slow_link,
                by_much=bool(strange & one.much), right=one.named == true and bool(true),
                steps=bool(one.steps - true - one.much), fits=one.fits, inside=one.inside,
                wrong=one.wrong,
            )  # fmt: skip
            seen += now
            if given.show and (now["false"] or now["wrong"] or one.inside < one.fits):
                print(f"-- {full} seed {seed} slow {w.slow or w.late}\n{one.text}")
        total += seen
        total[f"{what} false"] += seen["false"]
        total[f"{what} jobs"] += seen["jobs"]
        print(f"{full:34}", *(f"{k} {seen[k]:3}" for k in _COLUMNS), flush=True)
    print(dict(total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
