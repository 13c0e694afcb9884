"""``inspect`` on the whole of the Ascend samples: every file is accounted for, once."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from effort import effort
from paths import ASCEND, DATA

import traceconv
from traceconv.cli import cli
from traceconv.cli.file_kinds import markdown_table
from traceconv.find import registry
from traceconv.readers.ascend.tables.names import USES
from traceconv.readers.shared.table_kinds import KINDS, NOT_NEEDED

TORCH = "msinsight/test/data/pytorch"

STRANGERS = {
    "README.md": "says what the samples are",
    "msinsight/scripts/ftrace_tools/test/test-data/profiling_data/end_info": "a lone clock",
    "msinsight/scripts/ftrace_tools/test/test-data/profiling_data/start_info": "a lone clock",
    "msinsight/server/src/test/test_data/metadata/profiler_metadata.json": "a lone identity",
    "msprof/msconfig/end_info": "a lone clock",
    "msprof/msconfig/host_start.log": "a lone clock",
    "msprof/msconfig/info.json": "a lone identity",
    "msprof/msconfig/sample.json": "lone settings of the collector",
    "msprof/msconfig/start_info": "a lone clock",
}
"""Files of no capture: the list of the samples, and what names or dates a capture that is not
there. They hold no events and no tables."""

WHOLE = {
    f"{TORCH}/text/level0": [0],
    f"{TORCH}/text/level1": [0, 1],
    f"{TORCH}/db/level1": [0, 1],
    f"{TORCH}/db/level2": [0],
    "msinsight/test/st/level2": [1, 3],
    "msinsight/server/src/test/test_data/test_rank_0": [0],
    "mindinsight/profiler": [0, 1],
    "mindinsight/run_1": [1],
    "mindinsight/run_3": [1],
    "mindinsight/cluster_propose": [0, 1, 2],
    "mindinsight/parallel_strategy": [0],
    "mindinsight/JOB_AICPU/expect": [0],
    "mindinsight/JOB3": [0],
    "mindinsight/JOB4": [0],
    "mindinsight/JOB_AICPU/data": [0],
    "msinsight/server/src/test/test_data/full_db": [0],
    "msinsight/server/src/test/test_data/heatMap": [0],
    "msinsight/server/src/test/test_data/test_kernel_parse": [0],
    "msinsight/server/src/test/test_data/msprof/normal": [0],
    "msinsight/server/src/test/test_data/msprof/slice": [0],
    "msinsight/server/src/test/fuzz": [0],
    "msprof-analyze/ut/advisor/timeline_advice": [0],
    "msprof-analyze/ut/advisor/advisor_backend": [0],
}
"""Folders whose captures belong together, and their ranks; a lone capture of which nothing names
the rank is taken as 0."""


def inspected(*args):
    """The document of ``inspect --json``."""
    done = CliRunner().invoke(cli, ["inspect", "--json", "-q", *args])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def whole():
    return inspected(str(ASCEND))


def test_every_file_is_accounted_for_once(whole):
    """Read for events, or known with its use, or unknown."""
    told = Counter(n for c in whole["captures"] for n in (*c["files"], *c["known"]))
    told.update(str(Path(name).relative_to(ASCEND)) for name in whole["unknown"])
    there = Counter(str(p.relative_to(ASCEND)) for p in ASCEND.rglob("*") if p.is_file())
    assert told == there


def test_the_unknown_ones_are_listed(whole):
    """Nine files that belong to no capture."""
    assert {str(Path(name).relative_to(ASCEND)) for name in whole["unknown"]} == STRANGERS.keys()


def test_every_known_file_has_a_use(whole):
    """In words; of none no more is said than that nothing is read from it."""
    for capture in whole["captures"]:
        assert capture["uses"].keys() == set(capture["known"])
        assert NOT_NEEDED not in capture["uses"].values()


def test_every_table_listed_has_a_kind_and_every_other_use_is_on_the_page(whole):
    """What a file is listed as can be looked up in docs/files.md."""
    words = {use for _, _, use in USES} | {NOT_NEEDED, "empty"}
    for capture in whole["captures"]:
        assert capture["tables"].keys() <= KINDS.keys()
        for use in capture["uses"].values():
            what, _, names = use.rpartition("table ")
            known = set(names.split(", ")) <= KINDS.keys()
            assert use in words or (what in ("", "another export of ") and known), use


def test_files_can_be_found_again(whole):
    """Names are relative to the source of their capture."""
    for capture in whole["captures"]:
        for name in (*capture["files"], *capture["known"]):
            assert (Path(capture["source"]) / name).is_file()


def test_marks_and_empty_files_are_known(whole):
    """Every ``.done``, and every file of no bytes, is one of a capture."""
    theirs = {n for c in whole["captures"] for n in (*c["files"], *c["known"])}
    harmless = {
        str(p.relative_to(ASCEND))
        for p in ASCEND.rglob("*")
        if p.is_file() and (p.suffix == ".done" or not p.stat().st_size)
    }
    assert len(harmless) > 10
    assert harmless <= theirs


def test_tables_name_their_files(whole):
    """Every file of a table is one of the capture."""
    for capture in whole["captures"]:
        named = {file for files in capture["tables"].values() for file in files}
        assert named <= {*capture["files"], *capture["known"]}


@pytest.mark.sample(2)
@pytest.mark.parametrize("folder", WHOLE)
def test_every_capture_has_its_counts(folder):
    """By kind and layer, steps, graphs, rows of tables and predicted sizes."""
    found = inspected("--counts", str(ASCEND / folder))
    assert sorted(c["rank"] for c in found["captures"]) == WHOLE[folder]
    assert (found["problem"], len(found["predicted"])) == ("", 2)
    for capture in found["captures"]:
        counts = capture["counts"]
        assert sum(counts["layers"].values()) == counts["slice"] + counts["instant"]
        assert counts["tables"].keys() >= capture["tables"].keys()


def test_lines_for_people_name_everything(whole):
    """A line per capture, the tables, what nobody knows, and why ranks cannot be told."""
    lines = CliRunner().invoke(cli, ["inspect", "-q", "-v", str(ASCEND)]).stdout.splitlines()
    assert len([line for line in lines if line.startswith(("–", *"0123456789"))]) == 33
    assert any(line.startswith("9 files no reader knows: ") for line in lines)
    assert any(line.startswith("problem: the rank of 7 of 25 captures") for line in lines)


def test_lists_of_tables_fit_a_screen():
    """A rank with several captures has the tables of all of them."""
    runner = CliRunner(env={"COLUMNS": "100"})
    lines = runner.invoke(cli, ["inspect", "-q", str(ASCEND / TORCH)]).stdout.splitlines()
    assert "rank 0-1: 6 captures, each a collection window of its rank" in lines
    first = "communication, communication_bandwidth, communication_matrix, kernel_details,"
    at = lines.index(f"tables of rank 0: {first}")
    assert lines[at + 2] == "    api_statistic, op_statistic"
    assert max(len(line) for line in lines[at:] if not line.startswith("problem: ")) <= 100


@pytest.mark.parametrize("family", ["gpu", "hub", "perfetto"])
def test_uses_of_files_of_other_profilers_are_on_the_page(family):
    """Whatever stands beside what is read. The usual run takes every fourth folder."""
    page = markdown_table(registry.readers())
    folders = sorted(p for p in (DATA / family).rglob("*") if p.is_dir())
    for path in folders[:: effort(4, 1)]:
        try:
            captures = traceconv.inspect(str(path)).captures
        except traceconv.TraceconvError:
            continue
        for capture in captures:
            assert capture.tables.keys() <= KINDS.keys()
            assert all(f"`inspect`: {use} |" in page for use in capture.uses.values())
