"""Jobs whose causes are known: two that were published, and generated ones."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from paths import DATA

import traceconv
from traceconv.api.stragglers import StragglerReport

JOBS = DATA / "jobs"
INSIGHT = DATA / "field/insight"
GENERAL = DATA / "field/general"

pytestmark = pytest.mark.skipif(not JOBS.is_dir(), reason="needs the shared captures")


@cache
def judged(folder: Path) -> StragglerReport:
    return traceconv.stragglers(str(folder))


@pytest.mark.parametrize("job", ["slow_worker", "stage_imbalance"])
def test_slowdown_and_attribution_of_published_jobs(job: str) -> None:
    """As the authors computed them: 3 %, and 0.05 for each part."""
    expected = json.loads((JOBS / job / "expect.json").read_text())
    said = judged(JOBS / job).as_dict()["replay"]
    assert said["slowdown"] == pytest.approx(expected["slowdown"], rel=0.03)
    assert said["error"] < 0.05
    parts, known = said["slowdown_if_only_these_stay_slow"], "slowdown_if_only_these_stay_slow"
    for axis, theirs in (("dp", "dp_rank"), ("pp", "stage")):
        assert parts[axis] == pytest.approx(expected[known][theirs], abs=0.05)
    names = {
        "forward_gemm": "forward-compute", "backward_gemm": "backward-compute",
        "multi_tensor_adam": "optimizer", "point-to-point": "forward-pp-comm",
    }  # fmt: skip
    for ours, theirs in names.items():
        assert parts["operation"][ours] == pytest.approx(
            expected[known]["optype"][theirs], abs=0.05
        )


@pytest.mark.sample(2)
@pytest.mark.parametrize("steps", ["35", "21,29", "27,34,35"])
def test_few_steps_of_a_job_are_attributed_alike(steps: str) -> None:
    """Groups then have one or two operations each, which follow each other alike."""
    said = traceconv.stragglers(str(JOBS / "slow_worker"), steps=steps).as_dict()["replay"]
    parts = said["slowdown_if_only_these_stay_slow"]["rank"]
    assert said["slowdown"] == pytest.approx(1.948, rel=0.03)
    assert parts["0"] == pytest.approx(1.95, abs=0.05)
    assert max(value for rank, value in parts.items() if rank != "0") < 1.1


def test_the_first_line_names_the_cause_of_published_jobs() -> None:
    """The slow rank, and the stage with more work."""
    first, *others = judged(JOBS / "slow_worker").lines(every=True)
    assert first.startswith("straggler: rank 0 (dp0 pp0) takes 26.3 s longer than 3 peers")
    assert first.endswith("it costs 22.8 s per step (49 % of the recorded step)")
    ideal = "without idle time, a step takes 1.96 times as long as with equal ranks and links"
    assert ideal in others
    verdict = judged(JOBS / "stage_imbalance")
    assert verdict.lines()[0].startswith("uneven stages: stage 3 (ranks 6-7) works ")
    (late,) = verdict.verdict.late
    assert (late.stage, late.others) == (3, (0, 1, 2, 3, 4, 5))
    stage = verdict.verdict.stage
    assert stage.gain_ns < late.per_step_ns < stage.excess_ns


def test_a_stage_that_was_not_captured_is_named(tmp_path: Path) -> None:
    """Without a stage the others still show which has more work, but not what that costs."""
    for rank in (0, 1, 4, 5, 6, 7):
        name = f"rank{rank}.pt.trace.json.gz"
        (tmp_path / name).symlink_to(JOBS / "stage_imbalance" / name)
    limits = traceconv.stragglers(str(tmp_path)).verdict.limits
    assert any(one.startswith("ranks 2-3 not captured") for one in limits)
    assert any("the stage of ranks 6-7 works 53" in one for one in limits)


def test_runs_that_are_years_apart_have_no_verdict() -> None:
    """Sessions of JAX and TensorFlow from 2020 to 2026 that share numbers of steps."""
    verdict = traceconv.stragglers(DATA / "hub" / "xplane", cache=False).verdict
    assert "the captures are of several jobs" in verdict.reason and verdict.replay is None


def test_a_slow_stage_shows_in_the_drawing() -> None:
    """Its ranks take longer than the median in every step, which their peers do, too."""
    pytest.importorskip("matplotlib").use("agg")
    image = judged(JOBS / "stage_imbalance").plot().images[0].get_array()
    assert (image[6:] > 300).all()
    assert (image[:6] < 100).all()


@pytest.mark.parametrize("job", ["slow_worker", "stage_imbalance"])
def test_messages_without_a_recorded_peer_are_paired_by_time(job: str, tmp_path: Path) -> None:
    """As Ascend's timelines hold them: the verdict is that of the recorded peers."""
    for path in (JOBS / job).glob("*.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        for event in document["traceEvents"]:
            for side in ("Src Rank", "Dst Rank"):
                event.get("args", {}).pop(side, None)
        (tmp_path / path.stem).write_text(json.dumps(document))
    with_peers, without = judged(JOBS / job), judged(tmp_path)
    assert without.lines()[0] == with_peers.lines()[0]


def test_messages_tell_the_stages(tmp_path: Path) -> None:
    """As in Nsight reports: communicators, sends and receives, and no coordinate of any rank."""
    for path in (JOBS / "stage_imbalance").glob("*.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        del document["distributedInfo"]["pg_config"]
        for event in document["traceEvents"]:
            arguments = event.get("args", {})
            members = arguments.pop("Process Group Ranks", None)
            arguments.pop("Process Group Description", None)
            if members:
                arguments["Process Group Name"] = f"communicator {hash(members)}"
            for side in ("Src Rank", "Dst Rank"):
                arguments.pop(side, None)
        (tmp_path / path.stem).write_text(json.dumps(document))
    with_coordinates, without = judged(JOBS / "stage_imbalance"), judged(tmp_path)
    assert without.lines()[0] == with_coordinates.lines()[0]
    axes = [one.as_dict()["replay"]["slowdown_if_only_these_stay_slow"]["pp"]
            for one in (with_coordinates, without)]  # fmt: skip
    assert axes[1] == pytest.approx(axes[0], abs=0.001)


def test_operations_that_nothing_matches_are_stated(tmp_path: Path) -> None:
    """Here, one rank has another name for its group. Waits in it stay as recorded, so the stated
    gain is a lower bound."""
    for path in (JOBS / "slow_worker").glob("*.gz"):
        document = json.loads(gzip.decompress(path.read_bytes()))
        for event in document["traceEvents"] if path.name.startswith("rank3.") else ():
            if "Src Rank" not in (args := event.get("args", {})) and "Process Group Name" in args:
                args["Process Group Name"] = "elsewhere"
        (tmp_path / path.stem).write_text(json.dumps(document))
    [note] = [line for line in judged(tmp_path).lines() if "match none of another rank" in line]
    assert "lower bounds" in note


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("folder", "rank", "cause", "gain_ms"),
    [
        (INSIGHT / "gc_denied_rank_1pct_slower", 0, "host", 5.13),
        (INSIGHT / "input_called_compute", 0, "input", 3.79),
        (INSIGHT / "tp_partner_blamed", 3, "host", 30.0),
        (INSIGHT / "throttle_midway_denied", 3, "computing", 1.05),
        (INSIGHT / "throttle_midway_half", 1, "computing", 1.095),
        (INSIGHT / "straggler_called_exposed", 2, "input", 6.0),
        (INSIGHT / "headline_halved", 1, "computing", 4.54),
        (INSIGHT / "copy_called_host_gap", 3, "copies", 3.0),
        (INSIGHT / "host_bound_fsdp8", 3, "host", 0.563),
        (GENERAL / "straggler_with_varying_sizes/vary", 2, "computing", 3.0),
        (GENERAL / "straggler_with_varying_sizes/same", 2, "computing", 3.0),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_the_slow_rank_its_cause_and_its_cost(
    folder: Path, rank: int, cause: str, gain_ms: float
) -> None:
    """The true gain is that of the same job without the problem."""
    (culprit,) = judged(folder).verdict.culprits
    assert (culprit.rank, culprit.why) == (rank, cause)
    assert culprit.gain_ns / 1e6 == pytest.approx(gain_ms, rel=0.1)


def test_late_communication_that_work_hides_is_not_longer_work() -> None:
    """The rank computes while it launches, and its peers wait for its collectives."""
    (culprit,) = judged(INSIGHT / "host_bound_fsdp8").verdict.culprits
    assert culprit.text().startswith("rank 3 begins communication 2.31 ms later than 7 peers")


def test_throttling_has_a_beginning() -> None:
    """Slower from step 5 on."""
    (culprit,) = judged(INSIGHT / "throttle_midway_half").verdict.culprits
    assert culprit.since
    assert " from step 5 on, mostly computing" in culprit.text()


def test_two_ranks_in_turn_are_both_named() -> None:
    """3.7 ms each."""
    every = judged(INSIGHT / "second_of_two_omitted").verdict.culprits
    assert sorted(one.rank for one in every) == [2, 5]
    assert [one.gain_ns / 1e6 for one in every] == pytest.approx([3.7, 3.7], rel=0.1)


def test_a_slow_link_is_not_blamed_on_its_ranks() -> None:
    """Computing between queued collectives is no evidence."""
    verdict = judged(INSIGHT / "tp_link_blamed_on_ranks").verdict
    assert verdict.culprits == ()
    assert [one.ranks for one in verdict.slow_groups] == [(4, 5)]


@pytest.mark.parametrize(
    ("name", "rule", "gain_ms"),
    [
        ("alloc_17pct_silent", "allocation", 4.8),
        ("compile_25pct_silent", "compilation", 8.0),
        ("pauses_17pct_no_rule", "iteration-gap", 5.0 * 8 / 9),  # 8 pauses between 9 steps
        ("straggler_called_exposed", "input-wait", 6.0),
        ("fp32_xmma", "full-precision", 187.06 / 9 / 2),  # all products, at twice their speed
    ],
)
def test_the_first_finding_is_the_cause_and_its_gain(name: str, rule: str, gain_ms: float) -> None:
    """The true gain is that of the same job without the problem; and nothing is an upper bound."""
    first = traceconv.diagnose(str(INSIGHT / name)).findings.findings[0]
    assert (first.rule.id, first.at_most) == (rule, False)
    assert first.ms_per_step == pytest.approx(gain_ms, rel=0.03)


@pytest.mark.parametrize(
    ("folder", "change", "gain_ms"),
    [
        (INSIGHT / "straggler_called_exposed", "rank:2=peers", 5.94),
        (INSIGHT / "straggler_called_exposed", "input:0", 6.24),
        (INSIGHT / "tp_link_blamed_on_ranks", "comm:* x1", 0.0),
        (JOBS / "slow_worker", "rank:0=peers", 22_600),
        (JOBS / "stage_imbalance", "stage:balanced", 285),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_what_a_change_gains(folder: Path, change: str, gain_ms: float) -> None:
    """The same replay as behind the verdict."""
    result = traceconv.what_if(str(folder), change=change).result
    assert result.gain_ns / 1e6 == pytest.approx(gain_ms, rel=0.03, abs=0.01)


def test_changes_add_up() -> None:
    """Nothing that may take time is left."""
    folder = str(INSIGHT / "straggler_called_exposed")
    changes = ["op:* x0", "comm:* overlap", "host:0", "input:0"]
    result = traceconv.what_if(folder, change=changes).result
    # stamps of end and start overlap; nothing shortens the time after the last operation of all
    assert max(result.after_ns[:-1]) < 1000
    half = traceconv.what_if(folder, change=["op:* x0.5", "op:* x0.5"]).result
    quarter = traceconv.what_if(folder, change="op:* x0.25").result
    assert half.after_ns == pytest.approx(quarter.after_ns, rel=1e-4)
