"""Tables beside the timeline."""

import numpy as np
import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture
from traceconv.core.side_tables import SideTable


def test_a_side_table_is_read_once_and_only_when_looked_at():
    """The file is opened at the first look at a column, and not again."""
    opened = []

    def load():
        opened.append(1)
        return {"Count": np.array([1, 2])}

    build = TraceBuilder(Capture("test", None, (), rank=0))
    build.side_table("op_statistic", "op_statistic.csv", load)
    side_table = build.finish().side_tables["op_statistic"]
    assert opened == []
    assert (side_table["Count"].tolist(), len(side_table), "Count" in side_table) == (
        [1, 2],
        2,
        True,
    )
    assert opened == [1]


def test_columns_of_a_side_table_have_one_length():
    """A loader that gives ragged columns is a fault of the reader."""
    side_table = SideTable("x", "x.csv", lambda: {"a": np.arange(2), "b": np.arange(3)})
    with pytest.raises(ValueError, match=r"x\.csv: columns differ"):
        len(side_table)
