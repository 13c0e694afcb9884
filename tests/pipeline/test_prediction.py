"""``inspect --counts`` tells output sizes before anything is written."""

import pytest
from golden_cases import Case, case_folder
from predicted_sizes import misses

import traceconv

READING = ("reader", "mapping", "rank_from")


def test_predictions_hold_on_golden_cases(golden, tmp_path, monkeypatch):
    """Within 15 %, in both formats and both modes, for all ranks in one file."""
    case = Case(golden)
    if case.error:
        pytest.skip("shows an error")
    monkeypatch.chdir(case_folder(golden))
    options = {key: case.options[key] for key in READING if key in case.options}
    seen = traceconv.inspect("input", counts=True, **options)
    assert misses(seen, tmp_path, "input", **options) == []
