"""Inputs that hid losses or ended in an internal error, each with the value that is right."""

import pytest
from paths import DATA

import traceconv

HARD = DATA / "field/hard"


def test_names_keep_their_blanks():
    """Three names that differ in blanks are three."""
    [trace] = traceconv.open(HARD / "csv_names_trimmed").traces("detail")
    assert {"a ", " a", "a"} <= set(trace.strings)


@pytest.mark.parametrize("name", ["sp.tar", "dup.zip"])
def test_every_rank_of_an_archive_is_there(name):
    """A sparse file; two members of one name."""
    opened = traceconv.open(HARD / "archive_members_dropped" / name)
    assert [trace.rank for trace in opened.traces("detail")] == [0, 1]


def test_a_hard_link_is_the_file_it_names():
    """Here, the same rank again, which is said."""
    with pytest.raises(traceconv.RankError, match="same content"):
        traceconv.open(HARD / "archive_members_dropped/hl.tar").traces("detail")


def test_texts_where_counts_should_be():
    """They are counted, and in no rule."""
    report = traceconv.diagnose(HARD / "diagnose_zero_division")
    assert sum(i.count for i in report.issues if i.code == "malformed-record") >= 1


def test_samples_at_one_time_keep_their_order():
    """Also where one has more digits than the scanner reads."""
    [trace] = traceconv.open(HARD / "counter_order_native").traces("detail")
    assert trace.counters.value.tolist() == [0.30000000000000004, 5, 5]


@pytest.mark.parametrize("name", ["nccl_trace_rank_0", "snap.pickle"])
def test_pickles_that_laugh(name):
    """2**40 values that are one list have no text."""
    [trace] = traceconv.open(HARD / "pickle_laughs" / name).traces("detail")
    assert max(map(len, trace.strings)) < 1000
