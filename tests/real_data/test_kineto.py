"""PyTorch traces of five years and three vendors: counted in the written output, to the ns."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from itertools import pairwise

import pytest
from decoded import decode
from effort import effort
from paths import GPU
from perfetto_decoded import shown_on

import traceconv
from traceconv.core.model import Layer

KINETO = GPU / "kineto"


# events, X, kernels, of these NCCL or Gloo, steps, sum of kernel times in us, arrow heads
TABLE = {
    "hta_nccl_data_rank0of2.json.gz": (40573, 26933, 2700, 21, 3, "162532.340", 9195),
    "hta_sampled_rank-0.json.gz": (4855, 4811, 1154, 10, 2, "606519", 0),
    "hta_sampled_rank-1.json.gz": (4720, 4676, 1104, 10, 2, "651026", 0),
    "hta_ns_rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz":
        (68692, 45420, 4350, 0, 5, "468153.602", 15928),
    "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": (30, 16, 10, 10, 1, "2135455.918", 0),  # Gloo
    "hta_mi250_minitoy_train.json.gz": (220, 113, 14, 0, 2, "110.881", 25),
    "hta_alexnet_cuda_sync.json.gz": (1408, 868, 79, 0, 0, "10692", 345),
    "hta_event_sync_multi_stream.json.gz": (149, 57, 3, 0, 0, "369", 42),
    "hta_rank_not_found.json.gz": (2467, 2467, 0, 0, 1, "0", 0),
    "hta_distributed_info_not_found.json.gz": (2467, 2467, 0, 0, 1, "0", 0),
    "hta_trace_compare_base.json.gz": (33, 33, 6, 0, 2, "432", 0),
    "tracelens_b200_eager_rank0of8.json.gz": (24656, 22355, 768, 74, 0, "10862.916", 1370),
    "tracelens_h100_bert_small.json.gz": (2551, 2060, 60, 0, 1, "307.197", 107),
    "tracelens_sglang_decode_mi300x.json.gz": (2058, 1471, 555, 0, 0, "9765.437", 573),
    "tracelens_torch_compile_triton.json.gz": (246, 115, 12, 0, 0, "12549.021", 58),
    "worker0.1623212756351.pt.trace.json.gz": (71424, 41906, 8868, 0, 6, "594868", 9258),
}  # fmt: skip
FEWER = [name for name, row in TABLE.items() if row[0] < effort(30_000, 100_000)]
SMALL = [name for name, row in TABLE.items() if row[0] < 5000]
KERNELS, CALLS = ("kernel", "Kernel"), ("cuda_runtime", "cuda_driver", "Runtime")
TASKS = (*KERNELS, "gpu_memcpy", "gpu_memset", "Memcpy", "Memset", "cuda_sync")
OURS = ("Step Trace", "Overlap Analysis")


def ns(us):
    """Exact nanoseconds of a decimal."""
    value = Decimal(us) * 1000
    assert value == int(value)
    return int(value)


def plain(name):
    """A file by the standard library, fractions as decimals."""
    return json.loads(gzip.decompress((KINETO / name).read_bytes()), parse_float=Decimal)


class Sample:
    """One file: as it is, and as a viewer shows what was made of it."""

    def __init__(self, name, out):
        self.keys = plain(name)
        self.events = self.keys.pop("traceEvents")
        self.report = traceconv.merge(str(KINETO / name), out=str(out), mode="detail", scope=True)
        self.seen = decode(out)
        (self.ledger,) = self.report.ledger.values()
        self.base_ns = int(self.keys.get("baseTimeNanoseconds", 0))

    def of(self, phase, *categories):
        """Events of a phase, and of some categories."""
        return [
            e
            for e in self.events
            if e["ph"] == phase and (not categories or e.get("cat") in categories)
        ]

    def lonely(self):
        """Launch marks at calls for which no task has one."""
        heads = {e["id"] for e in self.of("f", "ac2g", "async")}
        return [e for e in self.of("s", "ac2g", "async") if e["id"] not in heads]

    def unlaunched(self):
        """Tasks whose call is not in the file."""
        known = {e["args"]["correlation"] for e in self.of("X", *CALLS)}
        return [e for e in self.of("X", *TASKS) if e["args"]["correlation"] not in known]

    def count(self, code):
        return self.report.issues.count(code)


@pytest.fixture(scope="module", params=FEWER)
def sample(request, tmp_path_factory):
    """A file, merged alone, in detail; the largest three in the thorough run only."""
    return Sample(request.param, tmp_path_factory.mktemp("kineto") / "out.pftrace")


@pytest.fixture
def told(sample, request):
    """What is published of it."""
    return TABLE[request.node.callspec.params["sample"]]


def own_rows(rows):
    """Whether each row stands on a lane of the file, not on one we made."""
    made = (*OURS, "Host (device projection)", "CPU")
    return [shown_on(path)[0] not in made for path in rows.track]


@pytest.mark.sample(2)
def test_every_event_is_there(sample, told):
    """Slices and instants one by one; metadata became names of lanes."""
    slices, instants = sample.seen.slices, sample.seen.instants
    assert (len(sample.events), sum(own_rows(slices))) == told[:2]
    assert sum(own_rows(instants)) == len(sample.of("i"))
    used = {"baseTimeNanoseconds", "distributedInfo", "deviceProperties", "host_name"}
    assert sample.count("metadata-unused") == len(sample.keys.keys() - used)


def test_kernels_and_collectives(sample, told):
    """Counts and the sum of their times, in what is written."""
    rows = sample.seen.slices
    own = zip(rows.category, own_rows(rows), rows.dur.tolist(), strict=True)
    found = [
        (category, dur) for category, own, dur in own if own and category in ("compute", "comm")
    ]
    nccl = sum(category == "comm" for category, _ in found)
    assert (len(found), nccl, sum(dur for _, dur in found)) == (*told[2:4], ns(told[5]))


def test_steps(sample, told):
    """The marks of the host, iterations of servers, and a stand-in where there are none."""
    rows = sample.seen.slices
    found = zip(rows.track, rows.name, rows.dur.tolist(), strict=True)
    steps = [(name, dur) for path, name, dur in found if shown_on(path)[0] == "Step Trace"]
    served = [
        (e["name"], ns(e["dur"]))
        for e in sample.of("X", "user_annotation")
        if e["name"].startswith("execute_")
    ]
    marks = told[4] + len(served)
    assert len(steps) == max(marks, 1)
    assert not served or steps == served
    assert sample.count("no-steps") == (marks == 0)
    assert sample.count("steps-from-host") == marks
    assert sample.count("steps-by-time") == len(served)


def test_the_ranges_that_are_asked_for_are_steps(tmp_path):
    """A pass that SGLang marks lies in one that vLLM's name has, and is a step where it is named.

    Its one collective and its kernels are those launched in it.
    """
    path = KINETO / "tracelens_sglang_decode_mi300x.json.gz"
    (mark,) = (e for e in plain(path.name)["traceEvents"] if e.get("name") == "step[DECODE bs=32]")
    (trace,) = traceconv.open(path).traces("summary", step_marker=r"^step\[DECODE bs=(\d+)")
    assert trace.steps.step.tolist() == [32]
    assert trace.steps.dur_ns.tolist() == [ns(mark["dur"])]
    assert trace.issues.count("steps-by-time") == 0


def test_arrows_in_are_arrows_out_or_told(sample, told):
    """Forward to backward as they are; launches by number, with every mark accounted for."""
    marks = len(sample.of("f", "ac2g", "async")) + len(sample.lonely())
    tasks, pairs = len(sample.of("X", *TASKS)), len(sample.of("f", "fwdbwd"))
    assert len(sample.of("f")) == told[6]
    assert sample.count("launch-mark") == marks
    assert sample.ledger.get("read", {}).get("flow", 0) == marks + tasks + pairs
    assert len(sample.seen.flows) == tasks + pairs - sample.count("flow-without-end")
    assert sample.count("flow-without-end") == len(sample.unlaunched())
    assert sample.count("flow-unbound") == 0


def test_every_launch_arrow_leads_to_its_own_task(sample):
    """Both ends carry the same number, and every task that has a call has an arrow."""
    rows, flows = sample.seen.rows, sample.seen.flows
    ends = zip(flows.source.tolist(), flows.target.tolist(), strict=True)
    found = Counter()
    for source, target in ends:
        if "Runtime" in (
            *shown_on(rows.track[source]),
            *shown_on(rows.track[target]),
        ):  # forward in time
            number = rows.args(target)["correlation"]
            assert number == rows.args(source)["correlation"]
            found[number] += 1
    calls = {e["args"]["correlation"] for e in sample.of("X", *CALLS)}
    tasks = Counter(e["args"]["correlation"] for e in sample.of("X", *TASKS))
    assert found == Counter({n: count for n, count in tasks.items() if n in calls})


def test_no_stamp_is_off_by_a_nanosecond(sample):
    """Name, start and length of every slice equal the decimals of the text."""
    rows = sample.seen.slices
    zero = sample.seen.metadata["traceconv.base_ns"]
    columns = zip(rows.name, rows.ts.tolist(), rows.dur.tolist(), own_rows(rows), strict=True)
    found = Counter((name, start + zero, dur) for name, start, dur, own in columns if own)
    assert found == Counter(
        (e["name"], ns(e["ts"]) + sample.base_ns, ns(e["dur"])) for e in sample.of("X")
    )


# -- two ranks of one job -----------------------------------------------------------------

PAIR = ("hta_sampled_rank-0.json.gz", "hta_sampled_rank-1.json.gz")
LANES = (
    "Computing", "Communication", "Communication(Not Overlapped)", "Free", "Memory Copy",
    "Memory Copy(Not Overlapped)",
)  # fmt: skip


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The summary of both ranks in one file, as a viewer shows it."""
    out = tmp_path_factory.mktemp("pair") / "out.pftrace"
    traceconv.merge(*(str(KINETO / name) for name in PAIR), out=str(out), mode="summary")
    return decode(out)


def on_lane(seen, *path):
    """(name, Unix start, end) of all slices on the lane of a path without its group."""
    rows, zero = seen.slices, seen.metadata["traceconv.base_ns"]
    columns = zip(rows.track, rows.name, rows.ts.tolist(), rows.dur.tolist(), strict=True)
    return [
        (name, start + zero, start + zero + dur)
        for at, name, start, dur in columns
        if (at[0], shown_on(at)[0], shown_on(at)[-1]) == path
    ]


def device_times(rank):
    """Starts and ends of compute kernels, collectives, copies, and all that bounds idle time."""
    sets = {"compute": [], "comm": [], "copy": [], "any": []}
    for event in plain(PAIR[rank])["traceEvents"]:
        if event["name"].startswith("ProfilerStep"):  # the device waits from its start on
            sets["any"].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
        if event.get("cat") in (*KERNELS, "gpu_memcpy", "gpu_memset"):
            span = (ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]))
            sets["any"].append(span)
            if event["cat"] == "kernel":
                sets["comm" if "nccl" in event["name"] else "compute"].append(span)
            else:
                sets["copy"].append(span)
    return sets


def swept(sets):
    """The lanes by a plain sweep over all borders."""
    borders = sorted({time for spans in sets.values() for span in spans for time in span})
    change = {what: Counter() for what in sets}
    for what, spans in sets.items():
        for start, end in spans:
            change[what][start] += 1
            change[what][end] -= 1
    depth, lanes = Counter(), {lane: [] for lane in LANES}
    for start, end in pairwise(borders):
        for what in sets:
            depth[what] += change[what][start]
        holds = {
            "Computing": depth["compute"] > 0,
            "Communication": depth["comm"] > 0,
            "Communication(Not Overlapped)": depth["comm"] > 0 and not depth["compute"],
            "Free": not depth["comm"] and not depth["compute"] and not depth["copy"],
            "Memory Copy": depth["copy"] > 0,
            "Memory Copy(Not Overlapped)": depth["copy"] > 0
            and not depth["comm"]
            and not depth["compute"],
        }
        for lane in (name for name, held in holds.items() if held):
            if lanes[lane] and lanes[lane][-1][1] == start:
                lanes[lane][-1] = (lanes[lane][-1][0], end)
            else:
                lanes[lane].append((start, end))
    return lanes


@pytest.mark.parametrize("rank", [0, 1])
def test_both_ranks_show_their_steps(pair, rank):
    """#551 and #552, each where its mark stands on the host."""
    marks = [e for e in plain(PAIR[rank])["traceEvents"] if e["name"].startswith("ProfilerStep")]
    assert sorted(on_lane(pair, f"Rank {rank}", "Step Trace", "iterations")) == sorted(
        (e["name"], ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in marks
    )
    assert sorted(e["name"] for e in marks) == ["ProfilerStep#551", "ProfilerStep#552"]


@pytest.mark.parametrize("rank", [0, 1])
def test_overlap_is_that_of_a_plain_loop(pair, rank):
    """Interval by interval on all lanes, to the nanosecond."""
    lanes = swept(device_times(rank))
    assert sum(end - start for start, end in lanes["Communication(Not Overlapped)"]) > 0
    for lane, spans in lanes.items():
        found = on_lane(pair, f"Rank {rank}", "Overlap Analysis", lane)
        assert [(start, end) for _, start, end in found] == spans


@pytest.mark.parametrize("rank", [0, 1])
def test_device_work_belongs_to_the_step_that_launched_it(rank):
    """By the number of its call, however late the device came to it."""
    events = plain(PAIR[rank])["traceEvents"]
    [trace] = traceconv.open(str(KINETO / PAIR[rank])).traces("detail")
    marks = [e for e in events if e["name"].startswith("ProfilerStep")]
    steps = {
        e["args"]["correlation"]: int(m["name"].partition("#")[2])
        for e in events
        for m in marks
        if e.get("cat") in CALLS and m["ts"] <= e["ts"] < m["ts"] + m["dur"]
    }
    device = trace.events.take(trace.rows_of(Layer.DEVICE, Layer.COMM))
    rows = zip(device.args.tolist(), device.step.tolist(), strict=True)
    found = {trace.args[args]["correlation"]: step for args, step in rows}
    assert {n: found[n] for n in steps if n in found} == {n: steps[n] for n in steps if n in found}
    assert Counter(found.values()).keys() == {551, 552}


# -- single files -------------------------------------------------------------------------


def read(name):
    """The events of one file as they are read."""
    [trace] = traceconv.open(str(KINETO / name)).traces()
    return trace


def test_collectives_have_group_size_and_bandwidth():
    """An all-reduce of 6 637 568 floats among two ranks in 2636.669 us."""
    trace = read("hta_nccl_data_rank0of2.json.gz")
    rows = trace.events.take(trace.rows_of(Layer.COMM))
    assert {trace.tracks[t].name for t in rows.track.tolist()} == {"Group 0 (default_pg)"}
    [args] = [trace.args[i] for i in rows.args.tolist() if trace.args[i]["correlation"] == 60047]
    assert (args["bytes"], args["bus bandwidth (GB/s)"]) == (4 * 6_637_568, 10.07)


def test_memory_counters_follow_the_marks():
    """Allocated and reserved bytes of the GPU and the host, mark by mark."""
    name = "tracelens_h100_bert_small.json.gz"
    trace, marks = read(name), [e for e in plain(name)["traceEvents"] if e["name"] == "[memory]"]
    columns = (trace.counters.track, trace.counters.start_ns, trace.counters.value)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    base = plain(name)["baseTimeNanoseconds"]
    devices = {1: "GPU 0", 0: "CPU"}
    assert Counter((trace.tracks[t].name, at, value) for t, at, value in rows) == Counter(
        (f"{devices[e['args']['Device Type']]} {what}", base + ns(e["ts"]), value)
        for e in marks
        for what in ("Allocated", "Reserved")
        for value in [e["args"][f"Total {what}"]]
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SMALL)
def test_both_tiers_read_the_same(name, monkeypatch):
    """Columns, arguments, arrows and accounts do not depend on the compiled scanner."""
    first = read(name)
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    second = read(name)
    for table in ("events", "counters", "flows"):
        ours, theirs = getattr(first, table).columns(), getattr(second, table).columns()
        assert {n: c.tolist() for n, c in ours.items()} == {
            n: c.tolist() for n, c in theirs.items()
        }
    assert first.tracks == second.tracks
    assert list(first.strings) == list(second.strings)
    assert [first.args.raw(i) for i in range(len(first.args))] == [
        second.args.raw(i) for i in range(len(second.args))
    ]
    assert list(first.issues) == list(second.issues)


def test_ranks_of_the_samples():
    """What the files say of themselves, and nothing where they say nothing."""
    found = traceconv.inspect(str(KINETO)).captures
    assert {c.label.rpartition("/")[2]: (c.rank, c.world_size) for c in found} == {
        **dict.fromkeys(TABLE, (None, -1)),
        "hta_nccl_data_rank0of2.json.gz": (0, 2),
        "hta_sampled_rank-0.json.gz": (0, 128),
        "hta_sampled_rank-1.json.gz": (1, 128),
        "hta_ns_rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (0, 1),
        "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": (34, 300),
        "hta_alexnet_cuda_sync.json.gz": (0, -1),
        "hta_event_sync_multi_stream.json.gz": (0, -1),
        "hta_trace_compare_base.json.gz": (1, -1),
        "tracelens_b200_eager_rank0of8.json.gz": (0, 8),
        "tracelens_sglang_decode_mi300x.json.gz": (0, 1),
    }


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("tracelens_h100_bert_small.json.gz", {0: 85_018_279_936}),
        ("tracelens_torch_compile_triton.json.gz", {0: 206_141_652_992}),
        ("hta_rank_not_found.json.gz", {}),
    ],
)
def test_memory_of_devices_is_noted(name, memory):
    """80 GB of Nvidia, its list behind the events; 192 GB of AMD; a file that has no list."""
    [trace] = traceconv.open(str(KINETO / name)).traces(None)
    assert trace.hints.device_memory_bytes == memory
