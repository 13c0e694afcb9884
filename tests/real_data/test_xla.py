"""Real and made XSpace files: the figures that stand beside them, and the profiler's own JSON."""

import gzip
import json
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from decoded import decode
from paths import DATA, GPU

import traceconv
from traceconv.core.model import Layer, OpClass
from traceconv.io.sources import sources
from traceconv.readers.shared.protobuf_wire import content
from traceconv.readers.xla.space import space_of
from traceconv.validation import validate

XPLANE = DATA / "hub" / "xplane"
ROCM = GPU / "xplane" / "tw003.xplane.pb"
FILES = sorted(XPLANE.rglob("*.xplane.pb"))
REAL = [path for path in FILES if "made" not in path.parts]


def space(path):
    [source] = sources([str(path)])
    return space_of(content(source, path.name))


def named(path):
    return f"{path.parts[-5]}-{path.name}" if "plugins" in path.parts else path.name


@pytest.fixture(scope="module")
def traces():
    """The ranks of a path in detail, read once."""
    cache = {}

    def read(path):
        if path not in cache:
            cache[path] = list(traceconv.open(str(path)).traces("detail"))
        return cache[path]

    return read


@pytest.mark.parametrize("path", REAL, ids=named)
def test_lines_hold_what_stands_beside(path):
    """Per line: number of events, sum of their lengths, first and last picosecond."""
    truth = json.loads(
        path.with_name(path.name.removesuffix(".xplane.pb") + ".expect.json").read_text()
    )
    for plane, expected in zip(space(path).planes, truth["planes"], strict=True):
        assert plane.name == expected["name"]
        for number, line in enumerate(plane.lines):
            rows = np.flatnonzero(plane.line_of == number)
            start = line.timestamp_ns * 1000 + plane.offset_ps[rows]
            end = start + plane.duration_ps[rows]
            ident, name, stamp, count, total, first, last = expected["lines"][number]
            assert (line.id, line.name, line.timestamp_ns) == (ident, name, stamp)
            assert (len(rows), int(plane.duration_ps[rows].sum())) == (count, total)
            if count:
                assert (int(start.min()), int(end.max())) == (first, last)
        assert len(plane.lines) == len(expected["lines"])
        assert not plane.damage


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.with_name(p.name[:5] + ".trace.json.gz").exists()], ids=named
)
def test_events_equal_the_viewers_json_to_the_picosecond(path):
    """Name, line, start and length of every event, by decimal arithmetic."""
    events = json.loads(
        gzip.decompress(path.with_name(path.name[:5] + ".trace.json.gz").read_bytes()),
        parse_float=Decimal,
    )["traceEvents"]
    expected = Counter(
        (e["tid"], e["name"], *(round(Decimal(e[key]) * 1_000_000) for key in ("ts", "dur")))
        for e in events
        if e.get("ph") == "X"
    )
    found = Counter()
    for plane in space(path).planes:
        lines = [(line.id & 0xFFFFFFFF, line.timestamp_ns) for line in plane.lines]
        for event in range(len(plane)):
            tid, stamp = lines[int(plane.line_of[event])]
            start = stamp * 1000 + int(plane.offset_ps[event])
            length = int(plane.duration_ps[event]) or 1  # the viewer shows nothing as one
            found[tid, plane.kinds[int(plane.kind_of[event])], start, length] += 1
    assert found == expected


def core(truth, host, core):
    return truth["hosts"][str(host)]["cores"][str(core)]


def test_the_made_run_gives_its_figures(traces):
    """Computing, communication, what of it is hidden, input and steps of two hosts' four cores.

    An operation is rounded at both ends, so a sum may be off by a nanosecond for each.
    """
    truth = json.loads((XPLANE / "made" / "expect.json").read_text())
    for trace in traces(XPLANE / "made"):
        expected = core(truth, trace.rank // 2, trace.rank % 2)
        sums = trace.overlap.sums_ns
        stated = {
            "computing": sums.computing,
            "communication": sums.communication,
            "not_overlapped": sums.not_overlapped,
            "infeed": sums.copying,
        }
        for key, ns in stated.items():
            assert abs(ns * 1000 - expected[key]) <= expected["ops"] * 1000, key
        begin = truth["hosts"][str(trace.rank // 2)]["profile_start_time"]
        steps = {
            str(step): [(start - begin) * 1000, (start + dur - begin) * 1000]
            for step, start, dur in zip(
                trace.steps.step.tolist(),
                trace.steps.start_ns.tolist(),
                trace.steps.dur_ns.tolist(),
                strict=True,
            )
        }
        assert steps == expected["steps"]


def test_losses_of_every_core_are_counted_once(traces):
    """Each of the four cores of two hosts says itself that it dropped twelve."""
    lost = [t.issues.count("source-dropped") for t in traces(XPLANE / "made")]
    assert lost == [12, 12, 12, 12]


def test_all_reduce_of_a_tpu_to_the_picosecond(traces):
    """The sum of the chip's own lengths, as XProf's table of operations has it; none overlaps."""
    total = 0
    for trace in traces(XPLANE / "tpu_v6e_4chip.xplane.pb"):
        rows = np.flatnonzero(trace.events.op == OpClass.COMM)
        stated = [trace.args[i] for i in trace.events.args[rows].tolist()]
        assert {args["hlo_category"] for args in stated} == {"all-reduce"}
        total += sum(args["device_duration_ps"] for args in stated)
    assert total == 1_460_345_258_750


def test_every_launch_of_a_tpu_is_an_arrow(traces):
    """414 of 414 programs, on the chip that ran them."""
    launched = 0
    for trace in traces(XPLANE / "tpu_v6e_4chip.xplane.pb"):
        lanes = [track.name for track in trace.tracks]
        targets = trace.events.track[trace.flows.dst].tolist()
        launched += sum(lanes[track] == "XLA Modules" for track in targets)
    assert launched == 414


def test_collectives_of_two_hosts_are_the_same(traces):
    """Sixteen by program, operation and run; start and end as rounded here."""
    truth = json.loads((XPLANE / "cpu_2proc" / "collectives.expect.json").read_text())
    found = {}
    for trace in traces(XPLANE / "cpu_2proc"):
        for row in np.flatnonzero(trace.events.op == OpClass.COMM).tolist():
            args = trace.args[int(trace.events.args[row])]
            key = "|".join(str(args[k]) for k in ("hlo_module", "hlo_op", "run_id"))
            span = (int(trace.events.start_ns[row]), int(trace.events.end_ns[row]))
            found.setdefault(key, []).append([args["device_ordinal"], *span])
    assert len(found) == 16
    assert found == truth["collectives"]


def test_two_hosts_are_not_moved_apart():
    """One machine, so no offset at all. Twelve collectives are the same by program, operation and
    run; ends of eleven are 0.16 ms apart at most, those of the last 4 ms: late, or a clock was set.
    So they agree with the stamps, and do not replace them."""
    plan = traceconv.align(str(XPLANE / "cpu_2proc")).plan
    assert (plan.method, plan.offset_ns(1)) == ("meta", 0)
    assert "they confirm its recorded time, within 4.4 ms" in plan.remark
    one = traceconv.align(str(XPLANE / "cpu_2proc"), method="collective").plan.offsets[1]
    assert (one.method, one.matches) == ("collective", 12)
    assert abs(one.offset_ns) < 5_000 < one.error_ns == pytest.approx(4_351_000, rel=0.01)


@pytest.mark.parametrize("name", ["cpu_1proc", "cpu_4dev", "cpu_2proc"])
def test_steps_and_operations_of_the_cpu_backend(traces, name):
    """Steps by ``step_num``; the operations of every device, their number and sum."""
    found, steps = Counter(), {}
    for trace in traces(XPLANE / name):
        steps[trace.rank] = trace.steps.step.tolist()
        device = trace.rows_of(Layer.DEVICE, Layer.COMM)
        for row in np.flatnonzero(device).tolist():
            args = trace.args[int(trace.events.args[row])]
            key = "|".join(str(args[k]) for k in ("device_ordinal", "hlo_module", "hlo_op"))
            found[key] += 1
    expected = Counter()
    for path in sorted((XPLANE / name).rglob("host*.expect.json")):
        truth = json.loads(path.read_text())
        expected.update({key: count for key, (count, _) in truth["cpu_ops"].items()})
        numbers = [step for _, step, *_ in truth["steps"]]
    assert found == expected
    assert set(map(tuple, steps.values())) == {tuple(numbers)}


def test_kernels_of_2020_are_counted_once(traces):
    """Streams only: three lines say the same again."""
    truth = json.loads((XPLANE / "tf_v100_2020_cut.expect.json").read_text())["kernels"]
    trace = next(t for t in traces(XPLANE / "tf_v100_2020_cut.xplane.pb") if t.rank == 4)
    rows = trace.events.take(trace.rows_of(Layer.DEVICE))
    sums = Counter()
    for track, dur in zip(rows.track.tolist(), rows.dur_ns.tolist(), strict=True):
        sums[trace.tracks[track].name.replace("Stream ", "Stream #")] += dur
    assert sums == {key.partition("(")[0]: total // 1000 for key, (_, total) in truth.items()}
    assert len(trace.flows) == 759


def test_every_event_of_a_rocm_run_is_in_one_rank(traces):
    """3650 events on eight GPUs; arrows to every kernel whose call is there."""
    ranks = traces(ROCM)
    assert [trace.rank for trace in ranks] == list(range(8))
    assert sum(trace.ledger["read", "slice"] for trace in ranks) == 3650
    kernels = [int(trace.rows_of(Layer.DEVICE).sum()) for trace in ranks]
    assert kernels == [60, *[25] * 7]


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", [*FILES, ROCM], ids=named)
def test_what_goes_in_comes_out_or_is_reported(tmp_path, path):
    """The ledger of every rank sums to what is in the file, and viewers take all of it."""
    out = tmp_path / "out.pftrace"
    report = traceconv.merge(str(path), out=str(out), mode="detail", scope=True)
    assert validate(out).ok
    sums = Counter()
    for stages in report.ledger.values():
        for kinds in stages.values():
            sums.update(kinds)
    counts = decode(out).counts()
    assert (sums["slice"], sums["counter"], sums["flow"]) == (
        counts["slices"] + counts["instants"], counts["counters"], counts["flows"]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["cpu_1proc", "cpu_2proc"])
def test_the_viewers_json_gives_the_same_overlap(tmp_path, traces, name):
    """Where the profile itself is not there; steps, too."""
    [path] = (XPLANE / name).rglob("host0.trace.json.gz")
    [trace] = traceconv.open(str(path)).traces("detail")
    of_profile = traces(XPLANE / name)[0]
    assert trace.capture.reader == "xla_json"
    assert trace.overlap.sums_ns == of_profile.overlap.sums_ns
    assert trace.steps.step.tolist() == of_profile.steps.step.tolist()
    assert trace.ledger["read", "slice"] == of_profile.ledger["read", "slice"]
