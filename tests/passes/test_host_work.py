"""Jobs that compute on CPUs and communicate by Gloo."""

import json

import numpy as np
import pytest
from paths import ROOT

import traceconv

CASE = ROOT / "golden/kineto/gloo_on_cpus/input"


def test_the_late_rank_of_a_job_on_cpus_is_named():
    """Rank 1 sleeps before each step, and Gloo's operations show that rank 0 waits."""
    found = traceconv.stragglers(CASE).verdict
    assert [one.rank for one in found.culprits] == [1]
    assert "mostly host" in found.line()


def test_innermost_operators_are_the_work():
    """Of linear, addmm, AddmmBackward0, mm and the optimizer the innermost compute; issuing the
    all-reduce does not. The host keeps its own slices."""
    for trace in traceconv.open(CASE).traces("detail"):
        work = trace.rows_of("device")
        names = {trace.strings[i] for i in trace.events.name[work].tolist()}
        assert names == {"aten::addmm", "aten::mm", "aten::_foreach_add_"}
        every = [trace.strings[i] for i in trace.events.name[trace.rows_of("host")].tolist()]
        assert every.count("aten::mm") == 12
        assert trace.steps.computing_ns.tolist() == [90_001 + 120_250 + 100_000] * 12


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ('"pg_name": "0"', "several groups"),
        ('"cat": "cpu_op", "name": "aten::mm"', "a device"),
    ],
)
def test_gloo_stays_on_its_threads(tmp_path, change, why):
    """Where the group of an operation is unknown, or a device works, operators are no work."""
    text = next(CASE.glob("rank0*")).read_text()
    if why == "several groups":
        group = '{"pg_name": "1", "pg_size": 2, "ranks": [0, 2]}, '
        text = text.replace('{\n    "pg_name"', '{\n    "pg_name"', 1)
        text = text.replace('"pg_config": [', '"pg_config": [' + group, 1)
    else:
        text = text.replace(change, '"cat": "kernel", "name": "mm"', 1)
    (tmp_path / "rank0.pt.trace.json").write_text(text)
    (trace,) = traceconv.open(tmp_path).traces("detail")
    assert not trace.rows_of("comm").any()
    assert np.count_nonzero(trace.rows_of("device")) == (why == "a device")


def test_communication_without_host_work(tmp_path):
    """Where no operator was recorded, there is nothing to derive."""
    document = json.loads(next(CASE.glob("rank0*")).read_text())
    events = document["traceEvents"]
    kept = [one for one in events if "gloo" in one["name"] or one["ph"] == "M"]
    document["traceEvents"] = kept
    (tmp_path / "rank0.pt.trace.json").write_text(json.dumps(document))
    (trace,) = traceconv.open(tmp_path).traces("detail")
    assert trace.rows_of("comm").any()
