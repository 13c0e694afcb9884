"""Captures of more steps than anybody lists: nothing that is counted stops at a number of them."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from kineto_files import row, write
from paths import ROOT

import traceconv
from traceconv.cli import run

STEPS, STEP_US = 3000, 100
LAZY = 1000
"""So many steps at the beginning compute for 60 % of their time, the others for 96 %."""

RANKS = (0, 1)


@dataclass(frozen=True)
class Truth:
    """What the files of a rank hold, counted while they are written; ns."""

    kernels: list[tuple[int, int]]

    @property
    def busy(self) -> list[int]:
        """How long kernels run in each step, counted kernel by kernel."""
        busy = [0] * STEPS
        for start, dur in self.kernels:
            busy[start // (STEP_US * 1000)] += dur
        return busy

    @property
    def percent(self) -> float:
        """Device utilisation."""
        return 100 * sum(self.busy) / (STEPS * STEP_US * 1000)


def _kernels(number):
    """(start, length) of the kernels of a step, us; the last one ends when the step does."""
    length = 60 if number < LAZY else 96
    return [(0, length - 10), (STEP_US - 10, 10)]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder of two ranks that do the same, and what they do."""
    folder, kernels, events = tmp_path_factory.mktemp("job"), [], []
    for number in range(STEPS):
        at = 1000 + number * STEP_US
        events.append(row("user_annotation", f"ProfilerStep#{number}", 900, 900, at, STEP_US))
        for start, dur in _kernels(number):
            key = len(kernels) + 1
            events.append(
                row("cuda_runtime", "cudaLaunchKernel", 900, 900, at + start, 1, correlation=key)
            )
            events.append(row("kernel", "gemm", 0, 7, at + start, dur, correlation=key))
            kernels.append(((number * STEP_US + start) * 1000, dur * 1000))
    for rank in RANKS:
        info = {"distributedInfo": {"rank": rank, "world_size": len(RANKS)}}
        write(folder / f"rank{rank}.json", events, info)
    return folder, Truth(kernels)


def _document(folder, tmp_path, *options):
    out, report = tmp_path / "out.pftrace", tmp_path / "report.json"
    assert run(["merge", str(folder), "-o", str(out), "--report", str(report), *options]) == 0
    return json.loads(report.read_text())


def test_the_truth_is_between_what_a_part_and_the_rest_say(job):
    """A capture cut after its first 1000 steps would be host bound; this one is not."""
    _, truth = job
    assert truth.percent == pytest.approx(84.0)


def test_tables_count_all_steps(job):
    """Their number, their lengths, and how busy the device is."""
    folder, truth = job
    found = traceconv.stats(str(folder), by=["step_summary", "step", "overlap", "device"])
    assert found["step_summary"]["Count"].tolist() == [STEPS, STEPS, 2 * STEPS]
    assert (found["step"]["Rank"] == 0).sum() == STEPS
    overlap = found["overlap"]
    mine = (overlap["Rank"] == 0) & (overlap["Step"] >= 0)
    assert mine.sum() == STEPS
    assert np.allclose(overlap["Compute(%)"][mine], [60.0] * LAZY + [96.0] * (STEPS - LAZY))
    assert found["device"]["Utilization(%)"].tolist() == [truth.percent] * len(RANKS)


@pytest.mark.sample(2)
def test_rules_judge_all_steps(job):
    """The device is busy enough; asked for more, the rule says how busy it is."""
    folder, truth = job
    codes = {one.rule.id for one in traceconv.diagnose(str(folder)).findings.findings}
    assert "device-idle" not in codes
    found = traceconv.diagnose(str(folder), rule=["device-idle"], threshold={"device-idle": 100})
    assert [one.case.value for one in found.findings.findings] == [truth.percent] * len(RANKS)


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", [(), ("-m", "detail"), ("--jobs", "2")])
def test_a_merge_reports_all_steps(job, tmp_path, capsys, options):
    """In the lines it prints and in its document, which is what its schema describes."""
    folder, truth = job
    document = _document(folder, tmp_path, *options)
    assert f"steps per rank: {STEPS}\n" in capsys.readouterr().err
    for rank in RANKS:
        notes = document["notes"][str(rank)]
        assert [step["step"] for step in notes["steps"]] == list(range(STEPS))
        assert [step["computing_ns"] for step in notes["steps"]] == truth.busy
        assert notes["overlap"]["sums_ns"]["computing"] == sum(truth.busy)
        assert (notes["steps_total"], len(notes["steps_found"])) == (STEPS, STEPS)
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "schemas" / "json" / "report.schema.json").read_text())
    jsonschema.validate(document, schema)


def test_shards_carry_all_steps(job, tmp_path):
    """What is joined reports what one run reports."""
    folder, _ = job
    whole = _document(folder, tmp_path)
    paths = [str(tmp_path / f"{i}.shard") for i in RANKS]
    for i, path in enumerate(paths):
        traceconv.merge(str(folder), out=path, shard=(i, len(RANKS)))
    joined = traceconv.join(*paths, out=str(tmp_path / "joined.pftrace")).as_dict()
    assert json.loads(json.dumps(joined["notes"])) == whole["notes"]


def test_figures_of_late_steps_are_drawn(job, tmp_path):
    """The arguments of a step beyond the thousandth say how its time divides."""
    folder, _ = job
    out = tmp_path / "out.json"
    traceconv.merge(str(folder), out=str(out), ranks=[0], annotate=True)
    events = json.loads(out.read_text())["traceEvents"]
    args = [e.get("args", {}) for e in events if e.get("name") == f"ProfilerStep#{STEPS - 2}"]
    assert [a["computing_ns"] for a in args if "computing_ns" in a] == [96_000]
