"""Captures of four producers in one folder: one merge, one inspection."""

import re
from pathlib import Path

import pytest
from decoded import decode
from paths import DATA
from perfetto_decoded import shown_on

import traceconv
from traceconv.validation import validate

COPIES = {"Memory Copy", "Memory Copy(Not Overlapped)"}
OVERLAP = {"Computing", "Communication", "Communication(Not Overlapped)", "Free", *COPIES}


def test_four_producers_in_one_summary(four, tmp_path):
    """Every rank has overlap lanes of what it recorded and a step trace, whoever recorded it."""
    (four / "rank2" / "mfu_2gpu_after.sqlite").unlink()
    (four / "rank2" / "mock.sqlite").symlink_to(DATA / "gpu/nsys/mock.sqlite")
    out = tmp_path / "four.pftrace"
    report = traceconv.merge(str(four), out=str(out), rank_from=r"in/rank(\d)")
    assert report.ranks == (0, 1, 2, 3)
    assert [c["reader"] for c in report.captures] == ["kineto", "trace_view", "nsight", "event_log"]
    assert validate(out).ok
    lanes = {}
    for path in decode(out).slices.track:
        lanes.setdefault(path[0].split()[1], set()).add(tuple(shown_on(path)[-2:]))
    found = {r: {n for layer, n in lanes[r] if layer == "Overlap Analysis"} for r in "0123"}
    assert found["0"] == found["1"] == OVERLAP
    assert found["3"] == OVERLAP - COPIES
    # two kernels, a copy and no collective: nothing communicates
    assert found["2"] == {"Computing", "Free", *COPIES}
    assert all(("Step Trace", "iterations") in found for found in lanes.values())


def test_a_report_of_two_processes_collides_by_name(four):
    """One file, two ranks: a rank taken from the path cannot tell them apart, and says so."""
    with pytest.raises(traceconv.TraceconvError, match="rank 2 is claimed twice"):
        traceconv.open(str(four), rank_from=r"in/rank(\d)")


EXPECTED = {
    ".sqlite": {"nsight"},
    ".paddle_trace.json": {"paddle"},
    ".paddle_trace.pb": {"paddle"},
    ".pt.trace.json.gz": {"kineto"},
    ".csv": {"event_log"},
}


def test_inspecting_all_samples_names_every_format():
    """No file is taken for a format it is not; what is not read is named."""
    seen = traceconv.inspect(str(DATA / "gpu"))
    taken = {name: c.reader for c in seen.captures for name in (*c.files, *c.known)}
    for name, reader in taken.items():
        for ending, readers in EXPECTED.items():
            if name.endswith(ending):
                assert reader in readers, name
        folder = name.split("/")[0]
        assert (folder == "chrome_edge") == (reader == "chrome_json"), name
    unknown = {Path(name).name for name in seen.unknown if "/inference/" not in name}
    assert unknown <= {
        "README.md", "summary_3steps_cpu.txt", "timer_only_log.txt", "tw003.xplane.pb"
    }  # fmt: skip
    everything = {
        p.relative_to(DATA / "gpu").as_posix() for p in DATA.glob("gpu/**/*") if p.is_file()
    }
    told = {Path(name).relative_to(DATA / "gpu").as_posix() for name in seen.unknown}
    assert set(taken) | told == everything


def test_a_folder_of_two_formats_says_which_reader_helps():
    """Raw data without a rank beside its export; every choice the message names works."""
    job = str(DATA / "ascend/mindinsight/JOB_AICPU")
    with pytest.raises(traceconv.TraceconvError, match="read one format only") as caught:
        traceconv.open(job)
    choices = re.findall(r'reader="(\w+)"', str(caught.value))
    assert set(choices) == {"mindspore", "ascend_raw"}
    assert [traceconv.open(job, reader=reader).found[0].rank for reader in choices] == [0, 0]
