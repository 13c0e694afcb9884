"""``inspect --counts`` tells output sizes before anything is written."""

from predicted_sizes import misses

import traceconv


def test_predictions_hold_on_golden_cases(good, tmp_path):
    """Within 15 %, in both formats and both modes, for all ranks in one file."""
    seen = traceconv.inspect("input", counts=True, **good.reading)
    assert misses(seen, tmp_path, "input", **good.reading) == []
