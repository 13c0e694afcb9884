"""Changes as users write them, and what is said of those that cannot be."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

import traceconv
from traceconv.analysis.replay.what_if import WhatIf
from traceconv.cli import cli, run
from traceconv.core.errors import EmptyResultError, OptionError, OutputPathError


@pytest.fixture
def job(tmp_path):
    """Six steps of two ranks, of which the second computes 300 us longer."""
    start = 0
    lines = {rank: [{"rawlog": 1, "unit": "ns", "clock": "unix", "rank": rank}] for rank in (0, 1)}
    for _ in range(6):
        ready = start + 1_300_000
        for rank, own in ((0, 1_000_000), (1, 1_300_000)):
            lines[rank].append(
                {"name": "MatMul", "ts": start, "dur": own, "stream": 1, "kind": "compute"}
            )
            inside = ready + 100_000 - start - own
            lines[rank].append({"name": "allreduce", "ts": start + own, "dur": inside,
                                "kind": "comm", "plane": "world"})  # fmt: skip
        start = ready + 100_000
    for rank, rows in lines.items():
        (tmp_path / f"rank{rank}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("change", "gain_ns"),
    [
        ("rank:1=peers", 300_000),
        ("rank:0=peers", 0),
        ("op:Mat* x0.5", 650_000),
        ("comm:allreduce x0.5", 50_000),
        ("comm:* overlap", 100_000),
        (["op:MatMul x0.5", "comm:* x0"], 750_000),
    ],
)
def test_gains_that_can_be_worked_out(job, change, gain_ns):
    """A step takes as long as the slower rank, and the transfer."""
    found = traceconv.what_if(job, change=change)
    assert found.result.gain_ns == pytest.approx(gain_ns, abs=2)
    assert found.as_dict()["step_ns"] == pytest.approx(1_400_000, abs=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("speed:2", "'speed:2' is not a change; write one of 'rank:3=peers'"),
        ("rank:7=peers", "no such rank; there are 0, 1"),
        ("rank:1", "write 'rank:1=peers'"),
        ("op:Conv* x0.5", "no kernel has such a name; there are e.g. MatMul"),
        ("op:MatMul", "a factor is missing; write '... x0.5'"),
        ("comm:ep x0.5", "no such communication; there is "),
        ("stage:balanced", "pipeline stages of this job are unknown"),
        ("stage:3 x0.8", "a single stage cannot be changed; stages take 'stage:balanced' only"),
        ("op:idle* x0.5", "no kernel has such a name; there are e.g. MatMul"),
        ("input:x", "'x' is not a factor; write 0 or x0.5"),
    ],
)
def test_changes_that_cannot_be(job, change, said):
    """The message says what can be written instead."""
    with pytest.raises(OptionError, match=said.replace("*", r"\*").replace("...", r"\.\.\.")):
        traceconv.what_if(job, change=change)


def test_changes_stand_among_paths(job):
    """As text and as one JSON document."""
    result = CliRunner().invoke(cli, ["what-if", "rank:1=peers", job, "-q"])
    assert (result.exit_code, result.output.count("a step takes")) == (0, 1)
    assert result.output.startswith("rank:1=peers: a step takes 1.10 ms instead of 1.40 ms, ")
    result = CliRunner().invoke(cli, ["what-if", job, "--change", "comm:* x0", "--json", "-q"])
    assert json.loads(result.output)["gain_ns"] == pytest.approx(100_000, abs=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("gc:0", "no garbage collection was recorded; record it (torch_npu: gc_detect_threshold)"),
        ("input:x0.5", "no waiting for input was recorded; record the host"),
        ("host:0", "no host time was recorded; record host calls"),
        ("copy:0", "no copy was recorded; record copies"),
    ],
)
def test_what_was_not_recorded_gains_nothing_known(job, tmp_path, change, said, capsys):
    """Neither alone nor with changes whose gain is known."""
    assert run(["what-if", change, job, "-q"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(f"{change}: gain unknown: {said}")
    found = traceconv.what_if(job, change=["rank:1=peers", change]).as_dict()
    unknown = ("step_if_ns", "gain_ns", "gain_interval_ns", "gain_share")
    assert [found[key] for key in unknown] == [None] * 4
    assert {step["if_ns"] for step in found["steps"]} == {None}
    with pytest.raises(EmptyResultError, match="no trace is written"):
        traceconv.what_if(job, change=change, out=str(tmp_path / "both.txt"))


def test_what_was_recorded_and_delays_nothing_gains_nothing(job, tmp_path):
    """A garbage collection while the device works."""
    with (tmp_path / "rank0.jsonl").open("a") as file:
        file.write(json.dumps({"name": "gc", "ts": 100_000, "dur": 50_000, "thread": 1}) + "\n")
    found = traceconv.what_if(job, change=["gc:0", "host:0"]).as_dict()
    assert (found["gain_ns"], found["gain_interval_ns"]) == (0, [0, 0])


def test_communication_that_was_not_recorded(job, tmp_path):
    """Of kernels only."""
    for path in tmp_path.glob("*.jsonl"):
        lines = path.read_text().splitlines()
        path.write_text("\n".join(one for one in lines if "allreduce" not in one) + "\n")
    found = traceconv.what_if(job, change="comm:* overlap")
    assert found.result.gain_ns is None
    assert "no communication was recorded" in found.lines()[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo:0", "'foo:0' is not a change; write one of 'rank:3=peers', 'rank:balanced'"),
        ("rank=0", "'rank=0' is not a change (did you mean 'rank:3=peers'?); write one of"),
        ("gc", "'gc' is not a change (did you mean 'gc:0'?); write one of"),
        ("./absent", "./absent: no such file or folder"),
    ],
)
def test_what_is_like_a_change_is_no_path(job, text, said, capsys):
    """The error repeats it, and lists the changes."""
    more = ["--change", "host:0"] * text.startswith("./")
    assert run(["what-if", text, job, "-q", *more]) == (3 if more else 2)
    assert said in capsys.readouterr().err
    assert run(["what-if", "--help"]) == 0
    assert "what-if [OPTIONS] [CHANGE]... [PATH]..." in capsys.readouterr().out


def test_a_change_has_a_limit_of_length(job):
    """Some patterns take minutes to match."""
    with pytest.raises(OptionError, match="at most 1000 characters, this one has 1008"):
        traceconv.what_if(job, change="op:" + "[!" * 500 + " x0.5")


def test_the_trace_shows_the_job_as_recorded_and_with_the_change(job, tmp_path):
    """Side by side, each rank twice; steps take as long as the result says."""
    out = tmp_path / "both.txt"
    found = traceconv.what_if(job, change="rank:1=peers", out=str(out))
    assert [str(one.path) for one in found.written] == [str(out)]
    text = out.read_text()
    ranks = re.split(r"\nrank \d+\n", text)[1:]
    lengths = [
        [int(ns) for ns in re.findall(r'\n    \d+ \+(\d+) "Step \d+"', one)] for one in ranks
    ]
    for side, steps in enumerate((found.result.before_ns, found.result.after_ns)):
        assert np.abs(np.array(lengths[side::2]) - steps).max() <= 1
    with pytest.raises(OutputPathError, match="exists"):
        traceconv.what_if(job, change="rank:1=peers", out=str(out))


@pytest.mark.parametrize(
    ("after_ns", "said"),
    [
        ((9_000_000, 12_000_000, 8_000_000), "saves 333 µs per step (3.3 %, 95 % interval -"),
        ((13_000_000, 14_000_000, 9_000_000), "costs 2 ms per step (20 %, 95 % interval -"),
        ((12_000_000, 12_000_000, 12_000_000), "(20 %, 95 % interval 2 ms to 2 ms)"),
    ],
)
def test_intervals_keep_their_sign(after_ns, said):
    """From the lower end to the higher one, of what is saved or of what it costs."""
    steps = ((0, 1), (0, 2), (0, 3))
    found = WhatIf(("gc:0",), steps, (10_000_000,) * 3, after_ns, 0.0)
    assert said in found.line()
    low, high = found.as_dict()["gain_interval_ns"]
    assert low <= found.gain_ns <= high


def test_without_a_change_the_best_ones_are_shown(job):
    """As `diagnose` and the report have them, to be copied."""
    found = traceconv.what_if(job)
    assert found.suggested[0].change.change == "rank:1=peers"
    assert found.as_dict()["suggested"][0]["gain_ns"] == pytest.approx(300_000, abs=2)
    assert found.lines()[1].startswith("rank:1=peers")
    with pytest.raises(OptionError, match="no change is given"):
        traceconv.what_if(job, out="both.pftrace")
