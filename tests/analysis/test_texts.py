"""Columns of text against lists of text."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceconv.analysis.tables.groups import numbered
from traceconv.analysis.tables.texts import Texts

words = st.lists(st.sampled_from(["", "a", "b", "-12", "7", "-", "12345678901234567890", "é"]))


@given(words, st.data())
def test_a_column_is_a_list_of_texts(texts, data):
    """Rows, tests, replies, numbers and what is filled in."""
    column = Texts.of(texts)
    assert column.tolist() == column.column().tolist() == texts
    assert column.known.tolist() == [text != "" for text in texts]
    assert column.among("a", "7").tolist() == [text in ("a", "7") for text in texts]
    assert column.fitting(str.isdigit).tolist() == [text.isdigit() for text in texts]
    assert column.mapped(str.upper).tolist() == [text.upper() for text in texts]
    assert column.whole(-1).tolist() == [int(t) if t in ("-12", "7") else -1 for t in texts]
    assert column.numbers().tolist() == numbered(column.column()).tolist()
    others = data.draw(st.lists(st.sampled_from("xyz"), min_size=len(texts), max_size=len(texts)))
    other = Texts.of(others)
    assert column.filled(other).tolist() == [a or b for a, b in zip(texts, others, strict=True)]
    some = column.known
    kept = [text if there else "no" for text, there in zip(texts, some.tolist(), strict=True)]
    assert column.kept(some, "no").tolist() == kept
    assert Texts.concat([column, other]).tolist() == texts + others


@given(st.integers(0, 300), st.integers(0, 5))
def test_few_rows_do_not_carry_all_texts(many, few):
    """What is asked of a few of many rows is not asked of all texts."""
    column = Texts.of([f"text {i}" for i in range(many)])
    rows = np.arange(min(few, many))
    taken = column[rows]
    assert taken.tolist() == [f"text {i}" for i in rows]
    assert len(taken.values) <= 2 * len(rows) + 64
    assert [taken.at(i) for i in range(len(rows))] == taken.tolist()


def test_no_rows():
    """Of no texts, too."""
    none = Texts.concat([])
    assert len(none) == len(Texts.of([])) == 0
    assert Texts.of([]).numbers().tolist() == Texts.of([]).whole().tolist() == []
    assert Texts.of([]).fitting(bool).dtype == np.bool_
