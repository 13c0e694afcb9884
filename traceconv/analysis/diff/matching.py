"""Which item of one run is which of another.

Items are paired one to one, first those that are equal in everything, then those that differ in
less and less important things: in their names but for template parameters and digits, in their
module, in their shapes, in the kernel that carries out an operator. Within a level, several
candidates are paired in the order in which they occur in a step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

import msgspec
import numpy as np

from traceconv.analysis.rank_facts import KEY, Sort
from traceconv.core.columns import I64
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import Columns

ADDED, REMOVED, MOVED = "added", "removed", "moved"
SHAPE, KERNEL, GROUP, OPERATOR = "shape", "kernel", "group", "operator"
"""In what the two items of a pair differ, besides their time: only one is there; module or place in
the step; shapes, or size of a collective; kernel of the same operator; group of ranks; operator."""

_MOST_PAIRED = 250_000  # candidates of before times those of after; above, only their order counts


class Level(msgspec.Struct, frozen=True):
    """One way to be the same.

    Attributes:
        same:    columns that have to be equal; ``plain`` and ``digitless`` are forms of the name.
        changed: what may differ.
        sorts:   of which items; () for all.
        even:    whether both runs need equally many candidates: else nothing says which is which.
    """

    same: tuple[str, ...]
    changed: tuple[str, ...] = ()
    sorts: tuple[Sort, ...] = ()
    even: bool = False


_COMPUTE = (Sort.COMPUTE,)
_COMM = (Sort.COMMUNICATION,)
_LEVELS = (
    Level(KEY),
    Level(("sort", "plain", "type", "shape", "module")),
    Level(("sort", "name", "type", "shape"), (MOVED,), _COMPUTE),
    Level(("sort", "name", "type", "module"), (SHAPE,)),
    Level(("sort", "digitless", "type", "shape", "module")),
    Level(("sort", "digitless", "type", "shape"), (MOVED,), _COMPUTE),
    Level(("sort", "digitless", "type", "module"), (SHAPE,)),
    Level(("sort", "name", "shape"), (GROUP,), _COMM),
    Level(("sort", "name"), (GROUP, SHAPE), _COMM, even=True),
    Level(("sort", "digitless", "type"), (MOVED, SHAPE), _COMPUTE, even=True),
    Level(("sort", "type", "shape", "module"), (KERNEL,), _COMPUTE, even=True),
    Level(("sort", "type", "module"), (KERNEL, SHAPE), _COMPUTE, even=True),
    Level(("sort", "digitless", "shape", "module"), (OPERATOR,), _COMPUTE, even=True),
    Level(("sort", "name"), (OPERATOR, MOVED, SHAPE), _COMPUTE, even=True),
)
"""Tried in this order. The operator has to be known where it alone says what a kernel is for."""


class Pairs(msgspec.Struct, frozen=True):
    """Items of both runs, each in one row.

    Attributes:
        before, after: rows of the items of either run; -1 where there is none.
        changed:  in what they differ.
        instead:  of items that only one run has, rows of this table: what is in their place in the
            other run.
    """

    before: I64
    after: I64
    changed: tuple[tuple[str, ...], ...]
    instead: Mapping[int, tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.before)


def match(before: Columns, after: Columns) -> Pairs:
    """Args:
    before, after: the columns of :data:`~traceconv.analysis.diff.items.KEY`, ``first`` and
        ``last``.
    """
    sides = (_forms(before), _forms(after))
    work = [dict.fromkeys(i for i, sort in enumerate(side["sort"]) if sort != Sort.WAIT)
            for side in sides]  # fmt: skip
    waits = [dict.fromkeys(i for i, sort in enumerate(side["sort"]) if sort == Sort.WAIT)
             for side in sides]  # fmt: skip
    firsts = before["first"], after["first"]
    found = _matched(sides, work, firsts)
    # a gap is named by the work that ends it, which may have another name now
    names = {sides[0]["name"][a]: sides[1]["name"][b] for a, b, _ in found}
    renamed = [names.get(name, name) for name in sides[0]["name"]]
    found += _matched(
        (_forms({**before, "name": np.array(renamed, object)}), sides[1]), waits, firsts
    )
    free = [{**work[side], **waits[side]} for side in (0, 1)]
    found = [(a, b, _differences(sides, a, b, changed)) for a, b, changed in found]
    found.sort()
    place = _moved(found, before, after)
    found = [
        (a, b, (*changed, MOVED) if i in place and MOVED not in changed else changed)
        for i, (a, b, changed) in enumerate(found)
    ]
    only = [(a, -1, (REMOVED,)) for a in free[0]] + [(-1, b, (ADDED,)) for b in free[1]]
    every = found + only
    return Pairs(
        np.array([a for a, _, _ in every], np.int64),
        np.array([b for _, b, _ in every], np.int64),
        tuple(changed for _, _, changed in every),
        _instead(every, len(found), before, after),
    )


def _matched(
    sides: tuple[Mapping[str, Sequence[str]], ...], free: Sequence[dict[int, None]],
    firsts: tuple[I64, I64],
) -> list[tuple[int, int, tuple[str, ...]]]:  # fmt: skip
    """Pairs of rows, and what may differ in them; they are taken out of ``free``."""
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for level in _LEVELS:
        keyed = [_keyed(side, rows, level) for side, rows in zip(sides, free, strict=True)]
        for key in [key for key in keyed[0] if key in keyed[1]]:
            here, there = keyed[0][key], keyed[1][key]
            if level.even and len(here) != len(there):
                continue
            for a, b in _paired(here, there, *firsts):
                found.append((a, b, level.changed))
                del free[0][a], free[1][b]
    return found


def _forms(items: Columns) -> dict[str, list[str]]:
    """The columns as lists, and the names in simpler forms."""
    columns = {key: items[key].tolist() for key in KEY}
    columns["plain"] = [plain(name) for name in columns["name"]]
    columns["digitless"] = [digitless(name) for name in columns["name"]]
    return columns


_DIGITS = lazy_regex(r"\d+")
_ANONYMOUS = lazy_regex(r"[(<](?:anonymous namespace|unnamed)[)>]::")
_CODE = lazy_regex(r"::|<")


@lru_cache(1 << 14)
def plain(name: str) -> str:
    """A name without template parameters, arguments and return type, if it is one of C++."""
    if not _CODE.search(name):
        return name
    name = _ANONYMOUS.sub("", name)
    depth, kept = 0, []
    for char in name:
        depth += char == "<"
        if not depth:
            kept.append(char)
        depth -= char == ">" and depth > 0
    short = "".join(kept).partition("(")[0].strip()
    return short.rpartition(" ")[2] or name


def digitless(name: str) -> str:
    """:func:`plain`, and without digits."""
    return _DIGITS.sub("#", plain(name))


def _keyed(
    side: Mapping[str, Sequence[str]], rows: Mapping[int, None], level: Level
) -> dict[tuple[str, ...], list[int]]:
    """The rows by what a level asks for."""
    found: dict[tuple[str, ...], list[int]] = {}
    columns = [side[name] for name in level.same]
    for row in rows:
        if level.sorts and side["sort"][row] not in level.sorts:
            continue
        if KERNEL in level.changed and not side["type"][row]:
            continue
        found.setdefault(tuple(column[row] for column in columns), []).append(row)
    return found


def _paired(
    here: Sequence[int], there: Sequence[int], first_here: I64, first_there: I64
) -> list[tuple[int, int]]:
    """Candidates one to one: in their order, or where they are not equally many the nearest."""
    here = sorted(here, key=lambda row: (first_here[row], row))
    there = sorted(there, key=lambda row: (first_there[row], row))
    if len(here) == len(there) or len(here) * len(there) > _MOST_PAIRED:
        return list(zip(here, there, strict=False))
    near = sorted(
        (abs(int(first_here[a]) - int(first_there[b])), i, j)
        for (i, a), (j, b) in product(enumerate(here), enumerate(there))
    )
    left, right, pairs = set(range(len(here))), set(range(len(there))), []
    for _, i, j in near:
        if i in left and j in right:
            left.discard(i)
            right.discard(j)
            pairs.append((here[i], there[j]))
    return pairs


def _differences(
    sides: Sequence[Mapping[str, Sequence[str]]], a: int, b: int, changed: tuple[str, ...]
) -> tuple[str, ...]:
    """What of ``changed`` differs indeed."""
    before, after = sides
    columns = {MOVED: "module", SHAPE: "shape", KERNEL: "plain", GROUP: "type", OPERATOR: "type"}
    return tuple(one for one in changed if before[columns[one]][a] != after[columns[one]][b])


# -- places in the step --------------------------------------------------------------------


def _moved(
    found: Sequence[tuple[int, int, tuple[str, ...]]], before: Columns, after: Columns
) -> set[int]:
    """Which pairs are at another place among those of their sort: out of the order that most of
    them keep, and by more than their own place differs between the steps of a run."""
    moved: set[int] = set()
    for sort in Sort:
        placed = [
            i for i, (a, b, _) in enumerate(found)
            if before["sort"][a] == sort and before["first"][a] >= 0 <= after["first"][b]
        ]  # fmt: skip
        first = _ranks([int(before["first"][found[i][0]]) for i in placed])
        second = _ranks([int(after["first"][found[i][1]]) for i in placed])
        order = sorted(range(len(placed)), key=lambda i: first[i])
        kept = set(_increasing([second[i] for i in order]))
        for n, i in enumerate(order):
            a, b, _ = found[placed[i]]
            loose = max(int(one["last"][row] - one["first"][row])
                        for one, row in ((before, a), (after, b)))  # fmt: skip
            if n not in kept and abs(first[i] - second[i]) > loose:
                moved.add(placed[i])
    return moved


def _ranks(values: Sequence[int]) -> list[int]:
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    ranks = [0] * len(values)
    for rank, i in enumerate(order):
        ranks[i] = rank
    return ranks


def _increasing(values: Sequence[int]) -> list[int]:
    """The places of a longest increasing part of ``values`` (distinct)."""
    ends: list[int] = []  # the smallest end of an increasing part of each length
    places: list[int] = []
    before = [-1] * len(values)
    for i, value in enumerate(values):
        length = bisect_left(ends, value)
        before[i] = places[length - 1] if length else -1
        if length == len(ends):
            ends.append(value)
            places.append(i)
        else:
            ends[length], places[length] = value, i
    found, at = [], places[-1] if places else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]


def _instead(
    every: Sequence[tuple[int, int, tuple[str, ...]]], matched: int, before: Columns, after: Columns
) -> dict[int, tuple[int, ...]]:
    """For computation that only one run has, the operations between the same neighbours in the
    other run: the parts of a fused kernel, or the kernel that they were fused to."""
    pairs = [
        (int(before["first"][a]), int(after["first"][b]))
        for a, b, _ in every[:matched]
        if before["first"][a] >= 0 <= after["first"][b]
    ]
    pairs.sort()
    kept = _increasing(_ranks([second for _, second in pairs]))
    anchors = [[pairs[i][side] for i in kept] for side in (0, 1)]
    slots: dict[int, tuple[list[int], list[int]]] = {}
    for row, (a, b, _) in enumerate(every[matched:], matched):
        side = int(a < 0)
        items, one = ((before, a), (after, b))[side]
        if items["sort"][one] == Sort.COMPUTE:
            slot = bisect_left(anchors[side], int(items["first"][one]))
            slots.setdefault(slot, ([], []))[side].append(row)
    found: dict[int, tuple[int, ...]] = {}
    for gone, new in slots.values():
        if gone and new:
            gone.sort(key=lambda row: before["first"][every[row][0]])
            new.sort(key=lambda row: after["first"][every[row][1]])
            found.update(dict.fromkeys(gone, tuple(new)))
            found.update(dict.fromkeys(new, tuple(gone)))
    return found
