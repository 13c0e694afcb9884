"""Ranks: found, named by the user, or refused."""

import pytest

from traceconv.core.errors import Issues, OptionError, RankError
from traceconv.core.model import Capture
from traceconv.core.ranks import chosen, format_ranges, rank_in_name, resolve
from traceconv.io.sources import FileSource


def _capture(tmp_path, label, rank=None):
    return Capture("test", FileSource(tmp_path / label, label), (label,), rank=rank, label=label)


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("prof/rank3/trace.json", 3),
        ("prof/rank_12_ascend_pt/trace_view.json", 12),
        ("run7/trace_5.json", 5),
        ("x.r2.json.gz", 2),
        ("trace_view.json", None),
    ],
)
def test_a_name_spells_its_rank(path, rank):
    """The usual spellings are understood."""
    assert rank_in_name(path) == rank


def test_a_lone_capture_without_rank_is_rank_0_and_says_so(tmp_path):
    """An assumption is an issue."""
    issues = Issues()
    [capture] = resolve([_capture(tmp_path, "a")], "meta", issues)
    assert (capture.rank, issues.count("rank-assumed")) == (0, 1)


def test_several_without_rank_are_refused_with_the_way_out(tmp_path):
    """The message offers what the names say."""
    with pytest.raises(RankError, match=r"\[0, 1\]: pass `rank_from=\"name\"`"):
        resolve([_capture(tmp_path, f"t_{i}.json") for i in range(2)], "meta", Issues())


def test_the_user_may_name_ranks_by_pattern(tmp_path):
    """The first group is the rank."""
    captures = [_capture(tmp_path, f"host{i}.json") for i in (4, 2)]
    assert [c.rank for c in resolve(captures, r"host(\d+)", Issues())] == [2, 4]


@pytest.mark.parametrize("rule", ["(", r"host\d", "(host)"])
def test_a_bad_pattern_is_named(tmp_path, rule):
    """Neither a traceback nor a silent rank."""
    with pytest.raises(OptionError, match="`rank_from`: "):
        resolve(
            [_capture(tmp_path, "host4.json"), _capture(tmp_path, "host5.json")], rule, Issues()
        )


def test_two_claims_of_one_rank_name_both(tmp_path):
    """The user sees which files collide."""
    with pytest.raises(RankError, match=r"rank 1 is claimed twice: by a .* and by b"):
        resolve([_capture(tmp_path, "a", 1), _capture(tmp_path, "b", 1)], "meta", Issues())


def test_asking_for_a_missing_rank_lists_those_there(tmp_path):
    """Unless missing ranks are allowed, which is then an issue."""
    captures, issues = [_capture(tmp_path, f"c{i}", i) for i in (0, 1, 2, 5)], Issues()
    with pytest.raises(RankError, match=r"rank 7 does not exist; ranks found: 0-2,5"):
        chosen(captures, [0, 7], False, issues)
    assert [c.rank for c in chosen(captures, [0, 7], True, issues)] == [0]
    assert issues.count("rank-missing") == 1


def test_ranks_are_spelled_as_users_write_them():
    """Runs are shortened."""
    assert format_ranges([3, 0, 1, 2, 7]) == "0-3,7"
