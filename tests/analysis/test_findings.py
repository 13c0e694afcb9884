"""Findings in words and as a document."""

import json
import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from rule_cases import (
    CAPACITY,
    FIRES,
    MS,
    QUIET,
    US,
    builder,
    device,
    iterations,
    passed,
    side_table,
)

from traceconv.analysis.rules.catalog import RULES
from traceconv.analysis.rules.findings import figure, judge, of_all_recorded
from traceconv.analysis.summarize import SummaryRequest, summarize


def summary(trace, rules=tuple(RULES)):
    """What the rules need of a rank."""
    return summarize(trace, SummaryRequest(rules=rules))


def _traces(builders):
    return [passed(one) for one in builders]


def _judged(rule, builders, **said):
    said = {key.replace("__", ".").replace("_", "-"): value for key, value in said.items()}
    parts = [summary(trace, [rule]) for trace in _traces(builders)]
    return judge(parts, CAPACITY | said if rule == "memory-capacity" else said, [rule])


def _both():
    """Two ranks of which one has long pauses, and both long tails."""
    one, two = iterations(MS, MS, pause=2 * MS, tail=0.3), iterations(MS, MS, tail=0.4)
    two = [passed(two[0])]
    moved = replace(two[0], capture=replace(two[0].capture, rank=1))
    return judge(
        [summary(passed(one[0])), summary(moved)],
        rules=["iteration-gap", "long-tail", "device-idle"],
    )


def test_people_read_the_gravest_place_first():
    """Once per rule, with the others in a line and one advice."""
    lines = _both().lines()
    assert lines[0].startswith("warning: iteration-gap: rank 0, graph 1")
    (tail,) = [line for line in lines if line.startswith("warning: long-tail")]
    assert "rank 1, graph 1" in tail
    assert "    also: rank 0, graph 1 (30 %)" in lines
    assert sum(line.startswith("    -> Fuse") for line in lines) == 1
    assert "not checked: device-idle" in lines
    every = _both().lines(every=True)
    assert any(line.startswith("not checked: device-idle: needs") for line in every)


def test_people_read_microseconds_as_the_report_spells_them():
    """Programs read the unit by its key."""
    [found] = _judged("launch-starved", FIRES["launch-starved"]).findings
    assert found.amount() == "8 µs"
    assert found.text().endswith("; below 20 µs)")
    assert found.as_dict()["unit"] == "us"
    assert figure("wait_ns", 1500) == "wait 1.50 µs"


def test_warnings_come_before_notes():
    """Whatever the order of the rules."""
    parts = [summary(trace) for trace in _traces(FIRES["workers-many"] + FIRES["cpu-busy"])]
    found = judge([parts[0], msgspec.structs.replace(parts[1], rank=1)]).findings
    assert [str(one.severity) for one in found] == ["warning", "note"]


def test_without_marked_steps_nothing_is_per_step():
    """Figures are of all that was recorded, and no step has a number."""
    [found] = _judged("device-idle", device(50 * US, idle=50 * US, first=None)).findings
    text = "\n".join(judge([summary(passed(device(50 * US, idle=50 * US, first=None)[0]))]).lines())
    assert "step" not in text.partition("checked, nothing found")[0]
    assert "at most 150 µs of the 300 µs recorded" in text
    assert (found.as_dict()["per_step"], found.ms_per_step) == (False, 0.149999)


@pytest.mark.parametrize("rule", RULES)
def test_words_of_rules_that_need_no_steps_name_none(rule):
    """Said of a capture without marks, no rule speaks of steps; those that need marks may."""
    rule = RULES[rule]
    if re.search(r"mark|step trace|iterations|reader_cost|steps? (?:of one|with)", rule.needs):
        return
    for text in (rule.title, rule.measure, *(one.measure for one in rule.limits)):
        assert not re.search(r"\bsteps?\b", of_all_recorded(text))


def test_rules_that_need_the_same_share_a_line():
    """So that what is missing can be read."""
    lines = _both().lines(every=True)
    missing = [line for line in judge([], {}).lines(every=True) if "pipeline-source" in line]
    assert missing == [
        "not checked: pipeline-operator, pipeline-source, pipeline-last: need "
        f"{RULES['pipeline-source'].needs}"
    ]
    assert any(line.startswith("not checked: device-idle: needs") for line in lines)


def test_nothing_found_is_said():
    """Not an empty page."""
    found = _judged("cpu-busy", QUIET["cpu-busy"])
    assert found.lines() == ["no rule reports anything", "checked, nothing found: cpu-busy"]
    assert "No rule reports anything." in found.markdown()


def test_document_is_complete():
    """Every finding with evidence, every quiet rule, every rule that could not look."""
    told = json.loads(_both().json_text())
    assert (told["schema_version"], told["ranks"]) == (1, [0, 1])
    assert [(one["rule"], one["rank"]) for one in told["findings"]] == [
        ("iteration-gap", 0), ("long-tail", 0), ("long-tail", 1),
    ]  # fmt: skip
    assert told["findings"][0]["slices"][0]["dur_ns"] == 2 * MS
    assert told["findings"][0]["thresholds"] == {"iteration-gap": 2.0}
    assert {one["rule"] for one in told["not_checked"]} == {"device-idle"}


def test_markdown_escapes_names():
    """A hostile operator does not make markup."""
    found = _judged("workers-few", [
        side_table(builder(), "minddata_pipeline_summary", op_ids=[1], op_names=["<b>*Map*|"],
              num_workers=[1], avg_cpu_pct=[99.0])
    ])  # fmt: skip
    assert "&lt;b>\\*Map\\*\\|" in found.markdown()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("wait_ns", 1_234_567, "wait 1.23 ms"), ("wait_ns", 999, "wait 0.999 µs"),
        ("peak_bytes", 3 << 30, "peak 3 GiB"), ("idle_percent", 12.345, "idle 12.3 %"),
        ("best_gbs", 17.58, "best 17.6 GB/s"), ("workers", 4, "workers 4"),
        ("shapes", ["a", "b"], "shapes a; b"),
    ],
)  # fmt: skip
def test_figures_have_units(name, value, said):
    """Taken from the ends of their names."""
    assert figure(name, value) == said


def test_severities_are_compared():
    """A warning is at least a note."""
    found = _both()
    assert found.at_least("note") and found.at_least("warning")
    quiet = _judged("workers-many", FIRES["workers-many"])
    assert quiet.at_least("note") and not quiet.at_least("warning")
    assert np.isfinite([one.case.value for one in found.findings]).all()
