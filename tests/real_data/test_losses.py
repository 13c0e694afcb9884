"""Waiting for input on real captures, against their own files read with plain code."""

import json
from decimal import Decimal

import pytest
from paths import DATA

import traceconv

ADVICE = DATA / "ascend" / "msprof-analyze" / "ut" / "advisor" / "timeline_advice"
RANK_0 = DATA / "ascend" / "msinsight" / "test" / "data" / "pytorch" / "text" / "level1"
FETCH = ("enumerate(DataLoader)", "torch/utils/data/dataloader.py(625): __next__")


def fetched_ns(path):
    """The length of all fetches together; where they overlap, once."""
    events = json.loads(path.read_bytes(), parse_float=Decimal)
    rows = [e for e in events if str(e.get("name")).startswith(FETCH)]
    spans = sorted((int(Decimal(e["ts"]) * 1000), int(Decimal(e["dur"]) * 1000)) for e in rows)
    total = reached = 0
    for start, dur in spans:
        total += max(start + dur - max(start, reached), 0)
        reached = max(reached, start + dur)
    return total


@pytest.mark.parametrize("path", [ADVICE, RANK_0 / "rank0_ascend_pt"])
def test_a_device_that_does_nothing_meanwhile_waits_for_all_of_a_fetch(path):
    """Both captures fetch before their first task: 1.319 and 3.481 ms."""
    [file] = path.rglob("trace_view.json")
    table = traceconv.stats(str(path), by="overlap")["overlap"]
    waits = table["Input Wait(ns)"][table["Step"] >= 0].tolist()
    assert waits == [pytest.approx(fetched_ns(file), abs=4)]


def test_the_limit_of_msprof_analyze():
    """Its test data has fetches of 1.3 ms in all, which are no finding by 10 ms, but 9 % of a step
    of 14 ms."""
    [found] = traceconv.diagnose(str(ADVICE), rule="input-wait").findings.findings
    assert found.amount() == "9.36 %"
    assert found.ms_per_step == pytest.approx(1.3186, abs=1e-4)
