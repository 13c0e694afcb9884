"""Beginnings and ends in columns: which belongs to which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I64

Rows = NDArray[np.intp]


def combined_key(*columns: I64) -> I64:
    """One number per row, equal where all columns are: small columns as digits, others ranked."""
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
        key:    of every mark, in the order they were made.
        begins: whether it is a beginning; else it is an end.

    Returns:
        The rows of the beginnings and of the ends of all pairs, in the order of the beginnings,
        and which rows found a partner. A beginning after an open one replaces it.
    """
    order = _stable(key)
    ordered, first = key[order], begins[order]
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


def lost_between(sequence: NDArray[np.uint8], modulus: int = 16) -> int:
    """Records missing in a run that is numbered from 0 to ``modulus`` - 1 over and over.

    Numbers that do not follow each other more often than not number something else: 0.
    """
    if len(sequence) < 2:
        return 0
    step = (sequence[1:].astype(np.int16) - sequence[:-1]) % modulus
    gaps = (step - 1) % modulus
    return int(gaps.sum()) if int((gaps == 0).sum()) * 2 > len(gaps) else 0


def latest(key: I64, time: I64, wanted: I64, until: I64) -> I64:
    """For each of ``wanted`` the last row of that key not after ``until``.

    Returns:
        Rows; the first of the key where all are later, -1 where the key is unknown.
    """
    if not len(key):
        return np.full(len(wanted), -1, np.int64)
    order = np.lexsort((time, key))
    every = np.concatenate((key, wanted))
    when = np.concatenate((time, until))
    asked = np.concatenate((np.zeros(len(key), bool), np.ones(len(wanted), bool)))
    place = np.lexsort((asked, when, every))
    before = np.cumsum(~asked[place]) - 1
    at = np.empty(len(every), np.int64)
    at[place] = before
    at = at[len(key) :]
    ordered = key[order]
    first = np.minimum(np.searchsorted(ordered, wanted), len(key) - 1)
    at = np.maximum(at, first)
    return np.where(ordered[at] == wanted, order[at], -1)
