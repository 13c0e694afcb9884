"""Which operations of the ranks of a group are the same: each sequence against the longest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: F401 - in the types of columns

from traceconv.alignment.collective_records import P2P, CollectiveRecords
from traceconv.alignment.hypotheses import FEWEST, Pairing, Timed
from traceconv.alignment.sequences import paired
from traceconv.core.columns import I32, I64

Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""``map``, or workers that do the same: results in the order of the jobs."""

COLUMNS = 16
"""Ranks of a group in one job of a worker."""


class Matched(msgspec.Struct):
    """One group: its operations as rows, its ranks as columns.

    Attributes:
        key:   of the group.
        named: whether profilers name the group; otherwise a lane represents it.
        kinds: of each operation.
        sizes: of each operation, int64, -1 if unknown or uneven.
        ranks: ascending.
        base:  index into ``ranks`` of the one whose operations the rows are.
        start_ns, end_ns: int64 (operations, ranks), on each rank's own clock.
        row:   int32 (operations, ranks): the row in that rank's records, -1 where it has none.
        doubts: per rank, why its operations may be others than those of ``base``, or "". They are
            matched nevertheless if both ranks have the same ones in the same order, or in a named
            group so few, as of one step, that nothing else could tell.
        identified: per rank, whether the source says which of its operations are which of
            ``base``'s; then nothing was concluded from times.
    """

    key: str
    named: bool
    kinds: tuple[str, ...]
    sizes: I64
    ranks: tuple[int, ...]
    base: int
    start_ns: I64
    end_ns: I64
    row: I32
    doubts: tuple[str, ...]
    identified: tuple[bool, ...]

    def of_columns(self, columns: Sequence[int]) -> Matched:
        """Some of its ranks; the first of them is the base."""
        return Matched(
            self.key, self.named, self.kinds, self.sizes, tuple(self.ranks[c] for c in columns), 0,
            self.start_ns[:, columns], self.end_ns[:, columns], self.row[:, columns],
            tuple(self.doubts[c] for c in columns), tuple(self.identified[c] for c in columns),
        )  # fmt: skip

    def release(self) -> None:
        """Free the times after their last use."""
        self.start_ns = self.end_ns = self.start_ns[:0].copy()


def matched(
    all_records: Sequence[CollectiveRecords],
    stamped: Mapping[int, int] | None = None,
    each: Each = map,
) -> Iterator[Matched]:
    """The groups that at least two ranks know, with their operations matched.

    Operations between two of many ranks are left out, because which two is unknown. (Where groups
    have no names they are kept, as libraries build exchanges among all ranks from them.) Groups
    that more ranks claim than they have members are left out as well: several share that name.

    Args:
        stamped: per rank, what the files say has to be added to its stamps, as
            :func:`.offsets.stamped` returns it. It decides where the operations do not.
        each: compares the sequences of a few ranks per job.
    """
    tokens: dict[tuple[str, int], int] = {}
    groups: dict[str, list[tuple[CollectiveRecords, int]]] = {}
    for rank_records in all_records:
        for index, group in enumerate(rank_records.groups):
            groups.setdefault(group.key, []).append((rank_records, index))
    known: list[tuple[str, list[tuple[CollectiveRecords, int]], list[Timed], int]] = []
    for key, members in sorted(groups.items()):
        size = max(e.groups[i].size for e, i in members)
        if len(members) >= 2 and not 0 < size < len(members):
            p2p = not members[0][0].groups[members[0][1]].named or max(size, len(members)) == 2
            members.sort(key=lambda member: member[0].rank)
            sequences = [_sequence(records, index, tokens, p2p) for records, index in members]
            base = max(range(len(sequences)), key=lambda i: (len(sequences[i]), -i))
            known.append((key, members, sequences, base))
    numbered = _numbered(all_records)
    jobs = [
        (sequences[base], others[begin : begin + COLUMNS], numbered)
        for _, _, sequences, base in known
        for others in [sequences[:base] + sequences[base + 1 :]]
        for begin in range(0, len(others), COLUMNS)
    ]
    pairings = chain.from_iterable(each(_paired, jobs))
    for key, members, sequences, base in known:
        of_others = list(islice(pairings, len(sequences) - 1))
        of_all = [*of_others[:base], None, *of_others[base:]]
        yield _matched(key, members, sequences, base, of_all, stamped or {})


def _paired(job: tuple[Timed, Sequence[Timed], bool]) -> list[Pairing]:
    lead, sequences, numbered = job
    return [paired(lead, sequence, numbered) for sequence in sequences]


def _numbered(all_records: Sequence[CollectiveRecords]) -> bool:
    """Whether numbers of steps are those of the job: captures that each count from their own start
    would all begin with the same number."""
    first_steps = set()
    for rank_records in all_records:
        numbered = rank_records.step[rank_records.step >= 0]
        if len(numbered) and np.ptp(numbered):
            first_steps.add(
                int(
                    rank_records.step[
                        np.argmin(np.where(rank_records.step >= 0, rank_records.start_ns, 2**62))
                    ]
                )
            )
    return len(first_steps) > 1


def _matched(
    key: str,
    members: Sequence[tuple[CollectiveRecords, int]],
    sequences: Sequence[Timed],
    base: int,
    pairings: Sequence[Pairing | None],
    stamped: Mapping[int, int],
) -> Matched:
    lead = sequences[base]
    base_records, index = members[base]
    is_named = base_records.groups[index].named
    shape = (len(lead), len(sequences))
    row = np.full(shape, -1, np.int32)
    start, end = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    doubts, identified = [""] * len(sequences), [True] * len(sequences)
    for column, (sequence, pairing) in enumerate(zip(sequences, pairings, strict=True)):
        base_index = own_index = np.arange(len(lead))
        if pairing is not None:
            has_stamps = sequence.rank in stamped and lead.rank in stamped
            apart = stamped[sequence.rank] - stamped[lead.rank] if has_stamps else None
            doubts[column] = pairing.why_not(apart)
            same_tokens = np.array_equal(lead.token, sequence.token)
            base_index, own_index = pairing.ours, pairing.theirs
            identified[column] = pairing.identified
            if doubts[column] and not (same_tokens and len(pairing) == len(lead)):
                few = (
                    is_named
                    and same_tokens
                    and len(lead) < FEWEST
                    and np.array_equal(lead.step, sequence.step)
                )
                base_index = own_index = np.arange(len(lead) if few else 0)
                identified[column] = False
        row[base_index, column] = sequence.rows[own_index]
        start[base_index, column], end[base_index, column] = (
            sequence.start_ns[own_index],
            sequence.end_ns[own_index],
        )
    kinds = tuple(base_records.kinds[k] for k in base_records.kind[lead.rows].tolist())
    ranks = tuple(m[0].rank for m in members)
    sizes = base_records.size[lead.rows]
    verdicts = tuple(doubts), tuple(identified)
    return Matched(key, is_named, kinds, sizes, ranks, base, start, end, row, *verdicts)


def _sequence(
    records: CollectiveRecords, index: int, tokens: dict[tuple[str, int], int], p2p: bool
) -> Timed:
    rows = np.arange(len(records))[records.of_group(index)]
    if not p2p and P2P in records.kinds:
        rows = rows[records.kind[rows] != records.kinds.index(P2P)]
    rows = rows[np.argsort(records.end_ns[rows], kind="stable")]
    sizes, size = np.unique(records.size[rows], return_inverse=True)
    used, word = np.unique(records.kind[rows] * len(sizes) + size, return_inverse=True)
    kinds_sizes = zip((used // len(sizes)).tolist(), sizes[used % len(sizes)].tolist(), strict=True)
    token = [tokens.setdefault((records.kinds[kind], n), len(tokens)) for kind, n in kinds_sizes]
    return Timed(
        records.rank,
        rows,
        np.array(token, np.int64)[word],
        records.step[rows].astype(np.int64),
        records.start_ns[rows],
        records.end_ns[rows],
        records.identity[rows] if len(records.identity) else records.identity,
    )
