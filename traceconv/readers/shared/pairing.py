"""Which end belongs to which beginning, and which record to which instant, in columns.

Profilers write the two ends of an interval as marks of their own. What tells the marks of one
interval from those of others is its key; :func:`combined_key` makes one number of several columns.
Which mark closes which is a rule of the format:

- :func:`paired`: an end closes the mark before it with the same key, if that is a beginning.
  Intervals of one key cannot nest.
- :func:`occurrences`: the k-th mark of a key in one column belongs to the k-th in another.
- :func:`latest`: a row belongs to the last one of the same key before it.

Marks that nest, such as the begin and end events of trace-event JSON, are joined in
:mod:`traceconv.readers.shared.trace_events.pairs`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64

Rows = NDArray[np.intp]


def combined_key(*columns: I64) -> I64:
    """One number from 0 on per row; two rows have the same if they agree in every column.

    The columns become the digits of one number; where that would leave int64, values are
    replaced by their ranks.
    """
    key = np.zeros(len(columns[0]), np.int64)
    reach = 1
    for column in columns:
        low = int(column.min()) if len(column) else 0
        span = (int(column.max()) if len(column) else 0) - low + 1
        if reach * span >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            column = np.unique(column, return_inverse=True)[1].astype(np.int64)
            low, span, reach = 0, len(column) + 1, len(column) + 1
        key = key * span + (column - low)
        reach *= span
    return key


def paired(key: I64, begins: NDArray[np.bool_]) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Ends with the latest beginning of the same key that is still open.

    Args:
        key:    of every mark, none negative, in the order the marks were made.
        begins: whether a mark is a beginning; else it is an end.

    Returns:
        The rows of the beginnings and of the ends of all pairs, in the order of the beginnings,
        and which rows found a partner. A beginning after an open one replaces it.
    """
    order = _stable(key)
    ordered, first = key[order], begins[order]
    # a beginning directly before an end of its key: all other marks have no partner
    at = np.flatnonzero((ordered[1:] == ordered[:-1]) & (first[:-1] > first[1:]))
    partner = np.full(len(key), -1, np.intp)
    partner[order[at]] = order[at + 1]
    start = np.flatnonzero(partner >= 0)
    end = partner[start]
    matched = partner >= 0
    matched[end] = True
    return start, end, matched


def _stable(key: I64) -> Rows:
    """The stable order of keys, none negative; packed with their rows where that fits, since
    values sort faster than indices.
    """
    bits = len(key).bit_length()
    if not len(key) or int(key.max()) >> (62 - bits):
        return np.argsort(key, kind="stable")
    packed = np.sort(key << bits | np.arange(len(key)))
    return packed & ((1 << bits) - 1)


def occurrences(key: I64, time: I64) -> tuple[Rows, I64]:
    """Rows by key, then time; and for each of them, how many of its key come before it."""
    order = np.lexsort((time, key))
    ordered = key[order]
    new = np.ones(len(key), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(new)
    # the number of the run a row is in finds where that run began
    return order, np.arange(len(key)) - first[np.cumsum(new) - 1] if len(key) else key


def latest(key: I64, time: I64, wanted: I64, until: I64) -> I64:
    """For each of ``wanted`` the last row of that key whose time is not after ``until``.

    Returns:
        Rows; the first of the key where all are later, -1 where the key is unknown.
    """
    if not len(key):
        return np.full(len(wanted), -1, np.int64)
    order = np.lexsort((time, key))
    # sort rows and questions together: the rows counted up to a question end with its answer
    every = np.concatenate((key, wanted))
    when = np.concatenate((time, until))
    asked = np.concatenate((np.zeros(len(key), bool), np.ones(len(wanted), bool)))
    place = np.lexsort((asked, when, every))
    before = np.cumsum(~asked[place]) - 1
    at = np.empty(len(every), np.int64)
    at[place] = before
    at = at[len(key) :]
    ordered = key[order]
    # where all rows of the key are later, the count ended with another key
    first = np.minimum(np.searchsorted(ordered, wanted), len(key) - 1)
    at = np.maximum(at, first)
    return np.where(ordered[at] == wanted, order[at], -1)
