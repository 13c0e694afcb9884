"""Counts of figures that are equal, unknown on either side, or different."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from decimal import Decimal

ABSENT = -(2**63)
"""How columns of whole numbers hold what is not known."""

EQUAL, UNKNOWN_HERE, UNKNOWN_THERE, DIFFERENT = (
    "equal", "unknown to traceconv", "not in the trace", "different",
)  # fmt: skip

_RELATIVE = 1e-9  # of figures that are no whole numbers: the order in which floats are added


@dataclass
class Tally:
    """Figures by table, and every difference in words."""

    counts: dict = field(default_factory=lambda: defaultdict(Counter))
    differences: list = field(default_factory=list)

    def add(self, other):
        """Take in another tally."""
        for table, counts in other.counts.items():
            self.counts[table].update(counts)
        self.differences += other.differences

    def one(self, table, where, ours, theirs):
        """Compare one figure: what traceconv says, and what was recomputed."""
        ours, theirs = plain(ours), plain(theirs)
        if ours is None and theirs is None:
            return
        outcome = EQUAL
        if ours is None:
            outcome = UNKNOWN_HERE
        elif theirs is None:
            outcome = UNKNOWN_THERE
        elif not _same(ours, theirs):
            outcome = DIFFERENT
            self.differences.append((table, f"{where}: {ours} here, {theirs} recomputed"))
        self.counts[table][outcome] += 1

    def rows(self, table, ours, theirs, columns=None):
        """Compare rows by key: lists of (key, figures) or dictionaries.

        Args:
            columns: those that are figures, None: those of the recomputed row.
        """
        left, right = _by_key(ours), _by_key(theirs)
        if left and not right:
            self.counts[table][UNKNOWN_THERE] += sum(
                plain(value) is not None
                for rows in left.values() for row in rows for name, value in row.items()
                if columns is None or name in columns
            )  # fmt: skip
            return
        for key in sorted({*left, *right}, key=repr):
            mine, other = left.get(key, []), right.get(key, [])
            if len(mine) != len(other):
                self.counts[table][DIFFERENT] += 1
                self.differences.append(
                    (table, f"{key}: {len(mine)} rows here, {len(other)} recomputed")
                )
            for one, two in zip(mine, other, strict=False):
                for name in columns or two:
                    self.one(table, f"{key} {name}", one.get(name), two.get(name))

    def lines(self):
        """A line per table, and the sum."""
        names = (EQUAL, UNKNOWN_HERE, UNKNOWN_THERE, DIFFERENT)
        yield f"{'':24}{'compared':>10}" + "".join(f"{name:>22}" for name in names)
        whole = Counter()
        for table, counts in sorted(self.counts.items()):
            yield _line(table, counts, names)
            whole.update(counts)
        yield _line("all", whole, names)


def _line(table, counts, names):
    compared = counts[EQUAL] + counts[DIFFERENT]
    return f"{table:24}{compared:>10}" + "".join(f"{counts[name]:>22}" for name in names)


def plain(value):
    """A figure; None if it is not known."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, Decimal):
        value = float(value)
    if value == ABSENT or (isinstance(value, float) and math.isnan(value)):
        return None
    return value


def _same(ours, theirs):
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours == theirs
    if isinstance(ours, float) or isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=_RELATIVE, abs_tol=_RELATIVE)
    if isinstance(ours, (list, tuple)):
        return list(ours) == list(theirs)
    return ours == theirs


def _by_key(rows):
    found = defaultdict(list)
    for key, figures in rows.items() if isinstance(rows, dict) else rows:
        found[tuple(map(plain, key))].append(figures)
    for alike in found.values():
        if len(alike) > 1:
            alike.sort(key=lambda row: sorted((k, str(plain(v))) for k, v in row.items()))
    return found
