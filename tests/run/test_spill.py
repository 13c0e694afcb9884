"""Ranks set aside on disk: what is typed comes back as it was."""

import numpy as np
import pytest
from kineto_files import CALL, KERNEL, row, write

import traceconv
from traceconv.alignment.collective_records import collective_records
from traceconv.core.columns import OverlapTimes, Table
from traceconv.core.errors import MalformedInputError
from traceconv.run.spill import spill
from traceconv.store import rank_file


@pytest.fixture
def trace(tmp_path):
    """A rank with a step, device work and ranges of the user."""
    events = [
        row("user_annotation", "ProfilerStep#551", 900, 900, 0, 100),
        row("user_annotation", "loading", 900, 900, 2, 10),
        CALL, KERNEL,
    ]  # fmt: skip
    devices = [{"id": 3, "totalGlobalMem": 80 << 30}]
    write(
        tmp_path / "a.json", events, {"distributedInfo": {"rank": 0}, "deviceProperties": devices}
    )
    [found] = traceconv.open(str(tmp_path)).traces("detail")
    return found


def _plain(table: Table):
    return {name: column.tolist() for name, column in table.columns().items()}


def test_what_is_known_of_a_rank_comes_back(trace, tmp_path):
    """Steps, overlap, hints and what can be selected: in the trace, and beside it."""
    spilled = spill(trace, collective_records(trace), tmp_path / "rank.spilled")
    assert trace.hints.device_memory_bytes == {3: 80 << 30}
    assert trace.overlap.sums_ns == OverlapTimes(30_000, 0, 0, 70_000, known=100_000)
    for back in (spilled.load(), spilled.account):
        assert _plain(back.steps) == _plain(trace.steps)
        assert (back.overlap, back.hints, back.notes) == (trace.overlap, trace.hints, trace.notes)
        assert isinstance(back.overlap.sums_ns, OverlapTimes)
        assert back.present.steps.tolist() == [551]
        assert back.present.iterations == 1
        assert np.array_equal(back.present.graphs, trace.present.graphs)


@pytest.mark.parametrize(
    "broken", [{"hints": {"vendor": 7}}, {"overlap": {"spans": 1}}, {"iterations": "many"}]
)
def test_a_rank_whose_facts_are_of_other_types_is_refused(trace, tmp_path, monkeypatch, broken):
    """They are checked where they are read, not where they are used."""
    described = rank_file._described
    monkeypatch.setattr(rank_file, "_described", lambda *args: described(*args) | broken)
    spilled = spill(trace, collective_records(trace), tmp_path / "rank.spilled")
    with pytest.raises(MalformedInputError):
        spilled.load()
