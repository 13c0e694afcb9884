"""Axes inferred from collectives: right or unknown, whatever else the traffic may be."""

import random

import msgspec
import numpy as np
import pytest
from job_simulator import Job, run, trace
from layouts import Layout

from traceconv.alignment.collective_records import CollectiveRecords, Group
from traceconv.analysis.inferred_shape import job_shape
from traceconv.analysis.rank_facts import Operations
from traceconv.analysis.rank_summary import RankSummary
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.core.job_shape import Origin, ParallelGroup, Placement
from traceconv.passes import compose
from traceconv.run.stages import passed

MIB = 1 << 20
THROUGHOUT, BACKWARD, END = (0.02, 0.9), (0.45, 0.95), (0.92, 0.98)
HABITS = {
    "activations": [("allreduce", 8 * MIB, 24, THROUGHOUT)],
    "sequences": [
        ("allgather", 8 * MIB, 24, THROUGHOUT), ("reducescatter", 8 * MIB, 24, THROUGHOUT)
    ],
    "buckets": [("allreduce", 25 * MIB, 4, BACKWARD)],
    "one": [("allreduce", 400 * MIB, 1, END)],
    "sharded": [("reducescatter", 25 * MIB, 4, BACKWARD), ("allgather", 25 * MIB, 4, END)],
    "fully sharded": [
        ("allgather", 25 * MIB, 12, THROUGHOUT), ("reducescatter", 25 * MIB, 6, BACKWARD)
    ],
    "each micro-batch": [("allreduce", 25 * MIB, 24, THROUGHOUT)],
    "messages": [("p2p", -1, 8, THROUGHOUT)],
    "ring": [("p2p", -1, 48, THROUGHOUT)],
    "exchange": [("alltoall", -1, 24, THROUGHOUT)],
    "gathered": [("allgather", MIB, 12, THROUGHOUT)],
    "norm": [("allreduce", 8, 2, END)],
}  # fmt: skip
"""What a group does in a step: kind, bytes, operations, the first and last of its times. Gradients
are reduced when the first backward pass has begun, activations go on all the time."""

GRADIENTS = ("buckets", "one", "sharded", "fully sharded", "each micro-batch")


def together(layout, rank, axes):
    """The ranks that differ from one in these axes only."""
    every = layout.coordinates()
    rest = {name: at for name, at in every[rank].items() if name not in axes}
    return [r for r, at in every.items() if {n: v for n, v in at.items() if n not in axes} == rest]


def records(layout, rank, traffic, steps=4):
    """The collectives of a rank, given (axes that a group is over, habit) for all groups."""
    rows, groups = [], {}
    for number, (axes, habit) in enumerate(traffic):
        members = together(layout, rank, axes)
        if len(members) > 1:
            key = f"group {number}.{members[0]} {members}"
            index = groups.setdefault(key, (len(groups), tuple(members)))[0]
            for kind, size, count, (first, last) in HABITS[habit]:
                places = np.linspace(first, last, count) + number / 1000
                rows += [(index, kind, size, at) for at in places]
    kinds = sorted({row[1] for row in rows})
    table = sorted(
        (index, step, 10**9 * step + int(at * 9e8), kinds.index(kind), size)
        for step in range(steps)
        for index, kind, size, at in rows
    )
    group, step, start, kind, size = np.array(table, np.int64).reshape(-1, 5).T
    return CollectiveRecords(
        rank, tuple(Group(key, len(m), members=m) for key, (_, m) in groups.items()), tuple(kinds),
        group.astype(np.int32), kind.astype(np.int32), size, step.astype(np.int32), start,
        start + 1000,
    )  # fmt: skip


def summaries(layout, traffic, **more):
    return [
        RankSummary(
            rank=rank, collectives=records(layout, rank, traffic), replay=Operations(**more)
        )
        for rank in layout.coordinates()
    ]


def found(layout, shape):
    """The axes that were inferred; every coordinate is that of the layout."""
    for axis in shape.axes:
        assert axis.origin is Origin.INFERRED
        assert axis.name in layout.sizes, f"{axis.name} is no axis of {layout.text}"
        expected = [at[axis.name] for at in layout.coordinates().values()]
        assert shape.column(axis.name).tolist() == expected, f"{axis.name} of {layout.text}"
        assert shape.size(axis.name) == layout.sizes[axis.name]
    return set(shape.names)


def made(number):
    """A layout of 32 or 64 ranks in any order, and traffic that such jobs have."""
    rng = random.Random(number)
    axes = rng.sample(["tp", "cp", "ep", "dp", "pp"], rng.randint(2, 5))
    sizes = dict.fromkeys(axes, 1)
    for _ in range(rng.choice([5, 6])):
        sizes[rng.choice(axes)] *= 2
    usual = {
        "tp": ("activations", "activations", "sequences"), "pp": ("messages",),
        "cp": ("ring", "exchange", "gathered"), "ep": ("exchange", "gathered"),
    }  # fmt: skip
    traffic = [((axis,), rng.choice(usual[axis])) for axis in axes if axis != "dp"]
    replicated = tuple(axis for axis in axes if axis in ("dp", "cp", "ep"))
    if rng.random() < 0.85:  # else nothing is trained
        traffic.append((replicated, rng.choice(GRADIENTS)))
    if rng.random() < 0.7:
        traffic.append((tuple(axes), "norm"))
    if "pp" in axes and rng.random() < 0.3:
        traffic.append((("pp",), rng.choice(("one", "norm"))))  # tied embeddings, with two stages
    rng.shuffle(traffic)
    return Layout(tuple(axes), sizes, {}), traffic


@pytest.mark.sample(3)
@pytest.mark.parametrize("block", range(6))
def test_made_layouts_are_right_or_unknown(block):
    """Any order of axes, sizes and usual traffic: never another coordinate than the true one."""
    for number in range(block * 10, block * 10 + 10):
        layout, traffic = made(number)
        found(layout, job_shape(summaries(layout, traffic)))


def test_made_layouts_are_not_all_unknown():
    """Of those whose groups determine something, as tensor, data and pipeline parallel ones do."""
    layout = Layout(("tp", "pp", "dp"), {"tp": 4, "pp": 2, "dp": 4}, {})
    traffic = [
        (("tp",), "activations"), (("dp",), "buckets"), (("pp",), "messages"),
        (("tp", "pp", "dp"), "norm"),
    ]  # fmt: skip
    shape = job_shape(summaries(layout, traffic))
    assert found(layout, shape) == {"tp", "pp", "dp"}
    assert shape.line() == "dp 4 · pp 2 · tp 4 (inferred: from groups)"
    half = [one for one in summaries(layout, traffic) if one.rank % 3]
    assert job_shape(half).value(4, "pp") == 1  # members are listed by the others


OPEN = {
    "equal traffic": [(("tp",), "buckets"), (("dp",), "buckets")],
    "sequences or shards": [(("tp",), "sequences")],
    "shards and replicas": [(("tp",), "fully sharded"), (("dp",), "buckets")],
    "shards and replicas, late": [(("tp",), "sharded"), (("dp",), "one")],
    "replicas of replicas": [(("tp",), "buckets"), (("dp",), "one")],
    "serving": [(("tp",), "activations"), (("dp",), "ring")],
    "a ring of one context": [(("tp",), "ring"), (("tp", "dp"), "buckets")],
    "experts": [(("tp",), "exchange"), (("tp", "dp"), "sharded")],
    "contexts without gradients": [(("tp",), "activations"), (("dp",), "messages")],
    "only replicas": [(("tp", "dp"), "buckets")],
}


@pytest.mark.parametrize("name", OPEN)
def test_what_groups_do_not_determine_is_unknown(name):
    """More than one kind of job makes such traffic."""
    layout = Layout(("tp", "dp"), {"tp": 4, "dp": 4}, {})
    assert job_shape(summaries(layout, OPEN[name])).names == ()


def test_nothing_is_inferred_without_what_it_takes():
    """Marked steps, known members, named groups, more than one rank."""
    layout = Layout(("tp", "dp"), {"tp": 2, "dp": 2}, {})
    traffic = [(("tp",), "activations"), (("dp",), "buckets")]
    assert found(layout, job_shape(summaries(layout, traffic))) == {"tp", "dp"}
    assert job_shape(summaries(layout, traffic, marked=False)).names == ()
    assert job_shape(summaries(layout, traffic)[:1]).names == ()

    def changed(**fields):
        return [
            msgspec.structs.replace(
                one,
                collectives=CollectiveRecords(**{
                    **msgspec.structs.asdict(one.collectives),
                    "groups": tuple(
                        msgspec.structs.replace(group, **fields) for group in one.collectives.groups
                    ),
                }),
            )
            for one in summaries(layout, traffic)
        ]  # fmt: skip

    assert job_shape(changed(named=False)).names == ()
    assert job_shape(changed(size=3)).names == ()


def test_what_is_recorded_is_not_inferred():
    """Also where groups say something else: the file knows."""
    layout = Layout(("tp", "dp"), {"tp": 2, "dp": 2}, {})
    traffic = [(("tp",), "activations"), (("dp",), "buckets")]
    stated = [
        msgspec.structs.replace(one, placement=Placement((ParallelGroup("cp", members, "a list"),)))
        for one, members in zip(
            summaries(layout, traffic), [(0, 2), (1, 3), (0, 2), (1, 3)], strict=True
        )
    ]
    shape = job_shape(stated)
    assert shape.axis("cp").origin is Origin.RECORDED
    assert shape.column("cp").tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Job(tp=2, dp=2, pp=2, steps=4, micro_batches=4, world=True), {"tp", "dp", "pp"}),
        (Job(tp=4, dp=4, steps=4, layers=8, sharded=True, overlap=True, buckets=4), {"tp", "dp"}),
        (Job(dp=4, pp=2, steps=4, micro_batches=4, chunks=2, messages="eager"), {"dp", "pp"}),
        (Job(tp=2, dp=4, ep=2, steps=4, layers=4), set()),
        (Job(dp=8, steps=4), set()),
        (Job(tp=8, steps=4), set()),
        (Job(tp=2, dp=2, pp=2, steps=4, micro_batches=4, unnamed=True), set()),
        (Job(tp=2, dp=2, pp=2, steps=4, micro_batches=4, numbering="none"), set()),
    ],
    ids=["all", "sharded", "interleaved", "experts", "data", "tensor", "unnamed", "no-steps"],
)
def test_simulated_jobs(job, expected):
    """Whose programs know nothing of this: with noise, waiting and 1F1B."""
    simulated = run(job)
    every = [
        summarize(passed(trace(simulated, rank), compose("detail")), SummaryRequest(lateness=True))
        for rank in job.captured
    ]
    layout = Layout(("tp", "dp", "pp"), {"tp": job.tp, "dp": job.dp, "pp": job.pp}, {})
    assert found(layout, job_shape(every)) == expected


def test_a_chain_of_messages_is_a_pipeline_and_a_ring_is_none():
    """The last stage sends the first one nothing; ranks of one context pass keys on to each other
    in a ring."""
    members = (0, 1, 2, 3)
    for ring, expected in ((False, [0, 1, 2, 3]), (True, [-1, -1, -1, -1])):
        every = []
        for rank in members:
            beside = [(rank + 1, 1), (rank - 1, 2)]
            peers = [(at % 4, way) for at, way in beside if ring or at in members]
            peer, direction = np.array(peers * 3, np.int64).T
            n = len(peer)
            step = np.repeat(np.arange(3, dtype=np.int32), len(peers))
            start = 10**6 * np.arange(n)
            zero = np.zeros(n, np.int32)
            known = CollectiveRecords(
                rank, (Group("pp [0, 1, 2, 3]", 4, members=members),), ("p2p",), zero, zero,
                np.full(n, -1), step, start, start + 1000, direction=direction.astype(np.int8),
                peer=peer.astype(np.int32),
            )  # fmt: skip
            every.append(RankSummary(rank=rank, collectives=known, replay=Operations()))
        shape = job_shape(every)
        assert [shape.stage(rank) for rank in members] == expected
