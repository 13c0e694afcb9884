"""``inspect --counts`` tells output sizes before anything is written."""

import pytest
from golden_cases import Case, workplace

import traceconv

FORMATS = {"perfetto": ".pftrace", "chrome_json": ".json"}
READING = ("reader", "mapping", "rank_from")


def misses(seen, tmp_path, *paths, **options):
    """Predictions that are not within 15 % of what is written: format, mode, both figures."""
    found = []
    for name, ending in FORMATS.items():
        for mode, size in seen.predicted[name].items():
            out = str(tmp_path / f"{mode}{ending}")
            written = traceconv.merge(*paths, out=out, mode=mode, force=True, **options).written
            wrote = sum(one.content for one in written)
            if not 0.85 * wrote <= size <= 1.15 * wrote:
                found.append((name, mode, size, wrote))
    return found


def test_predictions_hold_on_golden_cases(golden, tmp_path, monkeypatch):
    """Within 15 %, in both formats and both modes, for all ranks in one file."""
    case = Case(golden)
    if case.error:
        pytest.skip("shows an error")
    monkeypatch.chdir(workplace(golden, tmp_path))
    options = {key: case.options[key] for key in READING if key in case.options}
    seen = traceconv.inspect("input", counts=True, **options)
    assert misses(seen, tmp_path, "input", **options) == []
