"""Rules of the host, and of work that could be done better: what each says, and how much it saves."""

import pytest
from rule_cases import FIRES, MS, US, called, copied, launched_each, passed

from traceconv.analysis.rules.findings import judge
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.core.model import Layer


def _judged(rule, builders):
    return judge(
        [summarize(passed(one), SummaryRequest(rules=(rule,))) for one in builders], {}, [rule]
    )


def _only(rule, builders):
    (found,) = _judged(rule, builders).findings
    return found


def test_a_synchronisation_that_the_device_outlasts_costs_nothing():
    """The host waits, but the device is not idle afterwards: no finding."""
    assert not _judged("host-sync", called("cudaDeviceSynchronize", 300 * US, gap=0, each=1,
                                           launches=4)).findings  # fmt: skip


def test_a_synchronisation_of_few_launches_is_judged_by_idle_time():
    """A gap of 100 µs behind the only synchronisation of each step of 500 µs."""
    found = _only("host-sync", called("cudaDeviceSynchronize", 50 * US, each=1, launches=4))
    assert found.case.limit == ""
    assert found.case.value == pytest.approx(20)
    assert found.case.figures["per_launch_percent"] == 25
    assert found.case.figures["idle_behind_them_ns"] == 100 * US
    assert found.ms_per_step == 0.05  # no more than the call takes


def test_a_synchronisation_per_launch_is_a_setting():
    """More than half of the launches are waited for: the advice names the switches."""
    found = _only("host-sync", called("aclrtSynchronizeStream", 50 * US))
    assert found.case.limit == "per-launch"
    assert "ASCEND_LAUNCH_BLOCKING" in found.advice


def test_calls_of_the_host_save_no_more_than_the_device_is_idle():
    """8 ms of allocation twice a step beside 2 ms of idle time: at most these."""
    found = _only("allocation", FIRES["allocation"])
    assert found.case.value == 16
    assert found.case.figures["calls_per_step"] == 2
    assert found.ms_per_step == 2
    assert found.slices[0].name == "cudaMalloc"


def test_calls_of_threads_that_launch_nothing_are_no_matter():
    """A thread of its own frees memory."""
    (build,) = called("other", US, kernel=10 * MS)
    aside = build.track(Layer.RUNTIME, "Thread 2")
    build.slice(aside, 0, 80 * MS, "cudaFree")
    assert not _judged("allocation", [build]).findings


def test_gaps_before_short_kernels():
    """6 of 10 µs, to the ns; long gaps are not the cost of a launch."""
    found = _only("small-kernels", launched_each(4 * US, 6 * US))
    # the window begins with the first step, the last gap ends with the last kernel
    assert found.case.value == pytest.approx(60)
    assert found.ms_per_step == pytest.approx(0.3)
    assert found.case.figures["kernels_per_step"] == 50
    assert found.slices[0].dur_ns == 6 * US
    assert not _judged("small-kernels", launched_each(4 * US, 600 * US)).findings


def test_copies_that_are_hidden_or_stay_on_the_device_are_none():
    """Only copies between host and device count; pageable memory is advised against."""
    assert not _judged("step-copies", copied("Memcpy DtoD (Device -> Device)", 50 * US)).findings
    found = _only("step-copies", copied("Memcpy DtoH (Device -> Pageable)", 50 * US))
    assert found.case.value == pytest.approx(100 * 50 / 1050)
    assert found.ms_per_step == pytest.approx(0.05)
    assert "pin it" in found.advice
    pinned = _only("step-copies", copied("Memcpy DtoH (Device -> Pinned)", 50 * US))
    assert "pin it" not in pinned.advice


def test_collections_that_were_not_recorded_are_unknown():
    """A timeline without any says nothing: the profiler has to be told to record them."""
    assert _judged("garbage-collection", called("cudaMalloc", US)).unchecked
