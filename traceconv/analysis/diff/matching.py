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
    matched = _matched(sides, work, firsts)
    # a gap is named by the work that ends it, which may have another name now
    names = {sides[0]["name"][a]: sides[1]["name"][b] for a, b, _ in matched}
    renamed = [names.get(name, name) for name in sides[0]["name"]]
    matched += _matched(
        (_forms({**before, "name": np.array(renamed, object)}), sides[1]), waits, firsts
    )
    free = [{**work[side], **waits[side]} for side in (0, 1)]
    matched = [(a, b, _differences(sides, a, b, changed)) for a, b, changed in matched]
    matched.sort()
    moved_pairs = _moved(matched, before, after)
    matched = [
        (a, b, (*changed, MOVED) if i in moved_pairs and MOVED not in changed else changed)
        for i, (a, b, changed) in enumerate(matched)
    ]
    only = [(a, -1, (REMOVED,)) for a in free[0]] + [(-1, b, (ADDED,)) for b in free[1]]
    all_pairs = matched + only
    return Pairs(
        np.array([a for a, _, _ in all_pairs], np.int64),
        np.array([b for _, b, _ in all_pairs], np.int64),
        tuple(changed for _, _, changed in all_pairs),
        _instead(all_pairs, len(matched), before, after),
    )


def _matched(
    sides: tuple[Mapping[str, Sequence[str]], ...], free: Sequence[dict[int, None]],
    firsts: tuple[I64, I64],
) -> list[tuple[int, int, tuple[str, ...]]]:  # fmt: skip
    """Pairs of rows, and what may differ in them; they are taken out of ``free``."""
    matched: list[tuple[int, int, tuple[str, ...]]] = []
    for level in _LEVELS:
        keyed = [_keyed(side, rows, level) for side, rows in zip(sides, free, strict=True)]
        for key in [key for key in keyed[0] if key in keyed[1]]:
            rows_before, rows_after = keyed[0][key], keyed[1][key]
            if level.even and len(rows_before) != len(rows_after):
                continue
            for a, b in _paired(rows_before, rows_after, *firsts):
                matched.append((a, b, level.changed))
                del free[0][a], free[1][b]
    return matched


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
    depth, characters = 0, []
    for char in name:
        depth += char == "<"
        if not depth:
            characters.append(char)
        depth -= char == ">" and depth > 0
    short = "".join(characters).partition("(")[0].strip()
    return short.rpartition(" ")[2] or name


def digitless(name: str) -> str:
    """:func:`plain`, and without digits."""
    return _DIGITS.sub("#", plain(name))


def _keyed(
    side: Mapping[str, Sequence[str]], rows: Mapping[int, None], level: Level
) -> dict[tuple[str, ...], list[int]]:
    """The rows by what a level asks for."""
    rows_by_key: dict[tuple[str, ...], list[int]] = {}
    columns = [side[name] for name in level.same]
    for row in rows:
        if level.sorts and side["sort"][row] not in level.sorts:
            continue
        if KERNEL in level.changed and not side["type"][row]:
            continue
        rows_by_key.setdefault(tuple(column[row] for column in columns), []).append(row)
    return rows_by_key


def _paired(
    rows_before: Sequence[int], rows_after: Sequence[int], first_here: I64, first_there: I64
) -> list[tuple[int, int]]:
    """Candidates one to one: in their order, or where they are not equally many the nearest."""
    rows_before = sorted(rows_before, key=lambda row: (first_here[row], row))
    rows_after = sorted(rows_after, key=lambda row: (first_there[row], row))
    if len(rows_before) == len(rows_after) or len(rows_before) * len(rows_after) > _MOST_PAIRED:
        return list(zip(rows_before, rows_after, strict=False))
    near = sorted(
        (abs(int(first_here[a]) - int(first_there[b])), i, j)
        for (i, a), (j, b) in product(enumerate(rows_before), enumerate(rows_after))
    )
    left, right, pairs = set(range(len(rows_before))), set(range(len(rows_after))), []
    for _, i, j in near:
        if i in left and j in right:
            left.discard(i)
            right.discard(j)
            pairs.append((rows_before[i], rows_after[j]))
    return pairs


def _differences(
    sides: Sequence[Mapping[str, Sequence[str]]], a: int, b: int, changed: tuple[str, ...]
) -> tuple[str, ...]:
    """What of ``changed`` differs indeed."""
    before, after = sides
    columns = {MOVED: "module", SHAPE: "shape", KERNEL: "plain", GROUP: "type", OPERATOR: "type"}
    return tuple(
        change for change in changed if before[columns[change]][a] != after[columns[change]][b]
    )


# -- places in the step --------------------------------------------------------------------


def _moved(
    matched: Sequence[tuple[int, int, tuple[str, ...]]], before: Columns, after: Columns
) -> set[int]:
    """Which pairs are at another place among those of their sort: out of the order that most of
    them keep, and by more than their own place differs between the steps of a run."""
    moved: set[int] = set()
    for sort in Sort:
        placed = [
            i for i, (a, b, _) in enumerate(matched)
            if before["sort"][a] == sort and before["first"][a] >= 0 <= after["first"][b]
        ]  # fmt: skip
        ranks_before = _ranks([int(before["first"][matched[i][0]]) for i in placed])
        second = _ranks([int(after["first"][matched[i][1]]) for i in placed])
        order = sorted(range(len(placed)), key=lambda i: ranks_before[i])
        in_order = set(_increasing([second[i] for i in order]))
        for n, i in enumerate(order):
            a, b, _ = matched[placed[i]]
            loose = max(int(columns["last"][row] - columns["first"][row])
                        for columns, row in ((before, a), (after, b)))  # fmt: skip
            if n not in in_order and abs(ranks_before[i] - second[i]) > loose:
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
    chosen, position = [], places[-1] if places else -1
    while position >= 0:
        chosen.append(position)
        position = before[position]
    return chosen[::-1]


def _instead(
    all_pairs: Sequence[tuple[int, int, tuple[str, ...]]],
    matched: int,
    before: Columns,
    after: Columns,
) -> dict[int, tuple[int, ...]]:
    """For computation that only one run has, the operations between the same neighbours in the
    other run: the parts of a fused kernel, or the kernel that they were fused to."""
    pairs = [
        (int(before["first"][a]), int(after["first"][b]))
        for a, b, _ in all_pairs[:matched]
        if before["first"][a] >= 0 <= after["first"][b]
    ]
    pairs.sort()
    in_order = _increasing(_ranks([second for _, second in pairs]))
    anchors = [[pairs[i][side] for i in in_order] for side in (0, 1)]
    slots: dict[int, tuple[list[int], list[int]]] = {}
    for row, (a, b, _) in enumerate(all_pairs[matched:], matched):
        side = int(a < 0)
        items, item_row = ((before, a), (after, b))[side]
        if items["sort"][item_row] == Sort.COMPUTE:
            slot = bisect_left(anchors[side], int(items["first"][item_row]))
            slots.setdefault(slot, ([], []))[side].append(row)
    replaced_by: dict[int, tuple[int, ...]] = {}
    for gone, new in slots.values():
        if gone and new:
            gone.sort(key=lambda row: before["first"][all_pairs[row][0]])
            new.sort(key=lambda row: after["first"][all_pairs[row][1]])
            replaced_by.update(dict.fromkeys(gone, tuple(new)))
            replaced_by.update(dict.fromkeys(new, tuple(gone)))
    return replaced_by
