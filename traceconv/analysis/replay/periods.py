"""Steps of a rank whose source has no steps: where the order of its communication repeats."""

from __future__ import annotations

import numpy as np

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.core.columns import I64

_REGULAR = 0.9  # of the operations that repeat what was a period before


def repeated(records: CollectiveRecords, start_ns: int, end_ns: int) -> I64:
    """(steps, 4), as :attr:`.operations.Operations.steps`: where the order of operations repeats.

    A step ends with the operation that is there once per period, the same on all ranks: the rarest.
    The rest after the last of these is not a whole step.

    Args:
        first, last: between which times of the rank they are.

    Returns:
        One step, of all there is, where nothing is there three times.
    """
    single_step = np.array([[1, 0, start_ns, end_ns]], np.int64)
    order = np.argsort(records.start_ns, kind="stable")
    size = np.array([group.size for group in records.groups] or [0])
    words = np.stack((records.group[order], records.kind[order]), axis=1).astype(np.int64)
    period = _period(words)
    if not period:
        return single_step
    ranks = size[words[:, 0]]
    groups_of: dict[tuple[int, int], set[int]] = {}
    for group, kind, count in zip(*words.T.tolist(), ranks.tolist(), strict=True):
        groups_of.setdefault((kind, count), set()).add(group)
    counts = {
        word: int(((words[:, 1] == word[0]) & (ranks == word[1])).sum()) for word in groups_of
    }
    rarest = min(counts, key=lambda word: (counts[word], len(groups_of[word]), word))
    ends = np.flatnonzero((words[:, 1] == rarest[0]) & (ranks == rarest[1]))
    if len(ends) > 1.2 * len(words) / period + 1:  # none is there once per period
        ends = np.arange(period - 1, len(words), period)
    borders = np.maximum.accumulate(records.end_ns[order[ends]])
    begins = np.concatenate(([start_ns], borders[:-1]))
    rows = np.ones(len(ends), np.int64), np.arange(len(ends)), begins, borders
    steps: I64 = np.stack(rows, axis=1)[borders > begins]
    return steps


def _period(words: I64) -> int:
    """After how many rows they repeat, 0 if they do not three times."""
    for period in range(1, len(words) // 3 + 1):
        if period == 1 or (words[period] == words[0]).all():
            repeats = (words[period:] == words[:-period]).all(axis=1)
            if repeats.mean() >= _REGULAR:
                return period
    return 0
