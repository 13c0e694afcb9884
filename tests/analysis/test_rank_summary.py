"""Facts of a rank, set aside in a file and read again."""

import numpy as np
import pytest
from report_job import parts
from synthetic_job import Job

from traceconv.analysis import rank_summary as rank_summary
from traceconv.core.errors import MalformedInputError


@pytest.fixture
def fact():
    """What a report needs of one rank."""
    return next(parts(Job(1, 2, 1, steps=3)))


def same(one, two):
    """Whether two columns hold the same."""
    return one.dtype == two.dtype and one.tolist() == two.tolist()


def test_facts_come_back_as_they_were(fact, tmp_path):
    """Columns, texts, groups and what the rules know."""
    path = tmp_path / "r.facts"
    rank_summary.save(fact, path)
    again = rank_summary.load(path)
    assert (again.rank, again.start_ns, again.unread) == (fact.rank, fact.start_ns, fact.unread)
    assert again.rules == fact.rules
    assert again.lateness.evidence.groups == fact.lateness.evidence.groups
    assert again.lateness.evidence.kinds == fact.lateness.evidence.kinds
    assert same(again.lateness.parts, fact.lateness.parts)
    for told, known in ((again.tables.tables, fact.tables.tables), (again.moments, fact.moments)):
        assert list(told) == list(known)
        for name, columns in known.items():
            assert [(h, True) for h in columns] == [
                (h, same(told[name][h], c)) for h, c in columns.items()
            ]


def test_a_file_that_is_no_facts_is_refused(fact, tmp_path):
    """Cut anywhere, of another version, or with a pickle for a column: an error that says where."""
    path = tmp_path / "r.facts"
    rank_summary.save(fact, path)
    whole = path.read_bytes()
    for n in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:n])
        with pytest.raises(MalformedInputError, match=r"r\.facts"):
            rank_summary.load(path)
    for content in (b'{"version": 99}', b"[]", b"{", b"\xff"):
        with path.open("wb") as file:
            np.savez(file, json=np.frombuffer(content, np.uint8))
        with pytest.raises(MalformedInputError, match="holds no facts of a rank"):
            rank_summary.load(path)
    with path.open("wb") as file:
        np.savez(file, json=np.array([{}], object))
    with pytest.raises(MalformedInputError, match="holds no facts of a rank"):
        rank_summary.load(path)
