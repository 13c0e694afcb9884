"""Findings on real captures, each checked against what the captures' own tables say.

What they find, and whether it is so:

* MindSpore, two ranks: pauses as long as the steps, and three quarters of a step after backward, in
  the reduction of gradients; the first step waits for the other rank. All three stand in its
  ``step_trace_raw`` tables.
* Ascend PyTorch, two ranks: computing is 5.7 % of the step, 65 % are communication alone. Rank 1
  comes 5.6 ms late to the first collective. Cast and TransData take 16 % of computing.
* HTA's pair is a sample of a trace: events were left out before it was published, so that its low
  utilisation is that of what is left.
* Paddle's logs state their own Reader Ratio.
"""

import csv
import gzip
import json
from decimal import Decimal

import pytest
from paths import DATA

import traceconv
from traceconv.analysis.rules.catalog import RULES

MINDSPORE = DATA / "ascend" / "mindinsight" / "profiler"
TORCH = DATA / "ascend" / "msinsight" / "test" / "data" / "pytorch"
PIPELINE = DATA / "ascend" / "msinsight" / "test" / "st" / "level2"
KINETO, PADDLE = DATA / "gpu" / "kineto", DATA / "gpu" / "paddle"


def _found(*paths, **options):
    return traceconv.diagnose(*map(str, paths), **options)


def _values(found, rule):
    return {
        one.rank: one.case.value
        for one in (*found.findings.findings, *found.findings.minor)
        if one.rule.id == rule
    }


def _spoken(found):
    return {one.rule.id for one in (*found.findings.findings, *found.findings.minor)}


@pytest.fixture(scope="module")
def mindspore():
    return _found(MINDSPORE)


@pytest.fixture(scope="module")
def torch():
    return _found(TORCH / "text" / "level1")


def test_mindspore_pauses_and_tails(mindspore):
    """One gap of 32 and 31 ms is known between the four steps with device work, in percent of all
    of that (nine are marked between ten steps); 77 and 79 % of the steps are tail."""
    assert _values(mindspore, "iteration-gap") == pytest.approx({0: 25.55, 1: 22.60}, abs=0.01)
    assert _values(mindspore, "long-tail") == pytest.approx({0: 77.50, 1: 79.02}, abs=0.01)
    assert _values(mindspore, "first-step") == pytest.approx({0: 3.09, 1: 3.59}, abs=0.01)


def test_mindspore_data_preparation(mindspore):
    """The tables of the pipeline: readers' queues at 31 %; of the processors 10 % are idle, and
    another 10 % wait for files."""
    assert _values(mindspore, "pipeline-source") == {0: 31.25, 1: 31.25}
    assert _values(mindspore, "cpu-busy") == {}
    # one sample finds its queue empty, which says nothing of how it usually is
    assert "host-queue-empty" in {one.rule.id for one in mindspore.findings.unchecked}


def test_mindspore_waits_and_conversions(mindspore):
    """The allreduce waits for 40 of 69 ms on rank 0; TransData in the reducer of gradients."""
    assert _values(mindspore, "communication-wait")[0] == pytest.approx(58.40, abs=0.01)
    assert _values(mindspore, "format-conversion") == pytest.approx({0: 19.11, 1: 19.21}, abs=0.01)


def test_ascend_pytorch(torch):
    """Exposed communication is that of its step_trace_time.csv, of all of the step.

    The device waits for 18 ms before the first task of the step (Preparing).
    """
    assert _values(torch, "exposed-communication") == pytest.approx({0: 65.37, 1: 62.62}, abs=0.01)
    assert _values(torch, "format-conversion") == pytest.approx({0: 16.10, 1: 16.01}, abs=0.01)
    assert torch.verdict.culprits == ()
    assert torch.findings.ranks == (0, 1)


def test_ascend_pytorch_is_not_accused_wrongly(torch):
    """Blocked layouts are aligned, launches are far ahead, links are alike, ranks compute alike."""
    assert not _spoken(torch) & {
        "unaligned-shapes", "launch-starved", "slow-link", "small-packets", "compute-spread",
    }  # fmt: skip
    asked = {rule.id for rule in torch.findings.quiet}
    assert asked >= {"launch-starved", "slow-link", "small-packets", "compute-spread"}


def test_databases_say_the_same():
    """As text exports of the same kind of run do."""
    found = _found(TORCH / "db" / "level1")
    assert _values(found, "exposed-communication") == pytest.approx({0: 64.57, 1: 63.77}, abs=0.01)
    assert found.verdict.culprits == ()


def test_tables_alone_tell_of_waits():
    """A receive of a pipeline stage that waits for 164 ms, from communication.json."""
    found = _found(PIPELINE)
    assert _values(found, "communication-wait").keys() == {1}
    worst = next(one for one in found.findings.findings if one.rule.id == "communication-wait")
    assert worst.slices[0].name.startswith("hcom_batchSendRecv__764_4_1")
    assert "small-packets" not in _spoken(found)


def test_kineto_pair():
    """Two ranks of 128, thinned out: idle by what is left, and unlike in what they compute."""
    found = _found(*(KINETO / f"hta_sampled_rank-{rank}.json.gz" for rank in (0, 1)))
    assert _values(found, "device-idle") == pytest.approx({0: 44.52, 1: 46.83}, abs=0.01)
    assert _values(found, "compute-spread").keys() == {1}
    assert "launch-starved" not in _spoken(found)


@pytest.mark.parametrize(
    ("name", "late_us"),
    [("tracelens_h100_bert_small", 6.5), ("tracelens_b200_eager_rank0of8", 10.1)],
)
def test_starved_gpus(name, late_us):
    """A small model launched kernel by kernel: the GPU is busy for about a tenth of the time."""
    found = _found(KINETO / f"{name}.json.gz", rule=["launch-starved", "device-idle"])
    (value,) = _values(found, "launch-starved").values()
    assert value == pytest.approx(late_us, abs=0.1)
    assert next(iter(_values(found, "device-idle").values())) < 14


def test_nsight_of_two_gpus():
    """Rank 0 is a fifth idle, as far as it does not copy, and its launches are no cause of it."""
    found = _found(DATA / "gpu" / "nsys" / "mfu_2gpu_after.sqlite")
    assert not _values(found, "device-idle")  # 79.41 without copies, 80.24 with them
    assert not _spoken(found) & {"launch-starved", "compute-spread", "idle-spread"}


@pytest.mark.parametrize(
    ("name", "ratio"), [("summary_3steps_cpu", 19.50), ("timer_only_log", 31.32)]
)
def test_paddle_reader_ratio(name, ratio):
    """As the log prints it."""
    (value,) = _values(_found(PADDLE / f"{name}.txt"), "reader-ratio").values()
    assert value == pytest.approx(ratio, abs=0.01)


def test_every_rule_is_accounted_for(torch):
    """Speaks, looked and found nothing, or could not look: nothing is passed over."""
    found = torch.findings
    told = {one.rule.id for one in (*found.findings, *found.minor, *found.unchecked)}
    assert told | {rule.id for rule in found.quiet} == set(RULES)


def test_annotated_merge_of_real_ranks(tmp_path):
    """The findings are annotations in the trace; one step is too few for a straggler."""
    out = tmp_path / "a.txt"
    traceconv.merge(str(TORCH / "text" / "level1"), out=str(out), annotate=True)
    assert '"exposed-communication: 65.4 %"' in out.read_text()
    assert "Straggler:" not in out.read_text()


def test_torch_compiles_and_multiplies_in_single_precision(torch):
    """Calls of the timeline between the borders of its step, and rows of the table of kernels."""
    for rank in (0, 1):
        folder = TORCH / "text" / "level1" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        events = json.loads((folder / "trace_view.json").read_bytes(), parse_float=Decimal)
        # times are texts of us with three decimals
        rows = [(e["name"], round(Decimal(e["ts"]) * 1000), round(Decimal(e["dur"]) * 1000))
                for e in events if e.get("ph") == "X"]  # fmt: skip
        [(low, high)] = [(t, t + ns) for name, t, ns in rows if name.startswith("ProfilerStep#")]
        calls = [max(min(t + ns, high) - max(t, low), 0) for name, t, ns in rows
                 if name == "AscendCL@aclopCompileAndExecute"]  # fmt: skip
        share = 100 * sum(calls) / (high - low)
        assert _values(torch, "compilation").get(rank, 0) == pytest.approx(share)
        with (folder / "kernel_details.csv").open(newline="") as file:
            kernels = [row for row in csv.DictReader(file) if not row["Name"].startswith("hcom_")]
        spent = [sum(float(row["Duration(us)"]) for row in some) for some in (
            kernels, [row for row in kernels if row["Type"].startswith("MatMul")
                      and row["Input Data Types"].startswith("FLOAT;FLOAT")])]  # fmt: skip
        value = _values(torch, "full-precision")[rank]
        assert value == pytest.approx(100 * spent[1] / spent[0], rel=1e-3)


def test_gaps_before_short_kernels_of_bert():
    """Between the device rows of the file: idle time of up to 100 us before kernels under 10 us."""
    path = KINETO / "tracelens_h100_bert_small.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    rows = sorted((round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000), e["cat"]) for e in
                  events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))  # fmt: skip
    lost, busy_until = 0, rows[0][1]
    for start, end, kind in rows:
        gap = start - busy_until
        lost += gap * (kind == "kernel" and 0 < gap <= 100_000 and end - start < 10_000)
        busy_until = max(busy_until, end)
    found = _found(path)
    [one] = [one for one in found.findings.findings if one.rule.id == "small-kernels"]
    assert one.ms_per_step == pytest.approx(lost / 1e6, rel=1e-3)
