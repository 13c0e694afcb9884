"""Group-by on integer columns: sorted once, then summed by group. No loop over rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import F64, I64
from traceconv.core.ordering import combined_key, in_lanes
from traceconv.core.side_tables import ABSENT

Measures = Mapping[str, NDArray[Any]]
"""What adds up over groups of groups: ``count``, ``total``, ``low``, ``high`` (int64, of the
value's unit) and ``m2``, the sum of squared deviations from the group's mean (float64)."""


class Groups(msgspec.Struct, frozen=True):
    """Rows with equal keys, brought together.

    Attributes:
        order: rows, group by group, within a group in their own order.
        start: position in ``order`` where each group begins.
    """

    order: NDArray[np.intp]
    start: NDArray[np.intp]

    @classmethod
    def of(cls, *keys: NDArray[Any]) -> Groups:
        """The groups of rows whose integers are equal in every key, ascending by key."""
        key = combined_key(*keys)
        order = in_lanes(key)
        key = key[order]
        border = np.flatnonzero(key[1:] != key[:-1]) + 1
        start = np.concatenate(([0], border)) if len(key) else border
        return cls(order, start)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def first(self) -> NDArray[np.intp]:
        """The first row of each group."""
        return self.order[self.start]

    @property
    def size(self) -> I64:
        """Rows in each group."""
        sizes = np.full(len(self.start), len(self.order), np.int64)
        sizes[:-1] = self.start[1:]
        sizes -= self.start
        return sizes

    def spread(self, value: NDArray[Any]) -> NDArray[Any]:
        """The group's ``value`` for each of its rows."""
        rows = np.empty(len(self.order), value.dtype)
        rows[self.order] = np.repeat(value, self.size)
        return rows

    def total(self, value: NDArray[Any]) -> NDArray[Any]:
        """Sum of ``value`` (one per row) in each group."""
        return self._reduced(np.add, value)

    def known_total(self, value: I64) -> I64:
        """As :meth:`total` of a column whose values may be ``ABSENT``: so is a sum with one."""
        absent = value == ABSENT
        return np.where(self.total(absent) > 0, ABSENT, self.total(np.where(absent, 0, value)))

    def low(self, value: NDArray[Any]) -> NDArray[Any]:
        """The smallest ``value`` of each group."""
        return self._reduced(np.minimum, value)

    def high(self, value: NDArray[Any]) -> NDArray[Any]:
        """The largest ``value`` of each group."""
        return self._reduced(np.maximum, value)

    def _reduced(self, operation: np.ufunc, value: NDArray[Any]) -> NDArray[Any]:
        if not len(self):
            return value[:0]
        reduced: NDArray[Any] = operation.reduceat(value[self.order], self.start)
        return reduced

    def measured(self, value: I64) -> dict[str, NDArray[Any]]:
        """:data:`Measures` of ``value`` in each group."""
        count, total = self.size, self.total(value)
        mean = total / np.maximum(count, 1)
        deviation = value[self.order] - np.repeat(mean, count)
        squares = deviation * deviation
        m2 = np.add.reduceat(squares, self.start) if len(self) else squares[:0]
        return {
            "count": count, "total": total, "low": self.low(value), "high": self.high(value),
            "m2": m2,
        }  # fmt: skip


def numbered(texts: NDArray[Any]) -> I64:
    """A number per text, equal for equal ones, in the order of the texts."""
    values = texts.tolist()
    ids = {text: i for i, text in enumerate(sorted(set(values)))}
    return np.fromiter(map(ids.__getitem__, values), np.int64, len(values))


def pooled(measures: Measures, groups: Groups) -> dict[str, NDArray[Any]]:
    """Measures of groups of groups, as if their rows had been measured together."""
    count, total = groups.total(measures["count"]), groups.total(measures["total"])
    mean = total / np.maximum(count, 1)
    means = measures["total"] / np.maximum(measures["count"], 1)
    between = measures["count"] * (means - groups.spread(mean)) ** 2
    return {
        "count": count, "total": total, "low": groups.low(measures["low"]),
        "high": groups.high(measures["high"]), "m2": groups.total(measures["m2"] + between),
    }  # fmt: skip


def mean(total: I64, count: I64) -> I64:
    """``total / count`` in whole units, rounded half up; 0 where ``count`` is 0."""
    count = np.maximum(count, 1)
    return (2 * total + count) // (2 * count)


def share(part: NDArray[Any], whole: NDArray[Any] | float) -> F64:
    """``part`` of ``whole`` in percent; NaN if the whole is 0."""
    whole = np.broadcast_to(np.asarray(whole, np.float64), np.shape(part))
    percent: F64 = np.divide(
        100.0 * part, whole, out=np.full(np.shape(part), np.nan), where=whole != 0
    )
    return percent
