"""``inspect --counts`` tells output sizes before anything is written."""

import json
from pathlib import Path

import pytest
from predicted_sizes import misses

import traceconv

SAMPLE = str(Path(traceconv.__file__).parents[1] / "golden" / "kineto" / "two_ranks" / "input")


@pytest.mark.sample(3)
def test_predictions_hold_on_golden_cases(sampled, tmp_path):
    """Within 15 %, in both formats and both modes, for all ranks in one file."""
    seen = traceconv.inspect("input", counts=True, **sampled.reading)
    assert misses(seen, tmp_path, "input", **sampled.reading) == []


def test_several_workers_count_the_same():
    """Counts, sizes and issues, in the same order."""
    one, two = (traceconv.inspect(SAMPLE, counts=True, jobs=jobs).as_dict() for jobs in (1, 2))
    assert json.dumps(one) == json.dumps(two)
    assert set(one["predicted"]["perfetto"]) == {"summary", "detail"}
