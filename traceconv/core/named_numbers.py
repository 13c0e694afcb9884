"""Whole numbers with names, for columns."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class NamedNumber(IntEnum):
    """A number that columns are compared with."""

    # numpy asks the class whether it computes by itself, and Python 3.11 takes several times as
    # long as the comparison to say that there is no such member
    __array_ufunc__ = np.ndarray.__array_ufunc__
