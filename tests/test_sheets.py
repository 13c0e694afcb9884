"""Tables beside the timeline."""

import numpy as np
import pytest

from traceconv.build import TraceBuilder
from traceconv.model import Capture
from traceconv.sheets import Sheet


def test_a_sheet_is_read_once_and_only_when_looked_at():
    """The file is opened at the first look at a column, and not again."""
    opened = []

    def load():
        opened.append(1)
        return {"Count": np.array([1, 2])}

    build = TraceBuilder(Capture("test", None, (), rank=0))
    build.sheet("op_statistic", "op_statistic.csv", load)
    sheet = build.finish().sheets["op_statistic"]
    assert opened == []
    assert (sheet["Count"].tolist(), len(sheet), "Count" in sheet) == ([1, 2], 2, True)
    assert opened == [1]


def test_columns_of_a_sheet_have_one_length():
    """A loader that gives ragged columns is a fault of the reader."""
    sheet = Sheet("x", "x.csv", lambda: {"a": np.arange(2), "b": np.arange(3)})
    with pytest.raises(ValueError, match=r"x\.csv: columns differ"):
        len(sheet)
