"""What analyses found, drawn into traces: marks, figures of steps, and the same bytes anyhow."""

from pathlib import Path

import numpy as np
import pytest
from kineto_files import NCCL, row, write
from paths import ROOT
from rule_cases import MS, US, device, iterations, passed

import traceconv
from traceconv.analysis import summarize
from traceconv.cli import run
from traceconv.core.model import Kind, Layer
from traceconv.passes.annotate import Mark, annotate
from traceconv.validation import validate

SUMMARIZE = summarize.summarize
SAMPLE = str(ROOT / "golden" / "trace_view" / "demo" / "input")


def _marks(trace):
    """Lane, name, time and arguments of every instant on the lanes of marks."""
    events = trace.events
    return [
        (
            trace.tracks[events.track[row]].name,
            trace.strings[events.name[row]],
            int(events.start_ns[row]),
            trace.args[int(events.args[row])],
        )
        for row in (events.kind == Kind.INSTANT).nonzero()[0]
        if trace.tracks[events.track[row]].title == "Findings"
    ]


def _step_args(trace, step):
    events = trace.events
    (row,) = ((events.step == step) & (events.op == 10)).nonzero()[0]
    return trace.args[int(events.args[row])]


def test_marks_stand_at_their_times():
    """On their lane, one instant per time, with what they say."""
    trace = passed(device(50 * US)[0])
    (first, second) = _marks(annotate(trace, [Mark("m", "Lane", {"a": 1}, (7, 5))]))
    assert first == ("Lane", "m", 5, {"a": 1})
    assert second[2] == 7


def test_marks_of_steps_stand_at_their_start():
    """Steps that are not there are passed over."""
    trace = passed(device(50 * US)[0])
    marked = annotate(trace, [Mark("m", steps=(1, 2, 77))])
    assert [time for _, _, time, _ in _marks(marked)] == [50 * US, 100 * US]


@pytest.mark.parametrize("steps", [(), (77,)])
def test_marks_without_a_time_stand_at_the_start(steps):
    """Of the run, or of steps that were not chosen."""
    trace = passed(device(50 * US)[0])
    assert [time for _, _, time, _ in _marks(annotate(trace, [Mark("m", steps=steps)]))] == [0]


def test_marks_are_booked():
    """Rows that were added are in the ledger."""
    trace = annotate(passed(device(50 * US)[0]), [Mark("m", times_ns=(1, 2, 3))])
    assert trace.ledger["annotate", "instant"] == 3
    assert sum(n for (_, kind), n in trace.ledger.items() if kind == "instant") == 3


def test_steps_say_how_their_time_divides():
    """Half computing, half idle; arguments they had stay."""
    trace = passed(device(50 * US, idle=50 * US)[0])
    figures = _step_args(annotate(trace, ()), 1)
    assert figures == {
        "computing_ns": 50 * US, "communication_ns": 0, "not_overlapped_ns": 0,
        "free_ns": 50 * US, "copying_ns": 0, "copy_not_overlapped_ns": 0, "known_ns": 100 * US,
        "input_wait_ns": None, "pause_ns": 0,
    }  # fmt: skip


def test_steps_without_device_work_say_nothing():
    """Nothing is known of them, which is not 0."""
    trace = passed(iterations(MS, MS)[0])
    assert annotate(trace, ()) is trace


def _annotated(tmp_path, name="out.txt", **options):
    path = tmp_path / name
    traceconv.merge(SAMPLE, out=str(path), force=True, annotate=True, **options)
    return path


@pytest.mark.parametrize("mode", ["summary", "detail"])
@pytest.mark.parametrize("name", ["a.pftrace", "a.json"])
def test_annotated_outputs_are_valid(tmp_path, mode, name):
    """In both views and formats."""
    assert validate(str(_annotated(tmp_path, name, mode=mode))).ok


def test_findings_stand_in_the_summary_of_their_rank(tmp_path):
    """At the slices that show them, shifted with the clock of the rank."""
    found = traceconv.diagnose(SAMPLE).findings
    text = _annotated(tmp_path, mode="summary").read_text()
    for rank, part in enumerate(text.split("\nrank ")[1:]):
        for one in (one for one in found if one.rank == rank):
            shown = part.count(f'! "{one.rule.id}: {one.amount()}"')
            assert shown == (len(one.slices) or min(len(one.case.steps), 3) or 1)
    assert '"advice":"Fuse the reduction' in text


def test_without_annotate_nothing_is_drawn(tmp_path):
    """The option is needed."""
    path = tmp_path / "plain.txt"
    traceconv.merge(SAMPLE, out=str(path))
    assert "Findings" not in path.read_text()


def test_marks_keep_to_the_base_of_time(tmp_path):
    """What is found in the detail does not move the start of a summary."""
    plain = tmp_path / "plain.txt"
    traceconv.merge(SAMPLE, out=str(plain))
    assert _annotated(tmp_path).read_text().splitlines()[1] == plain.read_text().splitlines()[1]


def test_workers_and_shards_give_the_same_bytes(tmp_path):
    """Marks depend on all ranks, however these were read."""
    alone = _annotated(tmp_path, "a.pftrace", jobs=1).read_bytes()
    assert _annotated(tmp_path, "b.pftrace", jobs=2).read_bytes() == alone
    parts = [str(tmp_path / f"{i}.shard") for i in range(2)]
    for i, part in enumerate(parts):
        traceconv.merge(SAMPLE, out=part, shard=(i, 2), annotate=True)
    traceconv.join(*parts, out=str(tmp_path / "c.pftrace"))
    assert (tmp_path / "c.pftrace").read_bytes() == alone


def test_a_report_changes_nothing_in_the_trace(tmp_path):
    """Marks are made of the same summaries with it and without."""
    plain = _annotated(tmp_path, "a.pftrace", steps=[2, 3]).read_bytes()
    path = _annotated(tmp_path, "b.pftrace", steps=[2, 3], analyse=True)
    assert path.read_bytes() == plain


@pytest.mark.parametrize("analyse", [False, True])
def test_the_analyses_look_once(tmp_path, monkeypatch, analyse):
    """At each rank, for marks and report together; what is only drawn is made for a report."""
    seen = []

    def noted(trace, requested):
        seen.append(requested.excerpts)
        return SUMMARIZE(trace, requested)

    monkeypatch.setattr(summarize, "summarize", noted)
    report = traceconv.merge(
        SAMPLE, out=str(tmp_path / "a.txt"), annotate=True, analyse=analyse, jobs=1
    )
    assert seen == [analyse] * len(report.ranks)
    assert (report.overview is not None) == analyse


def _slow_job(folder, slow=2):
    """Thirty steps on three ranks, to whose collectives one comes 300 us late."""
    for rank in range(3):
        events = []
        for step in range(30):
            at, busy = 1000 * step, (400 if rank == slow else 100) + 3 * ((step + rank) % 2)
            events += [
                row("user_annotation", f"ProfilerStep#{step}", 900, 900, at, 1000),
                row("kernel", "gemm", 0, 7, at, busy),
                row("kernel", NCCL, 0, 20, at + busy, 500 - busy),
            ]
        said = {"rank": rank, "world_size": 3}
        keys = {"schemaVersion": 1, "baseTimeNanoseconds": 10**18, "distributedInfo": said}
        write(folder / f"w{rank}.1.pt.trace.json", events, keys)
    return str(folder)


@pytest.mark.parametrize("steps", [None, range(10, 30)])
def test_marks_and_report_name_the_same_straggler(tmp_path, steps):
    """Of the run or of the chosen steps, as findings are."""
    path, job = tmp_path / "a.txt", _slow_job(tmp_path / "job")
    report = traceconv.merge(job, out=str(path), annotate=True, analyse=True, steps=steps)
    told = report.overview["straggler"]
    assert told["culprit"]["rank"] == 2
    assert [one["step"] for one in told["steps"]] == list(steps or range(30))
    named = [told["culprit"], *told["others"], *(one for one in told["steps"] if one["late"])]
    assert path.read_text().count('! "Straggler of') == len(named) > 1


@pytest.mark.parametrize("options", [{}, {"annotate": True}, {"analyse": True}])
def test_a_merge_tells_the_verdict(tmp_path, options):
    """First, whether or not anything asked for an analysis."""
    job, out = _slow_job(tmp_path / "job"), str(tmp_path / "a.txt")
    first, _, lost, _ = traceconv.merge(job, out=out, **options).lines()
    assert first.startswith("Rank 2 costs 29") and ", mostly computing. Compare clock" in first
    assert " waiting for rank 2 199 µs (20 %), " in lost


def test_a_merge_of_events_as_recorded_compares_no_ranks(tmp_path):
    """It tells who computes longest."""
    job, out = _slow_job(tmp_path / "job"), str(tmp_path / "a.txt")
    report = traceconv.merge(job, out=out, mode="source")
    assert not any("costs" in line for line in report.lines())


def test_a_merge_in_which_no_rank_stands_out_tells_so(tmp_path):
    """Of ranks that take equally long."""
    job, out = _slow_job(tmp_path / "job", slow=None), str(tmp_path / "a.txt")
    lines = traceconv.merge(job, out=out).lines()
    assert any(line.startswith("no rank stands out: ") for line in lines)


def test_a_merge_tells_why_there_is_no_verdict(tmp_path):
    """With a requested analysis."""
    report = traceconv.merge(SAMPLE, out=str(tmp_path / "a.txt"), annotate=True)
    assert report.lines()[2].startswith("no verdict: rank 1 takes 306 µs longer ")


def test_one_rank_has_no_verdict(tmp_path):
    """There is nobody to hold up."""
    report = traceconv.merge(SAMPLE, out=str(tmp_path / "a.txt"), annotate=True, ranks=[1])
    assert not [line for line in report.lines() if "straggler" in line]


def test_findings_are_of_the_chosen_steps(tmp_path):
    """Marks say no more than the trace shows: the pause before step 3 was the shorter one."""
    assert '"iteration-gap: 36.0 %"' in _annotated(tmp_path, steps=[3]).read_text()


def test_one_rank_is_annotated_too(tmp_path):
    """Without stragglers: there is nobody to hold up."""
    text = _annotated(tmp_path, ranks=[1]).read_text()
    assert "iteration-gap" in text
    assert '"Stragglers"' not in text


def test_annotate_on_the_command_line(tmp_path):
    """A flag of merge."""
    out = tmp_path / "a.txt"
    assert run(["merge", SAMPLE, "--annotate", "-o", str(out), "-q"]) == 0
    assert 'track "Findings" "" "Findings"' in Path(out).read_text()


def test_lanes_of_marks_belong_to_the_steps():
    """So that views and size limits keep them as they keep steps."""
    trace = annotate(passed(device(50 * US)[0]), [Mark("m")])
    (track,) = [t for t in trace.tracks if t.title == "Findings"]
    assert track.layer is Layer.STEP


def test_the_critical_path_is_a_lane(tmp_path):
    """Of every rank what is on it, on the clock of the trace: together they tile the steps."""
    from job_simulator import Clock, Delay, Job, write_kineto
    from job_simulator import run as simulated

    clocks = tuple(Clock(1000 * rank, 3.0 * rank) for rank in range(4))
    job = Job(tp=2, dp=2, steps=12, delays=(Delay((1,), 2e6),), pace=0.2, layers=4, clocks=clocks)
    write_kineto(simulated(job), tmp_path / "job")
    out = str(tmp_path / "t.pftrace")
    report = traceconv.merge(tmp_path / "job", out=out, annotate=True, analyse=True, mode="detail")
    found = traceconv.critical_path(tmp_path / "job")
    assert found.why == ""
    spans = []
    for trace in traceconv.open(out).traces(None):
        lanes = [i for i, track in enumerate(trace.tracks) if track.name == "Critical path"]
        rows = np.isin(trace.events.track, lanes)
        assert rows.any() == (trace.rank in found["ranks"]["Rank"])
        spans += zip(trace.events.start_ns[rows].tolist(), trace.events.end_ns[rows].tolist(),
                     strict=True)  # fmt: skip
    spans.sort()
    table = found["segments"]
    assert len(spans) == len(table)
    lengths = np.array([end - start for start, end in spans])
    assert np.abs(lengths - table["Length(ns)"]).max() <= 2  # rounded on the rank's own clock
    rows = report.overview["critical_path"]["rows"]
    assert [row["rank"] for row in rows] == found["ranks"]["Rank"].tolist()
    assert [row["length_ns"] for row in rows] == found["ranks"]["Length(ns)"].tolist()
