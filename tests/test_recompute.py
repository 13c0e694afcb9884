"""Every figure of every golden case, recomputed from the trace that is written of it."""

import pytest
from golden_cases import Case, case_folder

from tests.recompute.capture import Capture
from tests.recompute.compare import DIFFERENT, EQUAL, UNKNOWN_HERE, Tally


def tallied(folder, tmp_path, monkeypatch):
    """The tally of a golden case, with all arguments in the trace."""
    monkeypatch.chdir(case_folder(folder))
    case = Case(folder)
    if case.error:
        pytest.skip("an error is what this case shows")
    options = {k: v for k, v in case.options.items() if k in ("rank_from", "reader", "mapping")}
    return Capture("input", tmp_path, **options).compared()


def test_figures_are_those_of_the_written_trace(golden, tmp_path, monkeypatch):
    """Tables, findings, headline and report: equal, or not in the trace."""
    tally = tallied(golden, tmp_path, monkeypatch)
    assert tally.differences == [], "\n".join(map(str, tally.differences))
    unknown = {t: n[UNKNOWN_HERE] for t, n in tally.counts.items() if n[UNKNOWN_HERE]}
    assert unknown == {}, "the trace shows what is called unknown"


def test_differences_are_counted_where_they_are():
    """Equal, unknown to either side, and different figures; rows that only one side has."""
    tally = Tally()
    ours = [((0, "a"), {"n": 3, "x": 0.5, "text": -(2**63)}), ((0, "b"), {"n": 1})]
    theirs = [((0, "a"), {"n": 4, "x": 0.5 + 1e-12, "text": 7}), ((0, "c"), {"n": 1})]
    tally.rows("table", ours, theirs)
    assert tally.counts["table"] == {EQUAL: 1, DIFFERENT: 3, UNKNOWN_HERE: 1}
    assert tally.differences[0] == ("table", "(0, 'a') n: 3 here, 4 recomputed")
    assert [text.partition(":")[0] for _, text in tally.differences[1:]] == ["(0, 'b')", "(0, 'c')"]
