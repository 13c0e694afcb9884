"""Every figure of every golden case, recomputed from the trace that is written of it."""

from tests.recompute.capture import Capture
from tests.recompute.compare import DIFFERENT, EQUAL, UNKNOWN_HERE, Tally


def test_figures_are_those_of_the_written_trace(good, tmp_path):
    """Tables, findings, headline and report, with all arguments in the trace: equal, or not in
    it."""
    tally = Capture("input", tmp_path, **good.reading).compared()
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
