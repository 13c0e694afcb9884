"""Errors of clocks that our own outputs and files of offsets state: known again, and no smaller."""

import json
import shutil

import pytest
from job_simulator import Clock, Job, run, write_kineto

import traceconv
from traceconv.core.errors import ClockError

JOB = Job(
    dp=3, steps=8, layers=2, host_size=1,
    clocks=(Clock(), Clock(50_000_000, 3.0), Clock(-7_000_000)),
)  # fmt: skip


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Captures of ranks whose clocks are milliseconds apart, what ``align`` says, and outputs."""
    folder = tmp_path_factory.mktemp("stated")
    (folder / "job").mkdir()
    write_kineto(run(JOB), folder / "job")
    for ending in ("pftrace", "json", "tar"):
        traceconv.merge(folder / "job", out=str(folder / f"out.{ending}"), mode="detail")
    return folder


def errors(*paths, **how):
    """By rank, and what was checked: on the shared clock."""
    plan = traceconv.align(*map(str, paths), **how).plan
    checked = {
        rank: one.checked_ns and tuple(map(one.correction.of, one.checked_ns))
        for rank, one in plan.offsets.items()
    }
    return {rank: plan.error_ns(rank) for rank in plan.offsets}, checked


def stretches(*paths, **how):
    """Of the critical path: ranks, kinds and whether they are certain; without rounding."""
    found = traceconv.critical_path(*map(str, paths), **how).path
    assert found.why == ""
    return [(one.rank, one.kind, one.certain, round((one.end_ns - one.start_ns) / 10))
            for one in found.segments]  # fmt: skip


@pytest.mark.parametrize("ending", ["pftrace", "json", "tar"])
def test_outputs_state_errors_that_are_known_again(captured, ending, tmp_path):
    """What was checked, too; and outputs of outputs."""
    said, checked = errors(captured / "job")
    assert said[0] == 0
    assert min(said[1], said[2]) > 0
    again = tmp_path / f"again.{ending}"
    traceconv.merge(captured / f"out.{ending}", out=str(again), align="meta", mode="detail")
    for path in (captured / f"out.{ending}", again):
        found, instants = errors(path, method="meta")
        assert found == said
        assert all(
            (a is None) is (b is None) and (a is None or abs(a[0] - b[0]) + abs(a[1] - b[1]) <= 4)
            for a, b in zip(instants.values(), checked.values(), strict=True)
        )


def test_the_critical_path_of_an_output_is_that_of_its_captures(captured):
    """As certain, and no more."""
    true = stretches(captured / "job")
    assert any(certain for _, _, certain, _ in true)
    for ending in ("pftrace", "json"):
        found = stretches(captured / f"out.{ending}")
        assert [one[:3] for one in found] == [one[:3] for one in true]


def test_errors_hold_among_the_ranks_of_one_output_only(captured, tmp_path):
    """Two merges led by different ranks say nothing of each other."""
    parts = [("0-1", "a.json"), ("2", "b.json")]
    for ranks, name in parts:
        traceconv.merge(captured / "job", out=str(tmp_path / name), ranks=ranks, mode="detail")
    alone, _ = errors(tmp_path / "a.json", method="meta")
    assert None not in alone.values()
    found, _ = errors(*(tmp_path / name for _, name in parts), method="meta")
    assert set(found.values()) == {None}


def test_one_file_of_gathered_ranks_is_not_one_clock(captured, tmp_path):
    """An output whose metadata is silent about errors, and stamps that say nothing of 1970."""
    content = json.loads((captured / "out.json").read_text())
    facts = content["metadata"]["traceconv"]
    for one in facts["clock"]["ranks"].values():
        one.pop("error_ns", None)
    for name, base in (("unix", facts["base_ns"]), ("boot", "0")):
        facts["base_ns"] = base
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(content))
        assert set(errors(path)[0].values()) == {None}


@pytest.mark.parametrize("error", ["-1", -1, 1.5, "x", True, [], 2**70])
def test_hostile_errors_in_outputs_are_none(captured, tmp_path, error):
    """No number of ns from 0 on."""
    content = json.loads((captured / "out.json").read_text())
    clock = content["metadata"]["traceconv"]["clock"]["ranks"]
    clock["1"] |= {"error_ns": error, "checked_ns": [error, error], "at_ns": error}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert errors(tmp_path / "a.json", method="meta")[0][1] is None


def test_offsets_in_a_file_keep_their_errors(captured, tmp_path):
    """As they were stated, with what was checked; a negative one is refused."""
    path = tmp_path / "offsets.json"
    document = traceconv.align(str(captured / "job")).plan.as_dict()
    path.write_text(json.dumps(document))
    assert errors(captured / "job", method=str(path)) == errors(captured / "job")
    assert stretches(captured / "job", align=str(path)) == stretches(captured / "job")
    document["ranks"]["1"]["error_ns"] = -5
    path.write_text(json.dumps(document))
    with pytest.raises(ClockError, match="is negative"):
        errors(captured / "job", method=str(path))


def test_one_clock_of_a_host_has_no_error_from_a_file_either(tmp_path):
    """Which anchors of several hosts do not have."""
    document = {
        "0": {"offset_ns": 0, "method": "host", "evidence": "clock of host a"},
        "1": {"offset_ns": 0, "method": "host", "evidence": "stamps of one file, into which"},
        "2": {"offset_ns": 0, "method": "meta", "spread_ns": 7, "evidence": "x"},
        "3": {"offset_ns": 0, "method": "collective", "spread_ns": 7, "evidence": "x"},
    }
    job = tmp_path / "job"
    job.mkdir()
    write_kineto(run(Job(dp=4, steps=2, layers=1)), job)
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps(document))
    assert errors(job, method=str(path))[0] == {0: 0, 1: None, 2: 7, 3: None}
    shutil.rmtree(job)
