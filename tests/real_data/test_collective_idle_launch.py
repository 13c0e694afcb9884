"""Tables of collectives, idle time and launches, against plain scripts over the recorded files."""

import gzip
import json
from collections import defaultdict

import pytest
from paths import DATA, GPU

import traceconv

FILE = GPU / "kineto/hta_nccl_data_rank0of2.json.gz"
SIZES = {"Float": 4, "Int": 4, "Long": 8, "Byte": 1, "Half": 2, "BFloat16": 2}


@pytest.fixture(scope="module")
def events():
    """What PyTorch wrote."""
    with gzip.open(FILE) as file:
        return json.load(file)["traceEvents"]


@pytest.fixture(scope="module")
def stats():
    """The tables."""
    return traceconv.stats(str(FILE), by="collective,idle,launch,overlap")


def test_bandwidth_is_that_of_the_recorded_sizes(events, stats):
    """Elements times their bytes over the mean duration; two ranks move as much as all-reduce."""
    found = defaultdict(list)
    for one in events:
        args = one.get("args", {})
        if one.get("cat") == "kernel" and "In msg nelems" in args:
            elements = max(args["In msg nelems"], args["Out msg nelems"])
            key = args["Collective name"], int(elements * SIZES[args["dtype"]])
            found[key].append(float(one["dur"]))
    table = stats["collective"].columns
    ours = {
        (name, size): (count, speed, best)
        for name, size, count, speed, best in zip(
            *(table[key].tolist() for key in (
                "Operation", "Message(B)", "Count", "Bus Bandwidth(GB/s)",
                "Best Bus Bandwidth(GB/s)")),
            strict=True,
        )
    }  # fmt: skip
    assert len(found) == len(ours) > 3
    for (name, size), lengths in found.items():
        count, speed, best = ours[name, size]
        mean = sum(lengths) / len(lengths)
        assert count == len(lengths)
        assert speed == pytest.approx(size / mean / 1e3, rel=1e-3)
        assert best == pytest.approx(size / min(lengths) / 1e3, rel=1e-3)
    assert set(table["Group Size"].tolist()) == {2}


def test_idle_time_by_cause_is_all_idle_time_of_steps(stats):
    """To the nanosecond."""
    overlap = stats["overlap"].columns
    steps = (overlap["Step"] >= 0) & (overlap["Known(ns)"] > 0)
    assert stats["idle"].columns["Total Time(ns)"].sum() == overlap["Idle(ns)"][steps].sum()
    gaps = stats["idle_gap"].columns
    assert (gaps["Length(ns)"][:-1] >= gaps["Length(ns)"][1:]).all()
    assert gaps["Length(ns)"].max() == stats["idle"].columns["Max Time(ns)"].max()


def test_launches_are_those_of_the_correlation_ids(events, stats):
    """Runtime call and kernel of one correlation: durations, and the time between them."""
    calls, kernels = {}, {}
    for one in events:
        id_ = one.get("args", {}).get("correlation")
        if one.get("cat") == "cuda_runtime":
            calls[id_] = one
        elif one.get("cat") == "kernel" and "nccl" not in one["name"].lower():
            kernels[id_] = one
    found = defaultdict(list)
    for id_, kernel in kernels.items():
        if id_ in calls:
            end = calls[id_]["ts"] + calls[id_]["dur"]
            found[kernel["name"]].append((calls[id_]["dur"], max(kernel["ts"] - end, 0)))
    table = stats["launch"].columns
    ours = dict(zip(table["Kernel"].tolist(), range(len(table["Kernel"])), strict=True))
    assert ours.keys() == found.keys()
    for name, pairs in found.items():
        row = ours[name]
        assert table["Count"][row] == len(pairs)
        for key, place in (("API Avg Time(ns)", 0), ("Queue Avg Time(ns)", 1)):
            mean = 1e3 * sum(pair[place] for pair in pairs) / len(pairs)
            assert table[key][row] == pytest.approx(mean, abs=1500, rel=1e-3)


@pytest.mark.parametrize("job", ["slow_worker", "stage_imbalance"])
def test_transfer_is_the_shortest_duration_on_any_rank(job):
    """Each collective of each group of a published job, by its place in the order of the group; two
    calls of the slow worker's job end 2.3 ms before those of the other ranks."""
    calls = defaultdict(lambda: defaultdict(list))
    for path in (DATA / "jobs" / job).glob("rank*.json.gz"):
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
        for one in sorted((e for e in events if e.get("ph") == "X"), key=lambda e: float(e["ts"])):
            args = one.get("args", {})
            if args.get("Collective name", "send") not in ("send", "recv"):
                group = args["Process Group Name"], args["Process Group Ranks"]
                name = args["Collective name"].replace("_", "")
                calls[group][path.name].append((name, round(float(one["dur"]) * 1000)))
    found = defaultdict(lambda: [0, 0])
    for (name, _), ranks in calls.items():
        for together in zip(*ranks.values(), strict=True):
            (kind,) = {kind for kind, _ in together}
            least = min(length for _, length in together)
            sums = found[name, next(k for k in ("allreduce", "allgather", "reduce") if k in kind)]
            sums[0] += least * len(together)
            sums[1] += sum(length for _, length in together) - least * len(together)
    table = traceconv.stats(str(DATA / "jobs" / job), by="collective_wait")
    table = table["collective_wait"].columns
    names = ("Rank", "Group", "Operation", "Transfer Time(ns)", "Wait Time(ns)")
    rows = zip(*(table[name].tolist() for name in names), strict=True)
    ours = {(group.split()[1], kind.removesuffix("scatter")): times
            for rank, group, kind, *times in rows if rank < 0}  # fmt: skip
    assert len(ours) == len(found) > 3
    for key, (transfer, wait) in ours.items():
        assert transfer == pytest.approx(found[key][0], abs=100)
        assert wait == pytest.approx(found[key][1], abs=100)
