"""Ranges of the host that are steps by their name, in a trace of any tool."""

import json

import pytest

import traceconv


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step 3", 3),
        ("Iteration:3", 3),
        ("train_step 3", 3),
        ("train step 3", 3),
        ("training-iter#3", 3),
        ("global_step=3", 3),
        ("ProfilerStep#3", 3),
        ("ProfileStep#3", 3),
        ("eval step 3", 0),
        ("first step", 0),
    ],
)
def test_numbered_ranges_are_steps(tmp_path, name, step):
    """Those of evaluation, and without a number, are not: then all is one step, number 0."""
    event = {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 5, "dur": 9}
    (tmp_path / "a.json").write_text(json.dumps([event]))
    (trace,) = traceconv.open(tmp_path).traces("detail")
    assert trace.steps.step.tolist() == [step]
