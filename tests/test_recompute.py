"""Every figure of every golden case, recomputed from the trace that is written of it."""

import json

import pytest
from job_simulator import Delay, Job, run, write_kineto
from layouts import MEGATRON, Layout

from tests.recompute.capture import ELSEWHERE, KEYS, Capture
from tests.recompute.compare import DIFFERENT, EQUAL, UNKNOWN_HERE, Tally
from traceconv.analysis.tables.catalog import PLUGINS, TABLES


@pytest.mark.sample(3)
def test_figures_are_those_of_the_written_trace(good, tmp_path):
    """Tables, findings, headline and report, with all arguments in the trace: equal, or not in
    it."""
    tally = Capture("input", tmp_path, **good.reading).compared()
    assert tally.differences == [], "\n".join(map(str, tally.differences))
    unknown = {t: n[UNKNOWN_HERE] for t, n in tally.counts.items() if n[UNKNOWN_HERE]}
    assert unknown == {}, "the trace shows what is called unknown"


@pytest.mark.parametrize("stated", [True, False])
def test_stages_of_a_pipeline(stated, tmp_path):
    """Ranks of two stages, of which one computes longer: what each computes and waits."""
    job, layout = tmp_path / "job", Layout(("dp", "pp"), {"dp": 2, "pp": 2}, MEGATRON)
    delays = tuple(Delay((rank,), 2e6) for rank in (2, 3))
    write_kineto(run(Job(dp=2, pp=2, steps=5, world=True, stamps="monotonic", delays=delays)), job)
    for rank in range(4 if stated else 0):
        path = job / f"rank{rank}.pt.trace.json"
        document = json.loads(path.read_text())
        document["distributedInfo"]["pg_config"] = layout.process_groups(rank, 4)
        path.write_text(json.dumps(document))
    capture = Capture(str(job), tmp_path)
    tally = capture.compared()
    assert tally.differences == [], "\n".join(map(str, tally.differences))
    document = capture.diagnosis.as_dict()  # of one micro-batch, equal stages would gain nothing
    found = [*document["findings"], *document["minor"]]
    rules = {one["rule"]: one["where"] for one in found if "stage" in one["where"]}
    assert set(rules) == ({"pipeline-bubbles", "stage-imbalance"} if stated else set())
    assert rules.get("stage-imbalance", "stage 1") == "stage 1"


def test_what_the_verdict_names_is_no_finding_of_the_report(tmp_path):
    """A rank that computes longer: the verdict names it, and the report leaves out the rule that
    compares ranks. The findings keep it."""
    job, delays = tmp_path / "job", (Delay((2,), 2e6),)
    write_kineto(run(Job(dp=4, steps=10, world=True, stamps="monotonic", delays=delays)), job)
    capture = Capture(str(job), tmp_path)
    assert capture.compared().differences == []
    shown = {one["rule"] for one in capture.document["overview"]["findings"]}
    assert "straggler" in shown and "compute-spread" not in shown
    found = {(one["rule"], one["rank"]) for one in capture.diagnosis.as_dict()["findings"]}
    assert ("compute-spread", 2) in found


def test_every_table_is_recomputed_or_says_why_not():
    """Tables of installed plugins are their authors' to test."""
    assert TABLES.keys() - PLUGINS.foreign.keys() <= KEYS.keys() | ELSEWHERE.keys()


def test_differences_are_counted_where_they_are():
    """Equal, unknown to either side, and different figures; rows that only one side has."""
    tally = Tally()
    ours = [((0, "a"), {"n": 3, "x": 0.5, "text": -(2**63)}), ((0, "b"), {"n": 1})]
    theirs = [((0, "a"), {"n": 4, "x": 0.5 + 1e-12, "text": 7}), ((0, "c"), {"n": 1})]
    tally.rows("table", ours, theirs)
    assert tally.counts["table"] == {EQUAL: 1, DIFFERENT: 3, UNKNOWN_HERE: 1}
    assert tally.differences[0] == ("table", "(0, 'a') n: 3 here, 4 recomputed")
    assert [text.partition(":")[0] for _, text in tally.differences[1:]] == ["(0, 'b')", "(0, 'c')"]
