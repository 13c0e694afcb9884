"""ROCm profiles, real ones and one run made in every form: the figures that stand beside them."""

import json
import re
import shutil
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from functools import cache

import numpy as np
import pytest
from decoded import decode
from paths import ASCEND, DATA, GPU

import traceconv
from traceconv.core.model import Layer, OpClass
from traceconv.readers.shared.protobuf_wire import fields
from traceconv.validation import validate

ROCPD = DATA / "hub" / "rocpd"
TRUTH = json.loads((ROCPD / "expect.json").read_text())["processes"] if ROCPD.is_dir() else []
OVERLAP = {
    OpClass.COMPUTING: "computing",
    OpClass.COMMUNICATION: "communication",
    OpClass.NOT_OVERLAPPED: "not_overlapped",
}


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """The ranks of one form of the run in detail, read once."""

    @cache
    def read(form):
        path = ROCPD / form
        if form == "csv":
            path = tmp_path_factory.mktemp("csv") / "node-a"
            path.mkdir()
            for table in (ROCPD / "run/node-a").glob("*.csv"):
                shutil.copy(table, path)
        return list(traceconv.open(str(path)).traces("detail"))

    return read


def kernels(trace):
    """Rows of kernels: they have a number of their dispatch."""
    rows = np.flatnonzero(trace.rows_of(Layer.DEVICE, Layer.COMM))
    return [i for i in rows.tolist() if "dispatch" in trace.args[int(trace.events.args[i])]]


FORMS = ["run", "merged", "package.rpdb", "v4", "csv", "convert", "sys"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_run_gives_its_figures(of, form):
    """Kernels, their sum, and the overlap of every device of both processes."""
    ranks = of(form)
    assert [t.rank for t in ranks] == ([0] if form == "sys" else [0, 1])
    for trace, truth in zip(ranks, TRUTH, strict=form != "sys"):
        rows = kernels(trace)
        assert len(rows) == truth["kernels"]
        assert int(trace.events.dur_ns[rows].sum()) == truth["kernel_ns"]
        sums = Counter()
        for row in np.flatnonzero(np.isin(trace.events.op, list(OVERLAP))).tolist():
            group = trace.tracks[int(trace.events.track[row])].group
            sums[group, OVERLAP[trace.events.op[row]]] += int(trace.events.dur_ns[row])
        devices = sorted({group for group, _ in sums})
        for group, stated in zip(devices, truth["agents"].values(), strict=True):
            for key in OVERLAP.values():
                assert sums[group, key] == stated[key], (group, key)


def test_the_figures_that_stand_beside_are_those_of_the_run():
    """In ns: computing, communication and what of both overlaps, of the device with collectives."""
    stated = [next(iter(truth["agents"].values())) for truth in TRUTH]
    assert [(one["computing"], one["communication"], one["overlapped"]) for one in stated] == [
        (882_000, 1_130_000, 210_000),
        (882_000, 1_019_000, 120_000),
    ]


@pytest.mark.parametrize("form", [f for f in FORMS if f not in ("convert", "sys")])
def test_steps_launches_copies_and_counters(of, form):
    """Thirteen device rows a step, thirty of thirty-one kernels with their call."""
    for trace, truth in zip(of(form), TRUTH, strict=True):
        for (label, stated), step, start, dur in zip(
            truth["steps"].items(), trace.steps.step.tolist(), trace.steps.start_ns.tolist(),
            trace.steps.dur_ns.tolist(), strict=True,
        ):  # fmt: skip
            assert label == f"iteration {step}"
            assert [start, start + dur] == stated["host"]
            rows = trace.rows_of(Layer.DEVICE, Layer.COMM) & (trace.events.step == step)
            assert int(rows.sum()) == stated["device_rows"]
            first, last = trace.events.start_ns[rows].min(), trace.events.end_ns[rows].max()
            assert [int(first), int(last)] == stated["device"]
        launched = set(trace.flows.dst.tolist())
        rows = kernels(trace)
        assert sum(row in launched for row in rows) == truth["launches"]["kernels_with_call"]
        counted = Counter()
        for row in rows:
            for key, value in trace.args[int(trace.events.args[row])].items():
                if key.startswith(("SQ_", "GRBM_")):
                    counted[key.partition(":")[0]] += value
        assert counted == truth["counters"]
        if form != "csv":  # whose copies have no size
            copied = [trace.args[i].get("bytes", 0) for i in trace.events.args.tolist()]
            assert sum(copied) == truth["copy_bytes"]


def test_counters_over_time_of_rocprof_sys(of):
    """Samples of a track; those of call stacks are no events of their own."""
    truth = json.loads((ROCPD / "expect_more.json").read_text())["sys"]
    [trace] = of("sys")
    samples = zip(trace.counters.start_ns.tolist(), trace.counters.value.tolist(), strict=True)
    assert [list(one) for one in samples] == truth["device_busy_gfx"]
    assert trace.issues.count("metadata-unused") == truth["samples that are no events of their own"]


def test_the_secret_does_not_leave(tmp_path):
    """Of an environment only the rank is looked at."""
    out = tmp_path / "out.txt"
    report = traceconv.merge(str(ROCPD / "run"), out=str(out), mode="detail")
    assert "must-not-leave" not in out.read_text() + json.dumps(report.as_dict(), default=str)


def test_an_rpd(of):
    """29 kernels, 85 arrows, copies with sizes, a clock over time, the profiler's own work."""
    truth = json.loads((ROCPD / "rpd/expect.json").read_text())
    [trace] = of("rpd")
    events, strings = trace.events, trace.strings
    device = trace.rows_of(Layer.DEVICE)
    work = events.take(device & (events.op == OpClass.COMPUTE))
    assert (len(work), int(work.dur_ns.sum())) == (truth["kernels"], truth["kernel_ns"])
    assert (truth["kernels"], truth["kernel_ns"]) == (29, 26_399_795)
    assert len(trace.flows) == truth["api_ops"]
    copies = {}
    for name, (count, total, size) in truth["copies"].items():
        rows = np.flatnonzero(device & (events.name == strings.intern(name)))
        sizes = [trace.args[i].get("bytes", 0) for i in events.args[rows].tolist()]
        copies[name] = [len(rows), int(events.dur_ns[rows].sum()), sum(sizes)]
        assert copies[name] == [count, total, size]
    profiler = {strings[i] for i in events.name[trace.rows_of(Layer.OTHER)].tolist()}
    assert profiler - {"hcc_activity_callback"} == set(truth["overhead_api"])
    samples = zip(trace.counters.start_ns.tolist(), trace.counters.value.tolist(), strict=True)
    assert list(samples)[:3] == [(start, float(value)) for start, _, value in truth["sclk_first"]]


def test_kernels_by_the_clock_of_an_rpd():
    """The only kernel that ran twice, once at 1450 MHz and once at 800: by the database itself."""
    path = ROCPD / "rpd/matmul.rpd"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        samples = database.execute("SELECT start, value FROM rocpd_monitor ORDER BY start")
        samples = [(start, int(value)) for start, value in samples]
        ran = database.execute(
            "SELECT string, start, end - start FROM rocpd_op JOIN rocpd_string AS text "
            "ON text.id = description_id WHERE string != ''"
        ).fetchall()
    by_clock = defaultdict(lambda: defaultdict(list))
    for name, start, dur in ran:
        clock = [value for at, value in samples if at <= start][-1]
        by_clock[name][50 * round(clock / 50)].append(dur)
    wanted = {
        (name, clock): (len(durs), sum(durs))
        for name, clocks in by_clock.items() if len(clocks) > 1
        for clock, durs in clocks.items()
    }  # fmt: skip
    table = traceconv.stats(str(path), by="frequency_kernel")["frequency_kernel"].columns
    keys = ("Kernel", "Value", "Count", "Total Time(ns)")
    rows = zip(*(table[key].tolist() for key in keys), strict=True)
    assert {row[:2]: row[2:] for row in rows} == wanted
    assert sorted(clock for _, clock in wanted) == [800, 1450]


def test_json_of_a_training_rank(of):
    """1500 kernels, 48 of them of RCCL, 124 copies, neighbours that overlap."""
    truth = json.loads((ROCPD / "rocprofv3_json/expect.json").read_text())
    [trace] = of("rocprofv3_json")
    rows = kernels(trace)
    assert (len(rows), int(trace.events.dur_ns[rows].sum())) == (1500, 71_471_722)
    ops = Counter(trace.events.op[rows].tolist())
    assert (ops[OpClass.COMM], ops[OpClass.COPY]) == (truth["nccl"], truth["blit"])
    sums = trace.overlap.sums_ns
    assert (sums.computing, sums.communication) == (truth["computing"], truth["communication"])
    assert sums.communication - sums.not_overlapped == truth["overlapped"]


@pytest.mark.parametrize("form", ["run", "v4", "sys", "convert", "rpd", "rocprofv3_json"])
def test_what_goes_in_comes_out_or_is_reported(tmp_path, form):
    """The ledger of every rank sums to what is in the file, and viewers take all of it."""
    out = tmp_path / "out.pftrace"
    report = traceconv.merge(str(ROCPD / form), out=str(out), mode="detail", scope=True)
    assert validate(out).ok
    sums = Counter()
    for stages in report.ledger.values():
        for kinds in stages.values():
            sums.update(kinds)
    counts = decode(out).counts()
    assert (sums["slice"] + sums["instant"], sums["counter"], sums["flow"]) == (
        counts["slices"] + counts["instants"], counts["counters"], counts["flows"]
    )  # fmt: skip


def one_chip(path):
    """A profile of TPUs without the planes of all chips but the first."""
    data, kept = path.read_bytes(), b""
    for field in fields(data, 0, len(data)):
        of_another = re.search(rb"(?:/device:TPU:|#Chip TPU )[1-9]", data[field.start :][:80])
        if field.number != 1 or not of_another:
            kept += data[field.begin : field.end]
    return kept


def test_a_rank_of_every_vendor_in_one_summary(tmp_path):
    """ROCm, CUDA, Ascend and a chip of a TPU side by side."""
    links = {
        "rank0": ROCPD / "run/node-a/4101_results.db",
        "rank1": GPU / "nsys" / "perlmutter-cloverleaf-cuda.sqlite",
        "rank2": ASCEND / "msinsight/test/data/pytorch/text/level1/rank1_ascend_pt",
    }
    (tmp_path / "in/rank3").mkdir(parents=True)
    tpu = one_chip(DATA / "hub/xplane/tpu_v6e_4chip.xplane.pb")
    (tmp_path / "in/rank3/tpu.xplane.pb").write_bytes(tpu)
    for name, target in links.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / target.name).symlink_to(target)
    out = tmp_path / "out.pftrace"
    report = traceconv.merge(
        str(tmp_path / "in"), out=str(out), mode="summary", rank_from=r"rank(\d)"
    )
    assert report.ranks == (0, 1, 2, 3)
    assert validate(out).ok
    lanes = {
        (path[0].split()[1], path[-1])
        for path in decode(out).slices.track
        if "Overlap Analysis" in path
    }
    assert {rank for rank, lane in lanes if lane == "Computing"} == {"0", "1", "2", "3"}
    [tpu] = (one for one in traceconv.open(str(tmp_path / "in/rank3")).traces("detail"))
    assert {"XLA Modules", "XLA Ops"} <= {track.name for track in tpu.tracks}
